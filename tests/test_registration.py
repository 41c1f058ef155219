"""What a new process finds after ``import tf_bert`` alone, whichever of tf_bert and Keras comes first."""

import ast
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.support import ROOT
from tf_bert import BertConfig
from tf_bert.layers.feed_forward import gelu
from tf_bert.models.bert import Bert
from tf_bert.registration import REGISTERED
from tf_bert.trainer.optimization import AdamWeightDecay
from tf_bert.trainer.schedules import NoamSchedule


def test_the_table_names_everything_that_is_registered():
    found = {}
    for path in (ROOT / "tf_bert").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if "register_keras_serializable" in "".join(map(ast.unparse, getattr(node, "decorator_list", ()))):
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                found.setdefault(module, set()).add(node.name)
    assert {module: set(names.split()) for module, names in REGISTERED.items()} == found


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Files that name a model, an optimizer and its schedule, and, in a plain Keras model, a function and a layer."""
    folder = tmp_path_factory.mktemp("saved")
    bert = Bert(BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
    bert.compile(AdamWeightDecay(NoamSchedule(8)))
    bert.save(folder / "bert.keras")
    inputs = keras.Input((4,))
    plain = keras.Model(inputs, keras.layers.Dense(3, activation=gelu)(inputs))
    plain.save(folder / "plain.keras")
    np.save(folder / "plain.npy", plain(np.ones((2, 4))))
    return folder


@pytest.mark.parametrize("imports", ["import tf_bert, keras", "import keras, tf_bert"])
def test_keras_loads_our_files_in_a_new_process(saved, imports):
    code = f"""
        {imports}
        import sys, numpy
        assert "tf_bert.models.bert" not in sys.modules
        bert = keras.saving.load_model("bert.keras")
        optimizer = bert.optimizer
        print(type(bert).__name__, type(optimizer).__name__, type(optimizer._learning_rate).__name__)
        plain = keras.saving.load_model("plain.keras")
        numpy.testing.assert_allclose(plain(numpy.ones((2, 4))), numpy.load("plain.npy"), rtol=1e-6)
        plain.save("again.keras")
        again = keras.saving.load_model("again.keras")
        numpy.testing.assert_array_equal(plain(numpy.ones((2, 4))), again(numpy.ones((2, 4))))
        assert type(bert) is keras.saving.get_registered_object("tf_bert>Bert")
    """
    code = "\n".join(line.strip() for line in code.splitlines())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=saved)
    assert done.stdout.split() == ["Bert", "AdamWeightDecay", "NoamSchedule"], done.stderr
