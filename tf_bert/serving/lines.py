"""Requests that are lines of text, and answers that are lines: one for each, in order."""

import re

_LINE_ENDS = re.compile(r"[\\\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def one_line(text: str) -> str:
    r"""Returns a text as one line: ends of lines and backslashes are written with a backslash, as in Python.

    Example:
        >>> print(one_line("one\ntwo"))
        one\ntwo
    """
    return _LINE_ENDS.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
