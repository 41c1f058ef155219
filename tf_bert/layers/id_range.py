"""Checks that ids lie inside their table, vocabulary or sequence."""

from typing import Any

from keras import ops

from tf_bert.backend import known_values


def check_range(name: str, ids: Any, size: int, why: str) -> None:
    """Raises ValueError if ids are known (in an eager call) and one of them lies outside [0, size).

    Args:
        name: what to call the ids in the message.
        ids: integers of any shape.
        size: number of allowed ids.
        why: the reason for the limit, for the message.

    Example:
        >>> check_range("input_ids", [2, 3], 3, "the table has 3 rows")
        Traceback (most recent call last):
        ValueError: input_ids holds 3, but the table has 3 rows (0 to 2)
    """
    values = known_values(ids)
    if values is not None and values.size and not 0 <= values.min() <= values.max() < size:
        wrong = values[(values < 0) | (values >= size)][0]
        raise ValueError(f"{name} holds {wrong}, but {why} (0 to {size - 1})")


def in_range(ids: Any, size: Any) -> Any:
    """Returns booleans: true for the ids in [0, size). Compiled code cannot raise; it gives NaN for the others."""
    return ops.logical_and(ops.greater_equal(ids, 0), ops.less(ids, size))
