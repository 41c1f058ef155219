"""BERT's tokenizer, from text to pieces of a vocabulary (``FullTokenizer``)."""

import itertools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tf_bert.tokenization.basic import BasicTokenizer, convert_to_unicode, split_at_blanks, word_pattern
from tf_bert.tokenization.encoding import pack, truncated_lengths
from tf_bert.tokenization.offsets import split_word_with_offsets
from tf_bert.tokenization.vocabulary import (
    SPECIAL_TOKENS,
    any_of,
    check_special_tokens,
    convert_by_vocab,
    ids_of,
    read_vocab_lines,
    special_tokens,
)
from tf_bert.tokenization.wordpiece import WordpieceTokenizer, detokenize

WORDS_REMEMBERED = 1 << 17  # some 20 MB when full
_LONGEST_WORD_REMEMBERED = 64


class WordCache(dict):
    """Remembers a function of words, within bounds: when full it forgets everything and starts anew.

    Words return by Zipf's law, so the frequent ones are back at once; nothing longer than a word is ever kept.
    """

    def __init__(self, function: Callable[[str], Iterable], size: int = WORDS_REMEMBERED):
        super().__init__()
        self._function = function
        self._size = size

    def __missing__(self, word: str) -> tuple:
        value = tuple(self._function(word))
        if len(word) <= _LONGEST_WORD_REMEMBERED:
            if len(self) >= self._size:
                self.clear()
            self[word] = value
        return value

    def __reduce__(self):
        return WordCache, (self._function, self._size)


