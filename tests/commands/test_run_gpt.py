"""``tf-bert run_gpt``: every task from files to predictions, going on after a stop, and what cannot be."""

import io
import json
import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_bert.commands.main import main
from tf_bert.configs import GPTConfig
from tf_bert.data.finetuning.classification import InputExample
from tf_bert.data.finetuning.gpt_examples import sequences_of
from tf_bert.data.finetuning.gpt_sequences import SpecialTokens, classification_inputs
from tf_bert.models.gpt import GPT
from tf_bert.models.gpt_tasks import GPTClassifier
from tf_bert.models.pretrained import load_model, open_checkpoint
from tf_bert.tokenization.byte_pair_training import train_byte_pairs

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
PAIRS = [
    {"text": f"{a} film", "other": f"{b} film", "label": "yes" if a == b else "no", "number": float(a == b)}
    for a in ("good", "bad")
    for b in ("good", "bad")
] * 2
ROWS = {
    "pairs": PAIRS,
    "choices": [
        {"text": f"a {w} film", "choices": ["no", f"{w} it is", "who"], "label": 1, "a": "no", "b": w} for w in "xyz"
    ],
    "answers": [{"text": f"say {w}", "answer": w * 2} for w in "abcd"],
}
TRAIN = ["--do_train", "--num_train_epochs=1", "--train_batch_size=4", "--max_seq_length=24", "--learning_rate=0.01"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pre-trained model, and files of each kind."""
    path = tmp_path_factory.mktemp("gpt")
    train_byte_pairs(["good bad film"] * 3, 262).save(path / "pre")
    config = GPTConfig.gpt2(vocab_size=262, end_id=261, max_position_embeddings=32, **SIZES)
    keras.utils.set_random_seed(1)
    GPT(config).save_checkpoint(path / "pre")
    for name, rows in ROWS.items():
        lines = [json.dumps(row) + "\n" for row in rows]
        (path / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    reviews = "".join(f"{word} film,{word}\n" for word in ("good", "bad")) * 4
    (path / "reviews.csv").write_text("text,label\n" + reviews, encoding="utf-8")
    return path


def run(folder, task: str, files: str, *flags) -> int:
    """The exit status of the command; begins with the pre-trained model where no flag says otherwise."""
    splits = [f"--{split}_file={folder / files}" for split in ("train", "dev", "test")]
    given = [f"--task={task}", f"--format={files.rpartition('.')[2]}", *splits, *map(str, flags)]
    if not any(flag.startswith("--init_checkpoint") for flag in given):
        given.append(f"--init_checkpoint={folder / 'pre'}")
    return main(["run_gpt", *[flag for flag in given if flag != "--init_checkpoint="]])


def results(path) -> dict[str, float]:
    lines = (path / "eval_results.txt").read_text(encoding="utf-8").splitlines()
    return {key: float(value) for key, value in (line.split(" = ") for line in lines)}


def table(path) -> np.ndarray:
    lines = (path / "test_results.tsv").read_text(encoding="utf-8").splitlines()
    return np.array([[float(value) for value in line.split("\t")] for line in lines])


@pytest.fixture(scope="module")
def reviews(folder):
    """A run that has learned which reviews are good."""
    out = folder / "reviews"
    more = ["--num_train_epochs=20", "--do_eval", "--do_predict", "--init_checkpoint=" + str(folder / "pre")]
    assert run(folder, "classification", "reviews.csv", f"--output_dir={out}", *TRAIN, *more) == 0
    return out


def test_classification(folder, reviews):
    figures = results(reviews)
    assert figures["eval_accuracy"] == 1.0 and figures["global_step"] == 40
    probabilities = table(reviews)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    model = GPTClassifier.from_checkpoint(reviews)
    assert not model.load_report.missing and (model.num_labels, model.lm_weight) == (2, 0.5)
    tokenizer, special = open_checkpoint(reviews).tokenizer(), SpecialTokens.of(262)
    rows = [sequences_of("classification", InputExample("", t), tokenizer, special, 24) for t in ("good film", "x")]
    assert rows[0] == [262, *tokenizer.tokenize_to_ids("good film"), 264]
    logits = model.predict(classification_inputs(rows, 24), verbose=0)["logits"][0]
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(probabilities[0], expected, rtol=1e-4)
    assert expected[1] > 0.5  # "bad" comes before "good"


def test_what_is_there_is_evaluated_and_begun_with(folder, reviews, tmp_path, capsys):
    """The folder of a run says its sizes, labels and task; it is also what another run begins with."""
    flags = [f"--output_dir={reviews}", "--init_checkpoint=", "--max_seq_length=24"]
    (reviews / "eval_results.txt").unlink()
    assert run(folder, "classification", "reviews.csv", "--do_eval", *flags) == 0
    assert results(reviews)["eval_accuracy"] == 1.0
    begun = [f"--output_dir={tmp_path}", f"--init_checkpoint={reviews}", "--learning_rate=0", "--do_eval"]
    assert run(folder, "classification", "reviews.csv", *TRAIN, *begun) == 0
    assert results(tmp_path)["eval_accuracy"] == 1.0  # the head came along
    capsys.readouterr()
    assert run(folder, "similarity", "pairs.jsonl", "--text_pair_column=other", "--do_eval", *flags) == 1
    assert "was trained for classification, not for similarity" in capsys.readouterr().err


def test_pairs_in_both_orders_and_a_number(folder, tmp_path):
    flags = [*TRAIN, "--do_predict", "--text_pair_column=other", "--label_column=number", "--kind=regression"]
    assert run(folder, "similarity", "pairs.jsonl", f"--output_dir={tmp_path}", "--do_eval", *flags) == 0
    assert {"eval_loss", "eval_pearson", "eval_spearman"} <= set(results(tmp_path))
    scores = table(tmp_path)[:, 0]
    np.testing.assert_allclose(scores[1], scores[2], atol=1e-5)  # good and bad, bad and good
    assert GPTClassifier.from_checkpoint(tmp_path).task == "similarity"


@pytest.mark.slow
def test_entailment_and_choices(folder, tmp_path):
    flags = [*TRAIN, "--do_eval", "--do_predict"]
    pairs = [f"--output_dir={tmp_path / 'pairs'}", "--text_pair_column=other"]
    assert run(folder, "entailment", "pairs.jsonl", *flags, *pairs, "--precision=bfloat16") == 0
    assert table(tmp_path / "pairs").shape == (8, 2)
    few = ["--train_batch_size=3", "--num_train_epochs=30", f"--output_dir={tmp_path / 'choices'}"]
    assert run(folder, "multiple_choice", "choices.jsonl", *flags, *few, "--choice_columns=choices") == 0
    assert table(tmp_path / "choices").shape == (3, 3) and results(tmp_path / "choices")["eval_accuracy"] == 1.0


def test_answers(folder, tmp_path, capsys):
    """They are learned by heart; what stands in the prompt has no loss; and ``generate`` gives them too."""
    flags = [*TRAIN, "--num_train_epochs=150", "--learning_rate=0.02", "--do_eval", "--do_predict"]
    flags += ["--max_answer_length=6", f"--output_dir={tmp_path}", "--max_seq_length=16"]
    assert run(folder, "answers", "answers.jsonl", *flags) == 0
    found = [json.loads(line) for line in (tmp_path / "test_results.jsonl").read_text().splitlines()]
    assert found == [{"prompt": row["text"], "answer": row["answer"]} for row in ROWS["answers"]]
    figures = results(tmp_path)
    assert figures["eval_accuracy"] == 1.0 and figures["eval_perplexity"] == pytest.approx(np.exp(figures["eval_loss"]))
    model, tokenizer = load_model(tmp_path), open_checkpoint(tmp_path).tokenizer()
    losses = []
    for row in ROWS["answers"]:
        prompt, answer = (tokenizer.tokenize_to_ids(text) for text in (row["text"] + "\n", row["answer"]))
        ids = np.array([[*prompt, *answer, 261]])
        logits = np.array(model({"input_ids": ids})["logits"][0], np.float64)
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        losses += [-log_probs[t - 1, ids[0, t]] for t in range(len(prompt), ids.shape[1])]
    assert figures["eval_loss"] == pytest.approx(np.mean(losses), rel=1e-3, abs=1e-6)
    capsys.readouterr()
    assert main(["generate", f"--checkpoint={tmp_path}", "--max_length=6", "say b\n"]) == 0
    assert capsys.readouterr().out == "bb\n"


@pytest.mark.slow
def test_a_run_goes_on_as_if_it_had_never_stopped(folder, tmp_path):
    """With dropout, in micro-batches: killed after step 4, it comes to the same weights."""
    flags = [*TRAIN, "--gradient_accumulation_steps=2", "--save_checkpoints_steps=2", "--num_train_epochs=3"]
    assert run(folder, "classification", "reviews.csv", *flags, f"--output_dir={tmp_path / 'whole'}") == 0
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    for path in (tmp_path / "killed").glob("model.ckpt-6*"):
        path.unlink()
    note = 'model_checkpoint_path: "model.ckpt-4"\nall_model_checkpoint_paths: "model.ckpt-4"\n'
    (tmp_path / "killed/checkpoint").write_text(note)
    assert run(folder, "classification", "reviews.csv", *flags, f"--output_dir={tmp_path / 'killed'}") == 0
    whole, killed = (GPTClassifier.from_checkpoint(tmp_path / name).get_weights() for name in ("whole", "killed"))
    for one, other in zip(whole, killed, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("task", "text", "flags", "message"),
    [
        ("classification", "text,label\nx,a\n", [], "nothing else to do"),
        ("entailment", "text,label\nx,a\n", TRAIN, "needs --text_pair_column"),
        ("classification", "text,label\nx,a\n", [*TRAIN, "--text_pair_column=label"], "reads one text"),
        ("classification", "text,label\nx,a\n", [*TRAIN, "--choice_columns=label"], "needs --choice_columns, and no"),
        ("multiple_choice", "text,label\nx,a\n", TRAIN, "needs --choice_columns"),
        ("answers", "text,answer\nx,a\n", [*TRAIN, "--kind=regression"], "takes neither --labels nor --kind"),
        ("classification", "text,label\nx,a\ny\n", TRAIN, "bad.csv: line 3: found 1 columns, expected 2"),
        ("classification", b"text,label\nx\xff,a\n", TRAIN, "bad.csv"),
        ("classification", "text,label\n", TRAIN, "bad.csv has no rows"),
        ("classification", "text,label\nx,a\n", [*TRAIN, "--num_train_epochs=0.1"], "less than one step"),
        ("classification", "text,label\nx,a\n", [*TRAIN, "--max_seq_length=64"], "64, and .* context of 32 positions"),
        ("classification", "text,label\nx,a\n", ["--do_eval", "--labels=a,b", TRAIN[3]], "was not fine-tuned"),
        ("classification", "text,label\nx,a\n", [*TRAIN, "--init_checkpoint="], "missing --init_checkpoint"),
        ("classification", "text,label\nx,a\n", [*TRAIN, "--init_checkpoint=nowhere"], "no checkpoint nowhere"),
        ("classification", "text,label\nx,z\n", [*TRAIN, "--labels=a,b", "--train_batch_size=1"], "'z' is not known"),
        ("similarity", "text,label\nx,a\n", [*TRAIN, "--text_pair_column=b"], "line 2: .* named 'b'"),
        ("answers", "text,answer\n ,a\n", TRAIN, "bad.csv: line 2: the prompt is empty"),
        ("answers", "text,label\nx,a\n", TRAIN, "line 2: found the columns text, label, .* 'answer'"),
        (
            "answers",
            f"text,answer\nx,{'y' * 30}\n",
            [*TRAIN, "--train_batch_size=1"],
            "line 2: the answer has 31 tokens with its end and leaves no room in 24",
        ),
        (
            "multiple_choice",
            f"text,a,b,label\nx,{'y' * 30},z,0\n",
            [*TRAIN, "--choice_columns=a,b", "--train_batch_size=1"],
            "line 2: an answer of 30 tokens does not fit 24",
        ),
        (
            "multiple_choice",
            "text,a,b,label\nx,y,z,0\nx,y,,0\n",
            [*TRAIN, "--choice_columns=a,b", "--train_batch_size=1"],
            "line 3: found 1 choices, and the first row has 2",
        ),
    ],
)
def test_mistakes_are_named(folder, task, text, flags, message, tmp_path, capsys):
    write(tmp_path / "bad.csv", text)
    given = [flag for flag in flags if flag.startswith("--init_checkpoint")] or [f"--init_checkpoint={folder / 'pre'}"]
    flags = [flag for flag in flags if not flag.startswith("--init_checkpoint")]
    files = [f"--{split}_file={tmp_path / 'bad.csv'}" for split in ("train", "dev")]
    given = [flag for flag in given if flag != "--init_checkpoint="]
    assert main(["run_gpt", f"--task={task}", f"--output_dir={tmp_path / 'out'}", *files, *flags, *given]) in (1, 2)
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert "Traceback" not in error


def lines_in(monkeypatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_predict_and_export(folder, reviews, tmp_path, monkeypatch, capsys):
    """All three say what the command wrote as its predictions, also of a .keras file."""
    expected = table(reviews)[:2]
    kept = tmp_path / "kept/model.keras"
    assert main(["convert", str(reviews), str(kept)]) == 0
    capsys.readouterr()
    for place, names in ((reviews, ["bad", "good"]), (kept, ["0", "1"])):  # the labels are beside the run alone
        lines_in(monkeypatch, "good film\nbad film\n")
        assert main(["predict", str(place)]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["label"] for line in found] == names[::-1]
        np.testing.assert_allclose([list(line["probabilities"].values()) for line in found], expected, rtol=1e-4)
    assert main(["export", str(reviews), str(tmp_path / "served")]) == 0
    assert "GPTClassifier with its tokenizer" in capsys.readouterr().out
    served = tf.saved_model.load(str(tmp_path / "served"))
    outputs = served.signatures["serving_default"](texts=tf.constant(["good film", "bad film", "good film" * 9]))
    assert outputs["label"].numpy().tolist()[:2] == [b"good", b"bad"]
    assert outputs["truncated"].numpy().tolist() == [False, False, True]
    np.testing.assert_allclose(outputs["probabilities"][:2], expected, rtol=1e-4)
    assert main(["generate", f"--checkpoint={reviews}", "a"]) == 1
    assert main(["export", str(reviews), str(tmp_path / "model.onnx")]) == 1
    assert main(["predict", str(folder / "pre")]) == 1
    assert main(["convert", str(reviews), str(tmp_path / "hf"), "--format=huggingface"]) == 1
    error = capsys.readouterr().err
    for said in ("tf-bert predict reads it", "and no onnx", "was not fine-tuned to classify", "write a .keras file"):
        assert said in error
