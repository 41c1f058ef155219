"""The two files of a byte-pair vocabulary: ``encoder.json``, which numbers the pieces, and ``vocab.bpe``, the merges.

``vocab.bpe`` holds one merge a line, the most frequent first: two pieces, a blank between them, that become one.
Splitting a word is to begin with its characters and to apply the earliest merge that applies, again and again.
"""

import heapq
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence

from tf_bert.files import atomic_writer, make_folder, open_binary
from tf_bert.json_files import read_json_object

ENCODER_FILE, MERGES_FILE = "encoder.json", "vocab.bpe"  # OpenAI's names for GPT-2
END_OF_TEXT = "<|endoftext|>"
END_OF_WORD = "</w>"
UNKNOWN = "<unk>"
_LONG_WORD = 64
_HEADER = "#version: 0.2"
_SPECIAL = re.compile(r"<.*>|\[.*\]|\n</w>")  # pieces that no merge makes: special tokens, GPT-1's line break

Merge = tuple[str, str]


def bytes_to_unicode() -> dict[int, str]:
    """GPT-2's alphabet: a visible character for each byte, itself where it is one.

    Source: ``bytes_to_unicode`` of openai/gpt-2, ``encoder.py``.

    Example:
        >>> symbols = bytes_to_unicode()
        >>> symbols[ord("a")], symbols[ord(" ")], len(set(symbols.values()))
        ('a', 'Ġ', 256)
    """
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(others)}


class Merges:
    """Splits words by the merges of a vocabulary.

    Args:
        merges: pairs of pieces, the first to be applied first.

    Example:
        >>> Merges([("e", "s"), ("es", "t"), ("l", "o")]).split("lowest")
        ['lo', 'w', 'est']
    """

    def __init__(self, merges: Sequence[Merge]):
        self.merges = list(merges)
        self.ranks = {pair: rank for rank, pair in enumerate(self.merges)}

    def split(self, symbols: Sequence[str]) -> list[str]:
        """Merges neighbours: everywhere, from left to right, the pair that comes first in the list; then anew.

        Args:
            symbols: the characters of a word.
        """
        return self._split_short(symbols) if len(symbols) < _LONG_WORD else self._split_long(symbols)

    def _split_short(self, symbols: Sequence[str]) -> list[str]:
        symbols, get, none = list(symbols), self.ranks.get, len(self.merges)
        ranks = [get(pair, none) for pair in itertools.pairwise(symbols)]
        while ranks and (rank := min(ranks)) < none:
            piece = "".join(self.merges[rank])
            if ranks.count(rank) == 1:
                i = ranks.index(rank)
                symbols[i : i + 2] = [piece]
                del ranks[i]
                if i:
                    ranks[i - 1] = get((symbols[i - 1], piece), none)
                if i < len(ranks):
                    ranks[i] = get((piece, symbols[i + 1]), none)
            else:  # all of this pair, before the pairs that they make
                i, before, symbols = 0, symbols, []
                while i < len(before):
                    merges = i < len(ranks) and ranks[i] == rank
                    symbols.append(piece if merges else before[i])
                    i += 1 + merges
                ranks = [get(pair, none) for pair in itertools.pairwise(symbols)]
        return symbols

    def _split_long(self, symbols: Sequence[str]) -> list[str]:
        """The same with a heap that gives the next pair, and links over what was merged.

        A word of a million characters takes seconds so, not days.
        """
        symbols, get = list(symbols), self.ranks.get
        heap = [(r, i) for i, pair in enumerate(itertools.pairwise(symbols)) if (r := get(pair)) is not None]
        if not heap:
            return symbols
        heapq.heapify(heap)
        end = len(symbols)
        after, before = list(range(1, end + 1)), list(range(-1, end - 1))
        while heap:
            rank = heap[0][0]
            left, right = self.merges[rank]
            changed = []
            while heap and heap[0][0] == rank:  # all of this pair, before the pairs that they make
                i = heapq.heappop(heap)[1]
                j = after[i]
                if j == end or symbols[i] != left or symbols[j] != right:
                    continue  # one of them has been merged with another
                symbols[i], symbols[j] = left + right, None
                after[i] = after[j]
                if after[i] < end:
                    before[after[i]] = i
                changed.append(i)
            for i in changed:
                h, j = before[i], after[i]
                if h >= 0 and (r := get((symbols[h], symbols[i]))) is not None:
                    heapq.heappush(heap, (r, h))
                if j < end and (r := get((symbols[i], symbols[j]))) is not None:
                    heapq.heappush(heap, (r, i))
        return [symbol for symbol in symbols if symbol is not None]


