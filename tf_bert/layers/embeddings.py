"""Embedding tables: safe look-up, and the sum of word, segment and position embeddings of BERT."""

import keras
from keras import ops

from tf_bert.layers.feed_forward import create_initializer
from tf_bert.layers.id_range import check_range, in_range
from tf_bert.layers.layer_norm import LayerNorm


def embedding_lookup(table, ids, name: str = "input_ids", one_hot: bool = False):
    """Rows of a table, and never another row than the one asked for.

    Args:
        table: [V, H].
        ids: integers of any shape.
        name: what to call ``ids`` in an error.
        one_hot: whether to multiply a one-hot matrix with the table instead of gathering its rows.

    Returns:
        [..., H]. In compiled code, where nothing can be raised, an id outside the table gives a row of NaN.

    Raises:
        ValueError: in an eager call, an id lies outside the table.

    Example:
        >>> embedding_lookup(keras.ops.eye(3), [2])
        <tf.Tensor: shape=(1, 3), dtype=float32, numpy=array([[0., 0., 1.]], dtype=float32)>
        >>> embedding_lookup(keras.ops.eye(3), [2, 3])
        Traceback (most recent call last):
        ValueError: input_ids holds 3, but the table has 3 rows (0 to 2)
    """
    size = table.shape[0]
    check_range(name, ids, size, f"the table has {size} rows")
    inside = in_range(ids, size)
    if one_hot:
        rows = ops.matmul(ops.one_hot(ids, size, dtype=table.dtype), table)
    else:
        rows = ops.take(table, ops.where(inside, ids, 0), axis=0)
    return ops.where(ops.expand_dims(inside, -1), rows, float("nan"))


@keras.saving.register_keras_serializable("tf_bert")
class BertEmbeddings(keras.layers.Layer):
    """Sum of word, segment and position embeddings, layer norm, dropout (Devlin et al. 2018, figure 2).

    Args:
        vocab_size, hidden_size, type_vocab_size, max_position_embeddings: sizes of the three tables.
        dropout: of the normalised sum.
        initializer_range: standard deviation of the tables at the start.
        use_one_hot_embeddings: whether words are looked up by a product with a one-hot matrix, which suits TPUs.

    Call arguments:
        input_ids: [B, S] integers.
        segment_ids: [B, S] integers.
        position_ids: [B, S] integers; 0 to S - 1 if left out.

    Returns:
        [B, S, H].

    Raises:
        ValueError: an id outside its table (in eager calls; see `embedding_lookup`), S above the position table, or
            ids that are not integers [B, S].

    Example:
        >>> BertEmbeddings(30, 8, 2, 12)(keras.ops.array([[2, 7, 3]]), keras.ops.array([[0, 0, 0]])).shape
        TensorShape([1, 3, 8])
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        type_vocab_size: int,
        max_position_embeddings: int,
        dropout: float = 0.1,
        initializer_range: float = 0.02,
        use_one_hot_embeddings: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.type_vocab_size, self.max_position_embeddings = type_vocab_size, max_position_embeddings
        self.initializer_range, self.use_one_hot_embeddings = initializer_range, use_one_hot_embeddings
        self.norm = LayerNorm(epsilon=1e-12, dtype=self.dtype_policy, name="LayerNorm")
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, *_):
        """Makes the three tables."""
        self.word_embeddings = self.add_table("word_embeddings", self.vocab_size)
        self.token_type_embeddings = self.add_table("token_type_embeddings", self.type_vocab_size)
        self.position_embeddings = self.add_table("position_embeddings", self.max_position_embeddings)
        self.norm.build((None, None, self.hidden_size))

    def add_table(self, name, rows):
        """A table in full precision: in half precision its rows are converted, not all of it at each step."""
        shape, initializer = (rows, self.hidden_size), create_initializer(self.initializer_range)
        return self.add_weight(shape=shape, initializer=initializer, name=name, autocast=False)

    def call(self, input_ids, segment_ids, position_ids=None, training=None):
        """Embeds ids [B, S]."""
        dtype, shape = keras.backend.standardize_dtype(input_ids.dtype), list(input_ids.shape)
        if len(shape) != 2 or not keras.backend.is_int_dtype(dtype):
            raise ValueError(f"input_ids must be integers [B, S], not {dtype} {shape}")
        length, limit = input_ids.shape[1], self.max_position_embeddings
        if position_ids is None and length is not None and length > limit:
            raise ValueError(f"the sequence has {length} positions, but max_position_embeddings is {limit}")
        x = embedding_lookup(self.word_embeddings, input_ids, "input_ids", self.use_one_hot_embeddings)  # [B, S, H]
        x += embedding_lookup(self.token_type_embeddings, segment_ids, "segment_ids", one_hot=True)
        if position_ids is None:
            x += self.position_embeddings[: ops.shape(input_ids)[1]]
        else:
            x += embedding_lookup(self.position_embeddings, position_ids, "position_ids")
        return self.dropout(self.norm(x), training=training)
