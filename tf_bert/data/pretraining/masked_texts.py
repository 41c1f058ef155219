"""Texts that fit in memory as batches with masks, for training and evaluating masked LM alone."""

import itertools
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from tf_bert.data.pretraining.dynamic_masking import DynamicMasking


def masked_batches(
    masking: DynamicMasking, inputs: Mapping[str, np.ndarray], batch_size: int, shuffle: bool = True
) -> tf.data.Dataset:
    """Batches of all examples, masked.

    Args:
        masking: without whole words; its seed is also that of the order.
        inputs: ``input_ids``, ``input_mask``, ``segment_ids``, int32 [N, S].
        batch_size: examples in a batch.
        shuffle: whether each pass over the data set has an order and masks of its own; otherwise all are alike.

    Returns:
        Dicts of [B, ...] tensors, see `DynamicMasking`.

    Example:
        >>> masking = DynamicMasking(vocab_size=10, mask_id=4, cls_id=2, sep_id=3, max_predictions_per_seq=1)
        >>> inputs = {"input_ids": np.array([[2, 7, 8, 3]], np.int32), "input_mask": np.ones((1, 4), np.int32)}
        >>> (batch,) = masked_batches(masking, inputs | {"segment_ids": np.zeros((1, 4), np.int32)}, 8)
        >>> batch["masked_lm_weights"].numpy()
        array([[1.]], dtype=float32)
    """
    size = len(inputs["input_ids"])
    passes = itertools.count()

    def batches() -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        number = next(passes) if shuffle else 0
        rows = np.random.default_rng((masking.seed, number)).permutation(size) if shuffle else np.arange(size)
        for first in range(0, size, batch_size):
            taken = rows[first : first + batch_size]
            yield number * size + taken, {name: value[taken] for name, value in inputs.items()}

    batch = {name: tf.TensorSpec([None, value.shape[1]], value.dtype) for name, value in inputs.items()}
    data = tf.data.Dataset.from_generator(batches, output_signature=(tf.TensorSpec([None], tf.int64), batch))
    data = data.apply(tf.data.experimental.assert_cardinality(-(-size // batch_size)))
    return data.map(masking).prefetch(2)
