"""Vocabularies built from text: against a plain restatement of the algorithm, in several scripts, and as a command."""

import gzip
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import ROOT
from tf_bert.commands.train_vocab import main
from tf_bert.data.text.lines import read_lines
from tf_bert.tokenization.basic import BasicTokenizer
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.vocabulary_training import (
    WordCounts,
    build_vocabulary,
    choose_alphabet,
    choose_size,
    merge_pairs,
)
from tf_bert.tokenization.wordpiece import WordpieceTokenizer

# Written for this test.
CHINESE = """春天来了，花园里的花都开了。孩子们在树下唱歌、跳舞，老人坐在长椅上看书。
今天的天气很好，我们去公园看花。公园里有很多人，也有很多花。
你喜欢春天吗？我最喜欢春天，因为春天的花很美！Python 3.11 也很好用。"""
HINDI = """वसंत आ गया है और बगीचे में फूल खिल गए हैं। बच्चे पेड़ के नीचे गाना गा रहे हैं।
आज मौसम बहुत अच्छा है, इसलिए हम बगीचे में फूल देखने जा रहे हैं। क्या आपको वसंत पसंद है?
मुझे वसंत सबसे अधिक पसंद है, क्योंकि वसंत में फूल बहुत सुंदर होते हैं।"""
TURKISH = """İlkbahar geldi, bahçedeki çiçekler açtı. Çocuklar ağacın altında şarkı söylüyor ve dans ediyorlar.
Bugün hava çok güzel, bu yüzden çiçekleri görmek için parka gidiyoruz. Sen ilkbaharı seviyor musun?
Ben en çok ilkbaharı seviyorum, çünkü ilkbaharda çiçekler çok güzel oluyor. IĞDIR ve İSTANBUL büyük şehirlerdir."""


def plain_merge_pairs(words: dict[str, int], num_pieces: int, min_frequency: int) -> list[str]:
    """The same by counting all pairs anew for each piece."""
    split = {word: [word[0], *("##" + char for char in word[1:])] for word in words}
    order = {piece: number for number, piece in enumerate(sorted({p for pieces in split.values() for p in pieces}))}
    found = []
    while len(found) < num_pieces:
        counts = Counter()
        for word, pieces in split.items():
            for pair in zip(pieces, pieces[1:], strict=False):
                counts[pair] += words[word]
        if not counts or max(counts.values()) < min_frequency:
            return found
        left, right = min(counts, key=lambda pair: (-counts[pair], order[pair[0]], order[pair[1]]))
        merged = left + right.removeprefix("##")
        if merged not in order:
            order[merged] = len(order)
            found.append(merged)
        for pieces in split.values():
            i = 0
            while i < len(pieces) - 1:
                if pieces[i] == left and pieces[i + 1] == right:
                    pieces[i : i + 2] = [merged]
                i += 1
    return found


@settings(max_examples=300)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 5), min_size=1, max_size=12))
def test_merges_equal_the_plain_algorithm(words):
    for min_frequency in (1, 3):
        assert merge_pairs(words, 25, min_frequency) == plain_merge_pairs(words, 25, min_frequency)


def test_merges_of_a_real_text_equal_the_plain_algorithm():
    words = WordCounts(BasicTokenizer()).count([TURKISH, HINDI]).words
    assert len(words) > 60
    assert merge_pairs(words, 100, 2) == plain_merge_pairs(words, 100, 2)


@pytest.mark.parametrize("strip_accents", [None, False])
@pytest.mark.parametrize("lower", [True, False])
def test_counts_are_those_of_the_tokenizer(lower, strip_accents):
    tokenizer = BasicTokenizer(lower, strip_accents)
    lines = [*CHINESE.split("\n"), HINDI, TURKISH, "ΟΔΟΣ, ΣΑΣ\u2028a\u000bb\u3000c\u00a0d \u200be\x00f 한국어", ""]
    counts = WordCounts(tokenizer).count(lines)
    wanted = Counter(word for line in lines for word in tokenizer.tokenize(line))
    assert counts.words == wanted
    assert counts.num_words == wanted.total()
    assert counts.characters == Counter(char for word in wanted.elements() for char in word)
    assert counts.num_dropped == 0


