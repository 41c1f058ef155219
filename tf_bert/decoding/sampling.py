"""Greedy decoding and sampling: searches that never revise a token."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from keras import ops

from tf_bert.decoding.loop import Setup, write
from tf_bert.layers.scheduled_sampling import draw

# Probabilities in float32 are sums of rounded numbers: tokens that reach top_p up to this much have reached it.
TOP_P_TOLERANCE = 1e-6
COLDEST = 1e-30  # a temperature below is 0; float32 could not divide by it


@dataclasses.dataclass(frozen=True)
class Greedy:
    """The most likely token at each step; the first of them where several are equally likely."""

    width = 1
    revises = False

    def start(self, setup: Setup) -> dict[str, Any]:
        """The variables of the search before the first step."""
        shape = (setup.batch, self.width)
        zeros = ops.zeros(shape, setup.dtype)
        return {
            "tokens": ops.full((*shape, setup.length), setup.pad_id, "int32"),
            "lengths": ops.zeros(shape, "int32"),
            "log_probs": zeros,
            "scores": zeros,
            "done": ops.broadcast_to(setup.max_length[:, None] < 1, shape),
        }

    def select(self, setup: Setup, index, raw, allowed, attention, carry):
        """Takes one token for each hypothesis.

        Args:
            setup: of the decoding.
            index: number of tokens so far.
            raw: [B,W,V], the model's log-probabilities.
            allowed: the same after penalties, -inf where forbidden.
            attention: [B,W,S] or None.
            carry: the variables of the search.

        Returns:
            The variables after the step, the tokens [B,W], and the hypotheses that they continue (None: each its own).
        """
        done = carry["done"]
        tokens = ops.where(done, setup.pad_id, self.choose(setup, index, allowed))
        written = write(carry["tokens"], index, tokens)
        ends = setup.constraints.ends(written, index, setup, carry.get("text_states"))
        ends = ops.logical_or(ends, index + 1 >= setup.max_length[:, None])
        gain = {"log_probs": raw, "scores": allowed}
        return (
            {
                **carry,
                **{name: carry[name] + ops.where(done, 0, at(values, tokens)) for name, values in gain.items()},
                "tokens": ops.where(done[..., None], carry["tokens"], written),
                "lengths": carry["lengths"] + ops.cast(ops.logical_not(done), "int32"),
                "done": ops.logical_or(done, ends),
            },
            tokens,
            None,
        )

    def choose(self, setup, index, allowed):
        """The tokens [B,W]."""
        return ops.cast(ops.argmax(allowed, axis=-1), "int32")

    def results(self, carry) -> dict[str, Any]:
        """What is returned, the best of each member first."""
        results = {name: carry[name] for name in ("tokens", "lengths", "log_probs", "scores")}
        if "alignments" in carry:
            written = ops.arange(ops.shape(carry["tokens"])[-1]) < carry["lengths"][..., None]
            results["alignments"] = ops.where(written, carry["alignments"], 0)
        return results


@dataclasses.dataclass(frozen=True)
class Sampling(Greedy):
    """Tokens drawn by their probability.

    Args:
        temperature: the logits are divided by it; 0 takes the most likely token.
        top_k: draw among the k most likely tokens, the lower ids first where several are equally likely; 0, or more
            than there are, for all of them.
        top_p: draw among the fewest of the most likely tokens that together have this probability (Holtzman et al.
            2020, "nucleus sampling"), up to `TOP_P_TOLERANCE`; at least the most likely one, all of them for 1.
        num_samples: hypotheses for each member of the batch, independent of each other.

    What is drawn follows from the numbers given as ``Setup.uniform``, see `uniform_numbers`.

    Raises:
        ValueError: for a value out of range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    num_samples: int = 1

    def __post_init__(self):
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be a finite number of at least 0, got {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be at least 0, got {self.top_k}")
        if not 0 <= self.top_p <= 1:
            raise ValueError(f"top_p must lie in [0, 1], got {self.top_p}")
        if self.num_samples < 1:
            raise ValueError(f"num_samples must be at least 1, got {self.num_samples}")

    @property
    def width(self):
        """W."""
        return self.num_samples

    def start(self, setup: Setup) -> dict[str, Any]:
        """The variables of the search before the first step."""
        if setup.uniform is None:
            raise ValueError("sampling needs random numbers: see uniform_numbers")
        return super().start(setup)

    def choose(self, setup, index, allowed):
        """The tokens [B,W]."""
        if self.temperature < COLDEST:
            return super().choose(setup, index, allowed)
        uniform = ops.take(setup.uniform, index, axis=-1)[..., None]
        # Relative to the likeliest, so that no small temperature makes all of them -inf.
        relative = allowed - ops.max(allowed, axis=-1, keepdims=True)
        kept, tokens = keep_likely(relative / self.temperature, self.top_k, self.top_p)
        drawn = draw(kept, uniform)
        return drawn if tokens is None else at(tokens, drawn)


def uniform_numbers(seeds: Iterable[int], num_samples: int, length: int) -> np.ndarray:
    """Random numbers for sampling.

    They depend on the seed of the member of the batch, the number of the sample and the number of the step, and on
    nothing else: in a batch a text gets what it gets alone.

    Args:
        seeds: B integers from 0, one for each member of the batch.
        num_samples: W.
        length: T.

    Returns:
        [B,W,T] float32, uniform in [0, 1).

    Example:
        >>> bool((uniform_numbers([7, 8], 2, 3)[1] == uniform_numbers([8], 2, 5)[0, :, :3]).all())
        True
    """
    generators = [[np.random.Generator(np.random.Philox(key=[s, i])) for i in range(num_samples)] for s in seeds]
    return np.array([[row.random(length, "float32") for row in member] for member in generators])


def keep_likely(log_probs, top_k: int, top_p: float):
    """The most likely tokens.

    Args:
        log_probs: [...,V], not necessarily normalised.
        top_k: how many are kept; 0 for all.
        top_p: the probability that those kept have together at least, up to `TOP_P_TOLERANCE`.

    Returns:
        Log-probabilities [...,C] and their tokens [...,C], most likely first, with -inf for those outside ``top_p``;
        or ``log_probs`` and None where all are kept.

    Example:
        >>> kept, tokens = keep_likely(ops.log(ops.array([0.1, 0.5, 0.4])), 0, 0.6)
        >>> print(ops.exp(kept).numpy().round(2), tokens.numpy())
        [0.5 0.4 0. ] [1 2 0]
    """
    vocab_size = log_probs.shape[-1]
    top_k = min(top_k, vocab_size) or vocab_size
    if top_k == vocab_size and top_p == 1:
        return log_probs, None
    log_probs, tokens = ops.top_k(log_probs, top_k)
    if top_p < 1:
        probs = ops.softmax(log_probs)
        reached = ops.cumsum(ops.cast(probs, "float64"), axis=-1)
        before = ops.pad(reached[..., :-1], [(0, 0)] * (len(probs.shape) - 1) + [(1, 0)])  # by the likelier tokens
        kept = ops.logical_or(before < top_p - TOP_P_TOLERANCE, ops.arange(top_k) == 0)
        log_probs = ops.where(kept, log_probs, float("-inf"))
    return log_probs, ops.cast(tokens, "int32")


def at(values, index):
    """values [...,V] at index [...]."""
    return ops.squeeze(ops.take_along_axis(values, index[..., None], axis=-1), -1)
