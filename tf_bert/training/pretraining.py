"""Pre-training of BERT: what ``run_pretraining`` does, as functions."""

import dataclasses
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tf_bert.configs import BertConfig
from tf_bert.data.pretraining import input as pretraining_input
from tf_bert.data.pretraining.input import RecordFiles, id_limits, record_errors
from tf_bert.data.tfrecord.input_pipeline import check_vocab_size
from tf_bert.files import make_folder
from tf_bert.models import pretrained
from tf_bert.models.bert import BertForPreTraining
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.training.distribution import check_batch_size, distribute
from tf_bert.training.resume import RunState, clean_up
from tf_bert.training.runs import (
    RunOptions,
    Stopped,
    begin,
    compile_for,
    load_for_evaluation,
    say_start,
    set_seed,
    train,
)
from tf_bert.training.workers import count_workers, is_chief

__all__ = [
    "EvaluationOptions",
    "Stopped",
    "TrainingOptions",
    "build_model",
    "evaluate",
    "export",
    "load_for_evaluation",
    "pretrain",
]

EVAL_KEYS = (
    "loss",
    "masked_lm_accuracy",
    "masked_lm_loss",
    "next_sentence_accuracy",
    "next_sentence_loss",
)


@dataclasses.dataclass(frozen=True)
class TrainingOptions(RunOptions):
    """How to pre-train; names and defaults are those of ``run_pretraining``.

    Args:
        num_train_steps: see `tf_bert.training.runs.RunOptions`, as for those that are not here.
        num_warmup_steps: updates of the linear warm-up.
        shuffle_buffer: records to draw the next one from.
        deterministic: False lets the order of the records depend on the speed of the disk.
        shard_files: whether each of several workers reads only its share of the files (of the records, when there are
            fewer files). The order of the records then depends on the number of workers.
        attention: ``"plain"``, or ``"chunked"`` for long sequences, see `tf_bert.models.bert.Bert`.
    """

    num_train_steps: int = 100_000
    num_warmup_steps: int = 10_000
    shuffle_buffer: int = pretraining_input.SHUFFLE_BUFFER
    deterministic: bool = True
    shard_files: bool = False
    attention: str = "plain"


@dataclasses.dataclass(frozen=True)
class EvaluationOptions:
    """How to evaluate: batches of ``eval_batch_size``, ``max_eval_steps`` of them, the records starting anew when they
    end; with ``max_eval_steps`` 0 every record once.
    """

    eval_batch_size: int = 8
    max_eval_steps: int = 100


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
        records: from `tf_bert.data.pretraining.input.find_records`.
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
    set_seed(options.seed)
    strategy = strategy or tf.distribute.get_strategy()
    model = build_model(config, options, strategy)
    if is_chief(strategy):
        make_folder(output_dir)
        clean_up(output_dir, options.keep_checkpoints)
    data = {
        "seed": options.seed,
        "shuffle_buffer": options.shuffle_buffer,
        "files": [os.path.basename(path) for path in records.files],
        "records": records.counts(),
    }
    if options.shard_files and count_workers(strategy) > 1:
        check_batch_size(strategy, options.train_batch_size, "train_batch_size")
        data["workers"] = count_workers(strategy)
    state = begin(model, output_dir, options, data, init_checkpoint)
    say_start(model, options, state, f"{options.train_batch_size} x {records.record_length} tokens")
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
    limits = id_limits(model.config.vocab_size, model.config.type_vocab_size)

    def make_batches(size: int, worker: tuple[int, int] = (0, 1)) -> tf.data.Dataset:
        return pretraining_input.train_dataset(
            records,
            size,
            seed=options.seed,
            shuffle_buffer=options.shuffle_buffer,
            skip_records=state.records // worker[1],
            limits=limits,
            shard=worker,
            deterministic=options.deterministic,
        )

    with record_errors(records, limits):
        return train(model, make_batches, output_dir, options, state, evaluate, by_worker=options.shard_files)


def build_model(
    config: BertConfig, options: TrainingOptions, strategy: tf.distribute.Strategy | None = None
) -> BertForPreTraining:
    """Makes the model with its optimizer, ready for ``fit`` and ``evaluate``."""
    with (strategy or tf.distribute.get_strategy()).scope():
        model = BertForPreTraining(config, attention=options.attention)
        compile_for(model, options)
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
        check_vocab_size(path, sidecar, config.vocab_size)


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


def export(model: BertForPreTraining, directory: str | os.PathLike, tokenizer: FullTokenizer | None = None) -> str:
    """Writes a directory laid out as Google's archives: ``bert_config.json``, ``bert_model.ckpt``, ``vocab.txt``.

    Args:
        model: the weights and sizes.
        directory: made if need be.
        tokenizer: its vocabulary and switches are put beside the weights.

    Returns:
        The directory, for ``Bert.from_checkpoint``.
    """
    return pretrained.save_model(model, directory, "google", tokenizer)
