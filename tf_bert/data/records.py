"""TFRecord files and ``tf.train.Example`` messages without TensorFlow.

A TFRecord file is a sequence of frames::

    length  uint64, little endian
    crc     uint32, masked CRC-32C of the eight bytes of length
    data    length bytes
    crc     uint32, masked CRC-32C of data

Here the data is always a serialized ``tf.train.Example`` (``tensorflow/core/example/example.proto``): a map from
feature names to a list of integers, of floats or of byte strings. Features are written in the order of their names,
as the official library's deterministic serialization does.

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
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath

import google_crc32c

from tf_bert.files import atomic_writer, open_binary

# Field numbers and wire types of example.proto, as the tag bytes they make: (field << 3) | wire type.
_VARINT, _LENGTH_DELIMITED = 0, 2
_FIXED_LENGTHS = {1: 8, 5: 4}  # wire type -> bytes
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3

_MASK_DELTA = 0xA282EAD8


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
        while header := file.read(12):
            where = f"{path}: record {number}, which begins at byte {offset:,},"
            if len(header) < 12:
                raise ValueError(f"{where} is cut short: {len(header)} bytes of its 12-byte header are there")
            (length,) = struct.unpack_from("<Q", header)
            if header != _frame_header(length):
                hint = "; is this a TFRecord file (compressed ones are not read)?" if number == 1 else ""
                raise ValueError(f"{where} has a damaged header: the checksum of its length does not match{hint}")
            body = file.read(length + 4)
            if len(body) < length + 4:
                raise ValueError(f"{where} is cut short: {len(body):,} of {length + 4:,} bytes are there")
            data = body[:length]
            if struct.unpack_from("<I", body, length)[0] != masked_crc32c(data):
                raise ValueError(f"{where} is damaged: the checksum of its {length:,} bytes does not match")
            yield data
            offset += 16 + length
            number += 1


def varint(value: int) -> bytes:
    """The protocol buffers encoding of an int64: seven bits a byte, lowest first; negative numbers take ten bytes."""
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit in 64 bits")
    value &= 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _delimited(field: int, data: bytes) -> bytes:
    return bytes((field << 3 | _LENGTH_DELIMITED,)) + varint(len(data)) + data


@functools.lru_cache(maxsize=4096)
def _packed_prefix(name: str, kind: int, size: int) -> bytes:
    """What precedes ``size`` bytes of packed numbers in an entry of an Example's feature map."""
    values = b"\x0a" + varint(size) if size else b""  # field 1 of the list, the numbers themselves left out
    numbers_list = bytes((kind << 3 | _LENGTH_DELIMITED,)) + varint(len(values) + size) + values
    feature = b"\x12" + varint(len(numbers_list) + size) + numbers_list
    key = _delimited(1, name.encode())
    return b"\x0a" + varint(len(key) + len(feature) + size) + key + feature


def packed_int64_feature(name: str, packed: bytes) -> bytes:
    """An entry of an Example's feature map that holds integers, given as their varints, one behind the other."""
    return _packed_prefix(name, _INT64_LIST, len(packed)) + packed


def packed_float_feature(name: str, packed: bytes) -> bytes:
    """An entry of an Example's feature map that holds float32 numbers, given as their little-endian bytes."""
    return _packed_prefix(name, _FLOAT_LIST, len(packed)) + packed


def _bytes_feature(name: str, values: Sequence[bytes]) -> bytes:
    bytes_list = b"".join(_delimited(1, value) for value in values)
    return _delimited(1, _delimited(1, name.encode()) + _delimited(2, _delimited(_BYTES_LIST, bytes_list)))


def example_from_entries(entries: Sequence[bytes]) -> bytes:
    """An Example from its encoded features, which must stand in the order of their names."""
    return _delimited(1, b"".join(entries)) if entries else b""


