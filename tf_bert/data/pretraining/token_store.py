"""A corpus of tokenized documents on disk, for text larger than memory.

Files of plain numbers lie in a folder: ``ids``, all tokens; ``sentences``, where each sentence ends in ids;
``documents``, where each document ends in sentences; and ``blocks``, where each block of neighbouring documents ends in
documents. All but the first begin with a 0. Reading takes a few bytes from each.
"""

import contextlib
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence

from tf_bert.data.pretraining.corpus import BLANK_LINE, CorpusCounter, CorpusCounts, Document
from tf_bert.data.pretraining.instances import typecode_for
from tf_bert.files import atomic_writer, file_size, reader_at
from tf_bert.tokenization.vocabulary import vocab_size

TOKENS_IN_A_BLOCK = 1 << 18  # about: blocks end with documents


class TokenStoreWriter:
    """Writes a corpus to a folder, as `tf_bert.data.pretraining.corpus.Corpus` gathers one in memory.

    It is used in a ``with`` block; the files appear when the block ends.

    Args:
        folder: where the files go.
        vocab: the vocabulary of the ids.

    Raises:
        OSError: when a file cannot be written; names it.

    Example:
        >>> import tempfile
        >>> folder, vocab = tempfile.mkdtemp(), {"[CLS]": 0, "[SEP]": 1, "[MASK]": 2, "[UNK]": 3, "a": 9}
        >>> with TokenStoreWriter(folder, vocab) as writer:
        ...     writer.extend(array("H", [5, 6, 7, 8, 9]), [2, 1, BLANK_LINE, 2])
        >>> [list(document) for document in TokenStore(folder, vocab)]
        [[[5, 6], [7]], [[8, 9]]]
    """

    def __init__(self, folder: str, vocab: Mapping[str, int]):
        self._counter = CorpusCounter(vocab)
        self._stack = contextlib.ExitStack()
        self._ids, self._sentences, self._documents, self._blocks = (
            self._stack.enter_context(atomic_writer(os.path.join(folder, name)))
            for name in ("ids", "sentences", "documents", "blocks")
        )
        self._n_ids = self._n_sentences = self._n_documents = 0
        self._sentences_in_documents = self._ids_in_blocks = 0
        for file in (self._sentences, self._documents, self._blocks):
            file.write(_numbers(0))

    def __enter__(self) -> "TokenStoreWriter":
        return self

    def __exit__(self, exception_type, exception, traceback) -> None:
        if exception_type is None:
            self._finish()
        self._stack.__exit__(exception_type, exception, traceback)

    @property
    def counts(self) -> CorpusCounts:
        """Numbers of documents, sentences and so on."""
        return self._counter.counts

    def extend(self, ids: array, lengths: Iterable[int]) -> None:
        """Appends lines as `LineEncoder` encodes them."""
        self._counter.add(ids, lengths)
        self._ids.write(ids.tobytes())
        ends = array("Q")
        for length in lengths:
            if length > 0:
                self._n_ids += length
                ends.append(self._n_ids)
            elif length == BLANK_LINE:
                self._end_document(self._n_sentences + len(ends))
        self._sentences.write(ends.tobytes())
        self._n_sentences += len(ends)

    def _end_document(self, sentence_end: int) -> None:
        if self._sentences_in_documents < sentence_end:
            self._sentences_in_documents = sentence_end
            self._documents.write(_numbers(sentence_end))
            self._n_documents += 1
            if self._n_ids - self._ids_in_blocks >= TOKENS_IN_A_BLOCK:
                self._end_block()

    def _end_block(self) -> None:
        self._blocks.write(_numbers(self._n_documents))
        self._ids_in_blocks = self._n_ids

    def _finish(self) -> None:
        self._counter.end_document()
        self._end_document(self._n_sentences)
        if self._ids_in_blocks < self._n_ids:
            self._end_block()


def _numbers(*numbers: int) -> bytes:
    return array("Q", numbers).tobytes()


class TokenStore(Sequence):
    """Reads a corpus that `TokenStoreWriter` wrote; ``store[d][s]`` is sentence s of document d."""

    def __init__(self, folder: str, vocab: Mapping[str, int]):
        self._ids = _Numbers(os.path.join(folder, "ids"), typecode_for(2 * vocab_size(vocab)))
        self._sentences = _Numbers(os.path.join(folder, "sentences"), "Q")
        self._documents = _Numbers(os.path.join(folder, "documents"), "Q")
        self._blocks = _Numbers(os.path.join(folder, "blocks"), "Q")

    def sentence(self, number: int) -> list[int]:
        """The ids of a sentence, counted through all documents."""
        return self._ids[slice(*self._sentences[number : number + 2])].tolist()

    @property
    def n_blocks(self) -> int:
        """The number of blocks of documents."""
        return len(self._blocks) - 1

    def block(self, number: int) -> range:
        """The numbers of the documents in a block."""
        return range(*self._blocks[number : number + 2])

    def __len__(self) -> int:
        return len(self._documents) - 1

    def __getitem__(self, number: int) -> Document:
        if not 0 <= number < len(self):
            raise IndexError(number)
        return Document(self, *self._documents[number : number + 2])


class _Numbers:
    """A file of numbers of one width; slices are read when asked for."""

    def __init__(self, path: str, typecode: str):
        self._read = reader_at(path)
        self._typecode, self._width = typecode, array(typecode).itemsize
        self._length = file_size(path) // self._width

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, numbers: slice) -> array:
        size = (numbers.stop - numbers.start) * self._width
        return array(self._typecode, self._read(size, numbers.start * self._width))
