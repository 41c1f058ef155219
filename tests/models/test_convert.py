"""What convert and resize_vocab leave where they are killed or the disk is full: the old files or the new ones."""

import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tests.support import ROOT
from tests.support.checkpoints import CONFIG, PIECES, copy_of, randomised
from tests.test_files import full_disk  # noqa: F401
from tf_bert import BertConfig, BertForPreTraining
from tf_bert.commands.main import main
from tf_bert.models import pretrained
from tf_bert.tokenization.full import FullTokenizer

# Run after each death, without our code: the folder is absent or as it was, whole and new, or marked.
CHECK = """
    import os, sys, zipfile
    folder, old, killed = {folder!r}, {old!r}, sys.argv[1] == "killed"
    def files(folder):
        if not os.path.isdir(folder):
            return None
        names = [name for name in os.listdir(folder) if not name.endswith(".tf-bert.tmp")]
        return {{name: open(os.path.join(folder, name), "rb").read() for name in names}}
    def new(name, contents):
        path = os.path.join(folder, name)
        if name.endswith(".keras"):
            return zipfile.ZipFile(path).testzip() is None
        return name.endswith(".h5") or contents == open(os.path.join({new!r}, name), "rb").read()
    there, before = files(folder), files(old)
    if ".being_replaced.tf-bert" in (there or ()):
        sys.exit(0 if killed else "marked for ever")
    if killed and there == before:
        sys.exit(0)
    wanted = set(os.listdir({new!r})) | set(before or ())
    if set(there or ()) != wanted or not all(new(*one) for one in there.items() if one[0] in os.listdir({new!r})):
        sys.exit(f"neither old nor new: {{sorted(there or ())}}")
    if not killed:
        left = set(os.listdir(folder)) | set(os.listdir(os.path.dirname(folder)))
        left = [name for name in left if name.endswith(".tf-bert.tmp")]
        sys.exit(f"leftovers: {{left}}" if left else 0)
"""


def killed(tmp_path, which, source, format, old=None):
    """Converts in processes that die; ``old`` is what is in the folder before. Returns how many died."""
    name = {"keras": "model.keras", "weights": "model.weights.h5"}.get(format, "")
    assert main(["convert", str(source), str(tmp_path / "new" / name), f"--format={format}"]) == 0
    folder = tmp_path / "place" / "out"
    folder.parent.mkdir()
    if old is not None:
        shutil.copytree(old, folder)
    check = CHECK.format(folder=str(folder), old=str(old or tmp_path / "none"), new=str(tmp_path / "new"))
    (tmp_path / "check.py").write_text(textwrap.dedent(check))
    command = [sys.executable, ROOT / "tests/support/killed_command.py", which, tmp_path / "check.py"]
    command += ["convert", source, folder / name, f"--format={format}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert pretrained.open_checkpoint(folder / name).config.vocab_size == len(PIECES)
    return sum(line.endswith(" killed") for line in done.stdout.splitlines())


@pytest.mark.parametrize("format", ["huggingface", "google"])
def test_a_killed_convert_leaves_no_folder_or_all_of_it(format, tmp_path):
    deaths = killed(tmp_path, "2,5,8,11,14", copy_of("google", tmp_path / "source"), format)
    assert deaths == 5


def other_weights(tmp_path, format):
    """A checkpoint of the same model and vocabulary with other weights."""
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    tokenizer = FullTokenizer(tmp_path / "vocab.txt", do_lower_case=False)
    name = {"keras": "old/model.keras", "weights": "old/model.weights.h5"}.get(format, "old")
    randomised(BertForPreTraining(CONFIG), seed=1).save_checkpoint(tmp_path / name, format, tokenizer)
    return tmp_path / "old"


def test_a_killed_convert_leaves_the_old_checkpoint_or_the_new_one(tmp_path):
    source, old = copy_of("huggingface", tmp_path / "source"), other_weights(tmp_path, "google")
    deaths = killed(tmp_path, "3,9,13,16,17,18,19,20", source, "google", old)
    assert deaths >= 6


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("format", ["google", "huggingface", "keras", "weights"])
def test_convert_is_killed_at_every_moment(format, there, tmp_path):
    source = copy_of("huggingface" if format == "google" else "google", tmp_path / "source")
    old = other_weights(tmp_path, format) if there else None
    assert killed(tmp_path, "all", source, format, old) >= 8


def big_checkpoint(folder):
    """More than a megabyte."""
    config = BertConfig.from_dict(CONFIG.to_dict() | {"hidden_size": 64, "intermediate_size": 1024})
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    tokenizer = FullTokenizer(folder / "vocab.txt", do_lower_case=False)
    randomised(BertForPreTraining(config)).save_checkpoint(folder, tokenizer=tokenizer)
    return folder


@pytest.mark.parametrize("format", ["google", "huggingface", "keras", "weights"])
def test_a_full_disk_leaves_nothing_and_names_the_file(format, tmp_path, capfd, request):
    source = big_checkpoint(tmp_path / "source")
    request.getfixturevalue("full_disk")
    (tmp_path / "place").mkdir()
    name = {"keras": "out/model.keras", "weights": "out/model.weights.h5"}.get(format, "out")
    capfd.readouterr()
    assert main(["convert", str(source), str(tmp_path / "place" / name), f"--format={format}"]) == 1
    error = capfd.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("tf-bert convert: error: cannot write ") and f"{tmp_path}/place/out" in error
    assert error.endswith("File too large") and ".tmp" not in error
    assert os.listdir(tmp_path / "place") == []


@pytest.mark.parametrize("name", ["google", "huggingface"])
def test_a_vocabulary_is_resized_whole_or_not_at_all(name, tmp_path, monkeypatch, capfd):
    opened = copy_of(name, tmp_path / "source")

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["resize_vocab", str(opened), str(tmp_path / "out"), "--add=dog"]) == 1
    assert "no room left on the disk (No space left on device)" in capfd.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["source"]
    monkeypatch.undo()
    assert main(["resize_vocab", str(opened), str(tmp_path / "out"), "--add=dog"]) == 0
    again = pretrained.open_checkpoint(tmp_path / "out")
    before = pretrained.open_checkpoint(opened)
    words = "bert/embeddings/word_embeddings"
    np.testing.assert_array_equal(again.reader.read(words)[:12], before.reader.read(words))
