"""Tokenizers: plain Python with the original's behaviour to the character, and the same result inside the graph.

The names of the original's ``tokenization.py`` are here; ``from tf_bert import tokenization`` stands in for it.
"""

from tf_bert.tokenization.basic import BasicTokenizer, convert_to_unicode, printable_text, whitespace_tokenize
from tf_bert.tokenization.byte_pair import GPT1Tokenizer, GPT2Tokenizer
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.sentence_piece import SentencePieceTokenizer
from tf_bert.tokenization.vocabulary import (
    convert_by_vocab,
    convert_ids_to_tokens,
    convert_tokens_to_ids,
    load_vocab,
    save_vocab,
    validate_case_matches_checkpoint,
)
from tf_bert.tokenization.wordpiece import WordpieceTokenizer

__all__ = [
    "BasicTokenizer",
    "FullTokenizer",
    "GPT1Tokenizer",
    "GPT2Tokenizer",
    "SentencePieceTokenizer",
    "WordpieceTokenizer",
    "convert_by_vocab",
    "convert_ids_to_tokens",
    "convert_to_unicode",
    "convert_tokens_to_ids",
    "load_vocab",
    "printable_text",
    "save_vocab",
    "validate_case_matches_checkpoint",
    "whitespace_tokenize",
]


def __getattr__(name: str):
    """Imports the tokenizer in the graph, and TensorFlow with it, when it is first asked for (PEP 562)."""
    if name != "InGraphTokenizer":
        raise AttributeError(f"module 'tf_bert.tokenization' has no attribute {name!r}")
    from tf_bert.tokenization.in_graph import InGraphTokenizer

    return InGraphTokenizer
