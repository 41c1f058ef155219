"""Files of all commands: opened with clear errors, written whole or not at all, remote ones through ``tf.io.gfile``.

A path with a scheme (``gs://bucket/name``) goes through ``tf.io.gfile``; TensorFlow is imported only then.
"""

import contextlib
import io
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from typing import IO

BUFFER_BYTES = 1 << 18


def is_remote(path: str | os.PathLike) -> bool:
    """Whether a path has a scheme, such as ``gs://``.

    Example:
        >>> is_remote("gs://bucket/corpus.txt"), is_remote("corpus.txt")
        (True, False)
    """
    return "://" in os.fspath(path)


def file_size(path: str | os.PathLike) -> int:
    """The size of a file in bytes."""
    if is_remote(path):
        with _tensorflow_errors_as_os_errors(path):
            return _gfile().stat(os.fspath(path)).length
    return os.stat(path).st_size


def open_binary(path: str | os.PathLike) -> io.BufferedReader:
    """Opens a file to read bytes.

    Args:
        path: a local path, or one with a scheme that ``tf.io.gfile`` knows.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError, OSError: one line that names the path.
    """
    path = os.fspath(path)
    if is_remote(path):
        return io.BufferedReader(_RemoteFile(path, "rb"), BUFFER_BYTES)
    try:
        return open(path, "rb", BUFFER_BYTES)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise IsADirectoryError(f"{path} is a directory; name the files in it, as in {path.rstrip('/')}/*") from None
    except PermissionError:
        raise PermissionError(f"no permission to read {path}") from None
    except OSError as error:
        raise _named(error, f"cannot read {path}") from None


def reader_at(path: str | os.PathLike) -> Callable[[int, int], bytes]:
    """Opens a file to read from anywhere in it.

    Returns:
        A function of the size to read and of the place to begin at, as ``os.pread``.

    Raises:
        OSError: one line that names the path.
    """
    path = os.fspath(path)
    if is_remote(path):
        file = _RemoteFile(path, "rb")

        def read_remote(size: int, offset: int) -> bytes:
            file.seek(offset)
            return file.read(size)

        return read_remote
    local = open_binary(path)
    return lambda size, offset: os.pread(local.fileno(), size, offset)


def exists(path: str | os.PathLike) -> bool:
    """Whether there is a file or folder."""
    if is_remote(path):
        with _tensorflow_errors_as_os_errors(path):
            return _gfile().exists(os.fspath(path))
    return os.path.exists(path)


def remove_folder(path: str | os.PathLike) -> None:
    """Removes a folder with all that is in it."""
    if is_remote(path):
        with _tensorflow_errors_as_os_errors(path):
            _gfile().rmtree(os.fspath(path))
    else:
        shutil.rmtree(path)


def make_folder(path: str | os.PathLike) -> None:
    """Makes a folder and those above it, where they are not there yet.

    Args:
        path: a local path, or one with a scheme that ``tf.io.gfile`` knows; "" is the current folder.

    Raises:
        OSError: one line that names the path.
    """
    path = os.fspath(path)
    if is_remote(path):
        with _tensorflow_errors_as_os_errors(path):
            _gfile().makedirs(path)
        return
    try:
        os.makedirs(path or ".", exist_ok=True)
    except OSError as error:
        raise _named(error, f"cannot make the folder {path}") from None


@contextlib.contextmanager
def locked(folder: str | os.PathLike) -> Iterator[None]:
    """Keeps a folder for this process; it is free again when the block, or the process, ends.

    Nothing is done where there are no locks: on remote and some network file systems, and on Windows.

    Raises:
        BlockingIOError: another process has it.
    """
    descriptor = None
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BlockingIOError(
            f"another process is training in {os.fspath(folder)}: end it first, or use another output_dir"
        ) from None
    except (ImportError, OSError):
        pass
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


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
        file.close()
        if temporary:
            _rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        if temporary:
            with contextlib.suppress(OSError):
                remove_file(temporary)
        raise


