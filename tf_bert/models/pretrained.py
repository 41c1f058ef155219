"""Loads models from checkpoints of any format and writes them; holds the only table of architectures.

`tf_bert.checkpoints` knows files and formats and imports no model; whatever needs both is here and in
`tf_bert.models.convert`.
"""

import copy
import dataclasses
import functools
import os
import warnings
from typing import Any

from tf_bert.checkpoints import catalogue, formats, google, keras_files, loading, names, openai, writing
from tf_bert.checkpoints.agreement import check_agreement, check_dtypes, missing_variables, refuse_more_layers
from tf_bert.checkpoints.formats import Checkpoint, ModelReader
from tf_bert.checkpoints.gpt_config import ARCHITECTURES as GPT_ARCHITECTURES
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.checkpoints.vocabulary import check_vocabulary_size
from tf_bert.configs import BertConfig, Config, GPTConfig
from tf_bert.files import atomic_folder, check_whole
from tf_bert.models.bert import Bert, BertForPreTraining
from tf_bert.models.bert_masked_lm import BertForMaskedLM
from tf_bert.models.bert_tasks import BertClassifier, BertQuestionAnswering, BertTokenClassifier
from tf_bert.models.gpt import GPT
from tf_bert.models.gpt_tasks import GPTClassifier
from tf_bert.models.multiple_choice import BertMultipleChoice
from tf_bert.models.translator import is_translator
from tf_bert.tokenization.full import FullTokenizer

HEAD_ARGUMENTS = ("num_labels", "kind")  # of a model's class, which a checkpoint's head settles unless they are given

# Hugging Face's name of an architecture -> our class. Folders in any format note it in "architectures".
ARCHITECTURES = {
    "BertModel": Bert,
    "BertForPreTraining": BertForPreTraining,
    "BertForMaskedLM": BertForMaskedLM,
    "BertForSequenceClassification": BertClassifier,
    "BertForTokenClassification": BertTokenClassifier,
    "BertForQuestionAnswering": BertQuestionAnswering,
    "BertForMultipleChoice": BertMultipleChoice,
    "GPT2LMHeadModel": GPT,
    "OpenAIGPTLMHeadModel": GPT,
    "GPTClassifier": GPTClassifier,  # our own name: there is no other like it
}


def open_checkpoint(
    path_or_name: str | os.PathLike, config: Config | None = None, allow_nan: bool = False
) -> Checkpoint:
    """Opens a checkpoint of any format, or one of the catalogue, which is fetched where it is not there yet.

    Args:
        path_or_name: a folder laid out as Google's archives, as OpenAI's or as Hugging Face's, the prefix of a
            TensorFlow 1 checkpoint, a ``.keras`` or ``.weights.h5`` file, or a name that
            `tf_bert.checkpoints.catalogue` knows.
        config: the sizes, where no configuration lies beside the weights.
        allow_nan: whether weights that are not finite are read all the same.

    Raises:
        ValueError, FileNotFoundError: nothing there can be read; the message says what was looked for. Or vocabulary,
            configuration and weights do not fit, which is seen before any weight is read. Reading a weight that is not
            finite raises ValueError too.
    """
    path = os.fspath(path_or_name)
    if not os.path.exists(path) and not os.path.exists(google.checkpoint_prefix(path) + ".index"):
        path = _fetched(path)
    check_whole(path if os.path.isdir(path) else os.path.dirname(path))
    if is_translator(path):
        raise ValueError(f"{path} holds a translation model, which tf-bert translate and tf-bert attention read")
    if formats.format_of(path) is None:
        path = keras_files.only_keras_file(path) or path
    if keras_files.is_keras_file(path):
        checkpoint = _open_keras(path, config, allow_nan)
        formats.check_vocabulary(checkpoint)
    else:
        checkpoint = formats.open_files(path, config, allow_nan)
        formats.check_vocabulary(checkpoint)
        reader = checkpoint.reader
        check_agreement(checkpoint.config, reader.shapes, reader.dtypes, path, all_layers=config is None)
    checkpoint = dataclasses.replace(
        checkpoint, architecture=_noted_architecture(checkpoint.config, checkpoint.architecture)
    )
    return checkpoint


def _noted_architecture(config: Config, otherwise: str) -> str:
    """The architecture that a configuration names, where it is one of ours."""
    noted = config.extra.get("architectures")
    first = noted[0] if isinstance(noted, list) and noted else None
    return first if isinstance(first, str) and first in ARCHITECTURES else otherwise


def _fetched(name: str) -> str:
    try:
        return catalogue.fetch(name)
    except KeyError as error:
        raise FileNotFoundError(
            f"there is no checkpoint {name}: no such file, folder or prefix of an .index file, and {error.args[0]}"
        ) from None


