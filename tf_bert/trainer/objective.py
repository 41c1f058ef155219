"""What a `Trainer` minimises and shows: sums over the global batch, from which losses and metrics are made."""

import inspect
import threading
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_bert.trainer.compiled import Loss, Metric, Scores, as_seen, losses_of, metrics_of

LABELS = "y/"  # begins the names of labels that are not inputs of the model
ALONE = "x/"  # the name of an input that is given alone, not in a dict
ONLY = "output"  # the name of the output of a model that has one without a name


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


class Term(NamedTuple):
    """A part of the loss that is minimised: ``factor * sum(weight * value) / divisor``.

    Attributes:
        name: its name in the logs.
        divisor: ``"weights"``, the sum of all weights; ``"labels"``, without sample weights; ``"one"``; ``"examples"``.
        factor: what it is multiplied by.
        epsilon: added to the divisor.
        loss: the user's; None where the model itself brings the values.
    """

    name: str
    divisor: str = "weights"
    factor: float = 1.0
    epsilon: float = 0.0
    loss: Loss | None = None


WHOLE = Term("loss", "examples")  # an overridden `compute_loss`, which is a mean over examples


class Objective:
    """The losses and metrics of a model: its own, or those of ``compile``.

    All sums are added over micro-batches and replicas before they are divided, so that N replicas are one device.

    Attributes:
        dtype: of the sums, float32 or wider.
        terms: what is added up to the loss.
        own_metrics: names of the model's own metrics that are shown.
        metrics: those of ``compile``.
        trackers: name -> mean over the steps, in the order in which they are shown.
    """

    def __init__(
        self, model, loss=None, loss_weights=None, metrics=None, weighted_metrics=None, is_overridden: bool = False
    ):
        self.model, name = model, type(model).__name__
        self.dtype = keras.backend.result_type(model.variable_dtype, "float32")
        given = [argument for argument in (loss, metrics, weighted_metrics) if argument is not None]
        self.outputs = (dict(model.scored_outputs) or _outputs_named_in(*given)) if given else {}
        self.metrics = _with_unique_names(
            metrics_of(metrics, False, self.outputs, name) + metrics_of(weighted_metrics, True, self.outputs, name)
        )
        self.terms = [Term(n, epsilon=model.weight_epsilon.get(n, 0.0)) for n in model.loss_names]
        self.own_metrics = [] if loss is not None else list(model.metric_names)
        if loss is not None:
            losses = losses_of(loss, loss_weights, self.outputs, name)
            self.terms = [
                Term("loss" if len(losses) == 1 else f"{each.output}_loss", each.divisor, each.factor, loss=each)
                for each in losses
            ]
        elif loss_weights is not None:
            raise ValueError("loss_weights are of the losses in loss=; the model's own losses have none")
        self._base, self._behind = self.terms, []
        self._in_step = threading.local()  # replicas are traced in threads that take turns
        if is_overridden:
            self.terms, self._behind = [WHOLE], self.terms
        taken = {metric.name for metric in self.metrics}
        self.own_metrics = [n for n in self.own_metrics if n not in taken]
        shown = dict.fromkeys(("loss", *(term.name for term in self.terms), *self.own_metrics))
        self.trackers = {n: WeightedMean(n, self.dtype) for n in shown}

    @property
    def is_own(self) -> bool:
        """Whether the model's own losses are minimised."""
        return not self._behind and all(term.loss is None for term in self.terms)

    @property
    def takes_own_labels(self) -> bool:
        """Whether labels have to be what the model's own losses take, so that they can be checked."""
        return not self._behind and all(term.loss is None or term.loss.takes_integers for term in self.terms)

    @property
    def zeros(self) -> tf.Tensor:
        """The sums of no batch."""
        return tf.zeros([len(self.terms) + 1 + len(self.own_metrics), 2], self.dtype)

    def weights(self, inputs: dict[str, Any]) -> dict[str, tf.Tensor]:
        """The weights of the labels, by name of a loss of the model; without sample weights."""
        return self.model.loss_weights(inputs) if self.model.loss_names else {}

    def label_weights(self, inputs: dict[str, Any], weights: dict[str, tf.Tensor], output: str) -> tf.Tensor:
        """The weights of the labels of an output, [B] or [B, S]."""
        name = self.outputs[output].weights
        if name is None:
            return tf.ones([_size(inputs)], self.dtype)
        return tf.cast(weights[name], self.dtype)

    def weighted(self, inputs: dict[str, Any], weights) -> tf.Tensor:
        """``weights`` times the sample weights, in the precision of the sums."""
        weights = tf.cast(weights, self.dtype)
        if "sample_weight" not in inputs:
            return weights
        sample_weight = tf.cast(inputs["sample_weight"], weights.dtype)
        if sample_weight.shape.rank == weights.shape.rank:
            return weights * sample_weight
        if sample_weight.shape.rank == 2 and sample_weight.shape[1] not in (1, None):
            raise ValueError(
                f"sample_weight has the shape {sample_weight.shape}, and the labels {weights.shape}: expected a weight "
                "for each example, or for each label"
            )
        return weights * tf.reshape(sample_weight, [-1] + [1] * (weights.shape.rank - 1))

    def divisors(self, inputs: dict[str, Any], passes: int = 1) -> tuple[tf.Tensor, tf.Tensor]:
        """What the sums of the losses are divided by, over all replicas, and the number of examples.

        Args:
            inputs: the batch of this replica.
            passes: forward passes that this replica makes of it.

        Returns:
            For each of ``terms``, for what layers add (the number of forward passes), and for each loss behind an
            overridden `compute_loss`; and the number of examples that the step counts for in the mean of the losses.
        """
        terms = [*self.terms, *self._behind]
        weights, size = self.weights(inputs), _size(inputs)
        rows = (size + passes - 1) // passes * passes  # with those that fill up micro-batches
        counts = tf.ones([size])
        if self.is_own and "sample_weight" in inputs:
            counts = tf.reduce_any(tf.reshape(inputs["sample_weight"] != 0, [size, -1]), axis=1)
        sums = [self._divisor(term, inputs, weights, rows) for term in terms]
        sums += [tf.cast(passes, self.dtype), tf.reduce_sum(tf.cast(counts, self.dtype))]
        sums = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.stack(sums))
        of_terms = [
            tf.ones_like(divisor) if term.divisor == "one" else divisor + term.epsilon
            for term, divisor in zip(terms, tf.unstack(sums[:-2]), strict=True)
        ]
        of_terms.insert(len(self.terms), sums[-2])
        return tf.stack(of_terms), sums[-1]

    def _divisor(self, term: Term, inputs, weights, rows) -> tf.Tensor:
        """What one replica adds to the divisor of a term."""
        if term.divisor in ("one", "examples"):
            return tf.cast(rows, self.dtype)
        of_labels = weights[term.name] if term.loss is None else self.label_weights(inputs, weights, term.loss.output)
        if term.divisor == "weights":
            of_labels = self.weighted(inputs, of_labels)
        return tf.reduce_sum(tf.cast(of_labels, self.dtype))

    def sums(self, inputs: dict[str, Any], outputs, added: list, divisors: tf.Tensor, training: bool) -> list:
        """Pairs of sums for one forward pass of one replica, [terms + 1 + metrics] of (sum of values, sum of weights).

        Args:
            inputs: the batch or micro-batch.
            outputs: of the model.
            added: the losses that layers add.
            divisors: from `divisors`.
            training: whether this is a training step.
        """
        weights = self.weights(inputs)
        if self.terms[:1] == [WHOLE]:
            found = [self._whole(inputs, outputs, added, divisors, training)]
        else:
            found = self._sums_of(self.terms, inputs, outputs)
        found.append((tf.cast(sum(added, 0.0), self.dtype), tf.ones([], self.dtype)))
        if self.own_metrics:
            own = self.model.per_example_metrics(inputs, outputs)
            found += [self._total(inputs, *own[name]) for name in self.own_metrics]
        if self.metrics:
            targets = self.model.targets(inputs, outputs)
            for metric in self.metrics:
                self._update(metric, inputs, outputs, targets, weights)
        return found

    def _total(self, inputs, values, weights) -> tuple[tf.Tensor, tf.Tensor]:
        weights = self.weighted(inputs, weights)
        return tf.reduce_sum(tf.cast(values, self.dtype) * weights), tf.reduce_sum(weights)

    def _sums_of(self, terms: list[Term], inputs, outputs) -> list[tuple[tf.Tensor, tf.Tensor]]:
        if not terms:
            return []
        weights = self.weights(inputs)
        if terms[0].loss is None:
            values = self.model.per_example_losses(inputs, outputs)
            return [self._total(inputs, values[term.name], weights[term.name]) for term in terms]
        found, targets = [], self.model.targets(inputs, outputs)
        for term in terms:
            name = term.loss.output
            values = term.loss.values(_target(targets, name), _output(outputs, name), self.outputs[name].activation)
            of_labels = self.label_weights(inputs, weights, name)
            values, of_labels = _of_one_shape(tf.cast(values, self.dtype), of_labels)
            found.append(self._total(inputs, values, of_labels))
        return found

    def _update(self, metric: Metric, inputs, outputs, targets, weights) -> None:
        of_labels = self.label_weights(inputs, weights, metric.output)
        counts_all = of_labels.shape.rank == 1 and not {"is_real_example", "sample_weight"} & inputs.keys()
        if not counts_all and not metric.takes_weights:
            raise ValueError(f"the metric {metric.name} takes no sample_weight, and some labels do not count here")
        if metric.weighted:
            of_labels = self.weighted(inputs, of_labels)
        elif "sample_weight" in inputs:  # an example of weight 0 is not there, such as one that fills up a batch
            of_labels = self.weighted(inputs | {"sample_weight": inputs["sample_weight"] != 0}, of_labels)
        labels, scores = _target(targets, metric.output), _output(outputs, metric.output)
        activation = self.outputs[metric.output].activation
        metric.update(labels, scores, activation, None if counts_all else of_labels)

    def _whole(self, inputs, outputs, added, divisors, training) -> tuple[tf.Tensor, tf.Tensor]:
        """The overridden `compute_loss`: its value for each example of this replica or micro-batch."""
        size = tf.cast(_size(inputs), self.dtype)
        here = self._in_step
        here.divisors, here.scale = tf.unstack(divisors[2:]), divisors[0] / size
        self.model._losses_override = list(added)  # what `self.losses` is, as in Keras's own steps
        x, y = as_x_and_y(inputs, self.model.label_name)
        arguments = {"x": x, "y": y, "y_pred": outputs, "sample_weight": inputs.get("sample_weight")}
        if "training" in inspect.signature(self.model.compute_loss).parameters:
            arguments["training"] = training
        try:
            loss = self.model.compute_loss(**arguments)
        finally:
            self.model._losses_override = []
            del here.divisors, here.scale
        return tf.cast(loss, self.dtype) * size, size

    def loss(self, inputs: dict[str, Any], outputs) -> tf.Tensor:
        """The loss of a batch, without what layers add.

        In a step it is the share of these examples in the loss of the whole batch, scaled so that the mean over all
        parts, by their numbers of examples, is the loss of the batch.
        """
        weights, sums = self.weights(inputs), self._sums_of(self._base, inputs, outputs)
        scale, divisors = getattr(self._in_step, "scale", 1.0), getattr(self._in_step, "divisors", None)
        if divisors is None:
            divisors = [
                1.0 if term.divisor == "one" else self._divisor(term, inputs, weights, _size(inputs)) + term.epsilon
                for term in self._base
            ]
        parts = [
            term.factor * tf.math.divide_no_nan(value, divisor)
            for term, (value, _), divisor in zip(self._base, sums, divisors, strict=True)
        ]
        return scale * tf.add_n(parts) if parts else tf.zeros([], self.dtype)

    @property
    def factors(self) -> list[float]:
        """Of the terms, and of what layers add."""
        return [*(term.factor for term in self.terms), 0.0 if self.terms[:1] == [WHOLE] else 1.0]

    def update(self, sums, divisors, examples) -> dict[str, tf.Tensor]:
        """Adds the sums of one step over all replicas to the means, and returns their values so far."""
        count = len(self.terms) + 1
        parts = self.factors * tf.math.divide_no_nan(sums[:count, 0], divisors[:count])
        rows = dict(zip([*(term.name for term in self.terms), None, *self.own_metrics], tf.unstack(sums), strict=True))
        rows.pop(None)
        if len(self.terms) == 1 and self.terms[0].name == "loss" and self.terms[0].loss is None and self._behind == []:
            # The mean over all labels rather than over batches, and what layers add.
            total, weight = tf.unstack(rows.pop("loss"))
            self.trackers["loss"].update_state(total + parts[-1] * weight, weight)
        else:
            rows.pop("loss", None)
            self.trackers["loss"].update_state(tf.reduce_sum(parts) * examples, examples)
        for name, row in rows.items():
            self.trackers[name].update_state(row[0], row[1])
        return {name: tracker.result() for name, tracker in self.trackers.items()}

    def results(self) -> dict[str, tf.Tensor]:
        """The metrics of ``compile`` so far, over all replicas; call it outside of them."""
        found = {}
        for each in self.metrics:
            result = each.metric.result()
            found |= result if isinstance(result, dict) else {each.name: result}
        return found

    def build(self) -> None:
        """Makes the variables of metrics that make them late, before replicas do it each on its own."""
        for each in self.metrics:
            size = self.outputs[each.output].size
            if not each.metric.variables and size:
                labels, scores = tf.zeros([1], tf.int32), tf.zeros([1, size], self.dtype)
                labels = (
                    tf.zeros([1, size], self.dtype) if self.outputs[each.output].activation != "softmax" else labels
                )
                labels, scores = as_seen(each.metric, labels, scores, self.outputs[each.output].activation)
                each.metric.stateless_update_state([], labels, scores)


