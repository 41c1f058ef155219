"""Keras callbacks of a long run: what is shown and logged, checkpoints, and a stop on request."""

import contextlib
import dataclasses
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from tf_bert.files import atomic_writer, exists, open_binary, reason_of
from tf_bert.progress import Progress, say
from tf_bert.trainer.execution import EvaluationStopped
from tf_bert.training import resume
from tf_bert.training.resume import RunState
from tf_bert.training.workers import gather_from_workers

LOG_FILE = "training.jsonl"


class TokenCounter:
    """Counts the real (unpadded) tokens of the batches that a data set gives out.

    Args:
        shares: how many workers read data of their own; those of the others are taken to have as many tokens.
        parts: into how many batches this data set divides that of a step.

    Attributes:
        tokens: how many so far, over all shares; more than were trained on, since batches are made ahead.
        batches: of how many batches.

    Example:
        >>> counter = TokenCounter()
        >>> batches = tf.data.Dataset.from_tensors({"input_mask": tf.constant([[1, 1, 0], [1, 0, 0]])})
        >>> for batch in counter.watch(batches):
        ...     print(counter.tokens, counter.per_step())
        3 3.0
    """

    def __init__(self, shares: int = 1, parts: int = 1):
        self.tokens, self.batches, self.shares, self.parts = 0, 0, shares, parts

    def per_step(self) -> float:
        """The mean number of tokens in the batch of a step."""
        return self.tokens / max(self.batches, 1) * self.parts

    def watch(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The same batches, counted as they are made."""

        def count(tokens) -> np.ndarray:
            self.tokens += int(tokens) * self.shares
            self.batches += 1
            return tokens

        def counted(batch: dict) -> dict:
            mask = batch["input_mask" if "input_mask" in batch else "target_mask"]
            tokens = tf.numpy_function(count, [tf.reduce_sum(mask)], mask.dtype)
            with tf.control_dependencies([tokens]):
                return {name: tf.identity(value) for name, value in batch.items()}

        return dataset.map(counted)


class ReportTraining(keras.callbacks.Callback):
    """Shows and logs a run: loss, accuracies, learning rate and real tokens per second.

    A bar on a terminal, plain lines elsewhere; TensorBoard scalars in ``output_dir`` (those of evaluations in
    ``output_dir/eval``, as the original's); one JSON object a line in ``output_dir/training.jsonl``. Losses and
    accuracies are means over the steps since the line before. A log that cannot be written is an OSError that names it.

    Args:
        output_dir: the folder of the run.
        total_steps: where the run ends.
        every: steps between two lines of the log.
        start: where the run goes on. Later lines of an earlier run that was killed are dropped.
        tokens: counts what is read.
        evaluate: returns the figures of an evaluation.
        evaluate_every: steps between two evaluations while training; 0 for none.
        writes: False for a worker that only takes part.
        stopped: asked before each batch of an evaluation, but for the last one, whether to end it.

    Attributes:
        missed: whether the step where the run goes on lacks its evaluation, because that was stopped: `catch_up`.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike,
        total_steps: int,
        every: int = 100,
        start: RunState = RunState(0),
        tokens: TokenCounter | None = None,
        evaluate: Callable[[], Mapping[str, float]] | None = None,
        evaluate_every: int = 0,
        writes: bool = True,
        stopped: Callable[[], bool] | None = None,
    ):
        super().__init__()
        self.output_dir, self.total_steps, self.every = os.fspath(output_dir), total_steps, every
        self.step = self._logged = self._evaluated = start.step
        self.tokens, self.evaluate, self.evaluate_every = tokens, evaluate, evaluate_every if evaluate else 0
        self._sums = start.metrics
        self.writes, self.stopped = writes, stopped
        self._open = contextlib.ExitStack()
        if writes:
            keep_log(self.output_dir, start.step)
        self.missed = False
        if self.evaluate_every and stopped:  # every other checkpoint is written after the evaluation of its step
            last = max((line["step"] for line in read_log(self.output_dir) if "eval" in line), default=0)
            self.missed = start.step // self.evaluate_every > last // self.evaluate_every

    def catch_up(self, model: keras.Model) -> None:
        """Makes the evaluation that was ``missed``, before the next step. It may stop training."""
        self.set_model(model)
        self.on_train_begin()
        self._run_evaluation(self.step)
        self.close()

    def on_train_begin(self, logs=None):
        """Opens the bar and the logs."""
        self._start_clock()
        if self.writes:
            left = self.total_steps - self.step
            self._progress = self._open.enter_context(Progress("training", left, "steps", seconds=60.0))
            with _named_errors(self.output_dir):
                self._log = self._open.enter_context(tf.io.gfile.GFile(os.path.join(self.output_dir, LOG_FILE), "a"))
                self._writers = {folder: self._start_writer(folder) for folder in ("", "eval")}

    def _start_writer(self, folder: str) -> tf.summary.SummaryWriter:
        """Opens a file for TensorBoard, which then drops what earlier files say of steps that are run again."""
        writer = tf.summary.create_file_writer(os.path.join(self.output_dir, folder))
        self._open.callback(writer.close)
        start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
        event = tf.compat.v1.Event(wall_time=time.time(), step=self.step + 1, session_log=start)
        # There is no public way to write an event that is no summary.
        tf.raw_ops.ImportEvent(writer=writer._resource, event=event.SerializeToString())
        return writer

    def on_epoch_begin(self, epoch, logs=None):
        """Goes on with the averages of a run that was stopped between two lines of the log; ``fit`` has reset them."""
        resume.set_metric_sums(self.model, self._sums)
        self._sums = {}

    def _start_clock(self) -> None:
        self._time = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        """Moves the bar on, and logs when a round number of steps is reached or passed."""
        step = int(np.asarray(self.model.optimizer.iterations))
        if self.writes:
            note = f"step {step:,} of {self.total_steps:,}, loss {float(logs['loss']):.4f}"
            self._progress.update(step - self.step, note)
        self.step = step
        last = step >= self.total_steps
        if step // self.every > self._logged // self.every or last:
            self._report(logs, step)
        if self.evaluate_every and (step // self.evaluate_every > self._evaluated // self.evaluate_every or last):
            self._run_evaluation(step)

    def _report(self, logs: Mapping, step: int) -> None:
        seconds = max(time.monotonic() - self._time, 1e-9)
        figures = {name: float(logs[name]) for name in sorted(logs, key=_place)}
        rates = {"steps_per_second": (step - self._logged) / seconds}
        if self.tokens:
            rates["tokens_per_second"] = self.tokens.per_step() * rates["steps_per_second"]
        if self.writes:
            self._write({"step": step, **figures, **rates})
            self._summarize("", {**figures, **rates}, step)
            say(f"step {step:,}: {shown(figures)}, {', '.join(f'{v:,.4g} {k}' for k, v in _units(rates).items())}")
        self._logged = step
        if step < self.total_steps:  # fit() returns what the metrics hold at its end
            self.model.reset_metrics()
        self._start_clock()

    def _run_evaluation(self, step: int) -> None:
        began, sums = time.monotonic(), resume.metric_sums(self.model)
        # After the last step the run would not go on, and the evaluation would never be made.
        self.model.stop_evaluation = self.stopped if step < self.total_steps else None
        try:
            figures = {name: float(value) for name, value in self.evaluate().items()}
        except EvaluationStopped:
            say(f"step {step:,}: the evaluation is stopped, and made when the run goes on")
            return
        finally:
            self.model.stop_evaluation = None
            self.model.reset_metrics()
            resume.set_metric_sums(self.model, sums)
            self._time += time.monotonic() - began
        if self.writes:
            self._write({"step": step, "eval": figures})
            self._summarize("eval", figures, step)
            say(f"step {step:,}, held out: {shown(figures)}")
        self._evaluated = step

    def _write(self, line: dict) -> None:
        line = {name: None if _not_finite(value) else value for name, value in line.items()}  # JSON has no infinity
        with _named_errors(os.path.join(self.output_dir, LOG_FILE)):
            self._log.write(json.dumps(line) + "\n")
            self._log.flush()

    def _summarize(self, folder: str, figures: Mapping[str, float], step: int) -> None:
        writer = self._writers[folder]
        with _named_errors(os.path.join(self.output_dir, folder, "events.out.tfevents.*")), writer.as_default():
            for name, value in figures.items():
                tf.summary.scalar(name, value, step)
            writer.flush()

    def close(self) -> None:
        """Closes the bar and the logs, however the run ended."""
        self._open.close()

    def on_train_end(self, logs=None):
        """Closes the bar and the logs."""
        self.close()


class SaveCheckpoints(keras.callbacks.Callback):
    """Saves a run every so many steps, at its beginning and at its end; see `tf_bert.training.resume`.

    Args:
        output_dir: the folder of the run.
        batch_size: records in a batch, to know how much of the data was had.
        every: steps between two checkpoints.
        keep: how many checkpoints stay.
        start: where the run goes on; its ``data`` is what the order of the data depends on.
        writes: False for a worker that only takes part.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike,
        batch_size: int,
        every: int = 1000,
        keep: int = 5,
        start: RunState = RunState(0, 0),
        writes: bool = True,
    ):
        super().__init__()
        self.writes = writes
        self.output_dir, self.batch_size, self.every, self.keep = os.fspath(output_dir), batch_size, every, keep
        self.start = self.state = self._current = start
        self.saved = start.prefix

    def on_train_begin(self, logs=None):
        """Saves the state before the first step: a folder that cannot be written is found now, not after an hour."""
        self._records = self.start.records or 0
        if self.saved is None:
            self._save()

    def on_epoch_begin(self, epoch, logs=None):
        """Counts the records of this epoch from here."""
        self._before = self._records

    def on_train_batch_end(self, batch, logs=None):
        """Saves when a round number of steps is reached or passed."""
        # With several steps an execution, Keras counts as if the last one of an epoch were full too.
        batches = min(batch + 1, self.params["steps"] or batch + 1)
        self._records = self._before + batches * self.batch_size
        step = int(np.asarray(self.model.optimizer.iterations))
        due = step // self.every > self.state.step // self.every
        self._current = dataclasses.replace(self.start, step=step, records=self._records)
        if due:
            self._save()

    def on_train_end(self, logs=None):
        """Saves the last step."""
        if self._current != self.state:
            self._save()

    def _save(self) -> None:
        self._current = dataclasses.replace(self._current, metrics=resume.metric_sums(self.model))
        if self.writes:
            self.saved = resume.save_run(self.model, self.output_dir, self._current, self.keep)
        else:  # the chief does, in the same folder
            self.saved = os.path.join(self.output_dir, f"model.ckpt-{self._current.step}")
        self.state = self._current


_STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopOnSignal(keras.callbacks.Callback):
    """Ends training after the step that is running when SIGTERM or Ctrl-C comes, so that the run is saved.

    A second Ctrl-C ends it at once (KeyboardInterrupt); steps after the last checkpoint are lost then.

    Several workers end after the same step, whichever of them got the signal: they would wait for each other otherwise.
    So they sum one number after each execution, which takes some milliseconds. `ReportTraining` asks too, before each
    execution of an evaluation, which ends then.

    Args:
        strategy: where the model is trained; the default strategy is one process.

    Attributes:
        received: the signal's number, None as long as none came to this process.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None):
        super().__init__()
        self.strategy, self.received = strategy or tf.distribute.get_strategy(), None

    def __enter__(self) -> "StopOnSignal":
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            # A script's background job ignores Ctrl-C: it is meant for what runs in front.
            heard = [number for number in _STOPPING_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._on_signal) for number in heard}
        return self

    def __exit__(self, *exception) -> None:
        if self._main:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _on_signal(self, number, frame) -> None:
        if number == signal.SIGINT:
            if self.received is not None:
                raise KeyboardInterrupt
            say("Ctrl-C: the run is saved after this step; Ctrl-C again ends it at once")
        self.received = number

    def on_train_batch_end(self, batch, logs=None):
        """Stops if a signal has come."""
        if self.asked():
            self.model.stop_training = True

    def asked(self) -> bool:
        """Whether a signal has come, to this worker or to another one. All workers have to ask, and get one answer."""
        return bool(gather_from_workers(self.strategy, self.received is not None).any())


def keep_log(output_dir: str, step: int) -> None:
    """Drops what ``training.jsonl`` says about steps after ``step``: they are run again."""
    path = os.path.join(output_dir, LOG_FILE)
    kept = [line for line in read_log(output_dir) if line["step"] <= step] if step else []
    if exists(path):
        with atomic_writer(path, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in kept)


def read_log(output_dir: str | os.PathLike) -> list[dict]:
    """The lines of a run's ``training.jsonl``, without any that is none: a killed run may have left a part of one."""
    path = os.path.join(os.fspath(output_dir), LOG_FILE)
    if not exists(path):
        return []
    lines = []
    with open_binary(path) as file:
        for text in file:
            with contextlib.suppress(ValueError):
                line = json.loads(text)
                if isinstance(line, dict) and isinstance(line.get("step"), int):
                    lines.append(line)
    return lines


@contextlib.contextmanager
def _named_errors(path: str) -> Iterator[None]:
    """Errors of writing as an OSError that names the file; Keras would take some of TensorFlow's for the data's end."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        reason = reason_of(error) if isinstance(error, tf.errors.OpError) else error.strerror or error
        raise OSError(f"cannot write {path}: {reason}") from None


def _not_finite(value) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _place(name: str) -> tuple[bool, bool, str]:
    """Sorts the loss to the front and what is no mean to the end."""
    return name in ("learning_rate", "gradient_norm"), name != "loss", name


def shown(figures: Mapping[str, float]) -> str:
    """Figures as a person reads them."""
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def _units(rates: Mapping[str, float]) -> dict[str, float]:
    return {name.replace("_per_second", "/s"): value for name, value in rates.items()}
