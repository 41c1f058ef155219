"""A model of the trainer's kind that is small enough to check by hand: two losses, of which one counts words."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tf_bert.trainer.trainer import Trainer


@keras.saving.register_keras_serializable("tests")
class Toy(Trainer):
    """Words are embedded, averaged and scored; ``boost`` multiplies a loss to make it overflow."""

    loss_names = ("word_loss", "pair_loss")
    metric_names = ("word_accuracy",)
    weight_epsilon = {"word_loss": 1e-5}

    def __init__(self, dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.dropout = dropout
        self.table = keras.layers.Embedding(20, 4, name="table")
        self.drop = keras.layers.Dropout(dropout, seed=1)
        self.words = keras.layers.Dense(20, name="words")
        self.pairs = keras.layers.Dense(2, name="pairs")
        self.build()

    def build(self, input_shape=None):
        self.table.build((None, None))
        self.words.build((None, None, 4))
        self.pairs.build((None, 4))
        self.built = True

    def call(self, inputs, training=None):
        x = self.drop(self.table(inputs["ids"]), training=training)
        return {"words": self.words(x), "pairs": self.pairs(ops.mean(x, axis=1))}

    def loss_weights(self, inputs):
        return {"word_loss": inputs["word_weights"], "pair_loss": ops.ones_like(inputs["boost"])}

    def per_example_losses(self, inputs, outputs):
        def cross_entropy(labels, logits):
            logits = ops.cast(logits, self.variable_dtype)
            return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)

        return {
            "word_loss": cross_entropy(inputs["ids"], outputs["words"]),
            "pair_loss": cross_entropy(inputs["pairs"], outputs["pairs"])
            * ops.cast(inputs["boost"], self.variable_dtype),
        }

    def per_example_metrics(self, inputs, outputs):
        right = ops.equal(ops.argmax(outputs["words"], axis=-1), ops.cast(inputs["ids"], "int64"))
        return {"word_accuracy": (right, inputs["word_weights"])}

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout}


def toy_data(examples: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Examples with between none and all of their six words counted."""
    random = np.random.default_rng(seed)
    return {
        "ids": random.integers(0, 20, (examples, 6), dtype="int32"),
        "word_weights": (np.arange(6) < random.integers(0, 7, (examples, 1))).astype("float32"),
        "pairs": random.integers(0, 2, examples, dtype="int32"),
        "boost": np.ones(examples, "float32"),
    }


def batches(data: dict, size: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(data).batch(size)


def weights(model: keras.Model) -> np.ndarray:
    """All trainable weights as one vector."""
    return np.concatenate([variable.numpy().ravel() for variable in model.trainable_variables])
