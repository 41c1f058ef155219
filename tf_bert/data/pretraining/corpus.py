"""A corpus of tokenized documents, compact: ids in arrays, not words in lists.

A token is kept as its id; a token that continues a given word (see `LineEncoder`) as its id plus the size of the
vocabulary, so that word boundaries cost nothing. Pieces that begin with ``##`` need no such mark.
"""

import contextlib
import importlib
import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tf_bert.data.pretraining.instances import typecode_for
from tf_bert.data.pretraining.masking import TokenKinds, shuffle
from tf_bert.data.text.lines import read_lines, total_size
from tf_bert.data.tfrecord.process_pool import Workers
from tf_bert.progress import Progress, say
from tf_bert.tokenization.vocabulary import vocab_size

BLANK_LINE = -1  # stands for the length of a line that ends a document
_BATCH_CHARACTERS = 1 << 18

WordSplitter = Callable[[str], Iterable[str]]


class LineEncoder:
    """Turns lines of text into ids.

    Args:
        tokenizer: a `FullTokenizer`, or another one with its ``tokenize_to_ids`` and ``vocab``.
        split_words: gives the words of a line, for scripts whose words the vocabulary does not show: the tokens of
            each word after its first are marked as its continuation. Joined, the words have to be the line, but for
            blanks. None leaves that to ``##``.

    Attributes:
        vocab_size: what is added to an id to mark it; one more than the largest id.
        typecode: the narrowest type of array that holds marked ids.
    """

    def __init__(self, tokenizer, split_words: WordSplitter | None = None):
        self.tokenizer = tokenizer
        self.split_words = split_words
        self.vocab_size = vocab_size(tokenizer.vocab)
        self.typecode = typecode_for(2 * self.vocab_size)

    def __call__(self, lines: Sequence[str]) -> tuple[array, array]:
        """Encodes lines.

        Returns:
            The ids of all lines, one behind the other, and for each line the number of its ids, or `BLANK_LINE`.

        Raises:
            WordSplitError: ``split_words`` fails, or its words are not those of the line.
        """
        ids, lengths = array(self.typecode), array("i")
        for line in lines:
            line = line.strip()
            before = len(ids)
            if line:
                ids.extend(self.line_ids(line))
            lengths.append(len(ids) - before if line else BLANK_LINE)
        return ids, lengths

    def line_ids(self, line: str) -> list[int]:
        """Returns the ids of a line, marked where a token continues one of ``split_words``' words."""
        if self.split_words is None:
            return self.tokenizer.tokenize_to_ids(line)
        ids = []
        for word in self._words_of(line):
            of_word = self.tokenizer.tokenize_to_ids(word)
            ids += of_word[:1]
            ids += [number + self.vocab_size for number in of_word[1:]]
        return ids

    def _words_of(self, line: str) -> list[str]:
        try:
            words = list(self.split_words(line))
            joined = "".join("".join(words).split())
        except Exception as error:  # of a user's function
            raise WordSplitError(line, f"{type(error).__name__}: {error}") from error
        expected = "".join(line.replace(getattr(self.split_words, "marker", ""), "").split())
        if joined != expected:
            place = next((i for i, (a, b) in enumerate(zip(joined, expected, strict=False)) if a != b), None)
            place = min(len(joined), len(expected)) if place is None else place
            raise WordSplitError(
                line,
                f"its words, joined, differ from the line at character {place + 1}, blanks not counted: found "
                f"{joined[place : place + 20]!r}, expected {expected[place : place + 20]!r}",
            )
        return words


class WordSplitError(ValueError):
    """The words of a line are not to be had.

    Args:
        line: the line.
        reason: why.
    """

    def __init__(self, line: str, reason: str):
        super().__init__(line, reason)
        self.line, self.reason = line, reason

    def __str__(self) -> str:
        return f"the word splitter fails at {self.line[:60]!r}: {self.reason}"


@contextlib.contextmanager
def lines_are_named(files: Sequence[str]) -> Iterator[None]:
    """Adds the place of the line to a `WordSplitError` inside the block: the first of the files that is equal to it.

    Raises:
        ValueError: begins with file and line.
    """
    try:
        yield
    except WordSplitError as error:
        lines = ((file, number, line) for file in files for number, line in enumerate(read_lines(file), 1))
        places = (f"{file}: line {number}: " for file, number, line in lines if line.strip() == error.line)
        raise ValueError(f"{next(places, '')}{error}") from None


