"""Text to blocks, blocks to batches, and the training of language models on them."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_bert.commands import create_language_modeling_data, generate, run_language_modeling, train_bpe
from tf_bert.configs import GPTConfig
from tf_bert.data.language_modeling import blocks as lm
from tf_bert.data.language_modeling.input import block_errors, eval_dataset, find_blocks, train_dataset
from tf_bert.data.tfrecord.files import RecordWriter, encode_example, read_records
from tf_bert.data.tfrecord.sidecar import write_sidecar
from tf_bert.models.gpt import GPT
from tf_bert.tokenization.byte_pair import GPT1Tokenizer, GPT2Tokenizer
from tf_bert.training import language_modeling

# Written for this test.
BOOK = """The crane stood in the water by the bank of the river, and the river went by.

A man came from the bank with money in his hand; he looked at the crane and said: "That's a bird."
  The crane at the harbour lifts stone; the crane at the river lifts fish.\n"""
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "pre_norm": True}
NO_DROPOUT = dict.fromkeys(["hidden_dropout_prob", "attention_probs_dropout_prob", "embedding_dropout_prob"], 0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A vocabulary, records for training and evaluation, and a configuration."""
    path = tmp_path_factory.mktemp("lm")
    (path / "book.txt").write_text(BOOK * 8, encoding="utf-8")
    (path / "held.txt").write_text(BOOK, encoding="utf-8")
    assert train_bpe.main([f"--input_file={path}/book.txt", f"--output_dir={path}/vocab", "--vocab_size=300"]) == 0
    for name in ("book", "held"):
        flags = [
            f"--input_file={path}/{name}.txt",
            f"--output_file={path}/{name}.tfrecord",
            f"--vocab_dir={path}/vocab",
        ]
        assert create_language_modeling_data.main([*flags, "--block_size=16"]) == 0
    config = {"vocab_size": 300, "max_position_embeddings": 16, "end_id": 299} | SIZES | NO_DROPOUT
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize("boundary, documents", [("file", 1), ("blank_line", 2), ("line", 3)])
def test_documents(tmp_path, boundary, documents):
    (tmp_path / "a.txt").write_text("\n" + BOOK, encoding="utf-8")
    (tmp_path / "empty.txt").write_text("\n \n", encoding="utf-8")
    found = list(lm.read_documents([str(tmp_path / "a.txt"), str(tmp_path / "empty.txt")], boundary))
    assert sum(ends for _, ends in found) == documents == len(found)
    if boundary == "file":
        assert found[0][0] == "\n" + BOOK.removesuffix("\n")
    with pytest.raises(ValueError, match="must be one of file, blank_line, line, not 'page'"):
        list(lm.read_documents([], "page"))


@settings(max_examples=100, deadline=None)
@given(st.text(" \n\n\n\t'sab1.\u00a0\u2003", max_size=60))
def test_pieces_of_a_document_have_the_ids_of_the_whole(folder, text):
    tokenizer = GPT2Tokenizer(folder / "vocab")
    path = folder / "pieces.txt"
    path.write_text(text, encoding="utf-8", newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm, "_CHUNK_CHARACTERS", 1)
        pieces = list(lm.read_documents([str(path)]))
    whole = text.removesuffix("\n")
    assert "".join(piece for piece, _ in pieces) == (whole if whole.strip() or len(pieces) > 1 else "")
    ids = [number for piece, _ in pieces for number in tokenizer.tokenize_to_ids(piece)]
    assert ids == (tokenizer.tokenize_to_ids(whole) if pieces else [])
    assert [ends for _, ends in pieces] == [False] * (len(pieces) - 1) + [True] * bool(pieces)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(1, 9), max_size=12), st.booleans()), max_size=6),
    st.integers(1, 7),
    st.sampled_from([0, None]),
)
def test_packed_blocks_hold_every_token_once(pieces, size, end_id):
    pieces[-1:] = [(ids, True) for ids, _ in pieces[-1:]]
    blocks = list(lm.make_blocks(pieces, size, end_id))
    row, begins = [], True
    for ids, ends in pieces:
        row += ([end_id] if begins and end_id is not None else []) + ids
        begins = ends
    row += [end_id] if row and end_id is not None else []
    assert [token for block in blocks for token in block.tokens[1:]] == row[1:]
    assert all(len(block.tokens) == size + 1 for block in blocks[:-1])
    for block, after in zip(blocks, blocks[1:], strict=False):
        assert block.tokens[-1] == after.tokens[0]
    assert all(list(block.document_ids) == sorted(block.document_ids) and not block.document_ids[0] for block in blocks)
    if end_id == 0:  # a document's number rises where its first token, the end of the one before, stands
        for block in blocks:
            assert np.all(np.diff(block.document_ids) == (np.array(block.tokens[1:]) == 0))


