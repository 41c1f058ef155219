"""What every training run does, whatever the model: options, start and resume, one call of ``fit``."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping

import keras
import tensorflow as tf

from tf_bert.checkpoints import formats, loading, names, openai
from tf_bert.configs import BertConfig
from tf_bert.files import atomic_writer, locked
from tf_bert.layers.embeddings import BertEmbeddings
from tf_bert.models import pretrained
from tf_bert.progress import say
from tf_bert.trainer.optimization import create_optimizer
from tf_bert.trainer.trainer import NonFiniteLossError, Trainer
from tf_bert.training.callbacks import ReportTraining, SaveCheckpoints, StopOnSignal, TokenCounter
from tf_bert.training.distribution import distribute, strategy_name
from tf_bert.training.profiling import ProfileSteps
from tf_bert.training.resume import RunState, restore_run
from tf_bert.training.workers import (
    check_one_folder,
    check_one_run,
    check_same_settings,
    count_workers,
    gather_from_workers,
    is_chief,
)

TASK_HEAD = ("output_weights", "output_bias", "classifier/output_weights", "classifier/output_bias")


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How to train.

    Args:
        num_train_steps: updates in all; a resumed run makes those that are left.
        train_batch_size: examples in a batch over all replicas and micro-batches.
        learning_rate: the peak.
        num_warmup_steps: updates of the linear warm-up.
        save_checkpoints_steps: updates between two checkpoints.
        keep_checkpoints: how many checkpoints stay.
        log_steps: updates between two lines of the log.
        iterations_per_loop: updates in one call of the compiled function, cut to the smallest of the intervals of
            checkpoints, lines of the log and evaluations.
        gradient_accumulation_steps: micro-batches in a batch.
        seed: of weights, dropout and the order of the data.
        jit_compile: compile the step with XLA.
        recompute: compute activations again in the backward pass instead of keeping them.
        evaluate_every: updates between two evaluations while training; 0 for none.
        profile_steps: how many executions to trace; 0 for none.
    """

    num_train_steps: int = 1
    train_batch_size: int = 32
    learning_rate: float = 5e-5
    num_warmup_steps: int = 0
    save_checkpoints_steps: int = 1000
    keep_checkpoints: int = 5
    log_steps: int = 100
    iterations_per_loop: int = 1
    gradient_accumulation_steps: int = 1
    seed: int = 12345
    jit_compile: bool = False
    recompute: bool = False
    evaluate_every: int = 0
    profile_steps: int = 0


def set_seed(seed: int) -> None:
    """Sets every global seed; 0 becomes another one, since tf.data fails on a global seed of 0 beside a pass's own."""
    keras.utils.set_random_seed(seed or 2**30)


class Stopped(Exception):
    """SIGTERM came; the run is saved and goes on when it is started again."""


def compile_for(model: Trainer, options: RunOptions, optimizer: keras.optimizers.Optimizer | None = None) -> None:
    """Gives a model its optimizer, BERT's by default, with its slots. Call it under the strategy's scope.

    On a TPU BERT's words are looked up by a product with a one-hot matrix, as in the original; no saved configuration
    says so, since weights and outputs are the same.
    """
    if strategy_name(model.distribute_strategy) == "tpu":
        for layer in model._flatten_layers():
            if isinstance(layer, BertEmbeddings):
                layer.use_one_hot_embeddings = True
    parts = options.gradient_accumulation_steps
    if parts > options.train_batch_size:
        raise ValueError(
            f"gradient_accumulation_steps is {parts}, and a batch of {options.train_batch_size} (train_batch_size) "
            "cannot be cut into so many"
        )
    intervals = (options.save_checkpoints_steps, options.log_steps, options.evaluate_every)
    model.compile(
        optimizer or create_optimizer(options.learning_rate, options.num_train_steps, options.num_warmup_steps),
        gradient_accumulation_steps=parts,
        steps_per_execution=min([options.iterations_per_loop, *(steps for steps in intervals if steps)]),
        jit_compile=options.jit_compile,
        recompute=options.recompute,
    )
    model.optimizer.build(model.trainable_variables)


