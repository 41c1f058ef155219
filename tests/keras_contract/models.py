"""Tiny models with data of their own: the columns of the contract.

``SUBJECTS`` holds one `Subject` for each public model. ``subject.make()`` is a fresh model without dropout, always with
the same weights; ``subject.compiled()`` is one that all behaviours share, so that its graphs are traced once.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from tf_bert.configs import (
    AttentionClassifierConfig,
    BertConfig,
    ElmoConfig,
    GPTConfig,
    Seq2SeqConfig,
    TransformerConfig,
)
from tf_bert.models.attention_classifier import AttentionClassifier
from tf_bert.models.bert import Bert, BertForPreTraining
from tf_bert.models.bert_encoder import BertEncoder
from tf_bert.models.bert_masked_lm import BertForMaskedLM
from tf_bert.models.bert_tasks import BertClassifier, BertQuestionAnswering, BertTokenClassifier
from tf_bert.models.elmo import Elmo
from tf_bert.models.gpt import GPT
from tf_bert.models.gpt_tasks import GPTClassifier
from tf_bert.models.multiple_choice import BertMultipleChoice
from tf_bert.models.seq2seq import Seq2Seq
from tf_bert.models.transformer import Transformer

EXAMPLES = 4
LENGTH = 6
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a film is good bad ##ly who made the anna ben . , in rome".split()
VOCABULARY = len(WORDS)
LABELS = 3
NO_DROPOUT = {"hidden_dropout_prob": 0.0}
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BERT = BertConfig(
    VOCABULARY,
    **SIZES,
    **NO_DROPOUT,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=16,
    type_vocab_size=2,
    initializer_range=0.3,
)
GPT_RATES = NO_DROPOUT | {"attention_probs_dropout_prob": 0.0, "embedding_dropout_prob": 0.0}
GPT_CONFIG = GPTConfig(VOCABULARY, **SIZES, **GPT_RATES, max_position_embeddings=16, initializer_range=0.3)


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model of the contract.

    Attributes:
        name: heading of its column.
        build: makes the model; takes what every Keras model takes, such as ``dtype``.
        inputs: what ``call`` wants, [EXAMPLES, ...].
        labels: what else training wants, by name; empty where a model makes its labels of its inputs.
        label_name: the one of ``labels`` that may be given as ``y``; None where they go by name only.
        num_classes: how many values a label has; None where labels are not classes.
        output: the output that losses and metrics see (the first, where there are several).
        texts: what may stand in the place of ``inputs``; None where the model takes no texts.
        text_labels: ``y`` for ``texts``, as lists; None for a model without texts.
        compile_options: what ``compile`` needs besides the optimizer.
        is_ours: False for plain Keras and keras-hub.
    """

    name: str
    build: Callable[..., keras.Model]
    inputs: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray]
    label_name: str | None = None
    num_classes: int | None = None
    output: str = "logits"
    texts: Any = None
    text_labels: Any = None
    compile_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_ours: bool = True

    def make(self, kind: type | None = None, **options: Any) -> keras.Model:
        """A fresh model with its preprocessor; ``kind`` is a subclass of its class that makes it."""
        keras.utils.set_random_seed(3)
        model = self.build(**options)
        if kind is not None:
            weights, config = model.get_weights(), model.get_config()
            model = kind.from_config(config)
            model.set_weights(weights)
        if self.texts is not None:
            model.attach_preprocessor(tokenizer(model))
        return model

    def everything(self) -> dict[str, np.ndarray]:
        """Inputs and labels in one dict, as records hold them."""
        return dict(self.inputs) | dict(self.labels)

    def xy(self) -> tuple[dict[str, np.ndarray], Any]:
        """``x`` and ``y``; ``y`` is None where labels go by name."""
        if self.label_name is None:
            return self.everything(), None
        return dict(self.inputs), self.labels[self.label_name]

    @functools.cache  # noqa: B019  subjects live as long as the process
    def compiled(self) -> keras.Model:
        """A model that was compiled with a small rate, shared by all behaviours: train it, but do not compile it."""
        model = self.make()
        model.compile(keras.optimizers.SGD(1e-3))
        return model

    def __hash__(self) -> int:
        return hash(self.name)


