"""`BasicTokenizer` and `WordpieceTokenizer` as TensorFlow operations on a batch of lines.

Texts become one long row of code points, and ``splits`` says where each line begins and ends in it; every step works on
all of it at once. Each code point is looked up in the tables of `code_points`, words are cut out of what comes back
(``out``), and tensorflow-text's FastWordpiece finds their pieces. What is rare in a text (deleted characters, accents
that stand alone, Hangul, a capital sigma) takes a longer way, and lines of plain ASCII take a shorter one.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_bert.tokenization import code_points as cp
from tf_bert.tokenization.basic import NO_CHARACTER, without_surrogates

_PLAIN_ASCII = r"[\t\n\r -~]*"
_MAX_CHARS_PER_WORD = 200
_IN_NO_WORD = "\x01"


class Pieces(NamedTuple):
    """Pieces of all lines, one after the other: ``ids`` and the characters ``starts``, ``ends`` of their source, int32.

    The pieces of line i are those from ``splits[i]`` to ``splits[i + 1]``.
    """

    ids: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    splits: tf.Tensor


class CutWords(NamedTuple):
    """Words of all lines, one after the other.

    ``codes`` [characters] are their code points; the characters of word i are those from ``at[i]`` to ``at[i + 1]``,
    the words of line i those from ``lines_at[i]`` to ``lines_at[i + 1]``. Each character was made of those from
    ``starts`` to ``ends`` of all lines together, of which those of line i begin at ``source_at[i]``.
    """

    codes: tf.Tensor
    at: tf.Tensor
    lines_at: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    source_at: tf.Tensor


class WordCutter:
    """Splits lines into words, as `BasicTokenizer` does.

    Args:
        do_lower_case: the switches of `BasicTokenizer`.
        strip_accents: likewise.
        tokenize_chinese_chars: likewise.
    """

    def __init__(self, do_lower_case: bool, strip_accents: bool, tokenize_chinese_chars: bool):
        self.do_lower_case = do_lower_case
        with tf.init_scope(), tf.device("CPU:0"):  # constants, wherever the layer is made
            tables = cp.code_point_tables(do_lower_case, strip_accents, tokenize_chinese_chars)
            self.entries, self.expansions, self.row_splits, self.combining = map(tf.constant, tables)

    def cut(self, lines: tf.Tensor) -> CutWords:
        """Splits lines of any characters into words."""
        decoded = tf.strings.unicode_decode(lines, "UTF-8", errors="ignore")
        codes, lines_at = decoded.values, tf.cast(decoded.row_splits, tf.int32)
        last = tf.size(self.entries) - 1
        out = tf.bitwise.bitwise_xor(tf.gather(self.entries, tf.minimum(codes, last)), codes)
        source = tf.range(tf.size(out))
        out, source, end, splits = tf.cond(
            tf.reduce_any(_has(out, cp.RARE)),
            lambda: self.rewrite(out, lines_at),
            lambda: (out, source, source + 1, lines_at),
        )

        # Words: what stands between spaces; a Chinese character and a punctuation mark each by itself.
        space, alone = _has(out, cp.SPACE), _has(out, cp.CHINESE | cp.PUNCTUATION)
        begins = alone | tf.concat([[True], (space | alone)[:-1]], 0)[: tf.size(out)]
        lines_with_text = tf.boolean_mask(splits[:-1], splits[:-1] < tf.size(out))[:, None]
        begins = tf.tensor_scatter_nd_update(begins, lines_with_text, tf.ones_like(lines_with_text[:, 0], tf.bool))
        kept = _where(~space)
        codes = tf.bitwise.bitwise_and(tf.gather(out, kept), cp.CODE)
        words_at = _where(tf.gather(begins, kept))
        lines_of_words_at = tf.searchsorted(tf.gather(kept, words_at), splits)
        words_at = tf.concat([words_at, [tf.size(kept)]], 0)
        return CutWords(codes, words_at, lines_of_words_at, tf.gather(source, kept), tf.gather(end, kept), lines_at)

    def rewrite(self, out: tf.Tensor, splits_of_source: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Deletes, expands and reorders where it is not one character for one.

        Args:
            out: int32 [n], entries of the characters of all lines.
            splits_of_source: where the lines begin and end in them.

        Returns:
            The entries that remain, for each the character of the source where it starts and where it ends, and where
            the lines begin and end in them.
        """
        source = _where(~_has(out, cp.DELETED))
        out = tf.gather(out, source)
        splits = tf.searchsorted(source, splits_of_source)
        if self.do_lower_case:
            out = _final_sigmas(out, splits)
        # What is not combining begins a run; the combining characters of a run are to be in canonical order.
        line_begins = tf.scatter_nd(splits[:-1, None], tf.ones_like(splits[:-1]), [tf.size(out) + 1])[:-1]
        run = tf.cumsum(tf.maximum(line_begins, 1 - tf.cast(_has(out, cp.COMBINING), tf.int32)))

        several = _has(out, cp.SEVERAL)
        row = tf.where(several, tf.bitwise.bitwise_and(out, cp.CODE), 0)
        row_at = tf.gather(self.row_splits, row)
        length = tf.where(several, tf.gather(self.row_splits, row + 1) - row_at, 1)
        origin = tf.repeat(tf.range(tf.size(out)), length)
        place = tf.range(tf.size(origin)) - tf.gather(tf.cumsum(length, exclusive=True), origin)
        several = tf.gather(several, origin)
        expanded = tf.gather(self.expansions, tf.where(several, tf.gather(row_at, origin) + place, 0))
        out = tf.where(several, expanded, tf.gather(out, origin))
        source = tf.gather(source, origin)

        kept = _where(~_has(out, cp.ACCENT))
        # An accent belongs to the character before it, up to the next character or the end of the line.
        line = tf.gather(tf.cumsum(line_begins) - 1, tf.gather(origin, kept))
        line_end = tf.gather(tf.searchsorted(origin, splits), line + 1)
        following = tf.minimum(tf.concat([kept[1:], [tf.size(out)]], 0)[: tf.size(kept)], line_end)
        start, end = tf.gather(source, kept), tf.gather(source, following - 1) + 1
        out = tf.gather(out, kept)
        end = tf.where(_has(out, cp.CHINESE), start + 1, end)
        splits = tf.searchsorted(start, splits_of_source)
        run = tf.gather(run, tf.gather(origin, kept))
        return self.in_canonical_order(out, run), start, end, splits

    def in_canonical_order(self, out: tf.Tensor, run: tf.Tensor) -> tf.Tensor:
        """Sorts the combining characters of each run by their class; the order of the runs is kept."""
        combining = _has(out, cp.COMBINING)

        def in_order() -> tf.Tensor:
            place = tf.searchsorted(self.combining[:, 0], tf.bitwise.bitwise_and(out, cp.CODE))
            number = tf.gather(self.combining[:, 1], tf.minimum(place, tf.shape(self.combining)[0] - 1))
            key = tf.cast(run, tf.int64) * 256 + tf.cast(tf.where(combining, number, 0), tf.int64)
            return tf.gather(out, tf.argsort(key, stable=True))

        return tf.cond(tf.reduce_any(combining), in_order, lambda: out)


