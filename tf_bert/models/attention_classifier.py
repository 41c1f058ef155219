"""Text classifiers of a recurrent encoder and attention pooling, over words or over words and sentences."""

from typing import Any

import keras
from keras import ops

from tf_bert.configs import AttentionClassifierConfig
from tf_bert.layers.alignment import AttentionPooling
from tf_bert.layers.heads import ClassificationHead, cross_entropy
from tf_bert.layers.positions import WordEmbedding
from tf_bert.layers.recurrent import RecurrentEncoder
from tf_bert.models.saving import Configured
from tf_bert.trainer.checks import Expected, Integers
from tf_bert.trainer.trainer import Scores, Trainer


@keras.saving.register_keras_serializable("tf_bert")
class AttentionClassifier(Configured, Trainer):
    """Words to a vector by attention; with ``hierarchical``, words to sentences to the document (Yang et al. 2016).

    Args:
        config: sizes.

    Call arguments:
        inputs: a dict: ``input_ids`` [B, S], or [B, D, S] for D sentences of at most S words each; ``input_mask`` of
            the same shape, 1 for real words, by default where ids are not ``pad_id``; in training ``label_ids`` [B].

    Returns:
        A dict: ``logits`` [B, C]; ``word_weights`` of the shape of the ids; and for the hierarchical classifier
        ``sentence_weights`` [B, D]. A text without words gets the scores of an empty vector.

    Example:
        >>> config = AttentionClassifierConfig(30, num_labels=2, embedding_size=4, hidden_size=4, hierarchical=True)
        >>> outputs = AttentionClassifier(config)({"input_ids": ops.array([[[5, 6, 0], [7, 8, 9]]])})
        >>> outputs["logits"].shape, outputs["word_weights"].shape, outputs["sentence_weights"].shape
        (TensorShape([1, 2]), TensorShape([1, 2, 3]), TensorShape([1, 2]))
    """

    config_class = AttentionClassifierConfig
    loss_names = ("loss",)
    metric_names = ("accuracy",)
    label_name = "label_ids"
    label_names = ("label_ids",)
    input_names = ("input_ids", "input_mask", "label_ids")

    def __init__(self, config: AttentionClassifierConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.embedding = WordEmbedding(
            config.vocab_size,
            config.embedding_size,
            dropout=config.hidden_dropout_prob,
            initializer_range=0.1,
            dtype=self.dtype_policy,
            name="input_ids",
        )
        levels = ("words", "sentences") if config.hierarchical else ("words",)
        options = {"cell": config.cell, "bidirectional": True, "dtype": self.dtype_policy}
        self.encoders = [RecurrentEncoder(config.hidden_size, name=f"{level}_encoder", **options) for level in levels]
        self.poolings = [
            AttentionPooling(2 * config.hidden_size, dtype=self.dtype_policy, name=f"{level}_attention")
            for level in levels
        ]
        self.dropout = keras.layers.Dropout(config.hidden_dropout_prob, dtype=self.dtype_policy)
        self.head = ClassificationHead(config.num_labels, dtype=self.dtype_policy, name="classifier")
        self.build()

    def build(self, input_shape=None):
        """Makes all variables; their shapes do not depend on the input."""
        self.embedding.build()
        width = self.config.embedding_size
        for encoder, pooling in zip(self.encoders, self.poolings, strict=True):
            encoder.build((None, None, width))
            width = 2 * self.config.hidden_size
            pooling.build((None, None, width))
        self.head.build((None, width))
        self.built = True

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Scores the labels of each text."""
        ids = ops.convert_to_tensor(inputs["input_ids"])
        mask = ops.cast(inputs.get("input_mask", ops.not_equal(ids, self.config.pad_id)), "bool")
        if len(ids.shape) != 2 + self.config.hierarchical:
            shape = "[B, D, S]" if self.config.hierarchical else "[B, S]"
            raise ValueError(f"input_ids must have the shape {shape}, got {tuple(ids.shape)}")
        length = ops.shape(ids)[-1]
        rows, words = ops.reshape(ids, (-1, length)), ops.reshape(mask, (-1, length))  # [B * D, S]
        x, weights = self.pool(0, self.embedding(rows, training=training), words, training)  # [B * D, 2H]
        outputs = {"word_weights": ops.reshape(weights, ops.shape(ids))}
        if self.config.hierarchical:
            sentences = ops.any(mask, axis=-1)  # [B, D]
            x = ops.reshape(x, (*ops.shape(sentences), 2 * self.config.hidden_size))
            x, outputs["sentence_weights"] = self.pool(1, x, sentences, training)  # [B, 2H]
        return outputs | {"logits": self.head(self.dropout(x, training=training))}

    def pool(self, level, x, mask, training):
        """Vectors [B, 2H] of sequences [B, S, ...], and the weights [B, S]."""
        x, _ = self.encoders[level](x, attention_mask=mask, training=training)
        return self.poolings[level](x, attention_mask=mask)

    @property
    def expected(self) -> Expected:
        """Ids inside the vocabulary, and labels."""
        labels = Integers(self.config.num_labels, "labels", axes=1, classes=True)
        return {"input_ids": Integers(self.config.vocab_size), "label_ids": labels}

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The scores of labels."""
        return {"logits": Scores("loss", "softmax", self.config.num_labels)}

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 for each text."""
        return {"loss": ops.ones_like(inputs["label_ids"], dtype=self.variable_dtype)}

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy of each text [B]."""
        return {"loss": cross_entropy("label_ids", inputs["label_ids"], outputs["logits"])}

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether each text [B] got the right label."""
        weights = self.loss_weights(inputs)["loss"]
        right = ops.equal(ops.argmax(outputs["logits"], axis=-1), ops.cast(inputs["label_ids"], "int32"))
        return {"accuracy": (ops.cast(right, weights.dtype), weights)}
