"""Reads text files: which files a flag names, and their lines.

The facts are the original's (``tf.gfile.GFile.readline``): a line ends only at ``\\n``, never at U+2028 or a lone
carriage return; ``\\r`` bytes are dropped wherever they stand; the bytes must be UTF-8. Beyond the original, a byte
order mark at the start of a file is dropped, gzip files and other encodings that are named are read as text, and an
error says where the fault is and which encoding the file is likely to have.
"""

import glob
import gzip
import io
import os
import warnings
import zlib
from collections.abc import Iterator, Sequence

from tf_bert.data.text.encodings import likely_encoding, python_name
from tf_bert.files import file_size, is_remote, open_binary
from tf_bert.progress import Progress

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"  # never the start of UTF-8 text
_PROGRESS_BYTES = 1 << 18
_SAMPLE_BYTES = 1 << 17  # by which an encoding is recognised


def expand_input_files(patterns: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """Expands a comma-separated list of file names and globs, as the original's ``--input_file``.

    Files come in the order of the patterns and sorted within each; what two patterns match is listed twice, as in the
    original. A name that exists is taken as it is, even with ``*`` or ``[`` in it. Unlike in the original, a pattern
    that matches nothing is an error, also beside others that do match: half a corpus is not what was asked for.

    Args:
        patterns: such as ``"a.txt,shards/*.txt,gs://bucket/b.txt"``, or a list of such strings.

    Returns:
        At least one path; directories are refused.

    Raises:
        ValueError: no pattern was given.
        FileNotFoundError: a pattern matches nothing.
        IsADirectoryError: a pattern names or matches a directory.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("b.txt", "a.txt"):
        ...         open(os.path.join(folder, name), "w").close()
        ...     [os.path.basename(path) for path in expand_input_files(os.path.join(folder, "*.txt"))]
        ['a.txt', 'b.txt']
    """
    if isinstance(patterns, (str, os.PathLike)):
        patterns = [patterns]
    wanted = [part.strip() for pattern in patterns for part in os.fspath(pattern).split(",")]
    wanted = [pattern for pattern in wanted if pattern]
    if not wanted:
        raise ValueError("no input file was given; name files or globs, separated by commas")
    return [path for pattern in wanted for path in _matches(pattern)]


def _matches(pattern: str) -> list[str]:
    if is_remote(pattern):
        import tensorflow as tf

        paths = sorted(tf.io.gfile.glob(pattern))
    elif os.path.exists(pattern):
        paths = [pattern]
    else:
        paths = sorted(glob.glob(os.path.expanduser(pattern)))
    if not paths:
        kind = "matches no file" if glob.has_magic(pattern) else "does not exist"
        where = "" if os.path.isabs(pattern) or is_remote(pattern) else f" (looked in {os.getcwd()})"
        raise FileNotFoundError(f"input file {pattern!r} {kind}{where}")
    for path in paths:
        if os.path.isdir(path):
            raise IsADirectoryError(f"input {path} is a directory; name the files in it, as in {path.rstrip('/')}/*")
    return paths


def refuse_outputs_among(inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Stops where a program would read what it wrote when it ran before, as with ``corpus/*`` into ``corpus/all.txt``.

    Raises:
        ValueError: names the file.
    """
    real_inputs = {path if is_remote(path) else os.path.realpath(path) for path in inputs}
    for output in outputs:
        if (output if is_remote(output) else os.path.realpath(output)) in real_inputs:
            raise ValueError(f"{output} is to be written, but it is one of the input files; write it to another folder")


def total_size(paths: Sequence[str]) -> int:
    """The bytes of all files on disk, for a progress bar over `read_lines`."""
    return sum(file_size(path) for path in paths)


def read_lines(path: str | os.PathLike, progress: Progress | None = None, encoding: str = "utf-8") -> Iterator[str]:
    """Yields the lines of a text file, one at a time.

    Lines end only at ``\\n``; it and every ``\\r`` are removed, other blanks stay. U+2028, form feeds and NUL
    characters are ordinary characters here. A byte order mark at the start of the file is dropped (the original keeps
    it, and its tokenizer deletes it). Gzip files, recognised by their first bytes, are decompressed.

    Args:
        path: a local path, or one with a scheme that ``tf.io.gfile`` knows.
        progress: is told of the bytes read from the disk (from a pipe: of the bytes of text).
        encoding: of the file.

    Raises:
        ValueError: the file has another encoding (names the byte offset and the likely encoding), the encoding is
            unknown, or it is a damaged gzip file.
        FileNotFoundError, IsADirectoryError, PermissionError, OSError: the file cannot be opened.

    Warns:
        UserWarning: the file is empty, or a single line with carriage returns in it.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write("One\\r\\ntwo\\u2028still two\\n".encode())
        ...     file.flush()
        ...     list(read_lines(file.name))
        ['One', 'two\\u2028still two']
    """
    return (line for _, line in lines_from(path, 0, progress, encoding))


def is_compressed(path: str | os.PathLike) -> bool:
    """Whether a file is compressed by gzip."""
    with open_binary(path) as file:
        return file.peek(2)[:2] == _GZIP_MAGIC


def lines_from(
    path: str | os.PathLike, start: int = 0, progress: Progress | None = None, encoding: str = "utf-8"
) -> Iterator[tuple[int, str]]:
    """Yields the lines that begin at byte ``start`` or later, each with the byte where it begins; see `read_lines`.

    Only what is not compressed, and not UTF-16 or UTF-32, can be read from the middle.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"One\\ntwo\\nthree\\n")
        ...     file.flush()
        ...     list(lines_from(file.name, 2)), next(lines_from(file.name, 4))
        ([(4, 'two'), (8, 'three')], (4, 'two'))
    """
    path, encoding = os.fspath(path), python_name(encoding)
    if encoding.startswith(("utf-16", "utf-32")):  # a line end is no byte there
        if start:
            raise ValueError(f"{path}: {encoding} cannot be read from the middle; convert the file to UTF-8 first")
        yield from _wide_lines(path, progress, encoding)
        return
    with open_binary(path) as raw:
        compressed = raw.peek(2)[:2] == _GZIP_MAGIC
        stream = gzip.GzipFile(fileobj=raw) if compressed else raw
        seekable = raw.seekable()  # a pipe does not know its position
        offset = reported = unreported = 0
        if start:
            raw.seek(start - 1)
            offset = start - 1 + len(raw.readline())  # the rest of a line that begins before
        try:
            for line in stream:
                at, offset = offset, offset + len(line)
                unreported += len(line)
                if progress is not None and unreported >= _PROGRESS_BYTES:
                    position, unreported = raw.tell() if seekable else offset, 0
                    progress.update(position - reported)
                    reported = position
                skipped = len(_BYTE_ORDER_MARK) if at == 0 and line.startswith(_BYTE_ORDER_MARK) else 0
                line = line[skipped:]
                kept = line.replace(b"\r", b"")
                try:
                    text = kept.decode(encoding)
                except UnicodeDecodeError as error:
                    raise ValueError(_undecodable(path, line, at + skipped, error, compressed)) from None
                if at == 0 and not line.endswith(b"\n") and line.count(b"\r") > 1:
                    warnings.warn(
                        f"{path}: one line with {line.count(13)} carriage returns, which end no line here: convert the "
                        "file, as with tr '\\r' '\\n'",
                        stacklevel=2,
                    )
                yield at, text[:-1] if text.endswith("\n") else text
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: damaged gzip file: {error}") from None
        if not offset:
            warnings.warn(f"{path} is empty", stacklevel=2)
        if progress is not None:
            progress.update((raw.tell() if seekable else offset) - reported)


def _wide_lines(path: str, progress: Progress | None, encoding: str) -> Iterator[tuple[int, str]]:
    """The lines of a file in UTF-16 or UTF-32, each with the byte where it would begin in UTF-8."""
    with open_binary(path) as raw:
        compressed = raw.peek(2)[:2] == _GZIP_MAGIC
        stream = gzip.GzipFile(fileobj=raw) if compressed else raw
        at = 0
        try:
            for line in io.TextIOWrapper(stream, encoding, newline="\n"):
                line = line.removesuffix("\n").replace("\r", "")
                yield at, line.removeprefix("\ufeff") if at == 0 else line
                at += len(line.encode("utf-8", "surrogatepass")) + 1
        except UnicodeError as error:
            raise ValueError(f"{path}: not valid {encoding}: {error}{_advice(path)}") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: damaged gzip file: {error}") from None
    if progress is not None:
        progress.update(total_size([path]))


def _undecodable(path: str, line: bytes, start: int, error: UnicodeDecodeError, compressed: bool) -> str:
    """Says which byte is wrong; the offset counts the carriage returns that were dropped before decoding."""
    places = [place for place, byte in enumerate(line) if byte != ord("\r")]
    position = places[min(error.start, len(places) - 1)]
    of = " of the decompressed text" if compressed else ""
    name = "UTF-8" if error.encoding == "utf-8" else error.encoding
    return (
        f"{path}: not valid {name} at byte offset {start + position}{of} (byte 0x{line[position]:02x}, "
        f"{error.reason}){_advice(path)}"
    )


def _advice(path: str) -> str:
    """How to read a file in another encoding, as far as the file tells which one it has."""
    with open_binary(path) as raw:
        compressed = raw.peek(2)[:2] == _GZIP_MAGIC
        sample = (gzip.GzipFile(fileobj=raw) if compressed else raw).read(_SAMPLE_BYTES)
    likely = likely_encoding(sample)
    if likely is None:
        return "; its encoding is not recognised: convert the file to UTF-8 first"
    return (
        f"; it looks like {likely}: give --encoding={likely.lower()} where the command has that flag, or convert it "
        f"with iconv -f {likely} -t UTF-8 {path}"
    )
