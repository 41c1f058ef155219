"""Attention against numpy in float64: each test writes the paper's formula down once more."""

import keras
import numpy as np
import pytest
from keras import ops

from tf_bert.layers.alignment import (
    Attention,
    AttentionPooling,
    LocalAttention,
    masked_softmax,
    restricted_attention_mask,
)
from tf_bert.layers.attention import MultiHeadAttention
from tf_bert.layers.hard_attention import HardAttention, moving_baseline, reinforce_loss
from tf_bert.layers.scoring import make_score

B, T, S, H = 3, 4, 6, 5
SCORES = ["dot", "scaled_dot", "general", "cosine", "additive", "concat", "location"]
MASK = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0]], bool)


def arrays(dtype="float64", key_width=H):
    rng = np.random.default_rng(0)
    query = rng.normal(size=(B, T, H)).astype(dtype)
    keys = rng.normal(size=(B, S, key_width)).astype(dtype)
    values = rng.normal(size=(B, S, 2)).astype(dtype)
    return query, keys, values


def make(kind=Attention, score="dot", dtype="float64", **options):
    return kind(score=score, units=7, max_source_length=8, dtype=dtype, **options)


def weights_of(layer):
    return {variable.name: np.asarray(variable) for variable in layer.weights}


def score_formula(name, query, keys, w):
    """The score of one query [H] and one key [K], as the papers write them."""
    if name == "dot":
        return query @ keys.T
    if name == "scaled_dot":
        return query @ keys.T / np.sqrt(H)
    if name == "general":
        return query @ w["kernel"] @ keys.T
    if name == "cosine":
        return w["beta"] * (query @ keys.T) / np.outer(np.linalg.norm(query, axis=1), np.linalg.norm(keys, axis=1))
    if name == "location":
        return (query @ w["kernel"])[:, : len(keys)]
    both = [[np.concatenate([q, k]) for k in keys] for q in query]  # Luong's concat: W [q; k]
    stacked = np.concatenate([w["query_kernel"], w["key_kernel"]])
    return np.tanh(both @ stacked) @ w["vector"][:, 0]


def softmax_among(scores, allowed):
    exponentials = np.where(allowed, np.exp(scores - scores.max(-1, keepdims=True)), 0.0)
    total = exponentials.sum(-1, keepdims=True)
    return np.divide(exponentials, total, out=np.zeros_like(exponentials), where=total > 0)


@pytest.mark.parametrize("name", SCORES)
def test_global_attention_is_the_papers_formula(name):
    query, keys, values = arrays()
    layer = make(score=name)
    context, weights = layer(query, keys, values, attention_mask=MASK)
    w = weights_of(layer)
    for b in range(B):
        expected = softmax_among(score_formula(name, query[b], keys[b], w), MASK[b])
        np.testing.assert_allclose(weights[b], expected, atol=1e-10)
        np.testing.assert_allclose(context[b], expected @ values[b], atol=1e-10)
    assert np.all(np.asarray(context)[2] == 0) and np.all(np.asarray(weights)[2] == 0)


@pytest.mark.parametrize("name", ["general", "additive"])
def test_keys_may_be_wider_than_queries_and_projected_once(name):
    query, keys, _ = arrays(key_width=8)
    layer = make(score=name)
    context, weights = layer(query, keys, attention_mask=MASK)
    again, _ = layer(query, keys, attention_mask=MASK, projected_keys=layer.project_keys(keys))
    np.testing.assert_array_equal(context, again)
    np.testing.assert_allclose(context, np.asarray(weights) @ keys, atol=1e-12)  # values are the keys


def test_a_mask_per_query():
    query, keys, _ = arrays()
    mask = np.random.default_rng(1).random((B, T, S)) > 0.5
    _, weights = make()(query, keys, attention_mask=mask)
    np.testing.assert_allclose(weights, softmax_among(query @ keys.transpose(0, 2, 1), mask), atol=1e-10)


@pytest.mark.parametrize("alignment", ["monotonic", "predictive"])
@pytest.mark.parametrize("gaussian", [None, True, False])
def test_local_attention_is_the_papers_formula(alignment, gaussian):
    query, keys, values = arrays()
    layer = make(LocalAttention, "general", alignment=alignment, window=2, gaussian=gaussian)
    context, weights = layer(query, keys, values, attention_mask=MASK)
    w = weights_of(layer.score) | weights_of(layer)
    gaussian = alignment == "predictive" if gaussian is None else gaussian
    for b in range(B):
        scores = score_formula("general", query[b], keys[b], {"kernel": weights_of(layer.score)["kernel"]})
        for t in range(T):
            p = float(t)
            if alignment == "predictive":
                hidden = np.tanh(w["position_kernel"].T @ query[b, t])
                p = MASK[b].sum() / (1 + np.exp(-w["position_vector"][:, 0] @ hidden))
            s = np.arange(S)
            expected = softmax_among(scores[t], MASK[b] & (np.abs(s - p) <= 2))
            if gaussian:
                expected = expected * np.exp(-((s - p) ** 2) / (2 * 1.0**2))
            np.testing.assert_allclose(weights[b, t], expected, atol=1e-10)
    np.testing.assert_allclose(context, np.asarray(weights) @ values, atol=1e-12)


