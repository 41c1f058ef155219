"""SavedModels that take strings, in a process without tf_bert; LiteRT and ONNX files against the Keras model."""

import concurrent.futures
import json
import os
import subprocess
import sys
import threading

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
from tf_bert.models.multiple_choice import BertMultipleChoice
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


ODD = [
    "a good film",
    "",
    " ",
    "\t\n",
    "\x00\x01",
    "\u200b\u3000",
    b"\xff\xfe",
    b"a \xc3 film",
    "film " * 500,
    "a" * 10000,
]
ODD = [text if isinstance(text, bytes) else text.encode() for text in ODD]


SLOW_KINDS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("multi", "regression")]


@pytest.mark.parametrize("kind", ["single", "tags", "questions", "vectors", *SLOW_KINDS])
def test_odd_texts_get_the_models_own_answers(models, served, kind, tmp_path):
    """Without pieces, very long, not UTF-8: together, one by one, in every signature; and no text at all."""
    folder, made = models
    if kind in ("multi", "regression"):
        model = BertClassifier(CONFIG, num_labels=1 if kind == "regression" else 3, kind=kind)
        model.attach_preprocessor(folder / "vocab.txt")
        path = serving.export_saved_model(model, tmp_path / "model")
    else:
        name = "classifier" if kind == "single" else kind
        model, path = made[name], folder / name
    for name, signature in tf.saved_model.load(str(path)).signatures.items():
        taken = {"pairs": ["texts", "text_pairs"], "serving_default": ["texts"]}[name]
        columns = [ODD] if len(taken) == 1 else [ODD, ODD[::-1]]
        if kind == "questions":
            taken, columns = ["questions", "documents"], [[*ODD, b"who"], [*ODD[::-1], b""]]

        def call(rows, signature=signature, taken=taken, columns=columns):
            given = {key: column[rows] for key, column in zip(taken, columns, strict=True)}
            found = signature(**{key: tf.constant(value, tf.string, [len(value)]) for key, value in given.items()})
            return {key: value.numpy() for key, value in found.items()}

        together = call(slice(None))
        check_answers(model, together, columns)
        for row in range(len(columns[0])):
            for key, value in call(slice(row, row + 1)).items():
                expected = together[key][row, : value.shape[1]] if value.ndim == 2 else together[key][row]
                if value.dtype == object:
                    assert np.array_equal(value[0], expected)
                else:
                    np.testing.assert_allclose(value[0], expected, rtol=1e-5, atol=1e-5)
        assert {len(value) for value in call(slice(0, 0)).values()} == {0}


def check_answers(model, found, columns):
    """What is served against what the model gives in process."""
    texts = [[text.decode(errors="ignore") for text in column] for column in columns]
    if isinstance(model, BertQuestionAnswering):
        answers = model.answer(*texts)
        assert [text.decode() for text in found["answer"]] == [answer.text for answer in answers]
        assert [*zip(found["start"], found["end"], strict=True)] == [(answer.start, answer.end) for answer in answers]
        np.testing.assert_allclose(found["score"], [answer.score for answer in answers], rtol=1e-5, atol=1e-5)
        return
    outputs = model.predict(tuple(texts) if len(texts) == 2 else texts[0])
    if isinstance(model, BertEncoder):
        np.testing.assert_allclose(found["vectors"], outputs["vectors"], atol=1e-5)
    elif isinstance(model, BertTokenClassifier):
        expected = tf.reduce_max(tf.nn.softmax(outputs["logits"]), axis=-1).numpy()
        real = found["starts"] >= 0
        np.testing.assert_allclose(found["probability"][real], expected[real], atol=1e-5)
    elif model.kind == "regression":
        np.testing.assert_allclose(found["value"], outputs["logits"][:, 0], atol=1e-5)
    else:
        link = tf.nn.softmax if model.kind == "single" else tf.sigmoid
        np.testing.assert_allclose(found["probabilities"], link(outputs["logits"]), atol=1e-5)


def test_truncated_says_whether_pieces_were_lost(models, served):
    """Text without pieces behind the last place is no loss."""
    signature = tf.saved_model.load(str(models[0] / "classifier")).signatures["serving_default"]
    found = signature(texts=tf.constant(["film " * 14 + "\u3000\u200b", "film " * 15, ""]))
    assert found["truncated"].numpy().tolist() == [False, True, False]


