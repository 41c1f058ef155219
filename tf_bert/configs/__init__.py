"""Configurations of the models: frozen dataclasses that read and write the original's ``bert_config.json``."""

from tf_bert.configs.base import Config
from tf_bert.configs.bert import BertConfig
from tf_bert.configs.gpt import GPTConfig
from tf_bert.configs.recurrent import AttentionClassifierConfig, ElmoConfig
from tf_bert.configs.translation import Seq2SeqConfig, TransformerConfig, TranslationConfig

__all__ = [
    "AttentionClassifierConfig",
    "BertConfig",
    "Config",
    "ElmoConfig",
    "GPTConfig",
    "Seq2SeqConfig",
    "TransformerConfig",
    "TranslationConfig",
]
