"""Scheduled sampling: in training the decoder is now and then given its own words (Bengio et al. 2015)."""

import keras
from keras import ops

from tf_bert.configs.translation import check_sampling_schedule


def teacher_forcing_probability(schedule: str, step, k: float, slope: float = 0.0, minimum: float = 0.0):
    """The probability that the decoder is given the right word (section 2.4, epsilon_i).

    Args:
        schedule: ``none`` (always 1), ``constant`` (k), ``linear`` (max(minimum, k - slope i)), ``exponential`` (k^i,
            k < 1) or ``inverse_sigmoid`` (k / (k + exp(i / k)), k >= 1).
        step: number i of updates done.
        k, slope, minimum: of the schedule.

    Returns:
        A scalar in [0, 1].

    Raises:
        ValueError: for another schedule, or a k with which it would not fall.

    Example:
        >>> [round(float(teacher_forcing_probability("linear", i, 1.0, 0.25, 0.4)), 2) for i in range(4)]
        [1.0, 0.75, 0.5, 0.4]
    """
    check_sampling_schedule(schedule, k, slope)
    step = ops.cast(step, "float32")
    if schedule == "none":
        return ops.ones_like(step)
    if schedule == "constant":
        return ops.full_like(step, k)
    if schedule == "linear":
        return ops.clip(ops.maximum(minimum, k - slope * step), 0.0, 1.0)
    if schedule == "exponential":
        return ops.power(ops.cast(k, "float32"), step)
    return k / (k + ops.exp(step / k))


def draw(log_probs, uniform):
    """Indices drawn by their probability.

    Args:
        log_probs: [..., V], not necessarily normalised.
        uniform: [..., 1], numbers that are uniform in [0, 1).

    Returns:
        [...] int32; never one of probability 0.

    Example:
        >>> log_probs = ops.log(ops.array([[0.2, 0.0, 0.8], [0.2, 0.0, 0.8]]))
        >>> print(draw(log_probs, ops.array([[0.1], [0.3]])).numpy())
        [0 2]
    """
    cumulative = ops.cumsum(ops.softmax(log_probs), axis=-1)
    # The first whose share of the line from 0 to the total holds the number.
    reached = cumulative > ops.cast(uniform, cumulative.dtype) * cumulative[..., -1:]
    return ops.cast(ops.argmax(reached, axis=-1), "int32")


def choose_words(shape, probability, seed_generator):
    """Where the decoder is given the right word, and what its own words are drawn by.

    Args:
        shape: of the words, (B, T).
        probability: that the right word is given; the first word always is.
        seed_generator: a `keras.random.SeedGenerator`.

    Returns:
        Booleans [B, T], and numbers [B, T, 1] for `draw`.
    """
    uniform = keras.random.uniform((2, *shape), seed=seed_generator)
    right = ops.logical_or(uniform[0] < ops.cast(probability, uniform.dtype), ops.arange(shape[1]) == 0)
    return right, uniform[1][..., None]
