"""A fine-tuned GPT inside a graph: the sequences are those of Python, the answers those of the model."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tf_bert.configs import GPTConfig
from tf_bert.data.finetuning.gpt_sequences import (
    SpecialTokens,
    both_orders,
    choices,
    classification_inputs,
    one_text,
    text_pair,
)
from tf_bert.decoding.language_model import generate_text
from tf_bert.export.generation_saved_model import TextGenerator
from tf_bert.export.gpt_saved_model import Sequences, export_gpt_classifier
from tf_bert.models.gpt import GPT
from tf_bert.models.gpt_tasks import GPTClassifier
from tf_bert.tokenization.byte_pair import GPT1Tokenizer
from tf_bert.tokenization.byte_pair_training import train_lower_cased_pairs

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
WORDS = st.lists(st.sampled_from(["low", "lower", "x", "Low!", "slow"]), max_size=9).map(" ".join)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt1")
    train_lower_cased_pairs(["low low lower lowest slow"], 30).save(folder)
    return GPT1Tokenizer(folder)


@pytest.fixture(scope="module")
def gpt(tokenizer):
    model = GPT(GPTConfig(tokenizer.vocab_size + 2, **SIZES, max_position_embeddings=20))
    rng = np.random.default_rng(1)
    for variable in model.weights:
        variable.assign(variable + 0.5 * rng.normal(size=variable.shape))
    return model


def classifier(gpt, task: str, **arguments) -> GPTClassifier:
    keras.utils.set_random_seed(1)
    return GPTClassifier.from_gpt(gpt, task=task, **arguments)


@pytest.fixture(scope="module")
def sequences(gpt, tokenizer):
    """Of at most 9 tokens, compiled once."""
    made, strings = Sequences(classifier(gpt, "classification"), tokenizer, 9), tf.TensorSpec([None], tf.string)
    made.of_texts = tf.function(made.of_texts, [strings], autograph=False)
    made.of_pairs = tf.function(made.of_pairs, [strings, strings], autograph=False)
    made.of_choices = tf.function(made.of_choices, [strings, tf.TensorSpec([None, None], tf.string)], autograph=False)
    return made


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4))
def test_sequences_are_those_of_python(sequences, tokenizer, pairs):
    special = SpecialTokens.of(tokenizer.vocab_size + 2)
    firsts, seconds = ([tokenizer.tokenize_to_ids(text) for text in texts] for texts in zip(*pairs, strict=True))
    texts, others = (list(texts) for texts in zip(*pairs, strict=True))
    ids, cut = sequences.of_texts(tf.constant(texts))
    assert ids.to_list() == [one_text(special, first, 9) for first in firsts]
    assert cut.numpy().tolist() == [len(first) > 7 for first in firsts]
    ids, cut = sequences.of_pairs(tf.constant(texts), tf.constant(others))
    assert ids.to_list() == [text_pair(special, a, b, 9) for a, b in zip(firsts, seconds, strict=True)]
    assert cut.numpy().tolist() == [len(a) + len(b) > 6 for a, b in zip(firsts, seconds, strict=True)]
    few = [["low", "x"]] * len(texts)
    ids, cut = sequences.of_choices(tf.constant(texts), tf.constant(few))
    answers = [tokenizer.tokenize_to_ids(answer) for answer in few[0]]
    assert ids.to_list() == [row for first in firsts for row in choices(special, first, answers, 9)]
    assert cut.numpy().tolist() == [len(first) > 6 - len(answer) for first in firsts for answer in answers]


TEXTS, OTHERS = ["low lower", "x", "slow low"], ["lowest", "slow slow slow slow slow", ""]


@pytest.mark.parametrize("task", ["classification", "similarity", "multiple_choice"])
def test_what_is_served_is_what_the_model_says(gpt, tokenizer, task, tmp_path):
    model = classifier(gpt, task, num_labels=1 if task == "similarity" else 3)
    path = export_gpt_classifier(model, tokenizer, tmp_path / "served", max_seq_length=9)
    served = tf.saved_model.load(path).signatures
    special = SpecialTokens.of(tokenizer.vocab_size + 2)
    ids, others = ([tokenizer.tokenize_to_ids(text) for text in texts] for texts in (TEXTS, OTHERS))
    if task == "multiple_choice":
        some = [["x", "low"], ["slow", "lower"], ["low", "low x"]]
        rows = [
            choices(special, first, [tokenizer.tokenize_to_ids(answer) for answer in answers], 9)
            for first, answers in zip(ids, some, strict=True)
        ]
        found = served["serving_default"](texts=tf.constant(TEXTS), choices=tf.constant(some))
    else:
        make = both_orders if task == "similarity" else text_pair
        rows = [make(special, a, b, 9) for a, b in zip(ids, others, strict=True)]
        name = "serving_default" if task == "similarity" else "pairs"
        found = served[name](texts=tf.constant(TEXTS), text_pairs=tf.constant(OTHERS))
    logits = model(classification_inputs(rows, 9))["logits"]
    if task == "similarity":
        np.testing.assert_allclose(found["value"], logits[:, 0], rtol=1e-4)
    else:
        np.testing.assert_allclose(found["probabilities"], tf.nn.softmax(logits), rtol=1e-4)
        best = found["choice" if task == "multiple_choice" else "label_id"]
        assert best.numpy().tolist() == np.argmax(logits, axis=-1).tolist()
    check_odd_texts(model, tokenizer, served)
    if task == "classification":
        outputs = served["serving_default"](texts=tf.constant(TEXTS))
        rows = classification_inputs([one_text(special, row, 9) for row in ids], 9)
        np.testing.assert_allclose(outputs["probabilities"], tf.nn.softmax(model(rows)["logits"]), rtol=1e-4)
        with pytest.raises(ValueError, match="is there already"):
            export_gpt_classifier(model, tokenizer, path)
        with pytest.raises(ValueError, match="there are 1 labels"):
            export_gpt_classifier(model, tokenizer, tmp_path / "other", ["a"])
        with pytest.raises(ValueError, match="from 5 to the context, 20"):
            export_gpt_classifier(model, tokenizer, tmp_path / "other", max_seq_length=21)
    if task == "multiple_choice":
        with pytest.raises(tf.errors.InvalidArgumentError, match="no choice to take"):
            served["serving_default"](texts=tf.constant(["x"]), choices=tf.constant([[]], tf.string))
        with pytest.raises(tf.errors.InvalidArgumentError, match="a choice alone is longer than 6"):
            served["serving_default"](texts=tf.constant(["x"]), choices=tf.constant([["x x x x x x x"]]))


def check_odd_texts(model, tokenizer, signatures):
    """Without tokens, very long, not UTF-8: together, one by one, and no text at all."""
    odd = [b"low", b"", b" \t\n", b"\x00", "\u200b\u3000".encode(), b"\xff\xfe", b"lo\xc3w", b"low " * 300]
    special, make = SpecialTokens.of(tokenizer.vocab_size + 2), {"similarity": both_orders, "pairs": text_pair}
    for name, signature in signatures.items():

        def call(rows, name=name, signature=signature):
            given = {"texts": tf.constant(odd[rows], tf.string, [len(odd[rows])])}
            if model.task == "multiple_choice":
                given["choices"] = tf.repeat(tf.constant([[b"x", b"", b"\xff"]]), len(odd[rows]), axis=0)
            elif name == "pairs" or model.task == "similarity":
                given["text_pairs"] = tf.constant(odd[::-1][rows], tf.string, [len(odd[rows])])
            return {key: value.numpy() for key, value in signature(**given).items()}

        ids = [tokenizer.tokenize_to_ids(text.decode(errors="ignore")) for text in odd]
        if model.task == "multiple_choice":
            rows = [choices(special, row, [tokenizer.tokenize_to_ids("x"), [], []], 9) for row in ids]
        elif name == "serving_default" and model.task == "classification":
            rows = [one_text(special, row, 9) for row in ids]
        else:
            of_pair = make["similarity" if model.task == "similarity" else "pairs"]
            rows = [of_pair(special, a, b, 9) for a, b in zip(ids, ids[::-1], strict=True)]
        logits = model(classification_inputs(rows, 9))["logits"]
        expected = logits[:, 0] if model.kind == "regression" else tf.nn.softmax(logits)
        key = "value" if model.kind == "regression" else "probabilities"
        np.testing.assert_allclose(call(slice(None))[key], expected, rtol=1e-4)
        for row in range(len(odd)):
            np.testing.assert_allclose(call(slice(row, row + 1))[key][0], expected[row], rtol=1e-4)
        assert {len(value) for value in call(slice(0, 0)).values()} == {0}


def test_gpt1_goes_on_with_texts(gpt, tokenizer):
    generator = TextGenerator(gpt, tokenizer, max_length=6)
    found = [text.decode() for text in generator(tf.constant(TEXTS))["texts"][:, 0].numpy()]
    assert found == generate_text(gpt, TEXTS, tokenizer, max_length=6)
    odd = ["", "low", " \t", "\u200b"]
    outputs = generator(tf.constant([text.encode() for text in odd] + [b"\xff"]))
    assert [text.decode() for text in outputs["texts"][:, 0].numpy()] == ["", found_alone(generator, "low"), "", "", ""]
    assert outputs["log_probs"].numpy()[[0, 2, 3, 4], 0].tolist() == [0.0] * 4
    assert generate_text(gpt, odd, tokenizer, max_length=6)[1:] == [found_alone(generator, "low"), "", ""]
    assert generator(tf.constant([], tf.string))["texts"].shape == (0, 1)


def found_alone(generator, text):
    return generator(tf.constant([text]))["texts"].numpy()[0, 0].decode()
