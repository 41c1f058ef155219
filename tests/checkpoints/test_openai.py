"""GPT in the formats of OpenAI and of Hugging Face, against outputs of Hugging Face's models."""

import json
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from tests.support.checkpoints import openai_files
from tf_bert.checkpoints import names
from tf_bert.commands.main import main
from tf_bert.configs import GPTConfig
from tf_bert.models import convert, pretrained
from tf_bert.models.bert import Bert
from tf_bert.models.gpt import GPT

SIZES = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SIZES |= {"max_position_embeddings": 12}


def small(pre_norm: bool) -> GPT:
    """A GPT with every variable away from its start."""
    keras.utils.set_random_seed(1)
    model = GPT(GPTConfig(**SIZES, pre_norm=pre_norm, end_id=29 if pre_norm else None))
    rng = np.random.default_rng(2)
    for variable in model.weights:
        variable.assign(variable + 0.3 * rng.normal(size=variable.shape))
    return model


@pytest.fixture(scope="module")
def models():
    return {"gpt2": small(True), "gpt1": small(False)}


def values(model) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in names.model_variables(model).items()}


def assert_same(model, other):
    ours, theirs = values(model), values(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], name)


@pytest.fixture(scope="module")
def expected(golden):
    return dict(np.load(golden / "hf/gpt2/expected.npz"))


@pytest.fixture(scope="module")
def gpt2(golden):
    return GPT.from_checkpoint(golden / "hf/gpt2")


def test_gpt2_of_hugging_face(gpt2, expected):
    assert gpt2.load_report.missing == gpt2.load_report.unused == []
    inputs = {"input_ids": expected["input/input_ids"].astype("int32")}
    with tf.GradientTape() as tape:
        outputs = gpt2(inputs)
        losses, weights = gpt2.per_example_losses(inputs, outputs)["loss"], gpt2.loss_weights(inputs)["loss"]
        loss = tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)
    np.testing.assert_allclose(outputs["logits"], expected["output/logits"], atol=1e-5)
    np.testing.assert_allclose(loss, expected["output/lm_loss"], atol=1e-5)

    variables = names.model_variables(gpt2)
    fused = [variables[f"gpt/layer_1/attention/self/{name}/kernel"] for name in ("query", "key", "value")]
    table, *kernels = tape.gradient(loss, [variables[names.GPT_WORDS].value, *(v.value for v in fused)])
    np.testing.assert_allclose(tf.convert_to_tensor(table), expected["output/grad_wte"], atol=1e-5)
    np.testing.assert_allclose(np.concatenate(kernels, -1), expected["output/grad_h1_c_attn"], atol=1e-5)


def test_gpt2_of_openai_is_the_same(golden, gpt2):
    folder = golden / "hf/openai_gpt2_tf1"
    for path in (folder, folder / "model.ckpt", folder / "model.ckpt.index"):
        assert_same(gpt2, GPT.from_checkpoint(path))
    assert GPT.from_checkpoint(folder).config.end_id == 179


def test_gpt1_of_hugging_face(golden):
    model = GPT.from_checkpoint(golden / "hf/openai_gpt")
    assert model.load_report.missing == model.load_report.unused == [] and not model.config.pre_norm
    file = np.load(golden / "hf/openai_gpt/expected.npz")
    logits = model({"input_ids": file["input/input_ids"].astype("int32")})["logits"]
    np.testing.assert_allclose(logits, file["output/logits"], atol=1e-5)


