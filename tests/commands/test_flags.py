"""The command-line machinery: parsing, refusals, help and exit statuses."""

import importlib
import os
import subprocess
import sys

import pytest

from tf_bert.commands.flags import Flags, UsageError


@pytest.fixture
def flags():
    flags = Flags("demo", "A demonstration.\n\nExample: tf-bert demo --input_file=x")
    flags.string("input_file", None, "What to read.", required=True)
    flags.boolean("do_lower_case", True, "Whether to lower-case.")
    flags.integer("max_seq_length", 128, "Length.", minimum=5)
    flags.float("masked_lm_prob", 0.15, "Share.", minimum=0, maximum=1)
    flags.enum("mode", "a", ["a", "b"], "Which.")
    flags.refuse("master", "TF1 sessions are gone; use --distribution_strategy")
    return flags


@pytest.mark.parametrize(
    "written, value",
    [
        (["--do_lower_case"], True),
        (["--nodo_lower_case"], False),
        (["--do_lower_case=False"], False),
        (["--do_lower_case=true"], True),
        (["-do_lower_case=false"], False),
    ],
)
def test_boolean_forms_of_the_original(flags, written, value):
    assert flags.parse(["--input_file=x", *written]).do_lower_case is value


def test_space_separated_values(flags):
    values = flags.parse(["--input_file", "x", "--max_seq_length", "64"])
    assert values.max_seq_length == 64


@pytest.mark.parametrize(
    "argv, said",
    [
        (["--input_file=x", "--do_lower=False"], "did you mean --do_lower_case"),
        (["--input_file=x", "--max_seq_lenght=5"], "did you mean --max_seq_length"),
        (["--input_file=x", "--nodo_lower_cas"], "did you mean --nodo_lower_case"),
        (["--input_file=x", "True"], "stray argument 'True'"),
        (["--input_file=x", "max_seq_length=64"], "did you mean --max_seq_length"),
        (["--input_file=x", "--max_seq_length=many"], "flag --max_seq_length=many: expected a whole number >= 5$"),
        (["--input_file=x", "--max_seq_length=4"], "flag --max_seq_length=4: expected a whole number >= 5$"),
        (["--input_file=x", "--masked_lm_prob=1.5"], r"prob=1.5: expected a number in the range \[0.0, 1.0\]$"),
        (["--input_file=x", "--masked_lm_prob=nan"], "masked_lm_prob=nan: expected a number"),
        (["--input_file=x", "--masked_lm_prob="], "masked_lm_prob=: expected a number"),
        (["--input_file=x", "--do_lower_case=maybe"], "do_lower_case=maybe: expected true or false$"),
        (["--input_file=x", "--mode=c"], "mode"),
        (["--input_file=x", "--master=grpc://1"], "--distribution_strategy"),
        (["--input_file=x", "--undefok=speed", "--speed=9"], "--undefok is not accepted: a flag that is not known"),
        (["--flagfile=/no/such"], "^Unable to open flagfile"),
        ([], "missing --input_file"),
    ],
)
def test_mistakes_are_refused(flags, argv, said):
    with pytest.raises(UsageError, match=said):
        flags.parse(argv)


def test_help_shows_every_flag_and_the_example(flags, capsys):
    assert flags.run(lambda values: 1, ["--help"]) == 0
    shown = capsys.readouterr().out
    for text in (
        "--input_file=TEXT  (required)",
        "--[no]do_lower_case  (default: True)",
        "--max_seq_length=N",
        "--mode=a|b  (default: a)\n      Which.\n",
        "Example: tf-bert demo",
        "--master  (refused)",
    ):
        assert text in shown


@pytest.mark.parametrize(
    "error, status",
    [(ValueError("bad\nfile"), 1), (KeyError("no key"), 1), (FileNotFoundError("gone"), 1), (KeyboardInterrupt(), 130)],
)
def test_a_users_mistake_is_one_line(flags, capsys, error, status):
    def command(values):
        raise error

    assert flags.run(command, ["--input_file=x"]) == status
    shown = capsys.readouterr().err
    assert shown.startswith("tf-bert demo: error: ") and shown.count("\n") == 1


def test_our_own_faults_keep_their_traceback(flags):
    with pytest.raises(ZeroDivisionError):
        flags.run(lambda values: 1 / 0, ["--input_file=x"])


def test_each_parse_starts_from_the_defaults(flags):
    assert flags.parse(["--input_file=x", "--max_seq_length=64"]).max_seq_length == 64
    assert flags.parse(["--input_file=x"]).max_seq_length == 128
    with pytest.raises(UsageError, match="missing --input_file"):
        flags.parse([])


