"""Files and folders that appear whole or not at all.

Everything is written under a temporary name, ``.NAME.PID-RANDOM.tf-bert.tmp``, beside the place where it goes, and
renamed when it is complete. A temporary file or folder is locked by the process that writes it. A killed process leaves
it unlocked, and the next one that writes to the folder removes it.
"""

import contextlib
import io
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from tf_bert.files.errors import named, system_reason
from tf_bert.files.opening import make_folder, open_binary, remove_file
from tf_bert.files.remote import BUFFER_BYTES, RemoteFile, gfile, is_remote, tensorflow_errors_as_os_errors

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

TEMPORARY = re.compile(r"\..*\.\d+-[0-9a-f]{8}\.tf-bert\.tmp$", re.DOTALL)
REPLACING = ".being_replaced.tf-bert"
_cleaned: set[str] = set()


@contextlib.contextmanager
def atomic_writer(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """Writes a file that appears under its name only when it is complete.

    The bytes go to a hidden temporary file in the same folder, which is flushed to the disk and renamed when the block
    ends. When the block raises, or the disk is full, the temporary file is removed and what was at ``path`` stays.
    A missing parent directory is created: a long run must not die at its end for want of a folder. A symbolic link
    keeps pointing where it points, and an existing file keeps its permissions. What is not a regular file
    (``/dev/stdout``, a pipe) is written directly.

    Args:
        path: a local path, or one with a scheme that ``tf.io.gfile`` knows.
        mode: ``"wb"`` for bytes or ``"w"`` for text (UTF-8, lines end as written).

    Yields:
        The open file.

    Raises:
        IsADirectoryError, PermissionError, OSError: one line that names the path.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with atomic_writer(os.path.join(folder, "new", "a.txt"), "w") as file:
        ...         _ = file.write("whole")
        ...     os.listdir(os.path.join(folder, "new"))
        ['a.txt']
    """
    if mode not in ("w", "wb"):
        raise ValueError(f"mode must be 'w' or 'wb', not {mode!r}")
    path = os.fspath(path)
    if is_remote(path):
        temporary, raw = _open_remote_temporary(path)
    else:
        temporary, raw = _open_local_temporary(path)
    file = io.BufferedWriter(raw, BUFFER_BYTES)
    if mode == "w":
        file = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        yield file
        file.flush()
        raw.sync()
        if temporary and not is_remote(path):
            os.replace(temporary, os.path.realpath(path))  # while it is locked
        file.close()
        if temporary and is_remote(path):
            with tensorflow_errors_as_os_errors(path):
                gfile().rename(temporary, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        if temporary:
            with contextlib.suppress(OSError):
                remove_file(temporary)
        raise


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike) -> Iterator[str]:
    """Writes several files that belong together; all of them appear when all are complete.

    A folder that is not there yet is renamed to its name, so it is there whole or not at all. In a folder that is
    there already, other files stay, and files of the same names are replaced. They cannot all be renamed at once: while
    they are, a file `REPLACING` is in the folder, which is why `check_whole` refuses a folder whose writer was killed
    just then. Everything else (a full disk, an error, a kill while the files are written) leaves the old files.

    Args:
        path: the folder. A remote one is written directly.

    Yields:
        The temporary folder to put the files into.

    Raises:
        NotADirectoryError, OSError: one line that names the path.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     with atomic_folder(os.path.join(parent, "model")) as folder:
        ...         copy_file(os.devnull, os.path.join(folder, "weights"))
        ...         before = os.path.exists(os.path.join(parent, "model"))
        ...     before, os.listdir(os.path.join(parent, "model"))
        (False, ['weights'])
    """
    path = os.fspath(path)
    if is_remote(path):
        make_folder(path)
        yield path
        return
    target = os.path.realpath(path or ".")
    if os.path.exists(target) and not os.path.isdir(target):
        raise NotADirectoryError(f"cannot write the folder {path}: there is a file of this name")
    is_there = os.path.isdir(target)
    parent, name = (target, "files") if is_there else os.path.split(target)
    with temporary_folder(parent, name, shown=path) as temporary:
        yield temporary
        _sync_files(temporary)
        if is_there:
            _move_files(temporary, target)
        else:
            os.rename(temporary, target)


def check_whole(folder: str | os.PathLike) -> None:
    """Raises ValueError where a run was killed while it replaced the files of a folder; see `atomic_folder`."""
    mark = os.path.join(os.fspath(folder), REPLACING)
    if not is_remote(mark) and os.path.exists(mark):
        raise ValueError(
            f"{os.fspath(folder) or '.'} is half old and half new: a run that was killed was replacing its files. Run "
            f"that command again, or remove {mark} if you know that they belong together"
        )


@contextlib.contextmanager
def temporary_folder(parent: str, name: str, shown: str | None = None) -> Iterator[str]:
    """Makes a local folder that is removed at the end, or by the next run where this one is killed.

    Args:
        parent: where; made if need be.
        name: what it is for; part of its hidden name.
        shown: the path that error messages show in place of the temporary one; by default ``parent`` and ``name``.

    Raises:
        OSError: the folder, or what the block writes into it, cannot be written.
    """
    shown = os.path.join(parent, name) if shown is None else shown
    try:
        os.makedirs(parent, exist_ok=True)
        temporary, descriptor = _locked_folder(os.path.join(parent, name))
    except OSError as error:
        raise named(error, f"cannot write the folder {shown}") from None
    try:
        yield temporary
    except Exception as error:
        text, reason = str(error).replace(temporary, shown), system_reason(str(error))
        if reason is not None and not text.startswith("cannot write "):  # said by a library, in its own words
            raise OSError(f"cannot write {shown}; what was there is unchanged: {reason}") from None
        if not isinstance(error, OSError):
            raise
        raise _with_other_text(error, text) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(descriptor)


def check_room(path: str, size: int) -> None:
    """Raises OSError where there is no room for a local file of so many bytes.

    Ask before a library writes that does not survive a full disk: HDF5 ends the process.
    """
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        raise named(error, f"cannot write {path}; what was there is unchanged") from None
    finally:
        os.close(descriptor)
        os.remove(temporary)


@contextlib.contextmanager
def lines_writer(path: str | os.PathLike | None) -> Iterator[Callable[[Sequence[str]], None]]:
    """Gives a function that writes lines to a file, or to standard output where there is no path."""
    if path is None:
        yield lambda lines: print(*lines, sep="\n", flush=True)
        return
    with atomic_writer(path, "w") as file:
        yield lambda lines: file.writelines(line + "\n" for line in lines)


def copy_file(source: str | os.PathLike, target: str | os.PathLike) -> None:
    """Copies the bytes of a file; the copy appears whole or not at all."""
    with open_binary(source) as original, atomic_writer(target) as file:
        shutil.copyfileobj(original, file, BUFFER_BYTES)


def copy_same(source: str, target: str, existing: str) -> None:
    """Copies a file to ``target``; nothing is done where ``existing`` has the same bytes.

    Raises:
        ValueError: ``existing`` is there and is another file.
    """
    if not os.path.exists(existing):
        copy_file(source, target)
        return
    with open_binary(existing) as there, open_binary(source) as ours:
        if there.read() != ours.read():
            raise ValueError(f"{existing} is there already and is not {source}; choose another folder")


def remove_leftovers(folder: str | os.PathLike) -> None:
    """Removes the temporary files and folders that killed processes left in a local folder.

    Those of running processes are locked and stay. Nothing is removed where there are no locks (Windows, some network
    file systems).
    """
    if fcntl is None or is_remote(folder):
        return
    with contextlib.suppress(OSError):
        leftovers = [entry.path for entry in os.scandir(folder or ".") if TEMPORARY.match(entry.name)]
        for path in leftovers:
            _remove_unlocked(path)


def _remove_unlocked(path: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.remove(path)
        finally:
            os.close(descriptor)


def _remove_leftovers_once(folder: str) -> None:
    """Removes what earlier runs left; once for each folder, because folders of many files are slow to list."""
    if folder not in _cleaned:
        _cleaned.add(folder)
        remove_leftovers(folder)


def _lock(descriptor: int, path: str) -> bool:
    """Locks a file just made; returns False where another process took it for a leftover and removed it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:  # no locks here, so no process removes anything
        return True
    return os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(descriptor))


def _locked_folder(path: str) -> tuple[str, int]:
    """Makes a temporary folder for ``path``; returns its path and the descriptor that keeps it locked."""
    _remove_leftovers_once(os.path.dirname(path))
    while True:
        temporary = _temporary_name(path)
        os.mkdir(temporary)
        descriptor = os.open(temporary, os.O_RDONLY)
        if _lock(descriptor, temporary):
            return temporary, descriptor
        os.close(descriptor)


def _move_files(temporary: str, target: str) -> None:
    """Moves the files of a temporary folder into a folder that is there."""
    files = sorted(os.listdir(temporary))
    mark = os.path.join(target, REPLACING)
    if len(files) > 1:
        with open(mark, "wb") as file:
            os.fsync(file.fileno())
    for file in files:
        os.replace(os.path.join(temporary, file), os.path.join(target, file))
    with contextlib.suppress(FileNotFoundError):
        os.remove(mark)


def _sync_files(folder: str) -> None:
    """Flushes what other libraries wrote to the disk."""
    for place, _, files in os.walk(folder):
        for file in files:
            descriptor = os.open(os.path.join(place, file), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _with_other_text(error: OSError, text: str) -> OSError:
    same = type(error)(text)
    same.errno = error.errno
    return same


def _open_local_temporary(path: str) -> tuple[str | None, "_LocalFile"]:
    """Returns the temporary path, or None where ``path`` is to be written directly, and the open raw file."""
    target = os.path.realpath(path)
    if os.path.isdir(target) or path.endswith(os.sep):
        raise IsADirectoryError(f"cannot write {path}: it is a directory; name a file in it")
    try:
        if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
            return None, _LocalFile(path, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _remove_leftovers_once(os.path.dirname(target))
        while True:
            temporary = _temporary_name(target)
            raw = _LocalFile(temporary, path)
            if _lock(raw.fileno(), temporary):
                break
            raw.close()
        if os.path.exists(target):
            shutil.copymode(target, temporary)
        return temporary, raw
    except OSError as error:
        raise named(error, f"cannot write {path}") from None


def _open_remote_temporary(path: str) -> tuple[str, RemoteFile]:
    make_folder(path.rsplit("/", 1)[0])
    temporary = _temporary_name(path)
    return temporary, RemoteFile(temporary, "wb")


def _temporary_name(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name[:40]}.{os.getpid()}-{os.urandom(4).hex()}.tf-bert.tmp")


class _LocalFile(io.FileIO):
    """A file being written, whose errors name the file that the user asked for."""

    def __init__(self, path: str, shown: str):
        super().__init__(path, "w")
        self._shown = shown

    def write(self, data) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise named(error, f"cannot write {self._shown}; what was there is unchanged") from None

    def sync(self) -> None:
        if stat.S_ISREG(os.fstat(self.fileno()).st_mode):
            try:
                os.fsync(self.fileno())
            except OSError as error:
                raise named(error, f"cannot write {self._shown}; what was there is unchanged") from None
