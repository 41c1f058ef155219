"""Splits text into words: the original's cleaning, lower-casing and splitting (``BasicTokenizer``).

What the original decides for each character is decided once for each code point here and kept in translation tables.
Everything after the first split, at blanks, looks at one word at a time, so that a caller may remember words.
All of it follows the Unicode tables of the running Python, as the original does.
"""

import functools
import re
import unicodedata
from collections.abc import Callable

CHINESE_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)

REPLACEMENT, NO_CHARACTER = "\ufffd", "\U0010ffff"
_SURROGATE = re.compile("[\ud800-\udfff]")
_ASCII_CONTROLS_THAT_SPLIT = re.compile("[\x0b\x0c\x1c-\x1f]+")


def convert_to_unicode(text: str | bytes) -> str:
    """Returns text as ``str``; bytes are read as UTF-8 and what is not UTF-8 in them is left out, as in the original.

    Raises:
        ValueError: text is neither ``str`` nor ``bytes``.

    Example:
        >>> convert_to_unicode(b"caf\\xc3\\xa9 \\xff x")
        'café  x'
    """
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"text must be str or bytes, not {type(text).__name__}: {text!r:.80}")


def without_surrogates(text: str, stand_in: str = REPLACEMENT) -> str:
    """Replaces each half of a surrogate pair, which UTF-8 cannot store, by another character.

    JSON that was cut inside an emoji has such halves. Decision: for WordPiece and GPT-1 they are a character that no
    vocabulary holds ([UNK], as in the original), for byte-level pieces and SentencePiece U+FFFD, as what is not UTF-8
    is for the latter; the same in Python and in the graph.

    Args:
        text: the text.
        stand_in: one character, so that offsets stay. `NO_CHARACTER` is one that Unicode will never assign.

    Example:
        >>> without_surrogates("a\\ud83d")
        'a�'
    """
    return _SURROGATE.sub(stand_in, text)


def printable_text(text: str | bytes) -> str:
    """Returns text in a form that ``print`` takes: in Python 3, what `convert_to_unicode` returns."""
    return convert_to_unicode(text)


def whitespace_tokenize(text: str) -> list[str]:
    """Splits at blanks as ``str.split`` does, U+2028 and control characters such as U+001C included.

    Example:
        >>> whitespace_tokenize(" two\\twords ")
        ['two', 'words']
    """
    return text.split()


def is_whitespace(char: str) -> bool:
    """Whether the original turns the character into a space: tab, line feed, carriage return and category Zs."""
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    """Whether the original deletes the character as a control character: categories Cc and Cf, but not Cs, Co, Cn."""
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    """Whether the character is a word of its own: categories P*, and all printable ASCII but letters and digits."""
    code = ord(char)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(char).startswith("P")


def is_chinese_char(code: int) -> bool:
    """Whether a code point is in the original's CJK blocks; kana, Hangul and extensions from F on are not."""
    return any(first <= code <= last for first, last in CHINESE_RANGES)


class _Table(dict):
    """A table for ``str.translate`` that asks for each code point once."""

    def __init__(self, translate: Callable[[int], int | str | None]):
        super().__init__()
        self._translate = translate

    def __missing__(self, code: int) -> int | str | None:
        self[code] = self._translate(code)
        return self[code]


def _is_deleted(char: str) -> bool:
    return char in "\x00\ufffd" or is_control(char)


# Deletes what the original deletes.
CLEANING_TABLE = _Table(lambda code: None if _is_deleted(chr(code)) else code)


@functools.cache
def _splitting_table(strip_accents: bool) -> _Table:
    """Puts spaces around punctuation, and deletes accents (category Mn)."""

    def translate(code: int) -> int | str | None:
        char = chr(code)
        if strip_accents and unicodedata.category(char) == "Mn":
            return None
        return f" {char} " if is_punctuation(char) else code

    return _Table(translate)


@functools.cache
def word_pattern(tokenize_chinese_chars: bool) -> re.Pattern:
    """Matches the words of a text: each Chinese character, and each stretch without them and without blanks.

    Blanks are what ``str.split`` splits at, less the control characters that the original deletes, so that their
    neighbours join.
    """
    blanks = "".join(char for char in map(chr, range(0x3001)) if char.isspace() and not is_control(char))
    chinese = "".join(f"{chr(first)}-{chr(last)}" for first, last in CHINESE_RANGES)
    if tokenize_chinese_chars:
        return re.compile(f"[{chinese}]|[^{blanks}{chinese}]+")
    return re.compile(f"[^{blanks}]+")


def split_at_blanks(text: str, tokenize_chinese_chars: bool = True) -> list[str]:
    """Splits text at blanks and around Chinese characters; all that `BasicTokenizer` does then concerns one word."""
    if text.isascii():  # the same by a shorter way
        return (text if text.isprintable() else _ASCII_CONTROLS_THAT_SPLIT.sub("", text)).split()
    return word_pattern(tokenize_chinese_chars).findall(text)


class BasicTokenizer:
    """Splits text at blanks, punctuation and around Chinese characters; lower-cases and strips accents.

    The steps and their order are the original's: delete U+0000, U+FFFD and categories Cc and Cf without leaving a
    space; every blank becomes a space; spaces around Chinese characters; split; for each word ``str.lower`` (with its
    final sigma), canonical decomposition (NFD, not recomposed) and deletion of category Mn; split at punctuation.

    Args:
        do_lower_case: whether to lower-case.
        strip_accents: whether to decompose and drop accents (category Mn). None, the original's way, does so when
            lower-casing. False keeps Hangul syllables, kana and Indic signs whole in a lower-casing model.
        tokenize_chinese_chars: whether each Chinese character is a word; the original always says so.

    Source: ``BasicTokenizer`` of google-research/bert, ``tokenization.py``.

    Example:
        >>> BasicTokenizer().tokenize("Crème brûlée, 世界!")
        ['creme', 'brulee', ',', '世', '界', '!']
        >>> BasicTokenizer(strip_accents=False).tokenize("Crème BRÛLÉE")
        ['crème', 'brûlée']
    """

    def __init__(
        self, do_lower_case: bool = True, strip_accents: bool | None = None, tokenize_chinese_chars: bool = True
    ):
        self.do_lower_case = bool(do_lower_case)
        self.strip_accents = self.do_lower_case if strip_accents is None else bool(strip_accents)
        self.tokenize_chinese_chars = bool(tokenize_chinese_chars)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the words and punctuation marks of a text.

        Raises:
            ValueError: text is neither ``str`` nor ``bytes``.
        """
        words = split_at_blanks(convert_to_unicode(text), self.tokenize_chinese_chars)
        return [token for word in words for token in self.split_word(word)]

    def split_word(self, word: str) -> list[str]:
        """Returns the tokens of a word of `split_at_blanks`: cleaned, lower-cased, stripped, split at punctuation."""
        if word.isascii() and word.isalnum():
            return [word.lower() if self.do_lower_case else word]
        word = word.translate(CLEANING_TABLE)
        if self.do_lower_case:
            word = word.lower()
        if self.strip_accents:
            word = unicodedata.normalize("NFD", word)
        return word.translate(_splitting_table(self.strip_accents)).split()
