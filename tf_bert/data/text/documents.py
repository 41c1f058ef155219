"""Reads documents from text files, JSON lines and directories of them.

Everything here is a stream of lines in the form that data creation reads: one sentence a line, and an empty line after
each document.
"""

import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tf_bert.data.text.characters import columns, is_unspaced, join_lines
from tf_bert.data.text.lines import expand_input_files, read_lines, total_size
from tf_bert.data.text.sentences import split_sentences
from tf_bert.json_files import parse_json, parse_json_object
from tf_bert.progress import Progress

DOCUMENT_BREAKS = ("auto", "blank_line", "two_blank_lines", "paragraph", "file")
LINE_BREAKS = ("auto", "join", "keep")
FORMATS = ("auto", "text", "jsonl")

_LOOKED_AT_LINES, _LOOKED_AT_CHARACTERS = 5_000, 1_000_000  # of each file, to see how it is laid out
_WRAPPED = 20, 100  # columns at which people wrap lines
_HEADING_CHARACTERS = 60  # documents all of whose paragraphs are shorter are headings of the next
_LONGEST_PARAGRAPH = 1_000_000
# Paragraphs as documents: one of several sentences ends a document of at least so many; no document is longer.
_SHORTEST_DOCUMENT, _LONGEST_DOCUMENT = 4, 30
_FEW_FILES = 10
_DOCUMENTS_WANTED, _BYTES_OF_A_SENTENCE = 200, 60
_OPENING = 1_000  # characters of a document by which its side of the split is decided
_CLAUSE_END = re.compile(r"[,;:،؛、，；：]\s*")
_EXTRACTED_PAGE = re.compile(r"</?doc\b[^<>]*>")  # WikiExtractor's marks around each article


@dataclass(frozen=True)
class Layout:
    """How text is laid out.

    Args:
        document_break: ``"blank_line"``, ``"two_blank_lines"`` or more, ``"paragraph"`` (of text in which nothing marks
            documents: a paragraph, or several short ones), or ``"file"``: what ends a document. The
            end of a file always does.
        width: the column at which lines are wrapped, so that a paragraph goes over several; 0 where each line is a
            paragraph of its own, 1 where all lines of a block are one paragraph.
    """

    document_break: str
    width: int

    def __str__(self) -> str:
        lines = {0: "a paragraph a line", 1: "a paragraph a block"}.get(self.width, f"lines wrapped at {self.width}")
        ends = {
            "blank_line": "an empty line",
            "two_blank_lines": "two empty lines",
            "paragraph": "a paragraph, or after some sentences",
            "file": "the end of the file",
        }
        return f"{lines}, documents end at {ends[self.document_break]}"


def find_files(patterns: str) -> list[str]:
    """Expands a comma-separated list of files, globs and directories; of these every file below that is not hidden.

    Raises:
        FileNotFoundError: a pattern matches nothing, or a directory holds no files.
    """
    found = []
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        if not os.path.isdir(pattern):
            found += expand_input_files(pattern)
            continue
        inside = []
        for folder, folders, files in os.walk(pattern):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            inside += sorted(os.path.join(folder, name) for name in files if not name.startswith("."))
        if not inside:
            raise FileNotFoundError(f"there are no files in the directory {pattern}")
        found += inside
    return found or expand_input_files(patterns)


