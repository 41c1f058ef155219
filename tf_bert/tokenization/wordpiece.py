"""Splits words into pieces of a vocabulary (``WordpieceTokenizer``)."""

from collections.abc import Collection, Iterable

from tf_bert.tokenization.basic import convert_to_unicode, whitespace_tokenize

PREFIX = "##"  # marks a piece that continues a word


class WordpieceTokenizer:
    """Splits words into the longest pieces that the vocabulary holds, from left to right.

    A word with a stretch that no piece covers, or of more than ``max_input_chars_per_word`` characters, becomes one
    ``unk_token``.

    Args:
        vocab: the pieces: a mapping such as `load_vocab` returns, or any collection. It is read once, here.
        unk_token: what stands for a word that cannot be split.
        max_input_chars_per_word: longest word that is split, in characters (the original's 200; other libraries 100).

    Source: ``WordpieceTokenizer`` of google-research/bert, ``tokenization.py``; Wu et al., 2016, "Google's Neural
    Machine Translation System", section 4.1.

    Example:
        >>> WordpieceTokenizer({"un": 0, "##aff": 1, "##able": 2}).tokenize("unaffable")
        ['un', '##aff', '##able']
    """

    def __init__(self, vocab: Collection[str], unk_token: str = "[UNK]", max_input_chars_per_word: int = 200):
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word
        # Pieces are returned as these very objects, so that a corpus of tokens holds each string once.
        self._first = {piece: piece for piece in vocab}
        self._next = {piece.removeprefix(PREFIX): piece for piece in vocab if piece.startswith(PREFIX)}
        self._longest = max(map(len, self._first), default=0)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the pieces of a text whose words are separated by blanks, as `BasicTokenizer` leaves them.

        Raises:
            ValueError: text is neither ``str`` nor ``bytes``.
        """
        return [piece for word in whitespace_tokenize(convert_to_unicode(text)) for piece in self.split_word(word)]

    def split_word(self, word: str) -> list[str]:
        """Returns the pieces of one word without blanks."""
        length = len(word)
        if length > self.max_input_chars_per_word:
            return [self.unk_token]
        whole = self._first.get(word)
        if whole is not None:
            return [whole]
        pieces, start, known = [], 0, self._first
        while start < length:
            for end in range(min(length, start + self._longest), start, -1):
                piece = known.get(word[start:end])
                if piece is not None:
                    break
            else:
                return [self.unk_token]
            pieces.append(piece)
            start, known = end, self._next
        return pieces


def detokenize(tokens: Iterable[str]) -> str:
    """Joins pieces to words, separated by blanks.

    Example:
        >>> detokenize(["un", "##aff", "##able", "!"])
        'unaffable !'
    """
    return " ".join(tokens).replace(" ##", "")
