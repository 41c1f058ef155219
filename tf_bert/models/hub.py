"""SavedModel folders as TensorFlow Hub published BERT: weights, vocabulary and casing in one.

A module has the signatures ``tokens`` (``input_ids``, ``input_mask``, ``segment_ids`` to ``pooled_output`` and
``sequence_output``) and ``tokenization_info``. Nothing in it says the number of heads, so the model that is made of its
variables is compared with what the module itself computes.
"""

import dataclasses
import itertools
import os
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tf_bert.checkpoints import loading
from tf_bert.checkpoints.formats import GOOGLE_CONFIG, VOCABULARY
from tf_bert.configs import BertConfig
from tf_bert.files import open_binary
from tf_bert.models.bert import Bert
from tf_bert.progress import say
from tf_bert.tokenization.full import FullTokenizer

TOLERANCE = 1e-4
_LAYER = "bert/encoder/layer_{}/"


class HubReader:
    """The variables of a loaded module under Google's names, without the scope that Hub puts before them."""

    def __init__(self, module: Any, where: str):
        self.where = where
        self._variables = {}
        variables = getattr(module, "variables", None)  # TensorFlow 2 restores no such attribute
        for variable in variables or [v for function in module.signatures.values() for v in function.variables]:
            name = variable.name.partition(":")[0]
            start = max(f"/{name}".find("/bert/"), f"/{name}".find("/cls/"))
            self._variables[name[max(start, 0) :]] = variable
        self.shapes = {name: tuple(variable.shape) for name, variable in self._variables.items()}
        self.dtypes = {name: variable.dtype.as_numpy_dtype for name, variable in self._variables.items()}

    def read(self, name: str) -> np.ndarray:
        """The value of one variable."""
        return self._variables[name].numpy()


def convert_module(path: str, folder: str, do_lower_case: bool = True) -> str:
    """Writes a module as a checkpoint in the original's format, with configuration, vocabulary and casing.

    Args:
        path: the folder of the SavedModel.
        folder: what to write.
        do_lower_case: where the module does not say.

    Returns:
        ``folder``.

    Raises:
        FileNotFoundError: there is no SavedModel, or no vocabulary in it.
        ValueError: it holds no BERT, or computes something else with its variables.
    """
    tags, signatures = _meta_graph(path)
    module = tf.saved_model.load(path, tags=tags)
    reader = HubReader(module, path)
    if "bert/embeddings/word_embeddings" not in reader.shapes:
        there = ", ".join(list(reader.shapes)[:4]) or "none"
        raise ValueError(f"{path} has no variables of a BERT as the original names them; it has {there}")
    vocab_file, lower = _tokenization_info(module, path, do_lower_case)
    model = _model(module, reader, path, "tokens" in signatures)
    model.save_checkpoint(folder, "google", FullTokenizer(vocab_file, lower))
    return folder


def _meta_graph(path: str) -> tuple[list[str], set[str]]:
    """Tags and signatures of the graph to load: one for inference, and with ``tokens`` if there is one."""
    if "://" in path and not path.startswith("file:"):
        raise FileNotFoundError(f"{path} is an address: nothing is fetched here. Unpack the module and give its folder")
    file = os.path.join(path, "saved_model.pb")
    if not os.path.exists(file):
        raise FileNotFoundError(f"{path} is no SavedModel: there is no {file}")
    saved = saved_model_pb2.SavedModel()
    try:
        with open_binary(file) as stream:
            saved.ParseFromString(stream.read())
        graphs = [(list(graph.meta_info_def.tags), set(graph.signature_def)) for graph in saved.meta_graphs]
        return min(graphs, key=lambda graph: ("tokens" not in graph[1], "train" in graph[0]))
    except Exception as error:  # of protobuf's own kind, which has changed its name
        raise ValueError(f"{file} is damaged: {error}") from None


