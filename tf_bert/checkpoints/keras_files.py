"""Keras's own files, ``.keras`` and ``.weights.h5``: looked at before Keras builds anything, and written whole.

Keras builds the model that the file's configuration describes and reads the weights afterwards. Here the two are
compared first, and what would run code or reach outside the file is refused.
"""

import contextlib
import io
import math
import os
import pathlib
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import h5py
import keras
import ml_dtypes  # noqa: F401  numpy knows bfloat16 by it
import numpy as np

from tf_bert.checkpoints.agreement import check_settings, check_sizes
from tf_bert.checkpoints.loading import check_finite
from tf_bert.configs import Config
from tf_bert.configs.base import shown
from tf_bert.files import check_room, open_binary, temporary_folder
from tf_bert.json_files import parse_json_object

ENDINGS = {".keras": "keras", ".weights.h5": "weights"}
CONFIG, WEIGHTS = "config.json", "model.weights.h5"
MOST_CONFIG_BYTES = 16 << 20
# Zeros compress a thousandfold; more than this, and 64 MiB besides, is no file of weights.
MOST_EXPANSION = 100
# Layers whose configuration is code, pickled objects or the path of another file.
CODE = ("Lambda", "__lambda__", "TorchModuleWrapper", "TFSMLayer", "JaxLayer", "FlaxLayer")
HDF5_BYTES = 4096  # noted for each array, its groups included
LOADING = "cannot be loaded by Keras"
Shapes = dict[str, tuple[int, ...]]


def is_keras_file(path: str | os.PathLike) -> bool:
    """Whether a path has the ending of one of Keras's files."""
    return os.fspath(path).endswith((".keras", ".h5"))


def only_keras_file(folder: str) -> str | None:
    """Finds the one Keras file in a folder; None where there is none.

    Raises:
        ValueError: there are several.
    """
    there = sorted(name for name in os.listdir(folder) if name.endswith(tuple(ENDINGS)) and not name.startswith("."))
    if len(there) > 1:
        raise ValueError(f"{folder} holds several models, name one of them: {', '.join(there)}")
    return os.path.join(folder, there[0]) if there else None


def load_keras_file(path: str, config_classes: tuple[type[Config], ...], expected: str, allow_nan: bool = False) -> Any:
    """Loads a model of tf_bert from a ``.keras`` file.

    Args:
        path: the file.
        config_classes: the kinds of configuration that the model may have.
        expected: what these are, for the message.
        allow_nan: whether weights that are not finite are loaded all the same.

    Raises:
        ValueError: the file is damaged; holds another model, code, or a class of another package; its configuration and
            weights do not fit; or a weight is not finite.
        OSError: the file cannot be read.
    """
    open_binary(path).close()
    described, shapes = _contents(path)
    _refuse_code(described, path)
    cls = keras.saving.get_registered_object(described.get("registered_name"))
    config_class = getattr(cls, "config_class", None)
    if not isinstance(config_class, type) or not issubclass(config_class, config_classes):
        raise ValueError(f"{path} holds a {str(described.get('class_name'))[:80]}, which is no {expected} of tf_bert")
    with _one_line(path, LOADING):
        config = config_class.from_dict(keras.saving.deserialize_keras_object(described["config"]["config"]))
    check_settings(config, path)
    check_sizes(config, shapes.values(), path)
    with _one_line(path, LOADING):
        model = keras.saving.load_model(path)
    _check_loaded(model, shapes, path, allow_nan)
    return model


def load_keras_weights(make: Callable[[], keras.Model], config: Config, path: str, allow_nan: bool = False) -> Any:
    """Makes a model with the weights of a ``.weights.h5`` file.

    Args:
        make: makes the model; not called where the file and the configuration do not fit.
        config: the model's.
        path: the file.
        allow_nan: whether weights that are not finite are loaded all the same.

    Raises:
        ValueError: the file is damaged, is of another model, or holds a weight that is not finite.
        OSError: the file cannot be read.
    """
    with open_binary(path) as file:
        shapes = _weight_shapes(file, path, os.path.getsize(path))
    check_settings(config, path)
    check_sizes(config, shapes.values(), path)
    model = make()
    with _one_line(path, LOADING):
        model.load_weights(path)
    _check_loaded(model, shapes, path, allow_nan)
    return model


def _check_loaded(model: keras.Model, shapes: Shapes, path: str, allow_nan: bool) -> None:
    """Raises ValueError where Keras left an array of the file aside, or a weight is not finite."""
    stored = [name for name in shapes if "/seed_generator" not in name]
    if len(stored) > len(model.weights):
        layers = getattr(model.config, "num_hidden_layers", None)
        raise ValueError(
            f"{path} holds {len(stored)} weights, and the {type(model).__name__} of its configuration "
            f"(num_hidden_layers {layers}) has {len(model.weights)}: it is of another model"
        )
    for variable in model.weights if not allow_nan else ():
        check_finite(variable.value, variable.path, path)


def write_keras_file(model: keras.Model, path: str | os.PathLike) -> str:
    """Writes a model as ``model.save(path)`` does, whole or not at all.

    Returns:
        The path.

    Raises:
        OSError: the file cannot be written; what was there is unchanged.
    """
    path = os.fspath(path)
    place, name = os.path.split(os.path.realpath(path))
    with temporary_folder(place, name, shown=path) as folder:
        zip_model(model, os.path.join(folder, name))
        os.replace(os.path.join(folder, name), os.path.join(place, name))
    return path


def zip_model(model: keras.Model, path: str) -> None:
    """Writes what ``model.save(path)`` writes, without its second copy of the weights in memory."""
    check_room(path, 2 * _most_bytes(model))
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path) or ".") as folder:
        model.save(folder, zipped=False)
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(file for file in pathlib.Path(folder).rglob("*") if file.is_file()):
                archive.write(file, file.relative_to(folder))


