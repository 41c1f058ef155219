"""tf_bert: Seq2Seq with attention, the Transformer, GPT and BERT for Keras 3 and TensorFlow.

``import tf_bert`` is fast: names are looked up on first use, and TensorFlow loads when a model is touched. After it,
``keras.saving.load_model`` finds every class of tf_bert. It has one more side effect: unless ``TF_ENABLE_ONEDNN_OPTS``
is set, it asks TensorFlow for oneDNN's kernels, which TensorFlow uses of its own accord on some processors only. On one
where it does not (AVX2) a training step of BERT-Base took four fifths of the time with them. They count if this import
comes before TensorFlow's; ``TF_ENABLE_ONEDNN_OPTS=0`` turns them off.
"""

import importlib
import os

from tf_bert.registration import register_when_keras_is_imported
from tf_bert.version import __version__

register_when_keras_is_imported()
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

# public name -> module that defines it
_EXPORTS = {
    "AdamWeightDecay": "tf_bert.trainer.optimization",
    "AdamWeightDecayOptimizer": "tf_bert.trainer.optimization",
    "Attention": "tf_bert.layers.alignment",
    "AttentionClassifier": "tf_bert.models.attention_classifier",
    "AttentionClassifierConfig": "tf_bert.configs",
    "AttentionPooling": "tf_bert.layers.alignment",
    "BasicTokenizer": "tf_bert.tokenization",
    "BeamSearch": "tf_bert.decoding.beam",
    "Bert": "tf_bert.models.bert",
    "BertClassifier": "tf_bert.models.bert_tasks",
    "BertConfig": "tf_bert.configs",
    "BertEncoder": "tf_bert.models.bert_encoder",
    "BertForMaskedLM": "tf_bert.models.bert_masked_lm",
    "BertForPreTraining": "tf_bert.models.bert",
    "BertModel": "tf_bert.models.bert",
    "BertMultipleChoice": "tf_bert.models.multiple_choice",
    "BertQuestionAnswering": "tf_bert.models.bert_tasks",
    "BertTokenClassifier": "tf_bert.models.bert_tasks",
    "Constraints": "tf_bert.decoding.constraints",
    "DataProcessor": "tf_bert.data.finetuning.glue",
    "FullTokenizer": "tf_bert.tokenization",
    "GPT": "tf_bert.models.gpt",
    "GPTClassifier": "tf_bert.models.gpt_tasks",
    "GPTConfig": "tf_bert.configs",
    "Greedy": "tf_bert.decoding.sampling",
    "HardAttention": "tf_bert.layers.hard_attention",
    "InGraphTokenizer": "tf_bert.tokenization",
    "InputExample": "tf_bert.data.finetuning.classification",
    "Lamb": "tf_bert.trainer.optimization",
    "LocalAttention": "tf_bert.layers.alignment",
    "MaskedLmInstance": "tf_bert.data.pretraining.create",
    "NoamSchedule": "tf_bert.trainer.schedules",
    "Sampling": "tf_bert.decoding.sampling",
    "Seq2Seq": "tf_bert.models.seq2seq",
    "Seq2SeqConfig": "tf_bert.configs",
    "SquadExample": "tf_bert.data.finetuning.squad",
    "TrainingInstance": "tf_bert.data.pretraining.create",
    "Transformer": "tf_bert.models.transformer",
    "TransformerConfig": "tf_bert.configs",
    "WordpieceTokenizer": "tf_bert.tokenization",
    "convert_by_vocab": "tf_bert.tokenization",
    "convert_ids_to_tokens": "tf_bert.tokenization",
    "convert_to_unicode": "tf_bert.tokenization",
    "convert_tokens_to_ids": "tf_bert.tokenization",
    "create_initializer": "tf_bert.layers.feed_forward",
    "create_instance_from_document": "tf_bert.data.pretraining.create",
    "create_instances_from_document": "tf_bert.data.pretraining.create",
    "create_masked_lm_predictions": "tf_bert.data.pretraining.create",
    "create_optimizer": "tf_bert.trainer.optimization",
    "create_training_instances": "tf_bert.data.pretraining.create",
    "gather_indexes": "tf_bert.layers.heads",
    "gelu": "tf_bert.layers.feed_forward",
    "get_activation": "tf_bert.layers.feed_forward",
    "get_masked_lm_output": "tf_bert.models.bert",
    "get_next_sentence_output": "tf_bert.models.bert",
    "load_vocab": "tf_bert.tokenization",
    "printable_text": "tf_bert.tokenization",
    "read_squad_examples": "tf_bert.data.finetuning.squad",
    "truncate_seq_pair": "tf_bert.data.pretraining.create",
    "validate_case_matches_checkpoint": "tf_bert.tokenization",
    "whitespace_tokenize": "tf_bert.tokenization",
    "write_instance_to_example_files": "tf_bert.data.pretraining.create",
    "write_predictions": "tf_bert.data.finetuning.squad_predictions",
}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str):
    """Imports the module of a public name when the name is first asked for (PEP 562)."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'tf_bert' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
