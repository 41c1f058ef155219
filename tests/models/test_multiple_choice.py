"""Multiple choice: scores and loss, fewer choices, fit in three lines, checkpoints, files of one's own."""

import json

import keras
import numpy as np
import pytest

from tf_bert import BertConfig, BertForMaskedLM, FullTokenizer
from tf_bert.commands import run_classifier
from tf_bert.data.finetuning.batches import shuffled_batches
from tf_bert.data.finetuning.multiple_choice import ChoiceExample, ChoiceFilesProcessor, convert_choices_to_features
from tf_bert.data.finetuning.user_files import FileFormat
from tf_bert.models.bert_tasks import BertClassifier
from tf_bert.models.multiple_choice import BertMultipleChoice
from tf_bert.tokenization import save_vocab
from tf_bert.trainer.prediction import predict_by_length

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] sun rain it swim dry wet the and is we stay go".split()
CONFIG = BertConfig(len(WORDS), 16, 1, 2, 32, max_position_embeddings=16, type_vocab_size=2)


def inputs(batch_size=3, choices=4, length=7):
    rng = np.random.default_rng(1)
    lengths = rng.integers(3, length + 1, (batch_size, choices, 1))
    lengths[0, 2:] = 0  # the first example has two choices
    mask = (np.arange(length) < lengths).astype(np.int32)
    ids = mask * rng.integers(5, len(WORDS), mask.shape, dtype=np.int32)
    return {"input_ids": ids, "input_mask": mask, "segment_ids": mask * (np.arange(length) > 2)}


def test_each_choice_is_scored_as_a_pair_and_the_best_is_learned():
    model = BertMultipleChoice(CONFIG)
    classifier = BertClassifier(CONFIG, num_labels=1, kind="regression")
    classifier.set_weights(model.get_weights())
    data = inputs()
    logits = np.array(model(data)["logits"])
    for example, choice in ((0, 1), (1, 3), (2, 0)):
        row = {name: value[example, choice][None] for name, value in data.items()}
        np.testing.assert_allclose(logits[example, choice], classifier(row)["logits"][0, 0], atol=1e-6)
    assert (logits[0, 2:] == -1e9).all() and (np.abs(logits[1:]) < 100).all()
    labels = np.array([1, 3, 0])
    losses = model.per_example_losses(data | {"label_ids": labels}, {"logits": logits})["loss"]
    scores = logits.astype(np.float64)
    expected = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(3), labels]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)

    for rows, outputs in predict_by_length(model, data, 2, ["logits"]):  # cut to the longest, of all choices
        np.testing.assert_allclose(outputs["logits"], logits[rows], atol=1e-6)
    batch = next(shuffled_batches(data | {"label_ids": labels}, 3).as_numpy_iterator())
    assert batch["input_ids"].shape == (3, 4, data["input_mask"].sum(axis=-1).max())


def test_three_lines_and_saving(tmp_path):
    save_vocab(WORDS, tmp_path / "vocab.txt")
    encoder = BertForMaskedLM(CONFIG, add_pooler=True)
    encoder.save_checkpoint(tmp_path / "bert", tokenizer=FullTokenizer(tmp_path / "vocab.txt"))
    data, labels = inputs(8), np.arange(8) % 2

    with pytest.warns(UserWarning, match="output_weights"):
        model = BertMultipleChoice.from_checkpoint(tmp_path / "bert")
    model.compile(keras.optimizers.Adam(3e-3))
    history = model.fit(data, labels, epochs=40, batch_size=8, verbose=0).history

    assert history["loss"][-1] < 0.6 * history["loss"][0] and history["accuracy"][-1] > 0.6
    expected = model.predict(data, verbose=0)["logits"]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(data)["logits"], expected, atol=1e-6)
    again = BertMultipleChoice.from_checkpoint(model.save_checkpoint(tmp_path / "h", "huggingface"))
    assert not again.load_report.missing
    np.testing.assert_allclose(again(data)["logits"], expected, atol=1e-6)


def test_texts_and_lists_of_choices(tmp_path):
    save_vocab(WORDS, tmp_path / "vocab.txt")
    tokenizer = FullTokenizer(tmp_path / "vocab.txt")
    model = BertMultipleChoice.from_checkpoint(BertMultipleChoice(CONFIG).save_checkpoint(tmp_path, None, tokenizer))
    texts, choices = ["sun", "rain it is"], [["dry", "wet"], ["wet", "the dry", "we swim and stay"]]
    examples = [ChoiceExample("", text, choices=of_text) for text, of_text in zip(texts, choices, strict=True)]
    features = convert_choices_to_features(examples, 16, tokenizer)
    found = model.preprocess(texts, choices)
    width = found["input_ids"].shape[-1]
    for name, value in found.items():
        np.testing.assert_array_equal(value, features[name][..., :width], err_msg=name)
    expected = model({name: features[name] for name in found})["logits"]
    np.testing.assert_allclose(model.predict((texts, choices))["logits"], expected, atol=1e-6)
    model.compile("sgd")
    model.fit((texts, choices), [0, 2], epochs=1, verbose=0)
    with pytest.raises(ValueError, match="2 texts and 1 lists of choices"):
        model.predict((texts, choices[:1]))
    with pytest.raises(ValueError, match="number 0 of the choices is 'dry'; expected a list of texts"):
        model.predict((["sun"], ["dry"]))


