"""Draws pictures with matplotlib (``pip install 'tf_bert[plot]'``)."""

import contextlib
import io
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tf_bert.files import atomic_writer
from tf_bert.visualization.fonts import families_for


@contextlib.contextmanager
def figure(path: str | os.PathLike, width: float = 6.0, height: float = 4.0) -> Iterator:
    """Axes to draw on; the picture is written when the block ends, as the ending of ``path`` says.

    Args:
        path: such as ``scores.png`` or ``scores.svg``.
        width, height: in inches, at 100 points an inch.

    Raises:
        ImportError: matplotlib is not installed; says how to.
        ValueError: matplotlib does not write such files.
    """
    try:
        from matplotlib.figure import Figure  # without pyplot: no window, no global state
        from matplotlib.text import Text
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'tf_bert[plot]'") from None
    drawn = Figure(figsize=(width, height), dpi=100, layout="constrained")
    yield drawn.add_subplot()
    texts = drawn.findobj(Text)
    families = families_for(text.get_text() for text in texts)
    for text in texts:
        text.set_fontfamily(families)
    written, ending = io.BytesIO(), os.path.splitext(os.fspath(path))[1].lstrip(".").lower() or "png"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # said once, above
        drawn.savefig(written, format=ending)
    with atomic_writer(path) as file:
        file.write(written.getvalue())


def plot_matrix(
    path: str | os.PathLike,
    weights,
    columns: Sequence[str],
    rows: Sequence[str],
    title: str = "",
    column_title: str = "source",
    row_title: str = "target",
) -> None:
    """Draws attention: a dark square is a weight of 1.

    Args:
        path: the picture.
        weights: [T, S].
        columns: S words, those that are looked at.
        rows: T words, those that look.
        title: above the picture.
        column_title: what the columns are.
        row_title: what the rows are.
    """
    weights = np.asarray(weights, "float32")
    if weights.shape != (len(rows), len(columns)):
        raise ValueError(f"weights have shape {weights.shape}, for {len(rows)} rows and {len(columns)} columns")
    with figure(path, 1.6 + 0.26 * len(columns), 1.4 + 0.26 * len(rows)) as axes:
        axes.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
        turned = any(len(word) > 2 for word in columns)
        axes.set_xticks(range(len(columns)), _shown(columns), rotation=90 if turned else 0, fontsize=9)
        axes.set_yticks(range(len(rows)), _shown(rows), fontsize=9)
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.set_xlabel(column_title)
        axes.set_ylabel(row_title)
        axes.tick_params(length=0)
        if title:
            axes.set_title(title, fontsize=10)


def plot_attention(
    path: str | os.PathLike,
    maps: Sequence[Any],
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Draws one matrix of a model's attention.

    Args:
        path: the picture.
        maps: each a `tf_bert.visualization.attention.AttentionMap`.
        kind: the name of a map; by default the first.
        layer: from 0; by default the last, for attention to a source the last but one, which aligns words best (Garg
            et al. 2019, section 4.2).
        head: from 0; by default the mean of all.

    Raises:
        ValueError: the model has no such attention, layer or head.
    """
    chosen = next((some for some in maps if kind in (None, some.name)), None)
    if chosen is None:
        raise ValueError(f"this model has no {kind} attention, only {', '.join(some.name for some in maps)}")
    is_cross = chosen.name == "cross"
    if layer is None and is_cross:
        layer = max(len(chosen.layers) - 2, 0)
    titles = ("source", "target") if is_cross else ("looked at", "looks")
    plot_matrix(path, chosen.matrix(layer, head), chosen.columns, chosen.rows, "", *titles)


def plot_lines(
    path: str | os.PathLike, lines: Mapping[str, Mapping[float, float]], x_title: str, y_title: str, title: str = ""
) -> None:
    """Draws one line for each name; shares between 0 and 1 are shown in per cent."""
    with figure(path) as axes:
        for (name, points), marker in zip(lines.items(), "os^Dvp*" * len(lines), strict=False):
            axes.plot(list(points), [100 * y for y in points.values()], marker=marker, markersize=4, label=name)
        axes.set_xlabel(x_title)
        axes.set_ylabel(y_title)
        axes.set_ylim(-3, 103)
        axes.grid(alpha=0.3)
        axes.legend()
        if title:
            axes.set_title(title, fontsize=10)


def plot_senses(
    path: str | os.PathLike, figures: Mapping[tuple[str, str], Mapping[str, tuple[float, float, float]]]
) -> None:
    """Draws how alike a word's vectors are in texts of the same sense (solid) and of different senses (dashed).

    Args:
        path: the picture.
        figures: for each model and word, what `tf_bert.visualization.senses.separation` returns; the words are the same
            for each model.
    """
    models, words = (list(dict.fromkeys(column)) for column in zip(*figures, strict=True))
    layers = {model: list(figures[model, words[0]]) for model in models}
    with figure(path, 1.5 + 0.55 * sum(1 + len(names) for names in layers.values()), 4.2) as axes:
        ticks, start = [], 0
        for model, names in layers.items():
            places = range(start, start + len(names))
            for number, word in enumerate(words):
                for column, style in ((0, "o-"), (1, "o--")):
                    points = [figures[model, word][name][column] for name in names]
                    label = word if not start and not column else None
                    axes.plot(places, points, style, color=f"C{number}", markersize=4, label=label)
            axes.text(start, 1.03, _shown([model])[0], fontsize=9)
            ticks += zip(places, names, strict=True)
            start += len(names) + 1
        axes.set_xticks(*zip(*ticks, strict=True), fontsize=8, rotation=30)
        axes.set_ylabel("cosine: same sense (solid), other sense (dashed)", fontsize=9)
        axes.set_ylim(top=1.1)
        axes.grid(alpha=0.3, axis="y")
        axes.legend(loc="lower left")


def plot_positions(path: str | os.PathLike, table, title: str = "") -> None:
    """Draws positional encodings [positions, H], a row for each position."""
    table = np.asarray(table, "float32")
    with figure(path, 7.0, 4.5) as axes:
        limit = float(np.abs(table).max()) or 1.0
        image = axes.imshow(table, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
        axes.set_xlabel("dimension")
        axes.set_ylabel("position")
        axes.figure.colorbar(image, ax=axes)
        if title:
            axes.set_title(title, fontsize=10)


def _shown(words: Sequence[str]) -> list[str]:
    """Words as they are drawn: matplotlib takes ``$`` for mathematics."""
    return [word.replace("$", r"\$").replace("\u2581", "\u2423") for word in words]
