"""Pre-training of BERT: what ``run_pretraining`` does, as functions."""

import dataclasses
import os
from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from tf_bert.checkpoints import convert, google
from tf_bert.configs import BertConfig
from tf_bert.data import pretraining_input
from tf_bert.data.pretraining_input import RecordFiles, id_limits, record_errors
from tf_bert.files import atomic_writer, make_folder
from tf_bert.models.bert import BertForPreTraining
from tf_bert.progress import say
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.training.callbacks import ReportTraining, SaveCheckpoints, StopOnSignal, TokenCounter
from tf_bert.training.distribution import distribute
from tf_bert.training.optimization import create_optimizer
from tf_bert.training.resume import RunState, clean_up, find_checkpoints, restore_run
from tf_bert.training.trainer import NonFiniteLossError

EVAL_KEYS = (
    "loss",
    "masked_lm_accuracy",
    "masked_lm_loss",
    "next_sentence_accuracy",
    "next_sentence_loss",
)


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """How to pre-train; names and defaults are those of ``run_pretraining``.

    Args:
        num_train_steps: updates in all; a resumed run makes those that are left.
        train_batch_size: records in a batch over all replicas and micro-batches.
        learning_rate: the peak.
        num_warmup_steps: updates of the linear warm-up.
        save_checkpoints_steps: updates between two checkpoints.
        keep_checkpoints: how many checkpoints stay.
        log_steps: updates between two lines of the log.
        iterations_per_loop: updates in one call of the compiled function.
        gradient_accumulation_steps: micro-batches in a batch.
        seed: of weights, dropout and the order of the data.
        shuffle_buffer: records to draw the next one from.
        deterministic: False lets the order of the records depend on the speed of the disk.
        jit_compile: compile the step with XLA.
        evaluate_every: updates between two evaluations while training; 0 for none.
    """

    num_train_steps: int = 100_000
    train_batch_size: int = 32
    learning_rate: float = 5e-5
    num_warmup_steps: int = 10_000
    save_checkpoints_steps: int = 1000
    keep_checkpoints: int = 5
    log_steps: int = 100
    iterations_per_loop: int = 1
    gradient_accumulation_steps: int = 1
    seed: int = 12345
    shuffle_buffer: int = pretraining_input.SHUFFLE_BUFFER
    deterministic: bool = True
    jit_compile: bool = False
    evaluate_every: int = 0


@dataclasses.dataclass(frozen=True)
class EvaluationOptions:
    """How to evaluate: batches of ``eval_batch_size``, ``max_eval_steps`` of them, the records starting anew when they
    end; with ``max_eval_steps`` 0 every record once.
    """

    eval_batch_size: int = 8
    max_eval_steps: int = 100


class Stopped(Exception):
    """SIGTERM came; the run is saved and goes on when it is started again."""


def pretrain(
    config: BertConfig,
    records: RecordFiles,
    output_dir: str | os.PathLike,
    options: TrainingOptions = TrainingOptions(),
    *,
    init_checkpoint: str | os.PathLike | None = None,
    eval_records: RecordFiles | None = None,
    evaluation: EvaluationOptions = EvaluationOptions(),
    strategy: tf.distribute.Strategy | None = None,
) -> BertForPreTraining:
    """Pre-trains BERT with masked LM and next-sentence prediction, or goes on with a run that was stopped.

    It is ``model.fit`` with three callbacks (`ReportTraining`, `SaveCheckpoints`, `StopOnSignal`). A folder that holds
    checkpoints is resumed: weights, moments, step, place in the data, dropout, metrics. A run that goes on gives the
    weights of one that never stopped, bit for bit on the same machine. Seeds of Python, NumPy and Keras are set.

    Args:
        config: sizes and rates.
        records: from `tf_bert.data.pretraining_input.find_records`.
        output_dir: gets ``model.ckpt-N``, ``training.jsonl`` and TensorBoard's files; made if need be.
        options: how to train.
        init_checkpoint: a TensorFlow 1 checkpoint whose weights to begin with; step, moments and rate begin anew. Not
            used when ``output_dir`` has a checkpoint.
        eval_records: what ``options.evaluate_every`` evaluates on.
        evaluation: how it does.
        strategy: where to train; the default strategy is one device.

    Returns:
        The trained model.

    Raises:
        ValueError: records, configuration and checkpoint do not fit; the run is beyond ``num_train_steps`` already.
        NonFiniteLossError: the loss or a weight is not finite; names the step and the last good checkpoint.
        Stopped: SIGTERM came, and the run is saved.

    Source: Devlin et al. 2018, sections 3.1 and A.2; ``run_pretraining.py`` of google-research/bert.
    """
    output_dir = os.fspath(output_dir)
    check_fit(config, records)
    keras.utils.set_random_seed(options.seed)
    strategy = strategy or tf.distribute.get_strategy()
    model = build_model(config, options, strategy)
    if is_chief(strategy):
        make_folder(output_dir)
        clean_up(output_dir)
    state = _begin(model, output_dir, options, records, init_checkpoint)
    _say_start(model, records, options, strategy, state)
    evaluate = _evaluator(model, eval_records or records, evaluation) if options.evaluate_every else None
    while state.step < options.num_train_steps:
        # Once, but for float16: where a step overflows, nothing is updated, and its batch is made up for.
        state = _train(model, records, output_dir, options, state, evaluate)
    return model


