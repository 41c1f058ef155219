"""tf_bert: Seq2Seq with attention, the Transformer, GPT and BERT for Keras 3 and TensorFlow.

``import tf_bert`` is fast and free of side effects: names are looked up on first use, and TensorFlow loads when a model
is touched.
"""

import importlib

from tf_bert.version import __version__

# public name -> module that defines it
_EXPORTS = {
    "Bert": "tf_bert.models.bert",
    "BertConfig": "tf_bert.configs",
    "BertForPreTraining": "tf_bert.models.bert",
    "BertModel": "tf_bert.models.bert",
}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str):
    """Imports the module of a public name when the name is first asked for (PEP 562)."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'tf_bert' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
