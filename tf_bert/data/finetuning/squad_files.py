"""Files in the layout of SQuAD: documents with questions, each checked with its place before it is used."""

import os
from collections.abc import Iterator
from typing import Any

from tf_bert.json_files import kind_of, read_json


def read_questions(input_file: str | os.PathLike) -> list[tuple[str, dict[str, Any]]]:
    """Reads a SQuAD file: (document, question) in the order of the file.

    A question has ``id`` and ``question``, texts; ``answers``, a list of objects with ``text``, and ``is_impossible``
    are checked where they are there.

    Raises:
        ValueError: the file is not one, has no question, or two questions have one id; says which and where.
    """
    path = os.fspath(input_file)
    questions: list[tuple[str, dict[str, Any]]] = []
    places: dict[str, str] = {}
    try:
        for place, entry in _objects(read_json(path), "data", ""):
            for place_of_paragraph, paragraph in _objects(entry, "paragraphs", place):
                context = _value(paragraph, "context", str, place_of_paragraph)
                for where, question in _objects(paragraph, "qas", place_of_paragraph):
                    question = _checked_question(question, where)
                    first = places.setdefault(question["id"], where)
                    if first != where:
                        raise ValueError(
                            f"{path}: two questions have the id {question['id']!r} ({first} and {where}): the answer "
                            "to one would replace that to the other"
                        )
                    questions.append((context, question))
    except _LayoutError as error:
        raise ValueError(
            f"{path}: not laid out as SQuAD: {error}; expected data[].paragraphs[] with context and "
            "qas[] with id, question, answers"
        ) from None
    if not questions:
        raise ValueError(f"{path} has no questions")
    return questions


class _LayoutError(ValueError):
    pass


def _value(value: Any, name: str, kind: type, place: str) -> Any:
    """A member of an object of JSON, which must be of a kind."""
    if not isinstance(value, dict):
        raise _LayoutError(f"{place or 'the file'} is {kind_of(value)}, expected an object")
    if name not in value:
        found = ", ".join(map(repr, list(value)[:5])) or "nothing"
        raise _LayoutError(f"{place or 'the file'} has no {name!r}, found {found}")
    if not isinstance(value[name], kind) or isinstance(value[name], bool) != (kind is bool):
        kinds = {str: "a text", list: "a list", bool: "true or false", int: "a whole number"}
        raise _LayoutError(f"{place and place + '.'}{name} is {value[name]!r:.60}, expected {kinds[kind]}")
    return value[name]


def _objects(value: Any, name: str, place: str) -> Iterator[tuple[str, Any]]:
    """Yields the members of a list in an object, each with its place, such as ``data[0].paragraphs[2]``."""
    for number, member in enumerate(_value(value, name, list, place)):
        yield f"{place and place + '.'}{name}[{number}]", member


def _checked_question(question: Any, where: str) -> dict[str, Any]:
    """The question, its id as a text, as files of answers have it."""
    if isinstance(question, dict) and type(question.get("id")) is int:
        question = question | {"id": str(question["id"])}
    for name in ("id", "question"):
        _value(question, name, str, where)
    if "is_impossible" in question:
        _value(question, "is_impossible", bool, where)
    if "answers" in question:
        for place, answer in _objects(question, "answers", where):
            _value(answer, "text", str, place)
            if "answer_start" in answer:
                _value(answer, "answer_start", int, place)
    return question
