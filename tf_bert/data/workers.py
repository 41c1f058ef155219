"""Work spread over processes, in order and within bounds of memory."""

import collections
import contextlib
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

_function: Callable[[Any], Any]  # of this worker process


def map_in_order(function: Callable, items: Iterable, num_workers: int) -> Iterator:
    """``map(function, items)``, computed in ``num_workers`` processes.

    Results come in the order of the items. Only a few items a worker are taken ahead, so that memory stays bounded.
    With one worker everything happens in this process. The processes are started afresh and not forked, so a script
    that calls this must guard its own work with ``if __name__ == "__main__":``.

    Args:
        function: is sent to each worker once; it must be picklable, and so must items and results.
        items: what to call it with.
        num_workers: number of processes.

    Example:
        >>> list(map_in_order(abs, [-1, 2, -3], num_workers=1))
        [1, 2, 3]
    """
    if num_workers == 1:
        yield from map(function, items)
        return
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        pool = ProcessPoolExecutor(num_workers, context, _start, (function,))
        stack.callback(pool.shutdown, cancel_futures=True)
        pending = collections.deque()
        for item in items:
            pending.append(pool.submit(_call, item))
            if len(pending) > 3 * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _start(function: Callable) -> None:
    global _function
    _function = function


def _call(item):
    return _function(item)