def read_encoder(path: str | os.PathLike) -> dict[str, int]:
    """Reads ``encoder.json`` (Hugging Face's ``vocab.json``): piece -> id.

    Raises:
        ValueError: it is no JSON object of distinct numbers 0, 1, 2 ...; says what was found.
    """
    name = os.fspath(path)
    encoder = read_json_object(path)
    if not encoder:
        raise ValueError(f"{name} holds no pieces: expected a JSON object from each piece to its id")
    piece_of: dict[int, str] = {}
    for piece, number in encoder.items():
        if type(number) is not int or not 0 <= number < len(encoder) or number in piece_of:
            raise ValueError(
                f"{name}: the piece {piece!r} has the id {number!r:.40}; expected the numbers 0 to {len(encoder) - 1} "
                f"for its {len(encoder)} pieces, each once; is it an encoder.json (or vocab.json)?"
            )
        piece_of[number] = piece
    return encoder


def read_merges(path: str | os.PathLike) -> list[Merge]:
    """Reads ``vocab.bpe`` (Hugging Face's ``merges.txt``).

    Raises:
        ValueError: a line is not two pieces with a blank between them, or two lines are equal; says which.
    """
    name = os.fspath(path)
    with open_binary(path) as file:
        data = file.read()
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: not valid UTF-8 at byte offset {error.start}; expected a merge a line") from None
    merges: list[Merge] = []
    line_of: dict[Merge, int] = {}
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\r")
        if (number == 1 and line.startswith("#version")) or (number == len(lines) and not line):
            continue
        pair = tuple(line.split(" "))
        if len(pair) != 2 or not all(pair):
            raise ValueError(f"{name}, line {number}: expected two pieces with a blank between them, found {line!r}")
        first = line_of.setdefault(pair, number)
        if first != number:
            raise ValueError(f"{name}, line {number}: the merge {line!r} is that of line {first} again")
        merges.append(pair)
    return merges


def check_fit(
    encoder: Mapping[str, int],
    merges: Sequence[Merge],
    encoder_file: str,
    merges_file: str,
    alphabet: Sequence[str] = (),
) -> None:
    """Stops where the two files do not belong together, before a text is silently split in another way.

    Args:
        encoder: from `read_encoder`.
        merges: from `read_merges`.
        encoder_file: its name, for the message.
        merges_file: likewise.
        alphabet: pieces that must have an id.

    Raises:
        ValueError: a piece of a merge has no id; or a piece has an id but no merge makes it, and it is neither of one
            character nor written as a special token (``<...>``, ``[...]``).
    """
    missing = [symbol for symbol in alphabet if symbol not in encoder]
    if missing:
        raise ValueError(
            f"{encoder_file} lacks {len(missing)} of the {len(alphabet)} bytes, such as {missing[0]!r}: it is no "
            "vocabulary of byte-level pieces"
        )
    made = {left + right for left, right in merges}
    for rank, (left, right) in enumerate(merges):
        lacking = [piece for piece in (left, right, left + right) if piece not in encoder]
        if lacking:
            raise ValueError(
                f"{merges_file} does not fit {encoder_file}: merge {rank + 1}, {left!r} and {right!r}, needs the piece "
                f"{lacking[0]!r}, which has no id; take both files from the same model"
            )
    unmade = [
        piece
        for piece in encoder
        if piece not in made and len(piece.removesuffix(END_OF_WORD)) > 1 and not _SPECIAL.fullmatch(piece)
    ]
    if unmade:
        raise ValueError(
            f"{merges_file} does not fit {encoder_file}: none of its {len(merges)} merges makes {unmade[0]!r} "
            f"({len(unmade)} such pieces); is the file cut short? Take both files from the same model"
        )


def save_byte_pairs(
    folder: str | os.PathLike,
    pieces: Sequence[str],
    merges: Sequence[Merge],
    names: tuple[str, str] = (ENCODER_FILE, MERGES_FILE),
) -> tuple[str, str]:
    """Writes both files.

    Args:
        folder: made if need be.
        pieces: in the order of their ids.
        merges: pairs of pieces.
        names: of the files.

    Returns:
        Their paths.
    """
    make_folder(folder)
    paths = tuple(os.path.join(os.fspath(folder), name) for name in names)
    with atomic_writer(paths[0]) as file:
        file.write(json.dumps({piece: number for number, piece in enumerate(pieces)}).encode())
    with atomic_writer(paths[1]) as file:
        file.write("".join([_HEADER + "\n", *(f"{left} {right}\n" for left, right in merges)]).encode("utf-8"))
    return paths
