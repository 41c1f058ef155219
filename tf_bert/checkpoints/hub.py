"""SavedModel folders as TensorFlow Hub published BERT, read without running anything in them.

A SavedModel is a program: its functions may write files or reach the network when they are called. Here its variables
are read as a checkpoint, its vocabulary as a file, and what no variable says (the number of heads, the activation, the
casing) is looked up in the operations and constants of its graph, which is not executed.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2, trackable_object_graph_pb2

from tf_bert.checkpoints import formats, google
from tf_bert.checkpoints.agreement import check_agreement
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.configs import BertConfig
from tf_bert.files import open_binary
from tf_bert.progress import say

SAVED_MODEL = "saved_model.pb"
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_LAYER = "bert/encoder/layer_{}/"
_PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# Between the product of queries and keys and the softmax.
_BETWEEN = ("Add", "AddV2", "BiasAdd", "Sub", "Mul", "RealDiv", "Identity", "Reshape", "Transpose", "Cast", "Squeeze")


class HubReader:
    """The variables of a module under Google's names, without the scope that Hub puts before them.

    Args:
        path: the folder of the SavedModel.

    Attributes:
        where, shapes, dtypes: see `tf_bert.checkpoints.loading.Reader`.
        others: names of variables that belong to no BERT.
    """

    def __init__(self, path: str):
        self._stored, self.where = google.GoogleReader(os.path.join(path, "variables", "variables")), path
        full_names = _full_names(self._stored.prefix)
        self._stored_names, self.others = {}, []
        for stored in self._stored.shapes:
            name = full_names.get(stored, stored)
            start = max(f"/{name}".find("/bert/"), f"/{name}".find("/cls/"))
            if start < 0:
                self.others.append(name)
            elif name[start:] in self._stored_names:
                raise ValueError(f"{path} holds two BERTs: {name[start:]} is in it twice")
            else:
                self._stored_names[name[start:]] = stored
        self.shapes = {name: self._stored.shapes[stored] for name, stored in self._stored_names.items()}
        self.dtypes = {name: self._stored.dtypes[stored] for name, stored in self._stored_names.items()}

    def read(self, name: str) -> Any:
        """Reads one variable."""
        return self._stored.read(self._stored_names[name])


@dataclasses.dataclass
class Module:
    """What the files of a module say.

    Attributes:
        reader: its variables.
        vocab_file: its vocabulary.
        do_lower_case: the casing; None where it does not say.
        sizes: the settings that the shapes of the variables say.
        num_attention_heads, hidden_act: what its graph says; None where it does not.
        config: its ``bert_config.json``, where there is one.
        tags: of the graph with the signature ``tokens``, or of the only one.
        signatures: of that graph.
    """

    reader: HubReader
    vocab_file: str
    do_lower_case: bool | None
    sizes: dict[str, int]
    num_attention_heads: int | None
    hidden_act: str | None
    config: BertConfig | None
    tags: list[str]
    signatures: set[str]


def read_module(path: str) -> Module:
    """Reads a module's folder; nothing in it is run.

    Raises:
        FileNotFoundError: there is no SavedModel, or no vocabulary in it.
        ValueError: it holds no BERT, is damaged, or its vocabulary is outside its folder.
    """
    saved = _meta_graph(path)
    reader = HubReader(path)
    if "bert/embeddings/word_embeddings" not in reader.shapes:
        there = ", ".join([*reader.others, *reader.shapes][:4]) or "none"
        raise ValueError(f"{path} has no variables of a BERT as the original names them; it has {there}")
    graph, sizes = _Graph(saved.graph_def), _sizes(reader)
    config_file = os.path.join(path, formats.GOOGLE_CONFIG)
    return Module(
        reader=reader,
        vocab_file=_vocab_file(saved, path),
        do_lower_case=_casing(saved, graph),
        sizes=sizes,
        num_attention_heads=graph.number_of_heads(sizes["hidden_size"]),
        hidden_act=graph.activation(sizes["num_hidden_layers"]),
        config=BertConfig.from_json_file(config_file) if os.path.exists(config_file) else None,
        tags=list(saved.meta_info_def.tags),
        signatures=set(saved.signature_def),
    )


def checkpoint_of(module: Module, config: BertConfig, do_lower_case: bool) -> formats.Checkpoint:
    """A module as a checkpoint that can be written in any format.

    Raises:
        ValueError: the configuration does not fit the variables or the vocabulary.
    """
    reader, path = module.reader, module.reader.where
    lower = do_lower_case if module.do_lower_case is None else module.do_lower_case
    if module.do_lower_case is None:
        say(f"{path} does not say whether text is lower-cased: do_lower_case is {do_lower_case}")
    check_agreement(config, reader.shapes, reader.dtypes, path)
    architecture, settings = formats.architecture_of(reader.shapes), TokenizerSettings(do_lower_case=lower)
    checkpoint = formats.Checkpoint(path, "hub", config, reader, module.vocab_file, settings, architecture)
    formats.check_vocabulary(checkpoint)
    return checkpoint


def run_tokens(
    module: Module, make_inputs: Callable[[int | None], dict[str, np.ndarray]]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Runs the signature ``tokens`` of a module. This executes the module's code: ask the user first.

    Args:
        module: from `read_module`.
        make_inputs: gives the inputs for a length of sequences; None where the signature takes any.

    Returns:
        The inputs and the outputs.
    """
    signature = tf.saved_model.load(module.reader.where, tags=module.tags).signatures["tokens"]
    specs = signature.structured_input_signature[1]
    inputs = make_inputs(specs["input_ids"].shape[-1])
    found = signature(**{name: tf.cast(value, specs[name].dtype) for name, value in inputs.items()})
    return inputs, {name: value.numpy() for name, value in found.items()}


