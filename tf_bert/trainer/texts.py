"""Texts as users have them: lists, arrays, tensors and pandas columns of strings, pairs, dicts."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

TEXT, TEXT_PAIR = "text", "text_pair"  # the keys of a dict of texts


def as_texts(x) -> tuple[list, list | None] | None:
    """The texts that ``x`` holds, and the second texts of pairs; None where ``x`` is something else.

    Args:
        x: a text; a list, an array, a tensor or a pandas column of texts; a tuple of two of these; a list of pairs; a
            table or an array with one column or two; or a dict with ``text`` and maybe ``text_pair``.

    Raises:
        ValueError: there is no text, one of many is none, or the two of a tuple differ in number.

    Example:
        >>> as_texts("one"), as_texts(["one", "two"]), as_texts((["a", "b"], ["c", "d"]))
        ((['one'], None), (['one', 'two'], None), (['a', 'b'], ['c', 'd']))
        >>> as_texts([("a", "c"), ("b", "d")]), as_texts({"input_ids": [[2]]})
        ((['a', 'b'], ['c', 'd']), None)
    """
    if isinstance(x, Mapping):
        if TEXT not in x:
            return None
        return as_texts((x[TEXT], x[TEXT_PAIR]) if TEXT_PAIR in x else x[TEXT])
    if isinstance(x, str | bytes):
        return [x], None
    if isinstance(x, tuple) and len(x) == 2 and not isinstance(x[0], str | bytes):
        first, second = strings(x[0]), strings(x[1])
        if first is None or second is None:
            return None
        if len(first) != len(second):
            raise ValueError(f"{len(first)} first texts and {len(second)} second ones: pairs have one of each")
        return first, second
    if _columns(x) == 2:
        x = [tuple(row) for row in to_list(x)]
        if not x or not isinstance(x[0][0], str | bytes):
            return None
    if isinstance(x, list) and x and isinstance(x[0], tuple | list) and x[0] and isinstance(x[0][0], str | bytes):
        wrong = [i for i, pair in enumerate(x) if len(pair) != 2 or not all(isinstance(t, str | bytes) for t in pair)]
        if wrong:
            raise ValueError(f"number {wrong[0]} of the pairs is {x[wrong[0]]!r}; expected two texts")
        return [pair[0] for pair in x], [pair[1] for pair in x]
    found = strings(x)
    return None if found is None else (found, None)


def strings(x) -> list | None:
    """Texts as a list; None where there are none."""
    if isinstance(x, list | tuple):
        if x == [] or x == ():
            raise ValueError("there is no text")
        if not any(isinstance(value, str | bytes) for value in x):
            return None
        values = list(x)
    else:
        values = to_list(x) if _columns(x) is None else [row[0] for row in to_list(x)] if _columns(x) == 1 else None
        is_numbers = isinstance(x, np.ndarray) and x.dtype.kind == "O" and values and _is_number(values[0])
        if values is None or is_numbers or (values and isinstance(values[0], list | tuple)):
            return None
    for number, value in enumerate(values):
        if not isinstance(value, str | bytes):
            raise ValueError(f"number {number} of the texts is {value!r}, not a text")
    return values


def to_list(x) -> list | None:
    """The rows of an array, a tensor or a pandas column or table that may hold strings; None for anything else."""
    if isinstance(x, tf.RaggedTensor):
        return x.to_list() if x.dtype == tf.string else None
    if tf.is_tensor(x):
        return x.numpy().tolist() if x.dtype == tf.string and hasattr(x, "numpy") else None
    if hasattr(x, "to_numpy"):
        x = x.to_numpy()
        return x.tolist() if x.dtype.kind in "USOT" else None
    return x.tolist() if isinstance(x, np.ndarray) and x.dtype.kind in "USOT" and x.ndim else None


def decoded(x: Any) -> Any:
    """Lists of bytes, nested or not, as strings; anything else as it is."""
    if isinstance(x, list):
        return [decoded(value) for value in x]
    return x.decode() if isinstance(x, bytes) else x


def has_strings(spec: Any) -> bool:
    """Whether the inputs of a data set, the first of its components, are texts."""
    while isinstance(spec, tuple) and spec:
        spec = spec[0]
    if isinstance(spec, Mapping):
        return TEXT in spec
    return is_string(spec)


def is_string(x: Any) -> bool:
    """Whether a tensor, symbolic or not, or its spec, is of strings."""
    return str(getattr(getattr(x, "dtype", None), "name", getattr(x, "dtype", ""))).startswith(
        ("string", "str", "bytes")
    )


def is_symbolic(x: Any) -> bool:
    """Whether a tensor has no values yet: of a functional model, or of a graph."""
    return isinstance(x, keras.KerasTensor) or (tf.is_tensor(x) and not hasattr(x, "numpy"))


def _columns(x: Any) -> int | None:
    """The number of columns of a table or an array [N, C]; None where ``x`` is none."""
    is_table = isinstance(x, np.ndarray) or hasattr(x, "to_numpy")
    return x.shape[1] if is_table and len(x.shape) == 2 else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number | np.ndarray) and value == value
