"""Turns scores of windows into answers, as ``write_predictions`` of the original's ``run_squad.py``.

The files are the original's for equal scores, to the bit. The best starts and ends of all windows are found together,
and each word of a document is normalised once.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tf_bert.data.finetuning.squad import InputFeatures, SquadExample
from tf_bert.files import atomic_writer
from tf_bert.options import option, options_class
from tf_bert.tokenization.basic import BasicTokenizer
from tf_bert.tokenization.full import WordCache

NO_CANDIDATE = 1_000_000.0  # the score of "no answer" where no span is possible at all
_WINDOWS_AT_ONCE = 1024


class RawResult(NamedTuple):
    """The scores of a window's positions as start and as end, [S] each."""

    unique_id: int
    start_logits: Sequence[float]
    end_logits: Sequence[float]


class Answer(NamedTuple):
    """A text and the scores of its ends."""

    text: str
    start_logit: float
    end_logit: float


@options_class
class AnswerOptions:
    """How answers are chosen; names and defaults are those of ``run_squad``."""

    n_best_size: int = option(
        20,
        "Number of starts and ends of a window, and of answers of a question, that are considered and written to "
        "nbest_predictions.json.",
        minimum=1,
    )
    max_answer_length: int = option(30, "Pieces of an answer at most.", minimum=0)
    do_lower_case: bool = option(True, "Whether the text is lower-cased, as the windows were made.")
    version_2_with_negative: bool = option(False, "Whether questions may have no answer, as in SQuAD 2.0.")
    null_score_diff_threshold: float = option(
        0.0, "No answer is given where its score exceeds that of the best answer by more."
    )
    no_answer_text: str = option(
        "empty", "Version 1: what a question gets for which no answer is possible; the original's is empty."
    )
    text_as_in_document: bool = option(
        False,
        "Whether to cut answers out of the document by character, blanks and accents as they are there. The original "
        "joins words by one blank, and gives whole words where it cannot align.",
    )


class Predictions(NamedTuple):
    """What `predict_answers` returns, each by question id in the order of the questions.

    ``null_odds`` has the score of "no answer" less that of the best answer, in version 2 only; it is `NO_CANDIDATE`
    where no span is possible.
    """

    predictions: dict[str, str]
    nbest: dict[str, list[dict[str, Any]]]
    null_odds: dict[str, float]


def write_predictions(
    all_examples: Sequence[SquadExample],
    all_features: Sequence[InputFeatures],
    all_results: Sequence[RawResult],
    n_best_size: int,
    max_answer_length: int,
    do_lower_case: bool,
    output_prediction_file: str | os.PathLike,
    output_nbest_file: str | os.PathLike,
    output_null_log_odds_file: str | os.PathLike | None,
    **options: Any,
) -> Predictions:
    """Chooses answers and writes them as JSON, see `predict_answers`; ``options`` are those of `AnswerOptions`."""
    chosen = AnswerOptions(n_best_size, max_answer_length, do_lower_case, **options)
    found = predict_answers(all_examples, all_features, all_results, chosen)
    files = [
        (output_prediction_file, json.dumps(found.predictions, indent=4)),
        (output_nbest_file, _nbest_as_json(found.nbest)),
    ]
    if chosen.version_2_with_negative:
        files.append((output_null_log_odds_file, json.dumps(found.null_odds, indent=4)))
    for path, text in files:
        with atomic_writer(path, "w") as file:
            file.write(text + "\n")
    return found


def _nbest_as_json(nbest: Mapping[str, list[dict[str, Any]]]) -> str:
    """What ``json.dumps(nbest, indent=4)`` returns, which takes a third of the time of all the rest."""

    encode = json.JSONEncoder(separators=(",\n            ", ": ")).encode  # in C, as it is without an indent

    def entry(answer: Mapping[str, Any]) -> str:
        return "        {\n            " + encode(answer)[1:-1] + "\n        }"

    questions = [
        f"    {json.dumps(key)}: [\n" + ",\n".join(map(entry, found)) + "\n    ]" for key, found in nbest.items()
    ]
    return "{\n" + ",\n".join(questions) + "\n}" if questions else "{}"


