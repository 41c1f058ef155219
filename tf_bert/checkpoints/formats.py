"""Which format a checkpoint has, seen by looking, and what travels with the weights: sizes, vocabulary, casing."""

import dataclasses
import importlib
import os
import shutil
from collections.abc import Mapping
from typing import Any

from tf_bert.checkpoints import catalogue, google, gpt, gpt_config, huggingface, loading, names
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.checkpoints.vocabulary import WORD_EMBEDDINGS, check_vocabulary_size
from tf_bert.configs import BertConfig, Config, GPTConfig
from tf_bert.tokenization.byte_pair import BytePairTokenizer
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.vocabulary import casing_problem, read_vocab_lines

FORMATS = ("google", "openai", "huggingface", "keras", "weights")
GOOGLE_CONFIG = "bert_config.json"
GOOGLE_PREFIX = "bert_model.ckpt"
VOCABULARY = "vocab.txt"

# Hugging Face's name of an architecture -> module and class of ours. Folders in any format note it in "architectures".
ARCHITECTURES = {
    "BertModel": ("tf_bert.models.bert", "Bert"),
    "BertForPreTraining": ("tf_bert.models.bert", "BertForPreTraining"),
    "BertForMaskedLM": ("tf_bert.models.bert_masked_lm", "BertForMaskedLM"),
    "BertForSequenceClassification": ("tf_bert.models.bert_tasks", "BertClassifier"),
    "BertForTokenClassification": ("tf_bert.models.bert_tasks", "BertTokenClassifier"),
    "BertForQuestionAnswering": ("tf_bert.models.bert_tasks", "BertQuestionAnswering"),
    "BertForMultipleChoice": ("tf_bert.models.multiple_choice", "BertMultipleChoice"),
    "GPT2LMHeadModel": ("tf_bert.models.gpt", "GPT"),
    "OpenAIGPTLMHeadModel": ("tf_bert.models.gpt", "GPT"),
    "GPTClassifier": ("tf_bert.models.gpt_tasks", "GPTClassifier"),  # our own name: there is no other like it
}


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
    """

    path: str
    format: str
    config: Config
    reader: loading.Reader
    vocab_file: str | None
    settings: TokenizerSettings | None

    @property
    def architecture(self) -> str:
        """Hugging Face's name of the architecture: what the checkpoint says it is, or else what its heads say."""
        noted = (self.config.extra.get("architectures") or [None])[0]
        return noted if noted in ARCHITECTURES else architecture_of(self.reader.shapes)

    def tokenizer(self, **options: Any) -> FullTokenizer | BytePairTokenizer:
        """The tokenizer that belongs to the checkpoint.

        Args:
            **options: further arguments of `FullTokenizer`, or of `GPT2Tokenizer` and `GPT1Tokenizer`.

        Raises:
            FileNotFoundError: there is no vocabulary beside it.
            ValueError: nothing says whether text is to be lower-cased.
        """
        if isinstance(self.config, GPTConfig):
            return gpt.tokenizer(self.path, self.vocab_file, **options)
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


def open_checkpoint(path_or_name: str | os.PathLike, config: Config | None = None) -> Checkpoint:
    """Opens a checkpoint of any format, or one of the catalogue, which is fetched where it is not there yet.

    Args:
        path_or_name: a folder laid out as Google's archives, as OpenAI's or as Hugging Face's, the prefix of a
            TensorFlow 1 checkpoint, a ``.keras`` or ``.weights.h5`` file, or a name that
            `tf_bert.checkpoints.catalogue` knows.
        config: the sizes, where no configuration lies beside the weights.

    Raises:
        ValueError, FileNotFoundError: nothing there can be read; the message says what was looked for. Or vocabulary,
            configuration and table do not fit.
    """
    path = os.fspath(path_or_name)
    if not os.path.exists(path) and not os.path.exists(google.checkpoint_prefix(path) + ".index"):
        path = _fetched(path)
    if _is_translator(path):
        raise ValueError(f"{path} holds a translation model, which tf-bert translate and tf-bert attention read")
    if path.endswith((".keras", ".h5")):
        checkpoint = _open_keras(path, config)
    elif gpt.is_gpt(path):
        format, config, reader, vocab_file = gpt.open_files(path, config)
        checkpoint = Checkpoint(path, format, config, reader, vocab_file, None)
    elif _is_hugging_face(path):
        config = config or huggingface.read_config(path)
        checkpoint = _checkpoint(path, "huggingface", config, huggingface.HuggingFaceReader(path), path)
    else:
        reader = google.GoogleReader(path)
        folder = path if os.path.isdir(path) else os.path.dirname(reader.prefix) or "."
        config = config or _config_beside(folder, reader.prefix)
        checkpoint = _checkpoint(path, "google", config, reader, folder)
    if checkpoint.vocab_file is not None and isinstance(checkpoint.config, GPTConfig):
        gpt.check_vocabulary(checkpoint.vocab_file, checkpoint.config)
    elif checkpoint.vocab_file is not None and WORD_EMBEDDINGS in checkpoint.reader.shapes:
        rows = checkpoint.reader.shapes[WORD_EMBEDDINGS][0]
        lines = len(read_vocab_lines(checkpoint.vocab_file))
        check_vocabulary_size(lines, checkpoint.config.vocab_size, rows, path)
    return checkpoint