def encode_example(features: Mapping[str, Sequence]) -> bytes:
    """Serializes a ``tf.train.Example``, its features in the order of their names.

    Args:
        features: feature name -> its values, a list or an array of one dimension: all ``int`` (stored as int64),
            all ``float`` (stored as float32) or all ``bytes`` or ``str`` (stored as bytes, text as UTF-8).

    Returns:
        The message's bytes.

    Raises:
        ValueError: for mixed kinds, for an integer beyond 64 bits, and for an empty list, whose kind is unknown
            (an empty array of NumPy has one).

    Example:
        >>> encode_example({"a": [1]}).hex()
        '0a0c0a0a0a016112051a030a0101'
    """
    entries = []
    for name in sorted(features, key=str.encode):
        values = features[name]
        kind = getattr(getattr(values, "dtype", None), "kind", None)
        if hasattr(values, "tolist"):
            values = values.tolist()
        kinds = {_kind_of(value) for value in values} or {kind}
        if kinds == {"i"} or kinds == {"u"}:
            entries.append(packed_int64_feature(name, b"".join(map(varint, values))))
        elif kinds == {"f"}:
            entries.append(packed_float_feature(name, struct.pack(f"<{len(values)}f", *values)))
        elif kinds == {"S"}:
            entries.append(_bytes_feature(name, [v.encode() if isinstance(v, str) else v for v in values]))
        else:
            found = "an empty list" if kinds == {None} else f"a list of {' and '.join(sorted(map(str, kinds)))}"
            raise ValueError(f"feature {name!r} is {found}; expected int, float or bytes throughout")
    return example_from_entries(entries)


def _kind_of(value) -> str:
    if isinstance(value, int):
        return "i"
    if isinstance(value, float):
        return "f"
    if isinstance(value, bytes | str):
        return "S"
    return type(value).__name__


def decode_example(data: bytes) -> dict[str, list]:
    """Reads a serialized ``tf.train.Example``, written by whatever library.

    Args:
        data: the message's bytes, such as one record of `read_records`.

    Returns:
        Feature name -> list of ``int``, ``float`` or ``bytes``; a feature without a value has an empty list.

    Raises:
        ValueError: when the bytes are no such message.

    Example:
        >>> decode_example(encode_example({"ids": [1, 2], "weights": [1.0]}))
        {'ids': [1, 2], 'weights': [1.0]}
    """
    result = {}
    try:
        for features in _messages(data, 1):
            for entry in _messages(features, 1):
                name = b"".join(list(_messages(entry, 1))[-1:]).decode()
                feature = b"".join(_messages(entry, 2))  # concatenated messages are one merged message
                result[name] = _feature_values(feature)
    except (struct.error, UnicodeDecodeError, _WireError) as error:
        raise ValueError(f"these {len(data):,} bytes are no tf.train.Example: {error}") from None
    return result


class _WireError(ValueError):
    pass


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes | int]]:
    """Yields (field number, wire type, value) of one message; the value of a varint is an int, else bytes."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, position = _read_varint(data, position)
        else:
            if wire_type == _LENGTH_DELIMITED:
                length, position = _read_varint(data, position)
            elif wire_type in _FIXED_LENGTHS:
                length = _FIXED_LENGTHS[wire_type]
            else:
                raise _WireError(f"unknown wire type {wire_type}")
            value = data[position : position + length]
            if len(value) < length:
                raise _WireError("it is cut short")
            position += length
        yield tag >> 3, wire_type, value


def _messages(data: bytes, field: int) -> Iterator[bytes]:
    for number, wire_type, value in _fields(data):
        if number == field and wire_type == _LENGTH_DELIMITED:
            yield value


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data):
            raise _WireError("it is cut short")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise _WireError("a number is longer than ten bytes")


def _feature_values(feature: bytes) -> list:
    values: list = []
    last_kind = None
    for kind, wire_type, message in _fields(feature):
        if wire_type != _LENGTH_DELIMITED or kind not in (_BYTES_LIST, _FLOAT_LIST, _INT64_LIST):
            continue
        if kind != last_kind:  # the three kinds are a oneof: the last one counts
            values, last_kind = [], kind
        if kind == _BYTES_LIST:
            values.extend(_messages(message, 1))
            continue
        # Numbers are packed into one field, or stand one to a field as older writers left them.
        for number, wire_type, value in _fields(message):
            if number != 1:
                continue
            if wire_type == _VARINT:
                values.append(_signed(value))
            elif kind == _INT64_LIST:
                values.extend(_read_int64s(value))
            else:
                values.extend(struct.unpack(f"<{len(value) // 4}f", value))
    return values


def _read_int64s(packed: bytes) -> list[int]:
    if packed.isascii():  # every number below 128 is its own byte
        return list(packed)
    values = []
    position = 0
    while position < len(packed):
        value, position = _read_varint(packed, position)
        values.append(_signed(value))
    return values


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
