"""Reading text: what a line is, which files a pattern names, and what is said about bad input."""

import gzip
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_files import as_ordinary_user
from tf_bert.data.text.lines import expand_input_files, read_lines, refuse_outputs_among, total_size
from tf_bert.progress import Progress


def lines_of(tmp_path, data: bytes) -> list[str]:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    return list(read_lines(path))


@pytest.mark.parametrize(
    "data, lines",
    [
        (b"", []),
        (b"\n", [""]),
        (b"one", ["one"]),
        (b"one\n\ntwo\n", ["one", "", "two"]),
        (b" one \n", [" one "]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"one\rtwo\n", ["onetwo"]),  # the original drops the byte, so that the words join
        (b"\xc3\r\xa9\n", ["é"]),  # and before it decodes
        ("one\u2028two\u2029three\x85four\x0bfive\x0csix\x1cseven\n".encode(), None),
        (b"a\x00b\n", ["a\x00b"]),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        (b"\xef\xbb\xbf", [""]),
        (b"\xef\xbb\xbf\n", [""]),
    ],
)
def test_lines(tmp_path, data, lines):
    assert lines_of(tmp_path, data) == (lines if lines is not None else [data.decode()[:-1]])


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_lines_end_only_at_line_feeds(tmp_path_factory, text):
    lines = lines_of(tmp_path_factory.mktemp("lines"), text.encode())
    wanted = text.replace("\r", "").removeprefix("\ufeff").split("\n")
    if not text.endswith("\n"):
        assert lines == ([] if text == "" else wanted)
    else:
        assert lines == wanted[:-1]


def test_a_line_of_a_megabyte_without_blanks(tmp_path):
    assert lines_of(tmp_path, b"x" * 1_000_000 + b"\ny") == ["x" * 1_000_000, "y"]


@pytest.mark.parametrize(
    "data, offset, byte",
    [
        (b"\xff", 0, 0xFF),
        (b"one\ntw\xe4o\n", 6, 0xE4),
        (b"one\r\r\ntw\r\xe4o\n", 9, 0xE4),
        (b"\xef\xbb\xbfone\xe4", 6, 0xE4),
        (b"cut short \xe2\x82", 10, 0xE2),
        (b"\xed\xa0\x80", 0, 0xED),  # a surrogate
    ],
)
def test_bad_bytes_are_named_with_their_place(tmp_path, data, offset, byte):
    with pytest.raises(ValueError, match=rf"a\.txt: not valid UTF-8 at byte offset {offset} \(byte 0x{byte:x}"):
        lines_of(tmp_path, data)


def test_the_offset_is_into_the_file_also_when_it_is_long(tmp_path):
    with pytest.raises(ValueError, match="byte offset 3000000 "):
        lines_of(tmp_path, b"word \n" * 500_000 + b"\x80")


def test_utf16_is_recognised(tmp_path):
    with pytest.raises(ValueError, match="byte offset 0 .*iconv -f UTF-16"):
        lines_of(tmp_path, "one\n".encode("utf-16"))


def test_gzip(tmp_path):
    packed = gzip.compress(b"one\r\ntwo\n" * 1000)
    assert lines_of(tmp_path, packed) == ["one", "two"] * 1000
    with pytest.raises(ValueError, match=r"a\.txt: damaged gzip file"):
        lines_of(tmp_path, packed[:-9])
    with pytest.raises(ValueError, match="byte offset 4 of the decompressed text"):
        lines_of(tmp_path, gzip.compress(b"one\n\xff"))


def test_places_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file .*none"):
        list(read_lines(tmp_path / "none"))
    with pytest.raises(IsADirectoryError, match="is a directory"):
        list(read_lines(tmp_path))
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    with as_ordinary_user(), pytest.raises(PermissionError, match="no permission to read .*secret"):
        list(read_lines(tmp_path / "secret"))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_progress_counts_the_bytes_on_disk(tmp_path, pack):
    class Counting(Progress):
        calls = 0

        def update(self, units=1):
            self.calls += 1
            super().update(units)

    path = tmp_path / "a.txt"
    path.write_bytes(pack(os.urandom(500_000).hex().encode() + b"\n" + b"one\n" * 100_000))
    progress = Counting("reading")
    for _ in read_lines(path, progress):
        pass
    assert progress._count == total_size([path]) == path.stat().st_size
    assert 2 < progress.calls < 20


def test_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["sh", "-c", f"printf 'one\\ntwo' | gzip > {tmp_path}/pipe"]):
        with Progress("reading") as progress:
            assert list(read_lines(tmp_path / "pipe", progress)) == ["one", "two"]
    assert progress._count == 7


