"""Figures of tagged words: by entity (Tjong Kim Sang and De Meulder 2003), as ``conlleval`` counts, and by word."""

import re
import warnings
from collections.abc import Iterable, Sequence

_ENTITY_TAG = re.compile("O$|[BIESLU]-.")
_OTHER_NAMES = {"L-": "E-", "U-": "S-"}  # last and unit, as some call the end of an entity and one of a single word


def need_seqeval_for(tags: Iterable[str]) -> None:
    """Raises ImportError, with what to do, where a tag is that of an entity and seqeval is not installed."""
    if any(tag != "O" and _ENTITY_TAG.match(tag) for tag in tags):
        try:
            import seqeval.metrics  # noqa: F401
        except ImportError:
            raise ImportError("the F1 of entities needs seqeval: pip install 'tf_bert[metrics]', or seqeval") from None


def tagging_figures(expected: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Accuracy over words; precision, recall and F1 over entities, in all and for each type.

    An entity counts where its first and last word and its type are right. Tags may be written IOB1, IOB2, IOBES or
    BILOU; an ``I-`` where nothing begins begins an entity, as in ``conlleval``. Other tags (parts of speech) have an
    accuracy only. Where there is no entity at all, the three are 0.

    Args:
        expected: the tags of each sentence.
        predicted: as many for each.

    Returns:
        ``accuracy`` and, with entities, ``precision``, ``recall``, ``f1``, and for each type ``TYPE_precision``,
        ``TYPE_recall``, ``TYPE_f1`` and ``TYPE_support``, the number of its entities.

    Raises:
        ImportError: seqeval is not installed.
    """
    words = sum(map(len, expected))
    right = sum(a == b for x, y in zip(expected, predicted, strict=True) for a, b in zip(x, y, strict=True))
    figures = {"accuracy": right / words if words else 0.0}
    if not all(_ENTITY_TAG.match(tag) for tags in (*expected, *predicted) for tag in tags):
        return figures
    need_seqeval_for(["B-any"])
    from seqeval.metrics import classification_report

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the mean over no types
        report = classification_report(_common(expected), _common(predicted), output_dict=True, zero_division=0)
    names = {"precision": "precision", "recall": "recall", "f1": "f1-score"}
    figures |= {ours: float(report["micro avg"][theirs]) for ours, theirs in names.items()}
    for kind, of_kind in report.items():
        if not kind.endswith(" avg"):
            figures |= {f"{kind}_{ours}": float(of_kind[theirs]) for ours, theirs in names.items()}
            figures[f"{kind}_support"] = int(of_kind["support"])
    return figures


def _common(sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[_OTHER_NAMES.get(tag[:2], tag[:2]) + tag[2:] for tag in tags] for tags in sentences]
