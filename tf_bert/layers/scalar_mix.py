"""A learned weighted sum of the layers of an encoder."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("tf_bert")
class ScalarMix(keras.layers.Layer):
    """``gamma * sum_j softmax(s)_j h_j`` over the layers of an encoder (Peters et al. 2018, equation 1).

    The weights start equal, gamma at 1.

    Call arguments:
        layers: a list of L tensors [..., H].

    Returns:
        [..., H].

    Example:
        >>> mix = ScalarMix()
        >>> print(mix([ops.array([1.0, 2.0]), ops.array([3.0, 6.0])]).numpy())
        [2. 4.]
    """

    def build(self, layers_shape):
        """Makes ``scalars`` [L] and ``gamma``."""
        self.scalars = self.add_weight(shape=(len(layers_shape),), initializer="zeros", name="scalars")
        self.gamma = self.add_weight(shape=(), initializer="ones", name="gamma")

    def call(self, layers):
        """Mixes the layers."""
        weights = ops.unstack(ops.softmax(self.scalars))
        return self.gamma * sum(weight * layer for weight, layer in zip(weights, layers, strict=True))
