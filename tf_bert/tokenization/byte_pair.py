"""The tokenizers of GPT: byte-pair encoding of bytes (GPT-2, GPT-3) and of lower-cased words (GPT-1).

Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units", section 3.2; Radford et al.
2019, "Language Models are Unsupervised Multitask Learners", section 2.2; ``encoder.py`` of openai/gpt-2 and
``text_utils.py`` of openai/finetune-transformer-lm.
"""

import itertools
import os
import re
from collections.abc import Iterable, Sequence

import regex

from tf_bert.tokenization.basic import (
    REPLACEMENT,
    BasicTokenizer,
    convert_to_unicode,
    split_at_blanks,
    word_pattern,
)
from tf_bert.tokenization.byte_pair_vocabulary import (
    ENCODER_FILE,
    END_OF_TEXT,
    END_OF_WORD,
    MERGES_FILE,
    UNKNOWN,
    Merges,
    bytes_to_unicode,
    check_fit,
    read_encoder,
    read_merges,
)
from tf_bert.tokenization.encoding import pack_texts
from tf_bert.tokenization.full import WordCache
from tf_bert.tokenization.offsets import split_word_with_offsets
from tf_bert.tokenization.vocabulary import any_of, convert_by_vocab

# What GPT-2 never merges across: contractions; letters, digits, or other marks, each with a blank before them; blanks.
# OpenAI's expression gives the same words and takes half as long again.
GPT2_WORDS = regex.compile(r"'(?:[stmd]|re|ve|ll)| ?(?:\p{L}+|\p{N}+|[^\s\p{L}\p{N}]+)|\s+(?!\S)|\s+")
# The same words of ASCII text, from the standard library in less time.
_ASCII_WORDS = re.compile(r"'(?:[stmd]|re|ve|ll)| ?(?:[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]+)|\s+(?!\S)|\s+", re.ASCII)
Span = tuple[str, int, int]


