"""Notes a fine-tuned model's kind of task and its labels in a file next to its checkpoints."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tf_bert.files import atomic_writer
from tf_bert.json_files import read_json_object

LABELS_FILE = "label_list.json"
KINDS = ("single", "multi", "regression", "choice", "tags", "squad", "answers")


def note_labels(folder: str | os.PathLike, kind: str, labels: Sequence[str] = (), **settings: Any) -> None:
    """Writes ``label_list.json``.

    Args:
        folder: of the checkpoints.
        kind: one of `KINDS`.
        labels: in the order of their ids.
        **settings: what else prediction has to know.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     note_labels(folder, "single", ["bad", "good"])
        ...     noted_labels(folder)["labels"]
        ['bad', 'good']
    """
    with atomic_writer(os.path.join(folder, LABELS_FILE), "w") as file:
        json.dump({"kind": kind, "labels": list(labels), **settings}, file, indent=1, ensure_ascii=False)


def noted_labels(*checkpoints: str | os.PathLike | None) -> dict[str, Any] | None:
    """Reads what `note_labels` wrote in the first of some places that has it; None where none has.

    Args:
        *checkpoints: each a folder, a checkpoint in one, or None.

    Returns:
        ``kind``, ``labels``, the settings, and ``where``: the folder.

    Raises:
        ValueError: the file is damaged.
    """
    for place in checkpoints:
        if not place:
            continue
        folder = os.fspath(place) if os.path.isdir(place) else os.path.dirname(place)
        path = os.path.join(folder, LABELS_FILE)
        if os.path.exists(path):
            try:
                found = read_json_object(path)
                _check_kinds(found)
            except ValueError as error:
                reason = str(error).removeprefix(f"{path}: ")
                raise ValueError(f"{path} is damaged: {reason}; remove it, and say the labels by --labels") from None
            return found | {"where": folder}
    return None


def _check_kinds(found: Mapping[str, Any]) -> None:
    """Raises ValueError where what was noted is of another kind than `note_labels` writes."""
    labels = found.get("labels")
    if found.get("kind") not in KINDS:
        raise ValueError(f"kind is {found.get('kind')!r:.40}, expected one of {', '.join(KINDS)}")
    if not (isinstance(labels, list) and all(isinstance(name, str) for name in labels)):
        raise ValueError(f"labels are {labels!r:.40}, expected a list of texts")
    length = found.get("max_seq_length", 1)
    if type(length) is not int or length < 1:
        raise ValueError(f"max_seq_length is {length!r:.40}, expected a whole number from 1")
    version_2 = found.get("version_2_with_negative", False)
    if not isinstance(version_2, bool):
        raise ValueError(f"version_2_with_negative is {version_2!r:.40}, expected true or false")


def check_names(labels: Sequence[str]) -> None:
    """Stops where labels that a user named cannot be told apart.

    Raises:
        ValueError: one is empty, or is named twice.

    Example:
        >>> check_names(["good", "bad", "good"])
        Traceback (most recent call last):
        ...
        ValueError: the labels good, bad, good name 'good' twice
    """
    for place, label in enumerate(labels):
        if not label:
            raise ValueError(f"label {place + 1} of {', '.join(labels)} is empty")
        if label in labels[:place]:
            raise ValueError(f"the labels {', '.join(labels)} name {label!r} twice")


def check_labels(noted: Mapping[str, Any] | None, kind: str, labels: Sequence[str]) -> None:
    """Stops where a model would be used, or trained on, with other labels than it was trained with.

    Raises:
        ValueError: says which they were and which they are now; or a label is empty or named twice.
    """
    check_names(labels)
    if noted and (noted["labels"], noted["kind"]) != (list(labels), kind):
        before, now = (", ".join(names) or "none" for names in (noted["labels"], labels))
        raise ValueError(
            f"the model in {noted['where']} was trained with kind {noted['kind']} and the labels {before}; now they "
            f"are {kind}: {now}. Give --labels as they were, or another output_dir for a new model"
        )


def given_or_noted_labels(given: Sequence[str], noted: Mapping[str, Any] | None) -> list[str]:
    """Returns the labels that a user gave, else those that training noted; none where there are none.

    Raises:
        ValueError: they contradict each other, see `check_labels`.
    """
    if given and noted:
        check_labels(noted, noted["kind"], given)
    return list(given) or list((noted or {}).get("labels", []))


def labels_of_run(
    kind: str, labels: Sequence[str], output_dir: str, init_checkpoint: str | None, training: bool
) -> list[str]:
    """The labels of a run, which must be those that its model was trained with.

    Args:
        kind: see `note_labels`.
        labels: those given, or of the training file; empty where they are not known.
        output_dir: the folder of the run.
        init_checkpoint: what it begins with, or what is evaluated.
        training: whether the run is trained: what it begins with may have had other labels then.

    Raises:
        ValueError: they are others, or not known.
    """
    noted = noted_labels(output_dir, None if training else init_checkpoint)
    labels = list(labels or (noted["labels"] if noted and not training else ()))
    check_labels(noted, kind, labels)
    if not labels and kind not in ("regression", "choice"):
        raise ValueError(
            f"the labels are not known: {LABELS_FILE} is neither in {output_dir} nor beside init_checkpoint; "
            "give --labels in the order of training"
        )
    return labels
