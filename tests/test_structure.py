"""The house rules that a machine can check: what imports what, what starts without TensorFlow, that doctests run."""

import ast
import doctest
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import tf_bert
from tests.support import ROOT
from tf_bert.commands.main import COMMANDS

PACKAGE = ROOT / "tf_bert"
MODULES = sorted(module.name for module in pkgutil.walk_packages([str(PACKAGE)], "tf_bert."))

# Each room has a floor of its own; a module imports from its own room and from floors below, wherever the import is
# written. Modules at the top of the package count as rooms.
FLOORS = """
version progress memory files registration errors options
json_files
configs
tokenization
backend
layers
decoding
trainer
data.text
data.tfrecord
data.pretraining data.language_modeling data.translation data.finetuning
checkpoints
models
visualization
export
training
serving
commands
__main__
"""
FLOOR = {room: number for number, line in enumerate(FLOORS.strip().splitlines()) for room in line.split()}
MOST_FILES = 20


def room_of(module: str) -> str:
    parts = module.split(".")[1:]
    return ".".join(parts[:2]) if parts[0] == "data" else parts[0]


def imported_modules(path: Path) -> set[str]:
    """Modules that a file imports, at its head or in a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in MODULES else node.module for name in names)
    return found


@pytest.mark.parametrize("name", [name for name in MODULES if name.removeprefix("tf_bert.") != "data"])
def test_imports_run_downward_between_rooms(name):
    for imported in imported_modules(Path(importlib.util.find_spec(name).origin)):
        if imported.startswith("tf_bert.") and room_of(imported) != room_of(name):
            assert FLOOR[room_of(imported)] < FLOOR[room_of(name)], f"{name} imports {imported}, which is not below it"
        if imported.split(".")[0] == "tensorflow":
            in_keras = room_of(name) in ("layers", "models", "decoding")
            assert not in_keras, f"{name} imports tensorflow; see backend.py"


def test_every_room_has_a_floor_and_none_is_crowded():
    rooms = {room_of(name) for name in MODULES} - {"data"}
    assert rooms <= set(FLOOR), rooms - set(FLOOR)
    for folder in {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE / "commands"}:
        files = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= MOST_FILES, f"{folder.relative_to(ROOT)} has {len(files)} files at one level"


def test_no_import_is_hidden_in_a_string():
    """A module named in a string escapes the test above; the public names, the commands and, in
    `tf_bert.registration`, what Keras loads are looked up that way."""
    named = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                named.setdefault(str(path.relative_to(PACKAGE)), []).append(ast.unparse(node.args[0]))
    ours = {path for path, names in named.items() if any("tf_bert" in name or "_EXPORTS" in name for name in names)}
    assert ours <= {"__init__.py", "tokenization/__init__.py", "commands/main.py", "commands/pretrain_demo.py"}


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_every_public_name_can_be_imported():
    for name in tf_bert.__all__:
        assert getattr(tf_bert, name) is not None


def test_the_originals_names_are_public():
    """Of its modules tokenization, create_pretraining_data, modeling, optimization and run_pretraining.

    Left out are the functions of modeling that made variables in a TensorFlow 1 graph: here these are layers.
    """
    names = """
        validate_case_matches_checkpoint convert_to_unicode printable_text load_vocab convert_by_vocab
        convert_tokens_to_ids convert_ids_to_tokens whitespace_tokenize FullTokenizer BasicTokenizer WordpieceTokenizer
        TrainingInstance MaskedLmInstance create_training_instances create_instances_from_document
        create_instance_from_document create_masked_lm_predictions truncate_seq_pair write_instance_to_example_files
        BertConfig BertModel gelu get_activation create_initializer gather_indexes get_masked_lm_output
        get_next_sentence_output create_optimizer AdamWeightDecayOptimizer
    """
    assert set(names.split()) <= set(tf_bert.__all__)


LIGHT = [
    "import tf_bert",
    "import tf_bert.tokenization",
    "from tf_bert.data.pretraining import corpus, create, create_sharded",
    "from tf_bert.data.text import documents, lines",
    "from tf_bert.data.tfrecord import files",
]


def test_what_must_start_in_a_blink_does_not_load_tensorflow():
    """Also every command's --help; all in one process, since each import is checked after the last."""
    lines = [*LIGHT, "import importlib, contextlib, io, sys"]
    for name in COMMANDS:
        lines.append(f"module = importlib.import_module('tf_bert.commands.{name}')")
        lines.append("with contextlib.redirect_stdout(io.StringIO()) as out: assert module.main(['--help']) == 0")
        lines.append(f"assert 'Example' in out.getvalue(), '{name} --help shows no example'")
    lines.append("print(sorted(m for m in ('tensorflow', 'keras') if m in sys.modules))")
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.parametrize(("given", "found"), [({}, "1"), ({"TF_ENABLE_ONEDNN_OPTS": "0"}, "0")])
def test_the_import_asks_for_onednn_unless_the_environment_decides(given, found):
    others = {name: value for name, value in os.environ.items() if name != "TF_ENABLE_ONEDNN_OPTS"}
    command = [sys.executable, "-c", "import os, tf_bert; print(os.environ['TF_ENABLE_ONEDNN_OPTS'])"]
    assert subprocess.check_output(command, env=others | given, text=True).strip() == found


def test_each_command_has_its_tool():
    tools = {path.stem for path in (ROOT / "tools").glob("*.py")}
    assert tools == set(COMMANDS)
