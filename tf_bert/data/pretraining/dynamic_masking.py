"""Masks drawn while training, afresh in each pass over the data, in TensorFlow ops inside ``tf.data``.

``create_pretraining_data --masking=dynamic`` writes records without masks but with the starts of their words. What is
masked here follows the rules of `tf_bert.data.pretraining.masking.create_masked_lm_predictions`; the draws are others.

Every draw is a hash of (seed, number of the record, place), not of a batch: however the records are grouped, on one
device or eight, and wherever a run goes on after a stop, a record gets the masks that are due to it.

Source: Liu et al. 2019 (RoBERTa), section 4.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from tf_bert.data.pretraining.packing import RowSize

_WORD_ORDER, _FATE, _REPLACEMENT = range(3)  # streams of draws
_SPECIAL_ID_KEYS = {"mask_id": "[MASK]", "cls_id": "[CLS]", "sep_id": "[SEP]"}


@dataclass(frozen=True)
class DynamicMasking:
    """Masks batches of records.

    Args:
        vocab_size: number of ids; random replacements are drawn from all of them unless ``replacement_ids`` says
            otherwise.
        mask_id, cls_id, sep_id: ids of [MASK], [CLS] and [SEP].
        max_predictions_per_seq: the most predictions in a record (P), and the length of what lists them.
        masked_lm_prob: share of the tokens to predict.
        do_whole_word_mask: whether the pieces of a word are masked together.
        seed: of all draws.
        replacement_ids: what random replacements are drawn from, such as the vocabulary without special tokens.

    Example:
        >>> masking = DynamicMasking(vocab_size=10, mask_id=4, cls_id=2, sep_id=3, max_predictions_per_seq=2)
        >>> batch = {
        ...     "input_ids": tf.constant([[2, 7, 8, 9, 3, 0]]), "input_mask": tf.constant([[1, 1, 1, 1, 1, 0]]),
        ...     "segment_ids": tf.zeros([1, 6], tf.int32), "word_starts": tf.constant([[0, 1, 1, 0, 0, 0]]),
        ...     "next_sentence_labels": tf.constant([[0]])}
        >>> masked = masking(tf.constant([0], tf.int64), batch)
        >>> int(tf.reduce_sum(masked["masked_lm_weights"])), masked["masked_lm_ids"].numpy()[0, 0] in (7, 8, 9)
        (1, True)
    """

    vocab_size: int
    mask_id: int
    cls_id: int
    sep_id: int
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    do_whole_word_mask: bool = False
    seed: int = 12345
    replacement_ids: Sequence[int] | None = None

    @classmethod
    def from_facts(cls, sidecar: Mapping, **changes) -> "DynamicMasking":
        """Takes what the ``.json`` beside records says of them.

        Args:
            sidecar: from `tf_bert.data.tfrecord.sidecar.read_sidecar`.
            **changes: arguments that are to differ, such as ``seed``.

        Raises:
            ValueError: when it says too little.
        """
        names = ("vocab_size", "max_predictions_per_seq", "masked_lm_prob", "do_whole_word_mask")
        special = sidecar.get("special_ids", {})
        lacking = [name for name in names if name not in sidecar]
        lacking += [token for token in _SPECIAL_ID_KEYS.values() if token not in special]
        if lacking:
            raise ValueError(
                f"records without masks need the .json that create_pretraining_data writes beside them; "
                f"{', '.join(lacking)} not found"
            )
        known = {name: sidecar[name] for name in names}
        known |= {name: special[token] for name, token in _SPECIAL_ID_KEYS.items()}
        if left_out := set(sidecar.get("excluded_replacement_ids", ())):
            known["replacement_ids"] = tuple(i for i in range(sidecar["vocab_size"]) if i not in left_out)
        return cls(**known | changes)

    def __call__(self, numbers: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Masks a batch.

        Args:
            numbers: the number of each record in the stream of all records and passes, int64 [B].
            batch: ``input_ids``, ``input_mask``, ``segment_ids``, ``word_starts`` int32 [B, S] and
                ``next_sentence_labels``.

        Returns:
            The batch without ``word_starts``, with masks in ``input_ids`` and ``masked_lm_positions``,
            ``masked_lm_ids`` int32 [B, P], ``masked_lm_weights`` float32 [B, P], positions ascending.
        """
        ids = batch["input_ids"]
        is_token = batch["input_mask"] > 0
        maskable = is_token & (ids != self.cls_id) & (ids != self.sep_id)
        starts = (batch["word_starts"] > 0) & maskable if self.do_whole_word_mask else maskable
        word_of = tf.where(maskable, tf.cumsum(tf.cast(starts, tf.int32), axis=1), 0)  # [B, S], 0: no word
        n_tokens = tf.reduce_sum(tf.cast(is_token, tf.int32), axis=1)
        chosen_words = self._choose_words(numbers, word_of, self._num_to_predict(n_tokens))  # [B, S + 1]
        chosen = tf.gather(chosen_words, word_of, batch_dims=1)  # [B, S]

        length = tf.shape(ids)[1]
        fate = self._uniform(numbers, _FATE, length)
        replaced = tf.where(fate < 0.8, self.mask_id, tf.where(fate < 0.9, ids, self._replacements(numbers, length)))
        positions, weights = self._positions(chosen)
        masked_lm_ids = tf.where(weights, tf.gather(ids, positions, batch_dims=1), 0)
        result = {name: tensor for name, tensor in batch.items() if name != "word_starts"}
        return result | {
            "input_ids": tf.where(chosen, replaced, ids),
            "masked_lm_positions": positions,
            "masked_lm_ids": masked_lm_ids,
            "masked_lm_weights": tf.cast(weights, tf.float32),
        }

    def mask_rows(self, numbers: tf.Tensor, batch: Mapping[str, tf.Tensor], row: RowSize) -> dict[str, tf.Tensor]:
        """Masks rows of several examples, each of which gets the predictions of a record of its own.

        Args:
            numbers: the number of each row, int64 [B].
            batch: as for a call, and ``example_lengths`` int32 [B, E].
            row: what a row has room for; all predictions of its examples fit.

        Returns:
            As a call; positions count through the row.
        """
        lengths = batch["example_lengths"]  # [B, E]
        starts = tf.cumsum(lengths, axis=1, exclusive=True)
        place = tf.range(row.length)
        is_token = place < lengths[:, :, None]  # [B, E, S]
        source = tf.where(is_token, starts[:, :, None] + place, 0)
        names = ("input_ids", "word_starts")
        examples = {name: tf.gather(batch[name], source, batch_dims=1) * tf.cast(is_token, tf.int32) for name in names}
        examples["input_mask"] = tf.cast(is_token, tf.int32)
        slots = numbers[:, None] * row.examples + tf.range(row.examples, dtype=tf.int64)
        flat = {name: tf.reshape(value, [-1, row.length]) for name, value in examples.items()}  # [B * E, S]
        masked = self(tf.reshape(slots, [-1]), flat)

        # Back into rows: what stands at each position, and all predictions, those of weight 0 behind the others.
        example = tf.reduce_sum(tf.cast(place[:, None] >= (starts + lengths)[:, None, :], tf.int32), axis=2)  # [B, S]
        example = tf.minimum(example, row.examples - 1)
        inside = place - tf.gather(starts, example, batch_dims=1)
        ids = tf.reshape(masked["input_ids"], [-1, row.examples * row.length])
        ids = tf.gather(ids, example * row.length + tf.minimum(inside, row.length - 1), batch_dims=1)
        shape = [-1, row.examples, self.max_predictions_per_seq]
        weights = tf.reshape(masked["masked_lm_weights"], shape)
        positions = tf.reshape(masked["masked_lm_positions"], shape) + starts[:, :, None]
        predictions = {
            "masked_lm_positions": tf.where(weights > 0, positions, 0),
            "masked_lm_ids": tf.reshape(masked["masked_lm_ids"], shape),
            "masked_lm_weights": weights,
        }
        flat_weights = tf.reshape(weights, [-1, row.examples * self.max_predictions_per_seq])
        order = tf.argsort(flat_weights, direction="DESCENDING", stable=True)[:, : row.predictions]
        predictions = {
            name: tf.gather(tf.reshape(value, tf.shape(flat_weights)), order, batch_dims=1)
            for name, value in predictions.items()
        }
        rest = {name: value for name, value in batch.items() if name != "word_starts"}
        return rest | {"input_ids": tf.where(batch["input_mask"] > 0, ids, 0)} | predictions

    def _num_to_predict(self, n_tokens: tf.Tensor) -> tf.Tensor:
        """[B]; float64 and halves to even, as Python rounds."""
        share = tf.round(tf.cast(n_tokens, tf.float64) * tf.constant(self.masked_lm_prob, tf.float64))
        return tf.clip_by_value(tf.cast(share, tf.int32), 1, self.max_predictions_per_seq)

    def _choose_words(self, numbers: tf.Tensor, word_of: tf.Tensor, num_to_predict: tf.Tensor) -> tf.Tensor:
        """Takes words in random order, passing over those that do not fit in the rest: bool [B, S + 1] by word."""
        n_places = tf.shape(word_of)[1] + 1  # words are numbered from 1
        lengths = tf.math.bincount(word_of, minlength=n_places, maxlength=n_places, axis=-1)  # tokens of each word
        lengths *= tf.cast(tf.range(n_places) > 0, lengths.dtype)
        order_key = tf.where(lengths > 0, self._uniform(numbers, _WORD_ORDER, n_places), tf.constant(2.0, tf.float64))
        order = tf.argsort(order_key, axis=1, stable=True)
        lengths = tf.gather(lengths, order, batch_dims=1)
        if self.do_whole_word_mask:
            taken = _take_greedily(lengths, num_to_predict)
        else:
            taken = (lengths > 0) & (tf.range(n_places) < num_to_predict[:, None])
        return tf.gather(taken, tf.argsort(order, axis=1), batch_dims=1)

    def _positions(self, chosen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Lists the chosen positions, ascending, padded with 0: int32 [B, P] and what is no padding, bool [B, P]."""
        length = tf.shape(chosen)[1]
        positions = tf.sort(tf.where(chosen, tf.range(length), length), axis=1)
        positions = positions[:, : self.max_predictions_per_seq]
        missing = self.max_predictions_per_seq - tf.shape(positions)[1]
        positions = tf.pad(positions, [[0, 0], [0, missing]], constant_values=length)
        positions = tf.ensure_shape(positions, [None, self.max_predictions_per_seq])
        weights = positions < length
        return tf.where(weights, positions, 0), weights

    def _replacements(self, numbers: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        draws = self._uniform(numbers, _REPLACEMENT, length)
        if self.replacement_ids is None:
            return tf.cast(draws * self.vocab_size, tf.int32)
        pool = tf.constant(self.replacement_ids, tf.int32)
        return tf.gather(pool, tf.cast(draws * len(self.replacement_ids), tf.int32))

    def _uniform(self, numbers: tf.Tensor, stream: int, length: tf.Tensor) -> tf.Tensor:
        """Draws from [0, 1), float64 [B, length]: hashes of seed, stream, record and place."""
        state = _hash(tf.constant(self.seed & 0xFFFFFFFF, tf.int64) + stream * 0x9E3779B9)
        state = _hash(state + (numbers & 0xFFFFFFFF))
        state = _hash(state + tf.bitwise.right_shift(numbers, 32))
        state = _hash(state[:, None] + tf.range(length, dtype=tf.int64) * 0x9E3779B9)
        return tf.cast(state, tf.float64) / 2.0**32


def _take_greedily(lengths: tf.Tensor, num_to_predict: tf.Tensor) -> tf.Tensor:
    """Goes through words [B, W] of these lengths and takes each that fits in the rest of ``num_to_predict`` [B]."""
    n_words = tf.shape(lengths)[1]

    def unfinished(place, rest, taken):
        return (place < n_words) & tf.reduce_any(rest > 0)

    def step(place, rest, taken):
        length = lengths[:, place]
        fits = (length > 0) & (length <= rest)
        here = tf.range(n_words) == place
        return place + 1, rest - tf.where(fits, length, 0), taken | (fits[:, None] & here)

    start = (tf.constant(0), num_to_predict, tf.zeros_like(lengths, tf.bool))
    return tf.while_loop(unfinished, step, start)[2]


def _hash(x: tf.Tensor) -> tf.Tensor:
    """A 32-bit hash whose bits are even and independent (Wellons's lowbias32), in int64."""
    x &= 0xFFFFFFFF
    x ^= tf.bitwise.right_shift(x, 16)
    x = (x * 0x7FEB352D) & 0xFFFFFFFF  # wraps around at 64 bits, which leaves the lower 32 as they should be
    x ^= tf.bitwise.right_shift(x, 15)
    x = (x * 0x846CA68B) & 0xFFFFFFFF
    return x ^ tf.bitwise.right_shift(x, 16)