def _tokenization_info(module: Any, path: str, do_lower_case: bool) -> tuple[str, bool]:
    """The path of the vocabulary, and whether text is lower-cased."""
    if "tokenization_info" in module.signatures:
        info = module.signatures["tokenization_info"]()
        vocab_file, lower = (np.ravel(info[name].numpy()).item() for name in ("vocab_file", "do_lower_case"))
        return vocab_file.decode(), bool(lower)
    files = [os.path.join(path, *parts) for parts in (("assets", VOCABULARY), (VOCABULARY,))]
    found = [file for file in files if os.path.exists(file)]
    if not found:
        raise FileNotFoundError(f"{path} has no signature tokenization_info and no {' or '.join(files)}")
    say(f"{path} does not say whether text is lower-cased: do_lower_case is {do_lower_case}")
    return found[0], do_lower_case


def _model(module: Any, reader: HubReader, path: str, comparable: bool) -> Bert:
    """The encoder that computes what the module does."""
    config_file = os.path.join(path, GOOGLE_CONFIG)
    if os.path.exists(config_file):
        configs = [BertConfig.from_json_file(config_file)]
    elif comparable:
        configs = list(_possible_configs(reader))
    else:
        raise ValueError(f"{path} has no signature tokens and no {GOOGLE_CONFIG}: nothing says the number of heads")
    model = None
    for config in configs:
        if model is None or config.hidden_act != model.config.hidden_act:
            model, _ = loading.make_with_weights(lambda config=config: Bert(config), reader)
        else:
            weights = model.get_weights()
            model = Bert(config)
            model.set_weights(weights)
        if not comparable:
            say(
                f"{path} has no signature tokens: what it computes is not compared with the model made of its variables"
            )
            return model
        if _difference(module.signatures["tokens"], model) <= TOLERANCE:
            return model
    raise ValueError(
        f"{path}: no BERT with these variables computes the pooled_output and sequence_output of the signature tokens "
        f"(tried {len(configs)} configurations)"
    )


def _possible_configs(reader: HubReader):
    """Configurations that have these variables: the usual width of a head first, the original's activation first."""
    words, hidden_size = reader.shapes["bert/embeddings/word_embeddings"]
    layers = next(i for i in itertools.count() if _LAYER.format(i) + "output/dense/kernel" not in reader.shapes)
    if not layers:
        raise ValueError(
            f"{reader.where} has no {_LAYER.format(0)}output/dense/kernel: it is no BERT of the original's"
        )
    config = BertConfig(
        vocab_size=words,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        intermediate_size=reader.shapes[_LAYER.format(0) + "intermediate/dense/kernel"][1],
        max_position_embeddings=reader.shapes["bert/embeddings/position_embeddings"][0],
        type_vocab_size=reader.shapes["bert/embeddings/token_type_embeddings"][0],
        num_attention_heads=1,
    )
    heads = sorted(
        (n for n in range(1, hidden_size + 1) if hidden_size % n == 0), key=lambda n: abs(hidden_size - 64 * n)
    )
    for activation in ("gelu", "gelu_erf", "relu"):
        for number in heads:
            yield dataclasses.replace(config, num_attention_heads=number, hidden_act=activation)


def _difference(signature: Any, model: Bert) -> float:
    """By how much the outputs of module and model differ, on two examples with padding and two segments."""
    specs = signature.structured_input_signature[1]
    length = specs["input_ids"].shape[-1] or min(8, model.config.max_position_embeddings)
    random = np.random.default_rng(0)
    mask = (np.arange(length) < np.array([[length], [(length + 1) // 2]])).astype(np.int32)
    inputs = {
        "input_ids": random.integers(0, model.config.vocab_size, mask.shape, dtype=np.int32) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(length) >= length // 3) * mask,
    }
    theirs = signature(**{name: tf.cast(value, specs[name].dtype) for name, value in inputs.items()})
    ours = model(inputs)
    return max(
        float(np.abs(np.array(ours[name]) - theirs[name].numpy()).max())
        for name in ("pooled_output", "sequence_output")
    )
