"""Several workers stop together, begin alike, and one of them writes."""

import json
import os
import signal
import subprocess
import sys
import time
import types
import zlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.commands.test_run_classifier import flags as classifier_flags
from tests.commands.test_run_classifier import task as classifier_task  # noqa: F401
from tests.commands.test_run_gpt import TRAIN as GPT_FLAGS
from tests.commands.test_run_gpt import folder as gpt_folder  # noqa: F401
from tests.commands.test_run_squad import flags as squad_flags
from tests.commands.test_run_squad import task as squad_task  # noqa: F401
from tests.commands.test_train_translation import data as translation_folder  # noqa: F401
from tests.data.finetuning.test_tagging import flags as tagging_flags
from tests.data.finetuning.test_tagging import task as tagging_task  # noqa: F401
from tests.data.language_modeling.test_blocks import folder as blocks_folder  # noqa: F401  fixtures, as those below
from tests.data.pretraining.test_input import write
from tests.support import ROOT
from tests.support.killed_run import CONFIG
from tests.training.test_replicas import free_ports
from tests.training.test_resume import bits, check_equal_runs, without_rates
from tf_bert.commands.flags import STOPPED
from tf_bert.commands.main import main
from tf_bert.training import distribution, recipe, workers
from tf_bert.training.callbacks import read_log
from tf_bert.training.stopping import Stopped

RUNS = ROOT / "tests/support/worker_runs.py"
# Each replica draws dropout masks of its own, and run_classifier has dropout whatever its configuration says.
WITHOUT_DROPOUT = """
import sys, keras
keras.layers.Dropout.call = lambda self, inputs, training=False: inputs
from tf_bert.commands.main import main
sys.exit(main(sys.argv[1:]))
"""


def begin(jobs, *commands):
    """Starts a worker of each kind of job with its own command, the arguments of Python."""
    addresses = [f"localhost:{port}" for port in free_ports(len(jobs))]
    cluster = {}
    for job, address in zip(jobs, addresses, strict=True):
        cluster.setdefault(job, []).append(address)
    processes = []
    for job, address, command in zip(jobs, addresses, commands, strict=True):
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": cluster[job].index(address)}})
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CONFIG": config}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, *map(str, command)]
        processes.append(subprocess.Popen(command, **pipes, text=True, env=variables))
    return processes


def together(jobs, *arguments):
    """Runs a worker of each kind of job with its own arguments; returns exit status and last line of each."""
    processes = begin(jobs, *[(RUNS, *own) for own in arguments])
    outputs = [process.communicate(timeout=300) for process in processes]
    return [
        (process.returncode, out.splitlines()[-1] if out else errors[-3000:], errors)
        for process, (out, errors) in zip(processes, outputs, strict=True)
    ]


@pytest.mark.slow
def test_a_signal_to_one_worker_stops_all_after_the_same_step(tmp_path):
    records, run = write(tmp_path / "records", range(30)), tmp_path / "run"
    chief, other = together(("worker", "worker"), (records, run, 8), (records, run, 8, "SIGTERM:step:4"))
    saved = f"saved {run}/model.ckpt-4; the same command goes on from step 4"
    assert chief[:2] == (STOPPED, f"STOPPED SIGTERM came to another worker: {saved}")
    assert other[:2] == (STOPPED, f"STOPPED SIGTERM came: the chief {saved}")
    assert "multi_worker_mirrored, 2 replicas, global batch 4" in chief[2]

    # Goes on, with TF_CONFIG's other way to name the one that writes. At the last step the chief gets the signal.
    worker, chief = together(("worker", "chief"), (records, run, 8), (records, run, 8, "SIGTERM:step:4"))
    saved = f"saved {run}/model.ckpt-8; the same command goes on from step 8"
    assert worker[:2] == (STOPPED, f"STOPPED SIGTERM came to another worker: the chief {saved}")
    assert chief[:2] == (STOPPED, f"STOPPED SIGTERM came: {saved}")
    assert len(list(run.glob("events.out.tfevents.*"))) == 2  # one writer in each of the two runs


