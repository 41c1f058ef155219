"""Masks drawn while training, and the records they are drawn for."""

import collections
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_bert import BertConfig, BertForPreTraining
from tf_bert.commands import create_pretraining_data
from tf_bert.data.pretraining.dynamic_masking import DynamicMasking
from tf_bert.data.pretraining.input import eval_dataset, find_records, train_dataset
from tf_bert.data.tfrecord.sidecar import read_sidecar

CLS, SEP, MASK, FIRST, VOCAB = 2, 3, 4, 5, 1005
LENGTH = 42


def masking(**changes):
    return DynamicMasking(**{"vocab_size": VOCAB, "mask_id": MASK, "cls_id": CLS, "sep_id": SEP} | changes)


def batch_of(words, length=LENGTH):
    """Records of words; a word is its number of tokens, ``"|"`` a [SEP]. Tokens differ from each other."""
    rows = {"input_ids": [], "word_starts": []}
    for row in words:
        ids, starts = [CLS], [0]
        for word in row:
            ids += [SEP] if word == "|" else [FIRST + len(ids) + k for k in range(word)]
            starts += [0] if word == "|" else [1] + [0] * (word - 1)
        rows["input_ids"].append(ids + [0] * (length - len(ids)))
        rows["word_starts"].append(starts + [0] * (length - len(ids)))
    ids = np.array(rows["input_ids"], np.int32)
    return {
        "input_ids": tf.constant(ids),
        "input_mask": tf.constant((ids > 0).astype(np.int32)),
        "segment_ids": tf.zeros_like(ids),
        "word_starts": tf.constant(rows["word_starts"], tf.int32),
        "next_sentence_labels": tf.zeros([len(ids), 1], tf.int32),
    }


def mask(one, batch, first=0):
    numbers = tf.range(first, first + batch["input_ids"].shape[0], dtype=tf.int64)
    return {name: value.numpy() for name, value in one(numbers, batch).items()}


def chosen(masked):
    """The set of masked positions of each record."""
    return [
        {int(p) for p, w in zip(positions, weights, strict=True) if w}
        for positions, weights in zip(masked["masked_lm_positions"], masked["masked_lm_weights"], strict=True)
    ]


