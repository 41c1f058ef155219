"""SentencePiece and WordPiece as vocabularies of translation."""

import pytest
import sentencepiece

from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.sentence_piece import SentencePieceTokenizer, train_sentence_piece
from tf_bert.tokenization.subwords import load_subwords, symbols_of, train_subwords

LINES = [
    "The quick brown fox jumps over the lazy dog.",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "Überall blühen Blumen, überall singen Vögel!",
    "3.14 is not 3,14; but café is café.",
] * 5


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("spm") / f"{request.param}.model"
    return SentencePieceTokenizer(train_sentence_piece(LINES, path, 120, request.param))


def test_there_and_back(tokenizer):
    for line in LINES[:4]:
        pieces = tokenizer.tokenize(line)
        assert tokenizer.decode(tokenizer.encode(line)) == line
        assert tokenizer.convert_tokens_to_ids(pieces) == tokenizer.encode(line) == tokenizer.tokenize_to_ids(line)
        assert tokenizer.convert_ids_to_tokens(tokenizer.encode(line)) == pieces
    assert len(tokenizer.tokenize(LINES[0])) < len(LINES[0])  # not all single characters


def test_the_library_itself_loads_the_model(tokenizer):
    processor = sentencepiece.SentencePieceProcessor(model_file=tokenizer.vocab_file)
    assert processor.encode(LINES[1]) == tokenizer.encode(LINES[1])
    assert [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()] == [0, 1, 2, 3]


def test_unknown_characters_and_empty_text(tokenizer):
    assert tokenizer.unknown_id in tokenizer.encode("fox 狐")
    assert tokenizer.encode("") == [] and tokenizer.decode([]) == ""
    assert tokenizer.decode([2, *tokenizer.encode("the fox"), 3, 0]) == "the fox"
    with pytest.raises(KeyError, match="id 999 is not one of the"):
        tokenizer.decode([999])


def test_offsets(tokenizer):
    text = "the lazy café 狐 dog"
    pieces, spans = tokenizer.tokenize_with_offsets(text)
    assert pieces == tokenizer.tokenize(text)
    for piece, (start, end) in zip(pieces, spans, strict=True):
        assert text[start:end] == piece.replace("▁", "") or not piece.strip("▁")
    assert "狐" in [text[start:end] for start, end in spans]


def test_the_same_ids_in_the_graph(tokenizer):
    tf = pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_text")
    processor = tokenizer.in_graph()
    ids = tf.function(processor.tokenize)(tf.constant(LINES[:4])).to_list()
    assert ids == [tokenizer.encode(line) for line in LINES[:4]]
    assert processor.detokenize(ids[1]).numpy().decode() == LINES[1]


def test_training_is_repeatable_and_folds_case(tmp_path):
    first, second = (train_sentence_piece(LINES, tmp_path / f"{i}.model", 90) for i in range(2))
    assert SentencePieceTokenizer(first).model == SentencePieceTokenizer(second).model
    lower = SentencePieceTokenizer(train_sentence_piece(LINES, tmp_path / "l.model", 90, lower_case=True))
    assert lower.encode("THE FOX") == lower.encode("the fox")


def odd_lines():
    yield from LINES[:2]
    raise ValueError("line 3 is odd")


def test_what_cannot_be_trained_or_loaded(tmp_path):
    with pytest.raises(ValueError, match="one of unigram, bpe, char, word, not 'bytes'"):
        train_sentence_piece(LINES, tmp_path / "a.model", 90, "bytes")
    with pytest.raises(ValueError, match="no SentencePiece model of 5 pieces"):
        train_sentence_piece(LINES, tmp_path / "a.model", 5)
    with pytest.raises(ValueError, match="no SentencePiece model of 90"):
        train_sentence_piece([], tmp_path / "a.model", 90)
    with pytest.raises(ValueError, match=r"^line 3 is odd$"):
        train_sentence_piece(odd_lines(), tmp_path / "a.model", 90)
    assert not (tmp_path / "a.model").exists()
    (tmp_path / "b.model").write_bytes(b"not a model")
    with pytest.raises(ValueError, match="b.model is no SentencePiece model"):
        load_subwords(tmp_path / "b.model")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load_subwords(tmp_path / "none.model")


def test_a_vocabulary_without_the_end_symbol(tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("[PAD]\n[UNK]\n[CLS]\nthe\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"vocab.txt lacks the end symbol \(\[SEP\]\)"):
        load_subwords(vocab)
    stem = str(tmp_path / "no_end")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_prefix=stem, vocab_size=60, eos_id=-1, pad_id=0, unk_id=1, bos_id=2
    )
    with pytest.raises(ValueError, match=r"no_end.model lacks the end symbol \(eos\)"):
        load_subwords(stem + ".model")


def test_wordpiece_for_translation(tmp_path):
    path = train_subwords(lambda: LINES, str(tmp_path / "vocab"), "wordpiece", 200)
    tokenizer = load_subwords(path)
    assert isinstance(tokenizer, FullTokenizer)
    symbols = symbols_of(tokenizer)
    assert tokenizer.convert_ids_to_tokens(symbols.values()) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    assert tokenizer.decode(tokenizer.tokenize_to_ids("Der Fuchs")) == "Der Fuchs"
    assert tokenizer.tokenize_to_ids("狐") == [symbols["unknown_id"]]
    with pytest.raises(ValueError, match="no words"):
        train_subwords(list, str(tmp_path / "none"), "wordpiece", 200)
