"""Atomic writing: the whole file or the old one, and one line that names the file."""

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys

import pytest

from tf_bert.files import (
    atomic_folder,
    atomic_writer,
    check_room,
    check_whole,
    copy_file,
    copy_same,
    file_size,
    is_remote,
    make_folder,
    open_binary,
    remove_leftovers,
)


@contextlib.contextmanager
def as_ordinary_user():
    """Drops root's right to read and write everything, where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def full_disk():
    """Makes every write beyond 1 MB fail, as a full disk does."""
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, old_handler)


def test_nothing_is_there_before_the_end(tmp_path):
    path = tmp_path / "a.bin"
    with atomic_writer(path) as file:
        file.write(b"one")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["a.bin"]
    assert file_size(path) == 3


def test_text_is_utf8_and_keeps_its_line_ends(tmp_path):
    with atomic_writer(tmp_path / "a.txt", "w") as file:
        file.write("für\r\n")
    assert (tmp_path / "a.txt").read_bytes() == b"f\xc3\xbcr\r\n"


@pytest.mark.parametrize("exception", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_the_old_file_and_no_other(tmp_path, exception):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(exception):
        with atomic_writer(path, "w") as file:
            file.write("new")
            raise exception
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_full_disk_leaves_the_old_file(tmp_path, full_disk):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match=rf"cannot write {path}; what was there is unchanged: File too large") as caught:
        with atomic_writer(path) as file:
            for _ in range(3):
                file.write(bytes(1 << 20))
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_full_disk_names_the_file_that_failed(tmp_path, full_disk):
    with pytest.raises(OSError, match=f"cannot write {tmp_path}/big"):
        with atomic_writer(tmp_path / "big") as big, atomic_writer(tmp_path / "small") as small:
            small.write(b"x")
            big.write(bytes(2 << 20))
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_device_is_written_directly():
    with pytest.raises(OSError, match="cannot write /dev/full.*No space left on device"):
        with atomic_writer("/dev/full") as file:
            file.write(b"x")
    with atomic_writer("/dev/null", "w") as file:
        file.write("x")
    assert os.path.exists("/dev/null") and os.path.exists("/dev/full")


def test_links_and_permissions_stay(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_writer(tmp_path / "link", "w") as file:
        file.write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640


def test_missing_parents_are_created(tmp_path):
    with atomic_writer(tmp_path / "x" / "y" / "a", "w") as file:
        file.write("new")
    assert (tmp_path / "x" / "y" / "a").read_text() == "new"


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "closed").mkdir(mode=0o500)
    for path, error, said in [
        (tmp_path, IsADirectoryError, f"cannot write {tmp_path}: it is a directory"),
        (tmp_path / "file" / "a", OSError, f"cannot write {tmp_path}/file/a: "),
    ]:
        with pytest.raises(error, match=said):
            with atomic_writer(path):
                pass
    for path in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises(OSError, match=f"^cannot make the folder {path}: "):
            make_folder(path)
    tmp_path.chmod(0o755)
    with as_ordinary_user(), pytest.raises(PermissionError, match=f"cannot write {tmp_path}/closed/a: "):
        with atomic_writer(tmp_path / "closed" / "a"):
            pass


def test_mode_is_checked(tmp_path):
    with pytest.raises(ValueError, match="mode"):
        with atomic_writer(tmp_path / "a", "r+"):
            pass


def test_files_that_cannot_be_opened(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"there is no file {tmp_path}/a"):
        open_binary(tmp_path / "a")
    with pytest.raises(IsADirectoryError, match=f"{tmp_path} is a directory"):
        open_binary(tmp_path)
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    with as_ordinary_user(), pytest.raises(PermissionError, match=f"no permission to read .*{tmp_path}/secret"):
        open_binary(tmp_path / "secret")


REMOTE = """
from tf_bert.data.text.lines import expand_input_files, read_lines, total_size
from tf_bert.files import atomic_writer, is_remote
import sys
path = "ram://folder/a.txt"
assert is_remote(path) and "tensorflow" not in sys.modules
with atomic_writer(path, "w") as file:
    file.write("one\\r\\ntwo\\n" * 100_000)
