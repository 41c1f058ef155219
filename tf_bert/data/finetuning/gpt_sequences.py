"""Tasks rewritten as sequences for GPT (Radford et al. 2018, section 3.3 and figure 1), and prompts with answers."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np


class SpecialTokens(NamedTuple):
    """The tokens that fine-tuning adds: the last three rows of the table of `GPTClassifier`.

    Example:
        >>> SpecialTokens.of(40478)
        SpecialTokens(start=40478, delimiter=40479, extract=40480)
    """

    start: int
    delimiter: int
    extract: int

    @classmethod
    def of(cls, vocab_size: int) -> "SpecialTokens":
        """Those of a vocabulary of so many tokens without them."""
        return cls(*range(vocab_size, vocab_size + 3))


def one_text(special: SpecialTokens, ids: Sequence[int], max_length: int) -> list[int]:
    """Start, text, extract: for classification. A text that is too long loses its end.

    Example:
        >>> one_text(SpecialTokens.of(10), [5, 6, 7], 4)
        [10, 5, 6, 12]
    """
    _check_room(max_length, 3)
    return [special.start, *ids[: max_length - 2], special.extract]


def text_pair(special: SpecialTokens, first: Sequence[int], second: Sequence[int], max_length: int) -> list[int]:
    """Start, text, delimiter, text, extract: for entailment. The longer text loses its end until both fit.

    Example:
        >>> text_pair(SpecialTokens.of(10), [5, 6, 7], [8], 6)
        [10, 5, 6, 11, 8, 12]
    """
    _check_room(max_length, 5)
    room = max_length - 3
    if len(first) + len(second) > room:
        shorter = min(len(first), len(second), room // 2)
        longer = room - shorter
        of_first, of_second = (longer, shorter) if len(first) >= len(second) else (shorter, longer)
        first, second = first[:of_first], second[:of_second]
    return [special.start, *first, special.delimiter, *second, special.extract]


def both_orders(special: SpecialTokens, first: Sequence[int], second: Sequence[int], max_length: int):
    """A pair in both orders, for similarity, which has none.

    Example:
        >>> both_orders(SpecialTokens.of(10), [5], [8], 6)
        [[10, 5, 11, 8, 12], [10, 8, 11, 5, 12]]
    """
    return [text_pair(special, first, second, max_length), text_pair(special, second, first, max_length)]


def choices(special: SpecialTokens, context: Sequence[int], answers: Sequence[Sequence[int]], max_length: int):
    """A context, with its question, and each of some answers: for multiple choice.

    Where there is too little room the context loses its end, as an answer without its end may be another answer.

    Raises:
        ValueError: an answer alone does not fit.

    Example:
        >>> choices(SpecialTokens.of(10), [5, 6], [[7], [8, 9]], 6)
        [[10, 5, 6, 11, 7, 12], [10, 5, 11, 8, 9, 12]]
    """
    rows = []
    for answer in answers:
        room = max_length - 3 - len(answer)
        if room < 0:
            raise ValueError(f"an answer of {len(answer)} tokens does not fit {max_length}, of which 3 are special")
        rows.append([special.start, *context[:room], special.delimiter, *answer, special.extract])
    return rows


def classification_inputs(rows: Iterable, max_length: int) -> dict[str, np.ndarray]:
    """Sequences, or a list of as many sequences for each example, filled up on the right.

    Args:
        rows: what the functions above give, one for each example.
        max_length: T.

    Returns:
        ``input_ids`` and ``input_mask``, int32 [B, T] or [B, C, T].

    Raises:
        ValueError: examples with different numbers of sequences.

    Example:
        >>> classification_inputs([[10, 5, 12], [10, 12]], 4)["input_mask"].tolist()
        [[1, 1, 1, 0], [1, 1, 0, 0]]
    """
    rows = list(rows)
    several = bool(rows) and not isinstance(rows[0][0], int | np.integer)
    counts = {len(row) for row in rows} if several else {1}
    if len(counts) > 1:
        raise ValueError(f"examples have {min(counts)} to {max(counts)} sequences; all must have as many")
    flat = [sequence for row in rows for sequence in row] if several else rows
    ids, mask = np.zeros((len(flat), max_length), "int32"), np.zeros((len(flat), max_length), "int32")
    for number, sequence in enumerate(flat):
        ids[number, : len(sequence)], mask[number, : len(sequence)] = sequence, 1
    shape = (len(rows), counts.pop(), max_length) if several else (len(rows), max_length)
    return {"input_ids": ids.reshape(shape), "input_mask": mask.reshape(shape)}


def prompt_answer_inputs(
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    max_length: int,
    end_id: int | None,
    places: Sequence[str] | None = None,
) -> dict[str, np.ndarray]:
    """Prompts with their answers for `GPT`, with the loss on the answers alone.

    Args:
        pairs: ids of a prompt and of its answer. Of what is too long the prompt loses its beginning.
        max_length: T.
        end_id: what ends an answer, as its last token; None for nothing.
        places: where each pair stands, for messages; by default their numbers.

    Returns:
        ``input_ids`` and ``input_mask``, int32 [B, T]; ``label_weights``, float32 [B, T], 1 where the next token is one
        of the answer.

    Raises:
        ValueError: an empty prompt, or an answer that leaves no room for one token of the prompt.

    Example:
        >>> batch = prompt_answer_inputs([([5, 6], [7, 8])], 6, end_id=9)
        >>> batch["input_ids"].tolist(), batch["label_weights"].tolist()
        ([[5, 6, 7, 8, 9, 0]], [[0.0, 1.0, 1.0, 1.0, 0.0, 0.0]])
    """
    pairs = list(pairs)
    names = {"input_ids": "int32", "input_mask": "int32", "label_weights": "float32"}
    arrays = {name: np.zeros((len(pairs), max_length), dtype) for name, dtype in names.items()}
    for number, (prompt, answer) in enumerate(pairs):
        answer = [*answer, *([] if end_id is None else [end_id])]
        place = places[number] if places else f"pair {number}"
        if not len(prompt):
            raise ValueError(f"{place}: the prompt is empty, and the first token of its answer would follow nothing")
        room = max_length - len(answer)
        if room < 1:
            raise ValueError(
                f"{place}: the answer has {len(answer)} tokens with its end and leaves no room in {max_length}"
            )
        prompt = prompt[-room:]
        end = len(prompt) + len(answer)
        arrays["input_ids"][number, :end] = [*prompt, *answer]
        arrays["input_mask"][number, :end] = 1
        arrays["label_weights"][number, len(prompt) - 1 : end - 1] = 1
    return arrays


def _check_room(max_length: int, least: int) -> None:
    if max_length < least:
        raise ValueError(f"max_length must be at least {least}, got {max_length}")
