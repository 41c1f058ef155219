"""Training instances as serialized ``tf.train.Example`` messages, with the original's features.

Each record holds, padded with zeros to S = ``max_seq_length`` or P = ``max_predictions_per_seq``::

    input_ids, input_mask, segment_ids               int64 [S]   mask 1 at tokens, 0 at padding
    masked_lm_positions, masked_lm_ids               int64 [P]
    masked_lm_weights                                float [P]   1.0 at predictions, 0.0 at padding
    next_sentence_labels                             int64 [1]   1: B is random, 0: B follows A

A row of several instances (see `tf_bert.data.pretraining.packing`) also has ``example_lengths`` int64 [E], the tokens
of each, then zeros; its ``next_sentence_labels`` are int64 [E].

A record without masks, for masking while training (see `tf_bert.data.pretraining.dynamic_masking`), has
``word_starts`` int64 [S] in place of the three ``masked_lm_*``: 1 at the first token of each word, 0 at the others,
at [CLS], [SEP] and padding.
"""

import functools
import struct
from collections.abc import Sequence
from operator import itemgetter

from tf_bert.data.pretraining.instances import TrainingInstance
from tf_bert.data.pretraining.masking import TokenKinds
from tf_bert.data.pretraining.packing import EXAMPLE_LENGTHS, RowSize, joined
from tf_bert.data.tfrecord.example_codec import example_from_entries, packed_float_feature, packed_int64_feature, varint

_ONE, _ZERO = struct.pack("<f", 1.0), struct.pack("<f", 0.0)


class ExampleEncoder:
    """Turns instances of ids into records.

    The values are few and small, so that their bytes are looked up rather than computed: the encoding of an id is made
    once for the whole vocabulary, and the bytes of a mask of zeros and ones are the zeros and ones themselves.

    Args:
        max_seq_length: S, the length of each record.
        max_predictions_per_seq: P, the number of predictions of each record, padding included.
        vocab_size: number of ids. A token may also be an id plus ``vocab_size`` (see
            `tf_bert.data.pretraining.corpus`): the mark is taken off.
        word_starts_of: None writes the predictions; what `TokenKinds` to find words by writes ``word_starts`` instead.
        row: what a row of several instances has room for, for `encode_row`; it takes the place of the lengths.
    """

    def __init__(
        self,
        max_seq_length: int,
        max_predictions_per_seq: int,
        vocab_size: int,
        word_starts_of: TokenKinds | None = None,
        row: RowSize | None = None,
    ):
        self.row = row
        self.max_seq_length = row.length if row else max_seq_length
        self.max_predictions_per_seq = row.predictions if row else max_predictions_per_seq
        self._ids = _varints(vocab_size) * 2
        self._positions = _varints(self.max_seq_length + 1)
        self._word_starts_of = word_starts_of

    def encode(self, instance: TrainingInstance) -> bytes:
        """Serializes one instance.

        Raises:
            ValueError: when it is longer than the record, or has more predictions.
        """
        return self._encode(instance, b"\x01" if instance.is_random_next else b"\x00")

    def encode_row(self, instances: Sequence[TrainingInstance]) -> bytes:
        """Serializes instances that share a row.

        Raises:
            ValueError: when they are longer than the row, have more predictions, or are too many.
        """
        filling = self.row.examples - len(instances)
        if filling < 0:
            raise ValueError(f"{len(instances)} instances do not fit in a row of {self.row.examples}")
        lengths = b"".join([self._positions[len(instance.tokens)] for instance in instances])
        labels = bytes([instance.is_random_next for instance in instances]) + bytes(filling)
        return self._encode(joined(instances), labels, packed_int64_feature(EXAMPLE_LENGTHS, lengths + bytes(filling)))

    def _encode(self, instance: TrainingInstance, labels: bytes, before: bytes = b"") -> bytes:
        n_tokens, n_predictions = len(instance.tokens), len(instance.masked_lm_positions)
        if n_tokens > self.max_seq_length or n_predictions > self.max_predictions_per_seq:
            raise ValueError(
                f"an instance of {n_tokens} tokens and {n_predictions} predictions does not fit in a record of "
                f"{self.max_seq_length} and {self.max_predictions_per_seq}"
            )
        padding = bytes(self.max_seq_length - n_tokens)
        ids = b"".join(itemgetter(*instance.tokens)(self._ids))  # a loop in C
        if self._word_starts_of is None:
            masked_or_words = self._predictions(instance)
            after = b""
        else:
            masked_or_words = b""
            after = packed_int64_feature("word_starts", self._word_starts(instance.tokens) + padding)
        # In the order of the names.
        return example_from_entries(
            (
                before,
                packed_int64_feature("input_ids", ids + padding),
                packed_int64_feature("input_mask", b"\x01" * n_tokens + padding),
                masked_or_words,
                packed_int64_feature("next_sentence_labels", labels),
                packed_int64_feature("segment_ids", bytes(instance.segment_ids) + padding),
                after,
            )
        )

    def _predictions(self, instance: TrainingInstance) -> bytes:
        n_predictions = len(instance.masked_lm_positions)
        n_padding = self.max_predictions_per_seq - n_predictions
        labels = b"".join([self._ids[label] for label in instance.masked_lm_labels])
        positions = b"".join([self._positions[position] for position in instance.masked_lm_positions])
        return (
            packed_int64_feature("masked_lm_ids", labels + bytes(n_padding))
            + packed_int64_feature("masked_lm_positions", positions + bytes(n_padding))
            + packed_float_feature("masked_lm_weights", _ONE * n_predictions + _ZERO * n_padding)
        )

    def _word_starts(self, tokens: Sequence[int]) -> bytes:
        """Unlike in the original's whole-word masking, the first token of a segment always starts a word."""
        kinds = self._word_starts_of
        starts = bytearray()
        after_special = True
        for token in tokens:
            special = token == kinds.cls or token == kinds.sep
            starts.append(not special and (after_special or not kinds.continues_word(token)))
            after_special = special
        return bytes(starts)


@functools.lru_cache(maxsize=4)
def _varints(count: int) -> list[bytes]:
    return [varint(number) for number in range(count)]
