"""Vectors of the pieces of texts, or of whole texts, in files: what ``extract_features`` reads and writes."""

import contextlib
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from typing import IO

import numpy as np

from tf_bert.data.finetuning.classification import InputExample
from tf_bert.files import atomic_writer

ROWS_IN_A_GROUP = 256  # of a Parquet file: how many texts are in memory
_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")


def read_example(number: int, line: str) -> InputExample:
    """A line of the input: a text, or two with `` ||| `` between them (the last one counts).

    Example:
        >>> read_example(0, "Who ? ||| A ||| B").text_a, read_example(1, "a|||b").text_b
        ('Who ? ||| A', None)
    """
    line = line.strip()
    pair = _PAIR.match(line)
    return InputExample(str(number), *(pair.groups() if pair else (line,)))


def pool(values: np.ndarray, pooling: str) -> np.ndarray:
    """One vector of a text for each layer.

    Args:
        values: [T, L, H], of the T pieces of the text with [CLS] and [SEP], without padding.
        pooling: ``"cls"`` the first piece's, ``"mean"`` or ``"max"`` over all pieces.

    Returns:
        [L, H].
    """
    return {"cls": lambda: values[0], "mean": lambda: values.mean(axis=0), "max": lambda: values.max(axis=0)}[pooling]()


class JsonLinesWriter(contextlib.ExitStack):
    """The original's format: for each text ``linex_index`` and the vectors of its pieces, six places after the point.

    With pooling ``layers`` stands beside ``linex_index``, without pieces.
    """

    def __init__(self, path: str | os.PathLike, layers: Sequence[int], pooled: bool):
        super().__init__()
        self._layers, self._pooled = layers, pooled
        self._file = self.enter_context(atomic_writer(path, "w"))

    def write(self, number: int, tokens: Sequence[str], values: np.ndarray) -> None:
        """Appends a text: its vectors [T, L, H], or [L, H] where they are pooled."""
        line = {"linex_index": number}
        if self._pooled:
            line["layers"] = self._of_layers(values)
        else:
            line["features"] = [
                {"token": token, "layers": self._of_layers(of_token)}
                for token, of_token in zip(tokens, values, strict=True)
            ]
        self._file.write(json.dumps(line) + "\n")

    def _of_layers(self, values: np.ndarray) -> list[dict]:
        rounded = [[round(value, 6) for value in row] for row in values.astype(float).tolist()]
        return [{"index": index, "values": row} for index, row in zip(self._layers, rounded, strict=True)]


class NpzWriter(contextlib.ExitStack):
    """NumPy arrays: ``values`` float32 [all pieces, L, H] and ``tokens`` of all texts, one behind the other.

    Text i has the rows ``offsets[i]`` to ``offsets[i + 1]``; ``layers`` says which layers these are. With pooling
    ``values`` is [texts, L, H] and there are no ``tokens``. Both pass through temporary files, not through memory.
    """

    def __init__(self, path: str | os.PathLike, layers: Sequence[int], pooled: bool):
        super().__init__()
        self._layers, self._pooled = layers, pooled
        self._offsets, self._shape, self._longest = [0], None, 1
        self._file = self.enter_context(atomic_writer(path))
        self._values: IO[bytes] = self.enter_context(tempfile.TemporaryFile())
        self._tokens: IO[bytes] = self.enter_context(tempfile.TemporaryFile())

    def write(self, number: int, tokens: Sequence[str], values: np.ndarray) -> None:
        """Appends a text."""
        if self._pooled:
            values = values[None]
        else:
            self._longest = max(self._longest, *map(len, tokens))
            self._tokens.write("".join(token + "\n" for token in tokens).encode())
        self._shape = values.shape[1:]
        self._offsets.append(self._offsets[-1] + len(values))
        self._values.write(np.ascontiguousarray(values, "<f4").tobytes())

    def __exit__(self, kind, *rest) -> bool | None:
        if kind is None:
            self._finish()
        return super().__exit__(kind, *rest)

    def _finish(self) -> None:
        rows = self._offsets[-1]
        with zipfile.ZipFile(self._file, "w") as archive:
            arrays = {"layers": self._layers} | ({} if self._pooled else {"offsets": self._offsets})
            for name, values in arrays.items():
                with archive.open(f"{name}.npy", "w") as entry:
                    np.lib.format.write_array(entry, np.array(values))
            if not self._pooled:
                self._tokens.seek(0)
                width = 4 * self._longest  # of a NumPy string: UTF-32
                strings = (line[:-1].decode().encode("utf-32-le").ljust(width, b"\0") for line in self._tokens)
                self._write_stream(archive, "tokens", f"<U{self._longest}", (rows,), strings)
            self._values.seek(0)
            blocks = iter(lambda: self._values.read(1 << 20), b"")
            shape = (rows, *(self._shape or (len(self._layers), 0)))
            self._write_stream(archive, "values", "<f4", shape, blocks)

    @staticmethod
    def _write_stream(archive: zipfile.ZipFile, name: str, kind: str, shape: tuple, blocks: Iterable[bytes]) -> None:
        """Writes an array whose bytes come one after the other."""
        with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
            header = {"descr": kind, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(entry, header)
            for block in blocks:
                entry.write(block)


class ParquetWriter(contextlib.ExitStack):
    """A table with a row for each text: ``linex_index``, ``tokens``, and for each layer its vectors.

    With pooling a layer's column holds one vector, and there are no ``tokens``. Needs pyarrow.
    """

    def __init__(self, path: str | os.PathLike, layers: Sequence[int], pooled: bool):
        super().__init__()
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise ImportError("--format=parquet needs pyarrow: pip install pyarrow") from None
        vector = pyarrow.list_(pyarrow.float32())
        columns = [("linex_index", pyarrow.int64())]
        if not pooled:
            columns.append(("tokens", pyarrow.list_(pyarrow.string())))
        columns += [(f"layer_{layer}", vector if pooled else pyarrow.list_(vector)) for layer in layers]
        self._pooled = pooled
        self._schema, self._table = pyarrow.schema(columns), pyarrow.Table
        file = self.enter_context(atomic_writer(path))
        self._writer = self.enter_context(pyarrow.parquet.ParquetWriter(file, self._schema))
        self._rows: list[list] = []

    def write(self, number: int, tokens: Sequence[str], values: np.ndarray) -> None:
        """Appends a text."""
        of_layers = values if self._pooled else values.swapaxes(0, 1)
        self._rows.append([number] + ([] if self._pooled else [list(tokens)]) + [layer.tolist() for layer in of_layers])
        if len(self._rows) == ROWS_IN_A_GROUP:
            self._flush()

    def _flush(self) -> None:
        columns = map(list, zip(*self._rows, strict=True)) if self._rows else [[] for _ in self._schema.names]
        table = self._table.from_pydict(dict(zip(self._schema.names, columns, strict=True)), schema=self._schema)
        self._writer.write_table(table)
        self._rows.clear()

    def __exit__(self, kind, *rest) -> bool | None:
        if kind is None:
            self._flush()
        return super().__exit__(kind, *rest)


WRITERS = {"jsonl": JsonLinesWriter, "npz": NpzWriter, "parquet": ParquetWriter}
