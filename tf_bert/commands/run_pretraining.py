"""``tf-bert run_pretraining``: pre-trains BERT on the records of ``create_pretraining_data``."""

import os
from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.distribution_flags import add_distribution_flags, check_eval_batch_size, strategy_from_flags
from tf_bert.commands.eval_results import write_and_show
from tf_bert.commands.flags import Flags, UsageError, options_from
from tf_bert.progress import say
from tf_bert.training.options import TrainingOptions

with deferred():
    from tf_bert import configs
    from tf_bert.data.pretraining import input as pretraining_input
    from tf_bert.data.pretraining import vocabulary
    from tf_bert.training import pretraining, workers

EXPORT = "export"

FLAGS = Flags(
    "run_pretraining",
    """
    Pre-trains BERT: masked LM and next-sentence prediction. A run that was stopped goes on where it was when the same
    command is given again; after SIGTERM it saves and ends with status 75.

    output_dir gets checkpoints in the original's format (model.ckpt-N), training.jsonl, files for TensorBoard,
    eval_results.txt, and at the end export/, laid out as Google's archives.

    Example: tf-bert run_pretraining --bert_config_file=bert_config.json --input_file='data/*.tfrecord'
        --output_dir=runs/1 --do_train --do_eval --num_train_steps=10000 --num_warmup_steps=1000
    """,
)
FLAGS.string("bert_config_file", None, "The sizes of the model (bert_config.json).", required=True)
FLAGS.string("input_file", None, "TFRecords: names or globs, separated by commas.", required=True)
FLAGS.string("eval_input_file", None, "Records to evaluate on, if they are not those of --input_file.")
FLAGS.string("output_dir", None, "Where checkpoints and results go; made if need be.", required=True)
FLAGS.string("init_checkpoint", None, "A checkpoint to begin with: weights only, steps and moments begin at 0.")
FLAGS.integer("max_seq_length", 128, "Tokens in a record; as the records were made.", minimum=1)
FLAGS.integer("max_predictions_per_seq", 20, "Masked tokens in a record; as the records were made.", minimum=1)
FLAGS.boolean("do_train", False, "Whether to train.")
FLAGS.boolean("do_eval", False, "Whether to evaluate, after training if that is asked for too.")
FLAGS.add_options(TrainingOptions)
add_distribution_flags(FLAGS)
FLAGS.string(
    "vocab_file", None, "The vocabulary of the records, for export/. By default the one they were made with, if found."
)
FLAGS.boolean("do_lower_case", None, "Whether the records are lower-cased. By default as noted beside them, else True.")


def run(flags) -> int:
    """Trains, evaluates and exports."""
    if not flags.do_train and not flags.do_eval:
        raise UsageError("give --do_train, --do_eval or both: there is nothing else to do")
    strategy = strategy_from_flags(flags)
    if flags.do_eval or flags.eval_every_steps:
        check_eval_batch_size(flags, strategy)
    config = configs.BertConfig.from_json_file(flags.bert_config_file)
    lengths = flags.max_seq_length, flags.max_predictions_per_seq
    records = pretraining_input.find_records(flags.input_file, *lengths)
    eval_records = pretraining_input.find_records(flags.eval_input_file, *lengths) if flags.eval_input_file else records
    task = pretraining.Pretraining(config, records, options_from(flags, TrainingOptions), eval_records)
    if flags.do_train:
        near = [flags.bert_config_file, flags.init_checkpoint]
        casing = flags.vocab_file, flags.do_lower_case
        tokenizer = vocabulary.tokenizer_of_records(records, config.vocab_size, *casing, near)
        if tokenizer is None:
            say(f"WARNING: the vocabulary of the records is not known: {EXPORT} will lack vocab.txt; give --vocab_file")
        model = task.train(flags.output_dir, init_checkpoint=flags.init_checkpoint, strategy=strategy)
    else:
        model = task.load(flags.output_dir, flags.init_checkpoint, strategy)

    figures = pretraining.evaluate(model, eval_records, task.options) if flags.do_eval else None
    if not workers.is_chief(strategy):
        return 0
    if figures:
        write_and_show(flags.output_dir, figures, int(model.optimizer.iterations))
    if flags.do_train:
        directory = pretraining.export(model, os.path.join(flags.output_dir, EXPORT), tokenizer)
        print(f"the model is in {directory}; try: tf-bert fill_mask --checkpoint={directory} 'a text with a [MASK] .'")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
