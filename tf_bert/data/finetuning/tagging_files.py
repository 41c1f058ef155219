"""Files of tagged words of one's own: where they are, and in which columns words and tags are."""

import dataclasses
from collections.abc import Mapping

from tf_bert.data.finetuning.tagging import (
    CONLL_COLUMNS,
    JSONL_COLUMNS,
    TagColumns,
    TaggedSentence,
    is_jsonl,
    read_tagged,
)
from tf_bert.data.finetuning.user_files import find_split

ENDINGS = (".conll", ".txt", ".jsonl")


@dataclasses.dataclass(frozen=True)
class TagFiles:
    """The files of a tagging task.

    Args:
        data_dir: their folder.
        files: split -> file, where that is not ``train.conll``, ``train.txt`` or ``train.jsonl`` in the folder.
        text_column: where the words are: the number of the column, from 1 or from the end -1; of JSON lines its name.
            By default those of `tf_bert.data.finetuning.tagging.read_tagged`.
        label_column: the same of the tags.
    """

    data_dir: str | None = None
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    text_column: str | None = None
    label_column: str | None = None

    def path(self, split: str) -> str:
        """The file of a split.

        Raises:
            FileNotFoundError: there is none.
        """
        return find_split(self.data_dir, split, ENDINGS, self.files)

    def columns(self, path: str) -> TagColumns:
        """Where a file has words and tags.

        Raises:
            ValueError: a column of a file of columns is no number, or 0.
        """
        usual = JSONL_COLUMNS if is_jsonl(path) else CONLL_COLUMNS
        given = TagColumns(self.text_column or usual.words, self.label_column or usual.tags)
        if is_jsonl(path):
            return given
        try:
            given = TagColumns(int(given.words), int(given.tags))
        except ValueError:
            raise ValueError(
                f"text_column and label_column are numbers for {path}: found {given.words} and {given.tags}"
            ) from None
        if 0 in (given.words, given.tags):
            raise ValueError("text_column and label_column count from 1, or from the end -1: there is no column 0")
        return given

    def read(self, split: str) -> list[TaggedSentence]:
        """The sentences of a split; those to predict need no tags."""
        path = self.path(split)
        return read_tagged(path, self.columns(path), tags=split != "test")
