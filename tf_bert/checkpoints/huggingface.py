"""Hugging Face's model folders: ``config.json`` and ``model.safetensors``, read and written variable by variable."""

import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from tf_bert.checkpoints import names
from tf_bert.configs import BertConfig
from tf_bert.files import atomic_writer

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
    try:
        with open(path, encoding="utf-8") as file:
            values = {**_DEFAULTS, **json.load(file)}
        for key, required in _REQUIRED.items():
            if values.get(key, required) != required:
                raise ValueError(f"{key} is {values[key]!r}; only {required!r} can be loaded")
        if values["hidden_act"] not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(f"hidden_act is {values['hidden_act']!r}; only {known} can be loaded")
        values["hidden_act"] = ACTIVATIONS[values["hidden_act"]]
        return BertConfig.from_dict(values)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


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
        file.write(json.dumps(values, indent=2, sort_keys=True) + "\n")


class SafetensorsFolder:
    """The weights of a folder, under the names and in the layout they are stored with, read one by one.

    Args:
        directory: holds ``model.safetensors``, or parts with ``model.safetensors.index.json``.

    Attributes:
        where: the directory.
        shapes, dtypes: of each variable, by name.

    Raises:
        FileNotFoundError: no weights, or a part of them is missing.
        ValueError: the weights are pickled, a file is damaged, or a dtype is unknown.
    """

    def __init__(self, directory: str | os.PathLike):
        self.where = os.fspath(directory)
        self.shapes, self.dtypes, self._files = {}, {}, {}
        for file in sorted(_weight_files(self.where)):
            opened = self._open(file)
            for name in opened.keys():
                part = opened.get_slice(name)
                if part.get_dtype() not in _DTYPES:
                    raise ValueError(f"{self.where}: {name} is {part.get_dtype()}; known are {', '.join(_DTYPES)}")
                self._files[name] = opened
                self.shapes[name], self.dtypes[name] = tuple(part.get_shape()), _DTYPES[part.get_dtype()]

    def _open(self, file: str) -> Any:
        path = os.path.join(self.where, file)
        if not os.path.exists(path):
            raise FileNotFoundError(f"{self.where}: {INDEX} names {file}, which is not there")
        try:
            return safe_open(path, "numpy")
        except SafetensorError as error:
            raise ValueError(f"{path} is damaged or no safetensors file: {error}; download it again") from None

    def read(self, name: str) -> np.ndarray:
        """Reads one variable."""
        return self._files[name].get_tensor(name)

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

    Attributes:
        where: the directory.
        shapes: Google's name -> shape; what the table of names does not know keeps its name.
        dtypes: the same for dtypes.

    Raises:
        ValueError: the output matrix is another than the embeddings.
    """

    def __init__(self, directory: str | os.PathLike):
        self._stored = SafetensorsFolder(directory)
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


def _weight_files(directory: str) -> set[str]:
    index = os.path.join(directory, INDEX)
    if os.path.exists(index):
        try:
            with open(index, encoding="utf-8") as file:
                files = set(json.load(file)["weight_map"].values())
        except (ValueError, KeyError, AttributeError, TypeError):
            raise ValueError(f"{index} is not an index of safetensors files (no weight_map)") from None
        for file in files:
            if os.path.basename(file) != file or not file.endswith(".safetensors"):
                raise ValueError(f"{index} names {file!r}, which is no safetensors file of this folder: refused")
        return files
    if os.path.exists(os.path.join(directory, WEIGHTS)):
        return {WEIGHTS}
    pickled = [name for name in os.listdir(directory) if name in PICKLED or name.endswith((".bin", ".pt", ".pth"))]
    if pickled:
        raise ValueError(
            f"{directory} has its weights only as {pickled[0]}: a pickle, which runs any code it holds when it is "
            f"loaded, so it is refused; convert it to {WEIGHTS} where you trust it, or fetch the model in that format"
        )
    raise FileNotFoundError(f"{directory} has no weights: neither {WEIGHTS} nor {INDEX}")


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
