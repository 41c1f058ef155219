"""Packs pieces into the three inputs of BERT: [CLS] and [SEP], truncation, padding."""

from collections.abc import Sequence

TRUNCATIONS = ("longest_first", "only_first", "only_second", "second_then_first", None)


def truncated_lengths(length_a: int, length_b: int, limit: int, truncation: str | None) -> tuple[int, int]:
    """How many pieces of two texts are kept when together they may have ``limit``; the front of each is kept.

    Args:
        length_a: number of pieces of the first text.
        length_b: number of pieces of the second text, 0 where there is none.
        limit: number of pieces that fit.
        truncation: ``"longest_first"`` takes away from the longer one, from the second when they are equal, as the
            original's ``_truncate_seq_pair``; ``"only_first"`` and ``"only_second"`` take away from one of them alone;
            ``"second_then_first"`` from the second as long as it has pieces, then from the first, so that anything
            fits; None takes nothing away.

    Raises:
        ValueError: the text that may not be shortened does not fit, or truncation is none of these.

    Example:
        >>> truncated_lengths(9, 3, 8, "longest_first"), truncated_lengths(9, 9, 7, "longest_first")
        ((5, 3), (4, 3))
    """
    if truncation not in TRUNCATIONS:
        raise ValueError(f"truncation must be one of {', '.join(map(repr, TRUNCATIONS))}, not {truncation!r}")
    excess = length_a + length_b - limit
    if excess <= 0:
        return length_a, length_b
    if truncation == "longest_first" and limit >= 0:
        kept_a = min(length_a, max(limit - length_b, (limit + 1) // 2))
        return kept_a, limit - kept_a
    if truncation == "only_first" and excess <= length_a:
        return length_a - excess, length_b
    if truncation == "only_second" and excess <= length_b:
        return length_a, length_b - excess
    if truncation == "second_then_first" and limit >= 0:
        return min(length_a, limit), max(length_b - excess, 0)
    raise ValueError(
        f"{length_a} and {length_b} pieces do not fit into the {limit} that max_seq_length leaves beside [CLS] and "
        f"[SEP], with truncation={truncation!r}; raise max_seq_length or allow truncation"
    )


def pack(rows: Sequence[tuple[list[int], list[int]]], pad_id: int, length: int | None) -> dict:
    """Pads rows of ids and segments to one length.

    Args:
        rows: for each example the ids with [CLS] and [SEP] in them, and their segments.
        pad_id: the id that fills up ``input_ids``.
        length: S, at least that of the longest row; None for that of the longest row.

    Returns:
        ``input_ids``, ``input_mask`` and ``segment_ids``, numpy int32 arrays [B, S].
    """
    import numpy as np

    width = max((len(ids) for ids, _ in rows), default=0) if length is None else length
    inputs = {
        "input_ids": np.full((len(rows), width), pad_id, np.int32),
        "input_mask": np.zeros((len(rows), width), np.int32),
        "segment_ids": np.zeros((len(rows), width), np.int32),
    }
    for row, (ids, segments) in enumerate(rows):
        inputs["input_ids"][row, : len(ids)] = ids
        inputs["input_mask"][row, : len(ids)] = 1
        inputs["segment_ids"][row, : len(ids)] = segments
    return inputs


def pack_texts(
    rows: Sequence[list[int]], pad_id: int, length: int | None, padding: str = "right", truncation: str | None = "right"
) -> dict:
    """Pads or cuts rows of ids to one length, for GPT.

    Args:
        rows: ids of each text.
        pad_id: the id that fills up ``input_ids``.
        length: S; None for that of the longest row.
        padding: the side that is filled up, ``"right"`` or ``"left"``.
        truncation: the side that is cut off, ``"right"`` or ``"left"``; None for neither.

    Returns:
        ``input_ids`` and ``input_mask``, numpy int32 arrays [B, S].

    Raises:
        ValueError: a row is longer and may not be cut, or a side is neither.
    """
    import numpy as np

    if padding not in ("right", "left") or truncation not in ("right", "left", None):
        raise ValueError(f"padding and truncation must be 'right' or 'left', not {padding!r} and {truncation!r}")
    width = max(map(len, rows), default=0) if length is None else length
    ids = np.full((len(rows), width), pad_id, np.int32)
    mask = np.zeros((len(rows), width), np.int32)
    for number, row in enumerate(rows):
        if len(row) > width and truncation is None:
            raise ValueError(f"text {number} has {len(row)} pieces, and max_seq_length is {width}; allow truncation")
        kept = row[:width] if truncation != "left" else row[max(len(row) - width, 0) :]
        place = slice(0, len(kept)) if padding == "right" else slice(width - len(kept), width)
        ids[number, place], mask[number, place] = kept, 1
    return {"input_ids": ids, "input_mask": mask}