def _meta_graph(path: str) -> Any:
    """The graph for inference, with the signature ``tokens`` if there is one."""
    if "://" in path and not path.startswith("file:"):
        raise FileNotFoundError(f"{path} is an address: nothing is fetched here. Unpack the module and give its folder")
    file = os.path.join(path, SAVED_MODEL)
    if not os.path.exists(file):
        raise FileNotFoundError(f"{path} is no SavedModel: there is no {file}")
    saved = saved_model_pb2.SavedModel()
    with open_binary(file) as stream:
        data = stream.read()
    try:
        saved.ParseFromString(data)
        return min(
            saved.meta_graphs,
            key=lambda graph: ("tokens" not in graph.signature_def, "train" in graph.meta_info_def.tags),
        )
    except Exception as error:  # of protobuf's own kind, which has changed its name
        raise ValueError(f"{file} is damaged: {error}") from None


def _full_names(prefix: str) -> dict[str, str]:
    """TensorFlow 2's key of a variable in a checkpoint -> the name that it was made with."""
    listing = tf.train.load_checkpoint(prefix)
    if not listing.has_tensor(_OBJECT_GRAPH):
        return {}
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    try:
        graph.ParseFromString(listing.get_tensor(_OBJECT_GRAPH))
    except Exception as error:
        raise ValueError(f"{prefix}.index is damaged: {error}") from None
    return {one.checkpoint_key: one.full_name for node in graph.nodes for one in node.attributes if one.full_name}


def _sizes(reader: HubReader) -> dict[str, int]:
    """The settings that the shapes of BERT's variables say."""
    layers = next(i for i in itertools.count() if _LAYER.format(i) + "output/dense/kernel" not in reader.shapes)
    tables = {
        "bert/embeddings/word_embeddings": ("vocab_size", "hidden_size"),
        "bert/embeddings/position_embeddings": ("max_position_embeddings", None),
        "bert/embeddings/token_type_embeddings": ("type_vocab_size", None),
        _LAYER.format(0) + "intermediate/dense/kernel": (None, "intermediate_size"),
    }
    sizes = {"num_hidden_layers": layers}
    for name, axes in tables.items():
        shape = reader.shapes.get(name, ())
        if len(shape) != 2:
            raise ValueError(f"{reader.where} has no {name} of two axes: it is no BERT of the original's")
        sizes |= {axis: size for axis, size in zip(axes, shape, strict=True) if axis}
    return sizes


def _vocab_file(saved: Any, path: str) -> str:
    """The vocabulary among the assets, which are files of the module's own folder."""
    assets, definitions = os.path.join(path, "assets"), _asset_definitions(saved)
    listed = [os.path.join(assets, asset.filename) for asset in definitions]
    wanted = saved.signature_def["tokenization_info"].outputs if "tokenization_info" in saved.signature_def else {}
    if len(listed) > 1 and "vocab_file" in wanted:
        tensors = [asset.tensor_info.name for asset in definitions]
        listed = [file for file, tensor in zip(listed, tensors, strict=True) if tensor == wanted["vocab_file"].name]
    usual = [os.path.join(assets, formats.VOCABULARY), os.path.join(path, formats.VOCABULARY)]
    files = listed if len(listed) == 1 else usual
    for file in files:
        if not _is_inside(file, path):
            raise ValueError(f"{path} names a vocabulary outside its folder, {file}: refused")
        if os.path.exists(file):
            return file
    raise FileNotFoundError(f"{path} has no vocabulary: there is no {' or '.join(files)}")


def _asset_definitions(saved: Any) -> list[Any]:
    """The files that a graph was saved with; TensorFlow 1 lists them in a collection."""
    definitions = list(saved.asset_file_def)
    for packed in saved.collection_def["saved_model_assets"].any_list.value if not definitions else ():
        definitions.append(meta_graph_pb2.AssetFileDef())
        packed.Unpack(definitions[-1])
    return definitions


def _is_inside(file: str, folder: str) -> bool:
    folder, file = os.path.realpath(folder), os.path.realpath(file)
    return os.path.commonpath([folder, file]) == folder