def test_local_attention_takes_the_position_of_a_single_query():
    query, keys, _ = arrays()
    layer = make(LocalAttention, window=1)
    _, weights = layer(query, keys)
    _, third = layer(query[:, 2:3], keys, positions=[2])
    np.testing.assert_allclose(third[:, 0], weights[:, 2], atol=1e-12)


def test_hard_attention_takes_the_highest_weight_at_inference():
    query, keys, values = arrays()
    for estimator in ("gumbel", "reinforce"):
        context, weights = make(HardAttention, estimator=estimator)(query, keys, values, attention_mask=MASK)
        scores = np.where(MASK[:, None], query @ keys.transpose(0, 2, 1), -np.inf)
        expected = np.eye(S)[scores.argmax(-1)] * MASK.any(-1)[:, None, None]
        np.testing.assert_array_equal(weights, expected)
        np.testing.assert_allclose(context, expected @ values, atol=1e-12)


@pytest.mark.parametrize("estimator", ["gumbel", "reinforce"])
def test_hard_attention_draws_by_the_weights_in_training(estimator):
    query, keys = np.array([[[1.0]]] * 20000, "float32"), np.array([[[0.0], [1.0], [2.0]]] * 20000, "float32")
    layer = HardAttention(estimator, seed=1, score="dot")
    _, weights = layer(query, keys, attention_mask=np.ones((20000, 3)), training=True)
    weights = np.asarray(weights).round(5)
    assert set(np.unique(weights)) == {0.0, 1.0} and np.all(weights.sum(-1) == 1)
    np.testing.assert_allclose(weights.mean((0, 1)), softmax_among(np.arange(3.0), True), atol=0.02)


def gradient(function, variable):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value = function()
    return np.asarray(tape.gradient(value, variable.value))


def test_reinforce_loss_has_the_gradient_of_the_expected_reward():
    query, keys = np.full((40000, 1, 1), 1.0), np.tile([[[0.0], [1.0], [2.0]]], (40000, 1, 1))
    rewards = np.array([1.0, 5.0, 2.0])
    layer = HardAttention("reinforce", seed=1, score="general", dtype="float64")
    layer.build(query.shape, keys.shape)
    layer.score.kernel.assign([[0.3]])

    def surrogate():
        _, weights = layer(query, keys, training=True)
        log_probability, _ = layer.log_probability(weights, query, keys)
        reward = ops.sum(weights[:, 0] * rewards, axis=-1)
        return ops.mean(reinforce_loss(log_probability[:, 0], reward, baseline=2.0))

    def expected_reward(kernel):
        return softmax_among(kernel * np.arange(3.0), True) @ rewards

    exact = (expected_reward(0.3 + 1e-5) - expected_reward(0.3 - 1e-5)) / 2e-5
    assert gradient(surrogate, layer.score.kernel)[0, 0] == pytest.approx(-exact, abs=0.02)


def test_straight_through_gradient_is_that_of_the_softmax_with_the_same_noise():
    query, keys, values = arrays()
    hard = make(HardAttention, "general", estimator="gumbel", temperature=0.7, seed=3)
    hard.build(query.shape, keys.shape)
    found = gradient(
        lambda: ops.sum(hard(query, keys, values, attention_mask=MASK, training=True)[0]), hard.score.kernel
    )
    noise = -np.log(-np.log(keras.random.uniform((B, T, S), 1e-20, 1.0, "float64", keras.random.SeedGenerator(3))))

    def soft():
        return ops.sum(
            ops.matmul(masked_softmax((hard.compute_scores(query, keys) + noise) / 0.7, MASK[:, None]), values)
        )

    np.testing.assert_allclose(found, gradient(soft, hard.score.kernel), atol=1e-10)
    assert np.abs(found).max() > 1e-3


def test_log_probability_and_entropy():
    query, keys, _ = arrays()
    layer = make(HardAttention, estimator="reinforce", seed=2)
    _, weights = layer(query, keys, attention_mask=MASK, training=True)
    log_probability, entropy = layer.log_probability(weights, query, keys, MASK)
    p = softmax_among(query @ keys.transpose(0, 2, 1), MASK[:, None])[:2]
    np.testing.assert_allclose(log_probability[:2], np.log((p * np.asarray(weights)[:2]).sum(-1)), atol=1e-10)
    np.testing.assert_allclose(entropy[:2], -np.where(p > 0, p * np.log(p + (p == 0)), 0).sum(-1), atol=1e-10)
    assert np.all(np.asarray(log_probability)[2] == 0) and np.all(np.asarray(entropy)[2] == 0)
    assert float(moving_baseline(1.0, [3.0, 5.0])) == pytest.approx(1.3)


