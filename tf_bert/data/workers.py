"""Work spread over processes, in order and within bounds of memory."""

import collections
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

_function: Callable[[Any], Any]  # of this worker process


def map_in_order(function: Callable, items: Iterable, num_workers: int) -> Iterator:
    """``map(function, items)``, computed in ``num_workers`` processes.

    Results come in the order of the items. Only a few items a worker are taken ahead, so that memory stays bounded.
    With one worker everything happens in this process. The processes are started afresh and not forked, so a script
    that calls this must guard its own work with ``if __name__ == "__main__":``.

    Interrupting the program ends the workers at once, after they have cleaned up.

    Args:
        function: is sent to each worker once; it must be picklable, and so must items and results.
        items: what to call it with.
        num_workers: number of processes.

    Raises:
        ChildProcessError: when a worker died.

    Example:
        >>> list(map_in_order(abs, [-1, 2, -3], num_workers=1))
        [1, 2, 3]
    """
    if num_workers == 1:
        yield from map(function, items)
        return
    pool = ProcessPoolExecutor(num_workers, multiprocessing.get_context("spawn"), _start, (function,))
    try:
        pending = collections.deque()
        for item in items:
            pending.append(pool.submit(_call, item))
            if len(pending) > 3 * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise ChildProcessError(
            "a worker process died, perhaps for want of memory: try fewer workers (--num_workers)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(function: Callable) -> None:
    global _function
    _function = function
    signal.signal(signal.SIGINT, lambda *_: sys.exit(1))  # unwinds quietly, where KeyboardInterrupt shows a traceback


def _call(item):
    return _function(item)
