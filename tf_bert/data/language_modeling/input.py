"""The blocks of ``create_language_modeling_data`` as a ``tf.data`` pipeline, in the order that a seed gives.

A position in the training data is a number of records, as in `tf_bert.data.pretraining.input`.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

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


@dataclass(frozen=True)
class BlockFiles:
    """TFRecord files of blocks.

    Args:
        files: paths, in order; at least one holds a record.
        block_size: S, the tokens that a block predicts.
        sidecars: what stands in the ``.json`` beside each file.
    """

    files: tuple[str, ...]
    block_size: int
    sidecars: tuple[Mapping, ...] = field(repr=False)

    def counts(self) -> list[int]:
        """The number of records in each file."""
        return count_each(self.files, self.sidecars)


def find_blocks(patterns: str | os.PathLike | Sequence) -> BlockFiles:
    """Finds TFRecord files of blocks and checks that they go together.

    Args:
        patterns: file names and globs, separated by commas; the ``.json`` beside a file is passed over.

    Raises:
        FileNotFoundError: a pattern matches nothing.
        ValueError: a file is damaged or of something else, files have different blocks or vocabularies, or there is no
            record.
    """
    files, sidecars = files_and_sidecars(patterns)
    sizes = {}
    for path, sidecar in zip(files, sidecars, strict=True):
        record = next(read_records(path), None)
        if record is not None:
            example = _decode(path, record)
            sizes[path] = sidecar.get("block_size", len(example["input_ids"]) - 1)
            if sizes[path] < 1:
                raise ValueError(f"{path}: record 1: input_ids has {sizes[path] + 1} values, expected 2 or more")
            check_example(example, _features(sizes[path], None), f"{path}: record 1")
    if not sizes:
        raise ValueError(f"no record in {', '.join(files)}")
    (first, size), *others = sizes.items()
    for path, found in others:
        if found != size:
            raise ValueError(f"{path} has blocks of {found} tokens, and {first} of {size}: use one kind only")
    check_same(files, sidecars, ("vocab_sha256", "tokenizer"))
    return BlockFiles(tuple(files), size, tuple(sidecars))


def _decode(path: str, record: bytes, number: int = 1) -> dict[str, list]:
    try:
        example = decode_example(record)
    except ValueError as error:
        raise ValueError(f"{path}: record {number} is no block of tokens: {error}") from None
    missing = {"input_ids", "document_ids", "num_tokens", "num_bytes"} - set(example)
    if missing:
        raise ValueError(
            f"{path} holds no blocks of create_language_modeling_data: {', '.join(sorted(missing))} missing, found "
            f"{', '.join(sorted(example)) or 'nothing'}"
        )
    return example


def train_dataset(
    blocks: BlockFiles,
    batch_size: int,
    *,
    seed: int = 12345,
    shuffle_buffer: int = SHUFFLE_BUFFER,
    skip_records: int = 0,
    vocab_size: int | None = None,
    end_id: int | None = None,
    mask_documents: bool = False,
) -> tf.data.Dataset:
    """Endless shuffled batches, in the order of `shuffled_passes`.

    Args:
        blocks: from `find_blocks`.
        batch_size: blocks in a batch (B).
        seed: of the order.
        shuffle_buffer: records to draw the next one from.
        skip_records: where to begin.
        vocab_size: what ids must stay below.
        end_id: the token between documents.
        mask_documents: whether a document is to be predicted from itself alone: adds ``document_ids``, and the first
            token after a boundary has no weight where no ``end_id`` stands before it.

    Returns:
        A dataset of dicts for `tf_bert.models.gpt.GPT`: ``input_ids``, ``label_ids``, ``input_mask`` int32 [B, S],
        ``label_weights`` float32 [B, S], ``num_bytes`` int32 [B, 1]; and ``document_ids`` int32 [B, S].
    """
    first_pass, skipped = divmod(skip_records, sum(blocks.counts())) if skip_records else (0, 0)
    passes = shuffled_passes(blocks.files, seed, shuffle_buffer, first_pass)
    dataset = passes.skip(skipped).batch(batch_size, drop_remainder=True)
    return _parsed(dataset, blocks, vocab_size, end_id, mask_documents)


def eval_dataset(
    blocks: BlockFiles,
    batch_size: int,
    *,
    vocab_size: int | None = None,
    end_id: int | None = None,
    mask_documents: bool = False,
) -> tf.data.Dataset:
    """Every block once, in order; see `train_dataset`."""
    dataset = tf.data.Dataset.from_tensor_slices(list(blocks.files)).flat_map(tf.data.TFRecordDataset)
    return _parsed(dataset.batch(batch_size), blocks, vocab_size, end_id, mask_documents)


def _parsed(
    dataset: tf.data.Dataset, blocks: BlockFiles, vocab_size: int | None, end_id: int | None, mask_documents: bool
) -> tf.data.Dataset:
    length = blocks.block_size + 1
    features = _features(blocks.block_size, vocab_size)
    specs = {name: feature.spec() for name, feature in features.items()}

    def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        example = assert_values(tf.io.parse_example(serialized, specs), features)
        ids, documents = example["input_ids"], example["document_ids"]  # [B, S + 1]
        real = tf.range(length)[None] < example["num_tokens"]
        weights = real[:, 1:]
        if mask_documents:
            begins = documents[:, 1:] != documents[:, :-1]
            weights &= ~begins | (ids[:, 1:] == (-1 if end_id is None else end_id))
        batch = {
            "input_ids": ids[:, :-1],
            "label_ids": ids[:, 1:],
            "input_mask": tf.cast(real[:, :-1], tf.int32),
            "label_weights": tf.cast(weights, tf.float32),
            "num_bytes": example["num_bytes"],
        }
        return batch | ({"document_ids": documents[:, :-1]} if mask_documents else {})

    return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _features(block_size: int, vocab_size: int | None) -> dict[str, Feature]:
    """What each record has to hold."""
    length = block_size + 1
    hint = "were the records made with a larger vocabulary than the model's?"
    return {
        "input_ids": Feature(length) if vocab_size is None else Feature(length, vocab_size, hint),
        "document_ids": Feature(length),
        "num_tokens": Feature(1, length + 1),
        "num_bytes": Feature(1),
    }


def block_errors(blocks: BlockFiles, vocab_size: int) -> contextlib.AbstractContextManager[None]:
    """Turns what TensorFlow says about bad records inside the block into an error that names the file and the record.

    Raises:
        ValueError: from `check_blocks`.
    """
    return errors_checked_by(lambda: check_blocks(blocks, vocab_size))


def check_blocks(blocks: BlockFiles, vocab_size: int) -> None:
    """Reads every record and checks its checksums, lengths and ids.

    Raises:
        ValueError: names the file, the number of the record, what was found and what was expected.
    """
    features = _features(blocks.block_size, vocab_size)
    for path in blocks.files:
        for number, record in enumerate(read_records(path), 1):
            check_example(_decode(path, record, number), features, f"{path}: record {number}")
