"""Attention-pooled and hierarchical classifiers: what they ignore, that they train, save and load."""

import keras
import numpy as np
import pytest

from tf_bert.configs import AttentionClassifierConfig
from tf_bert.models.attention_classifier import AttentionClassifier


def make(dtype="float32", **settings):
    keras.utils.set_random_seed(0)
    sizes = {"embedding_size": 8, "hidden_size": 8, "hidden_dropout_prob": 0.0}
    return AttentionClassifier(AttentionClassifierConfig(20, 2, **sizes, **settings), dtype=dtype)


def test_padding_words_and_sentences_do_not_count():
    model = make("float64", hierarchical=True)
    ids = np.array([[[5, 6, 7], [8, 0, 0]], [[9, 0, 0], [0, 0, 0]]])
    outputs = model({"input_ids": ids})
    wide = np.pad(ids, ((0, 0), (0, 1), (0, 2)))
    np.testing.assert_allclose(model({"input_ids": wide})["logits"], outputs["logits"], atol=1e-12)
    words, sentences = np.asarray(outputs["word_weights"]), np.asarray(outputs["sentence_weights"])
    np.testing.assert_allclose(words.sum(-1), [[1, 1], [1, 0]], atol=1e-12)
    np.testing.assert_allclose(sentences.sum(-1), 1, atol=1e-12)
    assert np.all(words[ids == 0] == 0) and sentences[1, 1] == 0
    given = model({"input_ids": np.where(ids, ids, 3), "input_mask": ids > 0})
    np.testing.assert_allclose(given["logits"], outputs["logits"], atol=1e-12)
    assert np.all(np.isfinite(model({"input_ids": np.zeros((2, 2, 3), int)})["logits"]))


@pytest.mark.parametrize("hierarchical", [False, True])
def test_it_trains_and_looks_at_the_word_that_decides(hierarchical, tmp_path):
    """The label is which of two words is somewhere in the text."""
    rng = np.random.default_rng(0)
    ids, labels = rng.integers(6, 20, size=(128, 8)), rng.integers(0, 2, size=128)
    places = rng.integers(0, 8, size=128)
    ids[np.arange(128), places] = 4 + labels
    ids = ids.reshape(128, 2, 4) if hierarchical else ids
    model = make(hierarchical=hierarchical)
    model.compile(optimizer=keras.optimizers.Adam(0.02))
    history = model.fit({"input_ids": ids}, labels, batch_size=32, epochs=12, verbose=0)
    assert history.history["accuracy"][-1] > 0.95
    outputs = model({"input_ids": ids})
    weights = np.asarray(outputs["word_weights"])
    if hierarchical:
        weights = weights * np.asarray(outputs["sentence_weights"])[:, :, None]
    assert np.mean(weights.reshape(128, 8)[np.arange(128), places]) > 2 / 8  # twice an even share
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again({"input_ids": ids})["logits"], outputs["logits"])


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"must have the shape \[B, D, S\], got \(1, 2\)"):
        make(hierarchical=True)({"input_ids": np.array([[4, 5]])})
    with pytest.raises(ValueError, match="input_ids holds 20, but the table has 20 rows"):
        make()({"input_ids": np.array([[4, 20]])})
