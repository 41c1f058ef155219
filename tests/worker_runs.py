"""Trains a tiny BERT as one of several workers; some get SIGTERM on the way. Called by test_workers.py.

``python worker_runs.py RECORDS OUTPUT_DIR STEPS [STEP]`` with TF_CONFIG in the environment: at STEP this process sends
itself SIGTERM. Prints what became of it; ends with the commands' exit status.
"""

import dataclasses
import os
import signal
import sys

import killed_run
import tensorflow as tf

from tf_bert.commands.finetuning_flags import STOPPED
from tf_bert.data.pretraining_input import find_records
from tf_bert.training import callbacks, distribution, pretraining, runs


class Signalled(callbacks.StopOnSignal):
    """Gets the signal at a given step."""

    at = None

    def on_train_batch_end(self, batch, logs=None):
        """Sends it, in the middle of a step for the other workers."""
        if int(self.model.optimizer.iterations.numpy()) == self.at:
            os.kill(os.getpid(), signal.SIGTERM)
        super().on_train_batch_end(batch, logs)


def main(records: str, output_dir: str, steps: str, at: str = "") -> int:
    """Runs the worker; returns its exit status."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if at:
        Signalled.at = int(at)
        runs.StopOnSignal = Signalled
    strategy = distribution.get_strategy("multi_worker_mirrored")
    options = dataclasses.replace(killed_run.OPTIONS, num_train_steps=int(steps), save_checkpoints_steps=100)
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