def test_counting_in_bounded_room(monkeypatch):
    """The frequent words and all characters survive when words are dropped again and again."""
    monkeypatch.setattr("tf_bert.tokenization.vocabulary_training._FLUSH_CHARACTERS", 500)
    rare = [f"w{i}" for i in range(2000)] + ["é"]
    lines = [f"the {word} of" for word in rare]
    counts = WordCounts(BasicTokenizer(do_lower_case=False), max_words=200).count(lines)
    assert len(counts.words) <= 200
    assert counts.words["the"] == counts.words["of"] == 2001
    assert counts.num_dropped > 1500
    assert counts.characters == Counter("".join(lines).replace(" ", ""))


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("text", [CHINESE, HINDI, TURKISH], ids=["chinese", "hindi", "turkish"])
def test_no_word_of_the_text_is_unknown(text, lower):
    tokenizer = BasicTokenizer(lower)
    counts = WordCounts(tokenizer).count(text.split("\n"))
    pieces = build_vocabulary(counts, 220, tokenizer=tokenizer, num_unused=0)
    wordpiece = WordpieceTokenizer(pieces)
    split = {word: wordpiece.split_word(word) for word in counts.words}
    assert ["[UNK]"] not in split.values()
    assert len(set(pieces)) == len(pieces) <= 220
    if text != CHINESE:
        backwards = max(counts.words, key=len)[::-1]  # a word that the text does not have, made of its characters
        assert wordpiece.split_word(backwards) != ["[UNK]"]
        characters = sum(count * len(word) for word, count in counts.words.items())
        assert sum(count * len(split[word]) for word, count in counts.words.items()) < 0.8 * characters


def test_what_is_found_in_each_script():
    def build(text, lower=True, **options):
        tokenizer = BasicTokenizer(lower, **options)
        return build_vocabulary(WordCounts(tokenizer).count([text]), 300, tokenizer=tokenizer, num_unused=0)

    chinese = build(CHINESE)
    assert {"花", "，", "。"} <= set(chinese)
    assert "##花" not in chinese and "##。" not in chinese  # each Chinese character is a word of its own
    assert {"वसंत", "फूल", "।"} <= set(build(HINDI, lower=False))
    assert "वसंत" not in build(HINDI)  # lower-casing drops the vowel signs, as the original does ...
    assert "वसंत" in build(HINDI, strip_accents=False)  # ... unless told not to
    turkish = build(TURKISH, lower=False)
    assert {"çok", "İ", "ı", "##ğ"} <= set(turkish)
    assert "ilkbahar" in build(TURKISH)


