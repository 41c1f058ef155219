"""Detects a checkpoint's format and opens it with its config, vocabulary and tokenizer settings."""

import dataclasses
import os
import warnings
from collections.abc import Mapping
from typing import Any

from tf_bert.checkpoints import google, gpt_config, huggingface, keras_files, loading, names, openai
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.checkpoints.vocabulary import WORD_EMBEDDINGS, check_vocabulary_size, may_lack_lines
from tf_bert.configs import BertConfig, Config, GPTConfig
from tf_bert.files import copy_same, make_folder
from tf_bert.tokenization.byte_pair import BytePairTokenizer
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.vocabulary import casing_problem, check_special_tokens, read_vocab_lines

FORMATS = ("google", "openai", "huggingface", "keras", "weights")
GOOGLE_CONFIG = "bert_config.json"
GOOGLE_PREFIX = "bert_model.ckpt"
VOCABULARY = "vocab.txt"
NEEDED_TOKENS = ("[UNK]", "[CLS]", "[SEP]")  # without which no text is read


@dataclasses.dataclass
class Checkpoint:
    """A checkpoint of any format, opened; no weights are read before they are asked for.

    Attributes:
        path: the file, folder or prefix.
        format: one of `FORMATS`.
        config: the sizes, in our terms. Keys we do not use are in ``config.extra``.
        reader: gives the variables under Google's names; those of a GPT under the paths in our model.
        vocab_file: the vocabulary beside it, or None.
        settings: how text is split for it, or None where nothing beside it says so.
        architecture: Hugging Face's name of the architecture.
    """

    path: str
    format: str
    config: Config
    reader: loading.Reader
    vocab_file: str | None
    settings: TokenizerSettings | None
    architecture: str

    def tokenizer(self, **options: Any) -> FullTokenizer | BytePairTokenizer:
        """The tokenizer that belongs to the checkpoint.

        Args:
            **options: further arguments of `FullTokenizer`, or of `GPT2Tokenizer` and `GPT1Tokenizer`.

        Raises:
            FileNotFoundError: there is no vocabulary beside it.
            ValueError: nothing says whether text is to be lower-cased.
        """
        if isinstance(self.config, GPTConfig):
            return openai.tokenizer(self.path, self.vocab_file, **options)
        if self.vocab_file is None:
            raise FileNotFoundError(f"{self.path} has no {VOCABULARY} beside it")
        settings = self.settings
        if settings is None:
            vocab = read_vocab_lines(self.vocab_file)
            possible = [lower for lower in (True, False) if casing_problem(vocab, lower) is None]
            if len(possible) != 1:
                raise ValueError(f"nothing beside {self.vocab_file} says do_lower_case, and it may be either")
            settings = TokenizerSettings(do_lower_case=possible[0])
        return FullTokenizer(self.vocab_file, **settings.to_dict() | options)


def open_files(path: str, config: Config | None = None, allow_nan: bool = False) -> Checkpoint:
    """Opens a checkpoint in Google's, OpenAI's or Hugging Face's format; the format is detected from the files.

    Args:
        path: a folder, or the prefix of a TensorFlow 1 checkpoint.
        config: the sizes, where no configuration is next to the weights.
        allow_nan: whether weights that are not finite are read all the same.

    Raises:
        ValueError, FileNotFoundError: nothing there can be read; the message says what was looked for.
    """
    if openai.is_gpt(path):
        format, config, reader, vocab_file = openai.open_files(path, config, allow_nan)
        return Checkpoint(path, format, config, reader, vocab_file, None, architecture_of(reader.shapes))
    if _is_hugging_face(path):
        config = config or huggingface.read_config(path)
        return with_companions(path, "huggingface", config, huggingface.HuggingFaceReader(path, allow_nan), path)
    reader = google.GoogleReader(path, allow_nan)
    folder = path if os.path.isdir(path) else os.path.dirname(reader.prefix) or "."
    config = config or config_in(folder, reader.prefix)
    return with_companions(path, "google", config, reader, folder)


def check_vocabulary(checkpoint: Checkpoint) -> None:
    """Raises ValueError where vocabulary, configuration and table of words do not fit, or it is no vocabulary."""
    if checkpoint.vocab_file is not None and isinstance(checkpoint.config, GPTConfig):
        openai.check_vocabulary(checkpoint.vocab_file, checkpoint.config)
    elif checkpoint.vocab_file is not None and WORD_EMBEDDINGS in checkpoint.reader.shapes:
        rows = checkpoint.reader.shapes[WORD_EMBEDDINGS][0]
        pieces = read_vocab_lines(checkpoint.vocab_file)
        check_vocabulary_size(len(pieces), checkpoint.config.vocab_size, rows, checkpoint.path)
        check_special_tokens(pieces, checkpoint.vocab_file, NEEDED_TOKENS)
        if may_lack_lines(len(pieces), rows):
            warnings.warn(
                f"{checkpoint.vocab_file} has {len(pieces)} lines, and the table of words has {rows} rows: is the "
                "file cut off? Rows without a piece are never used",
                stacklevel=3,
            )


