"""BERT: pre-training of deep bidirectional Transformers (Devlin et al. 2018)."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from tf_bert.configs import BertConfig
from tf_bert.layers.attention import get_implementation, serialize_implementation
from tf_bert.layers.embeddings import BertEmbeddings
from tf_bert.layers.feed_forward import create_initializer
from tf_bert.layers.heads import ClassificationHead, MaskedLMHead, correct, cross_entropy, gather_indexes
from tf_bert.layers.packed_rows import packed_rows
from tf_bert.layers.transformer import TransformerEncoderBlock
from tf_bert.models.saving import Checkpointed, Configured
from tf_bert.trainer.checks import Expected, Integers
from tf_bert.trainer.execution import recompute
from tf_bert.trainer.trainer import Scores, Trainer


@keras.saving.register_keras_serializable("tf_bert")
class Bert(Checkpointed, Configured, Trainer):
    """The encoder: embeddings, a stack of Transformer blocks, and a pooler on the first position.

    It is built, with all its variables, as soon as it is made; the path of a variable is its name in Google's
    checkpoints (``bert/encoder/layer_0/attention/self/query/kernel``).

    Args:
        config: sizes and rates.
        use_one_hot_embeddings: whether words are looked up by a product with a one-hot matrix, which suits TPUs.
        add_pooler: whether there is a pooler; without one there is no ``pooled_output``.
        attention: how it is computed: ``"plain"``; ``"chunked"`` for sequences of 512 and more, with the same values in
            a fraction of the memory (`tf_bert.layers.chunked_attention`); or a function of your own, see
            `tf_bert.layers.attention.MultiHeadAttention`.

    Call arguments:
        inputs: a dict of [B, S] integers: ``input_ids``; ``input_mask``, 1 for a real position and 0 for padding (all 1
            if left out), or [B, F, S] to say it for each query; ``segment_ids`` (all 0 if left out); for rows that hold
            several examples one behind the other, ``example_lengths`` [B, E], the tokens of each and 0 for none: they
            do not see each other, and each has positions of its own. ``attention_mask`` and ``token_type_ids`` are
            taken as ``input_mask`` and ``segment_ids``; another key is an error, and labels of a task a warning.
        return_attention_probs: whether to return ``attention_probs`` too.

    Returns:
        A dict: ``sequence_output`` [B, S, H] of the last block, ``pooled_output`` [B, H] ([B, E, H] with
        ``example_lengths``), ``all_encoder_layers``, a list of [B, S, H] for each block, ``embedding_output``
        [B, S, H], and on request ``attention_probs``, a list of [B, N, S, S].

    Raises:
        ValueError: an id lies outside its table (in eager calls; compiled code gives NaN in its place), the sequence is
            longer than the position table, there are no ``input_ids``, or there is an unknown input; the heads
            of ``config`` do not divide its width.

    Example:
        >>> bert = Bert(BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2))
        >>> inputs = {"input_ids": keras.ops.array([[2, 7, 3, 0]]), "input_mask": keras.ops.array([[1, 1, 1, 0]])}
        >>> outputs = bert(inputs)
        >>> outputs["sequence_output"].shape, outputs["pooled_output"].shape
        (TensorShape([1, 4, 8]), TensorShape([1, 8]))
    """

    config_class = BertConfig
    recompute = False  # unless `compile` says so
    input_names = ("input_ids", "input_mask", "segment_ids", "example_lengths")

    def __init__(
        self,
        config: BertConfig,
        use_one_hot_embeddings: bool = False,
        add_pooler: bool = True,
        attention: str | Callable = "plain",
        name: str = "bert",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        config.check_heads()
        self.config, self.use_one_hot_embeddings = config, use_one_hot_embeddings
        self.attention = get_implementation(attention)
        self.embeddings = BertEmbeddings(
            config.vocab_size,
            config.hidden_size,
            config.type_vocab_size,
            config.max_position_embeddings,
            dropout=config.hidden_dropout_prob,
            initializer_range=config.initializer_range,
            use_one_hot_embeddings=use_one_hot_embeddings,
            dtype=self.dtype_policy,
            name="embeddings",
        )
        self.encoder = [
            TransformerEncoderBlock(
                config.num_attention_heads,
                config.hidden_size,
                config.intermediate_size,
                activation=config.hidden_act,
                dropout=config.hidden_dropout_prob,
                attention_dropout=config.attention_probs_dropout_prob,
                attention=self.attention,
                kernel_initializer=create_initializer(config.initializer_range),
                dtype=self.dtype_policy,
                name=f"layer_{i}",
            )
            for i in range(config.num_hidden_layers)
        ]
        self.pooler = None
        if add_pooler:
            self.pooler = keras.layers.Dense(
                config.hidden_size,
                activation="tanh",
                kernel_initializer=create_initializer(config.initializer_range),
                dtype=self.dtype_policy,
                name="dense",
            )
        self.build()

    def build(self, input_shape=None):
        """Makes all variables; their shapes do not depend on the input."""
        self.embeddings.build()
        with keras.name_scope("encoder"):
            for block in self.encoder:
                block.build((None, None, self.config.hidden_size))
        if self.pooler is not None:
            with keras.name_scope("pooler"):
                self.pooler.build((None, self.config.hidden_size))

    def call(self, inputs: dict[str, Any], return_attention_probs: bool = False, training: bool | None = None):
        """Encodes a batch."""
        input_ids = inputs["input_ids"]  # [B, S]
        input_mask = inputs.get("input_mask", ops.ones_like(input_ids))
        segment_ids = inputs.get("segment_ids", ops.zeros_like(input_ids))
        first_positions = position_ids = None
        if "example_lengths" in inputs:
            first_positions, position_ids, input_mask = packed_rows(inputs["example_lengths"], input_mask)

        x = embedding_output = self.embeddings(input_ids, segment_ids, position_ids, training=training)  # [B, S, H]
        all_encoder_layers, attention_probs = [], []
        for block in self.encoder:
            block = recompute(block) if self.recompute and training else block
            x, _, probs = block(x, input_mask, return_attention_probs=return_attention_probs, training=training)
            all_encoder_layers.append(x)  # [B, S, H]
            attention_probs.append(probs)  # [B, N, S, S] where asked for
        outputs = {
            "sequence_output": x,
            "all_encoder_layers": all_encoder_layers,
            "embedding_output": embedding_output,
        }
        if self.pooler is not None:
            first = x[:, 0] if first_positions is None else gather_indexes(x, first_positions)
            outputs["pooled_output"] = self.pooler(first)  # [B, H] or [B, E, H], of [CLS]
        if return_attention_probs:
            outputs["attention_probs"] = attention_probs
        return outputs

    @property
    def expected(self) -> Expected:
        """Ids inside their tables, no more of them than positions."""
        return expected_ids(self.config)

    def get_sequence_output(self, inputs: dict[str, Any]):
        """The output of the last block, [B, S, H], in one call as in the original."""
        return self(inputs)["sequence_output"]

    def get_pooled_output(self, inputs: dict[str, Any]):
        """The output of the pooler, [B, H]."""
        return self(inputs)["pooled_output"]

    def get_all_encoder_layers(self, inputs: dict[str, Any]) -> list:
        """The output of each block, a list of [B, S, H]."""
        return self(inputs)["all_encoder_layers"]

    def get_embedding_output(self, inputs: dict[str, Any]):
        """What goes into the first block, [B, S, H]."""
        return self(inputs)["embedding_output"]

    def get_embedding_table(self) -> keras.Variable:
        """The word embeddings [V, H]."""
        return self.embeddings.word_embeddings

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "use_one_hot_embeddings": self.use_one_hot_embeddings,
            "add_pooler": self.pooler is not None,
            "attention": serialize_implementation(self.attention),
        }


BertModel = Bert


def expected_ids(config: BertConfig) -> Expected:
    """What the inputs of a BERT may hold, and the labels of its pre-training."""
    return {
        "input_ids": Integers(config.vocab_size, longest=config.max_position_embeddings, unless="example_lengths"),
        "segment_ids": Integers(config.type_vocab_size),
        "masked_lm_positions": Integers("input_ids", "positions in a sequence"),
        "masked_lm_ids": Integers(config.vocab_size, "classes"),
        "next_sentence_labels": Integers(2, "classes"),
    }


@keras.saving.register_keras_serializable("tf_bert")
class BertForPreTraining(Checkpointed, Configured, Trainer):
    """BERT with the heads of its two pre-training tasks (Devlin et al. 2018, section 3.1).

    Args:
        config: sizes and rates.
        use_one_hot_embeddings, attention: see `Bert`.

    Call arguments:
        inputs: those of `Bert`, and ``masked_lm_positions`` [B, P], the positions whose words are to be predicted: all
            positions if left out. With ``example_lengths``, positions count through the row, and
            ``next_sentence_labels`` are [B, E].

    Returns:
        The outputs of `Bert`, ``masked_lm_logits`` [B, P, V] and ``next_sentence_logits`` [B, 2] (0: the second segment
        follows the first; 1: it is a random one), [B, E, 2] with ``example_lengths``.

    Example:
        >>> config = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
        >>> model = BertForPreTraining(config)
        >>> inputs = {
        ...     "input_ids": keras.ops.array([[2, 4, 7, 3]]),
        ...     "masked_lm_positions": keras.ops.array([[1]]),
        ...     "masked_lm_ids": keras.ops.array([[9]]),
        ...     "masked_lm_weights": keras.ops.array([[1.0]]),
        ...     "next_sentence_labels": keras.ops.array([0]),
        ... }
        >>> outputs = model(inputs)
        >>> outputs["masked_lm_logits"].shape, outputs["next_sentence_logits"].shape
        (TensorShape([1, 1, 30]), TensorShape([1, 2]))
        >>> model.per_example_losses(inputs, outputs)["masked_lm_loss"].shape
        TensorShape([1, 1])
    """

    config_class = BertConfig
    loss_names = ("masked_lm_loss", "next_sentence_loss")
    metric_names = ("masked_lm_accuracy", "next_sentence_accuracy")
    weight_epsilon = {"masked_lm_loss": 1e-5}
    label_names = ("masked_lm_ids", "masked_lm_weights")
    input_names = (
        *Bert.input_names,
        *("masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels"),
    )

    def __init__(
        self,
        config: BertConfig,
        use_one_hot_embeddings: bool = False,
        attention: str | Callable = "plain",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config, self.use_one_hot_embeddings = config, use_one_hot_embeddings
        with keras.name_scope(self.name):
            self.bert = Bert(config, use_one_hot_embeddings, attention=attention, dtype=self.dtype_policy)
        self.masked_lm = MaskedLMHead(
            config.vocab_size,
            config.hidden_size,
            config.hidden_act,
            config.initializer_range,
            dtype=self.dtype_policy,
            name="predictions",
        )
        self.next_sentence = ClassificationHead(
            2, config.initializer_range, dtype=self.dtype_policy, name="seq_relationship"
        )
        self.build()

    def build(self, input_shape=None):
        """Makes the variables of the two heads."""
        with keras.name_scope("cls"):
            self.masked_lm.build((None, None, self.config.hidden_size))
            self.next_sentence.build((None, self.config.hidden_size))

    def call(self, inputs: dict[str, Any], return_attention_probs: bool = False, training: bool | None = None):
        """Encodes a batch and scores words and sentence pairs."""
        outputs = self.bert(
            self.bert.read_from(inputs), return_attention_probs=return_attention_probs, training=training
        )
        x = outputs["sequence_output"]  # [B, S, H]
        if "masked_lm_positions" in inputs:
            x = gather_indexes(x, inputs["masked_lm_positions"])  # [B, P, H]
        return outputs | {
            "masked_lm_logits": self.masked_lm(x, table=self.bert.get_embedding_table()),  # [B, P, V]
            "next_sentence_logits": self.next_sentence(outputs["pooled_output"]),  # [B, 2] or [B, E, 2]
        }

    @property
    def expected(self) -> Expected:
        """Ids and labels inside their tables."""
        return expected_ids(self.config)

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The scores of both tasks."""
        return {
            "masked_lm_logits": Scores("masked_lm_loss", "softmax", self.config.vocab_size),
            "next_sentence_logits": Scores("next_sentence_loss", "softmax", 2),
        }

    def targets(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """The masked words [B, P], and which segments follow, [B] or [B, E]."""
        return {
            "masked_lm_logits": inputs.get("masked_lm_ids"),
            "next_sentence_logits": self._next_sentence_labels(inputs),
        }

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 for each real prediction, and for each pair of segments: none without ``next_sentence_labels``."""
        weights = inputs["masked_lm_weights"]
        pairs = ops.ones_like(weights[:, 0])  # [B]
        if "example_lengths" in inputs:
            pairs = ops.cast(inputs["example_lengths"] > 0, pairs.dtype)  # [B, E]
        if "next_sentence_labels" not in inputs:
            pairs = ops.zeros_like(pairs)
        return {"masked_lm_loss": weights, "next_sentence_loss": pairs}

    def _next_sentence_labels(self, inputs: dict[str, Any]):
        """[B] or [B, E]; where there are none, for masked LM alone, zeros that have no weight."""
        labels = inputs.get("next_sentence_labels")
        if "example_lengths" in inputs:
            return ops.zeros_like(inputs["example_lengths"]) if labels is None else labels
        return ops.zeros_like(inputs["input_ids"][:, 0]) if labels is None else ops.reshape(labels, (-1,))

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy of each prediction [B, P], and of each pair of segments, [B] or [B, E]."""
        labels = self._next_sentence_labels(inputs)
        return {
            "masked_lm_loss": cross_entropy("masked_lm_ids", inputs["masked_lm_ids"], outputs["masked_lm_logits"]),
            "next_sentence_loss": cross_entropy("next_sentence_labels", labels, outputs["next_sentence_logits"]),
        }

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether each prediction [B, P], and each pair of segments, [B] or [B, E], is right."""
        labels = self._next_sentence_labels(inputs)
        masked_lm = correct(inputs["masked_lm_ids"], outputs["masked_lm_logits"])
        next_sentence = correct(labels, outputs["next_sentence_logits"])
        weights = self.loss_weights(inputs)
        return {
            "masked_lm_accuracy": (masked_lm, weights["masked_lm_loss"]),
            "next_sentence_accuracy": (next_sentence, weights["next_sentence_loss"]),
        }

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "use_one_hot_embeddings": self.use_one_hot_embeddings,
            "attention": self.bert.get_config()["attention"],
        }


def get_masked_lm_output(logits, label_ids, label_weights):
    """Loss of the masked-word task, as the original defines it.

    Args:
        logits: [B, P, V].
        label_ids: [B, P], the original words.
        label_weights: [B, P], 1 for a prediction and 0 for padding.

    Returns:
        The loss sum(weight * loss) / (sum(weight) + 1e-5), which is 0 where there is no prediction at all; the loss of
        each position [B * P]; and the log-probabilities [B * P, V].
    """
    per_example_loss = ops.reshape(cross_entropy("masked_lm_ids", label_ids, logits), (-1,))
    weights = ops.reshape(ops.cast(label_weights, per_example_loss.dtype), (-1,))
    loss = ops.sum(weights * per_example_loss) / (ops.sum(weights) + 1e-5)
    return loss, per_example_loss, ops.reshape(ops.log_softmax(logits), (-1, logits.shape[-1]))


def get_next_sentence_output(logits, labels):
    """Loss of the next-sentence task, as the original defines it.

    Args:
        logits: [B, 2].
        labels: [B] or [B, 1], 0 where the second segment follows the first and 1 where it is a random one.

    Returns:
        The mean loss; the loss of each example [B]; and the log-probabilities [B, 2].
    """
    per_example_loss = cross_entropy("next_sentence_labels", ops.reshape(labels, (-1,)), logits)
    return ops.mean(per_example_loss), per_example_loss, ops.log_softmax(logits)
