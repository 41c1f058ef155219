"""Data as users have it, as arrays: lists, pandas columns, arrays of objects."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def as_array(name: str, value: Any):
    """One input, label or weight of all examples as an array; arrays and tensors as they are.

    Args:
        name: what to call it in an error.
        value: an array, a tensor, a pandas column or table, or a list, nested for more axes.

    Raises:
        ValueError: rows of different lengths, or something that is no number.

    Example:
        >>> as_array("label_ids", [0, 1]).dtype, as_array("weights", np.array([0.5, 1], object)).dtype
        (dtype('int32'), dtype('float64'))
    """
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        kind, way = (
            ("ragged", "to_tensor()") if isinstance(value, tf.RaggedTensor) else ("sparse", "tf.sparse.to_dense")
        )
        raise ValueError(
            f"{name} is a {kind} tensor; expected a dense one: use {way}, and an input_mask for its padding"
        )
    if tf.is_tensor(value) or type(value).__module__.startswith(("keras", "jax", "torch")):
        return value
    if hasattr(value, "to_numpy"):  # of pandas and others
        value = value.to_numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value
    return _from_objects(name, value)


def _from_objects(name: str, value: Any) -> np.ndarray:
    rows = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(rows, list | tuple):
        raise ValueError(f"{name} is {_shown(value)}; expected a list or an array with one entry for each example")
    rows = [row.tolist() if hasattr(row, "tolist") else row for row in rows]
    try:
        array = np.array(rows)
    except (ValueError, OverflowError):
        array = np.array(rows, object) if not _lengths(rows) else None
    if array is None or array.dtype.kind not in "biuf":
        raise ValueError(_problem(name, rows))
    if array.dtype.kind in "iu" and array.size and -(2**31) <= array.min() <= array.max() < 2**31:
        return array.astype(np.int32)  # as records hold them
    return array.astype(np.float64) if not array.size else array


def _lengths(rows: list) -> list[int]:
    return [len(row) for row in rows if isinstance(row, list | tuple)]


def _problem(name: str, rows: list) -> str:
    lengths = _lengths(rows)
    if len(set(lengths)) > 1:
        other = next(i for i, length in enumerate(lengths) if length != lengths[0])
        return (
            f"{name}[0] has {lengths[0]} entries and {name}[{other}] has {lengths[other]}: fill shorter rows up to one "
            "length, and mark the padding with 0 in input_mask"
        )
    place, wrong = _first_that_is_no_number(rows)
    hint = " (of a label, its place in the list of labels)" if isinstance(wrong, str) else ""
    return f"{name}{''.join(f'[{i}]' for i in place)} is {_shown(wrong)}; expected a number{hint}"


def _first_that_is_no_number(rows: Any, place: tuple = ()) -> tuple[tuple, Any]:
    if not isinstance(rows, list | tuple):
        is_number = isinstance(rows, int | float | np.number | np.bool_)
        return (place, None) if is_number else (place, rows)
    for i, row in enumerate(rows):
        found = _first_that_is_no_number(row, (*place, i))
        if found[1] is not None or row is None:
            return found
    return place, None


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def count(structure: Any) -> int | None:
    """The number of examples in a dict, a list or an array; None where it is not known."""
    leaves = [leaf for leaf in tf.nest.flatten(structure) if leaf is not None]
    return leaves[0].shape[0] if leaves and getattr(leaves[0], "shape", None) else None


def class_weights(given: Any, size: int) -> np.ndarray:
    """The weight of each label, float32 [size].

    Args:
        given: a dict from labels to weights (1 for those left out), or a list or an array of all weights.
        size: number of labels.

    Raises:
        ValueError: a key that is no label, a weight that is no number of at least 0, or another number of weights.

    Example:
        >>> class_weights({1: 5.0}, 3).tolist(), class_weights([1, 2, 3], 3).tolist()
        ([1.0, 5.0, 1.0], [1.0, 2.0, 3.0])
    """
    if not isinstance(given, Mapping):
        weights = as_array("class_weight", given)
        if np.shape(weights) != (size,):
            raise ValueError(
                f"class_weight has the shape {list(np.shape(weights))}; expected a weight for each of {size} labels"
            )
        given = dict(enumerate(np.asarray(weights).tolist()))
    found = np.ones(size, np.float32)
    for label, weight in given.items():
        is_label = isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < size
        if not is_label:
            raise ValueError(f"class_weight has the key {label!r}; expected a label, an integer from 0 to {size - 1}")
        if not isinstance(weight, int | float | np.number) or not 0 <= weight < np.inf:
            raise ValueError(f"class_weight[{label}] is {weight!r}; expected a finite number of at least 0")
        found[label] = weight
    return found
