"""Locates each token in the text: the steps of `BasicTokenizer`, with a map of characters."""

import unicodedata
from typing import NamedTuple

from tf_bert.tokenization.basic import CLEANING_TABLE, BasicTokenizer, is_punctuation


class Char(NamedTuple):
    """A character of the normalised text, and the characters of the source that it stands for: source[start:end]."""

    char: str
    start: int
    end: int


def normalize_with_offsets(word: str, basic: BasicTokenizer) -> list[Char]:
    """Cleans, lower-cases and strips a word as `BasicTokenizer` does, keeping the source of each character.

    A stripped accent that stands as a character of its own belongs to the character before it, so that ``"é"`` and
    ``"e\\u0301"`` are both covered whole; deleted control and format characters belong to nothing.
    """
    cleaned = [(char, place) for place, char in enumerate(word) if CLEANING_TABLE[ord(char)] is not None]
    if basic.do_lower_case:
        places = [place for char, place in cleaned for _ in char.lower()]
        # Lower-cased as a whole: the form of a sigma depends on its neighbours, its length does not.
        cleaned = list(zip("".join(char for char, _ in cleaned).lower(), places, strict=True))
    if not basic.strip_accents:
        return [Char(char, place, place + 1) for char, place in cleaned]
    chars, order, run = [], [], 0
    for composed, place in cleaned:
        for char in unicodedata.normalize("NFD", composed):
            combining = unicodedata.combining(char)
            run += not combining
            if unicodedata.category(char) != "Mn":
                chars.append(Char(char, place, place + 1))
                order.append((run, combining))
            elif chars:
                chars[-1] = chars[-1]._replace(end=place + 1)
    # Canonical ordering (The Unicode Standard, section 3.11): combining characters sort within a run, places stay.
    in_order = sorted(range(len(chars)), key=order.__getitem__)
    return [Char(chars[i].char, place.start, place.end) for i, place in zip(in_order, chars, strict=True)]


def split_word_with_offsets(word: str, basic: BasicTokenizer) -> list[tuple[str, list[Char]]]:
    """Returns the tokens of ``basic.split_word(word)``, each with its characters."""
    tokens, alone = [], True  # alone: the token before takes no further character
    for char in normalize_with_offsets(word, basic):
        mark = is_punctuation(char.char)
        if mark or alone:
            tokens.append([])
        tokens[-1].append(char)
        alone = mark
    return [("".join(char.char for char in chars), chars) for chars in tokens]