ROWS = [
    ("rain", "swim", "dry", "wet", 0),
    ("sun", "wet", "swim", "", 1),
    ("it is rain and", "dry", "the swim", "dry", 1),
    ("the sun", "swim", "wet", "wet", 0),
] * 8


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    save_vocab(WORDS, folder / "vocab.txt")
    (folder / "bert_config.json").write_text(CONFIG.to_json_string())
    lines = ["text,a,b,c,answer"] + [",".join(map(str, row)) for row in ROWS]
    for name in ("train", "dev"):
        (folder / f"{name}.csv").write_text("\n".join(lines))
    rows = [{"text": text, "choices": [c for c in choices if c]} for text, *choices, _ in ROWS[:4]]
    (folder / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def flags(task, out, *more):
    files = [f"--vocab_file={task}/vocab.txt", f"--bert_config_file={task}/bert_config.json", f"--output_dir={out}"]
    sizes = ["--max_seq_length=10", "--train_batch_size=8", "--learning_rate=5e-3", "--num_train_epochs=20"]
    return [f"--data_dir={task}", "--kind=choice", *files, *sizes, *more]


def test_files_of_ones_own(task, tmp_path, capsys):
    columns = ["--task_name=csv", "--choice_columns=a,b,c", "--label_column=answer"]
    assert run_classifier.main(flags(task, tmp_path, *columns, "--do_train", "--do_eval")) == 0
    figures = dict(line.split(" = ") for line in (tmp_path / "eval_results.txt").read_text().splitlines())
    assert float(figures["eval_accuracy"]) > 0.9
    more = ["--task_name=jsonl", "--choice_columns=choices", "--do_predict"]
    assert run_classifier.main(flags(task, tmp_path, *more)) == 0
    found = np.loadtxt(tmp_path / "test_results.tsv")
    assert found.shape == (4, 3) and found[1, 2] == 0.0
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
    assert found.argmax(axis=1).tolist() == [0, 1, 1, 0]
    assert json.loads((tmp_path / "label_list.json").read_text())["kind"] == "choice"
    capsys.readouterr()
    assert run_classifier.main(flags(task, tmp_path, "--task_name=csv", "--do_eval")) == 2
    assert "--kind=choice needs --choice_columns" in capsys.readouterr().err
    other = flags(task, tmp_path, "--task_name=csv", "--do_predict", "--kind=single", "--label_column=answer")
    other.append(f"--test_file={task}/dev.csv")
    assert run_classifier.main(other) == 1
    assert "trained with kind choice" in capsys.readouterr().err


def test_labels_and_choices_that_are_wrong(tmp_path):
    tokenizer_file = tmp_path / "vocab.txt"
    save_vocab(WORDS, tokenizer_file)
    read = ChoiceFilesProcessor(FileFormat(kind="choice", text_pair="begun"), ["a", "b"]).get_train_examples
    path = tmp_path / "train.csv"
    path.write_text("text,begun,a,b,label\nsun,it is,dry,wet,b\n")
    (example,) = read(tmp_path)
    assert example.label == 1
    found = convert_choices_to_features([example], 10, FullTokenizer(tokenizer_file))
    assert FullTokenizer(tokenizer_file).decode(found["input_ids"][0, 1], True) == "sun it is wet"
    path.write_text("text,begun,a,b,label\nsun,it is,dry,wet,2\n")
    with pytest.raises(ValueError, match=r"line 2: the label is '2'; expected the number of a choice, from 0 to 1, or"):
        read(tmp_path)
    path.write_text("text,begun,a,label\nsun,it is,dry,0\n")
    with pytest.raises(ValueError, match="line 2: found the columns .*, expected one that is named 'b'"):
        read(tmp_path)
    lines = ChoiceFilesProcessor(FileFormat(format="jsonl"), ["c"])
    (tmp_path / "train.jsonl").write_text('{"text": "sun", "c": [], "label": 0}')
    with pytest.raises(ValueError, match="line 1: c: expected a list of texts"):
        lines.get_train_examples(tmp_path)
