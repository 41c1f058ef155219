"""Predictions in batches of about one length are those of the padded examples, in the order of the examples."""

import numpy as np
import pytest
import tensorflow as tf

from tf_bert import BertClassifier, BertConfig, BertTokenClassifier
from tf_bert.trainer.prediction import predict_by_length, predict_in_order

CONFIG = BertConfig(30, 16, 2, 2, 32, max_position_embeddings=24, type_vocab_size=2)


@pytest.fixture
def inputs():
    lengths = np.random.default_rng(3).integers(2, 12, 23)
    mask = (np.arange(12) < lengths[:, None]).astype(np.int32)
    return {"input_ids": mask * np.arange(1, 24, dtype=np.int32)[:, None], "input_mask": mask}


@pytest.mark.parametrize("fixed_length", [False, True])
def test_predictions_are_those_of_the_padded_examples_in_their_order(inputs, fixed_length):
    model, batches = BertClassifier(CONFIG), []
    expected = model({name: tf.constant(values) for name, values in inputs.items()})["logits"]
    found = predict_in_order(model, inputs, 5, ["logits"], fixed_length, progress=batches.append)["logits"]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert found.dtype == np.float32 and batches == [5, 5, 5, 5, 3]
    rows = np.concatenate([rows for rows, _ in predict_by_length(model, inputs, 5, ["logits"], fixed_length)])
    assert sorted(rows) == list(range(23)) and (rows.tolist() == list(range(23))) == fixed_length


def test_outputs_of_positions_are_filled_up(inputs):
    model = BertTokenClassifier(CONFIG, num_labels=3)
    expected = np.array(model({name: tf.constant(values) for name, values in inputs.items()})["logits"])
    found = predict_in_order(model, inputs, 1, ["logits"], filling={"logits": -9.0})["logits"]
    assert found.shape == (23, inputs["input_mask"].sum(axis=1).max(), 3)
    real = inputs["input_mask"][:, : found.shape[1]] == 1
    np.testing.assert_allclose(found[real], expected[:, : found.shape[1]][real], atol=1e-5)
    assert np.all(found[~real] == -9.0)
