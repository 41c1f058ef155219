"""The tokenizer in the graph gives the ids and offsets of the one in plain Python, everywhere a graph goes."""

import gzip
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support import plain_tokenizer as plain
from tests.tokenization.test_tokenizers import ODD, PIECES, SPECIAL, write_vocab
from tf_bert.tokenization import FullTokenizer
from tf_bert.tokenization.encoding import TRUNCATIONS

pytest.importorskip("tensorflow_text")
from tf_bert.tokenization.in_graph import InGraphTokenizer
from tf_bert.tokenization.in_graph_words import GraphWords

SWITCHES = [
    {"do_lower_case": True},
    {"do_lower_case": False},
    {"do_lower_case": True, "strip_accents": False},
    {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
]
LINES = st.lists(
    st.text(st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=["Cs"])), max_size=20), max_size=6
)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """For each choice of switches the tokenizer in plain Python and a compiled function of the one in the graph."""
    path = write_vocab(tmp_path_factory.mktemp("vocab") / "vocab.txt", dict.fromkeys([*SPECIAL, *PIECES]))
    return [(FullTokenizer(path, **switches), compiled(InGraphTokenizer(path, **switches))) for switches in SWITCHES]


def compiled(layer):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def tokenize(lines):
        ids, starts, ends = layer.tokenize_with_offsets(lines)
        return layer.tokenize(lines), ids, starts, ends

    return tokenize


def in_graph(tokenize, lines):
    """Returns for each line the ids and offsets; checks that both methods give the same ids."""
    alone, ids, starts, ends = (
        np.split(rows.values.numpy(), rows.row_splits.numpy()[1:-1]) if lines else []
        for rows in tokenize(tf.constant([line.encode() for line in lines], tf.string))
    )
    assert [row.tolist() for row in alone] == [row.tolist() for row in ids]
    return [
        (row.tolist(), list(zip(start.tolist(), end.tolist(), strict=True)))
        for row, start, end in zip(ids, starts, ends, strict=True)
    ]


def in_python(tokenizer, lines):
    pairs = map(tokenizer.tokenize_with_offsets, lines)
    return [(tokenizer.convert_tokens_to_ids(tokens), offsets) for tokens, offsets in pairs]


@settings(max_examples=40, deadline=None)
@given(LINES, st.integers(0, len(SWITCHES) - 1))
@example(["ΑΣ' ΑΣ'Β Σ", "Α", "Σ", "'Σ", "Α\u0301Σ\u0301", "ΑΣ\xad Β", "Α中ΣΒ"], 0)
@example(["x\U0001d165\U00016ff0\u302e\u0301", "\u302ex", "\U00016ff0"], 0)
@example(["a" * 200, "a" * 201, "中" * 201 + "é" * 200, "!" + "é" * 201 + "!"], 3)
@example(["language\ufeff", "\u0301a", "", "\u0301", " \u0301b"], 0)
@example(["", " ", "\ufeff"], 1)
@example(["plain", "ünplain", "plain \t", "\x00"], 1)
def test_graph_equals_python_equals_the_plain_algorithm(tokenizers, lines, number):
    python, graph = tokenizers[number]
    expected = in_python(python, lines)
    assert in_graph(graph, lines) == expected
    basic = python.basic_tokenizer
    for line, (ids, _) in zip(lines, expected, strict=True):
        tokens = plain.tokenize(
            line, python.vocab, basic.do_lower_case, basic.strip_accents, basic.tokenize_chinese_chars
        )
        assert python.convert_ids_to_tokens(ids) == tokens


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text("aAbc#'. ", max_size=12), min_size=1, max_size=20),
    st.lists(st.text("abc#'.", max_size=4), max_size=10),
)
@example([" ", ""], ["", ""])
@example(["don't ab.", "## ### #"], ["don't", "b.", "##", "###", "#", "", "a", "a", "##b", "a b", "\u2028"])
def test_any_vocabulary(lines, pieces):
    pieces = ["[UNK]", *pieces, "a"]
    words = GraphWords(pieces, True, True, True)
    ids, _, _, splits = words.split_ascii(tf.constant(lines), offsets=False)
    any_ids, _, _, any_splits = words.split_any(tf.constant(lines), offsets=False)
    vocab = {piece: number for number, piece in enumerate(pieces)}
    expected = [[vocab[piece] for piece in plain.tokenize(line, vocab)] for line in lines]
    assert [ids[a:b].numpy().tolist() for a, b in zip(splits, splits[1:], strict=False)] == expected
    assert [any_ids[a:b].numpy().tolist() for a, b in zip(any_splits, any_splits[1:], strict=False)] == expected


