"""BERT with the heads of single tasks (Devlin et al. 2018, figure 4)."""

from typing import Any

import keras
from keras import ops

from tf_bert.backend import at_least_float32
from tf_bert.configs import BertConfig
from tf_bert.layers.feed_forward import create_initializer
from tf_bert.layers.heads import ClassificationHead, MaskedLMHead, correct, cross_entropy, gather_indexes
from tf_bert.models.bert import Bert
from tf_bert.models.checkpointed import Checkpointed
from tf_bert.models.configured import Configured
from tf_bert.training.trainer import Trainer

POOLER = "bert/pooler/dense/kernel"
HEAD = "output_weights"
HEAD_INITIALIZER_RANGE = 0.02  # the original's, whatever the configuration says
IGNORED_LABEL = -100  # of a piece that has no label of its own


class BertTask(Checkpointed, Configured, Trainer):
    """What the models of single tasks share: an encoder, a configuration, and a config that comes back.

    Args:
        config: sizes and rates.
        add_pooler: whether the encoder has a pooler. Only sequence classification needs one; Google's checkpoints hold
            it in any case, Hugging Face's only where it is used.
    """

    config_class = BertConfig

    def __init__(self, config: BertConfig, add_pooler: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.config, self.add_pooler = config, add_pooler
        with keras.name_scope(self.name):
            self.bert = Bert(config, add_pooler=add_pooler, dtype=self.dtype_policy)

    def add_head(self, num_labels: int) -> None:
        """Makes a head at the root, where Google's classifiers have it: ``output_weights`` [labels, H], its bias."""
        shape, initializer = (num_labels, self.config.hidden_size), create_initializer(HEAD_INITIALIZER_RANGE)
        self.output_weights = self.add_weight(shape=shape, initializer=initializer, name="output_weights")
        self.output_bias = self.add_weight(shape=(num_labels,), initializer="zeros", name="output_bias")

    def head(self, x):
        """Scores of the labels: [..., H] to [..., labels], float32 or wider."""
        weights, bias = (ops.cast(weight, x.dtype) for weight in (self.output_weights, self.output_bias))
        return at_least_float32(ops.matmul(x, ops.transpose(weights)) + bias)

    @classmethod
    def arguments_for(cls, shapes):
        """Whether there is a pooler, by the checkpoint's variables."""
        return {"add_pooler": POOLER in shapes}

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {"add_pooler": self.add_pooler}


@keras.saving.register_keras_serializable("tf_bert")
class BertForMaskedLM(BertTask):
    """BERT that scores the words at (masked) positions, without the next-sentence task.

    Args:
        config: sizes and rates.
        add_pooler: see `BertTask`.

    Call arguments:
        inputs: those of `Bert`, and ``masked_lm_positions`` [B, P]: all positions if left out.

    Returns:
        The outputs of `Bert` and ``masked_lm_logits`` [B, P, V].

    Example:
        >>> config = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> BertForMaskedLM(config)({"input_ids": keras.ops.array([[2, 7, 3]])})["masked_lm_logits"].shape
        TensorShape([1, 3, 30])
    """

    def __init__(self, config: BertConfig, add_pooler: bool = False, **kwargs):
        super().__init__(config, add_pooler, **kwargs)
        sizes = (config.vocab_size, config.hidden_size, config.hidden_act, config.initializer_range)
        self.masked_lm = MaskedLMHead(*sizes, dtype=self.dtype_policy, name="predictions")
        self.build()

    def build(self, input_shape=None):
        """Makes the variables of the head."""
        with keras.name_scope("cls"):
            self.masked_lm.build((None, None, self.config.hidden_size))

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Encodes a batch and scores words."""
        outputs = self.bert(inputs, training=training)
        x = outputs["sequence_output"]  # [B, S, H]
        if "masked_lm_positions" in inputs:
            x = gather_indexes(x, inputs["masked_lm_positions"])  # [B, P, H]
        return outputs | {"masked_lm_logits": self.masked_lm(x, table=self.bert.get_embedding_table())}  # [B, P, V]


@keras.saving.register_keras_serializable("tf_bert")
class BertClassifier(BertTask):
    """BERT that classifies a sequence or a pair by its pooled output (the original's ``run_classifier``).

    Args:
        config: sizes and rates.
        num_labels: number of classes; 1 for a number (regression).
        dropout: of the pooled output.
        kind: ``"single"`` label, ``"multi"`` label (each may hold or not) or ``"regression"``.

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

    def __init__(self, config: BertConfig, num_labels: int = 2, dropout: float = 0.1, kind: str = "single", **kwargs):
        if kind not in ("single", "multi", "regression"):
            raise ValueError(f"kind is {kind!r}; known are 'single', 'multi' and 'regression'")
        if kind == "regression" and num_labels != 1:
            raise ValueError(f"a regression has one output, not num_labels={num_labels}")
        super().__init__(config, **kwargs)
        self.num_labels, self.kind = num_labels, kind
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        """Makes the variables of the head."""
        self.add_head(self.num_labels)

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Encodes a batch and scores classes."""
        outputs = self.bert(inputs, training=training)
        x = self.dropout(outputs["pooled_output"], training=training)  # [B, H]
        return outputs | {"logits": self.head(x)}  # [B, num_labels]

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
        """The number of labels, where the checkpoint has a head."""
        return {"num_labels": shapes[HEAD][0]} if HEAD in shapes else {}

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
        outputs = self.bert(inputs, training=training)
        x = self.dropout(outputs["sequence_output"], training=training)  # [B, S, H]
        return outputs | {"logits": self.head(x)}  # [B, S, num_labels]

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 for each piece with a label [B, S]."""
        return {"loss": ops.not_equal(inputs["label_ids"], IGNORED_LABEL)}

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy of each piece [B, S]."""
        return {"loss": cross_entropy("label_ids", _labels_or_0(inputs["label_ids"]), outputs["logits"])}

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether each piece is right [B, S]."""
        return {"accuracy": (correct(inputs["label_ids"], outputs["logits"]), self.loss_weights(inputs)["loss"])}

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
        outputs = self.bert(inputs, training=training)
        start_logits, end_logits = ops.unstack(self.span(outputs["sequence_output"]), axis=-1)  # [B, S] each
        return outputs | {"start_logits": start_logits, "end_logits": end_logits}

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


def _labels_or_0(label_ids):
    """Labels that can be looked up; what is ignored has no weight."""
    return ops.where(ops.equal(label_ids, IGNORED_LABEL), 0, label_ids)
