"""Compares a configuration with the weights next to it, before anything is built or read."""

import math
import re
from collections.abc import Iterable, Mapping

import numpy as np

from tf_bert.checkpoints import names
from tf_bert.configs import BertConfig, Config, GPTConfig
from tf_bert.layers.feed_forward import get_activation

Shape = tuple[int, ...]

# The end of a variable's name -> the settings that are its axes; the first row that fits counts. None is any size.
_AXES = {
    "/word_embeddings": ("vocab_size", "hidden_size"),
    "/position_embeddings": ("max_position_embeddings", "hidden_size"),
    "/token_type_embeddings": ("type_vocab_size", "hidden_size"),
    "/intermediate/dense/kernel": ("hidden_size", "intermediate_size"),
    "/intermediate/dense/bias": ("intermediate_size",),
    "/attention/output/dense/kernel": ("hidden_size", "hidden_size"),
    "/output/dense/kernel": ("intermediate_size", "hidden_size"),
    "cls/predictions/output_bias": ("vocab_size",),
    "output_weights": (None, "hidden_size"),
    "output_bias": (None,),
    "/kernel": ("hidden_size", "hidden_size"),
    "/bias": ("hidden_size",),
    "/gamma": ("hidden_size",),
    "/beta": ("hidden_size",),
}
_TABLES = [  # of BERT and of GPT, which has no token types
    ("vocab_size", "hidden_size"),
    ("max_position_embeddings", "hidden_size"),
    ("type_vocab_size", "hidden_size"),
    ("hidden_size", "intermediate_size"),
]
_SIZES = ("vocab_size", "source_vocab_size", "embedding_size", "hidden_size", "intermediate_size")
VARIABLES_OF_A_LAYER = 16  # of BERT and of GPT
_LAYER = re.compile(r"/layer_(\d+)/")


def check_agreement(
    config: BertConfig | GPTConfig,
    shapes: Mapping[str, Shape],
    dtypes: Mapping[str, np.dtype],
    where: str,
    all_layers: bool = True,
) -> None:
    """Stops where a configuration and weights do not belong together.

    Args:
        config: what is believed of the weights.
        shapes: name -> shape of the weights, under Google's names or the paths of our GPT.
        dtypes: the same for dtypes.
        where: what they belong to, for the message.
        all_layers: whether the configuration must have all layers of the weights, as one that was saved with them.

    Raises:
        ValueError: names the setting and the variable that contradict each other, or a variable of integers.
    """
    check_settings(config, where)
    check_dtypes(dtypes, where)
    for name, shape in sorted(shapes.items(), key=lambda item: not item[0].endswith("/word_embeddings")):
        axes = _axes(name)
        if axes is None:
            continue
        expected = tuple(getattr(config, axis) if axis else None for axis in axes)
        if not _fits(shape, expected):
            pairs = zip(axes, expected, shape, strict=False)
            wrong = [axis for axis, size, found in pairs if axis and (size != found or len(shape) != len(axes))]
            wrong = dict.fromkeys(wrong or filter(None, axes))
            said = ", ".join(f"{axis} is {getattr(config, axis)}" for axis in wrong)
            wanted = f"({', '.join('any' if size is None else str(size) for size in expected)})"
            raise ValueError(
                f"{where} does not fit the model of its configuration, where {said}: {name} is {shape} there and "
                f"{wanted} in the model; is it of another configuration?"
            )
    there = count_layers(shapes)
    if all_layers and there:
        refuse_more_layers(config, shapes, where)
        if config.num_hidden_layers < there:
            raise ValueError(
                f"{where} does not fit the model of its configuration, where num_hidden_layers is "
                f"{config.num_hidden_layers}: the weights have {there} layers; is it of another configuration?"
            )


def refuse_more_layers(config: BertConfig | GPTConfig, shapes: Mapping[str, Shape], where: str) -> None:
    """Raises ValueError where a configuration has layers for which there are no weights, before they are made."""
    wanted, there = config.num_hidden_layers, count_layers(shapes)
    if wanted > there:
        raise ValueError(
            f"{where} has no value for {VARIABLES_OF_A_LAYER * (wanted - there)} variables of the encoder: it has "
            f"{there} layers, and num_hidden_layers is {wanted} in the configuration; strict=False and a configuration "
            "of your own would leave the others as they begin"
        )


