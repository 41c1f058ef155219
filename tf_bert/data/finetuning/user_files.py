"""Classification data of one's own: CSV, TSV and JSON-lines files whose columns are named."""

import collections
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tf_bert.data.finetuning.classification import InputExample, number_of
from tf_bert.data.finetuning.glue import SPLITS, DataProcessor
from tf_bert.data.finetuning.label_checks import warn_about_labels, warn_of_one_class
from tf_bert.data.finetuning.label_list import check_names
from tf_bert.data.text.tables import check_delimiter, ending_of, read_csv, read_jsonl, read_tsv, warn_of
from tf_bert.json_files import check_text, kind_of

_REPEATED = object()  # the value of a column whose name another one has too
ENDINGS = {"csv": (".csv", ".tsv"), "jsonl": (".jsonl",)}


@dataclasses.dataclass(frozen=True)
class FileFormat:
    """What the columns of one's own files are called.

    Args:
        format: ``"csv"`` (also for files that end in ``.tsv``: separated by tabs, quotes are ordinary characters) or
            ``"jsonl"``.
        text: the column of the text: its name in the first row or, without a header, its number from 1.
        text_pair: the column of a second text, if there is one.
        label: the column of the label.
        kind: ``"single"`` label, ``"multi"`` label or ``"regression"``.
        header: whether the first row names the columns.
        delimiter: between columns; by default a tab for ``.tsv`` and a comma for others.
        label_separator: between the labels of a row with several. In JSON they may be a list as well.
        labels: the labels in the order of their ids; by default those of the training file, sorted.
        files: split -> file, where that is not ``train.csv``, ``dev.csv``, ``test.csv`` (or ``.tsv``, ``.jsonl``).

    Raises:
        ValueError: the delimiter is not one character that can stand between columns, or a label is empty or named
            twice.
    """

    format: str = "csv"
    text: str = "text"
    text_pair: str | None = None
    label: str = "label"
    kind: str = "single"
    header: bool = True
    delimiter: str | None = None
    label_separator: str = ";"
    labels: Sequence[str] = ()
    files: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.delimiter is not None:
            check_delimiter(self.delimiter)
        if not self.label_separator:
            raise ValueError("label_separator is empty; expected what stands between the labels of a row")
        check_names(self.labels)


def find_split(data_dir: str | None, split: str, endings: Sequence[str], files: Mapping[str, str]) -> str:
    """The file of a split: the one that is named, else ``train.csv``, ``dev.csv`` and so on in a folder.

    Args:
        data_dir: the folder.
        split: ``"train"``, ``"dev"`` or ``"test"``.
        endings: that the file may have.
        files: split -> file, for those that are named.

    Raises:
        FileNotFoundError: there is none; says which were looked for.
    """
    if split in files:
        return files[split]
    paths = [os.path.join(data_dir or ".", split + ending) for ending in endings]
    found = [path for path in paths if os.path.exists(path)]
    if not found:
        hint = ", --dev_share=0.1 holds a tenth of the training file out (run_classifier)" if split == "dev" else ""
        raise FileNotFoundError(f"there is no file {' or '.join(paths)}; --{split}_file names another one{hint}")
    return found[0]


