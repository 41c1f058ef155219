"""extract_features: the original's output, other formats, pooling, order, bad input."""

import json

import numpy as np
import pytest

from tf_bert.commands import extract_features
from tf_bert.data.finetuning.extracted_features import read_example
from tf_bert.serving import features


@pytest.fixture(scope="module")
def flags(golden):
    model = golden / "C_modeling"
    return [
        f"--vocab_file={model}/vocab.txt",
        f"--bert_config_file={model}/bert_config.json",
        f"--init_checkpoint={model}/ckpt_bumped/bert_model.ckpt",
        "--max_seq_length=32",
    ]


@pytest.fixture(scope="module")
def original(golden):
    lines = (golden / "G_extract_features/output_len32_layers-1,-2.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_originals_output(golden, flags, original, tmp_path):
    output = tmp_path / "output.jsonl"
    arguments = [f"--input_file={golden}/G_extract_features/input.txt", f"--output_file={output}", "--layers=-1,-2"]
    assert extract_features.main([*flags, *arguments, "--batch_size=3"]) == 0
    ours = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(ours) == len(original)
    for line, expected in zip(ours, original, strict=True):
        assert list(line) == list(expected) == ["linex_index", "features"]
        assert line["linex_index"] == expected["linex_index"]
        for piece, theirs in zip(line["features"], expected["features"], strict=True):
            assert list(piece) == list(theirs) and piece["token"] == theirs["token"]
            for layer, their_layer in zip(piece["layers"], theirs["layers"], strict=True):
                assert list(layer) == list(their_layer) and layer["index"] == their_layer["index"]
                np.testing.assert_allclose(layer["values"], their_layer["values"], atol=1e-5)
                assert all(value == round(value, 6) for value in layer["values"])


@pytest.fixture(scope="module")
def vectors(original):
    """Of each line [T, 2, H]."""
    return [np.array([[layer["values"] for layer in f["layers"]] for f in line["features"]]) for line in original]


def test_arrays(golden, flags, original, vectors, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "BATCHES_AT_ONCE", 2)  # so that the lines come in several chunks
    arguments = [f"--input_file={golden}/G_extract_features/input.txt", "--layers=-1,-2", "--batch_size=2"]
    output = tmp_path / "output.npz"
    assert extract_features.main([*flags, *arguments, f"--output_file={output}", "--format=npz"]) == 0
    arrays = np.load(output)
    assert arrays["layers"].tolist() == [-1, -2] and arrays["values"].dtype == np.float32
    assert arrays["tokens"].tolist() == [piece["token"] for line in original for piece in line["features"]]
    assert np.diff(arrays["offsets"]).tolist() == [len(line["features"]) for line in original]
    np.testing.assert_allclose(arrays["values"], np.concatenate(vectors), atol=1e-5)


@pytest.mark.parametrize("pooling, of", [("cls", lambda v: v[0]), ("mean", np.mean), ("max", np.max)])
def test_pooling_leaves_padding_out(golden, flags, vectors, tmp_path, pooling, of):
    expected = [of(v) if pooling == "cls" else of(v, axis=0) for v in vectors]
    arguments = [f"--input_file={golden}/G_extract_features/input.txt", f"--pooling={pooling}", "--layers=-1,-2"]
    output = tmp_path / "output"
    if pooling == "mean":
        assert extract_features.main([*flags, *arguments, f"--output_file={output}"]) == 0
        lines = [json.loads(line) for line in output.read_text().splitlines()]
        found = [[layer["values"] for layer in line["layers"]] for line in lines]
        assert [layer["index"] for layer in lines[0]["layers"]] == [-1, -2]
    else:
        assert extract_features.main([*flags, *arguments, f"--output_file={output}", "--format=npz"]) == 0
        found = np.load(output)["values"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_parquet(golden, flags, original, vectors, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    arguments = [f"--input_file={golden}/G_extract_features/input.txt", "--layers=-1,-2", "--format=parquet"]
    assert extract_features.main([*flags, *arguments, f"--output_file={tmp_path}/a"]) == 0
    table = parquet.read_table(tmp_path / "a").to_pylist()
    for row, line, expected in zip(table, original, vectors, strict=True):
        assert row["tokens"] == [piece["token"] for piece in line["features"]]
        np.testing.assert_allclose(row["layer_-2"], expected[:, 1], atol=1e-5)


def test_an_empty_line_has_its_two_vectors(flags, tmp_path):
    text, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    text.write_text("the\n\n \u200b\nthe\n", encoding="utf-8")
    assert extract_features.main([*flags, f"--input_file={text}", f"--output_file={output}", "--layers=-1"]) == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["linex_index"] for line in lines] == [0, 1, 2, 3]
    for line in lines[1:3]:
        assert [piece["token"] for piece in line["features"]] == ["[CLS]", "[SEP]"]


def test_pairs():
    for line, pair in [
        ("a ||| b", ("a", "b")),
        ("a ||| b ||| c\n", ("a ||| b", "c")),
        ("a|||b", ("a|||b", None)),
        ("a |||", ("a |||", None)),
        ("x ||| \n", ("x |||", None)),
        ("||| b", ("||| b", None)),
        ("", ("", None)),
    ]:
        example = read_example(3, line)
        assert (example.guid, example.text_a, example.text_b) == ("3", *pair)


@pytest.mark.parametrize(
    "flag, said",
    [
        ("--layers=-1,x", "expected whole numbers"),
        ("--layers=0,2", "there is no layer 2: the model has 2"),
        ("--layers=-3", "there is no layer -3"),
        ("--max_seq_length=65", "max_position_embeddings 64"),
        ("--use_tpu", "on this machine"),
        ("--input_file=nowhere.txt", "nowhere.txt"),
    ],
)
def test_mistakes_are_one_line(golden, flags, tmp_path, capsys, flag, said):
    output = tmp_path / "output"
    arguments = [f"--input_file={golden}/G_extract_features/input.txt", f"--output_file={output}"]
    assert extract_features.main([*flags, *arguments, "--layers=-1", flag]) in (1, 2)
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not output.exists()
