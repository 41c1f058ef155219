"""Properties of characters that decide how lines are joined and how wide they are."""

import unicodedata

import regex

# Scripts written without blanks between words: no blank belongs where a line of theirs was wrapped.
_UNSPACED = regex.compile(
    r"[\p{Script_Extensions=Han}\p{Script_Extensions=Hiragana}\p{Script_Extensions=Katakana}\p{Script_Extensions=Bopomofo}"
    r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}\u3000-\u303f\uff00-\uffef]",
    regex.V1,
)
# Marks and digits that Chinese and Japanese share with other scripts.
_SHARED = frozenset("“”‘’…—·0123456789")


def is_unspaced(character: str) -> bool:
    """Whether a character is of a script that does not separate words by blanks, such as Chinese, Japanese or Thai.

    Example:
        >>> [is_unspaced(character) for character in "中の，ไa한"]
        [True, True, True, True, False, False]
    """
    return _UNSPACED.match(character) is not None


def join_lines(first: str, second: str) -> str:
    """Joins the two parts of a wrapped line: with a blank, but not next to a script that is written without blanks.

    Example:
        >>> join_lines("It was", "late."), join_lines("今天", "天气"), join_lines("他说：“好。”", "“走吧”")
        ('It was late.', '今天天气', '他说：“好。”“走吧”')
    """
    last, following = first[-1:], second[:1]
    tight = any(map(is_unspaced, (last, following))) or (
        {last, following} <= _SHARED and any(map(is_unspaced, first[-20:] + second[:20]))
    )
    return first + second if tight else f"{first} {second}"


def columns(text: str) -> int:
    """The width of a text on a terminal: Chinese, Japanese and Korean characters take two columns, marks on them none.

    Example:
        >>> columns("BERT"), columns("预训练")
        (4, 6)
    """
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def padded(text: str, width: int, right: bool = False) -> str:
    """Fills a text with blanks to a width in columns; ``right`` puts them before it.

    Example:
        >>> padded("标签", 6) + "|", padded("标签", 6, right=True)
        ('标签  |', '  标签')
    """
    blanks = " " * (width - columns(text))
    return blanks + text if right else text + blanks
