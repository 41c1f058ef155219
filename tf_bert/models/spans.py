"""Converts answers and word labels between characters of a text and pieces."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from keras import ops

IMPOSSIBLE = -1e9


class Span(NamedTuple):
    """An answer.

    Attributes:
        text: as it stands in the document.
        start: its first character in the document.
        end: the character behind it.
        score: the sum of the scores of its first and last piece.
        no_answer: the score of "no answer" less that of this one; above 0 the model believes that there is none.
    """

    text: str
    start: int
    end: int
    score: float
    no_answer: float


def best_spans(start_logits, end_logits, allowed, max_answer_length: int = 30):
    """The stretch with the highest sum of scores, for each example.

    Args:
        start_logits: [B, S].
        end_logits: [B, S].
        allowed: [B, S] booleans, where a span may begin and end.
        max_answer_length: in pieces.

    Returns:
        The first and the last piece, int32 [B], and the score [B], far below any real one where nothing is allowed.

    Example:
        >>> start, end = ops.array([[9.0, 3.0, 1.0]]), ops.array([[0.0, 1.0, 2.0]])
        >>> [float(found[0]) for found in best_spans(start, end, ops.array([[False, True, True]]))]
        [1.0, 2.0, 5.0]
    """
    length = ops.shape(start_logits)[1]
    start_logits, end_logits = (ops.where(allowed, logits, IMPOSSIBLE) for logits in (start_logits, end_logits))
    scores = start_logits[:, :, None] + end_logits[:, None, :]  # [B, S, S]
    place = ops.arange(length)
    inside = ops.logical_and(place[None] >= place[:, None], place[None] < place[:, None] + max_answer_length)
    scores = ops.reshape(ops.where(inside, scores, 2 * IMPOSSIBLE), (-1, length * length))
    best = ops.cast(ops.argmax(scores, axis=-1), "int32")
    return best // length, best % length, ops.max(scores, axis=-1)


def answer_positions(inputs: dict[str, np.ndarray], answers: Sequence[tuple[int, int] | None]) -> dict[str, np.ndarray]:
    """The first and last pieces of answers, for training.

    Args:
        inputs: with offsets, see `tf_bert.tokenization.in_graph.InGraphTokenizer.encode_with_offsets`.
        answers: for each example the characters (start, end) of its answer in the document, or None for no answer.

    Returns:
        ``start_positions`` and ``end_positions`` int32 [N]: 0 ([CLS]) where there is no answer, or the document was cut
        before its end; a warning says how many.

    Raises:
        ValueError: an answer is no such pair.
    """
    in_document = (inputs["segment_ids"] == 1) & (inputs["starts"] >= 0)
    positions, cut = np.zeros((2, len(answers)), np.int32), []
    for number, answer in enumerate(answers):
        if answer is None:
            continue
        is_pair = isinstance(answer, list | tuple | np.ndarray) and len(answer) == 2
        if not is_pair or not all(isinstance(x, int | np.integer) for x in answer) or not 0 <= answer[0] < answer[1]:
            raise ValueError(f"answer number {number} is {answer!r}; expected (start, end) in characters, or None")
        starts, ends = inputs["starts"][number], inputs["ends"][number]
        inside = (in_document[number] & (starts < answer[1]) & (ends > answer[0])).nonzero()[0]
        if not inside.size or ends[in_document[number]].max() < answer[1]:
            cut.append(number)
        else:
            positions[:, number] = inside[0], inside[-1]
    if cut:
        warnings.warn(
            f"{len(cut)} of {len(answers)} answers lie beyond what the model reads of their documents, such as number "
            f"{cut[0]}: they count as no answer; run_squad cuts long documents into windows",
            stacklevel=4,
        )
    return {"start_positions": positions[0], "end_positions": positions[1]}


def piece_labels(
    inputs: dict[str, np.ndarray],
    sentences: Sequence[Sequence[str]],
    labels: Sequence[Sequence[int]],
    ignored: int,
    num_labels: int,
) -> np.ndarray:
    """The label of each word at its first piece.

    Args:
        inputs: with offsets, of the words joined by one blank.
        sentences: N sentences as words.
        labels: a number for each word.
        ignored: the label of all other pieces, which a word may have too.
        num_labels: number of labels.

    Returns:
        int32 [N, S].

    Raises:
        ValueError: words and labels of a sentence differ in number, or a label is no integer below ``num_labels``.
    """
    label_ids = np.full(inputs["input_ids"].shape, ignored, np.int32)
    lost = 0
    for row, (words, of_words) in enumerate(zip(sentences, labels, strict=True)):
        if not isinstance(of_words, Sequence | np.ndarray) or isinstance(of_words, str):
            raise ValueError(f"labels[{row}] is {of_words!r}; expected a list with a label for each word")
        if len(words) != len(of_words):
            raise ValueError(f"sentence number {row} has {len(words)} words and {len(of_words)} labels")
        for place, label in enumerate(of_words):
            is_integer = isinstance(label, int | np.integer) or (isinstance(label, float) and label.is_integer())
            if not is_integer or not (0 <= label < num_labels or label == ignored):
                raise ValueError(
                    f"labels[{row}][{place}], of {words[place]!r}, is {label!r}; expected an integer from 0 to "
                    f"{num_labels - 1}"
                )
        first = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1]  # where each word begins
        places = (inputs["starts"][row] >= 0).nonzero()[0]
        word_of = np.searchsorted(first, inputs["starts"][row][places], side="right") - 1
        found, firsts = np.unique(word_of, return_index=True)
        label_ids[row, places[firsts]] = np.asarray(of_words, np.int32)[found]
        lost += len(words) - len(found)
    if lost:
        warnings.warn(
            f"{lost} words have no piece that the model reads (too far behind, or of odd characters only): nothing is "
            "learned from their labels",
            stacklevel=4,
        )
    return label_ids
