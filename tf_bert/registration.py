"""Makes Keras find everything of tf_bert that a saved file may name, after ``import tf_bert`` alone.

Keras finds a class by its registered name once the module that defines the class is imported. ``import tf_bert``
imports neither Keras nor those modules. So each name is registered with a stand-in, as soon as Keras is imported; the
stand-in imports the module when a file asks for the name.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any

PACKAGE = "tf_bert"

# module -> the classes and functions in it that are registered with Keras
REGISTERED = {
    "tf_bert.layers.alignment": "Attention AttentionPooling LocalAttention",
    "tf_bert.layers.attention": "MultiHeadAttention",
    "tf_bert.layers.cells": "PeepholeLSTMCell",
    "tf_bert.layers.embeddings": "BertEmbeddings",
    "tf_bert.layers.feed_forward": "FeedForward gelu gelu_erf",
    "tf_bert.layers.hard_attention": "HardAttention",
    "tf_bert.layers.heads": "ClassificationHead MaskedLMHead",
    "tf_bert.layers.layer_norm": "LayerNorm",
    "tf_bert.layers.positions": "WordAndPositionEmbedding WordEmbedding",
    "tf_bert.layers.recurrent": "RecurrentEncoder StateBridge",
    "tf_bert.layers.recurrent_decoder": "RecurrentDecoder",
    "tf_bert.layers.scalar_mix": "ScalarMix",
    "tf_bert.layers.scoring": "AdditiveScore CosineScore DotScore GeneralScore LocationScore",
    "tf_bert.layers.transformer": "TransformerEncoderBlock",
    "tf_bert.layers.transformer_decoder": "TransformerDecoderBlock",
    "tf_bert.models.attention_classifier": "AttentionClassifier",
    "tf_bert.models.bert": "Bert BertForPreTraining",
    "tf_bert.models.bert_encoder": "BertEncoder",
    "tf_bert.models.bert_masked_lm": "BertForMaskedLM",
    "tf_bert.models.bert_tasks": "BertClassifier BertQuestionAnswering BertTokenClassifier",
    "tf_bert.models.elmo": "Elmo FeatureTagger",
    "tf_bert.models.gpt": "GPT",
    "tf_bert.models.gpt_tasks": "GPTClassifier",
    "tf_bert.models.multiple_choice": "BertMultipleChoice",
    "tf_bert.models.seq2seq": "Seq2Seq",
    "tf_bert.models.transformer": "Transformer",
    "tf_bert.tokenization.in_graph": "InGraphTokenizer",
    "tf_bert.tokenization.in_graph_bpe": "InGraphBytePairTokenizer",
    "tf_bert.tokenization.in_graph_gpt1": "InGraphGPT1Tokenizer",
    "tf_bert.trainer.optimization": "AdamWeightDecay Lamb",
    "tf_bert.trainer.schedules": "NoamSchedule WarmupDecay",
}


class StandIn:
    """Behaves as a class whose module is imported on first use."""

    def __init__(self, load: Callable[[], type]):
        self._load = load

    def __getattr__(self, name: str) -> Any:
        return getattr(self._load(), name)

    def __call__(self, *args, **kwargs):
        """Makes an instance."""
        return self._load()(*args, **kwargs)


def register_all() -> None:
    """Registers a stand-in for every name in `REGISTERED`; the real class replaces it once its module is imported."""
    import keras

    for module, names in REGISTERED.items():
        if module not in sys.modules:
            for name in names.split():
                keras.saving.register_keras_serializable(PACKAGE, name)(_stand_in(module, name))


def _stand_in(module: str, name: str) -> StandIn | Callable:
    def load():
        return getattr(importlib.import_module(module), name)

    if name[0].isupper():
        return StandIn(load)

    def function(*args, **kwargs):  # Keras saves and compares functions as such, so their stand-in has to be one
        return load()(*args, **kwargs)

    function.__name__ = name
    return function


class _KerasFinder:
    """Finds Keras in place of the usual finders, so that `register_all` runs once Keras is imported."""

    searching = False

    def find_spec(self, name: str, path=None, target=None):
        """Returns the usual spec of Keras, whose loader also registers; None for every other module."""
        if name != "keras" or self.searching:
            return None
        import importlib.util

        self.searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module) -> None:
                execute(module)
                register_all()
                if self in sys.meta_path:
                    sys.meta_path.remove(self)

            spec.loader.exec_module = exec_module
        return spec


def register_when_keras_is_imported() -> None:
    """Calls `register_all` now where Keras is imported, otherwise as soon as it is."""
    if "keras" in sys.modules:
        register_all()
    else:
        sys.meta_path.insert(0, _KerasFinder())
