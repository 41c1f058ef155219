"""Attention in chunks against the plain computation: values, gradients, dropout, compiled, recomputed, in a model."""

import functools
import itertools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_bert import BertClassifier, BertConfig, BertForPreTraining
from tf_bert.backend import uniform
from tf_bert.layers import attention as attention_module
from tf_bert.layers.attention import MultiHeadAttention
from tf_bert.layers.chunked_attention import chunked_attention

B, N, F, T, D, C = 2, 3, 5, 7, 4, 3
SEED = tf.constant([11, 5], "uint32")


def random(*shape, dtype="float64"):
    return tf.constant(np.random.default_rng(math.prod(shape)).normal(size=shape), dtype)


def inputs(dtype="float64"):
    return random(B, N, F, D, dtype=dtype), random(B, N, T, D, dtype=dtype), 3 * random(B, N, T, D, dtype=dtype)


def masks():
    """Nothing masked; keys, and for one example all of them; each query, one of which sees nothing."""
    keys = np.ones([B, 1, 1, T], bool)
    keys[0, ..., 3:] = keys[1] = False
    each = np.random.default_rng(0).random((B, 1, F, T)) > 0.5
    each[1, 0, 2] = False
    each[0, 0, 1, :6] = False  # the first chunks hold nothing for this query
    return {"none": None, "keys": keys, "each": each, "causal": np.tri(F, T, dtype=bool)}


