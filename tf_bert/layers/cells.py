"""Recurrent cells: Keras's own by name, and LSTM with peepholes and coupled gates."""

import keras
from keras import ops

from tf_bert.backend import few_rows


@keras.saving.register_keras_serializable("tf_bert")
class PeepholeLSTMCell(keras.layers.Layer):
    """LSTM whose gates see the cell state, or whose input gate is what the forget gate leaves.

    With peepholes (Gers & Schmidhuber 2000; Graves 2013, equations 7 to 11)::

        i = sigmoid(W_i x + U_i h + p_i * c + b_i)
        f = sigmoid(W_f x + U_f h + p_f * c + b_f)
        c' = f * c + i * tanh(W_c x + U_c h + b_c)
        o = sigmoid(W_o x + U_o h + p_o * c' + b_o)
        h' = o * tanh(c')

    With coupled gates (Greff et al. 2017, variant CIFG) there is no input gate: i = 1 - f. The bias of the forget gate
    starts at 1.

    Args:
        units: width H of the states.
        peepholes: whether the gates see the cell state.
        coupled_gates: whether i = 1 - f.

    Call arguments:
        inputs: [B, I].
        states: h and c, [B, H] each.

    Returns:
        h' [B, H], and the list of h' and c'.

    Example:
        >>> cell = PeepholeLSTMCell(4, coupled_gates=True)
        >>> output, states = cell(ops.ones((2, 3)), cell.get_initial_state(2))
        >>> output.shape, len(states), cell.kernel.shape  # three gates instead of four
        (TensorShape([2, 4]), 2, TensorShape([3, 12]))
    """

    def __init__(self, units: int, peepholes: bool = True, coupled_gates: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.units, self.peepholes, self.coupled_gates = units, peepholes, coupled_gates
        self.state_size, self.output_size = [units, units], units
        self.gates = ("f", "c", "o") if coupled_gates else ("i", "f", "c", "o")

    def build(self, inputs_shape, states_shape=None):
        """Makes the variables; gates stand side by side, in the order i, f, c, o."""
        width = self.units * len(self.gates)
        self.kernel = self.add_weight(shape=(inputs_shape[-1], width), name="kernel")
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, width), initializer="orthogonal", name="recurrent_kernel"
        )
        self.bias = self.add_weight(shape=(width,), initializer=self.start_bias, name="bias")
        if self.peepholes:
            self.peephole = {
                gate: self.add_weight(shape=(self.units,), name=f"peephole_{gate}")
                for gate in self.gates
                if gate != "c"
            }

    def start_bias(self, shape, dtype=None):
        """1 for the forget gate, 0 for the others."""
        return ops.repeat(ops.cast([gate == "f" for gate in self.gates], dtype), self.units)

    def call(self, inputs, states, training=None):
        """One step."""
        h, c = states
        z = ops.matmul(inputs, self.kernel) + ops.matmul(h, self.recurrent_kernel) + self.bias
        z = dict(zip(self.gates, ops.split(z, len(self.gates), axis=-1), strict=True))
        f = self.gate("f", z, c)
        i = 1 - f if self.coupled_gates else self.gate("i", z, c)
        c = f * c + i * ops.tanh(z["c"])
        h = self.gate("o", z, c) * ops.tanh(c)
        return h, [h, c]

    def gate(self, name, z, c):
        """sigmoid(z + p * c)."""
        return ops.sigmoid(z[name] + self.peephole[name] * c if self.peepholes else z[name])

    def get_initial_state(self, batch_size=None):
        """Zeros [B, H] for h and c."""
        return [ops.zeros((batch_size, self.units), self.compute_dtype) for _ in range(2)]

    def get_config(self):
        """What `from_config` needs."""
        own = {"units": self.units, "peepholes": self.peepholes, "coupled_gates": self.coupled_gates}
        return super().get_config() | own


# Name -> Keras's cell, and Keras's layer of it, which runs on cuDNN where there is a GPU.
KERAS_CELLS = {
    "lstm": (keras.layers.LSTMCell, keras.layers.LSTM),
    "gru": (keras.layers.GRUCell, keras.layers.GRU),
    "rnn": (keras.layers.SimpleRNNCell, keras.layers.SimpleRNN),
}
OWN_CELLS = {
    "peephole_lstm": {"peepholes": True, "coupled_gates": False},
    "coupled_lstm": {"peepholes": False, "coupled_gates": True},
    "peephole_coupled_lstm": {"peepholes": True, "coupled_gates": True},
}


def make_cell(cell: str, units: int, **kwargs) -> keras.layers.Layer:
    """A recurrent cell by its name.

    Args:
        cell: ``lstm``, ``gru``, ``rnn`` (Keras's), ``peephole_lstm``, ``coupled_lstm`` or ``peephole_coupled_lstm``.
        units: width of its states.
        **kwargs: of the layer, such as ``dtype``.

    Raises:
        ValueError: for another name.

    Example:
        >>> make_cell("gru", 8).state_size
        8
    """
    if cell in KERAS_CELLS:
        return KERAS_CELLS[cell][0](units, **kwargs)
    if cell in OWN_CELLS:
        return PeepholeLSTMCell(units, **OWN_CELLS[cell], **kwargs)
    raise ValueError(f"unknown cell {cell!r}; known are {', '.join([*KERAS_CELLS, *OWN_CELLS])}")


def make_recurrent_layer(cell: str, units: int, **kwargs) -> keras.layers.Layer:
    """A layer that runs the cell of a name over a sequence and returns all outputs and the last states.

    Example:
        >>> outputs, h, c = make_recurrent_layer("lstm", 4)(ops.ones((2, 3, 5)))
        >>> outputs.shape, c.shape
        (TensorShape([2, 3, 4]), TensorShape([2, 4]))
    """
    kwargs |= {"return_sequences": True, "return_state": True}
    if cell in KERAS_CELLS:
        layer = KERAS_CELLS[cell][1](units, **kwargs)
    else:
        layer = keras.layers.RNN(make_cell(cell, units, dtype=kwargs.get("dtype")), **kwargs)
    layer.cell.call = few_rows(layer.cell.call)
    return layer
