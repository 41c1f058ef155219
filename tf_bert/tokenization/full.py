"""Text to pieces of a vocabulary: the tokenizer of BERT, end to end."""

import itertools
import os
from collections.abc import Callable, Iterable

from tf_bert.tokenization.basic import BasicTokenizer, convert_to_unicode, split_at_blanks
from tf_bert.tokenization.vocabulary import convert_by_vocab, ids_of, read_vocab_lines
from tf_bert.tokenization.wordpiece import WordpieceTokenizer

WORDS_REMEMBERED = 1 << 17  # some 30 MB when full
_LONGEST_WORD_REMEMBERED = 64


class WordCache(dict):
    """Remembers a function of words, within bounds: when full it forgets everything and starts anew.

    Words return by Zipf's law, so the frequent ones are back at once; nothing longer than a word is ever kept.
    """

    def __init__(self, function: Callable[[str], list], size: int = WORDS_REMEMBERED):
        super().__init__()
        self._function = function
        self._size = size

    def __missing__(self, word: str) -> list:
        value = self._function(word)
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

    Attributes:
        vocab: piece -> id, in the order of the file; `inv_vocab`: id -> piece. Not to be changed afterwards.
        vocab_size: number of lines of the file.

    Source: ``FullTokenizer`` of google-research/bert, ``tokenization.py``.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"[PAD]\\n[UNK]\\nun\\n##aff\\n##able\\n!")
        ...     file.flush()
        ...     tokenizer = FullTokenizer(file.name)
        >>> tokenizer.tokenize("Unaffable!")
        ['un', '##aff', '##able', '!']
        >>> tokenizer.convert_tokens_to_ids(tokenizer.tokenize("Unaffable!"))
        [2, 3, 4, 5]
    """

    def __init__(
        self,
        vocab_file: str | os.PathLike,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ):
        self.vocab_file = os.fspath(vocab_file)
        self.pieces = read_vocab_lines(vocab_file)
        self.vocab = ids_of(self.pieces)
        self.inv_vocab = {number: piece for piece, number in self.vocab.items()}
        self.vocab_size = len(self.pieces)
        self.basic_tokenizer = BasicTokenizer(do_lower_case, strip_accents, tokenize_chinese_chars)
        self.wordpiece_tokenizer = WordpieceTokenizer(self.vocab)
        self._pieces_of = WordCache(self._split_word)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the pieces of a text.

        Raises:
            ValueError: text is neither ``str`` nor ``bytes``.
        """
        words = split_at_blanks(convert_to_unicode(text))
        return list(itertools.chain.from_iterable(map(self._pieces_of.__getitem__, words)))

    def _split_word(self, word: str) -> list[str]:
        split = self.wordpiece_tokenizer.split_word
        return [piece for token in self.basic_tokenizer.split_word(word) for piece in split(token)]

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
