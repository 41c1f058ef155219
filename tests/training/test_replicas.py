"""Several replicas and several workers give the update of one device. The runs are in `replica_runs.py`."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from tests.support import ROOT
from tests.support.replica_runs import compare, train
from tf_bert.training.distribution import get_strategy, set_precision

RUNS = ROOT / "tests/support/replica_runs.py"
FAST = ["plain", "all at once", "keras losses and metrics"]
SLOW = [
    "float32",
    "accumulated",
    "accumulated unevenly",
    "several steps",
    "compiled",
    "compiled in micro-batches",
    "lamb",
    "keras adam",
]
TASKS = [
    "classification",
    "tagging",
    "questions",
    "vectors",
    "translation",
    "translation recomputed",
    "seq2seq",
    "language modeling",
    "elmo",
    "keras metrics of tags",
]


def start(replicas, cases, **environment):
    command = [sys.executable, RUNS, str(replicas), *cases]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "TF_NUM_INTRAOP_THREADS": "1", **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)


def finish(process):
    output, errors = process.communicate(timeout=3000)
    lines = [line for line in output.splitlines() if line.startswith('{"differences"')]
    assert lines, errors[-3000:]
    return json.loads(lines[0])


def check(results):
    for case, differences in results["differences"].items():
        moved = differences.pop("moved")
        assert moved > 0.01, case
        bound = min(1e-5, 1e-3 * moved) if case == "float32" else 1e-10
        assert max(differences.values()) < bound, (case, differences)


def test_two_replicas_train_as_one_device():
    results = finish(start(2, FAST))
    assert list(results["differences"]) == FAST
    check(results)
    by_hand = results["by hand"]
    np.testing.assert_allclose(by_hand["uneven weights"]["w"], [4.0, 16 / 3], rtol=1e-6)
    np.testing.assert_allclose(by_hand["uneven weights"]["loss"], 2 / 3, rtol=1e-6)
    np.testing.assert_allclose(by_hand["clipped"]["w"], [-0.6, -0.8], rtol=1e-6)
    np.testing.assert_allclose(by_hand["clipped"]["norm"], 10.0, rtol=1e-6)
    assert list(by_hand["overflow on the second replica"]) == ["1", "2"]  # micro-batches
    for overflow in by_hand["overflow on the second replica"].values():
        assert overflow["w"] == [0.0, 0.0]
        assert overflow["iterations"] == 0
        assert overflow["scale"] == 2.0**14
    kept, reductions = by_hand["kept"]["1"]
    assert sorted(set(kept)) == [0, 1, 2]  # where both replicas drew the same mask there would be no 1
    kept, more = by_hand["kept"]["4"]
    assert len(set(kept)) > 4 and more == reductions  # one for an update, however many micro-batches


@pytest.mark.slow
def test_two_replicas_in_every_other_way():
    check(finish(start(2, SLOW)))


@pytest.mark.slow
def test_two_replicas_train_every_task_as_one_device():
    check(finish(start(2, TASKS)))


@pytest.mark.slow
def test_four_replicas_train_as_one_device():
    check(finish(start(4, [*FAST, "float32", *TASKS])))


@pytest.mark.slow
def test_one_device_by_its_name_trains_as_no_strategy():
    try:
        check({"differences": {"one_device": compare(train(get_strategy("one_device")), train(None))}})
    finally:
        set_precision("float32")


def free_ports(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_train_as_one_device(workers):
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(workers)]}
    cases = [*FAST, "float32", *TASKS] if workers == 2 else ["plain"]
    processes = [
        start(workers, cases, TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}))
        for index in range(workers)
    ]
    for process in processes:
        check(finish(process))