def test_attention_pooling_is_the_papers_formula():
    _, keys, _ = arrays()
    layer = AttentionPooling(7, dtype="float64")
    vector, weights = layer(keys, MASK)
    w = weights_of(layer)
    hidden = np.tanh(keys @ w["kernel"] + w["bias"])
    expected = softmax_among(hidden @ w["context_vector"][:, 0], MASK)
    np.testing.assert_allclose(weights, expected, atol=1e-10)
    np.testing.assert_allclose(vector, (expected[:, :, None] * keys).sum(1), atol=1e-10)


def test_restricted_mask_has_the_nearest_positions():
    mask = np.asarray(restricted_attention_mask(9, 5))[0]
    assert [list(np.flatnonzero(row)) for row in mask[[0, 4, 8]]] == [[0, 1, 2], [2, 3, 4, 5, 6], [6, 7, 8]]
    with pytest.raises(ValueError, match="r is 0"):
        restricted_attention_mask(9, 0)


@pytest.mark.parametrize("make_layer", [lambda: Attention("dot"), lambda: MultiHeadAttention(1, H, mask="exclude")])
def test_restricted_attention_sees_nothing_beyond(make_layer):
    """As many sequences as positions, so that a mask of positions could be taken for one of sequences."""
    layer, x = make_layer(), np.random.default_rng(3).normal(size=(S, S, H)).astype("float32")
    own = isinstance(layer, MultiHeadAttention)
    call = (
        (lambda x, mask: layer(x, attention_mask=mask)) if own else lambda x, mask: layer(x, x, attention_mask=mask)[0]
    )
    before = np.array(call(x, restricted_attention_mask(S, 3)))
    changed = x.copy()
    changed[:, 4:] += 1.0
    after = np.array(call(changed, restricted_attention_mask(S, 3)))
    np.testing.assert_allclose(after[:, :3], before[:, :3], rtol=1e-6)
    assert (np.abs(after[:, 3:] - before[:, 3:]).max(axis=-1) > 1e-4).all()


def test_a_temperature_of_0_is_refused():
    with pytest.raises(ValueError, match="temperature must be above 0"):
        HardAttention(temperature=0.0)


KINDS = [
    *[(Attention, {"score": name}) for name in SCORES],
    (LocalAttention, {"score": "general", "alignment": "predictive", "window": 2}),
    (HardAttention, {"score": "general", "estimator": "gumbel"}),
]


@pytest.mark.parametrize(("kind", "options"), KINDS[:-1])  # a straight-through gradient is not the forward pass's
def test_gradients_by_finite_differences(kind, options):
    query, keys, values = arrays()
    layer = make(kind, **options)
    layer(query, keys)
    if kind is LocalAttention:
        layer.position_vector.assign(layer.position_vector * 0.1)  # no position at the border of its window

    def loss():
        return ops.sum(ops.sin(layer(query, keys, values, attention_mask=MASK)[0]))

    for variable in layer.trainable_variables:
        found, start = gradient(loss, variable), np.asarray(variable)
        direction = np.random.default_rng(2).normal(size=start.shape)
        sides = []
        for step in (1e-5, -1e-5):
            variable.assign(start + step * direction)
            sides.append(float(loss()))
        variable.assign(start)
        assert (found * direction).sum() == pytest.approx((sides[0] - sides[1]) / 2e-5, abs=1e-5), variable.path


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_half_precision_is_finite_with_everything_masked(kind, options, policy):
    query, keys, values = arrays("float32")
    keys[0, 0] = 0.0
    layer = make(kind, dtype=policy, **options)
    layer(query, keys)

    def loss():
        context, weights = layer(query * 10, keys * 10, values, attention_mask=MASK, training=True)
        assert np.all(np.isfinite(weights)) and np.all(np.asarray(context)[2] == 0)
        return ops.sum(ops.cast(context, "float32"))

    for variable in layer.trainable_variables:
        assert np.all(np.isfinite(gradient(loss, variable)))


@pytest.mark.parametrize(("kind", "options"), [*KINDS, (AttentionPooling, {})])
def test_save_and_load(kind, options, tmp_path):
    _, keys, _ = arrays("float32")
    inputs = keras.Input((S, H)), keras.Input((S,), dtype="bool")
    if kind is AttentionPooling:
        outputs = kind(7)(*inputs)
    else:
        outputs = make(kind, dtype="float32", **options)(inputs[0], inputs[0], attention_mask=inputs[1])
    model = keras.Model(inputs, outputs)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for before, after in zip(model([keys, MASK]), again([keys, MASK]), strict=True):
        np.testing.assert_array_equal(before, after)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="known: dot"):
        make_score("bilinear")
    with pytest.raises(ValueError, match="needs units"):
        make_score("additive")
    with pytest.raises(ValueError, match="max_source_length"):
        make_score("location")
    with pytest.raises(ValueError, match="5 and keys of 8"):
        make()(*arrays(key_width=8)[:2])
    with pytest.raises(ValueError, match="room for 8 source positions, got 9"):
        make(score="location")(np.ones((1, 1, 2)), np.ones((1, 9, 2)))
    with pytest.raises(ValueError, match="'monotonic' or 'predictive'"):
        LocalAttention("both")
    with pytest.raises(ValueError, match="'gumbel' or 'reinforce'"):
        HardAttention("both")
