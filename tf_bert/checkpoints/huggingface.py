"""Hugging Face's model folders: ``config.json`` and ``model.safetensors``, read and written variable by variable."""

import json
import os
import struct
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from tf_bert.checkpoints import names
from tf_bert.checkpoints.loading import check_finite, some
from tf_bert.configs import BertConfig
from tf_bert.configs.base import shown
from tf_bert.files import atomic_writer, open_binary
from tf_bert.json_files import read_json_object

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin")

# Hugging Face's name of an activation -> ours. Its "gelu" is the exact one, the original's "gelu" the approximation.
ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_ACTIVATION_NAMES = {"gelu_erf": "gelu", "gelu": "gelu_new", "relu": "relu", "tanh": "tanh", "linear": "linear"}
# What the library assumes where config.json does not say; the original assumes other things (16 segments, tanh GELU).
_DEFAULTS = {"vocab_size": 30522, "type_vocab_size": 2, "hidden_act": "gelu"}
# What BERT of the original cannot be: key -> the only value that is.
_REQUIRED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "layer_norm_eps": 1e-12,
}
_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
_DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}


def is_hugging_face(directory: str | os.PathLike) -> bool:
    """Whether a directory looks like one of Hugging Face's, with whatever kind of weights."""
    return any(os.path.exists(os.path.join(directory, name)) for name in (CONFIG, WEIGHTS, INDEX, *PICKLED))


def read_config(directory: str | os.PathLike) -> BertConfig:
    """Reads ``config.json``.

    Returns:
        The configuration in our terms: ``gelu`` there is ``gelu_erf`` here. Other keys are kept in ``extra``.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it does not describe a BERT, or a kind of BERT that the original has not.
    """
    path = os.path.join(directory, CONFIG)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{directory} has weights but no {CONFIG}, which says the model's sizes; add it")
    values = {**_DEFAULTS, **read_json_object(path)}
    try:
        check_required(values, _REQUIRED)
        values["hidden_act"] = known_value(values, "hidden_act", ACTIVATIONS)
        return BertConfig.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def check_required(values: Mapping[str, Any], required: Mapping[str, Any]) -> None:
    """Raises ValueError where a key says something else than the only value that can be loaded."""
    for key, only in required.items():
        if values.get(key, only) != only:
            raise ValueError(f"{key} is {shown(values[key])}; only {only!r} can be loaded")


def known_value(values: Mapping[str, Any], key: str, table: Mapping[str, str]) -> str:
    """Our name of what ``key`` says; ValueError where the table has no such name."""
    value = values[key]
    if not isinstance(value, str) or value not in table:
        raise ValueError(f"{key} is {shown(value)}; only {', '.join(table)} can be loaded")
    return table[value]


