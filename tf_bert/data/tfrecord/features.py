"""What the features of a record have to hold: checked in the graph in every batch, and in Python with its place."""

import dataclasses
from collections.abc import Mapping, Sequence

import tensorflow as tf

LARGEST = 1 << 31  # ids become int32: TensorFlow's accelerators take no other, and int64 is twice the bytes


@dataclasses.dataclass(frozen=True)
class Feature:
    """What one feature has to hold.

    Args:
        length: number of values; None for one or more.
        limit: the values are whole numbers from 0 to ``limit - 1``; None for weights, each 0.0 or 1.0.
        hint: what to do where a value lies outside.
    """

    length: int | None
    limit: int | None = LARGEST
    hint: str = "make the records again"

    def spec(self) -> tf.io.FixedLenFeature | tf.io.RaggedFeature:
        """How ``tf.io.parse_example`` reads it."""
        dtype = tf.float32 if self.limit is None else tf.int64
        return tf.io.RaggedFeature(dtype) if self.length is None else tf.io.FixedLenFeature([self.length], dtype)


def assert_values(parsed: Mapping[str, tf.Tensor], features: Mapping[str, Feature]) -> dict[str, tf.Tensor]:
    """Checks the values of a parsed record or batch, in the graph; returns its integers as int32.

    The error of TensorFlow says little: `tf_bert.data.tfrecord.input_pipeline.errors_checked_by` finds the record.
    """
    values = {}
    for name, feature in features.items():
        value = parsed[name]
        if feature.limit is None:
            inside = (value == 0.0) | (value == 1.0)
        else:
            inside = (value >= 0) & (value < feature.limit)
        tf.debugging.Assert(tf.reduce_all(inside), [f"{name} outside its range"])
        values[name] = value if feature.limit is None else tf.cast(value, tf.int32)
    return values


def check_example(example: Mapping[str, Sequence], features: Mapping[str, Feature], where: str) -> None:
    """Checks a decoded record.

    Args:
        example: from `tf_bert.data.tfrecord.files.decode_example`.
        features: name -> what it has to hold.
        where: file and number of the record, for messages.

    Raises:
        ValueError: names the feature, what was found and what was expected.

    Example:
        >>> check_example({"input_ids": [1, 9]}, {"input_ids": Feature(2, 5)}, "a.tfrecord: record 7")
        Traceback (most recent call last):
        ...
        ValueError: a.tfrecord: record 7: input_ids holds 9, expected 0 to 4; make the records again
    """
    missing = [name for name in features if name not in example]
    if missing:
        found = ", ".join(sorted(example)) or "nothing"
        raise ValueError(f"{where}: {', '.join(sorted(missing))} missing, found {found}")
    for name, feature in features.items():
        values = example[name]
        if len(values) != feature.length and (feature.length is not None or not values):
            expected = "1 or more" if feature.length is None else feature.length
            raise ValueError(f"{where}: {name} has {len(values)} values, expected {expected}")
        kind, of_kind = (float, "floats") if feature.limit is None else (int, "whole numbers")
        if values and not isinstance(values[0], kind):
            raise ValueError(f"{where}: {name} holds {values[0]!r:.40}, expected {of_kind}")
        worst = next((value for value in values if not _is_inside(value, feature.limit)), None)
        if worst is not None:
            expected = "0.0 or 1.0" if feature.limit is None else f"0 to {feature.limit - 1}"
            raise ValueError(f"{where}: {name} holds {worst}, expected {expected}; {feature.hint}")


def _is_inside(value: float, limit: int | None) -> bool:
    return value in (0.0, 1.0) if limit is None else 0 <= value < limit
