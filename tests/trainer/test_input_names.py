"""Names of inputs, for every model and through every door: ours, the aliases, and nothing else."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_bert
from tf_bert.configs import AttentionClassifierConfig, BertConfig, ElmoConfig, GPTConfig, Seq2SeqConfig
from tf_bert.models.elmo import Elmo, FeatureTagger

BERT = BertConfig(20, 8, 1, 2, 16, max_position_embeddings=8, type_vocab_size=2)
GPT = GPTConfig(20, 8, 1, 2, 16, max_position_embeddings=8)
TRANSFORMER = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
IDS = np.array([[2, 7, 3, 9], [4, 5, 6, 3]], "int32")
MASK = np.array([[0, 0, 1, 1], [1, 1, 1, 1]], "int32")  # padding on the left: the rest moves with it
SEGMENTS = np.array([[0, 0, 1, 1], [0, 1, 1, 1]], "int32")

MODELS = {
    "Bert": lambda: tf_bert.Bert(BERT),
    "BertForPreTraining": lambda: tf_bert.BertForPreTraining(BERT),
    "BertForMaskedLM": lambda: tf_bert.BertForMaskedLM(BERT),
    "BertClassifier": lambda: tf_bert.BertClassifier(BERT),
    "BertTokenClassifier": lambda: tf_bert.BertTokenClassifier(BERT),
    "BertQuestionAnswering": lambda: tf_bert.BertQuestionAnswering(BERT),
    "BertMultipleChoice": lambda: tf_bert.BertMultipleChoice(BERT),
    "BertEncoder": lambda: tf_bert.BertEncoder(BERT),
    "GPT": lambda: tf_bert.GPT(GPT),
    "GPTClassifier": lambda: tf_bert.GPTClassifier(GPT),
    "Elmo": lambda: Elmo(ElmoConfig(20, 8)),
    "FeatureTagger": lambda: FeatureTagger(Elmo(ElmoConfig(20, 8)), 3, units=4),
    "AttentionClassifier": lambda: tf_bert.AttentionClassifier(AttentionClassifierConfig(20, 2, 4, 4)),
    "Seq2Seq": lambda: tf_bert.Seq2Seq(Seq2SeqConfig(20, embedding_size=4, hidden_size=8)),
    "Transformer": lambda: tf_bert.Transformer(tf_bert.TransformerConfig(20, **TRANSFORMER)),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    keras.utils.set_random_seed(1)
    return MODELS[request.param]()


def arrays(model) -> dict[str, np.ndarray]:
    """Inputs of a call, all that the model has."""
    if "source_ids" in model.input_names:
        return {"source_ids": IDS, "target_ids": IDS, "source_mask": MASK[:, ::-1]}
    mask = MASK[:, ::-1] if isinstance(model, Elmo | FeatureTagger) else MASK  # real ones come first
    inputs = {"input_ids": IDS, "input_mask": mask}
    if isinstance(model, tf_bert.GPTClassifier):
        inputs["input_ids"] = np.where(IDS == 3, model.extract_id, IDS)
    if "segment_ids" in model.input_names:
        inputs["segment_ids"] = SEGMENTS
    if isinstance(model, tf_bert.BertMultipleChoice):
        inputs = {name: np.stack([value, value[:, ::-1]], axis=1) for name, value in inputs.items()}
    return inputs


def renamed(inputs) -> dict[str, np.ndarray]:
    """The same under the names of the original's arguments and of Hugging Face."""
    names = {"input_mask": "attention_mask", "segment_ids": "token_type_ids", "label_ids": "labels"}
    return {names.get(name, name): value for name, value in inputs.items()}


def flat(outputs) -> np.ndarray:
    return np.concatenate([np.ravel(keras.ops.convert_to_numpy(value)) for value in keras.tree.flatten(outputs)])


