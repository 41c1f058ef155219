"""SentencePiece: sub-words learned from raw text, blanks included (Kudo and Richardson 2018)."""

import io
import itertools
import os
from collections.abc import Iterable, Sequence

from tf_bert.files import atomic_writer, open_binary
from tf_bert.tokenization.basic import convert_to_unicode, without_surrogates

MODEL_TYPES = ("unigram", "bpe", "char", "word")
SYMBOLS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}


class SentencePieceTokenizer:
    """Text to the pieces of a SentencePiece model, and back to the same text.

    Blanks are part of the pieces (``\\u2581``), so that `decode` restores them; a character that the model does not
    know becomes the unknown piece. The methods are those of `tf_bert.tokenization.full.FullTokenizer`.

    Args:
        model_file: a ``.model`` file of any SentencePiece, ours (`train_sentence_piece`) or another's.

    Attributes:
        vocab_size: number of pieces; `pad_id`, `unknown_id`, `start_id` and `end_id` are -1 where the model lacks them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no SentencePiece model.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = train_sentence_piece(["low lower lowest"] * 9, os.path.join(folder, "a.model"), 15, "bpe")
        ...     tokenizer = SentencePieceTokenizer(path)
        >>> tokenizer.tokenize("lower low")
        ['▁low', 'e', 'r', '▁low']
        >>> tokenizer.decode(tokenizer.encode("lower low")), tokenizer.end_id
        ('lower low', 3)
    """

    def __init__(self, model_file: str | os.PathLike):
        import sentencepiece

        self.vocab_file = os.fspath(model_file)
        with open_binary(model_file) as file:
            self.model = file.read()
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
            self.vocab_size = self.processor.get_piece_size()
            for number in range(self.vocab_size):  # some faults show only here
                self.processor.encode(self.processor.id_to_piece(number))
        except (RuntimeError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.vocab_file} is no SentencePiece model: {error}") from None
        self.pad_id, self.unknown_id = self.processor.pad_id(), self.processor.unk_id()
        self.start_id, self.end_id = self.processor.bos_id(), self.processor.eos_id()

    def tokenize(self, text: str | bytes) -> list[str]:
        """The pieces of a text.

        Raises:
            ValueError: text is neither ``str`` nor ``bytes``.
        """
        return self.processor.encode(_plain(text), out_type=str)

    def encode(self, text: str | bytes) -> list[int]:
        """The ids of a text's pieces; errors as `tokenize`."""
        return self.processor.encode(_plain(text))

    tokenize_to_ids = encode

    def tokenize_with_offsets(self, text: str | bytes) -> tuple[list[str], list[tuple[int, int]]]:
        """The pieces of a text and where they stand in it, in characters; a blank belongs to the piece behind it."""
        text = _plain(text)
        pieces = self.processor.encode_as_proto(text).pieces
        # Offsets are in bytes of UTF-8.
        characters = list(itertools.chain.from_iterable([i] * len(char.encode()) for i, char in enumerate(text)))
        characters.append(len(text))
        offsets = []
        for piece in pieces:
            start, end = characters[piece.begin], characters[piece.end]
            blanks = len(text[start:end]) - len(text[start:end].lstrip())
            offsets.append((start + blanks if start + blanks < end else start, end))
        return [piece.piece for piece in pieces], offsets

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """The id of each piece; that of the unknown piece for others."""
        return [self.processor.piece_to_id(_plain(token)) for token in tokens]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The piece of each id.

        Raises:
            KeyError: an id lies outside the model.
        """
        ids = [int(number) for number in ids]
        for number in ids:
            if not 0 <= number < self.vocab_size:
                raise KeyError(f"id {number} is not one of the {self.vocab_size} pieces of {self.vocab_file}")
        return [self.processor.id_to_piece(number) for number in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; start, end and padding have none, the unknown piece is `` ⁇ ``."""
        return self.detokenize(self.convert_ids_to_tokens(ids))

    def detokenize(self, tokens: Sequence[str]) -> str:
        """The text of pieces."""
        return self.processor.decode(list(map(_plain, tokens)))

    def in_graph(self):
        """The same tokenizer as a `tensorflow_text.SentencepieceTokenizer`, for `tf.data` and SavedModels.

        Raises:
            ImportError: tensorflow-text is not installed.
        """
        try:
            import tensorflow_text
        except ImportError as error:
            raise ImportError(f"SentencePiece inside the graph needs tensorflow-text: {error}") from None
        return tensorflow_text.SentencepieceTokenizer(model=self.model)


def _plain(text: str | bytes) -> str:
    return without_surrogates(convert_to_unicode(text))


def train_sentence_piece(
    sentences: Iterable[str],
    model_file: str | os.PathLike,
    vocab_size: int,
    model_type: str = "unigram",
    character_coverage: float = 1.0,
    lower_case: bool = False,
    max_sentences: int = 1_000_000,
) -> str:
    """Learns a SentencePiece model with padding 0, unknown 1, start 2 and end 3.

    Args:
        sentences: the text, any number of lines.
        model_file: where the model goes.
        vocab_size: pieces; fewer where the text does not have so many.
        model_type: ``unigram`` (Kudo 2018), ``bpe`` (Sennrich et al. 2016), ``char`` or ``word`` (between blanks).
        character_coverage: share of the text's characters that the kept ones make up.
        lower_case: whether the model folds the case of what it is given.
        max_sentences: a sample of so many is learned from, drawn by the library.

    Returns:
        ``model_file``.

    Raises:
        ValueError: the type is unknown, there is no text, or the vocabulary is smaller than the characters need.
    """
    import sentencepiece

    if model_type not in MODEL_TYPES:
        raise ValueError(f"the type of a SentencePiece model is one of {', '.join(MODEL_TYPES)}, not {model_type!r}")
    written, failed = io.BytesIO(), []

    def read():
        try:
            yield from map(_plain, sentences)
        except Exception as error:  # the library would wrap it in its own
            failed.append(error)
            raise

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=read(),
            model_writer=written,
            vocab_size=vocab_size,
            model_type=model_type,
            character_coverage=character_coverage,
            normalization_rule_name="nmt_nfkc_cf" if lower_case else "nmt_nfkc",
            hard_vocab_limit=False,
            input_sentence_size=max_sentences,
            shuffle_input_sentence=True,
            max_sentence_length=1 << 20,  # longer lines would be left out without a word
            num_threads=1,  # the sums of several come in any order
            minloglevel=2,
            **SYMBOLS,
        )
    except (RuntimeError, OSError) as error:
        if failed:
            raise failed[0] from None
        raise ValueError(f"no SentencePiece model of {vocab_size} pieces ({model_type}): {error}") from None
    with atomic_writer(model_file) as file:
        file.write(written.getvalue())
    return os.fspath(model_file)
