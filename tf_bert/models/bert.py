"""BERT: pre-training of deep bidirectional Transformers (Devlin et al. 2018)."""

from typing import Any

import keras
from keras import ops

from tf_bert.configs import BertConfig
from tf_bert.layers.embeddings import BertEmbeddings
from tf_bert.layers.feed_forward import create_initializer
from tf_bert.layers.transformer import TransformerEncoderBlock


@keras.saving.register_keras_serializable("tf_bert")
class Bert(keras.Model):
    """The encoder: embeddings, a stack of Transformer blocks, and a pooler on the first position.

    It is built, with all its variables, as soon as it is made; the path of a variable is its name in Google's
    checkpoints (``bert/encoder/layer_0/attention/self/query/kernel``).

    Args:
        config: sizes and rates.
        use_one_hot_embeddings: whether words are looked up by a product with a one-hot matrix, which suits TPUs.

    Call arguments:
        inputs: a dict of [B, S] integers: ``input_ids``; ``input_mask``, 1 for a real position and 0 for padding (all 1
            if left out), or [B, F, S] to say it for each query; ``segment_ids`` (all 0 if left out).
            Other entries are ignored.
        return_attention_probs: whether to return ``attention_probs`` too.

    Returns:
        A dict: ``sequence_output`` [B, S, H] of the last block, ``pooled_output`` [B, H], ``all_encoder_layers``, a
        list of [B, S, H] for each block, ``embedding_output`` [B, S, H], and on request ``attention_probs``, a list of
        [B, N, S, S].

    Raises:
        ValueError: an id lies outside its table (in eager calls; compiled code gives NaN in its place), or the sequence
            is longer than the position table.

    Example:
        >>> bert = Bert(BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2))
        >>> inputs = {"input_ids": keras.ops.array([[2, 7, 3, 0]]), "input_mask": keras.ops.array([[1, 1, 1, 0]])}
        >>> outputs = bert(inputs)
        >>> outputs["sequence_output"].shape, outputs["pooled_output"].shape
        (TensorShape([1, 4, 8]), TensorShape([1, 8]))
    """

    def __init__(self, config: BertConfig, use_one_hot_embeddings: bool = False, name: str = "bert", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config, self.use_one_hot_embeddings = config, use_one_hot_embeddings
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
                kernel_initializer=create_initializer(config.initializer_range),
                dtype=self.dtype_policy,
                name=f"layer_{i}",
            )
            for i in range(config.num_hidden_layers)
        ]
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
        with keras.name_scope("pooler"):
            self.pooler.build((None, self.config.hidden_size))

    def call(self, inputs: dict[str, Any], return_attention_probs: bool = False, training: bool | None = None):
        """Encodes a batch."""
        input_ids = inputs["input_ids"]  # [B, S]
        input_mask = inputs.get("input_mask", ops.ones_like(input_ids))
        segment_ids = inputs.get("segment_ids", ops.zeros_like(input_ids))

        x = embedding_output = self.embeddings(input_ids, segment_ids, training=training)  # [B, S, H]
        all_encoder_layers, attention_probs = [], []
        for block in self.encoder:
            x = block(x, input_mask, return_attention_probs=return_attention_probs, training=training)
            if return_attention_probs:
                x, probs = x
                attention_probs.append(probs)  # [B, N, S, S]
            all_encoder_layers.append(x)
        outputs = {
            "sequence_output": x,
            "pooled_output": self.pooler(x[:, 0]),  # [B, H], of [CLS]
            "all_encoder_layers": all_encoder_layers,
            "embedding_output": embedding_output,
        }
        return outputs | {"attention_probs": attention_probs} if return_attention_probs else outputs


BertModel = Bert
