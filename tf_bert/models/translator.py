"""A translation model with its vocabularies in one folder: what training exports and ``translate`` loads.

The folder holds ``config.json`` (the configuration, which model, which vocabulary files), ``model.ckpt`` and the
vocabularies.
"""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_bert.checkpoints import google, loading, names
from tf_bert.configs import Seq2SeqConfig, TransformerConfig
from tf_bert.files import atomic_writer, open_binary
from tf_bert.models.seq2seq import Seq2Seq
from tf_bert.models.transformer import Transformer
from tf_bert.tokenization.subwords import load_subwords, symbols_of

CONFIG, WEIGHTS = "config.json", "model.ckpt"
MODELS = {"seq2seq": (Seq2Seq, Seq2SeqConfig), "transformer": (Transformer, TransformerConfig)}


@dataclasses.dataclass(frozen=True)
class Translator:
    """A model and its tokenizers; the target's is the source's where they share a vocabulary."""

    model: Seq2Seq | Transformer
    source_tokenizer: Any
    target_tokenizer: Any


def save_translator(model: Seq2Seq | Transformer, directory: str | os.PathLike, source_tokenizer, target_tokenizer):
    """Writes a folder that `load_translator` reads.

    Args:
        model: the weights and sizes.
        directory: made if need be.
        source_tokenizer: from `load_subwords`.
        target_tokenizer: the same, or another one.

    Returns:
        The directory.

    Raises:
        ValueError: two different vocabulary files of one name.
    """
    directory = os.fspath(directory)
    tokenizers = {"source": source_tokenizer, "target": target_tokenizer}
    settings = {"model": next(name for name, (kind, _) in MODELS.items() if isinstance(model, kind))}
    for side, tokenizer in tokenizers.items():
        name = os.path.basename(tokenizer.vocab_file)
        if side == "target" and tokenizer is not source_tokenizer and name == settings["source_vocab_file"]:
            raise ValueError(f"both vocabularies are called {name}: rename one of {source_tokenizer.vocab_file}")
        with open_binary(tokenizer.vocab_file) as file:
            content = file.read()
        with atomic_writer(os.path.join(directory, name)) as file:
            file.write(content)
        basic = getattr(tokenizer, "basic_tokenizer", None)
        settings |= {f"{side}_vocab_file": name, f"{side}_do_lower_case": bool(basic and basic.do_lower_case)}
    google.save_checkpoint(model, os.path.join(directory, WEIGHTS))
    with atomic_writer(os.path.join(directory, CONFIG), "w") as file:
        file.write(json.dumps(settings | {"config": model.config.to_dict()}, indent=2, sort_keys=True) + "\n")
    return directory


def is_translator(directory: str | os.PathLike) -> bool:
    """Whether a folder is one of `save_translator`'s."""
    try:
        with open_binary(os.path.join(os.fspath(directory), CONFIG)) as file:
            return json.load(file).get("model") in MODELS
    except (OSError, ValueError):
        return False


def load_translator(directory: str | os.PathLike) -> Translator:
    """Loads a model and its tokenizers.

    Raises:
        FileNotFoundError: the folder lacks a file.
        ValueError: it is of something else, a weight is missing, or vocabulary and model do not fit.
    """
    directory = os.fspath(directory)
    if not os.path.exists(os.path.join(directory, CONFIG)):
        raise FileNotFoundError(
            f"{directory} holds no translation model: there is no {CONFIG}; give the export folder of train_translation"
        )
    with open_binary(os.path.join(directory, CONFIG)) as file:
        try:
            settings = json.load(file)
            kind, config_class = MODELS[settings["model"]]
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{directory}/{CONFIG} is not of a translation model; give the export folder of train_translation"
            ) from None
    config = config_class.from_dict(settings["config"])
    files = [os.path.join(directory, settings[f"{side}_vocab_file"]) for side in ("source", "target")]
    source = load_subwords(files[0], settings["source_do_lower_case"])
    target = source if files[0] == files[1] else load_subwords(files[1], settings["target_do_lower_case"])
    check_vocabularies(config, source, target)
    reader = google.GoogleReader(os.path.join(directory, WEIGHTS))
    model, report = loading.make_with_weights(lambda: kind(config), reader)
    if report.missing:
        raise ValueError(f"{reader.where} has no value for {', '.join(report.missing)}")
    return Translator(model, source, target)


def check_vocabularies(config: Seq2SeqConfig | TransformerConfig, source_tokenizer, target_tokenizer) -> None:
    """Checks that vocabularies and a configuration agree on sizes and symbols.

    Raises:
        ValueError: names what differs, and lacking symbols.
    """
    for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
        size = side == "source" and config.source_vocab_size or config.vocab_size
        if tokenizer.vocab_size != size:
            raise ValueError(f"{tokenizer.vocab_file} has {tokenizer.vocab_size} pieces, the model {size} ({side})")
        for name, number in symbols_of(tokenizer).items():
            if number != getattr(config, name):
                raise ValueError(
                    f"{name} is {number} in {tokenizer.vocab_file} ({side}) and {getattr(config, name)} in the model; "
                    "the two vocabularies of a model need the same four symbols"
                )


def average_checkpoints(model: Seq2Seq | Transformer, prefixes: Sequence[str]) -> None:
    """Gives a model the mean of several checkpoints' weights (Vaswani et al. 2017, section 6.1).

    Args:
        model: of the same configuration.
        prefixes: the checkpoints.

    Raises:
        ValueError: none is given, or one does not fit; then nothing is changed.
    """
    if not prefixes:
        raise ValueError("there is no checkpoint to average")
    variables = names.model_variables(model)
    readers = [google.GoogleReader(prefix) for prefix in prefixes]
    for reader in readers:
        if missing := loading.compare(variables, reader, strict=True).missing:
            raise ValueError(f"{reader.where} has no value for {', '.join(missing)}")
    for name, variable in variables.items():
        total = sum(np.asarray(reader.read(name), "float64") for reader in readers)  # ten float32 sums would round
        variable.assign((total / len(readers)).astype(variable.dtype).reshape(variable.shape))
