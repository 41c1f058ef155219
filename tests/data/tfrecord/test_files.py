"""TFRecord files and Examples without TensorFlow, against TensorFlow's own."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_bert.data.tfrecord.files import RecordWriter, decode_example, encode_example, read_records

# Example's feature names and byte values of one test record; floats are float32 already.
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_FLOATS = st.floats(width=32, allow_nan=False)
_VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
    st.lists(st.integers(0, 127), min_size=1, max_size=200),
    st.lists(_FLOATS, min_size=1, max_size=40),
    st.lists(st.binary(max_size=300), min_size=1, max_size=5),
)


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def _as_proto(tf, features):
    example = tf.train.Example()
    for name, values in features.items():
        feature = example.features.feature[name]
        if isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif isinstance(values[0], float):
            feature.float_list.value.extend(values)
        else:
            feature.int64_list.value.extend(values)
    return example


@settings(max_examples=300, deadline=None)
@given(features=st.dictionaries(_NAMES, _VALUES, max_size=6))
def test_examples_are_the_official_bytes_and_come_back(tf, features):
    official = _as_proto(tf, features)
    encoded = encode_example(features)
    # The official Python library sorts a name behind the longer names that begin with it, the one in C++ before them.
    if not any(a != b and b.startswith(a) for a in features for b in features):
        assert encoded == official.SerializePartialToString(deterministic=True)
    assert tf.train.Example.FromString(encoded) == official
    assert decode_example(encoded) == features
    assert decode_example(official.SerializeToString()) == features  # in whatever order its map has


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=60))
def test_decoding_any_bytes_raises_a_value_error_or_agrees(tf, data):
    try:
        decoded = decode_example(data)
    except ValueError:
        return
    again = decode_example(encode_example({name: values for name, values in decoded.items() if values}))
    np.testing.assert_equal(again, {name: values for name, values in decoded.items() if values})


@settings(max_examples=200, deadline=None)
@given(features=st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=3), data=st.data())
def test_a_message_cut_anywhere_is_refused_or_is_shorter(tf, features, data):
    encoded = encode_example(features)
    cut = data.draw(st.integers(1, len(encoded) - 1))
    with pytest.raises(ValueError, match="no tf.train.Example"):
        decode_example(encoded[:cut])


def test_arrays_text_and_empty_features(tf):
    features = {
        "f": np.array([1.5, -2.0], np.float32),
        "i": np.array([3, 70000], np.int32),
        "none": np.array([], np.int64),
        "s": ["café"],
    }
    expected = _as_proto(tf, {"f": [1.5, -2.0], "i": [3, 70000], "s": ["café".encode()]})
    expected.features.feature["none"].int64_list.SetInParent()
    assert encode_example(features) == expected.SerializePartialToString(deterministic=True)
    assert decode_example(encode_example(features))["none"] == []


def test_unpacked_numbers_of_other_writers_are_read():
    # features { feature { key: "i" value { int64_list { value: 5 value: -1 } } } }, one field a value
    minus_one = b"\xff" * 9 + b"\x01"
    int64_list = b"\x08\x05\x08" + minus_one
    feature = b"\x1a" + bytes([len(int64_list)]) + int64_list
    entry = b"\x0a\x01i\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    assert decode_example(b"\x0a" + bytes([len(features)]) + features) == {"i": [5, -1]}


@pytest.mark.parametrize("values", [[1, 2.0], [None], [], [2**63], [b"a", 1]])
def test_features_of_no_one_kind_are_refused(values):
    with pytest.raises(ValueError):
        encode_example({"x": values})


def test_files_are_the_official_bytes(tf, tmp_path):
    records = [b"", b"a", bytes(range(256)) * 40, b"\x00" * 70000, *(bytes([n]) * n for n in range(1, 200, 7))]
    with RecordWriter(tmp_path / "ours") as writer:
        for record in records:
            writer.write(record)
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for record in records:
            writer.write(record)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert list(read_records(tmp_path / "ours")) == records


def test_other_file_systems_go_through_tensorflow(tf):
    with RecordWriter("ram://folder/three.tfrecord") as writer:
        for record in (b"one", b"two", b"x" * 100_000):
            writer.write(record)
    assert list(read_records("ram://folder/three.tfrecord")) == [b"one", b"two", b"x" * 100_000]
    with pytest.raises(FileNotFoundError, match="ram://folder/none"):
        list(read_records("ram://folder/none"))


@pytest.fixture
def three_records(tmp_path):
    path = tmp_path / "three.tfrecord"
    with RecordWriter(path) as writer:
        for record in (b"first", b"second", b"third"):
            writer.write(record)
    return path  # 21 + 22 + 21 bytes


@pytest.mark.parametrize(
    "size, message",
    [(50, "record 3, which begins at byte 43, is cut short"), (60, "record 3, which begins at byte 43, is cut short")],
)
def test_a_truncated_file_says_where(three_records, size, message):
    three_records.write_bytes(three_records.read_bytes()[:size])
    records = []
    with pytest.raises(ValueError, match=message) as error:
        for record in read_records(three_records):
            records.append(record)
    assert records == [b"first", b"second"]
    assert str(three_records) in str(error.value)


@pytest.mark.parametrize("byte, message", [(35, "damaged: the checksum of its 6 bytes"), (21, "damaged header")])
def test_a_damaged_file_says_where(three_records, byte, message):
    data = bytearray(three_records.read_bytes())
    data[byte] ^= 0x10
    three_records.write_bytes(data)
    with pytest.raises(ValueError, match=f"record 2, which begins at byte 21, .*{message}"):
        list(read_records(three_records))


def test_a_text_file_is_no_record_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Not records at all.\n")
    with pytest.raises(ValueError, match="is this a TFRecord file"):
        list(read_records(path))


def test_an_error_leaves_the_old_file(three_records):
    before = three_records.read_bytes()
    with pytest.raises(RuntimeError), RecordWriter(three_records) as writer:
        writer.write(b"new")
        raise RuntimeError
    assert three_records.read_bytes() == before
    assert [path.name for path in three_records.parent.iterdir()] == [three_records.name]


def test_tensorflow_is_not_imported():
    code = "import sys, tf_bert.data.tfrecord.files; sys.exit('tensorflow' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
