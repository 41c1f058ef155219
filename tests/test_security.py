"""Claims of docs/security.md that no other file tests, and that each of its tests exists."""

import ast
import json
import os
import re
import sys

import numpy as np
import pytest

from tests.support import ROOT
from tests.support.checkpoints import copy_of
from tf_bert.data.finetuning.glue import find_processor
from tf_bert.data.pretraining.corpus import ImportedWords
from tf_bert.models import hub, pretrained
from tf_bert.models.translator import load_translator

PACKAGE = ROOT / "tf_bert"


def test_every_test_that_the_page_names_exists():
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    there = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert len(named) >= 20 and named <= there, named - there


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module that says on standard error when it is imported."""
    (tmp_path / "own_module.py").write_text(
        "import sys\nfrom tf_bert.data.finetuning.glue import DataProcessor\n"
        "print('own_module runs', file=sys.stderr)\n"
        "class Task(DataProcessor):\n    pass\n\ndef split(line):\n    return line.split()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_module", raising=False)
    yield "own_module"
    sys.modules.pop("own_module", None)


def test_a_task_of_ones_own_is_announced(own_module, capsys):
    find_processor("own_module:Task")
    said = capsys.readouterr().err.splitlines()
    assert said == ["task own_module:Task: importing own_module, which runs its code", "own_module runs"]


def test_a_word_splitter_is_announced(own_module, capsys):
    splitter = ImportedWords("own_module:split")
    said = capsys.readouterr().err.splitlines()
    assert said == ["word splitter own_module:split: importing own_module, which runs its code", "own_module runs"]
    function, arguments = splitter.__reduce__()  # as each worker process makes it again
    function(*arguments)
    assert capsys.readouterr().err == ""


class Evil:
    """Makes a folder where it is unpickled."""

    def __init__(self, path: str):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_pickled_arrays_are_not_read(tmp_path):
    opened = copy_of("gpt1", tmp_path / "gpt1")
    np.save(opened / "params_0.npy", np.array([Evil(str(tmp_path / "run"))], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"params_0.npy is damaged or no .npy file of numbers"):
        pretrained.open_checkpoint(opened)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["../pieces.txt", "/etc/passwd", "", 3, None])
def test_a_translation_model_names_no_file_elsewhere(tmp_path, name):
    opened = copy_of("translator", tmp_path / "translator")
    settings = json.loads((opened / "config.json").read_text())
    (opened / "config.json").write_text(json.dumps(settings | {"source_vocab_file": name}))
    with pytest.raises(ValueError, match=r"source_vocab_file is .*, expected the name of a file of this folder"):
        load_translator(opened)


@pytest.mark.parametrize("address", ["https://tfhub.dev/google/bert/1", "gs://bucket/module", "http://x/y"])
def test_an_address_is_not_fetched(address, tmp_path):
    with pytest.raises(FileNotFoundError, match="is an address: nothing is fetched here"):
        hub.convert_module(address, str(tmp_path))


# Where a module is imported by a name: of our own modules, of packages that are named in the code, or of the two flags
# that announce it.
IMPORTS = {
    "__init__.py",
    "registration.py",
    "tokenization/__init__.py",
    "commands/main.py",
    "commands/pretrain_demo.py",
    "export/litert_and_onnx.py",
    "data/pretraining/create_on_beam.py",
    "data/finetuning/glue.py",
    "data/pretraining/corpus.py",
}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "torch", "runpy", "code"}


def test_the_package_has_no_other_way_to_run_code():
    imports, saved_models, calls = set(), set(), set()
    for path in PACKAGE.rglob("*.py"):
        place = str(path.relative_to(PACKAGE))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                assert not FORBIDDEN_MODULES & {module.split(".")[0] for module in modules}, place
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called in ("eval", "exec", "compile", "__import__"):
                calls.add(place)
            if called.endswith("import_module"):
                imports.add(place)
            if called.endswith("saved_model.load"):
                saved_models.add(place)
            if called in ("np.load", "numpy.load"):
                arguments = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert arguments.get("allow_pickle", "False") == "False", place
            if called.endswith("saving.load_model"):
                assert place == "checkpoints/keras_files.py", place
    assert calls == set()
    assert imports == IMPORTS
    assert saved_models == {"checkpoints/hub.py"}
