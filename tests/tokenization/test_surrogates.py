"""Halves of surrogate pairs, as in JSON that was cut inside an emoji: every tokenizer gives one defined result."""

import pytest

from tf_bert.tokenization import (
    BasicTokenizer,
    FullTokenizer,
    GPT1Tokenizer,
    GPT2Tokenizer,
    SentencePieceTokenizer,
    WordpieceTokenizer,
    save_vocab,
)
from tf_bert.tokenization.byte_pair_training import train_byte_pairs, train_lower_cased_pairs
from tf_bert.tokenization.sentence_piece import train_sentence_piece

PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##b".split()
TEXTS = ["a \ud800 b", "a\ud83d", "\udcffa", "\ud83d\ude00 a", "a \udfff"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabularies")
    save_vocab(PIECES, folder / "vocab.txt")
    train_byte_pairs(["a ab \ud83d \udcff"], 260).save(folder / "gpt2")
    train_lower_cased_pairs(["a ab b"], 20).save(folder / "gpt1")
    train_sentence_piece(["a b ab", "a\ud83d"] * 9, folder / "a.model", 9, "bpe")
    return folder


@pytest.mark.parametrize("lower", [True, False])
def test_wordpiece_has_no_piece_for_them(folder, lower):
    """As the original: a surrogate is an ordinary character, which no vocabulary holds."""
    full = FullTokenizer(folder / "vocab.txt", do_lower_case=lower)
    assert [full.tokenize(text) for text in TEXTS] == [
        ["a", "[UNK]", "b"],
        ["[UNK]"],
        ["[UNK]"],
        ["[UNK]", "a"],
        ["a", "[UNK]"],
    ]
    assert BasicTokenizer(lower).tokenize(TEXTS[0]) == ["a", "\ud800", "b"]
    assert WordpieceTokenizer(PIECES).tokenize(TEXTS[0]) == ["a", "[UNK]", "b"]
    assert full.tokenize_with_offsets(TEXTS[0])[1] == [(0, 1), (2, 3), (4, 5)]


def test_bytes_are_those_of_the_replacement_character(folder):
    """But what ``surrogateescape`` made of a byte becomes that byte again."""
    tokenizer = GPT2Tokenizer(folder / "gpt2")
    bytes_of = [tokenizer.decode_bytes(tokenizer.tokenize_to_ids(text)) for text in TEXTS]
    half = "\ufffd".encode()
    assert bytes_of == [b"a " + half + b" b", b"a" + half, b"\xffa", half + half + b" a", b"a " + half]
    assert tokenizer.tokenize_with_offsets(TEXTS[1])[1][-1] == (1, 2)


def test_gpt1_does_not_know_them(folder):
    tokenizer = GPT1Tokenizer(folder / "gpt1")
    assert tokenizer.tokenize(TEXTS[0]) == ["a</w>", "<unk>", "b</w>"]
    assert tokenizer.tokenize_with_offsets(TEXTS[3]) == (["<unk>", "<unk>", "a</w>"], [(0, 1), (1, 2), (3, 4)])


def test_sentence_piece_reads_the_replacement_character(folder):
    tokenizer = SentencePieceTokenizer(folder / "a.model")
    for text in TEXTS:
        plain = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
        assert tokenizer.tokenize(text) == tokenizer.tokenize(plain)
        assert tokenizer.encode(text) == tokenizer.encode(plain)
        assert tokenizer.tokenize_with_offsets(text) == tokenizer.tokenize_with_offsets(plain)
    assert tokenizer.convert_tokens_to_ids(["\ud83d"]) == [tokenizer.unknown_id]
    assert tokenizer.detokenize(["▁a", "\ud83d"]) == "a\ufffd"
    with pytest.raises(ValueError, match="text must be str or bytes, not int"):
        tokenizer.tokenize(7)


def test_the_graph_agrees(folder):
    pytest.importorskip("tensorflow_text")
    from tf_bert.tokenization.in_graph import InGraphTokenizer
    from tf_bert.tokenization.in_graph_gpt1 import in_graph_layer

    full, layer = FullTokenizer(folder / "vocab.txt"), InGraphTokenizer(PIECES, max_seq_length=8)
    assert layer.tokenize(TEXTS).to_list() == list(map(full.tokenize_to_ids, TEXTS))
    ids, starts, ends = (ragged.to_list() for ragged in layer.tokenize_with_offsets(TEXTS))
    for text, spans in zip(TEXTS, map(zip, starts, ends), strict=True):
        assert list(spans) == full.tokenize_with_offsets(text)[1]
    both = layer(TEXTS, tuple(TEXTS))["input_ids"].numpy()
    assert both.tolist() == full.encode_batch(TEXTS, TEXTS, 8)["input_ids"].tolist()
    assert layer(TEXTS[1])["input_ids"].numpy().tolist()[:3] == [2, 1, 3]
    for tokenizer in (GPT2Tokenizer(folder / "gpt2"), GPT1Tokenizer(folder / "gpt1")):
        layer = in_graph_layer(tokenizer)
        assert layer.tokenize(TEXTS).to_list() == list(map(tokenizer.tokenize_to_ids, TEXTS))
        assert layer([TEXTS[1]])["input_ids"].numpy().tolist() == [tokenizer.tokenize_to_ids(TEXTS[1])]
