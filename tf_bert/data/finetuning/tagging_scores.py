"""Figures of tagged words: by entity (Tjong Kim Sang and De Meulder 2003), as ``conlleval`` counts, and by word."""

import collections
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence

OUTSIDE = "O"
_ENTITY_TAG = re.compile("([BIESLUMW])-(.+)")
# Letters of schemes: BIO, IOBES, BILOU, BMES, BMEWO. What other schemes call the inside, the end and a single word.
_LETTERS = {letter: letter for letter in "BIES"} | {"M": "I", "L": "E", "U": "S", "W": "S"}
_LISTED = 5


def need_seqeval_for(tags: Iterable[str]) -> None:
    """Raises ImportError, with what to do, where tags are those of entities and seqeval is not installed."""
    if entity_tags(dict.fromkeys(tags, 1))[0]:
        try:
            import seqeval.metrics  # noqa: F401
        except ImportError:
            raise ImportError("the F1 of entities needs seqeval: pip install 'tf_bert[metrics]', or seqeval") from None


def entity_tags(counts: Mapping[str, int]) -> tuple[dict[str, str], list[str]]:
    """Reads tags as those of entities.

    A tag is ``O`` or a letter of a scheme (BIO, IOBES, BILOU, BMES) with a type, as ``B-person``. Where no tag has a
    type, letters alone (``B``, ``I``) are those of one type without a name.

    Args:
        counts: tag -> how often it occurs.

    Returns:
        Tag -> the same in the letters of IOBES; and the odd tags, which say nothing of entities and count as ``O``.
        The first is empty where the tags are something else, such as parts of speech: where no tag is that of an
        entity, or odd ones are more frequent.

    Example:
        >>> entity_tags({"B-per": 2, "M-per": 1, "O": 5, "0": 1})
        ({'B-per': 'B-per', 'M-per': 'I-per', 'O': 'O', '0': 'O'}, ['0'])
        >>> entity_tags({"B": 2, "I": 1, "O": 5})[0]
        {'B': 'B', 'I': 'I', 'O': 'O'}
        >>> entity_tags({"NOUN": 2, "VERB": 1})
        ({}, ['NOUN', 'VERB'])
    """
    nameless = not any(map(_ENTITY_TAG.fullmatch, counts)) and not {"B", "I"}.isdisjoint(counts)
    common = {}
    for tag in counts:
        if match := _ENTITY_TAG.fullmatch(tag):
            common[tag] = f"{_LETTERS[match[1]]}-{match[2]}"
        elif tag == OUTSIDE or (nameless and tag in _LETTERS):
            common[tag] = _LETTERS.get(tag, OUTSIDE)
    odd = [tag for tag in counts if tag not in common]
    of_entities = sum(counts[tag] for tag in common if tag != OUTSIDE)
    if odd and of_entities < sum(counts[tag] for tag in odd):
        return {}, odd
    return common | dict.fromkeys(odd, OUTSIDE), odd


def tagging_figures(expected: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Accuracy over words; precision, recall and F1 over entities, in all and for each type.

    An entity counts where its first and last word and its type are right. Tags may be written IOB1, IOB2, IOBES, BILOU
    or BMES, with types or as letters alone; an ``I-`` where nothing begins begins an entity, as in ``conlleval``. Other
    tags (parts of speech) have an accuracy only. Where there is no entity at all, the three are 0.

    Args:
        expected: the tags of each sentence.
        predicted: as many for each.

    Returns:
        ``accuracy`` and, with entities, ``precision``, ``recall``, ``f1``, and for each type ``TYPE_precision``,
        ``TYPE_recall``, ``TYPE_f1`` and ``TYPE_support``, the number of its entities.

    Raises:
        ImportError: seqeval is not installed.

    Warns:
        UserWarning: why there is no F1; or which tags are not those of entities and count as ``O``.
    """
    words = sum(map(len, expected))
    right = sum(a == b for x, y in zip(expected, predicted, strict=True) for a, b in zip(x, y, strict=True))
    figures = {"accuracy": right / words if words else 0.0}
    counts = collections.Counter(tag for tags in expected for tag in tags)
    for tag in sorted({tag for tags in predicted for tag in tags}):
        counts.setdefault(tag, 0)
    common, odd = entity_tags(counts)
    if odd:
        _warn_of_odd_tags(odd, counts, counted_as_outside=bool(common))
    if not common:
        return figures
    need_seqeval_for(["B-any"])
    from seqeval.metrics import classification_report

    references, answers = ([[common[tag] for tag in tags] for tags in sentences] for sentences in (expected, predicted))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the mean over no types
        report = classification_report(references, answers, output_dict=True, zero_division=0)
    names = {"precision": "precision", "recall": "recall", "f1": "f1-score"}
    figures |= {ours: float(report["micro avg"][theirs]) for ours, theirs in names.items()}
    for kind, of_kind in report.items():
        if not kind.endswith(" avg") and kind != "_":  # seqeval's name for the type without one
            figures |= {f"{kind}_{ours}": float(of_kind[theirs]) for ours, theirs in names.items()}
            figures[f"{kind}_support"] = int(of_kind["support"])
    return figures


def _warn_of_odd_tags(odd: Sequence[str], counts: Mapping[str, int], counted_as_outside: bool) -> None:
    words = sum(counts[tag] for tag in odd)
    named = ", ".join(map(repr, odd[:_LISTED])) + ", ..." * (len(odd) > _LISTED)
    expected = "expected O, or B, I, E, S, M, L, U or W with a type, as in B-person"
    if counted_as_outside:
        message = f"{len(odd)} tags, of {words} words, are not those of entities and count as O: {named}; {expected}"
    else:
        message = f"accuracy only, without the F1 of entities: found the tags {named}; {expected}"
    warnings.warn(message, stacklevel=3)
