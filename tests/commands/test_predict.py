"""tf-bert predict: each kind of model, on lines of standard input; what it refuses."""

import io
import itertools
import json
import sys
import warnings

import numpy as np
import pytest

from tf_bert import (
    BertClassifier,
    BertConfig,
    BertForPreTraining,
    BertQuestionAnswering,
    BertTokenClassifier,
    FullTokenizer,
)
from tf_bert.commands import predict
from tf_bert.data.finetuning.label_list import note_labels
from tf_bert.models.multiple_choice import BertMultipleChoice
from tf_bert.serving import predictors as text_prediction
from tf_bert.tokenization import save_vocab

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] sun rain it swim dry wet the and is who ? . ada".split()
CONFIG = BertConfig(len(WORDS), 8, 1, 2, 16, max_position_embeddings=16, type_vocab_size=2, initializer_range=0.5)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of each kind of model, and the models."""
    folder = tmp_path_factory.mktemp("models")
    save_vocab(WORDS, folder / "vocab.txt")
    tokenizer = FullTokenizer(folder / "vocab.txt")
    made = {
        "single": (BertClassifier(CONFIG, num_labels=3), ["fair", "foul", "so so"]),
        "multi": (BertClassifier(CONFIG, num_labels=3, kind="multi"), ["fair", "foul", "so so"]),
        "regression": (BertClassifier(CONFIG, num_labels=1, kind="regression"), []),
        "tags": (BertTokenClassifier(CONFIG, num_labels=2), ["O", "B-per"]),
        "squad": (BertQuestionAnswering(CONFIG), []),
        "choice": (BertMultipleChoice(CONFIG), []),
    }
    for kind, (model, labels) in made.items():
        model.save_checkpoint(folder / kind, tokenizer=tokenizer)
        note_labels(folder / kind, kind, labels, max_seq_length=12)
    return {"folder": folder, "tokenizer": tokenizer} | {kind: model for kind, (model, _) in made.items()}


@pytest.fixture
def call(models, monkeypatch, capsys):
    """Runs the command on lines; returns what it prints, by line."""

    def run(kind, lines: bytes | list[str], *flags, status=0):
        data = lines if isinstance(lines, bytes) else "".join(line + "\n" for line in lines).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        capsys.readouterr()
        assert predict.main([str(models["folder"] / kind), *flags]) == status
        shown = capsys.readouterr()
        assert status == 0 or not shown.out  # what is wrong is said before the first line is answered
        return shown.out.splitlines() if status == 0 else shown.err.splitlines()[-1]

    return run


LINES = ["the sun", "", "rain and rain ||| it is wet", "the sun is the sun and the rain is the rain and wet", "ada"]


def logits_of(models, kind, a, b=None):
    inputs = models["tokenizer"].encode_batch([a], None if b is None else [b], 12)
    return np.array(models[kind](inputs)["logits"])[0].astype(np.float64)


def test_classifiers(models, call):
    shown = [json.loads(line) for line in call("single", LINES, "--batch_size=2")]
    assert len(shown) == 5
    for found, pair in zip(
        shown, [("the sun",), ("",), ("rain and rain", "it is wet"), (LINES[3],), ("ada",)], strict=True
    ):
        exponentials = np.exp(logits_of(models, "single", *pair))
        expected = dict(zip(["fair", "foul", "so so"], exponentials / exponentials.sum(), strict=True))
        assert found["probabilities"] == pytest.approx(expected, abs=1e-6)
        assert found["label"] == max(expected, key=expected.get)
    rows = [line.split("\t") for line in call("single", LINES, "--format=tsv")]
    assert [row[0] for row in rows] == [found["label"] for found in shown]
    np.testing.assert_allclose([sum(map(float, row[1:])) for row in rows], 1)

    found = json.loads(call("multi", ["ada"])[0])
    expected = 1 / (1 + np.exp(-logits_of(models, "multi", "ada")))
    np.testing.assert_allclose(list(found["probabilities"].values()), expected, atol=1e-6)
    assert found["labels"] == [name for name, p in zip(["fair", "foul", "so so"], expected, strict=True) if p > 0.5]
    assert json.loads(call("regression", ["ada"])[0])["value"] == pytest.approx(
        logits_of(models, "regression", "ada")[0], abs=1e-6
    )


def test_a_label_holds_above_one_half_exactly(models, monkeypatch):
    """As in the exported model, also where a probability rounds to one half."""
    predictor = text_prediction.ClassifierPredictor(models["multi"], models["tokenizer"], list("abc"), 12, 2)
    monkeypatch.setattr(predictor, "_logits", lambda inputs: np.array([[1e-17, 0.0, -1e-17]]))
    (found,) = predictor.predict([predictor.read("ada", "line 1")])
    assert found == {"labels": ["a"], "probabilities": {"a": 0.5, "b": 0.5, "c": 0.5}}


def test_the_kind_is_read_from_the_checkpoint(models, tmp_path):
    for kind in ("single", "multi", "regression"):
        assert BertClassifier.from_checkpoint(models["folder"] / kind).kind == kind
    models["multi"].save_checkpoint(tmp_path / "hf", "huggingface")
    assert json.loads((tmp_path / "hf/config.json").read_text())["problem_type"] == "multi_label_classification"
    assert BertClassifier.from_checkpoint(tmp_path / "hf").kind == "multi"
    with pytest.warns(UserWarning, match="the encoder is loaded, and the head starts fresh"):
        other = BertClassifier.from_checkpoint(models["folder"] / "regression", num_labels=2)
    assert (other.kind, other.num_labels) == ("single", 2)


def test_tags_of_all_words_of_a_long_line(models, call):
    shown = [json.loads(line) for line in call("tags", ["ada is  wet", "", "ada \u200b " + "sun " * 30])]
    assert shown[0]["words"] == ["ada", "is", "wet"] and shown[1] == {"words": [], "tags": []}
    expected = np.argmax(logits_of(models, "tags", "ada is wet"), axis=-1)[1:4]
    assert shown[0]["tags"] == [["O", "B-per"][i] for i in expected]
    assert len(shown[2]["tags"]) == 32
    assert call("tags", ["ada is wet"], "--format=tsv") == [" ".join(shown[0]["tags"])]


def test_answers_stand_in_the_text(call, monkeypatch):
    text = "Ada is\u00a0 wet.  The sun is dry."
    (line,) = call("squad", [f"who is wet ? ||| {text}"], "--max_answer_length=4")
    found = json.loads(line)
    assert found["answer"] and found["answer"] in text and 0 < found["probability"] <= 1
    long = "who ? ||| " + "ada is wet . " * 20 + "||| sun"
    shown = call("squad", [long, "who ? ||| "], "--format=tsv", "--version_2_with_negative")
    assert len(shown) == 2 and all(len(line.split("\t")) == 2 for line in shown)
    assert shown[1].split("\t")[0] == ""
    monkeypatch.setattr(predict, "BATCHES_AT_ONCE", 1)  # far behind the first batch
    error = call("squad", ["who ? ||| ada", "who is it ?"], "--batch_size=1", status=1)
    assert "standard input: line 2: found 'who is it ?', expected QUESTION ||| TEXT" in error


def test_choices(models, call):
    shown = [json.loads(line) for line in call("choice", ["sun ||| dry ||| wet ||| rain", "rain ||| dry ||| wet"])]
    assert [len(found["probabilities"]) for found in shown] == [3, 2]
    inputs = models["tokenizer"].encode_batch(["rain", "rain"], ["dry", "wet"], 12)
    logits = np.array(models["choice"]({name: value[None] for name, value in inputs.items()})["logits"])[0]
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(shown[1]["probabilities"], expected, atol=1e-6)
    assert shown[1]["choice"] == expected.argmax() and shown[1]["text"] == ["dry", "wet"][expected.argmax()]
    assert "line 1: found 'sun', expected TEXT ||| CHOICE" in call("choice", ["sun"], status=1)


@pytest.mark.slow
def test_other_formats_and_labels_of_hugging_face(models, call, tmp_path):
    model, tokenizer = models["single"], models["tokenizer"]
    expected = list(json.loads(call("single", ["ada is wet"])[0])["probabilities"].values())
    for path in ("h", "k/model.keras", "w/model.weights.h5"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        model.save_checkpoint(tmp_path / path, "huggingface" if path == "h" else None, tokenizer)
    config = json.loads((tmp_path / "h/config.json").read_text())
    config["id2label"] = {"0": "a", "1": "b", "2": "c"}
    (tmp_path / "h/config.json").write_text(json.dumps(config))
    for path, names in ("h", ["a", "b", "c"]), ("k/model.keras", ["0", "1", "2"]):
        found = json.loads(call(tmp_path / path, ["ada is wet"])[0])["probabilities"]
        assert list(found) == names
        np.testing.assert_allclose(list(found.values()), expected, atol=1e-6)
    with_flags = [f"--labels={','.join('xyz')}", f"--bert_config_file={tmp_path}/w/bert_config.json"]
    assert json.loads(call(tmp_path / "k/model.keras", ["ada"], *with_flags)[0])["label"] in "xyz"
    assert "has 3 labels, and 2 are named: x, y" in call(tmp_path / "h", ["ada"], "--labels=x,y", status=1)


def test_a_keras_file_brings_its_tokenizer(models, call, tmp_path):
    model = models["single"]
    model.attach_preprocessor(models["tokenizer"].vocab_file, do_lower_case=True)
    model.save(tmp_path / "model.keras")
    found, expected = (json.loads(call(path, ["Ada is wet"])[0]) for path in (tmp_path / "model.keras", "single"))
    np.testing.assert_allclose(*(list(each["probabilities"].values()) for each in (found, expected)), atol=1e-6)


def test_what_is_refused(models, call, tmp_path):
    assert "line 2: not valid UTF-8 (byte 0xff" in call("single", b"sun\n\xff\n", status=1)
    assert call("single", b"\xef\xbb\xbfsun\r\n") == call("single", b"sun\n")
    assert call("single", b"") == []
    assert "there is no checkpoint" in call("nowhere", ["sun"], status=1)
    assert "the model reads 16 pieces" in call("single", ["sun"], "--max_seq_length=17", status=1)
    assert "notes do_lower_case True: leave the flag out" in call("single", ["a"], "--nodo_lower_case", status=1)
    changed = call("single", ["a"], "--labels=foul,fair,so so", status=1)
    assert "trained with kind single and the labels fair, foul, so so; now they are single: foul" in changed
    BertForPreTraining(CONFIG).save_checkpoint(tmp_path / "p", tokenizer=models["tokenizer"])
    assert "is a BertForPreTraining: it was not fine-tuned" in call(tmp_path / "p", ["sun"], status=1)
    note_labels(tmp_path / "p", "single", ["a", "b"])
    error = call(tmp_path / "p", ["sun"], status=1)
    assert "has no value for output_weights, output_bias: predictions would be random" in error


def test_lines_are_read_as_they_are_needed(models):
    read = []

    def lines():
        for number in itertools.count():
            read.append(number)
            yield f"line {number}", "ada is wet"

    model, tokenizer = models["regression"], models["tokenizer"]
    predictor = text_prediction.ClassifierPredictor(model, tokenizer, [], 12, 2)
    results = text_prediction.predict_lines(predictor, lines(), 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(7):
            next(results)
    assert len(read) == 12
