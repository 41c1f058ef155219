"""The base class of every model that is trained: `compile`, `fit`, `evaluate` and `predict` as in Keras, and right
under every `tf.distribute` strategy.

N replicas give the update of one device, because the weights of a loss are summed over all replicas (and all
micro-batches) before the gradient is taken, the gradients are summed once, and clipping comes after the sum. Keras 3
divides per replica, clips per replica, and cannot run several steps per execution or several workers.
"""

import functools

import keras
import tensorflow as tf

from tf_bert.trainer.execution import NOT_FINITE, NonFiniteLossError, StepFunction
from tf_bert.trainer.input_names import ALIASES, named_inputs
from tf_bert.trainer.optimization import clip_by_norm, gradients_are_summed, sum_of_squares

__all__ = ["NonFiniteLossError", "Trainer", "WeightedMean"]


class WeightedMean(keras.metrics.Metric):
    """The sum of ``weight * value`` over the sum of ``weight``, both summed over all replicas by the caller."""

    def __init__(self, name: str, dtype: str | None = None):
        super().__init__(name=name, dtype=dtype)
        # Every replica holds the same sums, so one of them is read; Keras's own metrics would add them up.
        self.total = self.add_variable((), "zeros", dtype=self.dtype, aggregation="only_first_replica", name="total")
        self.weight = self.add_variable((), "zeros", dtype=self.dtype, aggregation="only_first_replica", name="weight")

    def update_state(self, total, weight) -> None:
        """Adds sums over one global batch."""
        self.total.assign_add(tf.cast(total, self.dtype))
        self.weight.assign_add(tf.cast(weight, self.dtype))

    def result(self) -> tf.Tensor:
        """The mean; 0 where all weights are 0."""
        return tf.math.divide_no_nan(self.total.value, self.weight.value)


class _Trackers:
    """Holds metrics where Keras does not look for them: they belong to a run, not to the saved model."""

    def __init__(self, names, dtype: str):
        self.metrics = {name: WeightedMean(name, dtype) for name in names}


