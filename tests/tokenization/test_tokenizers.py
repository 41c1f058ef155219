"""The tokenizers in plain Python: golden outputs, faults met elsewhere, and every string that hypothesis thinks of."""

import json
import pickle
import re
import unicodedata
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support import plain_tokenizer as plain
from tf_bert import tokenization
from tf_bert.tokenization import (
    BasicTokenizer,
    FullTokenizer,
    WordpieceTokenizer,
    convert_by_vocab,
    convert_to_unicode,
    load_vocab,
    printable_text,
    save_vocab,
    validate_case_matches_checkpoint,
)
from tf_bert.tokenization.basic import split_at_blanks, word_pattern
from tf_bert.tokenization.encoding import truncated_lengths
from tf_bert.tokenization.full import WordCache
from tf_bert.tokenization.vocabulary import (
    casing_problem,
    check_special_tokens,
    read_vocab_lines,
    vocab_sha256,
    vocab_size,
)
from tf_bert.tokenization.wordpiece import detokenize

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SWITCHES = [
    {"lower": lower, "strip": strip, "chinese": chinese}
    for lower in (True, False)
    for strip in (None, True, False)
    for chinese in (True, False)
]
# Characters on which tokenizers differ, more often than chance would bring them.
ODD = (
    "aAbB zZ.,!#'[]09\t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\x97\xa0\xad\u0378\u0301\u0327\u0345\u0390\u03a3\u03c3\u00b7"
    "\u037e\u0130\u0131\u00df\ufb01\u1e9e\u01c5\u1fef\u200b\u200d\u2028\u2029\u202f\u3000\u180e\u2014\u20ac\ufeff\ufffd\ufe0f"
    "\u4e2d\u4dc0\uf900\u3007\ud558\u1112\u304c\u3071\u302e\u302f\u0939\u093f\u0902\u0e35\U00016ff0\U0001d15e\U0001d165"
    "\U0001f600\U0002ceb0\U0002f800\ue000\U0010ffff\U000e0041\uff21\uff0c\u0344\u0f73\u2000\u2126\u1d2c\u0345\u02b0"
)
TEXTS = st.text(st.one_of(st.sampled_from(ODD), st.characters()), max_size=30)
PIECES = [
    *"abz.,!#'0中\u4e2d\u8c48\u03c3\u03c2i\u1112\u1161",
    *(f"##{c}" for c in "abz0i\u03c3\u03c2\u1161\u302e"),
    "ab",
    "##ab",
]


def write_vocab(path, lines):
    path.write_bytes("\n".join(lines).encode())
    return path


@pytest.fixture
def tokenizer_of(tmp_path):
    def make(lines, **switches):
        return FullTokenizer(write_vocab(tmp_path / "vocab.txt", lines), **switches)

    return make


# The original's outputs.


@pytest.mark.parametrize("casing", ["uncased", "cased"])
@pytest.mark.parametrize("name", ["tokenization", "tokenization_surrogates"])
def test_golden_words(golden, casing, name):
    tokenizer = BasicTokenizer(do_lower_case=casing == "uncased")
    lines = (golden / "A_tokenization" / f"{name}.jsonl").read_text().splitlines()
    assert lines
    for record in map(json.loads, lines):
        assert tokenizer.tokenize(record["text"]) == record[casing]["basic"], record["i"]


@pytest.mark.parametrize("casing", ["uncased", "cased"])
@pytest.mark.parametrize("name", ["tokenization", "tokenization_surrogates"])
def test_golden_pieces_of_the_published_vocabulary(shared_golden, casing, name):
    tokenizer = FullTokenizer(shared_golden / "vocab" / "vocab.txt", do_lower_case=casing == "uncased")
    lines = (shared_golden / "A_tokenization" / f"{name}.jsonl").read_text().splitlines()
    assert lines
    for line in lines:
        record = json.loads(line)
        expected = record[casing]
        assert tokenizer.basic_tokenizer.tokenize(record["text"]) == expected["basic"], record["i"]
        assert tokenizer.tokenize(record["text"]) == expected["tokens"], record["i"]
        assert tokenizer.tokenize(record["text"]) == expected["tokens"], "from the memory for words"
        assert tokenizer.tokenize_to_ids(record["text"]) == expected["ids"], record["i"]
        assert tokenizer.tokenize_with_offsets(record["text"])[0] == expected["tokens"], record["i"]
        assert tokenizer.convert_tokens_to_ids(expected["tokens"]) == expected["ids"]


