"""Keras's files are looked at before Keras opens them: code, foreign classes, links, bombs, cut archives."""

import io
import json
import os
import pickle
import zipfile

import h5py
import keras
import numpy as np
import pytest

from tests.support.checkpoints import (
    change_keras_config,
    copy_of,
    keras_members,
    write_keras_members,
)
from tf_bert.checkpoints import keras_files
from tf_bert.commands.main import main
from tf_bert.models import pretrained


@pytest.fixture
def path(tmp_path):
    return copy_of("keras", tmp_path / "keras")


def refused(path) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(ValueError) as caught:
        pretrained.open_checkpoint(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 500
    return str(caught.value)


class Evil:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: str):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def lambda_layer(path: str) -> dict:
    """How Keras writes a Lambda layer, whose code makes a folder when it is called."""
    layer = keras.layers.Lambda(lambda x: os.mkdir(path) or x)
    return keras.saving.serialize_keras_object(layer)


@pytest.mark.parametrize("where", ["head", "compile_config", "build_config"])
def test_a_lambda_layer_is_refused_and_not_run(path, where, tmp_path):
    def change(described):
        target = described["config"] if where == "head" else described.setdefault(where, {})
        target["x"] = [lambda_layer(str(tmp_path / "run"))]

    change_keras_config(path, change)
    assert "holds a Lambda, which is code or loads it: refused, and nothing of it was run" in refused(path)
    assert not (tmp_path / "run").exists()


def test_a_whole_model_of_lambdas(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Lambda(lambda x: x)])
    model.save(tmp_path / "l.keras")
    assert "holds a Lambda, which is code" in refused(tmp_path / "l.keras")


def test_a_class_of_another_package_is_not_imported(path, tmp_path, monkeypatch):
    package = tmp_path / "evil_package"
    package.mkdir()
    (package / "__init__.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\nclass Layer: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    foreign = {"module": "evil_package", "class_name": "Layer", "config": {}, "registered_name": "evil>Layer"}
    change_keras_config(path, lambda described: described["config"].update(x=foreign))
    assert "holds 'Layer' of 'evil_package', which is no class of Keras or tf_bert: refused" in refused(path)
    change_keras_config(path, lambda described: described.update(foreign))
    refused(path)
    assert not (tmp_path / "run").exists()


def test_a_class_of_ones_own_that_was_imported_is_known(path):
    @keras.saving.register_keras_serializable("mine")
    class Mine(keras.initializers.Zeros):
        pass

    own = keras.saving.serialize_keras_object(Mine())
    change_keras_config(path, lambda described: described.setdefault("compile_config", {}).update(x=own))
    files = keras_members(path)
    described = json.loads(files["config.json"])
    keras_files._refuse_code(described, str(path))


def test_pickled_weights_are_not_read(path, tmp_path):
    files = keras_members(path)
    del files["model.weights.h5"]
    stream = io.BytesIO()
    np.savez(stream, **{"bert/vars": np.array([Evil(str(tmp_path / "run"))], dtype=object)})
    write_keras_members(path, files | {"model.weights.npz": stream.getvalue()})
    assert "there is no model.weights.h5 in it" in refused(path)
    path.write_bytes(pickle.dumps(Evil(str(tmp_path / "run"))))
    refused(path)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "assets/../../evil", "a\\b"])
