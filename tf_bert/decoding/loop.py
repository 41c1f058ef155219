"""The decoding loop: one for greedy search, sampling and beam search, for recurrent decoders, the Transformer and GPT.

A model takes part with a step function and a state:

    logits, state, attention = step(tokens, index, state)

``tokens`` [R] are the last tokens, ``index`` the number of tokens generated so far, ``logits`` [R,V] say what comes
next, and ``attention`` [R,S] where the model looks in the source (None where there is none). ``state`` is any structure
of tensors with R rows: recurrent states, caches of keys and values. Its shapes stay the same from step to step, so that
the loop is one compiled graph. What does not change from step to step, such as the encoded source, the step function
keeps to itself.

Letters in shapes: B batch, W hypotheses kept for each member of the batch, R = B * W rows, T most tokens, V vocabulary,
S source length.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from tf_bert.decoding.constraints import Constraints


@dataclasses.dataclass(frozen=True, eq=False)
class Setup:
    """What holds for a whole decoding.

    Args:
        vocab_size: number of tokens V.
        end_id: the token that ends a hypothesis.
        pad_id: what fills ``tokens`` behind the end.
        length: room for tokens T.
        max_length: [B] int32, the most tokens of each member, the end among them; at most T.
        constraints: what may be generated.
        prefix: [B,P] int32, tokens that the output must begin with, filled with ``pad_id``; or None.
        seen: [B,V] booleans, tokens of the prompt, for the repetition penalty; or None.
        source_mask: [B,S] booleans, true for words of the source; where given, the step returns its attention.
        uniform: [B,W,T], random numbers for sampling, uniform in [0, 1).
        dtype: of the log-probabilities, ``float32`` or ``float64``.
    """

    vocab_size: int
    end_id: int
    pad_id: int
    length: int
    max_length: Any
    constraints: Constraints = Constraints()
    prefix: Any = None
    seen: Any = None
    source_mask: Any = None
    uniform: Any = None
    dtype: str = "float32"

    @property
    def batch(self):
        """B."""
        return ops.shape(self.max_length)[0]


class DecodingLoop:
    """The loop, in parts that a compiled graph, or a stream of single steps, puts together.

    Args:
        step: the model's step function.
        search: `Greedy`, `Sampling` or `BeamSearch`.
        setup: what holds throughout.
    """

    def __init__(self, step: Callable, search: Any, setup: Setup):
        self.step, self.search, self.setup = step, search, setup

    def start(self, start_ids, state) -> tuple:
        """The loop's variables before the first step: number of tokens, last tokens [R], search, model."""
        setup = self.setup
        carry = self.search.start(setup)
        shape = (setup.batch, self.search.width)
        if setup.source_mask is not None:
            carry["alignments"] = ops.zeros((*shape, setup.length), "int32")
        if setup.constraints.need_seen:
            seen = ops.zeros((setup.batch, setup.vocab_size), "bool") if setup.seen is None else setup.seen
            carry["seen"] = ops.repeat(ops.cast(seen, "bool")[:, None], self.search.width, axis=1)
        if setup.constraints.stops is not None:
            carry["text_states"] = setup.constraints.stops.first_states(shape)  # [B,W,K]
        last = ops.repeat(ops.cast(start_ids, "int32"), self.search.width, axis=0)
        return ops.convert_to_tensor(0, "int32"), last, carry, state

    def unfinished(self, index, last, carry, state):
        """Whether any member of the batch needs another step."""
        return ops.logical_not(ops.all(carry["done"]))

    def advance(self, index, last, carry, state) -> tuple:
        """One step: the model says what may come, the search chooses, the state follows the choice."""
        setup, width = self.setup, self.search.width
        logits, state, attention = self.step(last, index, state)
        logits = ops.reshape(ops.cast(logits, setup.dtype), (-1, width, setup.vocab_size))  # [B,W,V]
        if setup.source_mask is not None:
            attention = ops.reshape(ops.cast(attention, setup.dtype), (-1, width, ops.shape(attention)[-1]))  # [B,W,S]
            carry = {**carry, "alignments": write(carry["alignments"], index, ops.argmax(attention, axis=-1))}
        raw = log_probs = ops.log_softmax(logits)
        if setup.constraints.need_seen:
            log_probs = ops.log_softmax(setup.constraints.penalise(logits, carry["seen"]))
        allowed = setup.constraints.forbid(log_probs, index, setup)
        carry, tokens, parents = self.search.select(setup, index, raw, allowed, attention, carry)  # [B,W] both
        if parents is not None:
            state = keras.tree.map_structure(lambda x: gather_rows(x, parents, width), state)
        if "seen" in carry:
            new = ops.one_hot(tokens, setup.vocab_size, dtype="bool")
            carry = {**carry, "seen": ops.logical_or(carry["seen"], new)}
        if "text_states" in carry:
            carry = {**carry, "text_states": setup.constraints.stops.follow(carry["text_states"], tokens)[0]}
        return index + 1, ops.reshape(tokens, (-1,)), carry, state

    def run(self, start_ids, state) -> dict[str, Any]:
        """All steps, until every member of the batch is done.

        Args:
            start_ids: [B] int32, what the model is given first.
            state: the model's state, with R rows (`repeat_rows`).

        Returns:
            ``tokens`` [B,N,T] int32, best first, ``pad_id`` behind the end; ``lengths`` [B,N] with the end counted;
            ``log_probs`` [B,N], what the model says of the tokens; ``scores`` [B,N], what the search ranks by;
            ``alignments`` [B,N,T], for each token the source position with the most attention, where there is a source.
        """
        variables = self.start(start_ids, state)
        variables = ops.while_loop(self.unfinished, self.advance, variables, maximum_iterations=self.setup.length)
        return self.search.results(variables[2])

    def stream(self, start_ids, state, compiled: Callable = lambda function: function) -> Iterator[Any]:
        """The tokens [B,W] of one step after another, for a search that never goes back on a choice.

        Args:
            start_ids: [B] int32.
            state: the model's state, with R rows.
            compiled: makes the step a graph.
        """
        if self.search.revises:
            raise ValueError(f"{type(self.search).__name__} may drop a hypothesis later: its tokens cannot be streamed")
        advance = compiled(self.advance)
        variables = self.start(start_ids, state)
        while bool(self.unfinished(*variables)):
            variables = advance(*variables)
            yield ops.reshape(variables[1], (-1, self.search.width))


def write(buffer, index, values):
    """``buffer`` [...,T] with ``values`` [...] at ``index``."""
    here = ops.arange(ops.shape(buffer)[-1]) == index
    return ops.where(here, ops.expand_dims(ops.cast(values, buffer.dtype), -1), buffer)


def gather_beams(x, index):
    """Of x [B,W,...] those hypotheses [B,C,...] that index [B,C] names."""
    width = ops.shape(x)[1]
    rows = index + width * ops.arange(ops.shape(x)[0], dtype="int32")[:, None]
    return ops.take(ops.reshape(x, (-1, *ops.shape(x)[2:])), rows, axis=0)


def gather_rows(x, index, width):
    """`gather_beams` for x [R,...] with the hypotheses in the rows."""
    rows = index + width * ops.arange(ops.shape(index)[0], dtype="int32")[:, None]
    return ops.take(x, ops.reshape(rows, (-1,)), axis=0)
