"""Scores of translations: BLEU and chrF (by sacrebleu), exact matches by length, word error rate."""

import collections
import re
from collections.abc import Sequence


def corpus_scores(hypotheses: Sequence[str], references: Sequence[str], lower_case: bool = False) -> dict[str, float]:
    """BLEU (Papineni et al. 2002) and chrF (Popović 2015) of a whole text, as sacrebleu counts them (Post 2018).

    Args:
        hypotheses: translations, as they would be shown to a reader: not cut into tokens.
        references: as many right ones.
        lower_case: whether case is ignored.

    Returns:
        ``bleu`` and ``chrf``, from 0 to 100.

    Raises:
        ImportError: sacrebleu is not installed; says how to.
        ValueError: there are not as many hypotheses as references, or none.
    """
    _check(hypotheses, references)
    if not references:
        raise ValueError("there are no lines to score")
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        raise ImportError("BLEU and chrF need sacrebleu: pip install 'tf_bert[metrics]'") from None
    metrics = {"bleu": BLEU(lowercase=lower_case), "chrf": CHRF(lowercase=lower_case)}
    return {name: metric.corpus_score(hypotheses, [references]).score for name, metric in metrics.items()}


def scores_line(hypotheses: Sequence[str], references: Sequence[str]) -> str:
    """Returns BLEU, chrF, the share that is exactly right and the word error rate in one line.

    Without sacrebleu BLEU and chrF are left out, and the line says how to install it.
    """
    exact, errors = exact_share(hypotheses, references), word_error_rate(hypotheses, references)
    rest = f"exactly right {exact:.2%}, word error rate {errors:.2%}, {len(references):,} lines"
    try:
        found = corpus_scores(hypotheses, references)
    except ImportError as error:
        return f"{rest} ({error})"
    return f"BLEU {found['bleu']:.2f}, chrF {found['chrf']:.2f}, {rest}"


def exact_share(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of hypotheses that are equal to their references; 0 where there are none."""
    _check(hypotheses, references)
    right = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return right / max(len(references), 1)


def exact_by_length(sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> dict[int, float]:
    """The share that is exactly right for each length of the source in characters.

    Example:
        >>> exact_by_length(["ab", "cd", "abc"], ["ba", "xx", "cba"], ["ba", "dc", "cba"])
        {2: 0.5, 3: 1.0}
    """
    _check(hypotheses, references)
    _check(sources, references, "sources")
    counts = collections.defaultdict(lambda: [0, 0])
    for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True):
        count = counts[len(source)]
        count[0] += hypothesis == reference
        count[1] += 1
    return {length: counts[length][0] / counts[length][1] for length in sorted(counts)}


def word_error_rate(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Words to insert, delete or replace, for each word of the references; of phonemes, the phoneme error rate.

    Example:
        >>> word_error_rate(["HH AH L OW"], ["HH EH L OW Z"])
        0.4
    """
    _check(hypotheses, references)
    pairs = [
        (hypothesis.split(), reference.split()) for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]
    return sum(edit_distance(*pair) for pair in pairs) / max(sum(len(reference) for _, reference in pairs), 1)


def edit_distance(a: Sequence, b: Sequence) -> int:
    """The fewest insertions, deletions and replacements that make ``b`` of ``a`` (Levenshtein 1966)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
    return row[-1]


def detokenized(text: str) -> str:
    """Text with the blanks taken out that WordPiece leaves around punctuation.

    Example:
        >>> detokenized("don ' t go , he said ( twice ) .")
        "don't go, he said (twice)."
    """
    text = re.sub(r"\s+([.,;:!?)\]}%])", r"\1", text)
    text = re.sub(r"([(\[{])\s+", r"\1", text)
    return re.sub(r"(\w)\s*(['’])\s*(\w)", r"\1\2\3", text)


def _check(some: Sequence, references: Sequence, name: str = "translations") -> None:
    if len(some) != len(references):
        raise ValueError(f"there are {len(some)} {name} and {len(references)} references")
