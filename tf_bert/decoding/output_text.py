"""Turns the ids of an output into its text: without the end token, up to the end of a stop text."""

from collections.abc import Sequence
from typing import Any

from tf_bert.decoding.constraints import Constraints


def without_end(tokens: Sequence[int], end_id: int | None) -> list[int]:
    """Returns the tokens up to the first end token.

    Example:
        >>> without_end([5, 7, 2, 2], 2)
        [5, 7]
    """
    tokens = [int(token) for token in tokens]
    return tokens[: tokens.index(end_id)] if end_id in tokens else tokens


def output_text(tokens: Sequence[int], tokenizer: Any, end_id: int | None, constraints: Constraints) -> str:
    """Returns the text of an output.

    Args:
        tokens: as many as the output is long.
        tokenizer: with ``decode``.
        end_id: the end token, which is no text.
        constraints: those of the decoding. Where a stop text has ended the output, the text ends with it.
    """
    ids = without_end(tokens, end_id)
    cut = constraints.stops.cut(ids) if constraints.stops is not None else None
    return tokenizer.decode(ids) if cut is None else cut


class GrowingText:
    """The text of an output whose tokens come one by one: what of it can be shown, never half a character.

    Args:
        tokenizer, end_id, constraints: see `output_text`.

    Attributes:
        ids: the tokens so far.
        shown: the text so far.
    """

    def __init__(self, tokenizer: Any, end_id: int | None, constraints: Constraints):
        self.ids: list[int] = []
        self.shown = ""
        self._how = (tokenizer, end_id, constraints)

    def add(self, token: int) -> str:
        """Takes the next token and returns the text that it adds."""
        self.ids.append(token)
        return self._show(output_text(self.ids, *self._how).rstrip("\ufffd"))  # bytes of a character come one by one

    def rest(self) -> str:
        """Returns the text that is left when no token follows."""
        return self._show(output_text(self.ids, *self._how))

    def _show(self, text: str) -> str:
        new = text[len(self.shown) :]
        self.shown += new
        return new


class Numbers:
    """Ids written as numbers, in the place of a tokenizer."""

    def tokenize_to_ids(self, text: str) -> list[int]:
        """The numbers of a text."""
        words = text.split()
        wrong = [word for word in words if not word.isdecimal()]
        if wrong:
            raise ValueError(f"--ids takes ids, numbers with blanks between, and {wrong[0]!r} is none")
        return [int(word) for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        """The numbers as text, each with a blank before it."""
        return "".join(f" {number}" for number in ids)
