"""Tokenizers: plain Python with the original's behaviour to the character, and the same result inside the graph.

The names of the original's ``tokenization.py`` are here; ``from tf_bert import tokenization`` stands in for it.
"""

import importlib

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


# Imported, and TensorFlow with them, when they are first asked for (PEP 562).
_IN_GRAPH = {"InGraphTokenizer": "in_graph", "InGraphBytePairTokenizer": "in_graph_bpe"}


def __getattr__(name: str):
    if name not in _IN_GRAPH:
        raise AttributeError(f"module 'tf_bert.tokenization' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tf_bert.tokenization.{_IN_GRAPH[name]}"), name)
