"""Checkpoints in Google's format: names, paths, loading, saving, and what goes wrong."""

import functools
import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_bert import Bert, BertConfig, BertForPreTraining
from tf_bert.checkpoints import google, names
from tf_bert.checkpoints.loading import sizes
from tf_bert.models.bert_tasks import BertClassifier, BertQuestionAnswering
from tf_bert.trainer.optimization import create_optimizer

TINY = BertConfig(
    vocab_size=30,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=12,
    type_vocab_size=2,
)
INPUTS = {
    "input_ids": np.array([[2, 7, 8, 3, 9, 10, 3, 0]]),
    "input_mask": np.array([[1, 1, 1, 1, 1, 1, 1, 0]]),
    "segment_ids": np.array([[0, 0, 0, 0, 1, 1, 1, 0]]),
}
# Of that input, computed in float64 by another program.
FIRST_VECTOR = [-1.700135, 0.530101, -0.404290, 0.894955, 1.414096, -1.183215, 0.564073, 0.878107]
POOLED = [-0.851669, 0.007188, 0.509350, 0.890525, -0.221950, 0.964838, -0.962319, 0.532799]


@functools.cache
def tiny_weights():
    """A value for each variable of a tiny pre-training model, by a formula."""
    shapes = {name: tuple(v.shape) for name, v in names.model_variables(BertForPreTraining(TINY)).items()}
    weights = {}
    for k, name in enumerate(sorted(shapes)):
        n = np.arange(np.prod(shapes[name]), dtype=np.float64)
        value = 0.5 * np.sin(0.37 * n * n + 0.11 * n + k)
        value = 1 + 0.2 * value if name.endswith("gamma") else value
        weights[name] = value.reshape(shapes[name]).astype(np.float32)
    return weights


@pytest.fixture
def tiny(tmp_path):
    """Writes the tiny checkpoint with changes; a change to None leaves the variable out. Returns its prefix."""

    def write(**changes):
        tensors = {name: value for name, value in (tiny_weights() | changes).items() if value is not None}
        (tmp_path / "bert_config.json").write_text(TINY.to_json_string())
        return google.write_tensors(tmp_path / "bert_model.ckpt", tensors)

    return write


# --- names -----------------------------------------------------------------------------------------------------------


def test_the_table_knows_every_variable_and_runs_both_ways():
    models = (Bert(TINY), BertForPreTraining(TINY), BertClassifier(TINY), BertQuestionAnswering(TINY))
    for model in models:
        for name in names.model_variables(model):
            other, transpose = names.to_hugging_face(name)
            assert names.to_google(other) == (name, transpose)
            assert transpose == name.endswith("kernel")


def test_variables_have_the_names_of_the_original(golden):
    config = BertConfig.from_json_file(golden / "C_modeling" / "bert_config.json")
    stored = google.GoogleReader(golden / "C_modeling" / "ckpt_init").shapes
    model = names.model_variables(BertForPreTraining(config, name="any_name"))
    assert {name: tuple(variable.shape) for name, variable in model.items()} == stored


@pytest.mark.parametrize(
    ("name", "is_state"),
    [
        ("global_step", True),
        ("bert/pooler/dense/kernel/adam_m", True),
        ("bert/pooler/dense/kernel/adam_v_1", True),
        ("bert/embeddings/LayerNorm/gamma/AdamWeightDecayOptimizer_1", True),
        ("bert/pooler/dense/kernel", False),
        ("output_bias", False),
    ],
)
def test_optimizer_state_is_told_apart(name, is_state):
    assert names.is_optimizer_variable(name) is is_state


# --- paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", ".index", ".meta", ".data-00000-of-00001"])
def test_every_file_of_a_checkpoint_names_it(tiny, ending):
    prefix = tiny()
    assert google.normalize_checkpoint_path(prefix + ending) == prefix


