"""Training of translation models: what ``train_translation`` does, as functions."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping

import keras
import tensorflow as tf

from tf_bert.checkpoints import google
from tf_bert.configs import Seq2SeqConfig, TransformerConfig, TranslationConfig
from tf_bert.data.tfrecord.input_pipeline import check_vocab_size
from tf_bert.data.translation import input as translation_input
from tf_bert.data.translation.input import Batching, TranslationRecords, translation_record_errors
from tf_bert.files import make_folder
from tf_bert.models.seq2seq import Seq2Seq
from tf_bert.models.transformer import Transformer
from tf_bert.progress import say
from tf_bert.trainer.optimization import AdamWeightDecay
from tf_bert.trainer.schedules import NoamSchedule, WarmupDecay
from tf_bert.training.callbacks import read_log
from tf_bert.training.distribution import distribute, strategy_name
from tf_bert.training.resume import RunState, clean_up
from tf_bert.training.runs import RunOptions, begin, compile_for, say_start, set_seed, train
from tf_bert.training.workers import is_chief

BEST = "best/model.ckpt"


@dataclasses.dataclass(frozen=True)
class TranslationOptions(RunOptions):
    """How to train.

    Args:
        train_batch_size: tokens in a batch: padded positions of the longer side, see `Batching`. On a TPU every pair
            is as wide as the longest one.
        learning_rate: the peak.
        num_warmup_steps: updates until the peak.
        schedule: ``noam`` (falls with the root of the step; Vaswani et al. 2017, section 5.3), ``linear``, ``cosine``
            or ``constant``.
        clip_norm: the largest norm of the gradient; 0 for any.
        shuffle_buffer: pairs to draw the next one from.
        eval_batch_size: tokens in a batch of an evaluation.
        early_stopping: stop after so many evaluations without a lower cross-entropy; 0 for never.
    """

    num_train_steps: int = 100_000
    train_batch_size: int = 4096
    learning_rate: float = 7e-4
    num_warmup_steps: int = 4000
    schedule: str = "noam"
    clip_norm: float = 1.0
    shuffle_buffer: int = translation_input.SHUFFLE_BUFFER
    eval_batch_size: int = 4096
    early_stopping: int = 0

    def make_schedule(self) -> keras.optimizers.schedules.LearningRateSchedule:
        """The learning rate.

        Example:
            >>> float(TranslationOptions(learning_rate=0.5, num_warmup_steps=4).make_schedule()(3))
            0.5
        """
        if self.schedule == "noam":
            warmup = max(self.num_warmup_steps, 1)
            return NoamSchedule(1, warmup, factor=self.learning_rate * math.sqrt(warmup))
        return WarmupDecay(self.learning_rate, self.num_train_steps, self.num_warmup_steps, self.schedule)


def build_model(
    config: TranslationConfig, options: TranslationOptions, strategy: tf.distribute.Strategy | None = None
) -> Seq2Seq | Transformer:
    """Makes the model with Adam as the Transformer's paper has it (betas 0.9 and 0.98, epsilon 1e-9)."""
    with (strategy or tf.distribute.get_strategy()).scope():
        model = (Transformer if isinstance(config, TransformerConfig) else Seq2Seq)(config)
        optimizer = AdamWeightDecay(
            options.make_schedule(),
            beta_2=0.98,
            epsilon=1e-9,
            bias_correction=True,
            global_clipnorm=options.clip_norm or None,
        )
        compile_for(model, options, optimizer)
    return model


def check_fit(config: TranslationConfig, records: TranslationRecords) -> None:
    """Checks that records fit a model.

    Raises:
        ValueError: a vocabulary is larger than its table, or a pair longer than the position table.
    """
    for side, size in zip(("source", "target"), _limits(config), strict=True):
        check_vocab_size(records.files[0], records.sidecar, size, f"{side}_vocab_size")
    longest = getattr(config, "max_position_embeddings", records.longest)
    if records.longest > longest:
        raise ValueError(
            f"{records.files[0]} has a pair of {records.longest} pieces, and max_position_embeddings is {longest}: "
            "a longer table or a lower --max_length of create_translation_data is needed"
        )