def write_config(
    directory: str | os.PathLike, config: BertConfig, architecture: str, dtype: np.dtype, num_labels: int | None = None
) -> None:
    """Writes ``config.json``, with the activation under the name that means the same there.

    Args:
        directory: the folder.
        config: in our terms.
        architecture: such as ``BertForMaskedLM``.
        dtype: of the weights.
        num_labels: of the head, which the library counts by ``id2label``; None where there is none.
    """
    values = config.to_dict() | _REQUIRED | {"architectures": [architecture], "dtype": np.dtype(dtype).name}
    name = (config.hidden_act or "linear").lower() if not callable(config.hidden_act) else config.hidden_act
    if name not in _ACTIVATION_NAMES:
        raise ValueError(f"hidden_act {name!r} has no name in Hugging Face's config.json")
    values["hidden_act"] = _ACTIVATION_NAMES[name]
    values.setdefault("pad_token_id", 0)
    if num_labels is not None and len(values.get("id2label", ())) != num_labels:
        values["id2label"] = {str(i): f"LABEL_{i}" for i in range(num_labels)}
        values["label2id"] = {f"LABEL_{i}": i for i in range(num_labels)}
    with atomic_writer(os.path.join(directory, CONFIG), "w") as file:
        file.write(json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


class SafetensorsFolder:
    """The weights of a folder, under the names and in the layout they are stored with, read one by one.

    Args:
        directory: holds ``model.safetensors``, or parts with ``model.safetensors.index.json``, which says tensor by
            tensor what is read from which part. With both, the first is read, as Hugging Face does.
        allow_nan: whether weights that are not finite are read all the same.

    Attributes:
        where: the directory.
        shapes, dtypes: of each variable, by name.

    Raises:
        FileNotFoundError: no weights, or a part of them is missing.
        ValueError: the weights are pickled, a file is damaged, a dtype is unknown, or the index and the files
            contradict each other.
    """

    def __init__(self, directory: str | os.PathLike, allow_nan: bool = False):
        self.where, self._allow_nan = os.fspath(directory), allow_nan
        self.shapes, self.dtypes, self._files = {}, {}, {}
        for file, indexed in sorted(_weight_files(self.where).items()):
            opened = self._open(file)
            there = set(opened.keys())
            for name in sorted(there if indexed is None else indexed):
                if name not in there:
                    raise ValueError(f"{self.where}: {INDEX} says that {name} is in {file}, and it is not there")
                self._add(name, opened)
            if indexed is not None and there - indexed:
                warnings.warn(
                    f"{self.where}: {file} holds tensors that {INDEX} gives to another file or does not name; they are "
                    f"not read: {some(sorted(there - indexed))}",
                    stacklevel=3,
                )

    def _add(self, name: str, opened: Any) -> None:
        part = opened.get_slice(name)
        if part.get_dtype() not in _DTYPES:
            raise ValueError(f"{self.where}: {name} is {part.get_dtype()}; known are {', '.join(_DTYPES)}")
        self._files[name] = opened
        self.shapes[name], self.dtypes[name] = tuple(part.get_shape()), _DTYPES[part.get_dtype()]

    def _open(self, file: str) -> Any:
        path = os.path.join(self.where, file)
        if not os.path.exists(path):
            raise FileNotFoundError(f"{self.where}: {INDEX} names {file}, which is not there")
        open_binary(path).close()  # says in one line that it is a folder or may not be read
        try:
            return safe_open(path, "numpy")
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path} is damaged or no safetensors file: {error}; download it again") from None

    def read(self, name: str) -> np.ndarray:
        """Reads one variable."""
        try:
            value = self._files[name].get_tensor(name)
        except SafetensorError as error:
            raise ValueError(f"{self.where}: {name} cannot be read: {error}; download it again") from None
        return value if self._allow_nan else check_finite(value, name, self.where)

    def check_equal(self, name: str, other: str) -> None:
        """Raises ValueError unless a tied output matrix is the table that it is tied to."""
        if not np.array_equal(self.read(name), self.read(other)):
            raise ValueError(
                f"{self.where}: {name} is not the same as {other}; "
                "only models whose output matrix is tied to the embeddings can be loaded"
            )


class HuggingFaceReader:
    """Reads the weights of a Hugging Face BERT one by one, under Google's names and in TensorFlow's layout.

    Names with or without the ``bert.`` prefix and old ones (``LayerNorm.gamma``) are understood; position-id buffers
    and the second copy of the tied output matrix are left out.

    Args:
        directory: see `SafetensorsFolder`, whose errors are raised.
        allow_nan: likewise.

    Attributes:
        where: the directory.
        shapes: Google's name -> shape; what the table of names does not know keeps its name.
        dtypes: the same for dtypes.

    Raises:
        ValueError: the output matrix is another than the embeddings.
    """

    def __init__(self, directory: str | os.PathLike, allow_nan: bool = False):
        self._stored = SafetensorsFolder(directory, allow_nan)
        self.where = self._stored.where
        self._entries = {}  # Google's name -> (name there, transposed)
        self.shapes, self.dtypes = {}, {}
        tied = {}
        for name in self._stored.shapes:
            known, transpose = _google_name(name)
            if known.endswith(("decoder.weight", "decoder.bias")):
                tied[known] = name
            elif not name.endswith("position_ids"):
                self._add(known, name, transpose)
        self._check_tied(tied)

    def _add(self, known: str, name: str, transpose: bool) -> None:
        shape = self._stored.shapes[name]
        self._entries[known] = (name, transpose)
        self.shapes[known] = shape[::-1] if transpose else shape
        self.dtypes[known] = self._stored.dtypes[name]

    def _check_tied(self, tied: Mapping[str, str]) -> None:
        """The head's matrix is the embedding table here; another one could not be kept."""
        for ending, ours in (
            ("decoder.weight", "bert/embeddings/word_embeddings"),
            ("decoder.bias", "cls/predictions/output_bias"),
        ):
            for known, name in tied.items():
                if not known.endswith(ending):
                    continue
                if ours not in self._entries:
                    self._add(ours, name, False)
                else:
                    self._stored.check_equal(name, self._entries[ours][0])

    def read(self, name: str) -> np.ndarray:
        """Reads one variable, in TensorFlow's layout."""
        stored, transpose = self._entries[name]
        value = self._stored.read(stored)
        return value.T if transpose else value


