"""Raw Chinese text of a tagger: one word a character, in every way of serving and training."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.serving.conftest import CONFIG, WORDS
from tf_bert.data.finetuning.label_list import note_labels
from tf_bert.models.bert_tasks import BertTokenClassifier
from tf_bert.serving.load import load_predictor
from tf_bert.tokenization import FullTokenizer, save_vocab

pytest.importorskip("tensorflow_text")

from tf_bert.export.saved_model import export_saved_model

LABELS = ["O", "B-PER", "B-LOC"]
TEXT, SPLIT = "今天好 ada今sings。", ["今", "天", "好", "ada", "今", "sings。"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    keras.utils.set_random_seed(1)
    folder = tmp_path_factory.mktemp("tagger")
    save_vocab(WORDS, folder / "vocab.txt")
    model = BertTokenClassifier(CONFIG, num_labels=3)
    model.save_checkpoint(folder / "model", tokenizer=FullTokenizer(folder / "vocab.txt"))
    note_labels(folder / "model", "tags", LABELS, max_seq_length=32)
    return folder / "model"


def test_predict_and_the_exported_model_agree_on_words_and_tags(folder, tmp_path):
    predictor = load_predictor(folder)
    (found,) = predictor.predict([predictor.read(TEXT, "")])
    assert found["words"] == SPLIT
    predictor.model.attach_preprocessor(folder / "vocab.txt", do_lower_case=True)
    export_saved_model(predictor.model, tmp_path / "served", LABELS)
    served = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    out = {
        name: value.numpy()[0] for name, value in served(texts=tf.constant([TEXT, ""])).items() if name != "truncated"
    }
    words = [TEXT[start:] for start in out["starts"][out["first"]]]
    assert [word[: len(split)] for word, split in zip(words, SPLIT, strict=True)] == SPLIT
    assert [label.decode() for label in out["label"][out["first"]]] == found["tags"]


def test_fit_takes_a_label_a_character_of_raw_text_and_words_as_they_are(folder):
    model = BertTokenClassifier.from_checkpoint(folder)
    model.attach_preprocessor(folder / "vocab.txt", do_lower_case=True)
    model.compile("sgd")
    model.fit(["今天好 ada", "今 天"], [[0, 1, 2, 0], [1, 2]], verbose=0)
    model.fit([["今天", "ada"]], [[1, 0]], verbose=0)
    raw = model.evaluate(["今天好"], [[0, 1, 2]], verbose=0, return_dict=True)
    split = model.evaluate([["今", "天", "好"]], [[0, 1, 2]], verbose=0, return_dict=True)
    np.testing.assert_allclose(raw["loss"], split["loss"], rtol=1e-6)
    with pytest.raises(ValueError, match="has 1 words and 2 labels"):
        model.fit(["今天好"], [[0, 1]], verbose=0)
