"""ELMo against a restatement in numpy, its loss from both ends, and what is learned on top of frozen layers."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.formulas import sigmoid
from tf_bert.commands import run_language_modeling
from tf_bert.configs import BertConfig, ElmoConfig
from tf_bert.data.language_modeling.input import find_blocks
from tf_bert.layers.scalar_mix import ScalarMix
from tf_bert.models.bert import Bert
from tf_bert.models.elmo import Elmo, FeatureTagger

IDS = np.array([[2, 7, 3, 1, 8], [5, 4, 9, 0, 0]])
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


@pytest.fixture(scope="module")
def elmo():
    keras.utils.set_random_seed(3)
    model = Elmo(ElmoConfig(vocab_size=10, hidden_size=4, num_hidden_layers=3), dtype="float64")
    for weight in model.weights:
        if "seed" not in weight.path:
            weight.assign_add(keras.random.normal(weight.shape, stddev=0.3, seed=len(weight.path), dtype="float64"))
    return model


def plain_lstm(x, layer):
    """[S, H] to [S, H]; Hochreiter & Schmidhuber 1997 with a forget gate, Keras's order i, f, c, o."""
    kernel, recurrent, bias = (np.asarray(weight) for weight in layer.weights)
    h = c = np.zeros(recurrent.shape[0])
    outputs = []
    for step in x:
        i, f, g, o = np.split(step @ kernel + h @ recurrent + bias, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


def plain_elmo(model, ids):
    """Layers, and scores of both directions, of one text without padding."""
    x = np.asarray(model.token_embeddings)[ids]
    layers, scores = [np.concatenate([x, x], -1)], []
    tops = []
    for stack, backward in ((model.forward, False), (model.backward, True)):
        h, states = x[::-1] if backward else x, []
        for i, layer in enumerate(stack):
            y = plain_lstm(h, layer)
            h = y + h if i else y
            states.append(h[::-1] if backward else h)
        tops.append(states)
        scores.append(states[-1] @ np.asarray(model.output_weights).T + np.asarray(model.output_bias))
    return layers + [np.concatenate(pair, -1) for pair in zip(*tops, strict=True)], scores


def test_equals_the_restatement(elmo):
    outputs = elmo({"input_ids": IDS, "input_mask": MASK})
    for row, (ids, mask) in enumerate(zip(IDS, MASK, strict=True)):
        length = mask.sum()
        layers, scores = plain_elmo(elmo, ids[:length])
        for found, expected in zip(outputs["all_encoder_layers"], layers, strict=True):
            np.testing.assert_allclose(found[row, :length], expected, atol=1e-12)
        for name, expected in zip(("forward_logits", "backward_logits"), scores, strict=True):
            np.testing.assert_allclose(outputs[name][row, :length], expected, atol=1e-12)


def test_the_loss_is_that_of_both_directions(elmo):
    inputs = {"input_ids": IDS, "input_mask": MASK}
    losses = elmo.per_example_losses(inputs, elmo(inputs))
    weights = elmo.loss_weights(inputs)
    total = {"forward_loss": [], "backward_loss": []}
    for ids, mask in zip(IDS, MASK, strict=True):
        ids = ids[: mask.sum()]
        _, (forward, backward) = plain_elmo(elmo, ids)
        for name, scores, labels in (
            ("forward_loss", forward[:-1], ids[1:]),
            ("backward_loss", backward[1:], ids[:-1]),
        ):
            log_probs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
            total[name] += (-log_probs[np.arange(len(labels)), labels]).tolist()
    for name, values in total.items():
        assert np.sum(weights[name]) == len(values)
        assert np.sum(losses[name] * weights[name]) == pytest.approx(np.sum(values), abs=1e-10)
    elmo.compile(keras.optimizers.SGD(0.0))
    figures = elmo.evaluate(inputs, verbose=0, return_dict=True)
    means = [np.mean(values) for values in total.values()]
    assert figures["forward_loss"] == pytest.approx(means[0]) and figures["loss"] == pytest.approx(sum(means))


def test_a_token_sees_no_neighbour_that_it_predicts(elmo):
    changed = np.where(np.arange(5) == 3, 6, IDS)
    before, after = elmo({"input_ids": IDS[:1]}), elmo({"input_ids": changed[:1]})
    moved = {
        name: np.abs(before[name] - after[name]).max(axis=(0, 2)) > 0 for name in ("forward_logits", "backward_logits")
    }
    assert moved["forward_logits"].tolist() == [False, False, False, True, True]
    assert moved["backward_logits"].tolist() == [True, True, True, True, False]


def test_labels_that_are_given(elmo):
    inputs = {"input_ids": IDS, "label_ids": IDS + 1, "label_weights": np.full(IDS.shape, 0.5), "input_mask": MASK}
    assert np.array_equal(elmo.labels(inputs)[0], IDS + 1)
    assert (
        np.sum(elmo.loss_weights(inputs)["forward_loss"]) == 5
        and np.sum(elmo.loss_weights(inputs)["backward_loss"]) == 6
    )


def test_bad_inputs(elmo):
    with pytest.raises(ValueError, match="input_ids holds 10, but vocab_size is 10"):
        elmo({"input_ids": np.array([[1, 10]])})
    with pytest.raises(ValueError, match="takes a dict that holds input_ids; found input_mask"):
        elmo({"input_mask": MASK})
    compiled = tf.function(lambda ids: elmo({"input_ids": ids})["forward_logits"])
    assert np.isnan(compiled(tf.constant([[1, 10]]))[0, 1]).all()
    with pytest.raises(ValueError, match="num_layers is 5; elmo has 4 layers to mix"):
        FeatureTagger(elmo, 2, 3, num_layers=5)


def test_a_tagger_from_its_configuration_is_frozen_too():
    tagger = FeatureTagger(Elmo(ElmoConfig(vocab_size=10, hidden_size=4)), 2, units=3)
    again = FeatureTagger.from_config(tagger.get_config())
    assert len(tagger.trainable_variables) == len(again.trainable_variables) == 10  # 2 of the mix, 6 and 2


def test_scalar_mix():
    mix = ScalarMix()
    layers = [np.full((2, 3), float(value)) for value in (1, 10, 100)]
    mix(layers)
    mix.scalars.assign([0.0, np.log(2.0), np.log(5.0)])
    mix.gamma.assign(2.0)
    np.testing.assert_allclose(mix(layers), np.full((2, 3), 2 * (1 + 20 + 500) / 8), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["elmo", "bert"])
def test_a_tagger_learns_on_frozen_layers(tmp_path, kind):
    keras.utils.set_random_seed(1)
    if kind == "elmo":
        encoder, layers = Elmo(ElmoConfig(vocab_size=10, hidden_size=8)), None
    else:
        sizes = {"hidden_size": 8, "num_hidden_layers": 5, "num_attention_heads": 2, "intermediate_size": 8}
        encoder, layers = Bert(BertConfig(vocab_size=10, **sizes)), 4
    tagger = FeatureTagger(encoder, 2, units=8, num_layers=layers, dropout=0.0)
    assert len(tagger.features({"input_ids": IDS})) == (layers or 3)
    before = [np.array(weight) for weight in encoder.weights]
    inputs = {"input_ids": IDS, "input_mask": MASK}
    labels = np.where(MASK == 1, IDS % 2, -100)
    tagger.compile(keras.optimizers.Adam(0.05))
    tagger.fit(inputs, labels, epochs=40, verbose=0)
    figures = tagger.evaluate(inputs, labels, verbose=0, return_dict=True)
    assert figures["accuracy"] == 1.0
    for weight, value in zip(encoder.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)
    assert np.abs(tagger.mix.scalars).max() > 0 and tagger.mix.gamma != 1.0
    tagger.save(tmp_path / "tagger.keras")
    again = keras.saving.load_model(tmp_path / "tagger.keras")
    np.testing.assert_array_equal(again(inputs)["logits"], tagger(inputs)["logits"])
    assert len(again.optimizer.variables) == len(tagger.optimizer.variables)


@pytest.fixture
def run_flags(tmp_path):
    """Flags of run_language_modeling for an ELMo on blocks of a small text."""
    from tf_bert.data.language_modeling.blocks import write_language_modeling_records
    from tf_bert.tokenization.byte_pair import GPT2Tokenizer
    from tf_bert.tokenization.byte_pair_training import train_byte_pairs

    text = "the crane by the river bank and the crane by the harbour\n" * 20
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    train_byte_pairs([text], 280).save(tmp_path / "vocab")
    records = str(tmp_path / "a.tfrecord")
    write_language_modeling_records([str(tmp_path / "text.txt")], GPT2Tokenizer(tmp_path / "vocab"), [records], 12)
    assert find_blocks(records).block_size == 12
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 280, "hidden_size": 16}), encoding="utf-8")
    flags = ["--model=elmo", f"--config_file={tmp_path}/config.json", f"--input_file={records}", "--do_train"]
    return [*flags, "--num_warmup_steps=2", "--learning_rate=0.02"]