def write_weights(model: keras.Model, path: str) -> None:
    """Writes a ``.weights.h5`` file, where there is room for it."""
    check_room(path, _most_bytes(model))
    model.save_weights(path)


def _most_bytes(model: keras.Model) -> int:
    """More than the HDF5 file of a model takes: its variables, and what HDF5 notes of each."""
    variables = {id(variable): variable for variable in model.variables}
    optimizer = getattr(model, "optimizer", None)
    variables |= {id(variable): variable for variable in getattr(optimizer, "variables", ())}
    sizes = [math.prod(variable.shape) * np.dtype(variable.dtype).itemsize for variable in variables.values()]
    return sum(sizes) + HDF5_BYTES * (len(sizes) + 16)


def _contents(path: str) -> tuple[dict[str, Any], Shapes]:
    """What the configuration in a ``.keras`` file describes, and the shapes of its weights."""
    with _one_line(path, LOADING), zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        for name in (CONFIG, WEIGHTS):
            if name not in members:
                raise ValueError(f"there is no {name} in it")
        if len(members) != len(archive.infolist()):
            raise ValueError("it holds two files of one name")
        unsafe = [name for name in members if name.startswith("/") or ".." in name.split("/") or "\\" in name]
        if unsafe:
            raise ValueError(f"it holds {unsafe[0]!r}, which could be written outside its folder")
        if members[CONFIG].file_size > MOST_CONFIG_BYTES:
            raise ValueError(f"its {CONFIG} has {members[CONFIG].file_size:,} bytes")
        described = parse_json_object(archive.read(CONFIG), CONFIG)
        weights = _member(archive, members[WEIGHTS], path)
        return described, _weight_shapes(weights, WEIGHTS, members[WEIGHTS].file_size)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: str) -> Any:
    """A file in an archive, to be read from anywhere in it."""
    if member.compress_type != zipfile.ZIP_STORED:
        if member.file_size > MOST_EXPANSION * member.compress_size + (64 << 20):
            raise ValueError(
                f"its {member.filename} unpacks from {member.compress_size:,} to {member.file_size:,} bytes"
            )
        return io.BytesIO(archive.read(member))
    with open_binary(path) as file:
        file.seek(member.header_offset + 26)
        lengths = file.read(4)
    start = member.header_offset + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    if start + member.file_size > os.path.getsize(path):
        raise ValueError(f"its {member.filename} is cut off")
    return io.BufferedReader(_Window(path, start, member.file_size))


class _Window(io.RawIOBase):
    """A part of a file, as a file to read from anywhere in it."""

    def __init__(self, path: str, start: int, size: int):
        self._file, self._start, self._size, self._place = open_binary(path), start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        self._place = max(base + offset, 0)
        return self._place

    def readinto(self, buffer) -> int:
        size = max(min(len(buffer), self._size - self._place), 0)
        self._file.seek(self._start + self._place)
        data = self._file.read(size)
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _weight_shapes(file: Any, name: str, size: int) -> Shapes:
    """The shapes of all arrays in an HDF5 file but those of the optimizer, checked against what is stored."""
    shapes, total = {}, 0
    with _one_line(name, "is damaged or no HDF5 file"), h5py.File(file, "r") as opened:
        for path, array in _arrays(opened):
            if array.shape is None or array.is_virtual or array.external:
                raise ValueError(f"{path} is not stored in the file itself")
            if array.nbytes and not array.id.get_storage_size():
                raise ValueError(f"{path} has the shape {array.shape} and no data")
            total += array.nbytes
            if not path.startswith("/optimizer/"):
                shapes[path] = array.shape
        if total > MOST_EXPANSION * size + (64 << 20):
            raise ValueError(f"its arrays would take {total:,} bytes, and the file has {size:,}")
    return shapes


def _arrays(opened: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    """All arrays of an HDF5 file by their paths; links are refused, which may name other files."""
    groups, seen = [opened], set()
    while groups:
        group = groups.pop()
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{group.name}/{name} is a link to another place")
            found = group[name]
            address = h5py.h5o.get_info(found.id).addr
            if address in seen:
                raise ValueError(f"{found.name} is in it twice")
            seen.add(address)
            if isinstance(found, h5py.Group):
                groups.append(found)
            elif isinstance(found, h5py.Dataset):
                yield found.name, found


def _refuse_code(described: Mapping[str, Any], path: str) -> None:
    """Raises ValueError where a configuration names a class that is code, or of a package that Keras would import."""
    values: list[Any] = [described]
    while values:
        value = values.pop()
        if isinstance(value, list):
            values.extend(value)
        if not isinstance(value, dict):
            continue
        values.extend(value.values())
        name, module = value.get("class_name"), value.get("module")
        if name in CODE:
            raise ValueError(f"{path} holds a {name}, which is code or loads it: refused, and nothing of it was run")
        package = module.split(".")[0] if isinstance(module, str) else None
        ours = package in (None, "keras", "tf_bert", "builtins")
        if not ours and keras.saving.get_registered_object(value.get("registered_name")) is None:
            raise ValueError(
                f"{path} holds {shown(name)} of {shown(module)}, which is no class of Keras or tf_bert: refused. If it "
                "is yours, import it first (keras.saving.register_keras_serializable makes it known)"
            )


@contextlib.contextmanager
def _one_line(path: str, problem: str) -> Iterator[None]:
    """Turns any error of a library that reads a file from outside into a ValueError of one line."""
    try:
        yield
    except Exception as error:  # those of zipfile, h5py and Keras are many and differ from release to release
        text = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path} {problem}: {text if len(text) < 300 else f'{text[:296]} ...'}") from None