def as_x_and_y(inputs: dict[str, Any], label_name: str | None) -> tuple[dict[str, Any], Any]:
    """The inputs without weights, and the labels as ``y``: under their name, or as they were given."""
    x = {name: value for name, value in inputs.items() if not name.startswith(LABELS) and name != "sample_weight"}
    given = {name.removeprefix(LABELS): value for name, value in inputs.items() if name.startswith(LABELS)}
    return x, given.get("", given or None) if label_name is None else inputs.get(label_name)


def _size(inputs: dict[str, Any]) -> Any:
    """The number of examples of a batch."""
    first = tf.nest.flatten(inputs)[0]
    return tf.shape(first)[0] if first.shape[0] is None else first.shape[0]


def _outputs_named_in(*arguments: Any) -> dict[str, Scores]:
    """The outputs that arguments of ``compile`` name, for a model that has no labels of its own."""
    names = dict.fromkeys(name for given in arguments if isinstance(given, dict) for name in given)
    return {name: Scores() for name in names or [ONLY]}


def _output(outputs: Any, name: str) -> Any:
    if not isinstance(outputs, dict):
        return outputs
    if name not in outputs:
        found = ", ".join(outputs)
        raise ValueError(f"compile: there is no output {name!r}; give a dict by output, of {found}")
    return outputs[name]


def _target(targets: dict[str, Any], name: str) -> Any:
    if targets.get(name) is None:
        raise ValueError(f"there are no labels for the output {name!r}, which a loss or metric of compile needs")
    return targets[name]


def _of_one_shape(values: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Values of a loss and weights of labels, both [B] or both [B, S]."""
    if values.shape.rank > max(weights.shape.rank, 1):
        values = tf.reduce_mean(values, axis=list(range(weights.shape.rank, values.shape.rank)))
    if values.shape.rank == 0:  # a function that returns a mean
        values = tf.broadcast_to(values, tf.shape(weights)[:1])
    while weights.shape.rank > values.shape.rank:
        weights = tf.reduce_max(weights, axis=-1)
    return values, weights


def _with_unique_names(metrics: list[Metric]) -> list[Metric]:
    """Weighted metrics beside others of their name are called so, as in Keras."""
    found: dict[str, Metric] = {}
    for each in metrics:
        name = f"weighted_{each.name}" if each.weighted and each.name in found else each.name
        number = 1
        while name in found:
            name, number = f"{each.name}_{number}", number + 1
        found[name] = each._replace(name=name)
    return list(found.values())