def test_the_order_of_the_lines():
    tokenizer = BasicTokenizer()
    counts = WordCounts(tokenizer).count(["to be or not to be, that is the question"])
    pieces = build_vocabulary(counts, 150, tokenizer=tokenizer, min_frequency=1)
    assert pieces[:2] == ["[PAD]", "[unused0]"]
    assert pieces[99:104] == ["[unused98]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]  # the published ids
    characters = [piece for piece in pieces[104:] if len(piece) == 1]
    continuing = [piece for piece in pieces if piece.startswith("##") and len(piece) == 3]
    assert characters == sorted(characters) == pieces[104 : 104 + len(characters)]
    assert continuing == ["##" + char for char in characters if char != ","]
    assert pieces.index(continuing[0]) == 104 + len(characters)
    assert "to" in pieces and "be" in pieces


def test_steps_to_longer_pieces_give_way():
    """The tenth piece found covers a whole word, so that nine of the ten are enough."""
    tokenizer = BasicTokenizer()
    counts = WordCounts(tokenizer).count(["abcdefgh ijkl"] * 10)
    found = merge_pairs(counts.words, 10)
    assert found[:4] == ["##bc", "##de", "##fg", "##jk"] and found[9] == "abcdefgh"
    characters = 2 * len("abcdefghijkl")
    pieces = build_vocabulary(counts, 5 + characters + 9, tokenizer=tokenizer, num_unused=0)
    assert pieces[5 + characters :] == [piece for piece in found if piece != "abcdefg"]


def test_character_coverage():
    assert choose_alphabet({"a": 98, "b": 1, "c": 1}, 0.98) == ["a"]
    assert choose_alphabet({"a": 98, "b": 1, "c": 1}, 0.985) == ["a", "b"]  # of equally frequent ones the first
    assert choose_alphabet({"a": 98, "b": 1, "c": 1}, 1.0) == ["a", "b", "c"]
    # 0.07 * 100 is 7.000000000000001 in floating point.
    assert choose_alphabet({char: 1 for char in map(chr, range(100, 193))} | {"a": 7}, 0.07) == ["a"]
    tokenizer = BasicTokenizer()
    counts = WordCounts(tokenizer).count(["abba " * 1000 + "abbey"])
    pieces = build_vocabulary(counts, 50, tokenizer=tokenizer, num_unused=0, character_coverage=0.999)
    assert pieces[5:9] == ["a", "b", "##a", "##b"]
    assert "abba" in pieces and not any("e" in piece for piece in pieces[5:])


def test_characters_that_do_not_fit():
    tokenizer = BasicTokenizer()
    counts = WordCounts(tokenizer).count(["abcdefgh!"])
    with pytest.raises(ValueError, match="vocab_size 20 is too small: 5 special .* 9 characters in 17 forms take 22"):
        build_vocabulary(counts, 20, tokenizer=tokenizer, num_unused=0)
    assert len(build_vocabulary(counts, 22, tokenizer=tokenizer, num_unused=0)) == 22
    with pytest.raises(ValueError, match="no words"):
        build_vocabulary(WordCounts(tokenizer).count(["", " \u200b"]), 100, tokenizer=tokenizer)


def test_a_word_too_long_to_be_split_counts_for_its_characters_only():
    tokenizer = BasicTokenizer()
    counts = WordCounts(tokenizer).count(["xy" * 500_000, "ab"])
    pieces = build_vocabulary(counts, 100, tokenizer=tokenizer, num_unused=0, min_frequency=1)
    assert pieces[5:] == ["a", "b", "x", "y", "##a", "##b", "##x", "##y", "ab"]


def run_python(*arguments, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=options.pop("cwd", None),
        **options,
    )


def test_the_command(tmp_path):
    (tmp_path / "a.txt").write_text(TURKISH, encoding="utf-8")
    (tmp_path / "b.txt").write_bytes(gzip.compress(("\ufeff" + HINDI).encode()))
    program = (
        "import sys; from tf_bert.commands.main import main\n"
        "status = main(sys.argv[1:]); assert 'tensorflow' not in sys.modules; sys.exit(status)"
    )
    flags = ["--input_file=*.txt", "--vocab_size=400", "--num_unused=3", "--nodo_lower_case"]
    done = run_python("-c", program, "train_vocab", *flags, "--output_file=new/vocab.txt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "lines, cased" in done.stdout
    assert "[UNK] per word          0.0000%" in done.stdout
    tokenizer = FullTokenizer(tmp_path / "new" / "vocab.txt", do_lower_case=False)
    assert list(tokenizer.vocab)[:8] == [
        "[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    ]  # fmt: skip
    assert tokenizer.tokenize("çok güzel वसंत।") == ["çok", "güzel", "वसंत", "।"]
    # The same text, hashed and read in another way, gives the same file.
    done = run_python(
        ROOT / "tools" / "train_vocab.py",
        *flags[1:],
        "--input_file=a.txt,b.txt",
        "--output_file=again.txt",
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.txt").read_bytes() == (tmp_path / "new" / "vocab.txt").read_bytes()


def test_the_file_does_not_depend_on_the_order_of_lines(tmp_path, capsys):
    lines = (TURKISH + "\n" + HINDI).split("\n")
    made = []
    for seed in range(3):
        random.Random(seed).shuffle(lines)
        (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
        assert main([f"--input_file={tmp_path}/a.txt", f"--output_file={tmp_path}/v.txt", "--vocab_size=300"]) == 0
        made.append((tmp_path / "v.txt").read_bytes())
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize(
    "flags, status, said",
    [
        (["--input_file=none.txt"], 1, "input file 'none.txt' does not exist"),
        (["--input_file=*.csv"], 1, "'*.csv' matches no file"),
        (["--input_file=bad.txt"], 1, "bad.txt: not valid UTF-8 at byte offset 4"),
        (["--input_file=empty.txt"], 1, "empty.txt: there are no words"),
        (["--input_file=good.txt", "--vocab_size=10"], 1, "vocab_size 10 is too small"),
        (["--input_file=good.txt", "--vocab_size=-1"], 2, "vocab_size"),
        (["--input_file=good.txt", "--character_coverage=2"], 2, "character_coverage"),
        (["--input_file=*.txt"], 1, "vocab.txt is to be written, but it is one of the input files"),
        (["--input_file=."], 1, "input . is a directory"),
        (["--vocab_size=10"], 2, "missing --input_file"),
        (["--input_file=good.txt", "--num_unsed=3"], 2, "did you mean --num_unused"),
    ],
)
def test_mistakes_leave_the_old_file(tmp_path, monkeypatch, capsys, flags, status, said):
    monkeypatch.chdir(tmp_path)
    Path("bad.txt").write_bytes(b"one \xff")
    Path("empty.txt").write_bytes(b"")
    Path("good.txt").write_text("some good words")
    Path("vocab.txt").write_text("old")
    assert main([*flags, "--output_file=vocab.txt"]) == status
    error = capsys.readouterr().err
    # A file without text is warned of before the mistake itself.
    *warnings, mistake = error.splitlines()
    assert said in mistake and all("warning:" in line for line in warnings)
    assert Path("vocab.txt").read_text() == "old"
    assert len(os.listdir()) == 4


def test_notes_about_small_texts(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("few words", encoding="utf-8")
    assert main([f"--input_file={tmp_path}/a.txt", f"--output_file={tmp_path}/v.txt", "--num_unused=0"]) == 0
    out = capsys.readouterr()
    lines = (tmp_path / "v.txt").read_text().splitlines()
    assert f"vocab_size in bert_config.json must be at least {len(lines)}" in out.err
    assert "single characters; a larger --vocab_size" in out.err


@pytest.mark.slow
def test_pieces_per_held_out_word_of_real_text(data_folder):
    """Package descriptions, one line in ten held out; Hugging Face's trainer reaches 1.139 pieces a word."""
    tokenizer = BasicTokenizer()
    lines = list(read_lines(data_folder / "corpora" / "debian_descriptions.txt.gz"))
    held_out = WordCounts(tokenizer).count(lines[::10])
    train = WordCounts(tokenizer).count(line for number, line in enumerate(lines) if number % 10)
    pieces = build_vocabulary(train, 8000, tokenizer=tokenizer)
    wordpiece = WordpieceTokenizer(pieces)
    split = {word: wordpiece.split_word(word) for word in held_out.words}
    number = sum(count * len(split[word]) for word, count in held_out.words.items())
    assert number / held_out.num_words < 1.15
    assert sum(count for word, count in held_out.words.items() if split[word] == ["[UNK]"]) < 20


def test_a_size_is_chosen_from_the_text(tmp_path, capsys):
    characters = [chr(0x4E00 + number) for number in range(3000)]
    text = "".join(character * (1 + 60_000 // (number + 1)) for number, character in enumerate(characters))
    counts = WordCounts(BasicTokenizer()).count([text])
    size, coverage = choose_size(counts, BasicTokenizer())
    assert coverage == 0.9999 and 5 + 2900 + 1300 < size < 5 + 3000 + 1300
    with pytest.raises(ValueError, match="3,000 different characters, and a vocabulary of 500 has no room"):
        choose_size(counts, BasicTokenizer(), largest=500)
    (tmp_path / "text.txt").write_text("今天天气很好。我们去公园。" * 40, encoding="gb18030")
    flags = [f"--input_file={tmp_path}/text.txt", f"--output_file={tmp_path}/vocab.txt"]
    assert main([*flags, "--vocab_size=0", "--num_unused=0", "--encoding=gb18030"]) == 0
    assert "characters kept              11   of 11, 100.00% of the text" in capsys.readouterr().out
    assert len((tmp_path / "vocab.txt").read_text().split()) == 5 + 11
