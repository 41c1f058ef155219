"""Where the time of a training step goes: a trace of some steps for TensorBoard and Perfetto."""

import glob
import os

import keras
import tensorflow as tf

from tf_bert.progress import say


class ProfileSteps(keras.callbacks.Callback):
    """Traces some steps of a run with TensorFlow's profiler.

    The first steps, which build the graph, are left out. The trace lies in ``output_dir/plugins/profile/TIME``.
    TensorBoard shows it where its profile plugin is installed (``pip install tensorboard-plugin-profile``).

    Args:
        output_dir: the folder of the run.
        steps: how many executions to trace; with several steps an execution, each counts once.
        skip: executions before them.
        writes: False for a worker that only takes part.
    """

    def __init__(self, output_dir: str | os.PathLike, steps: int, skip: int = 5, writes: bool = True):
        super().__init__()
        self.output_dir, self.steps, self.skip, self.writes = os.fspath(output_dir), steps, skip, writes
        self._seen = 0
        self._running = False

    def on_train_batch_begin(self, batch, logs=None):
        """Starts before the first step that is to be seen."""
        if self.writes and self._seen == self.skip:
            tf.profiler.experimental.start(self.output_dir)
            self._running = True
        self._seen += 1

    def on_train_batch_end(self, batch, logs=None):
        """Stops after the last one."""
        if self._running and self._seen >= self.skip + self.steps:
            self._stop()

    def on_train_end(self, logs=None):
        """Writes what there is when training ends earlier."""
        if self._running:
            self._stop()
        elif self.writes and self._seen <= self.skip:
            say(f"nothing was profiled: training ended within the {self.skip} executions that are left out")

    def _stop(self) -> None:
        tf.profiler.experimental.stop()
        self._running = False
        traces = glob.glob(os.path.join(self.output_dir, "plugins", "profile", "*"))
        if traces:
            say(f"the profile of {self._seen - self.skip} executions is in {max(traces)}")
