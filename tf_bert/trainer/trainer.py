"""The base class of every model that is trained: `compile`, `fit`, `evaluate` and `predict` as in Keras, and right
under every `tf.distribute` strategy.

N replicas give the update of one device, because the weights of a loss are summed over all replicas (and all
micro-batches) before the gradient is taken, the gradients are summed once, and clipping comes after the sum. Keras 3
divides per replica, clips per replica, and cannot run several steps per execution or several workers.
"""

import functools
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tf_bert.errors import PlainErrors
from tf_bert.trainer.arrays import class_weights
from tf_bert.trainer.checks import Expected, Integers, check_arrays, checked
from tf_bert.trainer.compiled import Scores
from tf_bert.trainer.doors import Doors
from tf_bert.trainer.execution import NOT_FINITE, NonFiniteLossError, StepFunction, refusing
from tf_bert.trainer.gradients import gradients_of
from tf_bert.trainer.input_names import ALIASES, named_inputs
from tf_bert.trainer.objective import ALONE, LABELS, Objective, WeightedMean
from tf_bert.trainer.optimization import clip_by_norm, gradients_are_summed, sum_of_squares

__all__ = ["NonFiniteLossError", "Scores", "Trainer", "WeightedMean"]


class Trainer(PlainErrors, Doors, keras.Model):
    """A `keras.Model` that brings its own losses, and trains alike on one device and on many.

    A subclass names its losses and says what they are, example by example; it never divides by a batch size. Each loss
    is ``sum(weight * value) / sum(weight)`` over the whole global batch, and the sum of the losses is minimised. The
    inputs are a dict that holds the labels too; ``fit(x, y, sample_weight)`` puts ``y`` under ``label_name``, and
    ``sample_weight`` multiplies the weights of its example in every loss and metric.

    ``fit`` and ``evaluate`` show ``loss``, which is what is minimised, with what layers add (the mean over the batches,
    weighted by their number of examples; of a model with one loss named ``"loss"`` the exact mean over all labels);
    each loss and each metric by name (exact weighted means over all labels); and ``fit`` also ``gradient_norm`` (before
    clipping) and ``learning_rate`` of the last update.

    Losses and metrics of ``compile`` take the place of the model's own losses, and stand beside its metrics; an
    overridden `compute_loss` takes the place of all losses. They see the outputs and labels of `scored_outputs`, which
    are logits where those have an ``activation``: what Keras defines on probabilities is given the softmax or sigmoid.

    Attributes:
        loss_names: names of the losses, as in the dicts that `per_example_losses` and `loss_weights` return.
        metric_names: names of the further metrics, as in the dict that `per_example_metrics` returns.
        weight_epsilon: what is added to the weight sum of a loss in training: ``{"masked_lm_loss": 1e-5}`` in BERT.
        label_name: the key of ``inputs`` under which ``fit(x, y)`` puts ``y``.
        label_names: the keys of ``inputs`` without which the losses cannot be computed.
        input_names: the keys of ``inputs`` that ``call`` and the losses read; any other is refused, and aliases are
            taken (`tf_bert.trainer.input_names`). Empty in a model that takes any key.
        recompute: None, or False in a model that has blocks and heeds what ``compile`` sets here
            (`tf_bert.trainer.execution.recompute`).

    Example:
        >>> class Line(Trainer):
        ...     loss_names = ("loss",)
        ...     label_name = "y"
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.dense = keras.layers.Dense(1)
        ...         self.build({"x": (None, 1)})
        ...     def build(self, shape):
        ...         self.dense.build(shape["x"])
        ...         self.built = True
        ...     def call(self, inputs):
        ...         return self.dense(inputs["x"])
        ...     def loss_weights(self, inputs):
        ...         return {"loss": tf.ones_like(inputs["y"])}
        ...     def per_example_losses(self, inputs, outputs):
        ...         return {"loss": tf.square(outputs - inputs["y"])}
        >>> model = Line()
        >>> model.compile(optimizer=keras.optimizers.SGD(0.3))
        >>> x = tf.constant([[0.0], [1.0], [2.0]])
        >>> history = model.fit({"x": x}, 2.0 * x + 1.0, batch_size=3, epochs=40, verbose=0)
        >>> round(model.evaluate({"x": x}, 2.0 * x + 1.0, verbose=0), 4)
        0.0
    """

    loss_names: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()
    weight_epsilon: dict[str, float] = {}
    label_name: str | None = None
    label_names: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()
    recompute: bool | None = None

    def __init__(self, **kwargs):
        if "outputs" in kwargs:
            raise TypeError(f"{type(self).__name__} is subclassed, not made from inputs and outputs: use keras.Model")
        super().__init__(**kwargs)
        self._objective = Objective(self)
        self._accumulation = 1
        self._epoch_steps = None
        self._class_weights = None
        self._data_error = None
        self.stop_evaluation = None  # asked before each batch of an evaluation, see `EvaluationStopped`

    def loss_weights(self, inputs: dict) -> dict:
        """The weight of every value of every loss; may depend on the inputs only.

        Args:
            inputs: a batch, as given to ``fit``.

        Returns:
            A dict from each name in ``loss_names`` to weights, of the shape of that loss in `per_example_losses`.
        """
        raise NotImplementedError

    def per_example_losses(self, inputs: dict, outputs) -> dict:
        """The values of every loss, before weights and sums.

        Args:
            inputs: a batch, as given to ``fit``.
            outputs: what the model's ``call`` returned for it.

        Returns:
            A dict from each name in ``loss_names`` to values whose first axis is the batch.
        """
        raise NotImplementedError

    def per_example_metrics(self, inputs: dict, outputs) -> dict:
        """The values of the further metrics, such as 1.0 for a right answer and 0.0 for a wrong one.

        Returns:
            A dict from each name in ``metric_names`` to a pair (values, weights) of the same shape.
        """
        return {}

    @property
    def scored_outputs(self) -> dict[str, Scores]:
        """The outputs that the losses and metrics of ``compile`` see, by name."""
        if self.label_name is None:
            return {}
        return {"logits": Scores(self.loss_names[0] if self.loss_names else None)}

    def targets(self, inputs: dict, outputs) -> dict:
        """The labels of `scored_outputs`, by name of the output; what does not count has any label, and no weight."""
        if self.label_name is None:  # as they were given, by output
            given = {name.removeprefix(LABELS): y for name, y in inputs.items() if name.startswith(LABELS)}
            return {name: given.get(name, given.get("")) for name in self._objective.outputs}
        return dict.fromkeys(self.scored_outputs, inputs.get(self.label_name))

    @property
    def expected(self) -> Expected:
        """What the inputs may hold, by name, see `tf_bert.trainer.checks`."""
        return {}

    def __call__(self, *args, **kwargs):
        """Calls the model as Keras does, with the inputs under our names."""
        given = sorted({*self.input_names, *ALIASES} & kwargs.keys()) if self.input_names else []
        if given:
            raise TypeError(
                f"{type(self).__name__} takes one dict of inputs, model({{{given[0]!r}: ...}}), not the argument "
                f"{given[0]}="
            )
        if args:
            args = (self.named(args[0]), *args[1:])
        elif "inputs" in kwargs:
            kwargs["inputs"] = self.named(kwargs["inputs"])
        return super().__call__(*args, **kwargs)

    def named(self, inputs):
        """The inputs under our names, checked; as they are in a model that takes any key."""
        if not self.input_names:
            return inputs
        return named_inputs(inputs, self.input_names, type(self).__name__, bool(self.loss_names))

    def read_from(self, inputs: dict) -> dict:
        """Those of the inputs of a larger model that this one reads."""
        return {name: value for name, value in inputs.items() if name in self.input_names}

    def trimmed(self, inputs: dict) -> dict:
        """A batch of ``fit`` or ``evaluate`` without what costs time and changes nothing, such as padding."""
        return inputs

    def compile(
        self,
        optimizer="rmsprop",
        loss=None,
        loss_weights=None,
        metrics=None,
        weighted_metrics=None,
        *,
        gradient_accumulation_steps: int = 1,
        recompute: bool = False,
        **kwargs,
    ) -> None:
        """Configures training, as `keras.Model.compile`.

        Args:
            optimizer: any Keras optimizer; `tf_bert.trainer.optimization.create_optimizer` makes BERT's.
            loss: the loss to minimise instead of the model's own, in every form that Keras takes: for all outputs, or a
                list or dict by output.
            loss_weights: what the losses of several outputs are multiplied by.
            metrics: further metrics, in every form that Keras takes. An example counts whatever its ``sample_weight``
                is, unless it is 0.
            weighted_metrics: metrics for which ``sample_weight`` counts.
            gradient_accumulation_steps: into how many micro-batches a batch is split. The update is that of the whole
                batch; memory grows with the micro-batch only, and steps count updates.
            recompute: whether the blocks of a deep model compute their activations again in the backward pass instead
                of keeping them, with the same dropout masks, for a fraction of the memory: a third more matrix
                products, 1.2 times the CPU time of a step.
            **kwargs: as in Keras. ``jit_compile=True`` compiles forward and backward pass of each replica with XLA.
        """
        if gradient_accumulation_steps < 1:
            raise ValueError(f"gradient_accumulation_steps is {gradient_accumulation_steps}; it has to be at least 1")
        if type(self).compute_metrics is not keras.Model.compute_metrics:
            raise ValueError(
                f"{type(self).__name__} overrides compute_metrics, which is not called here: give metrics= to compile, "
                "or override per_example_metrics"
            )
        given = {"loss": loss, "loss_weights": loss_weights, "metrics": metrics, "weighted_metrics": weighted_metrics}
        with self.distribute_strategy.scope():
            overridden = type(self).compute_loss is not Trainer.compute_loss
            objective = Objective(self, **given, is_overridden=overridden)
        super().compile(optimizer, **given, **kwargs)
        if getattr(self.optimizer, "_distribution_strategy", self.distribute_strategy) is not self.distribute_strategy:
            raise ValueError("model and optimizer were made under different strategies: make both in strategy.scope()")
        self._objective, self._accumulation = objective, gradient_accumulation_steps
        able = [model for model in self._flatten_layers() if getattr(model, "recompute", None) is not None]
        if recompute and not able:
            raise ValueError(
                f"{type(self).__name__} cannot recompute activations; Bert, GPT, Transformer and models on them can"
            )
        for model in able:
            model.recompute = recompute
        self._recomputes = recompute

    def get_compile_config(self) -> dict | None:
        """What `compile_from_config` needs."""
        config = super().get_compile_config()
        ours = {"gradient_accumulation_steps": self._accumulation, "recompute": getattr(self, "_recomputes", False)}
        return config and config | ours

    def compile_from_config(self, config: dict) -> None:
        """Compiles a loaded model as the saved one was, with the optimizer's slots."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built and self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """What ``fit`` and ``evaluate`` report, in order."""
        return [*self._objective.trackers.values(), *(each.metric for each in self._objective.metrics)]

    def reset_metrics(self) -> None:
        """Begins all metrics anew, on all replicas."""
        with self.distribute_strategy.scope():
            super().reset_metrics()

    def get_metrics_result(self) -> dict:
        """The metrics so far, over all replicas."""
        with self.distribute_strategy.scope():
            means = {name: tracker.result() for name, tracker in self._objective.trackers.items()}
            return means | self._objective.results()

    def compiled_metrics_results(self) -> dict:
        """The metrics of ``compile`` so far; call it outside of replicas, in the scope of the strategy."""
        return self._objective.results()

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training: bool = True):
        """The loss of a batch, as in Keras; an override is what is minimised, a mean over examples.

        Args:
            x: the inputs.
            y: the labels, where they are not among the inputs.
            y_pred: the outputs of the model.
            sample_weight: weights, or None.
            training: whether this is a training step.
        """
        inputs = self._inputs((x, y, sample_weight), labels=True)
        return self._objective.loss(inputs, y_pred) + sum(tf.cast(loss, self._objective.dtype) for loss in self.losses)

    def check(self, x, y=None, for_labels: bool = False) -> None:
        """Raises ValueError where inputs or labels, of all examples, are not what the model expects."""
        inputs = self._merged(x, y)
        self._check_labels(inputs, for_labels)
        check_arrays(inputs, self._expected(for_labels))

    def _check_labels(self, inputs: dict, needed: bool) -> None:
        missing = [name for name in self.label_names if name not in inputs]
        if needed and missing and self._objective.is_own:
            where = "as y, or in the dict of inputs" if missing == [self.label_name] else "in the dict of inputs"
            raise ValueError(
                f"{type(self).__name__} learns from {' and '.join(missing)}, found nowhere: expected {where}"
            )

    def _expected(self, for_labels: bool) -> Expected:
        """`expected`, without labels where the losses are not ours to check them for."""
        labels = {*self.label_names, self.label_name}
        checks = for_labels and self._objective.takes_own_labels
        return {name: rule for name, rule in self.expected.items() if checks or name not in labels}

    def weigh_classes(self, class_weight: Mapping | Any) -> None:
        """Sets the weight of each label for the steps of training that follow; None for none.

        Raises:
            ValueError: the model has no single labels, or a key or a weight is wrong.
        """
        rule = self.expected.get(self.label_name)
        if class_weight is not None and not (isinstance(rule, Integers) and rule.classes):
            kind = f" of kind {self.kind!r}" if hasattr(self, "kind") else ""
            raise ValueError(
                f"class_weight is for one label of several; {type(self).__name__}{kind} takes sample_weight, a weight "
                "for each example"
            )
        weights = None if class_weight is None else class_weights(class_weight, rule.size)
        if (weights is None) != (self._class_weights is None) or (
            weights is not None and any(weights != self._class_weights)
        ):
            self.train_function = None  # the weights are part of its graph
        self._class_weights = weights

    def train_step(self, data) -> dict:
        """One update from one batch, on one replica. Returns the logs."""
        if self.optimizer is None:
            raise ValueError(f"{type(self).__name__} was compiled without an optimizer: compile('adam') before fit")
        replica, objective = tf.distribute.get_replica_context(), self._objective
        inputs = self.trimmed(self._checked_inputs(data, labels=True))
        inputs = self._with_class_weights(inputs)
        step = tf.convert_to_tensor(self.optimizer.iterations)
        learning_rate = tf.convert_to_tensor(self.optimizer.learning_rate)
        divisors, examples = objective.divisors(inputs, self._accumulation)
        loss_scale = tf.cast(self.optimizer.scale_loss(1.0), divisors.dtype)

        position = step * replica.num_replicas_in_sync + tf.cast(replica.replica_id_in_sync_group, step.dtype)
        moved, sliced = self._moved_variables(), []

        def differentiate(inputs, divisors, position):
            forward = functools.partial(self._forward, divisors=divisors, loss_scale=loss_scale, training=True)
            *found, sliced[:] = gradients_of(
                forward, inputs, position, moved, self._accumulation, objective.zeros, self._clips_slices()
            )
            return found

        if self.jit_compile:  # only what lies between the collectives
            differentiate = tf.function(differentiate, jit_compile=True, autograph=False)
        gradients, sums, slices = differentiate(inputs, divisors, position)
        given = [i for i, gradient in enumerate(gradients) if gradient is not None]
        if not given:
            why = "has no variable to train that the loss depends on" if objective.terms else "has no loss of its own"
            raise ValueError(f"{type(self).__name__} {why}; compile(loss=...) takes one for each output with labels")
        variables, gradients = [moved[i] for i in given], [gradients[i] for i in given]
        gradients, sums, slices = replica.all_reduce(tf.distribute.ReduceOp.SUM, (gradients, sums, slices))

        # The sums of a step that float16 overflow makes the optimizer skip must not spoil the epoch's.
        finite = tf.reduce_all(tf.math.is_finite(sums))
        logs = objective.update(tf.where(finite, sums, 0.0), divisors, tf.where(finite, examples, 0.0))
        merged = [gradient for i, gradient in zip(given, gradients, strict=True) if i not in sliced]
        norm = tf.sqrt(tf.cast(sum_of_squares(merged), slices.dtype) + slices) / loss_scale
        if self._clips_slices():
            gradients = clip_by_norm(gradients, norm, self._own_optimizer().global_clipnorm)
        with tf.control_dependencies([self._check_finite(sums, norm, step)]), gradients_are_summed(self.optimizer):
            self.optimizer.apply(gradients, variables)
        return {**logs, "gradient_norm": norm, "learning_rate": learning_rate}

    def test_step(self, data) -> dict:
        """Losses and metrics of one batch, on one replica, without an update. Returns the logs."""
        inputs = self.trimmed(self._checked_inputs(data, labels=True))
        divisors, examples = self._objective.divisors(inputs)
        measure = functools.partial(self._forward, training=False)
        if self.jit_compile:
            measure = tf.function(measure, jit_compile=True, autograph=False)
        _, sums = measure(inputs, tf.zeros((), tf.int64), divisors, tf.ones_like(examples))
        sums = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, sums)
        return self._objective.update(sums, divisors, examples)

    def predict_step(self, data):
        """The model's outputs for one batch."""
        inputs = self._checked_inputs(data, labels=False)
        run = functools.partial(self, training=False)
        # Outside of what XLA compiles, where nothing can be refused; on several replicas Keras cannot compile at all.
        if self.jit_compile and self.distribute_strategy.num_replicas_in_sync == 1:
            run = tf.function(run, jit_compile=True, autograph=False)
        return run(self._call_inputs(inputs))

    def _moved_variables(self) -> list[keras.Variable]:
        """The trainable variables that the optimizer does not hold fast."""
        factor = getattr(self._own_optimizer(), "rate_factor", lambda variable: 1.0)
        return [variable for variable in self.trainable_variables if factor(variable)]

    def _own_optimizer(self) -> keras.optimizers.Optimizer:
        return getattr(self.optimizer, "inner_optimizer", self.optimizer)  # of a LossScaleOptimizer

    def _clips_slices(self) -> bool:
        """Whether gradients are clipped by the norm of slices that are not merged, which only the tape shows."""
        optimizer = self._own_optimizer()
        return bool(getattr(optimizer, "clip_unmerged_slices", False) and optimizer.global_clipnorm)

    def seed_state(self) -> list[keras.Variable]:
        """The seed of every dropout layer. The trainer never changes them: see `_dropout_seeds`."""
        return [variable for variable in self.variables if variable.name == "seed_generator_state"]

    def _dropout_seeds(self, position) -> list:
        """Seeds of one forward pass: a function of the layer's seed and of ``position`` in the run alone.

        So a resumed run draws the masks it would have drawn, replicas and micro-batches draw different ones, and
        nothing has to be summed or saved but the step. A layer may draw 1024 times in one pass.
        """
        return [(seed, seed.value + tf.stack([tf.zeros_like(position), 1024 * position])) for seed in self.seed_state()]

    def _merged(self, x, y=None) -> dict:
        """Inputs and labels in one dict, under our names."""
        if not isinstance(x, Mapping) and not self.input_names and not self.loss_names and hasattr(x, "shape"):
            x = {ALONE: x}
        if not isinstance(x, Mapping):
            self.named(x)  # which says what a model with names takes
            raise ValueError(f"{type(self).__name__} takes a dict of inputs, not a {type(x).__name__}")
        inputs, of_outputs = dict(x), {}
        if isinstance(y, Mapping) and self.label_name is None:
            of_outputs = {LABELS + name: value for name, value in y.items() if name in self._objective.outputs}
            y = {name: value for name, value in y.items() if LABELS + name not in of_outputs}
        if isinstance(y, Mapping):
            inputs |= y
        elif y is not None and self.label_name is not None:
            inputs[self.label_name] = y
        elif y is not None and self._objective.is_own:
            raise ValueError(f"{type(self).__name__} takes its labels in the dict of inputs, not as y")
        elif y is not None:
            of_outputs[LABELS] = y
        return dict(self.named(inputs)) | of_outputs

    def _inputs(self, data, labels: bool) -> dict:
        """Inputs, labels and weights of one batch in one dict."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        inputs = self._merged(x, y)
        self._check_labels(inputs, labels)
        return inputs if sample_weight is None else {**inputs, "sample_weight": sample_weight}

    def _call_inputs(self, inputs: dict):
        """What ``call`` is given: without labels of outputs, and alone what is given alone."""
        given = {name: value for name, value in inputs.items() if not name.startswith(LABELS)}
        return given.get(ALONE, given)

    def _checked_inputs(self, data, labels: bool) -> dict:
        inputs = self._inputs(data, labels)
        tensors = {name: tf.convert_to_tensor(value) for name, value in inputs.items()}
        if not self.built:
            self(self._call_inputs(tensors), training=False)
        return checked(tensors, self._expected(labels))

    def _with_class_weights(self, inputs: dict) -> dict:
        """The inputs with sample weights multiplied by the weights of their labels."""
        if self._class_weights is None:
            return inputs
        table = tf.constant(self._class_weights, self._objective.dtype)
        labels = (
            tf.squeeze(inputs[self.label_name], -1)
            if inputs[self.label_name].shape[-1] == 1
            else inputs[self.label_name]
        )
        of_labels = tf.gather(table, tf.clip_by_value(tf.cast(labels, tf.int32), 0, len(self._class_weights) - 1))
        return inputs | {"sample_weight": self._objective.weighted(inputs, of_labels)}

    def _forward(self, inputs: dict, position, divisors, loss_scale, training: bool):
        """One forward pass.

        Args:
            inputs: a batch or micro-batch of this replica.
            position: which forward pass of the run this is, int64.
            divisors: see `Objective.divisors`.
            loss_scale: what the loss is multiplied by.
            training: whether dropout is on.

        Returns:
            The loss to differentiate, this replica's share of the whole; and total and weight of each loss, of what
            layers add, and of each metric, [losses + 1 + metrics, 2], to be added over replicas and micro-batches.
        """
        objective, given = self._objective, self._call_inputs(inputs)
        with keras.StatelessScope(self._dropout_seeds(position), collect_losses=True) as scope:
            outputs = self(given, training=training)
        added = [*scope.losses, *self.losses]  # those of this call, and regularization
        for variable in self.non_trainable_weights if training else ():  # such as the means of BatchNormalization
            value = scope.get_current_value(variable)
            if value is not None:
                variable.assign(value)
        sums = objective.sums(inputs, outputs, added, divisors, training)
        of_terms = divisors[: len(objective.factors)]  # 0 where no label counts, so that there is nothing to divide
        factors = tf.unstack(tf.math.divide_no_nan(loss_scale * objective.factors, of_terms))
        loss = tf.add_n([factor * total for factor, (total, _) in zip(factors, sums[: len(factors)], strict=True)])
        return loss, tf.stack(sums)

    def _check_finite(self, sums, norm, step) -> tf.Operation:
        finite = tf.reduce_all(tf.math.is_finite(sums)) & tf.math.is_finite(norm)
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            finite |= self.optimizer.dynamic_scale.value >= 1.0  # an overflow: the optimizer skips the step
        return tf.debugging.Assert(finite, [NOT_FINITE, step])

    def _make_function(self, step_function) -> StepFunction:
        with self.distribute_strategy.scope():
            self._objective.build()
        return StepFunction(self, step_function)

    def make_train_function(self, force: bool = False) -> None:
        """Makes what ``fit`` calls for each execution."""
        super().make_train_function(force)
        self.train_function.start(self._epoch_steps)

    def make_predict_function(self, force: bool = False) -> None:
        """Makes what ``predict`` calls for each batch; `predict_step` compiles what is inside of it."""
        if self.predict_function is not None and not force:
            return
        jit_compile, self.jit_compile = self.jit_compile, False
        super().make_predict_function(force)
        self.jit_compile = jit_compile
        self.predict_function = refusing(self.predict_function)

    def make_test_function(self, force: bool = False) -> None:
        """Makes what ``evaluate`` calls for each execution."""
        super().make_test_function(force)
        self.test_function.start(self._epoch_steps)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None) -> None:
        """Creates the optimizer's slots outside the replicas; Keras would average the ids of a batch over them."""
        self._epoch_steps = iterator and iterator.num_batches
        if not self.built:
            super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
        elif self.optimizer is not None and not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