def check_dtypes(dtypes: Mapping[str, np.dtype], where: str) -> None:
    """Raises ValueError for a weight that is stored as integers: a quantized one, whose scale is elsewhere."""
    for name, dtype in dtypes.items():
        if np.dtype(dtype).kind in "biu" and _axes(name) is not None:
            raise ValueError(
                f"{where}: {name} holds {np.dtype(dtype).name}, and weights are floating-point numbers; of a quantized "
                "model, take the weights from before it was quantized"
            )


def check_settings(config: Config, where: str) -> None:
    """Raises ValueError for settings from which no model of these classes can be built."""
    try:
        config.check_heads()
        if hasattr(config, "hidden_act"):
            get_activation(config.hidden_act)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def check_sizes(config: Config, shapes: Iterable[Shape], where: str) -> None:
    """Stops where the sizes of a configuration are not found in weights whose names say nothing.

    Args:
        config: of any model.
        shapes: of all weights.
        where: what they belong to, for the message.

    Raises:
        ValueError: a table or kernel of BERT or GPT is not there as often as there are layers; or, of other models, a
            size neither is nor divides any axis of the weights, or there are more layers than weights.
    """
    shapes = list(shapes)
    layers = getattr(config, "num_hidden_layers", 0)
    for table in _TABLES if isinstance(config, BertConfig | GPTConfig) else ():
        sizes = {axis: getattr(config, axis) for axis in table if hasattr(config, axis)}
        count = shapes.count(tuple(sizes.values()))
        if len(sizes) == 2 and count < (layers if "intermediate_size" in sizes else 1):
            said = " and ".join(f"{axis} is {size}" for axis, size in sizes.items())
            raise ValueError(
                f"{where} does not fit the model of its configuration, where num_hidden_layers is {layers}, {said}: "
                f"{count or 'no'} weights there are {tuple(sizes.values())}"
            )
    axes = {size for shape in shapes for size in shape}
    for name in _SIZES:
        size = getattr(config, name, None)
        if size is not None and not any(axis and axis % size == 0 for axis in axes):
            raise ValueError(
                f"{where} does not fit the model of its configuration, where {name} is {size}: no weight there has an "
                f"axis of that size (the largest weight is {max(shapes, key=math.prod, default='missing')})"
            )
    if layers > len(shapes):
        raise ValueError(
            f"{where} does not fit the model of its configuration, where num_hidden_layers is {layers}: there are only "
            f"{len(shapes)} weights"
        )


def missing_variables(config: BertConfig | GPTConfig, shapes: Mapping[str, Shape]) -> list[str]:
    """Names the variables without which the encoder of a configuration is not whole; the pooler may be left out."""
    if isinstance(config, GPTConfig):
        wanted = [row.ours for row in names.gpt_rows(config.pre_norm, config.num_hidden_layers)]
    else:
        rows = [row.google for row in names.BERT if "/pooler/" not in row.google]
        layers = range(config.num_hidden_layers)
        wanted = [name for row in rows for name in ([row.format(i=i) for i in layers] if "{i}" in row else [row])]
    return [name for name in wanted if name not in shapes]


def count_layers(shapes: Iterable[str]) -> int:
    """Counts the layers that have variables of these names: one more than the greatest number.

    Example:
        >>> count_layers(["bert/encoder/layer_0/output/dense/bias", "bert/encoder/layer_1/output/dense/bias"])
        2
    """
    return 1 + max((int(match[1]) for match in map(_LAYER.search, shapes) if match), default=-1)


def _axes(name: str) -> tuple[str | None, ...] | None:
    """The settings that are the axes of a variable; None where the table of names does not know it."""
    known = name.startswith("gpt/") or name.startswith("classifier/") or names.to_hugging_face(name) is not None
    if not known or names.is_optimizer_variable(name):
        return None
    return next((axes for end, axes in _AXES.items() if name.endswith(end)), None)


def _fits(shape: Shape, expected: tuple[int | None, ...]) -> bool:
    """Whether a shape is the expected one; the original's variables have axes of size 1 that ours have not."""
    if len(shape) == len(expected):
        return all(size in (None, found) for size, found in zip(expected, shape, strict=True))
    return [size for size in shape if size != 1] == [size for size in expected if size not in (None, 1)]
