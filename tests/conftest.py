"""Where tests find what lies outside the repository."""

import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

import tf_bert  # noqa: F401  before TensorFlow: it chooses kernels
from tests.support import ROOT

NO_FOLDER = "folder outside the repository"


def _folder(variable: str, name: str) -> Path:
    path = Path(os.environ.get(variable, ROOT.parent / "shared" / name))
    if not path.is_dir():
        pytest.skip(f"{NO_FOLDER}: no {name} at {path} (set {variable} to where it is)")
    return path


def pytest_terminal_summary(terminalreporter):
    """One line for the tests that need files outside the repository."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    count = sum(NO_FOLDER in reason for reason in reasons)
    if count:
        terminalreporter.write_line(
            f"{count} tests were skipped because they need other people's data, which is not in the repository: set "
            "TF_BERT_GOLDEN and TF_BERT_DATA to run them. Everything in tests/golden was compared."
        )


@pytest.fixture(scope="session")
def golden() -> Path:
    """Outputs of the original code for inputs that were made for this project; its README says what each file holds."""
    return ROOT / "tests" / "golden"


@pytest.fixture(scope="session")
def shared_golden() -> Path:
    """Outputs of the original code for other people's texts and vocabularies, which are not in the repository."""
    return _folder("TF_BERT_GOLDEN", "golden")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Real models, vocabularies and corpora."""
    return _folder("TF_BERT_DATA", "data")


@pytest.fixture
def chunked_calls(monkeypatch):
    """Grows whenever attention is computed in chunks."""
    from tf_bert.layers import attention

    calls, chunked_attention = [], attention.chunked_attention

    def counted(*args, **kwargs):
        calls.append(1)
        return chunked_attention(*args, **kwargs)

    monkeypatch.setattr(attention, "chunked_attention", counted)
    return calls


@pytest.fixture
def peak_kilobytes():
    """Runs Python code in a process of its own, and says how much memory it took at most.

    ``ru_maxrss`` would count what the process that started it (pytest, after hundreds of tests) held at that moment.
    """
    if not os.path.exists("/proc/self/status"):
        pytest.skip("only Linux says how much memory a program took at most")
    peak = "\nprint(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"

    def run(code: str, *arguments) -> int:
        command = [sys.executable, "-c", code + peak, *map(str, arguments)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])

    return run