@pytest.mark.parametrize("number", [0, 1])
def test_every_code_point(tokenizers, number):
    """Alone between letters, so that deletion, splitting, lower case and accents all show."""
    python, graph = tokenizers[number]
    blocks = (*range(0x3400), *range(0xA600, 0xAC20), *range(0xF800, 0x11000), *range(0xE0000, 0xE0200))
    lines = [f"a{chr(code)}b" for code in blocks]
    assert in_graph(graph, lines) == in_python(python, lines)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SWITCHES)))
def test_really_every_code_point(tokenizers, number):
    python, graph = tokenizers[number]
    for start in (*range(0, 0xD800, 0x800), *range(0xE000, 0x110000, 0x800)):
        words = [f"a{chr(code)}b" for code in range(start, start + 0x800)]
        lines = [" ".join(words[i : i + 64]) for i in range(0, 0x800, 64)]
        assert in_graph(graph, lines) == in_python(python, lines)


@pytest.mark.parametrize("lower", [True, False])
def test_golden_strings(shared_golden, lower):
    records = [json.loads(line) for line in (shared_golden / "A_tokenization" / "tokenization.jsonl").open()]
    layer = InGraphTokenizer(shared_golden / "vocab" / "vocab.txt", do_lower_case=lower)
    ids = layer.tokenize([record["text"] for record in records])
    expected = [record["uncased" if lower else "cased"]["ids"] for record in records]
    assert [row.tolist() for row in np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1])] == expected


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["bert-base-cased", "bert-base-chinese", "bert-base-multilingual-cased"])
def test_real_text(data_folder, vocabulary):
    path = data_folder / "vocab" / vocabulary / "vocab.txt"
    lower = vocabulary == "bert-base-chinese"
    python, graph = FullTokenizer(path, lower), compiled(InGraphTokenizer(path, lower))
    lines = []
    for name in ("parallel/en-de.tsv.gz", "parallel/en-fr.tsv.gz"):
        with gzip.open(data_folder / name, "rt", encoding="utf-8") as file:
            lines += [line.rstrip("\n").split("\t")[1] for line in file][:5000]
    assert in_graph(graph, lines) == in_python(python, lines)


def test_bytes_that_are_not_utf8_are_left_out(tokenizers):
    python, graph = tokenizers[0]
    lines = [b"a\xffb \xe4\xb8", b"a\xed\xa0\x80b", b"\xc0\x80ab\xf4\x90\x80\x80"]
    expected = in_python(python, lines)
    ids, _, starts, ends = graph(tf.constant(lines))
    assert ids.to_list() == [ids for ids, _ in expected]
    assert [list(zip(*row, strict=True)) for row in zip(starts.to_list(), ends.to_list(), strict=True)] == [
        offsets for _, offsets in expected
    ]


@pytest.mark.parametrize("choice", [True, ["[unused1]", "[MASK]", "ab"]])
def test_special_tokens_in_text(tmp_path, choice):
    path = write_vocab(
        tmp_path / "vocab.txt", [*SPECIAL, "the", "[", "]", "mask", "sat", "[unused1]", "a", "##b", "ab"]
    )
    python = FullTokenizer(path, special_tokens_in_text=choice)
    graph = compiled(InGraphTokenizer(path, special_tokens_in_text=choice))
    lines = ["the [MASK] sat", "[mask]", "", "é[SEP]sat[MASK][MASK]", "[unused1]x中[UNK", "cab [MA\u200bSK]", "[MASK]"]
    assert in_graph(graph, lines) == in_python(python, lines)


@pytest.fixture(scope="module")
def layer(tokenizers):
    return InGraphTokenizer(tokenizers[0][0].pieces)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.text("ab é!", max_size=16), st.text("ab é!", max_size=16)), max_size=4),
    st.one_of(st.none(), st.integers(3, 12)),
    st.sampled_from(TRUNCATIONS),
    st.booleans(),
)
def test_the_three_inputs_equal_those_of_encode_batch(tokenizers, layer, pairs, length, truncation, two):
    python = tokenizers[0][0]
    layer.max_seq_length, layer.truncation = length, truncation
    texts, text_pairs = [a for a, _ in pairs], [b for _, b in pairs] if two else None
    try:
        expected = python.encode_batch(texts, text_pairs, length, truncation)
    except ValueError as error:
        assert "do not fit" in str(error)
        with pytest.raises(tf.errors.InvalidArgumentError, match="do not fit into max_seq_length"):
            layer(texts, text_pairs)
    else:
        inputs = layer(texts, text_pairs)
        for name, value in expected.items():
            np.testing.assert_array_equal(inputs[name], value)
            assert inputs[name].dtype == tf.int32


