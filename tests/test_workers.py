"""Several workers stop together, begin alike, and one of them writes."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import tensorflow as tf
from test_pretraining_input import write
from test_replicas import free_ports

from tf_bert.commands.finetuning_flags import STOPPED
from tf_bert.training import distribution

RUNS = Path(__file__).with_name("worker_runs.py")


def together(jobs, *arguments):
    """Starts a worker of each kind of job with its own arguments; returns exit status and last line of each."""
    addresses = [f"localhost:{port}" for port in free_ports(len(jobs))]
    cluster = {}
    for job, address in zip(jobs, addresses, strict=True):
        cluster.setdefault(job, []).append(address)
    processes = []
    for job, address, own in zip(jobs, addresses, arguments, strict=True):
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": cluster[job].index(address)}})
        variables = {**os.environ, "PYTHONPATH": str(RUNS.parent.parent), "TF_CONFIG": config}
        command = [sys.executable, RUNS, *map(str, own)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, **pipes, text=True, env=variables))
    outputs = [process.communicate(timeout=300) for process in processes]
    return [
        (process.returncode, out.splitlines()[-1] if out else errors[-3000:], errors)
        for process, (out, errors) in zip(processes, outputs, strict=True)
    ]


@pytest.mark.slow
def test_a_signal_to_one_worker_stops_all_after_the_same_step(tmp_path):
    records, run = write(tmp_path / "records", range(30)), tmp_path / "run"
    chief, other = together(("worker", "worker"), (records, run, 8), (records, run, 8, 4))
    saved = f"saved {run}/model.ckpt-4; the same command goes on from step 4"
    assert chief[:2] == (STOPPED, f"STOPPED SIGTERM came to another worker: {saved}")
    assert other[:2] == (STOPPED, f"STOPPED SIGTERM came: the chief {saved}")
    assert "multi_worker_mirrored, 2 replicas, global batch 4" in chief[2]

    # Goes on, with TF_CONFIG's other way to name the one that writes. At the last step the chief gets the signal.
    worker, chief = together(("worker", "chief"), (records, run, 8), (records, run, 8, 8))
    saved = f"saved {run}/model.ckpt-8; the same command goes on from step 8"
    assert worker[:2] == (STOPPED, f"STOPPED SIGTERM came to another worker: the chief {saved}")
    assert chief[:2] == (STOPPED, f"STOPPED SIGTERM came: {saved}")
    assert len(list(run.glob("events.out.tfevents.*"))) == 2  # one writer in each of the two runs


@pytest.mark.slow
def test_workers_with_folders_of_their_own_stop_before_they_train_unlike_weights(tmp_path):
    records, run = write(tmp_path / "records", range(30)), tmp_path / "run"
    assert [code for code, *_ in together(("worker",), (records, run, 3))] == [0]
    found = together(("worker", "worker"), (records, run, 6), (records, tmp_path / "other", 6))
    for (code, said, _), folder in zip(found, (run, tmp_path / "other"), strict=True):
        assert code == 1
        assert said.startswith(f"ERROR output_dir {folder} has to be one folder that all workers see"), said
        assert "worker 0 step 3, record 12; worker 1 no checkpoint" in said


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
            assert distribution.is_chief(strategy) == ((job, index) == chief)
            assert distribution.count_workers(strategy) == sum(jobs.values())


def test_without_several_workers_this_process_writes():
    strategy = distribution.get_strategy("off")
    assert distribution.is_chief(strategy) and distribution.count_workers(strategy) == 1
    assert distribution.gather_from_workers(strategy, 3).tolist() == [[3]]