def _casing(saved: Any, graph: "_Graph") -> bool | None:
    """The constant that the signature ``tokenization_info`` returns as ``do_lower_case``."""
    if "tokenization_info" not in saved.signature_def:
        return None
    outputs = saved.signature_def["tokenization_info"].outputs
    value = graph.constant(outputs["do_lower_case"].name) if "do_lower_case" in outputs else None
    return None if value is None else bool(value)


class _Graph:
    """The operations of a SavedModel, to be looked at; functions are graphs of their own.

    Args:
        graph_def: ``tf.compat.v1.GraphDef``.
    """

    def __init__(self, graph_def: Any):
        self._functions = {function.signature.name: function for function in graph_def.library.function}
        self._main = {node.name: node for node in graph_def.node}
        self._graphs = [self._main]
        self._graphs += [{node.name: node for node in one.node_def} for one in self._functions.values()]

    def number_of_heads(self, hidden_size: int) -> int | None:
        """The heads for which attention is scaled as it is; None where the scale is not found, or there are several.

        Scores are multiplied by 1 / sqrt(d), or divided by sqrt(d), before the softmax; d is the width of a head.
        """
        widths = {round(width, 3) for nodes in self._graphs for width in self._widths_of_heads(nodes)}
        if len(widths) != 1:
            return None
        width = round(widths.pop())
        return hidden_size // width if width >= 1 and hidden_size % width == 0 else None

    def _widths_of_heads(self, nodes: Mapping[str, Any]) -> Iterator[float]:
        for softmax in (node for node in nodes.values() if node.op == "Softmax"):
            places, seen = [name for name in _inputs(softmax)[:1]], set()
            while places:
                node = nodes.get(places.pop())
                if node is None or node.name in seen or node.op not in _BETWEEN:
                    continue
                seen.add(node.name)
                inputs = _inputs(node)
                if node.op in ("Mul", "RealDiv") and len(inputs) == 2:
                    yield from self._width_of_head(nodes, node.op, inputs)
                places.extend(inputs)

    def _width_of_head(self, nodes: Mapping[str, Any], op: str, inputs: list[str]) -> Iterator[float]:
        """The width of a head, where a product of matrices is scaled by a constant."""
        for product, factor in (inputs, inputs[::-1]) if op == "Mul" else (inputs,):
            scale = _constant(nodes, factor)
            if _op_of(nodes, product) in _PRODUCTS and isinstance(scale, float) and scale > 0:
                yield 1 / scale**2 if op == "Mul" else scale**2

    def activation(self, layers: int) -> str | None:
        """The activation whose operation is there at least once for each layer; the pooler has one tanh more."""
        counts = [
            {op: sum(node.op == op for node in nodes.values()) for op in ("Tanh", "Erf", "Relu")}
            for nodes in self._graphs
        ]
        found = set()
        for count in counts:
            found |= {"gelu"} if count["Tanh"] > layers else set()
            found |= {"gelu_erf"} if count["Erf"] >= layers else set()
            found |= {"relu"} if count["Relu"] >= layers else set()
        return found.pop() if len(found) == 1 else None

    def constant(self, tensor: str) -> Any:
        """The value of a tensor of the main graph, where it is a scalar constant, also one that a function returns."""
        name, _, output = tensor.partition(":")
        node = self._main.get(name)
        if node is not None and node.op in _CALLS:
            function = self._functions.get(node.attr["f"].func.name)
            number = int(output or 0)
            if function is None or number >= len(function.signature.output_arg):
                return None
            returned = function.ret.get(function.signature.output_arg[number].name, "")
            return _constant({one.name: one for one in function.node_def}, returned.split(":")[0])
        return _constant(self._main, name)


def _inputs(node: Any) -> list[str]:
    """The names of the operations whose values an operation takes."""
    return [name.split(":")[0] for name in node.input if not name.startswith("^")]


def _op_of(nodes: Mapping[str, Any], name: str) -> str | None:
    """What an operation does, seen through those that change no value."""
    for _ in range(8):
        node = nodes.get(name)
        if node is None or node.op not in ("Identity", "Cast", "Reshape", "Transpose"):
            return node and node.op
        name = (_inputs(node) or [""])[0]
    return None


def _constant(nodes: Mapping[str, Any], name: str) -> float | bool | None:
    """The value of a scalar constant, seen through square roots; None where it is none."""
    node = nodes.get(name)
    if node is None:
        return None
    if node.op in ("Identity", "Cast", "Sqrt", "Rsqrt") and _inputs(node):
        inner = nodes.get(_inputs(node)[0])
        value = _constant(nodes, inner.name) if inner is not None and inner.op == "Const" else None
        if node.op in ("Sqrt", "Rsqrt") and isinstance(value, float):
            return (math.sqrt(value) if node.op == "Sqrt" else 1 / math.sqrt(value)) if value > 0 else None
        return value
    if node.op != "Const" or math.prod(one.size for one in node.attr["value"].tensor.tensor_shape.dim) != 1:
        return None
    try:
        value = tf.make_ndarray(node.attr["value"].tensor).item()
    except (TypeError, ValueError):
        return None
    return value if isinstance(value, bool) else float(value) if isinstance(value, int | float) else None