def plain(query, key, value, allowed, additive, rate=0.0):
    scores = tf.einsum("bnfd,bntd->bnft", query, key)
    if allowed is None:
        probs = tf.nn.softmax(scores)
    elif additive:
        probs = tf.nn.softmax(tf.where(allowed, scores, scores - 10000.0))
    else:
        probs = tf.nn.softmax(tf.where(allowed, scores, tf.constant(-1e30, scores.dtype))) * tf.cast(
            allowed, scores.dtype
        )
    if rate:
        draws = [uniform((B, N, F, C), SEED + tf.constant([number, 0], "uint32")) for number in range(-(-T // C))]
        probs = tf.where(tf.concat(draws, -1)[..., :T] >= rate, probs / (1 - rate), 0.0)
    return tf.einsum("bnft,bntd->bnfd", probs, value)


def with_gradients(function, tensors):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        output = function(*tensors)
        loss = tf.reduce_sum(tf.cast(output, "float64") * random(*output.shape))
    return [output, *tape.gradient(loss, tensors)]


@pytest.mark.parametrize("additive", [True, False])
@pytest.mark.parametrize("mask, rate", [("none", 0.0), ("keys", 0.4), ("each", 0.4), ("causal", 0.0)])
def test_values_and_gradients_are_the_plain_ones(mask, additive, rate):
    allowed = masks()[mask]
    ours = functools.partial(
        chunked_attention, allowed=allowed, additive=additive, dropout=rate, seed=SEED if rate else None, chunk=C
    )
    theirs = functools.partial(plain, allowed=allowed, additive=additive, rate=rate)
    for got, expected in zip(*(with_gradients(f, inputs()) for f in (ours, theirs)), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-12)
    assert max(float(tf.reduce_max(abs(x))) for x in with_gradients(ours, inputs())) > 0.1


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("bfloat16", 0.1), ("float16", 0.01)])
def test_other_precisions(dtype, tolerance):
    """Of the greatest value; the plain computation is as far from float64."""
    got = with_gradients(
        functools.partial(chunked_attention, allowed=masks()["keys"], additive=False, chunk=C), inputs(dtype)
    )
    expected = with_gradients(functools.partial(plain, allowed=masks()["keys"], additive=False), inputs())
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == dtype
        size = float(tf.reduce_max(abs(theirs)))
        np.testing.assert_allclose(tf.cast(ours, "float64"), theirs, atol=tolerance * size)


def test_scores_beyond_what_exp_can_hold():
    query, key, value = inputs()
    ours = with_gradients(functools.partial(chunked_attention, chunk=C), (1000 * query, key, value))
    for got in ours:
        assert np.isfinite(got.numpy()).all()
    np.testing.assert_allclose(ours[0], plain(1000 * query, key, value, None, True), atol=1e-12)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_both_passes_draw_the_same_masks_in_compiled_code(jit_compile):
    """The output is linear in the values, so that <output, g> = <values, gradient>: only if the masks are the same."""
    function = functools.partial(chunked_attention, allowed=masks()["each"], dropout=0.4, seed=SEED, chunk=C)
    output, *_, gradient = tf.function(lambda *x: with_gradients(function, x), jit_compile=jit_compile)(*inputs())
    expected = float(tf.reduce_sum(output * random(*output.shape)))
    assert float(tf.reduce_sum(inputs()[2] * gradient)) == pytest.approx(expected, rel=1e-12)
    without = chunked_attention(*inputs(), allowed=masks()["each"], chunk=C)
    assert float(tf.reduce_max(abs(output - without))) > 0.1


def test_sizes_that_a_graph_does_not_know():
    function = functools.partial(chunked_attention, chunk=C)
    graph = tf.function(function, input_signature=[tf.TensorSpec([None, N, None, D], "float64")] * 3)
    np.testing.assert_allclose(graph(*inputs()), function(*inputs()), atol=1e-12)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(attention_module, "chunked_attention", functools.partial(chunked_attention, chunk=C))


@pytest.mark.parametrize("causal, window, cross", [(False, None, True), (True, None, False), (True, 2, False)])
@pytest.mark.parametrize("mask", ["additive", "exclude"])
def test_the_layer(small_chunks, causal, window, cross, mask):
    x, memory = random(B, T, 6), random(B, F, 6) if cross else None
    attention_mask = np.array([[1, 1, 1, 0, 1, 0, 0], [0] * 7])[:, : F if cross else T]
    outputs = []
    for implementation in ("plain", "chunked"):
        keras.utils.set_random_seed(3)
        layer = MultiHeadAttention(
            2, 6, causal=causal, window=window, mask=mask, implementation=implementation, dtype="float64"
        )
        layer = MultiHeadAttention.from_config(layer.get_config())
        keras.utils.set_random_seed(3)
        layer.build(x.shape, memory.shape if cross else None)
        outputs.append(layer(x, memory, attention_mask=attention_mask))
        outputs.append(layer(x, memory, attention_mask=attention_mask, return_attention_probs=True)[0])
    for one, other in itertools.pairwise(outputs):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_decoding_from_a_cache(small_chunks):
    x = random(B, T, 6)
    layer = MultiHeadAttention(2, 6, causal=True, implementation="chunked", dtype="float64")
    whole = layer(x)
    cache = layer.update_cache(layer.create_cache(B, T + 2), x[:, :4], 0)
    cache = layer.update_cache(cache, x[:, 4:], 4)
    np.testing.assert_allclose(layer(x[:, 4:], cache=cache, cache_index=4), whole[:, 4:], atol=1e-12)


def test_unknown_ways_are_refused():
    with pytest.raises(ValueError, match='must be "plain", "chunked" or a function, not \'flash\''):
        MultiHeadAttention(2, 6, implementation="flash")


def batch(packed):
    generator = np.random.default_rng(0)
    rows = {
        "input_ids": generator.integers(5, 20, (4, T)),
        "input_mask": np.arange(T) < [[7], [5], [6], [3]],
        "masked_lm_positions": [[1, 2]] * 4,
        "masked_lm_ids": generator.integers(5, 20, (4, 2)),
        "masked_lm_weights": np.ones((4, 2), "float32"),
        "next_sentence_labels": [[0], [1], [1], [0]],
    }
    if packed:
        rows |= {"example_lengths": [[4, 3], [5, 0], [3, 3], [3, 0]], "next_sentence_labels": [[0, 1]] * 4}
    return {
        name: np.asarray(value, np.asarray(value).dtype if name.endswith("weights") else "int32")
        for name, value in rows.items()
    }


def trained(attention, packed, dropout=0.0, **arguments):
    keras.utils.set_random_seed(5)
    config = BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=dropout,
        max_position_embeddings=T,
        initializer_range=0.5,
    )
    model = BertForPreTraining(config, attention=attention, dtype="float64")
    model.compile(keras.optimizers.SGD(0.1), **arguments)
    data = tf.data.Dataset.from_tensor_slices(batch(packed)).batch(4)
    history = model.fit(data, epochs=2, verbose=0).history
    return model, [variable.numpy() for variable in model.trainable_variables], history["loss"]


@pytest.mark.parametrize("packed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_model_trains_alike(small_chunks, packed):
    (_, plain, losses), (model, chunked, others) = (trained(way, packed) for way in ("plain", "chunked"))
    for one, other in zip(plain, chunked, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert losses == pytest.approx(others, rel=1e-12)
    again = BertForPreTraining.from_config(model.get_config())
    assert again.bert.encoder[0].attention.implementation == "chunked"
    paths = [[v.path.split("/", 1)[1] for v in one.variables] for one in (again, BertForPreTraining(model.config))]
    assert paths[0] == paths[1]


def test_recomputed_blocks_draw_the_same_masks(small_chunks):
    _, weights, _ = trained("chunked", False, dropout=0.5)
    _, others, _ = trained("chunked", False, dropout=0.5, recompute=True)
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_task_models_take_it_too():
    config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    model = BertClassifier.from_config(BertClassifier(config, attention="chunked").get_config())
    assert model.bert.encoder[0].attention.implementation == "chunked"
