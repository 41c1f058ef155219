"""Distributes work over processes, keeps its order and bounds its memory."""

import collections
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

# Of this worker process.
_function: Callable[[Any], Any]
_busy = False


class Workers:
    """Processes that compute a function of many items.

    Results come in the order of the items. Only a few items a worker are taken ahead, so that memory stays bounded.
    With one worker everything happens in this process. The processes are started afresh and not forked, so a script
    that uses them must guard its own work with ``if __name__ == "__main__":``. Interrupting the program ends them at
    once, after they have cleaned up.

    Args:
        function: is sent to each worker once; it must be picklable, and so must items and results.
        num_workers: number of processes.

    Example:
        >>> with Workers(abs, num_workers=1) as workers:
        ...     list(workers.map([-1, 2, -3]))
        [1, 2, 3]
    """

    def __init__(self, function: Callable, num_workers: int):
        self._function, self._num_workers = function, num_workers
        self._pool = None
        if num_workers > 1:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(num_workers, context, _start, (function,))

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def map(self, items: Iterable) -> Iterator:
        """Yields the function of each item.

        Raises:
            ChildProcessError: when a worker died.
        """
        if self._pool is None:
            yield from map(self._function, items)
            return
        try:
            pending = collections.deque()
            for item in items:
                pending.append(self._pool.submit(_call, item))
                if len(pending) > 3 * self._num_workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise ChildProcessError(
                "a worker process died, perhaps for want of memory: try fewer workers (--num_workers)"
            ) from None


def _start(function: Callable) -> None:
    global _function
    _function = function
    signal.signal(signal.SIGINT, _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this worker when the program is killed: it would wait for work for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)


class _Interrupted(BaseException):
    pass


def _interrupt(*_) -> None:
    """Lets what is being computed clean up, and ends an idle worker: Python would show a traceback for each."""
    if _busy:
        raise _Interrupted
    os._exit(1)


def _call(item):
    global _busy
    _busy = True
    try:
        return _function(item)
    except _Interrupted:
        os._exit(1)
    finally:
        _busy = False
