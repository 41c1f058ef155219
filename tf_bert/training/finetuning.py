"""Training of a task's model on data that fits in memory: what ``run_classifier``, ``run_squad`` and others share."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_bert.checkpoints import formats, openai
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.configs import GPTConfig
from tf_bert.data.finetuning.batches import shuffled_batches
from tf_bert.data.finetuning.label_list import note_labels
from tf_bert.files import atomic_writer, make_folder
from tf_bert.models import pretrained
from tf_bert.trainer.optimization import create_optimizer
from tf_bert.trainer.prediction import needs_fixed_length
from tf_bert.trainer.trainer import Trainer
from tf_bert.training.options import BertFineTuningOptions, FineTuningOptions
from tf_bert.training.recipe import Task


class FineTuning(Task):
    """A task's model on examples that fit in memory.

    Args:
        make_model: makes the model; called under the strategy's scope.
        columns: the examples, see `shuffled_batches`; None where nothing is trained.
        options: how to train.
        fixed_length: whether to leave all padding, as it is under XLA and on a TPU.
        note: called with the model, writes what belongs beside the checkpoints (`write_companions`).
    """

    def __init__(
        self,
        make_model: Callable[[], Trainer],
        columns: Mapping[str, np.ndarray] | None,
        options: FineTuningOptions = BertFineTuningOptions(),
        *,
        fixed_length: bool = False,
        note: Callable[[Trainer], None] | None = None,
    ):
        if columns is None:
            options = dataclasses.replace(options, num_train_steps=1, num_warmup_steps=0)
        else:
            options = options.with_steps(len(columns["input_ids"]))
        super().__init__(options)
        self._make_model, self.columns, self.fixed_length, self.note = make_model, columns, fixed_length, note

    def make_model(self) -> Trainer:
        """The model that is given."""
        return self._make_model()

    def make_optimizer(self) -> keras.optimizers.Optimizer:
        """BERT's optimizer."""
        options = self.options
        return create_optimizer(
            options.learning_rate,
            options.num_train_steps,
            options.num_warmup_steps,
            clip_unmerged_slices=getattr(options, "clip_unmerged_slices", False),
        )

    def data_settings(self, model: Trainer) -> dict:
        """The number of examples, and how batches are made of them."""
        return {
            "seed": self.options.seed,
            "examples": len(self.columns["input_ids"]),
            "batch_size": self.batch_size,
            "group_by_length": self.options.group_by_length,
        }

    def describe_batch(self, model: Trainer) -> str:
        """Examples and their length."""
        return f"{self.batch_size} x {self.columns['input_ids'].shape[-1]} tokens"

    def make_batches(self, model, state, size: int, worker: tuple[int, int] = (0, 1)) -> tf.data.Dataset:
        """Batches of examples."""
        return shuffled_batches(
            self.columns,
            size,
            seed=self.options.seed,
            skip=state.records,
            group_by_length=self.options.group_by_length,
            fixed_length=self.fixed_length or needs_fixed_length(model),
            per_piece=getattr(model, "sequence_inputs", ()),
            global_batch_size=self.batch_size,
        )

    def write_companions(self, model: Trainer, output_dir: str) -> None:
        """Calls ``note``."""
        if self.note is not None:
            self.note(model)


def finetune(
    make_model: Callable[[], Trainer],
    columns: Mapping[str, np.ndarray],
    output_dir: str | os.PathLike,
    options: FineTuningOptions = BertFineTuningOptions(),
    *,
    fixed_length: bool = False,
    note: Callable[[Trainer], None] | None = None,
    **run,
) -> Trainer:
    """Fine-tunes a model, or resumes a run that was stopped.

    Args:
        make_model: see `FineTuning`, as for the others.
        columns: the examples.
        output_dir: where the run is.
        options: how to train.
        fixed_length: whether to leave all padding.
        note: writes what belongs beside the checkpoints.
        **run: ``init_checkpoint``, ``strategy``, ``optimizer``; see `tf_bert.training.recipe.Task.train`, also for what
            is returned and raised.
    """
    return FineTuning(make_model, columns, options, fixed_length=fixed_length, note=note).train(output_dir, **run)


def write_companions(
    output_dir: str | os.PathLike,
    model: Trainer,
    tokenizer: Any,
    kind: str,
    labels: Sequence[str] = (),
    **settings: Any,
) -> None:
    """Puts configuration, vocabulary, casing and labels into the folder of a run, so that it is a whole model.

    Args:
        output_dir: where the checkpoints are, or will be.
        model: a BERT or GPT of a task.
        tokenizer: of the data.
        kind: see `tf_bert.data.finetuning.label_list.note_labels`, as for the rest.
        labels: in the order of their ids.
        **settings: what else prediction has to know.

    Raises:
        ValueError: another vocabulary is there already.
    """
    extra = {key: value for key, value in model.config.extra.items() if key != "problem_type"}  # of what it began with
    noted = extra | {"architectures": [pretrained.architecture_name(model)]} | model.to_note()
    if isinstance(model.config, GPTConfig):
        make_folder(output_dir)
        openai.copy_vocabulary(tokenizer.vocab_file, output_dir, "openai")
        name = openai.CONFIG
    else:
        switches = TokenizerSettings.of(tokenizer)
        formats.copy_companions(output_dir, tokenizer.vocab_file, switches)
        noted |= switches.to_dict()
        name = formats.GOOGLE_CONFIG
    with atomic_writer(os.path.join(output_dir, name), "w") as file:
        file.write(dataclasses.replace(model.config, extra=noted).to_json_string())
    note_labels(output_dir, kind, labels, **settings)
