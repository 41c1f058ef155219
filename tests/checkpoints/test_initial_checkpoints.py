"""Weights to begin with, or to predict with, in every format; what lies beside them; what does not fit."""

import json

import numpy as np
import pytest

from tf_bert import BertClassifier, BertConfig, BertForPreTraining, FullTokenizer
from tf_bert.commands import run_classifier
from tf_bert.data.finetuning.label_list import check_labels, note_labels, noted_labels
from tf_bert.tokenization import save_vocab
from tf_bert.training import initial
from tf_bert.training.finetuning import FineTuning

CONFIG = BertConfig(12, 8, 1, 2, 16, max_position_embeddings=16, type_vocab_size=2)
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] Sun Rain sun rain is it not".split()


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A pre-trained model, cased, in every format: format -> path."""
    folder = tmp_path_factory.mktemp("checkpoints")
    save_vocab(WORDS, folder / "vocab.txt")
    tokenizer = FullTokenizer(folder / "vocab.txt", do_lower_case=False)
    model = BertForPreTraining(CONFIG, name="model")
    places = {"google": "g", "huggingface": "h", "keras": "k/model.keras", "weights": "w/model.weights.h5"}
    for format in ("keras", "weights"):
        (folder / places[format]).parent.mkdir()
    made = {name: model.save_checkpoint(folder / path, name, tokenizer) for name, path in places.items()}
    return {"model": model, "folder": folder} | made


@pytest.mark.parametrize("format", ["google", "huggingface", "keras", "weights"])
def test_a_run_begins_with_weights_of_any_format(checkpoints, format, tmp_path, capsys):
    task = FineTuning(lambda: BertClassifier(CONFIG, num_labels=3), {"input_ids": np.ones([64, 2], np.int32)})
    model = task.build()
    state = task.begin(model, str(tmp_path), checkpoints[format])
    assert state.step == 0 and "steps and moments begin at 0" in capsys.readouterr().err
    ours, theirs = model.bert.get_embedding_table(), checkpoints["model"].bert.get_embedding_table()
    np.testing.assert_array_equal(ours, theirs)
    assert int(model.optimizer.iterations) == 0
    with pytest.raises(ValueError, match="has no value for output_.*train first"):
        initial.load_for_evaluation(model, tmp_path, checkpoints[format])


def test_a_prefix_without_a_configuration_beside_it(checkpoints, tmp_path):
    for path in checkpoints["folder"].glob("g/bert_model.ckpt*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert initial.open_initial(tmp_path / "bert_model.ckpt", CONFIG).format == "google"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        initial.open_initial(tmp_path / "nowhere" / "bert_model.ckpt", CONFIG)


def test_another_activation_is_refused(checkpoints):
    other = BertConfig.from_dict(CONFIG.to_dict() | {"hidden_act": "gelu_erf"})
    with pytest.raises(ValueError, match="trained with hidden_act 'gelu'.*has 'gelu_erf'"):
        initial.open_initial(checkpoints["huggingface"], other)


def test_what_lies_beside_the_checkpoint_needs_no_flags(checkpoints, tmp_path, capsys):
    (tmp_path / "train.csv").write_text("text,label\n" + "Sun is,fair\nRain is,foul\n" * 4)
    (tmp_path / "test.csv").write_text("text\nSun\nrain\n")
    flags = ["--task_name=csv", f"--data_dir={tmp_path}", "--max_seq_length=8", "--train_batch_size=4"]
    init, out = f"--init_checkpoint={checkpoints['huggingface']}", f"--output_dir={tmp_path}/run"
    assert run_classifier.main([*flags, "--do_train", "--num_train_epochs=1", init, out]) == 0
    noted = json.loads((tmp_path / "run/bert_config.json").read_text())
    assert noted["architectures"] == ["BertForSequenceClassification"] and noted["do_lower_case"] is False
    assert noted_labels(tmp_path / "run/model.ckpt-2")["labels"] == ["fair", "foul"]
    assert (tmp_path / "run/vocab.txt").read_text().split() == WORDS
    first = "train: 8 examples, the first: [CLS] Sun is [SEP]"
    assert first in capsys.readouterr().err
    assert run_classifier.main([*flags, "--do_predict", out]) == 0
    alone = [*flags, "--do_predict", f"--init_checkpoint={tmp_path}/run", f"--output_dir={tmp_path}/other"]
    assert run_classifier.main(alone) == 0
    ours, theirs = (np.loadtxt(tmp_path / name / "test_results.tsv") for name in ("other", "run"))
    np.testing.assert_array_equal(ours, theirs)
    model = BertClassifier.from_checkpoint(tmp_path / "run")
    assert model.num_labels == 2 and not model.load_report.missing

    capsys.readouterr()
    assert run_classifier.main([*alone, "--do_lower_case"]) == 1
    assert "notes do_lower_case False, and True is asked for: leave it out" in capsys.readouterr().err
    assert run_classifier.main([*flags, "--do_train", f"--output_dir={tmp_path}/third"]) == 2
    assert "missing --bert_config_file and --vocab_file, and there is no checkpoint" in capsys.readouterr().err


def test_a_list_of_labels_that_is_damaged_or_changed(tmp_path):
    note_labels(tmp_path, "single", ["a", "b"], max_seq_length=8)
    noted = noted_labels(None, tmp_path / "sub/model.ckpt", tmp_path)
    assert noted["max_seq_length"] == 8 and noted["where"] == str(tmp_path)
    check_labels(noted, "single", ["a", "b"])
    with pytest.raises(ValueError, match="labels a, b; now they are single: b, a"):
        check_labels(noted, "single", ["b", "a"])
    (tmp_path / "label_list.json").write_text('{"kind": "single", "labels": [1]}')
    with pytest.raises(ValueError, match="label_list.json is damaged.*a list of texts"):
        noted_labels(tmp_path)