def test_golden_vocabulary(golden):
    folder = golden / "A_tokenization"
    expected = json.loads((folder / "odd_vocab_loaded.json").read_text())
    with pytest.warns(UserWarning, match=r"'dup' with the ids \[3, 5\]"):
        tokenizer = FullTokenizer(folder / "odd_vocab.txt")
    assert [list(item) for item in tokenizer.vocab.items()] == expected["vocab_items_in_order"]
    assert sorted(tokenizer.inv_vocab.items()) == sorted(map(tuple, expected["inv_vocab"]))
    assert tokenizer.vocab_size == vocab_size(tokenizer.vocab) == 17
    for text, tokens in expected["tokenize"].items():
        assert tokenizer.tokenize(text) == tokens


# Hypothesis against the algorithm written down plainly.


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from(SWITCHES))
@example("ΑΣ' ΑΣ'Β Σ Α\u0301Σ\u0301", SWITCHES[0])
@example("x\U0001d165\U00016ff0\u302e\u0301", SWITCHES[0])
def test_basic_equals_the_plain_algorithm(text, switches):
    tokenizer = BasicTokenizer(switches["lower"], switches["strip"], switches["chinese"])
    assert tokenizer.tokenize(text) == plain.basic(text, **switches)


def test_every_code_point_equals_the_plain_algorithm():
    for switches in ({"lower": True}, {"lower": False}):
        tokenizer = BasicTokenizer(switches["lower"])
        for code in (*range(0x3500), *range(0xA000, 0xAC10), *range(0xD7A0, 0x12000), *range(0xE0000, 0xE0200)):
            text = f"A{chr(code)}b"
            assert tokenizer.tokenize(text) == plain.basic(text, **switches), hex(code)


@pytest.fixture(scope="module")
def full_tokenizers(tmp_path_factory):
    path = write_vocab(tmp_path_factory.mktemp("vocab") / "vocab.txt", dict.fromkeys([*SPECIAL, *PIECES]))
    keys = {"lower": "do_lower_case", "strip": "strip_accents", "chinese": "tokenize_chinese_chars"}
    return [(s, FullTokenizer(path, **{keys[key]: value for key, value in s.items()})) for s in SWITCHES]


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(0, len(SWITCHES) - 1))
@example("a" * 200 + " " + "a" * 201, 0)
def test_pieces_and_offsets_equal_the_plain_algorithm(full_tokenizers, text, number):
    switches, tokenizer = full_tokenizers[number]
    expected = plain.tokenize(text, tokenizer.vocab, **switches)
    assert tokenizer.tokenize(text) == expected
    tokens, offsets = tokenizer.tokenize_with_offsets(text)
    assert tokens == expected
    for (_, end), (start, _) in zip(offsets, offsets[1:], strict=False):
        assert start >= end - 1  # only the pieces of one character share it
    for token, (start, end) in zip(tokens, offsets, strict=True):
        assert 0 <= start < end <= len(text)
        if token != "[UNK]" and "Σ" not in text:  # the form of a sigma depends on what stands around it
            assert token.removeprefix("##") in "".join(plain.basic(text[start:end], **switches))


@settings(max_examples=200, deadline=None)
@given(st.text("abc", max_size=8), st.lists(st.text("abc#", min_size=1, max_size=4), max_size=12))
def test_wordpiece_equals_the_plain_algorithm(word, vocab):
    assert WordpieceTokenizer(vocab).tokenize(word) == (plain.wordpiece(word, vocab) if word else [])


