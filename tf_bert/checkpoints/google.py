"""Google's checkpoints: TensorFlow 1's V2 format, as the original's ``tf.train.Saver`` reads and writes it.

A checkpoint is a prefix (``uncased_L-12_H-768_A-12/bert_model.ckpt``) of files ``PREFIX.index`` and
``PREFIX.data-00000-of-00001``; a ``PREFIX.meta`` is never needed. Variables are read one at a time, so that a large
model needs little more memory than its own.
"""

import os
import re
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_bert.checkpoints import loading, names
from tf_bert.files import (
    atomic_writer,
    exists,
    is_remote,
    make_folder,
    open_binary,
    reason_in_words,
    reason_of,
    temporary_folder,
)

_FILE_SUFFIX = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_STATE_FILE = "checkpoint"


def normalize_checkpoint_path(path: str | os.PathLike) -> str:
    """Finds the prefix of a checkpoint.

    Args:
        path: a prefix, one of its files (``.index``, ``.meta``, ``.data-00000-of-00001``), or a directory: one with a
            ``checkpoint`` file stands for its latest, one with a single ``.index`` for that, a SavedModel for its
            ``variables/variables``.

    Returns:
        The prefix; its index and every data file are there.

    Raises:
        ValueError: the path is empty, or a directory holds several checkpoints.
        FileNotFoundError: nothing is there, or an index without its data.
    """
    path = os.fspath(path)
    if not path.strip():
        raise ValueError("the path of the checkpoint is empty; give its prefix, such as MODEL/bert_model.ckpt")
    prefix = _prefix_in_directory(path) if tf.io.gfile.isdir(path) else checkpoint_prefix(path)
    if not tf.io.gfile.exists(prefix + ".index"):
        there = _prefixes(os.path.dirname(prefix))
        hint = f"; in that folder: {', '.join(there)}" if there else ""
        raise FileNotFoundError(f"no checkpoint {prefix} (there is no {prefix}.index){hint}")
    _data_files(prefix)
    return prefix


def checkpoint_prefix(path: str) -> str:
    """A path without the ending of one of a checkpoint's files.

    Example:
        >>> checkpoint_prefix("bert_model.ckpt.data-00000-of-00001")
        'bert_model.ckpt'
    """
    return _FILE_SUFFIX.sub("", path)


def _prefix_in_directory(directory: str) -> str:
    latest = latest_checkpoint(directory)
    if latest:
        return latest
    for folder in (directory, os.path.join(directory, "variables")):
        there = _prefixes(folder)
        if len(there) == 1:
            return os.path.join(folder, there[0])
        if there:
            raise ValueError(f"{folder} holds several checkpoints, name one of them: {', '.join(there)}")
    raise FileNotFoundError(f"no checkpoint in {directory}: no .index file there")


def _prefixes(directory: str) -> list[str]:
    """The names of the checkpoints in a directory."""
    directory = directory or "."
    if not tf.io.gfile.isdir(directory):
        return []
    return sorted(name.removesuffix(".index") for name in tf.io.gfile.listdir(directory) if name.endswith(".index"))


def _data_files(prefix: str) -> list[str]:
    """The data files of a checkpoint, all of them."""
    directory, start = os.path.split(prefix)
    pattern = re.compile(re.escape(start) + r"\.data-\d{5}-of-(\d{5})$")
    found = {name: match for name in tf.io.gfile.listdir(directory or ".") if (match := pattern.match(name))}
    shards = {int(match[1]) for match in found.values()}
    if not found or len(found) not in shards:
        raise FileNotFoundError(
            f"the checkpoint {prefix} has an index but not all its data: "
            f"found {len(found)} files {start}.data-*, expected {max(shards, default=1)}"
        )
    return [os.path.join(directory, name) for name in sorted(found)]


