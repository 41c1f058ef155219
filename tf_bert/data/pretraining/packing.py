"""Several examples in one row, so that hardly any position is padding.

A row of ``packed_length`` tokens holds examples one behind the other. Each keeps positions, segments, predictions and a
next-sentence label of its own, and attends to itself alone, so that loss and gradient are those of examples in rows of
their own. The record of a row has the features of an ordinary one and ``example_lengths``, the tokens of each example;
the model derives everything else from it (`tf_bert.layers.packed_rows`).

Source: Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination".
"""

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tf_bert.data.pretraining.instances import TrainingInstance
from tf_bert.data.pretraining.pairing import InstanceOptions

Item = TypeVar("Item")

EXAMPLE_LENGTHS = "example_lengths"
OPEN_ROWS = 64
_SMALLEST = 5  # tokens: [CLS] a [SEP] b [SEP]
_TOKENS_FOR_AN_EXAMPLE = 32


@dataclass(frozen=True)
class RowSize:
    """What a row has room for.

    Args:
        length: tokens (S).
        predictions: masked positions (P).
        examples: examples (E).
    """

    length: int
    predictions: int
    examples: int

    @classmethod
    def of(cls, options: InstanceOptions | Mapping) -> "RowSize | None":
        """The rows that options, or the sidecar beside records, ask for: as many predictions a token as in one example.

        Example:
            >>> RowSize.of(InstanceOptions(max_seq_length=128, max_predictions_per_seq=20, packed_length=512))
            RowSize(length=512, predictions=80, examples=16)
        """
        sidecar = options if isinstance(options, Mapping) else vars(options)
        length = sidecar.get("packed_length")
        if length is None:
            return None
        longest = sidecar["max_seq_length"]
        predictions = -(-sidecar["max_predictions_per_seq"] * length // longest)
        return cls(length, predictions, max(2, -(-length // longest), length // _TOKENS_FOR_AN_EXAMPLE))


def rows_of(packed: Iterable[bytes], typecode: str, options: InstanceOptions) -> Iterator[list[bytes]]:
    """Yields the instances of each row, as bytes (`tf_bert.data.pretraining.instances.to_bytes`)."""

    def size_of(instance: bytes) -> tuple[int, int]:
        n_tokens, n_predictions = memoryview(instance).cast(typecode)[:2]
        if options.masking == "dynamic":  # what it is going to have at most
            wanted = round(n_tokens * options.masked_lm_prob)
            n_predictions = max(1, min(options.max_predictions_per_seq, wanted))
        return n_tokens, n_predictions

    return fill_rows(packed, size_of, RowSize.of(options))


def fill_rows(
    items: Iterable[Item], size_of: Callable[[Item], tuple[int, int]], row: RowSize, open_rows: int = OPEN_ROWS
) -> Iterator[list[Item]]:
    """Puts items into rows as they come: each into the row that it fills best, among a few dozen that are open.

    Nothing is random, and memory holds the open rows alone.

    Args:
        items: in random order.
        size_of: gives the tokens and the predictions of an item.
        row: what a row has room for.
        open_rows: how many rows wait for items that fit.

    Yields:
        The items of each row.

    Raises:
        ValueError: an item does not fit into an empty row.

    Example:
        >>> list(fill_rows([60, 50, 40, 45, 8], lambda n: (n, 1), RowSize(100, 9, 4)))
        [[60, 40], [50, 45], [8]]
    """
    rooms: list[tuple[int, int]] = []  # tokens that are free, and the number of the row; ascending
    rows: dict[int, tuple[list[Item], int]] = {}  # what is in it, and the predictions that are free
    numbers = itertools.count()
    for item in items:
        tokens, predictions = size_of(item)
        if tokens > row.length or predictions > row.predictions:
            raise ValueError(
                f"an example of {tokens} tokens and {predictions} predictions does not fit in a row of {row.length} "
                f"and {row.predictions}"
            )
        place = bisect.bisect_left(rooms, (tokens, -1))
        while place < len(rooms) and rows[rooms[place][1]][1] < predictions:
            place += 1
        if place < len(rooms):
            room, number = rooms.pop(place)
            held, free = rows.pop(number)
        else:
            if len(rooms) == open_rows:
                yield rows.pop(rooms.pop(0)[1])[0]  # the fullest
            room, number, held, free = row.length, next(numbers), [], row.predictions
        held.append(item)
        if room - tokens < _SMALLEST or len(held) == row.examples:
            yield held
            continue
        rows[number] = held, free - predictions
        bisect.insort(rooms, (room - tokens, number))
    for number in sorted(rows):
        yield rows[number][0]


def joined(instances: Iterable[TrainingInstance]) -> TrainingInstance:
    """Instances one behind the other, as one whose positions count through the row.

    Example:
        >>> one = TrainingInstance([2, 4, 3], [0, 0, 0], [1], [9], False)
        >>> joined([one, one]).masked_lm_positions
        [1, 4]
    """
    row = TrainingInstance([], [], [], [], False)
    for instance in instances:
        start = len(row.tokens)
        row.tokens += instance.tokens
        row.segment_ids += instance.segment_ids
        row.masked_lm_positions += [start + position for position in instance.masked_lm_positions]
        row.masked_lm_labels += instance.masked_lm_labels
    return row
