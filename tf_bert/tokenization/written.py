"""The text that ids are written as, piece by piece; a text as the pieces of a vocabulary would write it."""

from tf_bert.tokenization.byte_pair import GPT1Tokenizer, GPT2Tokenizer
from tf_bert.tokenization.byte_pair_vocabulary import END_OF_WORD
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.sentence_piece import SentencePieceTokenizer
from tf_bert.tokenization.vocabulary import SPECIAL_TOKENS

Tokenizer = GPT2Tokenizer | GPT1Tokenizer | FullTokenizer | SentencePieceTokenizer
_SPACE = "\u2581"  # a blank in SentencePiece's pieces


def keeps_every_byte(tokenizer: Tokenizer) -> bool:
    """Whether texts come back to the byte; the others lose blanks at the beginning, and maybe case and accents."""
    return isinstance(tokenizer, GPT2Tokenizer)


def written_pieces(tokenizer: Tokenizer) -> list[bytes]:
    """Returns the bytes that each id adds to a text, in the order of the ids.

    The decoded text of some ids is these bytes one after the other, without the blanks at its beginning unless
    `keeps_every_byte`. (``GPT1Tokenizer.decode`` also drops the blank after the last word.)

    Raises:
        ValueError: the tokenizer is of another class.

    Example:
        >>> import os, tempfile
        >>> from tf_bert.tokenization import save_vocab
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_vocab("[PAD] [UNK] [CLS] [SEP] [MASK] un ##aff".split(), os.path.join(folder, "vocab.txt"))
        ...     written_pieces(FullTokenizer(os.path.join(folder, "vocab.txt")))
        [b'', b' [UNK]', b'', b'', b'', b' un', b'aff']
    """
    if isinstance(tokenizer, GPT2Tokenizer):
        return [tokenizer.decode_bytes([number], skip_special_tokens=True) for number in range(tokenizer.vocab_size)]
    if isinstance(tokenizer, GPT1Tokenizer):
        pieces = tokenizer.convert_ids_to_tokens(range(tokenizer.vocab_size))
        return [piece.replace(END_OF_WORD, " ").encode() for piece in pieces]
    if isinstance(tokenizer, FullTokenizer):
        return [_word_piece(piece).encode() for piece in tokenizer.pieces]
    if isinstance(tokenizer, SentencePieceTokenizer):
        return [_sentence_piece(tokenizer, number) for number in range(tokenizer.vocab_size)]
    raise ValueError(
        f"a {type(tokenizer).__name__} does not say what text its ids stand for; expected GPT2Tokenizer, "
        "GPT1Tokenizer, FullTokenizer or SentencePieceTokenizer"
    )


def _word_piece(piece: str) -> str:
    if piece in SPECIAL_TOKENS and piece != "[UNK]":
        return ""
    return piece[2:] if piece.startswith("##") else " " + piece


def _sentence_piece(tokenizer: SentencePieceTokenizer, number: int) -> bytes:
    processor = tokenizer.processor
    if processor.is_byte(number):
        return bytes([int(processor.id_to_piece(number)[1:-1], 16)])  # <0x0A>
    if processor.is_control(number):
        return b""
    if processor.is_unknown(number):
        return processor.decode([number]).encode()
    return processor.id_to_piece(number).replace(_SPACE, " ").encode()


def as_written(text: str | bytes, tokenizer: Tokenizer) -> bytes:
    """Returns a text as the pieces of a vocabulary would write it.

    A byte-level vocabulary writes it as it is. The others normalise it as they do any text (case, accents, blanks,
    punctuation as words of their own); one blank stands for those at its ends. What they cannot write at all, such as
    the end of a line, is the empty text.

    Example:
        >>> import os, tempfile
        >>> from tf_bert.tokenization import save_vocab
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_vocab("[PAD] [UNK] [CLS] [SEP] [MASK] un ##aff".split(), os.path.join(folder, "vocab.txt"))
        ...     as_written(" Unaff.", FullTokenizer(os.path.join(folder, "vocab.txt")))
        b' unaff .'
    """
    if keeps_every_byte(tokenizer):
        return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    text = text.decode("utf-8", "ignore") if isinstance(text, bytes) else text
    if not text.strip(" "):
        return b" " if text else b""
    if isinstance(tokenizer, SentencePieceTokenizer):
        written = tokenizer.processor.normalize(text).replace(_SPACE, " ").strip()
    else:
        written = " ".join(tokenizer.basic_tokenizer.tokenize(text))
    before, after = (" " if blank else "" for blank in (text[:1].isspace(), text[-1:].isspace()))
    return (before + written + after if written else "").encode()
