"""Stop texts: against a search of the text so far, for every kind of vocabulary, search and split of the tokens."""

import itertools
import random

import numpy as np
import pytest
from keras import ops

from tests.support.scripted_gpt import scripted_gpt
from tf_bert.decoding import stop_texts as module
from tf_bert.decoding.beam import BeamSearch
from tf_bert.decoding.constraints import Constraints
from tf_bert.decoding.language_model import generate, generate_text, stream_text
from tf_bert.decoding.loop import DecodingLoop, Setup
from tf_bert.decoding.output_text import output_text
from tf_bert.decoding.sampling import Greedy, Sampling, uniform_numbers
from tf_bert.decoding.stop_texts import StopTexts
from tf_bert.decoding.translation import translate
from tf_bert.tokenization import save_vocab
from tf_bert.tokenization.byte_pair import GPT1Tokenizer, GPT2Tokenizer
from tf_bert.tokenization.byte_pair_training import train_byte_pairs, train_lower_cased_pairs
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.sentence_piece import SentencePieceTokenizer, train_sentence_piece
from tf_bert.tokenization.written import written_pieces

CORPUS = ["the sun stands bravely .", "he stands , the sun said", "stands\n\nbravely\n\n", "the café"] * 5
KINDS = ["gpt2", "gpt1", "wordpiece", "sentencepiece"]
PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the sun stan ##ds brave ##ly . , he said b ##r".split()


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabularies")
    train_byte_pairs(CORPUS, 290).save(folder / "gpt2")
    train_lower_cased_pairs(CORPUS, 50).save(folder / "gpt1")
    save_vocab(PIECES, folder / "vocab.txt")
    train_sentence_piece(CORPUS, folder / "a.model", 45, "bpe")
    return {
        "gpt2": GPT2Tokenizer(folder / "gpt2"),
        "gpt1": GPT1Tokenizer(folder / "gpt1"),
        "wordpiece": FullTokenizer(folder / "vocab.txt"),
        "sentencepiece": SentencePieceTokenizer(folder / "a.model"),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_those_of_decoded_text(tokenizers, kind):
    tokenizer = tokenizers[kind]
    pieces, rng = written_pieces(tokenizer), np.random.default_rng(1)
    assert len(pieces) == tokenizer.vocab_size
    for _ in range(50):
        ids = [int(number) for number in rng.integers(0, tokenizer.vocab_size, 8)]
        text, expected = b"".join(pieces[number] for number in ids), tokenizer.decode(ids)
        if kind == "gpt2":
            assert text.decode(errors="replace") == expected
        else:  # a piece that continues a word keeps its marks where there is no word
            text = text.decode().lstrip()
            assert (text.rstrip() if kind == "gpt1" else text) == expected.removeprefix("##")


def ended_by(pieces, ids, stops):
    """By a search of the whole text after each token: how many are needed, and what is behind the stop text."""
    for count in range(1, len(ids) + 1):
        text, before = (b"".join(pieces[number] for number in ids[:n]) for n in (count, count - 1))
        ends = [end for end in range(len(before) + 1, len(text) + 1) if any(text[:end].endswith(s) for s in stops)]
        if ends:
            return count, len(text) - ends[0]
    return None


def test_any_tokens_and_any_stop_texts(tokenizers):
    """Random bytes, also parts of characters; texts that overlap themselves and each other."""
    tokenizer, rnd = tokenizers["gpt2"], random.Random(0)
    pieces, letters, found = written_pieces(tokenizer), b"ab \n\xc3\xa9st", 0
    for trial in range(150):
        stops = [bytes(rnd.choices(letters, k=rnd.randint(1, 5))) for _ in range(rnd.randint(1, 3))]
        texts = StopTexts(stops, tokenizer)
        some = tokenizer.tokenize_to_ids(letters) + list(range(256, tokenizer.vocab_size))
        ids = rnd.choices(some, k=40)
        expected = ended_by(pieces, ids, stops)
        count, behind = expected or (40, -1)
        text = b"".join(pieces[number] for number in ids[:count])
        assert texts.cut(ids[:count]) == (text[: len(text) - behind].decode(errors="replace") if expected else None)
        assert texts.cut(ids[: count - 1]) is None
        if trial < 6:  # as an exported graph does
            lengths = np.array([count - 1, count], "int32")
            assert list(np.asarray(texts.beyond_last(np.array([ids, ids], "int32"), lengths))) == [-1, behind]
        found += expected is not None
    assert 30 < found < 140


class Script:
    """A model that writes given tokens, each by far the likeliest."""

    def __init__(self, tokenizer, texts):
        self.vocab_size, self.end = tokenizer.vocab_size + 1, tokenizer.vocab_size
        rows = [tokenizer.tokenize_to_ids(text) for text in texts]
        self.length = max(map(len, rows)) + 1
        self.rows = np.array([row + [self.end] * (self.length - len(row)) for row in rows])

    def step(self, tokens, index, state):
        rows = self.rows[np.asarray(state)[:, 0], int(index)]
        noise = np.random.default_rng(int(index)).normal(size=(len(rows), self.vocab_size))
        return ops.convert_to_tensor(noise + 30.0 * np.eye(self.vocab_size)[rows], "float32"), state, None


def write_out(tokenizer, texts, stops, search=None, **options):
    """What is left of texts that a model wants to write, and how many tokens."""
    script, search = Script(tokenizer, texts), search or Greedy()
    constraints = Constraints(stop_texts=stops, **options).with_tokenizer(tokenizer)
    limits = ops.full((len(texts),), script.length, "int32")
    uniform = uniform_numbers(range(len(texts)), search.width, script.length)
    setup = Setup(script.vocab_size, script.end, 0, script.length, limits, constraints, uniform=uniform)
    rows = np.repeat(np.arange(len(texts)), search.width)[:, None]
    found = DecodingLoop(script.step, search, setup).run(np.zeros(len(texts), "int32"), rows)
    best = zip(np.asarray(found["tokens"])[:, 0], np.asarray(found["lengths"])[:, 0], strict=True)
    return [(output_text(tokens[:n], tokenizer, script.end, constraints), int(n)) for tokens, n in best]


def left(tokenizer, text, *stops, search=None, **options):
    return write_out(tokenizer, [text], stops, search, **options)[0][0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_ends_with_the_stop_text_however_its_tokens_fall(tokenizers, kind):
    tokenizer, text = tokenizers[kind], "the sun stands bravely ."
    assert tokenizer.decode(tokenizer.tokenize_to_ids(text)) == text
    for stop in ("stands", " stands", "ds b", "n stands bra", "un", "the", ".", " ."):
        assert left(tokenizer, text, stop) == text[: text.index(stop) + len(stop)]
    assert left(tokenizer, text, "sun sun") == text
    assert left(tokenizer, text, "bravely .") == text == left(tokenizer, text)
    assert left(tokenizer, text, "bravely", "ds b", "said") == "the sun stands b"  # the first to be complete


@pytest.mark.parametrize("search", [Greedy(), Sampling(), BeamSearch(3), BeamSearch(2, length_penalty=1.0)])
def test_every_search_and_batches(tokenizers, search):
    texts = ["the sun stands bravely", "he said", "stands", "he stands he stands"]
    for kind in ("gpt2", "wordpiece"):
        found = write_out(tokenizers[kind], texts, ["ds b", "he st"], search)
        assert [text for text, _ in found] == ["the sun stands b", "he said", "stands", "he st"]
        alone = [write_out(tokenizers[kind], [text], ["ds b", "he st"], search)[0] for text in texts]
        assert alone == found


def test_a_token_of_two_line_ends(tokenizers):
    tokenizer, text = tokenizers["gpt2"], "stands\n\n"
    assert tokenizer.tokenize(text)[-1] == "\u010a\u010a"
    assert write_out(tokenizer, [text], ["\n"]) == [("stands\n", len(tokenizer.tokenize(text)))]
    assert write_out(tokenizer, [text], ["\n\n"]) == [(text, len(tokenizer.tokenize(text)))]


def test_text_before_the_least_length_does_not_count(tokenizers):
    tokenizer, text = tokenizers["gpt2"], "the sun the sun the sun"
    count = len(tokenizer.tokenize("the sun"))
    for search in (Greedy(), BeamSearch(3)):
        assert left(tokenizer, text, "sun", search=search) == "the sun"
        assert left(tokenizer, text, "sun", search=search, min_length=count + 1) == "the sun the sun"
    assert left(tokenizer, "abaaba", "aba", min_length=4) == "abaaba"


def test_bytes_of_a_character(tokenizers):
    tokenizer = tokenizers["gpt2"]
    assert left(tokenizer, "cafés", "é") == "café"
    assert left(tokenizer, "cafés", b"\xc3") == "caf\ufffd" and left(tokenizer, "cafés", b"\xa9") == "café"
    assert left(tokenizer, "cafe\u0301", "é") == "cafe\u0301"  # other bytes


def test_text_is_compared_as_the_vocabulary_writes_it(tokenizers):
    """A model that knows lower case alone, and single blanks, never writes anything else."""
    for kind in ("gpt1", "wordpiece"):
        assert left(tokenizers[kind], "the sun stands bravely", "STANDS\tBrave") == "the sun stands brave"
        assert left(tokenizers[kind], "he said , the sun", "said,") == "he said ,"
    assert left(tokenizers["gpt2"], "the sun stands", "STANDS", "sun  stands") == "the sun stands"
    assert left(tokenizers["sentencepiece"], "the sun stands", "sun  ｓtands") == "the sun stands"
    assert left(tokenizers["gpt1"], "the sun stands", "sun ") == "the sun "


@pytest.mark.parametrize(
    ("kind", "stops", "message"),
    [
        ("gpt2", [""], "at least one character"),
        ("gpt2", ["a", b""], "at least one character"),
        ("gpt2", "ab", "takes a list of texts, not 'ab'"),
        ("gpt1", ["\n"], r"stop text '\\n' can never occur: .*encoder.json writes words and blanks"),
        ("gpt1", ["sun", "Ж"], "stop text 'Ж' can never occur: .*encoder.json has no pieces for it"),
        ("wordpiece", ["xyz"], "stop text 'xyz' can never occur: .*vocab.txt has no pieces for it"),
        ("sentencepiece", ["\n\n"], "can never occur"),
    ],
)
def test_stop_texts_that_cannot_be(tokenizers, kind, stops, message):
    with pytest.raises(ValueError, match=message):
        Constraints(stop_texts=stops).with_tokenizer(tokenizers[kind])


def test_ids_need_a_tokenizer(tokenizers):
    model = scripted_gpt(tokenizers["gpt2"], "the sun", 1)
    with pytest.raises(ValueError, match=r"need the texts of the ids: give constraints.with_tokenizer"):
        generate(model, [[5]], constraints=Constraints(stop_texts=["a"]), max_length=2)
    with pytest.raises(ValueError, match="a dict does not say what text its ids stand for"):
        StopTexts(["a"], {})


def test_beam_is_exhaustive_search_where_it_is_wide_enough(monkeypatch):
    """All outputs of up to four tokens; those that hold a stop text earlier are none."""
    pieces = [b"", b"ab", b"b", b"c"]
    monkeypatch.setattr(module, "written_pieces", lambda tokenizer: pieces)
    monkeypatch.setattr(module, "keeps_every_byte", lambda tokenizer: True)
    monkeypatch.setattr(module, "as_written", lambda text, tokenizer: text)
    texts, rng = StopTexts([b"bb", b"ca"], None), np.random.default_rng(3)
    weights = rng.normal(size=(4, 4, 4))  # by the last token and the number of tokens

    def step(tokens, index, state):
        return ops.convert_to_tensor(weights[int(index)][np.asarray(tokens)]), state, None

    def score(tokens):
        rows = [weights[place][before] for place, before in enumerate([0, *tokens[:-1]])]
        return sum(row[token] - np.log(np.exp(row).sum()) for row, token in zip(rows, tokens, strict=True))

    def complete(tokens):
        ends = [n for n in range(1, len(tokens) + 1) if tokens[n - 1] == 0 or ended_by(pieces, tokens[:n], texts.texts)]
        return ends[:1] == [len(tokens)] or (not ends and len(tokens) == 4)

    every = [list(t) for n in range(1, 5) for t in itertools.product(range(4), repeat=n) if complete(list(t))]
    setup = Setup(4, 0, 0, 4, ops.full((1,), 4, "int32"), Constraints(stop_texts=texts), dtype="float64")
    found = DecodingLoop(step, BeamSearch(64, n_best=20), setup).run(np.zeros(1, "int32"), np.zeros((64, 1)))
    for rank, tokens in enumerate(sorted(every, key=score, reverse=True)[:20]):
        length = int(found["lengths"][0, rank])
        assert np.asarray(found["tokens"])[0, rank, :length].tolist() == tokens
        assert float(found["scores"][0, rank]) == pytest.approx(score(tokens), abs=1e-10)


def test_what_goes_on_with_texts(tokenizers):
    """Compiled and streamed; only new text counts."""
    tokenizer, prompt = tokenizers["gpt2"], "bravely stands"
    first = len(tokenizer.tokenize(prompt)) - 1
    model = scripted_gpt(tokenizer, " the sun stands bravely\n\nand", first)
    for stop, text in (
        ("ds b", " the sun stands b"),
        ("stands the", " the sun stands bravely\n\nand"),  # its beginning is the prompt's end
    ):
        options = {"max_length": 24, "constraints": Constraints(stop_texts=[stop])}
        assert generate_text(model, [prompt], tokenizer, **options) == [text]
    assert "".join(stream_text(model, prompt, tokenizer, **options)) == text
    options["constraints"] = Constraints(stop_texts=("ds b",))
    assert "".join(stream_text(model, prompt, tokenizer, **options)) == " the sun stands b"
    assert generate_text(model, [prompt], tokenizer, BeamSearch(2), **options) == [" the sun stands b"]
    count = len(vars(model)["_decoding_graphs"])
    generate_text(model, [prompt], tokenizer, **options)
    assert len(vars(model)["_decoding_graphs"]) == count  # kept by their stop texts


@pytest.mark.slow
def test_compiled_by_xla(tokenizers):
    tokenizer, prompt = tokenizers["gpt2"], "bravely stands"
    model = scripted_gpt(tokenizer, " the sun stands bravely", len(tokenizer.tokenize(prompt)) - 1)
    options = {"constraints": Constraints(stop_texts=["ds b"]), "max_length": 20, "jit_compile": True}
    for search in (Greedy(), BeamSearch(2)):
        assert generate_text(model, [prompt], tokenizer, search, **options) == [" the sun stands b"]


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_translations_end_too(tokenizers, kind, monkeypatch):
    import tf_bert.decoding.translation as translation

    tokenizer, given = tokenizers[kind], {}

    def write(models, filled, search=None, constraints=None, **options):
        given["constraints"] = constraints
        return {"tokens": np.array([[tokens]] * len(filled)), "lengths": np.full((len(filled), 1), len(tokens))}

    tokens = tokenizer.tokenize_to_ids("the sun stands br")
    monkeypatch.setattr(translation, "generate", write)
    monkeypatch.setattr(translation, "check_models", lambda *arguments: None)
    model = type("Model", (), {"config": type("Config", (), {"end_id": 3})})
    assert translate([model], ["he"], tokenizer, constraints=Constraints(stop_texts=["s br"])) == ["the sun stands br"]
    assert given["constraints"].stops.texts == ("s br",)
    assert translate([model], ["he"], tokenizer) == ["the sun stands br"]
    with pytest.raises(ValueError, match="copy_unknown writes words that stop_texts cannot see"):
        translate([model], ["he"], tokenizer, copy_unknown=True, constraints=Constraints(stop_texts=["he"]))
