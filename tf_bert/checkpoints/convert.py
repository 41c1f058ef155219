"""From any format to any other: load a model, save one, or pass a checkpoint on variable by variable."""

import dataclasses
import functools
import os
import pathlib
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from tf_bert.checkpoints import formats, google, gpt, huggingface, loading, names
from tf_bert.checkpoints.formats import Checkpoint, ModelReader
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.checkpoints.vocabulary import ResizedReader, check_vocabulary_size, grow, prune
from tf_bert.configs import Config, GPTConfig
from tf_bert.files import atomic_writer, make_folder
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.vocabulary import read_vocab_lines, save_vocab

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def load_model(
    path_or_name: str | os.PathLike,
    cls: type | None = None,
    config: Config | None = None,
    strict: bool = True,
    **arguments: Any,
):
    """Makes a model with a checkpoint's weights.

    Args:
        path_or_name: see `formats.open_checkpoint`.
        cls: a class of `tf_bert.models`; by default the one that the checkpoint's architecture asks for.
        config: sizes and rates, instead of those beside the checkpoint.
        strict: whether a variable of the encoder without a value is an error. A head without one starts fresh, and a
            warning says so.
        **arguments: for ``cls``.

    Returns:
        The model. Its ``load_report`` says what was loaded; its ``vocab_file`` is the checkpoint's vocabulary.
    """
    checkpoint = formats.open_checkpoint(path_or_name, config)
    cls = cls or formats.model_class(checkpoint.architecture)
    if not isinstance(checkpoint.config, cls.config_class):
        kind = "GPT" if isinstance(checkpoint.config, GPTConfig) else "BERT"
        raise ValueError(f"{checkpoint.path} holds a {kind}, from which no {cls.__name__} can be made")
    loaded = getattr(checkpoint.reader, "model", None)
    if type(loaded) is cls and not arguments:
        model = loaded
        model.load_report = loading.LoadReport(loaded=list(checkpoint.reader.shapes))
    else:
        arguments = cls.arguments_for(checkpoint.reader.shapes) | cls.noted_arguments(checkpoint.config) | arguments
        make = functools.partial(cls, described(checkpoint).config, **arguments)
        model, model.load_report = loading.make_with_weights(make, checkpoint.reader, strict)
        if model.load_report.missing:
            warnings.warn(f"{checkpoint.path}: {model.load_report}", stacklevel=3)
    model.vocab_file = checkpoint.vocab_file
    return model


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
    """Writes a model in any format; see `tf_bert.models.checkpointed.Checkpointed.save_checkpoint` and `write`."""
    extra = {**model.config.extra, "architectures": [formats.architecture_name(model)], **model.to_note()}
    vocab_file = model.vocab_file
    if tokenizer is not None:
        vocab_file, settings = tokenizer.vocab_file, TokenizerSettings.of(tokenizer)
        rows = model.config.vocab_size
        check_vocabulary_size(tokenizer.vocab_size, rows, rows, vocab_file)
        extra |= settings.to_dict()
    config = dataclasses.replace(model.config, extra=extra)
    settings = TokenizerSettings.from_dict(extra)
    checkpoint = Checkpoint(model.name, "keras", config, ModelReader(model), vocab_file, settings)
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
    is_gpt = isinstance(checkpoint.config, GPTConfig)
    if format == ("google" if is_gpt else "openai"):
        kind, right = ("GPT", "openai") if is_gpt else ("BERT", "google")
        raise ValueError(f"{checkpoint.path} holds a {kind}, which the format {format} has not; there is {right}")
    if format in ("keras", "weights"):
        return _write_keras(checkpoint, path, format, dtype, optimizer)
    if path.endswith((".keras", ".h5")):
        raise ValueError(f"{path} is the name of a Keras file; the format {format} needs a folder")
    if is_gpt:
        if optimizer:
            raise ValueError("a GPT is written without the optimizer's moments")
        return gpt.write(checkpoint, path, format, dtype)
    chosen = _chosen(checkpoint, format, optimizer)
    dtypes = {name: dtype_of(checkpoint.reader, name, dtype) for name in chosen}
    formats.copy_companions(path, checkpoint.vocab_file, checkpoint.settings)
    if format == "google":
        tensors = {name: tf.cast(checkpoint.reader.read(name), dtypes[name]) for name in chosen}
        google.write_tensors(os.path.join(path, formats.GOOGLE_PREFIX), tensors)
        _write_config(os.path.join(path, formats.GOOGLE_CONFIG), checkpoint.config)
    else:
        shapes = checkpoint.reader.shapes
        tensors = [(name, shapes[name], dtypes[name]) for name in chosen]
        huggingface.write_weights(os.path.join(path, huggingface.WEIGHTS), tensors, checkpoint.reader.read)
        weights_dtype, num_labels = dtypes[formats.WORD_EMBEDDINGS], shapes.get("output_weights", (None,))[0]
        huggingface.write_config(path, checkpoint.config, checkpoint.architecture, weights_dtype, num_labels)
    return path


def _chosen(checkpoint: Checkpoint, format: str, optimizer: bool) -> list[str]:
    """The variables to write: all that the table of names knows, those of the optimizer on request."""
    state = [name for name in checkpoint.reader.shapes if names.is_optimizer_variable(name)]
    if optimizer and format != "google":
        raise ValueError("a Hugging Face folder does not hold the optimizer's moments; a TensorFlow 1 checkpoint does")
    if optimizer and not state:
        raise ValueError(f"{checkpoint.path} holds no moments of an optimizer")
    weights = [name for name in checkpoint.reader.shapes if name not in state]
    if checkpoint.format != "google" or format != "google":
        unknown = [name for name in weights if names.to_hugging_face(name) is None]
        if unknown:
            warnings.warn(
                f"{checkpoint.path}: left out what has no place in a BERT: {', '.join(unknown)}", stacklevel=4
            )
        weights = [name for name in weights if name not in unknown]
    return weights + state if optimizer else weights


