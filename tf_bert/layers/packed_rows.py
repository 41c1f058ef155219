"""Positions and attention masks of rows that hold several examples."""

from keras import ops


def packed_rows(example_lengths, input_mask):
    """Where each example of a row begins, the positions inside it, and what may attend to what.

    Args:
        example_lengths: [B, E], the tokens of the examples, which stand one behind the other; 0 for none.
        input_mask: [B, S], 1 for a real position and 0 for padding.

    Returns:
        ``first_positions`` [B, E], where examples begin (0 where there is none); ``position_ids`` [B, S], which restart
        in each example and are 0 in padding; and ``attention_mask`` [B, S, S], true inside an example.

    Source: Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination", section 3.2.

    Example:
        >>> first, positions, mask = packed_rows(ops.array([[2, 3, 0]]), ops.array([[1, 1, 1, 1, 1, 0]]))
        >>> first.numpy().tolist(), positions.numpy().tolist()
        ([[0, 2, 0]], [[0, 1, 0, 1, 2, 0]])
        >>> mask[0, 2].numpy().astype(int).tolist()
        [0, 0, 1, 1, 1, 0]
    """
    lengths = ops.cast(example_lengths, "int32")
    ends = ops.cumsum(lengths, axis=1)  # [B, E]
    place = ops.arange(ops.shape(input_mask)[1])  # [S]
    behind = ops.cast(place[:, None] >= ends[:, None, :], "int32")  # [B, S, E], which examples have ended
    example = ops.sum(behind, axis=-1)  # [B, S], the number of the example; E in padding
    start = ops.sum(behind * lengths[:, None, :], axis=-1)  # [B, S], where it begins
    real = ops.cast(input_mask, "bool")
    attention_mask = ops.logical_and(example[:, :, None] == example[:, None, :], real[:, None, :])
    first_positions = ops.where(lengths > 0, ends - lengths, 0)
    return first_positions, ops.where(real, place - start, 0), attention_mask
