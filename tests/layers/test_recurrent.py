"""Recurrent cells, encoders and decoders against numpy in float64: the papers' formulas written down once more."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.support.formulas import sigmoid
from tf_bert.backend import few_rows
from tf_bert.layers.cells import KERAS_CELLS, OWN_CELLS, PeepholeLSTMCell, make_cell
from tf_bert.layers.recurrent import RecurrentEncoder, StateBridge
from tf_bert.layers.recurrent_decoder import MODES, RecurrentDecoder

B, S, T, E, H, M = 3, 5, 4, 3, 4, 6
CELLS = [*KERAS_CELLS, *OWN_CELLS]
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]], bool)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def randomise(layer, seed=5):
    """Every variable away from its start, biases too."""
    rng = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        variable.assign(rng.normal(size=variable.shape) * 0.5)
    return layer


def cell_formula(name, cell, x, states):
    """One step in numpy."""
    h = states[0]
    w, u, b = (np.asarray(v) for v in (cell.kernel, cell.recurrent_kernel, cell.bias))
    if name == "rnn":
        return [np.tanh(x @ w + h @ u + b)]
    if name == "gru":  # Keras's: the reset gate after the product (Cho et al. 2014, footnote on the CPU/GPU variant)
        zx, rx, hx = np.split(x @ w + b[0], 3, axis=-1)
        zh, rh, hh = np.split(h @ u + b[1], 3, axis=-1)
        z, r = sigmoid(zx + zh), sigmoid(rx + rh)
        return [z * h + (1 - z) * np.tanh(hx + r * hh)]
    c = states[1]
    z = x @ w + h @ u + b
    coupled, peep = "coupled" in name, "peephole" in name
    parts = np.split(z, 3 if coupled else 4, axis=-1)
    zi, (zf, zc, zo) = (None, parts) if coupled else (parts[0], parts[1:])
    p = {gate: np.asarray(v) for gate, v in cell.peephole.items()} if peep else dict.fromkeys("ifo", 0.0)
    f = sigmoid(zf + p["f"] * c)
    i = 1 - f if coupled else sigmoid(zi + p["i"] * c)
    c = f * c + i * np.tanh(zc)
    return [sigmoid(zo + p["o"] * c) * np.tanh(c), c]


@pytest.mark.parametrize("name", CELLS)
def test_cells_are_the_papers_formulas(name):
    cell = make_cell(name, H, dtype="float64")
    x, states = normal(B, E), [normal(B, H, seed=1), normal(B, H, seed=2)][: 1 if name in ("gru", "rnn") else 2]
    cell.build((B, E))
    randomise(cell)
    output, new = cell(x, states)
    expected = cell_formula(name, cell, x, states)
    np.testing.assert_allclose(output, expected[0], atol=1e-12)
    for found, value in zip(new, expected, strict=True):
        np.testing.assert_allclose(found, value, atol=1e-12)


def test_forget_gate_starts_open():
    for cell in (PeepholeLSTMCell(2), PeepholeLSTMCell(2, coupled_gates=True)):
        cell.build((None, 3))
        bias = dict(zip(cell.gates, np.split(np.asarray(cell.bias), len(cell.gates)), strict=True))
        assert all(np.all(bias[gate] == (gate == "f")) for gate in cell.gates)


def encode_by_hand(name, encoder, x, mask):
    """Each sequence alone, over its real positions only."""
    states = []
    for i in range(encoder.num_layers):
        outputs, last = [], []
        for layer in encoder.both(i):
            back = layer.go_backwards
            y, final = np.zeros((*x.shape[:2], H)), []
            for b in range(len(x)):
                state = [np.zeros(H)] * (1 if name in ("gru", "rnn") else 2)
                real = np.flatnonzero(mask[b])
                for s in reversed(real) if back else real:
                    state = cell_formula(name, layer.cell, x[b, s], state)
                    y[b, s] = state[0]
                final.append(state)
            outputs.append(y)
            last.append([np.stack(parts) for parts in zip(*final, strict=True)])
        outputs = np.concatenate(outputs, axis=-1)
        x = outputs + x if encoder.residual and i else outputs
        states.append(last)
    return x, states


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_encoder_reads_real_positions_only(name, bidirectional):
    encoder = RecurrentEncoder(H, 2, name, bidirectional, residual=True, dtype="float64")
    x = normal(B, S, E)
    encoder.build(x.shape)
    randomise(encoder)
    outputs, states = encoder(x, MASK)
    expected, expected_states = encode_by_hand(name, encoder, x, MASK)
    np.testing.assert_allclose(np.asarray(outputs)[MASK], expected[MASK], atol=1e-12)
    for found, value in zip(keras.tree.flatten(states), keras.tree.flatten(expected_states), strict=True):
        np.testing.assert_allclose(found, value, atol=1e-12)


@pytest.mark.parametrize("name", ["lstm", "gru", "coupled_lstm"])
def test_each_layer_is_given_a_position_of_every_row(name):
    """cuDNN refuses a row of padding alone."""
    encoder = randomise_built(RecurrentEncoder(H, 2, name, True, dtype="float64"))
    given = []
    for way in ("forward", "backward"):
        layers = [
            lambda x, mask, training, _layer=layer: (given.append(mask), _layer(x, mask=mask))[1]
            for layer in getattr(encoder, way)
        ]
        setattr(encoder, way, layers)
    outputs, _ = encoder(normal(B, S, E), MASK)
    assert len(given) == 4 and all(np.asarray(mask).any(axis=1).all() for mask in given)
    assert not np.asarray(outputs)[2].any() and np.asarray(outputs)[0].all()


def randomise_built(encoder):
    encoder.build((B, S, E))
    return randomise(encoder)


def test_bridge():
    copied, projected = StateBridge(H, dtype="float64"), StateBridge(H, dtype="float64")
    encoder = RecurrentEncoder(H, 2, dtype="float64")
    copied.build_for(encoder)
    h, c = normal(B, H), normal(B, H, seed=1)
    assert copied([[[h, c]], [[c, h]]])[1][0] is not None and not copied.weights
    np.testing.assert_array_equal(copied([[[h, c]], [[c, h]]])[1][0], c)
    projected.build_for(RecurrentEncoder(H, 1, bidirectional=True, dtype="float64"))
    randomise(projected)
    (found,) = projected([[[h, c], [h + 1, c + 1]]])
    kernels = [(np.asarray(dense.kernel), np.asarray(dense.bias)) for dense in projected.dense]
    np.testing.assert_allclose(found[0], np.tanh(np.hstack([h, h + 1]) @ kernels[0][0] + kernels[0][1]), atol=1e-12)
    np.testing.assert_allclose(found[1], np.hstack([c, c + 1]) @ kernels[1][0] + kernels[1][1], atol=1e-12)


def make_decoder(mode, cell="lstm", layers=2, **options):
    decoder = RecurrentDecoder(H, mode, layers, cell, dtype="float64", **options)
    decoder.build((None, None, E), (None, None, M))
    randomise(decoder)
    count = 1 if cell in ("gru", "rnn") else 2
    states = [[normal(B, H, seed=10 * i + j) for j in range(count)] for i in range(layers)]
    return decoder, *decoder.start(states, normal(B, S, M), MASK), states


def decode_by_hand(decoder, mode, cell, x, states, memory, mask):
    """The papers' equations, one example and one step at a time."""
    outputs, all_weights = np.zeros((B, x.shape[1], H)), np.zeros((B, x.shape[1], S))
    readout = None if mode == "plain" else np.asarray(decoder.readout.kernel)
    for b in range(B):
        state = [[part[b] for part in layer] for layer in states]
        context, feed = states[-1][0][b], np.zeros(H)

        def attend(query, b=b):
            w = {v.name: np.asarray(v) for v in decoder.attention.score.weights}
            scores = np.tanh(query @ w["query_kernel"] + memory[b] @ w["key_kernel"]) @ w["vector"][:, 0]
            exponentials = np.where(mask[b], np.exp(scores), 0)
            weights = exponentials / max(exponentials.sum(), 1e-300)
            return weights @ memory[b], weights

        for t in range(x.shape[1]):
            before = state[-1][0]
            read = [x[b, t]]
            if mode == "bahdanau":
                context, all_weights[b, t] = attend(before)
            if mode in ("bahdanau", "context"):
                read.append(context)
            if mode == "luong" and decoder.input_feeding:
                read.append(feed)
            y = np.concatenate(read)
            for i in range(decoder.num_layers):
                state[i] = cell_formula(cell, decoder.cells[i], y, state[i])
                y = state[i][0] + y if decoder.residual and i else state[i][0]
            if mode == "luong":
                context, all_weights[b, t] = attend(y)
            if mode == "plain":
                feed = y
            elif decoder.maxout:
                s = before if mode == "bahdanau" else y
                feed = (np.concatenate([context, s, x[b, t]]) @ readout).reshape(H, 2).max(-1)
            else:
                feed = np.tanh(np.concatenate([context, y]) @ readout)
            outputs[b, t] = feed
    return outputs, all_weights


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "options", [{}, {"maxout": True, "residual": True}, {"input_feeding": False, "cell": "gru", "layers": 1}]
)
def test_decoder_is_the_papers_formula(mode, options):
    decoder, state, memory, states = make_decoder(mode, **options)
    x = normal(B, T, E, seed=7)
    outputs, weights, last = decoder(x, state, memory)
    expected, expected_weights = decode_by_hand(
        decoder, mode, options.get("cell", "lstm"), x, states, np.asarray(memory["values"]), MASK
    )
    np.testing.assert_allclose(outputs, expected, atol=1e-12)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-12)
    # Step by step, as in decoding.
    for t in range(T):
        output, state, weights = decoder.step(x[:, t], state, memory, ops.array(t))
        np.testing.assert_allclose(output, expected[:, t], atol=1e-12)
    for found, value in zip(keras.tree.flatten(state), keras.tree.flatten(last), strict=True):
        np.testing.assert_allclose(found, value, atol=1e-12)