@pytest.fixture(scope="module")
def pretraining_records(tmp_path_factory):
    return write(tmp_path_factory.mktemp("data") / "records", range(30))


@pytest.fixture(scope="module")
def uninterrupted(pretraining_records, tmp_path_factory):
    """A run of two workers with dropout and evaluations."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert [code for code, *_ in together(("worker", "worker"), *[(pretraining_records, folder, 24)] * 2)] == [0, 0]
    return folder


@pytest.mark.slow
def test_a_run_whose_workers_are_killed_ends_with_the_same_bits(pretraining_records, uninterrupted, tmp_path):
    """A worker between two checkpoints, and then the chief in the midst of writing one."""
    own = (pretraining_records, tmp_path, 24)
    for victim, moment in ((1, "SIGKILL:step:8"), (0, "SIGKILL:rename:4")):
        commands = [(RUNS, *own, moment) if worker == victim else (RUNS, *own) for worker in range(2)]
        processes = begin(("worker", "worker"), *commands)
        assert processes[victim].wait(timeout=300) == -signal.SIGKILL
        _, errors = processes[1 - victim].communicate(timeout=60)
        assert processes[1 - victim].returncode == 1
        assert "ConnectionError: another worker of this job is gone" in errors, errors[-3000:]
    assert [code for code, *_ in together(("worker", "worker"), own, own)] == [0, 0]
    check_equal_runs(tmp_path, uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("victims", [(0, 1), (0,)])
def test_workers_that_are_held_up_end_with_one_message(pretraining_records, tmp_path, victims):
    """For more than the 10 s after which TensorFlow gives a worker up, as a machine that sleeps or has lost its net."""
    own = (RUNS, pretraining_records, tmp_path, 24)
    commands = [(*own, "SIGSTOP:step:8") if worker in victims else own for worker in range(2)]
    processes = begin(("worker", "worker"), *commands)
    for victim in victims:
        os.waitid(os.P_PID, processes[victim].pid, os.WSTOPPED | os.WNOWAIT)
    time.sleep(15)
    for victim in victims:
        processes[victim].send_signal(signal.SIGCONT)
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "\nConnectionError: another worker of this job is gone, or one was held up" in errors, errors[-3000:]


@pytest.mark.slow
def test_a_worker_that_cannot_begin_ends_the_other_with_one_message(pretraining_records, tmp_path):
    """It does so while the other makes its model, whose weights come from the chief."""
    (tmp_path / "config.json").write_text(CONFIG.to_json_string())
    flags = [f"--bert_config_file={tmp_path}/config.json", f"--output_dir={tmp_path}/run", "--do_train"]
    flags += ["--max_seq_length=16", "--max_predictions_per_seq=4", "--distribution_strategy=multi_worker_mirrored"]
    commands = [
        ("-m", "tf_bert.commands.main", "run_pretraining", *flags, f"--input_file={records}")
        for records in (pretraining_records, tmp_path / "nowhere")
    ]
    found = [(process.communicate(timeout=120)[1], process) for process in begin(("worker", "worker"), *commands)]
    for (errors, process), message in zip(found, ("another worker of this job is gone", "input file"), strict=True):
        assert process.returncode == 1
        assert errors.splitlines()[-1].startswith(f"tf-bert run_pretraining: error: {message}"), errors[-3000:]


@pytest.mark.slow
def test_several_steps_in_a_call_give_the_same_weights(pretraining_records, tmp_path):
    """But for rounding: each worker has the loop in its graph, which is another one. The last call is shorter."""
    for name, more in (("one", ()), ("three", ("iterations_per_loop=3",))):
        own = (pretraining_records, tmp_path / name, 10, *more)
        assert [code for code, *_ in together(("worker", "worker"), own, own)] == [0, 0]
    one, three = (tf.train.load_checkpoint(str(tmp_path / name / "model.ckpt-10")) for name in ("one", "three"))
    for variable in one.get_variable_to_shape_map():
        np.testing.assert_allclose(three.get_tensor(variable), one.get_tensor(variable), atol=1e-6, err_msg=variable)


@pytest.mark.slow
def test_a_signal_to_one_worker_stops_an_evaluation_of_all(pretraining_records, uninterrupted, tmp_path):
    """After the first of its three batches; it is made when the run goes on."""
    own = (pretraining_records, tmp_path, 24)
    chief, other = together(("worker", "worker"), own, (*own, "SIGTERM:execution:8"))
    for code, _, errors in (chief, other):
        assert code == STOPPED and "step 6: the evaluation is stopped, and made when the run goes on" in errors
    assert [line["step"] for line in read_log(tmp_path) if "eval" in line] == []
    assert [code for code, *_ in together(("worker", "worker"), own, own)] == [0, 0]
    assert [line["step"] for line in read_log(tmp_path) if "eval" in line] == [6, 12, 18, 24]
    assert bits(tmp_path, 24) == bits(uninterrupted, 24)
    assert without_rates(read_log(tmp_path)) == without_rates(read_log(uninterrupted))


@pytest.mark.slow
def test_workers_with_folders_of_their_own_stop_before_they_train_unlike_weights(tmp_path):
    records, run = write(tmp_path / "records", range(30)), tmp_path / "run"
    assert [code for code, *_ in together(("worker",), (records, run, 3))] == [0]
    found = together(("worker", "worker"), (records, run, 6), (records, tmp_path / "other", 6))
    for (code, said, _), folder in zip(found, (run, tmp_path / "other"), strict=True):
        assert code == 1
        assert said.startswith(f"ERROR output_dir {folder} has to be one folder that all workers see"), said
        assert "worker 0 step 3, record 12; worker 1 no checkpoint" in said


@pytest.mark.slow
def test_workers_with_folders_of_their_own_are_noticed_in_a_new_run(tmp_path):
    records, folders = write(tmp_path / "records", range(30)), (tmp_path / "run", tmp_path / "other")
    found = together(("worker", "worker"), *[(records, folder, 3) for folder in folders])
    for (code, said, _), folder in zip(found, folders, strict=True):
        assert code == 1
        assert said.startswith(f"ERROR output_dir {folder} has to be one folder that all workers see"), said
        assert "what the chief wrote there does not appear at worker 1" in said
    assert list(tmp_path.glob("*/*")) == list(tmp_path.glob("*/.*")) == []


def language_modeling_flags(folder, output_dir, *more):
    files = [f"--config_file={folder}/config.json", f"--input_file={folder}/book.tfrecord"]
    files += [f"--eval_input_file={folder}/held.tfrecord", f"--output_dir={output_dir}"]
    return [*files, "--train_batch_size=4", "--num_train_steps=6", "--num_warmup_steps=2", *more]


def elmo_flags(folder, output_dir, *more):
    config = output_dir.with_suffix(".json")
    config.write_text(json.dumps({"vocab_size": 300, "hidden_size": 8}))
    return language_modeling_flags(folder, output_dir, "--model=elmo", f"--config_file={config}", *more)


def gpt_flags(task, files):
    def flags(folder, output_dir, *more):
        splits = [f"--{split}_file={folder / files}" for split in ("train", "dev", "test")]
        given = [f"--task={task}", f"--format={files.rpartition('.')[2]}", f"--init_checkpoint={folder / 'pre'}"]
        return [*given, *splits, f"--output_dir={output_dir}", *GPT_FLAGS, *more]

    return flags


EVAL = ("--do_train", "--do_eval")
DO = (*EVAL, "--do_predict", "--num_train_epochs=2")
COMMANDS = {
    "classifier": ("run_classifier", "classifier_task", classifier_flags, DO),
    "squad": ("run_squad", "squad_task", squad_flags, ("--do_train", *DO[2:])),
    "ner": ("run_ner", "tagging_task", tagging_flags, DO),
    "gpt": ("run_gpt", "gpt_folder", gpt_flags("classification", "reviews.csv"), DO),
    "answers": ("run_gpt", "gpt_folder", gpt_flags("answers", "answers.jsonl"), (*DO, "--max_answer_length=6")),
    "blocks": ("run_language_modeling", "blocks_folder", language_modeling_flags, EVAL),
    "elmo": ("run_language_modeling", "blocks_folder", elmo_flags, EVAL),
}


def translation_flags(folder, output_dir, *more):
    sizes = ["--hidden_size=8", "--embedding_size=8", "--batch_tokens=300"]
    return ["--model=seq2seq", f"--data_dir={folder}", f"--output_dir={output_dir}", *sizes, *more]


TRANSLATION = {"translation": ("train_translation", "translation_folder", translation_flags, ())}


@pytest.mark.parametrize(
    "name, said",
    [
        ("classifier", "saved X"),
        ("squad", "saved X"),
        ("ner", "saved X"),
        ("gpt", "saved X"),
        ("blocks", "saved X"),
        ("translation", "saved X"),
        ("classifier", "what is saved stays, and the same command goes on from there"),
    ],
)
def test_a_command_that_is_stopped_says_so_by_its_exit_status(name, said, request, tmp_path, monkeypatch, capsys):
    """In training, and where nothing is trained, as in evaluation."""

    def stopped(*arguments, **options):
        if said == "saved X":
            raise Stopped("SIGTERM came: saved X")
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(recipe, "fit", stopped)
    command, task, flags, steps = (COMMANDS | TRANSLATION)[name]
    line = [command, *flags(request.getfixturevalue(task), tmp_path / "run", *steps)]
    capsys.readouterr()  # what the fixture printed
    assert main(line) == STOPPED == 75
    assert capsys.readouterr().out == f"tf-bert {command}: SIGTERM came: {said}\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not (tmp_path / "run" / "eval_results.txt").exists()


def figures(folder):
    """What the run measured, and what it trained; the gradient of a key's bias is 0 but for rounding."""
    lines = (folder / "eval_results.txt").read_text().splitlines()
    reader = tf.train.load_checkpoint(str(folder))
    names = [name for name in reader.get_variable_to_shape_map() if "adam" not in name and "key/bias" not in name]
    weights = {name: reader.get_tensor(name) for name in names}
    return {name: float(value) for name, value in (line.split(" = ") for line in lines)}, weights