def test_bare_words_stand_for_flags_that_take_them():
    flags = Flags("demo", "A demonstration.")
    flags.enum("action", None, ["list", "show"], "What to do.", required=True)
    flags.string("name", None, "Of what.")
    flags.positional("action", "name")
    values = flags.parse(["show", "x"])
    assert (values.action, values.name) == ("show", "x")
    assert flags.parse(["--action=list"]).name is None
    assert flags.parse(["x", "--action=show"]).name == "x"
    for argv, said in ([], "missing --action"), (["burn"], "action"), (["show", "x", "y"], "stray argument 'y'"):
        with pytest.raises(UsageError, match=said):
            flags.parse(argv)
    assert flags.help().startswith("usage: tf-bert demo ACTION NAME --flag=value ...")


ORIGINAL_COMMAND_LINES = [
    # From the README of google-research/bert, in its order.
    """create_pretraining_data --input_file=./sample_text.txt --output_file=/tmp/tf_examples.tfrecord
    --vocab_file=$BERT_BASE_DIR/vocab.txt --do_lower_case=True --max_seq_length=128 --max_predictions_per_seq=20
    --masked_lm_prob=0.15 --random_seed=12345 --dupe_factor=5""",
    """run_pretraining --input_file=/tmp/tf_examples.tfrecord --output_dir=/tmp/pretraining_output --do_train=True
    --do_eval=True --bert_config_file=$BERT_BASE_DIR/bert_config.json --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt
    --train_batch_size=32 --max_seq_length=128 --max_predictions_per_seq=20 --num_train_steps=20 --num_warmup_steps=10
    --learning_rate=2e-5""",
    # Every other flag of the two programs, in the other ways of writing.
    """create_pretraining_data --input_file a,b --output_file c,d --vocab_file v --nodo_lower_case --do_whole_word_mask
    --max_seq_length 512 --max_predictions_per_seq 77 --random_seed 1 --dupe_factor 1 --masked_lm_prob .2
    --short_seq_prob 0""",
    """run_pretraining -input_file=a -output_dir=b -bert_config_file=c --do_train --nodo_eval --eval_batch_size=8
    --save_checkpoints_steps=1000 --iterations_per_loop=1000 --max_eval_steps=100 --use_tpu=True --tpu_name=$TPU_NAME
    --tpu_zone=us-central1-b --gcp_project=mine --num_tpu_cores=8""",
]


@pytest.mark.parametrize("line", ORIGINAL_COMMAND_LINES)
def test_the_originals_command_lines_parse(line):
    name, *argv = line.split()
    flags = importlib.import_module(f"tf_bert.commands.{name}").FLAGS
    values = flags.parse(argv)
    given = {word.lstrip("-").split("=")[0] for word in argv if word.startswith("-")}
    assert all(values[flag.removeprefix("no") if flag.startswith("nodo") else flag].present for flag in given)


def test_what_tensorflow_says_while_it_loads_is_shown_only_where_it_matters(tmp_path):
    """A command's standard error is its own: here one line, that the folder holds no checkpoint."""
    command = [sys.executable, "-m", "tf_bert.commands.main", "checkpoints", "show", str(tmp_path)]
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("tf-bert checkpoints: error: ") and done.stderr.count("\n") == 1, done.stderr


def test_notes_of_a_failed_load_are_shown(tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "import os\nos.write(2, b'no such library\\n')\nraise ImportError('broken')\n"
    )
    code = "from tf_bert.commands.quiet import load_tensorflow; load_tensorflow()"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stderr.startswith("no such library\n") and "ImportError: broken" in done.stderr


def test_a_refused_flag_of_the_original_is_accepted_where_it_changes_nothing():
    from tf_bert.commands import extract_features, run_squad

    bert = ["--vocab_file=v", "--bert_config_file=c"]
    for flags, given in (
        (run_squad.FLAGS, ["--verbose_logging=False", "--noverbose_logging", "--output_dir=x", "--master="]),
        (
            extract_features.FLAGS,
            ["--num_tpu_cores=8", "--input_file=a", "--output_file=b", "--init_checkpoint=c", *bert],
        ),
    ):
        flags.parse(given)
    with pytest.raises(UsageError, match="--verbose_logging is not accepted: it logged answers"):
        run_squad.FLAGS.parse(["--verbose_logging", "--output_dir=x"])
    with pytest.raises(UsageError, match="--master is not accepted"):
        run_squad.FLAGS.parse(["--master=grpc://x", "--output_dir=x"])
