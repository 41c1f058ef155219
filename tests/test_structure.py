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
from tf_bert.commands.main import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tf_bert"
MODULES = sorted(module.name for module in pkgutil.walk_packages([str(PACKAGE)], "tf_bert."))

# A room may import from those before it. The trainer, with its optimizer, lies below the models, which
# inherit from its base class.
FLOORS = [
    {"configs", "files", "memory", "progress", "version", "tokenization"},
    {"backend"},
    {"layers"},
    {"models", "training.trainer", "training.execution", "training.optimization", "training.schedules"},
    {"training", "data", "checkpoints", "decoding", "visualization"},
    {"commands", "__main__"},
]


def imported_modules(path: Path) -> set[str]:
    """Modules imported when the file is loaded (imports inside functions are left out: they are lazy on purpose)."""
    found = set()
    nodes = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            nodes.extend(ast.iter_child_nodes(node))
    return found


def floor(module: str) -> int:
    parts = module.split(".")[1:]
    for name in (".".join(parts[:2]), parts[0] if parts else ""):
        for number, rooms in enumerate(FLOORS):
            if name in rooms:
                return number
    return -1


@pytest.mark.parametrize("name", MODULES)
def test_imports_run_one_way(name):
    path = Path(importlib.util.find_spec(name).origin)
    for imported in imported_modules(path):
        if imported.startswith("tf_bert."):
            assert floor(imported) <= floor(name), f"{name} imports {imported}, which stands above it"
        room = name.split(".")[1]
        if imported.split(".")[0] == "tensorflow":
            assert room not in ("layers", "models", "decoding"), f"{name} imports tensorflow; see backend.py"


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


LIGHT = ["import tf_bert", "import tf_bert.tokenization", "from tf_bert.data import pretraining, records, text, corpus"]


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
