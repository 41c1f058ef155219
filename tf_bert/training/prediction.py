"""Predictions for many examples of different lengths: like with like, so that padding costs next to nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

SEQUENCES = ("input_ids", "input_mask", "segment_ids")


def stack(features: Iterable, names: Sequence[str] = SEQUENCES) -> dict[str, np.ndarray]:
    """The inputs of all examples, int32 [N, S], from objects that hold them as lists.

    Example:
        >>> import types
        >>> stack([types.SimpleNamespace(input_ids=[2, 3]), types.SimpleNamespace(input_ids=[2, 4])], ["input_ids"])
        {'input_ids': array([[2, 3], [2, 4]], dtype=int32)}
    """
    features = list(features)
    return {name: np.array([getattr(feature, name) for feature in features], np.int32) for name in names}


def predict_by_length(
    model: keras.Model,
    inputs: Mapping[str, np.ndarray],
    batch_size: int,
    outputs: Sequence[str],
    fixed_length: bool = False,
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Yields outputs of a model for groups of examples of about one length, each cut to its longest example.

    The outputs at real positions are those of the padded examples, but for rounding. Every example comes once; the last
    batch is as short as it has to be.

    Args:
        model: takes a dict of inputs and returns a dict.
        inputs: int32 [N, S], among them ``input_mask``.
        batch_size: examples in a batch.
        outputs: which outputs are wanted.
        fixed_length: leave all padding, and fill up the last batch: one shape, as TPUs and XLA need it.

    Yields:
        The numbers of the examples of a batch [B], and the outputs for them, [B, ...].
    """
    function = _compiled(model, tuple(inputs), tuple(outputs))
    lengths = inputs["input_mask"].sum(axis=1)
    order = np.arange(len(lengths)) if fixed_length else np.argsort(-lengths, kind="stable")
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        width = inputs["input_mask"].shape[1] if fixed_length else max(1, int(lengths[rows].max()))
        taken = np.resize(rows, batch_size) if fixed_length else rows
        found = function({name: values[taken, :width] for name, values in inputs.items()})
        yield rows, {name: value.numpy()[: len(rows)] for name, value in found.items()}


def _compiled(model: keras.Model, names: tuple[str, ...], outputs: tuple[str, ...]):
    """One graph for all lengths; it is kept with the model."""
    functions = model.__dict__.setdefault("_prediction_functions", {})
    if (names, outputs) not in functions:
        signature = {name: tf.TensorSpec([None, None], tf.int32) for name in names}

        @tf.function(input_signature=[signature])
        def predict(inputs):
            found = model(inputs, training=False)
            return {name: found[name] for name in outputs}

        functions[names, outputs] = predict
    return functions[names, outputs]