class UserFilesProcessor(DataProcessor):
    """Reads files as a `FileFormat` says.

    Args:
        format: what the columns are called.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with open(os.path.join(folder, "train.csv"), "w") as file:
        ...         _ = file.write('text,label\\n"Well, yes",good\\nNo,bad\\n')
        ...     processor = UserFilesProcessor(FileFormat())
        ...     examples = processor.get_train_examples(folder)
        >>> [(example.text_a, example.label) for example in examples], processor.get_labels()
        ([('Well, yes', 'good'), ('No', 'bad')], ['bad', 'good'])
    """

    def __init__(self, format: FileFormat):
        self.format, self.kind = format, format.kind
        self.metrics = {"single": (), "multi": ("f1_micro",), "regression": ("pearson", "spearman")}[format.kind]
        self._labels = list(format.labels)

    def get_train_examples(self, data_dir: str | None) -> list[InputExample]:
        """The rows of the training file; its labels are those of `get_labels` where none were given.

        Warns:
            UserWarning: see `tf_bert.data.finetuning.label_checks.warn_about_labels`.
        """
        examples, path = self._examples(data_dir, "train"), self.path(data_dir, "train")
        several = self.kind == "multi"
        counts = collections.Counter(
            label for example in examples for label in (set(example.label) if several else [example.label])
        )
        if not counts:
            raise ValueError(f"{path}: no row has a label in the column {self.format.label!r}")
        if self.kind == "regression":
            warn_of_one_class(counts, len(examples), path, what="number")
        else:
            warn_about_labels(counts, len(examples), path, expected=self._labels)
            self._labels = self._labels or sorted(counts)
        return examples

    def get_dev_examples(self, data_dir: str | None) -> list[InputExample]:
        """The rows of the file to evaluate on."""
        return self._examples(data_dir, "dev")

    def get_test_examples(self, data_dir: str | None) -> list[InputExample]:
        """The rows of the file to predict; labels are not looked at, and need not be there."""
        return self._examples(data_dir, "test")

    def get_labels(self) -> list[str]:
        """The labels that were given, else those of the training file once it was read."""
        return list(self._labels)

    def path(self, data_dir: str | None, split: str) -> str:
        """The file of a split, see `find_split`."""
        return find_split(data_dir, split, ENDINGS[self.format.format], self.format.files)

    def _examples(self, data_dir: str | None, split: str) -> list[InputExample]:
        assert split in SPLITS
        path = self.path(data_dir, split)
        rows = enumerate(self._rows(path))
        examples = [self._example(f"{split}-{number}", where, values, split) for number, (where, values) in rows]
        if not examples:
            raise ValueError(f"{path} has no rows")
        empty = [example.source.removeprefix(f"{path}: ") for example in examples if not example.text_a.strip()]
        if empty:
            warn_of(path, f"{len(empty)} rows have no text in the column {self.format.text!r}", empty)
        return examples

    def _example(self, guid: str, where: str, values: dict[str, Any], split: str) -> InputExample:
        wanted = self.format
        label = None if split == "test" else self._label(self._value(where, values, wanted.label), where)
        text_b = wanted.text_pair and self._text(where, values, wanted.text_pair)
        return InputExample(guid, self._text(where, values, wanted.text), text_b, label, where)

    def _rows(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields where each row stands, and its values by column."""
        if self.format.format == "jsonl":
            yield from read_jsonl(path)
            return
        delimiter = self.format.delimiter or ("\t" if ending_of(path) == ".tsv" else ",")
        rows = read_tsv(path) if delimiter == "\t" else read_csv(path, delimiter)
        if not rows:
            return
        if self.format.header:
            names = [name.strip() for name in rows.pop(0)]
        else:
            names = [str(number) for number in range(1, len(rows[0]) + 1)]
        for row in rows:
            if len(row) != len(names):
                raise ValueError(
                    f"{row.where}: found {len(row)} columns, expected {len(names)} ({', '.join(names)}), separated by "
                    f"{delimiter!r}"
                )
            values = dict(zip(names, row, strict=True))
            yield row.where, values | {name: _REPEATED for name in values if names.count(name) > 1}

    def _value(self, where: str, values: dict[str, Any], column: str) -> Any:
        if column not in values:
            raise ValueError(
                f"{where}: found the columns {', '.join(values)}, expected one that is named {column!r}"
                + (" (without a header columns are named by their numbers, from 1)" if not self.format.header else "")
            )
        if values[column] is _REPEATED:
            raise ValueError(f"{where}: several columns have the name {column!r}")
        return values[column]

    def _text(self, where: str, values: dict[str, Any], column: str) -> str:
        text = self._value(where, values, column)
        if not isinstance(text, str):
            raise ValueError(f"{where}: {column} is {kind_of(text)}, expected a text")
        return text

    def _label(self, value: Any, where: str):
        if self.kind == "regression":
            return number_of(value, where)
        if self.kind == "multi":
            parts = value.split(self.format.label_separator) if isinstance(value, str) else value
            return [part for part in (self._name(part, where) for part in _listed(parts)) if part]
        label = self._name(value, where)
        if not label:
            raise ValueError(f"{where}: the label is empty")
        return label

    def _name(self, value: Any, where: str) -> str:
        if value is None or isinstance(value, list | dict):
            several = ", or a list of such" if self.kind == "multi" else ""
            raise ValueError(f"{where}: the label is {kind_of(value)}, expected a text or a number{several}")
        label = str(value).strip()
        check_text(label, f"{where}: the label")
        return label


def _listed(value: Any) -> list:
    return value if isinstance(value, list) else [value]