import tensorflow as tf
assert tf.io.gfile.listdir("ram://folder") == ["a.txt"], tf.io.gfile.listdir("ram://folder")
try:
    with atomic_writer(path, "w") as file:
        file.write("half")
        raise RuntimeError
except RuntimeError:
    pass
assert tf.io.gfile.listdir("ram://folder") == ["a.txt"]
assert expand_input_files("ram://folder/*.txt") == [path]
assert total_size([path]) == 900_000
assert list(read_lines(path)) == ["one", "two"] * 100_000
# What the original's reader makes of odd bytes.
odd = "a\\r\\nb\\rc\\r\\r\\n\\n \\u2028d\\x85e\\x0bf\\x0cg\\x1ch\\x00i\\n\\u00e9\\U0001F600\\ufeff\\n\\r\\nend".encode()
with atomic_writer(sys.argv[1]) as file:
    file.write(odd)
with tf.io.gfile.GFile(sys.argv[1], "r") as reader:
    original = []
    while line := reader.readline():
        original.append(line.removesuffix("\\n"))
assert list(read_lines(sys.argv[1])) == original, original
assert len(original) == 7
with atomic_writer("ram://folder/bad.txt") as file:
    file.write(b"one\\r\\n\\xff")
for call, error, said in [
    (lambda: list(read_lines("ram://folder/bad.txt")), ValueError, "byte offset 5"),
    (lambda: list(read_lines("ram://folder/none.txt")), FileNotFoundError, "there is no file ram://folder/none.txt"),
    (lambda: expand_input_files("ram://folder/*.csv"), FileNotFoundError, "'ram://folder/*.csv' matches no file"),
    (lambda: list(read_lines("nosuch://a")), OSError, "nosuch://a"),
]:
    try:
        call()
    except error as caught:
        assert said in str(caught), caught
    else:
        raise AssertionError(said)