class BytePairTokenizer:
    """What both tokenizers do; a subclass splits text into words, and words into pieces.

    Args:
        vocab_file: ``encoder.json``, or a folder that holds it with ``vocab.bpe`` (or Hugging Face's ``vocab.json`` and
            ``merges.txt``).
        merges_file: ``vocab.bpe``; None for the one beside ``encoder.json``.
        special_tokens_in_text: False takes ``<|endoftext|>`` in a text for the letters that it is written with; True
            for the special token; a sequence of strings for these. Not for text from strangers.

    Attributes:
        vocab: piece -> id; `inv_vocab`: id -> piece; `vocab_size` is their number. Not to be changed afterwards.
        merges: pairs of pieces, the first to be applied first.

    Raises:
        ValueError: a file is damaged, or the two do not fit together; says where.
        FileNotFoundError: a file is not there.
    """

    _alphabet: Sequence[str] = ()

    def __init__(
        self,
        vocab_file: str | os.PathLike,
        merges_file: str | os.PathLike | None = None,
        special_tokens_in_text: bool | Sequence[str] = False,
    ):
        self.vocab_file, self.merges_file = _both_files(os.fspath(vocab_file), merges_file)
        self.vocab = read_encoder(self.vocab_file)
        self.merges = read_merges(self.merges_file)
        check_fit(self.vocab, self.merges, self.vocab_file, self.merges_file, self._alphabet)
        self.inv_vocab = {number: piece for piece, number in self.vocab.items()}
        self.vocab_size = len(self.vocab)
        self.end_of_text_id = self.vocab.get(END_OF_TEXT)
        self.special_tokens_in_text = special_tokens_in_text
        tokens = self._tokens_in_text(special_tokens_in_text)
        self._special_tokens = re.compile(f"({any_of(tokens)})") if tokens else None
        self._merges = Merges(self.merges)
        self._pieces_of = WordCache(self._split_word)
        self._ids_of = WordCache(self._word_to_ids)
        self._spans_of = WordCache(self._split_word_with_offsets)

    def _tokens_in_text(self, choice: bool | Sequence[str]) -> list[str]:
        if isinstance(choice, str) or (not isinstance(choice, bool) and "" in choice):
            raise ValueError(f"special_tokens_in_text must be a bool or some tokens, not {choice!r}")
        tokens = [END_OF_TEXT] if choice is True else list(choice or [])
        missing = [token for token in tokens if token not in self.vocab]
        if missing:
            raise ValueError(f"{self.vocab_file} lacks the special token {missing[0]!r}")
        return sorted(tokens, key=len, reverse=True)

    def get_config(self) -> dict:
        """Returns the switches: ``type(self)(vocab_file, merges_file, **config)`` is the same tokenizer."""
        return {"special_tokens_in_text": self.special_tokens_in_text}

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the pieces of a text.

        Raises:
            ValueError: text is neither ``str`` nor ``bytes``.
        """
        return self._look_up(text, self._pieces_of, lambda token: token)

    def tokenize_to_ids(self, text: str | bytes) -> list[int]:
        """Returns the ids of the pieces of a text, faster than by way of the pieces. Errors: as `tokenize`."""
        return self._look_up(text, self._ids_of, self.vocab.__getitem__)

    def _look_up(self, text: str | bytes, of_word: WordCache, of_special) -> list:
        values = []
        for i, part in enumerate(self._parts(text)):
            if i % 2:
                values.append(of_special(part))
            else:
                values += itertools.chain.from_iterable(map(of_word.__getitem__, self._words(part)))
        return values

    def _parts(self, text: str | bytes) -> list[str]:
        """Stretches of text at even places, and the special tokens between them at odd ones."""
        text = self._decode_text(text)
        return [text] if self._special_tokens is None else self._special_tokens.split(text)

    def tokenize_with_offsets(self, text: str | bytes) -> tuple[list[str], list[tuple[int, int]]]:
        """Returns the pieces of a text and where they stand in it.

        Args:
            text: as for `tokenize`; offsets into ``bytes`` count the characters of what they decode to.

        Returns:
            The pieces, as `tokenize` returns them, and for each (start, end), in characters: ``text[start:end]`` is
            what it was made of. Pieces that share a character (bytes of an emoji) all cover it.
        """
        tokens, offsets, base = [], [], 0
        for i, part in enumerate(self._parts(text)):
            if i % 2:
                tokens.append(part)
                offsets.append((base, base + len(part)))
            else:
                for word, place in self._words_with_places(part):
                    for piece, start, end in self._spans_of[word]:
                        tokens.append(piece)
                        offsets.append((base + place + start, base + place + end))
            base += len(part)
        return tokens, offsets

    def _word_to_ids(self, word: str) -> list[int]:
        return [self.vocab[piece] for piece in self._split_word(word)]

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Returns the id of each token.

        Raises:
            KeyError: a token is not in the vocabulary.
        """
        return convert_by_vocab(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the token of each id.

        Raises:
            KeyError: an id is not one of 0 to ``vocab_size`` - 1.
        """
        return convert_by_vocab(self.inv_vocab, ids)

    def byte_lengths(self) -> dict[int, int]:
        """How many bytes of text each id stands for, a special token for none: what a loss per byte is divided by."""
        special = (END_OF_TEXT, UNKNOWN)
        return {i: 0 if piece in special else self._byte_length(piece) for i, piece in self.inv_vocab.items()}

    def encode(self, text: str | bytes, max_seq_length: int | None = None, **options) -> dict:
        """Returns ``input_ids`` and ``input_mask`` of one text, numpy int32 arrays [S]; see `encode_batch`."""
        return {key: value[0] for key, value in self.encode_batch([text], max_seq_length, **options).items()}

    def encode_batch(
        self,
        texts: Sequence[str | bytes],
        max_seq_length: int | None = None,
        *,
        padding: str = "right",
        truncation: str | None = "right",
    ) -> dict:
        """Returns ``input_ids`` and ``input_mask`` of a batch, numpy int32 arrays [B, S].

        Nothing is put around the texts. Padding is ``<|endoftext|>`` where the vocabulary has it, else id 0; the mask
        says which is which.

        Args:
            texts: B texts.
            max_seq_length: S; None for that of the longest text.
            padding: the side that is filled up: ``"right"``, or ``"left"`` as generation wants it.
            truncation: the side that is cut off; None allows none.

        Raises:
            ValueError: a text is too long and may not be cut, or an argument is wrong.
        """
        if isinstance(texts, str | bytes):
            raise ValueError("encode_batch takes a list of texts; use encode for one text")
        rows = [self.tokenize_to_ids(text) for text in texts]
        return pack_texts(rows, self.end_of_text_id or 0, max_seq_length, padding, truncation)


class GPT2Tokenizer(BytePairTokenizer):
    """The byte-level tokenizer of GPT-2 and GPT-3: any text becomes pieces and comes back the same, to the byte.

    Text given as ``bytes`` need not be UTF-8: what is not takes a piece or more of its own. Half of a surrogate pair
    in a ``str``, which has no bytes, is taken for U+FFFD.

    Args, attributes and errors: see `BytePairTokenizer`. ``encoder.json`` must have all 256 bytes.

    Example:
        >>> import tempfile
        >>> from tf_bert.tokenization.byte_pair_training import train_byte_pairs
        >>> folder = tempfile.mkdtemp()
        >>> _ = train_byte_pairs(["low lower lowest"], 259).save(folder)
        >>> tokenizer = GPT2Tokenizer(folder)
        >>> tokenizer.tokenize("a lower é")
        ['a', 'Ġ', 'low', 'e', 'r', 'Ġ', 'Ã', '©']
        >>> tokenizer.tokenize_with_offsets("low é")[1]
        [(0, 3), (3, 4), (4, 5), (4, 5)]
        >>> tokenizer.decode_bytes(tokenizer.tokenize_to_ids(b"not UTF-8: \\xff"))
        b'not UTF-8: \\xff'
    """

    _symbols = bytes_to_unicode()
    _alphabet = tuple(_symbols.values())

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._bytes = {number: piece_bytes(piece) for number, piece in self.inv_vocab.items()}

    def _decode_text(self, text: str | bytes) -> str:
        # Bytes that are not UTF-8 become lone surrogates, and those become the bytes again.
        return text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else convert_to_unicode(text)

    def _words(self, text: str) -> list[str]:
        return (_ASCII_WORDS if text.isascii() else GPT2_WORDS).findall(text)

    def _words_with_places(self, text: str) -> Iterable[tuple[str, int]]:
        return ((match.group(), match.start()) for match in GPT2_WORDS.finditer(text))

    def _split_word(self, word: str) -> list[str]:
        return self._merges.split(text_bytes(word).decode("latin-1").translate(self._symbols))

    def _split_word_with_offsets(self, word: str) -> Iterable[Span]:
        character_of = [place for place, char in enumerate(word) for _ in text_bytes(char)]  # of each byte
        end = 0
        for piece in self._pieces_of[word]:
            start, end = end, end + len(piece)
            yield piece, character_of[start], character_of[end - 1] + 1

    def _byte_length(self, piece: str) -> int:
        return len(piece_bytes(piece))

    def decode_bytes(self, ids: Iterable[int], skip_special_tokens: bool = False) -> bytes:
        """Returns the bytes that ids stand for: of any text exactly its bytes.

        Args:
            ids: of one text.
            skip_special_tokens: whether to leave out ``<|endoftext|>``.

        Raises:
            KeyError: an id is not one of 0 to ``vocab_size`` - 1.
        """
        skipped = self.end_of_text_id if skip_special_tokens else None
        return b"".join(convert_by_vocab(self._bytes, [number for number in map(int, ids) if number != skipped]))

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True, errors: str = "replace") -> str:
        """Returns the text that ids stand for.

        Args:
            ids: of one text, or of a part of it.
            skip_special_tokens: whether to leave out ``<|endoftext|>``.
            errors: what becomes of bytes that are not UTF-8, such as half an emoji: ``"replace"`` puts U+FFFD,
                ``"strict"`` is an error.

        Raises:
            KeyError: an id is not one of 0 to ``vocab_size`` - 1.
            ValueError: the bytes are not UTF-8 and ``errors`` is ``"strict"``.
        """
        data = self.decode_bytes(ids, skip_special_tokens)
        try:
            return data.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise ValueError(f"the ids stand for bytes that are not UTF-8: {error}; see decode_bytes") from None


class GPT1Tokenizer(BytePairTokenizer):
    """The tokenizer of GPT-1: lower-cased words, each ending in ``</w>``, split by merges.

    Words are those of `BasicTokenizer`, which is what Hugging Face's ``OpenAIGPTTokenizerFast`` does. (OpenAI cut them
    with spaCy's rules for English after repairing the text with ftfy; the two differ at "don't" and the like.)
    A character that the vocabulary lacks becomes ``<unk>``.

    Args, attributes and errors: see `BytePairTokenizer`. ``encoder.json`` must have ``<unk>``.

    Example:
        >>> import tempfile
        >>> from tf_bert.tokenization.byte_pair_training import train_lower_cased_pairs
        >>> folder = tempfile.mkdtemp()
        >>> _ = train_lower_cased_pairs(["low low lower lowest"], 20).save(folder)
        >>> tokenizer = GPT1Tokenizer(folder)
        >>> tokenizer.tokenize("Low?")
        ['low</w>', '<unk>']
        >>> tokenizer.decode(tokenizer.tokenize_to_ids("LOW lower"))
        'low lower'
    """

    _alphabet = ()
    basic_tokenizer = BasicTokenizer(do_lower_case=True)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if UNKNOWN not in self.vocab:
            raise ValueError(f"{self.vocab_file} lacks {UNKNOWN}: it is no vocabulary of GPT-1")

    def _decode_text(self, text: str | bytes) -> str:
        return convert_to_unicode(text)

    def _words(self, text: str) -> list[str]:
        return split_at_blanks(text, self.basic_tokenizer.tokenize_chinese_chars)

    def _words_with_places(self, text: str) -> Iterable[tuple[str, int]]:
        words = word_pattern(self.basic_tokenizer.tokenize_chinese_chars)
        return ((match.group(), match.start()) for match in words.finditer(text))

    def _split_word(self, word: str) -> Iterable[str]:
        return itertools.chain.from_iterable(map(self._split_token, self.basic_tokenizer.split_word(word)))

    def _split_token(self, token: str) -> list[str]:
        pieces = self._merges.split([*token[:-1], token[-1] + END_OF_WORD])
        return [piece if piece in self.vocab else UNKNOWN for piece in pieces]

    def _split_word_with_offsets(self, word: str) -> Iterable[Span]:
        for token, chars in split_word_with_offsets(word, self.basic_tokenizer):
            end = 0
            for piece in self._split_token(token):
                length = 1 if piece == UNKNOWN else len(piece.removesuffix(END_OF_WORD))
                start, end = end, end + length
                yield piece, chars[start].start, chars[end - 1].end

    def _byte_length(self, piece: str) -> int:
        return len(piece.replace(END_OF_WORD, " ").encode())

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the words of ids, separated by blanks; what lower-casing has removed does not come back.

        Raises:
            KeyError: an id is not one of 0 to ``vocab_size`` - 1.
        """
        return "".join(self.convert_ids_to_tokens(map(int, ids))).replace(END_OF_WORD, " ").strip()


_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_BYTE_OF = {symbol: byte for byte, symbol in bytes_to_unicode().items()}


def piece_bytes(piece: str) -> bytes:
    """The bytes that a piece of a byte-level vocabulary stands for; a special token stands for itself.

    Example:
        >>> piece_bytes("ĠÃ©").decode()
        ' é'
    """
    try:
        return bytes(map(_BYTE_OF.__getitem__, piece))
    except KeyError:
        return piece.encode()


def text_bytes(text: str) -> bytes:
    """The bytes of a text in UTF-8.

    What ``surrogateescape`` has made of bytes that are not UTF-8 becomes these bytes again; another half of a surrogate
    pair becomes U+FFFD, see `tf_bert.tokenization.basic.without_surrogates`.

    Example:
        >>> text_bytes("é"), text_bytes("\\udcff"), text_bytes("\\ud83d") == "�".encode()
        (b'\xc3\xa9', b'\xff', True)
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return _NO_BYTE.sub(REPLACEMENT, text).encode("utf-8", "surrogateescape")


def _both_files(vocab_file: str, merges_file: str | os.PathLike | None) -> tuple[str, str]:
    if os.path.isdir(vocab_file):
        pairs = [(ENCODER_FILE, MERGES_FILE), ("vocab.json", "merges.txt")]
        paths = [tuple(os.path.join(vocab_file, name) for name in pair) for pair in pairs]
        found = [pair for pair in paths if all(map(os.path.isfile, pair))]
        if not found:
            raise FileNotFoundError(
                f"{vocab_file} holds no byte-pair vocabulary: expected {ENCODER_FILE} and {MERGES_FILE}, or vocab.json "
                "and merges.txt"
            )
        return found[0][0], os.fspath(merges_file or found[0][1])
    if merges_file is None:
        name = "merges.txt" if os.path.basename(vocab_file) == "vocab.json" else MERGES_FILE
        merges_file = os.path.join(os.path.dirname(vocab_file), name)
    return vocab_file, os.fspath(merges_file)
