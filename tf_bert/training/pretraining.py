"""Pre-training of BERT: what ``run_pretraining`` does, as functions."""

import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tf_bert.configs import BertConfig
from tf_bert.data.pretraining import input as pretraining_input
from tf_bert.data.pretraining.input import RecordFiles, id_limits, record_errors
from tf_bert.data.tfrecord.input_pipeline import check_vocab_size
from tf_bert.models import pretrained
from tf_bert.models.bert import BertForPreTraining
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.training.distribution import check_batch_size, distribute
from tf_bert.training.options import EvaluationOptions, TrainingOptions
from tf_bert.training.recipe import Task
from tf_bert.training.stopping import Stopped
from tf_bert.training.workers import count_workers

__all__ = ["EvaluationOptions", "Pretraining", "Stopped", "TrainingOptions", "evaluate", "export", "pretrain"]

EVAL_KEYS = (
    "loss",
    "masked_lm_accuracy",
    "masked_lm_loss",
    "next_sentence_accuracy",
    "next_sentence_loss",
)


class Pretraining(Task):
    """Masked LM and next-sentence prediction on the records of ``create_pretraining_data``.

    Args:
        config: sizes and rates.
        records: from `tf_bert.data.pretraining.input.find_records`.
        options: how to train and to evaluate.
        eval_records: what ``eval_every_steps`` evaluates on; ``records`` by default.

    Source: Devlin et al. 2018, sections 3.1 and A.2; ``run_pretraining.py`` of google-research/bert.
    """

    def __init__(
        self,
        config: BertConfig,
        records: RecordFiles | None = None,
        options: TrainingOptions = TrainingOptions(),
        eval_records: RecordFiles | None = None,
    ):
        super().__init__(options)
        self.config, self.records, self.eval_records = config, records, eval_records or records
        self.by_worker = options.shard_files

    def make_model(self) -> BertForPreTraining:
        """BERT with its two heads."""
        return BertForPreTraining(self.config, attention=self.options.attention)

    def check(self) -> None:
        """Raises ValueError where the records do not fit the configuration."""
        check_fit(self.config, self.records)

    def data_settings(self, model: BertForPreTraining) -> dict:
        """The files, and how they are drawn from."""
        settings = {
            "seed": self.options.seed,
            "shuffle_buffer": self.options.shuffle_buffer,
            "files": [os.path.basename(path) for path in self.records.files],
            "records": self.records.counts(),
        }
        strategy = model.distribute_strategy
        if self.by_worker and count_workers(strategy) > 1:
            check_batch_size(strategy, self.batch_size, "train_batch_size")
            settings["workers"] = count_workers(strategy)
        return settings

    def describe_batch(self, model: BertForPreTraining) -> str:
        """Records and their length."""
        return f"{self.batch_size} x {self.records.record_length} tokens"

    def make_batches(self, model, state, size: int, worker: tuple[int, int] = (0, 1)) -> tf.data.Dataset:
        """Batches of records."""
        return pretraining_input.train_dataset(
            self.records,
            size,
            seed=self.options.seed,
            shuffle_buffer=self.options.shuffle_buffer,
            skip_records=state.records // worker[1],
            limits=_limits(self.config),
            shard=worker,
            deterministic=self.options.deterministic,
        )

    def errors(self):
        """Names the damaged file."""
        return record_errors(self.records, _limits(self.config))

    def evaluator(self, model, output_dir, state):
        """The figures of `evaluate`."""
        return _evaluator(model, self.eval_records, self.options)


def pretrain(
    config: BertConfig,
    records: RecordFiles,
    output_dir: str | os.PathLike,
    options: TrainingOptions = TrainingOptions(),
    *,
    eval_records: RecordFiles | None = None,
    **run,
) -> BertForPreTraining:
    """Pre-trains BERT, or resumes a run that was stopped.

    Args:
        config: see `Pretraining`, as for the others.
        records: what to train on.
        output_dir: where the run is.
        options: how to train and to evaluate.
        eval_records: what to evaluate on while training.
        **run: ``init_checkpoint``, ``strategy``, ``optimizer``; see `tf_bert.training.recipe.Task.train`, also for what
            is returned and raised.
    """
    return Pretraining(config, records, options, eval_records).train(output_dir, **run)


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
    model: BertForPreTraining, records: RecordFiles, options: EvaluationOptions = EvaluationOptions()
) -> dict[str, float]:
    """The original's five figures: total loss, loss and accuracy of masked LM and of next-sentence prediction.

    Args:
        model: compiled.
        records: what to evaluate on, in order.
        options: how much of it.

    Raises:
        ValueError: the records do not fit the model, or are damaged.
    """
    return _evaluator(model, records, options)()


def _evaluator(
    model: BertForPreTraining, records: RecordFiles, options: EvaluationOptions
) -> Callable[[], dict[str, float]]:
    check_fit(model.config, records)
    limits, repeat = _limits(model.config), options.max_eval_steps > 0
    steps = options.max_eval_steps or -(-sum(records.counts()) // options.eval_batch_size)
    batches = distribute(
        model.distribute_strategy,
        lambda size: pretraining_input.eval_dataset(records, size, repeat=repeat, limits=limits),
        options.eval_batch_size,
    )

    def run() -> dict[str, float]:
        with record_errors(records, limits):
            figures = model.evaluate(batches, steps=steps, verbose=0, return_dict=True)
        return {key: np.float32(figures[key]) for key in EVAL_KEYS if key in figures}

    return run


def _limits(config: BertConfig):
    return id_limits(config.vocab_size, config.type_vocab_size)


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