class FullTokenizer:
    """The original's tokenizer: the same pieces to the character, faster by a memory for words.

    Args:
        vocab_file: one piece a line, see `load_vocab`.
        do_lower_case: whether to lower-case, and to strip accents unless told otherwise; as the checkpoint was trained.
        strip_accents: None as the original (when lower-casing); see `BasicTokenizer`.
        tokenize_chinese_chars: whether each Chinese character is a word; the original always says so.
        special_tokens_in_text: False as the original, which splits ``[MASK]`` in a text into ``[``, ``mask``, ``]``.
            True takes the exact, case-sensitive strings of the five special tokens for these tokens, wherever they
            stand, also when lower-casing; a sequence of strings does so for these (such as ``[unused1]``). Not for
            text from strangers: it lets them write a [SEP].

    Attributes:
        vocab: piece -> id, in the order of the file; `inv_vocab`: id -> piece. Not to be changed afterwards.
        pieces: the pieces of all lines of the file; `vocab_size` is their number.

    Source: ``FullTokenizer`` of google-research/bert, ``tokenization.py``.

    Example:
        >>> import os, tempfile
        >>> from tf_bert.tokenization import save_vocab
        >>> folder = tempfile.TemporaryDirectory()
        >>> vocab_file = os.path.join(folder.name, "vocab.txt")
        >>> save_vocab("[PAD] [UNK] [CLS] [SEP] [MASK] un ##aff ##able !".split(), vocab_file)
        >>> tokenizer = FullTokenizer(vocab_file)
        >>> tokenizer.tokenize("Unaffable!")
        ['un', '##aff', '##able', '!']
        >>> tokenizer.convert_tokens_to_ids(tokenizer.tokenize("Unaffable!"))
        [5, 6, 7, 8]
        >>> tokenizer.tokenize_with_offsets("Unaffable!")
        (['un', '##aff', '##able', '!'], [(0, 2), (2, 5), (5, 9), (9, 10)])
        >>> tokenizer.encode("Unaffable!", max_seq_length=8)["input_ids"]
        array([2, 5, 6, 7, 8, 3, 0, 0], dtype=int32)
    """

    def __init__(
        self,
        vocab_file: str | os.PathLike,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        special_tokens_in_text: bool | Sequence[str] = False,
    ):
        self.vocab_file = os.fspath(vocab_file)
        self.pieces = read_vocab_lines(vocab_file)
        self.vocab = ids_of(self.pieces)
        self.inv_vocab = {number: piece for piece, number in self.vocab.items()}
        self.vocab_size = len(self.pieces)
        self.basic_tokenizer = BasicTokenizer(do_lower_case, strip_accents, tokenize_chinese_chars)
        self.wordpiece_tokenizer = WordpieceTokenizer(self.vocab)
        self.special_tokens_in_text = special_tokens_in_text
        tokens = special_tokens(special_tokens_in_text, self.vocab, self.vocab_file)
        self._special_tokens = re.compile(f"({any_of(tokens)})") if tokens else None
        self._pieces_of = WordCache(self._split_word)
        self._pieces_of_token = WordCache(self.wordpiece_tokenizer.split_word)
        self._ids_of = WordCache(self._word_to_ids)
        self._spans_of = WordCache(self._split_word_with_offsets)

    def get_config(self) -> dict:
        """Returns the switches: ``FullTokenizer(vocab_file, **config)`` is the same tokenizer."""
        return {
            "do_lower_case": self.basic_tokenizer.do_lower_case,
            "strip_accents": self.basic_tokenizer.strip_accents,
            "tokenize_chinese_chars": self.basic_tokenizer.tokenize_chinese_chars,
            "special_tokens_in_text": self.special_tokens_in_text,
        }

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the pieces of a text.

        Raises:
            ValueError: text is neither ``str`` nor ``bytes``.
        """
        return self._look_up(text, self._pieces_of, str)

    def tokenize_to_ids(self, text: str | bytes) -> list[int]:
        """Returns the ids of the pieces of a text, faster than by way of the pieces.

        Raises:
            ValueError: text is neither ``str`` nor ``bytes``.
            KeyError: the text needs [UNK], which the vocabulary lacks.
        """
        return self._look_up(text, self._ids_of, self.vocab.__getitem__)

    def _look_up(self, text: str | bytes, of_word: WordCache, of_special: Callable[[str], Any]) -> list:
        text = convert_to_unicode(text)
        # re.split returns stretches of text at even places and special tokens at odd ones.
        parts = [text] if self._special_tokens is None else self._special_tokens.split(text)
        values = []
        for i, part in enumerate(parts):
            if i % 2:
                values.append(of_special(part))
            else:
                words = split_at_blanks(part, self.basic_tokenizer.tokenize_chinese_chars)
                values += itertools.chain.from_iterable(map(of_word.__getitem__, words))
        return values

    def _split_word(self, word: str) -> Iterable[str]:
        tokens = self.basic_tokenizer.split_word(word)
        return itertools.chain.from_iterable(map(self._pieces_of_token.__getitem__, tokens))

    def _word_to_ids(self, word: str) -> list[int]:
        return self.convert_tokens_to_ids(self._split_word(word))

    def tokenize_with_offsets(self, text: str | bytes) -> tuple[list[str], list[tuple[int, int]]]:
        """Returns the pieces of a text and where they stand in it.

        Args:
            text: as for `tokenize`; offsets into ``bytes`` count the characters of what they decode to.

        Returns:
            The pieces, as `tokenize` returns them, and for each (start, end), so that ``text[start:end]`` is what it
            was made of: in characters, before any normalisation. A stripped accent belongs to the letter before it,
            characters deleted inside a piece lie within it, [UNK] covers its whole word, and the pieces of one
            character that decomposes (a Hangul syllable) all cover that character.
        """
        text = convert_to_unicode(text)
        parts = [text] if self._special_tokens is None else self._special_tokens.split(text)
        words = word_pattern(self.basic_tokenizer.tokenize_chinese_chars)
        tokens, offsets, base = [], [], 0
        for i, part in enumerate(parts):
            if i % 2:
                tokens.append(part)
                offsets.append((base, base + len(part)))
            else:
                for match in words.finditer(part):
                    place = base + match.start()
                    for piece, start, end in self._spans_of[match.group()]:
                        tokens.append(piece)
                        offsets.append((place + start, place + end))
            base += len(part)
        return tokens, offsets

    def _split_word_with_offsets(self, word: str) -> Iterable[tuple[str, int, int]]:
        for token, chars in split_word_with_offsets(word, self.basic_tokenizer):
            pieces = self._pieces_of_token[token]
            lengths = [len(piece) - 2 * (i > 0) for i, piece in enumerate(pieces)]
            if len(pieces) == 1:
                lengths = [len(chars)]  # also where the piece is [UNK]
            ends = list(itertools.accumulate(lengths))
            for piece, length, end in zip(pieces, lengths, ends, strict=True):
                yield piece, chars[end - length].start, chars[end - 1].end

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Returns the id of each token.

        Raises:
            KeyError: a token is not in the vocabulary; also [UNK], where the vocabulary lacks it.
        """
        return convert_by_vocab(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the token of each id.

        Raises:
            KeyError: an id has no token: it is beyond the vocabulary, or that of an earlier one of equal lines.
        """
        return convert_by_vocab(self.inv_vocab, ids)

    def encode(
        self,
        text: str | bytes,
        text_pair: str | bytes | None = None,
        max_seq_length: int | None = None,
        truncation: str | None = "longest_first",
    ) -> dict:
        """Returns the three inputs of BERT for one example: ``[CLS] text [SEP]``, or with ``text_pair [SEP]`` after it.

        Args:
            text: the first text.
            text_pair: the second text, whose pieces and [SEP] have segment 1; None for none.
            max_seq_length: S, what is longer is truncated, what is shorter is padded; None for neither.
            truncation: which text is shortened, see `truncated_lengths`: ``"longest_first"``, ``"only_first"``,
                ``"only_second"``, ``"second_then_first"`` or None.

        Returns:
            ``input_ids``, ``input_mask`` and ``segment_ids``, numpy int32 arrays [S].

        Raises:
            ValueError: the pieces do not fit and may not be truncated, or the vocabulary lacks special tokens.
        """
        pairs = None if text_pair is None else [text_pair]
        return {key: value[0] for key, value in self.encode_batch([text], pairs, max_seq_length, truncation).items()}

    def encode_batch(
        self,
        texts: Sequence[str | bytes],
        text_pairs: Sequence[str | bytes] | None = None,
        max_seq_length: int | None = None,
        truncation: str | None = "longest_first",
    ) -> dict:
        """Returns the three inputs of BERT for a batch, numpy int32 arrays [B, S]; see `encode`.

        Where ``max_seq_length`` is None, S is the length of the longest example.

        Raises:
            ValueError: as `encode`; or there are not as many second as first texts.
        """
        if isinstance(texts, str | bytes) or isinstance(text_pairs, str | bytes):
            raise ValueError("encode_batch takes lists of texts; use encode for one text")
        if text_pairs is not None and len(texts) != len(text_pairs):
            raise ValueError(f"{len(texts)} first texts but {len(text_pairs)} second texts")
        check_special_tokens(self.vocab, self.vocab_file)
        rows = [
            self._encode_row(text, None if text_pairs is None else text_pairs[i], max_seq_length, truncation)
            for i, text in enumerate(texts)
        ]
        return pack(rows, self.vocab["[PAD]"], max_seq_length)

    def _encode_row(self, text, text_pair, max_seq_length, truncation) -> tuple[list[int], list[int]]:
        a = self.tokenize_to_ids(text)
        b = [] if text_pair is None else self.tokenize_to_ids(text_pair)
        if max_seq_length is not None:
            limit = max_seq_length - (2 if text_pair is None else 3)
            length_a, length_b = truncated_lengths(len(a), len(b), limit, truncation)
            a, b = a[:length_a], b[:length_b]
        cls, sep = self.vocab["[CLS]"], self.vocab["[SEP]"]
        first = [cls, *a, sep]
        second = [] if text_pair is None else [*b, sep]
        return first + second, [0] * len(first) + [1] * len(second)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Returns the words of ids, separated by blanks; what normalisation has removed does not come back.

        Args:
            ids: of one example, such as a row of ``input_ids``.
            skip_special_tokens: whether to leave out [PAD], [CLS], [SEP] and [MASK].

        Raises:
            KeyError: an id has no token.
        """
        tokens = self.convert_ids_to_tokens(map(int, ids))
        left_out = {*SPECIAL_TOKENS} - {"[UNK]"} if skip_special_tokens else ()
        return detokenize(token for token in tokens if token not in left_out)
