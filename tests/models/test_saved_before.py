"""Files that earlier versions wrote load, and compute what they did: `saved_before/` was written before rooms moved."""

from pathlib import Path

import keras
import numpy as np
import pytest

FOLDER = Path(__file__).with_name("saved_before")
IDS = np.array([[2, 5, 6, 3, 0, 0], [2, 7, 3, 8, 9, 3]])
MASK = (IDS > 0).astype(int)
BERT = {"input_ids": IDS, "input_mask": MASK, "segment_ids": np.array([[0] * 6, [0, 0, 0, 1, 1, 1]])}
MASKED = {
    "masked_lm_positions": np.array([[1, 2], [3, 0]]),
    "masked_lm_ids": np.array([[4, 5], [6, 0]]),
    "masked_lm_weights": np.array([[1.0, 1.0], [1.0, 0.0]], "float32"),
}
OTHERS = {
    "bert_for_pre_training": BERT | MASKED | {"next_sentence_labels": np.array([[0], [1]])},
    "bert_for_masked_lm": BERT | MASKED,
    "bert_multiple_choice": {name: np.stack([value, value[:, ::-1]], 1) for name, value in BERT.items()},
    "gpt": {"input_ids": IDS},
    "gpt_classifier": {"input_ids": IDS, "input_mask": MASK},
    "seq2seq": {"source_ids": IDS, "source_mask": MASK, "target_ids": IDS, "target_mask": MASK},
    "transformer": {"source_ids": IDS, "source_mask": MASK, "target_ids": IDS, "target_mask": MASK},
    "attention_classifier": {"input_ids": IDS, "input_mask": MASK},
    "elmo": {"input_ids": IDS, "input_mask": MASK},
}


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.keras")))
def test_a_file_from_before_the_move_computes_what_it_did(name):
    model = keras.saving.load_model(FOLDER / f"{name}.keras")
    found = keras.tree.flatten(model(OTHERS.get(name, BERT)))
    with np.load(FOLDER / "outputs.npz") as expected:
        assert [f"{name}/{i}" for i in range(len(found))] == [key for key in expected if key.split("/")[0] == name]
        for number, value in enumerate(found):
            np.testing.assert_allclose(value, expected[f"{name}/{number}"], atol=1e-6)
    if getattr(model, "optimizer", None):
        assert model.optimizer.iterations.numpy() == 1
