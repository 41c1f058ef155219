"""Runs the steps of `Trainer.fit` and `Trainer.evaluate`: on all replicas, several per call, in less memory."""

import functools
import re
from collections.abc import Callable

import keras
import tensorflow as tf

from tf_bert.trainer.checks import refusal

# What a collective of several workers raises where one has ended; where one was held up for 10 s, and counts as ended;
# where one no longer answers, such as a machine without power.
LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
NOT_FINITE = "the loss or its gradient is not finite at step"


class NonFiniteLossError(ValueError):
    """The loss of a training step, or its gradient, is NaN or infinite. The step was not applied."""


class EvaluationStopped(Exception):
    """An evaluation was ended before its last batch, because the model's ``stop_evaluation`` said so."""


class StepFunction:
    """Runs a step of ``model`` on all replicas, for ``steps_per_execution`` batches of an iterator at a time."""

    def __init__(self, model: keras.Model, step: Callable):
        self.model = model
        strategy = model.distribute_strategy

        def run(data):
            logs = strategy.run(step, args=(data,))
            logs = tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], logs)
            with strategy.scope():  # where the metrics of Keras add their sums over replicas up
                return logs | model.compiled_metrics_results()

        def run_next(iterator):
            return run(next(iterator))

        def run_several(iterator, count):
            def run_one(done):
                run(next(iterator))
                return done + 1

            tf.while_loop(lambda done: done < count - 1, run_one, [0], parallel_iterations=1)
            return run(next(iterator))

        # Iterators are taken inside the graph: their batches have one type there, whatever the size of the last one.
        # Workers must trace alike, and eagerly taken batches of different sizes would not.
        # Without autograph, which puts a page of its own before the message of an error.
        graph = (lambda function: function) if model.run_eagerly else functools.partial(tf.function, autograph=False)
        self.run, self.run_next, self.run_several = graph(run), graph(run_next), graph(run_several)
        self.start(None)

    def start(self, epoch_steps: int | None) -> None:
        """Begins a ``fit`` or ``evaluate`` with epochs of ``epoch_steps``, where that is known."""
        self.epoch_steps, self.done = epoch_steps, 0

    def __call__(self, iterator) -> dict:
        """Takes batches from the iterator and returns the last step's logs."""
        if self is self.model.test_function and self.model.stop_evaluation and self.model.stop_evaluation():
            raise EvaluationStopped
        try:
            return self._execute(iterator)
        except tf.errors.InvalidArgumentError as error:
            if refusal(error):
                raise ValueError(refusal(error)) from None
            found = re.search(rf"{NOT_FINITE}\W*(\d+)", error.message)
            if not found:
                raise
            raise NonFiniteLossError(
                f"{NOT_FINITE} {found[1]}; the step was not applied. Look at the data of this step, lower the "
                "learning rate or lengthen the warm-up"
            ) from None
        except LOST as error:
            if not isinstance(self.model.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy):
                raise  # a file system that does not answer, or a TPU that was taken away
            raise worker_gone(error) from None

    def _execute(self, iterator) -> dict:
        if not isinstance(iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)):
            return self.run(next(iterator))  # train_on_batch and test_on_batch
        count = self.model.steps_per_execution
        if self.epoch_steps:
            count = min(count, self.epoch_steps - self.done % self.epoch_steps)
            self.done += count
            return self.run_next(iterator) if count == 1 else self.run_several(iterator, tf.constant(count))
        # The end of a data set of unknown length cannot be looked for inside the graph (a cond around a collective).
        logs = self.run_next(iterator)
        for _ in range(count - 1):
            try:
                logs = self.run_next(iterator)
            except tf.errors.OutOfRangeError:
                break
        return logs


def refusing(function: Callable) -> Callable:
    """``function``, but what `tf_bert.trainer.checks.checked` refuses is a ValueError of one line."""

    def call(*arguments):
        try:
            return function(*arguments)
        except tf.errors.InvalidArgumentError as error:
            if refusal(error):
                raise ValueError(refusal(error)) from None
            raise

    return call


def worker_gone(error: Exception) -> ConnectionError:
    """What to raise where a collective of several workers failed by one of `LOST`."""
    found = re.search(r".*aborted by: (.+?)(\. This indicates|:?$)", str(error), re.MULTILINE)
    return ConnectionError(
        f"another worker of this job is gone, or one was held up{f' ({found[1]})' if found else ''}; start all of them "
        "again, and training goes on from the last checkpoint"
    )


def recompute(layer: keras.Layer) -> Callable:
    """``layer``, but its activations are computed again in the backward pass instead of being kept (Chen et al. 2016).

    The second pass draws the dropout masks of the first, because both start from the same seeds; `keras.remat` draws
    others, and its gradients are those of another network than the one that gave the loss. What the layer returns is
    kept: do not ask it for more than is needed.

    Args:
        layer: takes and returns nested structures; the float tensors among its arguments get gradients.

    Example:
        >>> dense = keras.layers.Dense(3)
        >>> recompute(dense)(tf.ones([2, 4])).shape
        TensorShape([2, 3])
    """

    def call(*inputs, **arguments):
        given = tf.nest.flatten((inputs, arguments))
        places = [i for i, x in enumerate(given) if tf.is_tensor(x) and x.dtype.is_floating]
        seeds = [variable for variable in layer.variables if variable.name == "seed_generator_state"]
        before, structure, after = [(seed, tf.identity(seed.value)) for seed in seeds], [], []

        def forward(*tensors):
            filled = list(given)
            for i, tensor in zip(places, tensors, strict=True):
                filled[i] = tensor
            positional, named = tf.nest.pack_sequence_as((inputs, arguments), filled)
            with keras.StatelessScope(before) as scope:
                outputs = layer(*positional, **named)
            structure[:] = [tf.nest.map_structure(lambda x: x is not None, outputs)]
            after[:] = after or [(seed, scope.get_current_value(seed)) for seed in seeds]  # those of the first pass
            return [x for x in tf.nest.flatten(outputs) if x is not None]

        found = iter(tf.recompute_grad(forward)(*[given[i] for i in places]))
        for seed, value in after:
            seed.assign(value)
        return tf.nest.map_structure(lambda is_tensor: next(found) if is_tensor else None, structure[0])

    return call
