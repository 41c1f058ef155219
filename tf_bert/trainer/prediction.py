"""Predicts many examples in batches of like lengths, so that little is padding."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
        inputs: int32 [N, S] or, of several texts an example, [N, C, S]; among them ``input_mask``.
        batch_size: examples in a batch.
        outputs: which outputs are wanted.
        fixed_length: leave all padding, and fill up the last batch: one shape, as TPUs and XLA need it.

    Yields:
        The numbers of the examples of a batch [B], and the outputs for them, [B, ...].
    """
    function = prediction_function(model, tuple(inputs), tuple(outputs), inputs["input_mask"].ndim)
    lengths = lengths_of(inputs["input_mask"])
    order = np.arange(len(lengths)) if fixed_length else np.argsort(-lengths, kind="stable")
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        width = inputs["input_mask"].shape[-1] if fixed_length else max(1, int(lengths[rows].max()))
        taken = np.resize(rows, batch_size) if fixed_length else rows
        found = function({name: values[taken, ..., :width] for name, values in inputs.items()})
        yield rows, {name: value.numpy()[: len(rows)] for name, value in found.items()}


def predict_in_order(
    model: keras.Model,
    inputs: Mapping[str, np.ndarray],
    batch_size: int,
    outputs: Sequence[str],
    fixed_length: bool = False,
    filling: Mapping[str, float] | None = None,
    progress: Callable[[int], None] = lambda examples: None,
) -> dict[str, np.ndarray]:
    """Returns the outputs of a model for all examples, in the order of the examples.

    Args:
        model: see `predict_by_length`, as for those that are not here.
        inputs: at least one example.
        batch_size: examples in a batch.
        outputs: names of outputs [B, X, ...]; X may be the length of the longest example of a batch.
        fixed_length: whether to leave all padding.
        filling: name of an output -> value of the positions after an example's batch ended; 0 by default.
        progress: called with the number of examples of each batch.

    Returns:
        Name -> [N, X, ...], where X is that of the longest example.
    """
    found = {}
    for rows, of_batch in predict_by_length(model, inputs, batch_size, outputs, fixed_length):
        for name, value in of_batch.items():
            if name not in found:  # the first batch has the longest examples
                shape, fill = (len(inputs["input_mask"]), *value.shape[1:]), (filling or {}).get(name, 0.0)
                found[name] = np.full(shape, fill, value.dtype)
            found[name][rows, : value.shape[1]] = value
        progress(len(rows))
    return found


def needs_fixed_length(model: keras.Model) -> bool:
    """Whether all batches must have one shape: XLA and TPUs compile anew for every other one."""
    return bool(model.jit_compile) or isinstance(model.distribute_strategy, tf.distribute.TPUStrategy)


def lengths_of(input_mask: np.ndarray) -> np.ndarray:
    """The pieces of each example, [N], from [N, S]; from [N, C, S] those of its longest text."""
    return input_mask.sum(axis=-1).reshape(len(input_mask), -1).max(axis=1, initial=0)


def predict_tags(
    model: keras.Model,
    features: Sequence,
    words: Sequence[int],
    batch_size: int,
    fixed_length: bool = False,
    progress: Callable[[int], None] = lambda windows: None,
) -> tuple[list[np.ndarray], float]:
    """The likeliest label of each word.

    Args:
        model: a `tf_bert.models.bert_tasks.BertTokenClassifier`.
        features: windows, see `tf_bert.data.finetuning.tagging.convert_sentences_to_features`.
        words: how many words each sentence has.
        batch_size: windows in a batch.
        fixed_length: see `predict_by_length`.
        progress: called with the number of windows of each batch.

    Returns:
        For each sentence the ids of its labels, and the mean cross-entropy of the words with the labels of the windows.
    """
    labels, losses = [np.zeros(count, int) for count in words], []
    if not features:
        return labels, 0.0
    for rows, outputs in predict_by_length(model, stack(features), batch_size, ["logits"], fixed_length):
        for row, logits in zip(rows, outputs["logits"], strict=True):
            feature = features[row]
            positions, numbers = np.array(feature.places).T
            scores = logits[positions].astype(np.float64)  # [words, labels]
            labels[feature.sentence][numbers] = scores.argmax(axis=1)
            right = scores[np.arange(len(scores)), np.array(feature.label_ids)[positions]]
            losses.append(np.logaddexp.reduce(scores, axis=1) - right)
        progress(len(rows))
    return labels, float(np.concatenate(losses).mean())


def prediction_function(model: keras.Model, names: tuple[str, ...], outputs: tuple[str, ...], rank: int = 2):
    """One graph for all lengths; it is kept with the model."""
    functions = model.__dict__.setdefault("_prediction_functions", {})
    if (names, outputs, rank) not in functions:
        signature = {name: tf.TensorSpec([None] * rank, tf.int32) for name in names}

        @tf.function(input_signature=[signature])
        def predict(inputs):
            found = model(inputs, training=False)
            return {name: found[name] for name in outputs}

        functions[names, outputs, rank] = predict
    return functions[names, outputs, rank]
