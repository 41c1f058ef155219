"""Training batches of examples that fit in memory, in a new order in each pass, at choice of about one length."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import tensorflow as tf

from tf_bert.trainer.prediction import SEQUENCES, lengths_of

# Sorted together are at most so many batches, and at most a quarter of a pass: where all examples are sorted, each pass
# has the same batches, and what goes with length goes with the batch.
BATCHES_SORTED_TOGETHER = 50
POOLS_IN_A_PASS = 4


def shuffled_batches(
    columns: Mapping[str, np.ndarray],
    batch_size: int,
    seed: int = 12345,
    skip: int = 0,
    group_by_length: bool = False,
    fixed_length: bool = False,
    per_piece: Collection[str] = (),
    global_batch_size: int | None = None,
) -> tf.data.Dataset:
    """Endless batches of all examples in a new order in each pass; batches run on from one pass into the next.

    Args:
        columns: all examples; [N, S] what is a sequence (``input_ids``, ``input_mask``, ``segment_ids``, ``per_piece``)
            or, with several texts an example, [N, C, S]; any shape what is not.
        batch_size: examples in a batch.
        seed: of the order.
        skip: where to begin: this many examples were had already.
        group_by_length: whether a batch gets examples of about one length: in each pass, pools of up to 50 batches,
            and up to a quarter of the examples, are drawn anew, sorted and cut into batches, which come in random
            order. It costs less padding; which examples come together is then less random.
        fixed_length: leave all padding, instead of cutting each batch to its longest example: XLA and TPUs compile anew
            for every length.
        per_piece: what else has a value for each piece and is cut with it: the labels of a tagger.
        global_batch_size: of all workers, where each takes some of these batches; what ``group_by_length`` puts
            together does not depend on their number then. By default ``batch_size``.

    Returns:
        Dicts of [B, ...] tensors.
    """
    mask = columns["input_mask"]
    lengths, full = lengths_of(mask), mask.shape[-1]
    sequences = {*SEQUENCES, *per_piece}

    def batches() -> Iterator[dict[str, np.ndarray]]:
        waiting = np.zeros(0, int)
        for rows in _passes(lengths, global_batch_size or batch_size, seed, skip, group_by_length):
            waiting = np.concatenate([waiting, rows])
            for first in range(0, len(waiting) - batch_size + 1, batch_size):
                taken = waiting[first : first + batch_size]
                width = full if fixed_length else lengths[taken].max()
                yield {name: v[taken, ..., :width] if name in sequences else v[taken] for name, v in columns.items()}
            waiting = waiting[len(waiting) // batch_size * batch_size :]

    def shape(name: str, values: np.ndarray) -> list[int | None]:
        cut = name in sequences and not fixed_length
        return [batch_size, *values.shape[1:-1], None] if cut else [batch_size, *values.shape[1:]]

    signature = {name: tf.TensorSpec(shape(name, values), values.dtype) for name, values in columns.items()}
    return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)


def _passes(lengths: np.ndarray, batch_size: int, seed: int, skip: int, group_by_length: bool) -> Iterator[np.ndarray]:
    """The numbers of all examples in the order of each pass, for ever, without the first ``skip``."""
    number, skip = divmod(skip, len(lengths))
    while True:
        random = np.random.default_rng((seed, number))
        rows = random.permutation(len(lengths))
        if group_by_length:
            begun = -number * len(lengths) % batch_size  # these go into a batch that the pass before has begun
            rest, pool = rows[begun:], len(lengths) // (batch_size * POOLS_IN_A_PASS)
            together = min(max(pool, 1), BATCHES_SORTED_TOGETHER) * batch_size
            groups = []
            for first in range(0, len(rest), together):
                chunk = rest[first : first + together]
                chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
                whole = len(chunk) // batch_size * batch_size
                groups += [*random.permutation(chunk[:whole].reshape(-1, batch_size)), chunk[whole:]]
            rows = np.concatenate([rows[:begun], *groups])
        yield rows[skip:]
        number, skip = number + 1, 0
