"""Loads named variables into a model; all names and shapes are compared before anything changes."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import keras
import numpy as np
from keras import ops

from tf_bert.checkpoints import names


class Reader(Protocol):
    """What is read variable by variable, under Google's names.

    Attributes:
        where: the file or folder, for messages.
        shapes: name -> shape.
        dtypes: name -> dtype.
    """

    where: str
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, np.dtype]

    def read(self, name: str) -> Any:
        """Reads one variable, as an array or a tensor."""


def sizes(reader: Reader) -> tuple[int, int]:
    """The bytes of the weights, and those of the optimizer's moments and step."""
    weights = slots = 0
    for name, shape in reader.shapes.items():
        size = math.prod(shape) * np.dtype(reader.dtypes[name]).itemsize
        if names.is_optimizer_variable(name):
            slots += size
        else:
            weights += size
    return weights, slots


@dataclass
class LoadReport:
    """What became of the variables of a model and a checkpoint, by Google's names.

    Attributes:
        loaded: variables that have the checkpoint's values now.
        missing: variables of the model that the checkpoint does not hold: they keep the values they had.
        unused: variables of the checkpoint that the model has no place for; optimizer state is not listed.
        reshaped: name -> (shape in the checkpoint, shape in the model), where axes of size 1 differed.
    """

    loaded: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    reshaped: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{len(self.loaded)} variables loaded"]
        if self.missing:
            parts.append(f"{len(self.missing)} not in the checkpoint, fresh: {some(self.missing)}")
        if self.unused:
            parts.append(f"{len(self.unused)} in the checkpoint not used: {some(self.unused)}")
        if self.reshaped:
            parts.append(f"{len(self.reshaped)} reshaped: {some(list(self.reshaped))}")
        return "; ".join(parts)


def load_weights(model: keras.Model, reader: Reader, strict: bool = True) -> LoadReport:
    """Assigns a reader's variables to the variables of the same name.

    Args:
        model: a built model.
        reader: where the values come from.
        strict: whether a variable under ``bert/`` without a value is an error. A head without one is only reported.

    Returns:
        What was loaded, missing, unused and reshaped.

    Raises:
        ValueError: a shape clashes or, with ``strict``, something of the encoder is missing; nothing was changed.
    """
    variables = names.model_variables(model)
    report = compare(variables, reader, strict)
    for name in report.loaded:
        variables[name].assign(_value(variables[name], reader, name))
    return report


def make_with_weights(
    make: Callable[[], keras.Model], reader: Reader, strict: bool = True
) -> tuple[keras.Model, LoadReport]:
    """Makes a model whose variables have a reader's values from the start: no time and memory for random ones.

    Args:
        make: makes the model, built.
        reader: where the values come from.
        strict: see `load_weights`.

    Returns:
        The model, and what was loaded, missing (these have their random values), unused and reshaped.

    Raises:
        ValueError: as `load_weights`.
    """
    problems: list[Exception] = []

    def initial_value(variable: keras.Variable, name: str, shape, dtype=None):
        try:
            return _value(variable, reader, name)
        except (ValueError, OSError) as error:
            # Raised after the scope: Keras would not finish its list of variables, and the next model would fail.
            problems.append(error)
            return ops.zeros(variable.shape, variable.dtype)

    with keras.StatelessScope():  # variables made inside get their values, from their initializers, when it ends
        model = make()
        variables = names.model_variables(model)
        report = compare(variables, reader, strict)
        for name in report.loaded:
            variables[name]._initializer = functools.partial(initial_value, variables[name], name)
    if problems:
        raise problems[0]
    return model, report


def _value(variable: keras.Variable, reader: Reader, name: str):
    """A reader's variable in the shape and dtype of the model's."""
    value = ops.cast(reader.read(name), variable.dtype)
    return value if value.shape == variable.shape else ops.reshape(value, variable.shape)


def compare(variables: Mapping[str, keras.Variable], reader: Reader, strict: bool) -> LoadReport:
    """Says what would become of each variable, or raises ValueError; see `load_weights`."""
    report, clashes = LoadReport(), []
    for name, variable in variables.items():
        found, expected = reader.shapes.get(name), tuple(variable.shape)
        if found is None:
            report.missing.append(name)
        elif found == expected:
            report.loaded.append(name)
        elif _squeezed(found) == _squeezed(expected):
            report.loaded.append(name)
            report.reshaped[name] = (found, expected)
        else:
            clashes.append(f"{name} is {found} there and {expected} in the model")
    report.unused = [name for name in reader.shapes if name not in variables and not names.is_optimizer_variable(name)]

    if clashes:
        raise ValueError(f"{reader.where} does not fit the model: {some(clashes)}; is it of another configuration?")
    encoder = [name for name in report.missing if names.is_encoder(name)]
    if strict and encoder:
        raise ValueError(
            f"{reader.where} has no value for {len(encoder)} variables of the encoder: {some(encoder)} "
            f"(it has others that the model does not know: {some(report.unused) or 'none'}); "
            "strict=False would leave them as they are"
        )
    if not report.loaded:
        raise ValueError(f"{reader.where} holds no variable of this model; it holds {some(report.unused) or 'nothing'}")
    return report


def check_finite(value: Any, name: str, where: str) -> Any:
    """Returns a variable that was read, where all its values are finite.

    This is one more pass over the memory: for BERT-Base some 0.1 s beside the second or more that loading takes.

    Raises:
        ValueError: names the variable and counts its values that are NaN or infinite.
    """
    count = not_finite(value)
    if count:
        raise ValueError(
            f"{where}: {name} holds {count:,} values that are NaN or infinite: its training diverged, or the file is "
            "damaged; allow_nan=True (tf-bert convert --allow_nan) takes it all the same"
        )
    return value


def cast(value: Any, dtype: np.dtype, name: str, where: str) -> np.ndarray:
    """Returns a variable in another dtype.

    Raises:
        ValueError: a value is too large for it and would become infinite.
    """
    array = np.asarray(value)
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore"):
        changed = array.astype(dtype)
    lost = np.isfinite(array) & ~np.isfinite(changed)
    if lost.any():
        raise ValueError(
            f"{where}: {name} holds {np.count_nonzero(lost):,} values that are too large for {np.dtype(dtype).name}, "
            f"such as {float(array[lost][0]):.6g}; bfloat16 has the range of float32"
        )
    return changed


def not_finite(value: Any) -> int:
    """Counts the values of an array or tensor that are NaN or infinite."""
    array = np.asarray(value)
    if array.dtype.kind in "biu":
        return 0
    return int(array.size - np.count_nonzero(np.isfinite(array)))


def _squeezed(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if size != 1]


def some(items: list[str], most: int = 4) -> str:
    """The first few of a list, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