def dtype_of(reader: loading.Reader, name: str, dtype=None) -> np.dtype:
    """The dtype in which a variable is written: the one asked for, except for moments and counters."""
    own = np.dtype(reader.dtypes[name])
    return own if dtype is None or names.is_optimizer_variable(name) else np.dtype(dtype)


def _write_config(path: str, config: Config) -> None:
    with atomic_writer(path, "w") as file:
        file.write(config.to_json_string())


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
        cls = formats.model_class(checkpoint.architecture)
        arguments = cls.arguments_for(checkpoint.reader.shapes) | cls.noted_arguments(checkpoint.config)
        make = functools.partial(cls, checkpoint.config, **arguments)
        model, _ = loading.make_with_weights(make, checkpoint.reader)
    folder, name = os.path.split(path)
    make_folder(folder or ".")
    is_gpt = isinstance(checkpoint.config, GPTConfig)
    if is_gpt:
        gpt.copy_vocabulary(checkpoint.vocab_file, folder or ".", "openai")
    else:
        formats.copy_companions(folder or ".", checkpoint.vocab_file, checkpoint.settings)
    temporary = os.path.join(folder, f".{os.getpid()}.{name}")
    try:
        if format == "keras":
            _save_zipped(model, temporary)
        else:
            model.save_weights(temporary)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    if format == "weights":
        _write_config(os.path.join(folder, gpt.CONFIG if is_gpt else formats.GOOGLE_CONFIG), checkpoint.config)
    return path


def _save_zipped(model, path: str) -> None:
    """What ``model.save(path)`` writes, without its second copy of the weights in memory."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path) or ".") as folder:
        model.save(folder, zipped=False)
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(pathlib.Path(folder).rglob("*")):
                archive.write(file, file.relative_to(folder))


def convert(
    source: str | os.PathLike,
    target: str | os.PathLike,
    format: str | None = None,
    dtype: str | None = None,
    optimizer: bool = False,
) -> Checkpoint:
    """Converts a checkpoint; the variables keep their bits unless another dtype is asked for.

    Args:
        source: see `formats.open_checkpoint`.
        target: see `write`.
        format: one of `formats.FORMATS`; by default what the ending of ``target`` says, or else the other one of
            ``google`` (``openai`` for a GPT) and ``huggingface``.
        dtype: ``float32``, ``float16`` or ``bfloat16``.
        optimizer: whether the moments of a training checkpoint go along.

    Returns:
        The checkpoint that was read.
    """
    checkpoint = formats.open_checkpoint(source)
    if os.path.realpath(target) in (os.path.realpath(checkpoint.path), os.path.realpath(source)):
        raise ValueError(f"{target} is the checkpoint itself; choose another place")
    folder = "openai" if isinstance(checkpoint.config, GPTConfig) else "google"
    other = "huggingface" if checkpoint.format == folder else folder
    write(checkpoint, target, format or usual_format(target, other), dtype and DTYPES[dtype], optimizer)
    return checkpoint


def usual_format(path: str | os.PathLike, folder: str) -> str:
    """The format that the ending of a path asks for; that of a ``folder`` otherwise."""
    endings = {".keras": "keras", ".h5": "weights"}
    return endings.get(os.path.splitext(path)[1], folder)


def resize(
    checkpoint: Checkpoint,
    target: str | os.PathLike,
    add: Sequence[str] = (),
    keep: Sequence[str] | None = None,
    use_unused: bool = True,
    seed: int = 0,
) -> str:
    """Writes a checkpoint with another vocabulary, in its own format.

    Args:
        checkpoint: has a vocabulary beside it.
        target: see `write`.
        add: new pieces, see `tf_bert.checkpoints.vocabulary.grow`.
        keep: the only old pieces to keep, see `tf_bert.checkpoints.vocabulary.prune`; all by default.
        use_unused: whether new pieces take the places of ``[unusedN]`` first.
        seed: of the vectors of new pieces.

    Returns:
        A sentence that says what changed.
    """
    if checkpoint.vocab_file is None:
        raise FileNotFoundError(f"{checkpoint.path} has no {formats.VOCABULARY} beside it")
    old = read_vocab_lines(checkpoint.vocab_file)
    kept = old if keep is None else prune(old, keep)
    pieces = grow(kept, add, use_unused)
    shorter = ResizedReader(checkpoint.reader, old, kept)
    reader = ResizedReader(shorter, kept, pieces, checkpoint.config.initializer_range, seed)
    config = dataclasses.replace(checkpoint.config, vocab_size=len(pieces))
    with tempfile.TemporaryDirectory() as folder:
        vocab_file = os.path.join(folder, formats.VOCABULARY)
        save_vocab(pieces, vocab_file)
        resized = dataclasses.replace(checkpoint, config=config, reader=reader, vocab_file=vocab_file)
        write(resized, target, checkpoint.format)
    renamed = len(set(pieces) - set(old)) - reader.fresh
    return (
        f"{len(old)} pieces before, {len(old) - len(kept)} taken out, {renamed} put in the place of unused ones, "
        f"{reader.fresh} added with new vectors, {len(pieces)} now"
    )
