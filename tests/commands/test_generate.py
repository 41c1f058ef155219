"""``tf-bert generate``, and a GPT exported from strings to strings."""

import io
import json
import re
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.support.scripted_gpt import scripted_gpt
from tf_bert.commands.main import main
from tf_bert.configs import GPTConfig
from tf_bert.decoding.beam import BeamSearch
from tf_bert.decoding.language_model import generate_text
from tf_bert.decoding.sampling import Sampling
from tf_bert.export.generation_saved_model import TextGenerator, export
from tf_bert.models import pretrained
from tf_bert.models.bert import Bert, BertConfig
from tf_bert.models.gpt import GPT
from tf_bert.tokenization.byte_pair import GPT2Tokenizer
from tf_bert.tokenization.byte_pair_training import train_byte_pairs

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint with a vocabulary."""
    path = tmp_path_factory.mktemp("gpt")
    train_byte_pairs(["low lower lowest"], 260).save(path)
    tokenizer = GPT2Tokenizer(path)
    config = GPTConfig(262, **SIZES, max_position_embeddings=16, pre_norm=True, end_id=tokenizer.end_of_text_id)
    model = GPT(config)
    rng = np.random.default_rng(1)
    for variable in model.weights:
        variable.assign(variable + 0.7 * rng.normal(size=variable.shape))
    # No token beyond the vocabulary may come out on top, and only letters: what is shown is then easy to read.
    table = model.embedding.table
    table.assign(tf.where(tf.range(262)[:, None] < 95, table, 0.01 * table))
    model.save_checkpoint(path)
    return path


@pytest.fixture(scope="module")
def loaded(folder):
    return GPT.from_checkpoint(folder), pretrained.open_checkpoint(folder).tokenizer()


def generate(*flags, stdin: bytes = b""):
    """Exit status of the command."""
    real, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin))
    try:
        return main(["generate", *map(str, flags)])
    finally:
        sys.stdin = real


def test_one_text_and_lines(folder, loaded, capsys):
    expected = generate_text(*[loaded[0], ["lower", "low"], loaded[1]], max_length=6)
    assert generate(f"--checkpoint={folder}", "--max_length=6", "lower") == 0
    assert capsys.readouterr().out == expected[0] + "\n"
    assert generate(f"--checkpoint={folder}", "--max_length=6", stdin=b"lower\nlow\r\n") == 0
    assert capsys.readouterr().out == "".join(text + "\n" for text in expected)


def test_ids(folder, loaded, capsys):
    ids = loaded[1].tokenize_to_ids("lower")
    tokens = loaded[0].generate([ids], max_length=6)["tokens"][0, 0]
    assert generate(f"--checkpoint={folder}", "--max_length=6", "--ids", " ".join(map(str, ids))) == 0
    assert capsys.readouterr().out.split() == [str(token) for token in tokens if token != loaded[0].config.end_id]


def test_a_prompt_that_is_not_utf_8(folder, loaded, capsys):
    """Its bytes are tokens like any others."""
    [expected] = generate_text(loaded[0], [b"lo\xff\xfe"], loaded[1], max_length=6)
    assert generate(f"--checkpoint={folder}", "--max_length=6", stdin=b"lo\xff\xfe\n") == 0
    assert capsys.readouterr().out == expected + "\n"


def test_chat_goes_on_with_what_was_said(folder, loaded, capsys):
    model, tokenizer = loaded
    assert generate(f"--checkpoint={folder}", "--chat", "--max_length=3", stdin=b"low\nlower\n") == 0
    said, expected = [], ""
    newline = tuple(tokenizer.tokenize_to_ids("\n"))
    for line in ("low\n", "lower\n"):
        said = [*said, *tokenizer.tokenize_to_ids(line)][-13:]
        answer = []
        for token in model.generate([said], max_length=3)["tokens"][0, 0]:
            answer.append(int(token))
            if token == model.config.end_id or tuple(answer[-1:]) == newline:
                break
        said += answer
        expected += tokenizer.decode(answer).rstrip("\n") + "\n"
    assert capsys.readouterr().out == expected


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    """A GPT that writes, after "The sun", " stands bravely" and an empty line, of which the ends are one token."""
    path = tmp_path_factory.mktemp("scripted")
    train_byte_pairs(["The sun stands bravely\n\n"] * 3, 290).save(path)
    tokenizer = GPT2Tokenizer(path)
    assert tokenizer.tokenize("bravely\n\n")[-1] == "\u010a\u010a"
    text = " stands bravely\n\n \\and so\u2028on"
    scripted_gpt(tokenizer, text, len(tokenizer.tokenize("The sun")) - 1).save_checkpoint(path)
    return path


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--stop=stands"], " stands"),
        (["--stop=ds b"], " stands b"),
        (["--stop=xyz|ds b|bravely"], " stands b"),
        pytest.param(["--stop=\\n"], " stands bravely\n", marks=pytest.mark.slow),
        pytest.param(["--stop=\\n\\n"], " stands bravely\n\n", marks=pytest.mark.slow),
        (["--stop=\\\\and"], " stands bravely\n\n \\and"),
        pytest.param(["--stop=ds b", "--beam_size=3"], " stands b", marks=pytest.mark.slow),
        (["--stop=ds b", "--top_k=1", "--num_samples=2"], " stands b\n stands b"),
        pytest.param(["--stop=ds b", "--xla"], " stands b", marks=pytest.mark.slow),
    ],
)
def test_text_that_ends_the_output(scripted, flags, expected, capsys):
    """However its tokens fall."""
    assert generate(f"--checkpoint={scripted}", "--max_length=24", *flags, "The sun") == 0
    assert capsys.readouterr().out == expected + "\n"


def test_a_chat_ends_with_the_first_end_of_a_line(scripted, capsys):
    """Also where it is the first half of a token."""
    first = len(GPT2Tokenizer(scripted).tokenize("The sun\n")) - len(GPT2Tokenizer(scripted).tokenize("The sun"))
    assert first == 1  # what follows the line is the script without its first token
    assert generate(f"--checkpoint={scripted}", "--chat", "--max_length=24", stdin=b"The sun\n") == 0
    answer = capsys.readouterr().out
    assert " stands bravely\n".endswith(answer) and answer.endswith("bravely\n")


def test_a_line_out_for_each_line_in(scripted, capsys):
    """Empty lines, and ends of lines in what is written."""
    lines = b"The sun\n\nThe sun\r\n"
    assert generate(f"--checkpoint={scripted}", "--max_length=30", stdin=lines) == 0
    answer = r" stands bravely\n\n \\and so\u2028on" + "\n"
    assert capsys.readouterr().out == answer + "\n" + answer
    assert (
        generate(
            f"--checkpoint={scripted}", "--top_k=1", "--num_samples=2", "--stop=\\n", "--max_length=30", stdin=lines
        )
        == 0
    )
    assert capsys.readouterr().out == r" stands bravely\n" + "\n" + r" stands bravely\n" + "\n\n\n" + 2 * (
        r" stands bravely\n" + "\n"
    )


@pytest.mark.parametrize(
    ("flags", "lines", "message"),
    [
        ([], b"The sun\n\n" + b"x" * 90 + b"\n", "standard input: line 3: the prompt has 90 tokens and 20 new ones"),
        (["--ids"], b"5 6\n5 x\n", "standard input: line 2: --ids takes ids, numbers with blanks between, and 'x'"),
        (["--ids"], b"5\n999\n", "standard input: line 2: the prompt holds 999"),
    ],
)
def test_a_wrong_line_is_named_before_the_first_is_answered(scripted, flags, lines, message, capsys):
    assert generate(f"--checkpoint={scripted}", *flags, "--max_length=20", stdin=lines) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and message in shown.err and len(shown.err.splitlines()) == 1


def test_draws(folder, capsys):
    flags = [f"--checkpoint={folder}", "--max_length=5", "--temperature=1.0", "--num_samples=3", "lower"]
    outputs = []
    for seed in (1, 1, 2):
        assert generate(*flags, f"--seed={seed}") == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--text="], "the prompt is empty"),
        (["--max_length=40", "lower"], "the context has 16 positions"),
        (["--ids", "5 x"], "--ids takes ids, numbers with blanks between, and 'x' is none"),
        (["--ids", "262"], "the prompt holds 262, but there are 262 tokens"),
        (["--beam_size=2", "--top_k=3", "low"], "take one of them"),
        (["--num_samples=2", "low"], "--num_samples needs draws"),
        (["--top_p=1.5", "low"], "top_p"),
        (["--temperature=-1", "low"], "temperature"),
        (["--chat", "low"], "--chat reads text from standard input"),
        (["--chat", "--max_length=16"], "leaves no room"),
        ([], "there is no text"),
        (["--stop=", "low"], "--stop=: a stop text is empty"),
        (["--stop=a||b", "low"], "a stop text is empty; texts have | between them"),
        (["--temperature=inf", "low"], "temperature must be a finite number"),
    ],
)
def test_mistakes_are_named(folder, flags, message, capsys):
    assert generate(f"--checkpoint={folder}", *flags, stdin=b"low\n" if "--chat" in flags else b"") != 0
    errors = capsys.readouterr().err
    assert message in errors and "Traceback" not in errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab.bpe": lambda text: text[: text.rindex("\n", 0, -1) + 1]}, "vocab.bpe does not fit .*encoder.json"),
        ({"encoder.json": lambda text: json.dumps({str(i): i for i in range(263)})}, "263 entries, .* has 262 rows"),
        ({"config.json": lambda text: text.replace('"n_layer": 1', '"n_layer": 2')}, "no value for 16 variables"),
        ({"config.json": lambda text: text.replace('"n_embd": 8', '"n_embd": 16')}, "is it of another configuration"),
    ],
)
def test_files_that_do_not_fit(folder, change, message, tmp_path, capsys):
    """A vocabulary of another model, merges that were cut short, a checkpoint of another size."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    [(name, edit)] = change.items()
    before = (copy / name).read_text(encoding="utf-8")
    (copy / name).write_text(edit(before), encoding="utf-8")
    assert (copy / name).read_text(encoding="utf-8") != before
    assert generate(f"--checkpoint={copy}", "--max_length=2", "low") == 1
    errors = capsys.readouterr().err
    assert re.search(message, errors) and "Traceback" not in errors, errors


