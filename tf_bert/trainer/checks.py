"""Checks of ids and labels before they are used: in arrays before training, in the graph where only it sees them.

A model says what its inputs may hold (`Trainer.expected`); every error is one line with the first wrong value, its
place and the range. Compiled code cannot raise, so the checks stay outside of what XLA compiles.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

_BEGIN, _END = "tf_bert refuses: ", " :tf_bert"  # around a message that the graph raises


@dataclasses.dataclass(frozen=True)
class Integers:
    """Integers from 0 to ``size - 1``: ids of a table, positions, numbers of labels.

    Attributes:
        size: the bound; or the name of the input whose last axis it is.
        rows: what there are ``size`` of, for messages.
        longest: most entries in the last axis, of what has positions.
        unless: the input that gives positions of their own, which may be more.
        axes: number of axes; None for any.
        ignored: an integer that is allowed too.
        bound_axis: the axis of the input that ``size`` names.
        classes: whether these are numbers of labels, which ``class_weight`` may weigh.
    """

    size: int | str
    rows: str = "rows in the table"
    longest: int | None = None
    unless: str | None = None
    axes: int | None = None
    ignored: int | None = None
    bound_axis: int = -1
    classes: bool = False

    def wrong_shape(self, name: str, shape: tuple, dtype: str) -> str | None:
        """What is wrong with the shape or the type; None where nothing is."""
        last = shape[-1] if shape else None
        if self.classes and dtype == "bool" and self.size != 2:
            return (
                f"{name} holds booleans, but there are {self.size} {self.rows}: give integers from 0 to {self.size - 1}"
            )
        if self.axes is None or len(shape) == self.axes or (len(shape) == self.axes + 1 and last == 1):
            return None
        one_hot = len(shape) == self.axes + 1 and last == self.size
        hint = f"; of one-hot rows give {name}.argmax(axis=-1)" if one_hot else ""
        one = "[B], an integer for each example" if self.axes == 1 else "[B, S], an integer for each position"
        return f"{name} has the shape {_listed(shape)}; expected {one}, from 0 to {self._last}{hint}"

    @property
    def _last(self) -> str:
        return f"the length of {self.size} - 1" if isinstance(self.size, str) else str(self.size - 1)

    def bound(self, inputs: Mapping[str, Any]) -> Any:
        """``size`` as a number, or a tensor."""
        if not isinstance(self.size, str):
            return self.size
        other = inputs[self.size]
        known = other.shape[self.bound_axis]
        return tf.shape(other)[self.bound_axis] if known is None else known

    def bad(self, x, inputs: Mapping[str, Any]):
        """Booleans: which values are wrong. NaN is."""
        bound = self.bound(inputs)
        is_float = x.dtype.kind == "f" if isinstance(x, np.ndarray) else x.dtype.is_floating
        bound = tf.cast(bound, x.dtype) if tf.is_tensor(bound) else bound
        good = (x >= 0) & (x < bound)
        if is_float:
            good &= x % 1 == 0
        return ~good if self.ignored is None else ~(good | (x == self.ignored))

    def range(self, bound: Any) -> str:
        """The end of a message."""
        return f"there are {bound} {self.rows}: expected an integer from 0 to {bound - 1}"


@dataclasses.dataclass(frozen=True)
class Shares:
    """For each of ``columns`` labels, whether it holds: 0, 1 or a number between them."""

    columns: int
    classes = False

    def wrong_shape(self, name: str, shape: tuple, dtype: str) -> str | None:
        """What is wrong with the shape or the type; None where nothing is."""
        if len(shape) == 2 and shape[-1] in (self.columns, None):
            return None
        found = f"{shape[-1]} columns" if len(shape) == 2 else f"the shape {_listed(shape)}"
        return f"{name} has {found}; expected {self.columns}, a 0 or 1 for each of the {self.columns} labels"

    def bad(self, x, inputs: Mapping[str, Any]):
        """Booleans: which values are wrong. NaN is."""
        return ~((x >= 0) & (x <= 1))

    def bound(self, inputs: Mapping[str, Any]) -> int:
        """The number of labels."""
        return self.columns

    def range(self, bound: Any) -> str:
        """The end of a message."""
        return "each label holds or not: expected 0 or 1"


@dataclasses.dataclass(frozen=True)
class Numbers:
    """A finite number for each example."""

    classes = False

    def wrong_shape(self, name: str, shape: tuple, dtype: str) -> str | None:
        """What is wrong with the shape or the type; None where nothing is."""
        if len(shape) == 1 or (len(shape) == 2 and shape[-1] == 1):
            return None
        return f"{name} has the shape {_listed(shape)}; expected [B], a number for each example"

    def bad(self, x, inputs: Mapping[str, Any]):
        """Booleans: which values are wrong."""
        return ~(x - x == 0)

    def bound(self, inputs: Mapping[str, Any]) -> None:
        """None."""

    def range(self, bound: Any) -> str:
        """The end of a message."""
        return "expected a finite number"


Expected = Mapping[str, Integers | Shares | Numbers]


def check_arrays(inputs: Mapping[str, Any], expected: Expected) -> None:
    """Checks all examples at once, before training.

    Args:
        inputs: arrays and eager tensors.
        expected: what the inputs may hold, by name; inputs without an entry are not looked at.

    Raises:
        ValueError: names the first wrong value, its place and the range.

    Example:
        >>> check_arrays({"label_ids": np.array([1, 2])}, {"label_ids": Integers(2, "labels", classes=True)})
        Traceback (most recent call last):
        ValueError: label_ids[1] is 2, but there are 2 labels: expected an integer from 0 to 1
    """
    for name, rule in expected.items():
        if name not in inputs:
            continue
        x = np.asarray(inputs[name])
        _check_kind(name, x.dtype, x.shape, rule, inputs)
        wrong = rule.bad(x.astype(np.int8) if x.dtype == bool else x, inputs)
        if wrong.any():
            place = np.unravel_index(int(wrong.argmax()), x.shape)
            raise ValueError(f"{name}{_listed(place)} is {x[place]}, but {rule.range(rule.bound(inputs))}")


def _check_kind(name: str, dtype: Any, shape: tuple, rule: Integers | Shares | Numbers, inputs: Mapping) -> None:
    dtype = str(getattr(dtype, "name", dtype))
    if not dtype.startswith(("int", "uint", "float", "bfloat", "bool")):
        raise ValueError(f"{name} holds {dtype}; expected numbers")
    problem = rule.wrong_shape(name, tuple(shape), dtype)
    if problem:
        raise ValueError(problem)
    limit = longest(rule, inputs)
    if limit is not None and shape[-1] is not None and shape[-1] > limit:
        raise ValueError(f"{name} has {shape[-1]} positions, but max_position_embeddings is {limit}")


def longest(rule: Integers | Shares | Numbers, inputs: Mapping[str, Any]) -> int | None:
    """Most positions of an input; None for any number."""
    return None if getattr(rule, "unless", None) in inputs else getattr(rule, "longest", None)


def checked(inputs: dict[str, tf.Tensor], expected: Expected) -> dict[str, tf.Tensor]:
    """The inputs of one batch, once they are checked: what is computed of them waits for the check.

    Raises:
        ValueError: a wrong shape or type, while the graph is traced; `refusal` finds the message of a wrong value in
            the error of TensorFlow.
    """
    for name, rule in expected.items():
        if name in inputs:
            _check_kind(name, inputs[name].dtype, inputs[name].shape, rule, inputs)
    rules = {name: rule for name, rule in expected.items() if name in inputs}
    values = {name: tf.cast(x, tf.int32) if x.dtype == tf.bool else x for name, x in inputs.items()}
    fine = [~tf.reduce_any(rule.bad(values[name], values)) for name, rule in rules.items()]
    fine += [tf.shape(values[name])[-1] <= rule.longest for name, rule in _of_unknown_length(values, rules).items()]
    if not fine:
        return inputs

    def refuse():
        for name, rule in _of_unknown_length(values, rules).items():
            found = tf.shape(values[name])[-1]
            said = [name, " has ", found, " positions, but max_position_embeddings is ", str(rule.longest)]
            _refuse_unless(found <= rule.longest, said)
        for name, rule in rules.items():
            x, wrong = values[name], rule.bad(values[name], values)
            first = tf.argmax(tf.reshape(wrong, [-1]))
            place = tf.strings.reduce_join(
                tf.strings.as_string(tf.unravel_index(first, tf.shape(x, tf.int64))), separator=", "
            )
            value = tf.gather(tf.reshape(x, [-1]), first)
            bound = rule.bound(values)
            said = [name, "[", place, "] of a batch is ", value, ", but "]
            _refuse_unless(~tf.reduce_any(wrong), said + _range(rule, bound))
        return tf.constant(False)

    check = tf.cond(tf.reduce_all(fine), lambda: tf.constant(True), refuse)
    with tf.control_dependencies([check]):
        return {name: tf.identity(x) for name, x in inputs.items()}


def _range(rule: Integers | Shares | Numbers, bound: Any) -> list:
    if not tf.is_tensor(bound):
        return [rule.range(bound)]
    return ["there are ", bound, f" {rule.rows}: expected an integer from 0 to ", bound - 1]


def _of_unknown_length(inputs: Mapping[str, tf.Tensor], rules: Expected) -> dict[str, Integers]:
    return {name: rule for name, rule in rules.items() if longest(rule, inputs) and inputs[name].shape[-1] is None}


def _refuse_unless(condition: tf.Tensor, said: list) -> None:
    parts = [tf.strings.as_string(x) if tf.is_tensor(x) and x.dtype != tf.string else x for x in said]
    tf.debugging.Assert(condition, [tf.strings.join([_BEGIN, *parts, _END])])


def refusal(error: Exception) -> str | None:
    """The message of `checked` in an error of TensorFlow; None where it is another error."""
    found = re.search(f"{_BEGIN}(.*?){_END}", str(error), re.DOTALL)
    return found and found[1]


def _listed(places: tuple) -> str:
    return f"[{', '.join(str(int(place)) if place is not None else 'None' for place in places)}]"
