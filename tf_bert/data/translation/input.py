"""The records of parallel text as batches of like lengths, with ``tf.data``.

A batch holds about as many tokens as every other one: pairs are gathered in buckets by the length of their longer
side, and a bucket's batch has ``tokens // width`` rows. At the end of a pass the rest of each bucket makes a batch that
is filled up with rows of padding, which weigh nothing; so each bucket has one number of rows, every pair is seen once
a pass, and the number of batches of a pass follows from the lengths noted beside the records: a run goes on where it
stopped by skipping batches, whole passes without reading.
"""

import bisect
import collections
import contextlib
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tf_bert.data.tfrecord.features import Feature, assert_values, check_example
from tf_bert.data.tfrecord.files import decode_example, read_records
from tf_bert.data.tfrecord.input_pipeline import errors_checked_by, files_and_sidecars, shuffled_passes
from tf_bert.data.translation.pairs import KIND
from tf_bert.tokenization.subwords import load_subwords
from tf_bert.tokenization.vocabulary import vocab_sha256

SHUFFLE_BUFFER = 20_000
BATCHES_SHUFFLED = 64
SIDES = ("source_ids", "target_ids")
_NEEDED = [f"{side}_{what}" for side in ("source", "target") for what in ("vocab_file", "vocab_sha256", "vocab_size")]
_NEEDED += ["source_do_lower_case", "target_do_lower_case", "lengths", "records"]


@dataclasses.dataclass(frozen=True)
class TranslationRecords:
    """TFRecord files of pairs that were made with the same vocabularies.

    Args:
        files: paths, in order.
        sidecar: what the ``.json`` of the first says.
        lengths: length of the longer side -> number of pairs, over all files.
    """

    files: tuple[str, ...]
    sidecar: Mapping
    lengths: Mapping[int, int]

    @property
    def count(self) -> int:
        """The number of pairs."""
        return sum(self.lengths.values())

    @property
    def longest(self) -> int:
        """The length of the longest side."""
        return max(self.lengths)

    def vocab_files(self) -> tuple[str, str]:
        """The vocabularies of source and target, which lie beside the records."""
        folder = os.path.dirname(self.files[0])
        return tuple(os.path.join(folder, self.sidecar[f"{side}_vocab_file"]) for side in ("source", "target"))

    def tokenizers(self) -> tuple:
        """The tokenizers of source and target: one object where they share a vocabulary.

        Raises:
            FileNotFoundError, ValueError: a vocabulary is not there, or is not the one that the records were made with.
        """
        files = self.vocab_files()
        for side, path in zip(("source", "target"), files, strict=True):
            if vocab_sha256(path) != self.sidecar[f"{side}_vocab_sha256"]:
                raise ValueError(f"{path} has changed: {self.files[0]} was made with another vocabulary")
        source = load_subwords(files[0], self.sidecar["source_do_lower_case"])
        return source, source if files[0] == files[1] else load_subwords(files[1], self.sidecar["target_do_lower_case"])


def find_translation_records(patterns: str | os.PathLike | Sequence) -> TranslationRecords:
    """Finds TFRecord files of ``create_translation_data``.

    Args:
        patterns: a comma-separated list of file names and globs, or a list of such strings.

    Raises:
        FileNotFoundError: when a pattern matches nothing.
        ValueError: a file without its ``.json``, of something else, or made with other vocabularies.
    """
    files, sidecars = files_and_sidecars(patterns)
    lengths, first = collections.Counter(), None
    for path, sidecar in zip(files, sidecars, strict=True):
        if sidecar.get("kind") != KIND:
            found = f"says it holds {sidecar.get('kind', 'something else')}" if sidecar else "is not there"
            raise ValueError(f"{path} holds no parallel text of ours: {path}.json {found}; see create_translation_data")
        lacking = [key for key in _NEEDED if key not in sidecar]
        if lacking:
            raise ValueError(f"{path}.json does not note {', '.join(lacking)}: make the records again")
        first = first or sidecar
        for key in ("source_vocab_sha256", "target_vocab_sha256"):
            if sidecar[key] != first[key]:
                raise ValueError(f"records do not go together: {key} differs between {files[0]} and {path}")
        if not all(length.isdecimal() and int(length) > 0 for length in sidecar["lengths"]):
            raise ValueError(f"{path}.json: lengths are {', '.join(sidecar['lengths'])}, expected numbers from 1")
        if sum(sidecar["lengths"].values()) != sidecar["records"]:
            raise ValueError(f"{path}.json notes the lengths of other pairs than its {sidecar['records']} records")
        lengths.update({int(length): number for length, number in sidecar["lengths"].items()})
    if not lengths:
        raise ValueError(f"no record in {', '.join(files)}")
    return TranslationRecords(tuple(files), first, lengths)


