"""train_translation and translate, as commands, on a task made by rule."""

import io
import json
import sys

import numpy as np
import pytest

from tests.support import ROOT
from tf_bert.commands import create_translation_data, score_translation, train_translation, translate
from tf_bert.serving import translations
from tf_bert.tokenization.subwords import load_subwords, train_subwords

SIZES = "--hidden_size=16 --num_hidden_layers=1 --num_attention_heads=2 --intermediate_size=16".split()
SHORT = "--batch_tokens=300 --learning_rate=1e-2 --num_warmup_steps=2 --max_position_embeddings=40".split()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """100 reversed digit strings, a tenth held out."""
    folder = tmp_path_factory.mktemp("data")
    flags = ["--task=reverse", "--num_pairs=100", "--subwords=char", "--heldout_fraction=0.1"]
    assert create_translation_data.main([*flags, f"--output_dir={folder}"]) == 0
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A Transformer after 12 steps with dropout, over the end of the first pass; evaluated and averaged."""
    folder = tmp_path_factory.mktemp("run")
    flags = ["--num_train_steps=12", "--save_checkpoints_steps=4", "--eval_every_steps=4", "--average_checkpoints=3"]
    flags += ["--model=transformer", f"--data_dir={data}", f"--output_dir={folder}", "--log_steps=4", *SIZES, *SHORT]
    assert train_translation.main(flags) == 0
    return folder, flags


def weights(prefix):
    from tf_bert.checkpoints.google import GoogleReader

    reader = GoogleReader(prefix)
    return {name: np.asarray(reader.read(name)) for name in reader.shapes}


def test_what_a_run_leaves(run):
    folder, _ = run
    log = [json.loads(line) for line in (folder / "training.jsonl").read_text().splitlines()]
    held = [line["eval"]["cross_entropy"] for line in log if "eval" in line]
    assert len(held) == 3 and held[2] < held[0] < 2.9
    assert [line["step"] for line in log if "loss" in line] == [4, 8, 12]
    assert all(line["tokens_per_second"] > 0 for line in log if "loss" in line)
    assert (folder / "best" / "model.ckpt.index").exists()
    results = dict(line.split(" = ") for line in (folder / "eval_results.txt").read_text().splitlines())
    assert results["global_step"] == "12"
    assert float(results["perplexity"]) == pytest.approx(np.exp(float(results["cross_entropy"])), rel=1e-5)


def test_the_export_is_the_mean_of_the_last_checkpoints(run):
    folder, _ = run
    parts = [weights(folder / f"model.ckpt-{step}") for step in (4, 8, 12)]
    exported = weights(folder / "export" / "model.ckpt")
    assert not any("adam" in name for name in exported)
    for name, value in exported.items():
        mean = np.mean([part[name].astype("float64") for part in parts], axis=0)
        np.testing.assert_allclose(value, mean, rtol=1e-6, atol=1e-8)
    assert any(np.abs(exported[name] - parts[2][name]).max() > 1e-3 for name in exported)


@pytest.mark.slow
def test_a_run_that_goes_on_equals_one_that_never_stopped(run, tmp_path):
    folder, flags = run
    for steps in (5, 12):
        again = [f"--num_train_steps={steps}" if "train_steps" in flag else flag for flag in flags]
        again = [f"--output_dir={tmp_path}" if flag.startswith("--output_dir") else flag for flag in again]
        assert train_translation.main([flag for flag in again if "average" not in flag]) == 0
    first, second = weights(folder / "model.ckpt-12"), weights(tmp_path / "model.ckpt-12")
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.mark.parametrize("model", ["seq2seq", "transformer"])
def test_all_batches_have_one_shape_on_a_tpu(model, data, tmp_path, monkeypatch):
    from tf_bert.training import fitting, translation

    shapes = {fitting: set(), translation: set()}  # of training and of evaluation
    for module, seen in shapes.items():

        def spied(*arguments, distribute=module.distribute, seen=seen, **options):
            batches = distribute(*arguments, **options)
            seen.update(tuple(part.shape) for part in batches.element_spec.values())
            return batches

        monkeypatch.setattr(module, "distribute", spied)
    monkeypatch.setattr(translation, "strategy_name", lambda strategy: "tpu")
    flags = [f"--model={model}", f"--data_dir={data}", f"--output_dir={tmp_path}", "--batch_tokens=300"]
    flags += ["--hidden_size=16", "--num_hidden_layers=1", "--num_train_steps=2"]
    assert train_translation.main(flags) == 0
    for seen in shapes.values():
        ((size, width),) = seen
        assert size == 300 // width


def test_early_stopping(data, tmp_path, capfd):
    """With a rate of 0 nothing gets better: the first evaluation is the best, and the third ends the run."""
    flags = ["--model=seq2seq", "--decoder=plain", f"--data_dir={data}", f"--output_dir={tmp_path}"]
    flags += ["--hidden_size=8", "--embedding_size=8", "--batch_tokens=600", "--learning_rate=0", "--log_steps=50"]
    flags += ["--num_train_steps=50", "--eval_every_steps=1", "--early_stopping=2"]
    assert train_translation.main(flags) == 0
    assert "STOPPING EARLY: 2 evaluations without a lower cross-entropy" in capfd.readouterr().err
    assert (tmp_path / "model.ckpt-3.index").exists() and (tmp_path / "export" / "config.json").exists()
    assert train_translation.main(flags) == 0
    assert "STOPPED EARLY before" in capfd.readouterr().err


def test_a_model_writes_what_it_was_taught(run, data, tmp_path, capsys):
    """Files and references: the lines come back in order, an empty one stays empty."""
    folder, _ = run
    sources = (data / "heldout.source.txt").read_text().splitlines()
    text, output, references = tmp_path / "in.txt", tmp_path / "out.txt", tmp_path / "ref.txt"
    text.write_text("\n".join([*sources[:3], "", "1狐2"]) + "\n", encoding="utf-8")
    references.write_text("a\nb\nc\n\nd\n", encoding="utf-8")
    flags = [f"--checkpoint={folder}/export", f"--input_file={text}", "--beam_size=2", "--max_length=30"]
    assert translate.main([*flags, f"--output_file={output}", f"--reference_file={references}"]) == 0
    lines = output.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 5 and lines[3] == "" and lines[0]
    assert "exactly right 20.00%" in capsys.readouterr().err
    # An ensemble of a model with itself is the model; n-best lists begin with the best.
    pair = f"--checkpoint={folder}/export,{folder}/export"
    assert translate.main([pair, *flags[1:]]) == 0
    assert capsys.readouterr().out.splitlines() == lines
    assert translate.main([*flags, "--n_best=2"]) == 0
    listed = [[part.strip() for part in line.split("|||")] for line in capsys.readouterr().out.splitlines()]
    assert [text for number, text, _ in listed if number == "0"][0] == lines[0]
    assert [number for number, *_ in listed] == ["0", "0", "1", "1", "2", "2", "3", "4", "4"]
    scores = [float(score) for number, _, score in listed if number == "1"]
    assert scores[0] >= scores[1]


def test_a_translation_is_a_line():
    assert translations.readable(object())("one\ntwo") == "one two"


def test_standard_input(run, monkeypatch, tmp_path, capsys):
    folder, _ = run
    monkeypatch.setattr(translate, "STANDARD_INPUT", "/dev/null")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    flags = [f"--checkpoint={folder}/export", "--max_length=8", "--beam_size=2"]
    assert translate.main(flags) == 0
    assert capsys.readouterr().out == ""
    lines = tmp_path / "lines"
    lines.write_text("12\n\n345\n")
    monkeypatch.setattr(translate, "STANDARD_INPUT", str(lines))
    assert translate.main(flags) == 0
    answers = capsys.readouterr().out.splitlines()
    assert len(answers) == 3 and answers[1] == ""
    # At a terminal each line is answered at once, and one that is too long ends nothing.
    terminal = io.StringIO("12\n" + "1" * 50 + "\n345\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    assert translate.main(flags) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [answers[0], answers[2]] and "has 51 pieces" in shown.err.replace("line 1 ", "")
    # Where a file is to be written, a terminal is read to its end as any input is.
    assert translate.main([*flags, f"--output_file={tmp_path}/out.txt"]) == 0
    assert (tmp_path / "out.txt").read_text().splitlines() == answers


def test_translate_takes_its_other_flags(run, tmp_path, capsys):
    folder, _ = run
    flags = [f"--checkpoint={folder}/export", "1234", "--beam_size=3"]

    def scored(*more):
        assert translate.main([*flags, "--n_best=2", *more]) == 0
        return [line.split(" ||| ") for line in capsys.readouterr().out.splitlines()]

    plain, short = scored(), scored("--max_length=2")  # two pieces do not cover a source of four
    assert [score for *_, score in scored("--length_penalty=2")] != [score for *_, score in plain]
    covered = scored("--max_length=2", "--coverage_penalty=0.5")
    assert [score for *_, score in covered] != [score for *_, score in short]
    assert min(len(text) for _, text, _ in scored("--min_length=12", "--max_length=14")) >= 11
    assert [row[1] for row in scored("--xla")] == [row[1] for row in plain]
    assert translate.main([*flags, "--copy_unknown"]) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("subwords", ["char", "wordpiece"])
def test_a_line_is_cut_off_to_what_the_model_can_read(subwords, data, tmp_path):
    """Unknown characters too, whose symbol would be several pieces if it were read again."""
    lines = [" ".join("1234567890")] * 9
    tokenizer = load_subwords(train_subwords(lambda: lines, str(tmp_path / "vocab"), subwords, 30))
    for line in ("1狐" * 10, "1 狐 2 " * 10, "12345" * 10, " 1" * 30):
        for most in (1, 5, 12):
            cut = translations.cut_off(line, tokenizer, most)
            assert line.startswith(cut) and len(tokenizer.tokenize_to_ids(cut)) <= most
            assert cut or most < 3


@pytest.mark.parametrize(
    "flags",
    [
        ["--score=additive", "--decoder=luong", "--reverse_source"],
        ["--score=concat", "--scheduled_sampling=linear", "--scheduled_sampling_slope=0.1"],
    ],
)
def test_the_settings_of_a_seq2seq(data, tmp_path, flags):
    flags = ["--model=seq2seq", f"--data_dir={data}", f"--output_dir={tmp_path}", "--num_train_steps=2", *flags]
    flags += ["--hidden_size=8", "--embedding_size=8", "--batch_tokens=600", "--num_warmup_steps=1"]
    assert train_translation.main(flags) == 0
    config = json.loads((tmp_path / "export" / "config.json").read_text())["config"]
    assert config["attention"]["score"] == flags[4].removeprefix("--score=")
    assert config["reverse_source"] == ("--reverse_source" in flags)


def test_an_early_stop_exports_the_best_weights(data, tmp_path):
    """A rate at which training gets worse: the best evaluation is not the last."""
    flags = ["--model=seq2seq", "--decoder=plain", f"--data_dir={data}", f"--output_dir={tmp_path}", "--clip_norm=0"]
    flags += ["--hidden_size=8", "--embedding_size=8", "--batch_tokens=600", "--learning_rate=3", "--log_steps=50"]
    flags += ["--num_train_steps=50", "--eval_every_steps=1", "--early_stopping=2", "--schedule=constant"]
    assert train_translation.main([*flags, "--num_warmup_steps=0"]) == 0
    exported, best = weights(tmp_path / "export" / "model.ckpt"), weights(tmp_path / "best" / "model.ckpt")
    from tf_bert.training.resume import find_checkpoints

    last = weights(find_checkpoints(tmp_path)[0])
    for name, value in exported.items():
        np.testing.assert_array_equal(value, best[name], err_msg=name)
    assert any(np.abs(value - last[name]).max() > 1e-3 for name, value in exported.items())


def test_translate_explains_mistakes(run, tmp_path, capsys):
    folder, _ = run
    export = f"--checkpoint={folder}/export"
    (tmp_path / "long.txt").write_text("12\n" + "1" * 50 + "\n")
    (tmp_path / "two.txt").write_text("1\n2\n")
    for flags, message in (
        (
            [export, f"--input_file={tmp_path}/long.txt"],
            "long.txt: line 2 has 51 pieces and an end symbol",
        ),
        ([export, "12", f"--reference_file={tmp_path}/two.txt"], "two.txt has 2 lines, and the text to translate 1"),
        ([export, "12", "--n_best=5"], "--n_best=5 needs a --beam_size of as many"),
        ([export, "12", f"--input_file={tmp_path}/two.txt"], "give a text or --input_file"),
        ([f"--checkpoint={tmp_path}", "12"], "holds no translation model: there is no config.json"),
        ([export, "12", "--max_length=41"], "max_length is 41, but the model has 40 positions"),
    ):
        assert translate.main(flags) != 0
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert message in error, error
    assert translate.main([export, f"--input_file={tmp_path}/long.txt", "--too_long=truncate", "--beam_size=2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_train_translation_explains_mistakes(data, run, tmp_path, capsys):
    out, known = f"--output_dir={tmp_path}", ["--model=transformer", f"--data_dir={data}"]
    for flags, message in (
        (["--model=seq2seq", f"--data_dir={data}", "--num_attention_heads=2"], "means nothing to --model=seq2seq"),
        (["--model=transformer"], "give --data_dir or --input_file"),
        ([*known, "--hidden_size=10", "--num_attention_heads=4"], "not a multiple of"),
        ([*known, *SIZES, "--max_position_embeddings=9"], "and max_position_embeddings is 9: a longer table or"),
        ([*known, "--early_stopping=2"], "early stopping needs evaluations"),
        ([f"--input_file={data}/vocab.model", "--model=transformer"], "is this a TFRecord file"),
    ):
        assert train_translation.main([*flags, out]) != 0
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert message in error, error


@pytest.mark.parametrize("sizes, side", [((15, 14), "source"), ((14, 15), "target")])
def test_records_of_a_larger_vocabulary_are_refused(data, sizes, side):
    from tf_bert.configs import TransformerConfig
    from tf_bert.data.translation.input import find_translation_records
    from tf_bert.training.translation import check_fit

    records = find_translation_records(f"{data}/train-*.tfrecord")
    check_fit(TransformerConfig(15), records)
    with pytest.raises(ValueError, match=f"train-0.* a vocabulary of 15 pieces .*{side}_vocab_size 14: ids would"):
        check_fit(TransformerConfig(sizes[0], source_vocab_size=sizes[1]), records)


def test_a_folder_of_something_else_or_damaged(run, data, tmp_path):
    import shutil

    from tf_bert.models.translator import is_translator, load_translator

    folder = tmp_path / "export"
    shutil.copytree(run[0] / "export", folder)
    assert is_translator(folder) and not is_translator(data) and not is_translator(tmp_path / "none")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "model": "bert"}))
    with pytest.raises(ValueError, match="is not of a translation model"):
        load_translator(folder)
    (folder / "config.json").write_text(json.dumps({**settings, "config": {**settings["config"], "vocab_size": 16}}))
    with pytest.raises(ValueError, match=r"vocab.model has 15 pieces, the model 16"):
        load_translator(folder)
    (folder / "config.json").write_text(json.dumps({**settings, "config": {**settings["config"], "end_id": 4}}))
    with pytest.raises(ValueError, match="end_id is 3 in .* and 4 in the model"):
        load_translator(folder)


def test_loaded_weights_are_the_exported_ones(run):
    from tf_bert.checkpoints.names import model_variables
    from tf_bert.models.translator import load_translator

    translator = load_translator(run[0] / "export")
    stored = weights(run[0] / "export" / "model.ckpt")
    for name, variable in model_variables(translator.model).items():
        np.testing.assert_array_equal(variable.numpy(), stored[name])
    assert translator.target_tokenizer is translator.source_tokenizer
    assert translator.source_tokenizer.vocab_size == load_subwords(run[0] / "export" / "vocab.model").vocab_size


def test_a_file_is_not_translated_into_itself(tmp_path, capsys):
    (tmp_path / "text").write_text("12\n")
    flags = [f"--checkpoint={tmp_path}", f"--input_file={tmp_path}/text", f"--output_file={tmp_path}/./text"]
    assert translate.main(flags) == 1
    assert "is to be written, but it is one of the input files" in capsys.readouterr().err
    assert (tmp_path / "text").read_text() == "12\n"
    assert translate.main([*flags[:2], f"--output_file={tmp_path}/new"]) == 1
    assert "holds no translation model" in capsys.readouterr().err


def test_scores_and_the_plot_by_length(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    for name, text in (("src", "12\n345\n"), ("ref", "21\n543\n"), ("good", "21\n543\n"), ("half", "21\n345\n")):
        (tmp_path / name).write_text(text)
    flags = [f"--{key}_file={tmp_path}/{name}" for key, name in (("source", "src"), ("reference", "ref"))]
    flags += [f"--hypothesis_file={tmp_path}/good,{tmp_path}/half", "--labels=good,half"]
    assert score_translation.main([*flags, f"--plot_file={tmp_path}/plot.png"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "exactly right 100.00%" in printed[0] and "exactly right 50.00%" in printed[1]
    assert printed[2].startswith("copying the source:") and "exactly right 0.00%" in printed[2]
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert score_translation.main([*flags[1:], f"--plot_file={tmp_path}/plot.png"]) == 2
    (tmp_path / "empty").write_text("")
    capsys.readouterr()
    assert score_translation.main([f"--{name}_file={tmp_path}/empty" for name in ("reference", "hypothesis")]) == 1
    assert "empty has no lines" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [["--model=transformer", *SIZES], ["--model=seq2seq", "--hidden_size=16"]])
def test_xla_changes_nothing(sizes, tmp_path):
    """Strings of one length, so that one shape is compiled."""
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{n}\t{str(n)[::-1]}\n" for n in range(1000, 1040)))
    assert create_translation_data.main([f"--input_file={pairs}", f"--output_dir={tmp_path}", "--subwords=char"]) == 0
    for name, how in (("plain", []), ("xla", ["--xla"])):
        flags = [f"--data_dir={tmp_path}", f"--output_dir={tmp_path / name}", "--num_train_steps=3"]
        flags += ["--batch_tokens=80", "--hidden_dropout_prob=0", "--num_warmup_steps=2", "--learning_rate=1e-2", *how]
        assert train_translation.main([*sizes, *flags]) == 0
    first, second = (weights(tmp_path / name / "model.ckpt-3") for name in ("plain", "xla"))
    for name, value in first.items():
        if "adam" not in name and "key/bias" not in name:
            np.testing.assert_allclose(value, second[name], atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_two_replicas_train_as_one(data, tmp_path):
    """Buckets, filled-up batches and all: without dropout the weights are equal."""
    import subprocess

    script = """
