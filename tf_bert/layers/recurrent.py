"""Recurrent encoders, and the bridge that hands their states to a decoder."""

import keras
from keras import ops

from tf_bert.layers.cells import make_recurrent_layer


@keras.saving.register_keras_serializable("tf_bert")
class RecurrentEncoder(keras.layers.Layer):
    """A stack of recurrent layers over the source (Sutskever et al. 2014; Cho et al. 2014).

    Args:
        units: width H of each direction.
        num_layers: number of layers L.
        cell: see `tf_bert.layers.cells.make_cell`.
        bidirectional: whether each layer reads the source from both ends (Schuster & Paliwal 1997).
        residual: whether each layer but the first adds its input to its output (Wu et al. 2016, section 3.1).
        dropout: of what each layer but the first reads (Zaremba et al. 2014).

    Call arguments:
        x: [B, S, E].
        attention_mask: [B, S], true for real positions, which come first.

    Returns:
        The outputs of the last layer [B, S, H], or [B, S, 2H] for both directions; and the states after the last real
        position (of the second direction: after the first position), a list over layers of lists over directions of
        lists of [B, H].

    Example:
        >>> encoder = RecurrentEncoder(4, num_layers=2, bidirectional=True)
        >>> outputs, states = encoder(ops.ones((2, 3, 5)))
        >>> outputs.shape, len(states), len(states[0]), len(states[0][0])
        (TensorShape([2, 3, 8]), 2, 2, 2)
    """

    def __init__(
        self,
        units: int,
        num_layers: int = 1,
        cell: str = "lstm",
        bidirectional: bool = False,
        residual: bool = False,
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units, self.num_layers, self.cell = units, num_layers, cell
        self.bidirectional, self.residual = bidirectional, residual
        self.directions = 2 if bidirectional else 1

        def layers(way, count):
            options = {"go_backwards": way == "backward", "dtype": self.dtype_policy}
            return [make_recurrent_layer(cell, units, name=f"layer_{i}_{way}", **options) for i in range(count)]

        self.forward, self.backward = layers("forward", num_layers), layers("backward", num_layers * bidirectional)
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape):
        """Makes the variables."""
        for i in range(self.num_layers):
            for layer in self.both(i):
                layer.build(x_shape)
            x_shape = (*x_shape[:-1], self.units * self.directions)

    def both(self, i):
        """The directions of a layer."""
        return self.forward[i : i + 1] + self.backward[i : i + 1]

    def call(self, x, attention_mask=None, training=None):
        """Reads the source."""
        mask = real = None
        if attention_mask is not None:
            # cuDNN refuses a row of padding alone: it reads its first position, and what comes of that is put out.
            mask = ops.cast(attention_mask, "bool")
            real = ops.any(mask, axis=1)  # [B]
            first = ops.arange(ops.shape(mask)[1]) == 0
            mask = ops.where(real[:, None], mask, first)
        states = []
        for i in range(self.num_layers):
            inputs = self.dropout(x, training=training) if i else x
            results = [layer(inputs, mask=mask, training=training) for layer in self.both(i)]
            outputs = [ops.flip(y, axis=1) if way else y for way, (y, *_) in enumerate(results)]
            outputs = ops.concatenate(outputs, axis=-1) if self.bidirectional else outputs[0]
            x = outputs + x if self.residual and i else outputs
            states.append([list(last) for _, *last in results])
        if real is not None:
            x = ops.where(real[:, None, None], x, 0)
            states = [[[ops.where(real[:, None], h, 0) for h in way] for way in layer] for layer in states]
        return x, states

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "units": self.units,
            "num_layers": self.num_layers,
            "cell": self.cell,
            "bidirectional": self.bidirectional,
            "residual": self.residual,
            "dropout": self.dropout.rate,
        }


@keras.saving.register_keras_serializable("tf_bert")
class StateBridge(keras.layers.Layer):
    """The states of an encoder as the first states of a decoder.

    States of one direction and of the decoder's width are handed on as they are (Sutskever et al. 2014). Others go
    through a layer: ``tanh(W [h; h'])`` for outputs (Bahdanau et al. 2015, A.2.2, take h' of the backward direction
    alone), and the same without tanh for the cell states of LSTM, which have no bounds.

    Args:
        units: width H of the decoder's states.

    Call arguments:
        states: from `RecurrentEncoder`.

    Returns:
        A list over layers of lists of [B, H].
    """

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build_for(self, encoder: RecurrentEncoder) -> None:
        """Makes the variables for the states of an encoder."""
        names = ("h",) if encoder.cell in ("gru", "rnn") else ("h", "c")
        needed = encoder.bidirectional or encoder.units != self.units
        self.dense = [
            keras.layers.Dense(
                self.units,
                activation="tanh" if name == "h" else None,
                dtype=self.dtype_policy,
                name=f"layer_{i}_{name}",
            )
            for i in range(encoder.num_layers * needed)
            for name in names
        ]
        with keras.name_scope(self.name):
            for dense in self.dense:
                dense.build((None, encoder.units * encoder.directions))
        self.built = True

    def call(self, states):
        """The decoder's first states."""
        if not self.dense:
            return [layer[0] for layer in states]
        dense = iter(self.dense)
        return [
            [next(dense)(ops.concatenate(directions, axis=-1)) for directions in zip(*layer, strict=True)]
            for layer in states
        ]

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {"units": self.units}