@given(st.text(st.characters(max_codepoint=127)), st.booleans())
def test_the_shorter_way_for_ascii_is_the_same(text, chinese):
    shorter = split_at_blanks(text, chinese)
    words = [re.sub("[\x0b\x0c\x1c-\x1f]", "", word) for word in word_pattern(chinese).findall(text)]
    assert [word for word in words if word] == shorter


# Faults met elsewhere, each with its value.


@pytest.mark.parametrize("text, tokens", [("\uf059 blue\ue000bird", ["[UNK]"] * 2), ("ab\u0378cd", ["[UNK]"])])
def test_private_and_unassigned_characters_stay(tokenizer_of, text, tokens):
    tokenizer = tokenizer_of([*SPECIAL, "blue", "bird", "##bird", "ab", "##cd", "abcd"], do_lower_case=False)
    assert tokenizer.tokenize(text) == tokens


@pytest.mark.parametrize(
    "lower, text, tokens",
    [
        (True, "\ud558\ub2e4", ["\u1112\u1161\u1103\u1161"]),
        (True, "Cr\u00e8me br\u00fbl\u00e9e", ["creme", "brulee"]),
        (True, "cafe\u0301", ["cafe"]),
        (True, "\u041c\u043e\u0439", ["\u043c\u043e\u0438"]),
        (True, "\u30ac\u30b9", ["\u30ab\u30b9"]),
        (True, "\u0939\u093f\u0902\u0926\u0940", ["\u0939\u093f\u0926\u0940"]),
        (False, "\ud558\ub2e4", ["\ud558\ub2e4"]),
        (False, "Cr\u00e8me br\u00fbl\u00e9e", ["Cr\u00e8me", "br\u00fbl\u00e9e"]),
        (False, "cafe\u0301", ["cafe", "##\u0301"]),
        (False, "\u30ac\u30b9", ["\u30ac\u30b9"]),
    ],
)
def test_accents_go_with_lower_case_only_and_are_not_recomposed(tokenizer_of, lower, text, tokens):
    spelt = ["\ud558\ub2e4", "\u1112\u1161\u1103\u1161", "creme", "brulee", "Cr\u00e8me", "br\u00fbl\u00e9e", "cafe"]
    spelt += ["##\u0301", "\u043c\u043e\u0438", "\u043c\u043e\u0439", "\u30ac\u30b9", "\u30ab\u30b9"]
    spelt += ["\u0939\u093f\u0926\u0940", "\u0939\u093f\u0902\u0926\u0940"]
    assert tokenizer_of([*SPECIAL, *spelt], do_lower_case=lower).tokenize(text) == tokens


def test_strip_accents_is_a_switch_of_its_own():
    assert BasicTokenizer(True, strip_accents=False).tokenize("\ud558 \u30ac É") == ["\ud558", "\u30ac", "é"]
    assert BasicTokenizer(False, strip_accents=True).tokenize("Crème") == ["Creme"]
    assert BasicTokenizer(tokenize_chinese_chars=False).tokenize("a中文b") == ["a中文b"]


@pytest.mark.parametrize(
    "lower, text, tokens",
    [
        (True, "shoot\u0097 now\u0085then", ["shoot", "nowthen"]),
        (True, "one\u2028two\u000bthree\u001cfour", ["one", "twothreefour"]),
        (True, "a\u00a0b\u3000c", ["a", "b", "c"]),
        (True, "a\ufffdb \u0000c", ["ab", "c"]),
        (False, "ab\u200bcd e\u00adf", ["abcd", "ef"]),
    ],
)
def test_controls_vanish_and_blanks_split(tokenizer_of, lower, text, tokens):
    vocab = [*SPECIAL, "shoot", "now", "then", "nowthen", "one", "two", "twothreefour", "three", "four"]
    vocab += ["a", "b", "c", "ab", "cd", "abcd", "e", "f", "ef"]
    assert tokenizer_of(vocab, do_lower_case=lower).tokenize(text) == tokens


