"""``tf.train.Example`` messages without TensorFlow or protocol buffers.

An Example (``tensorflow/core/example/example.proto``) is a map from feature names to a list of integers, of floats or
of byte strings. Features are written in the order of their names, as the official library's deterministic
serialization does.
"""

import functools
import struct
from collections.abc import Iterator, Mapping, Sequence

# Field numbers and wire types of example.proto, as the tag bytes they make: (field << 3) | wire type.
_VARINT, _LENGTH_DELIMITED = 0, 2
_FIXED_LENGTHS = {1: 8, 5: 4}  # wire type -> bytes
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3


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