class GoogleReader:
    """Reads the variables of a checkpoint one by one.

    Args:
        path: as `normalize_checkpoint_path` takes it.
        allow_nan: whether weights that are not finite are read all the same.

    Attributes:
        prefix: the prefix found.
        shapes: name -> shape of everything in the checkpoint, optimizer slots and ``global_step`` included. What
            `tf_bert.checkpoints.names.GOOGLE_ALIASES` knows by another name is under ours.
        dtypes: name -> dtype.

    Raises:
        ValueError: the index is damaged, or the data file is shorter than the index says.
    """

    def __init__(self, path: str | os.PathLike, allow_nan: bool = False):
        self.prefix, self._allow_nan = normalize_checkpoint_path(path), allow_nan
        self.where = self.prefix
        for file in (f"{self.prefix}.index", *_data_files(self.prefix)):
            open_binary(file).close()  # says in one line that it is a folder or may not be read
        try:
            listing = tf.train.load_checkpoint(self.prefix)
            dtypes = listing.get_variable_to_dtype_map()
            shapes = listing.get_variable_to_shape_map()
            # Strings are the object graph of TensorFlow 2's own checkpoints, never weights.
            self.dtypes = {name: dtype.as_numpy_dtype for name, dtype in dtypes.items() if dtype != tf.string}
            self.shapes = {name: tuple(shapes[name]) for name in sorted(self.dtypes)}
        except Exception as error:  # TensorFlow's own, RuntimeError, IndexError: whichever the damage leads to
            raise ValueError(f"{self.prefix}.index is damaged: {' '.join(str(error).split())}") from None
        self._check_size()
        self._aliases = {}
        for name, (alias, transpose) in names.GOOGLE_ALIASES.items():
            if name not in self.shapes and alias in self.shapes:
                shape = self.shapes.pop(alias)
                self._aliases[name] = (alias, transpose)
                self.shapes[name] = shape[::-1] if transpose else shape
                self.dtypes[name] = self.dtypes.pop(alias)

    def _check_size(self) -> None:
        expected = sum(loading.sizes(self))
        found = sum(tf.io.gfile.stat(file).length for file in _data_files(self.prefix))
        if found < expected:
            raise ValueError(
                f"the data of {self.prefix} is truncated: the index lists {expected:,} bytes, "
                f"the files have {found:,}; copy or download it again"
            )

    def read(self, name: str) -> tf.Tensor:
        """Reads one variable.

        Raises:
            ValueError: its bytes do not have the checksum that the index says.
        """
        stored, transpose = self._aliases.get(name, (name, False))
        try:
            # A tensor and not an array of numpy: a variable takes its memory over without a copy.
            value = tf.raw_ops.RestoreV2(
                prefix=self.prefix,
                tensor_names=[stored],
                shape_and_slices=[""],
                dtypes=[tf.as_dtype(self.dtypes[name])],
            )[0]
        except tf.errors.OpError as error:
            raise ValueError(f"{stored} in {self.prefix} is damaged: {reason_of(error)}") from None
        if not self._allow_nan:
            loading.check_finite(value, stored, self.where)
        return tf.transpose(value) if transpose else value


def load_checkpoint(
    model: keras.Model,
    path: str | os.PathLike,
    strict: bool = True,
    optimizer: keras.optimizers.Optimizer | None = None,
) -> loading.LoadReport:
    """Loads the variables that a model and a checkpoint have in common.

    Args:
        model: a model whose variables have the names of the table in `tf_bert.checkpoints.names`.
        path: as `normalize_checkpoint_path` takes it.
        strict: whether a variable under ``bert/`` without a value is an error. A head without one is only reported.
        optimizer: where to go on from a training checkpoint: gets the moments and the step. Without it the checkpoint
            gives weights only, and training starts at step 0, whatever step the checkpoint was written at.

    Returns:
        What was loaded, missing, unused and reshaped.

    Raises:
        ValueError: a shape clashes or, with ``strict``, something of the encoder is missing; nothing was changed.
    """
    reader = GoogleReader(path)
    report = loading.load_weights(model, reader, strict)
    if optimizer is not None:
        _load_optimizer(model, optimizer, reader)
    return report


def save_checkpoint(
    model: keras.Model,
    prefix: str | os.PathLike,
    optimizer: keras.optimizers.Optimizer | None = None,
    global_step: int | None = None,
    keep: int | None = None,
) -> str:
    """Writes a checkpoint that the original's ``tf.train.Saver`` reads.

    Args:
        model: its weights are written under the names of the table in `tf_bert.checkpoints.names`.
        prefix: where, such as ``OUT/model.ckpt-1000``.
        optimizer: writes its moments as ``NAME/adam_m`` and ``NAME/adam_v``: three times the size.
        global_step: writes ``global_step``; the optimizer's own count where that is given and this is not.
        keep: where given, notes the checkpoint in the folder's ``checkpoint`` file and removes all but the newest
            ``keep`` that are noted there.

    Returns:
        The prefix.
    """
    tensors = dict(names.model_variables(model))
    if optimizer is not None:
        tensors |= optimizer_slots(model, optimizer) | {"global_step": np.int64(optimizer.iterations)}
    if global_step is not None:
        tensors["global_step"] = np.int64(global_step)
    prefix = write_tensors(prefix, tensors)
    if keep is not None:
        _note_checkpoint(prefix, keep)
    return prefix


