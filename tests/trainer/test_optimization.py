"""The optimizer and the schedule: known values, a float64 restatement, and what survives saving."""

import contextlib
import json
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support import ROOT
from tf_bert.trainer.optimization import (
    NOT_DECAYED,
    AdamWeightDecay,
    AdamWeightDecayOptimizer,
    Lamb,
    WarmupDecay,
    create_optimizer,
)


def variables(**shapes):
    """Variables of the given shapes, with paths such as ``layer/kernel`` for ``layer__kernel``."""
    made = []
    for name, shape in shapes.items():
        *scopes, last = name.split("__")
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(keras.name_scope(scope))
            made.append(keras.Variable(np.full(shape, 2.0, "float32"), name=last))
    return made


def apply(optimizer, gradients, variables):
    optimizer.apply([tf.constant(gradient, tf.float32) for gradient in gradients], variables)


def numpy_steps(w, gradients, rates, decay=0.0, beta_1=0.9, beta_2=0.999, epsilon=1e-6, bias_correction=False):
    """The update in float64, as the paper and the original state it."""
    w, m, v = np.asarray(w, "float64"), 0.0, 0.0
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        corrected = (m / (1 - beta_1**t), v / (1 - beta_2**t)) if bias_correction else (m, v)
        w = w - rate * (corrected[0] / (np.sqrt(corrected[1]) + epsilon) + decay * w)
    return w, m, v


@pytest.mark.parametrize("bias_correction", [False, True])
@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 3e-6)])
def test_update_equals_the_float64_restatement(bias_correction, dtype, tolerance):
    random = np.random.default_rng(0)
    w = keras.Variable(random.normal(size=(5, 3)), dtype=dtype, name="kernel")
    gradients = random.normal(size=(12, 5, 3)) * 10.0 ** random.integers(-6, 3, (12, 1, 1))
    schedule = WarmupDecay(0.1, 12, 4)
    optimizer = AdamWeightDecay(schedule, 0.3, bias_correction=bias_correction)
    rates = [float(schedule(step)) for step in range(12)]
    expected, m, v = numpy_steps(w.numpy(), gradients, rates, decay=0.3, bias_correction=bias_correction)
    for gradient in gradients:
        optimizer.apply([tf.constant(gradient, dtype)], [w])
    np.testing.assert_allclose(w.numpy(), expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(optimizer.adam_m(w).numpy(), m, atol=1e-5 * np.abs(m).max())
    np.testing.assert_allclose(optimizer.adam_v(w).numpy(), v, rtol=1e-5)


def test_values_of_the_original_without_decay():
    x = tf.constant([0.4, 0.2, -0.5])
    w = keras.Variable(np.array([0.1, -0.2, -0.1], "float32"), name="w")
    optimizer = AdamWeightDecayOptimizer(learning_rate=0.2)
    seen = {}
    for step in range(1, 101):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x - w.value))
        optimizer.apply([tape.gradient(loss, w.value)], [w])
        seen[step] = w.numpy()
    for step, expected in {
        1: [0.732356, 0.432381, -0.732381],
        2: [0.644262, 0.606905, -0.906905],
        3: [0.2716, 0.306977, -0.606977],
        100: [0.401646, 0.197824, -0.497824],
    }.items():
        np.testing.assert_allclose(seen[step], expected, atol=2e-6)


@pytest.mark.parametrize(
    "bias_correction, expected", [(False, [0.968279223, 0.953496421]), (True, [0.989900020, 0.986344981])]
)
def test_two_steps_with_decay(bias_correction, expected):
    (w,) = variables(kernel=())
    w.assign(1.0)
    optimizer = AdamWeightDecay(0.01, 0.01, bias_correction=bias_correction)
    seen = []
    for gradient in (0.5, -0.2):
        apply(optimizer, [gradient], [w])
        seen.append(float(w))
    np.testing.assert_allclose(seen, expected, atol=2e-7)


def test_schedule_is_the_originals():
    schedule = WarmupDecay(1e-4, 100, 10)
    steps = [0, 1, 5, 9, 10, 11, 50, 99, 100, 200]
    expected = [0, 1e-5, 5e-5, 9e-5, 9e-5, 8.9e-5, 5e-5, 1e-6, 0, 0]
    np.testing.assert_allclose([float(schedule(step)) for step in steps], expected, rtol=1e-5, atol=1e-12)
    without = WarmupDecay(1.0, 10, None)
    np.testing.assert_allclose([float(without(step)) for step in range(10)], np.arange(10, 0, -1) / 10, rtol=1e-6)


