"""Fine-tuning of classifiers: the original's figures and files, GLUE's metrics, labels that changed, own data."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_bert import BertClassifier, BertConfig, BertQuestionAnswering, BertTokenClassifier
from tf_bert.checkpoints import google
from tf_bert.commands import run_classifier
from tf_bert.data.finetuning.batches import shuffled_batches
from tf_bert.data.finetuning.classifier import evaluation_figures
from tf_bert.data.finetuning.glue import find_processor
from tf_bert.data.finetuning.glue_scores import f1, matthews, pearson, spearman
from tf_bert.data.tfrecord.files import decode_example, read_records
from tf_bert.tokenization import FullTokenizer, save_vocab
from tf_bert.trainer.optimization import global_norm
from tf_bert.training.callbacks import read_log
from tf_bert.training.finetuning import write_companions


def golden_model(golden, cls, heads, **arguments):
    """A model with the weights of ``ckpt_bumped`` and a head."""
    config = BertConfig.from_json_file(golden / "C_modeling/bert_config.json")
    model = cls(config, **arguments)
    google.load_checkpoint(model, golden / "C_modeling/ckpt_bumped/bert_model.ckpt")
    for variable in model.trainable_variables:
        name = variable.path.partition("/")[2]
        if name in heads:
            variable.assign(heads[name])
    return model


def test_classifier_equals_the_original(golden):
    arrays = np.load(golden / "E_finetune/classifier_2labels.npz")
    heads = {name.removeprefix("head/"): arrays[name] for name in arrays if name.startswith("head/")}
    model = golden_model(golden, BertClassifier, heads, dropout=0.0)
    inputs = {name.removeprefix("input/"): tf.constant(arrays[name]) for name in arrays if name.startswith("input/")}
    with tf.GradientTape() as tape:
        outputs = model(inputs, training=False)
        losses = model.per_example_losses(inputs, outputs)["loss"]
        loss = tf.reduce_mean(losses)
    np.testing.assert_allclose(outputs["logits"], arrays["output/logits"], atol=1e-5)
    np.testing.assert_allclose(losses, arrays["output/per_example_loss"], atol=1e-5)
    np.testing.assert_allclose(loss, arrays["output/loss"], atol=1e-5)
    gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_variables)]
    compared = 0
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        expected = arrays["grad/" + variable.path.partition("/")[2]]
        np.testing.assert_allclose(gradient, expected, atol=1e-5, err_msg=variable.path)
        compared += 1
    assert compared == sum(name.startswith("grad/") for name in arrays)
    np.testing.assert_allclose(global_norm(gradients), arrays["output/dense_global_norm"], rtol=1e-5)


def test_question_answering_equals_the_original(golden):
    arrays = np.load(golden / "E_finetune/squad.npz")
    heads = {name.removeprefix("head/"): arrays[name] for name in arrays if name.startswith("head/")}
    model = golden_model(golden, BertQuestionAnswering, heads, add_pooler=True)
    inputs = {name.removeprefix("input/"): tf.constant(arrays[name]) for name in arrays if name.startswith("input/")}
    with tf.GradientTape() as tape:
        outputs = model(inputs, training=False)
        loss = tf.reduce_mean(model.per_example_losses(inputs, outputs)["loss"])
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(outputs[name], arrays[f"output/{name}"], atol=1e-5)
    np.testing.assert_allclose(loss, arrays["train/loss"][0], rtol=1e-5)
    gradients = [g if g is None else tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_variables)]
    np.testing.assert_allclose(global_norm(gradients), arrays["train/dense_grad_norm"][0], rtol=1e-5)
    assert sum(gradient is None for gradient in gradients) == 2  # the pooler


CONFIG = BertConfig(30, 16, 2, 2, 32, max_position_embeddings=24, type_vocab_size=2)


def test_losses_of_other_labels():
    ids = keras.ops.array([[2, 7, 3], [2, 8, 3]])
    model = BertClassifier(CONFIG, num_labels=3, kind="multi")
    labels = np.array([[1, 0, 1], [0, 0, 0]])
    outputs = model({"input_ids": ids})
    probabilities = 1 / (1 + np.exp(-np.array(outputs["logits"], np.float64)))
    expected = -np.log(np.where(labels, probabilities, 1 - probabilities)).mean(axis=1)
    inputs = {"input_ids": ids, "label_ids": labels}
    np.testing.assert_allclose(model.per_example_losses(inputs, outputs)["loss"], expected, rtol=1e-5)

    model = BertClassifier(CONFIG, num_labels=1, kind="regression")
    outputs = model({"input_ids": ids})
    inputs = {"input_ids": ids, "label_ids": np.array([2.0, 0.0], np.float32)}
    expected = (np.array(outputs["logits"])[:, 0] - [2, 0]) ** 2
    np.testing.assert_allclose(model.per_example_losses(inputs, outputs)["loss"], expected, rtol=1e-5)
    assert BertClassifier.from_config(model.get_config()).kind == "regression"
    with pytest.raises(ValueError, match="num_labels=2"):
        BertClassifier(CONFIG, kind="regression")

    model = BertTokenClassifier(CONFIG, num_labels=3)
    outputs = model({"input_ids": ids})
    inputs = {"input_ids": ids, "label_ids": np.array([[-100, 0, -100], [-100, 2, 1]])}
    losses, weights = model.per_example_losses(inputs, outputs)["loss"], model.loss_weights(inputs)["loss"]
    logs = np.array(tf.nn.log_softmax(outputs["logits"]))
    assert np.array(weights).tolist() == [[False, True, False], [False, True, True]]
    np.testing.assert_allclose(np.array(losses)[1, 1:], [-logs[1, 1, 2], -logs[1, 2, 1]], rtol=1e-5)


def test_glue_metrics():
    labels, predictions = np.array([1, 1, 0, 0, 1, 0]), np.array([1, 0, 0, 1, 1, 0])
    tp, tn, fp, fn = 2, 2, 1, 1
    assert matthews(labels, predictions) == pytest.approx((tp * tn - fp * fn) / np.sqrt(3 * 3 * 3 * 3))
    assert f1(labels, predictions) == pytest.approx(2 * tp / (2 * tp + fp + fn))
    assert matthews(labels, np.zeros(6)) == 0.0 and f1(np.zeros(6), np.zeros(6)) == 0.0
    x, y = np.array([1.0, 2.0, 2.0, 4.0]), np.array([0.1, 0.5, 0.2, 9.0])
    assert pearson(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert spearman(x, y) == pytest.approx(np.corrcoef([1, 2.5, 2.5, 4], [1, 3, 2, 4])[0, 1])


def columns(count=23, length=12):
    lengths = np.random.default_rng(3).integers(2, length + 1, count)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    return {"input_ids": mask * np.arange(1, count + 1, dtype=np.int32)[:, None], "input_mask": mask}


@pytest.mark.parametrize("group_by_length", [False, True])
def test_batches_hold_each_example_once_a_pass_and_go_on(group_by_length):
    data = columns()

    def first_ids(batches, skip=0):
        made = shuffled_batches(data, 4, seed=1, skip=skip, group_by_length=group_by_length).take(batches)
        found = []
        for batch in made.as_numpy_iterator():
            assert batch["input_mask"].any(axis=0).all()  # cut to its longest example
            found += batch["input_ids"][:, 0].tolist()
        return found

    ids = first_ids(23)  # four passes
    for number in range(4):
        assert sorted(ids[23 * number : 23 * (number + 1)]) == list(range(1, 24))
    assert ids[:23] != ids[23:46]
    assert first_ids(10, skip=40) == ids[40:80]
    fixed = next(shuffled_batches(data, 4, fixed_length=True).as_numpy_iterator())
    assert fixed["input_ids"].shape == (4, 12)


def test_grouping_saves_padding():
    data = columns(400, 60)

    def padding(group):
        made = shuffled_batches(data, 8, group_by_length=group).take(100)
        return np.mean([1 - batch["input_mask"].mean() for batch in made.as_numpy_iterator()])

    assert padding(True) < padding(False) / 3


def test_grouped_batches_are_others_in_each_pass():
    mask = np.tril(np.ones((48, 48), np.int32))  # no two of a length: sorted all together, the batches would stay
    made = shuffled_batches({"input_ids": mask, "input_mask": mask}, 4, group_by_length=True).take(36)
    lengths = [tuple(sorted(batch["input_mask"].sum(axis=1))) for batch in made.as_numpy_iterator()]
    assert len(set(lengths[:12]) | set(lengths[12:24]) | set(lengths[24:])) > 30
    assert lengths[:12] != sorted(lengths[:12])


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_group_as_one_device_does(workers):
    """Each takes some of the smaller batches; together they have the examples of the whole one."""
    data = columns(50, 60)
    data["number"] = np.arange(50)

    def numbers(size, count):
        made = shuffled_batches(data, size, seed=3, skip=8, group_by_length=True, global_batch_size=8)
        return np.concatenate([batch["number"] for batch in made.take(count).as_numpy_iterator()]).tolist()

    assert numbers(8 // workers, 20 * workers) == numbers(8, 20)


WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] sun rain cloud wind warm cold wet dry day night is it the very not".split()


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """A folder with a small model's files and a data set that can be learned."""
    folder = tmp_path_factory.mktemp("task")
    save_vocab(WORDS, folder / "vocab.txt")
    (folder / "bert_config.json").write_text(CONFIG.to_json_string())
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(80):
        good = rng.random() < 0.5
        words = [*rng.choice(WORDS[13:], rng.integers(1, 6)), rng.choice(["sun", "warm"] if good else ["rain", "cold"])]
        rows.append((" ".join(rng.permutation(words)), "fair" if good else "foul"))
    for name, part in (("train", rows[:60]), ("dev", rows[60:])):
        (folder / f"{name}.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in part))
    (folder / "test.csv").write_text("text\n" + "".join(f"{text}\n" for text, _ in rows[60:]))
    return folder


def flags(task, output_dir, *more):
    return [
        "--task_name=csv",
        f"--data_dir={task}",
        f"--vocab_file={task}/vocab.txt",
        f"--bert_config_file={task}/bert_config.json",
        f"--output_dir={output_dir}",
        "--max_seq_length=16",
        "--train_batch_size=8",
        "--learning_rate=5e-3",
        "--num_train_epochs=6.5",
        "--save_checkpoints_steps=20",
        *more,
    ]


def results(path) -> dict[str, float]:
    return dict((key, float(value)) for key, value in (line.split(" = ") for line in path.read_text().splitlines()))


@pytest.fixture(scope="module")
def trained(task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert run_classifier.main(flags(task, folder, "--do_train", "--do_eval", "--do_predict")) == 0
    return folder


def test_files_of_a_run(task, trained):
    figures = results(trained / "eval_results.txt")
    assert list(figures) == ["eval_accuracy", "eval_loss", "global_step", "loss"]
    assert figures["global_step"] == int(60 / 8 * 6.5) == 48
    assert figures["eval_accuracy"] >= 0.9
    rows = [[float(value) for value in line.split("\t")] for line in (trained / "test_results.tsv").open()]
    assert len(rows) == 20
    np.testing.assert_allclose(np.sum(rows, axis=1), 1, atol=1e-6)
    truth = [line.rstrip("\n").rpartition(",")[2] for line in (task / "dev.csv").open()][1:]
    assert json.loads((trained / "label_list.json").read_text())["labels"] == ["fair", "foul"]
    right = np.mean([["fair", "foul"][int(np.argmax(row))] == label for row, label in zip(rows, truth, strict=True)])
    assert right == pytest.approx(figures["eval_accuracy"])
    losses = [-np.log(row[["fair", "foul"].index(label)]) for row, label in zip(rows, truth, strict=True)]
    assert figures["eval_loss"] == pytest.approx(np.mean(losses), rel=1e-3)
    batches = [np.mean(losses[first : first + 8]) for first in (0, 8, 16)]
    assert figures["loss"] == pytest.approx(np.mean(batches), rel=1e-3)
    record = decode_example(next(read_records(trained / "train.tf_record")))
    assert set(record) == {"input_ids", "input_mask", "segment_ids", "label_ids", "is_real_example"}
    steps = [line for line in read_log(trained) if "loss" in line]
    assert steps[-1]["step"] == 48
    assert set(tf.train.load_checkpoint(str(trained)).get_variable_to_shape_map()) >= {"output_weights", "global_step"}


def test_a_run_notes_its_kind_in_place_of_the_one_it_began_with(task, tmp_path):
    tokenizer = FullTokenizer(task / "vocab.txt")
    begun = dataclasses.replace(CONFIG, extra={"problem_type": "regression"})
    models = {"multi": BertClassifier(begun, kind="multi"), "tags": BertTokenClassifier(begun)}
    for kind, noted in ("multi", "multi_label_classification"), ("tags", None):
        write_companions(tmp_path / kind, models[kind], tokenizer, kind)
        assert BertConfig.from_json_file(tmp_path / kind / "bert_config.json").extra.get("problem_type") == noted


def test_prediction_from_a_checkpoint_alone(task, trained, tmp_path, chunked_calls):
    more = ["--do_predict", f"--init_checkpoint={trained}/model.ckpt-48", "--predict_batch_size=3"]
    assert run_classifier.main(flags(task, tmp_path, *more, "--attention=chunked")) == 0 and chunked_calls
    ours, theirs = (np.loadtxt(folder / "test_results.tsv") for folder in (tmp_path, trained))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_same_seed_gives_the_same_run_and_a_stopped_one_goes_on(task, trained, tmp_path):
    half = flags(task, tmp_path, "--do_train", "--do_eval")
    for checkpoint in trained.glob("model.ckpt-20*"):
        (tmp_path / checkpoint.name).write_bytes(checkpoint.read_bytes())
    assert run_classifier.main(half) == 0
    ours, theirs = (tf.train.load_checkpoint(str(folder / "model.ckpt-48")) for folder in (tmp_path, trained))
    for name in theirs.get_variable_to_shape_map():
        np.testing.assert_array_equal(ours.get_tensor(name), theirs.get_tensor(name), err_msg=name)


def refused(capsys, arguments) -> str:
    assert run_classifier.main(arguments) in (1, 2)
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("tf-bert run_classifier: error: ")
    return error


def test_labels_that_changed(task, trained, tmp_path, capsys):
    more = ["--do_predict", "--labels=foul,fair"]
    error = refused(capsys, flags(task, trained, *more))
    assert "trained with kind single and the labels fair, foul; now they are single: foul, fair" in error
    error = refused(capsys, flags(task, tmp_path, "--do_predict"))
    assert "the labels are not known" in error


def test_another_vocabulary_than_the_checkpoints(task, trained, tmp_path, capsys):
    other = tmp_path / "other.txt"
    save_vocab([*WORDS[:-2], WORDS[-1], WORDS[-2]], other)
    error = refused(capsys, flags(task, trained, "--do_predict", f"--vocab_file={other}"))
    assert f"{other} is not the vocabulary of the checkpoint" in error
    assert f"line {len(WORDS) - 1} is {WORDS[-1]!r}, and there {WORDS[-2]!r}" in error
    save_vocab(WORDS[:20], other)  # of which all ids are right, but many words may be missing
    assert run_classifier.main(flags(task, trained, "--do_eval", f"--vocab_file={other}")) == 0
    assert f"has 20 lines, and the table of the model {CONFIG.vocab_size} rows" in capsys.readouterr().err


def test_mistakes(task, tmp_path, capsys, golden):
    assert "nothing else to do" in refused(capsys, flags(task, tmp_path))
    assert "less than one step" in refused(capsys, flags(task, tmp_path, "--do_train", "--num_train_epochs=0.01"))
    assert "max_position_embeddings 24" in refused(capsys, flags(task, tmp_path, "--do_train", "--max_seq_length=25"))
    error = refused(capsys, flags(task, tmp_path, "--do_eval", "--labels=fair,foul"))
    assert "nothing to evaluate" in error
    save_vocab([*WORDS, *"abcdefghijklmno"], tmp_path / "long.txt")
    error = refused(capsys, flags(task, tmp_path, "--do_eval", f"--vocab_file={tmp_path}/long.txt"))
    assert f"has {len(WORDS) + 15} lines, and {task}/bert_config.json has vocab_size {CONFIG.vocab_size}" in error
    checkpoint = f"--init_checkpoint={golden}/C_modeling/ckpt_init/bert_model.ckpt"
    config = f"--bert_config_file={golden}/C_modeling/bert_config.json"
    error = refused(capsys, flags(task, tmp_path, "--do_eval", "--labels=fair,foul", checkpoint, config))
    assert "has no value for output_weights, output_bias" in error or "has no value for output_bias" in error
    xnli = ["--task_name=xnli", "--do_predict"]
    assert "XNLI has no test examples" in refused(capsys, flags(task, tmp_path, *xnli))


def test_figures_of_a_regression():
    logits = np.array([[1.0], [2.5], [3.0]], np.float32)
    labels = np.array([1.0, 2.0, 4.0], np.float32)
    task = find_processor("sts-b")
    figures = evaluation_figures(logits, labels, 2, task.kind, task.metrics)
    assert set(figures) == {"eval_loss", "loss", "eval_pearson", "eval_spearman"}
    assert figures["eval_loss"] == pytest.approx(1.25 / 3) and figures["loss"] == pytest.approx((0.125 + 1) / 2)
    assert figures["eval_spearman"] == pytest.approx(1)
