"""Checks that vocabulary and word embeddings of a checkpoint fit, and adds or removes entries of both."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf_bert.tokenization.vocabulary import SPECIAL_TOKENS

WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
OUTPUT_BIAS = "cls/predictions/output_bias"
_UNUSED = re.compile(r"\[unused\d+\]$")


def check_vocabulary_size(lines: int, vocab_size: int, rows: int, where: str) -> None:
    """Compares the three numbers that must agree. A vocabulary may be shorter than its table, never longer.

    Args:
        lines: of the vocabulary file.
        vocab_size: of the configuration.
        rows: of the checkpoint's word embeddings.
        where: what they belong to, for the message.

    Raises:
        ValueError: they do not fit; all three are named.

    Example:
        >>> check_vocabulary_size(31, 30, 30, "model")
        Traceback (most recent call last):
        ...
        ValueError: model: the vocabulary has 31 lines, vocab_size in the configuration is 30 and the table of ...
    """
    if vocab_size != rows or lines > rows:
        raise ValueError(
            f"{where}: the vocabulary has {lines} lines, vocab_size in the configuration is {vocab_size} and the table "
            f"of word embeddings has {rows} rows; they do not belong together (tf-bert resize_vocab changes all three)"
        )


def may_lack_lines(lines: int, rows: int) -> bool:
    """Whether a vocabulary is shorter than its table by more than what tables are filled up with for speed.

    Example:
        >>> may_lack_lines(30522, 30528), may_lack_lines(30521, 30522)
        (False, True)
    """
    return lines < rows and (rows % 8 != 0 or rows - lines >= 128)


def grow(vocab: Sequence[str], words: Sequence[str], use_unused: bool = True) -> list[str]:
    """Adds words to a vocabulary.

    Args:
        vocab: the pieces, in the order of their ids.
        words: new pieces, with ``##`` where one goes on a word; those that are there already are left where they are.
        use_unused: whether they take the ids of ``[unusedN]`` first, so that the table need not grow.

    Returns:
        The new pieces: each old one that is still there has its old id.

    Example:
        >>> grow(["[PAD]", "[unused0]", "cat"], ["dog", "cat", "cow"])
        ['[PAD]', 'dog', 'cat', 'cow']
    """
    grown = list(vocab)
    known = set(vocab)
    free = [number for number, piece in enumerate(vocab) if use_unused and _UNUSED.match(piece)]
    for word in dict.fromkeys(words):
        if not word or word != word.strip() or len(word.split()) != 1:
            raise ValueError(f"{word!r} cannot be a piece of a vocabulary: it is empty or has blanks")
        if word in known:
            continue
        if free:
            grown[free.pop(0)] = word
        else:
            grown.append(word)
    return grown


def prune(vocab: Sequence[str], keep: Sequence[str]) -> list[str]:
    """Leaves out all pieces but some; special tokens always stay, and the order of the ids too.

    Raises:
        ValueError: a piece to keep is not in the vocabulary.

    Example:
        >>> prune(["[PAD]", "[UNK]", "cat", "dog", "##s"], ["##s", "cat"])
        ['[PAD]', '[UNK]', 'cat', '##s']
    """
    known = set(vocab)
    unknown = [piece for piece in keep if piece not in known]
    if unknown:
        raise ValueError(f"{len(unknown)} pieces to keep are not in the vocabulary, such as {unknown[0]!r}")
    kept = {*keep, *SPECIAL_TOKENS}
    return [piece for piece in vocab if piece in kept]


class ResizedReader:
    """A reader whose word embeddings and output bias belong to another vocabulary.

    A piece of both vocabularies keeps its row. A new one that took the place of an ``[unusedN]`` keeps that row too,
    any other gets a fresh one: a truncated normal for the table, 0 for the bias.

    Args:
        reader: of the checkpoint, see `tf_bert.checkpoints.loading.Reader`.
        old: its vocabulary.
        new: the vocabulary wanted.
        initializer_range: standard deviation of fresh rows.
        seed: of fresh rows.
    """

    def __init__(self, reader, old: Sequence[str], new: Sequence[str], initializer_range: float = 0.02, seed: int = 0):
        self.where, self.dtypes = reader.where, reader.dtypes
        self._reader, self._deviation, self._seed = reader, initializer_range, seed
        ids = {piece: number for number, piece in enumerate(old)}

        def old_row(number: int, piece: str) -> int:
            stays = number < len(old) and (piece == old[number] or piece not in ids and _UNUSED.match(old[number]))
            return number if stays else ids.get(piece, -1)

        self._rows = np.array([old_row(number, piece) for number, piece in enumerate(new)])
        resized = {name: (len(new), *shape[1:]) for name, shape in reader.shapes.items() if _has_rows(name)}
        self.shapes: Mapping[str, tuple[int, ...]] = {**reader.shapes, **resized}

    @property
    def fresh(self) -> int:
        """How many pieces have fresh rows."""
        return int((self._rows < 0).sum())

    def read(self, name: str) -> Any:
        """Reads one variable, with the rows of the new vocabulary."""
        value = self._reader.read(name)
        if not _has_rows(name):
            return value
        rows = np.asarray(value)[self._rows]
        fresh = self._rows < 0
        rows[fresh] = self._fresh_rows(rows[fresh].shape) if name == WORD_EMBEDDINGS else 0
        return rows

    def _fresh_rows(self, shape: tuple[int, ...]) -> np.ndarray:
        generator = np.random.default_rng(self._seed)
        rows = generator.standard_normal(shape)
        while (outside := np.abs(rows) > 2).any():
            rows[outside] = generator.standard_normal(outside.sum())
        return rows * self._deviation


def _has_rows(name: str) -> bool:
    """Whether a variable, or a moment of it, has one row for each piece."""
    return name.startswith((WORD_EMBEDDINGS, OUTPUT_BIAS))
