"""Two workers that read files of their own train as one device that reads the same records in turn."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.data.pretraining.test_input import example, write
from tests.data.pretraining.test_packing import tiny_bert
from tests.support import ROOT
from tests.training.test_replicas import free_ports
from tf_bert.training.callbacks import TokenCounter
from tf_bert.training.distribution import distribute

BATCH, STEPS = 4, 6


def test_without_several_workers_there_is_one_share():
    made = []
    distribute(tf.distribute.get_strategy(), lambda size, worker: made.append((size, worker)), 8, by_worker=True)
    assert made == [(8, (0, 1))]


def test_tokens_are_those_of_all_workers():
    counter = TokenCounter(shares=2)
    batches = tf.data.Dataset.from_tensors({"input_mask": tf.constant([[1, 1, 0], [1, 0, 0]])})
    assert len(list(counter.watch(batches))) == 1
    assert counter.tokens == 6


@pytest.mark.slow
def test_workers_that_read_files_of_their_own(tmp_path):
    numbers = [list(range(60)), list(range(60, 120))]
    own = [write(tmp_path / f"own{worker}", part) for worker, part in enumerate(numbers)]
    half = BATCH // 2  # each global batch is half of one worker and half of the other
    turns = [part[half * step : half * (step + 1)] for step in range(30) for part in numbers]
    whole = write(tmp_path / "whole", sum(turns, []))
    assert example(1)["input_ids"].max() < 100
    config = tiny_bert(vocab_size=100)
    (tmp_path / "config.json").write_text(config.to_json_string())

    def start(target, files, steps, **environment):
        flags = [
            *(f"--bert_config_file={tmp_path / 'config.json'}", f"--input_file={','.join(files)}"),
            *(f"--output_dir={tmp_path / target}", "--do_train", f"--num_train_steps={steps}", "--num_warmup_steps=0"),
            *("--max_seq_length=16", "--max_predictions_per_seq=4", f"--train_batch_size={BATCH}", "--shard_files"),
            *("--shuffle_buffer=1", "--learning_rate=1e-3", "--save_checkpoints_steps=3"),
        ]
        if environment:
            flags.append("--distribution_strategy=multi_worker_mirrored")
        command = [sys.executable, ROOT / "tools" / "run_pretraining.py", *flags]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})

    def two_workers(steps):
        cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
        tasks = [{"cluster": cluster, "task": {"type": "worker", "index": index}} for index in range(2)]
        return [start("two", own, steps, TF_CONFIG=json.dumps(task)) for task in tasks]

    for processes in ([start("one", [whole], STEPS)], two_workers(STEPS)):
        for process in processes:
            _, errors = process.communicate(timeout=600)
            assert process.returncode == 0, errors[-3000:]
    one, two = (tf.train.load_checkpoint(str(tmp_path / name / f"model.ckpt-{STEPS}")) for name in ("one", "two"))
    moments = [name for name in one.get_variable_to_shape_map() if name.endswith("/adam_v")]
    assert moments  # the squares of all gradients so far
    for name in moments:  # those of key biases are 0 but for rounding
        np.testing.assert_allclose(two.get_tensor(name), one.get_tensor(name), rtol=1e-2, atol=1e-12, err_msg=name)