@functools.cache
def vocabulary_file() -> str:
    """A file with ``WORDS``, removed when the process ends."""
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = f"{folder}/vocab.txt"
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(f"{word}\n" for word in WORDS))
    return path


def tokenizer(model: keras.Model) -> keras.layers.Layer:
    """The preprocessor that a model would make of the vocabulary."""
    return model._tokenizer(vocabulary_file())


_random = np.random.default_rng(0)


def _ids(*shape: int, most: int = VOCABULARY) -> np.ndarray:
    return _random.integers(1, most, shape, dtype="int32")


_MASK = (np.arange(LENGTH) < np.array([[6], [4], [5], [3]])).astype("int32")
_BERT_INPUTS = {
    "input_ids": np.where(_MASK, _ids(EXAMPLES, LENGTH), 0),
    "input_mask": _MASK,
    "segment_ids": (np.arange(LENGTH) > 2).astype("int32") * _MASK,
}
_MASKED = {
    "masked_lm_positions": np.array([[1, 2], [1, 0], [2, 3], [1, 2]], "int32"),
    "masked_lm_ids": _ids(EXAMPLES, 2),
    "masked_lm_weights": np.array([[1, 1], [1, 0], [1, 1], [0, 0]], "float32"),
}
_CLASSES = np.array([0, 2, 1, 0], "int32")
_TEXTS = ["a good film .", "the film is bad", "good", "Badly made in Rome"]
_OTHER_TEXTS = ["who made the film", "anna", "a bad film", "in rome"]
_GPT_SPECIAL = VOCABULARY + 3
_GPT_PIECES = np.array(
    [[20, 5, 6, 7, 22, 0], [20, 8, 22, 0, 0, 0], [20, 9, 5, 22, 0, 0], [20, 7, 22, 0, 0, 0]], "int32"
)
_TAGS = np.where(_MASK, _ids(EXAMPLES, LENGTH, most=LABELS), -100)
_TRANSLATION = {
    "source_ids": _BERT_INPUTS["input_ids"],
    "target_ids": np.where(_MASK[:, :4], _ids(EXAMPLES, 4), 0),
}
_TEXT = {"texts": _TEXTS, "text_labels": _CLASSES.tolist()}

