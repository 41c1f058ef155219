"""Data creation on Apache Beam: the shards of one machine to the bit, failures, retries, flags."""

import os
import random
import re
import sys

import pytest

from tf_bert.commands import create_pretraining_data
from tf_bert.data.pretraining import corpus_parts as pieces
from tf_bert.data.pretraining import create_on_beam as beam_module
from tf_bert.data.pretraining import create_sharded as sharded
from tf_bert.data.pretraining import token_store
from tf_bert.data.pretraining.corpus import LineEncoder, line_batches
from tf_bert.data.pretraining.create_sharded import ShardedRun
from tf_bert.data.pretraining.pairing import InstanceOptions
from tf_bert.data.text.lines import lines_from
from tf_bert.tokenization import FullTokenizer

OPTIONS = InstanceOptions(max_seq_length=24, max_predictions_per_seq=4)
WORDS = [f"w{i}" for i in range(200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A vocabulary and three text files; a document goes on from the first file in the second."""
    folder = tmp_path_factory.mktemp("beam")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    rng = random.Random(1)
    document = lambda n: "".join(" ".join(rng.choices(WORDS, k=6)) + "\n" for _ in range(n))  # noqa: E731
    for name, end in (("a", ""), ("b", "\n"), ("c", "")):
        text = "\n".join(document(rng.randint(1, 6)) for _ in range(30))
        (folder / f"{name}.txt").write_text(text + end, newline="\r\n" if name == "b" else None)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    return FullTokenizer(folder / "vocab.txt")


@pytest.fixture
def small(monkeypatch):
    """Many pieces, blocks and segments even of little text; only in this process."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 300)
    monkeypatch.setattr(token_store, "TOKENS_IN_A_BLOCK", 400)
    monkeypatch.setattr(sharded, "INSTANCES_DEALT_AT_ONCE", 30)


def a_run(folder, tokenizer, target, files="abc", shards=3, **changes):
    return ShardedRun(
        [str(folder / f"{name}.txt") for name in files],
        LineEncoder(tokenizer),
        OPTIONS,
        [str(target / f"out-{shard}-of-{shards}") for shard in range(shards)],
        str(target / "work"),
        dupe_factor=2,
        sidecar={"origin": "a test"},
        **changes,
    )


def contents(run):
    return [open(path + end, "rb").read() for path in run.outputs for end in ("", ".json")]


@pytest.fixture
def expected(folder, tokenizer, tmp_path, small):
    """What one machine makes."""
    run = a_run(folder, tokenizer, tmp_path / "one")
    counts = run.make()
    return contents(run), counts


def test_lines_from_the_middle_of_a_file(tmp_path):
    text = "\ufeffa\r\nbc\n\n \u2028d\nlast"
    (tmp_path / "a").write_text(text, encoding="utf-8", newline="")
    whole = list(lines_from(tmp_path / "a"))
    assert [line for _, line in whole] == ["a", "bc", "", " \u2028d", "last"]
    for start in range((tmp_path / "a").stat().st_size + 1):
        assert list(lines_from(tmp_path / "a", start)) == [line for line in whole if line[0] >= start]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("size", [250, 5000, 1 << 20])
def test_pieces_hold_each_document_once(folder, tokenizer, tmp_path, monkeypatch, ends, size):
    """Also pieces in which no document begins, and documents that span pieces and files."""
    monkeypatch.setattr(token_store, "TOKENS_IN_A_BLOCK", 400)
    files, encoder = [str(folder / f"{name}.txt") for name in "abc"], LineEncoder(tokenizer)
    with token_store.TokenStoreWriter(str(tmp_path / "one"), tokenizer.vocab) as writer:
        for batch in line_batches(files, ends):
            writer.extend(*encoder(batch))
    one = token_store.TokenStore(str(tmp_path / "one"), tokenizer.vocab)
    monkeypatch.setattr(pieces, "PIECE_BYTES", size)
    n_pieces = len(pieces.cut(files))
    for number in reversed(range(n_pieces)):
        pieces.write_piece(str(tmp_path / "many"), number, files, encoder, ends)
    counts = pieces.write_index(str(tmp_path / "many"), n_pieces)
    many = pieces.PieceStore(str(tmp_path / "many"), tokenizer.vocab)
    assert [list(document) for document in many] == [list(document) for document in one]
    assert [many.block(number) for number in range(many.n_blocks)] == [
        one.block(number) for number in range(one.n_blocks)
    ]
    assert counts == many.counts == writer.counts
    assert n_pieces > 1 or size > 5000


def test_pieces_smaller_than_a_line(folder):
    files = [str(folder / f"{name}.txt") for name in "abc"]
    lines = [line for piece in pieces.cut(files, 7) for line in pieces.lines_of(files, piece, False)]
    whole = [line for batch in line_batches(files, False) for line in batch]
    assert [line for line in lines if line] == [line for line in whole if line]


def test_a_compressed_file_is_one_piece(folder, tmp_path):
    import gzip

    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write((folder / "a.txt").read_bytes())
    assert pieces.cut([str(tmp_path / "a.gz")], 10) == [pieces.Piece(0, 0, None)]
    (piece,) = pieces.cut([str(tmp_path / "a.gz")])
    assert (
        list(pieces.lines_of([str(tmp_path / "a.gz")], piece, False)) == (folder / "a.txt").read_text().split("\n")[:-1]
    )


def needs_beam():
    return pytest.importorskip("apache_beam", reason="apache-beam is not installed (pip install -e '.[beam]')")


def test_the_shards_of_one_machine(folder, tokenizer, tmp_path, expected):
    """On the DirectRunner in this process, with many pieces and blocks; bundles are done twice."""
    needs_beam()
    run = a_run(folder, tokenizer, tmp_path / "beam")
    counts = beam_module.make(run, runner_flags=["--direct_runner_bundle_repeat=1"])
    assert (contents(run), counts) == expected
    assert not os.path.exists(run.work_folder)
    assert beam_module.make(a_run(folder, tokenizer, tmp_path / "beam")) is None  # they are there


def test_several_workers_by_the_command_line(folder, tmp_path, capsys):
    needs_beam()
    names = ",".join(str(folder / f"{name}.txt") for name in "abc")
    flags = [f"--input_file={names}", f"--vocab_file={folder / 'vocab.txt'}", "--max_seq_length=24", "--num_shards=2"]
    flags += ["--max_predictions_per_seq=4", "--dupe_factor=2", "--sharded", "--num_workers=2", "--packed_length=48"]
    assert create_pretraining_data.main([*flags, f"--output_file={tmp_path / 'one'}"]) == 0
    alone = capsys.readouterr().out.split("written to")[0]
    assert create_pretraining_data.main([*flags, f"--output_file={tmp_path / 'two'}", "--runner=DirectRunner"]) == 0
    assert capsys.readouterr().out.split("written to")[0] == alone
    for shard in ("0-of-00002", "1-of-00002"):
        for end in ("", ".json"):
            one, two = (tmp_path / f"{name}-0000{shard}{end}" for name in ("one", "two"))
            assert one.read_bytes() == two.read_bytes()
    assert create_pretraining_data.main([*flags, f"--output_file={tmp_path / 'two'}", "--runner=DirectRunner"]) == 0
    assert "nothing to do" in capsys.readouterr().out


class Killed(BaseException):
    pass


def test_work_that_is_cut_off_and_done_again(folder, tokenizer, tmp_path, expected, monkeypatch):
    """Each piece, block and shard is begun, cut off in the middle, done, and done once more by another worker."""
    run = a_run(folder, tokenizer, tmp_path / "beam")
    run.take_work_folder()
    steps = beam_module.Steps(run, run.missing_shards(), len(pieces.cut(run.files)))

    def three_times(work, number, owner, name):
        original, calls = getattr(owner, name), []

        def dying(*arguments):
            calls.append(arguments)
            if len(calls) == 2:
                raise Killed
            return original(*arguments)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(owner, name, dying)
            work(number)
            raise Killed  # it had less to do
        assert work(number) == work(number) == number

    for piece in range(steps.n_pieces):
        three_times(steps.tokenize, piece, token_store, "_numbers")
    blocks = list(steps.blocks(0))
    assert len(blocks) > 3
    for block in blocks:
        three_times(steps.make_block, block, sharded, "to_bytes")
    for shard in steps.shards(0):
        three_times(steps.make_shard, shard, sharded, "from_bytes")
    assert (contents(run), steps.counts()) == expected


def test_a_job_that_failed_goes_on(folder, tokenizer, tmp_path, expected, monkeypatch):
    needs_beam()
    with monkeypatch.context() as patch:
        patch.setattr(ShardedRun, "make_shard", lambda self, shard: 1 / 0)
        with pytest.raises(ChildProcessError, match="^the job failed: ZeroDivisionError: division by zero$"):
            beam_module.make(a_run(folder, tokenizer, tmp_path / "beam"))
        patch.setattr(ShardedRun, "make_block", lambda self, block: 1 / 0)  # they are there
        patch.undo()
    run = a_run(folder, tokenizer, tmp_path / "beam")
    monkeypatch.setattr(ShardedRun, "make_block", None)
    assert (beam_module.make(run), contents(run)) == (expected[1], expected[0])


def test_outputs_that_exist(folder, tokenizer, tmp_path, expected):
    """Shards of other settings are replaced; a shard that was lost is made again, and the others are left."""
    needs_beam()
    old = a_run(folder, tokenizer, tmp_path / "beam", random_seed=7)
    old.make()
    assert contents(old) != expected[0]
    run = a_run(folder, tokenizer, tmp_path / "beam")
    beam_module.make(run)
    assert contents(run) == expected[0]
    os.remove(run.outputs[1])
    times = [os.stat(path).st_mtime_ns for path in run.outputs[::2]]
    assert beam_module.make(a_run(folder, tokenizer, tmp_path / "beam")) is not None
    assert contents(run) == expected[0]
    assert [os.stat(path).st_mtime_ns for path in run.outputs[::2]] == times


def test_a_document_longer_than_shards_and_pieces(folder, tokenizer, tmp_path, small):
    needs_beam()
    rng = random.Random(2)
    lines = [" ".join(rng.choices(WORDS, k=6)) for _ in range(300)]
    (tmp_path / "long.txt").write_text("\n".join(["w1 w2", "", *lines, "", "w3"]))
    runs = [a_run(tmp_path, tokenizer, tmp_path / name, files=["long"], shards=20) for name in ("one", "beam")]
    counts = [runs[0].make(), beam_module.make(runs[1])]
    assert counts[0] == counts[1] and contents(runs[0]) == contents(runs[1])


@pytest.mark.parametrize(
    "text, shards, error, message",
    [
        (b"w1\n", 1, ValueError, "the input is one document, but"),
        (b"w1\n\nw2\n", 30, ValueError, "records for 30 shards: some would be empty"),
        (b"w1\n\nw\xff2\n", 1, ValueError, r"bad.txt: not valid UTF-8 at byte offset 5"),
    ],
)
def test_text_that_is_no_good_is_told_of_in_one_line(tokenizer, tmp_path, text, shards, error, message):
    needs_beam()
    (tmp_path / "bad.txt").write_bytes(text)
    with pytest.raises(error, match=message) as caught:
        beam_module.make(a_run(tmp_path, tokenizer, tmp_path / "out", files=["bad"], shards=shards))
    assert "\n" not in str(caught.value) and "while running" not in str(caught.value)


@pytest.mark.slow
def test_remote_text_work_folder_and_shards(folder, tokenizer, tmp_path, expected):
    """On TensorFlow's file system in memory, which stands for a bucket; the job runs in this process."""
    needs_beam()
    gfile = pytest.importorskip("tensorflow").io.gfile
    gfile.makedirs("ram://bucket/text")
    for name in "abc":
        gfile.copy(str(folder / f"{name}.txt"), f"ram://bucket/text/{name}.txt", overwrite=True)
    run = ShardedRun(
        [f"ram://bucket/text/{name}.txt" for name in "abc"],
        LineEncoder(tokenizer),
        OPTIONS,
        [f"ram://bucket/out-{shard}-of-3" for shard in range(3)],
        "ram://bucket/work",
        dupe_factor=2,
        sidecar={"origin": "a test"},
    )
    assert beam_module.make(run) == expected[1]
    made = [gfile.GFile(path, "rb").read() for path in run.outputs]
    assert made == expected[0][::2]
    assert not gfile.exists("ram://bucket/work")
    assert beam_module.make(run) is None


def flags_of(folder, *more):
    return [
        f"--input_file={folder / 'a.txt'}",
        f"--vocab_file={folder / 'vocab.txt'}",
        f"--output_file={folder / 'never'}",
        *more,
    ]


def test_what_is_not_installed_is_said_in_one_line(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    argv = flags_of(folder, "--sharded", "--num_shards=2", "--runner=FlinkRunner")
    assert create_pretraining_data.main(argv) == 1
    said = capsys.readouterr().err.strip()
    assert re.search(r"error: --runner=FlinkRunner needs Apache Beam .*pip install 'tf_bert\[beam\]'", said)
    assert "\n" not in said


def test_dataflow_needs_more(monkeypatch):
    needs_beam()
    monkeypatch.setitem(sys.modules, "google.cloud.dataflow", None)
    monkeypatch.setitem(sys.modules, "google.cloud.storage", None)
    monkeypatch.setitem(sys.modules, "apitools", None)
    with pytest.raises(ImportError, match=r"needs apache-beam\[gcp\] .*pip install 'apache-beam\[gcp\]'$"):
        beam_module.import_beam("DataflowRunner")


def test_flags_of_beam_are_passed_on_and_checked(folder, capsys):
    needs_beam()
    options = beam_module.pipeline_options("FlinkRunner", ["--flink_master=host:8081", "--parallelism=4"])
    every = options.get_all_options()
    assert (every["flink_master"], every["parallelism"]) == ("host:8081", 4)
    assert beam_module.pipeline_options("DirectRunner", [], 3).get_all_options()["direct_num_workers"] == 3
    assert beam_module.pipeline_options("DataflowRunner", ["--project=p"], 3).get_all_options()["num_workers"] == 3
    argv = flags_of(folder, "--sharded", "--num_shards=2", "--runner=DirectRunner", "--direct_num_worker=2")
    assert create_pretraining_data.main(argv) == 1
    assert "knows the flag --direct_num_worker; did you mean --direct_num_workers?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, message",
    [
        (["--sharded", "--num_shards=2", "--direct_num_workers=2"], "unknown flag --direct_num_workers"),
        (["--runner=DirectRunner"], "--runner goes with --sharded"),
        (["--sharded", "--num_shards=2", "--runner=Local"], "--runner"),
    ],
)
def test_flags_that_do_not_go_together(folder, capsys, more, message):
    assert create_pretraining_data.main(flags_of(folder, *more)) == 2
    assert message in capsys.readouterr().err
