"""Computes the ids of `GPT2Tokenizer` inside the graph: in ``tf.data``, a Keras model, a SavedModel.

Texts become one long row of bytes, and every step works on all of it at once: which bytes form a character, where words
begin, and then merges, one of each different word in a round. RE2 is not asked: it has no lookahead, its ``\\s`` is
ASCII, and its Unicode tables are of another year. The classes of characters are those of the ``regex`` library of the
Python that builds the layer, and a SavedModel holds them.
"""

import functools
import os
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import regex
import tensorflow as tf

from tf_bert.tokenization.byte_pair import GPT2Tokenizer, piece_bytes, text_bytes
from tf_bert.tokenization.byte_pair_vocabulary import END_OF_TEXT, bytes_to_unicode
from tf_bert.tokenization.in_graph_words import string_tensor, tensorflow_text_or_error
from tf_bert.tokenization.vocabulary import any_of

OTHER, LETTER, NUMBER, SPACE = range(4)
_NO_RANK = np.iinfo(np.int32).max
_NO_PAIR = np.iinfo(np.int64).max


class Words(NamedTuple):
    """Words of all rows, one after the other: in bytes, and in characters.

    ``row`` [words] says of which row each is; ``character`` [bytes] which character of all rows each byte belongs to.
    """

    bytes: tf.RaggedTensor
    row: tf.Tensor
    character: tf.Tensor


@functools.cache
def character_classes() -> np.ndarray:
    """The class of each code point up to the last that is not OTHER, uint8."""
    text = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    classes = np.zeros(0x110000, np.uint8)
    for number, pattern in ((LETTER, r"\p{L}+"), (NUMBER, r"\p{N}+"), (SPACE, r"\s+")):
        for match in regex.finditer(pattern, text):
            classes[[ord(char) for char in match.group()]] = number
    return classes[: np.flatnonzero(classes)[-1] + 2]