class GraphWords(WordCutter):
    """Splits lines into pieces, as `FullTokenizer` does.

    Args:
        pieces: the lines of the vocabulary, [UNK] among them.
        do_lower_case: the switches of `BasicTokenizer`.
        strip_accents: likewise.
        tokenize_chinese_chars: likewise.

    Raises:
        ImportError: tensorflow-text is not installed.
        ValueError: tensorflow-text cannot use the vocabulary, because a piece is longer than 256 bytes.
    """

    def __init__(self, pieces: Sequence[str], do_lower_case: bool, strip_accents: bool, tokenize_chinese_chars: bool):
        super().__init__(do_lower_case, strip_accents, tokenize_chinese_chars)
        text = tensorflow_text_or_error()
        vocab = _unique(pieces)
        with tf.init_scope(), tf.device("CPU:0"):
            try:
                # Whole words of any script, at most 200 characters of 4 bytes; and lines of plain ASCII.
                self.words = text.FastWordpieceTokenizer(
                    vocab, max_bytes_per_word=4 * _MAX_CHARS_PER_WORD, token_out_type=tf.int32, no_pretokenization=True
                )
                self.ascii_lines = text.FastWordpieceTokenizer(
                    vocab, max_bytes_per_word=_MAX_CHARS_PER_WORD, token_out_type=tf.int32
                )
            except RuntimeError as error:
                raise ValueError(f"tensorflow-text cannot use the vocabulary: {error}") from None

        signature = [tf.TensorSpec([None], tf.string)]
        # Compiled once, so that eager calls are fast too.
        self._split_to_ids = tf.function(lambda lines: self._split(lines, False), signature, autograph=False)
        self._split_with_offsets = tf.function(lambda lines: self._split(lines, True), signature, autograph=False)

    def split(self, lines: tf.Tensor, offsets: bool) -> Pieces:
        """Splits lines [n] of UTF-8 into pieces; without ``offsets``, ``starts`` and ``ends`` are empty."""
        with tf.device("CPU:0"):  # where strings are, also in a model on an accelerator
            return self._split_with_offsets(lines) if offsets else self._split_to_ids(lines)

    def _split(self, lines: tf.Tensor, offsets: bool) -> Pieces:
        plain = tf.strings.regex_full_match(lines, _PLAIN_ASCII)

        def all_lines() -> Pieces:
            short, long = tf.where(plain)[:, 0], tf.where(~plain)[:, 0]
            parts = self.split_ascii(tf.gather(lines, short), offsets), self.split_any(tf.gather(lines, long), offsets)
            order = tf.math.invert_permutation(tf.cast(tf.concat([short, long], 0), tf.int32))
            splits = tf.concat([parts[0].splits, parts[1].splits[1:] + parts[0].splits[-1]], 0)

            def in_order(values: Sequence[tf.Tensor]) -> tf.RaggedTensor:
                rows = tf.RaggedTensor.from_row_splits(tf.concat(values, 0), splits, validate=False)
                return tf.gather(rows, order)

            ids = in_order([part.ids for part in parts])
            if not offsets:
                return Pieces(ids.values, parts[0].starts, parts[0].ends, ids.row_splits)
            starts = in_order([part.starts for part in parts])
            ends = in_order([part.ends for part in parts])
            return Pieces(ids.values, starts.values, ends.values, ids.row_splits)

        return tf.cond(tf.reduce_all(plain), lambda: self.split_ascii(lines, offsets), all_lines)

    def split_ascii(self, lines: tf.Tensor, offsets: bool) -> Pieces:
        """Splits lines of printable ASCII, where tensorflow-text agrees and a byte is a character."""
        if self.do_lower_case:
            lines = tf.strings.lower(lines)
        if not offsets:
            ids = self.ascii_lines.tokenize(lines)
            return _without_offsets(ids.values, tf.cast(ids.row_splits, tf.int32))
        ids, starts, ends = self.ascii_lines.tokenize_with_offsets(lines)
        splits = tf.cast(ids.row_splits, tf.int32)
        return Pieces(ids.values, tf.cast(starts.values, tf.int32), tf.cast(ends.values, tf.int32), splits)

    def split_any(self, lines: tf.Tensor, offsets: bool) -> Pieces:
        """Splits lines of any characters."""
        codes, words_at, lines_of_words_at, starts, ends, source_at = self.cut(lines)
        words = tf.strings.unicode_encode(tf.RaggedTensor.from_row_splits(codes, words_at, validate=False), "UTF-8")
        too_long = words_at[1:] - words_at[:-1] > _MAX_CHARS_PER_WORD
        words = tf.where(too_long, "[UNK]", words)
        if not offsets:
            ids = self.words.tokenize(words)
            return _without_offsets(ids.values, tf.gather(tf.cast(ids.row_splits, tf.int32), lines_of_words_at))

        ids, first_byte, end_byte = self.words.tokenize_with_offsets(words)
        pieces_at = tf.gather(tf.cast(ids.row_splits, tf.int32), lines_of_words_at)
        # From bytes in a word to characters of the source.
        bytes_at = tf.cumsum(1 + sum(tf.cast(codes >= bound, tf.int32) for bound in (0x80, 0x800, 0x10000)))
        bytes_at = tf.concat([[0], bytes_at], 0)  # of each kept character, and the end
        word = tf.cast(ids.value_rowids(), tf.int32)
        word_byte = tf.gather(bytes_at, words_at)
        first_byte = tf.gather(word_byte, word) + tf.cast(first_byte.values, tf.int32)
        end_byte = tf.gather(word_byte, word) + tf.cast(end_byte.values, tf.int32)
        end_byte = tf.where(tf.gather(too_long, word), tf.gather(word_byte, word + 1), end_byte)
        first = tf.gather(starts, tf.searchsorted(bytes_at, first_byte))
        end = tf.gather(ends, tf.searchsorted(bytes_at, end_byte) - 1)
        line = tf.cast(tf.RaggedTensor.from_row_splits(ids.values, pieces_at, validate=False).value_rowids(), tf.int32)
        line_at = tf.gather(source_at, line)
        return Pieces(ids.values, first - line_at, end - line_at, pieces_at)