SUBJECTS = [
    Subject(
        "Bert",
        lambda **options: Bert(BERT, **options),
        _BERT_INPUTS,
        {},
        output="pooled_output",
    ),
    Subject(
        "BertForPreTraining",
        lambda **options: BertForPreTraining(BERT, **options),
        _BERT_INPUTS,
        _MASKED | {"next_sentence_labels": np.array([[0], [1], [1], [0]], "int32")},
        output="masked_lm_logits",
    ),
    Subject(
        "BertForMaskedLM",
        lambda **options: BertForMaskedLM(BERT, **options),
        _BERT_INPUTS,
        _MASKED,
        output="masked_lm_logits",
        texts=_TEXTS,
    ),
    Subject(
        "BertClassifier",
        lambda **options: BertClassifier(BERT, LABELS, dropout=0.0, **options),
        _BERT_INPUTS,
        {"label_ids": _CLASSES},
        "label_ids",
        LABELS,
        **_TEXT,
    ),
    Subject(
        "BertClassifier (multi)",
        lambda **options: BertClassifier(BERT, LABELS, dropout=0.0, kind="multi", **options),
        _BERT_INPUTS,
        {"label_ids": np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]], "int32")},
        "label_ids",
        texts=_TEXTS,
        text_labels=[[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]],
    ),
    Subject(
        "BertClassifier (regression)",
        lambda **options: BertClassifier(BERT, 1, dropout=0.0, kind="regression", **options),
        _BERT_INPUTS,
        {"label_ids": np.array([0.5, 3.0, -1.0, 2.0], "float32")},
        "label_ids",
        texts=_TEXTS,
        text_labels=[0.5, 3.0, -1.0, 2.0],
    ),
    Subject(
        "BertTokenClassifier",
        lambda **options: BertTokenClassifier(BERT, LABELS, dropout=0.0, **options),
        _BERT_INPUTS,
        {"label_ids": _TAGS},
        "label_ids",
        LABELS,
        texts=[text.split() for text in _TEXTS],
        text_labels=[[0, 1, 2, 0], [2, 2, 0, 1], [1], [0, 0, 1, 2]],
    ),
    Subject(
        "BertQuestionAnswering",
        lambda **options: BertQuestionAnswering(BERT, **options),
        _BERT_INPUTS,
        {"start_positions": np.array([1, 2, 0, 1], "int32"), "end_positions": np.array([2, 3, 0, 1], "int32")},
        output="start_logits",
        texts=(_OTHER_TEXTS, _TEXTS),
        text_labels=[(2, 6), (4, 8), (0, 4), None],
    ),
    Subject(
        "BertMultipleChoice",
        lambda **options: BertMultipleChoice(BERT, dropout=0.0, **options),
        {name: np.stack([value, value[:, ::-1]], axis=1) for name, value in _BERT_INPUTS.items()},
        {"label_ids": np.array([0, 1, 1, 0], "int32")},
        "label_ids",
        texts=(_TEXTS, [["good", "bad"], ["anna", "ben", "who"], ["a", "the"], ["in", "rome"]]),
        text_labels=[0, 2, 1, 0],
    ),
    Subject(
        "BertEncoder",
        lambda **options: BertEncoder(BERT, **options),
        _BERT_INPUTS,
        {f"pair_{name}": value[:, ::-1] for name, value in _BERT_INPUTS.items()},
        output="vectors",
        texts=(_TEXTS, _OTHER_TEXTS),
    ),
    Subject(
        "GPT",
        lambda **options: GPT(GPT_CONFIG, **options),
        {name: _BERT_INPUTS[name] for name in ("input_ids", "input_mask")},
        {},
    ),
    Subject(
        "GPTClassifier",
        lambda **options: GPTClassifier(
            dataclasses.replace(GPT_CONFIG, vocab_size=_GPT_SPECIAL), LABELS, classifier_dropout=0.0, **options
        ),
        {"input_ids": _GPT_PIECES, "input_mask": (_GPT_PIECES > 0).astype("int32")},
        {"label_ids": _CLASSES},
        "label_ids",
        LABELS,
    ),
    Subject(
        "Seq2Seq",
        lambda **options: Seq2Seq(Seq2SeqConfig(VOCABULARY, embedding_size=8, hidden_size=8, **NO_DROPOUT), **options),
        _TRANSLATION,
        {},
    ),
    Subject(
        "Transformer",
        lambda **options: Transformer(TransformerConfig(VOCABULARY, **SIZES, **NO_DROPOUT), **options),
        _TRANSLATION,
        {},
    ),
    Subject(
        "Elmo",
        lambda **options: Elmo(ElmoConfig(VOCABULARY, hidden_size=8, num_hidden_layers=1, **NO_DROPOUT), **options),
        {name: _BERT_INPUTS[name] for name in ("input_ids", "input_mask")},
        {},
        output="forward_logits",
    ),
    Subject(
        "AttentionClassifier",
        lambda **options: AttentionClassifier(
            AttentionClassifierConfig(VOCABULARY, LABELS, embedding_size=8, hidden_size=4, **NO_DROPOUT), **options
        ),
        {name: _BERT_INPUTS[name] for name in ("input_ids", "input_mask")},
        {"label_ids": _CLASSES},
        "label_ids",
        LABELS,
    ),
]
BY_NAME = {subject.name: subject for subject in SUBJECTS}
MODELS = tuple(BY_NAME)
TRAINED = tuple(name for name in MODELS if name != "Bert")  # those with losses of their own
WITH_TEXTS = tuple(subject.name for subject in SUBJECTS if subject.texts is not None)
WITH_Y = tuple(subject.name for subject in SUBJECTS if subject.label_name)
SAMPLE = ("BertClassifier", "BertTokenClassifier", "GPT")  # where a slow row is tried in the fast suite