"""


def test_other_file_systems_go_through_gfile_and_lines_are_those_of_gfile(tmp_path):
    done = subprocess.run([sys.executable, "-c", REMOTE, tmp_path / "odd"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_is_remote():
    assert is_remote("gs://bucket/a") and not is_remote("a:b/c") and not is_remote("/a")


# --- folders, and what a killed process leaves -----------------------------------------------------------------------


def fill(folder, **files):
    for name, contents in files.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(contents)


def read(folder) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_new_folder_appears_whole(tmp_path):
    with atomic_folder(tmp_path / "a" / "model") as folder:
        fill(folder, weights="1", config="2")
        assert not (tmp_path / "a" / "model").exists()
    assert read(tmp_path / "a" / "model") == {"weights": "1", "config": "2"}
    assert os.listdir(tmp_path / "a") == ["model"]
    assert (tmp_path / "a" / "model").stat().st_mode & 0o777 == 0o777 & ~current_umask()


def current_umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def test_files_of_a_folder_are_replaced_and_others_stay(tmp_path):
    fill(tmp_path, weights="old", notes="mine")
    with atomic_folder(tmp_path) as folder:
        fill(folder, weights="new", config="new")
        assert (tmp_path / "weights").read_text() == "old" and not (tmp_path / "config").exists()
    assert read(tmp_path) == {"weights": "new", "config": "new", "notes": "mine"}


@pytest.mark.parametrize("exception", [ValueError, OSError, KeyboardInterrupt])
def test_an_exception_leaves_the_old_folder(tmp_path, exception):
    (tmp_path / "model").mkdir()
    fill(tmp_path / "model", weights="old")
    for name in ("model", "new"):
        with pytest.raises(exception):
            with atomic_folder(tmp_path / name) as folder:
                fill(folder, weights="new", config="new")
                raise exception("enough")
    assert os.listdir(tmp_path) == ["model"] and read(tmp_path / "model") == {"weights": "old"}


def test_a_full_disk_leaves_the_old_folder(tmp_path, full_disk):
    (tmp_path / "model").mkdir()
    fill(tmp_path / "model", weights="old")
    for error in (
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("cannot flush: errno = 28, error message = 'No space left on device'"),
    ):
        with pytest.raises(OSError, match=rf"^cannot write {tmp_path}/model; .* no room left on the disk \(No space"):
            with atomic_folder(tmp_path / "model") as folder:
                fill(folder, config="new")
                raise error
    with pytest.raises(OSError, match=rf"^cannot write {tmp_path}/model/weights; .*: File too large$"):
        with atomic_folder(tmp_path / "model") as folder, atomic_writer(os.path.join(folder, "weights")) as file:
            file.write(bytes(2 << 20))
    assert os.listdir(tmp_path) == ["model"] and read(tmp_path / "model") == {"weights": "old"}


def test_other_errors_name_the_folder_that_was_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"^there is no file {tmp_path}/model/x$"):
        with atomic_folder(tmp_path / "model") as folder:
            open_binary(os.path.join(folder, "x"))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=f"cannot write the folder {tmp_path}/file: there is a file"):
        with atomic_folder(tmp_path / "file"):
            pass


def test_a_folder_that_was_being_replaced_is_refused(tmp_path):
    fill(tmp_path, weights="old", config="old")
    check_whole(tmp_path)
    real_replace, calls = os.replace, []

    def killed_replace(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real_replace(source, target)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", killed_replace)
        with atomic_folder(tmp_path) as folder:
            fill(folder, weights="new", config="new")
    with pytest.raises(ValueError, match=f"^{tmp_path} is half old and half new: .* Run that command again"):
        check_whole(tmp_path)
    with atomic_folder(tmp_path) as folder:
        fill(folder, weights="new", config="new")
    check_whole(tmp_path)
    assert read(tmp_path) == {"weights": "new", "config": "new"}


KILLED = """
import os, signal, sys
from tf_bert.files import atomic_folder, atomic_writer
with atomic_writer(sys.argv[1] + "/a") as file, atomic_folder(sys.argv[1]) as folder:
    file.write(b"half")
    open(folder + "/b", "w").write("half")
    print("written", flush=True)
    if sys.argv[2] == "wait":
        sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    fill(tmp_path, a="old", **{".a.1-0a1b2c3d.tmp": "another program's"})
    alive = subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert alive.stdout.readline() == b"written\n"
    kept = set(os.listdir(tmp_path))
    assert len(kept) == 4
    subprocess.run([sys.executable, "-c", KILLED, tmp_path, "now"], stdout=subprocess.DEVNULL, check=False)
    assert len(os.listdir(tmp_path)) == 6
    remove_leftovers(tmp_path)
    assert set(os.listdir(tmp_path)) == kept  # those of a process that runs stay
    alive.kill()
    alive.wait()
    next_run = "import sys; from tf_bert.files import atomic_writer\nwith atomic_writer(sys.argv[1]): pass"
    subprocess.run([sys.executable, "-c", next_run, tmp_path / "c"], check=True)
    assert set(os.listdir(tmp_path)) == {"a", "c", ".a.1-0a1b2c3d.tmp"}
    assert (tmp_path / "a").read_text() == "old"


def test_room_is_asked_for_before_a_library_writes(tmp_path, full_disk):
    check_room(str(tmp_path / "a"), 1000)
    with pytest.raises(OSError, match=f"^cannot write {tmp_path}/a; what was there is unchanged: File too large"):
        check_room(str(tmp_path / "a"), 2 << 20)
    assert os.listdir(tmp_path) == []


def test_a_copy_is_whole_and_another_file_is_not_overwritten(tmp_path):
    fill(tmp_path, a="one", b="one", c="two")
    copy_file(tmp_path / "a", tmp_path / "new")
    assert (tmp_path / "new").read_text() == "one"
    copy_same(str(tmp_path / "a"), str(tmp_path / "d"), str(tmp_path / "b"))
    assert not (tmp_path / "d").exists()
    with pytest.raises(ValueError, match=f"{tmp_path}/c is there already and is not {tmp_path}/a"):
        copy_same(str(tmp_path / "a"), str(tmp_path / "d"), str(tmp_path / "c"))
