"""The README's commands and code run. Its section on checkpoints is tested in test_formats.py."""

import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest

from tests.support import ROOT
from tf_bert.data.text import builtin_corpus
from tf_bert.tokenization import BasicTokenizer

README = (ROOT / "README.md").read_text(encoding="utf-8")
# What takes minutes is cut short here; `make pretrain` itself is run by .ci/run.
SHORTER = {
    "--num_train_steps=3600": "--num_train_steps=2",
    "--num_warmup_steps=180": "--num_warmup_steps=1",
    "--dupe_factor=5": "--dupe_factor=1",
}


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return [part.split("```")[0] for part in text.split(f"```{language}\n")[1:]]


def test_pretraining_step_by_step(tmp_path, monkeypatch, capsys):
    """Each command as it is printed, but on the language reference alone and with two steps of training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(builtin_corpus, "library_docstrings", dict)
    (script,) = blocks(section("Pre-train on your own text"), "bash")
    for line in script.strip().splitlines():
        for long, short in SHORTER.items():
            line = line.replace(long, short)
        words = shlex.split(line)
        if words[0] == "echo":
            Path(words[3]).write_text(words[1], encoding="utf-8")
        else:
            assert words[0] == "tf-bert"
            command = importlib.import_module(f"tf_bert.commands.{words[1]}")
            assert command.main(words[2:]) == 0, capsys.readouterr().err
    assert "%" in capsys.readouterr().out


def test_packed_shards_on_beam(tmp_path, monkeypatch, capsys):
    """With little text, one worker in this process, one step; without Beam on one machine, which makes the same."""
    monkeypatch.chdir(tmp_path)
    words = [f"w{i}" for i in range(50)]
    text = "\n\n".join("\n".join(" ".join(words[k + i : k + i + 6]) for i in range(4)) for k in range(40))
    Path("train.txt").write_text(text, encoding="utf-8")
    Path("vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]), encoding="utf-8")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = {"vocab_size": 55, "max_position_embeddings": 128, "type_vocab_size": 2} | sizes
    Path("bert_config.json").write_text(json.dumps(config), encoding="utf-8")
    shorter = {"--num_shards=64": "--num_shards=2", "--num_workers=8": "--dupe_factor=2"}
    shorter["--do_train "] = "--do_train --num_train_steps=1 --num_warmup_steps=0 --train_batch_size=2 "
    if importlib.util.find_spec("apache_beam") is None:
        shorter["--runner=DirectRunner "] = ""
    (script,) = blocks(section("More text than one machine holds, longer rows"), "bash")
    for line in script.strip().splitlines():
        for long, short in shorter.items():
            line = line.replace(long, short)
        words = shlex.split(line)
        command = importlib.import_module(f"tf_bert.commands.{words[1]}")
        assert command.main(words[2:]) == 0, capsys.readouterr().err
    assert "global batch 2 x 512 tokens" in capsys.readouterr().err


def test_the_tokenizers_code(tmp_path, monkeypatch):
    """With a vocabulary of its own."""
    monkeypatch.chdir(tmp_path)
    pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] the def statement a sentence another one .".split()
    Path("vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    (code,) = blocks(section("Tokenizers"), "python")
    exec(code, {})


def test_the_model_code():
    """With a smaller model, and batches of the names that it takes."""
    import keras
    import numpy as np

    (code,) = blocks(section("Pre-train on your own text"), "python")
    assert "BertConfig(vocab_size=30522)" in code
    small = "BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)"
    batches = {
        "input_ids": np.ones((4, 6), "int32"),
        "masked_lm_positions": np.ones((4, 2), "int32"),
        "masked_lm_ids": np.ones((4, 2), "int32"),
        "masked_lm_weights": np.ones((4, 2), "float32"),
        "next_sentence_labels": np.ones((4, 1), "int32"),
    }
    names = {"batches": batches}
    exec(code.replace("BertConfig(vocab_size=30522)", small), names)
    assert isinstance(names["model"], keras.Model)


def test_every_command_is_in_the_readme_or_its_overview():
    from tf_bert.commands.main import overview

    for line in README.splitlines():
        if line.startswith(("tf-bert ", "python tools/")):
            name = line.split()[1].removeprefix("tools/").removesuffix(".py")
            assert f"  {name} " in overview(), line


@pytest.fixture
def finetuning_folder(tmp_path):
    """Where the commands of "Fine-tune, predict, serve" run: the examples, and a tiny model as the published one."""
    from tf_bert import BertConfig, BertForPreTraining, FullTokenizer
    from tf_bert.tokenization import save_vocab

    folder = tmp_path
    examples = ROOT / "examples"
    (folder / "examples").symlink_to(examples)
    text = " ".join(path.read_text(encoding="utf-8") for path in sorted((examples / "data").iterdir()))
    pieces = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *BasicTokenizer().tokenize(text)])
    save_vocab(list(pieces), folder / "vocab.txt")
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    config = BertConfig(len(pieces), **sizes, max_position_embeddings=128, type_vocab_size=2)
    model = BertForPreTraining(config, name="model")
    path = folder / "models/uncased_L-2_H-128_A-2"
    model.save_checkpoint(path, tokenizer=FullTokenizer(folder / "vocab.txt", do_lower_case=True))
    return folder


@pytest.mark.slow
def test_finetuning_step_by_step(finetuning_folder, monkeypatch, capsys):
    """Each command as it is printed, but for one epoch, and then the code: it takes what the commands left."""
    pytest.importorskip("tensorflow_text")
    monkeypatch.chdir(finetuning_folder)
    text = section("Fine-tune, predict, serve")
    for line in filter(None, "".join(blocks(text, "bash")).splitlines()):
        words = shlex.split(re.sub(r"--num_train_epochs=\d+", "--num_train_epochs=1", line))
        assert words[0] == "tf-bert"
        if words[-1].endswith(".onnx") and importlib.util.find_spec("tf2onnx") is None:
            continue
        if "<" in words:
            monkeypatch.setattr("sys.stdin", open(words[-1], encoding="utf-8"))
            words = words[: words.index("<")]
        command = importlib.import_module(f"tf_bert.commands.{words[1]}")
        assert command.main(words[2:]) == 0, (line, capsys.readouterr().err)
    capsys.readouterr()
    serving, tasks = blocks(text, "python")
    exec(serving, {})
    said = capsys.readouterr().out
    assert "good" in said or "bad" in said
    names = {}
    exec(tasks.replace("epochs=20", "epochs=1, verbose=0").replace("fit(texts)", "fit(texts, verbose=0)"), names)
    assert names["model"].predict(["A film."])["logits"].shape == (1, 2)


@pytest.mark.slow
def test_gpt_step_by_step(tmp_path, monkeypatch, capsys):
    """Each command as it is printed, but with two steps of training, on the language reference alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(builtin_corpus, "library_docstrings", dict)
    Path("examples").symlink_to(ROOT / "examples")
    (first, *_) = blocks(section("Pre-train on your own text"), "bash")[0].strip().splitlines()
    assert importlib.import_module("tf_bert.commands.prepare_corpus").main(shlex.split(first)[2:]) == 0
    for line in "".join(blocks(section("GPT"), "bash")).strip().splitlines():
        line = re.sub(r"(num_train_steps=)\d+", r"\g<1>2", line)
        line = re.sub(r"(num_train_epochs=)\d+", r"\g<1>1", re.sub(r"(max_length=)\d\d\b", r"\g<1>3", line))
        words = shlex.split(line)
        if "<" in words:
            monkeypatch.setattr("sys.stdin", open(words[-1], encoding="utf-8"))
            words = words[: words.index("<")]
        if words[0] == "echo":
            Path(words[3]).write_text(words[1], encoding="utf-8")
        else:
            command = importlib.import_module(f"tf_bert.commands.{words[1]}")
            assert not command.main(words[2:]), (line, capsys.readouterr().err)
    said = capsys.readouterr().out
    assert "perplexity_per_byte" in said and "eval_accuracy" in said and "eval_perplexity" in said
    assert Path("gpt-text-served/saved_model.pb").exists() and Path("gpt-labels-served/saved_model.pb").exists()
    (code,) = blocks(section("GPT"), "python")
    exec(code, {})
    assert Path("gpt-hf/model.safetensors").exists()


