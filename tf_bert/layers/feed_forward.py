"""The position-wise feed-forward network, and the activations it may have."""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable("tf_bert")
def gelu(x):
    """Gaussian error linear unit in its tanh approximation, as in the original (Hendrycks & Gimpel 2016).

    Keras's own default and Hugging Face's "gelu" are `gelu_erf`; the two differ by up to 5e-4.

    The original writes x / 2 (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3); the same is x sigmoid(2u), where
    nothing cancels for negative x. On a CPU (AVX2) it is faster too, even than TensorFlow's fused kernel of the other.
    """
    scale = 2.0 * math.sqrt(2.0 / math.pi)
    return x * ops.sigmoid(x * (scale + scale * 0.044715 * ops.square(x)))


@keras.saving.register_keras_serializable("tf_bert")
def gelu_erf(x):
    """Gaussian error linear unit, exact: x times the normal distribution function of x."""
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


ACTIVATIONS = {"gelu": gelu, "gelu_erf": gelu_erf, "relu": ops.relu, "tanh": ops.tanh, "linear": None, "": None}


def get_activation(activation: str | Callable | None) -> Callable | None:
    """The function that a configuration names.

    Args:
        activation: ``gelu`` (tanh approximation), ``gelu_erf``, ``relu``, ``tanh`` or ``linear``, in any case; None or
            ``""`` for none; a function is returned as it is, and loaded from what Keras saved in its place.

    Returns:
        The function, or None where there is none to apply.

    Raises:
        ValueError: the name is not one of these.

    Example:
        >>> get_activation("GELU") is gelu, get_activation("linear") is None
        (True, True)
    """
    if isinstance(activation, dict):
        return keras.saving.deserialize_keras_object(activation)
    if not isinstance(activation, str):
        return activation
    if activation.lower() not in ACTIVATIONS:
        names = ", ".join(filter(None, ACTIVATIONS))
        raise ValueError(f"unknown activation {activation!r}; known are {names}")
    return ACTIVATIONS[activation.lower()]


def create_initializer(initializer_range: float = 0.02) -> keras.initializers.Initializer:
    """A normal distribution cut off at two standard deviations and not rescaled, as the original initialises with."""
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def at_each_position(function: Callable, x):
    """``function`` of each vector of ``x`` [..., H], called with a matrix: [..., output size].

    The original kept its tensors as matrices throughout. TensorFlow fuses a bias with products of matrices only.
    """
    y = function(ops.reshape(x, (-1, x.shape[-1])))
    return ops.reshape(y, (*ops.shape(x)[:-1], y.shape[-1]))


@keras.saving.register_keras_serializable("tf_bert")
class FeedForward(keras.layers.Layer):
    """Position-wise feed-forward network: W2 act(W1 x + b1) + b2 (Vaswani et al. 2017, section 3.3).

    Args:
        intermediate_size: width of the inner layer.
        hidden_size: width of the output.
        activation: of the inner layer, see `get_activation`.
        kernel_initializer: a Keras initializer or its name.

    Call arguments:
        x: [B, S, H].

    Returns:
        [B, S, hidden_size].

    Example:
        >>> FeedForward(64, 16)(keras.ops.ones([2, 5, 16])).shape
        TensorShape([2, 5, 16])
    """

    def __init__(
        self,
        intermediate_size: int,
        hidden_size: int,
        activation: str | Callable | None = "gelu",
        kernel_initializer: Any = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_size, self.hidden_size, self.activation = intermediate_size, hidden_size, activation
        self.kernel_initializer = keras.initializers.get(kernel_initializer or create_initializer())
        options = {"name": "dense", "dtype": self.dtype_policy}
        self.intermediate = keras.layers.Dense(
            intermediate_size,
            activation=get_activation(activation),
            kernel_initializer=self.kernel_initializer.clone(),  # an initializer repeats its numbers: one for each
            **options,
        )
        self.project = keras.layers.Dense(hidden_size, kernel_initializer=self.kernel_initializer.clone(), **options)

    def build(self, x_shape):
        """Makes ``intermediate/dense`` and ``output/dense``, beside the attention as in checkpoints."""
        block, _, _ = self.path.rpartition("/")
        with keras.name_scope("intermediate", override_parent=block):
            self.intermediate.build(x_shape)
        with keras.name_scope("output", override_parent=block):
            self.project.build((*x_shape[:-1], self.intermediate_size))

    def call(self, x):
        """Applies the network at each position."""
        return at_each_position(lambda rows: self.project(self.intermediate(rows)), x)

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "intermediate_size": self.intermediate_size,
            "hidden_size": self.hidden_size,
            "activation": self.activation,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
