"""Reads and writes GPT as OpenAI's GPT-2 and GPT-1 files and as Hugging Face's folders.

All store the kernels of query, key and value side by side; the rows of `tf_bert.checkpoints.names.gpt_rows` say what is
where, for reading and for writing.
"""

import math
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tf_bert.checkpoints import google, gpt_config, huggingface, names
from tf_bert.checkpoints.loading import cast, check_finite
from tf_bert.configs import GPTConfig
from tf_bert.files import atomic_folder, atomic_writer, copy_same, open_binary
from tf_bert.json_files import read_json, read_json_object
from tf_bert.tokenization.byte_pair import END_OF_WORD, BytePairTokenizer, GPT1Tokenizer, GPT2Tokenizer

_BLOCK = re.compile(r"(?:model/h|transformer\.h\.)(\d+)[/.]")
CONFIG = "gpt_config.json"  # ours, beside .weights.h5
PREFIX = "model.ckpt"  # of GPT-2
SHAPES, PARAMS = "params_shapes.json", "params_{}.npy"  # of GPT-1
# format -> names of the vocabulary and of the merges; what is in them is the same
VOCABULARIES = {
    "openai": [("encoder.json", "vocab.bpe"), ("encoder_bpe_40000.json", "vocab_40000.bpe")],
    "huggingface": [("vocab.json", "merges.txt")],
}


def is_gpt(path: str | os.PathLike) -> bool:
    """Whether a folder, or the folder of a prefix, holds a GPT in one of these formats."""
    path = os.fspath(path)
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if any(os.path.exists(os.path.join(folder, name)) for name in (gpt_config.HPARAMS, SHAPES)):
        return True
    return os.path.isdir(path) and gpt_config.model_type(path) in gpt_config.MODEL_TYPES


