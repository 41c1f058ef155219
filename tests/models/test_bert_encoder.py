"""Vectors of sentences: pooling against numpy, order, search, training with the partners of the batch, refusals."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models.test_raw_text import CONFIG, TEXTS, WORDS
from tf_bert import BertConfig, BertEncoder, create_optimizer
from tf_bert.models.bert_encoder import most_similar
from tf_bert.tokenization import save_vocab
from tf_bert.training.distribution import pad_last_batch

# Vectors that differ by more than rounding, so that which one is the nearest does not depend on it.
FAR_APART = BertConfig(**CONFIG.to_dict() | {"initializer_range": 0.5})
TWO_LAYERS = BertConfig(**CONFIG.to_dict() | {"num_hidden_layers": 2})


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    pytest.importorskip("tensorflow_text")
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    save_vocab(WORDS, path)
    keras.utils.set_random_seed(1)
    encoder = BertEncoder(CONFIG, name="model")
    encoder.attach_preprocessor(path)
    return encoder


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_pooling_equals_numpy_and_never_sees_padding(pooling):
    encoder = BertEncoder(TWO_LAYERS, pooling=pooling, layers=(0, -1))
    ids = np.array([[2, 5, 6, 3, 0, 0], [2, 7, 3, 0, 0, 0], [2, 7, 8, 9, 10, 3]])
    mask = (ids != 0).astype(int)
    outputs = encoder({"input_ids": ids, "input_mask": mask})
    layers = np.mean([np.asarray(layer, np.float64) for layer in outputs["all_encoder_layers"]], axis=0)
    pools = {"cls": lambda x: x[0], "mean": lambda x: x.mean(axis=0), "max": lambda x: x.max(axis=0)}
    expected = [pools[pooling](layers[i, : mask[i].sum()]) for i in range(3)]
    np.testing.assert_allclose(outputs["vectors"], expected, atol=1e-6)
    nothing = encoder({"input_ids": ids, "input_mask": 0 * mask})["vectors"]
    assert np.isfinite(nothing).all() and (pooling == "cls" or not np.any(nothing))


def test_vectors_come_in_order_whatever_the_batches(encoder):
    texts = [*TEXTS, "film", *TEXTS[::-1]]
    one_by_one = np.concatenate([encoder.encode(text) for text in texts])
    np.testing.assert_allclose(encoder.encode(texts, batch_size=2), one_by_one, atol=1e-6)
    assert np.abs(one_by_one[0] - one_by_one[1]).max() > 0.01
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(texts, normalize=True), axis=1), 1.0, rtol=1e-5)


def test_search(encoder):
    (found,) = encoder.search("the film is bad", TEXTS, top_k=9)
    assert [match.index for match in found][0] == 1 and len(found) == 4
    assert found[0].score == pytest.approx(1.0, abs=1e-5)
    assert encoder.search(["good"], encoder.encode(TEXTS), top_k=1)[0][0].index == 2
    assert [match.index for match in most_similar(np.ones((1, 2)), np.zeros((3, 2)), 2)[0]] == [0, 1]
    with pytest.raises(ValueError, match=r"queries are \[1, 2\] and vectors \[3, 4\]"):
        most_similar(np.ones((1, 2)), np.ones((3, 4)))
    with pytest.raises(ValueError, match="top_k is 0"):
        most_similar(np.ones((1, 2)), np.ones((3, 2)), 0)


def test_the_loss_is_that_of_the_right_partner_in_the_batch(encoder):
    """Against numpy in float64; a weight of 0 takes an example's loss away, and its partner from the wrong answers."""
    inputs, _ = encoder.text_inputs(TEXTS, TEXTS[::-1], None)
    outputs = encoder(inputs)
    a, b = (np.asarray(outputs[name], np.float64) for name in ("vectors", "pair_vectors"))
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    scores = 20.0 * a @ b.T
    losses = np.log(np.exp(scores).sum(axis=1)) - np.diag(scores)
    np.testing.assert_allclose(encoder.per_example_losses(inputs, outputs)["loss"], losses, rtol=1e-4)
    encoder.compile(create_optimizer(1e-3, 10))
    weights = np.array([1.0, 0.0, 1.0, 2.0], np.float32)
    found = encoder.evaluate(inputs | {"sample_weight": weights}, verbose=0, return_dict=True)
    losses = np.log(np.exp(scores[:, weights > 0]).sum(axis=1)) - np.diag(scores)
    assert found["loss"] == pytest.approx((losses * weights).sum() / weights.sum(), rel=1e-4)


@pytest.mark.parametrize("weights", [None, [0.5, 1.0, 2.0]])
def test_a_filled_up_batch_gives_the_same_loss_and_gradient(encoder, weights):
    batch, _ = encoder.text_inputs(TEXTS[:3], TEXTS[1:4], None)
    batch |= {} if weights is None else {"sample_weight": np.array(weights, np.float32)}
    given = tf.data.Dataset.from_tensors(batch)
    found = []
    for batches in (given, pad_last_batch(given, 8)):
        keras.utils.set_random_seed(2)
        model = BertEncoder(FAR_APART)
        before = [variable.numpy() for variable in model.trainable_variables]
        model.compile(keras.optimizers.SGD(1.0))
        evaluated = model.evaluate(batches, verbose=0, return_dict=True)
        figures = model.fit(batches, verbose=0).history
        found.append([v.numpy() - old for v, old in zip(model.trainable_variables, before, strict=True)])
        found[-1] += [*figures.values(), *evaluated.values()]
    for padded, plain in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(padded, plain, rtol=1e-4, atol=1e-6)


def test_training_brings_partners_together(encoder):
    keras.utils.set_random_seed(2)
    model = BertEncoder.from_config(encoder.get_config())  # the preprocessor too
    model.compile(create_optimizer(1e-2, 40))
    texts, partners = ["a good film .", "who made the film", "in rome"], ["good", "anna", "the bad"]
    history = model.fit((texts * 40, partners * 40), batch_size=3, shuffle=False, verbose=0).history
    assert history["accuracy"][-1] > 0.7
    assert [found[0].index for found in model.search(texts, partners, 1)] == [0, 1, 2]


def test_mistakes(encoder):
    with pytest.raises(ValueError, match="pooling is 'sum'"):
        BertEncoder(CONFIG, pooling="sum")
    with pytest.raises(ValueError, match=r"layers are \[1\]; expected some of -1 to 0"):
        BertEncoder(CONFIG, layers=[1])
    with pytest.raises(ValueError, match="takes no gradient_accumulation_steps"):
        encoder.compile(create_optimizer(1e-3, 10), gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="learns from pairs"):
        encoder.fit(TEXTS)
    with pytest.raises(ValueError, match="no text"):
        encoder.encode([])
    with pytest.raises(ValueError, match="encode takes texts"):
        encoder.encode([("a", "b")])
