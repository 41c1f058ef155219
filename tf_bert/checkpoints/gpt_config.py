"""Reads and writes GPT's configuration as Hugging Face's ``config.json`` and OpenAI's ``hparams.json``."""

import dataclasses
import json
import os
from typing import Any

import numpy as np

from tf_bert.checkpoints import huggingface
from tf_bert.configs import GPTConfig
from tf_bert.configs.base import LARGEST
from tf_bert.files import atomic_writer
from tf_bert.json_files import read_json_object

HPARAMS = "hparams.json"  # of GPT-2
ARCHITECTURES = {True: "GPT2LMHeadModel", False: "OpenAIGPTLMHeadModel"}  # by pre_norm

MODEL_TYPES = {"gpt2": 50257, "openai-gpt": 40478}  # and what vocab_size is where config.json does not say

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
# Others' names of settings -> ours.
OTHER_NAMES = {theirs: ours for table in (_HPARAMS, _SETTINGS) for ours, theirs in table.items()}
OTHER_NAMES |= {"n_inner": "intermediate_size"} | dict.fromkeys(_ACTIVATION_KEY.values(), "hidden_act")


def model_type(folder: str) -> str | None:
    """What ``config.json`` in a folder says that the model is; None where there is no such file, or it does not say."""
    path = os.path.join(folder, huggingface.CONFIG)
    if not os.path.exists(path):
        return None
    found = read_json_object(path).get("model_type")
    return found if isinstance(found, str) else None


def read_config(directory: str | os.PathLike) -> GPTConfig:
    """Reads Hugging Face's ``config.json``; keys that we do not use are kept in ``extra``.

    Raises:
        ValueError: it describes a GPT that is none of these papers.
    """
    path = os.path.join(directory, huggingface.CONFIG)
    values = read_json_object(path)
    kind = values.pop("model_type")
    try:
        huggingface.check_required(values, _REQUIRED)
        values.setdefault(_ACTIVATION_KEY[kind], "gelu_new" if kind == "gpt2" else "gelu")
        activation = huggingface.known_value(values, _ACTIVATION_KEY[kind], _ACTIVATIONS[kind])
        del values[_ACTIVATION_KEY[kind]]
        default = GPTConfig(values.pop("vocab_size", MODEL_TYPES[kind])).to_dict()
        default["max_position_embeddings"] = 1024 if kind == "gpt2" else 512
        ours = {name: values.pop(other, default[name]) for name, other in _SETTINGS.items()}
        inner = values.pop("n_inner", None)
        ours |= {
            "vocab_size": default["vocab_size"],
            "intermediate_size": _four_times(ours["hidden_size"]) if inner is None else inner,
            "hidden_act": activation,
            "pre_norm": kind == "gpt2",
            "layer_norm_epsilon": values.pop("layer_norm_epsilon", 1e-5),
            "initializer_range": values.pop("initializer_range", 0.02),
        }
        if type(ours["end_id"]) is int and ours["end_id"] >= ours["vocab_size"]:
            ours["end_id"] = None  # small models are saved with the default, which is beyond their table
        return GPTConfig.from_dict({**values, **ours})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _four_times(width: Any) -> Any:
    """The usual width inside a block; what is no size stays, for the configuration to refuse."""
    return min(4 * width, LARGEST) if type(width) is int else width


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
        file.write(json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def read_hparams(directory: str | os.PathLike) -> GPTConfig:
    """Reads GPT-2's ``hparams.json``. The end token is that of ``encoder.json``, or else the last one, as published."""
    path = os.path.join(directory, HPARAMS)
    values = read_json_object(path)
    missing = [name for name in _HPARAMS.values() if name not in values]
    if missing:
        raise ValueError(f"{path}: {', '.join(missing)} missing; found {', '.join(values) or 'nothing'}")
    encoder = os.path.join(directory, "encoder.json")
    pieces = read_json_object(encoder) if os.path.exists(encoder) else None
    try:
        ours = {name: values[other] for name, other in _HPARAMS.items()}
        config = GPTConfig(**ours, intermediate_size=_four_times(values["n_embd"]), pre_norm=True)
        end_id = config.vocab_size - 1 if pieces is None else pieces.get("<|endoftext|>")
        return dataclasses.replace(config, end_id=end_id)
    except ValueError as error:
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
