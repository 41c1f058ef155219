"""Windows over a document that is longer than the model can read."""

from collections.abc import Sequence
from typing import NamedTuple


class Window(NamedTuple):
    """A stretch of the document's pieces."""

    start: int
    length: int


def cut_windows(length: int, room: int, doc_stride: int) -> list[Window]:
    """Windows of at most ``room`` pieces over a document of ``length`` pieces; every piece is in one.

    Example:
        >>> cut_windows(10, 6, 3)
        [Window(start=0, length=6), Window(start=3, length=6), Window(start=6, length=4)]
        >>> cut_windows(10, 6, 100)
        [Window(start=0, length=6), Window(start=6, length=4)]
    """
    windows = []
    start = 0
    while start < length:
        windows.append(Window(start, min(length - start, room)))
        if start + windows[-1].length == length:
            break
        start += min(windows[-1].length, doc_stride)
    return windows


def max_context(windows: Sequence[Window], length: int) -> list[int]:
    """For each piece of a document the window that shows most around it: the greatest least of both sides.

    Ties go to the longer window, then to the first.

    Example:
        >>> max_context([Window(0, 6), Window(3, 6), Window(6, 4)], 10)
        [0, 0, 0, 0, 0, 1, 1, 1, 2, 2]
    """
    best, scores = [0] * length, [-1.0] * length
    for number, window in enumerate(windows):
        for place in range(window.length):
            score = min(place, window.length - 1 - place) + 0.01 * window.length
            if score > scores[window.start + place]:
                best[window.start + place], scores[window.start + place] = number, score
    return best
