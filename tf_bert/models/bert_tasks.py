"""BERT with the heads of single tasks (Devlin et al. 2018, figure 4)."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from tf_bert.configs import BertConfig
from tf_bert.layers.heads import ClassificationHead, add_output_weights, correct, cross_entropy, label_scores
from tf_bert.models.bert import Bert, expected_ids
from tf_bert.models.raw_text import PADDED, Attached, TakesTexts
from tf_bert.models.saving import Checkpointed, Configured
from tf_bert.models.spans import Span, answer_positions, best_spans, piece_labels
from tf_bert.tokenization.basic import split_at_blanks
from tf_bert.trainer.checks import Expected, Integers, Numbers, Shares
from tf_bert.trainer.texts import decoded, to_list
from tf_bert.trainer.trainer import Scores, Trainer

POOLER = "bert/pooler/dense/kernel"
HEAD = "output_weights"
HEAD_INITIALIZER_RANGE = 0.02  # the original's, whatever the configuration says
# Hugging Face's names of the kinds of a `BertClassifier`; a configuration holds them as its ``problem_type``.
PROBLEM_TYPES = {
    "single": "single_label_classification",
    "multi": "multi_label_classification",
    "regression": "regression",
}
IGNORED_LABEL = -100  # of a piece that has no label of its own


class BertTask(TakesTexts, Checkpointed, Configured, Trainer):
    """What the models of single tasks share: an encoder, a configuration, and a config that comes back.

    Args:
        config: sizes and rates.
        add_pooler: whether the encoder has a pooler. Only sequence classification needs one; Google's checkpoints hold
            it in any case, Hugging Face's only where it is used.
        preprocessor: makes inputs of raw strings, see `tf_bert.models.raw_text.TakesTexts`.
        attention: see `Bert`.
    """

    config_class = BertConfig

    def __init__(
        self,
        config: BertConfig,
        add_pooler: bool = True,
        preprocessor=None,
        attention: str | Callable = "plain",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config, self.add_pooler = config, add_pooler
        object.__setattr__(self, "_attached", Attached(preprocessor))
        with keras.name_scope(self.name):
            self.bert = Bert(config, add_pooler=add_pooler, attention=attention, dtype=self.dtype_policy)

    def add_head(self, num_labels: int) -> None:
        """Adds ``output_weights`` and ``output_bias`` to the model itself, where Google's classifiers have them."""
        add_output_weights(self, num_labels, self.config.hidden_size, HEAD_INITIALIZER_RANGE)

    def head(self, x):
        """Returns the scores of the labels: [..., H] to [..., labels], float32 or wider."""
        return label_scores(x, self.output_weights, self.output_bias)

    @classmethod
    def arguments_for(cls, shapes):
        """Whether there is a pooler, by the checkpoint's variables."""
        return {"add_pooler": POOLER in shapes}

    def get_config(self):
        """What `from_config` needs."""
        preprocessor = self.preprocessor_config()
        config = super().get_config() | {
            "add_pooler": self.add_pooler,
            "attention": self.bert.get_config()["attention"],
        }
        return config if preprocessor is None else config | {"preprocessor": preprocessor}