def test_directories_name_their_checkpoint(tiny, tmp_path):
    prefix = tiny()
    assert google.normalize_checkpoint_path(tmp_path) == prefix
    os.mkdir(tmp_path / "variables")
    for file in os.listdir(tmp_path):
        if file.startswith("bert_model"):
            os.rename(tmp_path / file, tmp_path / "variables" / file.replace("bert_model.ckpt", "variables"))
    assert google.normalize_checkpoint_path(tmp_path) == str(tmp_path / "variables" / "variables")


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("", ValueError, "the path of the checkpoint is empty"),
        ("nothing.ckpt", FileNotFoundError, "no checkpoint .*nothing.ckpt.*in that folder: bert_model.ckpt"),
        ("none/at/all", FileNotFoundError, r"there is no .*none/at/all.index"),
        ("empty", FileNotFoundError, "no .index file there"),
    ],
)
def test_a_prefix_that_matches_nothing(tiny, tmp_path, path, error, message):
    tiny()
    os.mkdir(tmp_path / "empty")
    with pytest.raises(error, match=message):
        google.normalize_checkpoint_path(path and tmp_path / path)


def test_an_index_without_data(tiny):
    prefix = tiny()
    os.remove(prefix + ".data-00000-of-00001")
    with pytest.raises(FileNotFoundError, match=r"has an index but not all its data: found 0 files .*, expected 1"):
        google.GoogleReader(prefix)


def test_a_missing_shard(tiny):
    prefix = tiny()
    os.rename(prefix + ".data-00000-of-00001", prefix + ".data-00000-of-00002")
    with pytest.raises(FileNotFoundError, match="found 1 files .*, expected 2"):
        google.GoogleReader(prefix)


def test_several_checkpoints_without_a_state_file(tiny, tmp_path):
    tiny()
    google.write_tensors(tmp_path / "other", {"x": np.zeros(1)})
    with pytest.raises(ValueError, match="several checkpoints, name one of them: bert_model.ckpt, other"):
        google.normalize_checkpoint_path(tmp_path)


# --- damage ----------------------------------------------------------------------------------------------------------


def test_truncated_data_is_seen_before_anything_is_loaded(tiny):
    prefix = tiny()
    size = os.path.getsize(prefix + ".data-00000-of-00001")
    os.truncate(prefix + ".data-00000-of-00001", size - 1)
    with pytest.raises(ValueError, match=f"truncated: the index lists {size:,} bytes, the files have {size - 1:,}"):
        google.GoogleReader(prefix)


def test_a_flipped_bit_is_seen(tiny):
    prefix = tiny()
    with open(prefix + ".data-00000-of-00001", "r+b") as file:
        file.seek(40)
        file.write(b"\xff")
    with pytest.raises(ValueError, match=r"bert/embeddings/\S+ in .* is damaged"):
        google.load_checkpoint(Bert(TINY), prefix)


def test_a_damaged_index(tiny):
    prefix = tiny()
    with open(prefix + ".index", "wb") as file:
        file.write(b"no index" * 20)
    with pytest.raises(ValueError, match=r"bert_model.ckpt.index is damaged"):
        google.GoogleReader(prefix)


# --- loading ---------------------------------------------------------------------------------------------------------


def test_the_tiny_model_computes_what_the_original_does(tiny):
    model = BertForPreTraining(TINY)
    report = google.load_checkpoint(model, tiny())
    outputs = model(INPUTS)
    np.testing.assert_allclose(outputs["sequence_output"][0, 0], FIRST_VECTOR, atol=1e-5)
    np.testing.assert_allclose(outputs["pooled_output"][0], POOLED, atol=1e-5)
    log_probs = keras.ops.log_softmax(outputs["masked_lm_logits"])
    assert abs(float(log_probs[0, 2, 8]) + 3.597036) < 1e-5
    next_sentence = keras.ops.log_softmax(outputs["next_sentence_logits"])
    np.testing.assert_allclose(next_sentence[0], [-2.231248, -0.113610], atol=1e-5)
    assert (len(report.loaded), report.missing, report.unused, report.reshaped) == (46, [], [], {})
    assert model.count_params() == 1776 and model.bert.count_params() == 1640