@pytest.mark.parametrize("kind", ["gpt2", "gpt1"])
def test_what_is_written_is_what_was_read(golden, kind, tmp_path):
    """Name for name and bit for bit the file that Hugging Face's library wrote, and its settings."""
    source = golden / "hf" / {"gpt2": "gpt2", "gpt1": "openai_gpt"}[kind]
    GPT.from_checkpoint(source).save_checkpoint(tmp_path)
    theirs, ours = load_file(source / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert theirs.keys() == ours.keys()
    for name in theirs:
        np.testing.assert_array_equal(theirs[name], ours[name], name)
    their_settings, our_settings = (json.loads((f / "config.json").read_text()) for f in (source, tmp_path))
    assert their_settings.items() <= our_settings.items()


def test_a_tensorflow_1_checkpoint_as_openai_writes_it(golden, gpt2, tmp_path):
    convert.convert(golden / "hf/gpt2", tmp_path, "openai")
    source = golden / "hf/openai_gpt2_tf1"
    assert json.loads((tmp_path / "hparams.json").read_text()) == json.loads((source / "hparams.json").read_text())
    theirs, ours = (tf.train.load_checkpoint(str(folder / "model.ckpt")) for folder in (source, tmp_path))
    assert theirs.get_variable_to_shape_map() == ours.get_variable_to_shape_map()
    for name in theirs.get_variable_to_shape_map():
        np.testing.assert_array_equal(theirs.get_tensor(name), ours.get_tensor(name), name)
    # OpenAI's code asks for the latest checkpoint of the folder.
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt")


def test_a_ring_of_formats_keeps_bits_and_vocabulary(models, tmp_path):
    first = tmp_path / "0"
    models["gpt2"].save_checkpoint(first, "openai")
    (first / "encoder.json").write_text(json.dumps({"a": 0, "<|endoftext|>": 29}))
    (first / "vocab.bpe").write_text("#version: 0.2\na b\n")
    ring = ["1", "2.keras", "3", "4.weights.h5", "5"]
    kinds = [None, None, "openai", None, None]
    for number, (target, kind) in enumerate(zip(ring, kinds, strict=True)):
        source = tmp_path / ["0", *ring][number]
        assert main(["convert", str(source), str(tmp_path / target), *([f"--format={kind}"] if kind else [])]) == 0
        if number in (1, 3):  # the vocabulary lies in the folder of the file
            assert (tmp_path / "encoder.json").exists()
    last = GPT.from_checkpoint(tmp_path / "5")
    assert_same(models["gpt2"], last)
    assert last.config.end_id == 29
    assert (tmp_path / "5/hparams.json").exists() and (tmp_path / "1/config.json").exists()
    for folder, files in (("1", ("vocab.json", "merges.txt")), ("5", ("encoder.json", "vocab.bpe"))):
        for name, original in zip(files, ("encoder.json", "vocab.bpe"), strict=True):
            assert (tmp_path / folder / name).read_bytes() == (first / original).read_bytes()


def test_gpt1_of_openai(models, tmp_path):
    model = models["gpt1"]
    openai_files(model, tmp_path / "model")
    with pytest.raises(ValueError, match="num_attention_heads"):  # heads are 64 wide there, unless we are told
        GPT.from_checkpoint(tmp_path / "model", GPTConfig(**SIZES | {"num_attention_heads": 3}))
    loaded = GPT.from_checkpoint(tmp_path / "model", GPTConfig(**SIZES))
    assert_same(model, loaded)
    by_shapes = GPT.from_checkpoint(tmp_path / "model")
    assert by_shapes.config.num_attention_heads == 1 and by_shapes.config.intermediate_size == 32
    (tmp_path / "model/params_7.npy").unlink()
    with pytest.raises(ValueError, match="9 files .* is one of them missing"):
        GPT.from_checkpoint(tmp_path / "model")


@pytest.mark.parametrize("kind", ["gpt2", "gpt1"])
def test_folders_of_hugging_face_as_they_are_found(models, kind, tmp_path):
    """Without the prefix, with buffers of masks, and with a second copy of the table."""
    models[kind].save_checkpoint(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    bare = {name.removeprefix("transformer."): value for name, value in stored.items()}
    words = bare["wte.weight" if kind == "gpt2" else "tokens_embed.weight"]
    bare |= {"h.0.attn.bias": np.tril(np.ones((1, 1, 12, 12), "float32")), "h.0.attn.masked_bias": np.float32([-1e4])}
    save_file(bare | {"lm_head.weight": words.copy()}, tmp_path / "model.safetensors")
    loaded = GPT.from_checkpoint(tmp_path)
    assert_same(models[kind], loaded)
    assert loaded.load_report.unused == []
    save_file(bare | {"lm_head.weight": words + 1}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"lm_head.weight is not the same as .*embed|wte"):
        GPT.from_checkpoint(tmp_path)


def test_half_precision(models, tmp_path):
    models["gpt2"].save_checkpoint(tmp_path / "whole")
    for flag, dtype in (("half", "float16"), ("bfloat16", "bfloat16")):
        assert main(["convert", str(tmp_path / "whole"), str(tmp_path / flag), f"--{flag}"]) == 0
        reader = pretrained.open_checkpoint(tmp_path / flag).reader
        assert {np.dtype(dtype).name for dtype in reader.dtypes.values()} == {dtype}


def write_settings(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({"activation_function": "silu"}, "activation_function is 'silu'"),
        ({"n_layer": 3}, "has no value for 16 variables"),
        ({"n_embd": 16}, r"does not fit the model.*\(30, 8\) there and \(30, 16\)"),
        ({"n_positions": 24}, r"\(12, 8\) there and \(24, 8\)"),
        ({"n_head": 3}, "not a multiple"),
    ],
)
def test_settings_that_do_not_fit_are_named(models, settings, message, tmp_path):
    models["gpt2"].save_checkpoint(tmp_path)
    write_settings(tmp_path, **settings)
    with pytest.raises(ValueError, match=message):
        GPT.from_checkpoint(tmp_path)


def test_an_end_beyond_the_table_is_none(models, tmp_path):
    models["gpt2"].save_checkpoint(tmp_path)
    write_settings(tmp_path, eos_token_id=50256)
    assert GPT.from_checkpoint(tmp_path).config.end_id is None


def test_mistakes_are_named(models, tmp_path, capsys):
    models["gpt1"].save_checkpoint(tmp_path / "gpt1")
    models["gpt2"].save_checkpoint(tmp_path / "gpt2", "openai")
    with pytest.raises(ValueError, match="pre_norm"):
        models["gpt1"].save_checkpoint(tmp_path / "x", "openai")
    with pytest.raises(ValueError, match="there is openai"):
        models["gpt2"].save_checkpoint(tmp_path / "x", "google")
    with pytest.raises(ValueError, match="holds a GPT, from which no Bert"):
        Bert.from_checkpoint(tmp_path / "gpt1")
    with pytest.raises(ValueError, match="locally banded"):
        banded = GPT(GPTConfig(**SIZES, pre_norm=True, attention_window=3))
        banded.save_checkpoint(tmp_path / "x")
    (tmp_path / "gpt2/encoder.json").write_text(json.dumps({str(i): i for i in range(31)}))
    with pytest.raises(ValueError, match="31 entries, but the table of words has 30 rows"):
        GPT.from_checkpoint(tmp_path / "gpt2")
    (tmp_path / "gpt2/hparams.json").write_text("{}")
    assert main(["convert", str(tmp_path / "gpt2"), str(tmp_path / "y")]) == 1
    assert "n_vocab" in capsys.readouterr().err


def test_no_warning_without_need(models, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models["gpt2"].save_checkpoint(tmp_path)
        GPT.from_checkpoint(tmp_path)
