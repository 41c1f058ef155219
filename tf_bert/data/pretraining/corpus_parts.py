"""A corpus in pieces that are tokenized apart and read as one, for machines that share nothing but a folder.

Text is cut at round numbers of bytes, also inside a file. A document belongs to the piece in which the blank line
before it begins: whoever tokenizes a piece begins behind its first blank line and reads on over its end, and over the
ends of files, until the document is complete. A piece without a blank line holds no document, and so a document longer
than several pieces is still one. Each piece becomes a `TokenStore` in a folder of its own; an index says which
documents are where, so that a random document of the whole corpus takes a few small reads.
"""

import bisect
import dataclasses
import functools
import itertools
import json
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence

from tf_bert.data.pretraining import token_store
from tf_bert.data.pretraining.corpus import CorpusCounts, Document, LineEncoder, lines_are_named
from tf_bert.data.pretraining.token_store import TokenStore, TokenStoreWriter
from tf_bert.data.text.lines import is_compressed, lines_from
from tf_bert.files import atomic_writer, exists, file_size, open_binary
from tf_bert.json_files import read_json_object

PIECES = "pieces.json"
PIECE_BYTES = 8 << 20
MOST_PIECES = 1000
_LINES_AT_ONCE = 4096
_OPEN_STORES = 64


@dataclasses.dataclass(frozen=True)
class Piece:
    """Bytes of a text file: from ``start`` up to ``end``, or to the end of a compressed file."""

    file: int
    start: int
    end: int | None


def cut(files: Sequence[str], piece_bytes: int | None = None) -> list[Piece]:
    """Cuts text files into pieces.

    Args:
        files: text files; compressed ones stay whole.
        piece_bytes: the size of a piece; by default 8 MB, or what makes 1000 pieces of a larger corpus.
    """
    size = piece_bytes or max(PIECE_BYTES, -(-sum(map(file_size, files)) // MOST_PIECES))
    pieces = []
    for number, path in enumerate(files):
        if is_compressed(path):
            pieces.append(Piece(number, 0, None))
            continue
        end = file_size(path)
        pieces += [Piece(number, start, min(start + size, end)) for start in range(0, max(end, 1), size)]
    return pieces


def lines_of(files: Sequence[str], piece: Piece, documents_end_with_files: bool) -> Iterator[str]:
    """Yields the lines of the documents that belong to a piece.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"a\\n\\nb\\nc\\n\\nd\\n")
        ...     file.flush()
        ...     [list(lines_of([file.name], piece, False)) for piece in cut([file.name], 4)]
        [['a', '', 'b', 'c'], ['d'], []]
    """
    # Text begins with a document, and so does each file where files end documents.
    owned = piece.start == 0 and (piece.file == 0 or documents_end_with_files)
    for number in range(piece.file, len(files)):
        if number > piece.file and documents_end_with_files:
            return
        for offset, line in lines_from(files[number], piece.start if number == piece.file else 0):
            beyond = number > piece.file or (piece.end is not None and offset >= piece.end)
            if owned:
                if beyond and not line.strip():
                    return
                yield line
            elif beyond:
                return
            else:
                owned = not line.strip()


def write_piece(
    folder: str, number: int, files: Sequence[str], encoder: LineEncoder, documents_end_with_files: bool = False
) -> None:
    """Tokenizes a piece into a folder of its own. What is there already is left."""
    piece_folder = _piece_folder(folder, number)
    done = os.path.join(piece_folder, "counts.json")
    if exists(done):
        return
    lines = lines_of(files, cut(files)[number], documents_end_with_files)
    with lines_are_named(files), TokenStoreWriter(piece_folder, encoder.tokenizer.vocab) as writer:
        while batch := list(itertools.islice(lines, _LINES_AT_ONCE)):
            writer.extend(*encoder(batch))
    with atomic_writer(done, "w") as file:
        file.write(json.dumps(dataclasses.asdict(writer.counts)))


def write_index(folder: str, n_pieces: int) -> CorpusCounts:
    """Numbers the documents of all pieces, and divides them into blocks as `TokenStoreWriter` would.

    Returns:
        The counts of the whole corpus.
    """
    totals: dict[str, int] = {}
    ends, blocks = [0], [0]  # of pieces and of blocks, in documents
    n_ids = ids_in_blocks = 0
    for number in range(n_pieces):
        piece_folder = _piece_folder(folder, number)
        for name, value in read_json_object(os.path.join(piece_folder, "counts.json")).items():
            totals[name] = totals.get(name, 0) + value
        documents = _numbers(os.path.join(piece_folder, "documents"))
        sentences = _numbers(os.path.join(piece_folder, "sentences"))
        for document, sentence_end in enumerate(documents[1:], ends[-1] + 1):
            n_ids_here = n_ids + sentences[sentence_end]
            if n_ids_here - ids_in_blocks >= token_store.TOKENS_IN_A_BLOCK:
                blocks.append(document)
                ids_in_blocks = n_ids_here
        n_ids += sentences[-1]
        ends.append(ends[-1] + len(documents) - 1)
    if ids_in_blocks < n_ids:
        blocks.append(ends[-1])
    counts = CorpusCounts(**totals | {"has_continuations": bool(totals["has_continuations"])})
    with atomic_writer(os.path.join(folder, PIECES), "w") as file:
        file.write(json.dumps({"ends": ends, "blocks": blocks, "counts": dataclasses.asdict(counts)}))
    return counts


def _piece_folder(folder: str, number: int) -> str:
    return os.path.join(folder, f"piece-{number:05}")


def _numbers(path: str) -> array:
    with open_binary(path) as file:
        return array("Q", file.read())


class PieceStore(Sequence):
    """Reads what `write_piece` and `write_index` wrote, as a `TokenStore` reads one corpus."""

    def __init__(self, folder: str, vocab: Mapping[str, int]):
        index = read_json_object(os.path.join(folder, PIECES))
        self._ends, self._blocks = index["ends"], index["blocks"]
        self.counts = CorpusCounts(**index["counts"])
        self._store = functools.lru_cache(_OPEN_STORES)(lambda number: TokenStore(_piece_folder(folder, number), vocab))

    @property
    def n_blocks(self) -> int:
        """The number of blocks of documents."""
        return len(self._blocks) - 1

    def block(self, number: int) -> range:
        """The numbers of the documents in a block."""
        return range(*self._blocks[number : number + 2])

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, number: int) -> Document:
        if not 0 <= number < len(self):
            raise IndexError(number)
        piece = bisect.bisect_right(self._ends, number) - 1
        return self._store(piece)[number - self._ends[piece]]
