"""What a checkpoint says of itself is compared with its weights before anything is built, in every format."""

import json
import resource
import warnings

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.support.checkpoints import CHECKPOINTS, CONFIG, change_settings, copy_of
from tf_bert import Bert, BertConfig
from tf_bert.checkpoints import google
from tf_bert.commands.main import main
from tf_bert.models import convert, pretrained

OTHER_NAMES = {  # ours -> the names in hparams.json and in Hugging Face's config.json of GPTs
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
    "hidden_act": "activation_function",
}


def settings_of(name: str, setting: str) -> str | None:
    """How a setting is called in a format; None where it does not say it."""
    if name == "gpt2":
        return {"max_position_embeddings": "n_ctx", "vocab_size": "n_vocab"}.get(
            setting, OTHER_NAMES.get(setting) if setting not in ("intermediate_size", "hidden_act") else None
        )
    if name.endswith("_huggingface"):
        if setting == "type_vocab_size" or (name.startswith("gpt1") and setting == "intermediate_size"):
            return None
        other = OTHER_NAMES.get(setting, setting)
        return "afn" if name.startswith("gpt1") and setting == "hidden_act" else other
    return setting


@pytest.fixture
def little_memory():
    """Makes a big allocation fail at once, as it should never be tried."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def convert_error(opened, tmp_path, capsys) -> str:
    """The one line with which converting ends; nothing is written."""
    capsys.readouterr()
    assert main(["convert", str(opened), str(tmp_path / "out")]) == 1
    lines = capsys.readouterr().err.splitlines()
    error = lines[-1]
    assert all(": warning: " in line for line in lines[:-1]) and len(error) < 700
    assert not (tmp_path / "out").exists()
    return error


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize(
    "setting, value",
    [
        ("hidden_size", 10**9),
        ("intermediate_size", 10**15),
        ("num_hidden_layers", 10**6),
        ("num_hidden_layers", 3),
        ("num_hidden_layers", 1),
        ("vocab_size", 10**9),
        ("vocab_size", 13),
        ("max_position_embeddings", 10**9),
        ("type_vocab_size", 7),
        ("num_attention_heads", 3),
    ],
)
def test_sizes_that_the_weights_do_not_have(name, setting, value, tmp_path, capsys, little_memory):
    there = settings_of(name, setting)
    if there is None:
        return
    opened = copy_of(name, tmp_path / "changed")
    change_settings(name, opened, **{there: value})
    error = convert_error(opened, tmp_path, capsys)
    assert str(value) in error and setting in error, error


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize(
    "setting, value",
    [
        ("hidden_size", "8"),
        ("hidden_size", None),
        ("hidden_size", [8]),
        ("hidden_size", 0),
        ("num_hidden_layers", True),
        ("num_attention_heads", -2),
        ("hidden_act", "swish"),
        ("hidden_act", ["gelu"]),
        ("hidden_act", {}),
        ("initializer_range", float("inf")),
        ("initializer_range", "0.02"),
        ("architectures", ["BertForQuestionAnswering"]),
    ],
)
def test_settings_of_the_wrong_kind(name, setting, value, tmp_path, capsys):
    there = settings_of(name, setting)
    if there is None or (setting == "architectures" and name != "weights"):
        return  # elsewhere an architecture is only a wish: a head without weights starts fresh, with a warning
    if setting == "initializer_range" and name == "gpt2":
        return
    opened = copy_of(name, tmp_path / "changed")
    change_settings(name, opened, **{there: value})
    assert str(opened.parent if opened.suffix else opened) in convert_error(opened, tmp_path, capsys)


NO_ARCHITECTURES = [5, [], [[]], {"a": 1}, "BertModel", [None], ["Unknown"]]


@pytest.mark.parametrize(
    "name, value", [*(("google", value) for value in NO_ARCHITECTURES), ("huggingface", [[]]), ("keras", [[]])]
)
def test_an_architecture_that_is_none_is_not_believed(name, value, tmp_path):
    opened = copy_of(name, tmp_path / "changed")
    change_settings(name, opened, architectures=value)
    assert pretrained.open_checkpoint(opened).architecture == "BertForPreTraining"


def test_a_configuration_of_ones_own_may_have_fewer_layers(tmp_path):
    """As the original: `--bert_config_file` with fewer layers takes the first ones of a checkpoint."""
    opened = copy_of("google", tmp_path / "google")
    fewer = BertConfig.from_dict(CONFIG.to_dict() | {"num_hidden_layers": 1})
    model = Bert.from_checkpoint(opened, config=fewer)
    assert model.load_report.missing == [] and len(model.load_report.unused) >= 16
    more = BertConfig.from_dict(CONFIG.to_dict() | {"num_hidden_layers": 10**6})
    with pytest.raises(ValueError, match=r"has no value for 15999968 variables of the encoder: it has 2 layers"):
        Bert.from_checkpoint(opened, config=more)
    wide = BertConfig.from_dict(CONFIG.to_dict() | {"hidden_size": 10**9})
    with pytest.raises(ValueError, match=r"hidden_size is 1000000000: \S*word_embeddings is \(12, 8\) there"):
        Bert.from_checkpoint(opened, config=wide)


# --- weights that are not finite, not numbers, or not there ----------------------------------------------------------


def with_tensors(tmp_path, change, name="huggingface"):
    """A Hugging Face checkpoint whose tensors were changed."""
    opened = copy_of(name, tmp_path / "changed")
    tensors = load_file(opened / "model.safetensors")
    change(tensors)
    save_file(tensors, opened / "model.safetensors")
    return opened


def spoil(tensors, value=np.nan):
    tensors["bert.pooler.dense.bias"][3] = value


@pytest.mark.parametrize(
    "name, value", [("google", np.nan), ("huggingface", np.inf), ("keras", -np.inf), ("weights", np.nan)]
)
def test_weights_that_are_not_finite_are_named(name, value, tmp_path, capsys):
    source = with_tensors(tmp_path, lambda tensors: spoil(tensors, value))
    opened = tmp_path / CHECKPOINTS[name][0]
    assert main(["convert", str(source), str(opened), f"--format={name}", "--allow_nan"]) == 0
    error = convert_error(opened, tmp_path, capsys)
    assert "pooler" in error and "1 values that are NaN or infinite" in error and "--allow_nan" in error
    with pytest.raises(ValueError, match="1 values that are NaN or infinite"):
        Bert.from_checkpoint(opened)
    assert main(["checkpoints", "show", str(opened)]) == 0
    assert "bert/pooler/dense/bias [8] NOT FINITE: 1 values are NaN or infinite" in capsys.readouterr().out


def test_fill_mask_does_not_answer_with_nan(tmp_path, capsys):
    source = with_tensors(tmp_path, spoil)
    assert main(["fill_mask", f"--checkpoint={source}", "the [MASK]"]) == 1
    assert "pooler" in capsys.readouterr().err


def test_finite_weights_that_half_precision_cannot_hold(tmp_path, capsys):
    source = with_tensors(tmp_path, lambda tensors: spoil(tensors, 1e5))
    assert main(["convert", str(source), str(tmp_path / "half"), "--half"]) == 1
    assert "bert/pooler/dense/bias holds 1 values that are too large for float16, such as 100000" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "half").exists()
    assert main(["convert", str(source), str(tmp_path / "b"), "--bfloat16"]) == 0


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.bool_])
def test_kernels_of_integers_are_refused(dtype, tmp_path):
    def quantize(tensors):
        name = "bert.encoder.layer.1.output.dense.weight"
        tensors[name] = tensors[name].astype(dtype)

    source = with_tensors(tmp_path, quantize)
    with pytest.raises(ValueError, match=r"layer.1.output.dense.\w+ (holds|is) "):
        pretrained.open_checkpoint(source)
    kernel = {"bert/encoder/layer_0/output/dense/kernel": np.ones((16, 8), dtype)}
    opened = copy_of("google", tmp_path / "google")
    reader = google.GoogleReader(opened)
    google.write_tensors(opened / "bert_model.ckpt", {name: reader.read(name) for name in reader.shapes} | kernel)
    with pytest.raises(ValueError, match="layer_0/output/dense/kernel holds u?int|bool"):
        pretrained.open_checkpoint(opened)


def test_a_checkpoint_without_a_variable_is_not_converted(tmp_path, capsys):
    source = with_tensors(tmp_path, lambda tensors: tensors.pop("bert.encoder.layer.0.output.dense.bias"))
    error = convert_error(source, tmp_path, capsys)
    assert "lacks 1 variables of the encoder" in error and "bert/encoder/layer_0/output/dense/bias" in error
    assert main(["checkpoints", "show", str(source)]) == 0
    assert "bert/encoder/layer_0/output/dense/bias MISSING" in capsys.readouterr().out
    gpt = with_tensors(tmp_path / "gpt", lambda tensors: tensors.pop("transformer.h.1.ln_1.bias"), "gpt2_huggingface")
    assert "gpt/layer_1/attention/output/LayerNorm/beta" in convert_error(gpt, tmp_path, capsys)


def test_thirds_that_are_none(tmp_path, capsys):
    def cut(tensors):
        tensors["transformer.h.0.attn.c_attn.bias"] = tensors["transformer.h.0.attn.c_attn.bias"][:-1].copy()

    source = with_tensors(tmp_path, cut, "gpt2_huggingface")
    assert "c_attn.bias is (23,); query, key and value cannot be a third of it" in convert_error(
        source, tmp_path, capsys
    )


# --- vocabularies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "contents, said",
    [
        (b"<!DOCTYPE html>\n<html>\n", "vocab.txt lacks the special tokens [UNK], [CLS], [SEP]"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", "vocab.txt is no vocabulary"),
        (b'{"a": 1}', "vocab.txt is no vocabulary"),
        (b"\x89PNG\r\n\x1a\n\xff", "not valid UTF-8"),
        (b"", "the vocabulary is empty"),
        ("\n".join(map(str, range(100))).encode(), "the vocabulary has 100 lines"),
    ],
)
@pytest.mark.parametrize("name", ["google", "huggingface", "keras", "weights"])
def test_a_vocabulary_that_is_none(name, contents, said, tmp_path, capsys):
    opened = copy_of(name, tmp_path / "changed")
    (tmp_path / "changed/vocab.txt").write_bytes(contents)
    assert said in convert_error(opened, tmp_path, capsys)


def test_a_vocabulary_that_was_cut_off_is_warned_of(tmp_path):
    opened = copy_of("google", tmp_path / "cut")
    lines = (opened / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (opened / "vocab.txt").write_text("\n".join(lines[:7]))
    with pytest.warns(UserWarning, match=r"vocab.txt has 7 lines, and the table .* has 12 rows: is the file cut off"):
        pretrained.open_checkpoint(opened)


@pytest.mark.parametrize(
    "entries", [{}, {"a": "b"}, {"a": 1, "b": 1}, {"a": -1}, {"a": 1.0}, {"a": 30}, {"a": True}, ["a"]]
)
def test_an_encoder_that_is_none(entries, tmp_path, capsys):
    opened = copy_of("gpt2", tmp_path / "gpt2")
    (opened / "encoder.json").write_text(json.dumps(entries))
    (opened / "vocab.bpe").write_text("#version: 0.2\n")
    assert "encoder.json" in convert_error(opened, tmp_path, capsys)


# --- several checkpoints in a folder ---------------------------------------------------------------------------------


@pytest.mark.parametrize("first, second", [("google", "huggingface"), ("huggingface", "google")])
def test_a_folder_holds_one_format(first, second, tmp_path):
    source = copy_of("google", tmp_path / "source")
    convert.convert(source, tmp_path / "out", first)
    with pytest.raises(ValueError, match=f"holds a checkpoint in the format {first}; choose another folder"):
        convert.convert(source, tmp_path / "out", second)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert.convert(source, tmp_path / "out", first)  # once more is no harm


def test_a_checkpoint_is_not_hidden_among_those_of_a_run(tmp_path):
    source = copy_of("huggingface", tmp_path / "source")
    google.save_checkpoint(pretrained.load_model(source), tmp_path / "run/model.ckpt-7", keep=1)
    with pytest.raises(ValueError, match="holds the checkpoints of a training run, such as .*model.ckpt-7"):
        convert.convert(source, tmp_path / "run", "google")
