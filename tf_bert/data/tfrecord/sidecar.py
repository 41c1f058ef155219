"""The small ``.json`` beside a TFRecord file that says how its records were made.

``records.tfrecord.json`` holds at least ``max_seq_length``, ``max_predictions_per_seq``, ``vocab_sha256``,
``vocab_size``, ``do_lower_case`` and ``records``, their number. A trainer compares it with what it was told, so that a
mismatch is found before the first step. Records without one, such as the original's, are as good: their lengths are
read from the first record.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

from tf_bert.files import atomic_writer, is_remote, remove_file
from tf_bert.json_files import read_json_object


def sidecar_path(records: str | os.PathLike) -> str:
    """The name of the file beside ``records``."""
    return os.fspath(records) + ".json"


def write_sidecar(records: str | os.PathLike, sidecar: Mapping[str, Any]) -> None:
    """Writes the file beside ``records``, unless that is no ordinary file (``/dev/stdout``)."""
    if is_remote(records) or os.path.isfile(records):
        with atomic_writer(sidecar_path(records), "w") as file:
            file.write(json.dumps(dict(sidecar), indent=2) + "\n")


def remove_sidecar(records: str | os.PathLike) -> None:
    """Removes the file beside ``records``, before they are replaced by others that it would be wrong about."""
    with contextlib.suppress(FileNotFoundError):
        remove_file(sidecar_path(records))


def read_sidecar(records: str | os.PathLike) -> dict[str, Any]:
    """Reads the file beside ``records``.

    Returns:
        Its sidecar, or ``{}`` where there is no such file.

    Raises:
        ValueError: when it is no JSON object.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "a.tfrecord")
        ...     open(path, "w").close()
        ...     write_sidecar(path, {"max_seq_length": 128})
        ...     read_sidecar(path), read_sidecar(path + "2")
        ({'max_seq_length': 128}, {})
    """
    path = sidecar_path(records)
    try:
        return read_json_object(path)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{error}; delete it, and lengths are read from the records") from None
