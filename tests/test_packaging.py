"""What is installed: metadata, the console command, and all that a wheel needs to hold."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tf_bert
from tests.support import ROOT
from tf_bert.commands.main import COMMANDS, main


def test_the_installed_package_has_the_version_and_the_command():
    assert importlib.metadata.version("tf_bert") == tf_bert.__version__
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="tf-bert")
    assert command.load() is main


def test_each_tool_has_the_same_few_lines():
    for name in COMMANDS:
        lines = (ROOT / "tools" / f"{name}.py").read_text().splitlines()
        assert [line for line in lines if line] == [
            "import os",
            "import sys",
            "sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))",
            f"from tf_bert.commands.{name} import main",
            'if __name__ == "__main__":  # worker processes import this file too',
            "    sys.exit(main())",
        ]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel made from a source distribution, so that both are known to be complete; needs the package index."""
    folder = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "tf_bert", folder / "tf_bert", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder)
    command = [sys.executable, "-m", "build", str(folder), "--outdir", str(folder / "dist")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (path,) = (folder / "dist").glob("*.whl")
    return path


@pytest.mark.slow
def test_a_wheel_holds_the_whole_package_and_nothing_else(wheel):
    assert wheel.name == f"tf_bert-{tf_bert.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        catalogue = json.loads(archive.read("tf_bert/checkpoints/catalogue.json"))
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "tf_bert").rglob("*") if path.is_file()}
    assert held == {path for path in there if "__pycache__" not in path}
    assert "tf_bert/py.typed" in held and catalogue


@pytest.mark.slow
def test_an_installed_wheel_runs_without_the_clone(wheel, tmp_path):
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def output(*words):
        return subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    where, version = output(sys.executable, "-c", "import tf_bert as t; print(t.__file__, t.__version__)").split()
    assert Path(where).parent == site / "tf_bert" and version == tf_bert.__version__
    tf_bert_command = str(site / "bin" / "tf-bert")
    assert output(tf_bert_command, "--version") == f"tf_bert {tf_bert.__version__}\n"
    assert "uncased_L-2_H-128_A-2" in output(tf_bert_command, "checkpoints", "list")
    for name in COMMANDS:
        assert f"usage: tf-bert {name} " in output(tf_bert_command, name, "--help")