def test_names_that_leave_the_folder(path, name):
    write_keras_members(path, keras_members(path) | {name: b"x"})
    assert "which could be written outside its folder" in refused(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_of_one_name(path):
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("config.json", "{}")
    assert "two files of one name" in refused(path)


def test_archives_that_unpack_to_much_more(path):
    files = keras_members(path)
    write_keras_members(path, files | {"config.json": b" " * (17 << 20)}, zipfile.ZIP_DEFLATED)
    assert "its config.json has 17,825,792 bytes" in refused(path)
    write_keras_members(path, files | {"model.weights.h5": bytes(100 << 20)}, zipfile.ZIP_DEFLATED)
    assert "its model.weights.h5 unpacks from" in refused(path)
    write_keras_members(path, files, zipfile.ZIP_DEFLATED)  # compressed is well, if it is the same
    assert pretrained.open_checkpoint(path).config.vocab_size == 12


def with_weights(path, change):
    """A ``.keras`` file whose HDF5 file was changed."""
    files = keras_members(path)
    stream = io.BytesIO(files["model.weights.h5"])
    with h5py.File(stream, "r+") as opened:
        change(opened)
    write_keras_members(path, files | {"model.weights.h5": stream.getvalue()})


TABLE = "bert/embeddings/vars/1"


def replace_table(change):
    def changed(opened):
        del opened[TABLE]
        change(opened)

    return changed


@pytest.mark.parametrize(
    "change, said",
    [
        (replace_table(lambda file: file.create_dataset(TABLE, (10**9, 8), "f4")), "and no data"),
        (
            replace_table(lambda file: file.create_dataset(TABLE, (10**9, 8), "f4", compression="gzip")),
            "and no data",
        ),
        (
            replace_table(
                lambda file: file.create_dataset(TABLE, (2, 8), "f4", external=[("/etc/hostname", 0, 2 * 8 * 4)])
            ),
            "is not stored in the file itself",
        ),
        (
            replace_table(lambda file: file.__setitem__(TABLE, h5py.ExternalLink("/tmp/other.h5", "/x"))),
            "is a link to another place",
        ),
        (replace_table(lambda file: file.__setitem__(TABLE, h5py.SoftLink("/x"))), "is a link to another place"),
        (lambda file: file.__setitem__("loop", file["bert"]), "is in it twice"),
        (replace_table(lambda file: None), "expected 3 variables"),
        (lambda file: file.create_dataset("more", data=np.zeros(3)), "holds 47 weights"),
    ],
)
def test_arrays_that_are_not_what_they_seem(path, change, said):
    with_weights(path, change)
    assert said in refused(path)


def test_arrays_that_would_fill_the_memory(path):
    def zeros(opened):
        for number in range(8):
            opened.create_dataset(f"more/{number}", data=np.zeros((4000, 1000), "f8"), compression="gzip", chunks=True)

    with_weights(path, zeros)
    assert "its arrays would take" in refused(path)


@pytest.mark.parametrize("size", [0, 1, 100, 1000, 5000])
@pytest.mark.parametrize("name", ["keras", "weights"])
def test_files_that_are_cut_off(name, size, tmp_path):
    path = copy_of(name, tmp_path / "cut")
    os.truncate(path, size)
    refused(path)


def test_a_folder_of_that_name(path, tmp_path):
    (tmp_path / "folder.keras").mkdir()
    with pytest.raises(IsADirectoryError, match=r"folder.keras is a directory"):
        pretrained.open_checkpoint(tmp_path / "folder.keras")


def test_a_folder_with_one_file_of_keras_is_that_file(path, tmp_path, capsys):
    assert pretrained.open_checkpoint(path.parent).path == str(path)
    assert main(["checkpoints", "show", str(path.parent)]) == 0
    assert "format: keras" in capsys.readouterr().out
    (path.parent / "other.keras").write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match=r"holds several models, name one of them: model.keras, other.keras"):
        pretrained.open_checkpoint(path.parent)


def test_what_is_written_is_what_keras_writes(path, tmp_path):
    model = pretrained.load_model(path)
    model.save(tmp_path / "theirs.keras")
    keras_files.write_keras_file(model, tmp_path / "ours.keras")
    theirs, ours = keras_members(tmp_path / "theirs.keras"), keras_members(tmp_path / "ours.keras")
    assert theirs.keys() == ours.keys() and theirs["config.json"] == ours["config.json"]
    assert sorted(os.listdir(tmp_path)) == ["keras", "ours.keras", "theirs.keras"]
