"""One call of ``fit`` with all callbacks of a run, and what is said where it ends before its last step."""

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf

from tf_bert.files import locked
from tf_bert.progress import say
from tf_bert.trainer.trainer import NonFiniteLossError, Trainer
from tf_bert.training.callbacks import ReportTraining, SaveCheckpoints, StopOnSignal, TokenCounter
from tf_bert.training.distribution import distribute
from tf_bert.training.profiling import ProfileSteps
from tf_bert.training.resume import RunState
from tf_bert.training.stopping import Stopped
from tf_bert.training.workers import count_workers, gather_from_workers, is_chief


def fit(
    task,
    model: Trainer,
    output_dir: str,
    state: RunState,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
) -> RunState:
    """Trains with one call of ``fit``, from ``state``; returns the state of the run after it.

    Args:
        task: a `tf_bert.training.recipe.Task`.
        model: from ``task.build``.
        output_dir: gets checkpoints and logs.
        state: from ``task.begin``.
        evaluate: what ``eval_every_steps`` calls.

    Raises:
        NonFiniteLossError: names the last good checkpoint.
        OSError: a checkpoint or a log cannot be written, as on a full disk; names the last good checkpoint too. Another
            process is training in ``output_dir`` (BlockingIOError).
        Stopped: SIGTERM came, and the run is saved.
    """
    options, strategy = task.options, model.distribute_strategy
    writes, total = is_chief(strategy), options.num_train_steps
    if model.steps_per_execution < (options.iterations_per_loop or 0):
        say(
            f"iterations_per_loop {options.iterations_per_loop:,} is cut to {model.steps_per_execution:,}, the "
            "smallest interval of checkpoints, lines of the log and evaluations"
        )
    workers, replicas = count_workers(strategy), strategy.num_replicas_in_sync
    shares = workers if task.by_worker else 1
    counter = TokenCounter(shares, parts=1 if workers == 1 else replicas // shares)  # see `distribute`
    saving = options.save_checkpoints_steps, options.keep_checkpoint_max
    save = SaveCheckpoints(output_dir, task.batch_size, *saving, state, writes)
    stop = StopOnSignal(strategy)
    report = ReportTraining(
        output_dir, total, options.log_steps, state, counter, evaluate, options.eval_every_steps, writes, stop.asked
    )
    profile = [ProfileSteps(output_dir, options.profile, writes=writes)] if options.profile else []

    def make_batches(*part) -> tf.data.Dataset:
        return counter.watch(task.make_batches(model, state, *part))

    with locked(output_dir) if writes else contextlib.nullcontext(), _named_errors(save, report), stop:
        if gather_from_workers(strategy, writes and report.missed).any():  # as the log says that the chief reads
            report.catch_up(model)
        if not (model.stop_training or stop.asked()):
            model.fit(
                distribute(strategy, make_batches, task.batch_size, task.by_worker),
                steps_per_epoch=total - state.step,
                callbacks=[report, save, stop, *profile],
                shuffle=False,
                verbose=0,
            )
        stopped = stop.asked()  # again: a signal may have come after the last step, and the chief has saved now
    if stopped:
        names = {None: "a signal came to another worker", signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM came"}
        came = names[stop.received]
        saved = f"{'' if writes else 'the chief '}saved {save.saved}"
        raise Stopped(f"{came}: {saved}; the same command goes on from step {save.state.step:,}", stop.received)
    return save.state


@contextlib.contextmanager
def _named_errors(save: SaveCheckpoints, report: ReportTraining) -> Iterator[None]:
    """Closes the logs however the block ends, and names the last good checkpoint where it fails."""
    try:
        yield
    except KeyboardInterrupt:
        if save.saved:
            say(f"interrupted: steps after {save.saved} are not saved; the same command goes on from there")
        raise
    except NonFiniteLossError as error:
        raise NonFiniteLossError(f"{error}. The last good checkpoint is {save.saved}") from None
    except ConnectionError:  # another worker is gone, or who reads what is printed: no file is at fault
        raise
    except OSError as error:
        saved = f"The last good checkpoint is {save.saved}" if save.saved else "There is no checkpoint yet"
        raise OSError(
            f"{error}. {saved}; see to what the message says (a full disk needs room), then the same command goes on "
            "from there"
        ) from None
    finally:
        with contextlib.suppress(OSError, tf.errors.OpError):  # training failed for a reason that comes first
            report.close()
