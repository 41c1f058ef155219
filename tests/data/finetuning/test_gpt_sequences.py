"""GPT fine-tuned: the sequences of each task, and the loss that the paper writes."""

import keras
import numpy as np
import pytest

from tests.support.formulas import log_softmax
from tf_bert.commands.main import main
from tf_bert.configs import GPTConfig
from tf_bert.data.finetuning.gpt_sequences import (
    SpecialTokens,
    both_orders,
    choices,
    classification_inputs,
    one_text,
    prompt_answer_inputs,
    text_pair,
)
from tf_bert.models.gpt import GPT
from tf_bert.models.gpt_tasks import GPTClassifier

DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob", "embedding_dropout_prob")
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SIZES |= {"max_position_embeddings": 12, **dict.fromkeys(DROPOUT, 0.0)}
SPECIAL = SpecialTokens.of(20)
TEXTS = [[3, 4, 5], [6, 7, 8, 9, 1], [2], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]]
ROWS = {
    "classification": [one_text(SPECIAL, ids, 12) for ids in TEXTS],
    "entailment": [text_pair(SPECIAL, ids, [7, 7, 8], 12) for ids in TEXTS],
    "similarity": [both_orders(SPECIAL, ids, [7, 7, 8], 12) for ids in TEXTS],
    "multiple_choice": [choices(SPECIAL, ids, [[7, 7], [9], [12, 13, 14]], 12) for ids in TEXTS],
}
LABELS = np.array([0, 1, 1, 0])


@pytest.fixture(scope="module")
def gpt():
    model = GPT(GPTConfig(20, **SIZES), dtype="float64")
    rng = np.random.default_rng(1)
    for variable in model.weights:
        variable.assign(variable + 0.5 * rng.normal(size=variable.shape))
    return model


@pytest.mark.parametrize("name", ROWS)
def test_the_loss_is_the_papers(gpt, name):
    """L3 = L2 + lambda * L1 (equation 5), one sequence after another, without padding."""
    task = name if name != "entailment" else "classification"
    keras.utils.set_random_seed(2)
    model = GPTClassifier.from_gpt(gpt, num_labels=2, task=task, classifier_dropout=0.0, dtype="float64")
    for table, own in ((model.gpt.embedding.table, gpt.embedding.table), (model.gpt.weights[-1], gpt.weights[-1])):
        np.testing.assert_array_equal(table[: own.shape[0]], own)
    weights, bias = model.head.output_weights.numpy(), model.head.output_bias.numpy()

    l1, l2 = [], []
    for sequences, label in zip(ROWS[name], LABELS, strict=True):
        sequences = [sequences] if task == "classification" else sequences
        states, losses = [], []
        for ids in sequences:
            outputs = model.gpt({"input_ids": np.array([ids])})
            states.append(outputs["sequence_output"][0, -1].numpy())  # the extract token is the last one
            log_probs = log_softmax(outputs["logits"][0].numpy())
            losses.append(np.mean([-log_probs[t, ids[t + 1]] for t in range(len(ids) - 1)]))
        if task == "multiple_choice":
            logits = np.array([(weights @ state + bias)[0] for state in states])
        else:
            logits = weights @ np.sum(states, axis=0) + bias  # of both orders
        l2.append(-log_softmax(logits)[label])
        l1.append(np.mean(losses))

    model.compile(keras.optimizers.SGD(0.0))
    inputs = classification_inputs(ROWS[name], 12)
    found = model.evaluate(inputs, LABELS, batch_size=4, verbose=0, return_dict=True)
    assert found["classification_loss"] == pytest.approx(np.mean(l2), rel=1e-9)
    assert found["lm_cross_entropy"] == pytest.approx(np.mean(l1), rel=1e-9)
    assert found["loss"] == pytest.approx(np.mean(l2) + 0.5 * np.mean(l1), rel=1e-9)


def test_the_sequences_of_the_paper():
    start, delimiter, extract = SPECIAL
    assert one_text(SPECIAL, [1, 2], 12) == [start, 1, 2, extract]
    assert text_pair(SPECIAL, [1, 2], [3], 12) == [start, 1, 2, delimiter, 3, extract]
    assert both_orders(SPECIAL, [1], [2, 3], 12)[1] == [start, 2, 3, delimiter, 1, extract]
    assert choices(SPECIAL, [1], [[2], [3]], 12)[1] == [start, 1, delimiter, 3, extract]
    assert one_text(SPECIAL, range(20), 12) == [start, *range(10), extract]
    for first, second in ((20, 2), (2, 20), (20, 20)):
        row = text_pair(SPECIAL, range(first), range(second), 12)
        assert len(row) == 12 and row[0] == start and row[-1] == extract and row.count(delimiter) == 1
        assert row.index(delimiter) - 1 == {(20, 2): 7, (2, 20): 2, (20, 20): 5}[first, second]


