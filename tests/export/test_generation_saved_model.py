"""A GPT inside a graph, from texts to what follows them: stop texts."""

import pytest
import tensorflow as tf

from tests.support.scripted_gpt import scripted_gpt
from tf_bert.commands import export as command
from tf_bert.decoding.beam import BeamSearch
from tf_bert.decoding.constraints import Constraints
from tf_bert.export.generation_saved_model import TextGenerator
from tf_bert.tokenization.byte_pair import GPT1Tokenizer, GPT2Tokenizer
from tf_bert.tokenization.byte_pair_training import train_byte_pairs, train_lower_cased_pairs


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tokenizers, and GPTs that write " stands bravely" after "the sun"."""
    folder = tmp_path_factory.mktemp("gpt")
    train_byte_pairs(["the sun stands bravely"] * 3, 280).save(folder / "gpt2")
    train_lower_cased_pairs(["the sun stands bravely"] * 3, 40).save(folder / "gpt1")
    found = {}
    for name, kind in (("gpt1", GPT1Tokenizer), ("gpt2", GPT2Tokenizer)):
        tokenizer = kind(folder / name)
        first = len(tokenizer.tokenize("the sun")) - 1
        found[name] = scripted_gpt(tokenizer, " stands bravely", first), tokenizer
    found["gpt2"][0].save_checkpoint(folder / "gpt2")
    return found | {"folder": folder}


@pytest.mark.parametrize(
    ("kind", "search"),
    [
        ("gpt1", BeamSearch(2)),
        pytest.param("gpt1", None, marks=pytest.mark.slow),
        pytest.param("gpt2", BeamSearch(2), marks=pytest.mark.slow),
    ],
)
def test_stop_texts_in_the_graph(made, kind, search):
    model, tokenizer = made[kind]
    generator = TextGenerator(model, tokenizer, search, 12, constraints=Constraints(stop_texts=["ds b", "bravely s"]))
    found = generator(tf.constant(["the sun", "", "the sun"]))["texts"].numpy()[:, 0].tolist()
    expected = b"stands b" if kind == "gpt1" else b" stands b"
    assert found == [expected, b"", expected]


def test_saved_by_the_command_and_loaded_without_our_code(made, tmp_path, capsys):
    path = f"{tmp_path}/saved"
    assert command.main([f"{made['folder']}/gpt2", path, "--max_length=12", "--stop=ands|xyz"]) == 0
    found = tf.saved_model.load(path)(tf.constant(["the sun", "", "the sun"]))["texts"].numpy()
    assert found.tolist() == [[b" stands"], [b""], [b" stands"]]