def bucket_widths(longest: int) -> list[int]:
    """The widths of the buckets: each about a fifth wider than the one before, the last one ``longest``.

    Example:
        >>> bucket_widths(50)
        [8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 50]
    """
    widths, width = [], 8
    while width < longest:
        widths.append(width)
        width += max(4, width // 5 // 4 * 4)
    return [*widths, longest]


@dataclasses.dataclass(frozen=True)
class Batching:
    """How pairs become batches.

    Args:
        tokens: padded positions of the longer side in a batch, at most.
        least: rows of a batch at least, so that each replica gets one. The number of replicas changes nothing else.
        pad_to_bucket: whether batches are as wide as their bucket, so that there are few shapes, as XLA wants; else
            each side is as wide as its longest row.
        one_shape: whether there is one bucket, as wide as the longest pair, whose rows the replicas share evenly: all
            shapes are static, as a TPU needs them, and short pairs cost as much as long ones.
    """

    tokens: int
    least: int = 1
    pad_to_bucket: bool = False
    one_shape: bool = False

    def widths(self, records: TranslationRecords) -> list[int]:
        """The widths of the buckets."""
        return [records.longest] if self.one_shape else bucket_widths(records.longest)

    def rows(self, width: int) -> int:
        """The rows of a batch of this width.

        Example:
            >>> Batching(tokens=100).rows(8), Batching(tokens=100, least=2).rows(128)
            (12, 2)
            >>> Batching(tokens=100, least=8, one_shape=True).rows(8)
            8
        """
        rows = max(self.tokens // width, self.least)
        return rows // self.least * self.least if self.one_shape else rows

    def batches_in_pass(self, records: TranslationRecords) -> int:
        """How many batches a pass over the records makes."""
        widths = self.widths(records)
        pairs = collections.Counter()
        for length, number in records.lengths.items():
            pairs[widths[bisect.bisect_left(widths, length)]] += number
        return sum(-(-number // self.rows(width)) for width, number in pairs.items())


def train_dataset(
    records: TranslationRecords,
    batching: Batching,
    *,
    seed: int = 12345,
    shuffle_buffer: int = SHUFFLE_BUFFER,
    skip_batches: int = 0,
    limits: tuple[int, int] | None = None,
    pad_id: int = 0,
) -> tf.data.Dataset:
    """Endless shuffled batches.

    The order of the pairs is that of `shuffled_passes`; the batches of each pass are shuffled once more.

    Args:
        records: from `find_translation_records`.
        batching: how pairs become batches.
        seed: of the order; it is combined with TensorFlow's global seed.
        shuffle_buffer: pairs in memory to draw the next one from.
        skip_batches: where to begin.
        limits: ids of source and target must lie below these.
        pad_id: what fills up source and target.

    Returns:
        A dataset of dicts: ``source_ids`` [B, S] and ``target_ids`` [B, T] int32, ``source_mask`` and ``target_mask``,
        1 for real positions.
    """
    first_pass, skipped = divmod(skip_batches, batching.batches_in_pass(records))

    def batches(serialized: tf.data.Dataset, own_seed: tf.Tensor) -> tf.data.Dataset:
        return _batches(serialized, records, batching, limits, pad_id).shuffle(BATCHES_SHUFFLED, seed=own_seed)

    passes = shuffled_passes(records.files, seed, shuffle_buffer, first_pass, change=batches)
    return passes.skip(skipped).prefetch(tf.data.AUTOTUNE)


def eval_dataset(
    records: TranslationRecords,
    batching: Batching,
    *,
    limits: tuple[int, int] | None = None,
    pad_id: int = 0,
) -> tf.data.Dataset:
    """Every pair once, in batches of like lengths, as `train_dataset` gives them; the same order each time."""
    serialized = tf.data.Dataset.from_tensor_slices(list(records.files)).flat_map(tf.data.TFRecordDataset)
    return _batches(serialized, records, batching, limits, pad_id).prefetch(tf.data.AUTOTUNE)


def rows_of_worker(batches: tf.data.Dataset, worker: int, workers: int, replicas: int) -> tf.data.Dataset:
    """The rows of each batch that a worker's replicas take, a batch for each of its replicas.

    Replica i of n takes the rows i, i + n, ... of every batch, so that together they take the batch of one device.

    Args:
        batches: of all workers, the same for each; a batch has a row for every replica at least.
        worker, workers: number of this worker, and how many there are. A single one takes whole batches: Keras divides
            them itself.
        replicas: of all workers together.

    Example:
        >>> batches = tf.data.Dataset.from_tensors({"x": [0, 1, 2, 3, 4]})
        >>> [batch["x"].numpy().tolist() for batch in rows_of_worker(batches, 1, 2, 4)]
        [[2], [3]]
    """
    if workers == 1:
        return batches
    own = range(worker * replicas // workers, (worker + 1) * replicas // workers)

    def divide(batch: dict[str, tf.Tensor]) -> tf.data.Dataset:
        parts = [tf.data.Dataset.from_tensors({name: value[i::replicas] for name, value in batch.items()}) for i in own]
        return functools.reduce(tf.data.Dataset.concatenate, parts)

    return batches.flat_map(divide)


def _batches(serialized, records, batching: Batching, limits, pad_id) -> tf.data.Dataset:
    """Batches of one pass."""
    widths = batching.widths(records)
    rows = [batching.rows(width) for width in widths]
    features = _features(limits)
    specs = {name: feature.spec() for name, feature in features.items()}

    def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
        pair = assert_values(tf.io.parse_single_example(record, specs), features)
        for name, ids in pair.items():
            fits = (tf.size(ids) > 0) & (tf.size(ids) <= records.longest)
            tf.debugging.Assert(fits, [f"{name} of another length than noted"])
        return {
            name.replace("ids", part): value
            for name, ids in pair.items()
            for part, value in (("ids", ids), ("mask", tf.ones_like(ids)))
        }

    def length(pair: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.maximum(tf.size(pair["source_ids"]), tf.size(pair["target_ids"]))

    padding = {"source_ids": pad_id, "target_ids": pad_id, "source_mask": 0, "target_mask": 0}

    def fill(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        longest = tf.maximum(*(tf.reduce_max(tf.reduce_sum(batch[f"{side}_mask"], 1)) for side in ("source", "target")))
        wanted = tf.gather(rows, tf.searchsorted(widths, [longest])[0])
        missing = wanted - tf.shape(batch["source_ids"])[0]
        batch = {
            name: tf.pad(value, [[0, missing], [0, 0]], constant_values=padding[name]) for name, value in batch.items()
        }
        shape = [*rows, *widths] if batching.one_shape else [None, None]
        return {name: tf.ensure_shape(value, shape) for name, value in batch.items()}

    return (
        serialized.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .bucket_by_sequence_length(
            length,
            [width + 1 for width in widths],
            [*rows, 1],  # the last one is of longer pairs, which there are not
            padding_values=padding,
            pad_to_bucket_boundary=batching.pad_to_bucket or batching.one_shape,
        )
        .map(fill, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    )


def _features(limits: tuple[int, int] | None) -> dict[str, Feature]:
    """What each record has to hold."""
    hint = "were the records made with a larger vocabulary than the model's?"
    return {
        name: Feature(None) if limit is None else Feature(None, limit, hint)
        for name, limit in zip(SIDES, limits or (None, None), strict=True)
    }


def translation_record_errors(
    records: TranslationRecords, limits: tuple[int, int] | None = None
) -> contextlib.AbstractContextManager[None]:
    """Turns what TensorFlow says about bad records inside the block into an error that names the file and the record.

    Raises:
        ValueError: from `check_translation_records`.
    """
    return errors_checked_by(lambda: check_translation_records(records, limits))


def check_translation_records(records: TranslationRecords, limits: tuple[int, int] | None = None) -> None:
    """Reads every record and checks its checksums, features and ids.

    Raises:
        ValueError: names the file, the number of the record, the feature, what was found and what was expected.
    """
    features = _features(limits)
    for path in records.files:
        for number, record in enumerate(read_records(path), 1):
            where = f"{path}: record {number}"
            try:
                example = decode_example(record)
            except ValueError as error:
                raise ValueError(f"{where} is no pair of texts: {error}") from None
            check_example(example, features, where)
            longest = max(len(example[name]) for name in SIDES)
            if longest > records.longest:
                raise ValueError(
                    f"{where} has a side of {longest} ids, and the .json beside the records notes {records.longest} as "
                    "the longest: make the records again"
                )
