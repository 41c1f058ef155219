"""Gradients of one replica's share of the loss, of a whole batch or of micro-batches that are added up."""

from collections.abc import Callable

import tensorflow as tf

from tf_bert.trainer.optimization import sum_of_squares


def gradients_of(
    forward: Callable,
    inputs: dict,
    position: tf.Tensor,
    variables: list,
    parts: int,
    zeros: tf.Tensor,
    clips_slices: bool,
) -> tuple[list, tf.Tensor, tf.Tensor, list[int]]:
    """Differentiates one forward pass, or several, one micro-batch after the other.

    Args:
        forward: takes inputs and the number of the forward pass, and returns the loss and sums to add up.
        inputs: the batch of this replica.
        position: the number of its first forward pass in the run, int64.
        variables: what to differentiate by.
        parts: number of micro-batches.
        zeros: what the sums of no micro-batch are.
        clips_slices: whether the squares of gradients that are slices are wanted, before those of one row are merged.

    Returns:
        The gradients, None where there is none; the sums; the sum of squares of slices; and which gradients were slices
        where these squares are wanted.
    """
    sliced, with_gradient = [], []

    def differentiate(inputs, position):
        with tf.GradientTape() as tape:
            loss, sums = forward(inputs, position)
        gradients = tape.gradient(loss, variables)
        slices = [(i, g) for i, g in enumerate(gradients) if isinstance(g, tf.IndexedSlices)]
        sliced[:] = [i for i, _ in slices] if clips_slices else []
        squares = sum_of_squares([g for _, g in slices]) if sliced else tf.zeros([], zeros.dtype)
        with_gradient[:] = [gradient is not None for gradient in gradients]
        gradients = [gradient if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
        return gradients, sums, tf.cast(squares, zeros.dtype)

    if parts == 1:
        return *differentiate(inputs, position), sliced
    micro_batches = split(inputs, parts)

    def add_micro_batch(i, total_gradients, total_sums, total_squares):
        micro_batch = {name: value[i] for name, value in micro_batches.items()}
        gradients, sums, squares = differentiate(micro_batch, position * parts + tf.cast(i, position.dtype))
        added = [
            total if gradient is None else total + tf.cast(gradient, total.dtype)
            for total, gradient in zip(total_gradients, gradients, strict=True)
        ]
        return i + 1, added, total_sums + sums, total_squares + squares

    empty = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
    _, gradients, sums, squares = tf.while_loop(
        lambda i, *_: i < parts,
        add_micro_batch,
        (0, empty, zeros, tf.zeros([], zeros.dtype)),
        parallel_iterations=1,
    )
    gradients = [gradient if has else None for gradient, has in zip(gradients, with_gradient, strict=True)]
    return gradients, sums, squares, sliced


def split(inputs: dict, parts: int) -> dict:
    """Cuts a batch [B, ...] into micro-batches [parts, B / parts, ...], filled up with examples of weight 0."""
    first = tf.nest.flatten(inputs)[0]
    size = tf.shape(first)[0] if first.shape[0] is None else first.shape[0]
    micro_size = (size + parts - 1) // parts
    padding = micro_size * parts - size
    if not isinstance(padding, int) or padding:
        inputs = {"sample_weight": tf.ones([size]), **inputs}

    def split_one(name, value):
        filling = tf.repeat(value[:1], padding, axis=0)
        value = tf.concat([value, tf.zeros_like(filling) if name == "sample_weight" else filling], axis=0)
        return tf.reshape(value, tf.concat([[parts, micro_size], tf.shape(value)[1:]], axis=0))

    return {name: split_one(name, value) for name, value in inputs.items()}
