"""Task models on raw strings: fit, evaluate, predict, calls, saving; what is no text."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_bert import BertClassifier, BertConfig, BertForMaskedLM, BertTokenClassifier, FullTokenizer, create_optimizer
from tf_bert.models.bert_tasks import BertQuestionAnswering
from tf_bert.models.raw_text import as_texts
from tf_bert.tokenization import save_vocab

pytest.importorskip("tensorflow_text")

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a film is good bad ##ly who made the anna ben . , in rome".split()
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SIZES |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.2}
CONFIG = BertConfig(len(WORDS), **SIZES, max_position_embeddings=16, type_vocab_size=2)
TEXTS = ["a good film .", "the film is bad", "good", "Badly made in Rome, who is Ben"]
LABELS = [1, 0, 1, 0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint of a classifier with its vocabulary beside it."""
    folder = tmp_path_factory.mktemp("checkpoint")
    save_vocab(WORDS, folder / "vocab.txt")
    tokenizer = FullTokenizer(folder / "vocab.txt", do_lower_case=True)
    keras.utils.set_random_seed(0)
    BertClassifier(CONFIG, dropout=0.0, name="model").save_checkpoint(folder / "model", tokenizer=tokenizer)
    return folder


@pytest.fixture(scope="module")
def classifier(folder):
    return BertClassifier.from_checkpoint(folder / "model", dropout=0.0)


def test_three_lines_with_fit(folder):
    keras.utils.set_random_seed(1)
    model = BertClassifier.from_checkpoint(folder / "model", num_labels=2)
    model.compile(create_optimizer(3e-3, 60))  # at 1e-2 one of five seeds does not learn
    model.fit(TEXTS * 60, LABELS * 60, batch_size=4, verbose=0)
    assert model.predict(TEXTS)["logits"].argmax(axis=1).tolist() == LABELS
    assert model.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)["accuracy"] == 1.0


def test_texts_are_the_python_tokenizers_inputs(folder, classifier):
    expected = FullTokenizer(folder / "vocab.txt").encode_batch(TEXTS)
    for name, value in classifier.preprocess(TEXTS).items():
        np.testing.assert_array_equal(value, expected[name])


def test_predictions_come_in_order_and_are_those_of_padded_inputs(classifier):
    padded = {name: np.pad(value, [(0, 0), (0, 4)]) for name, value in classifier.preprocess(TEXTS).items()}
    expected = classifier.predict(padded, verbose=0)["logits"]
    np.testing.assert_allclose(classifier.predict(TEXTS, batch_size=2)["logits"], expected, atol=1e-6)
    np.testing.assert_allclose(classifier(TEXTS)["logits"], expected, atol=1e-6)
    in_graph = tf.function(lambda texts: classifier(texts)["logits"])
    np.testing.assert_allclose(in_graph(tf.constant(TEXTS)), expected, atol=1e-6)
    assert set(classifier.predict("good")) == {"logits"}


def test_pairs_arrays_and_data_sets(classifier):
    pairs = list(zip(TEXTS, reversed(TEXTS), strict=True))
    expected = classifier.predict((TEXTS, TEXTS[::-1]))["logits"]
    np.testing.assert_array_equal(classifier.predict(pairs)["logits"], expected)
    assert np.abs(expected - classifier.predict(np.array(TEXTS))["logits"]).max() > 1e-3
    classifier.compile(create_optimizer(1e-3, 10))
    of_arrays = classifier.evaluate(np.array(TEXTS), np.array(LABELS), verbose=0)
    data = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(2)
    np.testing.assert_allclose(classifier.evaluate(data, verbose=0), of_arrays, rtol=1e-5)


def test_trimming_changes_no_update(classifier):
    """A batch without its common padding gives the losses and gradients of the padded one."""
    inputs = {name: np.pad(value, [(0, 0), (0, 3)]) for name, value in classifier.preprocess(TEXTS).items()}
    assert classifier.trimmed(inputs)["input_ids"].shape == (4, inputs["input_ids"].shape[1] - 3)
    with_holes = inputs | {"input_mask": np.eye(4, inputs["input_ids"].shape[1], k=5, dtype=np.int32)}
    assert classifier.trimmed(with_holes)["input_ids"].shape == (4, 9)  # the last position with a 1
    logs = []
    for trimmed in (True, False):
        model = BertClassifier.from_config(classifier.get_config())
        model.set_weights(classifier.get_weights())
        model.compile(create_optimizer(1e-2, 10))
        if not trimmed:
            model.trimmed = lambda inputs: inputs
        logs.append([model.train_on_batch(inputs, np.array(LABELS), return_dict=True) for _ in range(3)])
    for ours, theirs in zip(*logs, strict=True):
        np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=1e-5)
        np.testing.assert_allclose(ours["gradient_norm"], theirs["gradient_norm"], rtol=1e-4)