@pytest.mark.parametrize("whole_word", [False, True])
def test_shares_counts_and_labels(whole_word):
    batch = batch_of([[1] * 19 + ["|"] + [1] * 20 + ["|"]] * 4000)
    before = batch["input_ids"].numpy()
    masked = mask(masking(do_whole_word_mask=whole_word), batch)
    positions = masked["masked_lm_positions"]
    np.testing.assert_array_equal(masked["masked_lm_weights"].sum(axis=1), 6)
    assert positions.shape == (4000, 20) and (positions[:, 6:] == 0).all()
    assert (np.diff(positions[:, :6], axis=1) > 0).all()
    labels = np.take_along_axis(before, positions, axis=1)
    np.testing.assert_array_equal(masked["masked_lm_ids"], labels * (masked["masked_lm_weights"] > 0))

    after = np.take_along_axis(masked["input_ids"], positions, axis=1)[:, :6]
    kept = (after == labels[:, :6]).mean()
    assert (after == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert kept == pytest.approx(0.1, abs=0.01)
    replaced = after[(after != MASK) & (after != labels[:, :6])]
    assert replaced.size / after.size == pytest.approx(0.1, abs=0.01)
    assert replaced.mean() == pytest.approx(VOCAB / 2, rel=0.05) and replaced.max() < VOCAB

    everywhere = collections.Counter(p for row in chosen(masked) for p in row)
    assert set(everywhere) == set(range(1, 20)) | set(range(21, 41))  # never [CLS] and [SEP]
    assert max(everywhere.values()) < 1.2 * min(everywhere.values())
    unchanged = np.ones_like(before, bool)
    np.put_along_axis(unchanged, positions[:, :6], False, axis=1)
    assert (masked["input_ids"] == before)[unchanged].all()


@pytest.mark.parametrize("tokens, count", [(10, 2), (30, 4), (50, 8), (70, 10), (90, 14), (3, 1), (126, 16)])
def test_number_of_predictions_is_the_originals(tokens, count):
    batch = batch_of([[1] * (tokens - 2) + ["|"]], length=128)
    masked = mask(masking(max_predictions_per_seq=16), batch)
    assert masked["masked_lm_weights"].sum() == count
    assert masked["input_mask"].sum() == tokens


def test_words_are_masked_whole_and_those_that_do_not_fit_are_passed_over():
    words = [3, 1, 2, 1, 2, "|", 2, 1, "|"]  # 15 tokens
    batch = batch_of([words] * 2000)
    whole = [{1, 2, 3}, {4}, {5, 6}, {7}, {8, 9}, {11, 12}, {13}]
    masked = mask(masking(masked_lm_prob=0.25, do_whole_word_mask=True), batch)
    counts = collections.Counter()
    for positions in chosen(masked):
        assert all(word <= positions or not word & positions for word in whole)
        assert len(positions) in (3, 4)
        counts.update(tuple(sorted(word)) for word in whole if word <= positions)
    assert set(counts) == {tuple(sorted(word)) for word in whole}


def test_no_word_fits():
    masked = mask(masking(do_whole_word_mask=True), batch_of([[4, 1 + 3, "|"]] * 3))
    assert masked["masked_lm_weights"].sum() == 0 and masked["masked_lm_ids"].sum() == 0


def test_a_record_has_its_masks_in_whatever_batch_and_others_the_next_time():
    batch = batch_of([[1] * 19 + ["|"] + [1] * 20 + ["|"]] * 12)
    one = masking()
    whole = mask(one, batch)
    for start, end in ((0, 5), (5, 12)):
        part = mask(one, {name: value[start:end] for name, value in batch.items()}, first=start)
        for name, value in part.items():
            np.testing.assert_array_equal(value, whole[name][start:end])
    assert chosen(mask(one, batch, first=12)) != chosen(whole)
    assert chosen(mask(masking(seed=1), batch)) != chosen(whole)
    assert len({frozenset(row) for row in chosen(whole)}) == 12


def test_replacements_from_given_ids():
    batch = batch_of([[1] * 40] * 500)
    masked = mask(masking(masked_lm_prob=1.0, max_predictions_per_seq=40, replacement_ids=(900, 901)), batch)
    changed = masked["input_ids"][(masked["input_ids"] != batch["input_ids"].numpy())]
    assert set(changed) == {MASK, 900, 901}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A text, its vocabulary, and a function that makes records of it."""
    folder = tmp_path_factory.mktemp("dynamic")
    words = [f"w{i}" for i in range(50)] + ["v", "##1", "##2"]
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", *words]))
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(["v12", "v1", *words[:50]], 9)) for _ in range(60)]
    (folder / "text.txt").write_text("\n\n".join("\n".join(lines[i : i + 6]) for i in range(0, 60, 6)))

    def make(name, *flags):
        argv = [
            f"--input_file={folder}/text.txt",
            f"--vocab_file={folder}/vocab.txt",
            f"--output_file={folder}/{name}",
            "--max_seq_length=32",
            "--max_predictions_per_seq=5",
            "--dupe_factor=1",
            *flags,
        ]
        assert create_pretraining_data.main(argv) == 0
        return f"{folder}/{name}"

    return make


def test_records_are_masked_afresh_in_each_pass(files):
    path = files("a", "--masking=dynamic", "--do_whole_word_mask")
    records = find_records(path, 32, 4)
    count = records.counts()[0]
    assert records.masking.do_whole_word_mask and records.max_predictions_per_seq == 4
    passes = []
    for _ in range(2):
        batches = train_dataset(records, count, seed=3, shuffle_buffer=1).take(3)
        passes.append([batch["masked_lm_positions"].numpy() for batch in batches])
    for first, again in zip(*passes, strict=True):
        np.testing.assert_array_equal(first, again)
    assert passes[0][0].shape == (count, 4)
    # With one file and no buffer each pass has the same order.
    assert (passes[0][0] != passes[0][1]).any() and (passes[0][1] != passes[0][2]).any()


def test_skipping_gives_the_masks_that_would_have_come(files):
    records = find_records(files("b", "--masking=dynamic"))
    whole = list(train_dataset(records, 4, seed=3).take(9))
    rest = list(train_dataset(records, 4, seed=3, skip_records=24).take(3))
    for expected, found in zip(whole[6:], rest, strict=True):
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])


def test_evaluation_masks_alike_each_time(files):
    records = find_records(files("c", "--masking=dynamic"))
    first, again = (list(eval_dataset(records, 4, repeat=False)) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one["input_ids"], other["input_ids"])
    assert set(first[0]) == {
        "input_ids",
        "input_mask",
        "segment_ids",
        "masked_lm_positions",
        "masked_lm_ids",
        "masked_lm_weights",
        "next_sentence_labels",
    }


def test_special_tokens_are_left_out_of_the_replacements_if_asked(files):
    sidecar = read_sidecar(files("d", "--masking=dynamic", "--noreplace_with_special_tokens"))
    assert DynamicMasking.from_facts(sidecar).replacement_ids == tuple(range(6, 59))
    assert DynamicMasking.from_facts(read_sidecar(files("e", "--masking=dynamic"))).replacement_ids is None


def test_records_of_single_segments_have_no_labels(files):
    records = find_records(files("f", "--nonext_sentence"))
    assert not records.next_sentence
    assert "next_sentence_labels" not in next(iter(eval_dataset(records, 2)))


def test_files_of_two_kinds_are_refused(files):
    paths = [files("g", "--masking=dynamic"), files("h")]
    with pytest.raises(ValueError, match="made with masking dynamic, but .*h with static"):
        find_records(paths)


def test_records_without_masks_need_the_file_beside_them(files, tmp_path):
    path = tmp_path / "alone"
    path.write_bytes(open(files("i", "--masking=dynamic"), "rb").read())
    with pytest.raises(ValueError, match="made with --masking=dynamic"):
        find_records(str(path))
    (tmp_path / "alone.json").write_text(
        json.dumps({"masking": "dynamic", "max_seq_length": 32, "max_predictions_per_seq": 5})
    )
    with pytest.raises(ValueError, match=r"vocab_size, .*\[MASK\].* not found"):
        find_records(str(path))


def test_masked_lm_alone_is_trained_alone(files):
    records = find_records(files("j", "--nonext_sentence", "--masking=dynamic"))
    config = BertConfig(
        vocab_size=59, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32
    )
    model = BertForPreTraining(config)
    model.compile(optimizer=keras.optimizers.SGD(0.3))
    history = model.fit(train_dataset(records, 4), steps_per_epoch=20, epochs=3, verbose=0).history
    assert history["loss"][2] < history["loss"][0] - 0.02
    assert history["next_sentence_loss"] == [0, 0, 0]
    np.testing.assert_allclose(
        history["loss"], history["masked_lm_loss"], rtol=0.01
    )  # with the pairs it would be 0.7 more
