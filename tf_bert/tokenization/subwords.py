"""Sub-word vocabularies of translation: SentencePiece models and WordPiece files behind one set of names."""

import os
from collections.abc import Callable, Iterable

from tf_bert.tokenization.basic import BasicTokenizer
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.sentence_piece import MODEL_TYPES, SentencePieceTokenizer, train_sentence_piece
from tf_bert.tokenization.vocabulary import save_vocab
from tf_bert.tokenization.vocabulary_training import WordCounts, build_vocabulary

SUBWORDS = (*MODEL_TYPES, "wordpiece")
_WORDPIECE_SYMBOLS = {"pad_id": "[PAD]", "unknown_id": "[UNK]", "start_id": "[CLS]", "end_id": "[SEP]"}
_NAMES = {"pad_id": "padding", "unknown_id": "unknown", "start_id": "start", "end_id": "end"}


def load_subwords(path: str | os.PathLike, do_lower_case: bool = False) -> SentencePieceTokenizer | FullTokenizer:
    """Loads a vocabulary: a SentencePiece model (``.model``), else WordPiece, one piece a line.

    Args:
        path: the file.
        do_lower_case: of WordPiece; a SentencePiece model knows itself.

    Raises:
        ValueError: the vocabulary lacks one of the four symbols; see `symbols_of`.
    """
    sentence_piece = os.fspath(path).endswith(".model")
    tokenizer = SentencePieceTokenizer(path) if sentence_piece else FullTokenizer(path, do_lower_case)
    symbols_of(tokenizer)
    return tokenizer


def symbols_of(tokenizer) -> dict[str, int]:
    """The ids of padding, unknown, start and end: ``pad_id`` and so on, as a model's configuration names them.

    For WordPiece these are [PAD], [UNK], [CLS] and [SEP].

    Raises:
        ValueError: the vocabulary lacks one of them; without an end symbol no translation would ever end.

    Example:
        >>> from types import SimpleNamespace
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "the": 3}
        >>> symbols_of(SimpleNamespace(vocab=vocab, vocab_file="vocab.txt"))
        Traceback (most recent call last):
        ...
        ValueError: vocab.txt lacks the end symbol ([SEP]); add it, or train a vocabulary with tf-bert ...
    """
    if hasattr(tokenizer, "processor"):
        symbols = {name: getattr(tokenizer, name) for name in _NAMES}
        written = dict(zip(_NAMES, ("pad", "unk", "bos", "eos"), strict=True))
    else:
        written = _WORDPIECE_SYMBOLS
        symbols = {name: tokenizer.vocab.get(piece, -1) for name, piece in written.items()}
    for name, number in symbols.items():
        if number < 0:
            raise ValueError(
                f"{tokenizer.vocab_file} lacks the {_NAMES[name]} symbol ({written[name]}); add it, or train a "
                "vocabulary with tf-bert create_translation_data, which has all four"
            )
    return symbols


def train_subwords(
    lines: Callable[[], Iterable[str]], path_stem: str, subwords: str, vocab_size: int, do_lower_case: bool = False
) -> str:
    """Learns a vocabulary from text.

    Args:
        lines: gives the text.
        path_stem: where, without the ending.
        subwords: ``unigram``, ``bpe``, ``char``, ``word`` (SentencePiece) or ``wordpiece``.
        vocab_size: most pieces.
        do_lower_case: whether to fold case.

    Returns:
        The file: ``path_stem`` with ``.model`` or ``.txt``.
    """
    if subwords != "wordpiece":
        return train_sentence_piece(lines(), path_stem + ".model", vocab_size, subwords, lower_case=do_lower_case)
    basic = BasicTokenizer(do_lower_case)
    counts = WordCounts(basic).count(lines())
    if not counts.words:
        raise ValueError("there are no words to make a vocabulary from")
    save_vocab(build_vocabulary(counts, vocab_size, tokenizer=basic, num_unused=0), path_stem + ".txt")
    return path_stem + ".txt"