def test_aliases_are_taken_and_make_a_difference(model):
    inputs = arrays(model)
    if "source_ids" in inputs:
        with pytest.raises(ValueError, match="has no input 'attention_mask'; did you mean 'source_mask'"):
            model({**inputs, "attention_mask": MASK})
        return
    expected = flat(model(inputs))
    np.testing.assert_array_equal(flat(model(renamed(inputs))), expected)
    for name in ("input_mask", "segment_ids"):
        if name in inputs:
            assert np.abs(flat(model({k: v for k, v in inputs.items() if k != name})) - expected).max() > 1e-5, name


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("input_masks", ("input_mask", "source_mask")), ("token_ids", ("input_ids", "source_ids"))]
    + [("padding_mask", ("input_mask", "source_mask")), ("offset_mapping", (None,))],
)
def test_any_other_key_is_refused_in_one_line(model, key, nearest):
    expected = next(name for name in nearest if name is None or name in model.input_names)
    with pytest.raises(ValueError) as caught:
        model({**arrays(model), key: IDS})
    message = str(caught.value)
    assert message.startswith(f"{type(model).__name__} has no input {key!r}")
    assert ("did you mean" in message) == (expected is not None)
    assert expected is None or f"did you mean {expected!r}? It takes" in message
    assert "\n" not in message and "\x1b" not in message


def test_symbolic_calls_and_predict(model):
    inputs = arrays(model)
    symbols = {name: keras.Input(x.shape[1:], dtype="int32", name=name) for name, x in renamed(inputs).items()}
    functional = keras.Model(symbols, model(symbols))
    np.testing.assert_allclose(flat(functional(renamed(inputs))), flat(model(inputs)), atol=1e-6)
    with pytest.raises(ValueError, match="has no input 'padding_mask'"):
        model({**symbols, "padding_mask": keras.Input((4,), dtype="int32")})


def test_both_names_with_different_values_are_refused():
    bert = tf_bert.Bert(BERT)
    same = bert({"input_ids": IDS, "segment_ids": SEGMENTS, "token_type_ids": tf.constant(SEGMENTS)})
    np.testing.assert_array_equal(flat(same), flat(bert({"input_ids": IDS, "segment_ids": SEGMENTS})))
    both = {"input_ids": IDS, "token_type_ids": SEGMENTS, "segment_ids": 1 - SEGMENTS}
    with pytest.raises(ValueError, match="'token_type_ids' and 'segment_ids', which are names of one input"):
        bert(both)
    with pytest.raises(ValueError, match="'token_type_ids' and 'segment_ids', which are names of one input"):
        tf_bert.BertClassifier(BERT).predict(both, verbose=0)


def test_training_evaluation_and_prediction_take_aliases_and_refuse_the_rest():
    def trained(inputs, y=None):
        keras.utils.set_random_seed(2)
        model = tf_bert.BertClassifier(BERT)
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
        model.fit(inputs, y, batch_size=2, verbose=0, shuffle=False)
        return model

    inputs = {"input_ids": IDS, "input_mask": MASK, "segment_ids": SEGMENTS}
    labels = np.array([1, 0], "int32")
    ours, theirs = {**inputs, "label_ids": labels}, renamed({**inputs, "label_ids": labels})
    model = trained(ours)
    dataset = tf.data.Dataset.from_tensor_slices(theirs).batch(2)
    for other in (trained(theirs), trained(dataset), trained(renamed(inputs), labels)):
        np.testing.assert_array_equal(flat(other.get_weights()), flat(model.get_weights()))
    trained(renamed(inputs), {"labels": labels})
    expected = model.evaluate(ours, verbose=0)
    for evaluated in (model.evaluate(theirs, verbose=0), model.evaluate(dataset, verbose=0)):
        np.testing.assert_array_equal(evaluated, expected)
    np.testing.assert_array_equal(flat(model.test_on_batch(theirs)), flat(expected))
    np.testing.assert_array_equal(
        model.predict(theirs, verbose=0)["logits"], model.predict_on_batch(renamed(inputs))["logits"]
    )
    wrong = {**ours, "input_masks": MASK}
    doors = [
        *(lambda x: model.fit(x, verbose=0), lambda x: model.evaluate(x, verbose=0)),
        *(lambda x: model.predict(x, verbose=0), model.train_on_batch, model.test_on_batch, model.predict_on_batch),
        lambda x: model.predict(tf.data.Dataset.from_tensor_slices(x).batch(2), verbose=0),
    ]
    for door in doors:
        with pytest.raises(ValueError, match="BertClassifier has no input 'input_masks'; did you mean") as caught:
            door(wrong)
        assert "\n" not in str(caught.value)


