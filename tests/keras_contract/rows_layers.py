"""The contract of single layers."""

import numpy as np
from keras import ops, tree

from tests.keras_contract.behaviours import behaviour
from tests.keras_contract.layers import EVERY_LAYER


@behaviour("Layers", "a call with arrays", EVERY_LAYER)
def layer_call(subject):
    outputs = [x for x in tree.flatten(subject.make()(*subject.inputs.values())) if x is not None]
    assert all(np.isfinite(ops.convert_to_numpy(x).astype("float64")).all() for x in outputs)
