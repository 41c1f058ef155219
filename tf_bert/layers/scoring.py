"""Scoring functions of attention: how well a query and a key match; each a small layer.

A score is a layer with two methods, so that what depends on the keys alone is computed once per sentence and not once
per query: ``projected = score.project_keys(keys)``, then ``score(query, projected)``.

Letters in shapes: B batch, T queries (target length), S keys (source length), Q width of a query, K width of a key.
"""

import keras
from keras import ops

from tf_bert.backend import product_with_transposed
from tf_bert.layers.feed_forward import at_each_position

EPSILON = 1e-12


class Score(keras.layers.Layer):
    """What the scoring functions share: keys that need no projection are passed on as they are."""

    def build(self, query_shape, keys_shape):
        """Makes the variables; scores without any only check that the widths fit."""
        if query_shape[-1] != keys_shape[-1]:
            raise ValueError(
                f"{type(self).__name__} needs queries and keys of one width, got queries of {query_shape[-1]} and keys "
                f"of {keys_shape[-1]}; use the score 'general' or 'additive', which project them"
            )
        self.built = True

    def project_keys(self, keys):
        """The part of the score that depends on the keys [B,S,K] alone."""
        return keys


@keras.saving.register_keras_serializable(package="tf_bert")
class DotScore(Score):
    """``q . k`` (Luong et al. 2015, equation 8), or ``q . k / sqrt(d)`` (Vaswani et al. 2017, equation 1).

    Args:
        scaled: divide by the root of the width.

    Example:
        >>> score = DotScore(scaled=True)
        >>> float(score(ops.array([[[1.0, 2.0, 0.0, 0.0]]]), ops.array([[[3.0, 4.0, 5.0, 6.0]]]))[0, 0, 0])
        5.5
    """

    def __init__(self, scaled: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.scaled = scaled

    def call(self, query, keys):
        """Scores [B,T,S] of queries [B,T,Q] against keys [B,S,Q]."""
        if self.scaled:
            query = query * (int(query.shape[-1]) ** -0.5)
        return ops.einsum("btd,bsd->bts", query, keys)

    def get_config(self):
        """The arguments of the constructor."""
        return {**super().get_config(), "scaled": self.scaled}


@keras.saving.register_keras_serializable(package="tf_bert")
class GeneralScore(Score):
    """``q^T W k``, the bilinear form (Luong et al. 2015, equation 8)."""

    def build(self, query_shape, keys_shape):
        """Makes the variables."""
        self.kernel = self.add_weight(shape=(query_shape[-1], keys_shape[-1]), name="kernel")
        self.built = True

    def project_keys(self, keys):
        """What the score needs of the keys [B,S,K]."""
        return at_each_position(lambda rows: product_with_transposed(rows, self.kernel), keys)

    def call(self, query, keys):
        """Scores [B,T,S] of queries [B,T,Q] against projected keys [B,S,Q]."""
        return ops.einsum("btq,bsq->bts", query, keys)


@keras.saving.register_keras_serializable(package="tf_bert")
class CosineScore(Score):
    """``beta * cos(q, k)`` (Graves et al. 2014, "Neural Turing Machines", equations 5 and 6), beta learned, from 1.

    A zero query or key scores 0.
    """

    def build(self, query_shape, keys_shape):
        """Makes the variables."""
        super().build(query_shape, keys_shape)
        self.beta = self.add_weight(shape=(), initializer="ones", name="beta")

    def project_keys(self, keys):
        """What the score needs of the keys [B,S,K]."""
        wide = ops.cast(keys, keras.backend.result_type(keys.dtype, "float32"))
        return ops.cast(wide * ops.rsqrt(ops.sum(ops.square(wide), axis=-1, keepdims=True) + EPSILON), keys.dtype)

    def call(self, query, keys):
        """Scores [B,T,S] of queries [B,T,Q] against keys [B,S,Q] of length 1."""
        return self.beta * ops.einsum("btd,bsd->bts", self.project_keys(query), keys)


@keras.saving.register_keras_serializable(package="tf_bert")
class AdditiveScore(Score):
    """``v^T tanh(W q + U k)`` (Bahdanau et al. 2015, appendix A.1.2).

    Luong's ``concat``, ``v^T tanh(W [q; k])``, is the same function with its ``W`` written as two halves.

    Args:
        units: width of the hidden layer.
    """

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, query_shape, keys_shape):
        """Makes the variables."""
        self.query_kernel = self.add_weight(shape=(query_shape[-1], self.units), name="query_kernel")
        self.key_kernel = self.add_weight(shape=(keys_shape[-1], self.units), name="key_kernel")
        self.vector = self.add_weight(shape=(self.units, 1), name="vector")
        self.built = True

    def project_keys(self, keys):
        """What the score needs of the keys [B,S,K]."""
        return ops.matmul(keys, self.key_kernel)

    def call(self, query, keys):
        """Scores [B,T,S] of queries [B,T,Q] against projected keys [B,S,units]."""
        query = ops.expand_dims(_product(query, self.query_kernel), 2)  # [B,T,1,units]
        hidden = ops.tanh(query + ops.expand_dims(keys, 1))  # [B,T,S,units]
        return ops.squeeze(_product(hidden, self.vector), -1)

    def get_config(self):
        """The arguments of the constructor."""
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable(package="tf_bert")
class LocationScore(Score):
    """``W q``: the score of position s depends on the query and on s alone (Luong et al. 2015, equation 9).

    Args:
        max_source_length: number of positions that have a row in ``W``; longer sources are refused.
    """

    def __init__(self, max_source_length: int, **kwargs):
        super().__init__(**kwargs)
        self.max_source_length = max_source_length

    def build(self, query_shape, keys_shape):
        """Makes the variables."""
        self.kernel = self.add_weight(shape=(query_shape[-1], self.max_source_length), name="kernel")
        self.built = True

    def call(self, query, keys):
        """Scores [B,T,S] of queries [B,T,Q]; of the keys [B,S,K] only their number counts."""
        source_length = keys.shape[1] if keys.shape[1] is not None else ops.shape(keys)[1]
        if isinstance(source_length, int) and source_length > self.max_source_length:
            raise ValueError(
                f"The location score has room for {self.max_source_length} source positions, got {source_length}"
            )
        return _product(query, self.kernel)[:, :, :source_length]

    def get_config(self):
        """The arguments of the constructor."""
        return {**super().get_config(), "max_source_length": self.max_source_length}