def test_ids_are_line_numbers_also_after_saving(tmp_path):
    lines = ["[PAD]", "[UNK]", "b", "\u2028", "\u0085", "", "b ", "cat\r", "\u00a0", "end"]
    with pytest.warns(UserWarning, match=r"'b' with the ids \[2, 6\]"):
        pieces = read_vocab_lines(write_vocab(tmp_path / "vocab.txt", lines))
    assert len(pieces) == 10
    save_vocab(pieces, tmp_path / "again.txt")
    for name in ("vocab.txt", "again.txt"):
        with pytest.warns(UserWarning):
            vocab = load_vocab(tmp_path / name)
        assert {key: vocab[key] for key in ("end", "cat", "b", "[UNK]")} == {"end": 9, "cat": 7, "b": 6, "[UNK]": 1}
        assert vocab_size(vocab) == 10


def test_published_vocabularies_keep_their_size(data_folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, size in [("cased", 28996), ("chinese", 21128), ("multilingual-cased", 119547)]:
            assert vocab_size(load_vocab(data_folder / "vocab" / f"bert-base-{name}" / "vocab.txt")) == size


def test_special_tokens_in_text_by_choice(tokenizer_of):
    vocab = [*SPECIAL, "the", "[", "]", "mask", "sat", "un", "[unused1]"]
    default, option = tokenizer_of(vocab), tokenizer_of(vocab, special_tokens_in_text=True)
    split = ["the", "[", "mask", "]", "sat"]
    assert default.tokenize("the [MASK] sat") == default.tokenize("the [mask] sat") == split
    assert option.tokenize("the [MASK] sat") == ["the", "[MASK]", "sat"]
    assert option.tokenize("the [mask] sat") == split
    assert option.tokenize_to_ids("the [MASK] sat") == [5, 4, 9]
    assert option.tokenize("the[MASK]sat[SEP][UNK]") == ["the", "[MASK]", "sat", "[SEP]", "[UNK]"]
    tokens, offsets = option.tokenize_with_offsets("The [MASK]sat")
    assert tokens == ["the", "[MASK]", "sat"]
    assert offsets == [(0, 3), (4, 10), (10, 13)]
    own = tokenizer_of(vocab, special_tokens_in_text=["[unused1]"])
    assert own.tokenize("[unused1][MASK]") == ["[unused1]", "[", "mask", "]"]
    with pytest.raises(ValueError, match=r"lacks the special token \[E1\]"):
        tokenizer_of(vocab, special_tokens_in_text=["[E1]"])
    with pytest.raises(ValueError, match="must be a bool or some tokens"):
        tokenizer_of(vocab, special_tokens_in_text="[MASK]")


@pytest.mark.parametrize(
    "text, tokens, offsets",
    [
        ("\u0130zmir x", ["izmir", "x"], [(0, 5), (6, 7)]),
        ("cafe\u0301 x", ["cafe", "x"], [(0, 5), (6, 7)]),
        ("caf\u00e9 x", ["cafe", "x"], [(0, 4), (5, 6)]),
        ("ab\u200bcd x", ["abcd", "x"], [(0, 5), (6, 7)]),
        ("\ud558\ub2e4", ["\u1112\u1161", "##\u1103\u1161"], [(0, 1), (1, 2)]),
        ("  x\x0bX\x85\u4e2d\u0301! ", ["xx", "[UNK]", "[UNK]"], [(2, 5), (6, 7), (8, 9)]),
        ("x" * 201 + "!x", ["[UNK]", "[UNK]", "x"], [(0, 201), (201, 202), (202, 203)]),
    ],
)
def test_offsets_are_characters_of_the_source(tokenizer_of, text, tokens, offsets):
    tokenizer = tokenizer_of([*SPECIAL, "izmir", "x", "xx", "cafe", "abcd", "\u1112\u1161", "##\u1103\u1161"])
    assert tokenizer.tokenize_with_offsets(text) == (tokens, offsets)


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("STRASSE stra\u00dfe", ["strasse", "stra\u00dfe"]),
        ("\ufb01n", ["\ufb01n"]),
        ("\uff21\uff22\uff0c\uff11", ["\uff41\uff42", "\uff0c", "\uff11"]),
        ("\u039f\u03a3 \u03a3\u0391", ["\u03bf\u03c2", "\u03c3\u03b1"]),
        ("\u00c9CLAIR", ["eclair"]),
    ],
)
def test_lower_case_is_not_case_folding(text, tokens):
    assert BasicTokenizer().tokenize(text) == tokens


