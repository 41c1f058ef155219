"""The contract: what a Keras user may do with every model and layer, and what happens then.

A row is a function in a module ``rows_TOPIC.py`` of this folder, marked with `behaviour`. It is given a `Subject` (see
``models.py``, ``layers.py``), does one thing as a user would, and asserts that the outcome is right, with values::

    @behaviour("Compile", "an optimizer by name", TRAINED)
    def optimizer_by_name(subject):
        model = subject.make()
        model.compile("adam", run_eagerly=True)
        model.fit(*subject.xy(), verbose=0)

To add rows, write them into a new module ``rows_TOPIC.py``: nothing else has to be changed. Then run
``python -m tests.keras_contract.page``, which writes the table ``docs/keras_contract.md``.

A cell of the table is "works" (the function returned), or "refused" where ``refused`` names the subject: then the
function has to raise an error of one plain line in which the given pattern is found. Nothing is ignored: an outcome
that is neither fails the test. A row costs CPU time once for each of its subjects; the fast suite has about 90 seconds
for all rows. What is not about the graph is tried with ``run_eagerly=True`` (0.3 s instead of 2), what changes nothing
with ``subject.compiled()``; ``slow`` names the subjects (or True: all) that are tried in the slow suite only.

``anchors`` says whether the row makes sense for a plain `keras.Model` and for keras-hub: they are tried by
``python -m tests.keras_contract.anchors``, which says where keras-hub is needed, and keeps what it found.
"""

import dataclasses
import importlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest

LONGEST_MESSAGE = 400


@dataclasses.dataclass(frozen=True)
class Behaviour:
    """A row of the contract, see the module."""

    topic: str
    title: str
    check: Callable
    subjects: tuple[str, ...]
    refused: Mapping[str, str]
    slow: frozenset[str]
    anchors: bool

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.check.__name__

    def run(self, subject) -> None:
        """Tries the row with a subject; raises where the outcome is not the one that the table shows."""
        if subject.name not in self.refused:
            return self.check(subject)
        with pytest.raises(Exception, match=self.refused[subject.name]) as caught:
            self.check(subject)
        return assert_plain(caught.value)


def assert_plain(error: BaseException) -> None:
    """Asserts that an error has one plain line, without colours and values of tensors."""
    message = str(error.args[0] if isinstance(error, KeyError) else error)
    assert isinstance(error, ValueError | TypeError | KeyError | AttributeError | FileNotFoundError), repr(error)
    assert "\n" not in message and "\x1b" not in message, message
    assert len(message) <= LONGEST_MESSAGE, message


ROWS: list[Behaviour] = []


def behaviour(
    topic: str,
    title: str,
    subjects: Collection[str],
    refused: Mapping[str, str] | None = None,
    slow: Collection[str] | bool = (),
    anchors: bool = False,
) -> Callable:
    """Marks a function as a row of the contract.

    Args:
        topic: heading of a part of the table.
        title: what the user does, in a few words.
        subjects: names of the models and layers for which it makes sense.
        refused: subject -> pattern of the message, for those that refuse it.
        slow: subjects that are tried in the slow suite only; True for all.
        anchors: whether plain Keras and keras-hub are tried too.
    """
    refused = dict(refused or {})
    slow = frozenset(subjects if slow is True else () if slow is False else slow)
    unknown = (set(refused) | slow) - set(subjects)
    assert not unknown, f"{title}: {sorted(unknown)} are no subjects of this row"

    def mark(check: Callable) -> Callable:
        assert check.__name__ not in [row.name for row in ROWS], f"two rows are named {check.__name__}"
        ROWS.append(Behaviour(topic, title, check, tuple(subjects), refused, slow, anchors))
        return check

    return mark


def all_rows() -> list[Behaviour]:
    """The rows of all modules."""
    for path in sorted(Path(__file__).parent.glob("rows_*.py")):
        importlib.import_module(f"tests.keras_contract.{path.stem}")
    return sorted(ROWS, key=lambda row: row.check.__module__)
