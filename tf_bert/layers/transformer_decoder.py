"""The block stacked by the Transformer's decoder."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from tf_bert.layers.attention import MultiHeadAttention, serialize_implementation
from tf_bert.layers.feed_forward import FeedForward, create_initializer
from tf_bert.layers.layer_norm import LayerNorm


@keras.saving.register_keras_serializable("tf_bert")
class TransformerDecoderBlock(keras.layers.Layer):
    """Causal self-attention, attention to the encoder's output, feed-forward network (Vaswani et al. 2017, 3.1).

    Each of the three has dropout, residual and layer norm.

    Args:
        num_heads: number of attention heads N.
        hidden_size: width H of input and output.
        intermediate_size: inner width of the feed-forward network.
        activation: of the feed-forward network, see `get_activation`.
        dropout: of what each of the three sublayers adds.
        attention_dropout: of the attention probabilities.
        attention: how both attentions are computed, ``"plain"``, ``"chunked"`` or a function, see `MultiHeadAttention`.
        pre_norm: whether to normalise what goes into a sublayer instead of the sum that comes out.
        layer_norm_epsilon: added to the variance.
        kernel_initializer: a Keras initializer or its name.

    Call arguments:
        x: [B, T, H].
        memory: keys and values of the encoder's output, from ``cross_attention.keys_and_values``: [B, N, S, D] each.
            In decoding with W hypotheses for each source, x has B * W rows and the memory B.
        attention_mask: [B, S], true for real positions of the memory.
        cache, cache_index: for decoding step by step, a cache from ``attention.create_cache``, and where in it ``x``
            begins.
        return_attention_probs: whether to return the attention probabilities too.

    Returns:
        Always three values: the output [B, T, H]; the new cache, ``()`` without one; and a pair of the probabilities of
        self-attention [B, N, T, T] and of attention to the memory [B, N, T, S], ``()`` if not asked for.

    Example:
        >>> block = TransformerDecoderBlock(num_heads=2, hidden_size=8, intermediate_size=16)
        >>> block.build((None, None, 8))
        >>> memory = block.cross_attention.keys_and_values(ops.ones((1, 5, 8)))
        >>> x, cache, (_, probs) = block(ops.ones((1, 3, 8)), memory, return_attention_probs=True)
        >>> x.shape, cache, probs.shape
        (TensorShape([1, 3, 8]), (), TensorShape([1, 2, 3, 5]))
    """

    def __init__(
        self,
        num_heads: int,
        hidden_size: int,
        intermediate_size: int,
        activation: str | Callable | None = "relu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        pre_norm: bool = False,
        layer_norm_epsilon: float = 1e-6,
        kernel_initializer: Any = None,
        attention: str | Callable = "plain",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.pre_norm, self.layer_norm_epsilon = pre_norm, layer_norm_epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer or create_initializer())
        options = {"kernel_initializer": self.kernel_initializer, "dtype": self.dtype_policy}
        kind = {"mask": "exclude", "implementation": attention}
        self.attention, self.cross_attention = (
            MultiHeadAttention(num_heads, hidden_size, attention_dropout, causal, name=name, **kind, **options)
            for name, causal in (("attention", True), ("cross_attention", False))
        )
        self.feed_forward = FeedForward(intermediate_size, hidden_size, activation, **options)
        self.attention_norm, self.cross_attention_norm, self.output_norm = (
            LayerNorm(epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="LayerNorm") for _ in range(3)
        )
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape):
        """Makes the variables; the norms stand beside the dense layers they follow."""
        self.attention.build(x_shape)
        with keras.name_scope("attention"), keras.name_scope("output"):
            self.attention_norm.build(x_shape)
        self.cross_attention.build(x_shape, x_shape)
        with keras.name_scope("cross_attention"), keras.name_scope("output"):
            self.cross_attention_norm.build(x_shape)
        self.feed_forward.build(x_shape)
        with keras.name_scope("output"):
            self.output_norm.build(x_shape)
        self.built = True

    def call(
        self,
        x,
        memory,
        attention_mask=None,
        cache=None,
        cache_index=0,
        return_attention_probs=False,
        training=None,
    ):
        """Transforms ``x`` [B, T, H]."""
        options, all_probs = {"return_attention_probs": return_attention_probs, "training": training}, ()

        def sublayer(x, norm, function):
            x += self.dropout(function(norm(x) if self.pre_norm else x), training=training)
            return x if self.pre_norm else norm(x)

        def attend(attention, query, **arguments):
            nonlocal all_probs
            output = attention(query, **arguments, **options)
            if return_attention_probs:
                output, probs = output
                all_probs = (*all_probs, probs)
            return output

        def attend_to_self(query):
            nonlocal cache
            if cache is not None:
                cache = self.attention.update_cache(cache, query, cache_index)
            return attend(self.attention, query, cache=cache, cache_index=cache_index)

        def attend_to_memory(query):
            # Hypotheses of one source are to its memory what positions are.
            rows = ops.reshape(query, (ops.shape(memory[0])[0], -1, ops.shape(query)[-1]))  # [B, W * T, H]
            output = attend(self.cross_attention, rows, attention_mask=attention_mask, cache=memory)
            return ops.reshape(output, ops.shape(query))

        x = sublayer(x, self.attention_norm, attend_to_self)
        x = sublayer(x, self.cross_attention_norm, attend_to_memory)
        x = sublayer(x, self.output_norm, self.feed_forward)
        return x, cache or (), all_probs

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "num_heads": self.attention.num_heads,
            "hidden_size": self.attention.hidden_size,
            "intermediate_size": self.feed_forward.intermediate_size,
            "activation": self.feed_forward.activation,
            "dropout": self.dropout.rate,
            "attention_dropout": self.attention.dropout.rate,
            "attention": serialize_implementation(self.attention.implementation),
            "pre_norm": self.pre_norm,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
