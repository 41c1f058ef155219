"""Pairs made by rule, on which a sequence-to-sequence model shows within minutes whether it learns."""

import datetime
import random
from collections.abc import Iterator

TASKS = ("reverse", "dates")


def make_pairs(task: str, count: int, seed: int = 12345) -> Iterator[tuple[str, str]]:
    """Yields pairs of a task.

    Args:
        task: ``reverse`` (`reversed_digits`) or ``dates`` (`dates`).
        count: how many.
        seed: of the random choices.

    Raises:
        ValueError: there is no such task.

    Example:
        >>> list(make_pairs("dates", 2))
        [('5th of jul 2049', '2049-07-05'), ('Tuesday, Jul 1, 1969', '1969-07-01')]
    """
    if task not in TASKS:
        raise ValueError(f"the task is {task!r}; known are {', '.join(TASKS)}")
    make = reversed_digits if task == "reverse" else dates
    return make(count, random.Random(seed))


def reversed_digits(count: int, random: random.Random, shortest: int = 5, longest: int = 20) -> Iterator:
    """Digit strings of 5 to 20, and the same from the end.

    Example:
        >>> import random
        >>> next(reversed_digits(1, random.Random(0)))
        ('60487647593824219', '91242839574678406')
    """
    for _ in range(count):
        digits = "".join(random.choice("0123456789") for _ in range(random.randint(shortest, longest)))
        yield digits, digits[::-1]


def dates(count: int, random: random.Random) -> Iterator[tuple[str, str]]:
    """Dates as people write them, and as ISO 8601 does: ``3rd of May 1998``, ``1998-05-03``.

    Forms that leave open which number is the month are not among them.
    """
    first = datetime.date(1900, 1, 1).toordinal()
    days = datetime.date(2099, 12, 31).toordinal() - first + 1
    for _ in range(count):
        date = datetime.date.fromordinal(first + random.randrange(days))
        text = random.choice(_FORMS).format(
            d=date.day,
            th=f"{date.day}{_ending(date.day)}",
            month=random.choice([_MONTHS[date.month - 1], _MONTHS[date.month - 1][:3]]),
            y=date.year,
            day=_DAYS[date.weekday()],
        )
        yield random.choice([text, text, text.lower(), text.upper()]), date.isoformat()


def _ending(day: int) -> str:
    return "th" if 10 < day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


# Not those of the calendar module, which follow the locale.
_MONTHS = "January February March April May June July August September October November December".split()
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_FORMS = (
    "{th} of {month} {y}",
    "{d} {month} {y}",
    "{month} {d}, {y}",
    "{month} {th}, {y}",
    "{day}, {month} {d}, {y}",
    "{day}, the {th} of {month} {y}",
    "the {th} of {month}, {y}",
    "{y}, {month} {d}",
    "{d}-{month}-{y}",
)