def optimizer_slots(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> dict[str, keras.Variable]:
    """The moments of the original's Adam under its names: ``NAME/adam_m``, ``NAME/adam_v``."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # under loss scaling
    if not hasattr(optimizer, "adam_m"):
        raise ValueError(
            f"a TensorFlow 1 checkpoint holds the moments of AdamWeightDecay, not those of {type(optimizer).__name__}; "
            "save it without the optimizer"
        )
    optimizer.build(model.trainable_variables)
    slots = {}
    for name, variable in names.model_variables(model).items():
        if variable.trainable:
            slots[name + "/adam_m"] = optimizer.adam_m(variable)
            slots[name + "/adam_v"] = optimizer.adam_v(variable)
    return slots


def _load_optimizer(model: keras.Model, optimizer: keras.optimizers.Optimizer, reader: GoogleReader) -> None:
    """Sets the moments and the step. What was never trained (the pooler under SQuAD) has no moments: they stay zero."""
    if "global_step" not in reader.shapes:
        raise ValueError(f"{reader.prefix} is no training checkpoint (it has no global_step): nothing to go on from")
    for name, slot in optimizer_slots(model, optimizer).items():
        if name in reader.shapes:
            slot.assign(reader.read(name))
    optimizer.iterations.assign(reader.read("global_step"))


def write_tensors(prefix: str | os.PathLike, tensors: Mapping[str, object]) -> str:
    """Writes named arrays or variables as a checkpoint.

    The files are written elsewhere and renamed, the index last: without it a checkpoint is not there, and an index
    beside the data of another checkpoint has checksums that do not fit.

    Raises:
        OSError: the checkpoint cannot be written; one of the same name is as it was.
    """
    prefix = os.fspath(prefix)
    directory, name = os.path.split(prefix)
    if not name:
        raise ValueError(f"{prefix!r} names a folder; a checkpoint needs a prefix, such as {prefix}bert_model.ckpt")
    if is_remote(prefix):
        make_folder(directory)
        temporary = os.path.join(directory, f".{name}.{os.getpid()}.tmp")
        try:
            _save_and_rename(temporary, prefix, tensors)
        finally:
            _remove(temporary)
        return prefix
    with temporary_folder(os.path.realpath(directory or "."), name, shown=prefix) as folder:
        _save_and_rename(os.path.join(folder, name), prefix, tensors)
    return prefix


def _save_and_rename(temporary: str, prefix: str, tensors: Mapping[str, object]) -> None:
    order = sorted(tensors)
    try:
        tf.raw_ops.SaveV2(
            prefix=temporary,
            tensor_names=order,
            shape_and_slices=[""] * len(order),
            tensors=[tf.convert_to_tensor(tensors[name]) for name in order],
        )
        for suffix in (".data-00000-of-00001", ".index"):
            tf.io.gfile.rename(temporary + suffix, prefix + suffix, overwrite=True)
    except tf.errors.OpError as error:
        raise OSError(f"cannot write the checkpoint {prefix}: {reason_in_words(error)}") from None


def latest_checkpoint(directory: str | os.PathLike) -> str | None:
    """The newest checkpoint of a training folder, as its ``checkpoint`` file says; None where there is none."""
    kept = noted_checkpoints(os.fspath(directory))
    return kept[-1] if kept else None


def noted_checkpoints(directory: str, lost_too: bool = False) -> list[str]:
    """The checkpoints in the folder's ``checkpoint`` file, oldest first; the folder may have been moved.

    Args:
        directory: the folder.
        lost_too: whether to name those too whose index is not there.
    """
    file = os.path.join(directory, _STATE_FILE)
    if not exists(file):
        return []
    with open_binary(file) as state:
        text = state.read().decode("utf-8", "replace")  # what is damaged names nothing that is there
    lines = [line.split(":", 1) for line in text.splitlines() if ":" in line]
    noted = {"model_checkpoint_path": [], "all_model_checkpoint_paths": []}
    for key, value in lines:
        noted.setdefault(key.strip(), []).append(os.path.basename(value.strip().strip('"')))
    latest = noted["model_checkpoint_path"][-1:]
    order = [name for name in noted["all_model_checkpoint_paths"] if name not in latest] + latest
    prefixes = [os.path.join(directory, name) for name in order]
    return [prefix for prefix in prefixes if lost_too or tf.io.gfile.exists(prefix + ".index")]


def note_checkpoints(prefixes: Sequence[str]) -> None:
    """Writes the ``checkpoint`` file of a folder.

    Args:
        prefixes: its checkpoints, oldest first.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    directory, names_of_them = os.path.dirname(prefixes[-1]), [os.path.basename(prefix) for prefix in prefixes]
    lines = [f'model_checkpoint_path: "{names_of_them[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names_of_them]
    with atomic_writer(os.path.join(directory, _STATE_FILE), "w") as state:
        state.write("\n".join(lines) + "\n")


def _note_checkpoint(prefix: str, keep: int) -> None:
    directory = os.path.dirname(prefix)
    order = [noted for noted in noted_checkpoints(directory) if noted != prefix] + [prefix]
    note_checkpoints(order[-keep:])
    for noted in order[:-keep]:
        _remove(noted)


def _remove(prefix: str) -> None:
    """Removes the files of a checkpoint, the index first, so that what is left is never taken for a whole one."""
    for suffix in (".index", ".data-00000-of-00001", ".meta"):
        if tf.io.gfile.exists(prefix + suffix):
            tf.io.gfile.remove(prefix + suffix)