def begin(
    model: Trainer,
    output_dir: str,
    options: RunOptions,
    data: Mapping,
    init_checkpoint: str | os.PathLike | None,
) -> RunState:
    """Restores a run, or begins one; says which.

    Args:
        model: from `compile_for`.
        output_dir: the folder of the run.
        options: how to train.
        data: what the order of the data depends on.
        init_checkpoint: weights of a new run, in any format that `tf_bert.checkpoints` reads.

    Raises:
        ValueError: the run is beyond ``num_train_steps`` already; several workers have different settings, found
            different checkpoints, or do not see the folder that the chief writes.
    """
    total, strategy = options.num_train_steps, model.distribute_strategy
    settings = {
        **dataclasses.asdict(options),
        **data,
        "precision": model.dtype_policy.name,
        "model": getattr(model, "config", None),
    }
    check_same_settings(strategy, settings)
    state = restore_run(model, output_dir)
    check_one_run(strategy, output_dir, state)
    check_one_folder(strategy, output_dir)
    if state is None:
        if init_checkpoint:
            report = _load_initial_weights(model, init_checkpoint)
            say(f"weights from {init_checkpoint}: {report}; steps and moments begin at 0")
        return RunState(0, 0, data)
    if state.step > total:
        raise ValueError(
            f"{output_dir} has a checkpoint of step {state.step}, which is beyond num_train_steps {total}: nothing "
            f"would be trained. Ask for more than {state.step} steps in all, or use another output_dir (with "
            f"init_checkpoint {state.prefix} to begin a new run with these weights)"
        )
    if state.step == total:
        say(f"ALREADY TRAINED: {state.prefix} is at step {total:,} of {total:,}; nothing is trained")
    else:
        say(f"RESUMING from {state.prefix}: step {state.step:,} of {total:,}")
    if init_checkpoint:
        say(f"init_checkpoint {init_checkpoint} is not used: the run in {output_dir} goes on")
    if state.records is None:
        say("no place in the data is noted beside the checkpoint: it is taken to have had one batch a step")
        return dataclasses.replace(state, records=state.step * options.train_batch_size, data=data)
    if state.data != data:
        changed = [key for key in {**data, **state.data} if state.data.get(key) != data.get(key)]
        changed = ["number of workers that share the files" if key == "workers" else key for key in changed]
        say(f"WARNING: the data are not those of before ({', '.join(changed)} changed): they are read from their start")
        return dataclasses.replace(state, records=0, data=data)
    return state


def open_initial(init_checkpoint: str | os.PathLike, config: BertConfig) -> formats.Checkpoint:
    """Opens weights to begin with, in any format, also where no configuration lies beside them.

    Raises:
        ValueError: a configuration beside them says that they were trained for another one; see also
            `tf_bert.models.pretrained.open_checkpoint`.
    """
    try:
        checkpoint = pretrained.open_checkpoint(init_checkpoint)
    except FileNotFoundError:  # maybe only the configuration
        return pretrained.open_checkpoint(init_checkpoint, config)
    for name in ("hidden_act", "num_attention_heads"):  # what the shapes of the variables do not tell
        found, expected = getattr(checkpoint.config, name), getattr(config, name)
        if found != expected:
            raise ValueError(
                f"{os.fspath(init_checkpoint)} was trained with {name} {found!r}, as the configuration beside it says, "
                f"and the model has {expected!r}: its outputs would be others. Give the checkpoint's own "
                "bert_config_file"
            )
    return checkpoint


def _load_initial_weights(model: Trainer, init_checkpoint: str | os.PathLike) -> loading.LoadReport:
    """Loads weights to begin with; the head of another task, with other labels, starts fresh."""
    reader, variables = open_initial(init_checkpoint, model.config).reader, names.model_variables(model)
    table, new_rows = variables.get(names.GPT_WORDS), getattr(model, "new_rows", 0)
    if new_rows and reader.shapes.get(names.GPT_WORDS, (None,))[0] == table.shape[0] - new_rows:
        reader = openai.ReaderWithNewRows(reader, table)
    for name, variable in variables.items():
        if name in TASK_HEAD and reader.shapes.get(name, variable.shape) != tuple(variable.shape):
            found = reader.shapes.pop(name)
            say(f"{name} is {found} in {init_checkpoint} and {tuple(variable.shape)} here: it starts fresh")
    return loading.load_weights(model, reader)


def say_start(model: Trainer, options: RunOptions, state: RunState, batch: str) -> None:
    """Says where, on what and how far a run goes; ``batch``: what a global batch is."""
    strategy, parts = model.distribute_strategy, options.gradient_accumulation_steps
    name = strategy_name(strategy).replace("off", "one device")
    replicas = f", {strategy.num_replicas_in_sync} replicas" if strategy.num_replicas_in_sync > 1 else ""
    say(
        f"{name}{replicas}, global batch {batch}{f' in {parts} micro-batches' if parts > 1 else ''}, "
        f"{model.count_params():,} parameters, {model.dtype_policy.name}, steps {state.step:,} to "
        f"{options.num_train_steps:,}, seed {options.seed}"
    )


