"""Computes the ids of `GPT1Tokenizer` inside the graph, and makes the layer of either GPT's tokenizer."""

from typing import Any

import keras
import tensorflow as tf

from tf_bert.tokenization.byte_pair import BytePairTokenizer, GPT1Tokenizer
from tf_bert.tokenization.byte_pair_vocabulary import END_OF_WORD, UNKNOWN
from tf_bert.tokenization.in_graph_bpe import InGraphBytePairTokenizer
from tf_bert.tokenization.in_graph_words import WordCutter


@keras.saving.register_keras_serializable("tf_bert")
class InGraphGPT1Tokenizer(InGraphBytePairTokenizer):
    """Turns texts into the inputs of GPT-1 inside the graph, with the ids of `GPT1Tokenizer`, and ids into texts.

    Bytes that are not UTF-8 are left out, as there.

    Args, inputs and outputs: see `InGraphBytePairTokenizer`; the vocabulary is one of `GPT1Tokenizer`, and there are no
    special tokens in texts.

    Raises:
        ValueError: the vocabulary is damaged, or an argument is wrong.

    Example:
        >>> import tempfile
        >>> from tf_bert.tokenization.byte_pair_training import train_lower_cased_pairs
        >>> folder = tempfile.mkdtemp()
        >>> _ = train_lower_cased_pairs(["low low lower lowest"], 20).save(folder)
        >>> layer = InGraphGPT1Tokenizer(folder)
        >>> ids = layer.tokenize(["LOW?"])
        >>> [layer.pieces[number] for number in ids.to_list()[0]]
        ['low</w>', '<unk>']
        >>> layer.detokenize(layer.tokenize(["Low lower"])).numpy()
        array([b'low lower'], dtype=object)
    """

    _tokenizer_class = GPT1Tokenizer
    _encode = None

    def _make_constants(self, vocab: dict[str, int]) -> None:
        if self.special_tokens_in_text:
            raise ValueError("special_tokens_in_text is for the byte-level tokenizer of GPT-2")
        if UNKNOWN not in vocab:
            raise ValueError(f"the vocabulary lacks {UNKNOWN}: it is none of GPT-1")
        self._make_merges(vocab)
        self._unknown_id, no_piece = vocab[UNKNOWN], self.vocab_size
        characters = sorted({piece.removesuffix(END_OF_WORD) for piece in vocab})
        characters = [char for char in characters if len(char) == 1]
        inside = [vocab.get(char, no_piece) for char in characters]
        at_end = [vocab.get(char + END_OF_WORD, no_piece) for char in characters]
        lengths = [1 if piece == UNKNOWN else len(piece.removesuffix(END_OF_WORD)) for piece in self.pieces]
        with tf.init_scope(), tf.device("CPU:0"):  # constants, wherever the layer is made
            self._codes = tf.constant([*map(ord, characters), 0x110000])
            # The first row is of characters inside a word, the second of those at its end.
            self._character_ids = tf.constant([[*inside, no_piece], [*at_end, no_piece]])
            self._texts, self._lengths = tf.constant(self.pieces), tf.constant(lengths)
        basic = GPT1Tokenizer.basic_tokenizer
        self._cutter = WordCutter(basic.do_lower_case, basic.strip_accents, basic.tokenize_chinese_chars)
        self._split_rows = tf.function(self._ids_and_places, [tf.TensorSpec([None], tf.string)], autograph=False)

    def _ids_and_places(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """The ids of each text, and for each character of all words where it was in all texts, see `CutWords`."""
        cut = self._cutter.cut(texts)
        words = tf.RaggedTensor.from_row_splits(cut.codes, cut.at, validate=False)
        different, number = tf.unique(tf.strings.unicode_encode(words, "UTF-8"))
        codes = tf.strings.unicode_decode(different, "UTF-8")
        word = codes.value_rowids()
        ends = tf.concat([word[1:] != word[:-1], [True]], 0)[: tf.size(word)]
        place = tf.searchsorted(self._codes, codes.values)
        known = tf.gather(self._codes, place) == codes.values
        place = tf.where(known, place, tf.size(self._codes) - 1)
        ids = tf.where(ends, tf.gather(self._character_ids[1], place), tf.gather(self._character_ids[0], place))
        ids, word = self._merge(ids, word)
        ids = tf.where(ids == self.vocab_size, self._unknown_id, ids)
        split = tf.RaggedTensor.from_value_rowids(ids, word, nrows=tf.size(different, tf.int64), validate=False)
        ids = tf.gather(split, number)
        splits = tf.gather(ids.row_splits, cut.lines_at)
        ids = tf.RaggedTensor.from_row_splits(ids.values, splits, validate=False)
        return ids, cut.starts, cut.ends, cut.source_at

    def tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the ids of the pieces of texts and where they start and end in them, in characters."""
        ids, starts, ends, source_at = self._split(texts)
        lengths = tf.gather(self._lengths, ids.values)
        end = tf.cumsum(lengths)  # in characters of words: pieces lie side by side
        line_at = tf.gather(source_at, tf.cast(ids.value_rowids(), tf.int32))
        starts, ends = tf.gather(starts, end - lengths) - line_at, tf.gather(ends, end - 1) - line_at
        return ids, ids.with_values(starts), ids.with_values(ends)

    def detokenize(self, ids: tf.Tensor, skip_special_tokens: bool = True) -> tf.Tensor:
        """Returns the words that ids stand for, separated by blanks, as `GPT1Tokenizer.decode`.

        Args, returns and errors: see `InGraphBytePairTokenizer.detokenize`; no token is skipped.
        """
        texts = super().detokenize(ids, skip_special_tokens=False)
        return tf.strings.strip(tf.strings.regex_replace(texts, END_OF_WORD, " "))


def in_graph_layer(tokenizer: BytePairTokenizer, **options: Any) -> InGraphBytePairTokenizer:
    """The layer that does what a tokenizer does.

    Args:
        tokenizer: a `GPT2Tokenizer` or `GPT1Tokenizer`.
        **options: of the layer, such as ``max_seq_length``.

    Example:
        >>> import tempfile
        >>> from tf_bert.tokenization.byte_pair_training import train_lower_cased_pairs
        >>> folder = tempfile.mkdtemp()
        >>> _ = train_lower_cased_pairs(["low low lower lowest"], 20).save(folder)
        >>> type(in_graph_layer(GPT1Tokenizer(folder))).__name__
        'InGraphGPT1Tokenizer'
    """
    layer = InGraphGPT1Tokenizer if isinstance(tokenizer, GPT1Tokenizer) else InGraphBytePairTokenizer
    pieces = tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))
    return layer(pieces, tokenizer.merges, tokenizer.special_tokens_in_text, **options)
