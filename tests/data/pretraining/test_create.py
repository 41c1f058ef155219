"""Pre-training data in exact mode: the original's records, and what it does beyond the original."""

import collections
import dataclasses
import gzip
import hashlib
import itertools
import json
import pickle
import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_bert.data.pretraining import create as pretraining
from tf_bert.data.pretraining.corpus import BLANK_LINE, Corpus, ImportedWords, LineEncoder, MarkedWords, read_corpus
from tf_bert.data.pretraining.instances import TrainingInstance, from_bytes, to_bytes
from tf_bert.data.pretraining.masking import maskable_words, shuffle, without_special_tokens
from tf_bert.data.tfrecord.files import decode_example, read_records
from tf_bert.tokenization import BasicTokenizer, FullTokenizer

FEATURES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "next_sentence_labels",
)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SHARED_GOLDEN_CASES = [
    ("B_pretraining_data", name)
    for name in "readme s128_d1 s64_d5 s64_d5_short50 s128_wwm s32_wwm_d10 s128_cased s64_short0 multi_in_3out".split()
]
GOLDEN_CASES = [("B_pretraining_data", "odd_s32"), ("B_pretraining_data", "odd_s5")] + [
    ("synthetic", name)
    for name in (
        "synth_s128 synth_s64_d10_short50 synth_s32_wwm_seed7 synth_s128_cased_3out synth_s512 synth_two_files"
    ).split()
]


def make_records(case, folder, tokenizer, outputs, num_workers=1):
    flags = case["flags"]
    instances = pretraining.create_training_instances(
        [str(folder / name) for name in case["inputs"]],
        tokenizer,
        flags["max_seq_length"],
        flags["dupe_factor"],
        flags["short_seq_prob"],
        flags["masked_lm_prob"],
        flags["max_predictions_per_seq"],
        random.Random(flags["random_seed"]),
        flags["do_whole_word_mask"],
        allow_single_document=True,
        num_workers=num_workers,
    )
    counts = pretraining.write_instance_to_example_files(
        instances,
        tokenizer,
        flags["max_seq_length"],
        flags["max_predictions_per_seq"],
        outputs,
        num_workers=num_workers,
    )
    return instances, counts


def cases_in(folder):
    return {(folder.name, case["name"]) for case in json.loads((folder / "index.json").read_text())}


def test_every_golden_case_is_listed(golden):
    assert cases_in(golden / "synthetic") | cases_in(golden / "B_pretraining_data") == set(GOLDEN_CASES)


def test_every_shared_golden_case_is_listed(shared_golden):
    assert cases_in(shared_golden / "B_pretraining_data") <= {*GOLDEN_CASES, *SHARED_GOLDEN_CASES}


@pytest.mark.parametrize("folder, name", GOLDEN_CASES)
def test_records_are_the_originals(golden, tmp_path, folder, name):
    check_records(golden, tmp_path, folder, name)


@pytest.mark.parametrize("folder, name", SHARED_GOLDEN_CASES)
def test_records_of_its_sample_text_are_the_originals(shared_golden, tmp_path, folder, name):
    check_records(shared_golden, tmp_path, folder, name)


def check_records(golden, tmp_path, folder, name):
    folder = golden / folder
    case = next(case for case in json.loads((folder / "index.json").read_text()) if case["name"] == name)
    tokenizer = FullTokenizer(golden / "vocab" / "vocab.txt", case["flags"]["do_lower_case"])
    outputs = [tmp_path / f"{k}.tfrecord" for k in range(case["outputs"])]
    instances, counts = make_records(case, folder, tokenizer, outputs)

    assert counts == [file["records"] for file in case["files"]]
    digest = hashlib.sha256()
    ours = []
    for output, file in zip(outputs, case["files"], strict=True):
        file_digest = hashlib.sha256()
        for record in map(decode_example, read_records(output)):
            line = ";".join(name + "=" + ",".join(f"{v:g}" for v in record[name]) for name in FEATURES) + "\n"
            digest.update(line.encode())
            file_digest.update(line.encode())
            ours.append(record)
        assert file_digest.hexdigest() == file["canonical_sha256"]
        assert output.stat().st_size == file["bytes"]
    assert digest.hexdigest() == case["canonical_sha256"]
    with gzip.open(folder / "records" / f"{name}.jsonl.gz", "rt") as lines:
        for number, (line, record) in enumerate(zip(lines, ours, strict=True)):
            expected = json.loads(line)
            assert {name: record[name] for name in FEATURES} == {name: expected[name] for name in FEATURES}, number
    assert instances.counts.predictions == case["masked_total"]
    assert instances.counts.tokens == case["real_tokens_total"]
    assert instances.counts.random_next == case["random_next_total"]


