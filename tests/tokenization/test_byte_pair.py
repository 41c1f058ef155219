"""The tokenizers of GPT: golden ids of the published vocabulary, restatements of both originals, and any bytes."""

import json
import random
import re
from collections import Counter

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_bert.tokenization.basic import BasicTokenizer
from tf_bert.tokenization.byte_pair import GPT1Tokenizer, GPT2Tokenizer
from tf_bert.tokenization.byte_pair_training import train_byte_pairs, train_lower_cased_pairs
from tf_bert.tokenization.byte_pair_vocabulary import END_OF_WORD, Merges, bytes_to_unicode, save_byte_pairs

# Written for this test.
TEXT = """The bank of the river was steep, and we've seen cranes there: "Look, isn't that the bank's crane?" they'd say.
The bank   lends money; the lender lends at 3.5 % (or 17 %!) and the borrower's bank lent 1234567 to the other banks.
\tÉtudes de Chopin, über alles — наука 科学技術 한국어 👩‍🔬🏽 e\u0301\u00a0x\u2003y\r\n\n\n  indented\n"""
PARTS_OF_CHARACTERS = [b"\xe2\x82", b"\xac", b"a", b" ", b"\xf0\x9f", b"\xff", b"'s"]
# GPT-2's, as OpenAI wrote it.
ORIGINAL_WORDS = regex.compile(r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""")


def original_bpe(word: list[str], ranks: dict) -> list[str]:
    """The loop of both originals: merge the best pair everywhere, count pairs anew."""
    while len(word) > 1:
        best = min(zip(word, word[1:], strict=False), key=lambda pair: ranks.get(pair, float("inf")))
        if best not in ranks:
            break
        merged, i = [], 0
        while i < len(word):
            if i + 1 < len(word) and (word[i], word[i + 1]) == best:
                merged.append(word[i] + word[i + 1])
                i += 2
            else:
                merged.append(word[i])
                i += 1
        word = merged
    return word


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A byte-level vocabulary of 400 pieces."""
    path = tmp_path_factory.mktemp("gpt2")
    train_byte_pairs([TEXT], 400, min_frequency=1).save(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder):
    return GPT2Tokenizer(folder)


@pytest.fixture(scope="module")
def published(data_folder):
    return GPT2Tokenizer(data_folder / "vocab" / "gpt2")


@pytest.fixture(scope="module")
def gpt1(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpt1")
    train_lower_cased_pairs([TEXT, TEXT + "unable"], 300).save(path)
    return GPT1Tokenizer(path)


def test_golden_ids_of_the_published_vocabulary(published, shared_golden):
    cases = [json.loads(line) for line in (shared_golden / "gpt2_bpe.jsonl").open(encoding="utf-8")]
    assert len(cases) > 700
    for case in cases:
        text, ids = case["text"], case["ids"]
        assert published.tokenize_to_ids(text) == ids
        assert published.convert_tokens_to_ids(published.tokenize(text)) == ids
        assert published.decode(ids) == text
        tokens, offsets = published.tokenize_with_offsets(text)
        assert published.convert_tokens_to_ids(tokens) == ids
        assert offsets == plain_offsets(text, [published.decode_bytes([number]) for number in ids])


def plain_offsets(text: str, pieces: list[bytes]) -> list[tuple[int, int]]:
    """From the characters that hold the first and the last byte of each piece."""
    character_of = [place for place, char in enumerate(text) for _ in char.encode("utf-8", "surrogateescape")]
    offsets, end = [], 0
    for piece in pieces:
        start, end = end, end + len(piece)
        offsets.append((character_of[start], character_of[end - 1] + 1))
    return offsets


def test_offsets_as_the_published_tokenizer_gives_them(published):
    tokens, offsets = published.tokenize_with_offsets("😀 ab é한 ")
    assert tokens == ["ðŁĺ", "Ģ", "Ġab", "ĠÃ©", "íķ", "ľ", "Ġ"]
    assert offsets == [(0, 1), (0, 1), (1, 4), (4, 6), (6, 7), (6, 7), (7, 8)]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(*[st.text("ab", min_size=1, max_size=3)] * 2), max_size=8), st.text("ab", max_size=40))
def test_merges_in_any_order_equal_the_original_loop(merges, word):
    """Also lists that no training makes, where a merge makes a pair that comes before it."""
    merges = list(dict.fromkeys(merges))
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    expected = original_bpe(list(word), ranks)
    assert Merges(merges)._split_short(word) == expected == Merges(merges)._split_long(word)


