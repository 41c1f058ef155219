"""A user's own attention function in BERT, GPT and the Transformer: the default's values, saved if registered."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tf_bert import GPT, Bert, BertClassifier, BertConfig, GPTConfig, Transformer, TransformerConfig
from tf_bert.decoding.beam import BeamSearch
from tf_bert.layers.attention import MultiHeadAttention

SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
IDS = np.array([[2, 5, 6, 3, 0, 0], [2, 7, 3, 8, 9, 3]])
MASK = (IDS > 0).astype("int32")
INPUTS = {"input_ids": IDS, "input_mask": MASK}
PAIRS = {"source_ids": IDS, "target_ids": np.array([[5, 6, 3, 0], [7, 8, 9, 3]])}
MODELS = {
    "bert": (Bert, BertConfig(vocab_size=20, **SIZES), INPUTS, "sequence_output"),
    "gpt": (GPT, GPTConfig.gpt2(vocab_size=20, end_id=0, **SIZES), INPUTS, "logits"),
    "transformer": (Transformer, TransformerConfig(20, **SIZES), PAIRS, "logits"),
}


@keras.saving.register_keras_serializable("tests")
def own_attention(query, key, value, allowed=None, additive=True, dropout=0.0, seed=None):
    """Softmax attention, head by head with another product than the library's."""
    scores = ops.cast(ops.matmul(query, ops.swapaxes(key, -1, -2)), "float32")
    if allowed is not None:
        scores = ops.where(allowed, scores, scores - 10000.0 if additive else -1e30)
    probs = ops.softmax(scores)
    if allowed is not None and not additive:
        probs = ops.where(allowed, probs, 0.0)
    return ops.matmul(probs, value)


def with_probs(query, key, value, **options):
    probs = ops.softmax(ops.matmul(query, ops.swapaxes(key, -1, -2)))
    return ops.matmul(probs, value), probs


def pair_of_models(name):
    """The model with the default attention and with the user's, of the same weights."""
    cls, config, inputs, output = MODELS[name]
    default, own = cls(config), cls(config, attention=own_attention)
    own.set_weights(default.get_weights())
    return default, own, inputs, output


@pytest.mark.parametrize("name", MODELS)
def test_a_function_that_computes_the_same_gives_the_same(name, tmp_path):
    default, own, inputs, output = pair_of_models(name)
    expected = default(inputs)[output]
    np.testing.assert_allclose(own(inputs)[output], expected, atol=1e-6)
    own.save(tmp_path / "own.keras")
    again = keras.saving.load_model(tmp_path / "own.keras")
    assert again.attention is own_attention and again.get_config() == own.get_config()
    np.testing.assert_allclose(again(inputs)[output], expected, atol=1e-6)


def test_decoding_with_a_function_of_ones_own():
    default, own, _, _ = pair_of_models("gpt")
    prompts = [[5, 6, 7], [5]]
    np.testing.assert_array_equal(*(model.generate(prompts, max_length=4)["tokens"] for model in (default, own)))
    default, own, _, _ = pair_of_models("transformer")
    found = [model.generate([[5, 6, 7, 3], [5, 3]], max_length=4)["tokens"] for model in (default, own)]
    np.testing.assert_array_equal(*found)
    with pytest.raises(ValueError, match="coverage_penalty goes by where the decoder looks"):
        own.generate([[5, 3]], search=BeamSearch(2, coverage_penalty=0.1))


def test_it_is_told_of_dropout_and_of_the_mask():
    told = []

    def attention(query, key, value, **options):
        told.append(options)
        return query

    layer = MultiHeadAttention(2, 8, dropout=0.25, causal=True, mask="exclude", implementation=attention)
    layer(ops.ones((1, 3, 8)), attention_mask=[[1, 1, 0]], training=True)
    layer(ops.ones((1, 3, 8)))
    assert [options["dropout"] for options in told] == [0.25, 0.0] and told[0]["additive"] is False
    assert told[0]["seed"].shape == (2,) and told[1]["seed"] is None
    allowed = np.broadcast_to(told[0]["allowed"], (1, 2, 3, 3))
    np.testing.assert_array_equal(allowed[0, 0], [[1, 0, 0], [1, 1, 0], [1, 1, 0]])


def test_probabilities_of_ones_own():
    layer = MultiHeadAttention(2, 8, implementation=with_probs)
    _, probs = layer(ops.ones((1, 3, 8)), return_attention_probs=True)
    np.testing.assert_allclose(probs, np.full((1, 2, 3, 3), 1 / 3), atol=1e-6)
    with pytest.raises(ValueError, match="own_attention returns no attention probabilities"):
        MultiHeadAttention(2, 8, implementation=own_attention)(ops.ones((1, 3, 8)), return_attention_probs=True)


def test_what_cannot_be_is_named():
    with pytest.raises(ValueError, match='must be "plain", "chunked" or a function, not 3'):
        MultiHeadAttention(2, 8, implementation=3)
    wrong = MultiHeadAttention(2, 8, implementation=lambda query, key, value, **_: ops.swapaxes(query, 1, 2))
    with pytest.raises(ValueError, match=r"returns the shape \(1, 3, 2, 4\), expected that of the query"):
        wrong(ops.ones((1, 3, 8)))
    model = BertClassifier(MODELS["bert"][1], attention=with_probs)
    with pytest.raises(ValueError, match="with_probs cannot be saved .*register_keras_serializable"):
        model.get_config()


def test_a_model_with_it_trains():
    model = BertClassifier(MODELS["bert"][1], attention=own_attention)
    model.compile(keras.optimizers.SGD(0.1))
    data = tf.data.Dataset.from_tensor_slices(INPUTS | {"label_ids": np.array([0, 1])}).batch(2)
    assert np.isfinite(model.fit(data, verbose=0).history["loss"]).all()
    assert BertClassifier.from_config(model.get_config()).bert.attention is own_attention
