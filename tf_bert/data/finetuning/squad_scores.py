"""Exact match and F1 of answers, as the official scripts of SQuAD 1.1 and 2.0 compute them."""

import collections
import os
import re
import string
from collections.abc import Mapping, Sequence

from tf_bert.data.finetuning.squad_files import read_questions

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = set(string.punctuation)


def read_answers(input_file: str | os.PathLike) -> dict[str, list[str]]:
    """The annotated answers of each question, by id; none for a question without an answer.

    Returns:
        {} where the file, a test set, has none at all.
    """
    questions = [question for _, question in read_questions(input_file)]
    answers = {question["id"]: [answer["text"] for answer in question.get("answers", ())] for question in questions}
    says_impossible = any("is_impossible" in question for question in questions)
    return answers if says_impossible or any(answers.values()) else {}


def normalize_answer(text: str) -> str:
    """Lower-cases, and takes out punctuation, articles and superfluous blanks.

    Example:
        >>> normalize_answer("The  End.")
        'end'
    """
    text = "".join(char for char in text.lower() if char not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_score(answer: str, prediction: str) -> float:
    """1.0 where both are equal once normalised, else 0.0."""
    return float(normalize_answer(answer) == normalize_answer(prediction))


def f1_score(answer: str, prediction: str) -> float:
    """The harmonic mean of precision and recall of the words; where one is empty, whether both are.

    Example:
        >>> f1_score("the white house", "White House lawn")
        0.8
    """
    expected, found = normalize_answer(answer).split(), normalize_answer(prediction).split()
    if not expected or not found:
        return float(expected == found)
    common = sum((collections.Counter(expected) & collections.Counter(found)).values())
    return 2 * common / (len(expected) + len(found))


def score_predictions(
    answers: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Exact match and F1 in per cent over all questions.

    Args:
        answers: from `read_answers`; the best match counts.
        predictions: question id -> text.
        null_odds: the scores of "no answer", for version 2: adds the figures of questions with (``HasAns_``) and
            without (``NoAns_``) an answer, and the thresholds at which exact match and F1 would be best.

    Raises:
        ValueError: a question has no prediction.

    Source: ``evaluate-v1.1.py`` and ``evaluate-v2.0.py`` of the SQuAD data set.

    Example:
        >>> score_predictions({"q1": ["Rome"], "q2": ["the sea", "sea"]}, {"q1": "Rome", "q2": "The sea!"})
        {'exact': 100.0, 'f1': 100.0, 'total': 2}
    """
    lacking = [key for key in answers if key not in predictions]
    if lacking:
        raise ValueError(f"{len(lacking)} of {len(answers)} questions have no prediction, such as {lacking[0]}")
    exact, f1 = {}, {}
    for key, texts in answers.items():
        # An answer of articles and punctuation alone counts as none.
        golds = [text for text in texts if normalize_answer(text)] or [""]
        exact[key] = max(exact_score(gold, predictions[key]) for gold in golds)
        f1[key] = max(f1_score(gold, predictions[key]) for gold in golds)
    figures = _means("", exact, f1, list(answers))
    if null_odds is None:
        return figures
    for prefix, has_answer in (("HasAns_", True), ("NoAns_", False)):
        keys = [key for key, texts in answers.items() if bool(texts) == has_answer]
        if keys:
            figures |= _means(prefix, exact, f1, keys)
    for name, scores in (("exact", exact), ("f1", f1)):
        best, threshold = best_threshold(answers, predictions, scores, null_odds)
        figures |= {f"best_{name}": best, f"best_{name}_thresh": threshold}
    return figures


def _means(prefix: str, exact: Mapping[str, float], f1: Mapping[str, float], keys: Sequence[str]) -> dict[str, float]:
    return {
        f"{prefix}exact": 100.0 * sum(exact[key] for key in keys) / len(keys),
        f"{prefix}f1": 100.0 * sum(f1[key] for key in keys) / len(keys),
        f"{prefix}total": len(keys),
    }


def best_threshold(
    answers: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> tuple[float, float]:
    """The best mean score, in per cent, if "no answer" were given above a threshold of its score; and the threshold."""
    best = current = sum(not texts for texts in answers.values())
    threshold = 0.0
    for key in sorted(answers, key=null_odds.__getitem__):
        current += scores[key] if answers[key] else -bool(predictions[key])
        if current > best:
            best, threshold = current, null_odds[key]
    return 100.0 * best / len(answers), threshold