def test_blocks_of_single_documents():
    blocks = list(lm.make_blocks([([5, 6, 7, 8], False), ([9], True), ([4], True)], 3, 0, packed=False))
    assert [block.tokens for block in blocks] == [[0, 5, 6, 7], [7, 8, 9, 0], [0, 4, 0]]


def test_batches(folder):
    blocks = find_blocks(folder / "held.tfrecord")
    assert blocks.block_size == 16
    tokenizer = GPT2Tokenizer(folder / "vocab")
    end = tokenizer.end_of_text_id
    row = [end, *tokenizer.tokenize_to_ids(BOOK.removesuffix("\n")), end]
    batches = list(eval_dataset(blocks, 3, end_id=end))
    labels = np.concatenate([b["label_ids"].numpy()[b["label_weights"].numpy() > 0] for b in batches])
    assert labels.tolist() == row[1:]
    inputs = np.concatenate([b["input_ids"].numpy()[b["label_weights"].numpy() > 0] for b in batches])
    assert inputs.tolist() == row[:-1]
    assert sum(int(tf.reduce_sum(b["num_bytes"])) for b in batches) == len(BOOK.encode()) - 1
    assert sum(blocks.counts()) == sum(len(b["num_bytes"]) for b in batches)


def test_training_order_and_where_it_goes_on(folder):
    blocks = find_blocks(folder / "book.tfrecord")
    count = sum(blocks.counts())

    def rows(number, **options):
        data = train_dataset(blocks, 2, seed=3, shuffle_buffer=4, **options).unbatch().take(number)
        return [tuple(row["label_ids"].numpy()) for row in data]

    row = rows(2 * count)
    assert sorted(row[:count]) == sorted(row[count:]) and row[:count] != row[count:]
    assert rows(6, skip_records=count + 4) == row[count + 4 : count + 10]


def test_a_document_is_predicted_from_itself_alone(folder, tmp_path):
    """The loss of a packed row, masked, is that of its documents one by one."""
    tokenizer = GPT2Tokenizer(folder / "vocab")
    texts = ["The crane", "a bank of the river", "money"]
    (tmp_path / "lines.txt").write_text("\n".join(texts), encoding="utf-8")
    out = str(tmp_path / "lines.tfrecord")
    lm.write_language_modeling_records([str(tmp_path / "lines.txt")], tokenizer, [out], 64, boundary="line")
    (batch,) = eval_dataset(find_blocks(out), 1, end_id=tokenizer.end_of_text_id, mask_documents=True)
    config = GPTConfig(300, max_position_embeddings=64, **SIZES, **NO_DROPOUT)
    gpt = GPT(config, dtype="float64")
    # Positions are those of the row in both.
    batch["position_ids"] = tf.range(64)[None]
    loss = gpt.per_example_losses(batch, gpt(batch))["loss"].numpy()[0]
    begin = 0
    for text in texts:
        ids = [tokenizer.end_of_text_id, *tokenizer.tokenize_to_ids(text), tokenizer.end_of_text_id]
        places = np.arange(begin, begin + len(ids) - 1)
        alone = {"input_ids": np.array([ids[:-1]]), "label_ids": np.array([ids[1:]]), "position_ids": places[None]}
        np.testing.assert_allclose(gpt.per_example_losses(alone, gpt(alone))["loss"][0], loss[places], atol=1e-9)
        begin += len(ids) - 1
    assert batch["label_weights"].numpy().sum() == begin


def test_without_a_token_between_documents_a_boundary_has_no_weight(tmp_path):
    assert train_bpe.main([*write(tmp_path, BOOK), f"--output_dir={tmp_path}/v", "--vocab_size=90", "--kind=gpt1"]) == 0
    tokenizer = GPT1Tokenizer(tmp_path / "v")
    out = str(tmp_path / "lines.tfrecord")
    counts = lm.write_language_modeling_records([str(tmp_path / "t.txt")], tokenizer, [out], 99, boundary="line")
    (batch,) = eval_dataset(find_blocks(out), 9, mask_documents=True)
    assert batch["label_weights"].numpy().sum() == counts["tokens"] - 2  # 3 documents