def train(
    model: Trainer,
    make_batches: Callable[..., tf.data.Dataset],
    output_dir: str,
    options: RunOptions,
    state: RunState,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    by_worker: bool = False,
) -> RunState:
    """Trains with one call of ``fit``, from ``state``; returns where the run stands then.

    Args:
        model: from `compile_for`.
        make_batches: makes endless batches of the size that it is called with, from the state on.
        output_dir: gets checkpoints and logs.
        options: how to train.
        state: from `begin`.
        evaluate: what ``options.evaluate_every`` calls.
        by_worker: whether each worker reads its own share, see `tf_bert.training.distribution.distribute`.

    Raises:
        NonFiniteLossError: names the last good checkpoint.
        OSError: a checkpoint or a log cannot be written, as on a full disk; names the last good checkpoint too. Another
            process is training in ``output_dir`` (BlockingIOError).
        Stopped: SIGTERM came, and the run is saved.
    """
    with locked(output_dir) if is_chief(model.distribute_strategy) else contextlib.nullcontext():
        return _train(model, make_batches, output_dir, options, state, evaluate, by_worker)


def _train(model, make_batches, output_dir, options, state, evaluate, by_worker) -> RunState:
    total, size = options.num_train_steps, options.train_batch_size
    strategy = model.distribute_strategy
    writes = is_chief(strategy)
    if model.steps_per_execution < options.iterations_per_loop:
        say(
            f"iterations_per_loop {options.iterations_per_loop:,} is cut to {model.steps_per_execution:,}, the "
            "smallest interval of checkpoints, lines of the log and evaluations"
        )
    workers, replicas = count_workers(strategy), strategy.num_replicas_in_sync
    shares = workers if by_worker else 1
    counter = TokenCounter(shares, parts=1 if workers == 1 else replicas // shares)  # see `distribute`
    save = SaveCheckpoints(output_dir, size, options.save_checkpoints_steps, options.keep_checkpoints, state, writes)
    stop = StopOnSignal(strategy)
    report = ReportTraining(
        output_dir, total, options.log_steps, state, counter, evaluate, options.evaluate_every, writes, stop.asked
    )
    profile = [ProfileSteps(output_dir, options.profile_steps, writes=writes)] if options.profile_steps else []
    try:
        with stop:
            model.stop_training = False
            if gather_from_workers(strategy, writes and report.missed).any():  # as the log says that the chief reads
                report.catch_up(model)
            if not (model.stop_training or stop.asked()):
                model.fit(
                    distribute(strategy, lambda *part: counter.watch(make_batches(*part)), size, by_worker),
                    steps_per_epoch=total - state.step,
                    callbacks=[report, save, stop, *profile],
                    shuffle=False,
                    verbose=0,
                )
            stopped = stop.asked()  # again: a signal may have come after the last step, and the chief has saved now
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
    if stopped:
        came = "SIGTERM came" if stop.received is not None else "SIGTERM came to another worker"
        saved = f"{'' if writes else 'the chief '}saved {save.saved}"
        raise Stopped(f"{came}: {saved}; the same command goes on from step {save.state.step:,}")
    return save.state


def load_for_evaluation(
    model: Trainer, output_dir: str | os.PathLike, init_checkpoint: str | os.PathLike | None = None
) -> int:
    """Gives a model the weights of the newest checkpoint of a run, else those of ``init_checkpoint``.

    Returns:
        The step of the checkpoint, 0 for ``init_checkpoint``.

    Raises:
        ValueError: there is neither, or a head is missing; several workers found different checkpoints.
    """
    state = restore_run(model, output_dir)
    check_one_run(model.distribute_strategy, os.fspath(output_dir), state)
    if state is not None:
        say(f"evaluating {state.prefix}, step {state.step:,}")
        return state.step
    if not init_checkpoint:
        raise ValueError(f"nothing to evaluate: no checkpoint in {os.fspath(output_dir)} and no init_checkpoint")
    report = loading.load_weights(model, open_initial(init_checkpoint, model.config).reader)
    if report.missing:
        raise ValueError(
            f"{init_checkpoint} has no value for {', '.join(report.missing)}: what the model says would be "
            "random; train first, or give the checkpoint of a model that was trained for this"
        )
    say(f"evaluating {init_checkpoint} (no checkpoint in {os.fspath(output_dir)}): {report}")
    return 0


def write_eval_results(path: str | os.PathLike, figures: Mapping[str, float], global_step: int) -> None:
    """Writes ``eval_results.txt`` as the original: one ``key = value`` a line, keys sorted."""
    with atomic_writer(path, "w") as file:
        for key, value in sorted({**figures, "global_step": global_step}.items()):
            file.write(f"{key} = {value!s}\n")