@pytest.mark.slow
def test_the_command(tmp_path, run_flags, capsys):
    flags = [*run_flags, f"--output_dir={tmp_path}/run", "--do_eval"]
    for steps in (10, 40):
        assert run_language_modeling.main([*flags, f"--num_train_steps={steps}"]) == 0, capsys.readouterr().err
    results = dict(line.split(" = ") for line in (tmp_path / "run" / "eval_results.txt").read_text().splitlines())
    losses = [float(results[f"{way}_loss"]) for way in ("forward", "backward")]
    assert max(losses) < 3.0
    assert float(results["perplexity"]) == pytest.approx(np.exp(np.mean(losses)))
    again = keras.saving.load_model(tmp_path / "run" / "export" / "elmo.keras")
    assert again.config.hidden_size == 16


@pytest.mark.slow
def test_a_run_in_two_parts_is_the_run_in_one(tmp_path, run_flags, capsys):
    """With dropout, across two passes over the blocks."""
    flags = [*run_flags, "--schedule=constant", "--train_batch_size=8"]
    for name, parts in {"whole": [6], "parts": [3, 6]}.items():
        for steps in parts:
            now = [*flags, f"--output_dir={tmp_path}/{name}", f"--num_train_steps={steps}"]
            assert run_language_modeling.main(now) == 0, capsys.readouterr().err
    whole, parts = (keras.saving.load_model(tmp_path / name / "export/elmo.keras") for name in ("whole", "parts"))
    assert whole.config.hidden_dropout_prob == 0.1
    for one, other in zip(whole.weights, parts.weights, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=one.path)
