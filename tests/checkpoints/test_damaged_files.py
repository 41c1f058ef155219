"""Any bytes in the place of any file give a result or one of our errors, in one line that names the place."""

import dataclasses
import json
import math
import os
import shutil
import tempfile
import warnings
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.support.checkpoints import CHECKPOINTS, CONFIG, OTHERS, all_checkpoints, change_settings, copy_of
from tf_bert import configs
from tf_bert.checkpoints import download, google, huggingface
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.models import pretrained
from tf_bert.models.translator import load_translator

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MANY = settings(FEW, max_examples=1500)
FILES = [
    (name, file.name)
    for name, (opened, _) in (CHECKPOINTS | OTHERS).items()
    for file in sorted((all_checkpoints() / opened.split("/")[0]).iterdir())
]


@st.composite
def damage(draw) -> bytes:
    """A file of a checkpoint, and its bytes with some of them changed, cut, inserted or moved."""
    name, file = draw(st.sampled_from(FILES))
    folder = (CHECKPOINTS | OTHERS)[name][0].split("/")[0]
    data = bytearray((all_checkpoints() / folder / file).read_bytes())
    place = draw(st.integers(0, len(data)))
    kind = draw(st.sampled_from(["cut", "flip", "insert", "zeros", "move", "other"]))
    if kind == "cut":
        del data[place:]
    elif kind == "flip" and place < len(data):
        data[place] ^= 1 << draw(st.integers(0, 7))
    elif kind == "insert":
        data[place:place] = draw(st.binary(min_size=1, max_size=20))
    elif kind == "zeros":
        data[place : place + 64] = bytes(len(data[place : place + 64]))
    elif kind == "move":
        data = data[place:] + data[:place]
    elif kind == "other":
        data = draw(st.binary(max_size=200))
    return name, file, bytes(data)