def _open_keras(path: str, config: Config | None, allow_nan: bool) -> Checkpoint:
    folder = os.path.dirname(path) or "."
    if path.endswith(".keras"):
        format, model = "keras", keras_files.load_keras_file(path, (BertConfig, GPTConfig), "BERT or GPT", allow_nan)
    else:
        format, config = "weights", config or formats.config_in(folder, path)
        usual = GPT_ARCHITECTURES[config.pre_norm] if isinstance(config, GPTConfig) else "BertModel"
        cls = ARCHITECTURES[_noted_architecture(config, usual)]
        make = functools.partial(cls, config, **_noted_arguments(cls, config, path))
        model = keras_files.load_keras_weights(make, config, path, allow_nan)
    return formats.with_companions(path, format, model.config, ModelReader(model), folder)


def _noted_arguments(cls: type, config: Config, where: str) -> dict[str, Any]:
    """The arguments of a class that a configuration notes; an error names the checkpoint."""
    try:
        return cls.noted_arguments(config)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def architecture_name(model) -> str:
    """Hugging Face's name of a model's architecture."""
    found = [name for name, ours in ARCHITECTURES.items() if ours is type(model)]
    return found[0] if len(found) == 1 else formats.architecture_of(names.model_variables(model))


def load_model(
    path_or_name: str | os.PathLike | Checkpoint,
    cls: type | None = None,
    config: Config | None = None,
    strict: bool = True,
    **arguments: Any,
):
    """Makes a model with a checkpoint's weights.

    Args:
        path_or_name: see `open_checkpoint`; or what it returned.
        cls: a class of `tf_bert.models`; by default the one that the checkpoint's architecture asks for.
        config: sizes and rates, instead of those beside the checkpoint.
        strict: whether a variable of the encoder without a value is an error. A head without one starts fresh, and a
            warning says so.
        **arguments: for ``cls``.

    Returns:
        The model. Its ``load_report`` says what was loaded; its ``vocab_file`` is the checkpoint's vocabulary.
    """
    checkpoint = path_or_name if isinstance(path_or_name, Checkpoint) else open_checkpoint(path_or_name, config)
    cls = cls or ARCHITECTURES[checkpoint.architecture]
    if not isinstance(checkpoint.config, cls.config_class):
        kind = "GPT" if isinstance(checkpoint.config, GPTConfig) else "BERT"
        raise ValueError(f"{checkpoint.path} holds a {kind}, from which no {cls.__name__} can be made")
    loaded = getattr(checkpoint.reader, "model", None)
    if type(loaded) is cls and not arguments:
        model = loaded
        model.load_report = loading.LoadReport(loaded=list(checkpoint.reader.shapes))
    else:
        if strict:
            refuse_more_layers(checkpoint.config, checkpoint.reader.shapes, checkpoint.path)
        noted = _noted_arguments(cls, checkpoint.config, checkpoint.path)
        found, reader = cls.arguments_for(checkpoint.reader.shapes) | noted, checkpoint.reader
        has_head = not set(names.TASK_HEAD_VARIABLES).isdisjoint(reader.shapes)
        changed = [name for name in HEAD_ARGUMENTS if arguments.get(name, found.get(name)) != found.get(name)]
        if has_head and changed:
            reader = _without_head(reader)
            warnings.warn(
                f"{checkpoint.path} has a head with {changed[0]} {found.get(changed[0])!r}, and "
                f"{arguments[changed[0]]!r} is asked for: the encoder is loaded, and the head starts fresh",
                stacklevel=3,
            )
            found = {name: value for name, value in found.items() if name not in HEAD_ARGUMENTS}
        make = functools.partial(cls, described(checkpoint).config, **found | arguments)
        model, model.load_report = loading.make_with_weights(make, reader, strict)
        if model.load_report.missing and not (has_head and changed):
            warnings.warn(f"{checkpoint.path}: {model.load_report}", stacklevel=3)
    model.vocab_file = checkpoint.vocab_file
    return model


def _without_head(reader: loading.Reader) -> loading.Reader:
    """A reader of the same checkpoint that has no variables of a task's head."""
    rest = copy.copy(reader)
    rest.shapes = {name: shape for name, shape in reader.shapes.items() if name not in names.TASK_HEAD_VARIABLES}
    return rest


def load_encoder(path_or_name: str | os.PathLike) -> tuple[Bert | GPT, Any]:
    """Loads the encoder of a BERT, or a GPT, and its tokenizer.

    Args:
        path_or_name: see `open_checkpoint`.
    """
    checkpoint = open_checkpoint(path_or_name)
    cls = GPT if isinstance(checkpoint.config, GPTConfig) else Bert
    return load_model(checkpoint, cls), checkpoint.tokenizer()


def described(checkpoint: Checkpoint) -> Checkpoint:
    """The same checkpoint with its architecture and the tokenizer's switches noted in the configuration."""
    noted = {"architectures": [checkpoint.architecture]}
    if checkpoint.settings is not None:
        noted |= checkpoint.settings.to_dict()
    config = dataclasses.replace(checkpoint.config, extra={**checkpoint.config.extra, **noted})
    return dataclasses.replace(checkpoint, config=config)


