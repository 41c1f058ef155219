"""Loads a module of TensorFlow Hub as a checkpoint; `tf_bert.checkpoints.hub` reads its files."""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from tf_bert.checkpoints import hub, loading, writing
from tf_bert.configs import BertConfig
from tf_bert.models.bert import Bert
from tf_bert.progress import say

TOLERANCE = 1e-4


def convert_module(
    path: str,
    folder: str,
    do_lower_case: bool = True,
    num_attention_heads: int | None = None,
    allow_running_module: bool = False,
) -> str:
    """Writes a module as a checkpoint in the original's format, with configuration, vocabulary and casing.

    The module's files are read, and nothing in it is run, unless ``allow_running_module`` says so. Then what it
    computes is compared with what the model made of its variables computes.

    Args:
        path: the folder of the SavedModel.
        folder: what to write.
        do_lower_case: where the module does not say.
        num_attention_heads: where neither a ``bert_config.json`` in the folder nor the module's graph says it.
        allow_running_module: whether the module's signature ``tokens`` may be run: it is a program, with all the rights
            of this process.

    Returns:
        ``folder``.

    Raises:
        FileNotFoundError: there is no SavedModel, or no vocabulary in it.
        ValueError: it holds no BERT; nothing says the number of heads or the activation; or it is run and computes
            something else with its variables.
    """
    module = hub.read_module(path)
    known = known_config(module, num_attention_heads)
    if not allow_running_module:
        if known is None:
            raise ValueError(_what_is_not_known(module, num_attention_heads))
        say(f"{path} is read and not run: its graph has {known.num_attention_heads} heads and {known.hidden_act}")
    elif "tokens" in module.signatures:
        say(f"RUNNING the signature tokens of {path}, as --allow_running_module allows: this executes its code")
        known = _config_that_computes_the_same(module, [known] if known else list(possible_configs(module)))
    elif known is None:
        raise ValueError(_what_is_not_known(module, num_attention_heads))
    else:
        say(f"{path} has no signature tokens: what it computes is not compared with the model made of its variables")
    return writing.write_folder(hub.checkpoint_of(module, known, do_lower_case), folder, "google")


def known_config(module: hub.Module, num_attention_heads: int | None) -> BertConfig | None:
    """The configuration of a module; None where something of it is not known without running it.

    Raises:
        ValueError: the argument, the ``bert_config.json`` and the graph contradict each other.
    """
    said = {
        "num_attention_heads": {
            "--num_attention_heads": num_attention_heads,
            "bert_config.json": module.config and module.config.num_attention_heads,
            "the graph": module.num_attention_heads,
        },
        "hidden_act": {
            "bert_config.json": module.config and str(module.config.hidden_act).lower(),
            "the graph": module.hidden_act,
        },
    }
    settings = {}
    for name, values in said.items():
        known = {source: value for source, value in values.items() if value is not None}
        if len(set(known.values())) > 1:
            found = ", ".join(f"{value} by {source}" for source, value in known.items())
            raise ValueError(f"{module.reader.where}: {name} is {found}; they cannot all be right")
        if known:
            settings[name] = next(iter(known.values()))
    if module.config is not None:
        return module.config
    return BertConfig(**module.sizes, **settings) if len(settings) == len(said) else None


def _what_is_not_known(module: hub.Module, num_attention_heads: int | None) -> str:
    missing = [] if num_attention_heads or module.num_attention_heads else ["num_attention_heads"]
    missing += [] if module.hidden_act else ["hidden_act"]
    flag = "give --num_attention_heads, or " if missing == ["num_attention_heads"] else ""
    return (
        f"{module.reader.where}: nothing in its files says {' and '.join(missing)}, and it is not run to find out; "
        f"{flag}put a bert_config.json into its folder, or, if you trust the module as you would trust a program, give "
        "--allow_running_module"
    )


def possible_configs(module: hub.Module) -> Iterator[BertConfig]:
    """Configurations that have these variables: the usual width of a head first, the original's activation first."""
    width = module.sizes["hidden_size"]
    config = BertConfig(**module.sizes, num_attention_heads=1)
    heads = sorted((n for n in range(1, width + 1) if width % n == 0), key=lambda n: abs(width - 64 * n))
    for activation in [module.hidden_act] if module.hidden_act else ("gelu", "gelu_erf", "relu"):
        for number in [module.num_attention_heads] if module.num_attention_heads else heads:
            yield dataclasses.replace(config, num_attention_heads=number, hidden_act=activation)


def _config_that_computes_the_same(module: hub.Module, configs: list[BertConfig]) -> BertConfig:
    """The first configuration whose model computes what the module does, on two examples with padding."""
    inputs, theirs = hub.run_tokens(module, functools.partial(_examples, module.sizes))
    for config in configs:
        model, _ = loading.make_with_weights(lambda config=config: Bert(config), module.reader)
        ours = model(inputs)
        names = ("pooled_output", "sequence_output")
        if max(float(np.abs(np.array(ours[name]) - theirs[name]).max()) for name in names) <= TOLERANCE:
            return config
    raise ValueError(
        f"{module.reader.where}: no BERT with these variables computes the pooled_output and sequence_output of the "
        f"signature tokens (tried {len(configs)} configurations)"
    )


def _examples(sizes: dict[str, int], length: int | None) -> dict[str, np.ndarray]:
    length = length or min(8, sizes["max_position_embeddings"])
    mask = (np.arange(length) < np.array([[length], [(length + 1) // 2]])).astype(np.int32)
    ids = np.random.default_rng(0).integers(0, sizes["vocab_size"], mask.shape, dtype=np.int32)
    segments = (np.arange(length) >= length // 3) * mask * (sizes["type_vocab_size"] > 1)
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": segments.astype(np.int32)}
