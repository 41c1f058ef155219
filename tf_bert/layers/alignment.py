"""Attention as one idea: a query is scored against keys, a softmax makes weights of the scores, and the context is the
sum of the values by these weights.

Global attention looks at every position, local attention at a window, hard attention (hard_attention.py) at one
position. All take an explicit mask and give a zero context, not NaN, where nothing may be seen.

Letters in shapes: B batch, T queries (target length), S keys (source length), Q, K, V widths of query, key and value.
"""

import keras
from keras import ops

from tf_bert.layers.scoring import make_score


def masked_softmax(scores, mask=None):
    """Softmax over the last axis among the positions that may be seen.

    Args:
        scores: [..., S], any floating type; computed in float32 or wider.
        mask: true where a position may be seen; broadcasts against the scores.

    Returns:
        Weights as ``scores``, in float32 or wider: 0 where masked, also where everything is masked.

    Example:
        >>> print(masked_softmax([[1.0, 1.0, 5.0], [1.0, 2.0, 3.0]], [[1, 1, 0], [0, 0, 0]]).numpy())
        [[0.5 0.5 0. ]
         [0.  0.  0. ]]
    """
    scores = ops.convert_to_tensor(scores)
    scores = ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))
    if mask is None:
        return ops.softmax(scores)
    mask = ops.cast(mask, "bool")
    # One finite value for everything masked: a row of nothing else stays finite, and so do its gradients.
    weights = ops.softmax(ops.where(mask, scores, ops.cast(-1e30, scores.dtype)))
    return ops.where(mask, weights, ops.zeros_like(weights))


def expand_mask(mask):
    """A mask [B,S] or [B,T,S] as booleans [B,1,S] or [B,T,S]; None stays None."""
    if mask is None:
        return None
    mask = ops.cast(mask, "bool")
    return mask[:, None, :] if len(mask.shape) == 2 else mask


