"""The contract of ``compile``: losses and metrics see the logits and the labels."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.keras_contract.behaviours import assert_plain, behaviour
from tests.keras_contract.models import EXAMPLES, SAMPLE, TRAINED, WITH_Y

CLASSIFIERS = ("BertClassifier", "BertTokenClassifier", "GPTClassifier", "AttentionClassifier", "BertMultipleChoice")
SLOW = tuple(name for name in TRAINED if name not in SAMPLE)


def loss_name(subject) -> str:
    """The loss of Keras for the labels of a model."""
    return {
        "BertClassifier (multi)": "binary_crossentropy",
        "BertClassifier (regression)": "mse",
    }.get(subject.name, "sparse_categorical_crossentropy")


def cross_entropy(labels, logits) -> np.ndarray:
    """-log softmax(logits)[label], in float64."""
    logits = np.asarray(logits, np.float64)
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(log_probabilities, np.asarray(labels)[..., None], axis=-1)[..., 0]


def logits_of(model, subject) -> np.ndarray:
    outputs = model.predict(subject.everything(), verbose=0)
    return np.asarray(outputs[subject.output] if isinstance(outputs, dict) else outputs)


def expected_loss(model, subject) -> float:
    """The mean loss of the labels of a classifier, worked out from what it predicts."""
    logits, labels = logits_of(model, subject), subject.labels[subject.label_name]
    if subject.name == "BertClassifier (regression)":
        return float(np.square(logits[:, 0] - labels).mean())
    if subject.name == "BertClassifier (multi)":
        return float((np.logaddexp(0, logits) - labels * logits).mean())
    real = labels != -100
    return float(cross_entropy(np.where(real, labels, 0), logits)[real].mean())


@behaviour("Compile", "an optimizer by name", TRAINED, slow=SLOW, anchors=True)
def optimizer_by_name(subject):
    model = subject.make()
    model.compile("adam", run_eagerly=True, **subject.compile_options)
    history = model.fit(*subject.xy(), verbose=0).history
    assert np.isfinite(history["loss"]).all()


@behaviour("Compile", "every optimizer of Keras, as an object", ("BertClassifier",), anchors=True)
def every_optimizer(subject):
    kinds = [
        kind
        for kind in vars(keras.optimizers).values()
        if isinstance(kind, type)
        and issubclass(kind, keras.optimizers.Optimizer)
        and kind.__name__ not in ("Optimizer", "MultiOptimizer")
    ]
    assert len(kinds) > 10
    model = subject.make()
    for kind in kinds:
        optimizer = kind(keras.optimizers.SGD(0.1)) if kind is keras.optimizers.LossScaleOptimizer else kind()
        model.compile(optimizer, run_eagerly=True, **subject.compile_options)
        assert np.isfinite(model.train_on_batch(*subject.xy(), return_dict=True)["loss"]), kind


@behaviour("Compile", "`loss=` by name", TRAINED, slow=SLOW, anchors=True)
def loss_by_name(subject):
    model = subject.make()
    model.compile(keras.optimizers.SGD(0.1), loss=loss_name(subject), run_eagerly=True)
    x, y = subject.xy()
    before = model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
    if subject.name in WITH_Y:
        np.testing.assert_allclose(before, expected_loss(model, subject), rtol=1e-5)
    model.fit(x, y, epochs=3, batch_size=EXAMPLES, verbose=0)
    assert model.evaluate(x, y, verbose=0, return_dict=True)["loss"] < before


@behaviour("Compile", "`loss=` as an object, a function, a list, a dict", WITH_Y, slow=[n for n in WITH_Y if n in SLOW])
def loss_in_every_form(subject):
    kind = {"mse": keras.losses.MeanSquaredError, "binary_crossentropy": keras.losses.BinaryCrossentropy}
    kind = kind.get(loss_name(subject), keras.losses.SparseCategoricalCrossentropy)
    from_logits = {} if loss_name(subject) == "mse" else {"from_logits": True}
    seen = []

    def function(labels, logits):
        seen.append(tuple(logits.shape))
        return keras.losses.get(loss_name(subject))(labels, logits, **from_logits)

    model = subject.make()
    for loss in (kind(**from_logits), kind(), function, [kind(**from_logits)], {"logits": kind(**from_logits)}):
        model.compile("sgd", loss=loss, run_eagerly=True)
        found = model.evaluate(*subject.xy(), verbose=0, return_dict=True)
        assert set(found) == {"loss"}
        np.testing.assert_allclose(found["loss"], expected_loss(model, subject), rtol=1e-5)
    assert seen and seen[0] == logits_of(model, subject).shape


@behaviour(
    "Compile", "a loss for each of two outputs, with weights", ("BertQuestionAnswering", "BertForPreTraining", "Elmo")
)
def loss_of_several_outputs(subject):
    model = subject.make()
    outputs = list(model.scored_outputs)
    model.compile("sgd", loss="sparse_categorical_crossentropy", loss_weights=[1.0, 3.0], run_eagerly=True)
    found = model.evaluate(subject.everything(), verbose=0, return_dict=True)
    assert set(found) == {"loss", *(f"{name}_loss" for name in outputs)}
    each = [found[f"{name}_loss"] for name in outputs]
    np.testing.assert_allclose(found["loss"], each[0] + 3 * each[1], rtol=1e-5)
    model.compile("sgd", loss={outputs[1]: "sparse_categorical_crossentropy"}, run_eagerly=True)
    np.testing.assert_allclose(model.evaluate(subject.everything(), verbose=0), each[1], rtol=1e-5)


@behaviour(
    "Compile",
    "`loss=` names an output that there is not",
    TRAINED,
    slow=SLOW,
    refused=dict.fromkeys(TRAINED, "loss names 'probabilities'; the outputs"),
)
def loss_of_an_unknown_output(subject):
    subject.make().compile("sgd", loss={"probabilities": "mse"})


@behaviour("Compile", '`metrics=["accuracy"]`', TRAINED, slow=SLOW, anchors=True)
def accuracy_by_name(subject):
    model = subject.make()
    model.compile("sgd", metrics=["accuracy"], run_eagerly=True, **subject.compile_options)
    found = model.evaluate(*subject.xy(), verbose=0, return_dict=True)
    names = [name for name in found if name.endswith("accuracy")]
    assert names and all(0 <= found[name] <= 1 for name in names)
    if subject.name in CLASSIFIERS or not subject.is_ours:
        labels, logits = subject.labels[subject.label_name], logits_of(model, subject)
        np.testing.assert_allclose(found["accuracy"], (logits.argmax(-1) == labels)[labels >= 0].mean(), rtol=1e-6)


@behaviour("Compile", "F1 and AUC in `fit`", CLASSIFIERS + ("BertClassifier (multi)",))
def f1_and_auc(subject):
    model = subject.make()
    metrics = [
        keras.metrics.F1Score(average="macro", name="f1"),
        keras.metrics.AUC(name="auc"),
        keras.metrics.AUC(from_logits=True, name="b"),
    ]
    if subject.name == "BertClassifier (multi)":
        metrics[0] = keras.metrics.F1Score(average="macro", threshold=0.5, name="f1")
    model.compile(keras.optimizers.SGD(0.0), metrics=metrics)
    history = model.fit(*subject.xy(), epochs=2, batch_size=2, verbose=0).history
    logits, labels = logits_of(model, subject), subject.labels[subject.label_name]
    if subject.name == "BertClassifier (multi)":
        hot, probabilities = labels, 1 / (1 + np.exp(-logits))
        said = probabilities > 0.5
    else:
        logits, labels = logits[labels >= 0], labels[labels >= 0]
        hot = np.eye(logits.shape[-1], dtype="float32")[labels]
        probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        said = np.eye(logits.shape[-1])[logits.argmax(-1)]
    right = (said * hot).sum(0)
    f1 = 2 * right / np.maximum(said.sum(0) + hot.sum(0), 1)
    np.testing.assert_allclose(history["f1"], f1.mean(), rtol=1e-5)
    if logits.shape[-1] == 2:
        hot, probabilities = labels, probabilities[:, 1]
    auc = keras.metrics.AUC()
    auc.update_state(hot, probabilities)
    np.testing.assert_allclose(history["auc"], auc.result(), rtol=1e-5)
    np.testing.assert_allclose(history["b"], auc.result(), rtol=1e-4)


class Seen(keras.metrics.Metric):
    """Counts what it is given, and keeps the shapes."""

    def __init__(self, name="seen"):
        super().__init__(name=name)
        self.count, self.shapes = self.add_variable((), "zeros"), []

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.shapes.append((tuple(y_true.shape), tuple(y_pred.shape)))
        weights = ops.ones(y_true.shape[:1]) if sample_weight is None else ops.cast(sample_weight, "float32")
        self.count.assign_add(ops.sum(weights))

    def result(self):
        return self.count.value


@behaviour(
    "Compile",
    "`metrics=` and `weighted_metrics=` of one's own see logits and labels",
    WITH_Y,
    slow=[n for n in WITH_Y if n in SLOW],
)
def metrics_of_ones_own(subject):
    plain, weighted = Seen(), Seen("weighted")
    model = subject.make()
    model.compile("sgd", metrics=[plain], weighted_metrics=[weighted], run_eagerly=True)
    x, y = subject.xy()
    found = model.evaluate(x, y, sample_weight=[2.0] * EXAMPLES, batch_size=EXAMPLES, verbose=0, return_dict=True)
    labels = subject.labels[subject.label_name]
    counted = (labels >= 0).sum() if subject.name == "BertTokenClassifier" else EXAMPLES
    assert (found["seen"], found["weighted"]) == (counted, 2 * counted)
    assert plain.shapes[0][1] == logits_of(model, subject).shape


@behaviour("Compile", "an overridden `compute_loss` is minimised and shown", TRAINED, slow=SLOW, anchors=True)
def overridden_compute_loss(subject):
    class Shifted(type(subject.make())):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return super().compute_loss(x, y, y_pred, sample_weight) + 5.0

    plain, shifted = subject.make(), subject.make(kind=Shifted)
    x, y = subject.xy()
    losses = []
    for model in (plain, shifted):
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=True, **subject.compile_options)
        losses.append(model.train_on_batch(x, y, return_dict=True)["loss"])
    np.testing.assert_allclose(losses[1], losses[0] + 5.0, rtol=1e-5)
    for ours, theirs in zip(plain.get_weights(), shifted.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@behaviour("Compile", "`add_loss` is minimised and shown", TRAINED, slow=SLOW, anchors=True)
def added_loss(subject):
    class Heavier(type(subject.make())):
        def call(self, *args, **kwargs):
            self.add_loss(5.0 * ops.ones(()))
            return super().call(*args, **kwargs)

    x, y = subject.xy()
    found = []
    for kind in (None, Heavier):
        model = subject.make(kind=kind)
        model.compile("sgd", run_eagerly=True, **subject.compile_options)
        found.append(model.evaluate(x, y, batch_size=2, verbose=0, return_dict=True)["loss"])
        found.append(model.train_on_batch(x, y, return_dict=True)["loss"])
    np.testing.assert_allclose(found[2:], np.add(found[:2], 5.0), rtol=1e-5)


@behaviour("Compile", "`jit_compile=True`", TRAINED, slow=[n for n in TRAINED if n != "BertClassifier"], anchors=True)
def compiled_by_xla(subject):
    x, y = subject.xy()
    found = []
    for jit_compile in (False, True):
        model = subject.make()
        model.compile(keras.optimizers.SGD(0.1), jit_compile=jit_compile, **subject.compile_options)
        model.fit(x, y, batch_size=2, shuffle=False, verbose=0)
        found.append(model.evaluate(x, y, batch_size=2, verbose=0, return_dict=True)["loss"])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)


@behaviour("Compile", "`run_eagerly=True` is the same training", TRAINED, slow=SLOW, anchors=True)
def run_eagerly(subject):
    x, y = subject.xy()
    found = []
    for eagerly in (False, True):
        model = subject.make()
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=eagerly, **subject.compile_options)
        history = model.fit(x, y, batch_size=2, shuffle=False, verbose=0).history
        found.append([history[name][0] for name in sorted(history)])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)


@behaviour(
    "Compile", "`steps_per_execution`", TRAINED, slow=[n for n in TRAINED if n != "BertClassifier"], anchors=True
)
def steps_per_execution(subject):
    x, y = subject.xy()
    found = []
    for steps in (1, 3):
        model = subject.make()
        model.compile(keras.optimizers.SGD(0.1), steps_per_execution=steps, **subject.compile_options)
        model.fit(x, y, batch_size=1, shuffle=False, verbose=0)
        assert int(model.optimizer.iterations) == EXAMPLES
        found.append(model.get_weights()[0])
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)


@behaviour(
    "Compile",
    "a value that is no loss or metric",
    ("BertClassifier",),
    refused={"BertClassifier": "3 is no loss"},
)
def no_loss(subject):
    for options in ({"metrics": ["no metric"]}, {"metrics": "accuracy"}, {"loss": keras.losses.BinaryCrossentropy}):
        with pytest.raises(ValueError) as caught:
            subject.make().compile("sgd", **options)
        assert_plain(caught.value)
    subject.make().compile("sgd", loss=3)


@behaviour("Compile", "the encoder alone with `loss=` by output", ("Bert",))
def encoder_alone(subject):
    model = subject.make()
    model.compile(keras.optimizers.SGD(0.1), loss={"pooled_output": "mse"}, metrics={"pooled_output": ["mae"]})
    x, y = dict(subject.inputs), np.zeros((EXAMPLES, 8), "float32")
    pooled = model.predict(x, verbose=0)["pooled_output"]
    for labels in ({"pooled_output": y}, y):
        found = model.evaluate(x, labels, verbose=0, return_dict=True)
        np.testing.assert_allclose(found["loss"], np.square(pooled).mean(), rtol=1e-5)
        np.testing.assert_allclose(found["mae"], np.abs(pooled).mean(), rtol=1e-5)
    assert model.fit(x, y, epochs=2, verbose=0).history["loss"][1] < found["loss"]


@behaviour(
    "Compile",
    "`fit` of a model that has nothing to minimise",
    ("Bert",),
    refused={"Bert": r"Bert has no loss of its own; compile\(loss="},
)
def nothing_to_minimise(subject):
    model = subject.make()
    model.compile("sgd")
    model.fit(dict(subject.inputs), verbose=0)
