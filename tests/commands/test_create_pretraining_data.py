"""The command create_pretraining_data: flags, what it writes and says, bad input."""

import json
import os
import random
import re
import resource
import subprocess
import sys

import pytest

from tests.support import ROOT
from tf_bert.commands import create_pretraining_data
from tf_bert.data.tfrecord.files import decode_example, read_records

TOOL = ROOT / "tools" / "create_pretraining_data.py"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def folder(tmp_path):
    """vocab.txt and text.txt: 30 documents of 6 sentences."""
    write_vocab(tmp_path / "vocab.txt", SPECIAL)
    write_text(tmp_path / "text.txt", 30)
    return tmp_path


def write_vocab(path, special, words=None):
    words = words or [f"w{i}" for i in range(200)]
    path.write_text("".join(f"{token}\n" for token in [*special, *words]), encoding="utf-8")


def write_text(path, n_documents, n_sentences=6, blank="\n\n"):
    rng = random.Random(0)
    sentences = [" ".join(f"w{rng.randrange(200)}" for _ in range(7)) for _ in range(n_documents * n_sentences)]
    documents = ["\n".join(sentences[i : i + n_sentences]) for i in range(0, len(sentences), n_sentences)]
    path.write_text(blank.join(documents) + "\n", encoding="utf-8")


def argv(folder, *flags, **changes):
    values = {
        "input_file": folder / "text.txt",
        "output_file": folder / "out",
        "vocab_file": folder / "vocab.txt",
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "dupe_factor": 2,
    } | changes
    return [*(f"--{name}={value}" for name, value in values.items()), *flags]


def run(folder, *flags, **changes):
    return create_pretraining_data.main(argv(folder, *flags, **changes))


def test_flags_and_defaults_are_the_originals():
    flags = create_pretraining_data.FLAGS.parse(["--input_file=a", "--output_file=b", "--vocab_file=c"])
    defaults = {
        "do_lower_case": True,
        "do_whole_word_mask": False,
        "max_seq_length": 128,
        "max_predictions_per_seq": 20,
        "random_seed": 12345,
        "dupe_factor": 10,
        "masked_lm_prob": 0.15,
        "short_seq_prob": 0.1,
    }
    assert {name: flags[name].value for name in defaults} == defaults


