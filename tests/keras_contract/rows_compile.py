"""The contract of ``compile``."""

import numpy as np

from tests.keras_contract.behaviours import behaviour
from tests.keras_contract.models import TRAINED


@behaviour("Compile", "an optimizer by name", TRAINED, anchors=True)
def optimizer_by_name(subject):
    model = subject.make()
    model.compile("adam", run_eagerly=True)
    history = model.fit(*subject.xy(), verbose=0).history
    assert np.isfinite(history["loss"]).all()