def test_a_saved_model_brings_its_preprocessor_along(classifier, tmp_path):
    """In a process that has never seen the vocabulary."""
    classifier.save(tmp_path / "model.keras")
    code = (
        "import keras, tf_bert.models.bert_tasks, sys, numpy as np\n"
        f"model = keras.saving.load_model(r'{tmp_path}/model.keras')\n"
        f"np.save(r'{tmp_path}/logits.npy', model.predict({TEXTS!r})['logits'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), classifier.predict(TEXTS)["logits"], atol=1e-6)


def test_masked_lm_from_texts(folder):
    with pytest.warns(UserWarning, match="cls/predictions"):
        model = BertForMaskedLM.from_checkpoint(folder / "model")
    keras.utils.set_random_seed(2)
    model.compile(create_optimizer(2e-2, 150))
    texts = ["a good film .", "the bad film .", "a good film", "the bad film"] * 100
    before = model.evaluate(texts[:8], verbose=0, return_dict=True)
    history = model.fit(texts, epochs=3, batch_size=8, verbose=0, validation_data=texts[:4]).history
    assert history["val_masked_lm_loss"][-1] < before["masked_lm_loss"] - 1
    found = model.predict(["a [MASK] film", "the [MASK] [MASK]"])
    assert found["masked_lm_positions"].tolist() == [[2, -1], [2, 3]]
    assert found["masked_lm_logits"].shape == (2, 2, len(WORDS)) and not found["masked_lm_logits"][0, 1].any()
    fillings = model.fill_mask(["a good [MASK]", "the [MASK] [MASK] ."], top_k=3)
    assert [len(text) for text in fillings] == [1, 2] and fillings[0][0][0].token == "film"
    assert all(len(filling) == 3 for text in fillings for filling in text)
    with pytest.raises(ValueError, match=r"no \[MASK\] in 'a film'"):
        model.predict(["a [MASK]", "a film"])
    with pytest.raises(ValueError, match="learns from texts alone"):
        model.fit(texts, [0] * len(texts))


def test_words_and_their_labels(folder):
    """The first piece of a word has its label; words that are cut off or yield no piece are counted."""
    model = BertTokenClassifier(CONFIG, num_labels=3, dropout=0.0)
    model.attach_preprocessor(folder / "vocab.txt")
    sentences, labels = [["Badly", "made", "in", "Rome"], ["\u00ad", "Ben"]], [[0, 0, 0, 2], [0, 1]]
    with pytest.warns(UserWarning, match="1 words have no piece"):
        inputs, label_ids = model.inputs_of(sentences, labels)
    assert label_ids.tolist() == [[-100, 0, -100, 0, 0, 2, -100], [-100, 1, *[-100] * 5]]
    assert inputs["input_ids"].shape == label_ids.shape
    keras.utils.set_random_seed(3)
    model.compile(create_optimizer(2e-2, 60))
    sentences, labels = [["Badly", "made", "in", "Rome"], ["who", "is", "Ben"]], [[0, 0, 0, 2], [0, 0, 1]]
    model.fit(sentences * 60, labels * 60, batch_size=2, verbose=0)
    found = model.predict(sentences)["logits"].argmax(axis=2)
    assert found[0, [1, 3, 4, 5]].tolist() == [0, 0, 0, 2] and found[1, 1:4].tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="number 0 has 2 words and 1 labels"):
        model.inputs_of([["who", "is"]], [[0]])


def test_questions_about_documents(folder):
    model = BertQuestionAnswering(CONFIG)
    model.attach_preprocessor(folder / "vocab.txt", truncation="only_second")
    documents = ["the  film is good .", "Ben made\u00a0the film"]
    questions, answers = ["who is good", "who made the film"], [(5, 9), (0, 3)]
    inputs, _ = model.inputs_of((questions, documents), answers)
    assert inputs["start_positions"].tolist() == [6, 6] and inputs["end_positions"].tolist() == [6, 6]
    keras.utils.set_random_seed(4)
    model.compile(create_optimizer(2e-2, 60))
    model.fit((questions * 60, documents * 60), answers * 60, batch_size=2, verbose=0)
    found = model.answer(questions, documents)
    assert [(span.text, span.start, span.end) for span in found] == [("film", 5, 9), ("Ben", 0, 3)]
    assert model.answer("who", "")[0][:3] == ("", 0, 0)
    with pytest.warns(UserWarning, match="1 of 1 answers lie beyond"):
        model.inputs_of((["who"], ["film " * 30]), [(100, 104)])
    with pytest.raises(ValueError, match="questions with documents"):
        model.predict(["who is good"])
    with pytest.raises(ValueError, match="answer number 0 is 'film'"):
        model.inputs_of((["who"], ["a film"]), ["film"])


@pytest.mark.parametrize(
    "x, said",
    [
        ([], "no text"),
        (["a", None], "number 1 of the texts is None"),
        (["a", float("nan")], "number 1 of the texts is nan"),
        ((["a", "b"], ["c"]), "2 first texts and 1 second"),
        ([("a", "b"), ("c",)], "number 1 of the pairs"),
    ],
)
def test_what_is_no_text(x, said):
    with pytest.raises(ValueError, match=said):
        as_texts(x)


def test_mistakes(classifier, folder):
    with pytest.raises(ValueError, match="4 texts and 2 labels"):
        classifier.fit(TEXTS, [0, 1])
    with pytest.raises(ValueError, match=r"label_ids\[0\] is 'good'; expected a number \(of a label, its place"):
        classifier.fit(TEXTS, ["good"] * 4)
    bare = BertClassifier(CONFIG)
    with pytest.raises(ValueError, match="has no preprocessor.*attach_preprocessor"):
        bare.predict(TEXTS)
    with pytest.raises(ValueError, match="up to 17 pieces, and the model reads 16"):
        bare.attach_preprocessor(folder / "vocab.txt", max_seq_length=17)
    bare.attach_preprocessor(folder / "vocab.txt", max_seq_length=8, do_lower_case=False)
    assert bare.preprocess(["Rome " * 20])["input_ids"].tolist() == [[2, 1, 1, 1, 1, 1, 1, 3]]
