"""Training instances: one sequence with its masks, and many of them, compact in a temporary file."""

import contextlib
import functools
import operator
import os
import random
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

from tf_bert.data.pretraining.masking import shuffle
from tf_bert.tokenization import printable_text
from tf_bert.tokenization.vocabulary import vocab_size

_HEADER = 4  # numbers before the tokens of a packed instance


class MaskedLmInstance(NamedTuple):
    """One prediction: the position, and the token that stood there."""

    index: int
    label: Any


@dataclass(slots=True)
class TrainingInstance:
    """One sequence for pre-training: [CLS] A [SEP] B [SEP] with its predictions.

    Args:
        tokens: as the model sees them, masks in place; strings, or ids inside this package.
        segment_ids: 0 for each token through the first [SEP], then 1.
        masked_lm_positions: positions of the predictions, ascending.
        masked_lm_labels: the tokens that stood there.
        is_random_next: whether B comes from another document.

    Source: ``TrainingInstance`` of google-research/bert, ``create_pretraining_data.py``.

    Example:
        >>> print(TrainingInstance(["[CLS]", "[MASK]", "[SEP]"], [0, 0, 0], [1], ["cat"], False), end="")
        tokens: [CLS] [MASK] [SEP]
        segment_ids: 0 0 0
        is_random_next: False
        masked_lm_positions: 1
        masked_lm_labels: cat
        <BLANKLINE>
    """

    tokens: Sequence
    segment_ids: Sequence[int]
    masked_lm_positions: Sequence[int]
    masked_lm_labels: Sequence
    is_random_next: bool

    def masked_lms(self) -> list[MaskedLmInstance]:
        """The predictions, each with its label."""
        return list(map(MaskedLmInstance, self.masked_lm_positions, self.masked_lm_labels))

    def __str__(self) -> str:
        return (
            f"tokens: {' '.join(printable_text(str(token)) for token in self.tokens)}\n"
            f"segment_ids: {' '.join(map(str, self.segment_ids))}\n"
            f"is_random_next: {self.is_random_next}\n"
            f"masked_lm_positions: {' '.join(map(str, self.masked_lm_positions))}\n"
            f"masked_lm_labels: {' '.join(printable_text(str(label)) for label in self.masked_lm_labels)}\n\n"
        )


def to_bytes(instance: TrainingInstance, typecode: str) -> bytes:
    """An instance of ids as a row of equally wide numbers: four counts, then tokens, positions and labels."""
    tokens, positions = instance.tokens, instance.masked_lm_positions
    return array(
        typecode,
        [
            len(tokens),
            len(positions),
            instance.segment_ids.count(0),
            instance.is_random_next,
            *tokens,
            *positions,
            *instance.masked_lm_labels,
        ],
    ).tobytes()


def from_bytes(packed: bytes, typecode: str) -> TrainingInstance:
    """The instance that `to_bytes` was given."""
    numbers = array(typecode, packed).tolist()
    n_tokens, n_positions, n_first, is_random_next = numbers[:_HEADER]
    positions_at = _HEADER + n_tokens
    labels_at = positions_at + n_positions
    return TrainingInstance(
        numbers[_HEADER:positions_at],
        [0] * n_first + [1] * (n_tokens - n_first),
        numbers[positions_at:labels_at],
        numbers[labels_at:],
        bool(is_random_next),
    )


def typecode_for(largest: int) -> str:
    """The narrowest array type that holds numbers up to ``largest``."""
    return "H" if largest < 1 << 16 else "I"


@dataclass
class InstanceCounts:
    """What a summary says of many instances.

    Attributes:
        instances, random_next, tokens, predictions: their numbers.
        cut_off: tokens of the text that did not fit in the instance that was made of them.
        long_sentences: sentences that are longer than an instance; each counts once in each pass.
    """

    instances: int = 0
    random_next: int = 0
    tokens: int = 0
    predictions: int = 0
    cut_off: int = 0
    long_sentences: int = 0

    def add(self, instance: TrainingInstance) -> None:
        """Counts one more."""
        self.instances += 1
        self.random_next += instance.is_random_next
        self.tokens += len(instance.tokens)
        self.predictions += len(instance.masked_lm_positions)

    def __add__(self, other: "InstanceCounts") -> "InstanceCounts":
        return InstanceCounts(*map(operator.add, astuple(self), astuple(other)))


class InstanceStore(Sequence):
    """A sequence of training instances that lies in a temporary file.

    Memory holds 12 bytes for an instance, where it begins and its place in the order. The instances themselves, some
    300 bytes each at length 128, are written as they are made and read back when asked for; the file has no name and
    vanishes with the object.

    Args:
        vocab: token -> id; instances go in as ids, marked or not (see `tf_bert.data.pretraining.corpus`), and come
            out as tokens.
        folder: where the temporary file is made; None takes the system's place for such files.

    Raises:
        OSError: when the disk is full; names the folder.
    """

    def __init__(self, vocab: dict[str, int], folder: str | None = None):
        self.vocab = vocab
        self.vocab_size = vocab_size(vocab)
        self.counts = InstanceCounts()
        self._typecode = typecode_for(2 * self.vocab_size)
        self._folder = folder or tempfile.gettempdir()
        self._file = tempfile.TemporaryFile(dir=self._folder, buffering=1 << 18)
        self._ends = array("Q", [0])
        self._order = array("I")

    def append(self, instance: TrainingInstance) -> None:
        """Adds an instance of ids."""
        packed = to_bytes(instance, self._typecode)
        self._write(packed)
        self._added(len(packed))
        self.counts.add(instance)

    def extend_packed(self, packed: bytes) -> None:
        """Adds instances that are already packed, one behind the other; they are not counted."""
        self._write(packed)
        numbers = memoryview(packed).cast(self._typecode)
        start = 0
        while start < len(numbers):
            n_tokens, n_positions = numbers[start], numbers[start + 1]
            length = _HEADER + n_tokens + 2 * n_positions
            self._added(length * numbers.itemsize)
            start += length

    def _write(self, packed: bytes) -> None:
        try:
            self._file.write(packed)
        except OSError as error:
            raise self._failed(error) from None

    def _added(self, size: int) -> None:
        self._order.append(len(self._ends) - 1)
        self._ends.append(self._ends[-1] + size)

    @functools.cached_property
    def _tokens(self) -> dict[int, str]:
        return {number: token for token, number in self.vocab.items()}

    def shuffle(self, rng: random.Random) -> None:
        """Puts the instances in random order, as ``rng.shuffle`` does with a list of them."""
        shuffle(self._order, rng)

    def packed(self) -> Iterator[bytes]:
        """Yields the instances in order, packed."""
        return map(self._read, self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        instance = from_bytes(self._read(self._order[index]), self._typecode)
        instance.tokens = [self._tokens[number % self.vocab_size] for number in instance.tokens]
        instance.masked_lm_labels = [self._tokens[number % self.vocab_size] for number in instance.masked_lm_labels]
        return instance

    def _read(self, number: int) -> bytes:
        start, end = self._ends[number], self._ends[number + 1]
        try:
            self._file.flush()
            return os.pread(self._file.fileno(), end - start, start)
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> OSError:
        with contextlib.suppress(OSError):  # what cannot be written is given up now, not when the object goes
            self._file.close()
        return OSError(f"cannot write a temporary file in {self._folder}: {error.strerror}")
