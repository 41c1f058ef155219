"""A run that was stopped goes on as if nothing had happened; checkpoints are whole, few and the original's."""

import dataclasses
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support import ROOT
from tests.support.killed_run import CONFIG, MOMENTS, OPTIONS
from tf_bert import progress
from tf_bert.checkpoints.names import model_variables
from tf_bert.configs import BertConfig
from tf_bert.data.pretraining.input import find_records
from tf_bert.data.tfrecord.files import RecordWriter, encode_example
from tf_bert.trainer.execution import StepFunction
from tf_bert.trainer.trainer import NonFiniteLossError, Trainer
from tf_bert.training import callbacks, resume
from tf_bert.training.callbacks import ReportTraining, TokenCounter, keep_log, read_log
from tf_bert.training.options import TrainingOptions
from tf_bert.training.pretraining import Pretraining, pretrain
from tf_bert.training.resume import RunState, restore_run, save_run
from tf_bert.training.stopping import Stopped

RATES = ("steps_per_second", "tokens_per_second")


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("data") / "records")
    rng = np.random.default_rng(1)
    with RecordWriter(path) as writer:
        for _ in range(30):
            length = rng.integers(8, 17)
            real = np.arange(16) < length
            writer.write(
                encode_example(
                    {
                        "input_ids": np.where(real, rng.integers(1, 100, 16), 0),
                        "input_mask": real.astype(int),
                        "segment_ids": (real & (np.arange(16) >= length // 2)).astype(int),
                        "masked_lm_positions": rng.integers(1, length, 4),
                        "masked_lm_ids": rng.integers(1, 100, 4),
                        "masked_lm_weights": (np.arange(4) < rng.integers(1, 5)).astype(np.float32),
                        "next_sentence_labels": rng.integers(0, 2, 1),
                    }
                )
            )
    return path


def options(**changes) -> TrainingOptions:
    return dataclasses.replace(OPTIONS, **changes)


def bits(folder: Path, step: int) -> dict[str, bytes]:
    reader = tf.train.load_checkpoint(str(folder / f"model.ckpt-{step}"))
    return {name: reader.get_tensor(name).tobytes() for name in reader.get_variable_to_shape_map()}


def without_rates(lines: list[dict]) -> list[dict]:
    return [{key: value for key, value in line.items() if key not in RATES} for line in lines]


def run_and_kill(records: str, folder: Path, *moments: str) -> str:
    command = [sys.executable, str(ROOT / "tests/support/killed_run.py"), records, str(folder), *moments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_equal_runs(folder: Path, uninterrupted: Path) -> None:
    last = OPTIONS.num_train_steps
    assert bits(folder, last) == bits(uninterrupted, last)
    assert without_rates(read_log(folder)) == without_rates(read_log(uninterrupted))
    rest = [
        json.loads((run / f"model.ckpt-{last}{resume.RESUME_SUFFIX}").read_text()) for run in (folder, uninterrupted)
    ]
    assert rest[0] == rest[1]
    files = {name for name in os.listdir(folder) if not name.startswith("events.")}
    assert files == {name for name in os.listdir(uninterrupted) if not name.startswith("events.")}


@pytest.fixture(scope="module")
def uninterrupted(records, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    run_and_kill(records, folder)
    return folder


def test_killed_runs_end_with_the_same_bits(records, uninterrupted, tmp_path):
    """Between checkpoints, with half a checkpoint written, before it is noted, and while an old one is removed."""
    said = run_and_kill(records, tmp_path, "step:8", "rename:4", "note:2", "remove:1")
    assert said.count("killed") == 4
    check_equal_runs(tmp_path, uninterrupted)
    assert len(read_log(tmp_path)) == 8


@pytest.mark.slow
def test_a_killed_run_with_everything_ends_with_the_same_bits(records, tmp_path):
    """Float16 with its loss scale, micro-batches, several steps in a call, evaluations, all threads."""
    for name, moments in (("whole", []), ("killed", ["step:3", "note:3"])):
        said = run_and_kill(records, tmp_path / name, "everything", *moments)
        assert said.count("killed") == len(moments)
    check_equal_runs(tmp_path / "killed", tmp_path / "whole")
    log = read_log(tmp_path / "killed")
    assert [line["step"] for line in log if "eval" in line] == [6, 12, 18, 24]
    kept = json.loads((tmp_path / "killed" / f"model.ckpt-24{resume.RESUME_SUFFIX}").read_text())["optimizer"]
    assert kept["step_counter"] == 24  # of the loss scale, so that it rises when it would have risen


@pytest.mark.slow
def test_a_run_on_two_replicas_that_is_killed_ends_with_the_same_bits(records, tmp_path):
    """Each replica has dropout masks of its own, and goes on with them."""
    for name, moments in (("whole", []), ("killed", ["step:8", "rename:4", "execution:9"])):
        said = run_and_kill(records, tmp_path / name, "mirrored", *moments)
        assert said.count("killed") == len(moments)
    check_equal_runs(tmp_path / "killed", tmp_path / "whole")


# How often each moment comes in an uninterrupted run, so that one drawn below does come.
OFTEN = {"step": 24, "log": 8, "rest": 6, "write": 6, "rename": 18, "note": 6, "remove": 8, "execution": 24}


@pytest.mark.slow
def test_runs_killed_at_20_random_moments(records, uninterrupted, tmp_path):
    """Each in a run of its own; a moment in time may come too late, and then does not count."""
    assert set(OFTEN) == set(MOMENTS)
    rng, kills = random.Random(20), 0
    for attempt in range(40):
        name = rng.choice([*OFTEN, "time", "time"])
        moment = f"{name}:{rng.uniform(1, 5) if name == 'time' else rng.randint(1, OFTEN[name])}"
        said = run_and_kill(records, tmp_path / str(attempt), moment)
        print(said)
        assert name == "time" or f"{moment} killed" in said
        kills += said.count("killed")
        check_equal_runs(tmp_path / str(attempt), uninterrupted)
        if kills == 20:
            break
    assert kills == 20


TWO_REPLICAS = """
import dataclasses, sys
sys.path.insert(0, {root!r})
from tests.support.killed_run import CONFIG, OPTIONS, find_records, pretraining
from tf_bert.training import distribution
distribution.set_logical_cpus(2)
config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
options = dataclasses.replace(OPTIONS, learning_rate=1e-3, num_warmup_steps=0, eval_every_steps=12, eval_batch_size=8)
options = dataclasses.replace(options, max_eval_steps=0)
for name in ("off", "mirrored"):
    strategy = distribution.get_strategy(name)
    records = find_records({records!r})
    for steps in (9, 24):
        changed = dataclasses.replace(options, num_train_steps=steps, iterations_per_loop=1 if name == "off" else 3)
        folder = {folder!r} + "/" + name
        pretraining.pretrain(config, records, folder, changed, strategy=strategy)
"""


@pytest.mark.slow
def test_two_replicas_resume_and_give_the_weights_of_one_device(records, tmp_path):
    script = TWO_REPLICAS.format(root=str(ROOT), records=records, folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert "mirrored, 2 replicas, global batch 4" in done.stderr and "RESUMING" in done.stderr
    one, two = (tf.train.load_checkpoint(str(tmp_path / name)) for name in ("off", "mirrored"))
    for name in one.get_variable_to_shape_map():
        np.testing.assert_allclose(two.get_tensor(name), one.get_tensor(name), rtol=0, atol=2e-5, err_msg=name)
    ours, theirs = (
        [line["eval"] for line in read_log(tmp_path / name) if "eval" in line] for name in ("mirrored", "off")
    )
    assert len(ours) == len(theirs) > 1
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, rel=1e-4)


@pytest.fixture(scope="module")
def model():
    return Pretraining(CONFIG, options=OPTIONS).build()


def set_all(model, value: float, step: int) -> None:
    for variable in [*model.trainable_variables, *model.optimizer.variables]:
        if variable.dtype == "float32":
            variable.assign(np.full(variable.shape, value))
    model.optimizer.iterations.assign(step)


def three_checkpoints(model, folder: Path) -> None:
    for step in (1, 2, 3):
        set_all(model, step, step)
        save_run(model, folder, RunState(step, 10 * step))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def change_rest(folder: Path, old: str, new: str) -> None:
    path = folder / f"model.ckpt-3{resume.RESUME_SUFFIX}"
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))


DAMAGE = {
    "bit": lambda folder: flip(folder / "model.ckpt-3.data-00000-of-00001"),
    "index": lambda folder: flip(folder / "model.ckpt-3.index"),
    "truncated": lambda folder: os.truncate(folder / "model.ckpt-3.data-00000-of-00001", 1000),
    "no data": lambda folder: os.remove(folder / "model.ckpt-3.data-00000-of-00001"),
    "no index": lambda folder: os.remove(folder / "model.ckpt-3.index"),
    "rest": lambda folder: os.truncate(folder / f"model.ckpt-3{resume.RESUME_SUFFIX}", 50),
    "key": lambda folder: change_rest(folder, "records", "rekords"),
    "digit": lambda folder: change_rest(folder, '"records": 30', '"records": 31'),
    "checksum": lambda folder: change_rest(folder, "checksum", "chucksum"),
    "no state": lambda folder: (folder / f"model.ckpt-3{resume.RESUME_SUFFIX}").write_text("3"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over(model, tmp_path, capsys, damage):
    three_checkpoints(model, tmp_path)
    DAMAGE[damage](tmp_path)
    resume.clean_up(tmp_path, 5)
    set_all(model, 9.0, 9)
    state = restore_run(model, tmp_path)
    assert (state.step, state.records, int(model.optimizer.iterations)) == (2, 20, 2)
    assert {float(np.unique(variable)[0]) for variable in model.trainable_variables} == {2.0}
    assert float(np.unique(model.optimizer.adam_v(model.trainable_variables[0]))[0]) == 2.0
    said = capsys.readouterr().err
    assert "WARNING" in said and "model.ckpt-3" in said and "going back" in said and "model.ckpt-2" in said


def test_a_resume_file_without_checksum_is_read(model, tmp_path):
    """As they were written before there was one."""
    three_checkpoints(model, tmp_path)
    path = tmp_path / f"model.ckpt-3{resume.RESUME_SUFFIX}"
    rest = json.loads(path.read_text())
    del rest["checksum"]
    path.write_text(json.dumps(rest, indent=1))
    assert restore_run(model, tmp_path).records == 30


def test_training_does_not_start_over_when_all_are_damaged(model, tmp_path):
    three_checkpoints(model, tmp_path)
    for step in (1, 2, 3):
        flip(tmp_path / f"model.ckpt-{step}.data-00000-of-00001")
    with pytest.raises(ValueError, match="no checkpoint in .* can be used.*model.ckpt-1"):
        restore_run(model, tmp_path)


def test_the_run_of_another_model_is_named_in_one_line(model, tmp_path):
    three_checkpoints(model, tmp_path)
    wider = Pretraining(
        dataclasses.replace(CONFIG, intermediate_size=CONFIG.intermediate_size + 8), options=OPTIONS
    ).build()
    message = r"holds the run of another model: \d+ of \d+ variables .*model.ckpt-3 .*choose another output"
    with pytest.raises(ValueError, match=message) as error:
        restore_run(wider, tmp_path)
    assert len(str(error.value)) < 400


def test_a_new_folder_has_nothing_to_restore(model, tmp_path):
    assert restore_run(model, tmp_path) is None
    assert restore_run(model, tmp_path / "not there") is None


def test_the_newest_checkpoints_are_kept(model, tmp_path):
    for step in range(1, 9):
        set_all(model, step, step)
        save_run(model, tmp_path, RunState(step, step), keep=5)
    kept = {
        f"model.ckpt-{step}{end}" for step in range(4, 9) for end in (".index", ".data-00000-of-00001", ".resume.json")
    }
    assert set(os.listdir(tmp_path)) == kept | {"checkpoint"}
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert os.path.basename(state.model_checkpoint_path) == "model.ckpt-8"
    assert [os.path.basename(path) for path in state.all_model_checkpoint_paths] == [
        f"model.ckpt-{step}" for step in range(4, 9)
    ]


def test_a_folder_without_its_checkpoint_file(model, tmp_path):
    three_checkpoints(model, tmp_path)
    os.remove(tmp_path / "checkpoint")
    assert restore_run(model, tmp_path).step == 3


def noted(folder: Path) -> list[str]:
    return [os.path.basename(path) for path in tf.train.get_checkpoint_state(str(folder)).all_model_checkpoint_paths]


NOTES = {"empty": b"", "binary": b"\xff\0: \xfe\n", "the last one": b'model_checkpoint_path: "model.ckpt-3"\n'}


@pytest.mark.parametrize("notes", NOTES)
def test_older_checkpoints_stay_when_the_checkpoint_file_is_damaged(model, tmp_path, notes):
    three_checkpoints(model, tmp_path)
    (tmp_path / "checkpoint").write_bytes(NOTES[notes])
    resume.clean_up(tmp_path, 3)
    assert restore_run(model, tmp_path).step == 3
    set_all(model, 4.0, 4)
    save_run(model, tmp_path, RunState(4, 40), keep=3)
    assert noted(tmp_path) == ["model.ckpt-2", "model.ckpt-3", "model.ckpt-4"]
    assert not list(tmp_path.glob("model.ckpt-1*"))
    for step in (3, 4):
        flip(tmp_path / f"model.ckpt-{step}.data-00000-of-00001")
    assert restore_run(model, tmp_path).step == 2


def test_checkpoints_that_are_noted_and_all_gone_are_not_started_over(model, tmp_path):
    three_checkpoints(model, tmp_path)
    for path in tmp_path.glob("model.ckpt-*"):
        path.unlink()
    with pytest.raises(ValueError, match="remove them and the file named checkpoint: no checkpoint .*model.ckpt-3"):
        restore_run(model, tmp_path)


def test_a_weight_that_is_not_finite_is_not_saved(model, tmp_path):
    set_all(model, 1.0, 1)
    save_run(model, tmp_path, RunState(1, 1))
    model.trainable_variables[3].assign(np.full(model.trainable_variables[3].shape, np.nan))
    with pytest.raises(NonFiniteLossError, match="step 2"):
        save_run(model, tmp_path, RunState(2, 2))
    assert restore_run(model, tmp_path).step == 1


def test_a_full_disk_leaves_the_previous_checkpoint(model, tmp_path):
    set_all(model, 1.0, 1)
    save_run(model, tmp_path, RunState(1, 1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(OSError, match=r"^cannot write the checkpoint \S*model.ckpt-2: [^{\[]*$"):
            save_run(model, tmp_path, RunState(2, 2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    resume.clean_up(tmp_path)
    assert set(os.listdir(tmp_path)) == {
        "checkpoint", "model.ckpt-1.index", "model.ckpt-1.data-00000-of-00001", "model.ckpt-1.resume.json",
    }  # fmt: skip
    assert restore_run(model, tmp_path).step == 1


@pytest.mark.parametrize("log, file", [("_write", "training.jsonl"), ("_summarize", r"events.out.tfevents.\S*")])
def test_a_full_disk_met_by_a_log_names_file_and_checkpoint(records, tmp_path, monkeypatch, log, file):
    before, write = resource.getrlimit(resource.RLIMIT_FSIZE), getattr(ReportTraining, log)

    def write_to_a_full_disk(self, *args):
        if (tmp_path / "model.ckpt-5.index").exists():
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        write(self, *args)

    monkeypatch.setattr(ReportTraining, log, write_to_a_full_disk)
    message = (
        rf"^cannot write \S*{file}: [^{{\[]*File too large[^{{\[]*The last good checkpoint is \S*model.ckpt-5;.*room"
    )
    try:
        with pytest.raises(OSError, match=message):
            pretrain(CONFIG, find_records(records), tmp_path, OPTIONS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert restore_run(Pretraining(CONFIG, options=OPTIONS).build(), tmp_path).step == 5


def test_evaluations_are_not_skipped_by_long_executions(records, tmp_path, capsys):
    often = options(num_train_steps=4, iterations_per_loop=8, eval_every_steps=2, save_checkpoints_steps=9, log_steps=9)
    pretrain(CONFIG, find_records(records), tmp_path, often)
    assert [line["step"] for line in read_log(tmp_path) if "eval" in line] == [2, 4]
    assert "iterations_per_loop 8 is cut to 2, the smallest interval" in capsys.readouterr().err


def test_sigterm_stops_an_evaluation_that_is_made_when_the_run_goes_on(records, tmp_path, monkeypatch, capsys):
    every_record = {"eval_batch_size": 8, "max_eval_steps": 0}  # 4 batches
    often = options(num_train_steps=4, eval_every_steps=2, save_checkpoints_steps=9, log_steps=3, **every_record)
    pretrain(CONFIG, find_records(records), tmp_path / "whole", often)
    execute, done = StepFunction._execute, []

    def signalled(self, iterator):
        if self is self.model.test_function:
            done.append(len(done))
            if done[-1] in (1, 2):
                os.kill(os.getpid(), signal.SIGTERM)
        return execute(self, iterator)

    monkeypatch.setattr(StepFunction, "_execute", signalled)
    for executions in (2, 3):  # in the evaluation of step 2, and when it is made anew
        with pytest.raises(Stopped, match="model.ckpt-2; .* goes on from step 2"):
            pretrain(CONFIG, find_records(records), tmp_path / "stopped", often)
        assert len(done) == executions
    assert "step 2: the evaluation is stopped" in capsys.readouterr().err
    pretrain(CONFIG, find_records(records), tmp_path / "stopped", often)
    assert len(done) == executions + 2 * 4
    assert bits(tmp_path / "stopped", 4) == bits(tmp_path / "whole", 4)
    log = without_rates(read_log(tmp_path / "stopped"))
    assert log == without_rates(read_log(tmp_path / "whole"))
    assert [line["step"] for line in log if "eval" in line] == [2, 4]


def test_tensorboard_forgets_the_steps_that_are_run_again(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_accumulator")
    for start, steps in ((0, (3, 6, 9)), (5, (6, 9))):
        report = ReportTraining(tmp_path, 9, start=RunState(start))
        report.on_train_begin()
        for folder in ("", "eval"):
            for step in steps:
                report._summarize(folder, {"loss": float(start)}, step)
        report.close()
    for folder in (tmp_path, tmp_path / "eval"):
        shown = events.EventAccumulator(str(folder)).Reload().Tensors("loss")
        found = [(event.step, float(tf.make_ndarray(event.tensor_proto))) for event in shown]
        assert found == [(3, 0.0), (6, 5.0), (9, 5.0)]


@pytest.mark.parametrize(
    "start, shown",
    [
        (0, "training: 30 of 100 (30 %), 140 s left, 0.50 steps/s, step 30 of 100, loss 1.5000"),
        (40, "training: 30 of 60 (50 %), 60 s left, 0.50 steps/s, step 70 of 100, loss 1.5000"),
    ],
)
def test_the_time_left_is_that_of_the_steps_left(tmp_path, monkeypatch, capsys, start, shown):
    """At the pace of this process, also where it goes on from a checkpoint. A step takes 2 s and has 50 tokens."""
    clock, tokens = [1000.0], TokenCounter()
    faked = types.SimpleNamespace(monotonic=lambda: clock[0], time=time.time)
    for module in (callbacks, progress):
        monkeypatch.setattr(module, "time", faked)
    report = ReportTraining(tmp_path, 100, every=10, start=RunState(start), tokens=tokens)
    report.set_model(types.SimpleNamespace(optimizer=types.SimpleNamespace(), reset_metrics=lambda: None))
    report.on_train_begin()
    for step in range(start + 1, start + 31):
        clock[0], report.model.optimizer.iterations = clock[0] + 2, step
        tokens.tokens, tokens.batches = 50 * (step + 7), step + 7  # some are made ahead
        report.on_train_batch_end(step, {"loss": 1.5})
    report.close()
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("training:")] == [shown]
    rates = [f"step {start + done}: loss 1.5, 0.5 steps/s, 25 tokens/s" for done in (10, 20, 30)]
    assert [line for line in lines if line.startswith("step")] == rates


def test_an_interrupted_run_says_what_is_not_saved(records, tmp_path, monkeypatch, capsys):
    def interrupt(self, batch, logs=None):
        if batch == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(callbacks.StopOnSignal, "on_train_batch_end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pretrain(CONFIG, find_records(records), tmp_path, options(num_train_steps=9, save_checkpoints_steps=5))
    said = capsys.readouterr().err.splitlines()[-1]
    assert (
        said == f"interrupted: steps after {tmp_path}/model.ckpt-5 are not saved; the same command goes on from there"
    )


def test_a_folder_is_trained_in_by_one_process(tmp_path):
    held = "import sys; from tf_bert.files import locked\nwith locked(sys.argv[1]): print(1, flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", held, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline()
    try:
        with pytest.raises(OSError, match=f"another process is training in {tmp_path}: end it first"):
            resume.clean_up(tmp_path)
    finally:
        other.kill()
        other.communicate()
    resume.clean_up(tmp_path)


def test_lines_that_are_not_of_the_log_are_left_out(tmp_path):
    lines = ['{"step": 1, "loss": 2.0}', "5", '{"step": null}', '{"foo": 1}', "[]", '{"step": 2, "lo']
    (tmp_path / "training.jsonl").write_text("\n".join(lines))
    assert read_log(tmp_path) == [{"step": 1, "loss": 2.0}]
    keep_log(tmp_path, 1)
    assert (tmp_path / "training.jsonl").read_text() == lines[0] + "\n"


def test_a_run_in_a_folder_elsewhere(records):
    """In TensorFlow's file system in memory, in place of gs://. No run goes on there: it takes prefixes for folders."""
    config, folder = BertConfig(100, 16, 1, 2, 32, max_position_embeddings=16, type_vocab_size=2), "ram://run"
    pretrain(config, find_records(records), folder, options(num_train_steps=4, log_steps=2))
    assert [line["step"] for line in read_log(folder)] == [2, 4]
    assert {"checkpoint", "model.ckpt-4.index", "model.ckpt-4.resume.json"} <= set(tf.io.gfile.listdir(folder))


def test_a_run_of_the_original_goes_on(shared_golden, records, tmp_path, capsys):
    for file in (shared_golden / "D_optimization/ckpt_trained").iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "model.ckpt-20"\nall_model_checkpoint_paths: "/elsewhere/model.ckpt-20"\n'
    )
    config = BertConfig.from_json_file(shared_golden / "D_optimization/bert_config_nodropout.json")
    trained = pretrain(config, find_records(records), tmp_path, options(num_train_steps=20))
    said = capsys.readouterr().err
    assert "ALREADY TRAINED" in said and "model.ckpt-20" in said
    reader = tf.train.load_checkpoint(str(tmp_path))
    for name, variable in model_variables(trained).items():
        np.testing.assert_array_equal(variable, reader.get_tensor(name))
        np.testing.assert_array_equal(trained.optimizer.adam_m(variable), reader.get_tensor(f"{name}/adam_m"))
        np.testing.assert_array_equal(trained.optimizer.adam_v(variable), reader.get_tensor(f"{name}/adam_v"))

    pretrain(config, find_records(records), tmp_path, options(num_train_steps=22))
    said = capsys.readouterr().err
    assert f"RESUMING from {tmp_path}/model.ckpt-20: step 20 of 22" in said
    assert {"model.ckpt-20.index", "model.ckpt-22.index"} <= set(os.listdir(tmp_path))
    assert tf.train.load_variable(str(tmp_path), "global_step") == 22


def test_a_run_beyond_its_end_is_refused(model, records, tmp_path):
    set_all(model, 0.1, 838)
    save_run(model, tmp_path, RunState(838, 838))
    with pytest.raises(ValueError, match="step 838, which is beyond num_train_steps 6"):
        pretrain(CONFIG, find_records(records), tmp_path, options(num_train_steps=6))


def test_an_initial_checkpoint_gives_weights_only(model, records, tmp_path, capsys):
    """Its step is beyond num_train_steps, and six updates are made all the same, the first at the rate of step 0."""
    set_all(model, 0.1, 838)
    prefix = save_run(model, tmp_path / "first", RunState(838, 838))
    small = options(num_train_steps=6, num_warmup_steps=0, learning_rate=1e-3, save_checkpoints_steps=100, log_steps=1)
    pretrain(CONFIG, find_records(records), tmp_path / "second", small, init_checkpoint=prefix)
    assert "steps and moments begin at 0" in capsys.readouterr().err
    log = read_log(tmp_path / "second")
    assert [line["step"] for line in log] == [1, 2, 3, 4, 5, 6]
    assert log[0]["learning_rate"] == pytest.approx(1e-3)
    start = tf.train.load_checkpoint(str(tmp_path / "second/model.ckpt-0"))
    assert np.all(start.get_tensor("bert/pooler/dense/kernel") == np.float32(0.1))
    assert not np.any(start.get_tensor("bert/pooler/dense/kernel/adam_m"))


def test_a_loss_that_is_not_finite_ends_the_run(records, tmp_path):
    wild = options(learning_rate=1e30, num_warmup_steps=0, save_checkpoints_steps=1)
    with pytest.raises(NonFiniteLossError, match=r"step \d.*last good checkpoint is .*model\.ckpt-\d"):
        pretrain(CONFIG, find_records(records), tmp_path, wild)
    last = tf.train.latest_checkpoint(str(tmp_path))
    reader = tf.train.load_checkpoint(last)
    assert all(np.isfinite(reader.get_tensor(name)).all() for name in reader.get_variable_to_shape_map())


def test_other_data_are_read_from_their_start(model, records, tmp_path, capsys):
    set_all(model, 0.1, 20)
    data = {"seed": 1, "shuffle_buffer": 10, "files": ["old"], "records": [9], "workers": 2}
    save_run(model, tmp_path, RunState(20, 80, data))
    pretrain(CONFIG, find_records(records), tmp_path, options(num_train_steps=22))
    said = capsys.readouterr().err
    assert "RESUMING" in said and "seed, files, records, number of workers that share the files changed" in said
    rest = json.loads((tmp_path / "model.ckpt-22.resume.json").read_text())
    assert rest["records"] == 8


def test_ctrl_c_saves_and_a_second_one_ends_at_once(records, tmp_path, capsys, monkeypatch):
    """As SIGTERM does; the run that is resumed ends with the same bits."""

    class Pressed(keras.callbacks.Callback):
        times = 1

        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                for _ in range(self.times):
                    signal.raise_signal(signal.SIGINT)

    fit = Trainer.fit
    monkeypatch.setattr(
        Trainer, "fit", lambda self, x, callbacks, **how: fit(self, x, callbacks=[Pressed(), *callbacks], **how)
    )
    with pytest.raises(Stopped, match="Ctrl-C: saved .*model.ckpt-4; the same command goes on from step 4") as caught:
        pretrain(CONFIG, find_records(records), tmp_path, options(num_train_steps=9))
    assert caught.value.signal == signal.SIGINT
    assert "Ctrl-C: the run is saved after this step" in capsys.readouterr().err
    Pressed.times = 2
    with pytest.raises(KeyboardInterrupt):
        pretrain(CONFIG, find_records(records), tmp_path, options(num_train_steps=9))


def test_an_ignored_ctrl_c_stays_ignored():
    """As of a job that a script started in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with callbacks.StopOnSignal() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.received is None
            signal.raise_signal(signal.SIGTERM)
            assert stop.received == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