def test_words_of_ascii_text(tokenizer):
    """Each character between the others, as the expression for any text finds them."""
    characters = list(map(chr, range(128)))
    text = "".join(a + b + c for a in characters for b in characters for c in "a' \n1")
    assert text.isascii() and tokenizer._words(text) == ORIGINAL_WORDS.findall(text)


@settings(max_examples=200, deadline=None)
@given(st.text() | st.text(" \n\t'stremvld.,1a\u00a0", max_size=30))
def test_ids_equal_the_originals(tokenizer, text):
    ranks = {pair: rank for rank, pair in enumerate(tokenizer.merges)}
    symbols = bytes_to_unicode()
    words = [[symbols[byte] for byte in word.encode()] for word in ORIGINAL_WORDS.findall(text)]
    expected = [piece for word in words for piece in original_bpe(word, ranks)]
    assert tokenizer.tokenize(text) == expected
    assert tokenizer.convert_ids_to_tokens(tokenizer.tokenize_to_ids(text)) == expected
    tokens, offsets = tokenizer.tokenize_with_offsets(text)
    assert tokens == expected
    pieces = [tokenizer.decode_bytes([tokenizer.vocab[token]]) for token in tokens]
    assert offsets == plain_offsets(text, pieces)


@settings(max_examples=200, deadline=None)
@given(
    st.binary()
    | st.lists(st.sampled_from([b"\xe2\x82", b"\xac", b"a", b" ", b"\xf0\x9f", b"\xff", b"'s"])).map(b"".join)
)
def test_every_byte_string_comes_back(tokenizer, data):
    ids = tokenizer.tokenize_to_ids(data)
    assert tokenizer.decode_bytes(ids) == data
    assert all(0 <= number < tokenizer.vocab_size for number in ids)
    assert tokenizer.decode(ids) == data.decode("utf-8", "replace")
    assert tokenizer.tokenize_with_offsets(data)[0] == tokenizer.tokenize(data)


def test_a_long_word_takes_no_long_time(tokenizer):
    assert tokenizer.decode(tokenizer.tokenize_to_ids("thethat" * 20_000)) == "thethat" * 20_000
    assert max(map(len, tokenizer._ids_of), default=0) <= 64  # and is not remembered


def test_special_tokens_in_text(folder, tokenizer):
    text = "one<|endoftext|> two<|endoftext|>"
    assert tokenizer.end_of_text_id not in tokenizer.tokenize_to_ids(text)
    assert tokenizer.decode(tokenizer.tokenize_to_ids(text)) == text
    special = GPT2Tokenizer(folder, special_tokens_in_text=True)
    ids = special.tokenize_to_ids(text)
    assert ids.count(special.end_of_text_id) == 2 and ids[-1] == special.end_of_text_id
    assert special.decode(ids) == "one two" and special.decode(ids, skip_special_tokens=False) == text
    tokens, offsets = special.tokenize_with_offsets(text)
    assert [text[slice(*span)] for token, span in zip(tokens, offsets, strict=True) if token == "<|endoftext|>"] == [
        "<|endoftext|>"
    ] * 2
    with pytest.raises(ValueError, match="lacks the special token '<|pad|>'"):
        GPT2Tokenizer(folder, special_tokens_in_text=["<|pad|>"])
    with pytest.raises(ValueError, match="must be a bool or some tokens"):
        GPT2Tokenizer(folder, special_tokens_in_text="<|endoftext|>")
    again = GPT2Tokenizer(folder, **special.get_config())
    assert again.tokenize_to_ids(text) == ids


def test_encode(tokenizer):
    texts = ["The bank", "", "the other banks of the river"]
    rows = [tokenizer.tokenize_to_ids(text) for text in texts]
    width = max(map(len, rows))
    batch = tokenizer.encode_batch(texts)
    assert batch["input_ids"].shape == (3, width)
    for row, ids, mask in zip(rows, batch["input_ids"], batch["input_mask"], strict=True):
        assert list(ids) == row + [tokenizer.end_of_text_id] * (width - len(row))
        assert list(mask) == [1] * len(row) + [0] * (width - len(row))
    left = tokenizer.encode_batch(texts, 3, padding="left", truncation="left")
    assert left["input_ids"].tolist()[2] == rows[2][-3:]
    assert left["input_ids"].tolist()[0] == ([tokenizer.end_of_text_id] * 3 + rows[0])[-3:]
    assert left["input_mask"].tolist()[1] == [0, 0, 0]
    assert tokenizer.encode("the bank", 2)["input_ids"].shape == (2,)
    with pytest.raises(ValueError, match=rf"text 2 has {len(rows[2])} pieces, and max_seq_length is 3"):
        tokenizer.encode_batch(texts, 3, truncation=None)
    with pytest.raises(ValueError, match="must be 'right' or 'left', not 'middle'"):
        tokenizer.encode("a", padding="middle")
    with pytest.raises(ValueError, match="use encode for one text"):
        tokenizer.encode_batch("one text")