def test_optimizer_state_and_a_classifier_head_are_no_obstacle(tiny):
    weights = tiny_weights()
    table = "bert/embeddings/word_embeddings"
    head = np.arange(24, dtype=np.float32).reshape(3, 8) / 10
    extra = {
        "global_step": np.int64(838),
        table + "/adam_m": weights[table],
        table + "/adam_v": weights[table],
        "output_weights": head,
        "output_bias": np.float32([1, 2, 3]),
    }
    prefix = tiny(**extra)
    encoder = Bert(TINY)
    report = google.load_checkpoint(encoder, prefix)
    np.testing.assert_allclose(encoder(INPUTS)["sequence_output"][0, 0], FIRST_VECTOR, atol=1e-5)
    assert {"output_weights", "output_bias"} <= set(report.unused)
    assert not [name for name in report.unused if "adam" in name or "global_step" in name]

    classifier = BertClassifier(TINY, num_labels=3)
    assert google.load_checkpoint(classifier, prefix).missing == []
    expected = np.float32(POOLED) @ head.T + [1, 2, 3]
    np.testing.assert_allclose(classifier(INPUTS)["logits"][0], expected, atol=2e-5)


def values_of(model):
    return [variable.numpy() for variable in model.weights]


def test_a_renamed_variable_is_an_error_and_changes_nothing(tiny):
    name = "bert/encoder/layer_1/output/dense/kernel"
    prefix = tiny(**{name: None, name.replace("kernel", "weights"): tiny_weights()[name]})
    model = BertForPreTraining(TINY)
    before = values_of(model)
    with pytest.raises(ValueError, match=f"no value for 1 variables of the encoder: {name} .*output/dense/weights"):
        google.load_checkpoint(model, prefix)
    assert all(np.array_equal(a, b) for a, b in zip(before, values_of(model), strict=True))
    report = google.load_checkpoint(model, prefix, strict=False)
    assert report.missing == [name] and len(report.loaded) == 45


def test_another_shape_is_an_error_that_names_both_and_changes_nothing(tiny):
    name = "bert/encoder/layer_1/output/dense/kernel"
    prefix = tiny(**{name: tiny_weights()[name].T})
    model = Bert(TINY)
    before = values_of(model)
    with pytest.raises(ValueError, match=name + r" is \(8, 16\) there and \(16, 8\) in the model"):
        google.load_checkpoint(model, prefix, strict=False)
    assert all(np.array_equal(a, b) for a, b in zip(before, values_of(model), strict=True))


def test_a_checkpoint_of_another_configuration(tiny):
    wider = BertConfig(30, 16, 2, 2, 32, max_position_embeddings=12, type_vocab_size=2)
    with pytest.raises(ValueError, match=r"\(30, 8\) there and \(30, 16\) in the model.* and 35 more.*configuration"):
        google.load_checkpoint(Bert(wider), tiny())


def test_axes_of_size_one_are_reshaped_and_reported(tiny):
    name = "bert/pooler/dense/kernel"
    report = google.load_checkpoint(Bert(TINY), tiny(**{name: tiny_weights()[name][None]}))
    assert report.reshaped == {name: ((1, 8, 8), (8, 8))}


def test_a_checkpoint_of_something_else(tmp_path):
    google.write_tensors(tmp_path / "other", {"model/layer/kernel": np.zeros((2, 2))})
    with pytest.raises(ValueError, match="no value for 39 variables of the encoder.*model/layer/kernel"):
        google.load_checkpoint(Bert(TINY), tmp_path / "other")
    with pytest.raises(ValueError, match="holds no variable of this model; it holds model/layer/kernel"):
        google.load_checkpoint(Bert(TINY), tmp_path / "other", strict=False)


