"""``tf-bert predict``: predicts each line of standard input with a fine-tuned model."""

import json
import sys
from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.flags import Flags
from tf_bert.commands.quiet import load_tensorflow

with deferred():
    from tf_bert import configs, progress
    from tf_bert.serving import lines, load, predictors

FLAGS = Flags(
    "predict",
    """
    Predicts for each line of standard input with a model that was fine-tuned: a folder that run_classifier, run_ner,
    run_squad or run_gpt left, or a checkpoint in any format. One line out for each line in, in order; all lines are
    checked before the first is answered, and memory does not grow. A line is, for a classifier, a text or
    TEXT ||| TEXT; for a tagger, words separated by blanks; for question answering, QUESTION ||| TEXT; for multiple
    choice, TEXT ||| CHOICE ||| CHOICE ... An empty line is an empty text, where the task has one.

    Example: tf-bert predict runs/reviews < reviews.txt > labels.jsonl
    """,
)
FLAGS.string("checkpoint", None, "Folder or file of a fine-tuned model, in any format.", required=True)
FLAGS.positional("checkpoint")
FLAGS.enum("format", "jsonl", ["jsonl", "tsv"], "What is printed: an object a line, or columns separated by tabs.")
FLAGS.integer("batch_size", 32, "Lines in a batch.", minimum=1)
FLAGS.integer("max_seq_length", None, "Maximum number of pieces read. Default: as in training, else all.")
FLAGS.string("labels", None, "The labels, separated by commas, in the order of training; by default as noted there.")
FLAGS.string("bert_config_file", None, "Configuration of the model, if none is next to it.")
FLAGS.string("vocab_file", None, "Vocabulary, if none is next to the model.")
FLAGS.boolean("do_lower_case", None, "Whether to lower-case the text, if nothing next to the model states it.")
FLAGS.boolean("version_2_with_negative", None, "Questions: whether there may be no answer; by default as in training.")
FLAGS.float("null_score_diff_threshold", 0.0, "Questions: no answer where its score exceeds the best one's by more.")
FLAGS.integer("doc_stride", 128, "Questions: pieces from the start of a window to that of the next.", minimum=1)
FLAGS.integer("max_query_length", 64, "Questions: maximum number of pieces of a question.", minimum=1)
FLAGS.integer("max_answer_length", 30, "Questions: maximum number of pieces of an answer.", minimum=0)

BATCHES_AT_ONCE = 64  # their lines are sorted by length
SETTINGS = (
    "batch_size",
    "max_seq_length",
    "vocab_file",
    "do_lower_case",
    "version_2_with_negative",
    "null_score_diff_threshold",
    "doc_stride",
    "max_query_length",
    "max_answer_length",
)


def run(flags) -> None:
    """Loads the model, reads and prints."""
    load_tensorflow()
    predictor = load.load_predictor(
        flags.checkpoint,
        config=configs.BertConfig.from_json_file(flags.bert_config_file) if flags.bert_config_file else None,
        labels=[label.strip() for label in flags.labels.split(",")] if flags.labels else [],
        **{name: flags[name].value for name in SETTINGS},
    )
    is_typed = sys.stdin.isatty()
    checked = lines.typed if is_typed else lines.all_checked
    given = checked(lines.numbered_lines(sys.stdin.buffer), predictor.read)
    results = predictors.predict_lines(predictor, given, 1 if is_typed else BATCHES_AT_ONCE * flags.batch_size)
    if sys.stdout.isatty():
        for result in results:
            print(shown(predictor, result, flags.format), flush=True)
        return
    with progress.Progress("predicting", None, "lines") as bar:
        for result in results:
            print(shown(predictor, result, flags.format))
            bar.update()
    sys.stdout.flush()


def shown(predictor, result: dict, format: str) -> str:
    """Returns a result as a line: JSON, or columns separated by tabs."""
    return json.dumps(result, ensure_ascii=False) if format == "jsonl" else "\t".join(predictor.columns(result))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
