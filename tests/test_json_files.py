"""JSON from outside: any bytes give a value or one line that names the place."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_bert.json_files import json_line, parse_json, read_json, read_json_object

DEEP = 200_000


@pytest.mark.parametrize(
    "data, said",
    [
        (b"[" * DEEP + b"]" * DEEP, "lists or objects are nested too deeply"),
        (b'{"a":' * DEEP + b"1" + b"}" * DEEP, "lists or objects are nested too deeply"),
        (b'{"a": 1, "b": 2, "a": 1}', "an object has the name 'a' twice"),
        (b'[{"a": {"b": 1, "b": 2}}]', "an object has the name 'b' twice"),
        (b'{"a": "\xe9"}', r"not valid UTF-8 at byte offset 7 \(byte 0xe9\)"),
        (b'{"a": 1', "not JSON: Expecting"),
        (b"", "not JSON: Expecting value"),
        (b"1" * 5000, "not JSON: Exceeds the limit"),
    ],
)
def test_what_is_no_json(tmp_path, data, said):
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"^{path}: {said}"):
        read_json(path)


@pytest.mark.parametrize("text, kind", [("[]", "a list"), ("1.5", "a number"), ("null", "null"), ('"a"', "a text")])
def test_what_is_no_object(tmp_path, text, kind):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^{path}: found {kind}, expected a JSON object"):
        read_json_object(path)


def test_a_byte_order_mark_is_dropped(tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json_object(tmp_path / "a.json") == {"a": 1}


@given(st.binary() | st.text(alphabet='{}[]",:0123456789.eEtruefalsn \\u').map(str.encode))
def test_any_bytes_are_read_or_refused(data):
    try:
        value = parse_json(data, "a.json")
    except ValueError as error:
        assert str(error).startswith("a.json: ")
    else:
        assert json.dumps(value) == json.dumps(json.loads(data.decode("utf-8-sig")))  # NaN is not equal to itself


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50)
@given(VALUES | st.characters(categories=["Cs"]))
def test_what_is_written_is_read_again(value):
    assert parse_json(json_line(value).encode("utf-8"), "a.json") == value