import sys
from tf_bert.training.distribution import set_logical_cpus
set_logical_cpus(2)
from tf_bert.commands import train_translation
sys.exit(train_translation.main(sys.argv[1:]))
"""
    for name in ("off", "mirrored"):
        flags = ["--model=transformer", f"--data_dir={data}", f"--output_dir={tmp_path}/{name}", *SIZES, *SHORT]
        flags += ["--num_train_steps=8", "--hidden_dropout_prob=0", f"--distribution_strategy={name}"]
        subprocess.run([sys.executable, "-c", script, *flags], check=True, cwd=ROOT)
    first, second = weights(tmp_path / "off" / "model.ckpt-8"), weights(tmp_path / "mirrored" / "model.ckpt-8")
    for name, value in first.items():
        if "adam" not in name and "key/bias" not in name:
            np.testing.assert_allclose(value, second[name], atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_two_workers_train_and_evaluate_together(data, tmp_path):
    """The weights are those of one device, and so are the figures of the workers' evaluation."""
    import os
    import subprocess

    from tests.training.test_replicas import free_ports

    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    flags = ["--model=transformer", f"--data_dir={data}", f"--output_dir={tmp_path}", *SIZES, *SHORT]
    flags += ["--num_train_steps=4", "--hidden_dropout_prob=0"]
    command = [sys.executable, "-m", "tf_bert.commands.main", "train_translation", *flags]
    processes = [
        subprocess.Popen(
            [*command, "--distribution_strategy=multi_worker_mirrored"],
            cwd=ROOT,
            env={**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}})},
            stderr=(tmp_path / f"errors-{i}.txt").open("w"),
        )
        for i in range(2)
    ]
    codes = [process.wait(timeout=600) for process in processes]
    errors = [(tmp_path / f"errors-{i}.txt").read_text() for i in range(2)]
    assert codes == [0, 0], errors
    assert not any("ran out of data" in said for said in errors)  # they know how many batches there are
    found = (tmp_path / "eval_results.txt").read_text()
    assert train_translation.main(flags) == 0  # trained already: evaluates alone
    figures = [
        dict(line.split(" = ") for line in text.splitlines())
        for text in (found, (tmp_path / "eval_results.txt").read_text())
    ]
    assert figures[0].keys() == figures[1].keys()
    for name, value in figures[0].items():
        assert float(value) == pytest.approx(float(figures[1][name]), rel=1e-4), name
    alone = [flag for flag in flags if "output_dir" not in flag]
    assert train_translation.main([*alone, f"--output_dir={tmp_path}/alone"]) == 0
    first, second = weights(tmp_path / "model.ckpt-4"), weights(tmp_path / "alone" / "model.ckpt-4")
    for name, value in first.items():
        if "adam" not in name and "key/bias" not in name:
            np.testing.assert_allclose(value, second[name], atol=1e-4, err_msg=name)
