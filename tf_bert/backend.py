"""The few things that ``keras.ops`` has no word for; the only module below ``data/`` that imports TensorFlow."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf


def known_values(x: Any) -> np.ndarray | None:
    """The values of a tensor in an eager call; None while a graph is traced, when there are none yet."""
    return None if isinstance(x, keras.KerasTensor) or tf.is_symbolic_tensor(x) else np.asarray(x)