def test_clients_at_once(models, served):
    """64 threads with texts of their own."""
    model, path = models[1]["classifier"], models[0] / "classifier"
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    texts = [" ".join(np.random.default_rng(client).choice(WORDS[5:], client % 14)) for client in range(64)]
    expected = tf.nn.softmax(model.predict(texts)["logits"]).numpy()
    signature(texts=tf.constant(texts))  # the first call makes the graph ready: 64 first ones would each do that
    start = threading.Barrier(len(texts))

    def ask(client):
        start.wait()
        return signature(texts=tf.constant([texts[client]]))["probabilities"].numpy()[0]

    with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
        found = np.array(list(pool.map(ask, range(len(texts)))))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_choices(models, tmp_path, capsys):
    """Saved by the command: odd texts and choices, together and one by one, and no text at all."""
    folder, _ = models
    model, tokenizer = BertMultipleChoice(CONFIG), FullTokenizer(folder / "vocab.txt", do_lower_case=True)
    model.save_checkpoint(tmp_path / "run", tokenizer=tokenizer)
    assert export.main([f"{tmp_path}/run", f"{tmp_path}/served"]) == 0
    assert "(texts=tf.constant([...]), choices=tf.constant([...]))" in capsys.readouterr().out
    assert export.main([f"{tmp_path}/run", f"{tmp_path}/model.tflite"]) == 1
    assert "takes several sequences for each example: export it as a SavedModel" in capsys.readouterr().err
    signature = tf.saved_model.load(f"{tmp_path}/served").signatures["serving_default"]
    choices = [["good", "", "bad film"]] * len(ODD)
    model.attach_preprocessor(folder / "vocab.txt")
    expected = tf.nn.softmax(model.predict(([text.decode(errors="ignore") for text in ODD], choices))["logits"])
    for rows in (slice(None), slice(1, 2), slice(8, 9), slice(0, 0)):
        texts = tf.constant(ODD[rows], tf.string, [len(ODD[rows])])
        found = signature(texts=texts, choices=tf.constant(choices[rows], tf.string, [len(ODD[rows]), 3]))
        np.testing.assert_allclose(found["probabilities"], expected[rows], atol=1e-5)
        assert found["choice"].numpy().tolist() == np.argmax(expected[rows], axis=1).tolist()
    with pytest.raises(tf.errors.InvalidArgumentError, match="no choice to take"):
        signature(texts=tf.constant(["a"]), choices=tf.constant([[]], tf.string))


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


def odd_ids(length: int) -> list[dict[str, np.ndarray]]:
    """Examples [1, S]: padding alone, [CLS] [SEP] alone as an empty text has them, and one that fills all places."""
    rows = [np.array([ids + [0] * (length - len(ids))], np.int32) for ids in ([], [2, 3], [2, *[5] * (length - 2), 3])]
    parts = [(ids, np.int32(ids > 0), np.int32(ids == 5)) for ids in rows]
    return [dict(zip(numeric_export.SEQUENCES, part, strict=True)) for part in parts]


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_litert_gives_the_models_numbers(models, tmp_path):
    assert numeric_export.export_litert(models[1]["questions"], tmp_path / "model.tflite", 12) < 1e-5
    runner = tf.lite.Interpreter(str(tmp_path / "model.tflite")).get_signature_runner()
    for inputs in odd_ids(12):
        expected = models[1]["questions"](inputs)
        for name, value in runner(**inputs).items():
            np.testing.assert_allclose(value, expected[name], atol=1e-5)


def test_onnx_gives_the_models_numbers(models, tmp_path):
    pytest.importorskip("tf2onnx", reason="pip install 'tf_bert[export]'")
    runtime = pytest.importorskip("onnxruntime")
    assert numeric_export.export_onnx(models[1]["classifier"], tmp_path / "model.onnx", 7) < 1e-5
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    rows, names = odd_ids(7), numeric_export.SEQUENCES
    for count in (len(rows), 1, 0):
        inputs = {name: np.concatenate([row[name] for row in rows])[:count] for name in names}
        expected = models[1]["classifier"](inputs)["logits"]
        np.testing.assert_allclose(session.run(["logits"], inputs)[0], expected, atol=1e-5)


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
