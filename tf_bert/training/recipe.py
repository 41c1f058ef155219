"""The recipe of every run: seed, build, folder, begin or resume, ``fit``. A task brings model, data and measures."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from tf_bert.files import make_folder
from tf_bert.layers.embeddings import BertEmbeddings
from tf_bert.progress import say
from tf_bert.trainer.optimization import create_optimizer
from tf_bert.trainer.trainer import Trainer
from tf_bert.training.distribution import strategy_name
from tf_bert.training.fitting import fit
from tf_bert.training.initial import load_for_evaluation, load_initial_weights
from tf_bert.training.options import RunOptions
from tf_bert.training.resume import RunState, clean_up, restore_run
from tf_bert.training.workers import check_one_folder, check_one_run, check_same_settings, is_chief

ITERATIONS_ON_TPU = 1000

Optimizer = keras.optimizers.Optimizer


class Task:
    """What is trained on what. A subclass says it; `train` is the same for all.

    Args:
        options: how to train.

    Attributes:
        by_worker: whether each worker reads its own share, see `tf_bert.training.distribution.distribute`.
        batch_option: the name of the option that says how large a batch is.
    """

    by_worker = False
    batch_option = "train_batch_size"

    def __init__(self, options: RunOptions):
        self.options = options

    @property
    def batch_size(self) -> int:
        """Records, or tokens, of a step."""
        return getattr(self.options, self.batch_option)

    def make_model(self) -> Trainer:
        """Makes the model; called under the strategy's scope."""
        raise NotImplementedError

    def make_optimizer(self) -> Optimizer:
        """Makes the optimizer where none is given, BERT's by default; called under the strategy's scope."""
        options = self.options
        return create_optimizer(options.learning_rate, options.num_train_steps, options.num_warmup_steps)

    def check(self) -> None:
        """Raises ValueError where data and model do not fit."""

    def data_settings(self, model: Trainer) -> dict[str, Any]:
        """Returns what the order of the data depends on: where it has changed, a resumed run reads from the start."""
        raise NotImplementedError

    def describe_batch(self, model: Trainer) -> str:
        """Returns the size of a global batch, for the line that a run begins with."""
        raise NotImplementedError

    def make_batches(self, model: Trainer, state: RunState, size: int, worker=(0, 1)) -> tf.data.Dataset:
        """Makes endless batches of a size, from a state on; with ``by_worker`` the share of worker (index, count)."""
        raise NotImplementedError

    def errors(self) -> contextlib.AbstractContextManager:
        """Names the file in errors of reading the data."""
        return contextlib.nullcontext()

    def evaluator(self, model: Trainer, output_dir: str, state: RunState) -> Callable[[], Mapping[str, float]] | None:
        """Returns what is called every ``eval_every_steps``; it may set ``model.stop_training``."""
        return None

    def write_companions(self, model: Trainer, output_dir: str) -> None:
        """Writes what belongs beside the checkpoints, before the first step, in one process."""

    def build(
        self,
        strategy: tf.distribute.Strategy | None = None,
        optimizer: Optimizer | Callable[[], Optimizer] | None = None,
    ) -> Trainer:
        """Makes the model with its optimizer, ready for ``fit`` and ``evaluate``; see `train`."""
        set_seed(self.options.seed)
        parts = self.options.gradient_accumulation_steps
        if parts > self.batch_size:
            raise ValueError(
                f"gradient_accumulation_steps is {parts}, and a batch of {self.batch_size} ({self.batch_option}) "
                "cannot be cut into that many"
            )
        with (strategy or tf.distribute.get_strategy()).scope():
            model = self.make_model()
            if optimizer is None:
                optimizer = self.make_optimizer()
            elif not isinstance(optimizer, Optimizer):
                optimizer = optimizer()
            compile_for(model, self.options, optimizer)
        return model

    def train(
        self,
        output_dir: str | os.PathLike,
        *,
        init_checkpoint: str | os.PathLike | None = None,
        strategy: tf.distribute.Strategy | None = None,
        optimizer: Optimizer | Callable[[], Optimizer] | None = None,
    ) -> Trainer:
        """Trains the model, or resumes a run that was stopped.

        It is ``model.fit`` with callbacks (`tf_bert.training.fitting.fit`). A folder that holds checkpoints is resumed:
        weights, moments, step, place in the data, dropout, metrics. A resumed run gives the weights of one that never
        stopped, bit for bit on the same machine. Seeds of Python, NumPy and Keras are set.

        Args:
            output_dir: gets ``model.ckpt-N``, ``training.jsonl`` and TensorBoard's files; made if need be.
            init_checkpoint: weights of a new run, in any format that `tf_bert.models.pretrained` opens; step, moments
                and rate begin anew. Not used when ``output_dir`` has a checkpoint.
            strategy: where to train; the default strategy is one device.
            optimizer: replaces the one that the options describe, whose rate, schedule and decay are then not used. An
                optimizer made in ``strategy.scope()``, or a function that makes it there.

        Returns:
            The trained model.

        Raises:
            ValueError: data, model and checkpoint do not fit; the run is beyond ``num_train_steps`` already.
            NonFiniteLossError: the loss or a weight is not finite; names the step and the last good checkpoint.
            Stopped: SIGTERM came, and the run is saved.
        """
        output_dir, strategy = os.fspath(output_dir), strategy or tf.distribute.get_strategy()
        self.check()
        model = self.build(strategy, optimizer)
        if is_chief(strategy):
            make_folder(output_dir)
            clean_up(output_dir, self.options.keep_checkpoint_max)
        state = self.begin(model, output_dir, init_checkpoint)
        if is_chief(strategy):
            self.write_companions(model, output_dir)
        self._say_start(model, state)
        model.stop_training = False
        evaluate = self.evaluator(model, output_dir, state) if self.options.eval_every_steps else None
        if self.options.eval_every_steps and evaluate is None:
            raise ValueError(
                f"eval_every_steps is {self.options.eval_every_steps}, and nothing to evaluate on is given"
            )
        with self.errors():
            while state.step < self.options.num_train_steps and not model.stop_training:
                # Once, but for float16: where a step overflows, nothing is updated, and its batch is made up for.
                state = fit(self, model, output_dir, state, evaluate)
        return model

    def load(
        self,
        output_dir: str | os.PathLike,
        init_checkpoint: str | os.PathLike | None = None,
        strategy: tf.distribute.Strategy | None = None,
    ) -> Trainer:
        """Makes the model with the weights of the newest checkpoint of a run, else those of ``init_checkpoint``.

        Returns:
            The model; ``optimizer.iterations`` is the step of the checkpoint, 0 for ``init_checkpoint``.

        Raises:
            ValueError: there is neither, or a head is missing; several workers found different checkpoints.
        """
        model = self.build(strategy)
        load_for_evaluation(model, output_dir, init_checkpoint)
        return model

    def begin(self, model: Trainer, output_dir: str, init_checkpoint: str | os.PathLike | None) -> RunState:
        """Restores a run, or begins one; says which.

        Raises:
            ValueError: the run is beyond ``num_train_steps`` already; several workers have different settings, found
                different checkpoints, or do not see the folder that the chief writes.
        """
        total, strategy, data = self.options.num_train_steps, model.distribute_strategy, self.data_settings(model)
        settings = {"precision": model.dtype_policy.name, "model": getattr(model, "config", None)}
        check_same_settings(strategy, {**dataclasses.asdict(self.options), **data, **settings})
        state = restore_run(model, output_dir)
        check_one_run(strategy, output_dir, state)
        check_one_folder(strategy, output_dir)
        if state is None:
            if init_checkpoint:
                report = load_initial_weights(model, init_checkpoint)
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
            say(f"init_checkpoint {init_checkpoint} is not used: the run in {output_dir} is resumed")
        if state.records is None:
            say("no place in the data is noted beside the checkpoint: one batch a step is taken as consumed")
            return dataclasses.replace(state, records=state.step * self.batch_size, data=data)
        if state.data != data:
            changed = [key for key in {**data, **state.data} if state.data.get(key) != data.get(key)]
            changed = ["number of workers that share the files" if key == "workers" else key for key in changed]
            say(
                f"WARNING: the data are not those of before ({', '.join(changed)} changed): they are read from their "
                "start"
            )
            return dataclasses.replace(state, records=0, data=data)
        return state

    def _say_start(self, model: Trainer, state: RunState) -> None:
        """Says where, on what and how far a run goes."""
        strategy, parts = model.distribute_strategy, self.options.gradient_accumulation_steps
        name, replicas = strategy_name(strategy).replace("off", "one device"), strategy.num_replicas_in_sync
        say(
            f"{name}{f', {replicas} replicas' if replicas > 1 else ''}, global batch {self.describe_batch(model)}"
            f"{f' in {parts} micro-batches' if parts > 1 else ''}, {model.count_params():,} parameters, "
            f"{model.dtype_policy.name}, steps {state.step:,} to {self.options.num_train_steps:,}, seed "
            f"{self.options.seed}"
        )


def set_seed(seed: int) -> None:
    """Sets every global seed; 0 becomes another one, since tf.data fails on a global seed of 0 beside a pass's own."""
    keras.utils.set_random_seed(seed or 2**30)


def compile_for(model: Trainer, options: RunOptions, optimizer: Optimizer) -> None:
    """Compiles a model as the options say, and makes the optimizer's slots. Call it under the strategy's scope.

    On a TPU BERT's words are looked up by a product with a one-hot matrix, as in the original; no saved configuration
    says so, since weights and outputs are the same.
    """
    on_tpu = strategy_name(model.distribute_strategy) == "tpu"
    if on_tpu:
        for layer in model._flatten_layers():
            if isinstance(layer, BertEmbeddings):
                layer.use_one_hot_embeddings = True
    intervals = [options.save_checkpoints_steps, options.log_steps, options.eval_every_steps]
    model.compile(
        optimizer,
        gradient_accumulation_steps=options.gradient_accumulation_steps,
        steps_per_execution=min(
            [options.iterations_per_loop or (ITERATIONS_ON_TPU if on_tpu else 1), *filter(None, intervals)]
        ),
        jit_compile=options.xla,
        recompute=options.recompute,
    )
    model.optimizer.build(model.trainable_variables)