def read_documents(
    path: str,
    *,
    format: str = "auto",
    text_field: str = "text",
    document_break: str = "auto",
    line_breaks: str = "auto",
    sentences_per_document: int = 0,
    longest_sentence: int = 0,
    encoding: str = "utf-8",
    progress: Progress | None = None,
    layouts: dict[str, int] | None = None,
) -> Iterator[str]:
    """Yields the sentences of a file, and an empty line after each document.

    Args:
        path: text or JSON lines, may be gzipped.
        format: ``"text"``, ``"jsonl"`` (each line an object, its ``text_field`` a document), or ``"auto"``: JSON lines
            if the first line is a JSON object.
        text_field: name of the field that holds the text.
        document_break: see `Layout`. ``"auto"``: two empty lines where there are such; one empty line where blocks of
            several unwrapped lines stand between empty lines; else the end of the file or, with
            ``sentences_per_document``, paragraphs.
        line_breaks: ``"join"`` the lines of a block to a paragraph, ``"keep"`` each line as a paragraph, or ``"auto"``:
            join those that are wrapped, as far as the widths of lines tell.
        sentences_per_document: of few large files, whose ends are no ends of documents: where nothing else marks
            those, a document is a paragraph, or several short ones, of at most so many sentences. 0: the file is one.
        longest_sentence: columns after which a sentence is cut, at a comma or a blank where there is one; 0 for none.
            Text whose script marks no ends of sentences needs it.
        encoding: of the file.
        progress: is told of the bytes read.
        layouts: counts how often each layout was found (description -> files).

    Raises:
        ValueError: the file is not UTF-8, a line is not a JSON object with ``text_field``, or a choice is not known.
    """
    for name, value, known in (
        ("format", format, FORMATS),
        ("document_break", document_break, DOCUMENT_BREAKS),
        ("line_breaks", line_breaks, LINE_BREAKS),
    ):
        if value not in known:
            raise ValueError(f"{name} is {value!r}; known are {', '.join(known)}")
    lines = read_lines(path, progress, encoding)
    head, characters = [], 0
    for line in itertools.islice(lines, _LOOKED_AT_LINES):
        head.append(line)
        characters += len(line)
        if characters > _LOOKED_AT_CHARACTERS:
            break
    lines = itertools.chain(head, lines)
    if format == "jsonl" or (format == "auto" and _is_json_lines(path, head)):
        layout = f"JSON lines, a document in each {text_field!r}"
        documents = _documents_of_json_lines(lines, path, text_field, line_breaks, longest_sentence)
    else:
        layout = guess_layout(head, document_break, line_breaks, sentences_per_document > 0)
        documents = sentences(lines, layout, longest_sentence, sentences_per_document or _LONGEST_DOCUMENT)
    if layouts is not None:
        layouts[str(layout)] = layouts.get(str(layout), 0) + 1
    return documents


def usual_sentences_per_document(files: list[str]) -> int:
    """The sentences of a document where nothing marks documents; 0 where files are many enough to be documents."""
    if len(files) >= _FEW_FILES:
        return 0
    wanted = total_size(files) // (_DOCUMENTS_WANTED * _BYTES_OF_A_SENTENCE)
    return min(max(wanted, _SHORTEST_DOCUMENT), _LONGEST_DOCUMENT)


def _is_json_lines(path: str, head: Iterable[str]) -> bool:
    if os.fspath(path).removesuffix(".gz").endswith((".jsonl", ".ndjson")):
        return True
    first = next(filter(str.strip, head), "").lstrip()
    try:
        return first.startswith("{") and isinstance(parse_json(first, ""), dict)
    except ValueError:
        return False


def _documents_of_json_lines(
    lines: Iterable[str], path: str, text_field: str, line_breaks: str, longest_sentence: int
) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = parse_json_object(line, f"{path}, line {number}")
        text = record.get(text_field)
        if not isinstance(text, str):
            found = ", ".join(map(repr, record)) or "none"
            what = f"{text_field!r} is not a string" if text_field in record else f"there is no field {text_field!r}"
            raise ValueError(
                f"{path}, line {number}: {what}; fields found: {found} (--text_field names the one to read)"
            )
        # JSON may hold half a surrogate pair, which cannot be written as UTF-8.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        text_lines = text.replace("\r\n", "\n").split("\n")
        yield from sentences(text_lines, guess_layout(text_lines, "file", line_breaks), longest_sentence)


