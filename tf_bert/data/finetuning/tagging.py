"""Words and their tags, as for named entities: files in and out, and the windows that a model reads.

Each word has one tag, which stands at its first piece (Devlin et al. 2018, section 5.3); its other pieces, [CLS], [SEP]
and padding have none. A sentence that is too long is cut into windows that overlap, and each word is tagged in the one
that shows most around it: once, whatever the length.
"""

import collections
import dataclasses
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike, fspath

from tf_bert.data.finetuning.label_checks import warn_about_labels
from tf_bert.data.finetuning.windows import cut_windows, max_context
from tf_bert.data.text.lines import read_lines
from tf_bert.data.text.tables import ending_of, read_jsonl
from tf_bert.files import atomic_writer
from tf_bert.json_files import check_text, json_line
from tf_bert.tokenization.full import FullTokenizer

IGNORED_LABEL = -100  # as in tf_bert.models.bert_tasks
OUTSIDE = "O"
_DOCUMENT = "-DOCSTART-"  # begins a document in the files of CoNLL 2003; no word
_COMMENT = "# "  # begins a comment before a sentence, unless the line has the columns of a word
_SEPARATORS = {"\t": "a tab", " ": "blanks"}
_FIELD = re.compile("[^ ]+")


@dataclasses.dataclass
class TaggedSentence:
    """The words of a sentence and their tags.

    Args:
        words: the words.
        tags: one for each word; None where they are to be predicted.
        source: the file, for messages.
        line: where it begins there.
        line_per_word: whether each word has a line of its own.
    """

    words: list[str]
    tags: list[str] | None = None
    source: str | None = None
    line: int = 0
    line_per_word: bool = False

    def where(self, word: int) -> str:
        """Where a word stands, for messages."""
        return f"{self.source or 'sentence'}: line {self.line + word * self.line_per_word}"


@dataclasses.dataclass(frozen=True)
class TagColumns:
    """Where a file has what.

    Args:
        words: of a file of columns, the number of the words' column from 1, or from the end -1; of JSON lines its name.
        tags: the same of the tags.
    """

    words: str | int
    tags: str | int


CONLL_COLUMNS = TagColumns(1, -1)
JSONL_COLUMNS = TagColumns("words", "tags")


def is_jsonl(path: str | PathLike) -> bool:
    """Whether a file is read as JSON lines: by its ending. All others have columns."""
    return ending_of(path) == ".jsonl"


def read_tagged(path: str | PathLike, columns: TagColumns | None = None, tags: bool = True) -> list[TaggedSentence]:
    """Reads a file of tagged sentences.

    Args:
        path: a file that ends in ``.jsonl`` has an object a line, with a list of words and one of tags. Any other has a
            word a line, in columns separated by a tab or, where the first line has none, by blanks, and an empty line
            between sentences. Words may hold what is no blank in ASCII: a no-break space, a character that cannot be
            seen. Lines before a sentence that begin with ``# `` and have another number of columns are comments.
        columns: where words and tags are, by default `CONLL_COLUMNS` or `JSONL_COLUMNS`.
        tags: whether tags are read; without, they need not be there.

    Raises:
        ValueError: a tag is missing, there are not as many tags as words, or lines of words have different numbers of
            columns; names the file and the line.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".conll") as file:
        ...     _ = file.write("Ada\\tB-person\\nsings\\tO\\n\\nYes\\tO\\n")
        ...     file.flush()
        ...     [(sentence.words, sentence.tags) for sentence in read_tagged(file.name)]
        [(['Ada', 'sings'], ['B-person', 'O']), (['Yes'], ['O'])]
    """
    path = fspath(path)
    if is_jsonl(path):
        sentences = list(_read_jsonl(path, columns or JSONL_COLUMNS, tags))
    else:
        sentences = list(_read_conll(path, columns or CONLL_COLUMNS, tags))
    if not sentences:
        raise ValueError(f"{path} has no sentences")
    return sentences


def _read_conll(path: str, columns: TagColumns, tags: bool) -> Iterator[TaggedSentence]:
    sentence = None
    for number, (line, fields) in enumerate(_word_lines(path), 1):
        if not fields:
            if sentence:
                yield sentence
            sentence = None
            continue
        sentence = sentence or TaggedSentence([], [] if tags else None, path, number, True)
        word = _column(columns.words, fields)
        if word is None:
            raise ValueError(
                f"{path}: line {number}: found {_count(fields)}, expected the word in number {columns.words}"
            )
        sentence.words.append(line[slice(*fields[word])])
        if tags:
            place = _column(columns.tags, fields)
            tag = "" if place in (None, word) else line[slice(*fields[place])].strip()
            if not tag:
                raise ValueError(
                    f"{path}: line {number}: found {_count(fields)}, expected a word and its tag, separated by a tab "
                    "or blanks"
                )
            sentence.tags.append(tag)
    if sentence:
        yield sentence


