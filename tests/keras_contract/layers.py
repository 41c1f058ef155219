"""Every public layer with inputs to call it with: the columns of the contract for layers.

A `LayerSubject` gives a fresh layer, and the arguments of a call. ``subject.functional()`` is a model around it, whose
one output is the mean of the layer's outputs, for rows about `fit` and saving.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from tests.keras_contract.models import LENGTH, SIZES, VOCABULARY, vocabulary_file
from tf_bert.layers.alignment import Attention, AttentionPooling, LocalAttention
from tf_bert.layers.attention import MultiHeadAttention
from tf_bert.layers.embeddings import BertEmbeddings
from tf_bert.layers.feed_forward import FeedForward
from tf_bert.layers.hard_attention import HardAttention
from tf_bert.layers.heads import ClassificationHead, MaskedLMHead
from tf_bert.layers.layer_norm import LayerNorm
from tf_bert.layers.positions import WordAndPositionEmbedding, WordEmbedding
from tf_bert.layers.recurrent import RecurrentEncoder
from tf_bert.layers.scalar_mix import ScalarMix
from tf_bert.layers.transformer import TransformerEncoderBlock
from tf_bert.layers.transformer_decoder import TransformerDecoderBlock
from tf_bert.tokenization.in_graph import InGraphTokenizer

ROWS_IN_BATCH = 2
WIDTH = SIZES["hidden_size"]


@dataclasses.dataclass(frozen=True)
class LayerSubject:
    """A layer of the contract.

    Attributes:
        name: heading of its column.
        make: makes the layer; takes what every layer takes, such as ``dtype``.
        inputs: arguments of the call, by name, in order; arrays, or lists of them.
    """

    name: str
    make: Callable[..., keras.layers.Layer]
    inputs: Mapping[str, Any]

    def functional(self, **options: Any) -> keras.Model:
        """A model of one output [B, 1]; its inputs are a dict with the flattened names of the layer's."""
        symbolic = {
            name: keras.tree.map_structure(lambda x: keras.Input(x.shape[1:], dtype=str(x.dtype)), value)
            for name, value in self.inputs.items()
        }
        outputs = self.make(**options)(*symbolic.values())
        first = ops.cast(keras.tree.flatten(outputs)[0], "float32")
        first = ops.reshape(first, (-1, int(np.prod(first.shape[1:])))) if None not in first.shape[1:] else first
        mean = ops.mean(first, axis=tuple(range(1, len(first.shape))), keepdims=False)[:, None]
        return keras.Model(keras.tree.flatten(symbolic), mean)

    def arrays(self) -> list[np.ndarray]:
        """The inputs of `functional`."""
        return keras.tree.flatten(dict(self.inputs))


_random = np.random.default_rng(1)


def _vectors(*axes: int) -> np.ndarray:
    return _random.normal(size=(ROWS_IN_BATCH, *axes)).astype("float32")


_IDS = _random.integers(0, VOCABULARY, (ROWS_IN_BATCH, LENGTH), dtype="int32")
_ONES = np.ones((ROWS_IN_BATCH, LENGTH), "int32")
_SEQUENCE = _vectors(LENGTH, WIDTH)
_QUERY = {"query": _vectors(3, WIDTH), "keys": _SEQUENCE}
_HEADS = _vectors(SIZES["num_attention_heads"], LENGTH, WIDTH // SIZES["num_attention_heads"])  # keys or values
_BLOCK = (SIZES["num_attention_heads"], WIDTH, SIZES["intermediate_size"])

LAYERS = [
    LayerSubject("Attention", lambda **o: Attention("dot", **o), _QUERY),
    LayerSubject("LocalAttention", lambda **o: LocalAttention(window=2, **o), _QUERY),
    LayerSubject("HardAttention", lambda **o: HardAttention(**o), _QUERY),
    LayerSubject("AttentionPooling", lambda **o: AttentionPooling(WIDTH, **o), {"x": _SEQUENCE}),
    LayerSubject(
        "MultiHeadAttention",
        lambda **o: MultiHeadAttention(SIZES["num_attention_heads"], WIDTH, **o),
        {"query": _SEQUENCE, "value": _SEQUENCE},
    ),
    LayerSubject("BertEmbeddings", lambda **o: BertEmbeddings(VOCABULARY, WIDTH, 2, 16, **o), {"a": _IDS, "b": _ONES}),
    LayerSubject("WordEmbedding", lambda **o: WordEmbedding(VOCABULARY, WIDTH, **o), {"ids": _IDS}),
    LayerSubject(
        "WordAndPositionEmbedding",
        lambda **o: WordAndPositionEmbedding(16, "learned", vocab_size=VOCABULARY, hidden_size=WIDTH, **o),
        {"ids": _IDS},
    ),
    LayerSubject("FeedForward", lambda **o: FeedForward(SIZES["intermediate_size"], WIDTH, **o), {"x": _SEQUENCE}),
    LayerSubject("LayerNorm", lambda **o: LayerNorm(**o), {"x": _SEQUENCE}),
    LayerSubject("TransformerEncoderBlock", lambda **o: TransformerEncoderBlock(*_BLOCK, **o), {"x": _SEQUENCE}),
    LayerSubject(
        "TransformerDecoderBlock",
        lambda **o: TransformerDecoderBlock(*_BLOCK, **o),
        {"x": _vectors(3, WIDTH), "memory": [_HEADS, _HEADS]},
    ),
    LayerSubject("ClassificationHead", lambda **o: ClassificationHead(3, **o), {"x": _vectors(WIDTH)}),
    LayerSubject(
        "MaskedLMHead",
        lambda **o: MaskedLMHead(VOCABULARY, WIDTH, **o),
        {"x": _SEQUENCE, "table": _random.normal(size=(VOCABULARY, WIDTH)).astype("float32")},
    ),
    LayerSubject("ScalarMix", lambda **o: ScalarMix(**o), {"layers": [_SEQUENCE, _vectors(LENGTH, WIDTH)]}),
    LayerSubject("RecurrentEncoder", lambda **o: RecurrentEncoder(WIDTH, **o), {"x": _SEQUENCE}),
    LayerSubject(
        "InGraphTokenizer",
        lambda **o: InGraphTokenizer(vocabulary_file(), max_seq_length=LENGTH, **o),
        {"texts": np.array(["a good film", "in rome"])},
    ),
]
EVERY_LAYER = tuple(layer.name for layer in LAYERS)