def save_model(
    model, path: str | os.PathLike, format: str | None = None, tokenizer: FullTokenizer | None = None, **options: Any
) -> str:
    """Writes a model in any format; see `tf_bert.models.saving.Checkpointed.save_checkpoint` and `write`."""
    extra = {**model.config.extra, "architectures": [architecture_name(model)], **model.to_note()}
    vocab_file = model.vocab_file
    if tokenizer is not None:
        vocab_file, settings = tokenizer.vocab_file, TokenizerSettings.of(tokenizer)
        rows = model.config.vocab_size
        check_vocabulary_size(tokenizer.vocab_size, rows, rows, vocab_file)
        extra |= settings.to_dict()
    config = dataclasses.replace(model.config, extra=extra)
    settings = TokenizerSettings.from_dict(extra)
    reader = ModelReader(model)
    checkpoint = Checkpoint(model.name, "keras", config, reader, vocab_file, settings, architecture_name(model))
    usual = "huggingface" if isinstance(config, GPTConfig) else "google"
    return write(checkpoint, path, format or usual_format(path, usual), **options)


def write(checkpoint: Checkpoint, path: str | os.PathLike, format: str, dtype=None, optimizer: bool = False) -> str:
    """Writes a checkpoint in a format.

    Args:
        checkpoint: what to write.
        path: a folder for ``google``, ``openai`` and ``huggingface``; a file for ``keras`` (``.keras``) and ``weights``
            (``.weights.h5``). Vocabulary and tokenizer switches are put in the same folder.
        format: one of `formats.FORMATS`.
        dtype: of the weights; each keeps its own by default.
        optimizer: whether Adam's moments and the step are written too; only a TensorFlow 1 checkpoint holds them.

    Returns:
        The path that loads again.

    Raises:
        ValueError: the format cannot hold it, or the path does not fit the format.
    """
    checkpoint, path = described(checkpoint), os.fspath(path)
    reader = checkpoint.reader
    missing = missing_variables(checkpoint.config, reader.shapes)
    if missing:
        some = loading.some(missing)
        raise ValueError(
            f"{checkpoint.path} lacks {len(missing)} variables of the encoder, nothing was written: {some}"
        )
    if format not in ("keras", "weights"):
        _check_plain(getattr(reader, "model", None), format)
    check_dtypes(reader.dtypes, checkpoint.path)
    write_format = _write_keras if format in ("keras", "weights") else writing.write_folder
    return write_format(checkpoint, path, format, dtype, optimizer)


def _check_plain(model, format: str) -> None:
    """Raises ValueError for a model with layers whose weights are not what other programs would compute with."""
    layers = [] if model is None else list(model._flatten_layers())
    adapted = [one for one in layers if getattr(one, "lora_enabled", False) or getattr(one, "quantization_mode", None)]
    if adapted:
        raise ValueError(
            f"{model.name} has {len(adapted)} layers that are quantized or adapted by LoRA, such as {adapted[0].path}; "
            f"the format {format} holds plain weights only: save a .keras file"
        )


def _write_keras(checkpoint: Checkpoint, path: str, format: str, dtype, optimizer: bool) -> str:
    ending = ".keras" if format == "keras" else ".weights.h5"
    if not path.endswith(ending):
        raise ValueError(f"{path}: a file of the format {format} ends in {ending}")
    if dtype is not None or optimizer:
        raise ValueError(
            f"a {ending} file is written in float32 and without the original's moments; --half, --bfloat16 and "
            "--optimizer are for the formats google and huggingface"
        )
    model = getattr(checkpoint.reader, "model", None)
    if model is not None:
        model.config = checkpoint.config  # with what travels along
    else:
        cls = ARCHITECTURES[checkpoint.architecture]
        noted = _noted_arguments(cls, checkpoint.config, checkpoint.path)
        arguments = cls.arguments_for(checkpoint.reader.shapes) | noted
        make = functools.partial(cls, checkpoint.config, **arguments)
        model, _ = loading.make_with_weights(make, checkpoint.reader)
    place, name = os.path.split(path)
    place, is_gpt = place or ".", isinstance(checkpoint.config, GPTConfig)
    with atomic_folder(place) as folder:
        if is_gpt:
            openai.copy_vocabulary(checkpoint.vocab_file, folder, "openai", goes_to=place)
        else:
            formats.copy_companions(folder, checkpoint.vocab_file, checkpoint.settings, goes_to=place)
        if format == "keras":
            keras_files.zip_model(model, os.path.join(folder, name))
        else:
            keras_files.write_weights(model, os.path.join(folder, name))
            config_file = openai.CONFIG if is_gpt else formats.GOOGLE_CONFIG
            writing.write_config(os.path.join(folder, config_file), checkpoint.config)
    return path


def usual_format(path: str | os.PathLike, folder: str) -> str:
    """The format that the ending of a path asks for; that of a ``folder`` otherwise."""
    endings = {".keras": "keras", ".h5": "weights"}
    return endings.get(os.path.splitext(path)[1], folder)