def restricted_attention_mask(length: int, r: int):
    """Self-attention restricted to a neighbourhood of size r (Vaswani et al. 2017, section 4).

    Args:
        length: number of positions T.
        r: size of the neighbourhood: a position sees those at a distance of at most ``r // 2``, and itself.

    Returns:
        [1,T,T] booleans, true where query i may see key j: an ``attention_mask`` of any attention layer, the same for
        all sequences of a batch.

    Raises:
        ValueError: r is below 1.

    Example:
        >>> print(ops.cast(restricted_attention_mask(4, 3), "int32").numpy())
        [[[1 1 0 0]
          [1 1 1 0]
          [0 1 1 1]
          [0 0 1 1]]]
    """
    if r < 1:
        raise ValueError(f"a neighbourhood has at least the position itself: r is {r}")
    positions = ops.arange(length)
    return (ops.abs(positions[:, None] - positions) <= r // 2)[None]


@keras.saving.register_keras_serializable(package="tf_bert")
class Attention(keras.layers.Layer):
    """Global (soft) attention over all positions (Bahdanau et al. 2015; Luong et al. 2015, section 3.1).

    Args:
        score: ``dot``, ``scaled_dot``, ``general``, ``cosine``, ``additive``, ``concat`` or ``location``.
        units: width of the hidden layer of the score ``additive``.
        max_source_length: number of positions of the score ``location``.

    Call arguments:
        query: [B,T,Q].
        keys: [B,S,K].
        values: [B,S,V]; the keys where not given.
        attention_mask: true where a key may be seen, [B,S] or [B,T,S].
        projected_keys: ``project_keys(keys)`` where it was computed before, so that a decoder does it once.
        positions: [T] or [B,T], the number of each query in its sequence; only local attention needs it.

    Returns:
        The context [B,T,V] and the weights [B,T,S], which sum to 1, or to 0 where nothing may be seen.

    Example:
        >>> attention = Attention("dot")
        >>> query, keys = ops.array([[[1.0, 0.0]]]), ops.array([[[0.0, 1.0], [0.0, 3.0], [2.0, 2.0]]])
        >>> context, weights = attention(query, keys, attention_mask=ops.array([[1, 1, 0]]))
        >>> print(context.numpy(), weights.numpy())
        [[[0. 2.]]] [[[0.5 0.5 0. ]]]
    """

    def __init__(self, score: str = "dot", units: int | None = None, max_source_length: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.score_name, self.units, self.max_source_length = score, units, max_source_length
        self.score = make_score(score, units, max_source_length, dtype=self.dtype_policy, name="score")

    def build(self, query_shape, keys_shape):
        """Makes the variables of the score."""
        self.score.build(query_shape, keys_shape)
        self.built = True

    def project_keys(self, keys):
        """What can be computed once per sentence; pass it as ``projected_keys``."""
        return self.score.project_keys(ops.cast(keys, self.compute_dtype))

    def call(self, query, keys, values=None, attention_mask=None, projected_keys=None, positions=None, training=None):
        """The context and the weights."""
        values = keys if values is None else values
        weights = self.compute_weights(query, keys, attention_mask, projected_keys, positions, training)
        return self.weighted_sum(weights, values), weights

    def compute_weights(self, query, keys, attention_mask=None, projected_keys=None, positions=None, training=None):
        """The weights [B,T,S] alone."""
        return masked_softmax(self.compute_scores(query, keys, projected_keys), expand_mask(attention_mask))

    def compute_scores(self, query, keys, projected_keys=None):
        """The scores [B,T,S] before the softmax."""
        return self.score(query, self.project_keys(keys) if projected_keys is None else projected_keys)

    def weighted_sum(self, weights, values):
        """The context [B,T,V]: the values [B,S,V] summed by the weights [B,T,S]."""
        return ops.einsum("bts,bsv->btv", ops.cast(weights, self.compute_dtype), values)

    def get_config(self):
        """The arguments of the constructor."""
        own = {"score": self.score_name, "units": self.units, "max_source_length": self.max_source_length}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="tf_bert")
class LocalAttention(Attention):
    """Attention to a window of the source (Luong et al. 2015, section 3.2).

    The window reaches ``window`` (D) positions to either side of the aligned position p_t. ``monotonic``: p_t = t.
    ``predictive``: p_t = L sigmoid(v^T tanh(W q)) with L the length of the source, and the weights are multiplied by a
    Gaussian around p_t of standard deviation D/2 (and sum to less than 1, as the paper writes it).

    Args:
        alignment: ``monotonic`` or ``predictive``.
        window: D.
        gaussian: whether to multiply by the Gaussian; by default only for ``predictive``, as in the paper.
        units: width of the hidden layer of ``additive`` and of the predicted position.

    Call arguments as for `Attention`; ``positions`` must be given where the queries are not those of t = 0, 1, 2, ...

    Example:
        >>> attention = LocalAttention(window=1, score="dot")
        >>> _, weights = attention(ops.zeros((1, 3, 2)), ops.zeros((1, 4, 2)))
        >>> print(weights.numpy().round(2))
        [[[0.5  0.5  0.   0.  ]
          [0.33 0.33 0.33 0.  ]
          [0.   0.33 0.33 0.33]]]
    """

    def __init__(self, alignment: str = "monotonic", window: int = 10, gaussian: bool | None = None, **kwargs):
        super().__init__(**kwargs)
        if alignment not in ("monotonic", "predictive"):
            raise ValueError(f"alignment must be 'monotonic' or 'predictive', got {alignment!r}")
        if window < 1:
            raise ValueError(f"window must be at least 1, got {window}")
        self.alignment, self.window = alignment, window
        self.gaussian = alignment == "predictive" if gaussian is None else gaussian

    def build(self, query_shape, keys_shape):
        """Makes the variables of the score and of the predicted position."""
        super().build(query_shape, keys_shape)
        if self.alignment == "predictive":
            units = self.units or query_shape[-1]
            self.position_kernel = self.add_weight(shape=(query_shape[-1], units), name="position_kernel")
            self.position_vector = self.add_weight(shape=(units, 1), name="position_vector")

    def aligned_positions(self, query, source_lengths, positions=None):
        """p_t [B,T,1] for the queries [B,T,Q], given the lengths [B,1,1] of the sources."""
        if self.alignment == "predictive":
            hidden = ops.tanh(ops.matmul(query, self.position_kernel))
            share = ops.sigmoid(ops.matmul(hidden, self.position_vector))
            return source_lengths * ops.cast(share, source_lengths.dtype)
        positions = ops.arange(ops.shape(query)[1]) if positions is None else ops.convert_to_tensor(positions)
        positions = ops.cast(positions, source_lengths.dtype)
        return ops.reshape(positions, (-1, ops.shape(query)[1], 1)) + ops.zeros_like(source_lengths)

    def compute_weights(self, query, keys, attention_mask=None, projected_keys=None, positions=None, training=None):
        """The weights [B,T,S] alone."""
        query = ops.cast(query, self.compute_dtype)
        scores = self.compute_scores(query, keys, projected_keys)
        mask = ops.ones(ops.shape(scores), "bool") if attention_mask is None else expand_mask(attention_mask)
        dtype = keras.backend.result_type(scores.dtype, "float32")
        source_lengths = ops.max(ops.sum(ops.cast(mask, dtype), axis=-1, keepdims=True), axis=1, keepdims=True)
        distance = ops.arange(ops.shape(scores)[-1], dtype=dtype)
        distance = distance - self.aligned_positions(query, source_lengths, positions)  # [B,T,S]
        mask = ops.logical_and(mask, ops.abs(distance) <= self.window)
        weights = masked_softmax(scores, mask)
        if self.gaussian:
            weights = weights * ops.exp(-ops.square(distance) / (2 * (self.window / 2) ** 2))
        return weights

    def get_config(self):
        """The arguments of the constructor."""
        own = {"alignment": self.alignment, "window": self.window, "gaussian": self.gaussian}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="tf_bert")
class AttentionPooling(keras.layers.Layer):
    """A sequence as one vector: the sum of its states by learned weights (Yang et al. 2016, equations 5 to 7).

    ``u_t = tanh(W h_t + b)``, ``a = softmax(u_t^T u_w)``, ``s = sum a_t h_t``. Over words it gives sentences, over
    sentences the document.

    Args:
        units: width of u.

    Call arguments:
        inputs: [B,S,H].
        attention_mask: [B,S], true where there is something.

    Returns:
        The vector [B,H] and the weights [B,S]; both 0 where everything is masked.
    """

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, inputs_shape):
        """Makes the variables."""
        self.kernel = self.add_weight(shape=(inputs_shape[-1], self.units), name="kernel")
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")
        self.context_vector = self.add_weight(shape=(self.units, 1), name="context_vector")
        self.built = True

    def call(self, inputs, attention_mask=None):
        """The vector and the weights."""
        hidden = ops.tanh(ops.matmul(inputs, self.kernel) + self.bias)
        weights = masked_softmax(ops.squeeze(ops.matmul(hidden, self.context_vector), -1), attention_mask)
        return ops.einsum("bs,bsh->bh", ops.cast(weights, self.compute_dtype), inputs), weights

    def get_config(self):
        """The arguments of the constructor."""
        return {**super().get_config(), "units": self.units}
