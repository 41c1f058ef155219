"""The losses and metrics that a user gives to ``compile``, for the outputs of a model that have labels."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

# Losses and metrics of Keras, functions and classes, by name without underscores: those that expect probabilities,
# unless they say from_logits=True; those that measure one class against another; those that take labels as integers.
_BINARY = frozenset(
    "auc precision recall truepositives truenegatives falsepositives falsenegatives precisionatrecall "
    "recallatprecision sensitivityatspecificity specificityatsensitivity binaryaccuracy binaryiou binarycrossentropy "
    "binaryfocalcrossentropy".split()
)
_PROBABILITIES = _BINARY | set(
    "f1score fbetascore categoricalcrossentropy sparsecategoricalcrossentropy categoricalfocalcrossentropy "
    "categoricalgeneralizedcrossentropy kldivergence poisson dice tversky".split()
)
_INTEGERS = frozenset(
    "sparsecategoricalcrossentropy sparsecategoricalaccuracy sparsetopkcategoricalaccuracy iou meaniou".split()
)


class Scores(NamedTuple):
    """An output that the losses and metrics of ``compile`` see.

    Attributes:
        weights: the loss of the model whose weights say which labels count; None where all do.
        activation: what makes probabilities of the output: ``"softmax"``, ``"sigmoid"``, or None for numbers.
        size: number of classes in its last axis; None where it varies.
    """

    weights: str | None = None
    activation: str | None = None
    size: int | None = None


class Loss(NamedTuple):
    """A loss of ``compile`` for one output.

    Attributes:
        output: name of the output.
        measure: function or `keras.losses.Loss`.
        factor: its ``loss_weights``.
    """

    output: str
    measure: Callable
    factor: float

    @property
    def divisor(self) -> str:
        """What the sum is divided by: the number of ``"labels"``, their ``"weights"`` or nothing (``"one"``)."""
        reduction = getattr(self.measure, "reduction", "mean")
        return {"mean_with_sample_weight": "weights", "sum": "one"}.get(reduction, "labels")

    @property
    def takes_integers(self) -> bool:
        """Whether it takes the number of a label, as the losses of models do."""
        return _keras_name(self.measure) in _INTEGERS

    def values(self, labels, scores, activation: str | None):
        """The loss of each label, before weights: [B], or [B, S] for labels of positions."""
        labels, scores = as_seen(self.measure, labels, scores, activation)
        if not self.takes_integers:
            labels = ops.cast(labels, getattr(self.measure, "dtype", scores.dtype))
        measure = self.measure
        if isinstance(measure, keras.losses.Loss) and type(measure).call is not keras.losses.Loss.call:
            measure = measure.call  # without the mean over what one replica holds
        return measure(labels, scores)


class Metric(NamedTuple):
    """A metric of ``compile``.

    Attributes:
        name: its name in the logs.
        output: the output that it sees.
        metric: what is updated.
        weighted: whether ``sample_weight`` counts.
    """

    name: str
    output: str
    metric: keras.metrics.Metric
    weighted: bool

    def update(self, labels, scores, activation: str | None, weights) -> None:
        """Adds one batch; ``weights`` may be None."""
        labels, scores = as_seen(self.metric, labels, scores, activation)
        if not self.is_custom and len(scores.shape) > 2:  # positions are examples to it
            scores = ops.reshape(scores, (-1, *scores.shape[2:]))
            labels, weights = (
                ops.reshape(labels, (-1, *labels.shape[2:])),
                weights if weights is None else ops.ravel(weights),
            )
        if weights is None:
            self.metric.update_state(labels, scores)
        else:
            self.metric.update_state(labels, scores, sample_weight=weights)

    @property
    def is_custom(self) -> bool:
        """Whether a user has written it, so that it sees labels and scores as they are."""
        return _keras_name(self.metric) is None and not isinstance(self.metric, _OfFunction)

    @property
    def takes_weights(self) -> bool:
        """Whether ``update_state`` takes ``sample_weight``."""
        parameters = inspect.signature(self.metric.update_state).parameters.values()
        return any(p.name == "sample_weight" or p.kind == p.VAR_KEYWORD for p in parameters)


def losses_of(loss: Any, loss_weights: Any, outputs: Mapping[str, Scores], model: str) -> list[Loss]:
    """The losses that ``compile(loss=..., loss_weights=...)`` means.

    Args:
        loss: a loss for all outputs, a list with one (or None) for each, or a dict by output.
        loss_weights: a number, a list or a dict, alike.
        outputs: the outputs with labels.
        model: name of the model in messages.

    Raises:
        ValueError: an output that is unknown, an entry too many, or something that is no loss.
    """
    found = []
    names = list(outputs)
    factors = _by_output("loss_weights", loss_weights, names, model)
    for output, given in _by_output("loss", loss, names, model).items():
        if given is None:
            continue
        measure = _loss(given, outputs[output].activation)
        if getattr(measure, "reduction", "mean") in (None, "none"):
            raise ValueError(
                f"the loss {measure.name} has reduction=None, which leaves a loss for each example; fit minimises one "
                "number: give 'sum_over_batch_size'"
            )
        found.append(Loss(output, measure, 1.0 if factors.get(output) is None else float(factors[output])))
    if not found:
        raise ValueError(f"loss={loss!r} names no loss for {', '.join(outputs)}")
    return found


def _loss(given: Any, activation: str | None) -> Callable:
    measure = given
    if isinstance(given, str):
        measure = _cross_entropy if given in ("crossentropy", "ce") else keras.losses.get(given)
    if inspect.isclass(measure):
        raise ValueError(f"{measure.__name__} is a class: give an instance, {measure.__name__}(...)")
    if not callable(measure):
        raise ValueError(f"{given!r} is no loss: expected a name, a function of labels and scores or a keras Loss")
    if measure is _cross_entropy:
        return functools.partial(measure, activation=activation)
    if activation is None or _keras_name(measure) is None:
        return measure
    # The outputs are logits, whatever the loss takes them for by default.
    if not isinstance(measure, keras.losses.Loss):
        has_it = "from_logits" in inspect.signature(measure).parameters
        return functools.partial(measure, from_logits=True) if has_it else measure
    config = measure.get_config()
    return type(measure).from_config(config | {"from_logits": True}) if "from_logits" in config else measure


def metrics_of(metrics: Any, weighted: bool, outputs: Mapping[str, Scores], model: str) -> list[Metric]:
    """The metrics that ``compile(metrics=...)``, or ``weighted_metrics``, means.

    Args:
        metrics: a list of metrics; where there are several outputs a list of lists, or of one for all; or a dict.
        weighted: whether ``sample_weight`` counts.
        outputs: the outputs with labels.
        model: name of the model in messages.

    Raises:
        ValueError: an output that is unknown, an entry too many, or something that is no metric.
    """
    argument = "weighted_metrics" if weighted else "metrics"
    if metrics is not None and not isinstance(metrics, list | tuple | dict):
        raise ValueError(f"{argument} is {metrics!r}; expected a list, or a dict by output ({', '.join(outputs)})")
    if isinstance(metrics, list | tuple) and len(outputs) == 1:
        metrics = dict.fromkeys(outputs, metrics)
    elif isinstance(metrics, list | tuple) and len(metrics) == 1:
        metrics = metrics[0]
    found = []
    for output, given in _by_output(argument, metrics, list(outputs), model).items():
        for entry in keras.tree.flatten(given) if given is not None else ():
            metric = _metric(entry, outputs[output].activation)
            name = metric.name if len(outputs) == 1 else f"{output}_{metric.name}"
            found.append(Metric(name, output, metric, weighted))
    return found


def _metric(given: Any, activation: str | None) -> keras.metrics.Metric:
    ours = {"accuracy": _accuracy, "acc": _accuracy, "crossentropy": _cross_entropy, "ce": _cross_entropy}
    if isinstance(given, str) and given.lower() in ours:
        function = functools.partial(ours[given.lower()], activation=activation)
        return _OfFunction(function, name=given)
    metric = keras.metrics.get(given)
    if inspect.isclass(metric):
        raise ValueError(f"{metric.__name__} is a class: give an instance, {metric.__name__}(...)")
    if not isinstance(metric, keras.metrics.Metric):
        metric = keras.metrics.MeanMetricWrapper(metric, name=getattr(metric, "__name__", "metric"))
    elif isinstance(given, str):
        metric.name = given
    return metric


class _OfFunction(keras.metrics.MeanMetricWrapper):
    """The mean of a function of this module."""


def _by_output(argument: str, given: Any, outputs: Sequence[str], model: str) -> dict[str, Any]:
    """One entry for each output."""
    if given is None:
        return {}
    if isinstance(given, dict):
        unknown = [name for name in given if name not in outputs]
        if unknown:
            raise ValueError(
                f"{argument} names {unknown[0]!r}; the outputs of {model} with labels are {', '.join(outputs)}"
            )
        return {name: given[name] for name in outputs if name in given}
    if isinstance(given, list | tuple):
        if len(given) != len(outputs):
            found = f"{model} has {len(outputs)} outputs with labels ({', '.join(outputs)})"
            raise ValueError(f"{argument} has {len(given)} entries; {found}: expected one for each, or a dict")
        return dict(zip(outputs, given, strict=True))
    return dict.fromkeys(outputs, given)


def as_seen(measure: Any, labels, scores, activation: str | None):
    """Labels and scores in the form that a loss or a metric of Keras expects; for any other as they are.

    Args:
        measure: the loss or metric.
        labels: [B], or [B, S]; or in the form of ``scores``.
        scores: [B, C], or [B, S, C].
        activation: see `Scores`.

    Returns:
        Where probabilities are expected, the softmax or sigmoid of ``scores``. Where integer labels are not, their
        one-hot rows; or, of two classes, the scores of class 1 beside the labels, for what measures one class.
    """
    name = _keras_name(measure)
    if name is None or activation is None:
        return labels, scores
    from_logits = _from_logits(measure)
    if name in _PROBABILITIES and not from_logits:
        scores = ops.softmax(scores) if activation == "softmax" else ops.sigmoid(scores)
    if name in _INTEGERS or len(labels.shape) == len(scores.shape):
        return labels, scores
    if scores.shape[-1] == 2 and name in _BINARY and not _asks_for_classes(measure):
        return labels, scores[..., 1] - scores[..., 0] if from_logits else scores[..., 1]
    if name == "auc" and from_logits:  # it takes the sigmoid, where the classes have a softmax
        scores = ops.log_softmax(scores) - ops.log(ops.maximum(1.0 - ops.softmax(scores), 1e-30))
    return ops.one_hot(labels, ops.shape(scores)[-1], dtype=scores.dtype), scores


def _keras_name(measure: Any) -> str | None:
    """The name of a loss or metric of Keras without underscores; None for what a user has written."""
    measure = measure.func if isinstance(measure, functools.partial) else measure
    method = {keras.metrics.Metric: "update_state", keras.losses.Loss: "call"}
    method = next((name for kind, name in method.items() if isinstance(measure, kind)), None)
    if not _of_keras(measure if method is None else getattr(type(measure), method)):
        return None
    if method is not None:
        measure = next(kind for kind in type(measure).__mro__ if _of_keras(kind))
    wraps_a_function = measure.__name__ in ("MeanMetricWrapper", "LossFunctionWrapper")
    return None if wraps_a_function else measure.__name__.replace("_", "").lower()


def _of_keras(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("keras.") and hasattr(thing, "__name__")


def _from_logits(measure: Any) -> bool:
    if isinstance(measure, functools.partial):
        return bool(measure.keywords.get("from_logits"))
    return hasattr(measure, "get_config") and bool(measure.get_config().get("from_logits"))


def _asks_for_classes(measure: Any) -> bool:
    return any(getattr(measure, name, None) not in (None, False) for name in ("class_id", "top_k", "multi_label"))


def _accuracy(labels, scores, activation: str | None = None):
    """1.0 where a label is right: the greatest score, the sign of each score, or a number within 0.5."""
    if activation == "softmax":
        labels = ops.argmax(labels, axis=-1) if len(labels.shape) == len(scores.shape) else labels
        return ops.cast(ops.equal(ops.argmax(scores, axis=-1), ops.cast(labels, "int32")), scores.dtype)
    labels = ops.cast(labels, scores.dtype)
    right = ops.equal(scores > 0, labels > 0.5) if activation == "sigmoid" else ops.abs(scores - labels) < 0.5
    return ops.mean(ops.cast(right, scores.dtype), axis=-1)


def _cross_entropy(labels, scores, activation: str | None = "softmax"):
    if activation == "sigmoid":
        return ops.mean(ops.binary_crossentropy(ops.cast(labels, scores.dtype), scores, from_logits=True), axis=-1)
    if len(labels.shape) == len(scores.shape):
        return ops.categorical_crossentropy(ops.cast(labels, scores.dtype), scores, from_logits=True)
    return ops.sparse_categorical_crossentropy(ops.cast(labels, "int32"), scores, from_logits=True)
