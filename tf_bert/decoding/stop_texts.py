"""Texts that end an output as soon as it contains them, wherever token boundaries are.

Each text is a finite automaton over bytes (Knuth, Morris and Pratt 1977). A token is some bytes, so that it leads from
state to state too; which one is looked up in a table. The decoding loop carries a number for each hypothesis and text.
"""

import weakref
from collections.abc import Sequence

import numpy as np
from keras import ops

from tf_bert.tokenization.written import as_written, keeps_every_byte, written_pieces

_BLANKS = b" \t\n\r\v\f"
_NOT_FOUND = -1
_TOKENS_AT_ONCE = 4096
_made: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class StopTexts:
    """Stop texts for the vocabulary of one tokenizer.

    They are compared by their bytes of UTF-8 with the text of the new tokens alone; as the vocabulary writes them, see
    `tf_bert.tokenization.written.as_written`.

    Letters in shapes: V tokens, K stop texts, Q states, C columns (tokens that lead to the same states from all).

    Args:
        texts: the stop texts, ``str``, or ``bytes`` for a byte-level vocabulary.
        tokenizer: a `GPT2Tokenizer`, `GPT1Tokenizer`, `FullTokenizer` or `SentencePieceTokenizer`.

    Attributes:
        pieces: the bytes that each token adds to a text.
        starts_with_blanks: whether blanks at the beginning of a text stay in it.
        start: [K] int32, the states before the first token.
        column: [V + 1] int32; the last is that of a token without text.
        after: [Q, C] int32, the state that a token leads to.
        beyond: [Q, C] int32, how many bytes of a token that completes the stop text stand behind it; -1 for others.

    Raises:
        ValueError: a text is empty, or the vocabulary cannot write it.
    """

    def __init__(self, texts: Sequence[str | bytes], tokenizer):
        self.texts = tuple(texts)
        self.pieces = written_pieces(tokenizer)
        self.starts_with_blanks = keeps_every_byte(tokenizer)
        written = [as_written(text, tokenizer) for text in self.texts]
        if not all(written):
            wrong = self.texts[written.index(b"")]
            raise ValueError(f"the stop text {wrong!r} can never occur: {tokenizer.vocab_file} writes words and blanks")
        of_bytes, completes, self.start = _automata(written, self.starts_with_blanks)
        self.column, self.after, self.beyond = _of_tokens(of_bytes, completes, [*self.pieces, b""])
        for text, start in zip(self.texts, self.start, strict=True):
            if not _can_be_completed(start, self.after, self.beyond):
                raise ValueError(f"the stop text {text!r} can never occur: {tokenizer.vocab_file} has no pieces for it")

    @classmethod
    def of(cls, texts: Sequence[str | bytes], tokenizer) -> "StopTexts":
        """Returns the one that was made for these texts and this tokenizer, or makes it."""
        made = _made.setdefault(tokenizer, {})
        texts = tuple(texts)
        if texts not in made:
            made[texts] = cls(texts, tokenizer)
        return made[texts]

    def first_states(self, shape):
        """The states [..., K] of outputs without a token, for hypotheses of a shape."""
        return ops.broadcast_to(ops.convert_to_tensor(self.start), (*shape, len(self.texts)))

    def follow(self, states, tokens):
        """The states after one more token each.

        Args:
            states: [..., K].
            tokens: [...].

        Returns:
            The states [..., K], and [...]: how many bytes of the token stand behind a stop text that it completes; -1
            where it completes none.
        """
        column = ops.take(ops.convert_to_tensor(self.column), ops.minimum(tokens, len(self.pieces)))
        place = states * self.after.shape[1] + column[..., None]
        after, beyond = (ops.take(ops.convert_to_tensor(table.ravel()), place) for table in (self.after, self.beyond))
        return after, ops.max(beyond, axis=-1)

    def completed_by(self, states, vocab_size: int):
        """Which tokens complete a stop text: [..., V] booleans for states [..., K]."""
        completes = ops.take(ops.convert_to_tensor(self.beyond >= 0), states, axis=0)  # [..., K, C]
        column = ops.take(ops.convert_to_tensor(self.column), np.minimum(np.arange(vocab_size), len(self.pieces)))
        return ops.take(ops.any(completes, axis=-2), column, axis=-1)

    def beyond_last(self, tokens, lengths):
        """How many bytes of outputs [R, T] of some lengths [R] stand behind a stop text; -1 where none ends them."""

        def step(index, variables):
            states, found = variables
            states, beyond = self.follow(states, ops.take(tokens, index, axis=1))
            return states, ops.where(lengths == index + 1, beyond, found)

        start = self.first_states(ops.shape(lengths)), ops.full_like(lengths, _NOT_FOUND)
        return ops.fori_loop(0, ops.shape(tokens)[1], step, start)[1]

    def cut(self, ids: Sequence[int]) -> str | None:
        """The text of an output up to the end of the stop text that its last token completes; None without one."""
        states, beyond = self.start, np.array([_NOT_FOUND])
        for number in ids:
            column = self.column[min(number, len(self.pieces))]
            states, beyond = self.after[states, column], self.beyond[states, column]
        if beyond.max() < 0:
            return None
        written = b"".join(self.pieces[number] for number in ids if number < len(self.pieces))
        written = written[: len(written) - beyond.max()]
        return (written if self.starts_with_blanks else written.lstrip(_BLANKS)).decode("utf-8", "replace")


