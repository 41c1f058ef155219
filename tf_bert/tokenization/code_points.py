"""Tables of what `BasicTokenizer` does to each code point, for the tokenizer in the graph.

They are made from the Unicode tables of the running Python, so that graph and Python agree on every code point.
"""

import functools
import sys
import unicodedata
from typing import NamedTuple

import numpy as np

from tf_bert.tokenization.basic import CHINESE_RANGES, CLEANING_TABLE, is_chinese_char, is_punctuation

# An entry is the new code point in the low 21 bits, and these.
CODE = (1 << 21) - 1
SPACE = 1 << 21  # ends a word
CHINESE = 1 << 22  # a word of its own
PUNCTUATION = 1 << 23  # a token of its own
DELETED = 1 << 24  # control and format characters
ACCENT = 1 << 25  # stripped: decomposes into nothing but category Mn
SEVERAL = 1 << 26  # becomes several characters; the low bits are a row of the expansions
COMBINING = 1 << 27  # has a combining class above 0, as have all characters that it becomes
SIGMA = 1 << 28  # the capital sigma, whose lower case depends on its neighbours
CASED = 1 << 29  # the neighbours of a sigma: a letter with case
IGNORABLE = 1 << 30  # ... or a character that is overlooked
RARE = DELETED | ACCENT | SEVERAL | COMBINING | SIGMA

CAPITAL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C2


class CodePointTables(NamedTuple):
    """Entries of code points.

    Attributes:
        entries: int32; entry of each code point, its low bits combined with the code point by exclusive or, so that
            most entries are 0. The last one, 0, stands for all code points from there on.
        expansions: int32; the entries of the characters that SEVERAL ones become, row after row.
        row_splits: int32; where the rows of ``expansions`` begin and end.
        combining: int32 [n, 2]; code point and combining class of the COMBINING characters that are not ACCENT.
    """

    entries: np.ndarray
    expansions: np.ndarray
    row_splits: np.ndarray
    combining: np.ndarray


@functools.cache
def code_point_tables(do_lower_case: bool, strip_accents: bool, tokenize_chinese_chars: bool) -> CodePointTables:
    """Makes the tables for the switches of `BasicTokenizer`; takes half a second, once a process."""
    entries, expansions, row_splits, combining = {}, [0], [0, 1], {}  # row 0 for all that need none
    chinese = {code for first, last in CHINESE_RANGES for code in range(first, last + 1)}
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if code not in chinese and unicodedata.category(char) in ("Cn", "Co", "Cs"):
            continue  # nothing happens to what is unassigned, private or a surrogate
        entry, becomes = _entry(char, do_lower_case, strip_accents, tokenize_chinese_chars)
        if len(becomes) > 1:
            expansions.extend(becomes)
            entry = entry | len(row_splits) - 1
            row_splits.append(len(expansions))
        elif becomes:
            entry |= becomes[0]
        if strip_accents and entry & COMBINING and not entry & ACCENT:
            combining[code] = unicodedata.combining(char)
        if entry ^ code:
            entries[code] = entry ^ code
    table = np.zeros(max(entries) + 2, np.int32)
    table[list(entries)] = list(entries.values())
    return CodePointTables(
        table,
        np.array(expansions, np.int32),
        np.array(row_splits, np.int32),
        np.array(sorted(combining.items()), np.int32).reshape(-1, 2),
    )


def _entry(char: str, lower: bool, strip: bool, chinese: bool) -> tuple[int, list[int]]:
    """Returns the flags of a character, and the entries of the characters that it becomes."""
    if CLEANING_TABLE[ord(char)] is None:
        return DELETED, []
    if char.isspace():
        return SPACE, [ord(char)]
    if is_chinese_char(ord(char)):
        becomes = unicodedata.normalize("NFD", char) if strip else char
        return CHINESE if chinese else 0, [ord(part) for part in becomes]
    flags, becomes = 0, char
    if lower:
        becomes = becomes.lower()
        flags |= SIGMA if ord(char) == CAPITAL_SIGMA else 0
        flags |= _neighbour_of_sigma(char)
    if strip:
        becomes = unicodedata.normalize("NFD", becomes)
        flags |= COMBINING if all(map(unicodedata.combining, becomes)) else 0
        becomes = [part for part in becomes if unicodedata.category(part) != "Mn"]
        flags |= 0 if becomes else ACCENT
    parts = []
    for part in becomes:
        part_flags = PUNCTUATION if is_punctuation(part) else 0
        part_flags |= COMBINING if strip and unicodedata.combining(part) else 0
        parts.append(ord(part) | part_flags)
    return flags | (SEVERAL if len(parts) > 1 else 0), parts


def _neighbour_of_sigma(char: str) -> int:
    """Asks ``str.lower`` itself whether it sees a cased letter in a character, overlooks it, or neither."""
    if (char + "Σ").lower().endswith("ς"):
        return CASED
    return IGNORABLE if ("A" + char + "Σ").lower().endswith("ς") else 0