def test_schedules_without_the_jump_reach_the_peak():
    for decay in ("linear", "cosine", "constant"):
        schedule = WarmupDecay(1e-4, 100, 10, decay)
        rates = np.array([float(schedule(step)) for step in range(101)])
        np.testing.assert_allclose(rates[:11], 1e-4 * np.arange(11) / 10, rtol=1e-5)
        assert rates[100] == pytest.approx(1e-4 if decay == "constant" else 0.0, abs=1e-9)
        assert rates[55] == pytest.approx(1e-4 if decay == "constant" else 0.5e-4, rel=1e-5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(init_lr=1.0, num_train_steps=0), "num_train_steps is 0"),
        (dict(init_lr=1.0, num_train_steps=9, decay="quadratic"), "quadratic"),
        (dict(init_lr=1.0, num_train_steps=9, optimizer="sgdm"), "sgdm"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        create_optimizer(**arguments)


def test_one_norm_over_all_variables():
    first, second = variables(a__kernel=(2,), b__kernel=(1,))
    optimizer = AdamWeightDecay(0.1, global_clipnorm=1.0)
    apply(optimizer, [[3.0, 4.0], [12.0]], [first, second])
    np.testing.assert_allclose(optimizer.adam_m(first).numpy() / 0.1, [0.230769, 0.307692], rtol=2e-5)
    np.testing.assert_allclose(optimizer.adam_m(second).numpy() / 0.1, [0.923077], rtol=2e-5)
    small = AdamWeightDecay(0.1, global_clipnorm=1.0)
    (third,) = variables(c__kernel=(2,))
    apply(small, [[0.3, 0.4]], [third])
    np.testing.assert_allclose(small.adam_m(third).numpy() / 0.1, [0.3, 0.4], rtol=2e-5)


def test_decay_leaves_out_layer_norm_and_biases():
    names = ["embeddings__word_embeddings", "layer__dense__kernel", "layer__dense__bias", "layer__LayerNorm__gamma"]
    names += ["layer__LayerNorm__beta", "cls__predictions__output_bias", "cls__seq_relationship__output_weights"]
    made = variables(**dict.fromkeys(names, (2,)))
    optimizer = AdamWeightDecay(0.1, 0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        apply(optimizer, [np.zeros(2)] * len(made), made)
    decayed = [name for name, variable in zip(names, made, strict=True) if variable.numpy()[0] != 2.0]
    assert decayed == ["embeddings__word_embeddings", "layer__dense__kernel", "cls__seq_relationship__output_weights"]
    np.testing.assert_allclose(made[0].numpy(), 1.998, rtol=1e-6)


def test_a_pattern_that_matches_nothing_warns():
    made = variables(layer__LayerNorm__gamma=(2,), layer__dense__kernel=(2,))
    with pytest.warns(UserWarning, match="'layer_norm' matches no variable"):
        AdamWeightDecay(0.1, 0.01, exclude_from_weight_decay=["layer_norm", "LayerNorm"]).build(made)
    with pytest.warns(UserWarning, match="norm/gamma.* decayed"):
        AdamWeightDecay(0.1, 0.01).build(variables(norm__gamma=(2,)))


@pytest.mark.parametrize("make", [AdamWeightDecayOptimizer, Lamb])
@pytest.mark.parametrize("steps", [1, 5])
def test_variables_of_tensorflow_move_as_those_of_keras(make, steps):
    random = np.random.default_rng(1)
    values = {"dense/kernel": random.normal(size=(4, 3)), "dense/bias": random.normal(size=3), "gamma": np.ones(3)}
    ours = [keras.Variable(value, dtype="float32", name=name.rsplit("/")[-1]) for name, value in values.items()]
    theirs = [tf.Variable(value.astype("float32"), name=name) for name, value in values.items()]
    decay = {"weight_decay_rate": 0.1} if make is AdamWeightDecayOptimizer else {"weight_decay": 0.1}
    optimizers = [
        make(0.1, exclude_from_weight_decay=["bias", "gamma"], global_clipnorm=1.0, **decay) for _ in range(2)
    ]
    for _ in range(steps):
        gradients = [tf.constant(random.normal(size=value.shape), "float32") for value in values.values()]
        gradients[2] = tf.zeros(3)  # moves by decay alone, and is not decayed
        for optimizer, variables in zip(optimizers, (ours, theirs), strict=True):
            optimizer.apply_gradients(list(zip(gradients, variables, strict=True)), global_step=None)
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(our.numpy(), their.numpy())
    np.testing.assert_array_equal(theirs[2], np.ones(3))
    assert np.abs(theirs[0] - values["dense/kernel"]).max() > 0.01
    assert optimizers[1].iterations == steps


def test_variables_of_tensorflow_are_excluded_by_name_slice_or_one_by_one():
    w, b = tf.Variable([1.0, 1.0], name="w"), tf.Variable([1.0, 1.0], name="b")
    optimizer = AdamWeightDecay(0.1, 0.5, exclude_from_weight_decay=())
    optimizer.exclude_from_weight_decay(var_list=[b])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(w, [0, 0])) + 0.0 * tf.reduce_sum(b)
    optimizer.apply_gradients(zip(tape.gradient(loss, [w, b]), [w, b], strict=True))
    np.testing.assert_allclose(w, [0.95 - 0.1 * 0.2 / (0.004**0.5 + 1e-6), 0.95], rtol=1e-6)
    np.testing.assert_array_equal(b, [1.0, 1.0])
    same = [tf.Variable(1.0), tf.Variable(1.0)]
    optimizer = AdamWeightDecay(0.1, 0.5, exclude_from_weight_decay=())
    optimizer.exclude_from_weight_decay(var_list=same[:1])
    with pytest.raises(ValueError, match="2 variables are named 'Variable'.* give each a name of its own"):
        optimizer.apply([tf.constant(1.0)] * 2, same)


def test_the_original_way_of_making_an_optimizer_is_refused():
    with pytest.raises(
        TypeError, match="create_optimizer takes init_lr, num_train_steps, num_warmup_steps and no loss"
    ):
        create_optimizer(tf.constant(1.0), 5e-5, 100, 10, False)


def test_sparse_gradients_move_every_row():
    (table,) = variables(word_embeddings=(4, 2))
    (dense_table,) = variables(word_embeddings=(4, 2))
    sparse, dense = AdamWeightDecay(0.1, 0.01), AdamWeightDecay(0.1, 0.01)
    for rows in ([1, 1, 3], [0]):
        slices = tf.IndexedSlices(tf.ones([len(rows), 2]), tf.constant(rows), tf.constant([4, 2]))
        sparse.apply([slices], [table])
        dense.apply([tf.convert_to_tensor(slices)], [dense_table])
    np.testing.assert_array_equal(table.numpy(), dense_table.numpy())
    assert np.all(sparse.adam_m(table).numpy()[[0, 1, 3]] != 0)
    assert np.all(table.numpy()[2] < 2.0)


def small_model():
    keras.utils.set_random_seed(1)
    x = keras.Input((3,))
    y = keras.layers.Dense(4, name="first")(x)
    y = keras.layers.LayerNormalization(name="norm")(y)
    model = keras.Model(x, keras.layers.Dense(1, name="last")(y))
    patterns = ["bias", "gamma", "beta"]
    model.compile(AdamWeightDecay(WarmupDecay(0.1, 20, 3), 0.5, exclude_from_weight_decay=patterns), loss="mse")
    return model


def batches(steps):
    random = np.random.default_rng(3)
    x = random.normal(size=(steps * 4, 3)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True))).batch(4)


