"""GPT in the formats of others: OpenAI's GPT-2 and GPT-1 files, Hugging Face's folders of both.

All store the kernels of query, key and value side by side; the rows of `tf_bert.checkpoints.names.gpt_rows` say what is
where, for reading and for writing.
"""

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_bert.checkpoints import google, huggingface, names
from tf_bert.configs import GPTConfig
from tf_bert.files import atomic_writer, make_folder
from tf_bert.tokenization.byte_pair import END_OF_WORD, BytePairTokenizer, GPT1Tokenizer, GPT2Tokenizer

CONFIG = "gpt_config.json"  # ours, beside .weights.h5
HPARAMS, PREFIX = "hparams.json", "model.ckpt"  # of GPT-2
SHAPES, PARAMS = "params_shapes.json", "params_{}.npy"  # of GPT-1
# format -> names of the vocabulary and of the merges; what is in them is the same
VOCABULARIES = {
    "openai": [("encoder.json", "vocab.bpe"), ("encoder_bpe_40000.json", "vocab_40000.bpe")],
    "huggingface": [("vocab.json", "merges.txt")],
}
ARCHITECTURES = {True: "GPT2LMHeadModel", False: "OpenAIGPTLMHeadModel"}  # by pre_norm

# Our settings -> Hugging Face's.
_SETTINGS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "hidden_dropout_prob": "resid_pdrop",
    "attention_probs_dropout_prob": "attn_pdrop",
    "embedding_dropout_prob": "embd_pdrop",
    "end_id": "eos_token_id",
}
_HPARAMS = {
    "vocab_size": "n_vocab",
    "max_position_embeddings": "n_ctx",
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
# What is loaded is this only: key -> value.
_REQUIRED = {
    "tie_word_embeddings": True,
    "add_cross_attention": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}
# GPT-1's "gelu" is the approximation there too.
_ACTIVATIONS = {"gpt2": huggingface.ACTIVATIONS, "openai-gpt": {"gelu": "gelu", "relu": "relu"}}
_ACTIVATION_KEY = {"gpt2": "activation_function", "openai-gpt": "afn"}
_DEFAULT_VOCAB_SIZE = {"gpt2": 50257, "openai-gpt": 40478}


def is_gpt(path: str | os.PathLike) -> bool:
    """Whether a folder, or the folder of a prefix, holds a GPT in one of these formats."""
    path = os.fspath(path)
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if any(os.path.exists(os.path.join(folder, name)) for name in (HPARAMS, SHAPES)):
        return True
    return os.path.isdir(path) and _model_type(path) in _DEFAULT_VOCAB_SIZE


def _model_type(folder: str) -> str | None:
    path = os.path.join(folder, huggingface.CONFIG)
    if not os.path.exists(path):
        return None
    values = _read_json(path)
    return values.get("model_type")


def _read_json(path: str, kind: type = dict) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
        if not isinstance(values, kind):
            raise ValueError(f"expected a JSON {'object' if kind is dict else 'list'}")
        return values
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def open_files(path: str, config: GPTConfig | None = None) -> tuple[str, GPTConfig, "GPTReader", str | None]:
    """Opens a folder, or the prefix of a GPT-2 checkpoint.

    Returns:
        The format, ``openai`` or ``huggingface``; the configuration; the reader; and the vocabulary file or None.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if os.path.isdir(path) and _model_type(path) in _DEFAULT_VOCAB_SIZE:
        format, stored = "huggingface", _HuggingFaceNames(path)
        config = config or read_config(path)
    elif os.path.exists(os.path.join(folder, HPARAMS)) and not os.path.exists(os.path.join(folder, SHAPES)):
        format, stored = "openai", google.GoogleReader(path)
        config = config or read_hparams(folder)
    else:
        format, stored = "openai", GPT1Files(folder)
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
    of_gpt1 = any(piece.endswith(END_OF_WORD) for piece in _read_json(vocab_file))
    return (GPT1Tokenizer if of_gpt1 else GPT2Tokenizer)(vocab_file, merges_file(vocab_file), **options)


def read_config(directory: str | os.PathLike) -> GPTConfig:
    """Reads Hugging Face's ``config.json``; keys that we do not use are kept in ``extra``.

    Raises:
        ValueError: it describes a GPT that is none of these papers.
    """
    path = os.path.join(directory, huggingface.CONFIG)
    values = _read_json(path)
    kind = values.pop("model_type")
    try:
        for key, required in _REQUIRED.items():
            if values.get(key, required) != required:
                raise ValueError(f"{key} is {values[key]!r}; only {required!r} can be loaded")
        activation = values.pop(_ACTIVATION_KEY[kind], "gelu_new" if kind == "gpt2" else "gelu")
        if activation not in _ACTIVATIONS[kind]:
            known = ", ".join(_ACTIVATIONS[kind])
            raise ValueError(f"{_ACTIVATION_KEY[kind]} is {activation!r}; only {known} can be loaded")
        default = GPTConfig(values.pop("vocab_size", _DEFAULT_VOCAB_SIZE[kind])).to_dict()
        default["max_position_embeddings"] = 1024 if kind == "gpt2" else 512
        ours = {name: values.pop(other, default[name]) for name, other in _SETTINGS.items()}
        inner = values.pop("n_inner", None)
        ours |= {
            "vocab_size": default["vocab_size"],
            "intermediate_size": 4 * ours["hidden_size"] if inner is None else inner,
            "hidden_act": _ACTIVATIONS[kind][activation],
            "pre_norm": kind == "gpt2",
            "layer_norm_epsilon": values.pop("layer_norm_epsilon", 1e-5),
            "initializer_range": values.pop("initializer_range", 0.02),
        }
        if ours["end_id"] is not None and ours["end_id"] >= ours["vocab_size"]:
            ours["end_id"] = None  # small models are saved with the default, which is beyond their table
        return GPTConfig.from_dict({**values, **ours})
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def _hugging_face_activations(kind: str) -> dict[str, str]:
    """Our names of activations -> theirs."""
    there = {ours: name for name, ours in _ACTIVATIONS[kind].items()}
    return there | ({"gelu": "gelu_new", "gelu_erf": "gelu"} if kind == "gpt2" else {})


def not_in_hugging_face(config: GPTConfig) -> str | None:
    """Why Hugging Face's gpt2 or openai-gpt cannot be a model of these sizes; None where it can."""
    kind, inner = "gpt2" if config.pre_norm else "openai-gpt", 4 * config.hidden_size
    if config.attention_window is not None:
        return "Hugging Face's gpt2 has no locally banded attention (attention_window)"
    if config.hidden_act not in _hugging_face_activations(kind):
        return f"hidden_act {config.hidden_act!r} has no name in Hugging Face's {kind}"
    if kind == "openai-gpt" and config.intermediate_size != inner:
        return f"intermediate_size is {config.intermediate_size}, and Hugging Face's openai-gpt always has {inner}"
    return None


def write_config(directory: str | os.PathLike, config: GPTConfig, dtype: np.dtype) -> None:
    """Writes Hugging Face's ``config.json``.

    Raises:
        ValueError: the format has no such GPT.
    """
    problem = not_in_hugging_face(config)
    if problem:
        raise ValueError(f"{problem}; write a .keras file")
    kind = "gpt2" if config.pre_norm else "openai-gpt"
    values = config.to_dict()
    del values["pre_norm"], values["attention_window"]
    activation, inner = _hugging_face_activations(kind)[values.pop("hidden_act")], values.pop("intermediate_size")
    values |= {other: values.pop(name) for name, other in _SETTINGS.items()}
    values |= _REQUIRED if kind == "gpt2" else {"tie_word_embeddings": True}
    if kind == "gpt2":
        values["n_inner"] = None if inner == 4 * config.hidden_size else inner
    values |= {
        "model_type": kind,
        _ACTIVATION_KEY[kind]: activation,
        "architectures": [ARCHITECTURES[config.pre_norm]],
        "dtype": np.dtype(dtype).name,
    }
    with atomic_writer(os.path.join(directory, huggingface.CONFIG), "w") as file:
        file.write(json.dumps(values, indent=2, sort_keys=True) + "\n")


def read_hparams(directory: str | os.PathLike) -> GPTConfig:
    """Reads GPT-2's ``hparams.json``. The end token is that of ``encoder.json``, or else the last one, as published."""
    path = os.path.join(directory, HPARAMS)
    values = _read_json(path)
    missing = [name for name in _HPARAMS.values() if name not in values]
    if missing:
        raise ValueError(f"{path}: {', '.join(missing)} missing; found {', '.join(values) or 'nothing'}")
    try:
        width, end_id = values["n_embd"], values["n_vocab"] - 1
        encoder = os.path.join(directory, "encoder.json")
        if os.path.exists(encoder):
            end_id = _read_json(encoder).get("<|endoftext|>")
        ours = {name: values[other] for name, other in _HPARAMS.items()}
        return GPTConfig(**ours, intermediate_size=4 * width, pre_norm=True, end_id=end_id)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def write_hparams(directory: str | os.PathLike, config: GPTConfig) -> None:
    """Writes ``hparams.json``.

    Raises:
        ValueError: OpenAI's code has no such GPT.
    """
    fixed = {
        "pre_norm": True,
        "attention_window": None,
        "hidden_act": "gelu",
        "layer_norm_epsilon": 1e-5,
        "intermediate_size": 4 * config.hidden_size,
    }
    for name, only in fixed.items():
        if getattr(config, name) != only:
            found = getattr(config, name)
            raise ValueError(f"OpenAI's GPT-2 has {name} {only}, not {found}: write another format than openai")
    with atomic_writer(os.path.join(directory, HPARAMS), "w") as file:
        file.write(json.dumps({other: getattr(config, name) for name, other in _HPARAMS.items()}))


class GPT1Files:
    """OpenAI's files of GPT-1: ten arrays without names, one after another, and their shapes.

    Args:
        folder: holds ``params_shapes.json`` and ``params_0.npy`` and so on.

    Raises:
        FileNotFoundError: there is no array.
        ValueError: they do not have as many numbers as the shapes say, or the shapes are not those of a GPT-1.
    """

    def __init__(self, folder: str):
        self.where = folder
        shapes = [tuple(shape) for shape in _read_json(os.path.join(folder, SHAPES), list)]
        files, parts = [os.path.join(folder, PARAMS.format(i)) for i in range(len(os.listdir(folder)))], []
        for file in files:
            if os.path.exists(file):
                parts.append(np.load(file, allow_pickle=False).reshape(-1))
        if not parts:
            raise FileNotFoundError(f"{folder} has {SHAPES} but no {PARAMS.format(0)}")
        sizes = [int(np.prod(shape)) for shape in shapes]
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
        context, width = self.shapes["model/pe"]
        heads = max(width // 64, 1)
        words, inner = self.shapes["model/we"][0], self.shapes["model/h0/mlp/c_fc/w"][-1]
        return GPTConfig(words, width, self.layers, heads, inner, max_position_embeddings=context)

    def read(self, name: str) -> np.ndarray:
        """Reads one array."""
        return self._arrays[name]


class _HuggingFaceNames:
    """A folder's weights under full names; without the buffers of masks and the second copy of the tied table."""

    def __init__(self, folder: str):
        self._folder, self.where = huggingface.SafetensorsFolder(folder), folder
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
        for row in names.gpt_rows(config.pre_norm, config.num_hidden_layers):
            name = row.openai if format == "openai" else row.hugging_face
            if name in stored.shapes:
                used.add(name)
                self._rows[row.ours] = (name, row.third)
                shape = _without_first_axis(stored.shapes[name], row.ours)
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
    make_folder(path)
    if format == "openai":
        write_hparams(path, config)
    else:
        write_config(path, config, dtypes[next(iter(stored))])
    copy_vocabulary(checkpoint.vocab_file, path, format)

    def value(ours: list[str]) -> np.ndarray:
        return np.concatenate([np.asarray(reader.read(name)) for name in ours], axis=-1)

    if format == "openai":
        tensors = {}
        for name, ours in stored.items():
            tensors[name] = value(ours).astype(dtypes[name])
            if ours[0].endswith("/kernel"):
                tensors[name] = tensors[name][None]  # [1, in, out]: there it is a convolution
        google.write_tensors(os.path.join(path, PREFIX), tensors)
        with atomic_writer(os.path.join(path, "checkpoint"), "w") as file:
            file.write(f'model_checkpoint_path: "{PREFIX}"\nall_model_checkpoint_paths: "{PREFIX}"\n')
        return path

    def tensor(name: str, ours: list[str]):
        shape = reader.shapes[ours[0]]
        return name, (*shape[:-1], shape[-1] * len(ours)), dtypes[name], lambda: value(ours)

    huggingface.write_safetensors(
        os.path.join(path, huggingface.WEIGHTS), [tensor(name, ours) for name, ours in stored.items()]
    )
    return path


def copy_vocabulary(vocab_file: str | None, folder: str, format: str) -> None:
    """Puts vocabulary and merges beside the weights, under the names that the format gives them."""
    if vocab_file is None:
        return
    for source, name in zip((vocab_file, merges_file(vocab_file)), VOCABULARIES[format][0], strict=True):
        target = os.path.join(folder, name)
        if not os.path.exists(source) or os.path.realpath(source) == os.path.realpath(target):
            continue
        if os.path.exists(target) and _bytes(target) != _bytes(source):
            raise ValueError(f"{target} is there already and is not {source}; choose another folder")
        shutil.copyfile(source, target)


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def check_vocabulary(vocab_file: str, config: GPTConfig) -> None:
    """Raises ValueError where a vocabulary has more entries than the table of words has rows."""
    entries: Mapping[str, int] = _read_json(vocab_file)
    if len(entries) > config.vocab_size:
        raise ValueError(
            f"{vocab_file} has {len(entries)} entries, but the table of words has {config.vocab_size} rows; they do "
            "not belong together"
        )