def _open_local_temporary(path: str) -> tuple[str | None, "_LocalFile"]:
    """Returns the temporary path, or None where ``path`` is to be written directly, and the open raw file."""
    target = os.path.realpath(path)
    if os.path.isdir(target) or path.endswith(os.sep):
        raise IsADirectoryError(f"cannot write {path}: it is a directory; name a file in it")
    try:
        if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
            return None, _LocalFile(path, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        temporary = _temporary_name(target)
        raw = _LocalFile(temporary, path)
        if os.path.exists(target):
            shutil.copymode(target, temporary)
        return temporary, raw
    except OSError as error:
        raise _named(error, f"cannot write {path}") from None


def _open_remote_temporary(path: str) -> tuple[str, "_RemoteFile"]:
    make_folder(path.rsplit("/", 1)[0])
    temporary = _temporary_name(path)
    return temporary, _RemoteFile(temporary, "wb")


def _temporary_name(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def _rename(temporary: str, path: str) -> None:
    if is_remote(path):
        with _tensorflow_errors_as_os_errors(path):
            _gfile().rename(temporary, path, overwrite=True)
    else:
        os.replace(temporary, os.path.realpath(path))


def remove_file(path: str) -> None:
    """Removes a file."""
    if is_remote(path):
        with _tensorflow_errors_as_os_errors(path):
            _gfile().remove(path)
    else:
        os.remove(path)


class _LocalFile(io.FileIO):
    """A file being written, whose errors name the file that the user asked for."""

    def __init__(self, path: str, shown: str):
        super().__init__(path, "w")
        self._shown = shown

    def write(self, data) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise _named(error, f"cannot write {self._shown}; what was there is unchanged") from None

    def sync(self) -> None:
        if stat.S_ISREG(os.fstat(self.fileno()).st_mode):
            try:
                os.fsync(self.fileno())
            except OSError as error:
                raise _named(error, f"cannot write {self._shown}; what was there is unchanged") from None


class _RemoteFile(io.RawIOBase):
    """A ``tf.io.gfile.GFile`` as a raw file of Python's, so that buffering, lines and offsets are Python's."""

    def __init__(self, path: str, mode: str):
        self._path, self._mode = path, mode
        with _tensorflow_errors_as_os_errors(path):
            self._file = _gfile().GFile(path, mode)
            if mode == "rb":
                self._file.size()  # GFile opens on first use: a missing file is to be reported here

    def readable(self) -> bool:
        return self._mode == "rb"

    def writable(self) -> bool:
        return self._mode == "wb"

    def readinto(self, buffer) -> int:
        with _tensorflow_errors_as_os_errors(self._path):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seekable(self) -> bool:
        return self._mode == "rb"

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with _tensorflow_errors_as_os_errors(self._path):
            self._file.seek(offset, whence)
            return self._file.tell()

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data) -> int:
        with _tensorflow_errors_as_os_errors(self._path):
            self._file.write(bytes(data))
        return len(data)

    def sync(self) -> None:
        with _tensorflow_errors_as_os_errors(self._path):
            self._file.flush()

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _tensorflow_errors_as_os_errors(self._path):
                self._file.close()


def _gfile():
    import tensorflow as tf

    return tf.io.gfile


@contextlib.contextmanager
def _tensorflow_errors_as_os_errors(path: str | os.PathLike) -> Iterator[None]:
    import tensorflow as tf

    try:
        yield
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(f"there is no file {path} ({error.message})") from None
    except tf.errors.OpError as error:
        raise OSError(f"{path}: {error.message}") from None


def reason_of(error) -> str:
    """What an error of TensorFlow (``tf.errors.OpError``) says, without the names of TensorFlow's own parts."""
    return re.sub(r"\{\{.*?\}\}|\[Op:.*?\]( name:)?", "", error.message).strip()


def _named(error: OSError, message: str) -> OSError:
    """The same error, with one line that says which file was meant."""
    named = type(error)(f"{message}: {error.strerror or error}")
    named.errno = error.errno
    return named
