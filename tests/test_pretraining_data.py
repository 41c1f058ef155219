"""Pre-training data in exact mode: the original's records, and what it does beyond the original."""

import gzip
import hashlib
import json
import random

import pytest

from tf_bert.data import pretraining
from tf_bert.data.records import decode_example, read_records
from tf_bert.tokenization import FullTokenizer

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
GOLDEN_CASES = [
    ("B_pretraining_data", name)
    for name in (
        "readme s128_d1 s64_d5 s64_d5_short50 s128_wwm s32_wwm_d10 s128_cased s64_short0 multi_in_3out odd_s32 odd_s5"
    ).split()
] + [
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


def test_every_golden_case_is_listed(golden):
    for folder in ("B_pretraining_data", "synthetic"):
        names = {case["name"] for case in json.loads((golden / folder / "index.json").read_text())}
        assert names == {name for listed, name in GOLDEN_CASES if listed == folder}


@pytest.mark.parametrize("folder, name", GOLDEN_CASES)
def test_records_are_the_originals(golden, tmp_path, folder, name):
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