def write_vocab(path, words, special=SPECIAL):
    path.write_text("".join(f"{word}\n" for word in [*special, *words]), encoding="utf-8")
    return path


@pytest.fixture
def tokenizer(tmp_path):
    """Words w0 to w999, as one piece and v500 to v999, as "v" and the number."""
    words = [f"w{i}" for i in range(500)] + ["v"] + [f"##{i}" for i in range(500, 1000)]
    return FullTokenizer(write_vocab(tmp_path / "vocab.txt", words))


def write_documents(path, documents):
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n", encoding="utf-8")
    return str(path)


def made_up_documents(n_documents, n_sentences, n_words, seed=0):
    """Every word of document d is one of the ten from 10 d on, so that the document of a token is known."""
    rng = random.Random(seed)
    return [
        [" ".join(f"w{10 * d + rng.randrange(10)}" for _ in range(n_words)) for _ in range(n_sentences)]
        for d in range(n_documents)
    ]


def create(
    files,
    tokenizer,
    seed=12345,
    length=24,
    dupe_factor=2,
    short_seq_prob=0.1,
    masked_lm_prob=0.15,
    predictions=5,
    **options,
):
    return pretraining.create_training_instances(
        files,
        tokenizer,
        length,
        dupe_factor,
        short_seq_prob,
        masked_lm_prob,
        predictions,
        random.Random(seed),
        **options,
    )


# -- the original's functions on strings


@pytest.mark.parametrize(
    "whole_word, length, predictions, dupe_factor, short, seed, count, digest",
    [
        (False, 64, 10, 2, 0.1, 12345, 52, "482bc35cc3dfa041e6463986b448945ffa290be503a34768e129c612818dd0ce"),
        (True, 64, 10, 2, 0.1, 12345, 47, "b286fd53671e474d6dc372a34f5802a96dc92c0d5ffb7807798157ef10891d72"),
        (False, 128, 20, 5, 0.1, 12345, 103, "84cdb7f0e26c2509f86f8ddc09d8927fdc5e227ed81fa6249036f4636cde6450"),
        (True, 128, 20, 5, 0.1, 12345, 97, "ec5074d52765bbb5f1138ae0ed7348739eecffcd3fbfd3ca57a720e0c1ca1d63"),
        (False, 64, 10, 2, 0.1, 1, 49, "2a2375fd1ebfd8639cc4f5bd0f01130a57d29fcec44ba3921fc6a0881330da2c"),
        (False, 32, 5, 1, 1.0, 12345, 31, "8a0b6f1dc80b2362bb88289e1f19724b06b12bab6513b02ee99ec4164b2b67e8"),
    ],
)
def test_instances_are_the_originals(
    shared_golden, tmp_path, whole_word, length, predictions, dupe_factor, short, seed, count, digest
):
    """The tokens and labels themselves, for a vocabulary made from the text."""
    text = shared_golden / "B_pretraining_data" / "inputs" / "sample_text.txt"
    lines = text.read_text(encoding="utf-8").split("\n")
    counts = collections.Counter(token for line in lines for token in BasicTokenizer().tokenize(line))
    words = sorted(word for word, n in counts.items() if len(word) > 1 and n >= 2)
    characters = sorted({character for word in counts for character in word})
    vocab_file = write_vocab(tmp_path / "vocab.txt", [*words, *characters, *("##" + c for c in characters)])
    assert hashlib.sha256(vocab_file.read_bytes()).hexdigest().startswith("a061413bed97b126")

    instances = pretraining.create_training_instances(
        [str(text)],
        FullTokenizer(vocab_file),
        length,
        dupe_factor,
        short,
        0.15,
        predictions,
        random.Random(seed),
        whole_word,
    )
    rows = [
        [i.tokens, i.segment_ids, i.masked_lm_positions, i.masked_lm_labels, int(i.is_random_next)] for i in instances
    ]
    assert len(rows) == count
    assert hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest() == digest


