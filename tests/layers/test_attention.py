"""Multi-head attention and the blocks on it, against a statement of the formulas in numpy and float64."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.formulas import layer_norm, softmax
from tf_bert.layers.attention import MultiHeadAttention
from tf_bert.layers.layer_norm import LayerNorm
from tf_bert.layers.transformer import TransformerEncoderBlock

B, F, T, N, H, M = 2, 5, 7, 3, 12, 10  # M is the width of a memory


def random(*shape):
    return np.random.default_rng(math.prod(shape)).normal(size=shape)


def randomize(layer):
    """Values for all weights, so that biases and norms count; the values by the end of the variable's path."""
    generator = np.random.default_rng(0)
    for variable in layer.weights:
        variable.assign(generator.normal(0.0, 0.3, variable.shape) + variable.path.endswith("gamma"))
    return {variable.path.split("/", 1)[1]: variable.numpy() for variable in layer.weights}


def oracle(weights, x, memory, allowed, mask, scope="self"):
    """Output and probabilities, head by head; ``allowed`` is [B, F, T]."""
    project = {
        name: z @ weights[f"{scope}/{name}/kernel"] + weights[f"{scope}/{name}/bias"]
        for name, z in (("query", x), ("key", memory), ("value", memory))
    }
    context, probs = [], []
    for n in range(N):
        q, k, v = (project[name][..., n * H // N : (n + 1) * H // N] for name in ("query", "key", "value"))
        scores = q @ k.swapaxes(1, 2) / math.sqrt(H / N)
        if mask == "additive":
            p = softmax(scores - 10000.0 * (1 - allowed))
        else:
            e = np.exp(scores) * allowed
            p = e / np.maximum(e.sum(-1, keepdims=True), 1e-300)
        probs.append(p)
        context.append(p @ v)
    output = np.concatenate(context, -1) @ weights["output/dense/kernel"] + weights["output/dense/bias"]
    return output, np.stack(probs, 1)


def test_layer_norm_is_the_formula():
    layer = LayerNorm(epsilon=1e-5, dtype="float64")
    x, g = random(B, F, H), random(B, F, H)
    layer.build(x.shape)
    gamma, beta = randomize(layer)["gamma"], layer.beta.numpy()
    np.testing.assert_allclose(layer(x), layer_norm(x, gamma, beta, 1e-5), rtol=1e-12)
    with tf.GradientTape() as tape:
        watched = tf.constant(x)
        tape.watch(watched)
        loss = tf.reduce_sum(layer(watched) * g)
    slope = tape.gradient(loss, watched).numpy()
    for place in [(0, 0, 0), (1, 4, 11), (1, 2, 5)]:
        step = np.zeros_like(x)
        step[place] = 1e-6
        ends = [np.sum(layer_norm(x + sign * step, gamma, beta, 1e-5) * g) for sign in (1, -1)]
        np.testing.assert_allclose(slope[place], (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-8)


def test_layer_norm_of_large_numbers_and_of_half_precision():
    x = (random(B, F, H) + 1000.0).astype("float32")
    expected = layer_norm(x.astype("float64"), 1.0, 0.0, 1e-12)
    np.testing.assert_allclose(LayerNorm(epsilon=1e-12)(x), expected, atol=1e-4)  # the mean itself is rounded by 3e-5
    halves = x.astype("float16")  # whose squares float16 cannot hold
    normed = LayerNorm(epsilon=1e-12, dtype="mixed_float16")(halves)
    assert normed.dtype == tf.float16
    np.testing.assert_allclose(normed, layer_norm(halves.astype("float64"), 1.0, 0.0, 1e-12), atol=2e-3)


def masks(size):
    """None, a mask of keys with a row that allows nothing, and one for each query with such rows."""
    keys = np.ones([B, size], "int32")
    keys[0, 3:] = keys[1] = 0
    each = random(B, F, size) > 0
    each[1, 2] = False
    return {"none": None, "keys": keys, "each": each}


@pytest.mark.parametrize("mask", ["additive", "exclude"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_attention_equals_the_formula(mask, causal, cross):
    layer = MultiHeadAttention(N, H, causal=causal, mask=mask, dtype="float64")
    x, memory = random(B, F, H), random(B, T, M) if cross else None
    layer.build(x.shape, memory.shape if cross else None)
    weights = randomize(layer)
    size = T if cross else F
    for attention_mask in masks(size).values():
        allowed = np.ones([B, F, size]) if attention_mask is None else attention_mask
        allowed = allowed[:, None, :] if allowed.ndim == 2 else allowed
        allowed = allowed * np.tri(F, size) if causal else allowed * np.ones([F, size])
        expected, expected_probs = oracle(
            weights, x, memory if cross else x, allowed, mask, scope="cross" if cross else "self"
        )
        output, probs = layer(x, memory, attention_mask=attention_mask, return_attention_probs=True)
        np.testing.assert_allclose(output, expected, atol=1e-12)
        np.testing.assert_allclose(probs, expected_probs, atol=1e-12)
        if mask == "exclude":
            nothing = ~allowed.any(-1)
            assert not probs.numpy().swapaxes(1, 2)[nothing].any()
        np.testing.assert_array_equal(layer(x, memory, attention_mask=attention_mask), output)


def test_fully_masked_row_is_as_unmasked_or_nothing():
    x = random(B, F, H)
    none = np.zeros([B, F], bool)
    additive = MultiHeadAttention(N, H, dtype="float64")
    np.testing.assert_allclose(additive(x, attention_mask=none), additive(x), atol=1e-11)
    exclude = MultiHeadAttention(N, H, mask="exclude", dtype="float64")  # biases are still zero
    assert not exclude(x, attention_mask=none).numpy().any()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_mask_counts_in_every_kind_of_call(jit_compile):
    layer = MultiHeadAttention(N, H)
    x, mask = random(B, F, H).astype("float32"), np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]])
    expected = layer(x, attention_mask=mask).numpy()
    compiled = tf.function(lambda x, mask: layer(x, attention_mask=mask), jit_compile=jit_compile)
    np.testing.assert_allclose(compiled(x, mask), expected, atol=1e-6)
    changed = np.where(mask[..., None], x, 9.0).astype("float32")
    np.testing.assert_allclose(compiled(changed, mask)[0, :2], expected[0, :2], atol=1e-6)


class TestDecoding:
    """Step by step, with a cache, equals all at once."""

    @pytest.mark.parametrize("pre_norm", [False, True])
    def test_cached_steps_equal_one_call(self, pre_norm):
        block = TransformerEncoderBlock(N, H, 2 * H, causal=True, mask="exclude", pre_norm=pre_norm, dtype="float64")
        x = random(B, T, H)
        mask = np.ones([B, T], bool)
        mask[0, :2] = False  # left padding
        block.build(x.shape)
        randomize(block)
        expected = block(x, attention_mask=mask)[0].numpy()

        cache = block.attention.create_cache(B, T)
        prompt, cache, _ = block(x[:, :3], attention_mask=mask, cache=cache, cache_index=0)
        np.testing.assert_allclose(prompt[1], expected[1, :3], atol=1e-12)

        @tf.function(jit_compile=True)
        def step(x, cache, index):
            return block(x, attention_mask=mask, cache=cache, cache_index=index)

        for i in range(3, T):
            output, cache, _ = step(x[:, i : i + 1], cache, tf.constant(i))
            np.testing.assert_allclose(output[:, 0], expected[:, i], atol=1e-12)

    def test_a_cache_leaves_the_probabilities(self):
        block = TransformerEncoderBlock(N, H, 2 * H, causal=True, mask="exclude", dtype="float64")
        x = random(B, T, H)
        _, nothing, expected = block(x, return_attention_probs=True)
        _, cache, probs = block(x, cache=block.attention.create_cache(B, T), return_attention_probs=True)
        assert nothing == () and len(cache) == 2
        np.testing.assert_allclose(probs, expected, atol=1e-12)

    def test_keys_and_values_computed_once(self):
        layer = MultiHeadAttention(N, H, dtype="float64")
        x, memory = random(B, F, H), random(B, T, M)
        expected = layer(x, memory).numpy()
        cache = layer.keys_and_values(memory)
        np.testing.assert_allclose(layer(x[:, :1], cache=cache), expected[:, :1], atol=1e-13)


@pytest.mark.parametrize("pre_norm", [False, True])
def test_block_equals_the_formula(pre_norm):
    block = TransformerEncoderBlock(
        N, H, 20, activation="relu", pre_norm=pre_norm, layer_norm_epsilon=1e-5, dtype="float64"
    )
    x, mask = random(B, F, H), masks(F)["keys"]
    block.build(x.shape)
    weights = randomize(block)
    attention = {path.removeprefix("attention/"): w for path, w in weights.items() if path.startswith("attention/")}

    def norm(x, scope):
        return layer_norm(x, weights[f"{scope}/LayerNorm/gamma"], weights[f"{scope}/LayerNorm/beta"], 1e-5)

    def attend(x):
        return oracle(attention, x, x, mask[:, None, :] * np.ones([F, F]), "additive")[0]

    def feed_forward(x):
        inner = np.maximum(x @ weights["intermediate/dense/kernel"] + weights["intermediate/dense/bias"], 0)
        return inner @ weights["output/dense/kernel"] + weights["output/dense/bias"]

    if pre_norm:
        y = x + attend(norm(x, "attention/output"))
        y = y + feed_forward(norm(y, "output"))
    else:
        y = norm(x + attend(x), "attention/output")
        y = norm(y + feed_forward(y), "output")
    np.testing.assert_allclose(block(x, attention_mask=mask)[0], y, atol=1e-11)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16", "float32"])
@pytest.mark.parametrize("mask", ["additive", "exclude"])
def test_masks_in_half_precision(policy, mask):
    """What a doubled -65504 would make -inf, and a row of -inf NaN (huggingface/transformers#382)."""
    layer = MultiHeadAttention(1, 1, mask=mask, kernel_initializer="ones", dtype=policy)
    query, keys = np.ones([1, 1, 1], "float32"), np.array([[[1], [2], [3]]], "float32")  # scores 1, 2, 3

    def probs(attention_mask):
        return layer(query, keys, attention_mask=attention_mask, return_attention_probs=True)[1].numpy().ravel()

    tolerance = 4e-3 if "b" in policy else 5e-4
    np.testing.assert_allclose(probs(None), [0.0900, 0.2447, 0.6652], atol=tolerance)
    np.testing.assert_allclose(probs(np.array([[1, 1, 0]])), [0.2689, 0.7311, 0], atol=tolerance)
    nothing = [0.0900, 0.2447, 0.6652] if mask == "additive" else [0, 0, 0]
    np.testing.assert_allclose(probs(np.array([[0, 0, 0]])), nothing, atol=tolerance)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("mask", ["additive", "exclude"])
def test_left_padding_and_causal_mask_are_finite(policy, mask):
    """The first rows may attend to nothing, and some keys are masked twice; outputs and gradients stay finite."""
    layer = MultiHeadAttention(N, H, causal=True, mask=mask, dtype=policy)
    x = tf.constant(30.0 * random(B, F, H), "float32")
    left = np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x, attention_mask=left)
        loss = tf.reduce_sum(tf.cast(output, "float32") ** 2)
    gradients = tape.gradient(loss, [x, *(variable.value for variable in layer.trainable_variables)])
    assert np.isfinite(output.numpy().astype("float32")).all()
    assert all(np.isfinite(gradient.numpy().astype("float32")).all() for gradient in gradients)


def test_dropout_acts_on_probabilities_in_training_only():
    layer = MultiHeadAttention(N, H, dropout=0.5)
    x = random(B, F, H).astype("float32")
    _, probs = layer(x, return_attention_probs=True, training=True)
    np.testing.assert_allclose(tf.reduce_sum(probs, -1), np.ones([B, N, F]), atol=1e-6)  # those before dropout
    assert not np.allclose(layer(x, training=True), layer(x, training=True))
    np.testing.assert_array_equal(layer(x), layer(x, training=False))


def test_kernels_start_different_and_cut_off_at_two_sigma():
    layer = MultiHeadAttention(4, 256)
    layer.build((None, None, 256))
    kernels = [variable.numpy() for variable in layer.weights if variable.path.endswith("kernel")]
    assert len({kernel.tobytes() for kernel in kernels}) == 4
    for kernel in kernels:  # not rescaled: a normal distribution cut off at 2 sigma keeps 0.8796 of it
        assert np.abs(kernel).max() <= 0.04
        np.testing.assert_allclose(kernel.std(), 0.02 * 0.8796, rtol=0.01)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="hidden_size 10 is not a multiple of num_heads 4"):
        MultiHeadAttention(4, 10)
    with pytest.raises(ValueError, match='"additive" or "exclude", not \'add\''):
        MultiHeadAttention(2, 10, mask="add")


def test_layers_come_back_from_their_config():
    inputs = keras.Input((None, H))
    mask = keras.Input((None,), dtype="int32")
    block = TransformerEncoderBlock(N, H, 16, dropout=0.2, mask="exclude", pre_norm=True)
    x, _, _ = block(inputs, attention_mask=mask)
    x, probs = MultiHeadAttention(N, H, causal=True)(x, return_attention_probs=True)
    model = keras.Model([inputs, mask], [x, probs])
    twin = keras.Model.from_config(model.get_config())
    twin.set_weights(model.get_weights())
    data = [random(B, F, H), np.ones([B, F])]
    for a, b in zip(model(data), twin(data), strict=True):
        np.testing.assert_array_equal(a, b)
    assert twin.get_config() == model.get_config()
