"""What a classifier reads, and what it found: its scores, the original's figures, and the file of its predictions."""

import os
from collections.abc import Mapping, Sequence

import numpy as np

from tf_bert.data.finetuning.classification import InputFeatures
from tf_bert.data.finetuning.glue_scores import METRICS
from tf_bert.files import atomic_writer
from tf_bert.progress import Progress
from tf_bert.trainer.prediction import SEQUENCES, needs_fixed_length, predict_in_order, stack


def columns_of(features: Sequence[InputFeatures], kind: str = "single") -> dict[str, np.ndarray]:
    """The inputs of all examples, int32 [N, S], and ``label_ids``: [N], or [N, labels] of kind ``"multi"``."""
    dtype = np.float32 if kind == "regression" else np.int32
    return stack(features) | {"label_ids": np.array([feature.label_id for feature in features], dtype)}


def predict_logits(model, columns: Mapping[str, np.ndarray], batch_size: int) -> np.ndarray:
    """The scores of all examples in order, [N, labels] or [N, choices].

    Args:
        model: a compiled classifier, of BERT or GPT.
        columns: int32 [N, S] or [N, C, S]; what is no input of the model may be among them.
        batch_size: examples in a batch.
    """
    inputs = {name: columns[name] for name in SEQUENCES if name in columns}
    with Progress("predicting", len(inputs["input_ids"]), "examples") as progress:
        fixed = needs_fixed_length(model)
        found = predict_in_order(model, inputs, batch_size, ["logits"], fixed, progress=progress.update)
    return found["logits"].astype(np.float32)


def evaluation_figures(
    logits: np.ndarray, labels: np.ndarray, batch_size: int, kind: str, metrics: Sequence[str] = ()
) -> dict[str, float]:
    """The original's ``eval_accuracy``, ``eval_loss`` and ``loss`` (the mean over batches), and a task's own figures.

    Args:
        logits: [N, labels].
        labels: [N], or [N, labels] where an example may have several.
        batch_size: of the batches over which ``loss`` is a mean.
        kind: ``"single"``, ``"multi"``, ``"regression"`` or ``"choice"``.
        metrics: keys of `tf_bert.data.finetuning.glue_scores.METRICS`.
    """
    rows = np.arange(len(logits))
    if kind in ("single", "choice"):
        shifted = logits - logits.max(axis=1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[rows, labels]
        predictions = logits.argmax(axis=1)
        figures = {"eval_accuracy": np.mean(predictions == labels, dtype=np.float64)}
    elif kind == "multi":
        losses = (np.logaddexp(0, logits) - logits * labels).mean(axis=1)
        predictions = (logits > 0).astype(int)
        figures = {"eval_accuracy": np.mean(np.all(predictions == labels, axis=1))}
    else:
        losses, predictions, figures = (logits[:, 0] - labels) ** 2, logits[:, 0], {}
    batches = [losses[first : first + batch_size].mean() for first in range(0, len(losses), batch_size)]
    figures |= {"eval_loss": np.mean(losses), "loss": np.mean(batches)}
    figures |= {f"eval_{name}": METRICS[name](labels, predictions) for name in metrics}
    return {name: np.float32(value) for name, value in figures.items()}


def write_test_results(path: str | os.PathLike, logits: np.ndarray, kind: str) -> None:
    """Writes a line for each example: the probabilities of the labels, or the number, separated by tabs."""
    if kind in ("single", "choice"):
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        values = exponentials / exponentials.sum(axis=1, keepdims=True)
    else:
        values = 1.0 / (1.0 + np.exp(-logits)) if kind == "multi" else logits
    with atomic_writer(path, "w") as file:
        for row in values:
            file.write("\t".join(str(value) for value in row) + "\n")