def test_compiled_code_refuses_with_the_same_line():
    gpt = tf_bert.GPT(GPT)
    gpt.compile("sgd")
    for door in (gpt.fit, gpt.evaluate, gpt.predict):
        with pytest.raises(ValueError, match="GPT has no input 'padding_mask'; did you mean 'input_mask'") as caught:
            door({"input_ids": IDS, "padding_mask": MASK}, verbose=0)
        assert "\n" not in str(caught.value)


def test_partners_have_aliases_too():
    encoder = tf_bert.BertEncoder(BERT)
    inputs = {"input_ids": IDS, "pair_input_ids": IDS[::-1], "pair_input_mask": MASK}
    other = {"input_ids": IDS, "pair_input_ids": IDS[::-1], "pair_attention_mask": MASK}
    np.testing.assert_array_equal(encoder(inputs)["pair_vectors"], encoder(other)["pair_vectors"])
    with pytest.raises(ValueError, match="did you mean 'pair_input_mask'"):
        encoder({**inputs, "pair_input_masks": MASK})


def test_labels_of_another_task_are_left_out_aloud():
    records = {"input_ids": IDS, "masked_lm_ids": IDS[:, :1], "next_sentence_labels": IDS[:, :1]}
    for model in (tf_bert.Bert(BERT), tf_bert.BertClassifier(BERT)):
        with pytest.warns(UserWarning, match="does not read masked_lm_ids, next_sentence_labels, which belong to"):
            outputs = model(records)
        np.testing.assert_array_equal(flat(outputs), flat(model({"input_ids": IDS})))
    with pytest.warns(UserWarning, match="Bert does not read labels"):
        tf_bert.Bert(BERT)({"input_ids": IDS, "labels": IDS})


@pytest.mark.parametrize(
    ("name", "key", "nearest"),
    [
        ("BertForMaskedLM", "labels", "masked_lm_ids"),
        ("BertForMaskedLM", "mask_positions", "masked_lm_positions"),
        ("BertForPreTraining", "next_sentence_label", "next_sentence_labels"),
        ("BertTokenClassifier", "is_real_example", None),
        ("BertClassifier", "label_weights", None),
        ("GPT", "token_type_ids", None),
        ("Seq2Seq", "labels", "target_ids"),
    ],
)
def test_what_a_task_would_lose_is_refused(name, key, nearest):
    model = MODELS[name]()
    with pytest.raises(ValueError, match=f"{name} has no input '{key}'") as caught:
        model({**arrays(model), key: IDS})
    assert nearest is None or f"did you mean '{nearest}'" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "inputs", "found"),
    [
        ("BertMultipleChoice", {"segment_ids": SEGMENTS}, "input_ids; found segment_ids"),
        ("AttentionClassifier", {}, "input_ids; found no input"),
        ("GPTClassifier", IDS, "input_ids; found an object of type ndarray"),
        ("Transformer", {"source_ids": IDS}, "source_ids and target_ids; found source_ids"),
        ("Seq2Seq", [IDS, IDS], "source_ids and target_ids; found an object of type list"),
    ],
)
def test_ids_that_are_missing_are_named(name, inputs, found):
    with pytest.raises(ValueError, match=f"{name} takes a dict that holds {found}"):
        MODELS[name]()(inputs)


def test_arguments_by_name_end_in_one_line():
    with pytest.raises(TypeError, match=r"Bert takes one dict of inputs, model\(\{'attention_mask': ...\}\), not"):
        tf_bert.Bert(BERT)(input_ids=IDS, attention_mask=MASK)
