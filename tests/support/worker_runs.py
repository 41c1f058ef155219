"""Trains a tiny BERT as one of several workers; some get a signal on the way. Called by test_workers.py.

``python worker_runs.py RECORDS OUTPUT_DIR STEPS [SIGNAL:MOMENT:N] [OPTION=NUMBER ...]`` with TF_CONFIG in the
environment: when MOMENT (see `killed_run.MOMENTS`) comes for the N-th time, this process sends itself SIGNAL, such as
SIGTERM. Prints what became of it; ends with the commands' exit status.
"""

import dataclasses
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from tests.support import killed_run
from tf_bert.commands.flags import STOPPED
from tf_bert.data.pretraining.input import find_records
from tf_bert.training import distribution, pretraining


def main(records: str, output_dir: str, steps: str, *more: str) -> int:
    """Runs the worker; returns its exit status."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if more and ":" in more[0]:
        name, moment, count = more[0].split(":")
        killed_run.kill_at(moment, int(count), signal.Signals[name])
    changed = {name: int(value) for name, value in (one.split("=") for one in more if "=" in one)}
    strategy = distribution.get_strategy("multi_worker_mirrored")
    options = dataclasses.replace(
        killed_run.OPTIONS, num_train_steps=int(steps), eval_every_steps=6, max_eval_steps=3, **changed
    )
    try:
        pretraining.pretrain(killed_run.CONFIG, find_records(records), output_dir, options, strategy=strategy)
    except pretraining.Stopped as stopped:
        print("STOPPED", stopped)
        return STOPPED
    except ValueError as error:
        print("ERROR", error)
        return 1
    print("DONE")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