def _train(
    model: BertForPreTraining,
    records: RecordFiles,
    output_dir: str,
    options: TrainingOptions,
    state: RunState,
    evaluate: Callable[[], dict[str, float]] | None,
) -> RunState:
    """Trains with one call of ``fit``, from ``state``; returns where the run stands then."""
    total, strategy = options.num_train_steps, model.distribute_strategy
    writes = is_chief(strategy)
    limits = id_limits(model.config.vocab_size, model.config.type_vocab_size)
    counter = TokenCounter()

    def make_batches(size: int) -> tf.data.Dataset:
        dataset = pretraining_input.train_dataset(
            records,
            size,
            seed=options.seed,
            shuffle_buffer=options.shuffle_buffer,
            skip_records=state.records,
            limits=limits,
            deterministic=options.deterministic,
        )
        return counter.watch(dataset)

    every, keep, size = options.save_checkpoints_steps, options.keep_checkpoints, options.train_batch_size
    save = SaveCheckpoints(output_dir, size, every, keep, state, writes)
    report = ReportTraining(
        output_dir, total, options.log_steps, state, counter, evaluate, options.evaluate_every, writes
    )
    try:
        with StopOnSignal() as stop, record_errors(records, limits):
            model.fit(
                distribute(strategy, make_batches, size),
                steps_per_epoch=total - state.step,
                callbacks=[report, save, stop],
                shuffle=False,
                verbose=0,
            )
    except NonFiniteLossError as error:
        raise NonFiniteLossError(f"{error}. The last good checkpoint is {save.saved}") from None
    finally:
        report.close()
    if stop.received is not None:
        raise Stopped(f"SIGTERM came: saved {save.saved}; the same command goes on from step {save.state.step:,}")
    return save.state


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the files of a run: the only one, or the first of several workers."""
    resolver = strategy.cluster_resolver
    return not (isinstance(resolver, tf.distribute.cluster_resolver.ClusterResolver) and resolver.task_id)


def build_model(
    config: BertConfig, options: TrainingOptions, strategy: tf.distribute.Strategy | None = None
) -> BertForPreTraining:
    """Makes the model with its optimizer, ready for ``fit`` and ``evaluate``."""
    with (strategy or tf.distribute.get_strategy()).scope():
        model = BertForPreTraining(config)
        model.compile(
            create_optimizer(options.learning_rate, options.num_train_steps, options.num_warmup_steps),
            gradient_accumulation_steps=options.gradient_accumulation_steps,
            steps_per_execution=min(options.iterations_per_loop, options.save_checkpoints_steps, options.log_steps),
            jit_compile=options.jit_compile,
        )
        model.optimizer.build(model.trainable_variables)
    return model


def check_fit(config: BertConfig, records: RecordFiles) -> None:
    """Checks that records fit a model's tables.

    Raises:
        ValueError: names the file, what it has and what the configuration has.
    """
    if records.max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"{records.files[0]}: max_seq_length is {records.max_seq_length}, and the configuration has "
            f"max_position_embeddings {config.max_position_embeddings}: a longer table or shorter records are needed"
        )
    for path, sidecar in zip(records.files, records.sidecars, strict=True):
        if sidecar.get("vocab_size", 0) > config.vocab_size:
            raise ValueError(
                f"{path} was made with a vocabulary of {sidecar['vocab_size']} entries ({path}.json), and the "
                f"configuration has vocab_size {config.vocab_size}: ids would lie beyond the table"
            )


def _begin(
    model: BertForPreTraining,
    output_dir: str,
    options: TrainingOptions,
    records: RecordFiles,
    init_checkpoint: str | os.PathLike | None,
) -> RunState:
    """Restores a run, or begins one; says which."""
    total = options.num_train_steps
    data = {
        "seed": options.seed,
        "shuffle_buffer": options.shuffle_buffer,
        "files": [os.path.basename(path) for path in records.files],
        "records": records.counts(),
    }
    state = restore_run(model, output_dir)
    if state is None:
        if init_checkpoint:
            report = google.load_checkpoint(model, init_checkpoint)
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
        changed = [key for key in data if state.data.get(key) != data[key]]
        say(f"WARNING: the data are not those of before ({', '.join(changed)} changed): they are read from their start")
        return dataclasses.replace(state, records=0, data=data)
    return state


def _say_start(
    model: BertForPreTraining,
    records: RecordFiles,
    options: TrainingOptions,
    strategy: tf.distribute.Strategy,
    state: RunState,
) -> None:
    say(
        f"{type(strategy).__name__}, {strategy.num_replicas_in_sync} replicas, global batch "
        f"{options.train_batch_size} x {records.max_seq_length} tokens in {options.gradient_accumulation_steps} "
        f"micro-batches, {model.count_params():,} parameters, {model.dtype_policy.name}, steps {state.step:,} to "
        f"{options.num_train_steps:,}, seed {options.seed}"
    )


def evaluate(
    model: BertForPreTraining,
    records: RecordFiles,
    options: EvaluationOptions = EvaluationOptions(),
) -> dict[str, float]:
    """The original's five figures: total loss, loss and accuracy of masked LM and of next-sentence prediction.

    Args:
        model: compiled.
        records: what to evaluate on, in order.
        options: how much of it.

    Raises:
        ValueError: the records do not fit the model, or are damaged.
    """
    check_fit(model.config, records)
    with record_errors(records, id_limits(model.config.vocab_size, model.config.type_vocab_size)):
        return _evaluator(model, records, options)()


def _evaluator(
    model: BertForPreTraining, records: RecordFiles, options: EvaluationOptions
) -> Callable[[], dict[str, float]]:
    limits = id_limits(model.config.vocab_size, model.config.type_vocab_size)
    repeat = options.max_eval_steps > 0
    steps = options.max_eval_steps if repeat else -(-sum(records.counts()) // options.eval_batch_size)
    batches = distribute(
        model.distribute_strategy,
        lambda size: pretraining_input.eval_dataset(records, size, repeat=repeat, limits=limits),
        options.eval_batch_size,
    )

    def run() -> dict[str, float]:
        figures = model.evaluate(batches, steps=steps, verbose=0, return_dict=True)
        return {key: np.float32(figures[key]) for key in EVAL_KEYS if key in figures}

    return run


def load_for_evaluation(
    model: BertForPreTraining, output_dir: str | os.PathLike, init_checkpoint: str | os.PathLike | None = None
) -> int:
    """Gives a model the weights of the newest checkpoint of a run, else those of ``init_checkpoint``.

    Returns:
        The step of the checkpoint, 0 for ``init_checkpoint``.

    Raises:
        ValueError: there is neither.
    """
    if find_checkpoints(os.fspath(output_dir)):
        state = restore_run(model, output_dir)
        say(f"evaluating {state.prefix}, step {state.step:,}")
        return state.step
    if not init_checkpoint:
        raise ValueError(f"nothing to evaluate: no checkpoint in {os.fspath(output_dir)} and no init_checkpoint")
    report = google.load_checkpoint(model, init_checkpoint)
    say(f"evaluating {init_checkpoint} (no checkpoint in {os.fspath(output_dir)}): {report}")
    return 0


def write_eval_results(path: str | os.PathLike, figures: Mapping[str, float], global_step: int) -> None:
    """Writes ``eval_results.txt`` as the original: one ``key = value`` a line, keys sorted."""
    with atomic_writer(path, "w") as file:
        for key, value in sorted({**figures, "global_step": global_step}.items()):
            file.write(f"{key} = {value!s}\n")


def export(model: BertForPreTraining, directory: str | os.PathLike, tokenizer: FullTokenizer | None = None) -> str:
    """Writes a directory laid out as Google's archives: ``bert_config.json``, ``bert_model.ckpt``, ``vocab.txt``.

    Args:
        model: the weights and sizes.
        directory: made if need be.
        tokenizer: its vocabulary and switches are put beside the weights.

    Returns:
        The directory, for ``Bert.from_checkpoint``.
    """
    return convert.save_model(model, directory, "google", tokenizer)
