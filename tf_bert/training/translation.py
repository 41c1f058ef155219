"""Training of translation models: what ``train_translation`` does, as functions."""

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
from tf_bert.models.seq2seq import Seq2Seq
from tf_bert.models.transformer import Transformer
from tf_bert.models.translator import average_checkpoints
from tf_bert.progress import say
from tf_bert.trainer.optimization import AdamWeightDecay
from tf_bert.trainer.schedules import NoamSchedule, WarmupDecay
from tf_bert.training.callbacks import read_log
from tf_bert.training.distribution import distribute, strategy_name
from tf_bert.training.options import TranslationOptions
from tf_bert.training.recipe import Task
from tf_bert.training.resume import RunState, find_checkpoints
from tf_bert.training.workers import is_chief

BEST = "best/model.ckpt"


class Translation(Task):
    """Targets from sources, on the records of ``create_translation_data``.

    Args:
        config: sizes, and which model.
        records: what to train on.
        options: how to train and to evaluate.
        eval_records: what ``eval_every_steps`` evaluates on. The weights of the best evaluation are kept in
            ``best/model.ckpt``.
    """

    by_worker = True
    batch_option = "batch_tokens"

    def __init__(
        self,
        config: TransformerConfig | Seq2SeqConfig,
        records: TranslationRecords | None = None,
        options: TranslationOptions = TranslationOptions(),
        eval_records: TranslationRecords | None = None,
    ):
        super().__init__(options)
        self.config, self.records, self.eval_records = config, records, eval_records

    def make_model(self) -> Seq2Seq | Transformer:
        """The model of the configuration."""
        return (Transformer if isinstance(self.config, TransformerConfig) else Seq2Seq)(self.config)

    def make_optimizer(self) -> AdamWeightDecay:
        """Adam as the Transformer's paper has it (betas 0.9 and 0.98, epsilon 1e-9)."""
        return AdamWeightDecay(
            make_schedule(self.options),
            beta_2=0.98,
            epsilon=1e-9,
            bias_correction=True,
            global_clipnorm=self.options.clip_norm or None,
        )

    def check(self) -> None:
        """Raises ValueError where records do not fit the configuration, or there are none to evaluate on."""
        for some in (self.records, self.eval_records):
            if some is not None:
                check_fit(self.config, some)
        if self.options.early_stopping and not (self.options.eval_every_steps and self.eval_records):
            raise ValueError("early stopping needs evaluations: records to evaluate on, and eval_every_steps")

    def data_settings(self, model: Seq2Seq | Transformer) -> dict:
        """The files, and how batches are made of them."""
        batching = _batching(model, self.batch_size)
        return {
            "seed": self.options.seed,
            "shuffle_buffer": self.options.shuffle_buffer,
            "batch_tokens": self.batch_size,
            "files": [os.path.basename(path) for path in self.records.files],
            "records": self.records.count,
            "rows": [batching.rows(width) for width in batching.widths(self.records)],  # more with many replicas
        }

    def describe_batch(self, model: Seq2Seq | Transformer) -> str:
        """Tokens, and how many batches make a pass."""
        batches = _batching(model, self.batch_size).batches_in_pass(self.records)
        return f"{self.batch_size:,} tokens, {batches:,} for a pass over {self.records.count:,} pairs"

    def make_batches(self, model, state, size: int, worker: tuple[int, int] = (0, 1)) -> tf.data.Dataset:
        """Batches of pairs of about one length."""
        batches = translation_input.train_dataset(
            self.records,
            _batching(model, self.batch_size),
            seed=self.options.seed,
            shuffle_buffer=self.options.shuffle_buffer,
            skip_batches=state.records // self.batch_size,
            limits=_limits(self.config),
            pad_id=self.config.pad_id,
        )
        return translation_input.rows_of_worker(batches, *worker, model.distribute_strategy.num_replicas_in_sync)

    def errors(self):
        """Names the damaged file."""
        return translation_record_errors(self.records, _limits(self.config))

    def evaluator(self, model, output_dir, state):
        """The figures of `evaluate`; the best weights are kept, and training stops when they get no better."""
        return _Held(model, output_dir, self.options, self.eval_records, state) if self.eval_records else None


def train_translation(
    config: TransformerConfig | Seq2SeqConfig,
    records: TranslationRecords,
    output_dir: str | os.PathLike,
    options: TranslationOptions = TranslationOptions(),
    *,
    eval_records: TranslationRecords | None = None,
    **run,
) -> Seq2Seq | Transformer:
    """Trains a translation model, or resumes a run that was stopped.

    Args:
        config: see `Translation`, as for the others.
        records: what to train on.
        output_dir: where the run is.
        options: how to train and to evaluate.
        eval_records: what to evaluate on while training.
        **run: ``init_checkpoint``, ``strategy``, ``optimizer``; see `tf_bert.training.recipe.Task.train`, also for what
            is raised.

    Returns:
        The trained model. After an early stop it has the weights of the last step, not of the best one.
    """
    return Translation(config, records, options, eval_records).train(output_dir, **run)


def make_schedule(options: TranslationOptions) -> keras.optimizers.schedules.LearningRateSchedule:
    """Makes the learning rate.

    Example:
        >>> float(make_schedule(TranslationOptions(learning_rate=0.5, num_warmup_steps=4))(3))
        0.5
    """
    if options.schedule == "noam":
        warmup = max(options.num_warmup_steps, 1)
        return NoamSchedule(1, warmup, factor=options.learning_rate * math.sqrt(warmup))
    return WarmupDecay(options.learning_rate, options.num_train_steps, options.num_warmup_steps, options.schedule)


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


def load_best(model: Seq2Seq | Transformer, output_dir: str | os.PathLike, average: int = 1, best: bool = True) -> None:
    """Gives a trained model the weights to export, and says which.

    Args:
        model: keeps the weights of the last step where nothing else is asked for.
        output_dir: the folder of the run.
        average: number of the newest checkpoints whose mean is taken.
        best: whether to take the weights of the best evaluation, where ``average`` is 1 and there was one.
    """
    prefix = os.path.join(output_dir, BEST)
    if average > 1:
        newest = find_checkpoints(output_dir)[:average]
        average_checkpoints(model, newest)
        say(f"the mean of {len(newest)} checkpoints: {', '.join(map(os.path.basename, newest))}")
    elif best and os.path.exists(prefix + ".index"):
        average_checkpoints(model, [prefix])
        say(f"the weights of the best evaluation: {prefix}")


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
        self.run = _evaluator(model, records, options.batch_tokens)
        self.best, self.waited = math.inf, 0
        for line in read_log(output_dir):
            if "eval" in line and line["step"] <= state.step:
                self._count(line["eval"])
        if self.stops:
            say(f"STOPPED EARLY before: {self.waited} evaluations without a better one; nothing is trained")
            model.stop_training = True

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
