"""Pre-training records as tf.data batches: order, checks, damage, position."""

import collections
import json
import struct

import numpy as np
import pytest
import tensorflow as tf

from tf_bert.data.pretraining import input as pretraining_input
from tf_bert.data.pretraining.input import (
    check_records,
    eval_dataset,
    find_records,
    id_limits,
    record_errors,
    train_dataset,
)
from tf_bert.data.tfrecord.files import RecordWriter, count_records, encode_example, masked_crc32c, read_records
from tf_bert.data.tfrecord.sidecar import read_sidecar, remove_sidecar, write_sidecar
from tf_bert.training.recipe import set_seed

LENGTH, PREDICTIONS, VOCAB = 16, 4, 100


def example(number: int, length=LENGTH, predictions=PREDICTIONS, **changes) -> dict:
    """A record that can be told from all others: its number is written in base 90 at two places."""
    ids = np.full(length, 7)
    ids[1], ids[2] = divmod(number, 90)
    features = {
        "input_ids": ids,
        "input_mask": np.arange(length) < length - number % 3,
        "segment_ids": np.arange(length) >= length // 2,
        "masked_lm_positions": np.arange(predictions),
        "masked_lm_ids": np.arange(5, 5 + predictions),
        "masked_lm_weights": (np.arange(predictions) < predictions - 1).astype(np.float32),
        "next_sentence_labels": [number % 2],
    } | changes
    return {name: np.asarray(v, np.float32 if name.endswith("weights") else np.int64) for name, v in features.items()}


def write(path, numbers, **changes):
    with RecordWriter(path) as writer:
        for number in numbers:
            writer.write(encode_example(example(number, **changes)))
    return str(path)


