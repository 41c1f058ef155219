"""The ``.json`` file next to a TFRecord file that states how its records were made.

``records.tfrecord.json`` holds at least ``max_seq_length``, ``max_predictions_per_seq``, ``vocab_sha256``,
``vocab_size``, ``do_lower_case`` and ``records``, their number. A trainer compares it with what it was told, so that a
mismatch is found before the first step. Records without one, such as the original's, are as good: their lengths are
read from the first record.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from tf_bert.files import atomic_writer, is_remote, remove_file
from tf_bert.json_files import read_json_object
from tf_bert.tokenization.vocabulary import vocab_sha256

_LARGEST = 1 << 24  # of lengths and vocabularies


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value


def _is_size(value: Any) -> bool:
    return _is_number(value) and 0 < value <= _LARGEST


# What readers rely on: kind -> what is expected, whether a value is that, names.
_KINDS = (
    ("a whole number", _is_number, {"records", "max_predictions_per_seq"}),
    ("null or a whole number", lambda value: value is None or _is_number(value), {"end_id"}),
    (
        f"a whole number from 1 to {_LARGEST}",
        _is_size,
        {"max_seq_length", "vocab_size", "block_size", "max_length"} | {"source_vocab_size", "target_vocab_size"},
    ),
    (
        f"null or a whole number from 1 to {_LARGEST}",
        lambda value: value is None or _is_size(value),
        {"packed_length"},
    ),
    ("a number from 0 to 1", lambda value: type(value) in (int, float) and 0 <= value <= 1, {"masked_lm_prob"}),
    (
        "true or false",
        lambda value: isinstance(value, bool),
        {"do_lower_case", "next_sentence", "do_whole_word_mask", "source_do_lower_case", "target_do_lower_case"}
        | {"tokenize_chinese_chars"},
    ),
    ("null, true or false", lambda value: value is None or isinstance(value, bool), {"strip_accents"}),
    ("'static' or 'dynamic'", lambda value: value in ("static", "dynamic"), {"masking"}),
    (
        "a text",
        lambda value: isinstance(value, str),
        {"kind", "tokenizer", "vocab_file", "vocab_sha256"}
        | {f"{side}_vocab_{what}" for side in ("source", "target") for what in ("file", "sha256")},
    ),
    (
        "an object of whole numbers",
        lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
        {"special_ids", "lengths"},
    ),
    (
        "a list of whole numbers",
        lambda value: isinstance(value, list) and all(map(_is_number, value)),
        {"excluded_replacement_ids"},
    ),
)


def sidecar_path(records: str | os.PathLike) -> str:
    """The name of the file beside ``records``."""
    return os.fspath(records) + ".json"


def write_sidecar(records: str | os.PathLike, sidecar: Mapping[str, Any]) -> None:
    """Writes the file beside ``records``, unless that is no ordinary file (``/dev/stdout``)."""
    if is_remote(records) or os.path.isfile(records):
        with atomic_writer(sidecar_path(records), "w") as file:
            file.write(json.dumps(dict(sidecar), indent=2, ensure_ascii=False) + "\n")


def remove_sidecar(records: str | os.PathLike) -> None:
    """Removes the file beside ``records``, before they are replaced by others that it would be wrong about."""
    with contextlib.suppress(FileNotFoundError):
        remove_file(sidecar_path(records))


def read_sidecar(records: str | os.PathLike) -> dict[str, Any]:
    """Reads the file beside ``records``.

    Returns:
        Its sidecar, or ``{}`` where there is no such file.

    Raises:
        ValueError: when it is no JSON object, or a value is of another kind than it has to be.

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
        sidecar = read_json_object(path)
        _check_kinds(sidecar, path)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{error}; make the records again (masked ones of one example are read without it)") from None
    return sidecar


def _check_kinds(sidecar: Mapping[str, Any], path: str) -> None:
    """Raises ValueError where a value that readers rely on is of another kind."""
    for expected, is_right, names in _KINDS:
        for name in names & sidecar.keys():
            if not is_right(sidecar[name]):
                raise ValueError(f"{path}: {name} is {sidecar[name]!r:.40}, expected {expected}")


def noted_vocabulary(sidecars: Iterable[Mapping[str, Any]], near: Iterable[str | None] = ()) -> str | None:
    """Finds the vocabulary that sidecars note: where it was, or as ``vocab.txt`` in the folder of some file.

    Args:
        sidecars: of the records.
        near: files, or None.

    Returns:
        Its path, or None where no file has the noted SHA-256.
    """
    noted = next((sidecar for sidecar in sidecars if "vocab_sha256" in sidecar), None)
    if noted is None:
        return None
    places = [noted.get("vocab_file"), *(os.path.join(os.path.dirname(path), "vocab.txt") for path in near if path)]
    there = (path for path in places if path and os.path.isfile(path))
    return next((path for path in there if vocab_sha256(path) == noted["vocab_sha256"]), None)
