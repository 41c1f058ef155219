"""GPT's tokenizer in the graph gives the ids and offsets of the one in Python, for any bytes."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tokenization.test_byte_pair import PARTS_OF_CHARACTERS, TEXT
from tf_bert.tokenization.byte_pair import GPT2_WORDS, GPT2Tokenizer
from tf_bert.tokenization.byte_pair_training import train_byte_pairs
from tf_bert.tokenization.byte_pair_vocabulary import save_byte_pairs
from tf_bert.tokenization.in_graph_bpe import InGraphBytePairTokenizer, character_classes

pytest.importorskip("tensorflow_text")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpt2")
    train_byte_pairs([TEXT, "aaaa aaaa"], 400, min_frequency=1).save(path)
    return path


@pytest.fixture(scope="module")
def plain(folder):
    return GPT2Tokenizer(folder)


@pytest.fixture(scope="module")
def layer(folder):
    return InGraphBytePairTokenizer(folder)


def check(layer, plain, texts):
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    ids, starts, ends = layer.tokenize_with_offsets(encoded)
    expected = [plain.tokenize_to_ids(text) for text in encoded]
    assert ids.to_list() == expected
    spans = [list(map(tuple, zip(*row, strict=True))) for row in zip(starts.to_list(), ends.to_list(), strict=True)]
    assert spans == [plain.tokenize_with_offsets(text)[1] for text in encoded]
    back = layer.detokenize(ids, skip_special_tokens=False)
    assert back.numpy().tolist() == encoded


def test_golden_texts(shared_golden, data_folder):
    cases = [json.loads(line) for line in (shared_golden / "gpt2_bpe.jsonl").open(encoding="utf-8")]
    layer = InGraphBytePairTokenizer(data_folder / "vocab" / "gpt2")
    texts, ids = [case["text"] for case in cases], [case["ids"] for case in cases]
    assert layer.tokenize(texts).to_list() == ids
    assert [text.decode() for text in layer.detokenize(tf.ragged.constant(ids)).numpy()] == texts
    check(layer, GPT2Tokenizer(data_folder / "vocab" / "gpt2"), texts[::20] + [TEXT, "a" * 5000, ""])


def test_text_of_every_kind(layer, plain):
    check(
        layer,
        plain,
        [*TEXT.split("\n"), TEXT, "", " ", "  ", "\n", "a", "'", "'s", " 's", "'re's", "\n'll'", "''d", "'r"],
    )
    check(layer, plain, [])
    check(layer, plain, ["", ""])


def check_words(layer, codes):
    rows = ["".join(f"a{chr(code)}b" for code in codes[i : i + 512]) for i in range(0, len(codes), 512)]
    found = [bytes(word).decode() for word in layer._words(tf.constant(rows)).bytes.to_list()]
    assert found == [word for row in rows for word in GPT2_WORDS.findall(row)]


def test_code_points_are_classed_as_in_python(layer):
    """Where one class ends and another begins, and beyond the last."""
    classes = character_classes()
    ends = np.flatnonzero(np.diff(classes.astype(int)))
    codes = sorted({*(ends.tolist()), *((ends + 1).tolist()), len(classes), len(classes) + 1, 0xFFFF, 0x10FFFF})
    check_words(layer, [code for code in codes if not 0xD800 <= code < 0xE000])


@pytest.mark.slow
def test_each_code_point_is_classed_as_in_python(layer):
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for begin in range(0, len(codes), 1 << 18):
        check_words(layer, codes[begin : begin + (1 << 18)])


TEXTS = st.text() | st.text(" \n\t'stremvld.,1a\u00a0", max_size=30)
BYTES = st.binary() | st.lists(st.sampled_from(PARTS_OF_CHARACTERS)).map(b"".join)


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(TEXTS | BYTES, max_size=4))
def test_any_bytes(layer, plain, texts):
    check(layer, plain, texts)


def test_special_tokens(folder):
    options = {"special_tokens_in_text": True}
    layer, plain = InGraphBytePairTokenizer(folder, **options), GPT2Tokenizer(folder, **options)
    texts = ["<|endoftext|>", "a<|endoftext|> b<|endoftext|><|endoftext|>c", "", "none", b"\xff<|endoftext|>\xe9 "]
    check(layer, plain, texts)
    assert layer.detokenize(layer.tokenize(texts)).numpy().tolist() == [b"", b"a bc", b"", b"none", b"\xff\xe9 "]


def test_merges_in_an_order_that_no_training_makes(tmp_path):
    symbols = list(train_byte_pairs(["x"], 257).pieces)
    merges = [("ab", "a"), ("a", "b"), ("a", "a"), ("aa", "aa"), ("b", "ab"), ("aba", "b")]
    save_byte_pairs(tmp_path, symbols + list(dict.fromkeys(a + b for a, b in merges)), merges)
    texts = ["ababab", "aaaaaaa", "bababba", "abaabab aaa aab"]
    check(InGraphBytePairTokenizer(tmp_path), GPT2Tokenizer(tmp_path), texts)


def test_inputs_of_gpt(folder, plain):
    texts = ["The bank", "", "the other banks of the river"]
    layer = InGraphBytePairTokenizer(folder)
    for options in ({}, {"padding": "left"}, {"padding": "left", "truncation": "left"}):
        for length in (None, 3, 20):
            for name, value in (
                {"padding": "right", "truncation": "right", "max_seq_length": length} | options
            ).items():
                setattr(layer, name, value)
            expected = plain.encode_batch(texts, length, **options)
            for name, value in layer(texts).items():
                np.testing.assert_array_equal(value, expected[name])
            one = layer(tf.constant(texts[2]))
            np.testing.assert_array_equal(one["input_ids"], plain.encode(texts[2], length, **options)["input_ids"])
    assert layer(tf.constant([], tf.string))["input_ids"].shape == (0, 20)


def test_bad_arguments_and_ids(folder, layer):
    with pytest.raises(ValueError, match="must be 'right' or 'left'"):
        InGraphBytePairTokenizer(folder, padding="both")
    with pytest.raises(ValueError, match="max_seq_length must be at least 1"):
        InGraphBytePairTokenizer(folder, max_seq_length=0)
    with pytest.raises(ValueError, match=r"texts must be a string tensor of shape \[B\]"):
        layer.tokenize([["a"]])
    for bad in (layer.vocab_size, -1):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"ids outside 0 to {layer.vocab_size - 1}"):
            layer.detokenize([[0, bad]])


def test_in_tf_data(layer, plain):
    texts = ["The bank", "é"]
    (batch,) = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(layer)
    np.testing.assert_array_equal(batch["input_ids"], plain.encode_batch(texts)["input_ids"])


def test_configuration(layer):
    again = InGraphBytePairTokenizer.from_config(json.loads(json.dumps(layer.get_config())))
    assert again.pieces == layer.pieces and again.merges == layer.merges
    assert again.get_config() == layer.get_config()


@pytest.mark.slow
def test_saved(folder, tmp_path):
    layer = InGraphBytePairTokenizer(folder, special_tokens_in_text=True, max_seq_length=8)
    texts = ["The bank<|endoftext|>", "é"]
    text = keras.Input((), dtype="string")
    keras.Model(text, layer(text)).save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(tf.constant(texts))["input_ids"], layer(texts)["input_ids"])

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def echo(self, texts):
            return layer.detokenize(layer.tokenize(texts))

    tf.saved_model.save(Module(), str(tmp_path / "saved"))
    code = (
        "import sys, tensorflow as tf, tensorflow_text\n"
        f"module = tf.saved_model.load({str(tmp_path / 'saved')!r})\n"
        "assert module.echo([b'caf\\xc3\\xa9 \\xff!']).numpy().tolist() == [b'caf\\xc3\\xa9 \\xff!']\n"
        "assert not any(name.startswith('tf_bert') for name in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