def _product(x, kernel):
    """[...,I] times [I,O]; `ops.matmul` becomes a tensordot, whose gradient in a loop XLA does not compile."""
    return at_each_position(lambda rows: ops.matmul(rows, kernel), x)


def make_score(score: str, units: int | None = None, max_source_length: int | None = None, **kwargs) -> Score:
    """The scoring function of a name.

    Args:
        score: ``dot``, ``scaled_dot``, ``general``, ``cosine``, ``additive`` (Bahdanau), ``concat`` (Luong's name for
            the same) or ``location``.
        units: width of the hidden layer of ``additive``.
        max_source_length: number of positions of ``location``.

    Raises:
        ValueError: for another name, or where the number that the score needs is missing.

    Example:
        >>> make_score("additive", units=8).units
        8
    """
    if score in ("dot", "scaled_dot"):
        return DotScore(scaled=score == "scaled_dot", **kwargs)
    if score == "general":
        return GeneralScore(**kwargs)
    if score == "cosine":
        return CosineScore(**kwargs)
    if score in ("additive", "concat"):
        if units is None:
            raise ValueError(f"The score {score!r} needs units, the width of its hidden layer")
        return AdditiveScore(units, **kwargs)
    if score == "location":
        if max_source_length is None:
            raise ValueError("The score 'location' needs max_source_length, the number of positions it knows")
        return LocationScore(max_source_length, **kwargs)
    known = "dot, scaled_dot, general, cosine, additive, concat, location"
    raise ValueError(f"Unknown attention score {score!r}; known: {known}")
