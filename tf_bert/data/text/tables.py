"""Rows of TSV, CSV and JSON-lines files; each knows its file and line."""

import csv
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike, fspath
from typing import Any

from tf_bert.data.text.lines import read_lines
from tf_bert.json_files import parse_json_object

_LISTED = 10  # how many places a warning lists


class MissingColumnError(ValueError, IndexError):
    """A row has fewer columns than were asked for."""


class Row(list):
    """The columns of a row; asked for one that is not there, it says which file and line lack it.

    Attributes:
        where: the file and the line, for messages.

    Example:
        >>> Row(["a", "b"], "dev.tsv: line 7")[3]
        Traceback (most recent call last):
        ...
        tf_bert.data.text.tables.MissingColumnError: dev.tsv: line 7: found 2 columns, expected at least 4
    """

    def __init__(self, columns: Sequence[str], where: str):
        super().__init__(columns)
        self.where = where

    def __getitem__(self, index):
        if isinstance(index, int) and not -len(self) <= index < len(self):
            wanted = index + 1 if index >= 0 else -index
            found = f"{len(self)} column{'s' * (len(self) != 1)}"
            raise MissingColumnError(f"{self.where}: found {found}, expected at least {wanted}")
        return super().__getitem__(index)


def ending_of(path: str | PathLike) -> str:
    """The ending of a file's name, which says what it holds: that of what is compressed, where it is.

    Example:
        >>> ending_of("train.tsv.gz"), ending_of("train.csv")
        ('.tsv', '.csv')
    """
    return os.path.splitext(fspath(path).removesuffix(".gz"))[1].lower()


def read_tsv(path: str | PathLike, quotechar: str | None = None) -> list[Row]:
    """Reads a tab-separated file.

    Without ``quotechar`` quotes and backslashes are ordinary characters, as in the original, and every line is a row:
    an unbalanced quote swallows nothing and a field may have any length. A byte order mark is dropped. Blank lines are
    left out, and a warning lists them.

    Raises:
        ValueError: the file is not UTF-8 or, with ``quotechar``, a quote is not closed; names the file and the line.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        ...     _ = file.write('1\\tHe said "no\\n0\\tNo.\\n')
        ...     file.flush()
        ...     [list(row) for row in read_tsv(file.name)]
        [['1', 'He said "no'], ['0', 'No.']]
    """
    if quotechar is not None:
        return read_csv(path, "\t", quotechar)
    path = fspath(path)
    return [Row(line.split("\t"), where) for where, line in numbered_lines(path)]


def read_csv(path: str | PathLike, delimiter: str = ",", quotechar: str = '"') -> list[Row]:
    """Reads a file of separated values, in which a quoted field may hold separators and line ends (RFC 4180).

    Raises:
        ValueError: the file is not UTF-8, or a quote is not closed or misplaced; names the file and the line.
    """
    path = fspath(path)
    lines = _Counted(read_lines(path))
    rows, blank = [], []
    before = csv.field_size_limit(1 << 31 - 1)  # by default a field ends in an error at 131,072 characters
    try:
        start = 1
        for columns in csv.reader(lines, delimiter=delimiter, quotechar=quotechar, strict=True):
            if any(column.strip() for column in columns) or len(columns) > 1:
                rows.append(Row(columns, f"{path}: line {start}"))
            else:
                blank.append(start)
            start = lines.count + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}: line {start}: the row that begins here is not well-formed ({error}); expected fields separated "
            f"by {delimiter!r}, each whole field in {quotechar} where it holds one of these, and {quotechar} doubled "
            "inside"
        ) from None
    finally:
        csv.field_size_limit(before)
    warn_of_skipped(path, "blank lines", blank)
    return rows


def check_delimiter(delimiter: str) -> None:
    """Stops where a text cannot stand between columns.

    Raises:
        ValueError: it is not one character, or is a quote or the end of a line.
    """
    if len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise ValueError(f"delimiter is {delimiter!r}; expected one character between columns, such as ',' or a tab")


class _Counted:
    """Lines with their ends, counted: a quoted field keeps the ends that it holds."""

    def __init__(self, lines: Iterable[str]):
        self._lines, self.count = iter(lines), 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.count += 1
        return line + "\n"


def read_jsonl(path: str | PathLike) -> list[tuple[str, dict[str, Any]]]:
    """Reads a file of JSON objects, one a line.

    Returns:
        For each object, where it stands (for messages) and the object.

    Raises:
        ValueError: a line is no JSON object; names the file and the line.
    """
    return [(where, parse_json_object(line, where)) for where, line in numbered_lines(fspath(path))]


def numbered_lines(path: str) -> Iterator[tuple[str, str]]:
    """Yields the lines that are not blank, each behind its place; a warning lists those that are."""
    blank = []
    for number, line in enumerate(read_lines(path), 1):
        if line.strip(" "):
            yield f"{path}: line {number}", line
        else:
            blank.append(number)
    warn_of_skipped(path, "blank lines", blank)


def warn_of_skipped(path: str, what: str, places: Sequence[int | str]) -> None:
    """Says how many things were left out, and which."""
    if places:
        warn_of(path, f"skipped {len(places)} {what}", places)


def warn_of(path: str, message: str, places: Sequence[int | str]) -> None:
    """Warns of something in a file, and lists the first places where it is."""
    shown = ", ".join(map(str, places[:_LISTED])) + (", ..." if len(places) > _LISTED else "")
    warnings.warn(f"{path}: {message} ({shown})", stacklevel=4)