def files(folder):
    """All files, but for what TensorBoard's have in their names: time, machine, process."""
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path).partition(".tfevents.")[0] for path in paths)


def on_two_workers(line):
    """Runs a command on both, and returns what each of them printed."""
    line = ("-c", WITHOUT_DROPOUT, *line, "--distribution_strategy=multi_worker_mirrored")
    processes = begin(("worker", "worker"), line, line)
    said = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], [errors[-3000:] for _, errors in said]
    return [out for out, _ in said]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_on_two_workers_does_what_it_does_on_one_device(name, request, tmp_path, monkeypatch):
    command, task, flags, steps = COMMANDS[name]
    task = request.getfixturevalue(task)

    def line(run, *more):
        return [command, *flags(task, tmp_path / run, *steps, "--learning_rate=1e-3", *more)]

    chief, other = on_two_workers(line("two"))
    assert "Eval results" in chief and not other  # it alone shows what it wrote

    monkeypatch.setattr(keras.layers.Dropout, "call", lambda self, inputs, training=False: inputs)
    assert main(line("one", "--distribution_strategy=one_device")) == 0
    assert files(tmp_path / "two") == files(tmp_path / "one")
    (ours, our_weights), (theirs, their_weights) = figures(tmp_path / "two"), figures(tmp_path / "one")
    assert ours == pytest.approx(theirs, abs=1e-5)
    for variable, expected in their_weights.items():
        np.testing.assert_allclose(our_weights[variable], expected, atol=1e-5, err_msg=variable)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classifier", "blocks"])