@pytest.mark.slow
def test_a_word_in_two_contexts(tmp_path, monkeypatch, capsys):
    """Each command as it is printed, but with one step of training, two texts of each sense, and without compiling."""
    import tensorflow as tf

    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    Path("examples/data").mkdir(parents=True)
    for path in (ROOT / "examples/data").glob("*.t*"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = lines[::7] if path.name == "senses.tsv" else lines[:60]
        Path("examples/data", path.name).write_text("".join(kept), encoding="utf-8")
    tf.config.run_functions_eagerly(True)
    try:
        for line in "".join(blocks(section("A word in two contexts"), "bash")).strip().splitlines():
            line = re.sub(r"(num_train_steps=)\d+", r"\g<1>1", line)
            words = shlex.split(line)
            if words[0] == "echo":
                Path(words[3]).write_text(words[1], encoding="utf-8")
            else:
                command = importlib.import_module(f"tf_bert.commands.{words[1]}")
                assert not command.main(words[2:]), (line, capsys.readouterr().err)
    finally:
        tf.config.run_functions_eagerly(False)
    said = capsys.readouterr().out
    assert said.count("nearest right") == 1 and len(re.findall("crane +static", said)) == 3
    assert Path("senses.png").exists()


@pytest.mark.slow
def test_from_seq2seq_to_the_transformer(tmp_path, monkeypatch, capsys):
    """Each command as it is printed, on few pairs, with small models and one step, and without compiling."""
    import tensorflow as tf

    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    tf.config.run_functions_eagerly(True)
    try:
        for line in "".join(blocks(section("From Seq2Seq to the Transformer"), "bash")).strip().splitlines():
            line = re.sub(r"(size=)\d+", r"\g<1>8", line)
            line = re.sub(r"(num_pairs|fraction|layers|batch_tokens)=[\d.]+", _small, line)
            line = re.sub(r"(steps=)\d+", r"\g<1>1", line)
            words = shlex.split(line)
            if words[1] == "translate":
                words.append("--max_length=2")
            command = importlib.import_module(f"tf_bert.commands.{words[1]}")
            assert command.main(words[2:]) == 0, line + capsys.readouterr().err
    finally:
        tf.config.run_functions_eagerly(False)
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", README):
        assert (ROOT / picture).exists(), picture


def _small(match) -> str:
    return f"{match[1]}={ {'num_pairs': 30, 'fraction': 0.1, 'layers': 1, 'batch_tokens': 500}[match[1]] }"
