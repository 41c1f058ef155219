"""JSON that comes from outside: parsed with errors of one line, and written so that any text can be stored."""

import json
import os
from collections.abc import Iterable
from typing import Any

from tf_bert.files import open_binary


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file; a byte order mark at its start is dropped.

    Raises:
        ValueError: see `parse_json`; names the file.
        OSError: the file cannot be read; names it.
    """
    with open_binary(path) as file:
        return parse_json(file.read(), os.fspath(path))


def read_json_object(path: str | os.PathLike) -> dict[str, Any]:
    """Reads a JSON file that holds an object.

    Raises:
        ValueError: it holds something else, or see `parse_json`; names the file.
        OSError: the file cannot be read; names it.
    """
    return _checked_object(read_json(path), os.fspath(path))


def parse_json_object(text: str | bytes, where: str) -> dict[str, Any]:
    """Parses a JSON object; errors as `parse_json`, and where the text is something else."""
    return _checked_object(parse_json(text, where), where)


def parse_json(text: str | bytes, where: str) -> Any:
    """Parses JSON.

    Args:
        text: the text, or its bytes in UTF-8.
        where: the file, and the line if it is one of several, for messages.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or an object has a name twice (of which Python would silently
            take the last); one line that begins with ``where``.

    Example:
        >>> parse_json('{"a": 1, "a": 2}', "a.json")
        Traceback (most recent call last):
        ...
        ValueError: a.json: an object has the name 'a' twice
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        reason = f"not valid UTF-8 at byte offset {error.start} (byte 0x{error.object[error.start]:02x})"
    except _RepeatedName as error:
        reason = str(error)
    except RecursionError:
        reason = "lists or objects are nested too deeply"
    except ValueError as error:
        reason = f"not JSON: {error}"
    raise ValueError(f"{where}: {reason}")


class _RepeatedName(ValueError):
    pass


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise _RepeatedName(f"an object has the name {repeated!r} twice")
    return found


def _checked_object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: found {kind_of(value)}, expected a JSON object")
    return value


def kind_of(value: Any) -> str:
    """Names the kind of a JSON value, for messages.

    Example:
        >>> kind_of([1]), kind_of(None), kind_of(True), kind_of("a")
        ('a list', 'null', 'true', 'a text')
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    for kind, name in ((str, "a text"), (list, "a list"), (dict, "an object"), ((int, float), "a number")):
        if isinstance(value, kind):
            return name
    return f"a {type(value).__name__}"


def check_text(text: str, what: str) -> None:
    """Stops where a name holds half of a surrogate pair, which no file in UTF-8 can hold.

    Raises:
        ValueError: begins with ``what``.

    Example:
        >>> check_text("a\\ud83d", "train.jsonl: line 1: the label")
        Traceback (most recent call last):
        ...
        ValueError: train.jsonl: line 1: the label 'a\\ud83d' holds half of a character
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{what} {ascii(text)} holds half of a character") from None


def json_line(value: Any) -> str:
    """Returns a value as JSON on one line, readable in any script.

    Text that UTF-8 cannot store (half of a surrogate pair, as in a text that was cut inside an emoji) is escaped.

    Example:
        >>> json_line({"text": "né"}), json_line("\\ud83d")
        ('{"text": "né"}', '"\\\\ud83d"')
    """
    line = json.dumps(value, ensure_ascii=False)
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value)
    return line
