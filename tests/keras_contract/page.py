"""Writes ``docs/keras_contract.md``, the table of the contract: ``python -m tests.keras_contract.page``."""

import json
from pathlib import Path

from tests.keras_contract.behaviours import Behaviour, all_rows
from tests.keras_contract.layers import EVERY_LAYER
from tests.keras_contract.models import MODELS
from tests.support import ROOT

PAGE = ROOT / "docs" / "keras_contract.md"
FOUND = Path(__file__).parent / "anchors.json"
HEAD = """# What a Keras user may do with these models

Each row is a test in `tests/keras_contract/`; `python -m tests.keras_contract.page` makes this page of them.

- **yes**: works, with right values.
- **no** and a number: refused with one line, which is below the table.
- empty: makes no sense for this model, such as texts for a model without a tokenizer.

Where there are columns `keras.Model` and `keras-hub`, the same test ran on a plain functional model and on keras-hub
0.32's `BertTextClassifier`.
"""
ANCHORS = ("keras.Model", "keras-hub")


def anchors() -> dict[str, dict[str, str]]:
    """What the anchors did: row -> anchor -> "works" or the first line of the error."""
    return json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {}


def page() -> str:
    """The text of the page."""
    parts, found = [HEAD], anchors()
    rows = all_rows()
    for topic in sorted({row.topic for row in rows}):
        parts.append(f"\n## {topic}\n\n" + table([row for row in rows if row.topic == topic], found))
    return "".join(parts)


def table(rows: list[Behaviour], found: dict[str, dict[str, str]]) -> str:
    """The rows of one topic, and what is said where they are refused."""
    used = {name for row in rows for name in row.subjects}
    columns = [name for name in (*MODELS, *EVERY_LAYER) if name in used]
    if any(row.anchors and row.name in found for row in rows):
        columns += ANCHORS
    notes = []

    def cell(row: Behaviour, column: str) -> str:
        if column in ANCHORS:
            outcome = found.get(row.name, {}).get(column)
            return "" if outcome is None else "yes" if outcome == "works" else "no"
        if column not in row.subjects:
            return ""
        if column not in row.refused:
            return "yes"
        message = row.refused[column].replace("\\", "")
        if message not in notes:
            notes.append(message)
        return f"no {notes.index(message) + 1}"

    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {row.title} | " + " | ".join(cell(row, column) for column in columns) + " |" for row in rows]
    lines += [""] if notes else []
    lines += [f"{number}. {message}" for number, message in enumerate(notes, 1)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