def _word_lines(path: str) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yields each line of a file of columns, and where its columns begin and end; none in a line without a word.

    The first line of a word says how columns are separated, and how many there are.

    Raises:
        ValueError: another line of a word has another number of columns; names both lines.
    """
    lines = list(read_lines(path))
    words = [n for n, line in enumerate(lines) if line.strip(" \t") and not line.startswith(_DOCUMENT)]
    first = min(words, key=lambda n: lines[n].startswith(_COMMENT), default=0)  # the first, if possible no comment
    separator = "\t" if words and "\t" in lines[first] else " "
    expected = len(_fields_of(lines[first], separator)) if words else 0
    inside, words = False, set(words)
    for number, line in enumerate(lines):
        fields = _fields_of(line, separator) if number in words else []
        if fields and len(fields) != expected:
            if inside or not line.startswith(_COMMENT):
                raise ValueError(
                    f"{path}: line {number + 1}: found {_count(fields)}, expected {expected} as in line {first + 1}, "
                    f"separated by {_SEPARATORS[separator]}"
                )
            fields = []
        inside = bool(fields)
        yield line, fields


def _fields_of(line: str, separator: str) -> list[tuple[int, int]]:
    """Where the columns of a line begin and end; blanks next to each other separate only once."""
    if separator == " ":
        return [match.span() for match in _FIELD.finditer(line)]
    ends = [place for place, char in enumerate(line) if char == separator] + [len(line)]
    return list(zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True))


def _column(number: int, fields: Sequence) -> int | None:
    """The index of a column that is counted from 1, or from the end -1; None where a line has not so many."""
    index = number - 1 if number > 0 else len(fields) + number
    return index if 0 <= index < len(fields) else None


def _count(fields: Sequence) -> str:
    return f"{len(fields)} column{'s' * (len(fields) != 1)}"


def _read_jsonl(path: str, columns: TagColumns, tags: bool) -> Iterator[TaggedSentence]:
    for where, row in read_jsonl(path):
        found = {}
        for name in (columns.words, columns.tags) if tags else (columns.words,):
            values = row.get(name)
            if not (isinstance(values, list) and all(isinstance(value, str) for value in values)):
                there = "nothing" if name not in row else json_line(values)[:60]
                raise ValueError(f"{where}: {name}: found {there}, expected a list of texts")
            found[name] = values
        words, given = found[columns.words], found.get(columns.tags)
        for tag in given or ():
            check_text(tag, f"{where}: the tag")
        if tags and len(words) != len(given):
            raise ValueError(f"{where}: found {len(words)} words and {len(given)} tags, expected a tag for each word")
        yield TaggedSentence(words, given, path, int(where.rpartition(" ")[2]))


def write_tagged(
    path: str | PathLike, input_file: str | PathLike, tags: Iterable[Sequence[str]], columns: TagColumns | None = None
) -> None:
    """Writes a file that was read again, with other tags: in its own format, all else as it was.

    Where the file has no column of tags, they become the last one.

    Args:
        path: the file to write.
        input_file: the file that `read_tagged` read.
        tags: those of each of its sentences.
        columns: as they were for `read_tagged`.
    """
    input_file, tags = fspath(input_file), iter(tags)
    with atomic_writer(path, "w") as file:
        if is_jsonl(input_file):
            columns = columns or JSONL_COLUMNS
            for (_, row), found in zip(read_jsonl(input_file), tags, strict=True):
                file.write(json_line(row | {columns.tags: list(found)}) + "\n")
            return
        columns, rest = columns or CONLL_COLUMNS, iter(())
        inside = False
        for line, fields in _word_lines(input_file):
            if fields and not inside:
                rest = iter(next(tags))
            inside = bool(fields)
            file.write((_with_tag(line, fields, next(rest), columns) if fields else line) + "\n")


def _with_tag(line: str, fields: list[tuple[int, int]], tag: str, columns: TagColumns) -> str:
    place = _column(columns.tags, fields)
    if place is None or place == _column(columns.words, fields):
        separator = " " if "\t" not in line and len(fields) > 1 else "\t"
        return line + separator + tag
    start, end = fields[place]
    return line[:start] + tag + line[end:]


def labels_of(sentences: Iterable[TaggedSentence]) -> list[str]:
    """All tags that occur, sorted, ``O`` first.

    Warns:
        UserWarning: see `tf_bert.data.finetuning.label_checks.warn_about_labels`.

    Example:
        >>> labels_of([TaggedSentence(["Ada", "sings"], ["B-person", "O"])])
        ['O', 'B-person']
    """
    sentences = list(sentences)
    counts = collections.Counter(tag for sentence in sentences for tag in sentence.tags or ())
    source = next((sentence.source for sentence in sentences if sentence.source), "the sentences")
    warn_about_labels(counts, counts.total(), source, unit="words", what="tag")
    return sorted(counts, key=lambda tag: (tag != OUTSIDE, tag))


@dataclasses.dataclass
class InputFeatures:
    """A window of a sentence: ``[CLS] pieces [SEP]``, padded to S.

    ``label_ids`` is -100 except at the first pieces of the words that are tagged here. ``places`` has for each of
    these its position in the window and the number of the word; ``sentence`` is the number of the sentence.
    """

    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]
    label_ids: list[int]
    sentence: int
    places: list[tuple[int, int]]


def convert_sentences_to_features(
    sentences: Iterable[TaggedSentence],
    label_list: Sequence[str],
    max_seq_length: int,
    tokenizer: FullTokenizer,
    doc_stride: int | None = None,
) -> list[InputFeatures]:
    """Cuts sentences into windows; every word has its tag in exactly one.

    A word without pieces (a control character, which the tokenizer deletes) keeps its place: [UNK] stands for it, and
    a warning says how many these are.

    Args:
        sentences: from `read_tagged`.
        label_list: the tags in the order of their ids.
        max_seq_length: S.
        tokenizer: with the vocabulary of the model.
        doc_stride: pieces from the start of one window to that of the next; by default half a window.

    Raises:
        ValueError: a tag is not in ``label_list``, names its file and line; or no piece fits.

    Example:
        >>> import os, tempfile
        >>> from tf_bert.tokenization import save_vocab
        >>> folder = tempfile.TemporaryDirectory()
        >>> vocab_file = os.path.join(folder.name, "vocab.txt")
        >>> save_vocab("[PAD] [UNK] [CLS] [SEP] [MASK] ada sing ##s".split(), vocab_file)
        >>> sentence = TaggedSentence(["Ada", "sings"], ["B-person", "O"])
        >>> window, = convert_sentences_to_features([sentence], ["O", "B-person"], 6, FullTokenizer(vocab_file))
        >>> window.input_ids, window.label_ids
        ([2, 5, 6, 7, 3, 0], [-100, 1, 0, -100, -100, -100])
    """
    room = max_seq_length - 2
    if room < 1:
        raise ValueError(f"max_seq_length is {max_seq_length}; [CLS], a piece and [SEP] need at least 3")
    ids_of = {label: number for number, label in enumerate(label_list)}
    pad, features, empty = tokenizer.vocab.get("[PAD]", 0), [], []
    for number, sentence in enumerate(sentences):
        pieces, first_piece = [], []
        for word in sentence.words:
            of_word = tokenizer.tokenize(word)
            if not of_word:
                empty.append(word)
            first_piece.append(len(pieces))
            pieces += of_word or ["[UNK]"]
        labels = _label_ids(sentence, ids_of)
        windows = cut_windows(len(pieces), room, doc_stride or max(1, room // 2))
        best = max_context(windows, len(pieces)) if len(windows) > 1 else [0] * len(pieces)
        words_of = [[] for _ in windows]
        for word, piece in enumerate(first_piece):
            words_of[best[piece]].append(word)
        for window, words in zip(windows, words_of, strict=True):
            if not words:  # the rest of one long word
                continue
            tokens = ["[CLS]", *pieces[window.start : window.start + window.length], "[SEP]"]
            places = [(first_piece[word] - window.start + 1, word) for word in words]
            label_ids = [IGNORED_LABEL] * max_seq_length
            for position, word in places:
                label_ids[position] = labels[word]
            padding = [0] * (max_seq_length - len(tokens))
            ids = tokenizer.convert_tokens_to_ids(tokens) + [pad] * len(padding)
            mask = [1] * len(tokens) + padding
            features.append(InputFeatures(ids, mask, [0] * max_seq_length, label_ids, number, places))
    if empty:
        shown = ", ".join(sorted({ascii(word) for word in empty})[:5])
        warnings.warn(f"{len(empty)} words have no pieces ({shown}): [UNK] stands for each of them", stacklevel=2)
    return features


def _label_ids(sentence: TaggedSentence, ids_of: dict[str, int]) -> list[int]:
    """The ids of a sentence's tags; where there are none, that of the first label stands in."""
    if sentence.tags is None:
        return [0] * len(sentence.words)
    for word, tag in enumerate(sentence.tags):
        if tag not in ids_of:
            raise ValueError(
                f"{sentence.where(word)}: the tag {tag!r} is not known; known tags: {', '.join(list(ids_of)[:20])}"
                + ", ..." * (len(ids_of) > 20)
            )
    return [ids_of[tag] for tag in sentence.tags]