def open_files(
    path: str, config: GPTConfig | None = None, allow_nan: bool = False
) -> tuple[str, GPTConfig, "GPTReader", str | None]:
    """Opens a folder, or the prefix of a GPT-2 checkpoint.

    Args:
        path: the folder or prefix.
        config: the sizes, instead of those beside the weights.
        allow_nan: whether weights that are not finite are read all the same.

    Returns:
        The format, ``openai`` or ``huggingface``; the configuration; the reader; and the vocabulary file or None.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if os.path.isdir(path) and gpt_config.model_type(path) in gpt_config.MODEL_TYPES:
        format, stored = "huggingface", _HuggingFaceNames(path, allow_nan)
        config = config or gpt_config.read_config(path)
    elif os.path.exists(os.path.join(folder, gpt_config.HPARAMS)) and not os.path.exists(os.path.join(folder, SHAPES)):
        format, stored = "openai", google.GoogleReader(path, allow_nan)
        config = config or gpt_config.read_hparams(folder)
    else:
        format, stored = "openai", GPT1Files(folder, allow_nan)
        config = config or stored.config()
    return format, config, GPTReader(stored, config, format), vocabulary_file(folder)


def vocabulary_file(folder: str) -> str | None:
    """The vocabulary in a folder, whatever it is called there."""
    for pairs in VOCABULARIES.values():
        for name, _ in pairs:
            if os.path.exists(os.path.join(folder, name)):
                return os.path.join(folder, name)
    return None


def merges_file(vocab_file: str) -> str:
    """The merges that belong to a vocabulary file, beside it."""
    folder, name = os.path.split(vocab_file)
    known = dict(pair for pairs in VOCABULARIES.values() for pair in pairs)
    return os.path.join(folder, known[name])


def tokenizer(path: str, vocab_file: str | None, **options: Any) -> BytePairTokenizer:
    """The tokenizer that belongs to a vocabulary: GPT-1's has the sign of the end of a word.

    Raises:
        FileNotFoundError: there is no vocabulary.
    """
    if vocab_file is None:
        looked_for = ", ".join(name for pairs in VOCABULARIES.values() for name, _ in pairs)
        raise FileNotFoundError(f"{path} has no vocabulary beside it ({looked_for}, each with its merges)")
    of_gpt1 = any(piece.endswith(END_OF_WORD) for piece in read_json_object(vocab_file))
    return (GPT1Tokenizer if of_gpt1 else GPT2Tokenizer)(vocab_file, merges_file(vocab_file), **options)


class GPT1Files:
    """OpenAI's files of GPT-1: ten arrays without names, one after another, and their shapes.

    Args:
        folder: holds ``params_shapes.json`` and ``params_0.npy`` and so on.
        allow_nan: whether weights that are not finite are read all the same.

    Raises:
        FileNotFoundError: there is no array.
        ValueError: they do not have as many numbers as the shapes say, or the shapes are not those of a GPT-1; or a
            file is damaged or holds no floating-point numbers.
    """

    def __init__(self, folder: str, allow_nan: bool = False):
        self.where, self._allow_nan = folder, allow_nan
        shapes = _listed_shapes(os.path.join(folder, SHAPES))
        files = [os.path.join(folder, PARAMS.format(i)) for i in range(len(os.listdir(folder)))]
        parts = [_mapped(file) for file in files if os.path.exists(file)]
        if not parts:
            raise FileNotFoundError(f"{folder} has {SHAPES} but no {PARAMS.format(0)}")
        sizes = [math.prod(shape) for shape in shapes]
        if sum(sizes) != sum(map(len, parts)):
            raise ValueError(
                f"{folder}: {SHAPES} lists {sum(sizes):,} numbers, the {len(parts)} files {PARAMS.format('*')} hold "
                f"{sum(map(len, parts)):,}; is one of them missing?"
            )
        self.layers, rest = divmod(len(shapes) - 2, 12)
        if rest or self.layers < 1:
            raise ValueError(f"{folder}: {SHAPES} lists {len(shapes)} arrays; GPT-1 has 2 and 12 for each block")
        order = dict.fromkeys(row.openai for row in names.gpt_rows(False, self.layers))
        arrays = np.split(np.concatenate(parts), np.cumsum(sizes)[:-1])
        self._arrays = {n: a.reshape(s) for n, a, s in zip(order, arrays, shapes, strict=True)}
        self.shapes = dict(zip(order, shapes, strict=True))
        self.dtypes = {name: array.dtype for name, array in self._arrays.items()}

    def config(self) -> GPTConfig:
        """The sizes, as the shapes say; heads are 64 wide, as in the paper."""
        for name, rank in (("model/pe", 2), ("model/we", 2)):
            if len(self.shapes[name]) != rank:
                raise ValueError(f"{self.where}: {SHAPES} gives {name} the shape {self.shapes[name]}, not of 2 axes")
        context, width = self.shapes["model/pe"]
        heads = max(width // 64, 1)
        words, inner = self.shapes["model/we"][0], self.shapes["model/h0/mlp/c_fc/w"][-1]
        return GPTConfig(words, width, self.layers, heads, inner, max_position_embeddings=context)

    def read(self, name: str) -> np.ndarray:
        """Reads one array."""
        value = self._arrays[name]
        return value if self._allow_nan else check_finite(value, name, self.where)


def _listed_shapes(path: str) -> list[tuple[int, ...]]:
    """The shapes in a JSON file: a list of lists of sizes."""
    shapes = read_json(path)
    if not isinstance(shapes, list) or not all(isinstance(shape, list) and _are_sizes(shape) for shape in shapes):
        raise ValueError(f"{path} is no list of shapes, each a list of numbers of at least 1")
    return [tuple(shape) for shape in shapes]


def _are_sizes(values: list[Any]) -> bool:
    return len(values) <= 4 and all(type(size) is int and 0 < size < 2**31 for size in values)


def _mapped(path: str) -> np.ndarray:
    """The numbers of a ``.npy`` file in a row; they are read when they are used."""
    open_binary(path).close()
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.dtype.kind != "f":
            raise ValueError(f"it holds {array.dtype}, expected floating-point numbers")
        return array.reshape(-1)
    except Exception as error:  # numpy reads the header with Python's own parser, whose errors are many
        raise ValueError(f"{path} is damaged or no .npy file of numbers: {error}; copy it again") from None


class _HuggingFaceNames:
    """A folder's weights under full names; without the buffers of masks and the second copy of the tied table."""

    def __init__(self, folder: str, allow_nan: bool):
        self._folder, self.where = huggingface.SafetensorsFolder(folder, allow_nan), folder
        self._stored, tied = {}, None
        for name in self._folder.shapes:
            if name == "lm_head.weight":
                tied = name
            elif not name.endswith((".attn.bias", ".attn.masked_bias", "position_ids")):
                first = name.split(".")[0]
                bare = first in ("h", "wte", "wpe", "ln_f", "tokens_embed", "positions_embed")
                self._stored[f"transformer.{name}" if bare else name] = name
        words = [name for name in self._stored if name.endswith(("wte.weight", "tokens_embed.weight"))]
        if tied and words:
            self._folder.check_equal(tied, self._stored[words[0]])
        self.shapes = {name: self._folder.shapes[stored] for name, stored in self._stored.items()}
        self.dtypes = {name: self._folder.dtypes[stored] for name, stored in self._stored.items()}

    def read(self, name: str) -> np.ndarray:
        """Reads one variable."""
        return self._folder.read(self._stored[name])


