"""``tf-bert pretrain_demo``: pre-trains a small BERT from text by running the other commands in turn."""

import importlib
import os
import shlex
import sys
import time
from collections.abc import Sequence

from tf_bert.commands import demo_report
from tf_bert.commands.flags import Flags
from tf_bert.data.pretraining import left_neighbours, plan
from tf_bert.data.text.documents import find_files
from tf_bert.data.text.lines import read_lines, total_size
from tf_bert.tokenization.full import FullTokenizer

FLAGS = Flags(
    "pretrain_demo",
    """
    Builds a vocabulary and TFRecords from text, pre-trains a small BERT, evaluates it on held-out documents against
    predictors that count, draws the curves and fills masks. Each step is a command of its own, which is shown.

    The text is the built-in reference of Python's help(), or your own. Given again, it goes on where it was stopped.

    Example: tf-bert pretrain_demo --corpus='books/*.txt'
    """,
)
FLAGS.string("corpus", None, "Your own text: files, globs or directories, separated by commas.")
FLAGS.enum(
    "document_break",
    "auto",
    ["auto", "blank_line", "two_blank_lines", "paragraph", "file"],
    "What ends a document of your own text, as prepare_corpus understands it.",
)
FLAGS.string("encoding", "utf-8", "Encoding of your own text, such as gb18030, big5 or utf-16.")
FLAGS.string("output_dir", None, "Where everything goes. By default runs/pretrain, runs/pretrain-NAME for a corpus.")
FLAGS.boolean("short", False, "A few steps only, to see that all works, in a folder of its own (-short).")
FLAGS.integer(
    "vocab_size",
    None,
    "Lines of the vocabulary; by default 1500, and for your own text its characters and some 1,300 pieces.",
    minimum=100,
)
FLAGS.boolean("do_lower_case", True, "Whether to lower-case.")
FLAGS.integer("num_train_steps", None, "Updates; by default what two cores make in five to ten minutes.", minimum=1)
FLAGS.float("learning_rate", 1e-3, "The peak of the learning rate; small models take large ones.")
FLAGS.integer("train_batch_size", plan.BATCH_SIZE, "Records in a batch.", minimum=1)

SHORT_STEPS = 120


def run(flags) -> int | None:
    """Makes all steps in turn; ends with the status of the first one that fails."""
    began = time.monotonic()
    folder = flags.output_dir or demo_report.folder_for(flags.corpus, flags.short)
    name = {key: os.path.join(folder, key) for key in ("train.txt", "heldout.txt", "vocab.txt", "bert_config.json")}
    train_records, heldout_records = (os.path.join(folder, f"{key}.tfrecord") for key in ("train", "heldout"))
    run_dir = os.path.join(folder, "run")
    lower = [] if flags.do_lower_case else ["--nodo_lower_case"]

    source = [f"--input_file={flags.corpus}", f"--document_break={flags.document_break}"]
    if flags.corpus:
        source += [f"--encoding={flags.encoding}", f"--max_sentence_width={plan.SENTENCE_WIDTH}"]
        source += plan.shares(total_size(find_files(flags.corpus)))
    status = _command(
        "prepare_corpus",
        *(source if flags.corpus else ["--builtin_corpus"]),
        f"--output_file={name['train.txt']}",
        f"--heldout_file={name['heldout.txt']}",
    )
    if status:
        return status
    if flags.corpus and flags.do_lower_case and plan.keeps_accents(read_lines(name["train.txt"])):
        lower = ["--nostrip_accents"]  # which are vowels or parts of letters there
    status = _command(
        "train_vocab",
        f"--input_file={name['train.txt']}",
        f"--output_file={name['vocab.txt']}",
        f"--vocab_size={flags.vocab_size or (0 if flags.corpus else plan.VOCAB_SIZE)}",
        "--num_unused=0",
        *lower,
    )
    if status:
        return status
    strip_accents = False if lower == ["--nostrip_accents"] else None
    tokenizer = FullTokenizer(name["vocab.txt"], flags.do_lower_case, strip_accents)
    chosen = plan.plan(read_lines(name["train.txt"]), tokenizer) if flags.corpus else plan.BUILTIN
    length, predictions = chosen.max_seq_length, chosen.max_predictions_per_seq
    steps = flags.num_train_steps or (SHORT_STEPS if flags.short else chosen.num_train_steps)
    for text, records, options in (
        ("train.txt", train_records, ["--masking=dynamic", f"--dupe_factor={chosen.dupe_factor}"]),
        ("heldout.txt", heldout_records, [f"--dupe_factor={min(5, chosen.dupe_factor)}"]),
    ):
        status = status or _command(
            "create_pretraining_data",
            f"--input_file={name[text]}",
            f"--output_file={records}",
            f"--vocab_file={name['vocab.txt']}",
            f"--max_seq_length={length}",
            f"--max_predictions_per_seq={predictions}",
            *options,
            *lower,
        )
    if status:
        return status
    accuracies = left_neighbours.count_in_text(name["train.txt"], tokenizer, heldout_records)
    plan.write_config(name["bert_config.json"], tokenizer.vocab_size, length)
    every = max(1, steps // 25)
    status = _command(
        "run_pretraining",
        f"--bert_config_file={name['bert_config.json']}",
        f"--input_file={train_records}",
        f"--eval_input_file={heldout_records}",
        f"--output_dir={run_dir}",
        f"--max_seq_length={length}",
        f"--max_predictions_per_seq={predictions}",
        "--do_train",
        "--do_eval",
        f"--train_batch_size={flags.train_batch_size}",
        "--eval_batch_size=32",
        "--max_eval_steps=0",
        f"--learning_rate={flags.learning_rate}",
        f"--num_train_steps={steps}",
        f"--num_warmup_steps={steps // 20}",
        f"--save_checkpoints_steps={max(1, steps // 5)}",
        f"--log_steps={every}",
        f"--eval_every_steps={every}",
        "--xla",
    )
    if status:
        return status
    export, picture = os.path.join(run_dir, "export"), os.path.join(folder, "curves.png")
    demo_report.draw(run_dir, picture, accuracies)
    learned = demo_report.verdict(run_dir, accuracies, steps)
    demo_report.fill(export, name["heldout.txt"])
    demo_report.say_what_is_where(folder, run_dir, export, picture, steps, time.monotonic() - began)
    return None if learned else 1


def _command(name: str, *arguments: str) -> int:
    """Shows a command line and runs it in this process."""
    print(f"\n$ tf-bert {name} {' '.join(map(shlex.quote, arguments))}", flush=True)
    status = importlib.import_module(f"tf_bert.commands.{name}").main(arguments)
    sys.stdout.flush()
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