def write(folder: Path, text: str) -> list[str]:
    (folder / "t.txt").write_text(text, encoding="utf-8")
    return [f"--input_file={folder}/t.txt"]


FLAGS = ["--num_warmup_steps=2", "--learning_rate=1e-2", "--train_batch_size=4", "--save_checkpoints_steps=3"]


@pytest.mark.slow
def test_the_command_learns_resumes_and_exports(folder, tmp_path, capsys):
    common = [f"--config_file={folder}/config.json", f"--input_file={folder}/book.tfrecord", *FLAGS]
    common += [f"--eval_input_file={folder}/held.tfrecord", "--do_train", "--do_eval", "--schedule=constant"]
    assert run_language_modeling.main([*common, f"--output_dir={tmp_path}/a", "--num_train_steps=12"]) == 0
    results = dict(line.split(" = ") for line in (tmp_path / "a" / "eval_results.txt").read_text().splitlines())
    assert float(results["loss"]) < math.log(300) - 0.5
    assert float(results["perplexity"]) == pytest.approx(math.exp(float(results["loss"])))
    tokens = len(GPT2Tokenizer(folder / "vocab").tokenize_to_ids(BOOK.removesuffix("\n"))) + 1
    bits = float(results["loss"]) * tokens / (len(BOOK.encode()) - 1) / math.log(2)
    assert float(results["bits_per_byte"]) == pytest.approx(bits, rel=1e-5)
    # Stopped on the way and begun anew, it ends at the same weights.
    for steps in (6, 12):
        assert run_language_modeling.main([*common, f"--output_dir={tmp_path}/b", f"--num_train_steps={steps}"]) == 0
    assert "RESUMING" in capsys.readouterr().err
    one, other = (GPT.from_checkpoint(tmp_path / name / "export") for name in "ab")
    for a, b in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert GPT2Tokenizer(tmp_path / "a" / "export").tokenize(BOOK) == GPT2Tokenizer(folder / "vocab").tokenize(BOOK)


@pytest.mark.slow
def test_a_model_that_hugging_face_has_not_is_a_keras_file(folder, tmp_path, capsys):
    config = dataclasses.replace(GPTConfig.from_json_file(folder / "config.json"), pre_norm=False, intermediate_size=24)
    for name, value in (("width", config), ("window", dataclasses.replace(config, attention_window=4))):
        (tmp_path / "config.json").write_text(json.dumps({**value.to_dict(), "type_vocab_size": 2}))
        flags = [f"--config_file={tmp_path}/config.json", f"--input_file={folder}/book.tfrecord", "--do_train", *FLAGS]
        output = tmp_path / name
        assert run_language_modeling.main([*flags, f"--output_dir={output}", "--num_train_steps=2"]) == 0
        out, err = capsys.readouterr()
        assert "type_vocab_size are no settings of GPT" in err
        assert f"the model is in {output}/export/gpt.keras" in out
        assert generate.main([f"--checkpoint={output}/export/gpt.keras", "--max_length=2", "the"]) == 0


def test_evaluation_of_an_untrained_model(folder):
    blocks = find_blocks(folder / "held.tfrecord")
    config = GPTConfig.from_json_file(folder / "config.json")
    options = language_modeling.LanguageModelingOptions(num_train_steps=1, eval_batch_size=4)
    model = language_modeling.LanguageModeling(config, options=options).build()
    figures = language_modeling.evaluate(model, blocks, options)
    assert figures["perplexity"] == pytest.approx(300, rel=0.05)
    assert figures["perplexity_per_byte"] == pytest.approx(2 ** figures["bits_per_byte"])
    first = language_modeling.evaluate(model, blocks, dataclasses.replace(options, eval_batch_size=1, max_eval_steps=1))
    assert first["loss"] != figures["loss"]
    small = dataclasses.replace(
        options, eval_batch_size=1, max_eval_steps=sum(blocks.counts()) + 1
    )  # more than there are
    assert language_modeling.evaluate(model, blocks, small)["loss"] == pytest.approx(figures["loss"], rel=1e-5)


