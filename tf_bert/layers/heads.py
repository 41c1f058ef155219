"""Output layers on top of an encoder: masked LM, labels, and their losses."""

from collections.abc import Callable

import keras
from keras import ops

from tf_bert.backend import at_least_float32, product_with_transposed
from tf_bert.layers.feed_forward import at_each_position, create_initializer, get_activation
from tf_bert.layers.id_range import check_range, in_range
from tf_bert.layers.layer_norm import LayerNorm


def gather_indexes(sequence, positions):
    """The vectors at some positions of each sequence.

    Args:
        sequence: [B, S, H].
        positions: [B, P] integers in [0, S).

    Returns:
        [B, P, H]; NaN in compiled code where a position lies outside. (The original flattens it to [B * P, H].)

    Raises:
        ValueError: in an eager call, a position lies outside the sequence.

    Example:
        >>> sequence = keras.ops.array([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]])
        >>> gather_indexes(sequence, [[2, 0], [1, 1]])[..., 0].numpy().tolist()
        [[3.0, 1.0], [5.0, 5.0]]
    """
    batch_size, length, width = ops.shape(sequence)
    positions = ops.convert_to_tensor(positions, "int32")
    check_range("masked_lm_positions", positions, length, f"a sequence has {length} positions")
    inside = in_range(positions, length)
    first = ops.arange(batch_size)[:, None] * length  # of each sequence, once all are in one row
    rows = ops.take(ops.reshape(sequence, (-1, width)), first + ops.where(inside, positions, 0), axis=0)
    return ops.where(inside[..., None], rows, float("nan"))


@keras.saving.register_keras_serializable("tf_bert")
class MaskedLMHead(keras.layers.Layer):
    """Scores of all words at masked positions, by the embedding table itself (Devlin et al. 2018, section 3.1).

    The table is an argument of the call, so there is one matrix, also after saving and loading.

    Args:
        vocab_size: number of words V.
        hidden_size: width H of encoder and table.
        activation: of the transform, see `tf_bert.layers.feed_forward.get_activation`.
        initializer_range: standard deviation of the kernel at the start.

    Call arguments:
        x: [B, P, H], the encoder's output at some positions.
        table: [V, H], the word embeddings.

    Returns:
        Logits [B, P, V], float32 or wider.

    Example:
        >>> head = MaskedLMHead(vocab_size=30, hidden_size=8)
        >>> head(keras.ops.ones([2, 5, 8]), keras.ops.ones([30, 8])).shape
        TensorShape([2, 5, 30])
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        activation: str | Callable | None = "gelu",
        initializer_range: float = 0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.activation, self.initializer_range = activation, initializer_range
        self.dense = keras.layers.Dense(
            hidden_size,
            activation=get_activation(activation),
            kernel_initializer=create_initializer(initializer_range),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.norm = LayerNorm(epsilon=1e-12, dtype=self.dtype_policy, name="LayerNorm")

    def build(self, x_shape):
        """Makes ``transform/dense``, ``transform/LayerNorm`` and ``output_bias``."""
        with keras.name_scope("transform"):
            self.dense.build(x_shape)
            self.norm.build(x_shape)
        self.output_bias = self.add_weight(shape=(self.vocab_size,), initializer="zeros", name="output_bias")

    def call(self, x, table):
        """Scores each word at each position."""
        x = self.norm(at_each_position(self.dense, x))  # [B, P, H]
        logits = at_each_position(lambda rows: product_with_transposed(rows, table), x)
        return at_least_float32(logits + self.output_bias)  # [B, P, V]

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "activation": self.activation,
            "initializer_range": self.initializer_range,
        }


@keras.saving.register_keras_serializable("tf_bert")
class ClassificationHead(keras.layers.Layer):
    """Scores of labels, with weights [labels, H] as checkpoints store them: next sentence, classes, spans.

    Args:
        num_labels: number of labels.
        initializer_range: standard deviation of the weights at the start.

    Call arguments:
        x: [..., H].

    Returns:
        Logits [..., num_labels], float32 or wider.

    Example:
        >>> ClassificationHead(2)(keras.ops.ones([3, 8])).shape
        TensorShape([3, 2])
    """

    def __init__(self, num_labels: int, initializer_range: float = 0.02, **kwargs):
        super().__init__(**kwargs)
        self.num_labels, self.initializer_range = num_labels, initializer_range

    def build(self, x_shape):
        """Makes ``output_weights`` and ``output_bias``."""
        add_output_weights(self, self.num_labels, x_shape[-1], self.initializer_range)

    def call(self, x):
        """Scores each label."""
        return label_scores(x, self.output_weights, self.output_bias)

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {"num_labels": self.num_labels, "initializer_range": self.initializer_range}


def add_output_weights(layer: keras.layers.Layer, num_labels: int, width: int, initializer_range: float) -> None:
    """Adds ``output_weights`` [num_labels, width] and ``output_bias`` [num_labels] to a layer or model."""
    shape, initializer = (num_labels, width), create_initializer(initializer_range)
    layer.output_weights = layer.add_weight(shape=shape, initializer=initializer, name="output_weights")
    layer.output_bias = layer.add_weight(shape=(num_labels,), initializer="zeros", name="output_bias")


def label_scores(x, output_weights, output_bias):
    """Returns the scores of labels [..., labels], float32 or wider, for vectors [..., H]."""
    weights, bias = (ops.cast(weight, x.dtype) for weight in (output_weights, output_bias))
    return at_least_float32(ops.matmul(x, ops.transpose(weights)) + bias)


def cross_entropy(name: str, labels, logits):
    """-log softmax(logits)[label] for each of some labels.

    Args:
        name: what to call the labels in an error.
        labels: [...] integers.
        logits: [..., C].

    Returns:
        [...], in the precision of the logits.

    Raises:
        ValueError: in an eager call, a label lies outside [0, C). A graph on the CPU raises too; XLA gives NaN there.

    Example:
        >>> cross_entropy("labels", [1], keras.ops.array([[0.0, 0.0]])).numpy().tolist()
        [0.6931471824645996]
    """
    check_range(name, labels, logits.shape[-1], f"there are {logits.shape[-1]} classes")
    return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def correct(labels, logits):
    """1.0 where the greatest of the logits [..., C] is that of the label [...], else 0.0."""
    return ops.cast(ops.equal(ops.argmax(logits, axis=-1), ops.cast(labels, "int32")), logits.dtype)