def test_a_fresh_head_is_stated(tiny, tmp_path):
    tiny()
    with pytest.warns(
        UserWarning, match="39 variables loaded; 2 not in the checkpoint, fresh: output_weights, output_bias"
    ):
        model = BertClassifier.from_checkpoint(tmp_path, num_labels=5)
    assert model.load_report.missing == ["output_weights", "output_bias"] and model.num_labels == 5
    assert 0.01 < np.std(model.output_weights.numpy()) < 0.03  # initialised as ever, not left at zero
    assert np.isfinite(model(INPUTS, training=True)["logits"]).all()  # dropout has its seeds


def test_a_failed_load_leaves_nothing_behind(tiny, tmp_path):
    tiny()
    wider = BertConfig(30, 16, 2, 2, 32, max_position_embeddings=12, type_vocab_size=2)
    with pytest.raises(ValueError, match=r"\(30, 8\) there and \(30, 16\) in the model"):
        Bert.from_checkpoint(tmp_path, config=wider)
    assert Bert.from_checkpoint(tmp_path)(INPUTS)["pooled_output"].shape == (1, 8)


# --- saving ----------------------------------------------------------------------------------------------------------


def test_reading_and_writing_gives_the_bytes_of_the_original(shared_golden, tmp_path):
    source = str(shared_golden / "D_optimization" / "ckpt_trained" / "model.ckpt-20")
    config = BertConfig.from_json_file(shared_golden / "D_optimization" / "bert_config_nodropout.json")
    model = BertForPreTraining(config)
    optimizer = create_optimizer(1e-3, 20, 5)
    google.load_checkpoint(model, source, optimizer=optimizer)
    assert int(optimizer.iterations) == 20
    google.save_checkpoint(model, tmp_path / "model.ckpt-20", optimizer)
    for suffix in (".index", ".data-00000-of-00001"):
        with open(source + suffix, "rb") as theirs:
            assert theirs.read() == (tmp_path / f"model.ckpt-20{suffix}").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["model.ckpt-20.data-00000-of-00001", "model.ckpt-20.index"]


def test_with_and_without_the_moments(tiny, tmp_path):
    model = BertForPreTraining(TINY)
    google.save_checkpoint(model, tmp_path / "small")
    assert sizes(google.GoogleReader(tmp_path / "small")) == (4 * 1776, 0)
    google.save_checkpoint(model, tmp_path / "large", create_optimizer(1e-3, 10), global_step=7)
    reader = google.GoogleReader(tmp_path / "large")
    assert sizes(reader) == (4 * 1776, 8 * 1776 + 8)
    assert reader.read("global_step") == 7 and reader.dtypes["global_step"] == np.int64


def test_the_saver_of_tensorflow_1_restores_it(tmp_path):
    model = BertForPreTraining(TINY)
    prefix = google.save_checkpoint(model, tmp_path / "bert_model.ckpt", global_step=3)
    expected = {name: variable.numpy() for name, variable in names.model_variables(model).items()}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {name: tf.compat.v1.get_variable(name, value.shape) for name, value in expected.items()}
        variables["global_step"] = tf.compat.v1.train.get_or_create_global_step()
        tf.compat.v1.train.Saver().restore(session, prefix)
        restored = session.run(variables)
    assert restored.pop("global_step") == 3
    for name, value in expected.items():
        np.testing.assert_array_equal(restored[name], value)


def test_an_init_checkpoint_gives_weights_only(tiny):
    """A stored step must not count as training that is done."""
    prefix = tiny(global_step=np.int64(838))
    model, optimizer = BertForPreTraining(TINY), create_optimizer(1e-3, 6)
    model.compile(optimizer)
    google.load_checkpoint(model, prefix)
    optimizer.build(model.trainable_variables)
    assert int(optimizer.iterations) == 0