def _fetched(name: str) -> str:
    try:
        return catalogue.fetch(name)
    except KeyError as error:
        raise FileNotFoundError(
            f"there is no checkpoint {name}: no such file, folder or prefix of an .index file, and {error.args[0]}"
        ) from None


def _is_translator(path: str) -> bool:
    from tf_bert.checkpoints.translators import is_translator  # which imports the models

    return is_translator(path)


def _is_hugging_face(path: str) -> bool:
    return (
        os.path.isdir(path)
        and huggingface.is_hugging_face(path)
        and not os.path.exists(os.path.join(path, GOOGLE_CONFIG))
    )


def _config_beside(folder: str, prefix: str) -> BertConfig | GPTConfig:
    for name, kind in ((gpt.CONFIG, GPTConfig), (GOOGLE_CONFIG, BertConfig)):
        if os.path.exists(file := os.path.join(folder, name)):
            return kind.from_json_file(file)
    export = os.path.join(folder, "export")
    hint = f"; {export} is the whole model" if os.path.isdir(export) else ""
    raise FileNotFoundError(f"no {GOOGLE_CONFIG} beside the checkpoint {prefix}; it says the model's sizes{hint}")


def _checkpoint(path: str, format: str, config: Config, reader: loading.Reader, folder: str) -> Checkpoint:
    if isinstance(config, GPTConfig):
        return Checkpoint(path, format, config, reader, gpt.vocabulary_file(folder), None)
    vocab_file = os.path.join(folder, VOCABULARY)
    settings = TokenizerSettings.read(folder) or TokenizerSettings.from_dict(config.extra)
    return Checkpoint(path, format, config, reader, vocab_file if os.path.exists(vocab_file) else None, settings)


def _open_keras(path: str, config: Config | None) -> Checkpoint:
    import keras

    folder = os.path.dirname(path) or "."
    for module in ("bert_tasks", "gpt_tasks"):
        importlib.import_module(f"tf_bert.models.{module}")  # registers the classes that the file names
    try:
        if path.endswith(".keras"):
            model = keras.saving.load_model(path)
        else:
            config = config or _config_beside(folder, path)
            usual = gpt_config.ARCHITECTURES[config.pre_norm] if isinstance(config, GPTConfig) else "BertModel"
            architecture = (config.extra.get("architectures") or [usual])[0]
            cls = model_class(architecture)
            model = cls(config, **cls.noted_arguments(config))
            model.load_weights(path)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be loaded by Keras: {error}") from None
    if not isinstance(getattr(model, "config", None), BertConfig | GPTConfig):
        raise ValueError(f"{path} holds a {type(model).__name__}, which is no BERT or GPT of tf_bert")
    format = "keras" if path.endswith(".keras") else "weights"
    return _checkpoint(path, format, model.config, ModelReader(model), folder)


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


def model_class(architecture: str) -> type:
    """Our class of an architecture."""
    module, name = ARCHITECTURES[architecture]
    return getattr(importlib.import_module(module), name)


def architecture_name(model) -> str:
    """Hugging Face's name of a model's architecture."""
    found = [name for name, (_, ours) in ARCHITECTURES.items() if ours == type(model).__name__]
    return found[0] if len(found) == 1 else architecture_of(names.model_variables(model))


def copy_companions(folder: str, vocab_file: str | None, settings: TokenizerSettings | None) -> None:
    """Puts the vocabulary and the switches of its tokenizer beside the weights.

    Raises:
        ValueError: another vocabulary is there already.
    """
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, VOCABULARY)
    if vocab_file is not None:
        if os.path.exists(target):
            with open(target, "rb") as there, open(vocab_file, "rb") as ours:
                if there.read() != ours.read():
                    raise ValueError(f"{target} is there already and is not {vocab_file}; choose another folder")
        else:
            shutil.copyfile(vocab_file, target)
    if settings is not None:
        settings.write(folder)