def test_the_originals_command_line_in_a_new_process_without_tensorflow(folder):
    code = (
        "import runpy, sys\n"
        "sys.argv[0] = sys.argv.pop(1)\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as end: status = end.code\n"
        "print('loaded', sorted({'tensorflow', 'keras', 'numpy'} & set(sys.modules)))\n"
        "sys.exit(status)"
    )
    command = [sys.executable, "-c", code, str(TOOL)]
    done = subprocess.run([*command, *argv(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("loaded []\n")


def test_the_tool_with_workers(folder):
    one = argv(folder, "--sharded", num_shards=2, output_file=folder / "one")
    two = argv(folder, "--sharded", num_shards=2, output_file=folder / "two", num_workers=2)
    for arguments in (one, two):
        subprocess.run([sys.executable, str(TOOL), *arguments], check=True, capture_output=True)
    for shard in ("00000-of-00002", "00001-of-00002"):
        assert (folder / f"one-{shard}").read_bytes() == (folder / f"two-{shard}").read_bytes()
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith("two")) == [
        "two-00000-of-00002",
        "two-00000-of-00002.json",
        "two-00001-of-00002",
        "two-00001-of-00002.json",
    ]


def test_summary_and_facts(folder, capsys):
    assert run(folder, "--log_examples=2", output_file=f"{folder}/new/a,{folder}/new/b") == 0
    out = capsys.readouterr().out
    assert out.count("masked_lm_labels: ") == 2
    counts = [sum(1 for _ in read_records(folder / "new" / name)) for name in "ab"]
    examples = [decode_example(record) for name in "ab" for record in read_records(folder / "new" / name)]
    random_next = sum(example["next_sentence_labels"][0] for example in examples) / len(examples)
    tokens = sum(sum(example["input_mask"]) for example in examples)
    masked = sum(sum(example["masked_lm_weights"]) for example in examples)
    rows = dict(line.split(maxsplit=1) for line in out.splitlines()[-11:-1] if not line.startswith("random"))
    assert rows["documents"].split()[0] == "30" and rows["sentences"].split()[0] == "180"
    assert rows["tokens"].split()[0] == "1,260" and rows["[UNK]"].split()[0] == "0.00%"
    assert rows["records"].split()[0] == str(len(examples))
    assert rows["padding"].split()[0] == f"{1 - tokens / (32 * len(examples)):.1%}"
    assert rows["masked"].split()[0] == f"{masked / tokens:.1%}"
    assert f"{random_next:.1%}" in next(line for line in out.splitlines() if line.startswith("random next"))
    for name, count in zip("ab", counts, strict=True):
        sidecar = json.loads((folder / "new" / f"{name}.json").read_text())
        assert (
            sidecar["records"] == count and sidecar["max_seq_length"] == 32 and sidecar["max_predictions_per_seq"] == 5
        )
        assert sidecar["vocab_size"] == 205 and sidecar["do_lower_case"] is True and len(sidecar["vocab_sha256"]) == 64
        assert sidecar["special_ids"]["[MASK]"] == 4


@pytest.mark.parametrize("more", [[], ["--sharded", "--num_shards=1"]])
def test_the_report_counts_what_is_never_used(folder, capsys, more):
    """One line of 20,000 pieces in records of 32: all but about 27 of them are in none."""
    (folder / "text.txt").write_text("w1 " * 20_000 + "\n\nw2 w3\nw4\n")
    assert run(folder, *more) == 0
    out, err = capsys.readouterr()
    assert "99.85% of the tokens are in no record of a pass: 1 sentences are longer than max_seq_length 32" in err
    assert re.search(r"^never used +19,97\d  of the tokens in a pass \(99.85%\), cut off$", out, re.MULTILINE)
    assert re.search(r"^too long +1  of the sentences, for one record$", out, re.MULTILINE)


def test_records_go_round_many_files_and_old_ones_are_replaced(folder):
    outputs = [folder / f"o{k}" for k in range(5)]
    for _ in range(2):
        assert run(folder, output_file=",".join(map(str, outputs))) == 0
        counts = [sum(1 for _ in read_records(path)) for path in outputs]
        assert max(counts) - min(counts) <= 1


def test_sharded_twice_has_nothing_to_do(folder, capsys):
    assert run(folder, "--sharded", num_shards=2) == 0
    assert run(folder, "--sharded", num_shards=2) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run(folder, "--sharded", num_shards=3) == 0
    assert "out-00000-of-00002 and 1 other shards" in capsys.readouterr().err


def error_of(capsys):
    lines = capsys.readouterr().err.strip().splitlines()
    errors = [line for line in lines if ": error: " in line]
    assert len(errors) == 1 and lines[-1] == errors[0]
    return errors[0]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"input_file": "/nowhere/*.txt"}, "matches no file"),
        ({"vocab_file": "/nowhere/vocab.txt"}, "/nowhere/vocab.txt"),
        ({"max_seq_length": 4}, "max_seq_length"),
        ({"masked_lm_prob": -1}, "masked_lm_prob"),
        ({"dupe_factor": 0}, "dupe_factor"),
        ({"max_seq_lenght": 64}, "did you mean --max_seq_length"),
        ({"output_file": ","}, "names no file"),
        ({"num_shards": 2}, "--sharded and --num_shards=N go together"),
        ({"sharded": True}, "--sharded and --num_shards=N go together"),
        ({"sharded": True, "num_shards": 2, "output_file": "a,b"}, "takes one --output_file"),
        ({"sharded": True, "num_shards": 2, "log_examples": 2}, "do not go with --sharded"),
        ({"sharded": True, "num_shards": 2, "output_file": "gs://bucket/a"}, "needs a local --work_folder"),
        ({"work_folder": "x"}, "goes with --sharded"),
        ({"word_marker": " "}, "matter only to --do_whole_word_mask"),
        ({"word_marker": "", "do_whole_word_mask": True}, "is empty"),
        ({"word_marker": " ", "word_splitter": "shlex:split", "do_whole_word_mask": True}, "exclude each other"),
        ({"word_splitter": "shlex:none", "do_whole_word_mask": True}, "shlex:none"),
        ({"max_ngram": 2, "masking": "dynamic"}, "max_ngram"),
    ],
)
def test_mistakes_in_the_flags(folder, capsys, changes, message):
    assert run(folder, **changes) != 0
    assert message in error_of(capsys)
    assert sorted(os.listdir(folder)) == ["text.txt", "vocab.txt"]


def test_outputs_that_cannot_be(folder, capsys):
    assert run(folder, output_file=f"{folder}/a,{folder}/a") != 0
    assert "names a file twice" in error_of(capsys)
    assert run(folder, output_file=folder) != 0
    assert "is a directory" in error_of(capsys)
    assert run(folder, output_file=folder / "text.txt") != 0
    assert "both an --input_file and an --output_file" in error_of(capsys)
    assert run(folder, output_file=folder / "vocab.txt" / "out") != 0
    assert "vocab.txt" in error_of(capsys)
    write_text(folder / "text.txt", 2, 2)
    assert run(folder, output_file=",".join(f"{folder}/{k}" for k in range(40))) != 0
    assert "for 40 output files" in error_of(capsys)
    assert sorted(os.listdir(folder)) == ["text.txt", "vocab.txt"]


@pytest.mark.parametrize("missing", SPECIAL)
def test_missing_special_tokens_are_found_before_any_text_is_read(folder, capsys, missing):
    write_vocab(folder / "vocab.txt", [token for token in SPECIAL if token != missing])
    (folder / "text.txt").write_bytes(b"\xff\xff not text at all")
    assert run(folder) == 1
    assert missing in error_of(capsys)


