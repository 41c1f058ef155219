"""SavedModels that take strings, in a process without tf_bert; LiteRT and ONNX files against the Keras model."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models.test_raw_text import CONFIG, TEXTS, WORDS
from tf_bert import BertClassifier, BertEncoder, BertTokenClassifier, FullTokenizer
from tf_bert.commands import export
from tf_bert.data.finetuning.label_list import note_labels
from tf_bert.models.bert_masked_lm import BertForMaskedLM
from tf_bert.models.bert_tasks import BertQuestionAnswering
from tf_bert.tokenization import save_vocab

pytest.importorskip("tensorflow_text")

from tf_bert.export import litert_and_onnx as numeric_export
from tf_bert.export import saved_model as serving

QUESTIONS, DOCUMENTS = (
    ["who is bad", "who", "who"],
    ["the  film\u00a0is good .", "", "\u200bBen made the film in Rome " * 4],
)
# Loads every SavedModel without tf_bert and writes what it gives as JSON.
PROCESS = """
import json, sys
sys.modules["tf_bert"] = None
import tensorflow as tf, tensorflow_text
texts, questions, documents = json.loads(sys.stdin.read())
found = {}
for name in ("classifier", "tags", "questions", "vectors"):
    signature = tf.saved_model.load(name).signatures["serving_default"]
    pair = name == "questions"
    inputs = {"questions": questions, "documents": documents} if pair else {"texts": texts}
    outputs = signature(**{key: tf.constant(value) for key, value in inputs.items()})
    found[name] = {key: value.numpy().tolist() for key, value in outputs.items()}
