"""run_squad: the original's training steps, the files of a run, resume and prediction alone, mistakes."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_bert.checkpoints import google
from tf_bert.checkpoints.names import model_variables
from tf_bert.commands import run_squad
from tf_bert.configs import BertConfig
from tf_bert.models.bert_tasks import BertQuestionAnswering
from tf_bert.tokenization import save_vocab
from tf_bert.trainer.optimization import create_optimizer

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] who where ? . is in the Anna Ben Carl Dora Rome Paris Oslo Bern and".split()
PEOPLE, TOWNS = ["Anna", "Ben", "Carl", "Dora"], ["Rome", "Paris", "Oslo", "Bern"]
CONFIG = {
    "vocab_size": len(WORDS),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def squad(path, count, seed, answers=True):
    rng = np.random.default_rng(seed)
    paragraphs = []
    for i in range(count):
        people, towns = rng.choice(PEOPLE, 2, replace=False), rng.choice(TOWNS, 2, replace=False)
        context = f"{people[0]} is in {towns[0]}.  {people[1]} is in {towns[1]}."
        k = int(rng.integers(2))
        answer = {"text": towns[k], "answer_start": context.index(towns[k])}
        question = {"id": f"q{i}", "question": f"where is {people[k]}?"}
        paragraphs.append({"context": context, "qas": [question | ({"answers": [answer]} if answers else {})]})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    save_vocab(WORDS, folder / "vocab.txt")
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    squad(folder / "train.json", 60, 0)
    squad(folder / "dev.json", 11, 1)
    return folder


def flags(task, output_dir, *more):
    return [
        f"--vocab_file={task}/vocab.txt",
        f"--bert_config_file={task}/bert_config.json",
        f"--train_file={task}/train.json",
        f"--predict_file={task}/dev.json",
        f"--output_dir={output_dir}",
        "--do_lower_case=False",
        "--max_seq_length=32",
        "--doc_stride=8",
        "--max_query_length=8",
        "--train_batch_size=10",
        "--learning_rate=2e-3",
        "--num_train_epochs=4",
        *more,
    ]


@pytest.fixture(scope="module")
def trained(task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert run_squad.main(flags(task, folder, "--do_train", "--do_predict")) == 0
    return folder


def test_files_of_a_run(task, trained):
    predictions = json.loads((trained / "predictions.json").read_text())
    nbest = json.loads((trained / "nbest_predictions.json").read_text())
    assert list(predictions) == list(nbest) == [f"q{i}" for i in range(11)]
    for key, answers in nbest.items():
        assert list(answers[0]) == ["text", "probability", "start_logit", "end_logit"]
        assert answers[0]["text"] == predictions[key] and len(answers) <= 20
        assert sum(answer["probability"] for answer in answers) == pytest.approx(1)
    assert not (trained / "null_odds.json").exists()
    figures = dict(line.split(" = ") for line in (trained / "eval_results.txt").read_text().splitlines())
    assert list(figures) == ["exact", "f1", "global_step", "total"]
    assert figures["global_step"] == "24" and figures["total"] == "11"
    shapes = tf.train.load_checkpoint(str(trained)).get_variable_to_shape_map()
    assert "bert/pooler/dense/kernel" in shapes and "bert/pooler/dense/kernel/adam_m" not in shapes
    assert "cls/squad/output_weights/adam_m" in shapes
    assert (trained / "train.tf_record").exists() and (trained / "eval.tf_record").exists()


def test_prediction_from_a_checkpoint_alone(task, trained, tmp_path, chunked_calls):
    more = ["--do_predict", f"--init_checkpoint={trained}/model.ckpt-24", "--predict_batch_size=3"]
    assert run_squad.main(flags(task, tmp_path, *more, "--attention=chunked")) == 0 and chunked_calls
    first, second = (json.loads((folder / "nbest_predictions.json").read_text()) for folder in (trained, tmp_path))
    for key, answers in first.items():
        assert answers[0]["text"] == second[key][0]["text"]
        assert answers[0]["start_logit"] == pytest.approx(second[key][0]["start_logit"], abs=1e-5)


def golden_squad(golden, **optimizer):
    """The original's model before its ten steps, their batch, and what came out."""
    arrays = np.load(golden / "E_finetune/squad.npz")
    values = json.loads((golden / "C_modeling/bert_config.json").read_text())
    config = BertConfig.from_dict(values | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    model = BertQuestionAnswering(config, add_pooler=True)
    model.bert.pooler.trainable = False
    google.load_checkpoint(model, golden / "C_modeling/ckpt_bumped/bert_model.ckpt")
    model.span.output_weights.assign(arrays["head/cls/squad/output_weights"])
    model.span.output_bias.assign(arrays["head/cls/squad/output_bias"])
    model.compile(create_optimizer(1e-3, 10, 2, **optimizer))
    inputs = {name.removeprefix("input/"): tf.constant(arrays[name]) for name in arrays if name.startswith("input/")}
    return model, inputs, arrays


def test_the_first_training_step_is_the_originals(golden):
    """Its loss, rate and dense norm; the original clipped by the norm of slices that were not merged."""
    model, inputs, arrays = golden_squad(golden)
    logs = model.train_on_batch(inputs, return_dict=True)
    assert float(logs["loss"]) == pytest.approx(arrays["train/loss"][0], rel=1e-5)
    assert float(logs["gradient_norm"]) == pytest.approx(arrays["train/dense_grad_norm"][0], rel=1e-5)
    assert float(logs["learning_rate"]) == pytest.approx(arrays["train/lr"][0])


def test_ten_steps_are_the_originals_when_clipped_as_it_clipped(golden):
    model, inputs, arrays = golden_squad(golden, clip_unmerged_slices=True)
    batches = tf.data.Dataset.from_tensors(inputs).repeat(10)
    seen = []
    keep = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(dict(logs)))
    model.fit(batches, shuffle=False, verbose=0, callbacks=[keep])
    np.testing.assert_allclose([log["gradient_norm"] for log in seen], arrays["train/grad_norm"], rtol=1e-4)
    np.testing.assert_allclose([log["learning_rate"] for log in seen], arrays["train/lr"], rtol=1e-5)
    found = {f"train_final/{name}": variable.numpy() for name, variable in model_variables(model).items()}
    names = [name for name in arrays if name.startswith("train_final/")]
    assert set(names) <= set(found)
    # Adam divides by the root of its second moment: where a gradient is nearly zero, the order of float32 sums decides.
    differences = np.concatenate([np.abs(found[name] - arrays[name]).ravel() for name in names])
    assert differences.max() < 5e-5 and np.mean(differences > 1e-5) < 2e-4


