"""Trains a tiny BERT in processes that kill themselves at given moments, and goes on until it is done.

Called by test_resume.py as a process of its own, since processes can only be forked before TensorFlow has started:
``python killed_run.py RECORDS OUTPUT_DIR MOMENT ...``. A moment is ``NAME:N``: the N-th time that something happens in
the process, it ends by SIGKILL; ``time:S`` kills it from outside after S seconds. Before them, ``everything`` trains in
float16, in micro-batches, several steps at a time, on as many threads as there are, and evaluates on the way;
``mirrored`` trains on two replicas.
"""

import dataclasses
import os
import signal
import sys
import time
import traceback

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import keras
import tensorflow as tf

from tf_bert.checkpoints import google
from tf_bert.configs import BertConfig
from tf_bert.data.pretraining.input import find_records
from tf_bert.trainer import execution
from tf_bert.training import callbacks, distribution, pretraining, resume

CONFIG = BertConfig(100, 16, 1, 2, 32, max_position_embeddings=16, type_vocab_size=2)
OPTIONS = pretraining.TrainingOptions(
    num_train_steps=24,
    eval_batch_size=4,
    max_eval_steps=2,
    train_batch_size=4,
    learning_rate=1e-2,
    num_warmup_steps=4,
    save_checkpoints_steps=5,
    keep_checkpoint_max=2,
    log_steps=3,
    shuffle_buffer=10,
)
EVERYTHING = dataclasses.replace(
    OPTIONS, gradient_accumulation_steps=2, iterations_per_loop=3, eval_every_steps=6, save_checkpoints_steps=5
)
# What happens -> where: (module, name) of a function that is called then.
MOMENTS = {
    "step": (callbacks.SaveCheckpoints, "on_train_batch_end"),
    "log": (callbacks.ReportTraining, "_write"),
    "rest": (resume, "atomic_writer"),
    "write": (google, "write_tensors"),
    "rename": (tf.io.gfile, "rename"),
    "note": (google, "_note_checkpoint"),
    "remove": (tf.io.gfile, "remove"),
    "execution": (execution.StepFunction, "__call__"),  # of a step of training, or of an evaluation
}


def kill_at(moment: str, count: int, number: int = signal.SIGKILL) -> None:
    """Arranges that this process dies, or gets another signal, when ``moment`` comes for the ``count``-th time."""
    owner, name = MOMENTS[moment]
    original = getattr(owner, name)
    left = [count]

    def deadly(*args, **kwargs):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), number)
        return original(*args, **kwargs)

    setattr(owner, name, deadly)


def train(records: str, output_dir: str, moment: str, count: float, how: str) -> int:
    """Runs one process; returns its status as `os.waitpid` gives it."""
    child = os.fork()
    if not child:
        status = 1
        try:
            if how == "everything":
                keras.config.set_dtype_policy("mixed_float16")
            else:
                tf.config.threading.set_intra_op_parallelism_threads(1)
            if how == "mirrored":
                distribution.set_logical_cpus(2)
            strategy = distribution.get_strategy("mirrored" if how == "mirrored" else "off")
            if moment in MOMENTS:
                kill_at(moment, int(count))
            options = EVERYTHING if how == "everything" else OPTIONS
            pretraining.pretrain(CONFIG, find_records(records), output_dir, options, strategy=strategy)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    if moment == "time":
        time.sleep(count)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def main(records: str, output_dir: str, *moments: str) -> int:
    """Lets the run die at each moment, and ends it; returns the exit status."""
    how = moments[0] if moments[:1] in (("everything",), ("mirrored",)) else ""
    for moment in (*moments[bool(how) :], "never:0"):
        name, _, count = moment.partition(":")
        status = train(records, output_dir, name, float(count), how)
        print(moment, "killed" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}", flush=True)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
