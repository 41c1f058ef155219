"""Requests that are lines of text, and answers that are lines: one for each, in order.

What stands in a line is checked before the first line is answered, so that a mistake leaves no answers behind.
"""

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from tf_bert.progress import say

Line = tuple[str, str]  # the place, for messages, and the text
_IN_MEMORY = 1 << 26  # bytes
_LINE_ENDS = re.compile(r"[\\\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def numbered_lines(stream: BinaryIO, errors: str = "strict") -> Iterator[Line]:
    """Yields the place of each line, for messages, and the line.

    Args:
        stream: standard input, UTF-8.
        errors: ``"strict"``, or ``"surrogateescape"`` for lines of any bytes.

    Raises:
        ValueError: a line is not UTF-8; names it.
    """
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors)
        except UnicodeDecodeError as error:
            reason = f"not valid UTF-8 (byte 0x{line[error.start]:02x}, {error.reason})"
            raise ValueError(f"{_place(number)}: {reason}") from None
        yield _place(number), text.replace("\r", "").removesuffix("\n")


def _place(number: int) -> str:
    return f"standard input: line {number}"


def all_checked(lines: Iterable[Line], check: Callable[[str, str], Any]) -> Iterator[Line]:
    """Reads and checks all lines and then yields them. Many wait on the disk.

    Args:
        lines: from `numbered_lines`.
        check: takes a line and its place, and raises ValueError where something is wrong.
    """
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as waiting:
        for where, text in lines:
            check(text, where)
            waiting.write(text.encode("utf-8", "surrogateescape") + b"\n")
        waiting.seek(0)
        for number, line in enumerate(waiting, 1):
            yield _place(number), line[:-1].decode("utf-8", "surrogateescape")


def typed(lines: Iterable[Line], check: Callable[[str, str], Any]) -> Iterator[Line]:
    """Yields lines as they are typed; of one with a mistake it says what is wrong, so that it can be typed again.

    Args:
        lines, check: as for `all_checked`.
    """
    for where, text in lines:
        try:
            check(text, where)
        except ValueError as error:
            say(str(error))
        else:
            yield where, text


def one_line(text: str) -> str:
    r"""Returns a text as one line: ends of lines and backslashes are written with a backslash, as in Python.

    Example:
        >>> print(one_line("one\ntwo"))
        one\ntwo
    """
    return _LINE_ENDS.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
