"""Calls whose files and flags are damaged: one line says why, or the result is right, or a warning names the change."""

import contextlib
import shutil
from pathlib import Path

import pytest

from tests.support.mutations import complaint, mutate
from tests.support.tiny_calls import CALLS, LIGHT, prepare, run_call, write_texts
from tf_bert.commands.main import COMMANDS

MUTATIONS_OF_A_COMMAND = 40


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    write_texts(folder)
    return folder


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("everything")
    prepare(folder)
    return folder


def copy_files(call, originals: Path, folder: Path) -> None:
    """Copies what a call reads."""
    for name in [*call.needs, *call.files]:
        copy = shutil.copytree if (originals / name).is_dir() else shutil.copy
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / name).exists():
            copy(originals / name, folder / name)


def complaints(call, originals: Path, tmp_path: Path, numbers) -> list[str]:
    """What is wrong with how changed calls end."""
    found, demo = [], call.command == "pretrain_demo"  # which takes minutes where nothing is wrong
    copy_files(call, originals, tmp_path / "whole")
    with contextlib.chdir(tmp_path / "whole"):
        whole = (None if demo else run_call(call), tmp_path / "whole")
    assert demo or whole[0].status == 0, whole[0]
    for number in numbers:
        mutation = mutate(call, originals, number)
        if demo and not mutation.fails:
            continue
        folder = tmp_path / str(number)
        copy_files(call, originals, folder)
        for name, content in mutation.contents.items():
            if content is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(content)
        with contextlib.chdir(folder):
            result = run_call(call, mutation.flags, mutation.stdin)
        if said := complaint(call, mutation, result, folder, originals, whole):
            found.append(f"{call.command} {number}, {mutation.said}: {said}\n{result.err[-2000:]}")
        shutil.rmtree(folder)
    return found


def test_each_command_has_a_call():
    assert {call.command for call in CALLS} == set(COMMANDS) - {"serve"}  # which ends only when it is told to


@pytest.mark.parametrize("call", [call for call in CALLS if call.command in LIGHT], ids=lambda call: call.command)
def test_damaged_calls_of_light_commands(texts, tmp_path, call):
    assert complaints(call, texts, tmp_path, range(12)) == []


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.command)
def test_a_flag_that_is_misspelt_ends_before_any_file_is_read(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    flags = [*call.flags[:-1], "--no_such_flag=1", call.flags[-1]]
    result = run_call(call, flags)
    assert result.status == 2 and result.err.count("\n") == 1
    assert result.err.startswith(f"tf-bert {call.command}: error: unknown flag --no_such_flag")


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.command)
def test_damaged_calls(everything, tmp_path, call):
    calls = [other for other in CALLS if other.command == call.command]
    assert complaints(call, everything, tmp_path, range(MUTATIONS_OF_A_COMMAND // len(calls))) == []
