"""Texts and labels to the features of a classifier: the data side of the original's ``run_classifier.py``."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

from tf_bert.data.tfrecord.files import RecordWriter, encode_example
from tf_bert.progress import track
from tf_bert.tokenization.encoding import truncated_lengths
from tf_bert.tokenization.full import FullTokenizer

Label = str | float | Sequence[str]
_SHOWN_LABELS = 20  # in a message


@dataclasses.dataclass
class InputExample:
    """A text or a pair of texts, and its label.

    Args:
        guid: name of the example.
        text_a: the first text.
        text_b: the second text, if there is one.
        label: a label; a number for regression; some labels (maybe none) where an example may have several; None for
            one that is to be predicted.
        source: where it was read, such as ``"train.tsv: line 7"``, for messages.
    """

    guid: str | None
    text_a: str
    text_b: str | None = None
    label: Label | None = None
    source: str | None = None


class PaddingInputExample:
    """Fills up the last batch where all batches must have one size; its features have no weight."""


@dataclasses.dataclass
class InputFeatures:
    """What the model gets of one example: three lists of S integers, and the label's id.

    ``label_id`` is an integer, a float for regression, or a list of 0 and 1, one for each label, where an example may
    have several.
    """

    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]
    label_id: int | float | list[int]
    is_real_example: bool = True


def convert_single_example(
    ex_index: int,
    example: InputExample | PaddingInputExample,
    label_list: Sequence[str],
    max_seq_length: int,
    tokenizer: FullTokenizer,
    kind: str = "single",
) -> InputFeatures:
    """Converts one example: ``[CLS] text_a [SEP]``, or ``[CLS] text_a [SEP] text_b [SEP]``, padded.

    A pair that is too long loses pieces from the end of its longer text. A second text without pieces counts as none.

    Args:
        ex_index: the example's number, for messages.
        example: the example.
        label_list: the labels in the order of their ids; empty for regression.
        max_seq_length: S.
        tokenizer: with the vocabulary of the model.
        kind: ``"single"`` label, ``"multi"`` label or ``"regression"``.

    Raises:
        ValueError: an unknown label, or a length in which nothing fits; says where the example stands.

    Source: ``convert_single_example`` of google-research/bert, ``run_classifier.py``.

    Example:
        >>> import os, tempfile
        >>> from tf_bert.tokenization import save_vocab
        >>> folder = tempfile.TemporaryDirectory()
        >>> vocab_file = os.path.join(folder.name, "vocab.txt")
        >>> save_vocab("[PAD] [UNK] [CLS] [SEP] [MASK] good bad".split(), vocab_file)
        >>> tokenizer = FullTokenizer(vocab_file)
        >>> example = InputExample("dev-1", "Good", "bad", label="no")
        >>> convert_single_example(0, example, ["no", "yes"], 7, tokenizer)  # doctest: +NORMALIZE_WHITESPACE
        InputFeatures(input_ids=[2, 5, 3, 6, 3, 0, 0], input_mask=[1, 1, 1, 1, 1, 0, 0],
                      segment_ids=[0, 0, 0, 1, 1, 0, 0], label_id=0, is_real_example=True)
    """
    if max_seq_length < 5:
        raise ValueError(f"max_seq_length is {max_seq_length}; a pair of texts needs at least 5")
    if isinstance(example, PaddingInputExample):
        zeros = [0] * max_seq_length
        return InputFeatures(zeros, list(zeros), list(zeros), _stand_in(label_list, kind), is_real_example=False)

    a = tokenizer.tokenize_to_ids(example.text_a)
    b = tokenizer.tokenize_to_ids(example.text_b) if example.text_b else []
    length_a, length_b = truncated_lengths(len(a), len(b), max_seq_length - (3 if b else 2), "longest_first")
    cls, sep = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    first = [cls, *a[:length_a], sep]
    second = [*b[:length_b], sep] if b else []
    ids = first + second
    padding = [0] * (max_seq_length - len(ids))
    return InputFeatures(
        input_ids=ids + [tokenizer.vocab.get("[PAD]", 0)] * len(padding),
        input_mask=[1] * len(ids) + padding,
        segment_ids=[0] * len(first) + [1] * len(second) + padding,
        label_id=label_id(example, ex_index, label_list, kind),
    )


def label_id(example: InputExample, ex_index: int, label_list: Sequence[str], kind: str) -> int | float | list[int]:
    """The id of an example's label, or what stands in for one that is missing; errors as `convert_single_example`."""
    if example.label is None:
        return _stand_in(label_list, kind)
    where = example.source or f"example {ex_index} ({example.guid})"
    if kind == "regression":
        return number_of(example.label, where)
    given = [example.label] if kind == "single" else list(example.label)
    unknown = [label for label in given if label not in label_list]
    if unknown:
        known = ", ".join(map(str, label_list[:_SHOWN_LABELS])) + ", ..." * (len(label_list) > _SHOWN_LABELS)
        raise ValueError(f"{where}: the label {unknown[0]!r} is not known; known labels: {known}")
    if kind == "single":
        return list(label_list).index(given[0])
    return [int(label in given) for label in label_list]


def number_of(value: Any, where: str) -> float:
    """Returns the number that a regression label stands for.

    Raises:
        ValueError: it is no finite number; says where it stands.

    Example:
        >>> number_of("2.5", "train.csv: line 7")
        2.5
    """
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{where}: the label {value!r:.80} is not a number, or not a finite one")
    return number


def _stand_in(label_list: Sequence[str], kind: str) -> int | float | list[int]:
    """What stands for a label where there is none: the first one."""
    return {"single": 0, "regression": 0.0, "multi": [0] * len(label_list)}[kind]


def convert_examples_to_features(
    examples: Iterable[InputExample | PaddingInputExample],
    label_list: Sequence[str],
    max_seq_length: int,
    tokenizer: FullTokenizer,
    kind: str = "single",
) -> list[InputFeatures]:
    """Converts examples, see `convert_single_example`, and shows the progress."""
    return [
        convert_single_example(number, example, label_list, max_seq_length, tokenizer, kind)
        for number, example in enumerate(track(examples, "tokenizing", unit="examples"))
    ]


def file_based_convert_examples_to_features(
    examples: Iterable[InputExample | PaddingInputExample],
    label_list: Sequence[str],
    max_seq_length: int,
    tokenizer: FullTokenizer,
    output_file: str | PathLike,
    kind: str = "single",
) -> list[InputFeatures]:
    """Converts examples and writes them as a TFRecord file, as the original does.

    Args:
        examples: see `convert_single_example`, as for the other arguments.
        label_list: the labels in the order of their ids.
        max_seq_length: S.
        tokenizer: with the vocabulary of the model.
        output_file: gets ``input_ids``, ``input_mask``, ``segment_ids`` [S], ``label_ids`` and ``is_real_example``.
        kind: ``"single"``, ``"multi"`` or ``"regression"``.

    Returns:
        The features.
    """
    features = convert_examples_to_features(examples, label_list, max_seq_length, tokenizer, kind)
    write_features(features, output_file)
    return features


def write_features(features: Iterable[InputFeatures], output_file: str | PathLike) -> None:
    """Writes features as a TFRecord file; it appears when it is complete."""
    with RecordWriter(output_file) as writer:
        for feature in features:
            label = feature.label_id
            writer.write(
                encode_example(
                    {
                        "input_ids": feature.input_ids,
                        "input_mask": feature.input_mask,
                        "segment_ids": feature.segment_ids,
                        "label_ids": label if isinstance(label, list) else [label],
                        "is_real_example": [int(feature.is_real_example)],
                    }
                )
            )