def test_bad_texts_and_ids(tokenizer, gpt1):
    with pytest.raises(ValueError, match="text must be str or bytes, not int"):
        tokenizer.tokenize(7)
    for bad in (tokenizer.vocab_size, -1):
        for decode in (tokenizer.decode, tokenizer.decode_bytes, tokenizer.convert_ids_to_tokens, gpt1.decode):
            with pytest.raises(KeyError, match="is not in the vocabulary of"):
                decode([bad])
    half = tokenizer.tokenize_to_ids("é")[:1]
    assert tokenizer.decode(half) == "\ufffd"
    with pytest.raises(ValueError, match="not UTF-8"):
        tokenizer.decode(half, errors="strict")
    with pytest.raises(KeyError, match="'nothing' is not in the vocabulary"):
        tokenizer.convert_tokens_to_ids(["nothing"])


def write(folder, encoder, merges):
    """Two files as given, whether they fit or not."""
    (folder / "encoder.json").write_text(encoder if isinstance(encoder, str) else json.dumps(encoder), encoding="utf-8")
    (folder / "vocab.bpe").write_bytes(merges if isinstance(merges, bytes) else "\n".join(merges).encode())
    return folder


def test_files_that_do_not_fit(tmp_path, folder):
    encoder = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
    lines = (folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")
    GPT2Tokenizer(write(tmp_path, encoder, lines))
    GPT2Tokenizer(write(tmp_path, encoder, lines[1:-1]))  # without its first line and the last line feed
    GPT2Tokenizer(write(tmp_path, encoder | {"<|pad|>": len(encoder)}, lines))
    half = len(lines) // 2
    last = list(encoder)[-2]
    cases = [
        (
            encoder,
            lines[:half],
            rf"vocab.bpe does not fit .*encoder.json: none of its {half - 1} merges makes .*cut short",
        ),
        (
            encoder,
            [*lines[:-1], "x y", ""],
            f"merge {len(lines) - 1}, 'x' and 'y', needs the piece 'xy', which has no id",
        ),
        (
            {key: value for key, value in encoder.items() if key != last},
            lines,
            "has the id 399; expected the numbers 0 to 398 for its 399 pieces, each once",
        ),
        ({key: key for key in encoder}, lines, "has the id '!'; expected the numbers 0 to 399"),
        ({"a": 0, "b": 1, "ab": 2}, ["a b"], "lacks 254 of the 256 bytes, such as '!'"),
        (encoder, [*lines[:5], "a b c", *lines[5:]], "vocab.bpe, line 6: expected two pieces .* found 'a b c'"),
        (encoder, [*lines[:5], "", *lines[5:]], "vocab.bpe, line 6: expected two pieces .* found ''"),
        (encoder, b"#version: 0.2\na \xff\n", "vocab.bpe: not valid UTF-8 at byte offset 16"),
        ("{", lines, "encoder.json: not JSON"),
        ("[1]", lines, "encoder.json: found a list, expected a JSON object"),
    ]
    for broken, merges, said in cases:
        with pytest.raises(ValueError, match=said):
            GPT2Tokenizer(write(tmp_path, broken, merges))
    (tmp_path / "encoder.json").write_bytes(b'{"\xff": 0}')
    with pytest.raises(ValueError, match="encoder.json: not valid UTF-8 at byte offset 2"):
        GPT2Tokenizer(tmp_path)
    (tmp_path / "vocab.bpe").unlink()
    with pytest.raises(FileNotFoundError, match="holds no byte-pair vocabulary: expected encoder.json and vocab.bpe"):
        GPT2Tokenizer(tmp_path)
    with pytest.raises(ValueError, match="lacks <unk>"):
        GPT1Tokenizer(folder)


def test_hugging_faces_names_of_the_files(tmp_path, tokenizer):
    pieces = [tokenizer.inv_vocab[number] for number in range(tokenizer.vocab_size)]
    paths = save_byte_pairs(tmp_path, pieces, tokenizer.merges, ("vocab.json", "merges.txt"))
    for again in (GPT2Tokenizer(tmp_path), GPT2Tokenizer(*paths), GPT2Tokenizer(paths[0])):
        assert again.tokenize(TEXT) == tokenizer.tokenize(TEXT)


def test_memory_for_words_is_bounded(tokenizer):
    words = [f" w{i}" for i in range(50)]
    cache = type(tokenizer._ids_of)(tokenizer._word_to_ids, size=20)
    for word in words * 2:
        assert list(cache[word]) == tokenizer._word_to_ids(word)
        assert len(cache) <= 20


def original_gpt1(text: str, tokenizer: GPT1Tokenizer) -> list[str]:
    """``TextEncoder.bpe`` of finetune-transformer-lm over the words of BERT's tokenizer."""
    ranks = {pair: rank for rank, pair in enumerate(tokenizer.merges)}
    pieces = []
    for word in BasicTokenizer(do_lower_case=True).tokenize(text):
        pieces += original_bpe(list(word[:-1]) + [word[-1] + END_OF_WORD], ranks)
    return [piece if piece in tokenizer.vocab else "<unk>" for piece in pieces]


@settings(max_examples=200, deadline=None)
@given(st.text() | st.lists(st.sampled_from(re.findall(r"\S+|\s+", TEXT))).map("".join))
def test_gpt1_equals_its_restatement(gpt1, text):
    expected = original_gpt1(text, gpt1)
    assert gpt1.tokenize(text) == expected
    assert gpt1.convert_ids_to_tokens(gpt1.tokenize_to_ids(text)) == expected
    tokens, offsets = gpt1.tokenize_with_offsets(text)
    assert tokens == expected
    assert all(0 <= start < end <= len(text) for start, end in offsets)


def test_gpt1_pieces(gpt1):
    assert gpt1.tokenize("The BANK") == ["the</w>", "bank</w>"]
    assert gpt1.decode(gpt1.tokenize_to_ids("The bank, the Étude!")) == "the bank , the etude !"
    assert gpt1.tokenize_with_offsets("a  Bank Ω")[1] == [(0, 1), (3, 7), (8, 9)]
    assert gpt1.tokenize("Ω") == ["<unk>"] and gpt1.tokenize_to_ids("Ω") == [0]
    assert gpt1.encode("The bank", 4)["input_mask"].tolist() == [1, 1, 0, 0]


def plain_training(words: Counter, room: int, split, min_frequency: int = 2) -> list[tuple[str, str]]:
    """Counts all pairs anew for each merge."""
    parts = {word: list(split(word)) for word in words}
    order = {piece: i for i, piece in enumerate(sorted({piece for word in parts.values() for piece in word}))}
    merges, found = [], 0
    while found < room:
        counts = Counter()
        for word, pieces in parts.items():
            for pair in zip(pieces, pieces[1:], strict=False):
                counts[pair] += words[word]
        counts = {pair: count for pair, count in counts.items() if count >= min_frequency}
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], order[pair[0]], order[pair[1]]))
        merges.append(best)
        found += best[0] + best[1] not in order
        order.setdefault(best[0] + best[1], len(order))
        parts = {word: original_bpe(pieces, {best: 0}) for word, pieces in parts.items()}
    return merges