GO_ON = """
import sys, keras, numpy as np
import tf_bert.trainer.optimization
sys.path.insert(0, ".")
from tests.trainer.test_optimization import batches
model = keras.saving.load_model(sys.argv[1])
assert model.optimizer.not_decayed == ["bias", "gamma", "beta"], model.optimizer.get_config()
model.fit(batches(12).skip(8), verbose=0)
np.savez(sys.argv[2], *[v.numpy() for v in model.weights + model.optimizer.variables])
"""


def test_training_goes_on_after_load_model_in_another_process(tmp_path):
    model = small_model()
    model.fit(batches(8), verbose=0)
    model.save(tmp_path / "model.keras")
    command = [sys.executable, "-c", GO_ON, tmp_path / "model.keras", tmp_path / "after.npz"]
    subprocess.run(command, check=True, cwd=ROOT, timeout=300)
    unbroken = small_model()
    unbroken.fit(batches(12), verbose=0)
    expected = [variable.numpy() for variable in unbroken.weights + unbroken.optimizer.variables]
    with np.load(tmp_path / "after.npz") as after:
        for want, got in zip(expected, after.values(), strict=True):
            np.testing.assert_array_equal(got, want)
    assert int(unbroken.optimizer.iterations.numpy()) == 12


def test_config_holds_everything():
    schedule = WarmupDecay(1e-4, 100, 10, "cosine")
    made = AdamWeightDecay(
        schedule, 0.02, 0.8, 0.99, 1e-7, ["gamma"], "mine", bias_correction=True, global_clipnorm=2.0
    )
    again = keras.optimizers.deserialize(keras.optimizers.serialize(made))
    assert again.get_config() == made.get_config()
    assert again.learning_rate == made.learning_rate
    assert again.not_decayed == ["gamma"]


def test_keras_way_of_excluding_survives_too():
    made = variables(layer__kernel=(2,), other__kernel=(2,))
    optimizer = AdamWeightDecay(0.1, 0.01)
    optimizer.exclude_from_weight_decay(var_list=[made[0]])
    again = AdamWeightDecay.from_config(optimizer.get_config())
    apply(again, [np.zeros(2)] * 2, made)
    np.testing.assert_allclose([made[0].numpy()[0], made[1].numpy()[0]], [2.0, 1.998], rtol=1e-6)
    with pytest.raises(ValueError, match="before the optimizer is built"):
        again.exclude_from_weight_decay(var_names=["kernel"])