def test_it_learns_and_is_saved(gpt, tmp_path):
    keras.utils.set_random_seed(0)
    model = GPTClassifier.from_gpt(gpt, num_labels=2, task="similarity", classifier_dropout=0.0)
    model.compile(keras.optimizers.Adam(0.02))
    inputs = classification_inputs(ROWS["similarity"], 12)
    history = model.fit(inputs, LABELS, epochs=25, batch_size=4, verbose=0).history
    assert history["loss"][-1] < 0.6 * history["loss"][0] and history["accuracy"][-1] == 1.0
    swapped = {name: values[:, ::-1] for name, values in inputs.items()}
    logits = model.predict(inputs, verbose=0)["logits"]
    np.testing.assert_allclose(model.predict(swapped, verbose=0)["logits"], logits, atol=1e-5)  # there is no order
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.task == "similarity"
    np.testing.assert_array_equal(loaded.predict(inputs, verbose=0)["logits"], logits)


@pytest.mark.parametrize(("task", "labels"), [("classification", 3), ("similarity", 1), ("multiple_choice", 2)])
def test_every_format_that_holds_it(gpt, task, labels, tmp_path, capsys):
    """A .keras and a .weights.h5 file, each from the other; what has no place for the head says so."""
    arguments = {"num_labels": labels, "task": task, "lm_weight": 0.25, "classifier_dropout": 0.2}
    model = GPTClassifier.from_gpt(gpt, **arguments)
    inputs = classification_inputs(ROWS[task], 12)
    expected = model(inputs)["logits"]
    first, second, third = (str(tmp_path / name) for name in ("one/a.keras", "two/b.weights.h5", "three/c.keras"))
    model.save_checkpoint(first)
    assert main(["convert", first, second]) == 0 == main(["convert", second, third])
    for path in (first, second, third):
        loaded = GPTClassifier.from_checkpoint(path)
        assert not loaded.load_report.missing and loaded.to_note()["classifier"] == arguments
        np.testing.assert_allclose(loaded(inputs)["logits"], expected, rtol=1e-4, atol=1e-4)
    for format in ("huggingface", "openai"):
        assert main(["convert", first, str(tmp_path / format), f"--format={format}"]) == 1
        assert "fine-tuned to classify" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gpt2", "openai_gpt", "openai_gpt2_tf1"])
def test_from_published_formats(golden, name):
    """Three rows are new, everything else is the checkpoint's."""
    pre = GPT.from_checkpoint(golden / "hf" / name)
    model = GPTClassifier.from_checkpoint(golden / "hf" / name, num_labels=3)
    assert model.start_id == pre.config.vocab_size and model.num_labels == 3
    for ours, theirs in zip(model.gpt.weights, pre.weights, strict=True):
        np.testing.assert_array_equal(ours[: theirs.shape[0]], theirs)
    special = SpecialTokens(model.start_id, model.delimiter_id, model.extract_id)
    row = one_text(special, [1, 2, 3], 5)
    assert np.isfinite(model(classification_inputs([row], 5))["logits"]).all()


def test_a_number_and_no_auxiliary_loss(gpt):
    model = GPTClassifier.from_gpt(gpt, num_labels=1, task="similarity", lm_weight=0.0, dtype="float64")
    inputs = classification_inputs(ROWS["similarity"], 12)
    outputs = model(inputs)
    assert "lm_logits" not in outputs
    losses = model.per_example_losses({**inputs, "label_ids": np.array([0.5, 2.0, 5.0, 1.0])}, outputs)
    expected = (outputs["logits"][:, 0].numpy() - [0.5, 2.0, 5.0, 1.0]) ** 2
    np.testing.assert_allclose(losses["classification_loss"], expected)
    assert not np.any(losses["lm_loss"])


def test_the_loss_of_prompts_is_on_their_answers_alone(gpt):
    pairs = [([5, 6, 7], [8, 9]), ([1], [2, 3, 4]), ([7] * 9, [1, 2])]
    batch = prompt_answer_inputs(pairs, 8, end_id=0)
    losses = []
    for prompt, answer in pairs:
        answer = [*answer, 0]
        prompt = prompt[-(8 - len(answer)) :]
        ids = [*prompt, *answer]
        log_probs = log_softmax(gpt({"input_ids": np.array([ids])})["logits"][0].numpy())
        losses += [-log_probs[t - 1, ids[t]] for t in range(len(prompt), len(ids))]
    gpt.compile(keras.optimizers.SGD(0.0))
    found = gpt.evaluate(batch, batch_size=3, verbose=0, return_dict=True)["loss"]
    assert found == pytest.approx(np.mean(losses), rel=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda gpt: GPTClassifier.from_gpt(gpt, task="tagging"), "task must be one of classification, similarity"),
        (lambda gpt: GPTClassifier.from_gpt(gpt, lm_weight=-1.0), "lm_weight"),
        (lambda gpt: GPTClassifier.from_gpt(gpt)({"input_ids": np.zeros((1, 2, 3), int)}), r"takes input_ids \[B, T\]"),
        (lambda gpt: one_text(SPECIAL, [1], 2), "max_length must be at least 3"),
        (lambda gpt: choices(SPECIAL, [1], [range(10)], 12), "an answer of 10 tokens does not fit 12"),
        (lambda gpt: classification_inputs([[[1]], [[1], [2]]], 4), "1 to 2 sequences"),
        (lambda gpt: prompt_answer_inputs([([], [1])], 8, None), "pair 0: the prompt is empty"),
        (lambda gpt: prompt_answer_inputs([([1], range(8))], 8, None), "pair 0: the answer has 8 tokens"),
    ],
)
def test_mistakes_are_named(gpt, make, message):
    with pytest.raises(ValueError, match=message):
        make(gpt)
