"""The command that compares a word's vectors in two contexts, on small models of each kind."""

import numpy as np
import pytest

from tf_bert.commands.senses import main
from tf_bert.configs import BertConfig, ElmoConfig, GPTConfig
from tf_bert.models.bert import Bert
from tf_bert.models.elmo import Elmo
from tf_bert.models.gpt import GPT
from tf_bert.tokenization import FullTokenizer, save_vocab
from tf_bert.tokenization.byte_pair_training import train_byte_pairs
from tf_bert.visualization.senses import cosine, word_vectors

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


@pytest.fixture
def senses(tmp_path):
    """A file of one word in two senses, with two texts each."""
    path = tmp_path / "senses.tsv"
    river = ["They sat on the bank of the river.", "On the bank they sat."]
    money = ["The bank lent him money.", "They lent the bank money."]
    rows = [("river", text) for text in river] + [("money", text) for text in money]
    path.write_text("".join(f"bank\t{sense}\t{text}\n" for sense, text in rows), encoding="utf-8")
    return path


def test_a_table_and_a_picture_of_a_file(folder, senses, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    flags = [f"--checkpoint={folder}/bert,{folder}/elmo", f"--input_file={senses}", f"--png_file={tmp_path}/a.png"]
    assert main(flags) == 0, capsys.readouterr().err
    title, bert, *rows = capsys.readouterr().out.splitlines()
    assert "same sense" in title and bert == f"{folder}/bert" and rows[3] == f"{folder}/elmo" and len(rows) == 7
    for row in (rows[0], rows[4]):  # the same pieces in each text: all are as near, and 1 of 3 others is right
        assert row.split() == ["bank", "static", "1.000", "1.000", "33%"]
    model, tokenizer = Bert.from_checkpoint(folder / "bert"), FullTokenizer(folder / "vocab.txt")
    texts = [line.split("\t")[2] for line in senses.read_text(encoding="utf-8").splitlines()]
    a, b, c, d = (word_vectors(model, tokenizer, "bank", text)["layer 2"] for text in texts)
    same = np.mean([cosine(a, b), cosine(c, d)])
    other = np.mean([cosine(x, y) for x in (a, b) for y in (c, d)])
    assert rows[2].split()[2:4] == [f"{same:.3f}", f"{other:.3f}"]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bank\triver", "senses.tsv: line 5: found 2 columns, expected 3: word, sense, text"),
        ("crane\tbird\tA heron.", "senses.tsv: line 5: the word 'crane' does not stand in the text 'A heron.'"),
        ("crane\tbird\tA crane.", "the word 'crane' has 1 of 'bird'; expected two senses with two texts each"),
    ],
)
def test_a_bad_file(senses, capsys, line, said):
    with open(senses, "a", encoding="utf-8") as file:
        file.write(line + "\n")
    assert main(["--checkpoint=nowhere", f"--input_file={senses}"]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--input_file=a.tsv", "--word=bank"], "not both"),
        (["--word=bank", "--text=A bank."], "give --word, --text and --other_text, or --input_file"),
        (["--word=a", "--text=a", "--other_text=a", "--png_file=a.png"], "--png_file draws what --input_file gives"),
    ],
)
def test_flags_that_do_not_go_together(capsys, flags, said):
    assert main(["--checkpoint=nowhere", *flags]) == 2
    assert said in capsys.readouterr().err
