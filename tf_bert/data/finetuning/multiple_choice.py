"""Texts with several continuations or answers, one of them right, from CSV, TSV and JSON-lines files."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_bert.data.finetuning.classification import InputExample, convert_single_example
from tf_bert.data.finetuning.label_checks import warn_of_one_class
from tf_bert.data.finetuning.user_files import FileFormat, UserFilesProcessor
from tf_bert.progress import track
from tf_bert.tokenization.full import FullTokenizer


@dataclasses.dataclass
class ChoiceExample(InputExample):
    """A text and its choices; ``text_b`` is what all of them begin with, ``label`` the number of the right one.

    Args:
        choices: the choices, at least one.
    """

    choices: Sequence[str] = ()


class ChoiceFilesProcessor(UserFilesProcessor):
    """Reads multiple choice as a `FileFormat` of kind ``"choice"`` says.

    Args:
        format: what the columns are called.
        choices: the columns of the choices. Of JSON lines it may be one that holds a list.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with open(os.path.join(folder, "train.csv"), "w") as file:
        ...         _ = file.write("text,ending0,ending1,label\\nIt rains.,We swim.,We stay.,1\\n")
        ...     processor = ChoiceFilesProcessor(FileFormat(kind="choice"), ["ending0", "ending1"])
        ...     example, = processor.get_train_examples(folder)
        >>> example.text_a, example.choices, example.label
        ('It rains.', ['We swim.', 'We stay.'], 1)
    """

    def __init__(self, format: FileFormat, choices: Sequence[str]):
        super().__init__(dataclasses.replace(format, kind="single"))
        self.kind, self.choices = "choice", list(choices)

    def get_train_examples(self, data_dir: str | None) -> list[ChoiceExample]:
        """The rows of the training file."""
        examples = self._examples(data_dir, "train")
        counts = collections.Counter(example.label for example in examples)
        warn_of_one_class(counts, len(examples), self.path(data_dir, "train"))
        return examples

    def _example(self, guid: str, where: str, values: dict[str, Any], split: str) -> ChoiceExample:
        begun, choices = self.format.text_pair and self._text(where, values, self.format.text_pair), self.choices
        if len(choices) == 1 and isinstance(self._value(where, values, choices[0]), list):
            given = values[choices[0]]
            if not given or not all(isinstance(choice, str) for choice in given):
                raise ValueError(f"{where}: {choices[0]}: expected a list of texts")
        else:
            given = [self._text(where, values, column) for column in choices]
            while len(given) > 1 and not given[-1].strip():  # this row has fewer
                given.pop()
        label = None if split == "test" else self._number(self._value(where, values, self.format.label), where, given)
        return ChoiceExample(guid, self._text(where, values, self.format.text), begun, label, where, given)

    def _number(self, value: Any, where: str, choices: Sequence[str]) -> int:
        """The number of the right choice, from a number or the name of its column."""
        text = str(value).strip()
        number = self.choices.index(text) if text in self.choices else int(text) if text.isdecimal() else -1
        if not 0 <= number < len(choices):
            raise ValueError(
                f"{where}: the label is {value!r}; expected the number of a choice, from 0 to {len(choices) - 1}, or "
                f"its column ({', '.join(self.choices)})"
            )
        return number


def convert_choices_to_features(
    examples: Sequence[ChoiceExample], max_seq_length: int, tokenizer: FullTokenizer
) -> dict[str, Any]:
    """Converts examples: for each choice ``[CLS] text_a [SEP] text_b choice [SEP]``, padded.

    Args:
        examples: from `ChoiceFilesProcessor`.
        max_seq_length: S.
        tokenizer: with the vocabulary of the model.

    Returns:
        ``input_ids``, ``input_mask`` and ``segment_ids``, int32 [N, C, S] with zeros where an example has fewer than C
        choices, and ``label_ids`` [N].
    """
    rows = []
    for number, example in enumerate(track(examples, "tokenizing", unit="examples")):
        for choice in example.choices:
            text_b = f"{example.text_b} {choice}" if example.text_b else choice
            pair = InputExample(example.guid, example.text_a, text_b, source=example.source)
            rows.append(convert_single_example(number, pair, [""], max_seq_length, tokenizer))
    counts = [len(example.choices) for example in examples]
    columns = {
        name: by_example(np.array([getattr(row, name) for row in rows], np.int32), counts)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    return columns | {"label_ids": np.array([example.label or 0 for example in examples], np.int32)}


def by_example(rows: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Rows of all choices, those of one example next to each other, as [N, C, S]; zeros where an example has fewer.

    Example:
        >>> by_example(np.array([[1], [2], [3]]), [2, 1]).tolist()
        [[[1], [2]], [[3], [0]]]
    """
    found = np.zeros((len(counts), max(counts), rows.shape[1]), rows.dtype)
    found[np.arange(max(counts)) < np.array(counts)[:, None]] = rows
    return found