def _weight_files(directory: str) -> dict[str, set[str] | None]:
    """File -> the tensors that the index gives to it; None for all that it holds."""
    index = os.path.join(directory, INDEX)
    if os.path.exists(os.path.join(directory, WEIGHTS)):
        if os.path.exists(index):
            warnings.warn(f"{directory} has {WEIGHTS} and {INDEX}: the first is read", stacklevel=4)
        return {WEIGHTS: None}
    if os.path.exists(index):
        return _indexed_files(index)
    pickled = [name for name in os.listdir(directory) if name in PICKLED or name.endswith((".bin", ".pt", ".pth"))]
    if pickled:
        raise ValueError(
            f"{directory} has its weights only as {pickled[0]}: a pickle, which runs any code it holds when it is "
            f"loaded, so it is refused; convert it to {WEIGHTS} where you trust it, or fetch the model in that format"
        )
    raise FileNotFoundError(f"{directory} has no weights: neither {WEIGHTS} nor {INDEX}")


def _indexed_files(index: str) -> dict[str, set[str]]:
    try:
        weight_map = read_json_object(index).get("weight_map")
    except ValueError as error:
        raise ValueError(f"{index} is not an index of safetensors files ({error})") from None
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f"{index} is not an index of safetensors files (no weight_map)")
    files: dict[str, set[str]] = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or os.path.basename(file) != file or not file.endswith(".safetensors"):
            raise ValueError(
                f"{index} names {shown(file)}, which is no safetensors file of this folder: refused (for {name})"
            )
        files.setdefault(file, set()).add(name)
    return files


def _google_name(name: str) -> tuple[str, bool]:
    """Google's name of a Hugging Face variable, or its own where the table has no such row; and whether transposed."""
    modern = name
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):
            modern = name.removesuffix(old) + new
    return names.to_google(modern) or names.to_google("bert." + modern) or (name, False)


def write_weights(path: str | os.PathLike, tensors: Iterable[tuple[str, tuple[int, ...], np.dtype]], read) -> None:
    """Writes BERT's variables as a safetensors file, under Hugging Face's names and in its layout.

    Args:
        path: the file.
        tensors: Google's name, which the table knows, shape in TensorFlow and dtype of each variable.
        read: gives the value of one by its name.
    """

    def stored(name, shape, dtype):
        stored_name, transpose = names.to_hugging_face(name)

        def value():
            array = np.asarray(read(name))
            return array.T if transpose else array

        return stored_name, shape[::-1] if transpose else shape, dtype, value

    write_safetensors(path, [stored(*tensor) for tensor in tensors])


def write_safetensors(
    path: str | os.PathLike, tensors: Iterable[tuple[str, tuple[int, ...], np.dtype, Callable[[], Any]]]
) -> None:
    """Writes a safetensors file one variable after another, so that a large model is never held twice.

    Args:
        path: the file.
        tensors: name, shape, dtype and a function that gives the value, of each variable.
    """
    tensors, header, end = list(tensors), {"__metadata__": {"format": "pt"}}, 0
    for name, shape, dtype, _ in tensors:
        start, end = end, end + int(np.prod(shape)) * np.dtype(dtype).itemsize
        header[name] = {
            "dtype": _DTYPE_NAMES[np.dtype(dtype)],
            "shape": list(shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic_writer(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, dtype, value in tensors:
            file.write(np.ascontiguousarray(value(), dtype=dtype).reshape(-1).view(np.uint8))
