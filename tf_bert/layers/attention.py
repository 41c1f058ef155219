"""Multi-head attention: one layer for BERT, GPT and the Transformer."""

import math
import types
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from tf_bert.backend import at_least_float32, write_slice
from tf_bert.layers.chunked_attention import chunked_attention
from tf_bert.layers.feed_forward import at_each_position, create_initializer


@keras.saving.register_keras_serializable("tf_bert")
class MultiHeadAttention(keras.layers.Layer):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017, section 3.2).

    Self-attention, or cross-attention where a ``memory`` is given. All masks are explicit arguments; they are combined
    as booleans and applied once, to scores in float32 or wider.

    Args:
        num_heads: number of heads N; divides ``hidden_size``.
        hidden_size: width H of queries, keys, values and output together; a head has D = H / N.
        dropout: of the attention probabilities.
        causal: whether position f sees only positions up to f.
        mask: what masked scores become. ``"additive"`` subtracts 10000, as BERT does: a row with nothing to attend to
            behaves as if nothing were masked. ``"exclude"`` gives such a row a context of zeros, so that its output is
            the bias of the output layer.
        kernel_initializer: a Keras initializer or its name.
        implementation: how the context is computed from queries, keys and values. ``"plain"``; ``"chunked"`` for long
            sequences: the same values in the memory of a short one (`chunked_attention`), unless the probabilities are
            asked for; or a function of your own, see below.
        window: with ``causal``, how many positions one sees at most, itself among them; None for all before it.

    Call arguments:
        x: [B, F, H], where the queries come from.
        memory: [B, T, M], where keys and values come from; ``x`` if left out.
        attention_mask: [B, T] or [B, F, T], true (or 1) where a query may attend to a position.
        cache: keys and values [B, N, T, D] to attend to, from `keys_and_values` or `update_cache`, instead of making
            them from ``memory`` or ``x``.
        cache_index: position of x[:, 0] among the keys, for ``causal``.
        return_attention_probs: whether to return the probabilities too.

    Returns:
        [B, F, H]; with ``return_attention_probs`` a pair of that and the probabilities [B, N, F, T], before dropout.

    Raises:
        ValueError: the heads do not divide the hidden size; ``mask`` or ``implementation`` is unknown; or a function of
            your own returns another shape, or no probabilities where they are asked for.

    A function of your own is called as ``function(query, key, value, allowed=allowed, additive=additive,
    dropout=dropout, seed=seed)`` with

    - ``query`` [B, N, F, D], already divided by the square root of D, ``key`` and ``value`` [B, N, T, D];
    - ``allowed``: booleans that broadcast to [B, N, F, T], true where a query may attend; None for everywhere;
    - ``additive``: whether ``mask`` is ``"additive"``;
    - ``dropout``: the rate for the probabilities, 0.0 unless training; ``seed``: [2] integers to draw it with, or None.

    It returns the context [B, N, F, D], or a pair of that and the probabilities [B, N, F, T]. To be saved with a model
    it has to be registered: ``@keras.saving.register_keras_serializable()``.

    Example:
        >>> attention = MultiHeadAttention(num_heads=2, hidden_size=8, causal=True)
        >>> x = keras.random.normal([1, 3, 8])
        >>> _, probs = attention(x, return_attention_probs=True)
        >>> probs.shape, float(probs[0, 0, 0, 1])
        (TensorShape([1, 2, 3, 3]), 0.0)
        >>> def mean_of_values(query, key, value, **options):
        ...     return ops.zeros_like(query) + ops.mean(value, axis=2, keepdims=True)
        >>> MultiHeadAttention(num_heads=2, hidden_size=8, implementation=mean_of_values)(x).shape
        TensorShape([1, 3, 8])
    """

    def __init__(
        self,
        num_heads: int,
        hidden_size: int,
        dropout: float = 0.0,
        causal: bool = False,
        mask: str = "additive",
        kernel_initializer: Any = None,
        window: int | None = None,
        implementation: str | Callable = "plain",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if window is not None and not causal:
            raise ValueError("a window needs causal attention")
        if hidden_size % num_heads:
            raise ValueError(f"hidden_size {hidden_size} is not a multiple of num_heads {num_heads}")
        if mask not in ("additive", "exclude"):
            raise ValueError(f'mask must be "additive" or "exclude", not {mask!r}')
        self.num_heads, self.hidden_size, self.causal, self.mask = num_heads, hidden_size, causal, mask
        self.window, self.implementation = window, get_implementation(implementation)
        self.kernel_initializer = keras.initializers.get(kernel_initializer or create_initializer())
        self.query, self.key, self.value, self.project = (
            keras.layers.Dense(
                hidden_size,
                kernel_initializer=self.kernel_initializer.clone(),  # an initializer repeats its numbers: one for each
                dtype=self.dtype_policy,
                name=name,
            )
            for name in ("query", "key", "value", "dense")
        )
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape, memory_shape=None):
        """Makes ``self/query``, ``self/key``, ``self/value`` and ``output/dense``; ``cross/...`` for a memory."""
        with keras.name_scope("cross" if memory_shape else "self"):
            self.query.build(x_shape)
            self.key.build(memory_shape or x_shape)
            self.value.build(memory_shape or x_shape)
        with keras.name_scope("output"):
            self.project.build((*x_shape[:-1], self.hidden_size))

    def call(
        self,
        x,
        memory=None,
        attention_mask=None,
        cache=None,
        cache_index=0,
        return_attention_probs=False,
        training=None,
    ):
        """Attends from ``x`` to ``memory``, to ``x`` itself, or to a cache."""
        # B batch, F query positions, T key positions, N heads, D width of a head, H = N * D
        # The query is scaled before the product, which could overflow float16, and before the heads are split, since
        # TensorFlow makes a scale beside the product and the mask one kernel with it, which is slower on a CPU.
        query = at_each_position(self.query, x) / math.sqrt(self.hidden_size // self.num_heads)  # [B, F, H]
        query = self.split_heads(query)  # [B, N, F, D]
        key, value = cache or self.keys_and_values(x if memory is None else memory)  # [B, N, T, D]

        allowed = self.allowed(attention_mask, (*ops.shape(query)[:3], ops.shape(key)[2]), cache_index)
        if self.implementation == "plain" or self.implementation == "chunked" and return_attention_probs:
            context, probs = self.plain_attention(query, key, value, allowed, training)
        else:
            context, probs = self.other_attention(query, key, value, allowed, training)
        output = at_each_position(self.project, self.merge_heads(context))  # [B, F, H]
        if return_attention_probs and probs is None:
            raise ValueError(f"{_name(self.implementation)} returns no attention probabilities, which were asked for")
        return (output, probs) if return_attention_probs else output

    def plain_attention(self, query, key, value, allowed, training):
        """Returns the context [B, N, F, D] and the probabilities [B, N, F, T]."""
        scores = at_least_float32(ops.einsum("bnfd,bntd->bnft", query, key))  # [B, N, F, T]
        if allowed is None:
            probs = ops.softmax(scores)
        elif self.mask == "additive":
            adder = ops.where(allowed, ops.cast(0.0, scores.dtype), ops.cast(-10000.0, scores.dtype))
            probs = ops.softmax(scores + adder)
        else:
            probs = ops.softmax(ops.where(allowed, scores, -1e30)) * ops.cast(allowed, scores.dtype)
        probs = ops.cast(probs, self.compute_dtype)

        return ops.einsum("bnft,bntd->bnfd", self.dropout(probs, training=training), value), probs

    def other_attention(self, query, key, value, allowed, training):
        """Returns the context [B, N, F, D] by `chunked_attention` or the user's function, and its probabilities."""
        function = chunked_attention if self.implementation == "chunked" else self.implementation
        rate = self.dropout.rate if training else 0.0
        seed = self.dropout.seed_generator.next() if rate else None
        options = {"allowed": allowed, "additive": self.mask == "additive", "dropout": rate, "seed": seed}
        context = function(query, key, value, **options)
        context, probs = context if isinstance(context, tuple) else (context, None)
        expected, found = tuple(query.shape), tuple(context.shape)
        equal = len(found) == 4 and all(a == b or None in (a, b) for a, b in zip(expected, found, strict=True))
        if not equal:
            raise ValueError(f"{_name(function)} returns the shape {found}, expected that of the query, {expected}")
        return context, probs

    def keys_and_values(self, memory):
        """Keys and values [B, N, T, D] of ``memory`` [B, T, M]: of an encoder's output once for all steps."""
        return tuple(self.split_heads(at_each_position(layer, memory)) for layer in (self.key, self.value))

    def create_cache(self, batch_size, length):
        """Room for keys and values of ``length`` positions: two zero tensors [B, N, T, D]."""
        shape = (batch_size, self.num_heads, length, self.hidden_size // self.num_heads)
        return ops.zeros(shape, self.compute_dtype), ops.zeros(shape, self.compute_dtype)

    def update_cache(self, cache, x, index):
        """Writes keys and values of ``x`` [B, F, H] into a cache, from position ``index`` on; returns the new cache.

        What is not yet written lies in the future, so that ``causal`` excludes it.
        """
        start = (0, 0, index, 0)
        return tuple(write_slice(old, start, new) for old, new in zip(cache, self.keys_and_values(x), strict=True))

    def allowed(self, attention_mask, scores_shape, first_query):
        """Where a query may attend to a key: boolean, broadcast to [B, N, F, T]; None for everywhere."""
        allowed = None
        if attention_mask is not None:
            allowed = ops.cast(attention_mask, "bool")
            # [B, T] -> [B, 1, 1, T], [B, F, T] -> [B, 1, F, T]
            allowed = allowed[:, None, None, :] if len(allowed.shape) == 2 else allowed[:, None, :, :]
        if self.causal:
            queries = first_query + ops.arange(scores_shape[2])
            distance = queries[:, None] - ops.arange(scores_shape[3])  # [F, T]
            causal = distance >= 0
            if self.window is not None:
                causal = ops.logical_and(causal, distance < self.window)
            allowed = causal if allowed is None else ops.logical_and(allowed, causal)
        return allowed

    def split_heads(self, x):
        """[B, T, H] -> [B, N, T, D]."""
        x = ops.reshape(x, (*ops.shape(x)[:2], self.num_heads, self.hidden_size // self.num_heads))
        return ops.transpose(x, (0, 2, 1, 3))

    def merge_heads(self, x):
        """[B, N, F, D] -> [B, F, H]."""
        x = ops.transpose(x, (0, 2, 1, 3))
        return ops.reshape(x, (*ops.shape(x)[:2], self.hidden_size))

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "num_heads": self.num_heads,
            "hidden_size": self.hidden_size,
            "dropout": self.dropout.rate,
            "causal": self.causal,
            "mask": self.mask,
            "window": self.window,
            "implementation": serialize_implementation(self.implementation),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def get_implementation(implementation: str | Callable | dict) -> str | Callable:
    """Returns how attention is computed: ``"plain"``, ``"chunked"`` or a function.

    Args:
        implementation: one of these, or what `serialize_implementation` made of a function.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(implementation, dict):
        implementation = keras.saving.deserialize_keras_object(implementation)
    if implementation in ("plain", "chunked") or callable(implementation):
        return implementation
    raise ValueError(f'attention must be "plain", "chunked" or a function, not {implementation!r}')


def serialize_implementation(implementation: str | Callable) -> str | dict[str, Any]:
    """Returns what a saved configuration holds.

    Raises:
        ValueError: a function that is not registered, which could not be loaded again.
    """
    if isinstance(implementation, str):
        return implementation
    registered = implementation if isinstance(implementation, types.FunctionType) else type(implementation)
    if keras.saving.get_registered_object(keras.saving.get_registered_name(registered)) is not registered:
        raise ValueError(
            f"{_name(implementation)} cannot be saved with the model, since Keras could not find it again: put "
            "@keras.saving.register_keras_serializable() on its definition"
        )
    return keras.saving.serialize_keras_object(implementation)


def _name(function: Callable) -> str:
    return f"the attention function {getattr(function, '__name__', type(function).__name__)}"