@keras.saving.register_keras_serializable("tf_bert")
class BertClassifier(BertTask):
    """BERT that classifies a sequence or a pair by its pooled output (the original's ``run_classifier``).

    Args:
        config: sizes and rates.
        num_labels: number of classes; 1 for a number (regression).
        dropout: of the pooled output.
        kind: ``"single"`` label, ``"multi"`` label (each may hold or not) or ``"regression"``. `from_checkpoint` takes
            that of the run, where it is noted, and regression where there is one output.

    Call arguments:
        inputs: those of `Bert`. For training ``label_ids`` too: [B] integers, for ``"multi"`` [B, num_labels] zeros and
            ones, for ``"regression"`` [B] numbers; and maybe ``is_real_example`` [B], 0 for what does not count.

    Returns:
        The outputs of `Bert` and ``logits`` [B, num_labels].

    Example:
        >>> config = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> BertClassifier(config, num_labels=3)({"input_ids": keras.ops.array([[2, 7, 3]])})["logits"].shape
        TensorShape([1, 3])
    """

    loss_names = ("loss",)
    metric_names = ("accuracy",)
    label_name = "label_ids"
    label_names = ("label_ids",)
    input_names = (*Bert.input_names, "label_ids", "is_real_example")
    text_outputs = {"logits": 0.0}

    def __init__(self, config: BertConfig, num_labels: int = 2, dropout: float = 0.1, kind: str = "single", **kwargs):
        if kind not in PROBLEM_TYPES:
            raise ValueError(f"kind is {kind!r}; known are {', '.join(PROBLEM_TYPES)}")
        if kind == "regression" and num_labels != 1:
            raise ValueError(f"kind is 'regression', which has one output, not num_labels={num_labels}")
        super().__init__(config, **kwargs)
        self.num_labels, self.kind = num_labels, kind
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        """Makes the variables of the head."""
        self.add_head(self.num_labels)

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Encodes a batch and scores classes."""
        outputs = self.bert(self.bert.read_from(inputs), training=training)
        x = self.dropout(outputs["pooled_output"], training=training)  # [B, H]
        return outputs | {"logits": self.head(x)}  # [B, num_labels]

    @property
    def expected(self) -> Expected:
        """Ids inside their tables, and labels by kind."""
        labels = {"single": Integers(self.num_labels, "labels", axes=1, classes=True), "multi": Shares(self.num_labels)}
        return expected_ids(self.config) | {"label_ids": labels.get(self.kind, Numbers())}

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The scores of labels, or the number."""
        activation = {"single": "softmax", "multi": "sigmoid"}.get(self.kind)
        return {"logits": Scores("loss", activation, self.num_labels)}

    def targets(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """The labels [B], or [B, num_labels] where each has its own."""
        labels = inputs.get("label_ids")
        if labels is not None and (self.kind != "single" or labels.shape[-1] == 1 != len(labels.shape)):
            labels = ops.reshape(labels, (-1, self.num_labels) if self.kind != "single" else (-1,))
        return {"logits": labels}

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 for each real example."""
        real = inputs.get("is_real_example")
        return {"loss": ops.ones_like(inputs["input_ids"][:, 0]) if real is None else ops.reshape(real, (-1,))}

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy, its mean over the labels, or the squared error of each example [B]."""
        labels, logits = inputs["label_ids"], outputs["logits"]
        if self.kind == "single":
            return {"loss": cross_entropy("label_ids", ops.reshape(labels, (-1,)), logits)}
        labels = ops.cast(ops.reshape(labels, (-1, self.num_labels)), logits.dtype)
        if self.kind == "multi":
            return {"loss": ops.mean(ops.binary_crossentropy(labels, logits, from_logits=True), axis=-1)}
        return {"loss": ops.square(logits - labels)[:, 0]}

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether each example is right; with several labels which share of them; for a number, within 0.5."""
        labels, logits = inputs["label_ids"], outputs["logits"]
        if self.kind == "single":
            right = correct(ops.reshape(labels, (-1,)), logits)
        else:
            labels = ops.cast(ops.reshape(labels, (-1, self.num_labels)), logits.dtype)
            near = ops.equal(logits > 0, labels > 0.5) if self.kind == "multi" else ops.abs(logits - labels) < 0.5
            right = ops.mean(ops.cast(near, logits.dtype), axis=-1)
        return {"accuracy": (right, self.loss_weights(inputs)["loss"])}

    @classmethod
    def arguments_for(cls, shapes):
        """The number of labels, where the checkpoint has a head; one output is a number."""
        if HEAD not in shapes:
            return {}
        return {"num_labels": shapes[HEAD][0]} | ({"kind": "regression"} if shapes[HEAD][0] == 1 else {})

    @classmethod
    def noted_arguments(cls, config: BertConfig) -> dict[str, Any]:
        """The kind that `to_note` put into a configuration."""
        kinds = [kind for kind, problem in PROBLEM_TYPES.items() if problem == config.extra.get("problem_type")]
        return {"kind": kinds[0]} if kinds else {}

    def to_note(self) -> dict[str, Any]:
        """The kind, as Hugging Face calls it."""
        return {"problem_type": PROBLEM_TYPES[self.kind]}

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "num_labels": self.num_labels,
            "dropout": self.dropout.rate,
            "kind": self.kind,
        }


@keras.saving.register_keras_serializable("tf_bert")
class BertTokenClassifier(BertTask):
    """BERT that classifies each token, as for named entities (Devlin et al. 2018, section 5.3).

    Args:
        config: sizes and rates.
        num_labels: number of classes.
        dropout: of the encoder's output.
        add_pooler: see `BertTask`.

    Call arguments:
        inputs: those of `Bert`. For training ``label_ids`` [B, S] too; -100 where a piece has no label of its own.

    Returns:
        The outputs of `Bert` and ``logits`` [B, S, num_labels].

    Example:
        >>> config = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> BertTokenClassifier(config, num_labels=3)({"input_ids": keras.ops.array([[2, 7, 3]])})["logits"].shape
        TensorShape([1, 3, 3])
    """

    loss_names = ("loss",)
    metric_names = ("accuracy",)
    label_name = "label_ids"
    label_names = ("label_ids",)
    ignored_label = IGNORED_LABEL
    input_names = (*Bert.input_names, "label_ids")
    text_outputs = {"logits": 0.0}
    sequence_inputs = (*BertTask.sequence_inputs, "label_ids")

    def __init__(
        self, config: BertConfig, num_labels: int = 2, dropout: float = 0.1, add_pooler: bool = False, **kwargs
    ):
        super().__init__(config, add_pooler, **kwargs)
        self.num_labels = num_labels
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        """Makes the variables of the head."""
        self.add_head(self.num_labels)

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Encodes a batch and scores classes."""
        outputs = self.bert(self.bert.read_from(inputs), training=training)
        x = self.dropout(outputs["sequence_output"], training=training)  # [B, S, H]
        return outputs | {"logits": self.head(x)}  # [B, S, num_labels]

    @property
    def expected(self) -> Expected:
        """Ids inside their tables, and labels of positions."""
        labels = Integers(self.num_labels, "labels", axes=2, ignored=IGNORED_LABEL, classes=True)
        return expected_ids(self.config) | {"label_ids": labels}

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The scores of labels at each position."""
        return {"logits": Scores("loss", "softmax", self.num_labels)}

    def targets(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """The labels [B, S]."""
        return {"logits": _labels_or_0(inputs["label_ids"])} if "label_ids" in inputs else {}

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 for each piece with a label [B, S]."""
        return {"loss": ops.not_equal(inputs["label_ids"], IGNORED_LABEL)}

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy of each piece [B, S]."""
        return {"loss": cross_entropy("label_ids", _labels_or_0(inputs["label_ids"]), outputs["logits"])}

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether each piece is right [B, S]."""
        return {"accuracy": (correct(inputs["label_ids"], outputs["logits"]), self.loss_weights(inputs)["loss"])}

    def as_texts(self, x):
        """Sentences as texts: each a list of words, or a text that is split at blanks."""
        x = x["text"] if isinstance(x, Mapping) and "text" in x else x
        rows = to_list(x) if not isinstance(x, list | tuple) else x
        rows = [row.tolist() if isinstance(row, np.ndarray) else row for row in rows or ()]
        if not rows or not isinstance(rows[0], list | tuple) or not _are_words(rows):
            return super().as_texts(x)
        return [" ".join(words) for words in decoded(rows)], None

    def text_inputs(self, texts: list, text_pairs: list | None, y):
        """Inputs and the labels of words, at their first pieces."""
        if y is None:
            return super().text_inputs(texts, text_pairs, y)
        rows = _rows_of(y)
        words = [text.split() for text in decoded(texts)]
        for place, (of_text, labels) in enumerate(zip(words, rows, strict=False)):
            split = split_at_blanks(" ".join(of_text))  # each Chinese character is a word, unless words were given
            if len(of_text) != np.size(labels) == len(split):
                words[place] = split
        inputs = self.preprocess_with_offsets([" ".join(of_text) for of_text in words])
        labels = piece_labels(inputs, words, rows, IGNORED_LABEL, self.num_labels)
        return {name: inputs[name] for name in BertTask.sequence_inputs}, labels

    @classmethod
    def arguments_for(cls, shapes):
        """The number of labels, where the checkpoint has a head, and whether there is a pooler."""
        return super().arguments_for(shapes) | ({"num_labels": shapes[HEAD][0]} if HEAD in shapes else {})

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {"num_labels": self.num_labels, "dropout": self.dropout.rate}


@keras.saving.register_keras_serializable("tf_bert")
class BertQuestionAnswering(BertTask):
    """BERT that scores each token as the first and as the last of an answer (the original's ``run_squad``).

    Args:
        config: sizes and rates.
        add_pooler: see `BertTask`.

    Call arguments:
        inputs: those of `Bert`. For training ``start_positions`` and ``end_positions`` [B] too.

    Returns:
        The outputs of `Bert`, ``start_logits`` [B, S] and ``end_logits`` [B, S].

    Example:
        >>> config = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> BertQuestionAnswering(config)({"input_ids": keras.ops.array([[2, 7, 3]])})["start_logits"].shape
        TensorShape([1, 3])
    """

    loss_names = ("loss",)
    metric_names = ("start_accuracy", "end_accuracy")
    input_names = (*Bert.input_names, "start_positions", "end_positions")
    text_outputs = {"start_logits": PADDED, "end_logits": PADDED}
    label_names = ("start_positions", "end_positions")
    truncation = "second_then_first"

    def __init__(self, config: BertConfig, add_pooler: bool = False, **kwargs):
        super().__init__(config, add_pooler, **kwargs)
        self.span = ClassificationHead(2, HEAD_INITIALIZER_RANGE, dtype=self.dtype_policy, name="squad")
        self.build()

    def build(self, input_shape=None):
        """Makes the variables of the head."""
        with keras.name_scope("cls"):
            self.span.build((None, None, self.config.hidden_size))

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Encodes a batch and scores both ends of an answer."""
        outputs = self.bert(self.bert.read_from(inputs), training=training)
        start_logits, end_logits = ops.unstack(self.span(outputs["sequence_output"]), axis=-1)  # [B, S] each
        return outputs | {"start_logits": start_logits, "end_logits": end_logits}

    def trimmed(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The batch as it is: the softmax is over padding too, as the original's, so the loss depends on the length."""
        return inputs

    @property
    def expected(self) -> Expected:
        """Ids inside their tables, and answers inside the sequence."""
        positions = Integers("input_ids", "positions in a sequence", axes=1)
        return expected_ids(self.config) | dict.fromkeys(self.label_names, positions)

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The scores of both ends of an answer."""
        return dict.fromkeys(("start_logits", "end_logits"), Scores("loss", "softmax"))

    def targets(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """The ends of answers [B]."""
        found = {name: inputs[f"{name}_positions"] for name in ("start", "end") if f"{name}_positions" in inputs}
        return {f"{name}_logits": ops.reshape(labels, (-1,)) for name, labels in found.items()}

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 for each example."""
        return {"loss": ops.ones_like(inputs["input_ids"][:, 0])}

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """The mean of the cross-entropies of start and end [B]."""
        start, end = (
            cross_entropy(
                f"{name}_positions", ops.reshape(inputs[f"{name}_positions"], (-1,)), outputs[f"{name}_logits"]
            )
            for name in ("start", "end")
        )
        return {"loss": (start + end) / 2.0}

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether start and end of each example are right [B]."""
        weights = self.loss_weights(inputs)["loss"]
        return {
            f"{name}_accuracy": (
                correct(ops.reshape(inputs[f"{name}_positions"], (-1,)), outputs[f"{name}_logits"]),
                weights,
            )
            for name in ("start", "end")
        }

    def text_inputs(self, texts: list, text_pairs: list | None, y):
        """Inputs of questions and documents, and the places of answers given by their characters."""
        inputs = self._questions(texts, text_pairs)
        ids = {name: inputs[name] for name in self.sequence_inputs}
        if y is None or isinstance(y, Mapping):
            return ids, y
        return ids | answer_positions(inputs, _rows_of(y)), None

    def preprocess(self, texts, text_pairs=None) -> dict[str, np.ndarray]:
        """The inputs of questions and documents."""
        inputs = self._questions(texts, text_pairs)
        return {name: inputs[name] for name in self.sequence_inputs}

    def _questions(self, questions: list, documents: list | None) -> dict[str, np.ndarray]:
        if documents is None:
            raise ValueError("BertQuestionAnswering takes questions with documents: (questions, documents)")
        return self.preprocess_with_offsets(questions, documents)

    def answer(self, questions, documents, max_answer_length: int = 30, batch_size: int = 32) -> list[Span]:
        """Answers questions about documents that are no longer than what the model reads.

        Args:
            questions: N questions, or one.
            documents: N documents, or one.
            max_answer_length: in pieces.
            batch_size: questions in a batch.

        Returns:
            For each question the best answer, with its characters in the document; an empty one where the document
            holds no piece. Of a longer document only the beginning is read; `run_squad` reads all, in windows. A
            question that fills what the model reads is cut off there, and leaves no room for a document.
        """
        questions, documents = ([x] if isinstance(x, str) else list(x) for x in (questions, documents))
        inputs = self._questions(*self.as_texts((questions, documents)))
        found = self.predict_inputs({name: inputs[name] for name in self.sequence_inputs}, batch_size)
        start_logits, end_logits = found["start_logits"], found["end_logits"]
        allowed = (inputs["segment_ids"] == 1) & (inputs["starts"] >= 0)
        start, end, score = map(np.asarray, best_spans(start_logits, end_logits, allowed, max_answer_length))
        rows = np.arange(len(start))
        some = allowed.any(axis=1)
        first, last = inputs["starts"][rows, start] * some, inputs["ends"][rows, end] * some
        no_answer = start_logits[:, 0] + end_logits[:, 0] - score
        return [
            Span(text[a:b], int(a), int(b), float(s), float(n))
            for text, a, b, s, n in zip(documents, first, last, score, no_answer, strict=True)
        ]


def _are_words(rows) -> bool:
    """Whether the first word of lists is one; all lists may be empty but one."""
    first = next((word for words in rows for word in words), None)
    return isinstance(first, str | bytes)


def _rows_of(y) -> list:
    """Labels of texts as a list with one entry for each text."""
    if hasattr(y, "to_list") and not hasattr(y, "to_numpy"):  # ragged
        return y.to_list()
    y = y.numpy() if hasattr(y, "numpy") else y.to_numpy() if hasattr(y, "to_numpy") else y
    return list(y)


def _labels_or_0(label_ids):
    """Labels that can be looked up; what is ignored has no weight."""
    return ops.where(ops.equal(label_ids, IGNORED_LABEL), 0, label_ids)