def predict_answers(
    examples: Sequence[SquadExample],
    features: Sequence[InputFeatures],
    results: Sequence[RawResult],
    options: AnswerOptions = AnswerOptions(),
) -> Predictions:
    """Chooses the answer of each question from the scores of its windows.

    A span is possible where start and end are among the ``n_best_size`` best of their window, lie in the document in
    this order, no further apart than ``max_answer_length``, and no other window shows more around the start.

    Args:
        examples: the questions.
        features: their windows.
        results: the scores of all windows, in any order.
        options: how to choose.

    Raises:
        ValueError: a window has no scores; says how many of how many.

    Source: ``write_predictions`` of google-research/bert, ``run_squad.py``.
    """
    by_id = {result.unique_id: result for result in results}
    lacking = [feature.unique_id for feature in features if feature.unique_id not in by_id]
    if lacking:
        raise ValueError(
            f"{len(lacking)} of {len(features)} windows have no result, such as unique_id {lacking[0]}: was the last "
            "batch dropped?"
        )
    spans = _possible_spans(features, by_id, options)
    if options.version_2_with_negative:
        nulls = _null_spans(examples, features, by_id)
        spans = _Spans(*map(np.concatenate, zip(spans, nulls, strict=True)))
    # By question, then by score; stable, so that of equal scores the first window, start and end come first.
    spans = spans.take(np.lexsort((-(spans.start_logit + spans.end_logit), spans.question)))
    bounds = np.searchsorted(spans.question, np.arange(len(examples) + 1)).tolist()
    texts = _Texts(examples, features, options)

    found = Predictions({}, {}, {})
    for number, example in enumerate(examples):
        candidates = spans.rows(bounds[number], bounds[number + 1])
        null = None
        if options.version_2_with_negative:
            null = Answer("", float(nulls.start_logit[number]), float(nulls.end_logit[number]))
        answers = _best_answers(candidates, null, texts, options)
        found.nbest[example.qas_id] = _with_probabilities(answers)
        if null is None:
            found.predictions[example.qas_id] = answers[0].text
            continue
        best = next((answer for answer in answers if answer.text), None) or _beyond_the_list(candidates, texts)
        odds = NO_CANDIDATE
        if best is not None:
            odds = null.start_logit + null.end_logit - best.start_logit - best.end_logit
        found.null_odds[example.qas_id] = odds
        is_null = best is None or odds > options.null_score_diff_threshold
        found.predictions[example.qas_id] = "" if is_null else best.text
    return found


class _Spans(NamedTuple):
    """Possible answers, a column each: question, window, places in its tokens, and their scores."""

    question: np.ndarray
    window: np.ndarray
    start: np.ndarray
    end: np.ndarray
    start_logit: np.ndarray
    end_logit: np.ndarray

    def take(self, order: np.ndarray) -> "_Spans":
        return _Spans(*(column[order] for column in self))

    def rows(self, first: int, last: int) -> list[tuple[int, int, int, float, float]]:
        """Window, start, end and scores of some of them."""
        return list(zip(*(column[first:last].tolist() for column in self[1:]), strict=True))


def _possible_spans(
    features: Sequence[InputFeatures], by_id: Mapping[int, RawResult], options: AnswerOptions
) -> _Spans:
    """The possible spans of all windows: by window, by rank of their start, then of their end."""
    chunks = [_Spans(*(np.zeros(0, kind) for kind in (int, int, int, int, float, float)))]
    for first in range(0, len(features), _WINDOWS_AT_ONCE):
        chunk = features[first : first + _WINDOWS_AT_ONCE]
        shape = (len(chunk), max(len(by_id[feature.unique_id].start_logits) for feature in chunk))
        scores = np.full((2, *shape), -np.inf)  # [2, W, S], as the original in double precision
        in_document, may_start = np.zeros(shape, bool), np.zeros(shape, bool)
        for i, feature in enumerate(chunk):
            result = by_id[feature.unique_id]
            scores[0, i, : len(result.start_logits)] = result.start_logits
            scores[1, i, : len(result.end_logits)] = result.end_logits
            in_document[i, np.fromiter(feature.token_to_orig_map, np.intp)] = True
            is_max = feature.token_is_max_context
            may_start[i, np.fromiter(is_max, np.intp)] = np.fromiter(is_max.values(), bool)
        places = np.argsort(-scores, axis=-1, kind="stable")[..., : options.n_best_size]  # [2, W, n], ties: the first
        best = np.take_along_axis(scores, places, axis=-1)
        starts, ends = places[0][:, :, None], places[1][:, None, :]
        starts_fit = np.take_along_axis(may_start & in_document, places[0], axis=-1)
        ends_fit = np.take_along_axis(in_document, places[1], axis=-1)
        fit = starts_fit[:, :, None] & ends_fit[:, None, :]  # [W, n, n]
        fit &= (starts <= ends) & (ends - starts < options.max_answer_length)
        window, rank, end_rank = fit.nonzero()
        question = np.array([feature.example_index for feature in chunk])[window]
        logits = best[0, window, rank], best[1, window, end_rank]
        chunks.append(_Spans(question, first + window, places[0, window, rank], places[1, window, end_rank], *logits))
    return _Spans(*map(np.concatenate, zip(*chunks, strict=True)))


