"""Pre-training data in sharded mode: what it depends on, how it is shuffled, how an interrupted run goes on."""

import collections
import dataclasses
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import ROOT
from tf_bert.data.pretraining import create_sharded as sharded
from tf_bert.data.pretraining import token_store
from tf_bert.data.pretraining.corpus import Corpus, LineEncoder, line_batches
from tf_bert.data.pretraining.create_sharded import ShardedRun
from tf_bert.data.pretraining.pairing import InstanceOptions
from tf_bert.data.tfrecord.files import RecordWriter, decode_example, read_records
from tf_bert.data.tfrecord.process_pool import Workers
from tf_bert.data.tfrecord.sidecar import read_sidecar
from tf_bert.tokenization import FullTokenizer

OPTIONS = InstanceOptions(max_seq_length=24, max_predictions_per_seq=4)
FIRST_WORD = 5  # its id; word i of document d is 10 d + i behind it


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(1000))]))
    return FullTokenizer(path)


@pytest.fixture
def text(tmp_path):
    return write_text(tmp_path / "text.txt", 80)


def write_text(path, n_documents):
    rng = random.Random(0)
    documents = [
        "\n".join(" ".join(f"w{10 * d + rng.randrange(10)}" for _ in range(8)) for _ in range(5))
        for d in range(n_documents)
    ]
    path.write_text("\n\n".join(documents))
    return str(path)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks and segments even of little text."""
    monkeypatch.setattr(token_store, "TOKENS_IN_A_BLOCK", 500)
    monkeypatch.setattr(sharded, "INSTANCES_DEALT_AT_ONCE", 30)


def a_run(text, tokenizer, folder, shards=3, seed=12345, dupe_factor=4, options=OPTIONS):
    outputs = [os.path.join(folder, f"out-{shard}-of-{shards}") for shard in range(shards)]
    return ShardedRun(
        [text],
        LineEncoder(tokenizer),
        options,
        outputs,
        os.path.join(folder, "work"),
        dupe_factor=dupe_factor,
        random_seed=seed,
        sidecar={"origin": "a test"},
    )


def made(*arguments, num_workers=1, **options):
    run = a_run(*arguments, **options)
    run.make(num_workers)
    return run


def contents(run):
    return [open(path, "rb").read() for path in run.outputs]


def records(run):
    return [[decode_example(record) for record in read_records(path)] for path in run.outputs]


def documents_of(record):
    """The documents of segment A and of segment B, from the labels and the tokens that are not random."""
    ids = list(record["input_ids"])
    for position, label, weight in zip(
        record["masked_lm_positions"], record["masked_lm_ids"], record["masked_lm_weights"], strict=True
    ):
        if weight:
            ids[position] = label
    a, b = set(), set()
    for token, segment in zip(ids, record["segment_ids"], strict=True):
        if token >= FIRST_WORD:
            (b if segment else a).add((token - FIRST_WORD) // 10)
    return a, b


def test_the_store_holds_what_a_corpus_in_memory_holds(text, tokenizer, tmp_path):
    encoder = LineEncoder(tokenizer)
    corpus = Corpus(tokenizer.vocab)
    with token_store.TokenStoreWriter(str(tmp_path), tokenizer.vocab) as writer:
        for ids, lengths in map(encoder, line_batches([text], False)):
            writer.extend(ids, lengths)
            corpus.extend(ids, lengths)
    corpus.end_document()
    store = token_store.TokenStore(str(tmp_path), tokenizer.vocab)
    assert [list(document) for document in store] == [list(document) for document in corpus]
    assert writer.counts == corpus.counts
    blocks = [store.block(number) for number in range(store.n_blocks)]
    assert len(blocks) > 4
    assert [document for block in blocks for document in block] == list(range(80))


def test_equal_bytes_from_any_number_of_workers(text, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(sharded, "INSTANCES_DEALT_AT_ONCE", 20_000)  # as in the worker processes, which are new
    runs = [made(text, tokenizer, str(tmp_path / str(n)), num_workers=n) for n in (1, 2)]
    assert contents(runs[0]) == contents(runs[1])


def all_records(run):
    return [record for shard in records(run) for record in shard]


def test_draws_depend_on_seed_document_and_pass_alone(text, tokenizer, tmp_path):
    """So another number of shards only deals the same records out differently."""
    few = made(text, tokenizer, str(tmp_path / "few"), shards=2)
    many = made(text, tokenizer, str(tmp_path / "many"), shards=7)
    other = made(text, tokenizer, str(tmp_path / "other"), shards=2, seed=1)
    count = [collections.Counter(map(str, all_records(run))) for run in (few, many, other)]
    assert count[0] == count[1] != count[2]


def test_passes_differ(text, tokenizer, tmp_path):
    run = made(text, tokenizer, str(tmp_path), dupe_factor=2)
    counts = collections.Counter(map(str, all_records(run)))
    assert max(counts.values()) == 1


def test_random_segments_come_from_any_other_document(text, tokenizer, tmp_path):
    run = made(text, tokenizer, str(tmp_path), dupe_factor=10)
    others = collections.Counter()
    for record in all_records(run):
        a, b = documents_of(record)
        assert len(a) == len(b) == 1
        assert (a != b) == bool(record["next_sentence_labels"][0])
        if a != b:
            others.update(b)
    assert len(others) == 80 and max(others.values()) < 6 * min(others.values()) + 20


def test_two_documents_never_make_a_wrong_label(tokenizer, tmp_path):
    text = write_text(tmp_path / "two.txt", 2)
    run = made(text, tokenizer, str(tmp_path), dupe_factor=400)
    for record in all_records(run):
        a, b = documents_of(record)
        assert (a != b) == bool(record["next_sentence_labels"][0])


def test_each_shard_is_a_shuffled_sample_of_the_corpus(text, tokenizer, tmp_path):
    run = made(text, tokenizer, str(tmp_path), dupe_factor=12)
    sizes = [len(shard) for shard in records(run)]
    assert max(sizes) - min(sizes) < 0.2 * max(sizes)
    for shard in records(run):
        first_half = [min(documents_of(record)[0]) for record in shard[: len(shard) // 2]]
        assert 33 < sum(first_half) / len(first_half) < 46  # 39.5 is the middle of the corpus
        neighbours = sum(abs(a - b) <= 1 for a, b in zip(first_half, first_half[1:], strict=False))
        assert neighbours < 0.12 * len(first_half)


def test_facts_lie_beside_each_shard(text, tokenizer, tmp_path):
    run = made(text, tokenizer, str(tmp_path))
    for path, shard in zip(run.outputs, records(run), strict=True):
        sidecar = read_sidecar(path)
        assert sidecar == dataclasses.asdict(OPTIONS) | {
            "random_seed": 12345,
            "dupe_factor": 4,
            "origin": "a test",
            "records": len(shard),
            "run": run.run_id,
        }
    assert not os.path.exists(run.work_folder)


class Killed(BaseException):
    pass


def interrupt(monkeypatch, owner, name, after):
    """Lets ``owner.name`` die at its call number ``after``."""
    original, calls = getattr(owner, name), []

    def dying(*arguments):
        calls.append(arguments)
        if len(calls) == after:
            raise Killed
        return original(*arguments)

    monkeypatch.setattr(owner, name, dying)


@pytest.mark.parametrize("step, after", [("make_block", 4), ("make_shard", 3), ("_tokenize", 1)])
def test_an_interrupted_run_goes_on(text, tokenizer, tmp_path, monkeypatch, capsys, step, after):
    whole = made(text, tokenizer, str(tmp_path / "whole"), shards=4)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        interrupt(patch, ShardedRun, step, after)
        a_run(text, tokenizer, str(tmp_path / "cut"), shards=4).make()
    run = a_run(text, tokenizer, str(tmp_path / "cut"), shards=4)
    times = {path: os.stat(path).st_mtime_ns for path in run.outputs if os.path.exists(path)}
    assert len(times) == (2 if step == "make_shard" else 0)
    capsys.readouterr()
    run.make()
    assert ("going on with an interrupted run" in capsys.readouterr().err) == (step != "_tokenize")
    assert contents(run) == contents(whole)
    assert all(os.stat(path).st_mtime_ns == time for path, time in times.items())
    assert sorted(os.listdir(tmp_path / "cut")) == sorted(os.listdir(tmp_path / "whole"))


def test_a_write_that_fails_leaves_the_rest_to_a_later_run(text, tokenizer, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        interrupt(patch, RecordWriter, "write", 100)  # inside the first shard
        a_run(text, tokenizer, str(tmp_path)).make()
    assert sorted(os.listdir(tmp_path)) == ["text.txt", "work"]
    assert len(records(made(text, tokenizer, str(tmp_path)))) == 3


def test_a_complete_run_has_nothing_to_do_and_a_lost_shard_is_made_again(text, tokenizer, tmp_path):
    run = made(text, tokenizer, str(tmp_path))
    assert a_run(text, tokenizer, str(tmp_path)).make() is None
    before = contents(run)
    os.remove(run.outputs[1])
    assert a_run(text, tokenizer, str(tmp_path)).make() is not None
    assert contents(run) == before


def test_an_unfinished_run_with_other_settings_is_not_mixed_in(text, tokenizer, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        interrupt(patch, ShardedRun, "make_shard", 2)
        a_run(text, tokenizer, str(tmp_path)).make()
    with pytest.raises(ValueError, match=r"unfinished run with other settings \(random_seed: 12345 there, 7 now\)"):
        a_run(text, tokenizer, str(tmp_path), seed=7).make()


def test_a_folder_with_other_files_is_left_alone(text, tokenizer, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "precious.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds other files"):
        a_run(text, tokenizer, str(tmp_path)).make()
    assert (tmp_path / "work" / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 7},
        {"options": dataclasses.replace(OPTIONS, masked_lm_prob=0.3)},
        {"options": dataclasses.replace(OPTIONS, masking="dynamic")},
    ],
)
def test_new_settings_replace_a_complete_run(text, tokenizer, tmp_path, changes):
    first = contents(made(text, tokenizer, str(tmp_path)))
    assert contents(made(text, tokenizer, str(tmp_path), **changes)) != first


def test_another_text_or_vocabulary_is_another_run(text, tokenizer, tmp_path):
    made(text, tokenizer, str(tmp_path))
    write_text(tmp_path / "text.txt", 81)
    assert a_run(text, tokenizer, str(tmp_path)).make() is not None
    (tmp_path / "vocab.txt").write_text("\n".join([*tokenizer.vocab, "more"]))
    assert a_run(text, FullTokenizer(tmp_path / "vocab.txt"), str(tmp_path)).make() is not None
    assert a_run(text, FullTokenizer(tmp_path / "vocab.txt"), str(tmp_path)).make() is None


@pytest.mark.parametrize(
    "content, shards, message",
    [
        ("w1 w2\nw3\n", 3, "is one document"),
        ("\n \n", 3, "no sentence"),
        ("w1\n\nw2\n", 10, "2 records for 10 shards"),
    ],
)
def test_text_that_is_too_little(tokenizer, tmp_path, content, shards, message):
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(ValueError, match=message):
        a_run(str(tmp_path / "a.txt"), tokenizer, str(tmp_path), shards=shards, dupe_factor=1).make()
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_worker_that_dies_is_told_of():
    with Workers(os._exit, 2) as workers, pytest.raises(ChildProcessError, match="a worker process died"):
        list(workers.map([1]))


def pid_of_worker(_):
    time.sleep(0.2)  # so that each worker gets an item
    return os.getpid()


def test_workers_end_when_the_program_is_killed(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, time\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.data.pretraining.test_create_sharded import Workers, pid_of_worker\n"
        "if __name__ == '__main__':\n"
        "    with Workers(pid_of_worker, 2) as workers:\n"
        "        print(*set(workers.map(range(8))), flush=True)\n"
        "        time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as program:
        pids = [int(pid) for pid in program.stdout.readline().split()]
        assert len(pids) == 2 and all(map(is_running, pids))
        program.kill()
    deadline = time.monotonic() + 30
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, "a worker is left"
        time.sleep(0.1)


def is_running(pid):
    try:
        return b"\nState:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()
    except FileNotFoundError:
        return False