@pytest.fixture
def three_files(tmp_path, monkeypatch):
    for name in ("b.txt", "a.txt", "c[1].txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "patterns, files",
    [
        ("a.txt", ["a.txt"]),
        ("*.txt", ["a.txt", "b.txt", "c[1].txt"]),
        ("b.txt,a.txt", ["b.txt", "a.txt"]),
        ("b.txt, a.txt,", ["b.txt", "a.txt"]),
        ("?.txt,a.*", ["a.txt", "b.txt", "a.txt"]),  # listed twice, as the original
        ("[ab].txt", ["a.txt", "b.txt"]),
        ("c[1].txt", ["c[1].txt"]),
        (["b.txt", "a.txt,c*"], ["b.txt", "a.txt", "c[1].txt"]),
    ],
)
def test_patterns(three_files, patterns, files):
    assert expand_input_files(patterns) == files


def test_a_path_object(three_files):
    assert expand_input_files(three_files / "a.txt") == [f"{three_files}/a.txt"]


@pytest.mark.parametrize(
    "patterns, error, said",
    [
        ("", ValueError, "no input file was given"),
        (" , ", ValueError, "no input file was given"),
        ([], ValueError, "no input file was given"),
        ("d.txt", FileNotFoundError, r"'d.txt' does not exist \(looked in /"),
        ("a.txt,*.csv", FileNotFoundError, r"'\*.csv' matches no file \(looked in /"),
        ("/nowhere/*", FileNotFoundError, r"'/nowhere/\*' matches no file$"),
        ("folder", IsADirectoryError, r"input folder is a directory; name the files in it, as in folder/\*"),
        ("folder/", IsADirectoryError, r"as in folder/\*"),
        ("*", IsADirectoryError, "input folder is a directory"),
    ],
)
def test_patterns_that_name_no_file(three_files, patterns, error, said):
    with pytest.raises(error, match=said):
        expand_input_files(patterns)


def test_an_output_must_not_be_an_input(three_files):
    (three_files / "link.txt").symlink_to(three_files / "a.txt")
    refuse_outputs_among(["a.txt", "gs://bucket/x"], ["b.txt", "new.txt", "gs://bucket/y"])
    for output in ("a.txt", "./folder/../a.txt", "link.txt", "gs://bucket/x"):
        with pytest.raises(ValueError, match="it is one of the input files"):
            refuse_outputs_among(["b.txt", "a.txt", "gs://bucket/x"], [output])


@pytest.mark.parametrize(
    "name, encoding, text",
    [
        ("GB18030", "gb18030", "今天天气很好，我们去公园散步。你吃饭了吗？"),
        ("BIG5", "big5", "人人生而自由，在尊嚴和權利上一律平等。"),
        ("SHIFT_JIS", "cp932", "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"),
        ("EUC-JP", "euc_jp", "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"),
        ("EUC-KR", "euc_kr", "대한민국은 민주공화국이다. 대한민국의 주권은 국민에게 있다."),
        ("UTF-16", "utf-16", "今天天气很好，我们去公园散步。"),
    ],
)
def test_other_encodings_are_named_and_can_be_read(tmp_path, name, encoding, text):
    path = tmp_path / "text.txt"
    path.write_bytes(f"{text}\r\n\n{text}\n".encode(encoding))
    with pytest.raises(ValueError, match=f"looks like {name}: give --encoding={name.lower()} .* iconv -f {name} "):
        list(read_lines(path))
    assert list(read_lines(path, encoding=name.lower())) == [text, "", text]


def test_bytes_that_are_no_text_are_not_called_latin1(tmp_path):
    path = tmp_path / "image.bin"
    path.write_bytes(bytes(range(256)) * 8)
    with pytest.raises(ValueError, match="its encoding is not recognised: convert the file to UTF-8 first$"):
        list(read_lines(path))


def test_an_encoding_that_is_none(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("text")
    for name in ("base64", "klingon"):
        with pytest.raises(ValueError, match=f"unknown encoding '{name}'; known are such as utf-8, utf-16, "):
            list(read_lines(path, encoding=name))


def test_an_empty_file_is_named(tmp_path):
    with pytest.warns(UserWarning, match="a.txt is empty"):
        assert lines_of(tmp_path, b"") == []


def test_lines_that_end_in_carriage_returns_alone_are_told_of(tmp_path):
    with pytest.warns(UserWarning, match="a.txt: one line with 3 carriage returns, which end no line here"):
        assert lines_of(tmp_path, b"one\rtwo\rthree\r") == ["onetwothree"]
