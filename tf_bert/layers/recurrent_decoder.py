"""Recurrent decoders: the source as first state, as context at each step, or through attention.

Letters in shapes: B batch, S source length, T target length, E width of embeddings, H width of states, M width of the
encoder's outputs (the memory).
"""

from typing import Any

import keras
from keras import ops

from tf_bert.backend import scan
from tf_bert.layers.alignment import Attention, LocalAttention
from tf_bert.layers.cells import make_cell
from tf_bert.layers.hard_attention import HardAttention

MODES = ("plain", "context", "bahdanau", "luong")


@keras.saving.register_keras_serializable("tf_bert")
class RecurrentDecoder(keras.layers.Layer):
    """Recurrent cells that write the target word by word.

    With x_t the embedding of the word before, s_t the state of the top layer, c_t a context and o_t the output:

    - ``plain``: s_t = f(x_t, s_{t-1}), o_t = s_t; the source is the first state alone (Sutskever et al. 2014).
    - ``context``: s_t = f([x_t; c], s_{t-1}) with one context c for all steps, which the output sees as well: s_0, as
      the bridge hands it on (Cho et al. 2014, section 2.2).
    - ``bahdanau``: c_t = attention(s_{t-1}), s_t = f([x_t; c_t], s_{t-1}) (Bahdanau et al. 2015, section 3.1).
    - ``luong``: s_t = f([x_t; o_{t-1}], s_{t-1}), c_t = attention(s_t) (Luong et al. 2015, section 3); o_{t-1} only
      with ``input_feeding``.

    The output is o_t = tanh(W [c_t; s_t]) (Luong, equation 5). With ``maxout`` it is Bahdanau's (A.2.2): the maxima of
    pairs of U s + V x_t + C c_t, where s is s_{t-1} for ``bahdanau`` and s_t else.

    Args:
        units: width H of states and outputs.
        mode: one of the four.
        num_layers, cell, residual, dropout: as for `RecurrentEncoder`.
        attention: options of `Attention`, such as ``score``; with ``alignment`` those of `LocalAttention`, with
            ``estimator`` those of `HardAttention`.
        input_feeding: whether ``luong`` feeds the output back.
        maxout: which output.

    Example:
        >>> decoder = RecurrentDecoder(4, "luong", attention={"score": "general"})
        >>> decoder.build((None, None, 3), (None, None, 5))
        >>> state, memory = decoder.start([[ops.zeros((2, 4))] * 2], ops.ones((2, 6, 5)), ops.ones((2, 6), "bool"))
        >>> outputs, weights, _ = decoder(ops.ones((2, 7, 3)), state, memory)
        >>> outputs.shape, weights.shape
        (TensorShape([2, 7, 4]), TensorShape([2, 7, 6]))
    """

    def __init__(
        self,
        units: int,
        mode: str = "bahdanau",
        num_layers: int = 1,
        cell: str = "lstm",
        residual: bool = False,
        dropout: float = 0.0,
        attention: dict[str, Any] | None = None,
        input_feeding: bool = True,
        maxout: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if mode not in MODES:
            raise ValueError(f"unknown mode {mode!r}; known are {', '.join(MODES)}")
        self.units, self.mode, self.num_layers, self.cell = units, mode, num_layers, cell
        self.residual, self.input_feeding, self.maxout = residual, input_feeding, maxout
        self.cells = [make_cell(cell, units, dtype=self.dtype_policy, name=f"layer_{i}") for i in range(num_layers)]
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.attention_options = attention or {"score": "additive"}
        self.attention = self.make_attention() if mode in ("bahdanau", "luong") else None
        self.readout = (
            None
            if mode == "plain"
            else keras.layers.Dense(
                units * (2 if maxout else 1),
                activation=None if maxout else "tanh",
                use_bias=False,
                dtype=self.dtype_policy,
                name="readout",
            )
        )

    def make_attention(self):
        """The attention that the options name."""
        kind = Attention
        if "alignment" in self.attention_options:
            kind = LocalAttention
        elif "estimator" in self.attention_options:
            kind = HardAttention
            if self.attention_options["estimator"] == "reinforce":
                raise ValueError("a decoder trains hard attention with the estimator 'gumbel'; see reinforce_loss")
        options = {"units": self.units} | self.attention_options
        return kind(**options, dtype=self.dtype_policy, name="attention")

    def build(self, x_shape, memory_shape):
        """Makes the variables for embeddings [B,T,E] and a memory [B,S,M]."""
        width, memory_width = x_shape[-1], memory_shape[-1]
        context = self.units if self.mode == "context" else memory_width
        seen = self.units + context + (width if self.maxout else 0)
        read = {
            "plain": width,
            "context": width + context,
            "bahdanau": width + context,
            "luong": width + (self.units if self.input_feeding else 0),
        }
        for i, cell in enumerate(self.cells):
            cell.build((None, self.units if i else read[self.mode]))
        if self.attention is not None:
            self.attention.build((None, None, self.units), memory_shape)
        if self.readout is not None:
            self.readout.build((None, seen))
        self.built = True

    def start(self, states, memory, mask) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state before the first step, and what stays the same at each step.

        Args:
            states: first states of the cells, from `StateBridge`.
            memory: [B,S,M], the encoder's outputs.
            mask: [B,S], true for real positions.
        """
        fixed = {"values": memory, "mask": ops.cast(mask, "bool")}
        if self.attention is not None:
            fixed["keys"] = self.attention.project_keys(memory)
        if self.mode == "context":
            fixed["context"] = states[-1][0]
        return {"cells": states, "output": ops.zeros_like(states[-1][0])}, fixed

    def step(self, x, state, memory, position=None, masks=None, noise=None):
        """One step.

        Args:
            x: [B,E].
            state: from `start` or the step before.
            memory: from `start`.
            position: number of the step; for local attention.
            masks: [B,L-1,H], dropout of what the layers but the first read, or None.
            noise: [B,S], of hard attention in training, or None.

        Returns:
            The output [B,H], the state after the step, and the weights [B,S] (zeros without attention).
        """
        cells, previous = state["cells"], state["cells"][-1][0]
        inputs, context, weights = [x], memory.get("context"), ops.zeros_like(memory["mask"], dtype=x.dtype)
        if self.mode == "bahdanau":
            context, weights = self.attend(previous, memory, position, noise)
        if self.mode in ("context", "bahdanau"):
            inputs.append(context)
        elif self.mode == "luong" and self.input_feeding:
            inputs.append(state["output"])
        top, cells = self.run_cells(ops.concatenate(inputs, axis=-1), cells, masks)
        if self.mode == "luong":
            context, weights = self.attend(top, memory, position, noise)
        output = self.read_out(x, previous if self.mode == "bahdanau" and self.maxout else top, context)
        return output, {"cells": cells, "output": output}, weights

    def attend(self, query, memory, position, noise):
        """Context [B,M] and weights [B,S] of one query [B,H] for each member of the batch."""
        weights = self.attention.compute_weights(
            query[:, None],
            memory["values"],
            attention_mask=memory["mask"],
            projected_keys=memory["keys"],
            **({} if position is None else {"positions": ops.reshape(position, (1,))}),
            **({} if noise is None else {"noise": noise[:, None], "training": True}),
        )
        return self.attention.weighted_sum(weights, memory["values"])[:, 0], weights[:, 0]

    def run_cells(self, x, states, masks):
        """The top layer's output [B,H], and the states of all layers."""
        new = []
        for i, (cell, state) in enumerate(zip(self.cells, states, strict=True)):
            inputs = x * masks[:, i - 1] if i and masks is not None else x
            output, state = cell(inputs, state)
            new.append(list(state))
            x = output + x if self.residual and i else output
        return x, new

    def read_out(self, x, state, context):
        """The output [B,H]."""
        if self.mode == "plain":
            return state
        seen = [context, state, x] if self.maxout else [context, state]
        hidden = self.readout(ops.concatenate(seen, axis=-1))
        return ops.max(ops.reshape(hidden, (-1, self.units, 2)), axis=-1) if self.maxout else hidden

    def call(self, x, state, memory, training=None):
        """All steps, with the right word before each of them (teacher forcing).

        Args:
            x: [B,T,E], embeddings of the words before.
            state: from `start`.
            memory: from `start`.

        Returns:
            The outputs [B,T,H], the weights [B,T,S] and the state after the last step.
        """

        def step(state, inputs):
            output, state, weights = self.step(state=state, memory=memory, **inputs)
            return state, (output, weights)

        inputs = {"x": time_first(x), **self.step_inputs(x, memory, training)}
        state, (outputs, weights) = scan(step, state, inputs)
        return time_first(outputs), time_first(weights), state

    def step_inputs(self, x, memory, training) -> dict[str, Any]:
        """What each step reads besides words, state and memory: [T,...] each, drawn for all steps at once."""
        batch, length = ops.shape(x)[:2]
        inputs = {"position": ops.arange(length)}
        if training and self.dropout.rate and self.num_layers > 1:
            ones = ops.ones((length, batch, self.num_layers - 1, self.units), self.compute_dtype)
            inputs["masks"] = self.dropout(ones, training=True)
        if training and isinstance(self.attention, HardAttention):
            inputs["noise"] = self.attention.draw_noise((length, batch, ops.shape(memory["mask"])[1]))
        return inputs

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "units": self.units,
            "mode": self.mode,
            "num_layers": self.num_layers,
            "cell": self.cell,
            "residual": self.residual,
            "dropout": self.dropout.rate,
            "attention": self.attention_options,
            "input_feeding": self.input_feeding,
            "maxout": self.maxout,
        }


def time_first(x):
    """[B,T,...] as [T,B,...] and back."""
    return ops.transpose(x, (1, 0, *range(2, len(x.shape))))


def repeat_rows(state, width: int):
    """A structure of tensors [B,...] with each row ``width`` times, [B*width,...].

    Example:
        >>> print(repeat_rows({"h": ops.array([1, 2])}, 2)["h"].numpy())
        [1 1 2 2]
    """
    return keras.tree.map_structure(lambda x: ops.repeat(x, width, axis=0), state) if width > 1 else state
