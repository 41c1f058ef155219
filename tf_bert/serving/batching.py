"""Dynamic batching: sequences that arrive together run together, like with like, at most so many tokens at a time.

A thread takes sequences out of a bounded queue. The oldest one is always in the next batch, so that none waits for ever
behind others; those of nearest length join it as long as little of the batch is padding. A long text therefore costs a
short one at most the time of one batch.
"""

import bisect
import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

import numpy as np

Arrays = Mapping[str, np.ndarray]


class QueueFull(Exception):
    """There is no room for more sequences.

    Attributes:
        retry_after: seconds after which there may be room.
    """

    def __init__(self, retry_after: float):
        super().__init__("too many requests are waiting")
        self.retry_after = retry_after


@dataclasses.dataclass
class Statistics:
    """What a batcher has done so far.

    Attributes:
        sequences, batches: numbers of both.
        tokens: of all sequences.
        padding: positions of batches that held no token.
        failed: sequences whose batch raised an error.
        seconds: time in the model.
    """

    sequences: int = 0
    batches: int = 0
    tokens: int = 0
    padding: int = 0
    failed: int = 0
    seconds: float = 0.0


class _Waiting:
    """A sequence in the queue."""

    __slots__ = ("arrived", "future", "inputs", "length")

    def __init__(self, inputs: Arrays, arrived: float):
        self.inputs, self.arrived, self.future = inputs, arrived, Future()
        self.length = len(next(iter(inputs.values())))


class TokenBatcher:
    """Runs sequences in batches of at most so many tokens.

    Args:
        run: takes name -> [B, S], with zeros behind the end of each sequence, and returns name -> [B, ...].
        max_batch_tokens: positions of a batch, padding included; a longer sequence runs alone.
        max_delay: seconds that the first sequence waits for others.
        max_queue: sequences that may wait; beyond it `submit` raises `QueueFull`.
        max_padding: the largest share of a batch that may be padding.
        group_by_length: False takes sequences in the order of arrival, whatever the padding; for comparisons.

    Attributes:
        statistics: what has been done so far.

    Example:
        >>> batcher = TokenBatcher(lambda inputs: {"sums": inputs["input_ids"].sum(axis=1)})
        >>> futures = batcher.submit([{"input_ids": np.array([1, 2])}, {"input_ids": np.array([3])}])
        >>> [int(future.result()["sums"]) for future in futures]
        [3, 3]
        >>> batcher.close()
    """

    def __init__(
        self,
        run: Callable[[dict[str, np.ndarray]], Arrays],
        *,
        max_batch_tokens: int = 4096,
        max_delay: float = 0.002,
        max_queue: int = 4096,
        max_padding: float = 0.1,
        group_by_length: bool = True,
    ):
        self.run, self.statistics = run, Statistics()
        self.max_batch_tokens, self.max_delay, self.max_queue = max_batch_tokens, max_delay, max_queue
        self.max_padding, self.group_by_length = max_padding, group_by_length
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._changed, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._work, name="batching", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """The number of sequences that wait."""
        return len(self._waiting)

    def submit(self, sequences: Sequence[Arrays]) -> list[Future]:
        """Puts sequences into the queue, all or none.

        Args:
            sequences: of each the inputs, name -> [S].

        Returns:
            For each the future of its outputs, name -> [...]. A cancelled one gives its place to others.

        Raises:
            QueueFull: there is no room for them.
            RuntimeError: the batcher is closed.
        """
        now = time.monotonic()
        waiting = [_Waiting(inputs, now) for inputs in sequences]
        with self._changed:
            if self._closed:
                raise RuntimeError("the batcher is closed")
            if len(self._waiting) + len(waiting) > self.max_queue:
                done, seconds = self.statistics.sequences, self.statistics.seconds
                raise QueueFull(max(1.0, len(self._waiting) * (seconds / done if done else 0.0)))
            self._waiting.extend(waiting)
            self._changed.notify()
        return [one.future for one in waiting]

    def close(self) -> None:
        """Runs what waits, then ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                self._wait_for_others()
                batch = self._take()
            if batch:
                self._run_batch(batch)

    def _wait_for_others(self) -> None:
        """Waits until the oldest sequence has waited long enough or a batch is full."""
        until = self._waiting[0].arrived + self.max_delay
        while not self._closed and sum(one.length for one in self._waiting) < self.max_batch_tokens:
            left = until - time.monotonic()
            if left <= 0 or not self._changed.wait(left):
                return

    def _take(self) -> list[_Waiting]:
        """Takes the next batch out of the queue."""
        self._waiting = collections.deque(one for one in self._waiting if not one.future.cancelled())
        if not self._waiting:
            return []
        lengths = [one.length for one in self._waiting]
        chosen = choose_batch(lengths, self.max_batch_tokens, self.max_padding if self.group_by_length else None)
        batch = [self._waiting[number] for number in chosen]
        taken = set(chosen)
        self._waiting = collections.deque(one for number, one in enumerate(self._waiting) if number not in taken)
        return [one for one in batch if one.future.set_running_or_notify_cancel()]

    def _run_batch(self, batch: list[_Waiting]) -> None:
        width = max(one.length for one in batch)
        inputs = {
            name: np.zeros((len(batch), width, *value.shape[1:]), value.dtype)
            for name, value in batch[0].inputs.items()
        }
        for row, one in enumerate(batch):
            for name, value in one.inputs.items():
                inputs[name][row, : one.length] = value
        began = time.monotonic()
        try:
            outputs = self.run(inputs)
        except Exception as error:
            self.statistics.failed += len(batch)
            for one in batch:
                one.future.set_exception(error)
            return
        tokens = sum(one.length for one in batch)
        self.statistics.seconds += time.monotonic() - began
        self.statistics.sequences += len(batch)
        self.statistics.batches += 1
        self.statistics.tokens += tokens
        self.statistics.padding += len(batch) * width - tokens
        for row, one in enumerate(batch):
            one.future.set_result({name: value[row] for name, value in outputs.items()})


def choose_batch(lengths: Sequence[int], max_tokens: int, max_padding: float | None) -> list[int]:
    """Chooses the sequences of a batch: the first, and those nearest to it in length.

    Args:
        lengths: of the sequences, in the order of their arrival.
        max_tokens: positions of the batch at most, but for a single sequence.
        max_padding: share of them that may be padding; None takes sequences in their order, whatever their lengths.

    Returns:
        Their numbers.

    Example:
        >>> choose_batch([10, 100, 11, 9, 98], 1000, 0.1)
        [0, 2, 3]
        >>> choose_batch([10, 100, 11, 9, 98], 200, None)
        [0, 1]
    """
    if max_padding is None:
        count = 1
        while count < len(lengths) and max(lengths[: count + 1]) * (count + 1) <= max_tokens:
            count += 1
        return list(range(count))
    order = sorted(range(len(lengths)), key=lambda number: (lengths[number], number))
    low = bisect.bisect_left(order, (lengths[0], 0), key=lambda number: (lengths[number], number))
    high, total = low + 1, lengths[0]  # order[low:high] are chosen
    while True:
        best = None
        for start, end in ((low, high + 1), (low - 1, high)):
            if start < 0 or end > len(order):
                continue
            width, count = lengths[order[end - 1]], end - start
            added = total + lengths[order[end - 1 if end > high else start]]
            padding = width * count - added
            if width * count <= max_tokens and padding <= max_padding * width * count:
                if best is None or padding < best[0]:
                    best = padding, start, end, added
        if best is None:
            return sorted(order[low:high])
        _, low, high, total = best