class GPTReader:
    """Reads a GPT under the paths of our model, with the three parts of fused kernels apart.

    Args:
        stored: gives what is stored under the names there (``where``, ``shapes``, ``dtypes``, ``read``).
        config: the sizes.
        format: whose names those are.
    """

    def __init__(self, stored, config: GPTConfig, format: str):
        self._stored, self.where = stored, stored.where
        self._rows, self.shapes, self.dtypes, used = {}, {}, {}, set()
        for row in names.gpt_rows(config.pre_norm, _layers_there(stored.shapes)):
            name = row.openai if format == "openai" else row.hugging_face
            if name in stored.shapes:
                used.add(name)
                self._rows[row.ours] = (name, row.third)
                shape = _without_first_axis(stored.shapes[name], row.ours)
                if row.third is not None and (not shape or shape[-1] % 3):
                    raise ValueError(f"{self.where}: {name} is {shape}; query, key and value cannot be a third of it")
                self.shapes[row.ours] = shape if row.third is None else (*shape[:-1], shape[-1] // 3)
                self.dtypes[row.ours] = stored.dtypes[name]
        for name in stored.shapes:
            if name not in used:
                self._rows[name], self.shapes[name] = (name, None), stored.shapes[name]
                self.dtypes[name] = stored.dtypes[name]

    def read(self, name: str) -> np.ndarray:
        """Reads one variable."""
        stored, third = self._rows[name]
        value = np.asarray(self._stored.read(stored))
        if third is not None:
            width = value.shape[-1] // 3
            value = value[..., third * width : (third + 1) * width]
        return value.reshape(self.shapes[name])


def _layers_there(stored_names: Iterable[str]) -> int:
    """Counts the blocks of variables under OpenAI's or Hugging Face's names."""
    return 1 + max((int(match[1]) for match in map(_BLOCK.match, stored_names) if match), default=0)


class ReaderWithNewRows:
    """A reader of a GPT whose table of words has more rows at its end, for new tokens: those of a model as it was made.

    Args:
        reader: of the GPT.
        table: the model's own table [V + new rows, H].
    """

    def __init__(self, reader, table):
        self._reader, self.where = reader, reader.where
        self._fresh = np.asarray(table)[reader.shapes[names.GPT_WORDS][0] :]
        self.shapes = {**reader.shapes, names.GPT_WORDS: tuple(table.shape)}
        self.dtypes = reader.dtypes

    def read(self, name: str) -> np.ndarray:
        """Reads one variable."""
        value = self._reader.read(name)
        return np.concatenate([value, self._fresh]) if name == names.GPT_WORDS else value


def _without_first_axis(shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    return shape[1:] if name.endswith("/kernel") and len(shape) == 3 and shape[0] == 1 else shape


def write(checkpoint, path: str, format: str, dtype=None) -> str:
    """Writes a GPT as a folder of OpenAI's GPT-2 or of Hugging Face's.

    Args:
        checkpoint: `tf_bert.checkpoints.formats.Checkpoint`.
        path: the folder.
        format: ``openai`` or ``huggingface``.
        dtype: of the weights; each keeps its own by default.
    """
    config, reader = checkpoint.config, checkpoint.reader
    stored: dict[str, list[str]] = {}
    for row in names.gpt_rows(config.pre_norm, config.num_hidden_layers):
        stored.setdefault(row.openai if format == "openai" else row.hugging_face, []).append(row.ours)
    known = {name for ours in stored.values() for name in ours}
    others = [name for name in reader.shapes if name not in known and not names.is_optimizer_variable(name)]
    if any(name.startswith("classifier/") for name in others):
        raise ValueError(
            f"{checkpoint.path} is a GPT that was fine-tuned to classify, which the format {format} has not: write a "
            ".keras file"
        )
    if others:
        warnings.warn(f"{checkpoint.path}: left out what has no place in a GPT: {', '.join(others)}", stacklevel=4)
    dtypes = {name: np.dtype(dtype or reader.dtypes[ours[0]]) for name, ours in stored.items()}
    with atomic_folder(path) as folder:
        if format == "openai":
            gpt_config.write_hparams(folder, config)
        else:
            gpt_config.write_config(folder, config, dtypes[next(iter(stored))])
        copy_vocabulary(checkpoint.vocab_file, folder, format, goes_to=path)
        write_weights = _write_checkpoint if format == "openai" else _write_safetensors
        write_weights(folder, reader, stored, dtypes)
    return path


def _write_checkpoint(folder: str, reader, stored: Mapping[str, list[str]], dtypes: Mapping[str, np.dtype]) -> None:
    tensors = {}
    for name, ours in stored.items():
        tensors[name] = _joined(reader, ours, dtypes[name])
        if ours[0].endswith("/kernel"):
            tensors[name] = tensors[name][None]  # [1, in, out]: there it is a convolution
    google.write_tensors(os.path.join(folder, PREFIX), tensors)
    with atomic_writer(os.path.join(folder, "checkpoint"), "w") as file:
        file.write(f'model_checkpoint_path: "{PREFIX}"\nall_model_checkpoint_paths: "{PREFIX}"\n')


def _write_safetensors(folder: str, reader, stored: Mapping[str, list[str]], dtypes: Mapping[str, np.dtype]) -> None:
    def tensor(name: str, ours: list[str]):
        shape = reader.shapes[ours[0]]
        return name, (*shape[:-1], shape[-1] * len(ours)), dtypes[name], lambda: _joined(reader, ours, dtypes[name])

    huggingface.write_safetensors(
        os.path.join(folder, huggingface.WEIGHTS), [tensor(name, ours) for name, ours in stored.items()]
    )


def _joined(reader, ours: list[str], dtype: np.dtype) -> np.ndarray:
    """Variables that are stored as one, side by side."""
    return np.concatenate([cast(reader.read(name), dtype, name, reader.where) for name in ours], axis=-1)


def copy_vocabulary(vocab_file: str | None, folder: str, format: str, goes_to: str | None = None) -> None:
    """Puts vocabulary and merges beside the weights, under the names that the format gives them.

    Args:
        vocab_file: the vocabulary, if there is one; its merges are beside it.
        folder: where they are written.
        format: see `VOCABULARIES`.
        goes_to: the folder that these files are moved to afterwards, if it is not ``folder``.

    Raises:
        ValueError: another vocabulary is there already.
    """
    if vocab_file is None:
        return
    for source, name in zip((vocab_file, merges_file(vocab_file)), VOCABULARIES[format][0], strict=True):
        if os.path.exists(source):
            copy_same(source, os.path.join(folder, name), os.path.join(goes_to or folder, name))


def check_vocabulary(vocab_file: str, config: GPTConfig) -> None:
    """Raises ValueError where a file is no vocabulary, or has more entries than the table of words has rows."""
    entries: Mapping[str, int] = read_json_object(vocab_file)
    ids = list(entries.values())
    if not ids or any(type(number) is not int or number < 0 for number in ids) or len(set(ids)) < len(ids):
        raise ValueError(f"{vocab_file} is no vocabulary: expected a JSON object from each piece to an id of its own")
    if max(len(ids), max(ids) + 1) > config.vocab_size:
        raise ValueError(
            f"{vocab_file} has {max(len(ids), max(ids) + 1)} entries, but the table of words has {config.vocab_size} "
            "rows; they do not belong together"
        )
