"""Files and folders, local or remote: opened, made and removed with errors of one line that names the path."""

import contextlib
import io
import os
import shutil
from collections.abc import Callable, Iterator

from tf_bert.files.errors import named
from tf_bert.files.remote import BUFFER_BYTES, RemoteFile, gfile, is_remote, tensorflow_errors_as_os_errors


def file_size(path: str | os.PathLike) -> int:
    """The size of a file in bytes."""
    if is_remote(path):
        with tensorflow_errors_as_os_errors(path):
            return gfile().stat(os.fspath(path)).length
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
        return io.BufferedReader(RemoteFile(path, "rb"), BUFFER_BYTES)
    try:
        return open(path, "rb", BUFFER_BYTES)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise IsADirectoryError(f"{path} is a directory; name the files in it, as in {path.rstrip('/')}/*") from None
    except PermissionError:
        raise PermissionError(f"no permission to read {path}") from None
    except OSError as error:
        raise named(error, f"cannot read {path}") from None


def reader_at(path: str | os.PathLike) -> Callable[[int, int], bytes]:
    """Opens a file to read from anywhere in it.

    Returns:
        A function of the size to read and of the place to begin at, as ``os.pread``.

    Raises:
        OSError: one line that names the path.
    """
    path = os.fspath(path)
    if is_remote(path):
        file = RemoteFile(path, "rb")

        def read_remote(size: int, offset: int) -> bytes:
            file.seek(offset)
            return file.read(size)

        return read_remote
    local = open_binary(path)
    return lambda size, offset: os.pread(local.fileno(), size, offset)


def exists(path: str | os.PathLike) -> bool:
    """Whether there is a file or folder."""
    if is_remote(path):
        with tensorflow_errors_as_os_errors(path):
            return gfile().exists(os.fspath(path))
    return os.path.exists(path)


def remove_folder(path: str | os.PathLike) -> None:
    """Removes a folder with all that is in it."""
    if is_remote(path):
        with tensorflow_errors_as_os_errors(path):
            gfile().rmtree(os.fspath(path))
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
        with tensorflow_errors_as_os_errors(path):
            gfile().makedirs(path)
        return
    try:
        os.makedirs(path or ".", exist_ok=True)
    except OSError as error:
        raise named(error, f"cannot make the folder {path}") from None


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


def remove_file(path: str) -> None:
    """Removes a file."""
    if is_remote(path):
        with tensorflow_errors_as_os_errors(path):
            gfile().remove(path)
    else:
        os.remove(path)
