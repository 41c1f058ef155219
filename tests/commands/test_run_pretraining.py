"""run_pretraining: the original's figures, its files, resume by signal, the model at the end; fill_mask."""

import json
import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from tf_bert import Bert, BertConfig
from tf_bert.commands import fill_mask as fill_mask_command
from tf_bert.commands import run_pretraining
from tf_bert.commands.flags import STOPPED
from tf_bert.data.tfrecord.files import RecordWriter, encode_example
from tf_bert.training.callbacks import ReportTraining, read_log
from tf_bert.training.curves import plot_curves

KEYS = {"loss", "masked_lm_loss", "masked_lm_accuracy", "next_sentence_loss", "next_sentence_accuracy"}


@pytest.fixture(scope="module")
def batches(shared_golden, tmp_path_factory) -> str:
    """The 160 records of golden D as a TFRecord file."""
    path = str(tmp_path_factory.mktemp("golden") / "batches.tfrecord")
    arrays = np.load(shared_golden / "D_optimization/batches.npz")
    with RecordWriter(path) as writer:
        for batch in range(20):
            for row in range(8):
                writer.write(encode_example({name: arrays[name][batch, row] for name in arrays}))
    return path


@pytest.fixture(scope="module")
def golden_flags(shared_golden, batches) -> list[str]:
    return [
        f"--bert_config_file={shared_golden}/D_optimization/bert_config_nodropout.json",
        f"--input_file={batches}",
        "--max_seq_length=32",
        "--max_predictions_per_seq=5",
    ]


def results(path) -> dict[str, float]:
    with open(path, encoding="utf-8") as file:
        return {key: float(value) for key, value in (line.rstrip("\n").split(" = ") for line in file)}


@pytest.mark.parametrize("checkpoint", ["ckpt_init", "ckpt_bumped"])
def test_evaluation_gives_the_originals_figures(golden, shared_golden, golden_flags, tmp_path, checkpoint):
    status = run_pretraining.main(
        [
            *golden_flags,
            f"--output_dir={tmp_path}",
            f"--init_checkpoint={golden}/C_modeling/{checkpoint}/bert_model.ckpt",
            "--do_eval",
            "--max_eval_steps=20",
        ]
    )
    assert status == 0
    ours, theirs = tmp_path / "eval_results.txt", shared_golden / f"D_optimization/eval_results_{checkpoint}.txt"
    assert list(results(ours)) == list(results(theirs))
    for key, value in results(theirs).items():
        assert results(ours)[key] == pytest.approx(value, rel=2e-7, abs=1e-9), key


def test_training_gives_the_originals_weights(golden, shared_golden, golden_flags, tmp_path):
    """20 steps over the records in their order."""
    status = run_pretraining.main(
        [
            *golden_flags,
            f"--output_dir={tmp_path}",
            f"--init_checkpoint={golden}/C_modeling/ckpt_init/bert_model.ckpt.index",
            "--do_train",
            "--train_batch_size=8",
            "--learning_rate=1e-3",
            "--num_train_steps=20",
            "--num_warmup_steps=5",
            "--iterations_per_loop=3",
            "--log_steps=1",
            "--shuffle_buffer=1",
            f"--vocab_file={golden}/C_modeling/vocab.txt",
        ]
    )
    assert status == 0
    expected = np.load(shared_golden / "D_optimization/init_lr1e-3_w5.written.npz")
    log = read_log(tmp_path)
    for key, name in (("loss", "loss"), ("lr", "learning_rate"), ("grad_norm", "gradient_norm")):
        np.testing.assert_allclose([line[name] for line in log], expected[f"per_step/{key}"], rtol=1e-5)
    reader = tf.train.load_checkpoint(str(tmp_path))
    finals = {name.removeprefix("final/"): expected[name] for name in expected if name.startswith("final/")}
    assert set(reader.get_variable_to_shape_map()) == {*finals, "global_step"}
    for name, value in finals.items():
        error = np.abs(reader.get_tensor(name) - value).max()
        # The gradient of a key bias is zero but for rounding.
        assert error < (1e-4 * np.abs(value).max() + 1e-9 if "/adam_" in name else 1e-5), name

    bert = Bert.from_checkpoint(tmp_path / "export")
    np.testing.assert_allclose(bert.pooler.kernel, finals["bert/pooler/dense/kernel"], atol=1e-5)
    assert json.loads((tmp_path / "export/tokenizer_config.json").read_text())["do_lower_case"] is True
    assert (tmp_path / "export/vocab.txt").read_bytes() == (golden / "C_modeling/vocab.txt").read_bytes()


VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(25))]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with records, their sidecar, a vocabulary and a configuration of a tiny model."""
    from tf_bert.commands import create_pretraining_data

    folder = tmp_path_factory.mktemp("corpus")
    rng = np.random.default_rng(5)
    documents = ["\n".join(" ".join(f"word{i}" for i in rng.integers(0, 25, 6)) for _ in range(6)) for _ in range(6)]
    (folder / "text").write_text("\n\n".join(documents))
    (folder / "words.txt").write_text("\n".join(VOCAB) + "\n")
    config = BertConfig(30, 16, 1, 2, 32, max_position_embeddings=24, type_vocab_size=2)
    (folder / "bert_config.json").write_text(config.to_json_string())
    flags = [
        f"--input_file={folder}/text",
        f"--output_file={folder}/a.tfrecord,{folder}/b.tfrecord",
        f"--vocab_file={folder}/words.txt",
        "--max_seq_length=24",
        "--max_predictions_per_seq=4",
        "--dupe_factor=3",
    ]
    assert create_pretraining_data.main(flags) == 0
    return folder


def train_flags(corpus, output_dir, *more) -> list[str]:
    return [
        f"--bert_config_file={corpus}/bert_config.json",
        f"--input_file={corpus}/*.tfrecord*",
        f"--output_dir={output_dir}",
        "--max_seq_length=24",
        "--max_predictions_per_seq=4",
        "--do_train",
        "--train_batch_size=4",
        "--learning_rate=1e-3",
        "--num_train_steps=12",
        "--num_warmup_steps=2",
        "--save_checkpoints_steps=4",
        *more,
    ]


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    flags = train_flags(corpus, folder, "--do_eval", "--log_steps=3", "--eval_every_steps=6", "--max_eval_steps=0")
    flags.append("--profile=2")
    assert run_pretraining.main(flags) == 0
    return folder


def test_the_log(trained):
    log = read_log(trained)
    training = [line for line in log if "eval" not in line]
    assert [line["step"] for line in training] == [3, 6, 9, 12]
    rest = {"step", "learning_rate", "gradient_norm", "steps_per_second", "tokens_per_second"}
    assert all(set(line) == KEYS | rest for line in training)
    held_out = [line for line in log if "eval" in line]
    assert [line["step"] for line in held_out] == [6, 12] and all(set(line["eval"]) == KEYS for line in held_out)
    final = results(trained / "eval_results.txt")
    assert set(final) == KEYS | {"global_step"} and final["global_step"] == 12
    assert final["loss"] == pytest.approx(held_out[-1]["eval"]["loss"])


def scalars(folder) -> dict[str, list[int]]:
    found = {}
    for path in folder.glob("events.*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append(event.step)
    return found


def test_tensorboard(trained):
    found = scalars(trained)
    assert set(found) == KEYS | {"learning_rate", "gradient_norm", "steps_per_second", "tokens_per_second"}
    assert all(steps == [3, 6, 9, 12] for steps in found.values())
    assert scalars(trained / "eval") == dict.fromkeys(KEYS, [6, 12])


def test_the_profile(trained):
    assert len(list(trained.glob("plugins/profile/*/*.xplane.pb"))) == 1


def test_the_end_is_a_directory_as_googles(trained, corpus):
    files = {"bert_config.json", "vocab.txt", "tokenizer_config.json", "bert_model.ckpt.index"}
    assert set(os.listdir(trained / "export")) == files | {"bert_model.ckpt.data-00000-of-00001"}
    assert (trained / "export/vocab.txt").read_bytes() == (corpus / "words.txt").read_bytes()
    names = dict(tf.train.list_variables(str(trained / "export/bert_model.ckpt")))
    assert "bert/embeddings/word_embeddings" in names and not any("adam" in name for name in names)


def test_fill_mask_shows_words_and_probabilities(trained, capsys):
    flags = [f"--checkpoint={trained}/export", "word1 [MASK] word2 [MASK]", "--top_k=3"]
    assert fill_mask_command.main(flags) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "word1 [MASK] word2 [MASK]" and len(lines) == 1 + 2 * (1 + 3)
    for masks in (lines[2:5], lines[6:9]):
        shares, words = zip(*(line.split() for line in masks), strict=True)
        shares = [float(share.rstrip("%")) for share in shares]
        assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 100
        assert len(set(words)) == 3 and set(words) <= set(VOCAB)


def test_fill_mask_is_the_models_own_softmax(trained):
    from tf_bert import BertForPreTraining
    from tf_bert.models.fill_mask import fill_mask
    from tf_bert.tokenization import FullTokenizer

    model = BertForPreTraining.from_checkpoint(trained / "export")
    tokenizer = FullTokenizer(trained / "export/vocab.txt", special_tokens_in_text=True)
    texts = ["word1 [MASK]", "word3 word4 [MASK] word5 word6 word7"]
    together = fill_mask(model, tokenizer, texts, top_k=30)
    for text, fillings in zip(texts, together, strict=True):
        ids = tokenizer.convert_tokens_to_ids(["[CLS]", *tokenizer.tokenize(text), "[SEP]"])
        logits = model({"input_ids": np.array([ids])})["masked_lm_logits"].numpy()[0, ids.index(4)].astype(float)
        expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        for token, probability in fillings[0]:
            assert probability == pytest.approx(expected[VOCAB.index(token)], abs=1e-5)
        assert len(fillings[0]) == 30


@pytest.mark.parametrize(
    "text, said", [("no mask", "there is no [MASK]"), ("[MASK]" + 30 * " word1", "33 pieces, and the model reads 24")]
)
def test_fill_mask_says_what_is_wrong(trained, capsys, text, said):
    assert fill_mask_command.main([f"--checkpoint={trained}/export", text]) == 1
    assert said in capsys.readouterr().err


def test_the_picture(trained, tmp_path):
    plot_curves(trained, tmp_path / "curves.png", {"most frequent token": 0.1})
    assert (tmp_path / "curves.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_sigterm_saves_and_the_same_command_goes_on(corpus, trained, tmp_path, monkeypatch, capsys):
    flags = train_flags(corpus, tmp_path, "--log_steps=3")
    report = ReportTraining._report

    def signalled(self, logs, step):
        report(self, logs, step)
        if step == 6:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(ReportTraining, "_report", signalled)
        assert run_pretraining.main(flags) == STOPPED == 75
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert "goes on from step 6" in capsys.readouterr().out
    assert tf.train.load_variable(str(tmp_path), "global_step") == 6
    assert not (tmp_path / "export").exists()

    assert run_pretraining.main(flags) == 0
    assert f"RESUMING from {tmp_path}/model.ckpt-6: step 6 of 12" in capsys.readouterr().err
    ours, theirs = (tf.train.load_checkpoint(str(folder)) for folder in (tmp_path, trained))
    for name in theirs.get_variable_to_shape_map():
        np.testing.assert_array_equal(ours.get_tensor(name), theirs.get_tensor(name))


def test_a_user_of_python_does_the_same_with_fit(corpus, trained):
    import keras

    from tf_bert import BertForPreTraining
    from tf_bert.data.pretraining.input import find_records, train_dataset
    from tf_bert.trainer.optimization import create_optimizer

    keras.utils.set_random_seed(12345)
    model = BertForPreTraining(BertConfig.from_json_file(corpus / "bert_config.json"))
    model.compile(create_optimizer(1e-3, num_train_steps=12, num_warmup_steps=2))
    model.fit(train_dataset(find_records(f"{corpus}/?.tfrecord"), 4), steps_per_epoch=12, shuffle=False, verbose=0)
    kernel = tf.train.load_variable(str(trained), "bert/pooler/dense/kernel")
    np.testing.assert_array_equal(model.bert.pooler.kernel, kernel)


def test_the_command_line_of_the_originals_readme():
    flags = run_pretraining.FLAGS.parse(
        """--input_file=/tmp/tf_examples.tfrecord --output_dir=/tmp/pretraining_output --do_train=True --do_eval=True
        --bert_config_file=/b/bert_config.json --init_checkpoint=/b/bert_model.ckpt --train_batch_size=32
        --max_seq_length=128 --max_predictions_per_seq=20 --num_train_steps=20 --num_warmup_steps=10
        --learning_rate=2e-5""".split()
    )
    assert flags.do_train and flags.do_eval and flags.learning_rate == 2e-5
    defaults = run_pretraining.FLAGS.parse(["--input_file=a", "--output_dir=b", "--bert_config_file=c"])
    expected = {
        "init_checkpoint": None,
        "max_seq_length": 128,
        "max_predictions_per_seq": 20,
        "do_train": False,
        "do_eval": False,
        "train_batch_size": 32,
        "eval_batch_size": 8,
        "learning_rate": 5e-5,
        "num_train_steps": 100000,
        "num_warmup_steps": 10000,
        "save_checkpoints_steps": 1000,
        "iterations_per_loop": None,  # which is 1000 on a TPU, and 1 elsewhere
        "max_eval_steps": 100,
    }
    assert {name: defaults[name].value for name in expected} == expected


def fails(flags, capsys) -> str:
    status = run_pretraining.main(flags)
    said = capsys.readouterr().err.splitlines()[-1]
    assert status and said.startswith("tf-bert run_pretraining: error: ")
    return said


def test_nothing_to_do(corpus, tmp_path, capsys):
    flags = [flag for flag in train_flags(corpus, tmp_path) if flag != "--do_train"]
    assert "--do_train, --do_eval or both" in fails(flags, capsys)
    assert "nothing to evaluate" in fails([*flags, "--do_eval"], capsys)


def test_other_lengths_are_named(corpus, tmp_path, capsys):
    flags = train_flags(corpus, tmp_path)
    said = fails([*flags, "--max_predictions_per_seq=10"], capsys)
    assert "a.tfrecord" in said and "has 4 values" in said and "expected 10" in said
    said = fails([*flags, "--max_seq_length=64"], capsys)
    assert "has 24 values" in said and "expected 64" in said


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"vocab_size": 29}, "words.txt has 30 lines"),
        ({"max_position_embeddings": 20}, "max_seq_length is 24"),
        ({"hidden_size": 17}, "bert_config.json"),
    ],
)
def test_configurations_that_do_not_fit(corpus, tmp_path, capsys, changes, said):
    config = json.loads((corpus / "bert_config.json").read_text()) | changes
    (tmp_path / "bert_config.json").write_text(json.dumps(config))
    flags = [*train_flags(corpus, tmp_path / "out"), f"--bert_config_file={tmp_path}/bert_config.json"]
    assert said in fails(flags, capsys)


def test_another_vocabulary_is_refused(corpus, tmp_path, capsys):
    (tmp_path / "other.txt").write_text("\n".join([*VOCAB[:-1], "other"]) + "\n")
    said = fails([*train_flags(corpus, tmp_path / "out"), f"--vocab_file={tmp_path}/other.txt"], capsys)
    assert "other.txt is not the vocabulary that" in said and "words.txt" in said
    said = fails([*train_flags(corpus, tmp_path / "out"), "--nodo_lower_case"], capsys)
    assert "do_lower_case is False" in said


def test_a_vocabulary_longer_than_the_table_is_refused(corpus, golden_flags, tmp_path, capsys):
    """Records of the original say nothing about their vocabulary."""
    (tmp_path / "long.txt").write_text("\n".join([*VOCAB[:5], *map(str, range(508))]) + "\n")
    flags = [*golden_flags, f"--output_dir={tmp_path}/out", "--do_train", f"--vocab_file={tmp_path}/long.txt"]
    said = fails(flags, capsys)
    assert "long.txt has 513 lines" in said and "is 512" in said


def test_ids_beyond_the_table_end_the_run(tmp_path, corpus, capsys):
    example = {
        "input_ids": [2, *[30] * 10, 3, *[0] * 12],
        "input_mask": [1] * 12 + [0] * 12,
        "segment_ids": [0] * 24,
        "masked_lm_positions": [1, 2, 3, 4],
        "masked_lm_ids": [5, 6, 7, 8],
        "masked_lm_weights": [1.0] * 4,
        "next_sentence_labels": [0],
    }
    with RecordWriter(tmp_path / "bad.tfrecord") as writer:
        writer.write(encode_example(example))
    flags = [*train_flags(corpus, tmp_path / "out"), f"--input_file={tmp_path}/bad.tfrecord"]
    assert "bad.tfrecord: record 1: input_ids holds 30, expected 0 to 29" in fails(flags, capsys)
