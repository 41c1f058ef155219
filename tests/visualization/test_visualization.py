"""Attention as arrays, pages and pictures."""

import base64
import json
import re

import numpy as np
import pytest

from tf_bert.commands import attention as command
from tf_bert.configs import AttentionClassifierConfig, BertConfig, GPTConfig, Seq2SeqConfig, TransformerConfig
from tf_bert.models.attention_classifier import AttentionClassifier
from tf_bert.models.bert import Bert
from tf_bert.models.gpt import GPT
from tf_bert.models.seq2seq import Seq2Seq
from tf_bert.models.transformer import Transformer
from tf_bert.models.translator import Translator, save_translator
from tf_bert.tokenization.byte_pair import GPT2Tokenizer
from tf_bert.tokenization.byte_pair_training import train_byte_pairs
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.visualization.attention import (
    AttentionMap,
    bert_attention,
    classifier_attention,
    gpt_attention,
    position_table,
    save_arrays,
    translation_attention,
)
from tf_bert.visualization.page import attention_page
from tf_bert.visualization.plots import plot_matrix

PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat <b> $x$".split()
SYMBOLS = {"unknown_id": 1, "start_id": 2, "end_id": 3}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return FullTokenizer(path)


@pytest.fixture(scope="module")
def transformer(tokenizer):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    model = Transformer(TransformerConfig(len(PIECES), **sizes, **SYMBOLS, max_position_embeddings=12))
    return Translator(model, tokenizer, tokenizer)


@pytest.fixture(scope="module")
def bert():
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    return Bert(BertConfig(len(PIECES), **sizes, max_position_embeddings=16))


@pytest.fixture(scope="module")
def gpt_tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe")
    train_byte_pairs(["a"], 257).save(folder)
    return GPT2Tokenizer(folder)


@pytest.fixture(scope="module")
def gpt():
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return GPT(GPTConfig(257, **sizes, max_position_embeddings=12))


def sums_to_one(some):
    return all(np.allclose(layer.sum(-1), 1, atol=1e-5) for layer in some.layers)


def test_of_bert(bert, tokenizer):
    (some,) = bert_attention(bert, tokenizer, "The cat sat", "on the mat")
    assert some.rows == some.columns == "[CLS] the cat sat [SEP] on the mat [SEP]".split()
    assert len(some.layers) == 2 and some.layers[0].shape == (1, 2, 9, 9) and sums_to_one(some)
    inputs = {name: value[None] for name, value in tokenizer.encode("The cat sat", "on the mat").items()}
    expected = bert(inputs, return_attention_probs=True)["attention_probs"][1]
    np.testing.assert_array_equal(some.layers[1], expected)
    np.testing.assert_array_equal(some.matrix(0, 1), some.layers[0][0, 1])
    np.testing.assert_allclose(some.matrix(), some.layers[1][0].mean(0))
    with pytest.raises(ValueError, match="there is no layer 2"):
        some.matrix(2)
    with pytest.raises(ValueError, match="2 heads, from 0; there is no head 2"):
        some.matrix(0, 2)
    with pytest.raises(ValueError, match="the text has 22 pieces, max_position_embeddings is 16"):
        bert_attention(bert, tokenizer, "cat " * 20)


def test_of_a_gpt(gpt, gpt_tokenizer):
    text = "Sünde"
    (some,) = gpt_attention(gpt, gpt_tokenizer, text)
    assert some.name == "decoder" and some.rows == some.columns == ["S", "\ufffd", "\ufffd", "n", "d", "e"]
    assert len(some.layers) == 2 and sums_to_one(some)
    for layer in some.layers:
        np.testing.assert_array_equal(layer, np.tril(layer))  # nothing from later tokens
    expected = gpt({"input_ids": np.array([gpt_tokenizer.tokenize_to_ids(text)])}, return_attention_probs=True)
    np.testing.assert_allclose(some.layers[1], expected["attention_probs"][1], atol=1e-6)
    for wrong, count in (("", 0), ("x" * 13, 13)):
        with pytest.raises(ValueError, match=rf"the text has {count} tokens; expected 1 to 12"):
            gpt_attention(gpt, gpt_tokenizer, wrong)


def test_of_the_transformer(transformer):
    cross, encoder, decoder = translation_attention(transformer, "the cat sat", "on mat")
    assert cross.rows == ["on", "mat", "[SEP]"] and cross.columns == ["the", "cat", "sat", "[SEP]"]
    assert decoder.rows == ["[CLS]", "on", "mat"] and encoder.rows == cross.columns
    for some in (cross, encoder, decoder):
        assert len(some.layers) == 2 and sums_to_one(some)
    assert np.all(np.triu(decoder.layers[0][0, 0], 1) == 0)  # nothing is seen before it is written
    own = translation_attention(transformer, "the cat")[0]
    assert 1 <= len(own.rows) <= 12
    with pytest.raises(ValueError, match="the text is empty"):
        translation_attention(transformer, " ")
    with pytest.raises(ValueError, match="a source has 14 words, but max_position_embeddings is 12"):
        translation_attention(transformer, "cat " * 13)