def test_missing_special_tokens_are_named():
    complete = {token: number for number, token in enumerate(SPECIAL)}
    check_special_tokens(complete)
    for token in SPECIAL:
        with pytest.raises(ValueError, match=rf"vocab.txt lacks the special token \{token[:-1]}\]"):
            check_special_tokens({key: value for key, value in complete.items() if key != token}, "vocab.txt")
    with pytest.raises(ValueError, match=r"tokens \[SEP\], \[MASK\] \(but has \[mask\]\)"):
        check_special_tokens({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[mask]": 3})


# Bad input.


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "the vocabulary is empty"),
        (b"\n\n", "the vocabulary is empty"),
        (b"[PAD]\ncaf\xe9\n", r"vocab.txt, line 2: not valid UTF-8 at byte offset 9 \(byte 0xe9\)"),
        (b"\xef\xbb\xbf[PAD]\n\xff", r"line 2: not valid UTF-8 at byte offset 9 \(byte 0xff\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*byte order mark")
def test_vocabularies_that_cannot_be(tmp_path, data, message):
    (tmp_path / "vocab.txt").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        load_vocab(tmp_path / "vocab.txt")


def test_vocabulary_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file .*vocab.txt"):
        FullTokenizer(tmp_path / "vocab.txt")
    with pytest.raises(IsADirectoryError, match="is a directory"):
        FullTokenizer(tmp_path)


def test_byte_order_mark_is_dropped_and_said(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"\xef\xbb\xbf[PAD]\r\nb")
    with pytest.warns(UserWarning, match="byte order mark"):
        assert load_vocab(tmp_path / "vocab.txt") == {"[PAD]": 0, "b": 1}


@pytest.mark.parametrize("piece", ["two\nlines", " blank", "return\r"])
def test_pieces_that_would_not_come_back_are_not_saved(tmp_path, piece):
    with pytest.raises(ValueError, match="piece 1 of the vocabulary"):
        save_vocab(["[PAD]", piece], tmp_path / "vocab.txt")
    assert not (tmp_path / "vocab.txt").exists()


def test_a_mapping_whose_ids_would_shift_is_not_saved(tmp_path):
    with pytest.raises(TypeError, match="takes a list of pieces .* not a mapping"):
        save_vocab({"[PAD]": 0, "a": 2}, tmp_path / "vocab.txt")
    assert not (tmp_path / "vocab.txt").exists()


def test_a_long_line_without_blanks(tokenizer_of):
    tokenizer = tokenizer_of([*SPECIAL, "a", "##a"])
    assert tokenizer.tokenize("a" * 1_000_000) == ["[UNK]"]
    assert tokenizer.tokenize("中" * 100_000) == ["[UNK]"] * 100_000
    assert max(map(len, tokenizer._pieces_of)) == 1


@pytest.mark.parametrize("function", [convert_to_unicode, printable_text, BasicTokenizer().tokenize])
def test_what_is_no_text_is_refused(function):
    with pytest.raises(ValueError, match="text must be str or bytes, not int"):
        function(7)


def test_bytes_are_read_as_utf8_and_the_rest_left_out():
    assert convert_to_unicode(b"caf\xc3\xa9 \xff x") == "café  x"
    assert BasicTokenizer().tokenize(b"caf\xc3\xa9 \xff x") == ["cafe", "x"]


def test_look_ups_are_strict(tokenizer_of):
    with pytest.raises(KeyError, match=r"'\[UNK\]' is not in the vocabulary of 2 entries"):
        tokenizer_of(["[PAD]", "a"]).tokenize_to_ids("a b")
    assert convert_by_vocab({"a": 1}, ["a", "a"]) == [1, 1]
    with pytest.raises(KeyError, match="'x' is not in the vocabulary of 1 entries"):
        convert_by_vocab({"a": 1}, ["x"])


@pytest.mark.parametrize(
    "name, lower",
    [
        ("uncased_L-12_H-768_A-12", True),
        ("uncased_L-2_H-128_A-2", True),
        ("wwm_uncased_L-24_H-1024_A-16", True),
        ("multilingual_L-12_H-768_A-12", True),
        ("chinese_L-12_H-768_A-12", True),
        ("cased_L-24_H-1024_A-16", False),
        ("wwm_cased_L-24_H-1024_A-16", False),
        ("multi_cased_L-12_H-768_A-12", False),
    ],
)
@pytest.mark.parametrize(
    "form", ["{}/bert_model.ckpt", "/m/{}/bert_model.ckpt-5", "C:\\m\\{}\\bert_model.ckpt", "m/{}/", "{}"]
)
def test_casing_of_published_checkpoints(name, lower, form):
    path = form.format(name)
    validate_case_matches_checkpoint(lower, path)
    with pytest.raises(ValueError, match=f"`{name}` seems to be a .*--do_lower_case={lower}`"):
        validate_case_matches_checkpoint(not lower, path)


@pytest.mark.parametrize(
    "path", [None, "", "my_model/bert_model.ckpt", "uncased_L-12_H-768_A-12/model.ckpt-100", "cased"]
)
def test_other_checkpoints_say_nothing_of_casing(path):
    for lower in (True, False):
        validate_case_matches_checkpoint(lower, path)


def test_vocabulary_of_the_wrong_casing(shared_golden, data_folder):
    uncased = load_vocab(shared_golden / "vocab" / "vocab.txt")
    chinese, cased, multilingual = (
        load_vocab(data_folder / "vocab" / f"bert-base-{name}" / "vocab.txt")
        for name in ("chinese", "cased", "multilingual-cased")
    )
    for vocab, lower in [(uncased, True), (chinese, True), (cased, False), (multilingual, False)]:
        assert casing_problem(vocab, lower) is None
        assert f"do_lower_case is {not lower}" in casing_problem(vocab, not lower)
    assert casing_problem(["[PAD]", "a", "B"], True) is None


def test_sha256_of_a_vocabulary(shared_golden):
    expected = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
    assert vocab_sha256(shared_golden / "vocab" / "vocab.txt") == expected


# The memory for words.


def test_memory_for_words_is_bounded_and_right():
    calls = []
    cache = WordCache(lambda word: calls.append(word) or [word.upper()], size=3)
    for word in [*"abcdabcd", "x" * 1000]:
        assert cache[word] == (word.upper(),)
        assert len(cache) <= 3
    assert len(calls) > 4
    assert "x" * 1000 not in cache
    assert pickle.loads(pickle.dumps(WordCache(str.split, 5)))["a b"] == ("a", "b")


def test_tokenizer_can_be_pickled(tokenizer_of):
    tokenizer = tokenizer_of([*SPECIAL, "a", "##b"], strip_accents=False)
    tokenizer.tokenize("ab")
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.tokenize("ab ü") == tokenizer.tokenize("ab ü") == ["a", "##b", "[UNK]"]
    assert again.tokenize_with_offsets("ab") == tokenizer.tokenize_with_offsets("ab")
    assert again.get_config() == tokenizer.get_config()


def test_pieces_of_a_corpus_share_their_strings(tokenizer_of):
    tokenizer = tokenizer_of([*SPECIAL, "a", "##b"])
    keys = {id(piece) for piece in tokenizer.vocab}
    assert all(id(piece) in keys for piece in tokenizer.tokenize("ab a AB aB"))


# The three inputs.


@pytest.fixture
def encoder(tokenizer_of):
    return tokenizer_of(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", *"abcdefgh"])


def test_encode_one_and_two_texts(encoder):
    one = encoder.encode("a b", max_seq_length=6)
    assert {key: value.tolist() for key, value in one.items()} == {
        "input_ids": [1, 5, 6, 2, 3, 3],  # [PAD] is line 3 of this vocabulary
        "input_mask": [1, 1, 1, 1, 0, 0],
        "segment_ids": [0] * 6,
    }
    two = encoder.encode("a b", "c", max_seq_length=8)
    assert two["input_ids"].tolist() == [1, 5, 6, 2, 7, 2, 3, 3]
    assert two["segment_ids"].tolist() == [0, 0, 0, 0, 1, 1, 0, 0]
    assert two["input_ids"].dtype == np.int32
    assert encoder.encode("a b", "")["input_ids"].tolist() == [1, 5, 6, 2, 2]
    assert encoder.decode(two["input_ids"]) == "a b c"
    assert encoder.decode(two["input_ids"], skip_special_tokens=False) == "[CLS] a b [SEP] c [SEP] [PAD] [PAD]"


def test_encode_batch_pads_to_the_longest_or_to_the_length(encoder):
    batch = encoder.encode_batch(["a", "a b c"])
    assert batch["input_ids"].tolist() == [[1, 5, 2, 3, 3], [1, 5, 6, 7, 2]]
    assert encoder.encode_batch(["a"], ["b"], max_seq_length=7)["input_mask"].tolist() == [[1, 1, 1, 1, 1, 0, 0]]
    assert encoder.encode_batch([], max_seq_length=4)["input_ids"].shape == (0, 4)


def test_encode_refuses_what_is_wrong(encoder, tokenizer_of):
    with pytest.raises(ValueError, match="3 and 0 pieces do not fit into the 2"):
        encoder.encode("a b c", max_seq_length=4, truncation=None)
    with pytest.raises(ValueError, match="do not fit into the -1"):
        encoder.encode("a", max_seq_length=1)
    with pytest.raises(ValueError, match="truncation must be one of"):
        encoder.encode("a", max_seq_length=4, truncation="tail")
    with pytest.raises(ValueError, match="2 first texts but 1 second"):
        encoder.encode_batch(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="takes lists of texts"):
        encoder.encode_batch("a")
    with pytest.raises(ValueError, match=r"lacks the special tokens \[CLS\], \[SEP\], \[MASK\]"):
        tokenizer_of(["[PAD]", "[UNK]"]).encode("a")


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 30))
def test_longest_first_is_the_loop_of_the_original(a, b, limit):
    kept_a, kept_b = a, b
    while kept_a + kept_b > limit:
        if kept_a > kept_b:
            kept_a -= 1
        else:
            kept_b -= 1
    assert truncated_lengths(a, b, limit, "longest_first") == (kept_a, kept_b)


