"""TensorFlow operations that ``keras.ops`` does not provide; below ``data/`` only this imports TensorFlow."""

import contextvars
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def known_values(x: Any) -> np.ndarray | None:
    """The values of a tensor in an eager call; None while a graph is traced, when there are none yet."""
    return None if isinstance(x, keras.KerasTensor) or tf.is_symbolic_tensor(x) else np.asarray(x)


def at_least_float32(x: Any):
    """``x`` in float32, or in float64 where it is: what softmax and losses are computed in, whatever the policy."""
    return keras.ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


def compiled(function: Callable, jit_compile: bool = False) -> Callable:
    """``function`` of tensors as a graph, traced anew for each combination of shapes."""

    def traced(*inputs):
        before = _in_place.set(not jit_compile)
        try:
            return function(*inputs)
        finally:
            _in_place.reset(before)

    return tf.function(traced, jit_compile=jit_compile, autograph=False)


_in_place = contextvars.ContextVar("in_place", default=False)


def write_slice(x: Any, start: tuple, values: Any):
    """``x`` with ``values`` from ``start`` on; in a graph of `compiled` without a copy of ``x`` where nobody needs it.

    XLA does that by itself with `keras.ops.slice_update`, and has no word for the other.
    """
    if not _in_place.get():
        return keras.ops.slice_update(x, start, values)
    start = tf.stack(start)
    ends, ones = start + tf.shape(values), tf.ones_like(start)
    return tf.raw_ops.TensorStridedSliceUpdate(input=x, begin=start, end=ends, strides=ones, value=values)


def product_with_transposed(x: Any, y: Any):
    """x [R, H] times the transpose of y [V, H], which is not written out, nor is that of its gradient."""
    return tf.matmul(x, y, transpose_b=True)


def uniform(shape: Any, seed: Any):
    """Numbers in [0, 1), float32, that depend on ``seed`` [2] alone."""
    return tf.random.stateless_uniform(shape, tf.cast(seed, "int32"))


def of_all_replicas(x: Any) -> tuple[Any, Any]:
    """``x`` [B, ...] of all replicas, one behind the other [G, ...], and at which row that of this replica begins."""
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return x, tf.constant(0)
    sizes = replica.all_gather(tf.shape(x)[:1], axis=0)
    return replica.all_gather(x, axis=0), tf.reduce_sum(sizes[: replica.replica_id_in_sync_group])


@tf.RegisterGradient("FewRowsMatMul")
def _few_rows_gradient(product: tf.Operation, gradient: Any) -> tuple[Any, Any]:
    if product.get_attr("transpose_a") or product.get_attr("transpose_b"):
        raise NotImplementedError("few_rows takes matrices as they stand, not transposed")
    x, w = product.inputs
    return tf.transpose(tf.matmul(w, gradient, transpose_b=True)), tf.matmul(x, gradient, transpose_a=True)


def few_rows(function: Callable) -> Callable:
    """``function``; in a graph, its products x w, where x has few rows, get their gradient another way.

    TensorFlow computes g w^T. The same as (w g^T)^T took a tenth of that time (CPU, 16 rows, w of 1536 x 2048), and a
    recurrence has one at every step.
    """

    def call(*inputs, **arguments):
        with tf.compat.v1.get_default_graph().gradient_override_map({"MatMul": "FewRowsMatMul"}):
            return function(*inputs, **arguments)

    return call


def scan(step: Callable, state: Any, inputs: Any, one_by_one: bool = False) -> tuple[Any, Any]:
    """A recurrence over the first axis, as one loop in the graph.

    `keras.ops.scan` wants outputs that look like the state; these may look otherwise.

    Args:
        step: takes the state and the inputs of one step, returns the state after it and its outputs.
        state: structure of tensors, before the first step.
        inputs: structure of tensors [T, ...].
        one_by_one: whether no step may begin, even in part, before the last one has ended: for the sake of memory.

    Returns:
        The state after the last step, and the outputs of all steps [T, ...].
    """
    step = few_rows(step)
    inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
    state = tf.nest.map_structure(tf.convert_to_tensor, state)
    first = tf.nest.flatten(inputs)[0]
    length = first.shape[0] or tf.shape(first)[0]
    read = tf.nest.map_structure(lambda x: tf.TensorArray(x.dtype, length).unstack(x), inputs)
    _, example = step(state, tf.nest.map_structure(lambda x: x[0], inputs))  # only to see what outputs look like
    written = tf.nest.map_structure(lambda x: tf.TensorArray(x.dtype, length, element_shape=x.shape), example)

    def body(t, state, written):
        state, outputs = step(state, tf.nest.map_structure(lambda array: array.read(t), read))
        return t + 1, state, tf.nest.map_structure(lambda array, x: array.write(t, x), written, outputs)

    loop = (tf.constant(0), state, written)
    options = {"maximum_iterations": length, "parallel_iterations": 1 if one_by_one else 10}
    _, state, written = tf.while_loop(lambda t, *_: t < length, body, loop, **options)
    return state, tf.nest.map_structure(lambda array: array.stack(), written)
