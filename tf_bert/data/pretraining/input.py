"""The TFRecords of pre-training as a ``tf.data`` pipeline.

Training reads the files in a seeded order, several at a time, shuffles their records over a buffer and starts anew for
ever; evaluation reads the files and their records in order, as the original does. Records are batched before they are
parsed, which is five times faster than one by one. Lengths, damage and ids beyond the tables are checked on the host.

A position in the training data is a number of records: the same seed gives the same order, so that a run goes on where
it stopped by skipping what it has had.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from tf_bert.data.pretraining.dynamic_masking import DynamicMasking
from tf_bert.data.pretraining.packing import EXAMPLE_LENGTHS, RowSize
from tf_bert.data.tfrecord.features import Feature, assert_values, check_example
from tf_bert.data.tfrecord.files import decode_example, read_records
from tf_bert.data.tfrecord.input_pipeline import (
    SHUFFLE_BUFFER,
    check_same,
    count_each,
    errors_checked_by,
    files_and_sidecars,
    shuffled_passes,
)
from tf_bert.data.tfrecord.sidecar import sidecar_path
from tf_bert.files import is_remote

SEQUENCE_FEATURES = ("input_ids", "input_mask", "segment_ids")
PREDICTION_FEATURES = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
WORD_STARTS = "word_starts"
_LARGER_VOCABULARY = "were the records made with a larger vocabulary than the model's?"
_OUTSIDE = {
    "input_ids": _LARGER_VOCABULARY,
    "masked_lm_ids": _LARGER_VOCABULARY,
    "segment_ids": "the model needs a larger type_vocab_size for these records",
}


@dataclass(frozen=True)
class RecordFiles:
    """TFRecord files of one kind of pre-training examples.

    Args:
        files: paths, in order; at least one holds a record.
        max_seq_length: tokens of an example, padding included (S).
        max_predictions_per_seq: masked positions of an example, padding included (P).
        sidecars: what stands in the ``.json`` beside each file, ``{}`` for a file without one.
        masking: how records without masks are masked while they are read; None for records with masks.
        next_sentence: False for records of single segments, whose ``next_sentence_labels`` mean nothing and are left
            out of the batches.
        row: what each record holds where it holds several examples (`tf_bert.data.pretraining.packing`): S and P of
            the batches are then those of a row.
    """

    files: tuple[str, ...]
    max_seq_length: int
    max_predictions_per_seq: int
    sidecars: tuple[Mapping, ...] = field(repr=False)
    masking: DynamicMasking | None = None
    next_sentence: bool = True
    row: RowSize | None = None

    @property
    def record_length(self) -> int:
        """Tokens in each record, padding included."""
        return self.row.length if self.row else self.max_seq_length

    def counts(self) -> list[int]:
        """The number of records in each file, from its sidecar or counted."""
        return count_each(self.files, self.sidecars)


def find_records(
    patterns: str | os.PathLike | Sequence,
    max_seq_length: int | None = None,
    max_predictions_per_seq: int | None = None,
) -> RecordFiles:
    """Finds TFRecord files and checks that they hold examples of the lengths that are asked for.

    Lengths come from the ``.json`` beside a file where there is one, else from its first record.

    Args:
        patterns: a comma-separated list of file names and globs, or a list of such strings. Sidecar files that a glob
            matches beside their records are passed over.
        max_seq_length: the expected length; None takes what is found.
        max_predictions_per_seq: the expected number of masked positions; None takes what is found.

    Returns:
        The files and their lengths.

    Raises:
        FileNotFoundError: when a pattern matches nothing.
        ValueError: for a file of other lengths (file, feature, found and expected are named), for a damaged file, for
            a file of something else, for files made with different vocabularies, and when no file holds a record.
    """
    files, sidecars = files_and_sidecars(patterns)
    expected = {"max_seq_length": max_seq_length, "max_predictions_per_seq": max_predictions_per_seq}
    source = "asked for"
    empty = []
    for path, sidecar in zip(files, sidecars, strict=True):
        found = _lengths(path, sidecar)
        if found is None:
            empty.append(path)
            continue
        for flag, features in (
            ("max_seq_length", SEQUENCE_FEATURES),
            ("max_predictions_per_seq", PREDICTION_FEATURES),
        ):
            if expected[flag] is None and found[flag] is not None:
                expected[flag], source = found[flag], f"in {path}"
            if found[flag] not in (None, expected[flag]):
                raise ValueError(
                    f"{path}: {features[0]} has {found[flag]} values a record, expected {expected[flag]} ({source}); "
                    f"use --{flag}={found[flag]} or make the records again with {flag} {expected[flag]}"
                )
    if len(empty) == len(files):
        raise ValueError(f"no record in {', '.join(empty)}")
    if expected["max_predictions_per_seq"] == 0:
        raise ValueError(f"{files[0]} was made with max_predictions_per_seq 0: no token is masked, so none is learned")
    check_same(files, sidecars, ("vocab_sha256", "do_lower_case"))
    masking = None
    if _agreed(files, sidecars, "masking", "static") == "dynamic":
        masking = DynamicMasking.from_facts(sidecars[0])
        if expected["max_predictions_per_seq"]:
            masking = dataclasses.replace(masking, max_predictions_per_seq=expected["max_predictions_per_seq"])
        expected["max_predictions_per_seq"] = masking.max_predictions_per_seq
    records = RecordFiles(
        tuple(files),
        expected["max_seq_length"],
        expected["max_predictions_per_seq"],
        tuple(sidecars),
        masking,
        _agreed(files, sidecars, "next_sentence", True),
        RowSize.of({"packed_length": _agreed(files, sidecars, "packed_length", None), **expected}),
    )
    _check_first_records(records)
    return records


def _check_first_records(records: RecordFiles) -> None:
    """Compares the first record of each file with what is noted; of remote files only of the first."""
    features, first = _features(records, None), True
    for path in records.files:
        record = next(read_records(path), None) if first or not is_remote(path) else None
        if record is None:
            continue
        first = False
        try:
            check_example(_decode(path, record, records), features, f"{path}: record 1")
        except ValueError as error:
            noted = os.path.exists(sidecar_path(path))
            raise ValueError(f"{error}{f' ({sidecar_path(path)} notes other records)' if noted else ''}") from None


def _agreed(files: Sequence[str], sidecars: Sequence[Mapping], key: str, default):
    """What the sidecars say of a matter in which all files have to be alike."""
    values = [sidecar.get(key, default) for sidecar in sidecars]
    for path, value in zip(files, values, strict=True):
        if value != values[0]:
            raise ValueError(f"{files[0]} was made with {key} {values[0]}, but {path} with {value}: use one kind only")
    return values[0]


def _lengths(path: str, sidecar: Mapping) -> dict[str, int | None] | None:
    """The lengths of a file's records, None for what is up to the reader; or None when it has no record."""
    keys = ("max_seq_length", "max_predictions_per_seq")
    if all(key in sidecar for key in keys) and sidecar.get("records", 1):
        if sidecar.get("masking") == "dynamic" and not sidecar.get("packed_length"):
            return {"max_seq_length": sidecar["max_seq_length"], "max_predictions_per_seq": None}
        return {key: sidecar[key] for key in keys}
    record = next(read_records(path), None)
    if record is None:
        return None
    example = _decode(path, record)
    return {"max_seq_length": len(example["input_ids"]), "max_predictions_per_seq": len(example["masked_lm_positions"])}


