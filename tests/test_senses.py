"""The command that compares a word's vectors in two contexts, on small models of each kind."""

import numpy as np
import pytest

from tf_bert.commands.senses import cosine, main, word_vectors
from tf_bert.configs import BertConfig, ElmoConfig, GPTConfig
from tf_bert.models.bert import Bert
from tf_bert.models.elmo import Elmo
from tf_bert.models.gpt import GPT
from tf_bert.tokenization import FullTokenizer, save_vocab
from tf_bert.tokenization.byte_pair_training import train_byte_pairs

TEXTS = "They sat on the Bank of the river.", "The bank lent him money."
SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A GPT, a BERT and an ELMo with random weights."""
    path = tmp_path_factory.mktemp("senses")
    train_byte_pairs(TEXTS, 270, min_frequency=1).save(path / "elmo")
    gpt = GPT(GPTConfig(270, pre_norm=True, **SIZES))
    gpt.vocab_file = str(path / "elmo" / "encoder.json")
    gpt.save_checkpoint(path / "gpt")
    Elmo(ElmoConfig(270, hidden_size=4)).save(path / "elmo" / "elmo.keras")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] they sat on the ban ##k of river lent him money .".split()
    save_vocab(words, path / "vocab.txt")
    Bert(BertConfig(len(words), **SIZES)).save_checkpoint(path / "bert", tokenizer=FullTokenizer(path / "vocab.txt"))
    return path


def test_a_line_for_each_model(folder, capsys):
    paths = ",".join(str(folder / name) for name in ("bert", "gpt", "elmo"))
    flags = [f"--checkpoint={paths}", "--word=bank", f"--text={TEXTS[0]}", f"--other_text={TEXTS[1]}"]
    assert main(flags) == 0, capsys.readouterr().err
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert [word for word in line.split() if not word[0].isdigit() and word[0] != "-"][1:] == [
            "static",
            "layer",
            "layer",
        ]
    assert "static  1.000" in lines[0]  # lower-cased: the same two pieces


def test_vectors_are_the_means_over_the_pieces(folder):
    bert, tokenizer = Bert.from_checkpoint(folder / "bert"), FullTokenizer(folder / "vocab.txt")
    vectors = word_vectors(bert, tokenizer, "bank", TEXTS[1])
    ids = [2, *tokenizer.tokenize_to_ids(TEXTS[1]), 3]
    assert tokenizer.tokenize(TEXTS[1])[1:3] == ["ban", "##k"]
    layers = bert({"input_ids": np.array([ids])})["all_encoder_layers"]
    np.testing.assert_allclose(vectors["layer 2"], np.mean(layers[1][0, 2:4], axis=0), rtol=1e-6)
    assert cosine(vectors["static"], vectors["static"]) == pytest.approx(1.0)


def test_a_word_that_is_not_there(folder, capsys):
    flags = [f"--checkpoint={folder}/bert", "--word=crane", f"--text={TEXTS[0]}", f"--other_text={TEXTS[1]}"]
    assert main(flags) == 1
    error = capsys.readouterr().err
    assert "the word 'crane' does not stand in the text 'They sat" in error and error.count("\n") == 1