def test_a_checkpoint_that_cannot_generate(tmp_path, capsys):
    Bert(BertConfig(30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)).save_checkpoint(tmp_path)
    assert generate(f"--checkpoint={tmp_path}", "low") == 1
    assert "holds no GPT" in capsys.readouterr().err


TEXTS = ["lower", "low", "lowest of all things here"]


def check_texts(loaded, generator):
    found = [text.decode(errors="replace") for text in generator(tf.constant(TEXTS))["texts"][:, 0].numpy()]
    assert found[:2] == generate_text(loaded[0], TEXTS[:2], loaded[1], max_length=6)
    last = loaded[1].tokenize_to_ids(TEXTS[2])[-10:]  # what has room in the context
    assert found[2] == loaded[1].decode(loaded[0].generate([last], max_length=6)["tokens"][0, 0])
    assert generator(tf.constant(["low", ""]))["texts"].numpy()[:, 0].tolist() == [found[1].encode(), b""]


def test_from_strings_to_strings(folder, loaded):
    check_texts(loaded, TextGenerator(loaded[0], folder, max_length=6))


def test_saved_and_loaded_without_our_code(folder, loaded, tmp_path, capsys):
    path = str(tmp_path / "saved")
    assert main(["export", str(folder), path, "--max_length=6"]) == 0
    assert "GPT with its tokenizer, for 6 new tokens" in capsys.readouterr().out
    assert main(["export", str(folder), path + "2", "--stop=|"]) == 2
    assert "a stop text is empty" in capsys.readouterr().err
    check_texts(loaded, tf.saved_model.load(path))
    with pytest.raises(ValueError, match="is there already"):
        export(loaded[0], folder, path)


def test_exports_that_cannot_be(folder, loaded):
    with pytest.raises(ValueError, match="export Greedy or BeamSearch"):
        TextGenerator(loaded[0], folder, Sampling())
    with pytest.raises(ValueError, match="at most the context, 16"):
        TextGenerator(loaded[0], folder, BeamSearch(2), max_length=16)
    with pytest.raises(ValueError, match="do not belong together"):
        TextGenerator(GPT(GPTConfig(200, **SIZES)), folder)
