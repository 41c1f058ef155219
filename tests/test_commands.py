"""The command-line machinery: parsing, refusals, help and exit statuses."""

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
        (["--input_file=x", "--max_seq_length=many"], "max_seq_length"),
        (["--input_file=x", "--max_seq_length=4"], "max_seq_length"),
        (["--input_file=x", "--masked_lm_prob=1.5"], "masked_lm_prob"),
        (["--input_file=x", "--mode=c"], "mode"),
        (["--input_file=x", "--master=grpc://1"], "--distribution_strategy"),
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
        "--mode=a|b",
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