def test_two_workers_evaluate_what_one_device_has_trained(name, request, tmp_path):
    command, task, flags, steps = COMMANDS[name]
    line = [command, *flags(request.getfixturevalue(task), tmp_path, *steps)]
    assert main(line) == 0
    expected, _ = figures(tmp_path)
    (tmp_path / "eval_results.txt").unlink()
    on_two_workers([*line, "--do_train=False"])
    assert figures(tmp_path)[0] == pytest.approx(expected, abs=1e-5)


def test_a_chief_that_cannot_write_leaves_it_to_the_first_checkpoint_to_say_so(tmp_path, monkeypatch):
    """Nobody is called blind then; where one is, nothing is left behind either."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(workers, "count_workers", lambda strategy: 2)
    monkeypatch.setattr(workers, "gather_from_workers", lambda strategy, number: np.array([[number], [0]]))
    with pytest.raises(ValueError, match=f"{tmp_path} has to be one folder .* does not appear at worker 1"):
        workers.check_one_folder(distribution.get_strategy(), str(tmp_path))
    assert os.listdir(tmp_path) == ["file"]
    monkeypatch.setattr(workers, "gather_from_workers", lambda strategy, number: np.array([[number], [number]]))
    workers.check_one_folder(distribution.get_strategy(), str(tmp_path / "file" / "run"))


def test_workers_with_other_settings_are_told_which(monkeypatch):
    """Each gathers what all have; here the other worker is played."""
    strategy, ours = distribution.get_strategy(), {"learning_rate": 0.1, "seed": 1, "files": ["a"]}
    digests = []
    monkeypatch.setattr(
        workers, "gather_from_workers", lambda strategy, *own: digests.append(own) or np.array([own, own])
    )
    workers.check_same_settings(strategy, ours | {"seed": 2})
    theirs = iter(
        [*digests, [zlib.crc32(f"{name}={value!r}".encode()) for name, value in (ours | {"seed": 2}).items()]]
    )
    monkeypatch.setattr(workers, "gather_from_workers", lambda strategy, *own: np.array([own, next(theirs)]))
    with pytest.raises(ValueError, match=r"with different settings: seed \(here 1\). Give all of them the same"):
        workers.check_same_settings(strategy, ours)
    theirs = iter([(0, 2)])  # of another command
    with pytest.raises(ValueError, match=r"learning_rate \(here 0.1\), seed \(here 1\), files \(here \['a'\]\)"):
        workers.check_same_settings(strategy, ours)


@pytest.mark.slow
def test_a_batch_that_workers_with_files_of_their_own_cannot_share_is_refused(tmp_path):
    own = (write(tmp_path / "records", range(30)), tmp_path / "run", 3, "shard_files=1", "train_batch_size=5")
    for code, said, _ in together(("worker", "worker"), own, own):
        assert code == 1 and said.startswith("ERROR train_batch_size, 5, is no multiple of the number of replicas, 2")


@pytest.mark.slow
def test_workers_with_other_settings_stop_before_the_first_step(tmp_path):
    records, run = write(tmp_path / "records", range(30)), tmp_path / "run"
    found = together(("worker", "worker"), (records, run, 3), (records, run, 4))
    for (code, said, _), steps in zip(found, (3, 4), strict=True):
        assert code == 1
        assert said.startswith(
            f"ERROR the workers were started with different settings: num_train_steps (here {steps})"
        )


def placed(monkeypatch, cluster, job, index):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return types.SimpleNamespace(cluster_resolver=resolver)  # a strategy would start a server


@pytest.mark.parametrize("jobs, chief", [({"worker": 2}, ("worker", 0)), ({"chief": 1, "worker": 2}, ("chief", 0))])
def test_one_process_writes(monkeypatch, jobs, chief):
    cluster = {job: [f"{job}{i}:1" for i in range(count)] for job, count in jobs.items()}
    for job, count in jobs.items():
        for index in range(count):
            strategy = placed(monkeypatch, cluster, job, index)
            assert workers.is_chief(strategy) == ((job, index) == chief)
            assert workers.count_workers(strategy) == sum(jobs.values())


def test_without_several_workers_this_process_writes():
    strategy = distribution.get_strategy("off")
    assert workers.is_chief(strategy) and workers.count_workers(strategy) == 1
    assert workers.gather_from_workers(strategy, 3).tolist() == [[3]]
