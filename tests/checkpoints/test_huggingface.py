"""Hugging Face's folders: the index decides tensor by tensor what is read from which file."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.support.checkpoints import copy_of
from tf_bert.checkpoints import huggingface
from tf_bert.models import pretrained

WORDS = "bert.embeddings.word_embeddings.weight"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def source(tmp_path):
    return copy_of("huggingface", tmp_path / "source")


def split(source, change=None):
    """Cuts weights into two shards, the first with the table of words; ``change`` gets both and the index."""
    tensors = load_file(source / "model.safetensors")
    os.remove(source / "model.safetensors")
    first = {name: tensors.pop(name) for name in (WORDS, "bert.pooler.dense.bias")}
    weight_map = dict.fromkeys(first, SHARDS[0]) | dict.fromkeys(tensors, SHARDS[1])
    if change is not None:
        change(first, tensors, weight_map)
    for file, shard in zip(SHARDS, (first, tensors), strict=True):
        save_file(shard, source / file)
    (source / huggingface.INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return source


def test_the_index_decides_where_two_shards_hold_a_tensor(source):
    expected = load_file(source / "model.safetensors")[WORDS]

    def change(first, second, weight_map):
        second[WORDS] = np.zeros_like(first[WORDS])

    with pytest.warns(UserWarning, match=rf"{SHARDS[1]} holds tensors that .* gives to another file .*: {WORDS}"):
        reader = pretrained.open_checkpoint(split(source, change)).reader
    np.testing.assert_array_equal(reader.read("bert/embeddings/word_embeddings"), expected)


def test_the_index_may_name_the_later_shard(source):
    expected = load_file(source / "model.safetensors")[WORDS]

    def change(first, second, weight_map):
        second[WORDS], weight_map[WORDS] = first[WORDS], SHARDS[1]
        first[WORDS] = np.zeros_like(first[WORDS])

    with pytest.warns(UserWarning, match=rf"{SHARDS[0]} holds tensors"):
        reader = pretrained.open_checkpoint(split(source, change)).reader
    np.testing.assert_array_equal(reader.read("bert/embeddings/word_embeddings"), expected)


def test_a_tensor_that_its_shard_lacks(source):
    def change(first, second, weight_map):
        second[WORDS] = first.pop(WORDS)

    with pytest.raises(ValueError, match=rf"says that {WORDS} is in {SHARDS[0]}, and it is not there"):
        pretrained.open_checkpoint(split(source, change))


def test_tensors_that_the_index_does_not_name_are_not_read(source):
    def change(first, second, weight_map):
        second["classifier.weight"] = np.zeros((3, 8), "float32")

    with pytest.warns(UserWarning, match=r"does not name; they are not read: classifier.weight"):
        assert "output_weights" not in pretrained.open_checkpoint(split(source, change)).reader.shapes


def test_a_tensor_of_the_model_that_the_index_does_not_name(source):
    def change(first, second, weight_map):
        del weight_map[WORDS]

    with (
        pytest.warns(UserWarning, match="they are not read"),
        pytest.raises(ValueError, match="no value for 1 variables of the encoder: bert/embeddings/word_embeddings"),
    ):
        pretrained.load_model(split(source, change))


@pytest.mark.parametrize(
    "index, said",
    [
        ('{"weight_map": {"a": 3}}', "names 3, which is no safetensors file of this folder"),
        ('{"weight_map": {"a": null}}', "names None, which is no safetensors file"),
        ('{"weight_map": {"a": ["b"]}}', "which is no safetensors file"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "names '../x.safetensors', which is no safetensors file"),
        ('{"weight_map": {"a": "/tmp/x.safetensors"}}', "which is no safetensors file"),
        ('{"weight_map": {"a": "pytorch_model.bin"}}', "which is no safetensors file"),
        ('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', "has the name 'a' twice"),
        ('{"weight_map": []}', "no weight_map"),
        ('{"weight_map": {}}', "no weight_map"),
        ('{"metadata": {}}', "no weight_map"),
        ("[" * 200_000, "is not an index of safetensors files"),
        ("", "is not an index of safetensors files"),
    ],
)
def test_an_index_that_is_none(source, index, said):
    os.remove(source / "model.safetensors")
    (source / huggingface.INDEX).write_text(index)
    with pytest.raises(ValueError, match=f"{huggingface.INDEX} .*{said}"):
        pretrained.open_checkpoint(source)


def test_with_one_file_and_an_index_the_file_is_read(source):
    (source / huggingface.INDEX).write_text('{"weight_map": {"a": "b.safetensors"}}')
    with pytest.warns(UserWarning, match=r"has model.safetensors and .*: the first is read"):
        assert len(pretrained.open_checkpoint(source).reader.shapes) == 46


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_folders_in_the_place_of_files(source, file):
    os.remove(source / file)
    (source / file).mkdir()
    with pytest.raises(IsADirectoryError, match=f"{file} is a directory"):
        pretrained.open_checkpoint(source)
