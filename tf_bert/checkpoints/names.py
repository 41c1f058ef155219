"""Names of a model's variables in every format: one table for reading and writing.

A variable's path in a model of tf_bert is Google's name (``bert/encoder/layer_0/attention/self/query/kernel``), so a
row needs two columns: Google's name and Hugging Face's. ``{i}`` stands for the number of the layer. GPT's rows have a
column for the path in our model beside OpenAI's and Hugging Face's names.
"""

import re
from typing import NamedTuple

import keras


class Row(NamedTuple):
    """One variable: Google's name, Hugging Face's name, and whether Hugging Face stores it transposed."""

    google: str
    hugging_face: str
    transpose: bool = False


def _dense(google: str, hugging_face: str) -> list[Row]:
    """A dense layer: [in, out] in TensorFlow, [out, in] in PyTorch."""
    return [
        Row(f"{google}/kernel", f"{hugging_face}.weight", transpose=True),
        Row(f"{google}/bias", f"{hugging_face}.bias"),
    ]


def _norm(google: str, hugging_face: str) -> list[Row]:
    return [Row(f"{google}/gamma", f"{hugging_face}.weight"), Row(f"{google}/beta", f"{hugging_face}.bias")]


def _output(google: str, hugging_face: str) -> list[Row]:
    """A head of the original: its weights are [labels, hidden] in both."""
    return [
        Row(f"{google}output_weights", f"{hugging_face}.weight"),
        Row(f"{google}output_bias", f"{hugging_face}.bias"),
    ]


_LAYER = "bert/encoder/layer_{i}"
_HF_LAYER = "bert.encoder.layer.{i}"

BERT = [
    Row("bert/embeddings/word_embeddings", "bert.embeddings.word_embeddings.weight"),
    Row("bert/embeddings/token_type_embeddings", "bert.embeddings.token_type_embeddings.weight"),
    Row("bert/embeddings/position_embeddings", "bert.embeddings.position_embeddings.weight"),
    *_norm("bert/embeddings/LayerNorm", "bert.embeddings.LayerNorm"),
    *_dense(f"{_LAYER}/attention/self/query", f"{_HF_LAYER}.attention.self.query"),
    *_dense(f"{_LAYER}/attention/self/key", f"{_HF_LAYER}.attention.self.key"),
    *_dense(f"{_LAYER}/attention/self/value", f"{_HF_LAYER}.attention.self.value"),
    *_dense(f"{_LAYER}/attention/output/dense", f"{_HF_LAYER}.attention.output.dense"),
    *_norm(f"{_LAYER}/attention/output/LayerNorm", f"{_HF_LAYER}.attention.output.LayerNorm"),
    *_dense(f"{_LAYER}/intermediate/dense", f"{_HF_LAYER}.intermediate.dense"),
    *_dense(f"{_LAYER}/output/dense", f"{_HF_LAYER}.output.dense"),
    *_norm(f"{_LAYER}/output/LayerNorm", f"{_HF_LAYER}.output.LayerNorm"),
    *_dense("bert/pooler/dense", "bert.pooler.dense"),
]
PRETRAINING_HEADS = [
    *_dense("cls/predictions/transform/dense", "cls.predictions.transform.dense"),
    *_norm("cls/predictions/transform/LayerNorm", "cls.predictions.transform.LayerNorm"),
    Row("cls/predictions/output_bias", "cls.predictions.bias"),
    *_output("cls/seq_relationship/", "cls.seq_relationship"),
]
TASK_HEADS = [
    *_output("", "classifier"),  # run_classifier, for sequences and for tokens
    *_output("cls/squad/", "qa_outputs"),
]
# Those of a fine-tuned head, BERT's or GPT's, in a checkpoint.
TASK_HEAD_VARIABLES = ("output_weights", "output_bias", "classifier/output_weights", "classifier/output_bias")
ROWS = [*BERT, *PRETRAINING_HEADS, *TASK_HEADS]


class GPTRow(NamedTuple):
    """One variable of GPT: its path in the model, OpenAI's name, Hugging Face's, and which third of what they store.

    Both keep the kernels and biases of query, key and value side by side as one, [in, 3 * out]. OpenAI's kernels have
    an axis of size 1 in front. None is transposed.
    """

    ours: str
    openai: str
    hugging_face: str
    third: int | None = None


def _gpt_pair(ours: str, openai: str, hugging_face: str, names: str, third: int | None = None) -> list[GPTRow]:
    """A dense layer (names ``kernel w bias b``) or a layer norm (``gamma g beta b``)."""
    weight, w, bias, b = names.split()
    return [
        GPTRow(f"{ours}/{weight}", f"{openai}/{w}", f"{hugging_face}.weight", third),
        GPTRow(f"{ours}/{bias}", f"{openai}/{b}", f"{hugging_face}.bias", third),
    ]