def test_a_list_of_instances_is_written_as_the_store_is(tokenizer, tmp_path):
    text = write_documents(tmp_path / "a.txt", made_up_documents(4, 6, 7))
    instances = create([text], tokenizer)
    for name, which in (("store", instances), ("list", list(instances))):
        pretraining.write_instance_to_example_files(which, tokenizer, 24, 5, [tmp_path / name])
    assert (tmp_path / "store").read_bytes() == (tmp_path / "list").read_bytes()
    assert instances[1:3] == list(instances)[1:3] and instances[-1] == list(instances)[-1]


def test_an_instance_that_does_not_fit_is_refused(tokenizer, tmp_path):
    text = write_documents(tmp_path / "a.txt", made_up_documents(4, 6, 7))
    with pytest.raises(ValueError, match="24 tokens and .* does not fit in a record of 16 and 5"):
        pretraining.write_instance_to_example_files(create([text], tokenizer), tokenizer, 16, 5, [tmp_path / "out"])
    assert not (tmp_path / "out").exists()


# -- draws and packing


@settings(max_examples=100, deadline=None)
@given(n=st.integers(0, 700), seed=st.integers(0, 2**32))
def test_shuffle_is_pythons(n, seed):
    ours, theirs = random.Random(seed), random.Random(seed)
    items, expected = list(range(n)), list(range(n))
    shuffle(items, ours)
    theirs.shuffle(expected)
    assert items == expected
    assert ours.getstate() == theirs.getstate()


@pytest.mark.parametrize("typecode, largest", [("H", 65_535), ("I", 2**32 - 1)])
def test_packed_instances_come_back(typecode, largest):
    instance = TrainingInstance([2, largest, 7, 3, 9, 3], [0, 0, 0, 0, 1, 1], [1, 4], [largest - 1, 5], True)
    assert from_bytes(to_bytes(instance, typecode), typecode) == instance


# -- masks (known faults B13 and B14)


def masks(tokens, prob, maximum, vocab_words, seed, **options):
    return pretraining.create_masked_lm_predictions(tokens, prob, maximum, vocab_words, random.Random(seed), **options)


def test_shares_of_mask_random_and_kept():
    words = [f"w{i}" for i in range(1000)]
    vocab_words = [*SPECIAL, *words]
    fates = collections.Counter()
    for seed in range(4000):
        tokens = ["[CLS]", *random.Random(seed).choices(words, k=40), "[SEP]"]
        output, positions, labels = masks(tokens, 0.15, 20, vocab_words, seed)
        assert len(positions) == 6 and positions == sorted(set(positions))
        assert labels == [tokens[i] for i in positions]
        assert all(output[i] == tokens[i] for i in range(42) if i not in positions)
        assert not {0, 41} & set(positions)
        fates.update(
            "mask" if output[i] == "[MASK]" else "kept" if output[i] == tokens[i] else "random" for i in positions
        )
    total = fates.total()
    assert fates["mask"] / total == pytest.approx(0.8, abs=0.01)
    assert fates["kept"] / total == pytest.approx(0.1, abs=0.01)
    assert fates["random"] / total == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("length, count", [(10, 2), (30, 4), (50, 8), (70, 10), (90, 14), (3, 1), (400, 20)])
def test_number_of_predictions_rounds_halves_to_even(length, count):
    tokens = ["[CLS]", *["a"] * (length - 2), "[SEP]"]
    assert len(masks(tokens, 0.15, 20, ["a"], 1)[1]) == count


