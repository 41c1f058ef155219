"""The few things that ``keras.ops`` has no word for; the only module below ``data/`` that imports TensorFlow."""

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
    return tf.function(function, jit_compile=jit_compile, autograph=False)