def test_padding_must_be_id_0(folder, capsys):
    write_vocab(folder / "vocab.txt", ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
    assert run(folder) == 1
    assert "[PAD] is id 3 (line 4)" in error_of(capsys)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "no sentence"),
        (b"\n \n\xe2\x80\x8b\n", "no sentence"),
        (b"w1 w2\nw3\n", "is one document"),
        (b"w1 w2\n\nw3 \xff w4\n", "byte offset 10"),
    ],
)
@pytest.mark.parametrize("flags", [(), ("--sharded", "--num_shards=1")])
def test_bad_text(folder, capsys, content, message, flags):
    (folder / "text.txt").write_bytes(content)
    (folder / "out").write_bytes(b"old")
    assert run(folder, *flags) == 1
    assert message in error_of(capsys)
    assert (folder / "out").read_bytes() == b"old"
    assert sorted(os.listdir(folder)) == ["out", "text.txt", "vocab.txt"]


def test_one_document_can_be_forced_or_made_into_single_segments(folder):
    (folder / "text.txt").write_text("w1 w2\nw3\n")
    assert run(folder, "--allow_single_document") == 0
    assert run(folder, "--nonext_sentence") == 0


@pytest.mark.parametrize(
    "flags, message",
    [
        ((), None),
        (("--max_predictions_per_seq=20",), "--max_predictions_per_seq=5 fits"),
        (("--max_seq_length=512",), "--max_predictions_per_seq=77 fits"),
        (("--max_seq_length=100", "--masked_lm_prob=0.14"), "--max_predictions_per_seq=14 fits"),
        (("--do_whole_word_mask",), "do_whole_word_mask has no effect"),
        (("--do_lower_case=False",), "do_lower_case is False, but 0 of 200"),
    ],
)
def test_warnings(folder, capsys, flags, message):
    assert run(folder, *flags) == 0
    err = capsys.readouterr().err
    assert message in err if message else "warning" not in err


def test_a_blank_line_after_each_sentence_is_warned_of(folder, capsys):
    write_text(folder / "text.txt", 180, 1)
    assert run(folder) == 0
    captured = capsys.readouterr()
    assert "180 of 180 documents have a single sentence" in captured.err
    assert "100.0%" in captured.out  # of the labels are 1


def test_text_of_another_vocabulary_is_warned_of(folder, capsys):
    (folder / "text.txt").write_text((folder / "text.txt").read_text().replace("w1", "x"))
    assert run(folder) == 0
    assert "of the tokens are [UNK]" in capsys.readouterr().err


def test_odd_text(folder):
    """BOM, CRLF, U+2028 and NUL inside lines, a megabyte without a blank."""
    text = "\ufeffw1 w2\u2028w3\r\nw4 \0w5\r\n\r\n" + "w" * 1_000_000 + " w6\nw7\n"
    (folder / "text.txt").write_bytes(text.encode())
    assert run(folder) == 0
    seen = {number for record in read_records(folder / "out") for number in decode_example(record)["masked_lm_ids"]}
    assert {5 + n for n in range(1, 8)} & seen


@pytest.mark.parametrize("flags", [[], ["--sharded", "--num_shards=1"]])
def test_a_full_disk_leaves_the_old_file(folder, flags):
    output = folder / ("out-00000-of-00001" if flags else "out")
    output.write_bytes(b"old")
    (folder / f"{output.name}.json").write_text("{}")

    def limit_file_size():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(
        [sys.executable, str(TOOL), *argv(folder, *flags, dupe_factor=40)],
        preexec_fn=limit_file_size,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "error: " in done.stderr and "File too large" in done.stderr and "Traceback" not in done.stderr
    assert output.read_bytes() == b"old"
    left = set(os.listdir(folder)) - {"out.work"}
    assert left == {"text.txt", "vocab.txt", output.name, f"{output.name}.json"}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_passes(folder, peak_kilobytes):
    """400 documents of 25 sentences of 20 words; the original took 33, 88 and 269 MB for 1, 10 and 40 passes."""
    rng = random.Random(0)
    words = [f"word{number}" for number in range(2000)]
    write_vocab(folder / "vocab.txt", SPECIAL, words)
    sentences = [" ".join(rng.choices(words, k=20)) for _ in range(400 * 25)]
    documents = ["\n".join(sentences[start : start + 25]) for start in range(0, len(sentences), 25)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n")
    code = "import sys; from tf_bert.commands.create_pretraining_data import main; assert main(sys.argv[1:]) == 0"

    def peak(dupe_factor):
        return peak_kilobytes(
            code, *argv(folder, max_seq_length=128, max_predictions_per_seq=20, dupe_factor=dupe_factor)
        )

    assert peak(40) < 1.5 * peak(1)