def test_in_tf_data(tokenizers):
    python = tokenizers[0][0]
    layer = InGraphTokenizer(python.pieces, max_seq_length=8)
    texts, text_pairs = ["ab é", "中!"], ["a", "b"]
    one = next(iter(tf.data.Dataset.from_tensor_slices(texts).batch(2).map(layer)))
    two = next(iter(tf.data.Dataset.from_tensor_slices((texts, text_pairs)).batch(2).map(layer)))
    scalar = next(iter(tf.data.Dataset.from_tensor_slices(texts).map(layer).batch(2)))
    for found, expected in [
        (one, python.encode_batch(texts, None, 8)),
        (two, python.encode_batch(texts, text_pairs, 8)),
        (scalar, python.encode_batch(texts, None, 8)),
    ]:
        assert {name: value.numpy().tolist() for name, value in found.items()} == {
            name: value.tolist() for name, value in expected.items()
        }
        assert found["input_ids"].shape == (2, 8)


def test_in_a_model_that_is_saved_and_exported(tokenizers, tmp_path):
    """Both are read in a fresh process: as a Keras model, and as a SavedModel that knows nothing of tf_bert."""
    pieces = tokenizers[0][0].pieces
    texts = keras.Input(shape=(), dtype="string")
    inputs = InGraphTokenizer(pieces, strip_accents=False, special_tokens_in_text=["[MASK]"], max_seq_length=6)(texts)
    hidden = keras.layers.Embedding(len(pieces), 3)(inputs["input_ids"])
    model = keras.Model(texts, keras.layers.Dense(1)(keras.layers.Flatten()(hidden)))
    model.compile("sgd", "mse")
    lines = tf.constant(["ab é[MASK]", "ΑΣ 中"])
    model.fit(lines, np.zeros((2, 1)), verbose=0)
    expected = model(lines).numpy()
    model.save(tmp_path / "model.keras")
    model.export(tmp_path / "exported", verbose=False)
    script = f"""
import sys, numpy as np, tensorflow as tf, tensorflow_text
lines = tf.constant(["ab é[MASK]", "ΑΣ 中"])
exported = tf.saved_model.load({str(tmp_path / "exported")!r})
exported = exported.serve(lines).numpy()
assert "tf_bert" not in sys.modules
import keras, tf_bert.tokenization.in_graph
loaded = keras.saving.load_model({str(tmp_path / "model.keras")!r})(lines).numpy()
print([exported.tolist(), loaded.tolist()])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout.splitlines()[-1]), [expected, expected], atol=1e-6)


def test_config_holds_everything(tokenizers):
    layer = InGraphTokenizer(
        tokenizers[0][0].pieces,
        do_lower_case=False,
        strip_accents=True,
        tokenize_chinese_chars=False,
        special_tokens_in_text=["[SEP]"],
        max_seq_length=None,
        truncation=None,
        name="tokens",
    )
    again = InGraphTokenizer.from_config(json.loads(json.dumps(layer.get_config())))
    assert again.get_config() == layer.get_config()
    np.testing.assert_array_equal(again(["Ab [SEP] é"])["input_ids"], layer(["Ab [SEP] é"])["input_ids"])


def test_what_is_wrong_is_said(tokenizers, monkeypatch):
    pieces = tokenizers[0][0].pieces
    with pytest.raises(ValueError, match=r"lacks the special tokens \[CLS\]"):
        InGraphTokenizer(["[PAD]", "[UNK]", "a"])
    with pytest.raises(ValueError, match="max_seq_length must be at least 3"):
        InGraphTokenizer(pieces, max_seq_length=2)
    with pytest.raises(ValueError, match="truncation must be one of"):
        InGraphTokenizer(pieces, truncation="tail")
    with pytest.raises(ValueError, match="tensorflow-text cannot use the vocabulary"):
        InGraphTokenizer([*pieces, "x" * 300])
    with pytest.raises(ValueError, match=r"texts must be a string tensor of shape \[B\]"):
        InGraphTokenizer(pieces).tokenize([["a"]])
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    with pytest.raises(ImportError, match="pip install tensorflow-text==2.*FullTokenizer gives the same ids"):
        InGraphTokenizer(pieces)


def test_inputs_with_offsets_of_two_texts():
    """Pieces of the second text count from its own start; what is cut off is not there."""
    vocabulary = "[PAD] [UNK] [CLS] [SEP] [MASK] un ##aff ##able ! a".split()
    layer = InGraphTokenizer(vocabulary, max_seq_length=9, truncation="only_second")
    first, second = ["a  un", "a"], ["\u00e0 unaffable !", ""]
    found = layer.encode_with_offsets(first, second)
    for name, value in layer(first, second).items():
        np.testing.assert_array_equal(found[name], value)
    np.testing.assert_array_equal(found["starts"], [[-1, 0, 3, -1, 0, 2, 4, 7, -1], [-1, 0, *[-1] * 7]])
    np.testing.assert_array_equal(found["ends"], [[-1, 1, 5, -1, 1, 4, 7, 11, -1], [-1, 1, *[-1] * 7]])