@keras.saving.register_keras_serializable("tf_bert")
class InGraphBytePairTokenizer(keras.layers.Layer):
    """Turns texts into the inputs of GPT inside the graph, with the ids that `GPT2Tokenizer` gives, and ids into texts.

    Args:
        vocabulary: what `GPT2Tokenizer` takes, or the pieces in the order of their ids (which a saved layer holds).
        merges: pairs of pieces, where ``vocabulary`` is a list of pieces; None for a file.
        special_tokens_in_text: as for `GPT2Tokenizer`; the tokens must not overlap each other.
        max_seq_length: S; None for the length of the longest text of the batch.
        padding: the side that is filled up, ``"right"`` or ``"left"``.
        truncation: the side that is cut off, ``"right"`` or ``"left"``.

    Inputs:
        texts: string tensor [B] (or a scalar) of any bytes.

    Outputs:
        dict of ``input_ids`` and ``input_mask``, int32 [B, S] (or [S]).

    Raises:
        ImportError: ``special_tokens_in_text`` needs tensorflow-text, which is not installed.
        ValueError: the vocabulary is damaged, or an argument is wrong.

    Example:
        >>> import tempfile
        >>> from tf_bert.tokenization.byte_pair_training import train_byte_pairs
        >>> folder = tempfile.mkdtemp()
        >>> _ = train_byte_pairs(["low lower lowest"], 259).save(folder)
        >>> layer = InGraphBytePairTokenizer(folder, max_seq_length=6)
        >>> inputs = layer(["low!"])
        >>> inputs["input_ids"].numpy().tolist(), inputs["input_mask"].numpy().tolist()
        ([[257, 0, 258, 258, 258, 258]], [[1, 1, 0, 0, 0, 0]])
        >>> layer.detokenize(inputs["input_ids"]).numpy()
        array([b'low!'], dtype=object)
    """

    _tokenizer_class = GPT2Tokenizer
    _encode = staticmethod(text_bytes)  # of a string that has no UTF-8

    def __init__(
        self,
        vocabulary: str | os.PathLike | Sequence[str],
        merges: Sequence[Sequence[str]] | None = None,
        special_tokens_in_text: bool | Sequence[str] = False,
        max_seq_length: int | None = None,
        padding: str = "right",
        truncation: str = "right",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if isinstance(vocabulary, str | os.PathLike):
            tokenizer = self._tokenizer_class(vocabulary, special_tokens_in_text=special_tokens_in_text)
            vocabulary, merges = tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size)), tokenizer.merges
        if padding not in ("right", "left") or truncation not in ("right", "left"):
            raise ValueError(f"padding and truncation must be 'right' or 'left', not {padding!r} and {truncation!r}")
        if max_seq_length is not None and max_seq_length < 1:
            raise ValueError(f"max_seq_length must be at least 1, not {max_seq_length}")
        self.pieces, self.merges = list(vocabulary), [tuple(pair) for pair in merges or ()]
        self.vocab_size = len(self.pieces)
        self.special_tokens_in_text = special_tokens_in_text
        self.max_seq_length, self.padding, self.truncation = max_seq_length, padding, truncation
        vocab = {piece: number for number, piece in enumerate(self.pieces)}
        self.end_of_text_id = vocab.get(END_OF_TEXT)
        tokens = [END_OF_TEXT] if special_tokens_in_text is True else list(special_tokens_in_text or ())
        self._special_ids = {token: vocab[token] for token in sorted(tokens, key=len, reverse=True)}
        self._make_constants(vocab)
        self.supports_jit = False  # XLA has no strings

    def _make_constants(self, vocab: dict[str, int]) -> None:
        texts = [piece_bytes(piece) for piece in self.pieces]
        self._make_merges(vocab)
        with tf.init_scope(), tf.device("CPU:0"):  # constants, wherever the layer is made
            self._classes = tf.constant(character_classes())
            self._byte_ids = tf.constant([vocab[symbol] for symbol in map(bytes_to_unicode().get, range(256))])
            self._texts = tf.constant(texts)
            self._lengths = tf.constant([len(text) for text in texts])
        signature = [tf.TensorSpec([None], tf.string)]
        self._split_rows = tf.function(self._ids_and_characters, signature, autograph=False)  # fast eagerly too

    def _make_merges(self, vocab: dict[str, int]) -> None:
        # Pairs of ids as one number; the id beyond all others is that of what has no piece, and merges with nothing.
        self._radix = self.vocab_size + 1
        pairs = {vocab[a] * self._radix + vocab[b]: (rank, vocab[a + b]) for rank, (a, b) in enumerate(self.merges)}
        keys = sorted(pairs)
        with tf.init_scope(), tf.device("CPU:0"):
            self._pairs = tf.constant([*keys, _NO_PAIR], tf.int64)
            self._ranks = tf.constant([*(pairs[key][0] for key in keys), _NO_RANK], tf.int32)
            self._merged = tf.constant([*(pairs[key][1] for key in keys), 0], tf.int32)

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of texts.

        Args:
            texts: string tensor [B], or a list of strings.

        Returns:
            int32 ragged tensor [B, (pieces)].
        """
        return self._split(texts)[0]

    def tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the ids of the pieces of texts and where they start and end in them, in characters.

        Args:
            texts: string tensor [B], or a list of strings.

        Returns:
            ids, starts and ends, int32 ragged tensors [B, (pieces)].
        """
        ids, character = self._split(texts)
        lengths = tf.gather(self._lengths, ids.values)
        end = tf.cumsum(lengths)  # in bytes: pieces lie side by side
        first = tf.gather(character, end - lengths)
        last = tf.gather(character, end - 1)
        row_start = tf.repeat(tf.gather(tf.concat([first, [0]], 0), ids.row_splits[:-1]), ids.row_lengths())
        starts, ends = first - row_start, last + 1 - row_start
        return ids, ids.with_values(starts), ids.with_values(ends)

    def _split(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        texts = string_tensor(texts, self._encode)
        if texts.shape.rank != 1:
            raise ValueError(f"texts must be a string tensor of shape [B], not {texts.shape}")
        with tf.device("CPU:0"):  # where strings are, also in a model on an accelerator
            return self._split_rows(texts)

    def _ids_and_characters(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The ids of each text, and which character each byte of all texts belongs to."""
        if not self._special_ids:
            return self._pieces(texts)
        # Bytes as characters, so that what is not UTF-8 passes through the regular expression unharmed.
        as_characters = tf.strings.unicode_encode(_bytes_of(texts), "UTF-8")
        pattern = any_of(token.encode().decode("latin-1") for token in self._special_ids)
        stretches = tensorflow_text_or_error().regex_split(as_characters, pattern, pattern)
        special = tf.fill(tf.shape(stretches.values), -1)
        for token, number in self._special_ids.items():
            special = tf.where(stretches.values == token.encode().decode("latin-1").encode(), number, special)
        is_special = special >= 0
        codes = tf.strings.unicode_decode(stretches.values, "UTF-8")
        rows = tf.RaggedTensor.from_row_splits(tf.gather(_single_bytes(), codes.values), codes.row_splits)
        rows = tf.strings.reduce_join(rows, axis=1)
        ids, _ = self._pieces(tf.where(is_special, "", rows))
        first = tf.RaggedTensor.from_row_lengths(special[is_special], tf.cast(is_special, tf.int64))
        ids = tf.concat([first, ids], axis=1)
        splits = tf.gather(ids.row_splits, stretches.row_splits)
        _, _, character = self._characters(texts)
        return tf.RaggedTensor.from_row_splits(ids.values, splits, validate=False), character

    def _pieces(self, rows: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        words = self._words(rows)
        different, number = tf.unique(tf.strings.unicode_encode(words.bytes, "UTF-8"))
        codes = tf.strings.unicode_decode(different, "UTF-8")
        merged = self._merge(tf.gather(self._byte_ids, codes.values), codes.value_rowids())
        split = tf.RaggedTensor.from_value_rowids(*merged, nrows=tf.size(different, tf.int64), validate=False)
        ids = tf.gather(split, number)
        words_at = tf.searchsorted(words.row, tf.range(tf.size(rows) + 1))
        splits = tf.gather(ids.row_splits, words_at)
        return tf.RaggedTensor.from_row_splits(ids.values, splits, validate=False), words.character

    def _characters(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The code point of each character of all rows (-1 for a byte that is not UTF-8), and its row.

        Also which character each byte belongs to. What UTF-8 is: The Unicode Standard, table 3-7.
        """
        bytes_of_rows = _bytes_of(rows)
        row = tf.cast(bytes_of_rows.value_rowids(), tf.int32)
        byte = [_in_row(bytes_of_rows.values, row, i, 0) for i in range(4)]
        goes_on = [(b >= 0x80) & (b < 0xC0) for b in byte]
        two = (byte[0] >= 0xC2) & (byte[0] < 0xE0) & goes_on[1]
        three = (byte[0] >= 0xE0) & (byte[0] < 0xF0) & goes_on[1] & goes_on[2]
        three &= ((byte[0] != 0xE0) | (byte[1] >= 0xA0)) & ((byte[0] != 0xED) | (byte[1] < 0xA0))
        four = (byte[0] >= 0xF0) & (byte[0] < 0xF5) & goes_on[1] & goes_on[2] & goes_on[3]
        four &= ((byte[0] != 0xF0) | (byte[1] >= 0x90)) & ((byte[0] != 0xF4) | (byte[1] < 0x90))
        low = [b % 64 for b in byte]
        code = tf.where(byte[0] < 0x80, byte[0], -1)
        code = tf.where(two, (byte[0] % 32) * 64 + low[1], code)
        code = tf.where(three, ((byte[0] % 16) * 64 + low[1]) * 64 + low[2], code)
        code = tf.where(four, (((byte[0] % 8) * 64 + low[1]) * 64 + low[2]) * 64 + low[3], code)
        later = _shifted(two | three | four, 1, False) | _shifted(three | four, 2, False) | _shifted(four, 3, False)
        starts = ~later
        return code[starts], row[starts], tf.cumsum(tf.cast(starts, tf.int32)) - 1

    def _words(self, rows: tf.Tensor) -> Words:
        """What ``GPT2_WORDS.findall`` finds in each row."""
        code, row, character = self._characters(rows)
        last = tf.size(self._classes) - 1
        kind = tf.cast(tf.gather(self._classes, tf.clip_by_value(code, 0, last)), tf.int32)
        kind = tf.where(code < 0, OTHER, kind)
        first = row != _shifted(row, 1, -1)
        space, before = kind == SPACE, tf.where(first, -1, _shifted(kind, 1, -1))
        after = _in_row(kind, row, 1, SPACE)
        # A blank belongs to the word after it, other space does not; the last of several stands apart from the others.
        blank_before = ~first & (_shifted(code, 1, -1) == ord(" "))
        begins = tf.where(space, (before != SPACE) | (after != SPACE), (before != kind) & ~blank_before)
        # Contractions: 's 't 'm 'd 're 've 'll, where a word begins.
        one, two = (_in_row(code, row, i, -1) for i in (1, 2))
        short = functools.reduce(tf.logical_or, [one == ord(char) for char in "stmd"])
        long = functools.reduce(tf.logical_or, [(one == ord(a)) & (two == ord(b)) for a, b in ("re", "ve", "ll")])
        mark = begins & (code == ord("'"))
        begins &= ~_shifted(mark & (short | long), 1, False)
        begins |= _shifted(mark & short, 2, False) | _shifted(mark & long, 3, False)

        starts_at = tf.where(begins)[:, 0]
        first_byte = tf.searchsorted(character, tf.cast(starts_at, tf.int32), out_type=tf.int64)
        values = _bytes_of(rows).values
        words = tf.RaggedTensor.from_row_starts(values, first_byte, validate=False)
        return Words(words, tf.gather(row, starts_at), character)

    def _merge(self, ids: tf.Tensor, word: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges neighbours in all words at once: in each round the best pair of each word, from left to right."""

        def one_round(ids, word, _):
            key = tf.cast(ids[:-1], tf.int64) * self._radix + tf.cast(ids[1:], tf.int64)
            place = tf.searchsorted(self._pairs, key)
            known = (tf.gather(self._pairs, place) == key) & (word[:-1] == word[1:])
            rank = tf.where(known, tf.gather(self._ranks, place), _NO_RANK)
            best = tf.math.segment_min(rank, word[:-1])
            chosen = known & (rank == tf.gather(best, word[:-1]))
            # Of pairs that overlap, as in "aaa", every second one from the first on.
            at = tf.range(tf.size(chosen))
            begins = chosen & ~_shifted(chosen, 1, False)
            run = tf.gather(tf.concat([[0], at[begins]], 0), tf.cumsum(tf.cast(begins, tf.int32)))
            chosen &= (at - run) % 2 == 0
            ids = tf.concat([tf.where(chosen, tf.gather(self._merged, place), ids[:-1]), ids[-1:]], 0)
            kept = tf.concat([[True], ~chosen], 0)[: tf.size(ids)]
            return ids[kept], word[kept], tf.reduce_any(chosen)

        shapes = tf.TensorShape([None]), tf.TensorShape([None]), tf.TensorShape([])
        state = tf.while_loop(lambda ids, word, more: more, one_round, (ids, word, tf.constant(True)), shapes)
        return state[0], state[1]

    def detokenize(self, ids: tf.Tensor, skip_special_tokens: bool = True) -> tf.Tensor:
        """Returns the texts that ids stand for, byte for byte.

        Args:
            ids: int tensor [..., S], dense or ragged.
            skip_special_tokens: whether to leave out ``<|endoftext|>``, which is also the padding.

        Returns:
            string tensor [...].

        Raises:
            tf.errors.InvalidArgumentError: an id is outside the vocabulary.
        """
        ids = tf.ragged.map_flat_values(tf.cast, ids, tf.int32)
        flat = ids.flat_values if isinstance(ids, tf.RaggedTensor) else ids
        inside = tf.reduce_all((flat >= 0) & (flat < self.vocab_size))
        with tf.control_dependencies([tf.debugging.Assert(inside, [f"ids outside 0 to {self.vocab_size - 1}", flat])]):
            texts = tf.ragged.map_flat_values(lambda values: tf.gather(self._texts, values), ids)
        if skip_special_tokens and self.end_of_text_id is not None:
            end = self.end_of_text_id
            texts = tf.ragged.map_flat_values(lambda t, i: tf.where(i == end, "", t), texts, ids)
        return tf.strings.reduce_join(texts, axis=-1)

    def __call__(self, texts, **kwargs):
        """Also takes lists of strings, which Keras does not take for inputs."""
        if isinstance(texts, str | bytes | list | tuple):
            texts = string_tensor(texts, self._encode)
        return super().__call__(texts, **kwargs)

    def call(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the inputs of GPT, see the class."""
        if texts.shape.rank == 0:
            return {name: value[0] for name, value in self.call(texts[None]).items()}
        ids = self.tokenize(texts)
        if self.max_seq_length is not None:
            ids = ids[:, : self.max_seq_length] if self.truncation == "right" else ids[:, -self.max_seq_length :]
        lengths = tf.cast(ids.row_lengths(), tf.int32)[:, None]  # [B, 1]
        longest = tf.maximum(tf.reduce_max(lengths), 0)  # also of no text
        width = longest if self.max_seq_length is None else self.max_seq_length
        place = tf.range(width)[None] - (width - lengths if self.padding == "left" else 0)  # [1 or B, S]
        mask = (place >= 0) & (place < lengths)  # [B, S]
        values = tf.concat([ids.values, [0]], 0)
        at = tf.cast(ids.row_splits[:-1, None], tf.int32) + place
        taken = tf.gather(values, tf.clip_by_value(at, 0, tf.size(values) - 1))
        return {
            "input_ids": tf.where(mask, taken, self.end_of_text_id or 0),
            "input_mask": tf.cast(mask, tf.int32),
        }

    def get_config(self) -> dict:
        """Returns all arguments, the vocabulary as its pieces and merges."""
        special = self.special_tokens_in_text
        return {
            **super().get_config(),
            "vocabulary": list(self.pieces),
            "merges": [list(pair) for pair in self.merges],
            "special_tokens_in_text": special if isinstance(special, bool) else list(special),
            "max_seq_length": self.max_seq_length,
            "padding": self.padding,
            "truncation": self.truncation,
        }


def _bytes_of(texts: tf.Tensor) -> tf.RaggedTensor:
    """The bytes of each text, int32 ragged [B, (bytes)]."""
    values = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8), tf.int32)
    return tf.RaggedTensor.from_row_lengths(values, tf.strings.length(texts), validate=False)


def _single_bytes() -> tf.Tensor:
    return tf.constant([bytes([byte]) for byte in range(256)])


def _shifted(values: tf.Tensor, by: int, fill) -> tf.Tensor:
    """Values moved to the right by ``by`` places (to the left where it is negative); ``fill`` comes in."""
    filling = tf.fill([tf.minimum(abs(by), tf.size(values))], tf.cast(fill, values.dtype))
    if by > 0:
        return tf.concat([filling, values], 0)[: tf.size(values)]
    return tf.concat([values[-by:], filling], 0)


def _in_row(values: tf.Tensor, row: tf.Tensor, ahead: int, fill) -> tf.Tensor:
    """The value ``ahead`` places further on in the same row; ``fill`` where there is none."""
    return tf.where(_shifted(row, -ahead, -1) == row, _shifted(values, -ahead, fill), fill) if ahead else values