def test_other_truncations():
    assert truncated_lengths(5, 9, 8, "only_second") == (5, 3)
    assert truncated_lengths(5, 9, 10, "only_first") == (1, 9)
    assert truncated_lengths(5, 9, 8, "second_then_first") == (5, 3)
    assert truncated_lengths(9, 3, 4, "second_then_first") == (4, 0)
    for truncation in ("only_first", None):
        with pytest.raises(ValueError, match="do not fit"):
            truncated_lengths(5, 9, 8, truncation)


def test_detokenize():
    assert detokenize(["un", "##aff", "##able", "##s", "!"]) == "unaffables !"


def test_names_of_the_original_are_there():
    names = "FullTokenizer BasicTokenizer WordpieceTokenizer load_vocab convert_by_vocab convert_tokens_to_ids "
    names += (
        "convert_ids_to_tokens convert_to_unicode printable_text whitespace_tokenize validate_case_matches_checkpoint"
    )
    for name in names.split():
        assert callable(getattr(tokenization, name))
    vocab = {"a": 0, "b": 1}
    assert tokenization.convert_tokens_to_ids(vocab, ["b", "a"]) == [1, 0]
    assert tokenization.convert_ids_to_tokens({0: "a", 1: "b"}, [1, 0]) == ["b", "a"]
    assert tokenization.whitespace_tokenize(" a\tb\u2028c\x1cd ") == ["a", "b", "c", "d"]


def test_odd_characters_are_what_the_tests_think():
    kinds = {unicodedata.category(char) for char in ODD}
    assert {"Cc", "Cf", "Co", "Cn", "Mn", "Mc", "Zs", "Zl", "Zp", "Lt", "Lm"} <= kinds
