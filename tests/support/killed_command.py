"""Runs a tf-bert command in processes that kill themselves while they write, until one of them ends normally.

Called as a process of its own, since processes can only be forked before TensorFlow has started:
``python killed_command.py WHICH CHECK COMMAND ...``. Whatever writes to the disk counts as a moment: a file or folder
that is made, flushed, renamed or removed. WHICH names the moments at which the process dies, such as ``1,3,7``, or
``all``. After each, CHECK, a Python file, is run with the text ``killed`` or ``done`` as its argument; it fails where
what is on the disk is neither old nor new. Printed is how each process ended.
"""

import os
import signal
import subprocess
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from tf_bert.commands.main import main as command
from tf_bert.files import atomic

MOMENTS = [(os, "replace"), (os, "rename"), (os, "mkdir"), (os, "fsync"), (os, "remove"), (tf.io.gfile, "rename")]
MOMENTS += [(atomic._LocalFile, "write")]


def kill_at(count: int) -> None:
    """Arranges that this process dies at a moment."""
    left = [count]

    def deadly(original):
        def call(*args, **kwargs):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        return call

    for owner, name in MOMENTS:
        setattr(owner, name, deadly(getattr(owner, name)))


def run(count: int, arguments: list[str]) -> int:
    """Runs the command in a process that dies at a moment, or at none for 0; returns its status."""
    child = os.fork()
    if not child:
        if count:
            kill_at(count)
        os._exit(command(arguments))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(which: str, check: str, *arguments: str) -> int:
    """Lets the command die at each moment; returns 0 if the last one ends normally and all checks pass."""
    chosen = [int(number) for number in which.split(",")] if which != "all" else range(1, 1000)
    for count in (*chosen, 0):
        status = run(count, list(arguments))
        print(count, "killed" if status == -signal.SIGKILL else f"status {status}", flush=True)
        killed = status == -signal.SIGKILL
        if subprocess.run([sys.executable, "-S", check, "killed" if killed else "done"], check=False).returncode:
            return 1
        if not killed:
            break
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
