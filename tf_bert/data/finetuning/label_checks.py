"""Warnings about the labels of a file: labels that may be the same, a single class, nearly as many labels as rows."""

import collections
import math
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_MANY = 10  # with this many labels or fewer, their number says nothing
_LISTED = 5


def warn_about_labels(
    counts: Mapping[str, int],
    total: int,
    source: str,
    *,
    unit: str = "rows",
    what: str = "label",
    expected: Sequence[str] = (),
) -> None:
    """Warns of labels that are probably not what was meant; each is a class of its own all the same.

    Args:
        counts: label -> how many rows have it, in the data to train on.
        total: the number of rows.
        source: the file, for messages.
        unit: what has a label.
        what: what a label is called.
        expected: the labels that were named by the user, if any.

    Warns:
        UserWarning: labels are equal as numbers, or but for case, blanks and characters that cannot be seen; there is
            one class; there are about as many classes as rows; a label that was named never occurs.

    Example:
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     warn_about_labels({"0": 2, "1": 1, "1.0": 1}, 4, "train.csv")
        >>> print(caught[0].message)
        train.csv: the labels '1' (1 rows) and '1.0' (1 rows) are equal as numbers, but are learned as different ...
    """
    for labels in alike(counts):
        listed = " and ".join(f"{label!r} ({counts[label]} {unit})" for label in labels[:_LISTED])
        how = "equal as numbers" if _as_number(labels[0]) is not None else "equal but for case or blanks"
        _warn(f"{source}: the {what}s {listed} are {how}, but are learned as different classes; write them alike")
    warn_of_one_class(counts, total, source, unit=unit, what=what)
    if len(counts) > max(_MANY, total / 2):
        _warn(
            f"{source}: {len(counts)} different {what}s in {total} {unit}, such as {min(counts)!r}: is this the column "
            f"of the {what}s?"
        )
    unseen = [label for label in expected if label not in counts]
    if unseen:
        named = ", ".join(map(repr, unseen[:_LISTED])) + ", ..." * (len(unseen) > _LISTED)
        _warn(f"{source}: {len(unseen)} of the {len(expected)} {what}s never occur: {named}")


def warn_of_one_class(
    counts: Mapping[Any, int], total: int, source: str, *, unit: str = "rows", what: str = "label"
) -> None:
    """Warns where all rows have the same label; arguments as `warn_about_labels`."""
    if len(counts) == 1 and set(counts.values()) == {total}:
        _warn(f"{source}: all {total} {unit} have the {what} {next(iter(counts))!r}: there is nothing to tell apart")


def alike(labels: Iterable[str]) -> list[list[str]]:
    """Groups of labels that are equal as numbers, or but for case, blanks and characters that cannot be seen.

    Example:
        >>> alike(["1", "yes", "1.0", "Yes", "no"])
        [['1', '1.0'], ['Yes', 'yes']]
    """
    groups = collections.defaultdict(list)
    for label in sorted(labels):
        number = _as_number(label)
        groups[_plain(label) if number is None else number].append(label)
    return [group for group in groups.values() if len(group) > 1]


def _as_number(label: str) -> float | None:
    try:
        number = float(label)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _plain(label: str) -> str:
    folded = unicodedata.normalize("NFKC", label).casefold()
    return "".join(char for char in folded if not char.isspace() and unicodedata.category(char) not in ("Cc", "Cf"))


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)