def train_translation(
    config: TransformerConfig | Seq2SeqConfig,
    records: TranslationRecords,
    output_dir: str | os.PathLike,
    options: TranslationOptions = TranslationOptions(),
    *,
    eval_records: TranslationRecords | None = None,
    init_checkpoint: str | os.PathLike | None = None,
    strategy: tf.distribute.Strategy | None = None,
) -> Seq2Seq | Transformer:
    """Trains a model, or goes on with a run that was stopped: as `tf_bert.training.pretraining.pretrain`.

    Args:
        config: sizes, and which model.
        records: what to train on.
        output_dir: gets ``model.ckpt-N``, ``training.jsonl``, TensorBoard's files, and with evaluations the weights of
            the best one, ``best/model.ckpt``.
        options: how to train.
        eval_records: what ``options.evaluate_every`` evaluates on.
        init_checkpoint: weights of a new run.
        strategy: where to train; the default strategy is one device.

    Returns:
        The trained model. After an early stop it has the weights of the last step, not of the best one.

    Raises:
        ValueError: records and model do not fit; the run is beyond ``num_train_steps`` already.
        NonFiniteLossError: the loss is not finite; names the step and the last good checkpoint.
        Stopped: SIGTERM came, and the run is saved.
    """
    output_dir = os.fspath(output_dir)
    for some in (records, eval_records):
        if some is not None:
            check_fit(config, some)
    if options.early_stopping and not (options.evaluate_every and eval_records):
        raise ValueError("early stopping needs evaluations: records to evaluate on, and how often (evaluate_every)")
    set_seed(options.seed)
    strategy = strategy or tf.distribute.get_strategy()
    model = build_model(config, options, strategy)
    if is_chief(strategy):
        make_folder(output_dir)
        clean_up(output_dir, options.keep_checkpoints)
    batching = _batching(model, options.train_batch_size)
    data = {
        "seed": options.seed,
        "shuffle_buffer": options.shuffle_buffer,
        "batch_tokens": options.train_batch_size,
        "files": [os.path.basename(path) for path in records.files],
        "records": records.count,
        "rows": [batching.rows(width) for width in batching.widths(records)],  # more where there are many replicas
    }
    state = begin(model, output_dir, options, data, init_checkpoint)
    replicas, batches = strategy.num_replicas_in_sync, batching.batches_in_pass(records)
    batch = f"{options.train_batch_size:,} tokens, {batches:,} for a pass over {records.count:,} pairs"
    say_start(model, options, state, batch)
    evaluate = None
    if options.evaluate_every and eval_records:
        evaluate = _Held(model, output_dir, options, eval_records, state)
        if evaluate.stops:
            say(f"STOPPED EARLY before: {evaluate.waited} evaluations without a better one; nothing is trained")
            return model

    limits = _limits(config)

    def make_batches(_: int, worker: tuple[int, int]) -> tf.data.Dataset:
        batches = translation_input.train_dataset(
            records,
            batching,
            seed=options.seed,
            shuffle_buffer=options.shuffle_buffer,
            skip_batches=state.records // options.train_batch_size,
            limits=limits,
            pad_id=config.pad_id,
        )
        return translation_input.rows_of_worker(batches, *worker, replicas)

    with translation_record_errors(records, limits):
        while state.step < options.num_train_steps and not (evaluate and evaluate.stops):
            state = train(model, make_batches, output_dir, options, state, evaluate, by_worker=True)
    return model


def evaluate(model: Seq2Seq | Transformer, records: TranslationRecords, tokens: int = 4096) -> dict[str, float]:
    """Loss, cross-entropy per word, perplexity, and share of right words, the right ones before each given.

    Args:
        model: compiled.
        records: what to evaluate on.
        tokens: in a batch.
    """
    check_fit(model.config, records)
    with translation_record_errors(records, _limits(model.config)):
        return _evaluator(model, records, tokens)()


def _evaluator(model, records: TranslationRecords, tokens: int) -> Callable[[], dict[str, float]]:
    strategy, batching = model.distribute_strategy, _batching(model, tokens)
    steps = batching.batches_in_pass(records)

    def make_batches(_: int, worker: tuple[int, int]) -> tf.data.Dataset:
        limits, pad_id = _limits(model.config), model.config.pad_id
        batches = translation_input.eval_dataset(records, batching, limits=limits, pad_id=pad_id)
        return translation_input.rows_of_worker(batches, *worker, strategy.num_replicas_in_sync)

    def run() -> dict[str, float]:
        batches = distribute(strategy, make_batches, tokens, by_worker=True)
        figures = model.evaluate(batches, steps=steps, verbose=0, return_dict=True)
        figures = {name: float(figures[name]) for name in ("loss", "cross_entropy", "accuracy")}
        return figures | {"perplexity": math.exp(min(figures["cross_entropy"], 700.0))}

    return run


class _Held:
    """Evaluates while training, keeps the best weights, and stops when they get no better."""

    def __init__(self, model, output_dir: str, options: TranslationOptions, records, state: RunState):
        self.model, self.output_dir, self.patience = model, output_dir, options.early_stopping
        self.run = _evaluator(model, records, options.eval_batch_size)
        self.best, self.waited = math.inf, 0
        for line in read_log(output_dir):
            if "eval" in line and line["step"] <= state.step:
                self._count(line["eval"])

    @property
    def stops(self) -> bool:
        return bool(self.patience) and self.waited >= self.patience

    def _count(self, figures: Mapping[str, float]) -> bool:
        better = figures["cross_entropy"] < self.best
        self.best = min(self.best, figures["cross_entropy"])
        self.waited = 0 if better else self.waited + 1
        return better

    def __call__(self) -> dict[str, float]:
        figures = self.run()
        if self._count(figures) and is_chief(self.model.distribute_strategy):
            google.save_checkpoint(self.model, os.path.join(self.output_dir, BEST), global_step=self._step())
        if self.stops:
            say(f"STOPPING EARLY: {self.waited} evaluations without a lower cross-entropy than {self.best:.4f}")
            self.model.stop_training = True
        return figures

    def _step(self) -> int:
        return int(self.model.optimizer.iterations.numpy())


def _limits(config: TranslationConfig) -> tuple[int, int]:
    return config.source_vocab_size or config.vocab_size, config.vocab_size


def _batching(model, tokens: int) -> Batching:
    strategy = model.distribute_strategy
    one_shape = strategy_name(strategy) == "tpu"
    return Batching(tokens, strategy.num_replicas_in_sync, bool(model.jit_compile), one_shape)