class MarkedWords:
    """Splits a line at a marker between words, such as a blank: ``MarkedWords(" ")``.

    Example:
        >>> list(MarkedWords("|")("中国|人民|。"))
        ['中国', '人民', '。']
    """

    def __init__(self, marker: str):
        self.marker = marker

    def __call__(self, line: str) -> Iterable[str]:
        """Returns the words of a line."""
        return line.split(self.marker)


class ImportedWords:
    """Splits a line with a function of another package, given as ``module:function`` such as ``jieba:lcut``.

    Each process imports it for itself, so that it need not be picklable.

    Args:
        name: ``module:function``.
        announce: whether to say that the module is imported, which runs its code.

    Raises:
        ValueError: when there is no such function.

    Example:
        >>> list(ImportedWords("shlex:split")("two words"))
        ['two', 'words']
    """

    def __init__(self, name: str, announce: bool = True):
        module, _, function = name.partition(":")
        if announce:
            say(f"word splitter {name}: importing {module}, which runs its code")
        try:
            self._function = getattr(importlib.import_module(module), function)
        except Exception as error:  # also what a user's module raises
            raise ValueError(
                f"word splitter {name!r}: {type(error).__name__}: {error}; expected module:function, such as jieba:lcut"
            ) from error
        if not callable(self._function):
            raise ValueError(f"word splitter {name!r} is no function")
        self.name = name

    def __call__(self, line: str) -> Iterable[str]:
        """Returns the words of a line."""
        return self._function(line)

    def __reduce__(self):
        return ImportedWords, (self.name, False)


def id_kinds(vocab: Mapping[str, int]) -> TokenKinds:
    """What the special tokens are when tokens are ids, marked ones too.

    Example:
        >>> kinds = id_kinds({"[CLS]": 0, "[SEP]": 1, "[MASK]": 2, "un": 3, "##able": 4})
        >>> [bool(kinds.continues_word(token)) for token in (3, 4, 3 + 5, 4 + 5)]
        [False, True, True, True]
    """
    size = vocab_size(vocab)
    continues = bytearray(size) + b"\x01" * size
    for token, number in vocab.items():
        continues[number] = token.startswith("##")
    return TokenKinds(vocab["[CLS]"], vocab["[SEP]"], vocab["[MASK]"], continues.__getitem__)


@dataclass
class CorpusCounts:
    """What a summary says of a corpus, and what its warnings look at.

    Attributes:
        documents, sentences, tokens: their numbers.
        single_sentence_documents: how many documents have one sentence.
        unknown: tokens that are [UNK].
        has_continuations: whether any token continues a word.
    """

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    single_sentence_documents: int = 0
    unknown: int = 0
    has_continuations: bool = False


class CorpusCounter:
    """Counts a corpus as it comes in; ``counts`` is what it has come to."""

    def __init__(self, vocab: Mapping[str, int]):
        self.counts = CorpusCounts()
        self._continues_word = id_kinds(vocab).continues_word
        self._unknown_ids = (vocab["[UNK]"], vocab["[UNK]"] + vocab_size(vocab))
        self._open_sentences = 0

    def add(self, ids: array, lengths: Iterable[int]) -> None:
        """Counts lines as `LineEncoder` encodes them."""
        counts = self.counts
        counts.tokens += len(ids)
        counts.unknown += sum(map(ids.count, self._unknown_ids))
        counts.has_continuations = counts.has_continuations or any(map(self._continues_word, ids))
        for length in lengths:
            self._open_sentences += length > 0
            if length == BLANK_LINE:
                self.end_document()

    def end_document(self) -> None:
        """Counts the document that is being filled; documents without a sentence are none."""
        self.counts.documents += self._open_sentences > 0
        self.counts.single_sentence_documents += self._open_sentences == 1
        self.counts.sentences += self._open_sentences
        self._open_sentences = 0


