"""Paths with a scheme, such as ``gs://bucket/name``, through ``tf.io.gfile``; TensorFlow is imported only for them."""

import contextlib
import io
import os
from collections.abc import Iterator

BUFFER_BYTES = 1 << 18


def is_remote(path: str | os.PathLike) -> bool:
    """Whether a path has a scheme, such as ``gs://``.

    Example:
        >>> is_remote("gs://bucket/corpus.txt"), is_remote("corpus.txt")
        (True, False)
    """
    return "://" in os.fspath(path)


class RemoteFile(io.RawIOBase):
    """A ``tf.io.gfile.GFile`` as a raw file of Python's, so that buffering, lines and offsets are Python's."""

    def __init__(self, path: str, mode: str):
        self._path, self._mode = path, mode
        with tensorflow_errors_as_os_errors(path):
            self._file = gfile().GFile(path, mode)
            if mode == "rb":
                self._file.size()  # GFile opens on first use: a missing file is to be reported here

    def readable(self) -> bool:
        """Whether it is open to read."""
        return self._mode == "rb"

    def writable(self) -> bool:
        """Whether it is open to write."""
        return self._mode == "wb"

    def readinto(self, buffer) -> int:
        """Reads into a buffer; returns the number of bytes."""
        with tensorflow_errors_as_os_errors(self._path):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seekable(self) -> bool:
        """Whether it is open to read from anywhere."""
        return self._mode == "rb"

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Goes to a place; returns it."""
        with tensorflow_errors_as_os_errors(self._path):
            self._file.seek(offset, whence)
            return self._file.tell()

    def tell(self) -> int:
        """Returns the place."""
        return self._file.tell()

    def write(self, data) -> int:
        """Writes bytes; returns their number."""
        with tensorflow_errors_as_os_errors(self._path):
            self._file.write(bytes(data))
        return len(data)

    def sync(self) -> None:
        """Hands everything to the file system."""
        with tensorflow_errors_as_os_errors(self._path):
            self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        if not self.closed:
            super().close()
            with tensorflow_errors_as_os_errors(self._path):
                self._file.close()


def gfile():
    """Returns TensorFlow's file systems."""
    import tensorflow as tf

    return tf.io.gfile


@contextlib.contextmanager
def tensorflow_errors_as_os_errors(path: str | os.PathLike) -> Iterator[None]:
    """Turns TensorFlow's errors into those of Python, which name the path."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(f"there is no file {path} ({error.message})") from None
    except tf.errors.OpError as error:
        raise OSError(f"{path}: {error.message}") from None