def test_lamb_decays_by_path_and_keeps_its_exclusion():
    optimizer = create_optimizer(0.1, 10, optimizer="lamb")
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(again, Lamb)
    assert tuple(again.not_decayed) == NOT_DECAYED
    made = variables(layer__kernel=(2,), layer__bias=(2,))
    apply(again, [np.zeros(2)] * 2, made)
    np.testing.assert_allclose([made[0].numpy()[0], made[1].numpy()[0]], [2.0 * (1 - 0.1 * 0.01), 2.0], rtol=1e-6)


def test_a_variable_without_a_gradient_stays():
    used, unused = variables(a__kernel=(2,), b__kernel=(2,))
    optimizer = AdamWeightDecay(0.1, 0.01)
    optimizer.build([used, unused])
    with pytest.warns(UserWarning, match="b/kernel"):
        optimizer.apply([tf.ones(2), None], [used, unused])
    np.testing.assert_array_equal(unused.numpy(), 2.0)
    assert used.numpy()[0] < 2.0


NAMES = [
    "bert__embeddings__word_embeddings",
    "bert__encoder__layer_0__output__dense__kernel",
    "bert__encoder__layer_1__output__dense__kernel",
    "bert__pooler__dense__kernel",
    "cls__seq_relationship__output_weights",
]


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_rates_by_layer_and_of_heads(kind):
    made = variables(**dict.fromkeys(NAMES, (2,)))
    optimizer = create_optimizer(0.1, 10, optimizer=kind, layer_decay=0.5, head_lr=0.3, weight_decay_rate=0.0)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    apply(again, [np.ones(2)] * len(made), made)
    moved = np.array([2.0 - variable.numpy()[0] for variable in made])
    np.testing.assert_allclose(moved / moved[3], [1 / 8, 1 / 4, 1 / 2, 1, 3], rtol=1e-5)


def test_decay_follows_the_rate_of_the_variable():
    made = variables(**dict.fromkeys(NAMES, (2,)))
    apply(create_optimizer(0.1, 10, layer_decay=0.5, head_lr=0.3), [np.zeros(2)] * len(made), made)
    decayed = np.array([2.0 - variable.numpy()[0] for variable in made])
    np.testing.assert_allclose(decayed, 0.002 * np.array([1 / 8, 1 / 4, 1 / 2, 1, 3]), rtol=1e-3)


def test_frozen_variables_stay_and_do_not_count_in_the_norm():
    made = variables(**dict.fromkeys(NAMES, (2,)))
    optimizer = create_optimizer(0.1, 10, frozen=["embeddings/", "layer_0/"])
    apply(optimizer, [[1000.0, 1000.0]] * 2 + [[0.3, 0.4]] * 3, made)
    np.testing.assert_array_equal([variable.numpy()[0] == 2.0 for variable in made], [True, True, False, False, False])
    np.testing.assert_allclose(optimizer.adam_m(made[2]).numpy() / 0.1, [0.3, 0.4], rtol=1e-4)  # a norm below 1
    with pytest.warns(UserWarning, match="'layer_9/' matches no variable"):
        create_optimizer(0.1, 10, frozen=["layer_9/"]).build(variables(bert__pooler__dense__kernel=(2,)))


def test_clipping_by_slices_that_are_not_merged():
    """Rows 1 and 1 count as (3, 0) and (0, 4), whose norm is 5 as when merged, and (3, 0) twice as sqrt(18), not 6."""
    table = keras.Variable(np.zeros((2, 2), "float32"), name="table")
    optimizer = AdamWeightDecay(1.0, beta_1=0.0, global_clipnorm=1.0, clip_unmerged_slices=True)
    slices = tf.IndexedSlices(tf.constant([[3.0, 0.0], [3.0, 0.0]]), tf.constant([1, 1]), tf.constant([2, 2]))
    optimizer.apply([slices], [table])
    np.testing.assert_allclose(optimizer.adam_m(table).numpy(), [[0, 0], [6 / np.sqrt(18), 0]], rtol=1e-4)
    again = AdamWeightDecay.from_config(optimizer.get_config())
    assert again.clip_unmerged_slices and not AdamWeightDecay(1.0).clip_unmerged_slices


def test_learning_rates_are_the_originals(golden):
    expected = json.loads((golden / "D_optimization/learning_rates.json").read_text())
    rates = expected.pop("lr")
    schedule = create_optimizer(expected.pop("learning_rate"), **expected)._learning_rate
    np.testing.assert_allclose([float(schedule(step)) for step in range(len(rates))], rates, rtol=1e-6)