class Trainer(keras.Model):
    """A `keras.Model` that brings its own losses, and trains alike on one device and on many.

    A subclass names its losses and says what they are, example by example; it never divides by a batch size. Each loss
    is ``sum(weight * value) / sum(weight)`` over the whole global batch, and the sum of the losses is minimised. The
    inputs are a dict that holds the labels too; ``fit(x, y, sample_weight)`` puts ``y`` under ``label_name``, and
    ``sample_weight`` multiplies the weights of its example in every loss and metric.

    ``fit`` and ``evaluate`` show ``loss`` (the mean over the batches, weighted by their number of examples), each loss
    and each metric by name (exact weighted means over all examples), and ``fit`` also ``gradient_norm`` (before
    clipping) and ``learning_rate`` of the last update. A loss that is named ``"loss"`` takes the place of the mean.

    Compiled with Keras's own ``loss=``, or without ``loss_names``, a model takes Keras's ordinary way, with Keras's
    division per replica.

    Attributes:
        loss_names: names of the losses, as in the dicts that `per_example_losses` and `loss_weights` return.
        metric_names: names of the further metrics, as in the dict that `per_example_metrics` returns.
        weight_epsilon: what is added to the weight sum of a loss in training: ``{"masked_lm_loss": 1e-5}`` in BERT.
        label_name: the key of ``inputs`` under which ``fit(x, y)`` puts ``y``.
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
    input_names: tuple[str, ...] = ()
    recompute: bool | None = None

    def __init__(self, **kwargs):
        if "outputs" in kwargs:
            raise TypeError(f"{type(self).__name__} is subclassed, not made from inputs and outputs: use keras.Model")
        super().__init__(**kwargs)
        names = dict.fromkeys(("loss", *self.loss_names, *self.metric_names))
        self._trackers = _Trackers(names, self.variable_dtype)
        self._own_losses = bool(self.loss_names)
        self._accumulation = 1
        self._epoch_steps = None
        self._sliced = []
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
        self, optimizer="rmsprop", *, gradient_accumulation_steps: int = 1, recompute: bool = False, **kwargs
    ) -> None:
        """Configures training, as `keras.Model.compile`.

        Args:
            optimizer: any Keras optimizer; `tf_bert.trainer.optimization.create_optimizer` makes BERT's.
            gradient_accumulation_steps: into how many micro-batches a batch is split. The update is that of the whole
                batch; memory grows with the micro-batch only, and steps count updates.
            recompute: whether the blocks of a deep model compute their activations again in the backward pass instead
                of keeping them, with the same dropout masks, for a fraction of the memory: a third more matrix
                products, 1.2 times the CPU time of a step.
            **kwargs: as in Keras. ``jit_compile=True`` compiles forward and backward pass of each replica with XLA.
        """
        if gradient_accumulation_steps < 1:
            raise ValueError(f"gradient_accumulation_steps is {gradient_accumulation_steps}; it has to be at least 1")
        self._own_losses = bool(self.loss_names) and kwargs.get("loss") is None
        for name in ("metrics", "weighted_metrics", "loss_weights"):
            if self._own_losses and kwargs.get(name) is not None:
                raise ValueError(f"{type(self).__name__} has its own losses and metrics, and cannot take {name} too")
        super().compile(optimizer, **kwargs)
        if getattr(self.optimizer, "_distribution_strategy", self.distribute_strategy) is not self.distribute_strategy:
            raise ValueError("model and optimizer were made under different strategies: make both in strategy.scope()")
        self._accumulation = gradient_accumulation_steps
        able = [model for model in self._flatten_layers() if getattr(model, "recompute", None) is not None]
        if recompute and not able:
            raise ValueError(
                f"{type(self).__name__} cannot recompute activations; Bert, GPT, Transformer and models on them can"
            )
        for model in able:
            model.recompute = recompute
        self._compile_config.config |= {
            "gradient_accumulation_steps": gradient_accumulation_steps,
            "recompute": recompute,
        }

    def compile_from_config(self, config: dict) -> None:
        """Compiles a loaded model as the saved one was, with the optimizer's slots."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """What ``fit`` and ``evaluate`` report, in order."""
        return list(self._trackers.metrics.values()) if self._own_losses else super().metrics

    def train_step(self, data) -> dict:
        """One update from one batch, on one replica. Returns the logs."""
        if not self._own_losses:
            return super().train_step(data)
        replica = tf.distribute.get_replica_context()
        inputs = self.trimmed(self._inputs(data))
        step = tf.convert_to_tensor(self.optimizer.iterations)
        learning_rate = tf.convert_to_tensor(self.optimizer.learning_rate)
        weights, examples = self._summed_weights(inputs, self._accumulation)
        loss_scale = tf.cast(self.optimizer.scale_loss(1.0), weights.dtype)

        position = step * replica.num_replicas_in_sync + tf.cast(replica.replica_id_in_sync_group, step.dtype)
        differentiate = self._gradients
        if self.jit_compile:  # only what lies between the collectives
            differentiate = tf.function(differentiate, jit_compile=True, autograph=False)
        gradients, sums, slices = differentiate(inputs, tf.math.divide_no_nan(loss_scale, weights), position)
        given = [i for i, gradient in enumerate(gradients) if gradient is not None]
        moved = self._moved_variables()
        variables, gradients = [moved[i] for i in given], [gradients[i] for i in given]
        gradients, sums, slices = replica.all_reduce(tf.distribute.ReduceOp.SUM, (gradients, sums, slices))

        # The sums of a step that float16 overflow makes the optimizer skip must not spoil the epoch's.
        finite = tf.reduce_all(tf.math.is_finite(sums))
        logs = self._update_trackers(tf.where(finite, sums, 0.0), weights, tf.where(finite, examples, 0.0))
        merged = [gradient for i, gradient in zip(given, gradients, strict=True) if i not in self._sliced]
        norm = tf.sqrt(sum_of_squares(merged) + slices) / tf.cast(loss_scale, gradients[0].dtype)
        if self._clips_slices():
            gradients = clip_by_norm(gradients, norm, self._own_optimizer().global_clipnorm)
        with tf.control_dependencies([self._check_finite(sums, norm, step)]), gradients_are_summed(self.optimizer):
            self.optimizer.apply(gradients, variables)
        return {**logs, "gradient_norm": norm, "learning_rate": learning_rate}

    def test_step(self, data) -> dict:
        """Losses and metrics of one batch, on one replica, without an update. Returns the logs."""
        if not self._own_losses:
            return super().test_step(data)
        inputs = self.trimmed(self._inputs(data))
        weights, examples = self._summed_weights(inputs)
        measure = functools.partial(self._forward, training=False)
        if self.jit_compile:
            measure = tf.function(measure, jit_compile=True, autograph=False)
        _, sums = measure(inputs, tf.zeros_like(weights), tf.zeros((), tf.int64))
        sums = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, sums)
        return self._update_trackers(sums, weights, examples)

    def predict_step(self, data):
        """The model's outputs for one batch."""
        return self(self._inputs(data), training=False) if self._own_losses else super().predict_step(data)

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

    def _inputs(self, data) -> dict:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if not isinstance(x, dict):
            raise ValueError(f"{type(self).__name__} takes a dict of inputs, not a {type(x).__name__}")
        inputs = dict(x)
        if isinstance(y, dict):
            inputs |= y
        elif y is not None and self.label_name is None:
            raise ValueError(f"{type(self).__name__} takes its labels in the dict of inputs, not as y")
        elif y is not None:
            inputs[self.label_name] = y
        inputs = self.named(inputs)
        return inputs if sample_weight is None else {**inputs, "sample_weight": sample_weight}

    def _weighted(self, inputs: dict, weights):
        """``weights`` times the sample weights, in the precision of the sums."""
        weights = tf.cast(weights, self.variable_dtype)
        if "sample_weight" not in inputs:
            return weights
        sample_weight = tf.cast(inputs["sample_weight"], weights.dtype)
        return weights * tf.reshape(sample_weight, [-1] + [1] * (weights.shape.rank - 1))

    def _summed_weights(self, inputs: dict, passes: int = 1) -> tuple[tf.Tensor, tf.Tensor]:
        """What losses are divided by, [losses + 1], and the number of examples.

        A loss of ours is divided by its weights, summed over the global batch; what layers add (such as regularization)
        by the number of forward passes in which they do, of which this replica makes ``passes``.
        """
        weights = self.loss_weights(inputs)
        sums = [tf.reduce_sum(self._weighted(inputs, weights[name])) for name in self.loss_names]
        some = tf.nest.flatten(inputs)[0]
        examples = tf.math.count_nonzero(inputs.get("sample_weight", tf.ones(tf.shape(some)[0])), dtype=sums[0].dtype)
        sums = tf.stack([*sums, tf.cast(passes, examples.dtype), examples])
        sums = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, sums)
        epsilon = tf.constant([self.weight_epsilon.get(name, 0.0) for name in self.loss_names] + [0.0], sums.dtype)
        return sums[:-1] + epsilon, sums[-1]

    def _forward(self, inputs: dict, factors, position, training: bool):
        """One forward pass.

        Args:
            inputs: a batch or micro-batch of this replica.
            factors: what each loss's weighted sum is multiplied by, and what layers add, [losses + 1].
            position: which forward pass of the run this is, int64.
            training: whether dropout is on.

        Returns:
            The loss to differentiate, this replica's share of the whole; and total and weight of each loss, of what
            layers add, and of each metric, [losses + 1 + metrics, 2], to be added over replicas and micro-batches.
        """
        with keras.StatelessScope(self._dropout_seeds(position), collect_losses=True) as scope:
            outputs = self(inputs, training=training)
        added = [*scope.losses, *self._get_regularization_losses()]
        for variable in self.non_trainable_weights if training else ():  # such as the means of BatchNormalization
            value = scope.get_current_value(variable)
            if value is not None:
                variable.assign(value)
        values, weights = self.per_example_losses(inputs, outputs), self.loss_weights(inputs)
        metrics = self.per_example_metrics(inputs, outputs)

        def total(value, weight):
            weight = self._weighted(inputs, weight)
            return tf.reduce_sum(tf.cast(value, weight.dtype) * weight), tf.reduce_sum(weight)

        sums = [total(values[name], weights[name]) for name in self.loss_names]
        sums.append((tf.cast(sum(added, 0.0), factors.dtype), tf.ones([], factors.dtype)))
        loss = tf.add_n([factor * value for factor, (value, _) in zip(tf.unstack(factors), sums, strict=True)])
        return loss, tf.stack(sums + [total(*metrics[name]) for name in self.metric_names])

    def _gradients(self, inputs: dict, factors, position):
        """Gradients of this replica's share of the loss, the sums of `_forward`, and the squares of unmerged slices.

        A gradient is None where there is none. The squares are those of the variables in ``_sliced``.
        """

        def differentiate(inputs, position):
            with tf.GradientTape() as tape:
                loss, sums = self._forward(inputs, factors, position, training=True)
            gradients = tape.gradient(loss, self._moved_variables())
            slices = [(i, g) for i, g in enumerate(gradients) if isinstance(g, tf.IndexedSlices)]
            self._sliced = [i for i, _ in slices] if self._clips_slices() else []
            squares = sum_of_squares([g for _, g in slices]) if self._sliced else tf.zeros([], loss.dtype)
            gradients = [gradient if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
            return gradients, sums, squares

        if self._accumulation == 1:
            return differentiate(inputs, position)
        micro_batches = _split(inputs, self._accumulation)
        with_gradient = []

        def add_micro_batch(i, total_gradients, total_sums, total_squares):
            gradients, sums, squares = differentiate(
                {name: value[i] for name, value in micro_batches.items()},
                position * self._accumulation + tf.cast(i, position.dtype),
            )
            with_gradient[:] = [gradient is not None for gradient in gradients]
            gradients = [
                total if gradient is None else total + gradient
                for total, gradient in zip(total_gradients, gradients, strict=True)
            ]
            return i + 1, gradients, total_sums + sums, total_squares + squares

        _, gradients, sums, squares = tf.while_loop(
            lambda i, *_: i < self._accumulation,
            add_micro_batch,
            (
                0,
                [tf.zeros(variable.shape, variable.dtype) for variable in self._moved_variables()],
                tf.zeros([len(self.loss_names) + 1 + len(self.metric_names), 2], factors.dtype),
                tf.zeros([], factors.dtype),
            ),
            parallel_iterations=1,
        )
        gradients = [gradient if has else None for gradient, has in zip(gradients, with_gradient, strict=True)]
        return gradients, sums, squares

    def _update_trackers(self, sums, weights, examples) -> dict:
        """Adds global sums to the metrics and returns their values so far."""
        trackers = self._trackers.metrics
        if "loss" not in self.loss_names:
            loss = tf.reduce_sum(tf.math.divide_no_nan(sums[: len(self.loss_names) + 1, 0], weights))
            trackers["loss"].update_state(loss * examples, examples)
        for name, row in zip([*self.loss_names, None, *self.metric_names], tf.unstack(sums), strict=True):
            if name is not None:
                trackers[name].update_state(row[0], row[1])
        return {name: tracker.result() for name, tracker in trackers.items()}

    def _check_finite(self, sums, norm, step) -> tf.Operation:
        finite = tf.reduce_all(tf.math.is_finite(sums)) & tf.math.is_finite(norm)
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            finite |= self.optimizer.dynamic_scale.value >= 1.0  # an overflow: the optimizer skips the step
        return tf.debugging.Assert(finite, [NOT_FINITE, step])

    def _make_function(self, step_function) -> StepFunction:
        return StepFunction(self, step_function)

    def make_train_function(self, force: bool = False) -> None:
        """Makes what ``fit`` calls for each execution."""
        super().make_train_function(force)
        self.train_function.start(self._epoch_steps)

    def make_predict_function(self, force: bool = False) -> None:
        """Makes what ``predict`` calls. Keras's cannot compile one function for the variables of several replicas."""
        jit_compile = self.jit_compile
        self.jit_compile = jit_compile and self.distribute_strategy.num_replicas_in_sync == 1
        super().make_predict_function(force)
        self.jit_compile = jit_compile

    def make_test_function(self, force: bool = False) -> None:
        """Makes what ``evaluate`` calls for each execution."""
        super().make_test_function(force)
        self.test_function.start(self._epoch_steps)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None) -> None:
        """Creates the optimizer's slots outside the replicas; Keras would average the ids of a batch over them."""
        self._epoch_steps = iterator and iterator.num_batches
        if not self._own_losses or not self.built:
            super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
        elif not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)


def _split(inputs: dict, parts: int) -> dict:
    """Cuts a batch [B, ...] into micro-batches [parts, B / parts, ...], filled up with examples of weight 0."""
    first = tf.nest.flatten(inputs)[0]
    size = tf.shape(first)[0] if first.shape[0] is None else first.shape[0]
    micro_size = (size + parts - 1) // parts
    padding = micro_size * parts - size
    if not isinstance(padding, int) or padding:
        inputs = {"sample_weight": tf.ones([size]), **inputs}

    def split(name, value):
        filling = tf.repeat(value[:1], padding, axis=0)
        value = tf.concat([value, tf.zeros_like(filling) if name == "sample_weight" else filling], axis=0)
        return tf.reshape(value, tf.concat([[parts, micro_size], tf.shape(value)[1:]], axis=0))

    return {name: split(name, value) for name, value in inputs.items()}
