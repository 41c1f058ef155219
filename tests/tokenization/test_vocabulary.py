"""Files of vocabularies: any bytes are read or refused in one line, and what is taken for one by mistake is named."""

import json
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_bert.tokenization.byte_pair import GPT1Tokenizer, GPT2Tokenizer
from tf_bert.tokenization.byte_pair_training import train_byte_pairs, train_lower_cased_pairs
from tf_bert.tokenization.byte_pair_vocabulary import read_encoder, read_merges
from tf_bert.tokenization.sentence_piece import SentencePieceTokenizer, train_sentence_piece
from tf_bert.tokenization.vocabulary import load_vocab, read_vocab_lines, save_vocab, vocab_size

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s".split()


@pytest.mark.parametrize(
    "data, said",
    [
        (json.dumps({piece: i for i, piece in enumerate(VOCABULARY)}).encode(), "it holds JSON, an object"),
        (json.dumps(VOCABULARY, indent=1).encode(), "it holds JSON, a list"),
        ("\n".join(VOCABULARY).encode("utf-16-le"), "it holds NUL bytes, as a SentencePiece model or UTF-16 text"),
        ("\r".join(VOCABULARY).encode(), "its lines end in carriage returns alone"),
        ("".join(f"{piece}\t-3.5\n" for piece in VOCABULARY).encode(), r"8 of its 8 lines hold blanks, such as '\[PAD"),
        (b"It was late.\nNobody knew.\nEnd\n", "2 of its 3 lines hold blanks, such as 'It was late.' on line 1"),
        (b"the\n\xe9t\xe9\n", "line 2: not valid UTF-8 at byte offset 4"),
    ],
)
def test_what_is_no_vocabulary(tmp_path, data, said):
    path = tmp_path / "vocab.txt"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=said) as error:
        load_vocab(path)
    assert str(error.value).startswith(str(path))


def test_pieces_with_blanks_are_counted(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*VOCABULARY, "New York", "the\u00a0end"]))
    with pytest.warns(
        UserWarning, match="vocab.txt: 2 pieces hold blanks, such as 'New York' on line 9, and are in no"
    ):
        assert len(read_vocab_lines(path)) == 10


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60) | st.lists(st.sampled_from(VOCABULARY)).map(lambda pieces: "\r\n".join(pieces).encode()))
def test_any_bytes_are_a_vocabulary_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            pieces = read_vocab_lines(path)
        except ValueError as error:
            assert str(error).startswith(str(path))
            return
        assert vocab_size(load_vocab(path)) == len(pieces) == data.count(b"\n") + (not data.endswith(b"\n"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), max_size=5), min_size=1, max_size=9))
def test_what_is_saved_is_read_again(tmp_path_factory, pieces):
    path = tmp_path_factory.getbasetemp() / "saved.txt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            save_vocab(pieces, path)
            assert read_vocab_lines(path) == pieces
        except ValueError as error:
            assert not any(pieces) or any(piece.strip() != piece or len(piece.split()) > 1 for piece in pieces), error


@pytest.mark.parametrize(
    "text, said",
    [
        ("\ufeff#version: 0.2\na b\na b\n", "line 3: the merge 'a b' is that of line 2 again"),
        ("a b\nab  c\n", "line 2: expected two pieces with a blank between them, found 'ab  c'"),
        ('{"a b": 1}', "line 1: expected two pieces"),
        ("a b\n\nc d\n", "line 2: expected two pieces"),
    ],
)
def test_what_are_no_merges(tmp_path, text, said):
    path = tmp_path / "merges.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{path}, {said}"):
        read_merges(path)


def test_repeated_pieces_of_an_encoder_are_named(tmp_path):
    (tmp_path / "encoder.json").write_text('{"a": 0, "b": 1, "a": 2}')
    with pytest.raises(ValueError, match="encoder.json: an object has the name 'a' twice"):
        read_encoder(tmp_path / "encoder.json")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Files of all kinds of vocabularies but WordPiece, and how each is loaded."""
    folder = tmp_path_factory.mktemp("vocabularies")
    train_byte_pairs(["low lower lowest"], 260).save(folder / "gpt2")
    train_lower_cased_pairs(["low lower lowest"], 20).save(folder / "gpt1")
    train_sentence_piece(["a b c low lower"] * 9, folder / "a.model", 18, "bpe")
    return folder


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_damaged_files_are_refused_or_work(folders, tmp_path_factory, data):
    load, names = data.draw(
        st.sampled_from(
            [
                (GPT2Tokenizer, ["gpt2/encoder.json", "gpt2/vocab.bpe"]),
                (GPT1Tokenizer, ["gpt1/encoder.json", "gpt1/vocab.bpe"]),
                (SentencePieceTokenizer, ["a.model"]),
            ]
        )
    )
    damaged = data.draw(st.sampled_from(names))
    paths = []
    for name in names:
        content = (folders / name).read_bytes()
        if name == damaged:
            start = data.draw(st.integers(0, len(content)))
            content = (
                content[:start] + data.draw(st.binary(max_size=3)) + content[start + data.draw(st.integers(0, 9)) :]
            )
        paths.append(tmp_path_factory.getbasetemp() / name.replace("/", "-"))
        paths[-1].write_bytes(content)
    try:
        tokenizer = load(*paths)
    except ValueError as error:
        assert any(str(path) in str(error) for path in paths)
        return
    ids = tokenizer.tokenize_to_ids("a low é")
    assert all(0 <= number < tokenizer.vocab_size for number in ids)
    tokenizer.decode(ids)
