"""GPT: against numpy in float64, trained, saved."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.formulas import gelu, softmax
from tf_bert.configs import GPTConfig
from tf_bert.models.gpt import GPT

SIZES = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
SIZES |= {"max_position_embeddings": 12}
KINDS = {"gpt1": {}, "gpt2": {"pre_norm": True}, "gpt3": {"pre_norm": True, "attention_window": 3}}
DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob", "embedding_dropout_prob")
NO_DROPOUT = dict.fromkeys(DROPOUT, 0.0)


def gpt(kind, dtype="float64", **settings) -> GPT:
    """A GPT with every variable away from its start."""
    model = GPT(GPTConfig(**{**SIZES, **KINDS[kind], **settings}), dtype=dtype)
    rng = np.random.default_rng(1)
    for variable in model.weights:
        start = 1.0 if variable.path.endswith("gamma") else 0.0
        variable.assign(start + 0.4 * rng.normal(size=variable.shape))
    return model


IDS = np.array([[3, 17, 5, 29, 0, 5, 11, 2, 8], [4, 4, 9, 1, 22, 13, 7, 7, 0]], "int32")


# GPT, written down once more, from the papers.


def by_hand(model, ids):
    """Logits [T, V] of one text without padding; weights by the names they are saved under."""
    config = model.config
    w = {v.path.removeprefix("gpt/"): v.numpy().astype("float64") for v in model.weights}

    def norm(x, name):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-5) * w[f"{name}/LayerNorm/gamma"] + w[f"{name}/LayerNorm/beta"]

    def dense(x, name):
        return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    def attend(x, name, window):
        query, key, value = (dense(x, f"{name}/self/{part}") for part in ("query", "key", "value"))
        width, heads = config.hidden_size // config.num_attention_heads, []
        for head in range(config.num_attention_heads):
            own = slice(head * width, (head + 1) * width)
            rows = []
            for t in range(len(x)):
                first = 0 if window is None else max(0, t - window + 1)
                probs = softmax(query[t, own] @ key[first : t + 1, own].T / math.sqrt(width))
                rows.append(probs @ value[first : t + 1, own])
            heads.append(rows)
        return dense(np.concatenate(heads, -1), f"{name}/output/dense")

    x = w["input_ids/word_embeddings"][ids] + w["input_ids/position_embeddings"][: len(ids)]
    for i in range(config.num_hidden_layers):
        name, window = f"layer_{i}", config.attention_window if i % 2 else None

        def feed_forward(x, name=name):
            return dense(gelu(dense(x, f"{name}/intermediate/dense")), f"{name}/output/dense")

        if config.pre_norm:
            x = x + attend(norm(x, f"{name}/attention/output"), f"{name}/attention", window)
            x = x + feed_forward(norm(x, f"{name}/output"))
        else:
            x = norm(x + attend(x, f"{name}/attention", window), f"{name}/attention/output")
            x = norm(x + feed_forward(x), f"{name}/output")
    if config.pre_norm:
        x = norm(x, "output")
    return x @ w["input_ids/word_embeddings"].T


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    return gpt(request.param)


def test_logits_are_the_papers(model):
    outputs = model({"input_ids": IDS})
    for row in range(2):
        np.testing.assert_allclose(outputs["logits"][row], by_hand(model, IDS[row]), atol=1e-10)
    assert len(outputs["all_encoder_layers"]) == 3 and outputs["embedding_output"].shape == (2, 9, 8)


def test_padding_on_either_side_changes_nothing(model):
    alone = by_hand(model, IDS[0, :5])
    for left in (0, 3, 1):
        ids, mask = np.full((1, 8), 6, "int32"), np.zeros((1, 8), "int32")
        ids[0, left : left + 5], mask[0, left : left + 5] = IDS[0, :5], 1
        logits = model({"input_ids": ids, "input_mask": mask})["logits"]
        np.testing.assert_allclose(logits[0, left : left + 5], alone, atol=1e-10)
        assert np.isfinite(logits).all()


def test_documents_do_not_see_each_other(model):
    documents = np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1]])
    positions = np.array([[0, 1, 2, 0, 1, 2, 3, 4, 5]])
    inputs = {"input_ids": IDS[:1], "document_ids": documents, "position_ids": positions}
    logits = model(inputs)["logits"][0]
    np.testing.assert_allclose(logits[:3], by_hand(model, IDS[0, :3]), atol=1e-10)
    np.testing.assert_allclose(logits[3:], by_hand(model, IDS[0, 3:]), atol=1e-10)
    shorter = model({**inputs, "input_mask": np.array([[1] * 7 + [0] * 2])})["logits"][0]
    np.testing.assert_allclose(shorter[:7], logits[:7], atol=1e-10)


def expected_loss(model, rows):
    """Mean of -log p(next token) over all rows, by hand."""
    losses = []
    for row in rows:
        probs = softmax(by_hand(model, row))
        losses += [-np.log(probs[t, row[t + 1]]) for t in range(len(row) - 1)]
    return np.mean(losses)


def test_the_loss_is_of_the_next_token():
    model = gpt("gpt2", **NO_DROPOUT)
    model.compile(keras.optimizers.SGD(0.0))
    padded, mask = np.pad(IDS, ((0, 0), (0, 2))), np.pad(np.ones_like(IDS), ((0, 0), (0, 2)))
    mask[1, 6:] = 0
    expected = expected_loss(model, [IDS[0], IDS[1, :6]])
    found = model.evaluate({"input_ids": padded, "input_mask": mask}, batch_size=2, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(expected, abs=1e-6)
    # The same with labels of one's own, and with left padding.
    labels = np.pad(IDS[:, 1:], ((0, 0), (0, 3)))
    weights = mask * np.pad(mask[:, 1:], ((0, 0), (0, 1)))
    own = {"input_ids": padded, "input_mask": mask, "label_weights": weights}
    found = model.evaluate(own, labels, batch_size=2, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(expected, abs=1e-6)
    ids, mask = np.pad(IDS, ((0, 0), (2, 0))), np.pad(np.ones_like(IDS), ((0, 0), (2, 0)))
    found = model.evaluate({"input_ids": ids, "input_mask": mask}, batch_size=2, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(expected_loss(model, IDS), abs=1e-6)


def test_it_learns_a_text_by_heart_with_recomputation_and_micro_batches():
    keras.utils.set_random_seed(3)
    model = GPT(GPTConfig(**{**SIZES, "num_hidden_layers": 1}, pre_norm=True, **NO_DROPOUT))
    model.compile(keras.optimizers.Adam(0.02), recompute=True, gradient_accumulation_steps=2)
    history = model.fit({"input_ids": np.repeat(IDS[:1], 4, 0)}, epochs=60, batch_size=4, verbose=0).history
    assert history["loss"][0] > 3.0 and history["loss"][-1] < 0.1 and history["accuracy"][-1] == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded(kind, tmp_path):
    model = gpt(kind, "float32")
    model.save(tmp_path / "gpt.keras")
    loaded = keras.saving.load_model(tmp_path / "gpt.keras")
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded({"input_ids": IDS})["logits"], model({"input_ids": IDS})["logits"])


def test_mixed_precision():
    exact = gpt("gpt2", "float32")
    model = gpt("gpt2", "mixed_bfloat16")
    logits = model({"input_ids": IDS})["logits"]
    assert logits.dtype == tf.float32
    np.testing.assert_allclose(logits, exact({"input_ids": IDS})["logits"], atol=0.15)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_rows_in_which_nothing_may_be_seen_are_finite(policy):
    """With padding on the left the first queries see nothing, and one text is nothing but padding."""
    model = gpt("gpt2", policy)
    inputs = {"input_ids": IDS, "input_mask": np.ones_like(IDS)}
    inputs["input_mask"][0, :2], inputs["input_mask"][-1] = 0, 0
    with tf.GradientTape() as tape:
        outputs = model(inputs)
        losses = model.per_example_losses(inputs, outputs)["loss"] * model.loss_weights(inputs)["loss"]
        loss = tf.reduce_sum(losses)
    gradients = tape.gradient(loss, model.trainable_variables)
    assert all(np.isfinite(tf.convert_to_tensor(value)).all() for value in (outputs["logits"], loss, *gradients))


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (GPTConfig.gpt1(), 116_534_784),
        (GPTConfig.gpt2("small"), 124_439_808),
        (GPTConfig.gpt2("medium"), 354_823_168),
        (GPTConfig.gpt2("large"), 774_030_080),
        (GPTConfig.gpt2("xl"), 1_557_611_200),
        (GPTConfig.gpt3("small"), 125_226_240),
        (GPTConfig.gpt3("175b"), 174_604_259_328),
    ],
)
def test_published_sizes(config, count):
    assert config.parameter_count() == count
    if config.num_hidden_layers <= 12:
        with keras.StatelessScope(initialize_variables=False):  # no memory for any weight
            assert GPT(config).count_params() == count


def test_gpt3_sizes_are_the_papers():
    sizes = {"small": 125e6, "medium": 350e6, "large": 760e6, "xl": 1.3e9, "2.7b": 2.7e9, "6.7b": 6.7e9, "13b": 13e9}
    for name, published in sizes.items():
        assert GPTConfig.gpt3(name).parameter_count() == pytest.approx(published, rel=0.02)


def test_initialisation_of_residual_projections():
    keras.utils.set_random_seed(0)
    wide = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 8}
    for kind, factor in (("gpt1", 1.0), ("gpt2", 0.25)):
        model = GPT(GPTConfig(**{**SIZES, **KINDS[kind], **wide}))
        for variable in model.weights:
            if variable.path.endswith("output/dense/kernel"):
                assert np.std(variable.numpy()) == pytest.approx(0.02 * factor, rel=0.1)
            elif variable.path.endswith("kernel"):
                assert np.std(variable.numpy()) == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GPTConfig(30, hidden_size=9), "hidden_size 9 is not a multiple of num_attention_heads 12"),
        (lambda: GPTConfig(30, end_id=30), "end_id 30 lies outside vocab_size 30"),
        (lambda: GPTConfig(30, attention_window=0), "attention_window"),
        (lambda: GPTConfig.gpt2("huge"), "no GPT-2 of size 'huge'; known are small"),
        (lambda: gpt("gpt2")({"input_ids": np.array([[30]])}), "input_ids holds 30, but the table has 30 rows"),
        (lambda: gpt("gpt2")({"input_ids": np.array([[-1]])}), "input_ids holds -1"),
        (lambda: gpt("gpt2")({"input_ids": np.zeros((1, 13), int)}), "13 positions, max_position_embeddings is 12"),
        (lambda: gpt("gpt2")({"input_mask": IDS}), "a dict that holds input_ids; found input_mask"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