def _gpt_block() -> list[GPTRow]:
    """The variables of a block, in the order in which OpenAI made them."""
    dense, norm = "kernel w bias b", "gamma g beta b"
    ours, openai, hugging_face = "gpt/layer_{i}", "model/h{i}", "transformer.h.{i}"
    rows = []
    for third, name in enumerate(("query", "key", "value")):
        fused = (f"{openai}/attn/c_attn", f"{hugging_face}.attn.c_attn")
        rows += _gpt_pair(f"{ours}/attention/self/{name}", *fused, dense, third)
    for our_name, name, kind in (
        ("attention/output/dense", "attn/c_proj", dense),
        ("attention/output/LayerNorm", "ln_1", norm),
        ("intermediate/dense", "mlp/c_fc", dense),
        ("output/dense", "mlp/c_proj", dense),
        ("output/LayerNorm", "ln_2", norm),
    ):
        rows += _gpt_pair(f"{ours}/{our_name}", f"{openai}/{name}", f"{hugging_face}.{name.replace('/', '.')}", kind)
    return rows


GPT_WORDS, GPT_POSITIONS = "gpt/input_ids/word_embeddings", "gpt/input_ids/position_embeddings"
# OpenAI's files of GPT-1 have no names, only this order.
GPT_1 = [
    GPTRow(GPT_POSITIONS, "model/pe", "transformer.positions_embed.weight"),
    GPTRow(GPT_WORDS, "model/we", "transformer.tokens_embed.weight"),
    *_gpt_block(),
]
GPT_2 = [
    GPTRow(GPT_POSITIONS, "model/wpe", "transformer.wpe.weight"),
    GPTRow(GPT_WORDS, "model/wte", "transformer.wte.weight"),
    *_gpt_block(),
    *_gpt_pair("gpt/output/LayerNorm", "model/ln_f", "transformer.ln_f", "gamma g beta b"),
]


def gpt_rows(pre_norm: bool, layers: int) -> list[GPTRow]:
    """The rows of GPT-1, or of GPT-2 with its pre-norm, for a number of blocks.

    Example:
        >>> gpt_rows(True, 12)[2].hugging_face
        'transformer.h.0.attn.c_attn.weight'
    """

    def numbered(row: GPTRow, i: int) -> GPTRow:
        return GPTRow(*(name.replace("{i}", str(i)) for name in row[:3]), row.third)

    rows = GPT_2 if pre_norm else GPT_1
    blocks = [numbered(row, i) for i in range(layers) for row in rows if "{i}" in row.ours]
    first = [row.ours for row in rows].index(blocks[0].ours.replace("layer_0", "layer_{i}"))
    before, after = rows[:first], [row for row in rows[first:] if "{i}" not in row.ours]
    return [*before, *blocks, *after]


# Other names under which published TensorFlow checkpoints hold the same: ours -> name there, and whether transposed.
# BLEURT's head is a dense layer at the root, its kernel [hidden, 1].
GOOGLE_ALIASES = {"output_weights": ("dense/kernel", True), "output_bias": ("dense/bias", False)}

_OPTIMIZER = re.compile(r"(^|/)(adam_m|adam_v|global_step|AdamWeightDecayOptimizer)(_\d+)?(/|$)")


def is_optimizer_variable(name: str) -> bool:
    """Whether a checkpoint's entry is optimizer state: ``.../adam_m``, ``.../adam_v`` or ``global_step``.

    Example:
        >>> is_optimizer_variable("bert/pooler/dense/bias/adam_m"), is_optimizer_variable("output_bias")
        (True, False)
    """
    return _OPTIMIZER.search(name) is not None


def is_encoder(name: str) -> bool:
    """Whether a variable belongs to BERT or GPT itself and not to a head, which may start fresh."""
    return name.startswith(("bert/", "gpt/"))


def model_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """The variables of a model under Google's names.

    Args:
        model: a built model of `tf_bert.models`.

    Returns:
        Google's name -> variable, in the model's order; the name of the model itself is no part of it.
    """
    root = "" if model.name in ("bert", "gpt") else model.name + "/"
    return {variable.path.removeprefix(root): variable for variable in model.weights}


def to_hugging_face(name: str) -> tuple[str, bool] | None:
    """Hugging Face's name of a variable and whether it is stored transposed; None where the table has no such row.

    Example:
        >>> to_hugging_face("bert/encoder/layer_3/output/dense/kernel")
        ('bert.encoder.layer.3.output.dense.weight', True)
    """
    return _translate(name, _FROM_GOOGLE)


def to_google(name: str) -> tuple[str, bool] | None:
    """Google's name of a Hugging Face variable and whether it is stored transposed; None where there is no such row.

    Example:
        >>> to_google("bert.encoder.layer.3.output.dense.weight")
        ('bert/encoder/layer_3/output/dense/kernel', True)
    """
    return _translate(name, _FROM_HUGGING_FACE)


def _translate(name: str, table: dict[str, tuple[str, bool]]) -> tuple[str, bool] | None:
    number = re.search(r"(?<=layer[._])\d+", name)
    template = name if number is None else f"{name[: number.start()]}{{i}}{name[number.end() :]}"
    if template not in table:
        return None
    translated, transpose = table[template]
    return translated.replace("{i}", number[0] if number else ""), transpose


_FROM_GOOGLE = {row.google: (row.hugging_face, row.transpose) for row in ROWS}
_FROM_HUGGING_FACE = {row.hugging_face: (row.google, row.transpose) for row in ROWS}
