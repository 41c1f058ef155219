"""Writes an open checkpoint as a folder in Google's, OpenAI's or Hugging Face's format, variable by variable."""

import os
import warnings

import numpy as np
import tensorflow as tf

from tf_bert.checkpoints import formats, google, huggingface, loading, names, openai
from tf_bert.checkpoints.formats import Checkpoint
from tf_bert.configs import Config, GPTConfig
from tf_bert.files import atomic_folder, atomic_writer


def write_folder(checkpoint: Checkpoint, path: str, format: str, dtype=None, optimizer: bool = False) -> str:
    """Writes a checkpoint as a folder; vocabulary and tokenizer settings are put in it too.

    Args:
        checkpoint: what to write.
        path: the folder.
        format: ``google``, ``openai`` or ``huggingface``.
        dtype: of the weights; each keeps its own by default.
        optimizer: whether Adam's moments and the step are written too; only a TensorFlow 1 checkpoint holds them.

    Returns:
        The path.

    Raises:
        ValueError: the format cannot hold it, or the path does not fit the format.
    """
    is_gpt = isinstance(checkpoint.config, GPTConfig)
    if format == ("google" if is_gpt else "openai"):
        kind, right = ("GPT", "openai") if is_gpt else ("BERT", "google")
        raise ValueError(f"{checkpoint.path} holds a {kind}, which the format {format} has not; there is {right}")
    if path.endswith((".keras", ".h5")):
        raise ValueError(f"{path} is the name of a Keras file; the format {format} needs a folder")
    formats.check_free(path, format)
    if is_gpt:
        if optimizer:
            raise ValueError("a GPT is written without the optimizer's moments")
        return openai.write(checkpoint, path, format, dtype)
    chosen = _chosen(checkpoint, format, optimizer)
    dtypes = {name: dtype_of(checkpoint.reader, name, dtype) for name in chosen}

    def value(name: str):
        return loading.cast(checkpoint.reader.read(name), dtypes[name], name, checkpoint.path)

    with atomic_folder(path) as folder:
        formats.copy_companions(folder, checkpoint.vocab_file, checkpoint.settings, goes_to=path)
        if format == "google":
            tensors = {name: tf.convert_to_tensor(value(name)) for name in chosen}
            google.write_tensors(os.path.join(folder, formats.GOOGLE_PREFIX), tensors)
            write_config(os.path.join(folder, formats.GOOGLE_CONFIG), checkpoint.config)
        else:
            shapes = checkpoint.reader.shapes
            tensors = [(name, shapes[name], dtypes[name]) for name in chosen]
            huggingface.write_weights(os.path.join(folder, huggingface.WEIGHTS), tensors, value)
            weights_dtype, num_labels = dtypes[formats.WORD_EMBEDDINGS], shapes.get("output_weights", (None,))[0]
            huggingface.write_config(folder, checkpoint.config, checkpoint.architecture, weights_dtype, num_labels)
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


def write_config(path: str, config: Config) -> None:
    """Writes our configuration file."""
    with atomic_writer(path, "w") as file:
        file.write(config.to_json_string())
