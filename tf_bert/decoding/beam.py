"""Beam search with the penalties of Google's translation system, stopped exactly."""

import dataclasses
import math
from typing import Any

from keras import ops

from tf_bert.decoding.loop import Setup, gather_beams, write

WORST = float("-inf")


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """Keeps the best unfinished hypotheses at each step, and the best finished ones.

    A hypothesis of n generated tokens, the end among them, scores (Wu et al. 2016, equation 14)

        log P(Y|X) / ((5 + n) / 6)^alpha + beta * sum_s log(min(sum_t attention(t, s), 1))

    At each step the ``beam_size`` best continuations are looked at. Those that are complete are finished; the best
    incomplete ones go on. Hypotheses that reach the most tokens count as finished. The search ends when no unfinished
    hypothesis can overtake the worst of the ``n_best`` finished ones any more, however long it gets. With beam size 1
    and no penalties it is greedy search.

    Args:
        beam_size: unfinished hypotheses kept, W.
        length_penalty: alpha; 0 ranks by the log-probability alone.
        coverage_penalty: beta; needs a model that returns its attention.
        n_best: finished hypotheses returned, best first; at most ``beam_size``.

    Raises:
        ValueError: for a value out of range.
    """

    beam_size: int = 4
    length_penalty: float = 0.0
    coverage_penalty: float = 0.0
    n_best: int = 1

    revises = True

    def __post_init__(self):
        if self.beam_size < 1:
            raise ValueError(f"beam_size must be at least 1, got {self.beam_size}")
        if not 1 <= self.n_best <= self.beam_size:
            raise ValueError(f"n_best must lie between 1 and beam_size {self.beam_size}, got {self.n_best}")
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"length_penalty must be a finite number, got {self.length_penalty}")
        if not 0 <= self.coverage_penalty < math.inf:
            raise ValueError(f"coverage_penalty must be a finite number of at least 0, got {self.coverage_penalty}")

    @property
    def width(self):
        """W."""
        return self.beam_size

    def start(self, setup: Setup) -> dict[str, Any]:
        """The variables of the search before the first step."""
        if self.coverage_penalty and setup.source_mask is None:
            raise ValueError("coverage_penalty needs a model that looks at a source")
        kept, finished = (setup.batch, self.beam_size), (setup.batch, self.n_best)
        carry = {
            "tokens": ops.full((*kept, setup.length), setup.pad_id, "int32"),
            "log_probs": ops.zeros(kept, setup.dtype),
            # At first all hypotheses are equal: only one of them may go on.
            "scores": ops.broadcast_to(ops.where(ops.arange(self.beam_size) == 0, 0.0, WORST), kept),
            "done": setup.max_length < 1,
            "finished": {
                "tokens": ops.full((*finished, setup.length), setup.pad_id, "int32"),
                "lengths": ops.zeros(finished, "int32"),
                "log_probs": ops.full(finished, WORST, setup.dtype),
                "scores": ops.full(finished, WORST, setup.dtype),
            },
        }
        carry["scores"] = ops.cast(carry["scores"], setup.dtype)
        if setup.source_mask is not None:
            carry["finished"]["alignments"] = ops.zeros((*finished, setup.length), "int32")
        if self.coverage_penalty:
            carry["coverage"] = ops.zeros((*kept, ops.shape(setup.source_mask)[1]), setup.dtype)
        return carry

    def select(self, setup: Setup, index, raw, allowed, attention, carry):
        """Takes the best continuations; arguments and results as for `Greedy.select`."""
        width, vocab_size = self.beam_size, setup.vocab_size
        scores, flat, only_finish = self.best(setup, index, allowed, carry)  # [B,C]
        count = scores.shape[-1]
        parents, tokens = ops.cast(flat // vocab_size, "int32"), ops.cast(flat % vocab_size, "int32")
        gains = ops.take_along_axis(ops.reshape(raw, (-1, width * vocab_size)), flat, axis=1)
        candidates = {
            "tokens": write(gather_beams(carry["tokens"], parents), index, tokens),
            "log_probs": gather_beams(carry["log_probs"], parents) + gains,
            "scores": scores,
        }
        if "alignments" in carry:
            candidates["alignments"] = gather_beams(carry["alignments"], parents)
        if "coverage" in carry:
            candidates["coverage"] = gather_beams(carry["coverage"] + attention, parents)

        text_states = gather_beams(carry["text_states"], parents) if "text_states" in carry else None
        ends = setup.constraints.ends(candidates["tokens"], index, setup, text_states)  # [B,C]
        stops = ops.logical_or(ends, index + 1 >= setup.max_length[:, None])
        finishes = ops.logical_and(stops, ops.arange(count) < width)
        finishes = ops.logical_and(finishes, ops.logical_not(carry["done"])[:, None])
        finished = self.finish(setup, index, candidates, finishes, carry["finished"])

        if only_finish:
            ends = ops.logical_or(ends, ops.arange(count) < only_finish)
        _, going_on = ops.top_k(ops.where(ends, WORST, scores), width)  # [B,W]
        going_on = ops.cast(going_on, "int32")
        alive = {name: gather_beams(values, going_on) for name, values in candidates.items()}
        alive["scores"] = ops.where(gather_beams(ends, going_on), WORST, alive["scores"])

        best, worst = alive["scores"][:, 0], finished["scores"][:, -1]
        done = ops.logical_or(index + 1 >= setup.max_length, worst >= self.bound(setup, index + 1, best))
        carry = {**carry, **alive, "finished": finished, "done": ops.logical_or(carry["done"], done)}
        parents, tokens = gather_beams(parents, going_on), gather_beams(tokens, going_on)
        for name in ("seen", "text_states"):
            if name in carry:
                carry[name] = gather_beams(carry[name], parents)
        return carry, tokens, parents

    def best(self, setup, index, allowed, carry):
        """The best continuations, enough of them that those which do not finish fill the beam.

        Returns:
            Their scores [B,C] and places among W * V [B,C], of which the first ``beam_size`` are the best of all, best
            first; and how many of these come again behind them if they can go on.
        """
        width, constraints = self.beam_size, setup.constraints
        size = width * setup.vocab_size
        totals = ops.reshape(carry["scores"][..., None] + allowed, (-1, size))
        # A hypothesis has one continuation by the end token and one by each stop sequence that finish it.
        count = min(width * (2 + len(constraints.stop_sequences)), size)
        if "text_states" not in carry:
            scores, flat = ops.top_k(totals, count)
            return scores, flat, 0
        # Any number of tokens may complete a stop text: those that do not are ranked by themselves.
        completes = ops.reshape(constraints.stops.completed_by(carry["text_states"], setup.vocab_size), (-1, size))
        completes = ops.logical_and(completes, index + 1 >= constraints.min_length)
        first = min(width, size)
        best, others = ops.top_k(totals, first), ops.top_k(ops.where(completes, WORST, totals), count)
        scores, flat = (ops.concatenate(parts, axis=1) for parts in zip(best, others, strict=True))
        return scores, flat, first

    def finish(self, setup, index, candidates, finishes, finished):
        """The best of the hypotheses finished before and of those candidates that ``finishes`` [B,C] names."""
        scores = candidates["scores"] / self.penalty(setup, index + 1)
        if self.coverage_penalty:
            covered = ops.log(ops.clip(candidates["coverage"], 1e-7, 1.0))  # not -inf for a word never looked at
            missing = ops.where(setup.source_mask[:, None], covered, 0)
            scores = scores + self.coverage_penalty * ops.sum(missing, axis=-1)
        new = {name: candidates[name] for name in finished if name in candidates}
        new["scores"] = ops.where(finishes, scores, WORST)
        new["lengths"] = ops.full(ops.shape(scores), index + 1, "int32")
        both = {name: ops.concatenate([finished[name], new[name]], axis=1) for name in finished}
        _, best = ops.top_k(both["scores"], self.n_best)  # of equals the one finished first
        return {name: gather_beams(values, ops.cast(best, "int32")) for name, values in both.items()}

    def bound(self, setup, index, scores):
        """What hypotheses [B] of ``index`` tokens can score at best: a log-probability never rises, a divisor may."""
        return ops.maximum(scores / self.penalty(setup, index + 1), scores / self.penalty(setup, setup.max_length))

    def penalty(self, setup, length):
        """The length penalty ((5 + n) / 6)^alpha."""
        return ((5.0 + ops.cast(length, setup.dtype)) / 6.0) ** self.length_penalty

    def results(self, carry) -> dict[str, Any]:
        """What is returned; where fewer hypotheses exist than asked for, the rest has score -inf and length 0."""
        return carry["finished"]