ATTENTIONS = [
    {"score": "general"},
    {"score": "location", "max_source_length": 9},
    {"score": "additive", "units": 3, "alignment": "monotonic", "window": 1},
    {"score": "general", "alignment": "predictive", "window": 2},
    {"score": "general", "estimator": "gumbel", "seed": 4},
]


@pytest.mark.parametrize("mode", ["bahdanau", "luong"])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_decoder_with_each_attention_trains_and_steps(mode, attention):
    decoder, state, memory, states = make_decoder(mode, attention=attention, dropout=0.2)
    x = normal(B, T, E, seed=7)
    outputs, weights, _ = decoder(x, state, memory)
    for t in range(T):
        output, state, now = decoder.step(x[:, t], state, memory, ops.array(t))
        np.testing.assert_allclose(output, outputs[:, t], atol=1e-12)
        np.testing.assert_allclose(now, weights[:, t], atol=1e-12)
    assert np.all(np.asarray(weights)[2] == 0)

    with tf.GradientTape() as tape:
        state, memory = decoder.start(states, memory["values"], MASK)
        loss = ops.sum(ops.square(decoder(x, state, memory, training=True)[0]))
    gradients = tape.gradient(loss, [variable.value for variable in decoder.trainable_variables])
    for variable, gradient in zip(decoder.trainable_variables, gradients, strict=True):
        assert np.all(np.isfinite(gradient)) and np.any(np.asarray(gradient) != 0), variable.path


