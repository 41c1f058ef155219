"""Saves and loads a translation model with its vocabularies in one folder.

The folder holds ``config.json`` (the configuration, which model, which vocabulary files), ``model.ckpt`` and the
vocabularies.
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf_bert.checkpoints import agreement, google, loading, names
from tf_bert.configs import Seq2SeqConfig, TransformerConfig
from tf_bert.configs.base import shown
from tf_bert.files import atomic_folder, atomic_writer, check_whole, copy_file
from tf_bert.json_files import read_json_object
from tf_bert.models.seq2seq import Seq2Seq
from tf_bert.models.transformer import Transformer
from tf_bert.tokenization.subwords import load_subwords, symbols_of
from tf_bert.tokenization.vocabulary import vocab_sha256

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
        basic = getattr(tokenizer, "basic_tokenizer", None)
        settings |= {f"{side}_vocab_file": name, f"{side}_do_lower_case": bool(basic and basic.do_lower_case)}
    with atomic_folder(directory) as folder:
        for side, tokenizer in tokenizers.items():
            copy_file(tokenizer.vocab_file, os.path.join(folder, settings[f"{side}_vocab_file"]))
        google.save_checkpoint(model, os.path.join(folder, WEIGHTS))
        with atomic_writer(os.path.join(folder, CONFIG), "w") as file:
            described = settings | {"config": model.config.to_dict()}
            file.write(json.dumps(described, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    return directory


def is_translator(directory: str | os.PathLike) -> bool:
    """Whether a folder is one of `save_translator`'s."""
    try:
        model = read_json_object(os.path.join(os.fspath(directory), CONFIG)).get("model")
        return isinstance(model, str) and model in MODELS
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
    check_whole(directory)
    if not is_translator(directory):
        raise ValueError(
            f"{directory}/{CONFIG} is not of a translation model; give the export folder of train_translation"
        )
    settings = read_json_object(os.path.join(directory, CONFIG))
    _check_settings(settings, os.path.join(directory, CONFIG))
    kind, config_class = MODELS[settings["model"]]
    try:
        config = config_class.from_dict(settings["config"])
    except ValueError as error:
        raise ValueError(f"{directory}/{CONFIG}: {error}") from None
    reader = google.GoogleReader(os.path.join(directory, WEIGHTS))
    agreement.check_settings(config, directory)
    agreement.check_sizes(config, reader.shapes.values(), directory)
    files = [os.path.join(directory, settings[f"{side}_vocab_file"]) for side in ("source", "target")]
    source = load_subwords(files[0], settings["source_do_lower_case"])
    target = source if files[0] == files[1] else load_subwords(files[1], settings["target_do_lower_case"])
    check_vocabularies(config, source, target)
    model, report = loading.make_with_weights(lambda: kind(config), reader)
    if report.missing:
        raise ValueError(f"{reader.where} has no value for {loading.some(report.missing)}")
    if report.unused:
        raise ValueError(
            f"{reader.where} is of another model: {directory} has no place for {loading.some(report.unused)}"
        )
    return Translator(model, source, target)


def _check_settings(settings: Mapping[str, Any], where: str) -> None:
    """Raises ValueError where the settings of a folder lack something, or name a file outside it."""
    if not isinstance(settings.get("config"), dict):
        raise ValueError(f"{where}: config is {shown(settings.get('config'))}, expected an object of sizes")
    for side in ("source", "target"):
        name, lower = settings.get(f"{side}_vocab_file"), settings.get(f"{side}_do_lower_case")
        if not isinstance(name, str) or not name or os.path.basename(name) != name:
            raise ValueError(f"{where}: {side}_vocab_file is {shown(name)}, expected the name of a file of this folder")
        if not isinstance(lower, bool):
            raise ValueError(f"{where}: {side}_do_lower_case is {shown(lower)}, expected true or false")


def load_translators(directories: Sequence[str | os.PathLike]) -> list[Translator]:
    """Loads models that are to translate together.

    Raises:
        ValueError: their vocabularies differ; or as `load_translator`.
    """
    translators = [load_translator(directory) for directory in directories]
    for side in ("source_tokenizer", "target_tokenizer"):
        first, *others = (getattr(translator, side).vocab_file for translator in translators)
        for path in others:
            if vocab_sha256(path) != vocab_sha256(first):
                raise ValueError(f"{first} and {path} differ: models that translate together need equal ones")
    return translators


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
            raise ValueError(f"{reader.where} has no value for {loading.some(missing)}")
    for name, variable in variables.items():
        total = sum(np.asarray(reader.read(name), "float64") for reader in readers)  # ten float32 sums would round
        variable.assign((total / len(readers)).astype(variable.dtype).reshape(variable.shape))