def _null_spans(
    examples: Sequence[SquadExample], features: Sequence[InputFeatures], by_id: Mapping[int, RawResult]
) -> _Spans:
    """No answer, [CLS] to [CLS], for each question in the window where that is least likely."""
    least = [(NO_CANDIDATE, -1, 0.0, 0.0)] * len(examples)
    for number, feature in enumerate(features):
        result = by_id[feature.unique_id]
        start, end = float(result.start_logits[0]), float(result.end_logits[0])
        if start + end < least[feature.example_index][0]:
            least[feature.example_index] = (start + end, number, start, end)
    _, windows, start_logits, end_logits = map(np.array, zip(*least, strict=True))
    zeros = np.zeros(len(examples), int)
    return _Spans(np.arange(len(examples)), windows, zeros, zeros, start_logits, end_logits)


def _best_answers(
    candidates: Sequence[tuple], null: Answer | None, texts: "_Texts", options: AnswerOptions
) -> list[Answer]:
    """The first ``n_best_size`` candidates with different texts; in version 2 with "no answer" among or behind them."""
    answers: list[Answer] = []
    seen = set()
    for window, start, end, start_logit, end_logit in candidates:
        if len(answers) >= options.n_best_size:
            break
        text = texts.of(window, start, end) if start > 0 else ""
        if text not in seen:
            seen.add(text)
            answers.append(Answer(text, start_logit, end_logit))
    if null is not None and "" not in seen:
        answers.append(null)
    return answers or [Answer(options.no_answer_text, 0.0, 0.0)]


def _beyond_the_list(candidates: Sequence[tuple], texts: "_Texts") -> Answer | None:
    """The best answer where the list, with room for few, has none but "no answer"; the original stopped there."""
    answers = (Answer(texts.of(*span[:3]), *span[3:]) for span in candidates if span[1] > 0)
    return next(answers, None)


def _with_probabilities(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    scores = [answer.start_logit + answer.end_logit for answer in answers]
    # Summed in this order, in Python's doubles: the last digit is the original's too.
    exponentials = [math.exp(score - max(scores)) for score in scores]
    total = sum(exponentials)
    return [
        {
            "text": answer.text,
            "probability": exponential / total,
            "start_logit": answer.start_logit,
            "end_logit": answer.end_logit,
        }
        for answer, exponential in zip(answers, exponentials, strict=True)
    ]


class _Texts:
    """The text of a span."""

    def __init__(self, examples: Sequence[SquadExample], features: Sequence[InputFeatures], options: AnswerOptions):
        self._examples, self._features, self._as_in_document = examples, features, options.text_as_in_document
        basic = BasicTokenizer(options.do_lower_case)
        words = WordCache(lambda word: [" ".join(basic.tokenize(word))])
        self._normalised = [[token for word in example.doc_tokens for token in words[word]] for example in examples]

    def of(self, window: int, start: int, end: int) -> str:
        """The words of the document that the span covers, as far as it covers them."""
        feature = self._features[window]
        example = self._examples[feature.example_index]
        if self._as_in_document:
            return example.context[feature.token_offsets[start][0] : feature.token_offsets[end][1]]
        pieces = " ".join(feature.tokens[start : end + 1]).replace(" ##", "").replace("##", "")
        map_ = feature.token_to_orig_map
        words = slice(map_[start], map_[end] + 1)
        tokens = filter(None, self._normalised[feature.example_index][words])  # a word may be nothing but a control
        return _aligned(" ".join(pieces.split()), " ".join(tokens), " ".join(example.doc_tokens[words]))


def get_final_text(pred_text: str, orig_text: str, do_lower_case: bool) -> str:
    """The part of ``orig_text`` that ``pred_text`` was made of; all of it where the two cannot be aligned.

    Args:
        pred_text: the pieces of an answer, joined to words.
        orig_text: the words of the document that hold them.
        do_lower_case: as the pieces were made.

    Source: ``get_final_text`` of google-research/bert, ``run_squad.py``.

    Example:
        >>> get_final_text("steve smith", "Steve Smith's", do_lower_case=True)
        'Steve Smith'
    """
    return _aligned(pred_text, " ".join(BasicTokenizer(do_lower_case).tokenize(orig_text)), orig_text)


def _aligned(pred_text: str, tok_text: str, orig_text: str) -> str:
    """Finds ``pred_text`` in the normalised text and takes the same characters, blanks not counted, of the original."""
    if pred_text == tok_text:
        return orig_text
    start = tok_text.find(pred_text)
    same_length = len(tok_text) - tok_text.count(" ") == len(orig_text) - orig_text.count(" ")
    if start == -1 or not pred_text or not same_length:
        return orig_text
    end = start + len(pred_text) - 1
    if tok_text[start] == " " or tok_text[end] == " ":
        return orig_text
    first, last = start - tok_text.count(" ", 0, start), end - tok_text.count(" ", 0, end)
    return orig_text[_place(orig_text, first) : _place(orig_text, last) + 1]


def _place(text: str, number: int) -> int:
    """Where the character stands that has ``number`` others before it, blanks not counted."""
    place = number
    while (further := number + text.count(" ", 0, place + 1)) != place:
        place = further
    return place