def test_gradient_of_the_loop_by_finite_differences():
    decoder, state, memory, _ = make_decoder("luong")
    x = tf.constant(normal(B, T, E, seed=7))
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = ops.sum(ops.sin(decoder(x, state, memory)[0]))
    found, direction = tape.gradient(loss, x), normal(B, T, E, seed=8)
    sides = [ops.sum(ops.sin(decoder(x + step * direction, state, memory)[0])) for step in (1e-5, -1e-5)]
    assert np.sum(found * direction) == pytest.approx(float(sides[0] - sides[1]) / 2e-5, rel=1e-6)


def test_loop_in_a_graph_with_gradients():
    decoder, state, memory, _ = make_decoder("luong")
    x = tf.constant(normal(B, T, E, seed=7))

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs, _, _ = decoder(x, state, memory)
        gradients = tape.gradient(outputs, [x, *decoder.trainable_variables])
        return outputs, *[gradient for gradient in gradients if gradient is not None]

    unknown_length = tf.TensorSpec([None, None, E], tf.float64)
    for found, expected in zip(tf.function(run, input_signature=[unknown_length])(x), run(x), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("name", ["lstm", "gru", "peephole_lstm"])
def test_gradients_of_the_encoder_are_the_same_in_a_graph(name):
    encoder = RecurrentEncoder(H, cell=name, bidirectional=True, dtype="float64")
    encoder.build((None, None, E))
    randomise(encoder)

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = ops.sum(ops.sin(encoder(x, MASK)[0]))
        return tape.gradient(loss, [x, *encoder.trainable_variables])

    x, graph = tf.constant(normal(B, S, E)), tf.function(run)
    for found, expected in zip(graph(x), run(x), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_few_rows_gives_the_gradient_of_a_product_another_way():
    x, w = tf.constant(normal(2, 3)), tf.constant(normal(3, 4))

    def gradients(x, w):
        return tf.gradients(tf.sin(few_rows(tf.matmul)(x, w)), [x, w])

    graph = tf.function(gradients)
    for found, expected in zip(
        graph(x, w), tf.function(lambda x, w: tf.gradients(tf.sin(x @ w), [x, w]))(x, w), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-14)
    products = [op for op in graph.get_concrete_function(x, w).graph.get_operations() if op.type == "MatMul"]
    assert not any(op.get_attr("transpose_b") and op.inputs[1] is products[0].inputs[1] for op in products)
    with pytest.raises(NotImplementedError, match="as they stand"):
        tf.function(lambda x, w: tf.gradients(few_rows(tf.matmul)(x, w, transpose_b=True), x))(x, tf.transpose(w))


def test_dropout_differs_between_steps_and_layers_and_is_off_in_inference():
    decoder, state, memory, _ = make_decoder("plain", dropout=0.5)
    masks = np.asarray(decoder.step_inputs(normal(B, T, E), memory, True)["masks"])
    assert masks.shape == (T, B, 1, H) and set(np.unique(masks)) == {0.0, 2.0}
    assert np.any(masks[0] != masks[1])
    x = normal(B, T, E)
    np.testing.assert_array_equal(decoder(x, state, memory)[0], decoder(x, state, memory, training=False)[0])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_is_finite(policy):
    encoder = RecurrentEncoder(H, 2, "peephole_lstm", True, dtype=policy)
    outputs, states = encoder(normal(B, S, E).astype("float32"), MASK)
    bridge = StateBridge(H, dtype=policy)
    bridge.build_for(encoder)
    decoder = RecurrentDecoder(H, "luong", 2, "peephole_lstm", dtype=policy)
    decoder.build((None, None, E), (None, None, 2 * H))
    state, memory = decoder.start(bridge(states), outputs, MASK)
    outputs, weights, _ = decoder(normal(B, T, E).astype("float32"), state, memory)
    assert keras.backend.standardize_dtype(outputs.dtype) == policy[6:]
    assert np.all(np.isfinite(np.asarray(outputs, "float32"))) and np.all(np.isfinite(weights))


@pytest.mark.parametrize("name", ["gru", "peephole_coupled_lstm"])
def test_encoder_is_saved_and_loaded(name, tmp_path):
    x, mask = keras.Input((S, E)), keras.Input((S,), dtype="bool")
    outputs, _ = RecurrentEncoder(H, 2, name, True, dropout=0.1)(x, mask)
    model = keras.Model([x, mask], outputs)
    randomise(model)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    inputs = [normal(B, S, E), MASK]
    np.testing.assert_array_equal(model(inputs), again(inputs))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="unknown cell 'lstmm'; known are lstm, gru"):
        make_cell("lstmm", 3)
    with pytest.raises(ValueError, match="unknown mode 'loung'; known are plain"):
        RecurrentDecoder(3, "loung")
    with pytest.raises(ValueError, match="reinforce_loss"):
        RecurrentDecoder(3, "luong", attention={"score": "dot", "estimator": "reinforce"})
