"""Constraints on generated text: repetition penalties, lengths, forced and forbidden tokens, stop texts."""

import dataclasses
import math
from typing import Any

from keras import ops

from tf_bert.decoding.stop_texts import StopTexts

FORBIDDEN = float("-inf")


@dataclasses.dataclass(frozen=True)
class Constraints:
    """What may be generated. All are off by default.

    Args:
        min_length: fewest tokens of the output, the end among them.
        repetition_penalty: above 1, makes tokens less likely that the prompt or the output holds already: their
            positive logits are divided by it, negative ones multiplied (Keskar et al. 2019, "CTRL", section 4.1).
        presence_penalty: subtracted once from the logits of such tokens.
        banned_ids: tokens that are never generated.
        stop_sequences: sequences of tokens (ids, not texts) which end the output as the end token does; they stay in
            the output.
        stop_texts: texts which end the output as soon as its text holds one of them, however the tokens fall. Only what
            is generated counts, not the prompt, and no text that is complete before ``min_length``. The text of the
            output ends with the stop text; its tokens are whole, and the last one may hold more. What is given ids
            needs `with_tokenizer`.

    Raises:
        ValueError: for a penalty that is not positive, a negative length, or an empty stop sequence or text.

    Example:
        >>> constraints = Constraints(repetition_penalty=1.5)
        >>> print(constraints.penalise(ops.array([2.0, -1.0, 0.5, -3.0]), ops.array([1, 1, 0, 0])).numpy())
        [ 1.3333334 -1.5        0.5       -3.       ]
    """

    min_length: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    banned_ids: tuple[int, ...] = ()
    stop_sequences: tuple[tuple[int, ...], ...] = ()
    stop_texts: tuple[str | bytes, ...] | StopTexts = ()

    def __post_init__(self):
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(f"repetition_penalty must be a finite number above 0, got {self.repetition_penalty}")
        if not math.isfinite(self.presence_penalty):
            raise ValueError(f"presence_penalty must be a finite number, got {self.presence_penalty}")
        if self.min_length < 0:
            raise ValueError(f"min_length must be at least 0, got {self.min_length}")
        # Hashable, whatever sequences they came as: compiled graphs are kept by their constraints.
        object.__setattr__(self, "banned_ids", tuple(map(int, self.banned_ids)))
        object.__setattr__(self, "stop_sequences", tuple(map(tuple, self.stop_sequences)))
        if not all(self.stop_sequences):
            raise ValueError("a stop sequence must have at least one token")
        if isinstance(self.stop_texts, str | bytes):
            raise ValueError(f"stop_texts takes a list of texts, not {self.stop_texts!r}")
        if not isinstance(self.stop_texts, StopTexts):
            object.__setattr__(self, "stop_texts", tuple(self.stop_texts))
            if not all(self.stop_texts):
                raise ValueError("a stop text must have at least one character")

    def with_tokenizer(self, tokenizer: Any) -> "Constraints":
        """The same, with the stop texts made ready for the tokens of a tokenizer, see `StopTexts`."""
        if not self.stop_texts or isinstance(self.stop_texts, StopTexts):
            return self
        return dataclasses.replace(self, stop_texts=StopTexts.of(self.stop_texts, tokenizer))

    @property
    def stops(self) -> StopTexts | None:
        """The stop texts; None without any.

        Raises:
            ValueError: there are some, and no tokenizer said what its tokens are.
        """
        if not isinstance(self.stop_texts, StopTexts) and self.stop_texts:
            raise ValueError(
                f"stop_texts={self.stop_texts} need the texts of the ids: give constraints.with_tokenizer(tokenizer)"
            )
        return self.stop_texts or None

    def check(self, vocab_size: int) -> None:
        """Raises ValueError for tokens that a model does not have, or stop texts that wait for a tokenizer."""
        for token in {*self.banned_ids, *(token for sequence in self.stop_sequences for token in sequence)}:
            if not 0 <= token < vocab_size:
                raise ValueError(f"the constraints name token {token}, but there are {vocab_size}")
        _ = self.stops

    @property
    def need_seen(self) -> bool:
        """Whether the loop has to remember which tokens were seen."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0

    def penalise(self, logits, seen):
        """Logits [...,V] after the penalties for tokens that were ``seen`` [...,V]."""
        penalised = ops.where(logits > 0, logits / self.repetition_penalty, logits * self.repetition_penalty)
        return ops.where(ops.cast(seen, "bool"), penalised - self.presence_penalty, logits)

    def forbid(self, log_probs, index, setup):
        """Log-probabilities [B,W,V] with -inf for what may not follow ``index`` tokens. The others stay as they are."""
        vocabulary = ops.arange(setup.vocab_size)
        allowed = ops.logical_or(vocabulary != setup.end_id, index + 1 >= self.min_length)
        for banned in self.banned_ids:
            allowed = ops.logical_and(allowed, vocabulary != banned)
        if setup.prefix is not None:
            # Beyond the prefix the last column is read and overruled.
            last = ops.shape(setup.prefix)[1] - 1
            forced = ops.take(setup.prefix, ops.minimum(index, last), axis=1)[:, None, None]  # [B,1,1]
            free = ops.logical_or(index > last, forced == setup.pad_id)
            allowed = ops.where(free, allowed, vocabulary == forced)
        return ops.where(allowed, log_probs, FORBIDDEN)

    def ends(self, tokens, index, setup, text_states=None):
        """Which outputs [B,C,T] of ``index`` + 1 tokens are complete: [B,C] booleans.

        ``text_states`` [B,C,K] are those of the stop texts before the last token, see `StopTexts.follow`.
        """
        last = last_tokens(tokens, index, 1)[..., 0]
        ended = last == setup.end_id
        if text_states is not None:
            _, beyond = self.stops.follow(text_states, last)
            ended = ops.logical_or(ended, ops.logical_and(beyond >= 0, index + 1 >= self.min_length))
        for sequence in self.stop_sequences:
            found = ops.all(last_tokens(tokens, index, len(sequence)) == ops.array(sequence, "int32"), axis=-1)
            ended = ops.logical_or(ended, ops.logical_and(found, index + 1 >= max(self.min_length, len(sequence))))
        return ended


def last_tokens(tokens, index, count: int):
    """The last ``count`` tokens [B,C,count] of outputs [B,C,T] of ``index`` + 1 tokens, -1 before the first."""
    positions = index + 1 - count + ops.arange(count)
    taken = ops.take(tokens, ops.maximum(positions, 0), axis=-1)
    return ops.where(positions >= 0, taken, -1)