def test_training_equals_the_plain_algorithm(tokenizer, gpt1):
    symbols = bytes_to_unicode()
    words = Counter("".join(symbols[byte] for byte in word.encode()) for word in ORIGINAL_WORDS.findall(TEXT))
    assert tokenizer.merges == plain_training(words, 400 - 257, list, 1)
    words = Counter(BasicTokenizer().tokenize(TEXT) + BasicTokenizer().tokenize(TEXT + "unable"))
    characters = len({char for word in words for char in word})
    expected = plain_training(words, 300 - 2 * characters - 1, lambda word: [*word[:-1], word[-1] + END_OF_WORD])
    assert gpt1.merges == expected
    assert gpt1.vocab_size <= 300


def test_what_training_gives(tokenizer):
    assert list(tokenizer.vocab)[:3] == ["!", '"', "#"] and list(tokenizer.vocab)[-1] == "<|endoftext|>"
    characters = train_byte_pairs(["any"], 257)
    assert len(characters.pieces) == 257 and not characters.merges
    with pytest.raises(ValueError, match="256 bytes and <|endoftext|> take 257"):
        train_byte_pairs(["any"], 256)
    with pytest.raises(ValueError, match="vocab_size 5 is too small: 3 characters in two forms"):
        train_lower_cased_pairs(["any"], 5)
    with pytest.raises(ValueError, match="no words"):
        train_byte_pairs([""], 300)
    texts = TEXT.split("\n")
    shuffled = random.Random(1).sample(texts, len(texts))
    assert train_byte_pairs(texts, 350) == train_byte_pairs(shuffled, 350)
    rare = train_byte_pairs([f"the the w{i}x" for i in range(300)], 300, max_words=40)
    assert "the" in rare.pieces