def read_all(name: str, opened: Path) -> None:
    """Opens a checkpoint and reads all of it, or checks what is said."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if name == "translator":
                load_translator(opened)
                return
            checkpoint = pretrained.open_checkpoint(opened)
            for variable in checkpoint.reader.shapes:
                assert np.asarray(checkpoint.reader.read(variable)).shape == checkpoint.reader.shapes[variable]
    except (ValueError, OSError) as error:
        message, folder = str(error), opened if opened.suffix == "" else opened.parent
        assert "\n" not in message and len(message) < 800 and str(folder) in message, message


def check_damage(damaged) -> None:
    name, file, data = damaged
    with tempfile.TemporaryDirectory() as folder:
        opened = copy_of(name, Path(folder) / "damaged")
        (Path(folder) / "damaged" / file).write_bytes(data)
        read_all(name, opened)


@FEW
@given(damage())
def test_damaged_files(damaged):
    check_damage(damaged)


@pytest.mark.slow
@MANY
@given(damage())
def test_many_damaged_files(damaged):
    check_damage(damaged)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([10**9, 2**63, "gelu", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
SETTINGS = [
    *(field.name for kind in (configs.BertConfig, configs.GPTConfig) for field in dataclasses.fields(kind)),
    *("architectures", "do_lower_case", "problem_type", "classifier", "id2label", "model_type", "n_inner", "n_embd"),
    *("n_layer", "n_head", "n_positions", "n_ctx", "n_vocab", "eos_token_id", "activation_function"),
]


@FEW
@given(st.sampled_from(list(CHECKPOINTS)), st.dictionaries(st.sampled_from(SETTINGS), ANYTHING, max_size=3))
def test_settings_of_any_kind(name, changes):
    with tempfile.TemporaryDirectory() as folder:
        opened = copy_of(name, Path(folder) / "changed")
        change_settings(name, opened, **changes)
        read_all(name, opened)


@pytest.mark.parametrize("name", CHECKPOINTS | OTHERS)
def test_files_that_are_folders_or_not_there(name, tmp_path):
    opened = copy_of(name, tmp_path / "whole")
    folder = opened if opened.is_dir() else opened.parent
    for file in sorted(os.listdir(folder)):
        for kind in ("gone", "folder", "empty"):
            shutil.copytree(folder, tmp_path / "changed")
            os.remove(tmp_path / "changed" / file)
            if kind == "folder":
                (tmp_path / "changed" / file).mkdir()
            elif kind == "empty":
                (tmp_path / "changed" / file).touch()
            read_all(name, tmp_path / "changed" / opened.relative_to(folder))
            shutil.rmtree(tmp_path / "changed")


DEEP = "[" * 200_000 + "]" * 200_000


@pytest.mark.parametrize("text", [DEEP, f'{{"vocab_size": 12, "x": {DEEP}}}', '{"x": ' + "[" * 500 + "]" * 500 + "}"])
@pytest.mark.parametrize("name", [name for name in CHECKPOINTS if name != "keras"])
def test_settings_nested_deeply(name, text, tmp_path):
    opened = copy_of(name, tmp_path / "deep")
    folder = opened if opened.is_dir() else opened.parent
    values = json.loads((folder / CHECKPOINTS[name][1]).read_text())
    if text.startswith('{"x"'):  # all the rest is right
        if name == "gpt2":
            return  # of hparams.json only the sizes are taken
        text = json.dumps(values)[:-1] + ", " + text[1:]
    (folder / CHECKPOINTS[name][1]).write_text(text)
    with pytest.raises(ValueError, match=r"nested (too|more than 50 levels) deep"):
        pretrained.open_checkpoint(opened)


# --- archives --------------------------------------------------------------------------------------------------------


def archive_of(folder: Path) -> bytes:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/bert_config.json", CONFIG.to_json_string())
        archive.writestr("model/vocab.txt", "a\n" * 1000)
    return (folder / "a.zip").read_bytes()


@settings(FEW, max_examples=100)
@given(st.data())
def test_damaged_archives(data):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        contents = bytearray(archive_of(folder))
        for _ in range(data.draw(st.integers(1, 4))):
            contents[data.draw(st.integers(0, len(contents) - 1))] = data.draw(st.integers(0, 255))
        (folder / "a.zip").write_bytes(contents[: data.draw(st.integers(len(contents) // 2, len(contents)))])
        try:
            download.unpack(folder / "a.zip", folder / "out", 1 << 20, {})
        except ValueError as error:
            assert str(folder / "a.zip") in str(error) and "\n" not in str(error)
            assert sorted(os.listdir(folder)) == ["a.zip"]
        else:
            assert all(len(path.read_bytes()) < 3000 for path in (folder / "out").rglob("*") if path.is_file())


# --- what is written is read -----------------------------------------------------------------------------------------

DTYPES = st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_])
TENSORS = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8).filter(
        lambda name: name != "__metadata__"
    ),
    DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_side=3))),
    max_size=4,
)


@FEW
@given(TENSORS)
def test_tensors_are_the_same_after_safetensors(tensors):
    bfloat = {"b": np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)}
    with tempfile.TemporaryDirectory() as folder:
        listed = [(name, value.shape, value.dtype, lambda v=value: v) for name, value in (tensors | bfloat).items()]
        huggingface.write_safetensors(os.path.join(folder, huggingface.WEIGHTS), listed)
        read = huggingface.SafetensorsFolder(folder, allow_nan=True)
        assert read.shapes == {name: shape for name, shape, _, _ in listed}
        for name, value in (tensors | bfloat).items():
            assert read.read(name).dtype == value.dtype and read.read(name).tobytes() == value.tobytes()


@FEW
@given(TENSORS.filter(bool))
def test_tensors_are_the_same_after_a_checkpoint(tensors):
    tensors = {f"x/{number}": value for number, value in enumerate(tensors.values())}
    with tempfile.TemporaryDirectory() as folder:
        google.write_tensors(os.path.join(folder, "a.ckpt"), tensors)
        read = google.GoogleReader(folder, allow_nan=True)
        for name, value in tensors.items():
            again = np.asarray(read.read(name))
            assert again.dtype == value.dtype and again.shape == value.shape and again.tobytes() == value.tobytes()


@FEW
@given(
    st.sampled_from([configs.BertConfig, configs.GPTConfig, configs.ElmoConfig, configs.TransformerConfig]),
    st.dictionaries(st.text(max_size=5).map("x_{}".format), ANYTHING.filter(lambda value: value == value), max_size=3),
    st.integers(4, 2**31 - 1),
    st.integers(1, 64),
)
def test_a_configuration_is_the_same_after_its_file(kind, extra, vocab_size, heads):
    width = {"num_attention_heads": heads, "hidden_size": 8 * heads} if "num_attention_heads" in dir(kind) else {}
    config = kind(vocab_size=vocab_size, **width, extra={key: extra[key] for key in extra if finite(extra[key])})
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = os.path.join(folder, "config.json")
        Path(path).write_text(config.to_json_string())
        assert kind.from_json_file(path) == config


def finite(value) -> bool:
    return "NaN" not in json.dumps(value) and not (isinstance(value, float) and math.isnan(value))


@given(st.booleans(), st.booleans() | st.none(), st.booleans())
def test_switches_are_the_same_after_their_file(lower, accents, chinese):
    switches = TokenizerSettings(lower, accents, chinese)
    with tempfile.TemporaryDirectory() as folder:
        switches.write(folder)
        assert TokenizerSettings.read(folder) == switches