def numbers_of(batches) -> list[list[int]]:
    ids = [batch["input_ids"].numpy() for batch in batches]
    return [(90 * batch[:, 1] + batch[:, 2]).tolist() for batch in ids]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three files with 20, 11 and 9 records, numbered from 0 to 39."""
    folder = tmp_path_factory.mktemp("records")
    parts = [range(0, 20), range(20, 31), range(31, 40)]
    return [write(folder / f"part{i}.tfrecord", numbers) for i, numbers in enumerate(parts)]


@pytest.fixture(scope="module")
def records(files):
    return find_records(files)


def test_batches_have_the_records_values_and_types(records):
    batch = next(iter(eval_dataset(records, 3)))
    expected = [example(number) for number in range(3)]
    for name, value in batch.items():
        np.testing.assert_array_equal(value, np.stack([one[name] for one in expected]))
        assert value.dtype == (tf.float32 if name == "masked_lm_weights" else tf.int32)
    assert set(batch) == set(expected[0])


def test_evaluation_reads_in_order_and_starts_anew(records):
    batches = numbers_of(eval_dataset(records, 16).take(5))
    assert sum(batches, []) == [*range(40), *range(40)]


def test_evaluation_once_has_a_short_last_batch(records):
    batches = numbers_of(eval_dataset(records, 16, repeat=False))
    assert [len(batch) for batch in batches] == [16, 16, 8]
    assert sum(batches, []) == list(range(40))


@pytest.mark.parametrize("batch_size", [8, 7])
def test_each_training_pass_is_another_order_of_all_records(records, batch_size):
    read = sum(numbers_of(train_dataset(records, batch_size).take(-(-120 // batch_size))), [])
    passes = [read[0:40], read[40:80], read[80:120]]
    assert all(sorted(one) == list(range(40)) for one in passes)
    assert len({tuple(one) for one in passes}) == 3
    assert passes[0] != list(range(40))


def test_equal_seeds_give_equal_orders(records):
    first, again, other = (numbers_of(train_dataset(records, 8, seed=seed).take(10)) for seed in (3, 3, 4))
    assert first == again != other


def test_a_seed_of_zero(records):
    try:
        set_seed(0)
        first = next(iter(train_dataset(records, 2, seed=0)))
    finally:
        tf.random.set_seed(1)
    assert first["input_ids"].shape[0] == 2


def test_a_buffer_of_one_keeps_the_order_of_the_file(files):
    batches = numbers_of(train_dataset(find_records(files[0]), 5, shuffle_buffer=1).take(4))
    assert sum(batches, []) == list(range(20))


@pytest.mark.parametrize("skipped", [1, 4, 5, 12, 23])
@pytest.mark.parametrize("shard", [(0, 1), (1, 2), (2, 5)])
def test_skipping_gives_what_would_have_come(records, skipped, shard):
    whole = numbers_of(train_dataset(records, 8, shard=shard, shuffle_buffer=15).take(25))
    rest = numbers_of(train_dataset(records, 8, shard=shard, shuffle_buffer=15, skip_records=8 * skipped).take(2))
    assert rest == whole[skipped : skipped + 2]


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_workers_share_the_records(records, workers):
    """Fewer workers than files share the files; more share the records."""
    seen = collections.Counter()
    for index in range(workers):
        shard = (index, workers)
        files = records.files[index::workers] if workers <= 3 else records.files
        share = sum(count_records(file) for file in files) if workers <= 3 else 40 // workers
        seen.update(sum(numbers_of(train_dataset(records, share, shard=shard).take(1)), []))
    assert seen == collections.Counter(range(40))


def test_lengths_come_from_the_first_record_or_the_sidecar(tmp_path):
    path = write(tmp_path / "a", [1], length=24, predictions=3)
    assert (find_records(path).max_seq_length, find_records(path).max_predictions_per_seq) == (24, 3)
    (tmp_path / "a.json").write_text(json.dumps({"max_seq_length": 24, "max_predictions_per_seq": 3}))
    found = find_records(path)
    assert (found.max_seq_length, found.max_predictions_per_seq) == (24, 3)
    (tmp_path / "a.json").write_text(json.dumps({"max_seq_length": 48, "max_predictions_per_seq": 3}))
    with pytest.raises(ValueError, match=r"a: record 1: input_ids has 24 values, expected 48 \(.*a.json notes other"):
        find_records(path)


def test_other_lengths_are_named(tmp_path):
    path = write(tmp_path / "a.tfrecord", [1], length=128, predictions=20)
    with pytest.raises(ValueError, match=r"a\.tfrecord: masked_lm_positions has 20 values.* expected 10"):
        find_records(path, 128, 10)
    with pytest.raises(ValueError, match=r"a\.tfrecord: input_ids has 128 values.* expected 64.*--max_seq_length=128"):
        find_records(path, 64, 20)


def test_files_that_differ_are_named(files, tmp_path):
    other = write(tmp_path / "other", [1], length=20)
    with pytest.raises(ValueError, match=r"other: input_ids has 20 values a record, expected 16 \(in .*part0"):
        find_records([files[0], other])


def test_sidecars_in_a_glob_are_no_records(tmp_path):
    path = write(tmp_path / "a.tfrecord", [1, 2])
    sidecar = {"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS, "records": 2}
    (tmp_path / "a.tfrecord.json").write_text(json.dumps(sidecar))
    found = find_records(str(tmp_path / "*"))
    assert found.files == (path,)
    assert found.counts() == [2]


def test_a_damaged_sidecar_is_named(tmp_path):
    path = write(tmp_path / "a", [1])
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match=r"a\.json: not JSON"):
        find_records(path)


def test_nothing_to_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        find_records(str(tmp_path / "none*"))
    with pytest.raises(ValueError, match="no record in .*empty"):
        find_records(write(tmp_path / "empty", []))
    with pytest.raises(IsADirectoryError):
        find_records(str(tmp_path))


def test_an_empty_file_beside_others_is_passed_over(files, tmp_path):
    found = find_records([write(tmp_path / "empty", []), files[2]])
    assert sum(numbers_of(eval_dataset(found, 9).take(1)), []) == list(range(31, 40))


def test_other_data_is_named(tmp_path):
    (tmp_path / "text").write_text("This is text, and no TFRecord file at all.\n" * 3)
    with pytest.raises(ValueError, match="text: record 1.*is this a TFRecord file"):
        find_records(str(tmp_path / "text"))
    with RecordWriter(tmp_path / "squad") as writer:
        writer.write(encode_example({"input_ids": [1, 2], "unique_ids": [3]}))
    with pytest.raises(
        ValueError, match="squad: record 1 is no pre-training example: input_mask.*missing, found input_ids"
    ):
        find_records(str(tmp_path / "squad"))


def test_counting_records(files, tmp_path):
    assert [count_records(file) for file in files] == [20, 11, 9]
    whole = tmp_path / "whole"
    write(whole, range(3))
    data = whole.read_bytes()
    for cut in (1, 20, len(data) - 1):
        (tmp_path / "cut").write_bytes(data[:cut])
        with pytest.raises(ValueError, match="cut: record [13], which begins at byte .*, is cut short"):
            count_records(tmp_path / "cut")
        with pytest.raises(ValueError, match="cut: record [13], which begins at byte .*, is cut short"):
            find_records(str(tmp_path / "cut"))


def test_damage_is_named(files, tmp_path):
    data = bytearray(open(files[1], "rb").read())
    data[2000] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    found = find_records([files[0], str(tmp_path / "damaged")])
    with pytest.raises(ValueError, match=r"damaged: record \d+, which begins at byte"), record_errors(found):
        collections.deque(eval_dataset(found, 4, repeat=False), maxlen=0)


@pytest.mark.parametrize("length", [1 << 60, (1 << 63) + 5, (1 << 64) - 3])
def test_a_length_beyond_the_file_is_named_before_anything_is_read(tmp_path, length):
    """TensorFlow would end the program: it makes room for as many bytes as the record says it has."""
    header = struct.pack("<Q", length)
    path = write(tmp_path / "a", [1])
    with open(path, "ab") as file:
        file.write(header + struct.pack("<I", masked_crc32c(header)) + b"xyz")
    with pytest.raises(ValueError, match=f"a: record 2, .* is cut short: 3 of {length + 4:,} bytes are there"):
        find_records(path)
    with pytest.raises(ValueError, match="a: record 2, .* is cut short"):
        list(read_records(path))


def test_a_sidecar_is_compared_with_its_records(tmp_path):
    path = write(tmp_path / "a", [1, 2])
    write_sidecar(path, {"records": 3})
    with pytest.raises(ValueError, match="a holds 2 records, and .*a.json notes 3"):
        find_records(path)


@pytest.mark.parametrize(
    "noted, said",
    [
        ({"records": "2"}, "records is '2', expected a whole number"),
        ({"max_seq_length": -1}, "max_seq_length is -1, expected a whole number from 1"),
        ({"vocab_size": None}, "vocab_size is None, expected a whole number"),
        ({"next_sentence": 1}, "next_sentence is 1, expected true or false"),
        ({"special_ids": [1]}, r"special_ids is \[1\], expected an object of whole numbers"),
        ({"masking": "dinamic"}, "masking is 'dinamic', expected 'static' or 'dynamic'"),
    ],
)
def test_a_sidecar_of_other_kinds_is_named(tmp_path, noted, said):
    path = write(tmp_path / "a", [1, 2])
    write_sidecar(path, noted)
    with pytest.raises(ValueError, match=f"a.json: {said}"):
        find_records(path)


@pytest.mark.parametrize(
    "feature, position, value, said",
    [
        (
            "input_ids",
            5,
            VOCAB,
            "input_ids holds 100, expected 0 to 99; were the records made with a larger",
        ),
        ("input_ids", 5, -1, "input_ids holds -1, expected 0 to 99"),
        ("masked_lm_ids", 2, VOCAB, "masked_lm_ids holds 100"),
        ("segment_ids", 9, 2, "segment_ids holds 2, expected 0 to 1; the model needs a larger type_vocab_size"),
        ("masked_lm_positions", 0, LENGTH, "masked_lm_positions holds 16, expected 0 to 15"),
        ("masked_lm_positions", 0, LENGTH - 1, "masked_lm_positions holds 15, where input_mask is 0"),
        ("next_sentence_labels", 0, 7, "next_sentence_labels holds 7, expected 0 to 1"),
        ("input_mask", 3, 2, "input_mask holds 2, expected 0 to 1"),
        ("masked_lm_weights", 0, np.nan, "masked_lm_weights holds nan, expected 0.0 or 1.0"),
        ("masked_lm_weights", 0, -1.0, "masked_lm_weights holds -1.0, expected 0.0 or 1.0"),
        ("masked_lm_weights", 1, 0.5, "masked_lm_weights holds 0.5, expected 0.0 or 1.0"),
    ],
)
@pytest.mark.parametrize("read", [eval_dataset, train_dataset])
def test_ids_beyond_the_tables_are_named(tmp_path, feature, position, value, said, read):
    values = example(1)[feature]
    values[position] = value
    with RecordWriter(tmp_path / "a") as writer:
        writer.write(encode_example(example(0)))
        writer.write(encode_example(example(1) | {feature: values}))
    found, limits = find_records(str(tmp_path / "a")), id_limits(VOCAB, 2)
    with pytest.raises(ValueError, match=f"a: record 2: {said}"), record_errors(found, limits):
        next(iter(read(found, 2, limits=limits)))


@pytest.mark.parametrize("feature, values", [("input_ids", [1.0] * LENGTH), ("masked_lm_weights", [1] * PREDICTIONS)])
def test_a_later_record_of_another_type_is_named(tmp_path, feature, values):
    with RecordWriter(tmp_path / "a") as writer:
        writer.write(encode_example(example(0)))
        writer.write(encode_example(example(1) | {feature: values}))
    found = find_records(str(tmp_path / "a"))
    with pytest.raises(ValueError, match=f"a: record 2: {feature} holds {values[0]}, expected"), record_errors(found):
        next(iter(train_dataset(found, 2)))


@pytest.mark.parametrize(
    "said, record", [("missing, found input_ids", {"input_ids": [7] * LENGTH}), ("is no pre", b"x")]
)
def test_a_later_record_of_something_else_is_named(tmp_path, said, record):
    with RecordWriter(tmp_path / "a") as writer:
        writer.write(encode_example(example(0)))
        writer.write(record if isinstance(record, bytes) else encode_example(record))
    found = find_records(str(tmp_path / "a"))
    with pytest.raises(ValueError, match=f"a: record 2.*{said}"), record_errors(found):
        next(iter(train_dataset(found, 2)))


def test_a_later_record_of_another_length_is_named(tmp_path):
    with RecordWriter(tmp_path / "a") as writer:
        writer.write(encode_example(example(0)))
        writer.write(encode_example(example(1, predictions=3)))
    found = find_records(str(tmp_path / "a"))
    with pytest.raises(ValueError, match="a: record 2: masked_lm_positions has 3 values, expected 4"):
        with record_errors(found):
            next(iter(train_dataset(found, 2)))


def test_errors_of_another_kind_stay_as_they_are(records):
    with pytest.raises(tf.errors.InvalidArgumentError, match="mine"), record_errors(records):
        tf.debugging.assert_equal(1, 2, "mine")


def test_good_records_pass_the_check(records):
    check_records(records, id_limits(VOCAB, 2))


def test_records_of_the_library_itself(tmp_path):
    """What tf.train.Example writes is read the same."""
    features = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=value))
        if name == "masked_lm_weights"
        else tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        for name, value in example(30).items()
    }
    with tf.io.TFRecordWriter(str(tmp_path / "a")) as writer:
        writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    assert numbers_of(eval_dataset(find_records(str(tmp_path / "a")), 1).take(1)) == [[30]]


def test_whole_passes_are_skipped_without_reading(records, monkeypatch):
    skipped = []
    skip = tf.data.Dataset.skip

    def noted(self, count, *args, **kwargs):
        skipped.append(count)
        return skip(self, count, *args, **kwargs)

    monkeypatch.setattr(pretraining_input.tf.data.Dataset, "skip", noted)
    next(iter(train_dataset(records, 8, skip_records=40_000_000 + 16)))
    assert skipped == [16]


def test_records_of_all_files_mix(tmp_path):
    """Files are opened in random order, some at a time, and their records drawn from one buffer."""
    files = [write(tmp_path / f"{k:02}", range(20 * k, 20 * k + 20)) for k in range(12)]
    batches = numbers_of(train_dataset(find_records(files), 20, shuffle_buffer=100).take(24))
    file_of = [[number // 20 for number in batch] for batch in batches]
    assert all(len(set(batch)) > 2 for batch in file_of[:10])
    orders = [list(dict.fromkeys(sum(file_of[start : start + 12], []))) for start in (0, 12)]
    assert all(sorted(order) == list(range(12)) for order in orders)
    assert orders[0] != orders[1]


def test_remote_records_through_gfile(files, records):
    """TensorFlow's file system in memory stands for a bucket: globs, sidecars, counts, order, errors."""
    folder = "ram://records/pre"
    for number, file in enumerate(files):
        tf.io.gfile.makedirs(folder)
        tf.io.gfile.copy(file, f"{folder}/part{number}.tfrecord", overwrite=True)
    sidecar = {"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS}
    write_sidecar(f"{folder}/part0.tfrecord", sidecar)
    found = find_records(f"{folder}/part*")
    assert found.files == tuple(f"{folder}/part{number}.tfrecord" for number in range(3))
    assert found.counts() == records.counts() == [20, 11, 9]
    assert numbers_of(train_dataset(found, 8).take(12)) == numbers_of(train_dataset(records, 8).take(12))
    skipped = train_dataset(found, 8, skip_records=48, shard=(1, 2)).take(2)
    assert numbers_of(skipped) == numbers_of(train_dataset(records, 8, skip_records=48, shard=(1, 2)).take(2))
    check_records(found)
    with RecordWriter(f"{folder}/part2.tfrecord") as writer:
        writer.write(encode_example(example(1, input_ids=np.full(LENGTH, VOCAB))))
    with pytest.raises(ValueError, match=r"ram://records/pre/part2\.tfrecord: record 1: input_ids holds 100"):
        check_records(find_records(f"{folder}/part*"), id_limits(VOCAB, 2))
    remove_sidecar(f"{folder}/part0.tfrecord")
    assert read_sidecar(f"{folder}/part0.tfrecord") == {}
