"""``tf-bert fill_mask`` on lines of standard input."""

import io
import sys

import pytest

from tf_bert import BertConfig, BertForMaskedLM, FullTokenizer
from tf_bert.commands import fill_mask
from tf_bert.tokenization import save_vocab

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] sun rain wet the is".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    save_vocab(WORDS, path / "vocab.txt")
    config = BertConfig(len(WORDS), 8, 1, 2, 16, max_position_embeddings=12, type_vocab_size=2)
    BertForMaskedLM(config).save_checkpoint(path / "bert", tokenizer=FullTokenizer(path / "vocab.txt"))
    return path / "bert"


def fill(folder, monkeypatch, lines: bytes, *flags):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    return fill_mask.main([f"--checkpoint={folder}", "--top_k=1", *flags])


def test_each_line_has_its_table_and_empty_lines_stay(folder, monkeypatch, capsys):
    assert fill(folder, monkeypatch, b"the [MASK]\n\n  \n[MASK] is [MASK]\r\n") == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if not line.startswith(" ")] == ["the [MASK]", "", "", "[MASK] is [MASK]"]
    assert len(shown) == 4 + 1 + 4


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"the [MASK]\n\nthe sun\n", "standard input: line 3: there is no [MASK] in 'the sun'"),
        (b"[MASK]\n[MASK]" + b" sun" * 20 + b"\n", "standard input: line 2 has 23 pieces, and the model reads 12"),
        (b"[MASK]\n\xff\n", "standard input: line 2: not valid UTF-8"),
        (b"\n\n", "there is no text"),
    ],
)
def test_a_wrong_line_is_named_before_the_first_is_filled(folder, monkeypatch, lines, message, capsys):
    assert fill(folder, monkeypatch, lines) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and message in shown.err