def refused(capsys, arguments) -> str:
    assert run_squad.main(arguments) in (1, 2)
    return capsys.readouterr().err.splitlines()[-1]


def test_a_loss_does_not_depend_on_the_other_examples():
    """So it is the same however a batch is divided among replicas. The softmax is over padding, as the original's."""
    model = BertQuestionAnswering(BertConfig(20, 8, 1, 2, 8, type_vocab_size=2, initializer_range=0.5))
    model.compile("sgd")
    ids = np.array([[2, 5, 3, 0, 0, 0], [2, 6, 7, 8, 3, 0], [2, 9, 3, 9, 9, 3]], "int32")
    inputs = {"input_ids": ids, "input_mask": (ids != 0).astype("int32"), "segment_ids": 0 * ids}
    inputs |= {"start_positions": np.array([1, 2, 3]), "end_positions": np.array([1, 3, 4])}
    losses = [model.evaluate(inputs, batch_size=size, verbose=0, return_dict=True)["loss"] for size in (1, 2, 3)]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)
    logits = model({name: inputs[name] for name in ("input_ids", "input_mask", "segment_ids")})
    parts = [
        keras.losses.sparse_categorical_crossentropy(inputs[f"{end}_positions"], logits[f"{end}_logits"], True)
        for end in ("start", "end")
    ]
    np.testing.assert_allclose(losses[0], np.mean(parts), rtol=1e-5)


def test_mistakes(task, tmp_path, capsys):
    assert "nothing else to do" in refused(capsys, flags(task, tmp_path))
    assert "--do_train needs --train_file" in refused(capsys, flags(task, tmp_path, "--do_train", "--train_file="))
    error = refused(capsys, flags(task, tmp_path, "--do_predict", "--max_query_length=29"))
    assert "max_seq_length 32 must be greater than max_query_length 29 + 3" in error
    assert "max_position_embeddings 40" in refused(capsys, flags(task, tmp_path, "--do_train", "--max_seq_length=41"))
    assert "is of version 1" in refused(capsys, flags(task, tmp_path, "--do_train", "--version_2_with_negative"))
    assert "nothing to evaluate" in refused(capsys, flags(task, tmp_path, "--do_predict"))
