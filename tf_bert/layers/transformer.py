"""The encoder block stacked by BERT, GPT and the Transformer."""

from collections.abc import Callable
from typing import Any

import keras

from tf_bert.layers.attention import MultiHeadAttention, serialize_implementation
from tf_bert.layers.feed_forward import FeedForward, create_initializer
from tf_bert.layers.layer_norm import LayerNorm


@keras.saving.register_keras_serializable("tf_bert")
class TransformerEncoderBlock(keras.layers.Layer):
    """Self-attention and feed-forward network, each with dropout, residual and layer norm (Vaswani et al. 2017, 3.1).

    With ``causal`` it is the decoder block without cross-attention that GPT stacks.

    Args:
        num_heads: number of attention heads.
        hidden_size: width H of input and output.
        intermediate_size: inner width of the feed-forward network.
        activation: of the feed-forward network, see `get_activation`.
        dropout: of what each of the two sublayers adds.
        attention_dropout: of the attention probabilities.
        causal, mask, window: see `MultiHeadAttention`.
        attention: how it is computed, ``"plain"``, ``"chunked"`` or a function, see `MultiHeadAttention`.
        pre_norm: whether to normalise what goes into a sublayer (GPT-2) instead of the sum that comes out.
        layer_norm_epsilon: added to the variance.
        kernel_initializer: a Keras initializer or its name.

    Call arguments:
        x: [B, S, H].
        attention_mask: [B, S] or [B, S, S], true where a position may be attended to.
        cache, cache_index: for decoding step by step, a cache from ``attention.create_cache``, and where in it ``x``
            begins.
        return_attention_probs: whether to return the attention probabilities too.

    Returns:
        Always three values, as `TransformerDecoderBlock`: the output [B, S, H]; the new cache, ``()`` without one; and
        the attention probabilities [B, N, S, S] ([B, N, S, T] with a cache of T positions), ``()`` if not asked for.

    Example:
        >>> block = TransformerEncoderBlock(num_heads=2, hidden_size=8, intermediate_size=16)
        >>> x, cache, probs = block(keras.ops.ones([1, 3, 8]), attention_mask=[[1, 1, 0]])
        >>> x.shape, cache, probs
        (TensorShape([1, 3, 8]), (), ())
    """

    def __init__(
        self,
        num_heads: int,
        hidden_size: int,
        intermediate_size: int,
        activation: str | Callable | None = "gelu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        causal: bool = False,
        mask: str = "additive",
        pre_norm: bool = False,
        layer_norm_epsilon: float = 1e-12,
        kernel_initializer: Any = None,
        window: int | None = None,
        attention: str | Callable = "plain",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.pre_norm, self.layer_norm_epsilon = pre_norm, layer_norm_epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer or create_initializer())
        options = {"kernel_initializer": self.kernel_initializer, "dtype": self.dtype_policy}
        self.attention = MultiHeadAttention(
            num_heads,
            hidden_size,
            attention_dropout,
            causal,
            mask,
            window=window,
            implementation=attention,
            name="attention",
            **options,
        )
        self.feed_forward = FeedForward(intermediate_size, hidden_size, activation, **options)
        self.attention_norm, self.output_norm = (
            LayerNorm(epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="LayerNorm") for _ in range(2)
        )
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape):
        """Makes ``attention``, ``intermediate`` and ``output``; the norms stand beside the dense layers they follow."""
        self.attention.build(x_shape)
        with keras.name_scope("attention"), keras.name_scope("output"):
            self.attention_norm.build(x_shape)
        self.feed_forward.build(x_shape)
        with keras.name_scope("output"):
            self.output_norm.build(x_shape)

    def call(
        self,
        x,
        attention_mask=None,
        cache=None,
        cache_index=0,
        return_attention_probs=False,
        training=None,
    ):
        """Transforms ``x`` [B, S, H]."""
        query = self.attention_norm(x) if self.pre_norm else x
        if cache is not None:
            cache = self.attention.update_cache(cache, query, cache_index)
        options = {"attention_mask": attention_mask, "cache": cache, "cache_index": cache_index}
        attended = self.attention(query, return_attention_probs=return_attention_probs, training=training, **options)
        attended, probs = attended if return_attention_probs else (attended, ())
        x += self.dropout(attended, training=training)
        if not self.pre_norm:
            x = self.attention_norm(x)

        transformed = self.feed_forward(self.output_norm(x) if self.pre_norm else x)
        x += self.dropout(transformed, training=training)
        if not self.pre_norm:
            x = self.output_norm(x)
        return x, cache or (), probs

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "num_heads": self.attention.num_heads,
            "hidden_size": self.attention.hidden_size,
            "intermediate_size": self.feed_forward.intermediate_size,
            "activation": self.feed_forward.activation,
            "dropout": self.dropout.rate,
            "attention_dropout": self.attention.dropout.rate,
            "causal": self.attention.causal,
            "mask": self.attention.mask,
            "window": self.attention.window,
            "attention": serialize_implementation(self.attention.implementation),
            "pre_norm": self.pre_norm,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
