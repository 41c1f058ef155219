"""LiteRT and ONNX files of the numeric part of a model: from ids to scores. Each is checked against the Keras model.

Converters can go wrong silently: a Keras model handed to the LiteRT converter as it is gives a small file full of NaN,
and TensorFlow's own GELU an ONNX file that no runtime takes. So the function is converted, not the model, GELU is
written out (`tf_bert.layers.feed_forward.gelu`), and no file is left that does not give the model's numbers.
"""

import importlib
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_bert.files import atomic_writer
from tf_bert.models.multiple_choice import BertMultipleChoice

SEQUENCES = ("input_ids", "input_mask", "segment_ids")
TOLERANCE = 1e-4
ONNX_OPSET = 17
Arrays = dict[str, np.ndarray]


def export_litert(
    model: keras.Model, path: str | os.PathLike, max_seq_length: int, outputs: Sequence[str] = (), batch_size: int = 1
) -> float:
    """Writes a ``.tflite`` file for LiteRT (TensorFlow Lite), with the signature ``serving_default``.

    Args:
        model: a model of `tf_bert.models` that takes ``input_ids``, ``input_mask`` and ``segment_ids``.
        path: the file.
        max_seq_length: S. All examples have this length, int32 [batch_size, S].
        outputs: which outputs, by default what the model's task is about.
        batch_size: examples in a call.

    Returns:
        The greatest difference from the model's own outputs on random inputs.

    Raises:
        ValueError: the file's outputs are not those of the model; it is not written.
    """
    function, names = numeric_function(model, outputs)
    shape = (batch_size, max_seq_length)
    module = tf.Module()
    module.weights = [variable.value for variable in model.variables]
    module.serve = tf.function(function, autograph=False)
    concrete = module.serve.get_concrete_function(*(tf.TensorSpec(shape, tf.int32, name) for name in SEQUENCES))
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures={"serving_default": concrete})
        data = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=["serving_default"]).convert()
    with warnings.catch_warnings():  # the interpreter of another package is recommended
        warnings.filterwarnings("ignore", r"\s*Warning: tf.lite.Interpreter is deprecated")
        run = tf.lite.Interpreter(model_content=data).get_signature_runner("serving_default")
    difference = greatest_difference(model, lambda inputs: run(**inputs), names, shape, os.fspath(path))
    with atomic_writer(path) as file:
        file.write(data)
    return difference


def export_onnx(model: keras.Model, path: str | os.PathLike, max_seq_length: int, outputs: Sequence[str] = ()) -> float:
    """Writes an ``.onnx`` file for batches of any size.

    The length is fixed: where both axes are left open, tf2onnx 1.17 takes the shape of a projection [B, S, H] after it
    has made it [B * S, H], and the file fails in its first reshaping.

    Args:
        model: see `export_litert`.
        path: the file.
        max_seq_length: S. All examples have this length, int32 [B, S].
        outputs: see `export_litert`.

    Returns:
        The greatest difference from the model's own outputs on random inputs.

    Raises:
        ImportError: tf2onnx, onnx or onnxruntime is not installed.
        ValueError: the file's outputs are not those of the model; it is not written.
    """
    tf2onnx, runtime = (_needed(name) for name in ("tf2onnx", "onnxruntime"))
    function, names = numeric_function(model, outputs)
    specs = [tf.TensorSpec([None, max_seq_length], tf.int32, name) for name in SEQUENCES]
    graph, _ = tf2onnx.convert.from_function(
        tf.function(function, input_signature=specs, autograph=False), input_signature=specs, opset=ONNX_OPSET
    )
    data = graph.SerializeToString()
    try:
        session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own classes, which differ from release to release
        raise ValueError(f"{os.fspath(path)} was not written: ONNX Runtime does not take it: {error}") from None
    taken = {node.name for node in session.get_inputs()}

    def run(inputs: Arrays) -> Arrays:
        found = session.run(None, {name: value for name, value in inputs.items() if name in taken})
        return dict(zip((node.name for node in session.get_outputs()), found, strict=True))

    difference = greatest_difference(model, run, names, (2, max_seq_length), os.fspath(path))
    with atomic_writer(path) as file:
        file.write(data)
    return difference


def numeric_function(model: keras.Model, outputs: Sequence[str] = ()) -> tuple[Callable, list[str]]:
    """A function of the three inputs that gives the chosen outputs in a dict, and their names.

    Raises:
        ValueError: there is no such output, or the model takes several sequences for each example.
    """
    if isinstance(model, BertMultipleChoice):
        raise ValueError("BertMultipleChoice takes several sequences for each example: export it as a SavedModel")
    names = list(outputs or getattr(model, "text_outputs", None) or ["sequence_output"])
    known = model({name: np.ones((1, 3), np.int32) for name in SEQUENCES}, training=False)
    wrong = [name for name in names if not tf.is_tensor(known.get(name))]
    if wrong:
        have = ", ".join(name for name, value in known.items() if tf.is_tensor(value))
        raise ValueError(f"{type(model).__name__} has no output {wrong[0]}; it has {have}")

    def function(input_ids, input_mask, segment_ids):
        inputs = dict(zip(SEQUENCES, (input_ids, input_mask, segment_ids), strict=True))
        found = model(inputs, training=False)
        return {name: found[name] for name in names}

    return function, names


def greatest_difference(
    model: keras.Model, run: Callable[[Arrays], Arrays], names: Sequence[str], shape: tuple[int, int], path: str
) -> float:
    """How far what a converted file gives is from what the model gives, on random inputs with padding.

    Raises:
        ValueError: it is more than `TOLERANCE`, not a number, or an output is missing.
    """
    random = np.random.default_rng(1)
    mask = np.arange(shape[1]) < random.integers(shape[1] // 2 + 1, shape[1] + 1, (shape[0], 1))
    inputs = {
        "input_ids": np.where(mask, random.integers(0, model.config.vocab_size, shape), 0),
        "input_mask": mask,
        "segment_ids": mask & (np.arange(shape[1]) > shape[1] // 2) & (model.config.type_vocab_size > 1),
    }
    inputs = {name: value.astype(np.int32) for name, value in inputs.items()}
    expected, found = model(inputs, training=False), run(inputs)
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{path} was not written: the converter left out {missing[0]} and gave {', '.join(found)}")
    difference = max(float(np.max(np.abs(np.asarray(expected[name]) - found[name]))) for name in names)
    if not difference <= TOLERANCE:  # also NaN
        raise ValueError(
            f"{path} was not written: what the converter made differs from the model by {difference:.2g}, and at most "
            f"{TOLERANCE} is allowed"
        )
    return difference


def _needed(name: str):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"an ONNX file needs tf2onnx, onnx and onnxruntime: pip install 'tf_bert[export]' ({error})"
        ) from None