def test_mistakes(folder, tmp_path):
    with pytest.raises(ValueError, match=r"book.tfrecord has blocks of 16 tokens, and the context .* is 8"):
        language_modeling.check_fit(GPTConfig(300, max_position_embeddings=8), find_blocks(folder / "book.tfrecord"))
    with pytest.raises(ValueError, match="a vocabulary of 300 pieces .* vocab_size 200"):
        language_modeling.check_fit(GPTConfig(200), find_blocks(folder / "book.tfrecord"))
    with pytest.raises(ValueError, match="the token 299 between documents .* set end_id to 299"):
        language_modeling.check_fit(GPTConfig(300, end_id=298), find_blocks(folder / "book.tfrecord"))
    other = tmp_path / "other.tfrecord"
    with RecordWriter(other) as writer:
        writer.write(b"")
    with pytest.raises(ValueError, match="no blocks of create_language_modeling_data: document_ids, input_ids"):
        find_blocks(other)
    with RecordWriter(other):
        pass
    with pytest.raises(ValueError, match="no record in"):
        find_blocks(other)
    tokenizer = GPT2Tokenizer(folder / "vocab")
    held = str(folder / "held.txt")
    lm.write_language_modeling_records([held], tokenizer, [str(other)], 8)
    with pytest.raises(ValueError, match="has blocks of 8 tokens, and .*held.tfrecord of 16"):
        find_blocks([folder / "held.tfrecord", other])
    with pytest.raises(ValueError, match="1 blocks of 9999: expected at least 2"):
        lm.write_language_modeling_records([held], tokenizer, [str(tmp_path / "a"), str(tmp_path / "b")], 9999)
    assert not (tmp_path / "a").exists()
    blocks = find_blocks(folder / "held.tfrecord")
    with (
        pytest.raises(ValueError, match=r"held.tfrecord: record 1: input_ids holds 299, expected 0 to 249"),
        block_errors(blocks, 250),
    ):
        list(eval_dataset(blocks, 4, vocab_size=250))
    assert len(list(read_records(folder / "held.tfrecord"))) == sum(blocks.counts())


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"input_ids": [1, 2]}, "record 2: input_ids has 2 values, expected 3"),
        ({"input_ids": [1, -2, 3]}, "record 2: input_ids holds -2, expected 0 to 8; were the records made"),
        ({"num_tokens": [4]}, "record 2: num_tokens holds 4, expected 0 to 3"),
        ({"num_bytes": [1 << 40]}, "record 2: num_bytes holds 1099511627776, expected 0 to 2147483647"),
        ({"document_ids": [0, -1, 0]}, "record 2: document_ids holds -1"),
        ({"document_ids": [0.0, 0.0, 0.0]}, "record 2: document_ids holds 0.0, expected whole numbers"),
    ],
)
def test_values_of_a_later_record_are_named(tmp_path, changes, said):
    block = {"input_ids": [1, 2, 3], "document_ids": [0, 0, 1], "num_tokens": [3], "num_bytes": [9]}
    with RecordWriter(tmp_path / "a") as writer:
        writer.write(encode_example(block))
        writer.write(encode_example(block | changes))
    blocks = find_blocks(str(tmp_path / "a"))
    with pytest.raises(ValueError, match=f"a: {said}"), block_errors(blocks, 9):
        list(eval_dataset(blocks, 2, vocab_size=9))
    with RecordWriter(tmp_path / "a") as writer:
        writer.write(encode_example(block | changes))
    if "input_ids" not in changes:
        with pytest.raises(ValueError, match=f"a: {said.replace('2', '1', 1)}"):
            find_blocks(str(tmp_path / "a"))
    write_sidecar(tmp_path / "a", {"block_size": 7})
    with pytest.raises(ValueError, match="a: record 1: .* has . values, expected 8"):
        find_blocks(str(tmp_path / "a"))


@pytest.mark.parametrize(
    "command, flags, said",
    [
        (train_bpe, ["--output_dir=v", "--vocab_size=256"], "256 bytes and <|endoftext|> take 257"),
        (train_bpe, ["--output_dir=v", "--kind=gpt1", "--vocab_size=3"], "vocab_size 3 is too small"),
        (create_language_modeling_data, ["--output_file=o", "--vocab_dir=."], "holds no byte-pair vocabulary"),
        (create_language_modeling_data, ["--output_file=o,o", "--vocab_dir=."], "names no file, or one twice"),
        (create_language_modeling_data, ["--output_file=t.txt", "--vocab_dir=."], "is one of the input files"),
        (run_language_modeling, ["--config_file=c", "--output_dir=r"], "give --do_train, --do_eval or both"),
        (
            run_language_modeling,
            ["--config_file=c", "--output_dir=r", "--do_eval", "--model=elmo", "--mask_documents"],
            "is about attention",
        ),
    ],
)
def test_mistakes_on_the_command_line(tmp_path, monkeypatch, capsys, command, flags, said):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, BOOK)
    assert command.main(["--input_file=t.txt", *flags]) in (1, 2)
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
