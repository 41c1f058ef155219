"""Computes the ids of `FullTokenizer` inside the graph: in ``tf.data``, a Keras model, a SavedModel.

`in_graph_words` says how. The tables of characters are those of the Python that builds the layer, and a SavedModel
holds them: there is no code point on which the graph and that Python differ. Pythons differ among each other on what
Unicode has assigned in between.
"""

import os
from collections.abc import Sequence

import keras
import tensorflow as tf

from tf_bert.tokenization.encoding import TRUNCATIONS
from tf_bert.tokenization.in_graph_words import GraphWords, Pieces, string_tensor, tensorflow_text_or_error
from tf_bert.tokenization.vocabulary import (
    any_of,
    check_special_tokens,
    ids_of,
    read_vocab_lines,
    special_tokens,
)


@keras.saving.register_keras_serializable("tf_bert")
class InGraphTokenizer(keras.layers.Layer):
    """Turns texts into the three inputs of BERT inside the graph, with the ids that `FullTokenizer` gives.

    Args:
        vocabulary: the path of a vocabulary file, or the pieces of its lines (which a saved layer holds).
        do_lower_case: as for `FullTokenizer`, like the other switches up to ``special_tokens_in_text``.
        strip_accents: None for when lower-casing.
        tokenize_chinese_chars: whether each Chinese character is a word.
        special_tokens_in_text: whether ``[MASK]`` and the like in a text are the special tokens, or which strings are.
        max_seq_length: S; None for the length of the longest example of the batch.
        truncation: as for `FullTokenizer.encode`.

    Inputs:
        texts: string tensor [B] (or a scalar) of UTF-8; bytes that are not UTF-8 are left out.
        text_pairs: the same for the second text, or None.

    Outputs:
        dict of ``input_ids``, ``input_mask`` and ``segment_ids``, int32 [B, S] (or [S]).

    Raises:
        ImportError: tensorflow-text is not installed. A SavedModel with this layer needs ``import tensorflow_text``
            before it is loaded.
        ValueError: the vocabulary lacks special tokens, or an argument is wrong.

    Example:
        >>> vocabulary = "[PAD] [UNK] [CLS] [SEP] [MASK] un ##aff ##able !".split()
        >>> layer = InGraphTokenizer(vocabulary, max_seq_length=8)
        >>> layer(["Unaffable!"])["input_ids"].numpy()
        array([[2, 5, 6, 7, 8, 3, 0, 0]], dtype=int32)
        >>> ids, starts, ends = layer.tokenize_with_offsets(["Unaffable!"])
        >>> starts.to_list(), ends.to_list()
        ([[0, 2, 5, 9]], [[2, 5, 9, 10]])
        >>> layer.encode_with_offsets(["Unaffable!"])["starts"].numpy()
        array([[-1,  0,  2,  5,  9, -1, -1, -1]], dtype=int32)
    """

    def __init__(
        self,
        vocabulary: str | os.PathLike | Sequence[str],
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        special_tokens_in_text: bool | Sequence[str] = False,
        max_seq_length: int | None = 128,
        truncation: str | None = "longest_first",
        **kwargs,
    ):
        super().__init__(**kwargs)
        from_file = isinstance(vocabulary, str | os.PathLike)
        self.pieces = read_vocab_lines(vocabulary) if from_file else list(vocabulary)
        self.vocab_size = len(self.pieces)
        self.do_lower_case = bool(do_lower_case)
        self.strip_accents = self.do_lower_case if strip_accents is None else bool(strip_accents)
        self.tokenize_chinese_chars = bool(tokenize_chinese_chars)
        self.max_seq_length = max_seq_length
        self.truncation = truncation
        if max_seq_length is not None and max_seq_length < 3:
            raise ValueError(f"max_seq_length must be at least 3, for [CLS] and two [SEP], not {max_seq_length}")
        if truncation not in TRUNCATIONS:
            raise ValueError(f"truncation must be one of {', '.join(map(repr, TRUNCATIONS))}, not {truncation!r}")
        vocab = ids_of(self.pieces)
        check_special_tokens(vocab, vocabulary if from_file else "the vocabulary")
        self._cls, self._sep, self._pad = vocab["[CLS]"], vocab["[SEP]"], vocab["[PAD]"]
        self.special_tokens_in_text = special_tokens_in_text
        tokens = special_tokens(special_tokens_in_text, vocab, "the vocabulary")
        self._special_ids = {token: vocab[token] for token in tokens}
        self._words = GraphWords(self.pieces, self.do_lower_case, self.strip_accents, self.tokenize_chinese_chars)
        self.supports_jit = False  # XLA has no strings

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of texts.

        Args:
            texts: string tensor [B] of UTF-8, or a list of strings.

        Returns:
            int32 ragged tensor [B, (pieces)].
        """
        pieces = self._split(texts, offsets=False)
        return tf.RaggedTensor.from_row_splits(pieces.ids, pieces.splits, validate=False)

    def tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the ids of the pieces of texts and where they start and end in them.

        Offsets are in characters of the text, as those of `FullTokenizer.tokenize_with_offsets`.

        Args:
            texts: string tensor [B] of UTF-8, or a list of strings.

        Returns:
            ids, starts and ends, int32 ragged tensors [B, (pieces)].
        """
        pieces = self._split(texts, offsets=True)
        return tuple(
            tf.RaggedTensor.from_row_splits(values, pieces.splits, validate=False)
            for values in (pieces.ids, pieces.starts, pieces.ends)
        )

    def _split(self, texts: tf.Tensor, offsets: bool) -> Pieces:
        texts = string_tensor(texts)
        if texts.shape.rank != 1:
            raise ValueError(f"texts must be a string tensor of shape [B], not {texts.shape}")
        return self._split_at_special_tokens(texts, offsets) if self._special_ids else self._words.split(texts, offsets)

    def _split_at_special_tokens(self, texts: tf.Tensor, offsets: bool) -> Pieces:
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
        pattern = any_of(self._special_ids)
        stretches = tensorflow_text_or_error().regex_split(texts, pattern, pattern)
        special = tf.fill(tf.shape(stretches.values), -1)
        for token, number in self._special_ids.items():
            special = tf.where(stretches.values == token, number, special)
        is_special = special >= 0
        pieces = self._words.split(tf.where(is_special, "", stretches.values), offsets)

        def with_special(of_special: tf.Tensor, of_pieces: tf.Tensor) -> tf.RaggedTensor:
            first = tf.RaggedTensor.from_row_lengths(of_special[is_special], tf.cast(is_special, tf.int32))
            return tf.concat([first, tf.RaggedTensor.from_row_splits(of_pieces, pieces.splits, validate=False)], axis=1)

        ids = with_special(special, pieces.ids)
        splits = tf.gather(ids.row_splits, stretches.row_splits)
        if not offsets:
            return pieces._replace(ids=ids.values, splits=splits)
        length = tf.strings.length(stretches.values, unit="UTF8_CHAR")
        begin = tf.cumsum(length, exclusive=True)
        begin -= tf.gather(begin, tf.gather(stretches.row_splits, stretches.value_rowids()))
        begin_of = tf.gather(begin, tf.RaggedTensor.from_row_splits(pieces.ids, pieces.splits).value_rowids())
        starts = with_special(begin, pieces.starts + begin_of)
        ends = with_special(begin + length, pieces.ends + begin_of)
        return Pieces(ids.values, starts.values, ends.values, splits)

    def __call__(self, texts, text_pairs=None, **kwargs):
        """Also takes lists of strings, which Keras does not take for inputs."""
        texts, text_pairs = (
            string_tensor(value) if isinstance(value, str | bytes | list | tuple) else value
            for value in (texts, text_pairs)
        )
        return super().__call__(texts, text_pairs, **kwargs)

    def call(self, texts: tf.Tensor, text_pairs: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Returns the three inputs of BERT, see the class."""
        return self._encode(texts, text_pairs, offsets=False)

    def encode_with_offsets(
        self, texts: tf.Tensor, text_pairs: tf.Tensor | None = None, return_truncated: bool = False
    ) -> dict[str, tf.Tensor]:
        """The inputs of BERT, and where each piece stands in its text.

        Args:
            texts: string tensor [B] of UTF-8, or a list of strings.
            text_pairs: the same for the second text, or None.
            return_truncated: whether to return ``truncated`` [B] too: whether an example lost pieces.

        Returns:
            What a call returns, and ``starts`` and ``ends`` int32 [B, S]: characters of the text that the piece is of
            (the second one, where ``segment_ids`` is 1); -1 for special tokens and padding.
        """
        texts = string_tensor(texts)
        inputs = self._encode(texts, None if text_pairs is None else string_tensor(text_pairs), True)
        if not return_truncated:
            del inputs["truncated"]
        return inputs

    def _encode(self, texts: tf.Tensor, text_pairs: tf.Tensor | None, offsets: bool) -> dict[str, tf.Tensor]:
        if texts.shape.rank == 0:
            inputs = self._encode(texts[None], None if text_pairs is None else text_pairs[None], offsets)
            return {name: value[0] for name, value in inputs.items()}
        a = self._split(texts, offsets)
        b = None if text_pairs is None else self._split(text_pairs, offsets)
        length_a, length_b = self._truncated_lengths(a, b)  # [B, 1] each
        length = length_a + (2 if b is None else 3) + length_b
        longest = tf.maximum(tf.reduce_max(length), 0)  # also of no example
        width = longest if self.max_seq_length is None else self.max_seq_length
        place = tf.range(width)[None]  # [1, S]

        def take(name: str) -> tf.Tensor:  # [B, S]; the first text begins after [CLS]
            values = _take(getattr(a, name), a.splits, place - 1)
            if b is None:
                return values
            return tf.where(place > length_a, _take(getattr(b, name), b.splits, place - length_a - 2), values)

        real = place < length
        special = (place == 0) | (place == length_a + 1) | (place == length - 1)
        ids = tf.where(special, tf.where(place == 0, self._cls, self._sep), take("ids"))
        inputs = {
            "input_ids": tf.where(real, ids, self._pad),
            "input_mask": tf.cast(real, tf.int32),
            "segment_ids": tf.cast((place > length_a + 1) & real, tf.int32),
        }
        if not offsets:
            return inputs
        inputs |= {name: tf.where(real & ~special, take(name), -1) for name in ("starts", "ends")}
        all_pieces = _lengths(a) + (0 if b is None else _lengths(b))
        return inputs | {"truncated": (all_pieces > length_a + length_b)[:, 0]}

    def _truncated_lengths(self, a: Pieces, b: Pieces | None) -> tuple[tf.Tensor, tf.Tensor]:
        """Does what `truncated_lengths` does, for all rows at once."""
        length_a = _lengths(a)
        length_b = tf.zeros_like(length_a) if b is None else _lengths(b)
        if self.max_seq_length is None:
            return length_a, length_b
        limit = self.max_seq_length - (2 if b is None else 3)
        if self.truncation == "longest_first":
            kept_a = tf.minimum(length_a, tf.maximum(limit - length_b, (limit + 1) // 2))
            return kept_a, tf.minimum(length_b, limit - kept_a)
        excess = tf.maximum(length_a + length_b - limit, 0)
        if self.truncation == "second_then_first":
            return tf.minimum(length_a, limit), tf.maximum(length_b - excess, 0)
        kept_a = length_a - (excess if self.truncation == "only_first" else 0)
        kept_b = length_b - (excess if self.truncation == "only_second" else 0)
        fits = (kept_a >= 0) & (kept_b >= 0) & (kept_a + kept_b <= limit)
        too_long = f"pieces do not fit into max_seq_length={self.max_seq_length} with truncation={self.truncation!r}"
        with tf.control_dependencies([tf.debugging.assert_equal(fits, True, too_long)]):
            return tf.identity(kept_a), tf.identity(kept_b)

    def get_config(self) -> dict:
        """Returns all arguments, the vocabulary as the pieces of its lines."""
        special = self.special_tokens_in_text
        return {
            **super().get_config(),
            "vocabulary": list(self.pieces),
            "do_lower_case": self.do_lower_case,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.tokenize_chinese_chars,
            "special_tokens_in_text": special if isinstance(special, bool) else list(special),
            "max_seq_length": self.max_seq_length,
            "truncation": self.truncation,
        }


def _lengths(pieces: Pieces) -> tf.Tensor:
    """The number of pieces of each text, [B, 1]."""
    return (pieces.splits[1:] - pieces.splits[:-1])[:, None]


def _take(values: tf.Tensor, splits: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    """The values at ``place`` [B or 1, S] of each row; anything where a row has no such place."""
    values = tf.concat([values, [0]], 0)
    return tf.gather(values, tf.clip_by_value(splits[:-1, None] + place, 0, tf.size(values) - 1))
