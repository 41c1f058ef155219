"""Curves of a run as a picture."""

import os
from collections.abc import Mapping

from tf_bert.training.callbacks import read_log


def plot_curves(
    output_dir: str | os.PathLike, png: str | os.PathLike, baselines: Mapping[str, float] | None = None
) -> None:
    """Draws loss, accuracies and learning rate of a run from its ``training.jsonl``.

    Args:
        output_dir: the folder of the run.
        png: where the picture goes.
        baselines: name -> accuracy, drawn as level lines beside the masked-LM accuracy.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the run has no log.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("the picture needs matplotlib: pip install 'tf_bert[plot]'") from None

    lines = read_log(output_dir)
    training = [line for line in lines if "eval" not in line]
    held_out = [{"step": line["step"], **line["eval"]} for line in lines if "eval" in line]
    if not training:
        raise ValueError(f"{os.fspath(output_dir)} has no training.jsonl with a line in it")

    figure = Figure(figsize=(12, 7.5), layout="constrained")
    axes = figure.subplots(2, 2)
    for place, name, title in (
        (axes[0, 0], "masked_lm_accuracy", "masked LM: share of masked words that are right"),
        (axes[0, 1], "masked_lm_loss", "masked LM: loss (nats)"),
        (axes[1, 0], "next_sentence_accuracy", "next sentence: share of pairs that are right"),
        (axes[1, 1], "learning_rate", "learning rate"),
    ):
        for label, series, style in (("training", training, "-"), ("held out", held_out, "o-")):
            points = [(line["step"], line[name]) for line in series if name in line]
            if points:
                place.plot(*zip(*points, strict=True), style, label=label, markersize=4, linewidth=1.5)
        place.set_title(title, fontsize=11)
        place.set_xlabel("step")
        place.grid(alpha=0.3)
        place.margins(x=0.02)
    for number, (name, accuracy) in enumerate((baselines or {}).items()):
        axes[0, 0].axhline(accuracy, linestyle="--", linewidth=1, color=f"C{number + 2}", label=f"counting: {name}")
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 1].set_ylim(bottom=0)
    for place in axes.flat[:3]:
        place.legend(fontsize=9)
    figure.savefig(png, dpi=110, format="png")