assert tf.saved_model.load("classifier").signatures["pairs"](texts=tf.constant(texts), text_pairs=tf.constant(texts))
print(json.dumps(found, default=lambda value: value.decode()))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models of every class with their vocabulary."""
    folder = tmp_path_factory.mktemp("models")
    save_vocab(WORDS, folder / "vocab.txt")
    keras.utils.set_random_seed(1)
    made = {
        "classifier": BertClassifier(CONFIG, num_labels=2, name="model"),
        "tags": BertTokenClassifier(CONFIG, num_labels=3),
        "questions": BertQuestionAnswering(CONFIG),
        "vectors": BertEncoder(CONFIG, pooling="mean"),
    }
    for model in made.values():
        model.attach_preprocessor(folder / "vocab.txt", truncation=model.truncation)
    return folder, made


@pytest.fixture(scope="module")
def served(models):
    folder, made = models
    labels = {"classifier": ["bad", "good"], "tags": ["O", "B-PER", "B-LOC"]}
    for name, model in made.items():
        serving.export_saved_model(model, folder / name, labels.get(name, ()))
    given = json.dumps([TEXTS, QUESTIONS, DOCUMENTS])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", PROCESS]
    done = subprocess.run(
        command, cwd=folder, env=environment, input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_labels_and_vectors_without_tf_bert(models, served):
    made = models[1]
    logits = made["classifier"].predict(TEXTS)["logits"]
    assert served["classifier"]["label"] == [["bad", "good"][best] for best in logits.argmax(axis=1)]
    np.testing.assert_allclose(served["classifier"]["probabilities"], tf.nn.softmax(logits), atol=1e-6)
    np.testing.assert_allclose(served["vectors"]["vectors"], made["vectors"].encode(TEXTS), atol=1e-6)
    assert served["vectors"]["truncated"] == [False] * 4


def test_several_labels_and_numbers():
    logits = tf.constant([[-1.0, 2.0], [0.0, 3.0]])
    several = serving.class_outputs(logits, "multi", ["a", "b"])
    assert several["holds"].numpy().tolist() == [[False, True], [False, True]]
    np.testing.assert_allclose(several["probabilities"], 1 / (1 + np.exp(-logits.numpy())), rtol=1e-6)
    assert serving.class_outputs(logits[:, :1], "regression", [])["value"].numpy().tolist() == [-1.0, 0.0]


def test_pieces_with_their_characters(models, served):
    found, text = served["tags"], TEXTS[3]
    first = [
        text[a:b] for a, b, begins in zip(*(found[n][3] for n in ("starts", "ends", "first")), strict=True) if begins
    ]
    assert first == ["Bad", "made", "in", "Rome", "who", "is", "Ben"]
    best = models[1]["tags"].predict(TEXTS)["logits"].argmax(axis=2)
    real = np.array(found["starts"]) >= 0
    np.testing.assert_array_equal(np.array(found["label"])[real], np.array(["O", "B-PER", "B-LOC"])[best[real]])
    assert set(np.array(found["label"])[~real]) == {""}


def test_answers_are_cut_out_of_the_document(models, served):
    found = served["questions"]
    for i, span in enumerate(models[1]["questions"].answer(QUESTIONS, DOCUMENTS)):
        assert (found["answer"][i], found["start"][i], found["end"][i]) == span[:3]
        assert DOCUMENTS[i][span.start : span.end] == span.text
        np.testing.assert_allclose([found["score"][i], found["no_answer"][i]], [span.score, span.no_answer], rtol=1e-5)
    assert found["answer"][1] == "" and found["answer"][0]
    assert found["truncated"] == [False, False, True]


def test_mistakes_of_a_saved_model(models, tmp_path):
    folder, made = models
    classifier = made["classifier"]
    with pytest.raises(ValueError, match="there already"):
        serving.export_saved_model(classifier, folder)
    with pytest.raises(ValueError, match=r"1 labels \(one\), and the model has 2"):
        serving.export_saved_model(classifier, tmp_path / "a", ["one"])
    with pytest.raises(ValueError, match="max_seq_length is 99, and the model reads 16"):
        serving.export_saved_model(classifier, tmp_path / "a", max_seq_length=99)
    with pytest.raises(ValueError, match="not BertForMaskedLM"):
        serving.export_saved_model(BertForMaskedLM(CONFIG), tmp_path / "a")
    with pytest.raises(ValueError, match="no preprocessor"):
        serving.export_saved_model(BertClassifier(CONFIG), tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_litert_gives_the_models_numbers(models, tmp_path):
    assert numeric_export.export_litert(models[1]["questions"], tmp_path / "model.tflite", 12) < 1e-5
    runner = tf.lite.Interpreter(str(tmp_path / "model.tflite")).get_signature_runner()
    inputs = {name: np.ones((1, 12), np.int32) for name in numeric_export.SEQUENCES}
    expected = models[1]["questions"](inputs)
    for name, value in runner(**inputs).items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5)


def test_onnx_gives_the_models_numbers(models, tmp_path):
    pytest.importorskip("tf2onnx", reason="pip install 'tf_bert[export]'")
    runtime = pytest.importorskip("onnxruntime")
    assert numeric_export.export_onnx(models[1]["classifier"], tmp_path / "model.onnx", 7) < 1e-5
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    inputs = {name: np.ones((3, 7), np.int32) for name in numeric_export.SEQUENCES}
    np.testing.assert_allclose(session.run(["logits"], inputs)[0], models[1]["classifier"](inputs)["logits"], atol=1e-5)


def test_a_file_that_is_not_the_model_is_not_left(models, tmp_path, monkeypatch):
    model = models[1]["classifier"]
    with pytest.raises(ValueError, match="differs from the model by"):
        numeric_export.greatest_difference(model, lambda x: {"logits": np.full((1, 2), 9.0)}, ["logits"], (1, 8), "m")
    with pytest.raises(ValueError, match="differs from the model by nan"):
        numeric_export.greatest_difference(
            model, lambda x: {"logits": np.full((1, 2), np.nan)}, ["logits"], (1, 8), "m"
        )
    with pytest.raises(ValueError, match="no output spans; it has"):
        numeric_export.numeric_function(model, ["spans"])
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'tf_bert\[export\]'"):
        numeric_export.export_onnx(model, tmp_path / "model.onnx", 7)
    assert not list(tmp_path.iterdir())


def test_the_command(models, tmp_path, capsys, monkeypatch):
    """A run's folder, with the labels that it notes; what cannot be served."""
    folder, made = models
    tokenizer = FullTokenizer(folder / "vocab.txt", do_lower_case=True)
    made["classifier"].save_checkpoint(tmp_path / "run", tokenizer=tokenizer)
    note_labels(tmp_path / "run", "single", ["bad", "good"], max_seq_length=8)
    assert export.main([f"{tmp_path}/run", f"{tmp_path}/served"]) == 0
    assert "signatures['serving_default'](texts=tf.constant([...]))" in capsys.readouterr().out
    found = tf.saved_model.load(f"{tmp_path}/served").signatures["serving_default"](texts=tf.constant(["Ben " * 7]))
    assert found["truncated"].numpy().tolist() == [True] and found["label"].numpy()[0] in (b"bad", b"good")

    def refused(*arguments):
        assert export.main([f"{tmp_path}/{arguments[0]}", *arguments[1:]]) in (1, 2)
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
        return line

    assert "trained with kind single and the labels bad, good" in refused("run", f"{tmp_path}/b", "--labels=good,bad")
    assert "there already" in refused("run", f"{tmp_path}/served")
    assert "no checkpoint" in refused("nowhere", f"{tmp_path}/b")
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    assert "tf_bert[export]" in refused("run", f"{tmp_path}/model.onnx")
    made["vectors"].save_checkpoint(tmp_path / "bert", tokenizer=tokenizer)
    assert "no fine-tuned head to serve; --pooling=mean" in refused("bert", f"{tmp_path}/b")
    assert "layers are [7]" in refused("bert", f"{tmp_path}/b", "--pooling=mean", "--layers=7")