def test_random_replacements_are_special_tokens_too_unless_told_otherwise():
    words = [f"w{i}" for i in range(15)]
    tokens = ["[CLS]", *words * 2, "[SEP]"]
    special = dict.fromkeys((True, False), 0)
    total = 0
    for seed in range(4000):
        for with_special in special:
            pool = [*SPECIAL, *words] if with_special else without_special_tokens([*SPECIAL, *words, "[unused3]"])
            output, positions, _ = masks(tokens, 0.15, 20, pool, seed)
            # [MASK] as a random replacement cannot be told from a mask: four of the five can.
            special[with_special] += sum(output[i] in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") for i in positions)
        total += len(positions)
    assert special[True] / total == pytest.approx(0.1 * 4 / 20, abs=0.002)
    assert special[False] == 0


def test_words_are_masked_whole_or_not_at_all():
    tokens = "[CLS] un ##believ ##able cat sat ##s on mat ##tress [SEP] re ##read it [SEP]".split()
    words = [{1, 2, 3}, {4}, {5, 6}, {7}, {8, 9}, {11, 12}, {13}]
    seen = set()
    for seed in range(5000):
        _, positions, _ = masks(tokens, 0.25, 20, ["x"], seed, do_whole_word_mask=True)
        assert all(word <= set(positions) or not word & set(positions) for word in words)
        assert len(positions) in (3, 4)
        seen.update(positions)
    assert seen == set().union(*words)


def test_chinese_without_word_boundaries_is_masked_by_character():
    tokens = ["[CLS]", *"一二三四五六", "[SEP]"]
    pairs = {tuple(masks(tokens, 0.25, 20, ["x"], seed, do_whole_word_mask=True)[1]) for seed in range(500)}
    assert pairs == set(itertools.combinations(range(1, 7), 2))


def test_words_beyond_the_quota_leave_no_prediction():
    tokens = "[CLS] ab ##cd ##ef ##gh gh ##ij ##kl ##mn [SEP]".split()
    for seed in range(200):
        output, positions, labels = masks(tokens, 0.15, 20, ["x"], seed, do_whole_word_mask=True)
        assert (output, positions, labels) == (tokens, [], [])


def test_a_piece_at_the_start_of_b_belongs_to_the_last_word_of_a():
    """As in the original, for equal records: see the docstring."""
    tokens = "[CLS] a b [SEP] ##x c [SEP]".split()
    assert maskable_words(tokens, True) == [(1,), (2, 4), (5,)]


def test_runs_of_words():
    tokens = ["[CLS]", *(f"a{i}" for i in range(60)), "[SEP]", *(f"b{i}" for i in range(60)), "[SEP]"]
    runs = collections.Counter()
    for seed in range(2000):
        _, positions, _ = masks(tokens, 0.15, 20, ["x"], seed, max_ngram=3)
        assert 17 <= len(positions) <= 18 and len(set(positions)) == len(positions)
        assert not {0, 61, 122} & set(positions)
        groups = itertools.groupby(enumerate(positions), lambda pair: pair[1] - pair[0])
        runs.update(len(list(group)) for _, group in groups)
    # By chance alone two neighbours are both masked in 15 % of the places; with runs of two and three, far more are.
    assert runs[1] / runs.total() < 0.6
    assert runs[3] / runs.total() > 0.15


def test_runs_are_of_whole_words():
    tokens = "[CLS] a ##b c ##d e ##f g ##h [SEP] i ##j k ##l [SEP]".split()
    words = [{1, 2}, {3, 4}, {5, 6}, {7, 8}, {10, 11}, {12, 13}]
    for seed in range(500):
        _, positions, _ = masks(tokens, 0.5, 20, ["x"], seed, do_whole_word_mask=True, max_ngram=2)
        assert all(word <= set(positions) or not word & set(positions) for word in words)


# -- corpora


def test_lines_and_documents_are_read_as_the_original_reads_them(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("\n\nw1 w2\n \u200b \nw3\n\n\n\nw4", encoding="utf-8")
    (tmp_path / "b.txt").write_text("w5\n\nw6\n", encoding="utf-8")
    files = [str(tmp_path / name) for name in ("a.txt", "b.txt")]

    def tokens(**options):
        corpus = read_corpus(files, LineEncoder(tokenizer), **options)
        names = tokenizer.convert_ids_to_tokens
        return [[names(sentence) for sentence in document] for document in corpus]

    # A line without a token ends no document, and a document goes on in the next file.
    assert tokens() == [[["w1", "w2"], ["w3"]], [["w4"], ["w5"]], [["w6"]]]
    assert tokens(documents_end_with_files=True) == [[["w1", "w2"], ["w3"]], [["w4"]], [["w5"]], [["w6"]]]


def test_counts_of_a_corpus(tokenizer, tmp_path):
    text = write_documents(tmp_path / "a.txt", [["w1 w2", "unknown"], ["v600"], ["w3", "w4"]])
    counts = read_corpus([text], LineEncoder(tokenizer)).counts
    assert dataclasses.asdict(counts) == {
        "documents": 3,
        "sentences": 5,
        "tokens": 7,
        "single_sentence_documents": 1,
        "unknown": 1,
        "has_continuations": True,
    }


def test_counts_do_not_depend_on_where_the_batches_of_lines_end():
    vocab = {"[CLS]": 0, "[SEP]": 1, "[MASK]": 2, "[UNK]": 3, "a": 4}
    lengths = [2, 1, BLANK_LINE, 2, BLANK_LINE]
    for first in range(len(lengths) + 1):
        corpus = Corpus(vocab)
        for part in (lengths[:first], lengths[first:]):
            corpus.extend(array("H", [4] * sum(length for length in part if length > 0)), part)
        corpus.end_document()
        assert (corpus.counts.documents, corpus.counts.single_sentence_documents) == (len(corpus), 1) == (2, 1)


def test_given_words_are_masked_whole(tmp_path):
    words = ["中国", "人民", "银行", "在", "北京市", "。"]
    tokenizer = FullTokenizer(write_vocab(tmp_path / "vocab.txt", sorted(set("".join(words)))))
    documents = [[" ".join(random.Random(10 * d + s).choices(words, k=9)) for s in range(6)] for d in range(4)]
    text = write_documents(tmp_path / "a.txt", documents)
    starts = {word[0] for word in words}
    kept_apart = 0
    for instance in create(
        [text], tokenizer, length=40, do_whole_word_mask=True, split_words=MarkedWords(" "), dupe_factor=8
    ):
        tokens = list(instance.tokens)
        for position, label in instance.masked_lms():
            tokens[position] = label
        word_of, word = [], 0
        for place, token in enumerate(tokens):
            word += token in starts or token.startswith("[") or tokens[place - 1].startswith("[")
            word_of.append(word)
        masked = set(instance.masked_lm_positions)
        first_of_b = instance.segment_ids.index(1)
        for place in masked:
            whole = {i for i in range(len(tokens)) if word_of[i] == word_of[place]}
            if first_of_b in whole or place == first_of_b - 2:
                continue  # what truncation left of a word at the start of B belongs to the last word of A
            assert whole <= masked
            kept_apart += len(whole) > 1
    assert kept_apart > 50


def test_a_random_segment_comes_from_another_document_and_the_next_one_follows(tokenizer, tmp_path):
    text = write_documents(tmp_path / "a.txt", made_up_documents(20, 6, 8))
    random_next = 0
    for instance in create([text], tokenizer, length=64, dupe_factor=5):
        tokens = list(instance.tokens)
        for position, label in instance.masked_lms():
            tokens[position] = label
        middle = tokens.index("[SEP]")
        documents = [
            {int(t[1:]) // 10 for t in part if t.startswith("w")} for part in (tokens[:middle], tokens[middle:])
        ]
        assert len(documents[0]) == len(documents[1]) == 1
        assert (documents[0] != documents[1]) == instance.is_random_next
        random_next += instance.is_random_next
    assert 50 < random_next < 150


def test_masked_lm_alone(tokenizer, tmp_path):
    text = write_documents(tmp_path / "a.txt", made_up_documents(1, 40, 8))
    instances = create([text], tokenizer, next_sentence=False)
    assert len(instances) > 10
    for instance in instances:
        assert instance.tokens[0] == "[CLS]" and instance.tokens[-1] == "[SEP]" and "[SEP]" not in instance.tokens[1:-1]
        assert set(instance.segment_ids) == {0} and not instance.is_random_next
        assert len(instance.tokens) <= 24 and instance.masked_lm_positions


def test_records_without_masks(tokenizer, tmp_path):
    documents = made_up_documents(6, 6, 5)
    documents[0][0] = "v600 w1 v700"
    text = write_documents(tmp_path / "a.txt", documents)
    instances = create([text], tokenizer, masking="dynamic")
    pretraining.write_instance_to_example_files(instances, tokenizer, 24, 5, [tmp_path / "out"], masking="dynamic")
    continuations = 0
    for record, instance in zip(read_records(tmp_path / "out"), instances, strict=True):
        example = decode_example(record)
        assert sorted(example) == ["input_ids", "input_mask", "next_sentence_labels", "segment_ids", "word_starts"]
        assert "[MASK]" not in instance.tokens
        after_special = [token in ("[CLS]", "[SEP]") for token in ["[CLS]", *instance.tokens]]
        expected = [
            int(token not in ("[CLS]", "[SEP]") and (first or not token.startswith("##")))
            for token, first in zip(instance.tokens, after_special, strict=False)
        ]
        assert example["word_starts"] == expected + [0] * (24 - len(expected))
        continuations += sum(token.startswith("##") for token in instance.tokens)
    assert continuations > 0


def test_workers_give_the_same_bytes(tokenizer, tmp_path):
    text = write_documents(tmp_path / "a.txt", made_up_documents(40, 10, 9))
    for workers in (1, 2):
        instances = create([text], tokenizer, dupe_factor=6, num_workers=workers)
        outputs = [tmp_path / f"{workers}-{k}" for k in range(3)]
        pretraining.write_instance_to_example_files(instances, tokenizer, 24, 5, outputs, num_workers=workers)
    assert len(instances) > 1000  # several batches for the workers
    for k in range(3):
        assert (tmp_path / f"1-{k}").read_bytes() == (tmp_path / f"2-{k}").read_bytes()


def test_a_single_document_is_refused(tokenizer, tmp_path):
    text = write_documents(tmp_path / "a.txt", [["w1 w2 w3", "w4 w5 w6", "w7 w8 w9"]])
    with pytest.raises(ValueError, match="is one document.*--nonext_sentence"):
        create([text], tokenizer, length=40, dupe_factor=200)
    assert len(create([text], tokenizer, length=40, dupe_factor=200, allow_single_document=True)) > 250


def test_label_shares_with_blank_lines_in_the_right_and_wrong_places(tokenizer, tmp_path):
    """Known fault B11: six documents of eight sentences."""
    documents = made_up_documents(6, 8, 6)
    right = create([write_documents(tmp_path / "a.txt", documents)], tokenizer, dupe_factor=20)
    wrong = create(
        [write_documents(tmp_path / "b.txt", [[s] for d in documents for s in d])], tokenizer, dupe_factor=20
    )
    assert 0.5 < right.counts.random_next / right.counts.instances < 0.8
    assert wrong.counts.random_next == wrong.counts.instances


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"max_seq_length": 4}, "max_seq_length is 4"),
        ({"max_predictions_per_seq": -1}, "max_predictions_per_seq is -1"),
        ({"masked_lm_prob": -0.1}, "masked_lm_prob is -0.1"),
        ({"masked_lm_prob": float("nan")}, "masked_lm_prob is nan"),
        ({"short_seq_prob": 1.5}, "short_seq_prob is 1.5"),
        ({"masking": "none"}, "masking is 'none'"),
        ({"max_ngram": 0}, "max_ngram is 0"),
        ({"max_ngram": 2, "masking": "dynamic"}, "max_ngram is 2"),
    ],
)
def test_options_out_of_range(changes, message):
    with pytest.raises(ValueError, match=message):
        pretraining.InstanceOptions(**changes)


