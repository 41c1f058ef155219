"""The trainer on one device: the original's training runs, accumulation, executions, precision, errors."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.support.replica_runs import MODELS, task_data, with_dropout
from tests.support.toy_model import Toy, batches, toy_data, weights
from tf_bert.checkpoints.google import load_checkpoint
from tf_bert.checkpoints.names import model_variables
from tf_bert.configs import BertConfig
from tf_bert.models.bert import BertForPreTraining
from tf_bert.trainer.optimization import AdamWeightDecay, create_optimizer
from tf_bert.trainer.trainer import NonFiniteLossError, Trainer


class Record(keras.callbacks.Callback):
    """Keeps the logs of every execution, and the variables after some steps."""

    def __init__(self, after=()):
        super().__init__()
        self.logs, self.after, self.variables = [], after, {}

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append({name: float(value) for name, value in logs.items()})
        if batch + 1 in self.after:
            self.variables[batch + 1] = {name: v.numpy() for name, v in model_variables(self.model).items()}

    def losses(self):
        """The loss of each step, from the means so far that the logs show."""
        return np.diff([0.0, *(log["loss"] * (i + 1) for i, log in enumerate(self.logs))])


def test_twenty_steps_of_the_original(golden, shared_golden):
    folder = shared_golden / "D_optimization"
    model = BertForPreTraining(BertConfig.from_json_file(folder / "bert_config_nodropout.json"))
    load_checkpoint(model, golden / "C_modeling/ckpt_init/bert_model.ckpt")
    model.compile(create_optimizer(1e-3, num_train_steps=20, num_warmup_steps=5))
    record = Record(after=(1, 2, 6))
    batches = dict(np.load(folder / "batches.npz"))
    model.fit(tf.data.Dataset.from_tensor_slices(batches), verbose=0, callbacks=[record])

    expected = dict(np.load(folder / "init_lr1e-3_w5.written.npz"))
    np.testing.assert_allclose(record.losses(), expected["per_step/loss"], rtol=1e-5)
    for ours, theirs in {"learning_rate": "lr", "gradient_norm": "grad_norm"}.items():
        np.testing.assert_allclose([log[ours] for log in record.logs], expected["per_step/" + theirs], rtol=1e-5)
    for name, variable in model_variables(model).items():
        np.testing.assert_allclose(variable.numpy(), expected["final/" + name], rtol=0, atol=1e-5, err_msg=name)
        for slot in ("adam_m", "adam_v"):
            value = expected[f"final/{name}/{slot}"]
            ours = getattr(model.optimizer, slot)(variable).numpy()
            # Softmax does not feel the key's bias: its gradient is rounding noise on both sides.
            tolerance = 1e-9 if name.endswith("key/bias") else 1e-4 * np.abs(value).max()
            np.testing.assert_allclose(ours, value, rtol=0, atol=tolerance, err_msg=f"{name}/{slot}")
    for key, value in np.load(folder / "init_lr1e-3_w5.written_steps1_2_6.npz").items():
        step, name = key.removeprefix("after_step").split("/", 1)
        if name in record.variables[int(step)]:
            np.testing.assert_allclose(record.variables[int(step)][name], value, rtol=0, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("variant", ["bumped_lr1e-3_w5.written", "init_lr5e-3_w0_total12.written"])
def test_other_runs_of_the_original(golden, shared_golden, variant):
    folder = shared_golden / "D_optimization"
    settings = json.loads((folder / "index.json").read_text())[variant]
    model = BertForPreTraining(BertConfig.from_json_file(folder / "bert_config_nodropout.json"))
    load_checkpoint(model, golden / settings["init_checkpoint"])
    model.compile(
        create_optimizer(settings["learning_rate"], settings["num_train_steps"], settings["num_warmup_steps"])
    )
    batches = {name: value[: settings["steps_run"]] for name, value in np.load(folder / "batches.npz").items()}
    record = Record()
    model.fit(tf.data.Dataset.from_tensor_slices(batches), verbose=0, callbacks=[record])
    expected = settings["per_step"]
    np.testing.assert_allclose(record.losses(), expected["loss"], rtol=1e-5)
    for ours, theirs in {"learning_rate": "lr", "gradient_norm": "grad_norm"}.items():
        np.testing.assert_allclose([log[ours] for log in record.logs], expected[theirs], rtol=1e-5, atol=1e-10)


def test_decay_of_every_variable_of_bert():
    config = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    model = BertForPreTraining(config)
    optimizer = AdamWeightDecay(0.1, 0.01)
    optimizer.build(model.trainable_variables)
    for variable in model.trainable_variables:
        variable.assign(tf.fill(variable.shape, 2.0))
    optimizer.apply([tf.zeros(variable.shape) for variable in model.trainable_variables])
    for name, variable in model_variables(model).items():
        kept = name.endswith(("bias", "gamma", "beta"))
        np.testing.assert_allclose(variable.numpy(), 2.0 if kept else 1.998, rtol=1e-6, err_msg=name)


def trained(
    data, batch_size=8, epochs=1, optimizer=None, dropout=0.0, callbacks=(), dataset=None, steps=None, **options
):
    """A toy trained from the same start, and its history."""
    keras.utils.set_random_seed(2)
    model = Toy(dropout)
    model.compile(optimizer or AdamWeightDecay(0.01, 0.01, global_clipnorm=1.0), **options)
    dataset = batches(data, batch_size) if dataset is None else dataset
    history = model.fit(dataset, epochs=epochs, verbose=0, callbacks=list(callbacks), steps_per_epoch=steps)
    return model, history.history


@pytest.fixture
def float64():
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy("float32")


def test_weights_are_divided_by_their_sum_over_the_batch(float64):
    # losses [[2, 4, 1], [8, 100, 100]], weights [[1, 1, 1], [1, 0, 0]]; no weight at all in the second batch
    class Given(Toy):
        loss_names = ("word_loss",)
        metric_names = ()

        def loss_weights(self, inputs):
            return {"word_loss": inputs["word_weights"]}

        def per_example_losses(self, inputs, outputs):
            return {"word_loss": inputs["losses"] + 0.0 * ops.sum(outputs["words"])}

    model = Given()
    model.compile(keras.optimizers.SGD(1.0))
    before = weights(model)
    data = {
        "ids": np.zeros((4, 6), "int32"),
        "losses": np.array([[2.0, 4, 1], [8, 100, 100], [3, 3, 3], [5, 5, 5]]),
        "word_weights": np.array([[1.0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]]),
    }
    record = Record()
    model.fit(batches(data, 2), verbose=0, callbacks=[record])
    np.testing.assert_allclose(record.losses(), [15 / (4 + 1e-5), 0.0], rtol=1e-12)
    np.testing.assert_array_equal(weights(model), before)
    evaluated = model.evaluate(batches(data, 2), verbose=0, return_dict=True)
    assert evaluated["word_loss"] == pytest.approx(3.75, rel=1e-12)  # over all examples, without the epsilon


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_micro_batches_give_the_update_of_the_batch(float64, parts):
    data = toy_data(8 * 3 + 5)
    whole, history = trained(data, epochs=2)
    cut, cut_history = trained(data, epochs=2, gradient_accumulation_steps=parts)
    np.testing.assert_allclose(weights(cut), weights(whole), rtol=0, atol=1e-12)
    assert int(cut.optimizer.iterations.numpy()) == 8
    for name, values in history.items():
        np.testing.assert_allclose(cut_history[name], values, rtol=1e-12, err_msg=name)


def test_xla_gives_the_same_update(float64):
    data = toy_data(24)
    plain, history = trained(data)
    compiled, compiled_history = trained(data, jit_compile=True, gradient_accumulation_steps=2)
    np.testing.assert_allclose(weights(compiled), weights(plain), rtol=0, atol=1e-12)
    np.testing.assert_allclose(compiled_history["loss"], history["loss"], rtol=1e-12)


def test_several_steps_per_execution_end_with_the_epoch(float64):
    data = toy_data(5 * 8)
    single, _ = trained(data, epochs=2)
    endless = batches(data, 8).repeat()
    of_unknown_length = batches(data, 8).filter(lambda _: True)
    for options in (
        {"steps_per_execution": 2},
        {"steps_per_execution": 9},
        {"steps_per_execution": 3, "dataset": endless, "steps": 5},
        {"steps_per_execution": 2, "dataset": of_unknown_length},
    ):
        several, _ = trained(data, epochs=2, **options)
        np.testing.assert_allclose(weights(several), weights(single), rtol=0, atol=1e-12, err_msg=str(options))
        assert int(several.optimizer.iterations.numpy()) == 10


def test_evaluate_shows_means_over_all_examples(float64):
    data = toy_data(21)
    model, _ = trained(data)
    evaluated = model.evaluate(batches(data, 8), verbose=0, return_dict=True)
    outputs = model(data)
    losses = {name: np.asarray(value) for name, value in model.per_example_losses(data, outputs).items()}
    right = np.asarray(outputs["words"]).argmax(-1) == data["ids"]
    counted = data["word_weights"]
    assert evaluated["word_loss"] == pytest.approx(np.average(losses["word_loss"], weights=counted))
    assert evaluated["word_accuracy"] == pytest.approx(np.average(right, weights=counted))
    assert evaluated["pair_loss"] == pytest.approx(losses["pair_loss"].mean())
    parts = [slice(0, 8), slice(8, 16), slice(16, 21)]
    per_batch = [
        (losses["word_loss"][part] * counted[part]).sum() / (counted[part].sum() + 1e-5)
        + losses["pair_loss"][part].mean()
        for part in parts
    ]
    assert evaluated["loss"] == pytest.approx(np.average(per_batch, weights=[8, 8, 5]))
    predicted = model.predict(batches(data, 8), verbose=0)
    np.testing.assert_allclose(predicted["pairs"], np.asarray(outputs["pairs"]), atol=1e-12)


def test_sample_weights_multiply_every_weight(float64):
    data = toy_data(16)
    weighted, _ = trained(
        data, dataset=tf.data.Dataset.from_tensors((data, None, np.r_[np.ones(10), np.zeros(6)])), epochs=2
    )
    left_out, _ = trained(data, dataset=tf.data.Dataset.from_tensors({k: v[:10] for k, v in data.items()}), epochs=2)
    np.testing.assert_allclose(weights(weighted), weights(left_out), rtol=0, atol=1e-12)


def test_weights_of_arrays_count_where_the_labels_are_among_the_inputs(float64):
    """Keras drops the weights of data without ``y``."""
    data, sample_weight = toy_data(8), np.r_[np.ones(5), np.zeros(3)]
    model = Toy()
    model.compile("sgd")
    of_some = model.evaluate({name: value[:5] for name, value in data.items()}, verbose=0, return_dict=True)
    of_all = model.evaluate(data, verbose=0, return_dict=True)
    weighted = model.evaluate(data, sample_weight=sample_weight, verbose=0, return_dict=True)
    assert weighted["loss"] == pytest.approx(of_some["loss"], abs=1e-12) != of_all["loss"]


def test_labels_go_into_the_dict():
    data = toy_data(8)
    model = Toy()
    model.compile("sgd")
    with pytest.raises(ValueError, match="Toy takes its labels in the dict"):
        model.fit(data, np.zeros(8), verbose=0)
    with pytest.raises(ValueError, match="Toy takes a dict of inputs"):
        model.fit(data["ids"], verbose=0)
    with pytest.raises(ValueError, match="gradient_accumulation_steps is 0"):
        model.compile("sgd", gradient_accumulation_steps=0)


@pytest.mark.parametrize("steps_per_execution", [1, 4])
def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step(steps_per_execution):
    data = toy_data(6 * 8)
    data["boost"][3 * 8] = np.nan
    model = Toy()
    model.compile(AdamWeightDecay(0.01), steps_per_execution=steps_per_execution)
    with pytest.raises(NonFiniteLossError, match="not finite at step 3;"):
        model.fit(batches(data, 8), verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 3
    assert np.isfinite(weights(model)).all()


def test_evaluate_does_not_hide_a_loss_that_is_not_finite():
    """As of an id outside its table, which compiled code turns into NaN."""
    data = toy_data(3 * 8)
    data["boost"][8] = np.nan
    model = Toy()
    model.compile(AdamWeightDecay(0.01))
    evaluated = model.evaluate(batches(data, 8), verbose=0, return_dict=True)
    assert np.isnan(evaluated["loss"])
    assert np.isfinite(model.evaluate(batches(toy_data(8), 8), verbose=0, return_dict=True)["loss"])


@pytest.fixture
def float16():
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")


def test_an_overflow_skips_the_step_and_halves_the_scale(float16):
    data = toy_data(5 * 8)
    data["boost"][2 * 8 + 5] = 1e35  # times the scale of the loss: infinite
    model, history = trained(data)
    assert int(model.optimizer.iterations.numpy()) == 4
    assert float(model.optimizer.dynamic_scale.numpy()) == 2.0**14
    assert np.isfinite(weights(model)).all()
    assert np.isfinite(history["word_loss"]).all()
    without = {name: np.delete(value, range(16, 24), axis=0) for name, value in data.items()}
    np.testing.assert_allclose(weights(model), weights(trained(without)[0]), atol=1e-3)


def test_a_loss_that_is_never_finite_stops_float16_too(float16):
    data = toy_data(40)
    data["boost"][:] = np.nan
    model = Toy()
    model.compile(AdamWeightDecay(0.01))
    with pytest.raises(NonFiniteLossError, match="at step 0;"):
        model.fit(batches(data, 2), verbose=0)


def test_dropout_is_a_function_of_seed_and_step(float64):
    data = toy_data(8 * 4)
    unbroken, _ = trained(data, dropout=0.5)
    first, _ = trained(data, dropout=0.5, dataset=batches(data, 8).take(2))
    resumed, _ = trained(data, dropout=0.5, dataset=batches(data, 8).take(0))
    for ours, theirs in zip(resumed.variables, first.variables, strict=True):
        ours.assign(theirs)
    resumed.optimizer.build(resumed.trainable_variables)
    for ours, theirs in zip(resumed.optimizer.variables, first.optimizer.variables, strict=True):
        ours.assign(theirs)
    resumed.fit(batches(data, 8).skip(2), verbose=0)
    np.testing.assert_array_equal(weights(resumed), weights(unbroken))
    assert np.abs(weights(unbroken) - weights(trained(data)[0])).max() > 1e-3


def test_micro_batches_draw_different_masks(float64):
    row = toy_data(1)
    data = {name: np.repeat(value, 2, axis=0) for name, value in row.items()}
    seen = []

    class Watched(Toy):
        def per_example_losses(self, inputs, outputs):
            tf.py_function(lambda x: seen.append(x.numpy()), [outputs["words"]], [])
            return super().per_example_losses(inputs, outputs)

    model = Watched(dropout=0.5)
    model.compile("sgd", gradient_accumulation_steps=2)
    model.fit(batches(data, 2), epochs=2, verbose=0)
    assert len(seen) == 4
    assert len({value.tobytes() for value in seen}) == 4


@pytest.mark.parametrize(
    "task, options",
    [
        ("pretraining", {}),
        ("vectors", {}),  # calls its blocks twice
        ("translation", {}),
        pytest.param("translation", {"gradient_accumulation_steps": 2}, marks=pytest.mark.slow),
        pytest.param("translation", {"jit_compile": True}, marks=pytest.mark.slow),
        pytest.param("language modeling", {}, marks=pytest.mark.slow),
    ],
)
def test_recomputation_reuses_the_dropout_masks(task, options, float64):
    found = []
    for recompute in (False, True):
        keras.utils.set_random_seed(4)
        model = with_dropout(MODELS[task]())
        model.compile(keras.optimizers.SGD(1.0), recompute=recompute, **options)
        before = weights(model)
        model.fit(batches(task_data(task, 8), 4), epochs=2, verbose=0)
        found.append(weights(model) - before)
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-12)
    assert np.abs(found[0]).max() > 0.01


def test_recomputation_without_blocks_is_refused():
    with pytest.raises(ValueError, match="Toy cannot recompute"):
        Toy().compile("sgd", recompute=True)


def test_saved_and_loaded_it_goes_on(tmp_path):
    data = toy_data(32)
    unbroken, _ = trained(data, gradient_accumulation_steps=2)
    model, _ = trained(data, dataset=batches(data, 8).take(2), gradient_accumulation_steps=2)
    model.save(tmp_path / "toy.keras")
    loaded = keras.saving.load_model(tmp_path / "toy.keras")
    assert loaded.get_compile_config()["gradient_accumulation_steps"] == 2
    loaded.fit(batches(data, 8).skip(2), verbose=0)
    np.testing.assert_array_equal(weights(loaded), weights(unbroken))


def test_keras_own_losses_work_as_ever():
    class Line(Trainer):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, inputs):
            return self.dense(inputs)

    model = Line()
    model.compile("sgd", loss="mse", metrics=["mae"])
    inputs = np.ones((8, 3), "float32")
    history = model.fit(inputs, inputs.sum(1), epochs=3, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert set(model.evaluate(inputs, inputs.sum(1), verbose=0, return_dict=True)) == {"loss", "mae"}


def test_functional_models_are_refused():
    x = keras.Input((3,))
    with pytest.raises(TypeError, match="subclassed"):
        Trainer(inputs=x, outputs=keras.layers.Dense(1)(x))
    Toy()  # Keras would have changed the base class of all


def test_frozen_variables_are_left_out_of_the_backward_pass(float64):
    data = toy_data(16)
    frozen, history = trained(data, optimizer=AdamWeightDecay(0.01, rate_factors={"table/": 0.0}))
    keras.utils.set_random_seed(2)
    by_keras = Toy()
    by_keras.table.trainable = False
    by_keras.compile(AdamWeightDecay(0.01))
    expected = by_keras.fit(batches(data, 8), verbose=0).history
    assert history["gradient_norm"] == pytest.approx(expected["gradient_norm"])
    for ours, theirs in zip(frozen.weights, by_keras.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_what_layers_add_counts_once_whatever_the_micro_batches(float64):
    class Regularized(Toy):
        def call(self, inputs, training=None):
            self.add_loss(ops.convert_to_tensor(0.25, dtype=self.variable_dtype))
            return super().call(inputs, training=training)

    data = toy_data(16)
    counted = data["word_weights"].sum()
    found = []
    for parts in (1, 4):
        keras.utils.set_random_seed(2)
        model = Regularized()
        model.words.kernel.regularizer = keras.regularizers.L2(0.5)
        kernel = model.words.kernel.numpy()
        model.compile(keras.optimizers.SGD(0.1), gradient_accumulation_steps=parts)
        log = model.train_on_batch(data, return_dict=True)
        own = log["word_loss"] * counted / (counted + 1e-5) + log["pair_loss"]
        assert log["loss"] == pytest.approx(own + 0.5 * np.square(kernel).sum() + 0.25)
        found.append(model.words.kernel.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-12)
    keras.utils.set_random_seed(2)
    plain = Toy()
    plain.compile(keras.optimizers.SGD(0.1))
    plain.train_on_batch(data)
    np.testing.assert_allclose(found[0], plain.words.kernel.numpy() - 0.1 * kernel, atol=1e-8)


def test_layers_with_state_keep_it(float64):
    class Normalized(Toy):
        def build(self, input_shape=None):
            self.norm = keras.layers.BatchNormalization(momentum=0.5)
            self.norm.build((None, None, 4))
            super().build()

        def call(self, inputs, training=None):
            x = self.norm(self.table(inputs["ids"]), training=training)
            return {"words": self.words(x), "pairs": self.pairs(ops.mean(x, axis=1))}

    model = Normalized()
    model.compile(keras.optimizers.SGD(0.0))
    data = toy_data(8)
    mean = np.asarray(model.table(data["ids"])).mean(axis=(0, 1))
    model.train_on_batch(data)
    np.testing.assert_allclose(model.norm.moving_mean.numpy(), 0.5 * mean, atol=1e-12)
    model.test_on_batch(data)
    np.testing.assert_allclose(model.norm.moving_mean.numpy(), 0.5 * mean, atol=1e-12)


def test_keras_metrics_need_an_output_with_labels():
    model = Toy()
    model.compile("sgd", metrics={"words": ["accuracy"]})
    with pytest.raises(ValueError, match="no labels for the output 'words', which a loss or metric of compile needs"):
        model.train_on_batch(toy_data(8))


def test_train_on_batch():
    data = toy_data(8)
    model = Toy()
    model.compile("sgd")
    assert model.train_on_batch(data, return_dict=True)["loss"] == pytest.approx(
        model.test_on_batch(data, return_dict=True)["loss"], rel=0.1
    )