def guess_layout(
    lines: list[str], document_break: str = "auto", line_breaks: str = "auto", alone: bool = False
) -> Layout:
    """Finds out how text is laid out, from its first lines; what is not ``"auto"`` is taken as given.

    Example:
        >>> str(guess_layout(["It was late.", "It rained.", "", "Another one.", "It is short."]))
        'a paragraph a line, documents end at an empty line'
    """
    lengths = [columns(line.rstrip()) for line in lines]
    followed = sorted(length for length, next_one in itertools.pairwise(lengths) if length and next_one)
    # Wrapped lines are nearly as long as the longest; few lines stick out, such as addresses that cannot be wrapped.
    width = followed[int(0.98 * (len(followed) - 1))] if followed else 0
    median = followed[len(followed) // 2] if followed else 0
    wrapped = len(followed) >= 3 and _WRAPPED[0] <= width <= _WRAPPED[1] and median >= 0.75 * width
    if line_breaks == "join":
        width = 1
    elif line_breaks == "keep" or not wrapped:
        width = 0
    if document_break == "auto":
        texts = [number for number, length in enumerate(lengths) if length]
        if any(map(_EXTRACTED_PAGE.fullmatch, lines)):
            document_break = "file"
        elif any(later - earlier > 2 for earlier, later in itertools.pairwise(texts)):
            document_break = "two_blank_lines"
        else:
            blocks = len(texts) > 1 and texts[-1] - texts[0] >= len(texts)  # there are empty lines
            marked = followed and not width and (blocks or not alone)
            document_break = "blank_line" if marked else "paragraph" if alone else "file"
    return Layout(document_break, width)


def sentences(
    lines: Iterable[str], layout: Layout, longest_sentence: int = 0, longest_document: int = _LONGEST_DOCUMENT
) -> Iterator[str]:
    """Yields the sentences of laid-out text, and an empty line after each document."""
    inside = 0  # sentences of the document so far
    for paragraph in _paragraphs(lines, layout):
        found = split_sentences(paragraph)
        if longest_sentence:
            found = [part for sentence in found for part in cut_sentence(sentence, longest_sentence)]
        for sentence in found:
            yield sentence
            inside += 1
            if layout.document_break == "paragraph" and inside == longest_document:
                yield ""
                inside = 0
        ends = not paragraph or (
            layout.document_break == "paragraph" and len(found) > 1 and inside >= _SHORTEST_DOCUMENT
        )
        if ends and inside:
            yield ""
            inside = 0
    if inside:
        yield ""


def cut_sentence(sentence: str, longest: int) -> list[str]:
    """Cuts a sentence into parts of at most ``longest`` columns, at a comma or a blank where its second half has one.

    Example:
        >>> cut_sentence("一二三四，五六七八九十", 12), cut_sentence("one two three", 9)
        (['一二三四，', '五六七八九十'], ['one two', 'three'])
    """
    parts, start = [], 0
    while start < len(sentence):
        head = sentence[start : start + longest + 1]  # a blank may stand right behind what fits
        room = _characters_within(head, longest)
        if start + room == len(sentence):
            place = room
        else:
            clauses = [match.end() for match in _CLAUSE_END.finditer(head, room // 2) if match.end() <= room]
            place = max(clauses, default=0) or max(head.rfind(" ", room // 2), 0) or room
        parts.append(head[:place].strip())
        start += place
    return list(filter(None, parts))


def _characters_within(text: str, width: int) -> int:
    """The number of characters that fit into so many columns, at least one."""
    taken = 0
    for number, character in enumerate(text):
        taken += columns(character)
        if taken > width:
            return max(number, 1)
    return len(text)


def _paragraphs(lines: Iterable[str], layout: Layout) -> Iterator[str]:
    """Yields paragraphs, and an empty one where a document ends."""
    breaks = {"blank_line": 1, "two_blank_lines": 2}.get(layout.document_break)
    paragraph, last, blanks = "", "", 0
    heading = True  # the document has nothing but headings yet
    for line in lines:
        line = line.strip()
        page = _EXTRACTED_PAGE.fullmatch(line)
        blanks = 0 if line else blanks + 1
        if paragraph and (not line or page or not _goes_on(last, line, layout.width, len(paragraph))):
            yield paragraph
            heading = heading and len(paragraph) < _HEADING_CHARACTERS
            paragraph = ""
        if page or (blanks == breaks and not (heading and breaks == 2)):
            yield ""
            heading = True
        elif line:
            # textwrap and text editors wrap at hyphens too: "built-" and "in" are one word.
            whole = not paragraph or re.search(r"\w-$", last)
            paragraph = paragraph + line if whole else join_lines(paragraph, line)
            last = line
    if paragraph:
        yield paragraph


def _goes_on(line: str, next_line: str, width: int, length: int) -> bool:
    """Whether the paragraph goes on: a wrapped line has no room for the first word of the next."""
    if not width or length > _LONGEST_PARAGRAPH:
        return False
    first_word = next_line[0] if is_unspaced(next_line[0]) else next_line.split(None, 1)[0]
    return columns(line) + 1 + columns(first_word) > 0.9 * width or next_line[0].islower()


class HeldOutSplit:
    """Puts each document, whole, on one of two sides.

    The side follows from the document's first thousand characters and the seed alone: it stays the same when documents
    are added or come in another order, and documents that begin alike are never on both sides.

    Args:
        fraction: share of the documents to hold out, about.
        seed: another seed holds out others.
        min_sentences: shorter documents are left out.
        sample: share of the documents to take, about; which ones follows from their text and the seed too.

    Attributes:
        documents, single: number of documents, and of those with one sentence, by side: [trained on, held out].
        sentences, characters: numbers by side.
        left_out: number of documents that are too short.
        not_taken: number of documents that are not in the sample.

    Example:
        >>> split = HeldOutSplit(0.5, seed=1)
        >>> list(split(["One.", "", "Two.", "Three.", ""]))
        [(False, 'One.'), (False, ''), (True, 'Two.'), (True, 'Three.'), (True, '')]
        >>> split.documents, split.sentences
        ([1, 1], [1, 2])
    """

    def __init__(self, fraction: float, seed: int = 0, min_sentences: int = 1, sample: float = 1.0):
        self.fraction, self.seed, self.min_sentences = fraction, seed, min_sentences
        self.documents, self.single, self.sentences, self.characters = [0, 0], [0, 0], [0, 0], [0, 0]
        self.sample, self.left_out, self.not_taken = sample, 0, 0

    def __call__(self, lines: Iterable[str]) -> Iterator[tuple[bool, str]]:
        """Yields each line with whether it is held out; lines are sentences, and an empty one after each document."""
        lines = iter(lines)
        for first in filter(None, lines):
            document = itertools.chain([first], itertools.takewhile(bool, lines))
            opening, characters = [], 0
            for line in document:
                opening.append(line)
                characters += len(line)
                if characters >= _OPENING and len(opening) >= self.min_sentences:
                    break
            if len(opening) < self.min_sentences:
                self.left_out += 1
                continue
            opening_text = "\n".join(opening)[:_OPENING]
            if self.sample < 1.0 and _share(f"sample {self.seed}", opening_text) >= self.sample:
                self.not_taken += 1
                for _ in document:
                    pass
                continue
            side = _share(self.seed, opening_text) < self.fraction
            number = 0
            for line in itertools.chain(opening, document):
                number += 1
                self.characters[side] += len(line)
                yield side, line
            self.sentences[side] += number
            self.documents[side] += 1
            self.single[side] += number == 1
            yield side, ""


def _share(key: object, text: str) -> float:
    """A number from 0 to 1 that follows from a text."""
    digest = hashlib.blake2b(f"{key}\n{text}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