def _final_sigmas(out: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
    """Writes the final form of each capital sigma that follows a cased letter and precedes none, as ``str.lower``.

    Characters such as the apostrophe are overlooked on both sides (The Unicode Standard, section 3.13, Final_Sigma).
    """
    sigma, seen = _where(_has(out, cp.SIGMA)), _where(~_has(out, cp.IGNORABLE))
    number = tf.searchsorted(seen, sigma)
    before = tf.gather(tf.concat([[-1], seen], 0), number)
    after = tf.gather(tf.concat([seen, [tf.size(out)]], 0), number + 1)
    line = tf.searchsorted(splits, sigma, side="right") - 1
    cased = tf.concat([_has(out, cp.CASED), [False]], 0)
    follows = (before >= tf.gather(splits, line)) & tf.gather(cased, tf.maximum(before, 0))
    precedes = (after < tf.gather(splits, line + 1)) & tf.gather(cased, after)
    final = tf.boolean_mask(sigma, follows & ~precedes)[:, None]
    return tf.tensor_scatter_nd_update(out, final, tf.fill(tf.shape(final)[:1], cp.FINAL_SIGMA))


def _has(out: tf.Tensor, flags: int) -> tf.Tensor:
    return tf.bitwise.bitwise_and(out, flags) != 0


def _where(condition: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.where(condition)[:, 0], tf.int32)


def _without_offsets(ids: tf.Tensor, splits: tf.Tensor) -> Pieces:
    empty = tf.zeros([0], tf.int32)
    return Pieces(ids, empty, empty, splits)


def _unique(pieces: Sequence[str]) -> list[str]:
    """Replaces the lines that no word can match, which tensorflow-text does not take: empty and repeated ones."""
    last = {piece: number for number, piece in enumerate(pieces)}
    return [
        piece if last[piece] == number and [piece] == piece.split() != ["##"] else f"{_IN_NO_WORD}{number}"
        for number, piece in enumerate(pieces)
    ]


def string_tensor(texts, encode: Callable[[str], bytes] | None = None) -> tf.Tensor:
    """Texts as a tensor of bytes.

    Args:
        texts: a tensor, or strings in lists, arrays or alone.
        encode: of a string with half of a surrogate pair in it, which has no UTF-8; by default that half becomes a
            character that no vocabulary holds, as in the tokenizers in Python.
    """
    try:
        return tf.convert_to_tensor(texts, tf.string)
    except ValueError as error:  # UnicodeEncodeError too
        if "unicode" not in f"{type(error).__name__} {error}".lower():
            raise
    encode = encode or (lambda text: without_surrogates(text, NO_CHARACTER).encode("utf-8"))
    encoded = np.vectorize(lambda text: encode(text) if isinstance(text, str) else text, otypes=[object])
    return tf.convert_to_tensor(encoded(np.array(texts, object)), tf.string)


def tensorflow_text_or_error():
    """Imports tensorflow-text, which also registers its operations.

    Raises:
        ImportError: it is not installed; says which one to install.
    """
    try:
        import tensorflow_text
    except ImportError as error:
        raise ImportError(
            "the tokenizer in the graph needs tensorflow-text, in the release of TensorFlow: pip install "
            f"tensorflow-text=={tf.__version__.rsplit('.', 1)[0]}.* (there are wheels for Linux on x86-64); "
            f"FullTokenizer gives the same ids without it ({error})"
        ) from None
    return tensorflow_text
