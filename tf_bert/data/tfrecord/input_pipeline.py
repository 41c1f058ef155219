"""What pipelines over TFRecord files share: files and their sidecars, shuffled passes, errors that name a record."""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from tf_bert.data.text.lines import expand_input_files
from tf_bert.data.tfrecord.files import count_records
from tf_bert.data.tfrecord.sidecar import read_sidecar, sidecar_path
from tf_bert.files import file_size, is_remote

FILES_READ_AT_ONCE = 4
_CHECKED_BYTES = 4 << 30
SHUFFLE_BUFFER = 10_000


def files_and_sidecars(patterns: str | os.PathLike | Sequence) -> tuple[list[str], list[dict]]:
    """TFRecord files, and what stands in the ``.json`` beside each of them: ``{}`` where there is none.

    Args:
        patterns: a comma-separated list of file names and globs, or a list of such strings. Sidecars that a glob
            matches beside their records are passed over.

    Raises:
        FileNotFoundError: a pattern matches nothing.
        ValueError: a file is cut short or no TFRecord file, or holds another number of records than is noted.
    """
    paths = expand_input_files(patterns)
    files = [path for path in paths if not (path.endswith(".json") and path.removesuffix(".json") in paths)]
    sidecars = [read_sidecar(path) for path in files]
    _check_frames(files, sidecars)
    return files, sidecars


def _check_frames(files: Sequence[str], sidecars: Sequence[Mapping]) -> None:
    """Compares the lengths in TFRecord files with their sizes, and their records with what is noted.

    TensorFlow ends the program where a length is too large for the memory. The first `_CHECKED_BYTES` of local files
    are looked at, which takes seconds; what is beyond, or remote, is believed.
    """
    checked = 0
    for path, sidecar in zip(files, sidecars, strict=True):
        if is_remote(path) or not os.path.isfile(path):
            continue
        checked += file_size(path)
        if checked > _CHECKED_BYTES:
            return
        found = count_records(path)
        if not found:
            warnings.warn(f"{path} holds no record", stacklevel=3)
        if sidecar.get("records", found) != found:
            raise ValueError(
                f"{path} holds {found} records, and {sidecar_path(path)} notes {sidecar['records']}: one of the two "
                "was replaced; make the records again"
            )


def check_same(files: Sequence[str], sidecars: Sequence[Mapping], keys: Sequence[str]) -> None:
    """Checks that all sidecars that have a key have the same value.

    Raises:
        ValueError: names the key and two files.

    Example:
        >>> check_same(["a", "b", "c"], [{"vocab_sha256": "1"}, {}, {"vocab_sha256": "2"}], ["vocab_sha256"])
        Traceback (most recent call last):
        ...
        ValueError: records do not go together: vocab_sha256 differs between a and c
    """
    for key in keys:
        noted = {sidecar[key]: path for path, sidecar in zip(files, sidecars, strict=True) if key in sidecar}
        if len(noted) > 1:
            first, second, *_ = noted.values()
            raise ValueError(f"records do not go together: {key} differs between {first} and {second}")


def check_vocab_size(path: str, sidecar: Mapping, vocab_size: int, key: str = "vocab_size") -> None:
    """Checks that the vocabulary which records were made with has no more pieces than a model's table.

    Args:
        path: the records.
        sidecar: what is noted next to them.
        vocab_size: rows of the table.
        key: the key of that number in the sidecar; records without it pass.

    Raises:
        ValueError: there are more.

    Example:
        >>> check_vocab_size("a", {"vocab_size": 40}, 30)
        Traceback (most recent call last):
        ...
        ValueError: a was made with a vocabulary of 40 pieces (a.json), and the configuration has vocab_size 30: ...
    """
    if sidecar.get(key, 0) > vocab_size:
        raise ValueError(
            f"{path} was made with a vocabulary of {sidecar[key]} pieces ({path}.json), and the configuration has "
            f"{key} {vocab_size}: ids would lie beyond the table"
        )


def count_each(files: Sequence[str], sidecars: Sequence[Mapping]) -> list[int]:
    """The number of records in each file, from its sidecar or counted."""
    return [
        sidecar["records"] if "records" in sidecar else count_records(path)
        for path, sidecar in zip(files, sidecars, strict=True)
    ]


def shuffled_passes(
    files: Sequence[str],
    seed: int,
    shuffle_buffer: int,
    first_pass: int = 0,
    *,
    shard: tuple[int, int] = (0, 1),
    deterministic: bool = True,
    change: Callable[[tf.data.Dataset, tf.Tensor], tf.data.Dataset] | None = None,
) -> tf.data.Dataset:
    """The records of files, pass after pass without end.

    Each pass shuffles the files, reads a few of them at a time and shuffles their records over a buffer, all by
    ``seed`` and the number of the pass.

    Args:
        files: TFRecord files.
        seed: of the order; it is combined with TensorFlow's global seed.
        shuffle_buffer: records to draw the next one from.
        first_pass: the number of the pass to begin with.
        shard: (index, count): each pass keeps every ``count``-th record, from ``index`` on.
        deterministic: False lets a file that is slow to read come later than its turn.
        change: what becomes of each pass, from its records and its own seed.
    """
    files, (index, count) = list(files), shard

    def one_pass(number: tf.Tensor) -> tf.data.Dataset:
        own = seed + number
        serialized = (
            tf.data.Dataset.from_tensor_slices(files)
            .shuffle(len(files), seed=own)
            .interleave(
                tf.data.TFRecordDataset,
                cycle_length=min(FILES_READ_AT_ONCE, len(files)),
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=deterministic,
            )
        )
        if count > 1:
            serialized = serialized.shard(count, index)
        serialized = serialized.shuffle(shuffle_buffer, seed=own)
        return change(serialized, own) if change else serialized

    return tf.data.Dataset.range(first_pass, tf.int64.max).flat_map(one_pass)


@contextlib.contextmanager
def errors_checked_by(check: Callable[[], None]) -> Iterator[None]:
    """Where TensorFlow finds records bad inside the block, ``check`` says which one before the error goes on."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        check()
        raise  # the records are good: it is about something else
