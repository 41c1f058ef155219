"""TFRecord files without TensorFlow.

A TFRecord file is a sequence of frames::

    length  uint64, little endian
    crc     uint32, masked CRC-32C of the eight bytes of length
    data    length bytes
    crc     uint32, masked CRC-32C of data

The data is mostly a serialized ``tf.train.Example``, which `encode_example` makes and `decode_example` reads.

Example:
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "words.tfrecord")
    >>> with RecordWriter(path) as writer:
    ...     writer.write(encode_example({"ids": [7, 300, -1], "weights": [0.5], "text": [b"caf\\xc3\\xa9"]}))
    >>> [decode_example(record) for record in read_records(path)]
    [{'ids': [7, 300, -1], 'text': [b'caf\\xc3\\xa9'], 'weights': [0.5]}]
"""

import contextlib
import functools
import struct
from collections.abc import Iterator
from os import PathLike, fspath
from typing import BinaryIO

import google_crc32c

from tf_bert.data.tfrecord.example_codec import decode_example, encode_example
from tf_bert.files import atomic_writer, file_size, open_binary

__all__ = [
    "RecordWriter",
    "count_records",
    "decode_example",
    "encode_example",
    "frame",
    "masked_crc32c",
    "read_records",
]

_MASK_DELTA = 0xA282EAD8
_HEADER_BYTES = 12
_PART_BYTES = 1 << 24


def masked_crc32c(data: bytes) -> int:
    """The CRC-32C of ``data``, rotated and shifted as TFRecord files store it."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


@functools.lru_cache(maxsize=4096)
def _frame_header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc32c(packed))


def frame(data: bytes) -> bytes:
    """One record as it stands in a TFRecord file."""
    return b"".join((_frame_header(len(data)), data, struct.pack("<I", masked_crc32c(data))))


class RecordWriter:
    """Writes a TFRecord file, byte for byte as ``tf.io.TFRecordWriter`` does.

    The records go to a temporary file that takes the name ``path`` only when the writer is closed without an error:
    a run that is killed, or a full disk, leaves the old file as it was.

    Args:
        path: where the file goes; a path such as ``gs://...`` is written through ``tf.io.gfile``.

    Raises:
        OSError: when the file cannot be written.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "two.tfrecord")
        >>> with RecordWriter(path) as writer:
        ...     writer.write(b"one")
        ...     writer.write(b"two")
        >>> list(read_records(path)), os.path.getsize(path)
        ([b'one', b'two'], 38)
    """

    def __init__(self, path: str | PathLike):
        self.path = fspath(path)
        self._stack = contextlib.ExitStack()
        self._file = self._stack.enter_context(atomic_writer(self.path))

    def write(self, record: bytes) -> None:
        """Appends one record."""
        self._file.write(frame(record))

    def write_frames(self, frames: bytes) -> None:
        """Appends records that `frame` has framed, such as a worker process does."""
        self._file.write(frames)

    def close(self) -> None:
        """Finishes the file under its own name."""
        self._stack.close()

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(self, *exception) -> None:
        self._stack.__exit__(*exception)


def read_records(path: str | PathLike) -> Iterator[bytes]:
    """Yields the records of a TFRecord file, each checked against its checksums.

    Args:
        path: the file; a path such as ``gs://...`` is read through ``tf.io.gfile``.

    Raises:
        ValueError: for a file that is cut short, damaged or no TFRecord file; names the file, the number of the
            record (the first is 1) and the byte where it begins.
    """
    path = fspath(path)
    offset = 0
    number = 1
    with open_binary(path) as file:
        while header := file.read(_HEADER_BYTES):
            where = f"{path}: record {number}, which begins at byte {offset:,},"
            length = _length(header, where, number)
            body = _read(file, length + 4)
            if len(body) < length + 4:
                raise ValueError(f"{where} is cut short: {len(body):,} of {length + 4:,} bytes are there")
            data = body[:length]
            if struct.unpack_from("<I", body, length)[0] != masked_crc32c(data):
                raise ValueError(f"{where} is damaged: the checksum of its {length:,} bytes does not match")
            yield data
            offset += 16 + length
            number += 1


def count_records(path: str | PathLike) -> int:
    """Counts the records of a TFRecord file by the lengths of its frames, without reading what they hold.

    Raises:
        ValueError: for a file that is cut short, damaged or no TFRecord file; see `read_records`.
    """
    path = fspath(path)
    size = file_size(path)
    offset = 0
    number = 1
    with open_binary(path) as file:
        while offset < size:
            where = f"{path}: record {number}, which begins at byte {offset:,},"
            length = _length(file.read(_HEADER_BYTES), where, number)
            left = size - offset - _HEADER_BYTES
            if left < length + 4:
                raise ValueError(f"{where} is cut short: {left:,} of {length + 4:,} bytes are there")
            offset += 16 + length
            file.seek(offset)
            number += 1
    return number - 1


def _length(header: bytes, where: str, number: int) -> int:
    """The length of a record, by the header of its frame."""
    if len(header) < _HEADER_BYTES:
        raise ValueError(f"{where} is cut short: {len(header)} bytes of its {_HEADER_BYTES}-byte header are there")
    (length,) = struct.unpack_from("<Q", header)
    if header != _frame_header(length):
        hint = "; is this a TFRecord file (compressed ones are not read)?" if number == 1 else ""
        raise ValueError(f"{where} has a damaged header: the checksum of its length does not match{hint}")
    return length


def _read(file: BinaryIO, size: int) -> bytes:
    """Reads as much as is there, in parts: a length that lies claims no memory."""
    if size <= _PART_BYTES:
        return file.read(size)
    parts = []
    while size > 0 and (part := file.read(min(size, _PART_BYTES))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
