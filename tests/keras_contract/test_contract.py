"""Every row of the contract with every model and layer for which it makes sense; see ``behaviours.py``."""

import pytest

from tests.keras_contract.behaviours import all_rows
from tests.keras_contract.layers import LAYERS
from tests.keras_contract.models import SUBJECTS

BY_NAME = {subject.name: subject for subject in [*SUBJECTS, *LAYERS]}


CELLS = [(row, name) for row in all_rows() for name in row.subjects]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        pytest.param(row, name, id=f"{row.name}-{name}", marks=[pytest.mark.slow] if name in row.slow else [])
        for row, name in CELLS
    ],
)
def test_cell(row, name):
    row.run(BY_NAME[name])