class Corpus(Sequence):
    """Documents of sentences of ids, in memory.

    ``corpus[d][s]`` is sentence s of document d, a list; it is made when asked for.

    Args:
        vocab: the vocabulary of the ids.

    Example:
        >>> corpus = Corpus({"[CLS]": 0, "[SEP]": 1, "[MASK]": 2, "[UNK]": 3, "a": 9})
        >>> corpus.extend(array("H", [5, 6, 7, 8, 9]), [2, 1, BLANK_LINE, 2])
        >>> corpus.end_document()
        >>> len(corpus), [list(document) for document in corpus]
        (2, [[[5, 6], [7]], [[8, 9]]])
    """

    def __init__(self, vocab: Mapping[str, int]):
        self._counter = CorpusCounter(vocab)
        self.ids = array(typecode_for(2 * vocab_size(vocab)))
        self.sentence_ends = array("Q", [0])  # where each sentence ends in ids, after the 0 where the first begins
        self.document_starts = array("Q")  # the first sentence of each document
        self.document_ends = array("Q")  # the one after its last
        self._open_document = 0  # its first sentence

    def extend(self, ids: array, lengths: Iterable[int]) -> None:
        """Appends lines as `LineEncoder` encodes them. A line without tokens is no sentence, and ends no document."""
        self._counter.add(ids, lengths)
        self.ids.extend(ids)
        for length in lengths:
            if length > 0:
                self.sentence_ends.append(self.sentence_ends[-1] + length)
            elif length == BLANK_LINE:
                self._end_document()

    def end_document(self) -> None:
        """Ends the document that is being filled; documents without a sentence are none."""
        self._counter.end_document()
        self._end_document()

    def _end_document(self) -> None:
        if self._open_document < self.n_sentences:
            self.document_starts.append(self._open_document)
            self.document_ends.append(self.n_sentences)
            self._open_document = self.n_sentences

    def shuffle(self, rng: random.Random) -> None:
        """Puts the documents in random order, as ``rng.shuffle`` does with a list of them."""
        order = list(range(len(self)))
        shuffle(order, rng)
        self.document_starts = array("Q", [self.document_starts[i] for i in order])
        self.document_ends = array("Q", [self.document_ends[i] for i in order])

    @property
    def counts(self) -> CorpusCounts:
        """Numbers of documents, sentences and so on."""
        return self._counter.counts

    @property
    def n_sentences(self) -> int:
        """The number of sentences in all documents."""
        return len(self.sentence_ends) - 1

    def sentence(self, number: int) -> list[int]:
        """The ids of a sentence, counted through all documents."""
        return self.ids[self.sentence_ends[number] : self.sentence_ends[number + 1]].tolist()

    def __len__(self) -> int:
        return len(self.document_ends)

    def __getitem__(self, number: int) -> "Document":
        return Document(self, self.document_starts[number], self.document_ends[number])


class Document(Sequence):
    """The sentences of one document of a corpus."""

    __slots__ = ("_corpus", "_first", "_length")

    def __init__(self, corpus, first: int, end: int):
        self._corpus, self._first, self._length = corpus, first, end - first

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> list[int]:
        if not 0 <= number < self._length:
            raise IndexError(number)
        return self._corpus.sentence(self._first + number)


def read_corpus(
    files: Sequence[str], encoder: LineEncoder, *, documents_end_with_files: bool = False, num_workers: int = 1
) -> Corpus:
    """Reads and tokenizes text, one sentence a line and blank lines between documents.

    Args:
        files: text files, see `read_lines`.
        encoder: turns lines into ids.
        documents_end_with_files: False as the original, where the last document of a file goes on in the next one
            unless a blank line stands between them.
        num_workers: processes that tokenize.

    Returns:
        The documents, in the order of the files.
    """
    corpus = Corpus(encoder.tokenizer.vocab)
    with lines_are_named(files), Workers(encoder, num_workers) as workers:
        for ids, lengths in workers.map(line_batches(files, documents_end_with_files)):
            corpus.extend(ids, lengths)
    corpus.end_document()
    return corpus


def line_batches(files: Sequence[str], documents_end_with_files: bool) -> Iterator[list[str]]:
    """Yields the lines of all files, a few thousand at a time, and shows how far it has come."""
    batch, characters = [], 0
    with Progress("tokenizing", total_size(files), "B") as progress:
        for file in files:
            for line in read_lines(file, progress):
                batch.append(line)
                characters += len(line) + 1
                if characters >= _BATCH_CHARACTERS:
                    yield batch
                    batch, characters = [], 0
            if documents_end_with_files:
                batch.append("")
    yield batch