def test_of_seq2seq(tokenizer):
    options = {"embedding_size": 4, "hidden_size": 4, **SYMBOLS}
    model = Seq2Seq(Seq2SeqConfig(len(PIECES), **options))
    (some,) = translation_attention(Translator(model, tokenizer, tokenizer), "the cat sat", "mat")
    assert some.layers[0].shape == (1, 1, 2, 4) and sums_to_one(some)
    plain = Seq2Seq(Seq2SeqConfig(len(PIECES), decoder="plain", **options))
    with pytest.raises(ValueError, match="'plain', which has no attention"):
        translation_attention(Translator(plain, tokenizer, tokenizer), "the cat", "mat")
    with pytest.raises(ValueError, match="has no positional encodings"):
        position_table(model)


def test_of_classifiers():
    sizes = {"num_labels": 2, "embedding_size": 4, "hidden_size": 4}
    model = AttentionClassifier(AttentionClassifierConfig(12, **sizes))
    (some,) = classifier_attention(model, [5, 6, 7], ["the", "cat", "sat"])
    assert some.layers[0].shape == (1, 1, 1, 3) and sums_to_one(some)
    model = AttentionClassifier(AttentionClassifierConfig(12, **sizes, hierarchical=True))
    sentences, *words = classifier_attention(model, [[5, 6], [7, 8, 9]], [["the", "cat"], ["on", "the", "mat"]])
    assert sentences.columns == ["sentence 1", "sentence 2"] and words[1].columns == ["on", "the", "mat"]
    assert all(map(sums_to_one, (sentences, *words)))


def test_positions(transformer, bert):
    table = position_table(transformer.model)
    assert table.shape == (12, 8)
    np.testing.assert_allclose(table[3, :2], [np.sin(3), np.cos(3)], rtol=1e-5)
    assert position_table(bert).shape == (16, 8)


def test_the_page_holds_the_weights_and_nothing_from_outside(transformer):
    maps = translation_attention(transformer, "the <b> cat", "mat")
    page = attention_page(maps, "</title><script>alert(1)</script>")
    assert not re.search(r"https?:|//|src=|@import|url\(", page.split("const data =")[0])
    assert page.count("<script>") == 1 and page.count("</script>") == 1
    data = json.loads(re.search(r"const data = (.*);\n", page)[1])
    assert data["title"] == "</title><script>alert(1)</script>"
    assert [some["heads"] for some in data["maps"]] == [[2, 2]] * 3
    first = np.frombuffer(base64.b64decode(data["maps"][0]["layers"][1]), "<u2") / 65535
    np.testing.assert_allclose(first.reshape(maps[0].layers[1][0].shape), maps[0].layers[1][0], atol=1e-5)


def test_shapes_must_fit():
    with pytest.raises(ValueError, match=r"shape \(1, 1, 2, 2\), for 3 tokens that look and 2"):
        AttentionMap("cross", [np.ones((1, 1, 2, 2))], ["a", "b", "c"], ["d", "e"])


def test_arrays_come_back(tmp_path, transformer):
    maps = translation_attention(transformer, "the cat", "mat")
    save_arrays(tmp_path / "a.npz", maps)
    with np.load(tmp_path / "a.npz") as arrays:
        np.testing.assert_array_equal(arrays["cross/layer_1"], maps[0].layers[1])
        assert list(arrays["encoder/rows"]) == ["the", "cat", "[SEP]"]


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    plot_matrix(tmp_path / "a.png", [[0.5, 0.5]], ["$x$", "\u2581b"], ["$"])
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"shape \(1, 2\), for 2 rows and 1 columns"):
        plot_matrix(tmp_path / "b.png", [[0.5, 0.5]], ["a"], ["b", "c"])
    assert not (tmp_path / "b.png").exists()


def test_without_matplotlib_a_line_says_what_to_install(monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'tf_bert\[plot\]'"):
        plot_matrix(tmp_path / "a.png", [[1.0]], ["a"], ["b"])


def test_the_command(tmp_path, transformer, bert, tokenizer, gpt, gpt_tokenizer, capsys):
    pytest.importorskip("matplotlib")
    save_translator(transformer.model, tmp_path / "model", tokenizer, tokenizer)
    bert.save_checkpoint(tmp_path / "bert", tokenizer=tokenizer)
    gpt.vocab_file = gpt_tokenizer.vocab_file
    gpt.save_checkpoint(tmp_path / "gpt")
    names = {"output_file": "a.html", "png_file": "a.png", "arrays_file": "a.npz", "positions_file": "p.svg"}
    wanted = [f"--{flag}={tmp_path}/{name}" for flag, name in names.items()]
    for folder, pair in (("model", ["--text_pair=mat"]), ("bert", ["--text_pair=on mat"]), ("gpt", [])):
        assert command.main([f"--checkpoint={tmp_path}/{folder}", "the cat", *pair, *wanted]) == 0
        assert all((tmp_path / name).stat().st_size > 500 for name in names.values())
        for name in names.values():
            (tmp_path / name).unlink()
    capsys.readouterr()
    model = f"--checkpoint={tmp_path}/model"
    for flags, message in (
        ([model, "the cat"], "say what to write"),
        ([model, wanted[0]], "there is no text to look at"),
        (
            [f"--checkpoint={tmp_path}/bert", "cat", wanted[1], "--kind=cross"],
            "this model has no cross attention, only",
        ),
        ([model, "the cat", "--text_pair=mat", wanted[1], "--head=7"], "there is no head 7"),
        ([f"--checkpoint={tmp_path}/gpt", "cat", "--text_pair=mat", wanted[0]], "a GPT reads one text"),
    ):
        assert command.main(flags) != 0
        error = capsys.readouterr().err.strip()
        assert message in error.splitlines()[-1]
