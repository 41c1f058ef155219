"""GPT-1's tokenizer in the graph gives the ids, offsets and texts of the one in Python, for any bytes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tokenization.test_byte_pair import PARTS_OF_CHARACTERS, TEXT, original_gpt1
from tf_bert.tokenization.byte_pair import GPT1Tokenizer, GPT2Tokenizer
from tf_bert.tokenization.byte_pair_training import train_byte_pairs, train_lower_cased_pairs
from tf_bert.tokenization.byte_pair_vocabulary import save_byte_pairs
from tf_bert.tokenization.in_graph_bpe import InGraphBytePairTokenizer
from tf_bert.tokenization.in_graph_gpt1 import InGraphGPT1Tokenizer, in_graph_layer

HARD = [
    *TEXT.split("\n"),
    *(
        TEXT,
        "",
        " ",
        "\n",
        "Étude ÉTUDE E\u0301tude",
        "ΣΑΣ ΟΔΟΣ'",
        "\u00ad\u200bab\x97c",
        "世界 the世bank",
        "한국어 ガス",
    ),
    *(
        "aaaa aaaaa AAA",
        "a",
        "!",
        "don't",
        "<unk> <un k>",
        "\ufb01 \u1e9e ß İ ǅ",
        "q\u0323\u0307 q\u0307\u0323",
        "x" * 300,
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpt1")
    train_lower_cased_pairs([TEXT, TEXT, "aaaa aaaa étude ガ"], 320, min_frequency=1).save(path)
    return path


@pytest.fixture(scope="module")
def plain(folder):
    return GPT1Tokenizer(folder)


@pytest.fixture(scope="module")
def layer(folder):
    return InGraphGPT1Tokenizer(folder)


def check(layer, plain, texts):
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    ids, starts, ends = layer.tokenize_with_offsets(encoded)
    decoded = [text.decode("utf-8", "ignore") for text in encoded]
    restated = [plain.convert_tokens_to_ids(original_gpt1(text, plain)) for text in decoded]
    assert ids.to_list() == restated == [plain.tokenize_to_ids(text) for text in encoded]
    spans = [list(map(tuple, zip(*row, strict=True))) for row in zip(starts.to_list(), ends.to_list(), strict=True)]
    assert spans == [plain.tokenize_with_offsets(text)[1] for text in encoded]
    back = layer.detokenize(ids).numpy().tolist()
    assert [text.decode() for text in back] == [plain.decode(row) for row in ids.to_list()]


def test_text_of_every_kind(layer, plain):
    check(layer, plain, HARD)
    check(layer, plain, [])
    check(layer, plain, ["", ""])
    for text in HARD:
        check(layer, plain, [text])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text() | st.binary() | st.lists(st.sampled_from(PARTS_OF_CHARACTERS)).map(b"".join), max_size=5))
def test_any_bytes(layer, plain, texts):
    check(layer, plain, texts)


def test_merges_in_an_order_that_no_training_makes(tmp_path):
    pieces = ["<unk>", "a", "b", "c", "a</w>", "b</w>", "bc", "ab", "abc", "bb</w>", "ca</w>", "abca</w>"]
    merges = [("b", "c"), ("b", "b</w>"), ("a", "b"), ("c", "a</w>"), ("ab", "c"), ("a", "bc"), ("abc", "a</w>")]
    save_byte_pairs(tmp_path, pieces, merges)
    plain = GPT1Tokenizer(tmp_path)
    words = [a + b + c + d for a in "abcx" for b in "abc" for c in "ab" for d in "abx"]
    check(InGraphGPT1Tokenizer(tmp_path), plain, [" ".join(words), *words[:20]])


def test_inputs_of_gpt_saved_and_loaded(folder, plain, tmp_path):
    layer = InGraphGPT1Tokenizer(folder, max_seq_length=5, padding="left", truncation="left")
    texts = ["the bank", "the bank of the river and the bank"]
    expected = plain.encode_batch(texts, 5, padding="left", truncation="left")
    for name, values in layer(texts).items():
        np.testing.assert_array_equal(values, expected[name])
    strings = keras.Input((), dtype="string")
    keras.Model(strings, layer(strings)).save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(tf.constant(texts))["input_ids"], expected["input_ids"])


def test_the_layer_of_a_tokenizer(folder, tmp_path):
    train_byte_pairs([TEXT], 300).save(tmp_path)
    for tokenizer, kind in (
        (GPT1Tokenizer(folder), InGraphGPT1Tokenizer),
        (GPT2Tokenizer(tmp_path), InGraphBytePairTokenizer),
    ):
        layer = in_graph_layer(tokenizer, max_seq_length=9)
        assert type(layer) is kind and layer.tokenize([TEXT]).to_list() == [tokenizer.tokenize_to_ids(TEXT)]
    with pytest.raises(ValueError, match="is for the byte-level tokenizer"):
        InGraphGPT1Tokenizer(folder, special_tokens_in_text=["<unk>"])
    with pytest.raises(ValueError, match="lacks <unk>"):
        InGraphGPT1Tokenizer(["a", "b"], [])