def _decode(path: str, record: bytes, records: RecordFiles | None = None, number: int = 1) -> dict[str, list]:
    try:
        example = decode_example(record)
    except ValueError as error:
        raise ValueError(f"{path}: record {number} is no pre-training example: {error}") from None
    if EXAMPLE_LENGTHS in example and not (records and records.row):
        raise ValueError(f"{path} was made with --packed_length, but the {path}.json that says how is not there")
    missing = {*SEQUENCE_FEATURES, *PREDICTION_FEATURES, "next_sentence_labels"} - set(example)
    if WORD_STARTS in example:
        missing -= set(PREDICTION_FEATURES)
        if not (records and records.masking):
            raise ValueError(f"{path} was made with --masking=dynamic, but the {path}.json that says how is not there")
    if missing:
        raise ValueError(
            f"{path}: record {number} is no pre-training example: {', '.join(sorted(missing))} missing, "
            f"found {', '.join(sorted(example)) or 'nothing'}"
        )
    return example


def train_dataset(
    records: RecordFiles,
    batch_size: int,
    *,
    seed: int = 12345,
    shuffle_buffer: int = SHUFFLE_BUFFER,
    skip_records: int = 0,
    limits: Mapping[str, int] | None = None,
    shard: tuple[int, int] = (0, 1),
    deterministic: bool = True,
) -> tf.data.Dataset:
    """Endless shuffled batches for training.

    The order is that of `shuffled_passes`. Batches run on from one pass into the next, so none is short.

    Args:
        records: from `find_records`.
        batch_size: records in a batch (B).
        seed: of the order. It is combined with TensorFlow's global seed (``keras.utils.set_random_seed``).
        shuffle_buffer: records to draw the next one from; one that holds all of them shuffles perfectly, 1 keeps the
            order in which the files are read.
        skip_records: where to begin: this many records were had already. Whole passes are skipped without reading.
        limits: feature -> smallest value that is too large (see `id_limits`); checked in every batch.
        shard: (index, count) of this worker among those that read together: it gets its share of the files, or of
            the records when there are fewer files than workers.
        deterministic: False lets a file that is slow to read come later than its turn.

    Returns:
        A dataset of dicts: ``input_ids``, ``input_mask``, ``segment_ids`` int32 [B, S], ``masked_lm_positions``,
        ``masked_lm_ids`` int32 [B, P], ``masked_lm_weights`` float32 [B, P], ``next_sentence_labels`` int32 [B, 1]; of
        packed records ``example_lengths`` and ``next_sentence_labels`` int32 [B, E].
    """
    index, count = shard
    by_file = len(records.files) >= count
    files = list(records.files[index::count] if by_file else records.files)

    first_pass, first_record = 0, skip_records
    if skip_records:
        held = sum(records.counts()[index::count]) if by_file else (sum(records.counts()) - index + count - 1) // count
        first_pass, skip_records = divmod(skip_records, held)

    by_record = (0, 1) if by_file else shard
    passes = shuffled_passes(files, seed, shuffle_buffer, first_pass, shard=by_record, deterministic=deterministic)
    dataset = passes.skip(skip_records).batch(batch_size, drop_remainder=True)

    def number(batch: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        """The number of a record in the whole stream, which no two workers share."""
        return (first_record + batch * batch_size + place) * count + index

    return _parsed(dataset, records, limits, deterministic, seed, number)


def eval_dataset(
    records: RecordFiles,
    batch_size: int,
    *,
    repeat: bool = True,
    limits: Mapping[str, int] | None = None,
) -> tf.data.Dataset:
    """Batches for evaluation: files and records in order, without shuffling.

    Args:
        records: from `find_records`.
        batch_size: records in a batch.
        repeat: True starts anew for ever, in full batches (the original's way); False reads each record once, and
            the last batch may be short.
        limits: feature -> smallest value that is too large (see `id_limits`).

    Returns:
        A dataset of dicts as `train_dataset`.
    """
    dataset = tf.data.Dataset.from_tensor_slices(list(records.files)).flat_map(tf.data.TFRecordDataset)
    dataset = (dataset.repeat() if repeat else dataset).batch(batch_size, drop_remainder=repeat)
    return _parsed(dataset, records, limits, True, 0, lambda batch, place: batch * batch_size + place)


def id_limits(vocab_size: int, type_vocab_size: int) -> dict[str, int]:
    """What ids in a record must stay below for a model with tables of these sizes."""
    return {"input_ids": vocab_size, "masked_lm_ids": vocab_size, "segment_ids": type_vocab_size}


def _parsed(
    dataset: tf.data.Dataset,
    records: RecordFiles,
    limits: Mapping[str, int] | None,
    deterministic: bool,
    seed: int,
    number: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> tf.data.Dataset:
    """Parses batches of records, checks ids, and masks what has no masks by the ``number`` of each record."""
    features = _features(records, limits)
    specs = {name: feature.spec() for name, feature in features.items()}
    masking = records.masking and dataclasses.replace(records.masking, seed=seed)

    def parse(batch_number: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = assert_values(tf.io.parse_example(serialized, specs), features)
        if masking is None:
            real = tf.gather(batch["input_mask"], batch["masked_lm_positions"], batch_dims=1) == 1
            real |= batch["masked_lm_weights"] == 0.0
            tf.debugging.Assert(tf.reduce_all(real), ["masked_lm_positions at padding"])
        if not records.next_sentence:
            del batch["next_sentence_labels"]
        if records.row:
            fits = tf.reduce_max(tf.reduce_sum(batch[EXAMPLE_LENGTHS], axis=1)) <= records.row.length
            tf.debugging.Assert(fits, [f"{EXAMPLE_LENGTHS} that add up to more than {records.row.length}"])
        if masking is None:
            return batch
        numbers = number(batch_number, tf.range(tf.size(serialized, tf.int64)))
        return masking.mask_rows(numbers, batch, records.row) if records.row else masking(numbers, batch)

    return (
        dataset.enumerate()
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)
        .prefetch(tf.data.AUTOTUNE)
    )


def _features(records: RecordFiles, limits: Mapping[str, int] | None) -> dict[str, Feature]:
    """What each record has to hold."""
    row = records.row or RowSize(records.max_seq_length, records.max_predictions_per_seq, 1)
    features = {
        "input_ids": Feature(row.length),
        "input_mask": Feature(row.length, 2),
        "segment_ids": Feature(row.length),
        "next_sentence_labels": Feature(row.examples, 2),
    }
    if records.masking:
        features[WORD_STARTS] = Feature(row.length, 2)
    else:
        features |= {
            "masked_lm_positions": Feature(row.predictions, row.length),
            "masked_lm_ids": Feature(row.predictions),
            "masked_lm_weights": Feature(row.predictions, None),
        }
    if records.row:
        features[EXAMPLE_LENGTHS] = Feature(row.examples, records.max_seq_length + 1)
    for name, limit in (limits or {}).items():
        if name in features:
            hint = _OUTSIDE.get(name, features[name].hint)
            features[name] = dataclasses.replace(features[name], limit=limit, hint=hint)
    return features


def record_errors(
    records: RecordFiles, limits: Mapping[str, int] | None = None
) -> contextlib.AbstractContextManager[None]:
    """Turns what TensorFlow says about bad records inside the block into an error that names the file and the record.

    Args:
        records: what is read inside the block.
        limits: as given to the dataset.

    Raises:
        ValueError: from `check_records`.
    """
    return errors_checked_by(lambda: check_records(records, limits))


def check_records(records: RecordFiles, limits: Mapping[str, int] | None = None) -> None:
    """Reads every record and checks its checksums, features, lengths and ids.

    Raises:
        ValueError: names the file, the number of the record, the feature, what was found and what was expected.
    """
    features = _features(records, limits)
    for path in records.files:
        for number, record in enumerate(read_records(path), 1):
            where = f"{path}: record {number}"
            example = _decode(path, record, records, number)
            check_example(example, features, where)
            _check_places(example, where)
            if records.row and sum(example[EXAMPLE_LENGTHS]) > records.row.length:
                found = sum(example[EXAMPLE_LENGTHS])
                raise ValueError(f"{where}: {EXAMPLE_LENGTHS} add up to {found}, expected at most {records.row.length}")


def _check_places(example: Mapping[str, Sequence], where: str) -> None:
    """Raises ValueError where padding is to be predicted."""
    for position, weight in zip(
        example.get("masked_lm_positions", ()), example.get("masked_lm_weights", ()), strict=False
    ):
        if weight and not example["input_mask"][position]:
            raise ValueError(
                f"{where}: masked_lm_positions holds {position}, where input_mask is 0; make the records again"
            )
