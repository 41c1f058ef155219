"""Sentence vectors from BERT: contrastive training on pairs, and search by similarity."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from tf_bert.backend import at_least_float32, of_all_replicas
from tf_bert.configs import BertConfig
from tf_bert.layers.heads import correct, cross_entropy
from tf_bert.models.bert import expected_ids
from tf_bert.models.bert_tasks import BertTask
from tf_bert.trainer.checks import Expected
from tf_bert.trainer.texts import strings
from tf_bert.trainer.trainer import Scores

POOLINGS = ("cls", "mean", "max")
PAIR = "pair_"
QUERIES_AT_ONCE = 256
NOT_THERE = -1e9


class Match(NamedTuple):
    """A text that was found: its number, and the cosine of the angle between its vector and the query's."""

    index: int
    score: float


@keras.saving.register_keras_serializable("tf_bert")
class BertEncoder(BertTask):
    """BERT that makes one vector of each text.

    ``encode(texts)`` gives vectors, `search` the most similar texts. Training wants pairs of texts that belong
    together, ``fit((texts, partners))``: each text is to find its partner among those of the whole batch, on all
    replicas (Henderson et al. 2017, section 4.4; Reimers and Gurevych 2019 for the pooling). A partner that stands in a
    batch twice is a wrong answer once: leave repeated ones out of the data. A pair whose ``sample_weight`` is 0 is not
    there: it has no loss, and its partner is no wrong answer for the others. So batches may be filled up with such.

    Args:
        config: sizes and rates.
        pooling: ``"mean"`` or ``"max"`` over all pieces of a text, or ``"cls"``, the first one's. Padding is never
            pooled.
        layers: whose mean is pooled: 0 is the first, -1 the last.
        scale: what cosines are multiplied by in training.
        add_pooler: see `BertTask`; the pooler is kept, and not used.

    Call arguments:
        inputs: those of `Bert`. For training the partner's too: ``pair_input_ids`` and so on, [B, T].

    Returns:
        The outputs of `Bert` and ``vectors`` [B, H]; with partners ``pair_vectors`` [B, H], and ``scores`` [B, G] of
        each text with the partners of all G examples of the global batch, those of this replica from ``first`` on; very
        low ones where the partner's ``sample_weight`` is 0.

    Raises:
        ValueError: an unknown pooling or layer.

    Example:
        >>> config = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
        >>> encoder = BertEncoder(config, pooling="mean", layers=(-1, -2))
        >>> encoder({"input_ids": keras.ops.array([[2, 7, 3]])})["vectors"].shape
        TensorShape([1, 8])
    """

    loss_names = ("loss",)
    metric_names = ("accuracy",)
    input_names = (*BertTask.sequence_inputs, *("pair_input_ids", "pair_input_mask", "pair_segment_ids"))
    text_outputs = {"vectors": 0.0}

    def __init__(
        self,
        config: BertConfig,
        pooling: str = "mean",
        layers: Sequence[int] = (-1,),
        scale: float = 20.0,
        add_pooler: bool = False,
        **kwargs,
    ):
        if pooling not in POOLINGS:
            raise ValueError(f"pooling is {pooling!r}; known are {', '.join(map(repr, POOLINGS))}")
        count = config.num_hidden_layers
        wrong = [layer for layer in layers if not -count <= layer < count]
        if wrong or not layers:
            raise ValueError(f"layers are {list(layers)}; expected some of -{count} to {count - 1}: 0 is the first")
        super().__init__(config, add_pooler, **kwargs)
        self.pooling, self.layers_pooled, self.scale = pooling, tuple(layers), scale
        self.built = True

    def compile(self, *args, gradient_accumulation_steps: int = 1, jit_compile=False, **kwargs) -> None:
        """Configures training, see `Trainer`.

        Raises:
            ValueError: with accumulation, or XLA on several replicas: a micro-batch does not know the partners of the
                others, and XLA does not gather those of other replicas.
        """
        if gradient_accumulation_steps > 1:
            raise ValueError(
                "BertEncoder takes no gradient_accumulation_steps: a text is to find its partner among those of the "
                "whole batch, and a micro-batch has few of them; recompute=True saves memory too"
            )
        if jit_compile is True and self.distribute_strategy.num_replicas_in_sync > 1:
            raise ValueError("BertEncoder takes no jit_compile on several replicas: XLA cannot gather their partners")
        super().compile(*args, jit_compile=jit_compile, **kwargs)

    def call(self, inputs: dict[str, Any], training: bool | None = None):
        """Encodes a batch, and the partners where there are some."""
        outputs = self.bert(self.bert.read_from(inputs), training=training)
        outputs["vectors"] = self.pool(outputs, inputs)  # [B, H]
        pair = {name.removeprefix(PAIR): value for name, value in inputs.items() if name.startswith(PAIR)}
        if pair:
            outputs["pair_vectors"] = self.pool(self.bert(pair, training=training), pair)  # [B, H]
            partners, outputs["first"] = of_all_replicas(normalized(outputs["pair_vectors"]))  # [G, H]
            cosines = ops.matmul(normalized(outputs["vectors"]), ops.transpose(partners))
            outputs["scores"] = self.scale * cosines  # [B, G]
            if "sample_weight" in inputs:
                weights, _ = of_all_replicas(ops.reshape(inputs["sample_weight"], (-1,)))  # [G]
                # Finite: the loss of a pair that is not there is multiplied by 0.
                outputs["scores"] = ops.where(ops.not_equal(weights, 0), outputs["scores"], NOT_THERE)
        return outputs

    def pool(self, outputs: dict[str, Any], inputs: dict[str, Any]):
        """One vector [B, H], float32 or wider, from the chosen layers [B, S, H]."""
        chosen = [at_least_float32(outputs["all_encoder_layers"][layer]) for layer in self.layers_pooled]
        x = sum(chosen[1:], chosen[0]) / len(chosen)  # [B, S, H]
        if self.pooling == "cls":
            return x[:, 0]
        mask = inputs.get("input_mask")
        real = ops.ones_like(x[..., :1]) if mask is None else ops.cast(mask, x.dtype)[..., None]  # [B, S, 1]
        count = ops.sum(real, axis=1)  # [B, 1]
        if self.pooling == "mean":
            return ops.sum(x * real, axis=1) / ops.maximum(count, 1.0)
        return ops.where(count > 0, ops.max(ops.where(real > 0, x, -1e30), axis=1), 0.0)

    @property
    def expected(self) -> Expected:
        """Ids inside their tables, those of partners too."""
        ids = {name: rule for name, rule in expected_ids(self.config).items() if name in self.sequence_inputs}
        return ids | {PAIR + name: rule for name, rule in ids.items()}

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The cosines of texts and partners, times ``scale``."""
        return {"scores": Scores("loss", "softmax")}

    def targets(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Where the partner of each text is among all [B]."""
        return {"scores": _own(outputs)}

    def loss_weights(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """1 for each pair [B]."""
        if f"{PAIR}input_ids" not in inputs:
            raise ValueError("BertEncoder learns from pairs: fit((texts, partners)), or inputs with pair_input_ids too")
        return {"loss": ops.ones_like(inputs["input_ids"][:, 0])}

    def per_example_losses(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Cross-entropy of the right partner among all of the batch [B]."""
        return {"loss": cross_entropy("partners", _own(outputs), outputs["scores"])}

    def per_example_metrics(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        """Whether each text finds its partner [B]."""
        return {"accuracy": (correct(_own(outputs), outputs["scores"]), self.loss_weights(inputs)["loss"])}

    def inputs_of(self, x, y=None) -> tuple[Any, Any]:
        """Inputs of texts; partners may stand where other models have labels, as in batches (texts, partners)."""
        is_pair = isinstance(x, tuple) or (isinstance(x, Mapping) and "text_pair" in x)
        if y is not None and not is_pair and not isinstance(y, Mapping) and strings(y) is not None:
            x, y = (x["text"] if isinstance(x, Mapping) else x, y), None
        return super().inputs_of(x, y)

    def text_inputs(self, texts: list, text_pairs: list | None, y):
        """Inputs of texts and of their partners."""
        if y is not None or text_pairs is None:
            raise ValueError("BertEncoder learns from pairs: fit((texts, partners)), without labels")
        pair = self.preprocess(text_pairs)
        return self.preprocess(texts) | {PAIR + name: value for name, value in pair.items()}, None

    def trimmed(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Without padding, see `TakesTexts`: texts and partners each by themselves."""
        pair = {name.removeprefix(PAIR): value for name, value in inputs.items() if name.startswith(PAIR)}
        rest = {name: value for name, value in inputs.items() if not name.startswith(PAIR)}
        return super().trimmed(rest) | {PAIR + name: value for name, value in super().trimmed(pair).items()}

    def encode(self, texts: str | Sequence[str], batch_size: int = 32, normalize: bool = False) -> np.ndarray:
        """The vectors of texts, in their order; they are encoded in batches of about one length.

        Args:
            texts: N texts, or one.
            batch_size: texts in a batch.
            normalize: whether vectors get length 1.

        Returns:
            float32 [N, H].

        Raises:
            ValueError: there is no text, or something is none.
        """
        found = self.as_texts(texts)
        if found is None or found[1] is not None:
            raise ValueError(f"encode takes texts, not {type(texts).__name__}s of something else")
        vectors = self.predict_inputs(self.preprocess(found[0]), batch_size)["vectors"]
        return _unit(vectors) if normalize else vectors

    def search(
        self, queries: str | Sequence[str], texts: Sequence[str] | np.ndarray, top_k: int = 5
    ) -> list[list[Match]]:
        """The most similar of some texts, for each query.

        Args:
            queries: texts.
            texts: texts, or their vectors from `encode` [N, H].
            top_k: how many for each query; all where there are fewer.
        """
        is_vectors = isinstance(texts, np.ndarray) and texts.dtype.kind == "f"
        vectors = texts if is_vectors else self.encode(texts)
        return most_similar(self.encode(queries), vectors, top_k)

    def get_config(self):
        """What `from_config` needs."""
        return super().get_config() | {
            "pooling": self.pooling,
            "layers": list(self.layers_pooled),
            "scale": self.scale,
        }


def most_similar(queries: np.ndarray, vectors: np.ndarray, top_k: int = 5) -> list[list[Match]]:
    """The vectors of the smallest angles to each query, best first; equal ones in their order.

    Args:
        queries: [Q, H].
        vectors: [N, H].
        top_k: how many; all where there are fewer.

    Raises:
        ValueError: the widths differ, or ``top_k`` is below 1.

    Example:
        >>> found = most_similar(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0], [3.0, 3.0], [5.0, 0.0]]), top_k=2)
        >>> [(match.index, round(match.score, 3)) for match in found[0]]
        [(2, 1.0), (1, 0.707)]
    """
    if queries.ndim != 2 or vectors.ndim != 2 or queries.shape[1] != vectors.shape[1]:
        raise ValueError(
            f"queries are {list(queries.shape)} and vectors {list(vectors.shape)}: expected [Q, H], [N, H]"
        )
    if top_k < 1:
        raise ValueError(f"top_k is {top_k}; it has to be at least 1")
    unit, found = _unit(vectors), []
    for first in range(0, len(queries), QUERIES_AT_ONCE):
        cosines = _unit(queries[first : first + QUERIES_AT_ONCE]) @ unit.T  # [q, N]
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :top_k]
        found += [[Match(int(i), float(row[i])) for i in best] for row, best in zip(cosines, order, strict=True)]
    return found


def normalized(x):
    """Vectors [B, H] of length 1; one of length 0 stays."""
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), axis=-1, keepdims=True), 1e-24))


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def _own(outputs: dict[str, Any]):
    """Where the partners of this replica's texts stand among all, [B]."""
    return outputs["first"] + ops.arange(ops.shape(outputs["scores"])[0], dtype="int32")
