"""Progress of long work: a bar with rate and time left on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Iterable, Iterator

from tqdm import tqdm


class Progress:
    """Counts units of work and shows how far they have come, on standard error.

    Args:
        description: what is being done.
        total: number of units in all, or None where it is not known.
        unit: name of a unit, such as ``"records"`` or ``"B"`` (bytes are shown as kB, MB).
        seconds: the least time between two lines in a log.

    Example:
        >>> with Progress("counting", total=3, unit="numbers") as progress:
        ...     for number in range(3):
        ...         progress.update(1)
    """

    def __init__(self, description: str, total: int | None = None, unit: str = "it", seconds: float = 30.0):
        terminal = sys.stderr.isatty()
        self._bar = tqdm(
            total=total,
            desc=description,
            unit=unit if unit == "B" else " " + unit,
            unit_scale=unit == "B",
            dynamic_ncols=True,
            disable=not terminal,
        )
        self._lines = not terminal
        self._description, self._total, self._unit, self._seconds = description, total, unit, seconds
        self._count = 0
        self._note = ""
        self._start = self._last = time.monotonic()

    def update(self, units: int = 1, note: str | None = None) -> None:
        """Counts ``units`` more; ``note`` is shown behind the numbers from now on."""
        self._count += units
        if note is not None:
            self._note = note
            self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(units)
        if self._lines and time.monotonic() - self._last >= self._seconds:
            self._last = time.monotonic()
            self._line()

    def _line(self) -> None:
        elapsed = time.monotonic() - self._start
        rate = self._count / max(elapsed, 1e-9)
        text = f"{self._description}: {self._count:,}"
        if self._total:
            left = max(self._total - self._count, 0) / max(rate, 1e-9)
            text += f" of {self._total:,} ({100 * self._count / self._total:.0f} %), {left:.0f} s left"
        text += f", {rate:,.{0 if rate >= 10 else 2}f} {self._unit}/s"
        print(f"{text}, {self._note}" if self._note else text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the bar."""
        self._bar.close()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def say(text: str) -> None:
    """Prints a line on standard error, above a progress bar if there is one."""
    tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()


def track(iterable: Iterable, description: str, total: int | None = None, unit: str = "it") -> Iterator:
    """Yields the items of ``iterable`` and shows the progress."""
    with Progress(
        description, total if total is not None else getattr(iterable, "__len__", lambda: None)(), unit
    ) as progress:
        for item in iterable:
            yield item
            progress.update()