def _automata(texts: Sequence[bytes], starts_with_blanks: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The state after each byte [Q, 256], whether it completes a text [Q, 256], and the first state of each text."""
    after, completes, starts, first = [], [], [], 0
    for text in texts:
        states, restart = np.zeros((len(text), 256), np.int32), 0
        for place, byte in enumerate(text):
            states[place] = states[restart]
            restart, states[place, byte] = (states[place, byte] if place else 0), place + 1
        done = states == len(text)
        states[done] = restart  # a text that is ignored, before the least length, may begin in its own end
        start = 0
        if not starts_with_blanks:  # the decoded text begins with the first other character
            start = len(text)
            states, done = np.concatenate([states, states[:1]]), np.concatenate([done, done[:1]])
            states[start, list(_BLANKS)], done[start, list(_BLANKS)] = start, False
        after.append(states + first)
        completes.append(done)
        starts.append(start + first)
        first += len(states)
    return np.concatenate(after), np.concatenate(completes), np.array(starts, np.int32)


def _of_tokens(after: np.ndarray, completes: np.ndarray, pieces: Sequence[bytes]):
    """The column of each token [V], and for each column the states after it and what is behind a stop text [Q, C]."""
    order = sorted(range(len(pieces)), key=lambda number: -len(pieces[number]))
    column, columns = np.zeros(len(pieces), np.int32), {}
    for first in range(0, len(order), _TOKENS_AT_ONCE):
        some = order[first : first + _TOKENS_AT_ONCE]
        lengths = np.array([len(pieces[number]) for number in some])
        letters = np.zeros((len(some), lengths[0]), np.uint8)
        for row, number in enumerate(some):
            letters[row, : lengths[row]] = list(pieces[number])
        states = np.repeat(np.arange(len(after), dtype=np.int32)[:, None], len(some), axis=1)  # [Q, tokens]
        beyond = np.full_like(states, _NOT_FOUND)
        for place in range(lengths[0]):
            longer = int((lengths > place).sum())  # the first ones
            byte, before = letters[:longer, place], states[:, :longer]
            new = completes[before, byte] & (beyond[:, :longer] < 0)
            beyond[:, :longer] = np.where(new, lengths[:longer] - place - 1, beyond[:, :longer])
            states[:, :longer] = after[before, byte]
        of_token = np.ascontiguousarray(np.concatenate([states, beyond]).T)  # [tokens, 2 Q]
        for number, values in zip(some, of_token, strict=True):
            column[number] = columns.setdefault(values.tobytes(), len(columns))
    both = np.array([np.frombuffer(values, np.int32) for values in columns]).T  # [2 Q, C]
    return column, *np.split(both, 2)


def _can_be_completed(start: int, after: np.ndarray, beyond: np.ndarray) -> bool:
    """Whether some tokens lead from the first state of a text to its end."""
    reached = new = {int(start)}
    while new:
        rows = list(new)
        if (beyond[rows] >= 0).any():
            return True
        new = set(np.unique(after[rows]).tolist()) - reached
        reached = reached | new
    return False
