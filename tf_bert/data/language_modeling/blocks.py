"""Cuts text into blocks of equal length for a language model: documents concatenated, cut every S tokens.

Each document begins with the token that ends a text (``<|endoftext|>``), where the vocabulary has one, and so does what
would come after the last. Block k has the tokens k S to (k + 1) S of the whole row: S inputs and, one further on, S
labels, so that every token but the first is predicted once. A record holds, filled up with zeros in the last block::

    input_ids, document_ids    int64 [S + 1]   the token, and the number of its document in the block
    num_tokens                 int64 [1]       how many of them are real
    num_bytes                  int64 [1]       bytes of text that the labels stand for
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tf_bert.data.text.lines import read_lines, total_size
from tf_bert.data.tfrecord.example_codec import example_from_entries, packed_int64_feature, varint
from tf_bert.data.tfrecord.files import RecordWriter
from tf_bert.data.tfrecord.sidecar import write_sidecar
from tf_bert.progress import Progress

BOUNDARIES = ("file", "blank_line", "line")
_CHUNK_CHARACTERS = 1 << 16


def read_documents(
    files: Sequence[str], boundary: str = "file", progress: Progress | None = None
) -> Iterator[tuple[str, bool]]:
    """Reads documents in pieces, so that a file of any size takes little memory.

    Carriage returns are dropped. A piece ends before a line feed whose line begins with a letter or a mark, where no
    tokenizer of ours has a word that crosses: the ids of the pieces are those of the whole.

    Args:
        files: UTF-8 text.
        boundary: what ends a document: the end of a ``"file"``, one or more ``"blank_line"``, or every ``"line"``.
        progress: is told of the bytes that were read.

    Yields:
        A piece of text, and whether its document ends there. Documents without text are left out.

    Raises:
        ValueError: a file is not UTF-8, or ``boundary`` is none of these.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w") as file:
        ...     _ = file.write("one\\ntwo\\n\\nthree")
        ...     file.flush()
        ...     list(read_documents([file.name], "blank_line"))
        [('one\\ntwo', True), ('three', True)]
    """
    if boundary not in BOUNDARIES:
        raise ValueError(f"the boundary of documents must be one of {', '.join(BOUNDARIES)}, not {boundary!r}")
    for path in files:
        pending, size, begun = [], 0, False  # lines of the next piece; whether the document has given one already
        for line in read_lines(path, progress):
            ends = boundary == "line" or (boundary == "blank_line" and not line.strip())
            if size >= _CHUNK_CHARACTERS and line[:1].strip() and not ends:
                yield "\n" * begun + "\n".join(pending), False
                pending, size, begun = [], 0, True
            if boundary != "blank_line" or not ends:
                pending.append(line)
                size += len(line) + 1
            if ends:
                yield from _last_piece(pending, begun)
                pending, size, begun = [], 0, False
        yield from _last_piece(pending, begun)


def _last_piece(lines: list[str], begun: bool) -> Iterator[tuple[str, bool]]:
    text = "\n" * begun + "\n".join(lines)
    if begun or text.strip():
        yield text, True


@dataclasses.dataclass(frozen=True)
class Block:
    """A row of tokens: S inputs and one label more; fewer in the last block."""

    tokens: Sequence[int]
    document_ids: Sequence[int]


def make_blocks(
    documents: Iterable[tuple[Sequence[int], bool]], block_size: int, end_id: int | None, *, packed: bool = True
) -> Iterator[Block]:
    """Cuts documents into blocks.

    Args:
        documents: ids of pieces of documents, and whether the document ends with the piece.
        block_size: S.
        end_id: the token between documents; None for none.
        packed: whether a block goes on with the next document; False begins each document in a block of its own.

    Yields:
        Blocks of S + 1 tokens that share one with their neighbour; a shorter one has at least 2.

    Example:
        >>> documents = [([5, 6, 7], True), ([8], True)]
        >>> for block in make_blocks(documents, 4, 0):
        ...     print(block)
        Block(tokens=[0, 5, 6, 7, 0], document_ids=[0, 0, 0, 0, 1])
        Block(tokens=[0, 8, 0], document_ids=[0, 0, 1])
    """
    end = [] if end_id is None else [end_id]
    tokens: list[int] = []
    numbers: list[int] = []
    document, begins = 0, True

    def full(least: int) -> Iterator[Block]:
        nonlocal tokens, numbers
        while len(tokens) > least:
            first = numbers[0]
            yield Block(tokens[: block_size + 1], [number - first for number in numbers[: block_size + 1]])
            tokens, numbers = tokens[block_size:], numbers[block_size:]

    for ids, ends in documents:
        added = [*end, *ids] if begins else ids
        tokens += added
        numbers += [document] * len(added)
        begins = ends
        document += ends
        if ends and not packed:
            tokens += end
            numbers += [document] * len(end)
            yield from full(1)
            tokens, numbers = [], []
        yield from full(block_size)
    if tokens:
        tokens += end
        numbers += [document] * len(end)
    yield from full(1)


def encode_block(block: Block, block_size: int, byte_lengths: Mapping[int, int]) -> bytes:
    """One record."""
    padding = bytes(block_size + 1 - len(block.tokens))
    num_bytes = sum(map(byte_lengths.__getitem__, block.tokens[1:]))

    def feature(name: str, values: Iterable[int], filling: bytes = b"") -> bytes:
        return packed_int64_feature(name, b"".join(map(varint, values)) + filling)

    return example_from_entries(
        (
            feature("document_ids", block.document_ids, padding),
            feature("input_ids", block.tokens, padding),
            feature("num_bytes", [num_bytes]),
            feature("num_tokens", [len(block.tokens)]),
        )
    )


def write_language_modeling_records(
    files: Sequence[str],
    tokenizer,
    output_files: Sequence[str],
    block_size: int,
    *,
    boundary: str = "file",
    packed: bool = True,
    sidecar: Mapping[str, Any] = {},
) -> dict[str, int]:
    """Writes the blocks of texts as TFRecords; block k goes to file k modulo their number.

    Args:
        files: UTF-8 text.
        tokenizer: a `tf_bert.tokenization.byte_pair.BytePairTokenizer`.
        output_files: to write, each with a ``.json`` beside it.
        block_size: S.
        boundary: see `read_documents`.
        packed: see `make_blocks`.
        sidecar: more for the ``.json``.

    Returns:
        The numbers of ``documents``, ``tokens`` (labels), ``bytes`` and ``records``.

    Raises:
        ValueError: the text is not UTF-8, or too short for a single block.
    """
    counts = {"documents": 0, "tokens": 0, "bytes": 0, "records": 0}
    of_file = [0] * len(output_files)
    byte_lengths = tokenizer.byte_lengths()
    with Progress("writing blocks", total=total_size(files), unit="B") as progress, contextlib.ExitStack() as stack:
        writers = [stack.enter_context(RecordWriter(path)) for path in output_files]

        def documents() -> Iterator[tuple[Sequence[int], bool]]:
            for text, ends in read_documents(files, boundary, progress):
                counts["documents"] += ends
                yield tokenizer.tokenize_to_ids(text), ends

        for number, block in enumerate(make_blocks(documents(), block_size, tokenizer.end_of_text_id, packed=packed)):
            writers[number % len(writers)].write(encode_block(block, block_size, byte_lengths))
            of_file[number % len(writers)] += 1
            counts["records"] += 1
            counts["tokens"] += len(block.tokens) - 1
            counts["bytes"] += sum(map(byte_lengths.__getitem__, block.tokens[1:]))
        if counts["records"] < len(output_files):
            raise ValueError(
                f"the text has {counts['tokens']} tokens, {counts['records']} blocks of {block_size}: expected at "
                f"least {len(output_files)}, one for each output file"
            )
    for path, records in zip(output_files, of_file, strict=True):
        noted = {"block_size": block_size, "boundary": boundary, "packed": packed, "records": records}
        write_sidecar(path, dict(sidecar) | noted)
    return counts