def format_of(path: str) -> str | None:
    """Names the format of a checkpoint by the files that are there; None where there are none of these formats.

    Args:
        path: a folder, the prefix of a TensorFlow 1 checkpoint, or a file.
    """
    if keras_files.is_keras_file(path):
        return "keras" if path.endswith(".keras") else "weights"
    if not os.path.isdir(path):
        return "openai" if openai.is_gpt(path) else "google"
    if openai.is_gpt(path):
        return "huggingface" if gpt_config.model_type(path) in gpt_config.MODEL_TYPES else "openai"
    if _is_hugging_face(path):
        return "huggingface"
    places = [place for place in (path, os.path.join(path, "variables")) if os.path.isdir(place)]
    is_google = any(name.endswith(".index") for place in places for name in os.listdir(place))
    return "google" if is_google or google.noted_checkpoints(path, lost_too=True) else None


def check_free(path: str, format: str) -> None:
    """Stops where a checkpoint written into a folder would not be the one that is read from it.

    Raises:
        ValueError: the folder holds a checkpoint of another format, or those of a training run.
    """
    there = format_of(path) if os.path.isdir(path) else None
    if there not in (None, format):
        raise ValueError(f"{path} holds a checkpoint in the format {there}; choose another folder for one in {format}")
    noted = google.latest_checkpoint(path) if there == format == "google" else None
    if noted and os.path.basename(noted) != GOOGLE_PREFIX:
        raise ValueError(f"{path} holds the checkpoints of a training run, such as {noted}; choose another folder")


def _is_hugging_face(path: str) -> bool:
    return (
        os.path.isdir(path)
        and huggingface.is_hugging_face(path)
        and not os.path.exists(os.path.join(path, GOOGLE_CONFIG))
    )


def config_in(folder: str, prefix: str) -> BertConfig | GPTConfig:
    """Reads the configuration in a folder of weights called ``prefix``."""
    for name, kind in ((openai.CONFIG, GPTConfig), (GOOGLE_CONFIG, BertConfig)):
        if os.path.exists(file := os.path.join(folder, name)):
            return kind.from_json_file(file)
    export = os.path.join(folder, "export")
    hint = f"; {export} is the whole model" if os.path.isdir(export) else ""
    raise FileNotFoundError(f"no {GOOGLE_CONFIG} beside the checkpoint {prefix}; it says the model's sizes{hint}")


def with_companions(path: str, format: str, config: Config, reader: loading.Reader, folder: str) -> Checkpoint:
    """An opened checkpoint with the vocabulary and tokenizer settings found in ``folder``."""
    if isinstance(config, GPTConfig):
        vocab_file, settings = openai.vocabulary_file(folder), None
    else:
        vocab_file = os.path.join(folder, VOCABULARY)
        vocab_file = vocab_file if os.path.exists(vocab_file) else None
        settings = TokenizerSettings.read(folder) or _noted_settings(config, path)
    return Checkpoint(path, format, config, reader, vocab_file, settings, architecture_of(reader.shapes))


def _noted_settings(config: Config, where: str) -> TokenizerSettings | None:
    """The switches that a configuration notes; an error names the checkpoint."""
    try:
        return TokenizerSettings.from_dict(config.extra)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


class ModelReader:
    """The variables of a model, as a reader; with moments and step where it was compiled with `AdamWeightDecay`."""

    def __init__(self, model):
        self.model, self.where = model, model.name
        self._variables = names.model_variables(model)
        optimizer = getattr(model, "optimizer", None)  # there once the model is compiled
        if optimizer is not None and optimizer.built and hasattr(optimizer, "adam_m"):
            self._variables |= google.optimizer_slots(model, optimizer) | {"global_step": optimizer.iterations}
        self.shapes = {name: tuple(variable.shape) for name, variable in self._variables.items()}
        self.dtypes = {name: variable.dtype for name, variable in self._variables.items()}

    def read(self, name: str):
        """The value of one variable."""
        return self._variables[name].value.read_value()


def architecture_of(shapes: Mapping[str, Any]) -> str:
    """Hugging Face's name of the architecture that has these variables.

    Example:
        >>> architecture_of({"bert/pooler/dense/kernel": (8, 8), "output_weights": (2, 8)})
        'BertForSequenceClassification'
    """
    if names.GPT_WORDS in shapes and "classifier/output_weights" in shapes:
        return "GPTClassifier"
    if names.GPT_WORDS in shapes:
        return gpt_config.ARCHITECTURES["gpt/output/LayerNorm/gamma" in shapes]
    if "cls/squad/output_weights" in shapes:
        return "BertForQuestionAnswering"
    if "output_weights" in shapes:
        pooled = "bert/pooler/dense/kernel" in shapes
        return "BertForSequenceClassification" if pooled else "BertForTokenClassification"
    if "cls/seq_relationship/output_weights" in shapes:
        return "BertForPreTraining"
    return "BertForMaskedLM" if "cls/predictions/output_bias" in shapes else "BertModel"


def copy_companions(
    folder: str, vocab_file: str | None, settings: TokenizerSettings | None, goes_to: str | None = None
) -> None:
    """Puts the vocabulary and the switches of its tokenizer beside the weights.

    Args:
        folder: where they are written.
        vocab_file: the vocabulary, if there is one.
        settings: the switches, if they are known.
        goes_to: the folder that these files are moved to afterwards, if it is not ``folder``.

    Raises:
        ValueError: another vocabulary is there already.
    """
    goes_to = goes_to or folder
    make_folder(folder)
    if vocab_file is not None:
        copy_same(vocab_file, os.path.join(folder, VOCABULARY), os.path.join(goes_to, VOCABULARY))
    if settings is not None:
        settings.write(folder, goes_to)