def test_what_was_never_trained_has_no_moments(tiny):
    """The original's SQuAD training leaves the pooler without gradient, and so without slots."""
    weights = tiny_weights()
    slots = {
        f"{name}/{slot}": np.full_like(value, 0.5)
        for name, value in weights.items()
        for slot in ("adam_m", "adam_v")
        if "pooler" not in name
    }
    model, optimizer = BertForPreTraining(TINY), create_optimizer(1e-3, 6)
    google.load_checkpoint(model, tiny(global_step=np.int64(3), **slots), optimizer=optimizer)
    variables = names.model_variables(model)
    assert int(optimizer.iterations) == 3
    assert np.all(optimizer.adam_m(variables["bert/pooler/dense/kernel"]).numpy() == 0)
    assert np.all(optimizer.adam_v(variables["cls/predictions/output_bias"]).numpy() == 0.5)


def test_going_on_needs_a_training_checkpoint(tiny):
    with pytest.raises(ValueError, match="no training checkpoint"):
        google.load_checkpoint(BertForPreTraining(TINY), tiny(), optimizer=create_optimizer(1e-3, 6))


def test_moments_of_another_optimizer_are_refused(tmp_path):
    with pytest.raises(ValueError, match="moments of AdamWeightDecay, not those of SGD"):
        google.save_checkpoint(Bert(TINY), tmp_path / "x", keras.optimizers.SGD())
    assert os.listdir(tmp_path) == []


def test_a_killed_write_leaves_the_old_checkpoint(tiny, monkeypatch, tmp_path):
    prefix = tiny()
    before = {file: (tmp_path / file).read_bytes() for file in os.listdir(tmp_path)}

    def fail(source, target, overwrite):
        raise tf.errors.ResourceExhaustedError(None, None, "disk full")

    monkeypatch.setattr(tf.io.gfile, "rename", fail)
    with pytest.raises(OSError, match="cannot write the checkpoint .*bert_model.ckpt: disk full"):
        google.write_tensors(prefix, {"x": np.zeros(3)})
    assert {file: (tmp_path / file).read_bytes() for file in os.listdir(tmp_path)} == before


def test_the_newest_few_are_kept_and_the_folder_may_move(tmp_path):
    model, run = Bert(TINY), tmp_path / "run"
    for step in (10, 20, 30):
        google.save_checkpoint(model, run / f"model.ckpt-{step}", global_step=step, keep=2)
    assert google.latest_checkpoint(run) == str(run / "model.ckpt-30")
    assert tf.train.latest_checkpoint(str(run)) == str(run / "model.ckpt-30")
    assert sorted(file for file in os.listdir(run) if file.endswith(".index")) == [
        "model.ckpt-20.index",
        "model.ckpt-30.index",
    ]
    moved = run.rename(tmp_path / "moved")
    assert google.normalize_checkpoint_path(moved) == str(moved / "model.ckpt-30")
    os.remove(moved / "model.ckpt-30.index")  # a kill between data and index
    assert google.latest_checkpoint(moved) == str(moved / "model.ckpt-20")


def test_a_state_file_with_the_paths_of_another_machine(tiny, tmp_path):
    prefix = tiny()
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/gone/bert_model.ckpt"\n')
    assert google.latest_checkpoint(tmp_path) == prefix
    assert google.latest_checkpoint(tmp_path / "none") is None


# --- real checkpoints ------------------------------------------------------------------------------------------------


def test_bleurt_has_its_published_scores(data_folder):
    folder = data_folder / "models" / "bleurt-tiny"
    model = BertClassifier.from_checkpoint(folder)
    assert model.num_labels == 1 and model.load_report.missing == []
    pairs = json.loads((folder / "reference.json").read_text())["gelu_new"]
    scores = {pair["candidate"]: pair["score"] for pair in pairs}
    assert scores["An apple a day keeps the doctor away."] == 0.910811
    assert scores["An apple a day keeps doctors away."] == 0.771989
    for pair in pairs:
        inputs = {"input_ids": np.array([pair["input_ids"]]), "segment_ids": np.array([pair["segment_ids"]])}
        outputs = model(inputs)
        assert abs(float(outputs["logits"][0, 0]) - pair["score"]) < 1e-5
        np.testing.assert_allclose(outputs["pooled_output"][0, :8], pair["pooled_first8"], atol=1e-5)