@pytest.mark.parametrize("name", ["no.such.module:f", "shlex", "shlex:no_such", "shlex:__doc__"])
def test_word_splitters_that_are_none(name):
    with pytest.raises(ValueError, match="word splitter"):
        ImportedWords(name)


def test_an_imported_word_splitter_goes_to_other_processes():
    splitter = pickle.loads(pickle.dumps(ImportedWords("shlex:split")))
    assert splitter("two words") == ["two", "words"]


class Splitter:
    """Gives the same words for every line; can be sent to other processes."""

    def __init__(self, *words):
        self.words = words

    def __call__(self, line):
        return self.words


def returns_none(line):
    return None


def fails(line):
    raise RuntimeError("no dictionary")


@pytest.mark.parametrize(
    "splitter, said",
    [
        (Splitter("x"), "differ from the line at character 1, blanks not counted: found 'x', expected '中国人民'"),
        (Splitter("中国", "人"), "at character 4, blanks not counted: found '', expected '民'"),
        (Splitter("中国", "人民", "。"), "at character 5, blanks not counted: found '。', expected ''"),
        (Splitter("中国", "民人"), "at character 3, blanks not counted: found '民人', expected '人民'"),
        (Splitter(1), "TypeError: sequence item 0: expected str instance, int found"),
        (returns_none, "TypeError: 'NoneType' object is not iterable"),
        (fails, "RuntimeError: no dictionary"),
    ],
)
def test_a_word_splitter_must_return_the_words_of_the_line(tmp_path, splitter, said):
    tokenizer = FullTokenizer(write_vocab(tmp_path / "vocab.txt", list("中国人民。x")))
    (tmp_path / "a.txt").write_text("\n \n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("\n 中国 人民 \n\n中国\n", encoding="utf-8")
    files = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    with pytest.raises(ValueError, match="b.txt: line 2: the word splitter fails at '中国 人民': ") as error:
        read_corpus(files, LineEncoder(tokenizer, splitter))
    assert str(error.value).endswith(said)


def test_word_splitters_may_return_blanks_and_leave_them_out(tmp_path):
    tokenizer = FullTokenizer(write_vocab(tmp_path / "vocab.txt", list("中国人民。x")))
    (tmp_path / "a.txt").write_text("中国 人民\n", encoding="utf-8")
    for words in (["中国", "人民"], ["中国", " ", "人民"], ["中国 人民"], ["中", "国人", "民"]):
        corpus = read_corpus([str(tmp_path / "a.txt")], LineEncoder(tokenizer, Splitter(*words)))
        assert corpus.counts.tokens == 4
    for line in ("中国|人民", "中国|人 民||"):
        assert len(LineEncoder(tokenizer, MarkedWords("|")).line_ids(line)) == 4


def test_other_processes_name_the_line_too(tmp_path):
    tokenizer = FullTokenizer(write_vocab(tmp_path / "vocab.txt", list("中国人民。x")))
    (tmp_path / "a.txt").write_text("中国\n", encoding="utf-8")
    with pytest.raises(ValueError, match="a.txt: line 1: the word splitter fails at '中国': its words"):
        read_corpus([str(tmp_path / "a.txt")], LineEncoder(tokenizer, ImportedWords("shlex:quote")), num_workers=2)


@pytest.mark.parametrize("probability, predictions, masked", [(0.0, 5, 1), (0.0, 0, 0), (0.15, 0, 0), (1.0, 5, 5)])
def test_bounds_of_what_is_masked_are_the_originals(tmp_path, probability, predictions, masked):
    """``min(max_predictions_per_seq, max(1, round(tokens * masked_lm_prob)))``: one token even of probability 0."""
    tokenizer = FullTokenizer(write_vocab(tmp_path / "vocab.txt", ["w"]))
    text = write_documents(tmp_path / "a.txt", [["w w w w w"] * 4] * 3)
    instances = create([text], tokenizer, length=16, masked_lm_prob=probability, predictions=predictions)
    assert {len(instance.masked_lm_positions) for instance in instances} == {masked}
    counts = pretraining.write_instance_to_example_files(instances, tokenizer, 16, predictions, [tmp_path / "a"])
    records = list(map(decode_example, read_records(tmp_path / "a")))
    assert len(records) == counts[0] and {sum(record["masked_lm_weights"]) for record in records} == {masked}
    assert {len(record["masked_lm_ids"]) for record in records} == {predictions}


@pytest.mark.parametrize("next_sentence", [True, False])
def test_what_is_cut_off_is_counted(tmp_path, next_sentence):
    tokenizer = FullTokenizer(write_vocab(tmp_path / "vocab.txt", ["w"]))
    text = write_documents(tmp_path / "a.txt", [["w " * 1000], ["w " * 3, "w"], ["w " * 9, "w " * 30]])
    options = {"length": 16, "short_seq_prob": 0.0, "dupe_factor": 7, "next_sentence": next_sentence}
    with pytest.warns(UserWarning, match="of the tokens are in no record of a pass: 2 sentences are longer than max_s"):
        counts = create([text], tokenizer, **options).counts
    room = 16 - (3 if next_sentence else 2)
    assert counts.long_sentences == 2 * 7
    least = (1000 - room) + (30 - room)
    assert 7 * least <= counts.cut_off <= 7 * (1043 - 2 * room + room)
