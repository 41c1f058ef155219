"""Embeddings of words and of their positions, for Seq2Seq, the Transformer and GPT."""

import math

import keras
import numpy as np
from keras import ops

from tf_bert.backend import product_with_transposed
from tf_bert.layers.embeddings import embedding_lookup
from tf_bert.layers.feed_forward import at_each_position


def sinusoidal_positions(positions, hidden_size: int, dtype: str = "float32"):
    """PE(p, 2i) = sin(p / 10000^(2i/H)), PE(p, 2i+1) = cos(p / 10000^(2i/H)) (Vaswani et al. 2017, section 3.5).

    Args:
        positions: integers of any shape, from 0.
        hidden_size: width H, even.
        dtype: of the result.

    Returns:
        [..., H].

    Example:
        >>> print(sinusoidal_positions([0, 1], 4).numpy().round(3))
        [[0.    1.    0.    1.   ]
         [0.841 0.54  0.01  1.   ]]
    """
    rates = np.exp(-math.log(10000.0) * np.arange(0, hidden_size, 2) / hidden_size)
    angles = ops.cast(positions, dtype)[..., None] * ops.cast(rates, dtype)
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [..., H/2, 2]
    return ops.reshape(pairs, (*ops.shape(angles)[:-1], hidden_size))


@keras.saving.register_keras_serializable("tf_bert")
class WordEmbedding(keras.layers.Layer):
    """Embeddings of words, with dropout; the table may also score words.

    Args:
        vocab_size: number of words V.
        hidden_size: width H.
        scale: whether embeddings are multiplied by the root of H, as in the Transformer (section 3.4).
        dropout: of the embeddings.
        initializer_range: standard deviation of the table at the start.

    Call arguments:
        ids: [B, T] integers.

    Returns:
        [B, T, H].

    Raises:
        ValueError: in an eager call, an id lies outside the table; compiled code gives NaN for it.

    Example:
        >>> WordEmbedding(30, 8)(ops.array([[2, 7, 3]])).shape
        TensorShape([1, 3, 8])
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        scale: bool = False,
        dropout: float = 0.0,
        initializer_range: float = 0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size, self.hidden_size, self.scale = vocab_size, hidden_size, scale
        self.initializer_range = initializer_range
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, *_):
        """Makes the table."""
        self.table = self.add_table("word_embeddings", self.vocab_size)
        self.built = True

    def add_table(self, name, rows):
        """A table in full precision: in half precision its rows are converted, not all of it at each step."""
        initializer = keras.initializers.RandomNormal(stddev=self.initializer_range)
        return self.add_weight(shape=(rows, self.hidden_size), initializer=initializer, name=name, autocast=False)

    def look_up(self, ids):
        """Embeddings [..., H] before dropout."""
        x = embedding_lookup(self.table, ids, self.name)
        return x * math.sqrt(self.hidden_size) if self.scale else x

    def call(self, ids, training=None):
        """Embeds words."""
        return self.dropout(ops.cast(self.look_up(ids), self.compute_dtype), training=training)

    def logits(self, x):
        """Scores of all words [..., V] for x [..., H], by the table itself."""
        table = ops.cast(self.table, x.dtype)
        if len(x.shape) == 2:  # the few rows of a step of decoding: this way round took a third of the time (8 rows)
            return ops.transpose(ops.matmul(table, ops.transpose(x)))
        return at_each_position(lambda rows: product_with_transposed(rows, table), x)

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "scale": self.scale,
            "dropout": self.dropout.rate,
            "initializer_range": self.initializer_range,
        }


@keras.saving.register_keras_serializable("tf_bert")
class WordAndPositionEmbedding(WordEmbedding):
    """The sum of the embeddings of words and of their positions, with dropout.

    Args:
        max_position_embeddings: the longest sequence.
        position_embedding: ``sinusoidal`` or ``learned``.
        **kwargs: those of `WordEmbedding`.

    Call arguments:
        ids: [B, T] integers.
        first: position of the first of them.
        positions: [B, T] or [T], the position of each, instead of ``first``.

    Returns:
        [B, T, H].

    Raises:
        ValueError: as `WordEmbedding`; or T is above ``max_position_embeddings``.

    Example:
        >>> embedding = WordAndPositionEmbedding(12, "learned", vocab_size=30, hidden_size=8)
        >>> embedding(ops.array([[2, 7, 3]]), first=9).shape
        TensorShape([1, 3, 8])
    """

    def __init__(self, max_position_embeddings: int, position_embedding: str = "sinusoidal", **kwargs):
        super().__init__(**kwargs)
        self.max_position_embeddings, self.position_embedding = max_position_embeddings, position_embedding

    def build(self, *_):
        """Makes the tables."""
        super().build()
        if self.position_embedding == "learned":
            self.position_table = self.add_table("position_embeddings", self.max_position_embeddings)

    def call(self, ids, first=0, positions=None, training=None):
        """Embeds words and positions."""
        length, limit = ids.shape[1], self.max_position_embeddings
        if length is not None and length > limit:
            raise ValueError(f"{self.name}: the sequence has {length} positions, max_position_embeddings is {limit}")
        positions = first + ops.arange(ops.shape(ids)[1]) if positions is None else positions
        x = self.look_up(ids)  # [B, T, H]
        if self.position_embedding == "learned":
            x += embedding_lookup(self.position_table, positions, "positions")
        else:
            x += sinusoidal_positions(positions, self.hidden_size, x.dtype)
        return self.dropout(ops.cast(x, self.compute_dtype), training=training)

    def get_config(self):
        """What `from_config` needs."""
        own = {
            "max_position_embeddings": self.max_position_embeddings,
            "position_embedding": self.position_embedding,
        }
        return super().get_config() | own
