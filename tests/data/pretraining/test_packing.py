"""Several examples in a row: how rows are filled, what the records hold, and that no loss or gradient changes."""

import json
import random
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support import ROOT
from tf_bert import BertConfig, BertForPreTraining
from tf_bert.commands import create_pretraining_data, run_pretraining
from tf_bert.data.pretraining.input import check_records, eval_dataset, find_records, train_dataset
from tf_bert.data.pretraining.packing import RowSize, fill_rows
from tf_bert.data.pretraining.pairing import InstanceOptions
from tf_bert.data.tfrecord.files import decode_example, read_records
from tf_bert.trainer.optimization import AdamWeightDecay

LENGTH, PREDICTIONS, ROW = 24, 4, 64
WORDS = [f"w{i}" for i in range(60)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same examples of text in records of their own, and packed; masked now, and later."""
    folder = tmp_path_factory.mktemp("packing")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*special, *WORDS, "##x"]) + "\n")
    rng = random.Random(3)
    sentence = lambda: " ".join(rng.choice(WORDS) + "x" * (rng.random() < 0.2) for _ in range(rng.randint(2, 7)))  # noqa: E731
    documents = ["\n".join(sentence() for _ in range(rng.randint(2, 4))) for _ in range(24)]
    (folder / "text.txt").write_text("\n\n".join(documents))
    make(folder, "plain")
    make(folder, "packed", f"--packed_length={ROW}")
    make(folder, "dynamic", f"--packed_length={ROW}", "--masking=dynamic", "--do_whole_word_mask")
    return folder


def make(folder, name, *flags):
    command = {"input_file": "text.txt", "vocab_file": "vocab.txt", "output_file": name}
    argv = [f"--{flag}={folder / value}" for flag, value in command.items()]
    sizes = [f"--max_seq_length={LENGTH}", f"--max_predictions_per_seq={PREDICTIONS}", "--dupe_factor=1"]
    assert create_pretraining_data.main([*argv, *sizes, *flags]) == 0
    return str(folder / name)


def examples_of(record):
    """The examples of a record as tuples: tokens, segments, predictions, label."""
    lengths = record.get("example_lengths", [sum(record["input_mask"])])
    start, found = 0, []
    for number, length in enumerate(filter(None, lengths)):
        end = start + length
        predictions = [
            (position - start, label)
            for position, label, weight in zip(
                *(record[f"masked_lm_{name}"] for name in ("positions", "ids", "weights")), strict=True
            )
            if weight and start <= position < end
        ]
        label = record["next_sentence_labels"][number]
        parts = record["input_ids"][start:end], record["segment_ids"][start:end], predictions
        found.append((*map(tuple, parts), label))
        start = end
    assert record["input_mask"] == [1] * start + [0] * (len(record["input_mask"]) - start)
    assert not any(record["input_ids"][start:] + record["segment_ids"][start:])
    return found


def records(path):
    return [decode_example(record) for record in read_records(path)]


def tiny_bert(dropout=0.0, **changes):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"max_position_embeddings": LENGTH, "initializer_range": 0.5, "vocab_size": 66} | changes
    return BertConfig(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, **sizes)


def everything(path):
    found = find_records(path)
    return next(iter(eval_dataset(found, sum(found.counts()), repeat=False)))


def test_rows_are_full_and_nothing_is_lost():
    rng = random.Random(0)
    items = [(rng.randint(5, 300), rng.randint(1, 20)) for _ in range(3000)]
    row = RowSize(512, 40, 8)
    rows = list(fill_rows(items, lambda item: item, row))
    assert sorted(item for items in rows for item in items) == sorted(items)
    for held in rows:
        tokens, predictions = map(sum, zip(*held, strict=True))
        assert tokens <= 512 and predictions <= 40 and len(held) <= 8
    roomy = list(fill_rows(items, lambda item: (item[0], 0), RowSize(512, 40, 100)))
    assert sum(tokens for tokens, _ in items) > 0.97 * 512 * len(roomy)


def test_what_does_not_fit_an_empty_row_is_refused():
    with pytest.raises(ValueError, match="an example of 12 tokens and 1 predictions does not fit in a row of 10 and 3"):
        list(fill_rows([12], lambda n: (n, 1), RowSize(10, 3, 2)))


def test_packed_records_hold_the_same_examples(folder):
    plain = [example for record in records(folder / "plain") for example in examples_of(record)]
    packed = records(folder / "packed")
    assert sorted(plain) == sorted(example for record in packed for example in examples_of(record))
    assert len(packed) < 0.6 * len(plain)
    assert {len(record["input_ids"]) for record in packed} == {ROW}
    sidecar = json.loads((folder / "packed.json").read_text())
    assert (sidecar["packed_length"], sidecar["max_seq_length"], sidecar["records"]) == (ROW, LENGTH, len(packed))


def test_files_share_the_rows_and_workers_do_not_matter(folder, tmp_path):
    names = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    argv = [f"--input_file={folder / 'text.txt'}", f"--vocab_file={folder / 'vocab.txt'}", f"--output_file={names}"]
    sizes = [f"--max_seq_length={LENGTH}", f"--max_predictions_per_seq={PREDICTIONS}", "--dupe_factor=1"]
    assert create_pretraining_data.main([*argv, *sizes, f"--packed_length={ROW}", "--num_workers=2"]) == 0
    whole = list(read_records(folder / "packed"))
    assert [list(read_records(tmp_path / name)) for name in ("one", "two")] == [whole[::2], whole[1::2]]


def test_the_sharded_mode_packs_each_shard(folder, tmp_path, capsys):
    make(folder, "shards", "--sharded", "--num_shards=2", f"--work_folder={tmp_path / 'work'}")
    make(folder, "rows", "--sharded", "--num_shards=2", f"--packed_length={ROW}", f"--work_folder={tmp_path / 'work'}")
    for shard in range(2):
        plain, packed = (records(folder / f"{name}-0000{shard}-of-00002") for name in ("shards", "rows"))
        assert sorted(e for r in plain for e in examples_of(r)) == sorted(e for r in packed for e in examples_of(r))
        assert len(packed) < 0.6 * len(plain)


def test_losses_and_gradients_are_those_of_rows_of_their_own(folder):
    """In float64: each prediction's and each pair's loss, accuracies, and the gradient of every weight."""
    model = BertForPreTraining(tiny_bert(), dtype="float64")
    figures = {}
    for name in ("plain", "packed"):
        batch = everything(str(folder / name))
        with tf.GradientTape() as tape:
            outputs = model(batch)
            losses, weights = model.per_example_losses(batch, outputs), model.loss_weights(batch)
            means = {
                key: tf.reduce_sum(losses[key] * tf.cast(weights[key], "float64"))
                / tf.reduce_sum(tf.cast(weights[key], "float64"))
                for key in losses
            }
            total = tf.add_n(list(means.values()))
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(total, model.trainable_variables)]
        each = {key: np.sort(losses[key].numpy()[np.asarray(weights[key]) > 0]) for key in losses}
        right = {
            key: float(tf.reduce_sum(v * tf.cast(w, v.dtype)))
            for key, (v, w) in model.per_example_metrics(batch, outputs).items()
        }
        figures[name] = each, right, gradients
    (plain, plain_right, plain_gradients), (packed, packed_right, packed_gradients) = figures.values()
    for key in plain:
        np.testing.assert_allclose(packed[key], plain[key], rtol=1e-12)
    assert plain_right == packed_right
    for variable, a, b in zip(model.trainable_variables, plain_gradients, packed_gradients, strict=True):
        # Rows of the position table that only padding used have no gradient in either.
        np.testing.assert_allclose(a, b, atol=1e-12, err_msg=variable.path)


def test_an_example_does_not_see_its_neighbours(folder):
    model = BertForPreTraining(tiny_bert(), dtype="float64")
    batch = {name: value.numpy() for name, value in everything(str(folder / "packed")).items()}
    first = batch["example_lengths"][0, 0]
    before = model(batch)
    batch["input_ids"][0, :first] = 7
    after = model(batch)
    here, there = (np.asarray(x["sequence_output"][0]) for x in (before, after))
    assert np.abs(here[:first] - there[:first]).max() > 0.1
    others = slice(first, batch["example_lengths"][0].sum())
    np.testing.assert_array_equal(here[others], there[others])
    np.testing.assert_array_equal(before["next_sentence_logits"][0, 1:], after["next_sentence_logits"][0, 1:])


@pytest.mark.parametrize(
    "arguments",
    [{"gradient_accumulation_steps": 3}, pytest.param({"jit_compile": True}, marks=pytest.mark.slow)],
)
def test_fit_moves_the_weights_as_with_rows_of_their_own(folder, arguments):
    """One batch of everything; its last micro-batch is uneven."""
    if "jit_compile" in arguments:
        keras.config.set_dtype_policy("float64")
    changes = {}
    try:
        for name in ("plain", "packed"):
            keras.utils.set_random_seed(1)
            model = BertForPreTraining(tiny_bert(num_hidden_layers=1), dtype="float64")
            model.compile(AdamWeightDecay(1e-2), **arguments)
            before = [variable.numpy() for variable in model.trainable_variables]
            batch = everything(str(folder / name))
            history = model.fit(batch, batch_size=len(batch["input_ids"]), shuffle=False, verbose=0).history
            moved = [v.numpy() - b for v, b in zip(model.trainable_variables, before, strict=True)]
            changes[name] = moved, {key: history[key][0] for key in ("masked_lm_loss", "next_sentence_loss")}
    finally:
        keras.config.set_dtype_policy("float32")
    for a, b in zip(changes["plain"][0], changes["packed"][0], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)
    assert changes["plain"][1] == pytest.approx(changes["packed"][1], rel=1e-9)


def test_masks_of_packed_rows_follow_the_rules_of_each_example(folder):
    found = find_records(str(folder / "dynamic"))
    whole = [decode_example(record) for record in read_records(folder / "dynamic")]
    batch = {name: value.numpy() for name, value in everything(str(folder / "dynamic")).items()}
    assert batch["masked_lm_positions"].shape[1] == found.row.predictions
    for place, record in enumerate(whole):
        masked = {name: value[place].tolist() for name, value in batch.items()}
        original, start = record["input_ids"], 0
        taken = examples_of(masked)
        assert sum(masked["masked_lm_weights"]) == sum(len(example[2]) for example in taken)
        for (ids, _, predictions, label), length in zip(taken, filter(None, record["example_lengths"]), strict=True):
            words = original[start : start + length]
            assert 1 <= len(predictions) <= min(PREDICTIONS, max(1, round(length * 0.15)))
            assert all(words[position] == label and words[position] > 4 for position, label in predictions)
            places = {position for position, _ in predictions}
            assert all(now == then for k, (now, then) in enumerate(zip(ids, words, strict=True)) if k not in places)
            start += length


def test_masks_do_not_depend_on_the_batch(folder):
    found = find_records(str(folder / "dynamic"))
    one, three = (
        np.concatenate([batch["input_ids"] for batch in train_dataset(found, size).take(6 // size)]) for size in (1, 3)
    )
    np.testing.assert_array_equal(one, three)


def test_training_on_packed_records_by_flags(folder, tmp_path, capsys):
    """The lengths are those that the records were made with; the position table need not reach over a row."""
    (tmp_path / "config.json").write_text(tiny_bert(0.1).to_json_string())
    argv = [
        f"--bert_config_file={tmp_path / 'config.json'}",
        f"--input_file={folder / 'dynamic'}",
        f"--eval_input_file={folder / 'packed'}",
        f"--output_dir={tmp_path / 'run'}",
        f"--max_seq_length={LENGTH}",
        f"--max_predictions_per_seq={PREDICTIONS}",
        *("--do_train", "--do_eval", "--num_train_steps=2", "--num_warmup_steps=1", "--train_batch_size=4"),
        *("--max_eval_steps=0", "--gradient_accumulation_steps=2", "--attention=chunked"),
    ]
    assert run_pretraining.main(argv) == 0
    shown = capsys.readouterr()
    assert f"global batch 4 x {ROW} tokens" in shown.out + shown.err
    assert "next_sentence_accuracy = " in shown.out


@pytest.mark.slow
def test_two_replicas_train_as_one(folder):
    """In a process of its own: two logical devices."""
    program = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from tf_bert.training.distribution import distribute, get_strategy, set_logical_cpus, set_precision
set_logical_cpus(2)
import contextlib, keras, numpy as np, tensorflow as tf
from tests.data.pretraining.test_packing import AdamWeightDecay, BertForPreTraining, everything, tiny_bert
set_precision("float64")
data, moved = everything({str(folder / "packed")!r}), []
for strategy in (None, get_strategy("mirrored")):
    keras.utils.set_random_seed(1)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = BertForPreTraining(tiny_bert(num_hidden_layers=1))
        model.compile(AdamWeightDecay(1e-2, global_clipnorm=1.0), gradient_accumulation_steps=2)
    before = [variable.numpy() for variable in model.trainable_variables]
    place = strategy or tf.distribute.get_strategy()
    model.fit(distribute(place, lambda size: tf.data.Dataset.from_tensor_slices(data).batch(size), 6), verbose=0)
    moved.append(np.concatenate([(v.numpy() - b).ravel() for v, b in zip(model.trainable_variables, before)]))
assert np.abs(moved[0]).max() > 1e-3
np.testing.assert_allclose(*moved, atol=1e-9)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_bad_packed_records_and_flags(folder, tmp_path):
    with pytest.raises(ValueError, match=r"packed_length is 20, expected max_seq_length \(24\) to"):
        InstanceOptions(LENGTH, PREDICTIONS, packed_length=20)
    (tmp_path / "lost").write_bytes((folder / "packed").read_bytes())
    with pytest.raises(ValueError, match="was made with --packed_length, but the .*json that says how is not there"):
        find_records(str(tmp_path / "lost"))
    with pytest.raises(ValueError, match="packed_length None, but .* with 64|packed_length 64, but"):
        find_records([str(folder / "packed"), str(folder / "plain")])
    check_records(find_records(str(folder / "packed")))
    check_records(find_records(str(folder / "dynamic")))
