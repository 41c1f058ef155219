"""``tf-bert run_language_modeling``: pre-trains a GPT or an ELMo on blocks of tokens."""

import os
from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.distribution_flags import add_distribution_flags, check_eval_batch_size, strategy_from_flags
from tf_bert.commands.eval_results import write_and_show
from tf_bert.commands.flags import Flags, UsageError, options_from
from tf_bert.training.options import LanguageModelingOptions

with deferred():
    from tf_bert.data.language_modeling import input as language_modeling_input
    from tf_bert.training import language_modeling, workers

EXPORT = "export"

FLAGS = Flags(
    "run_language_modeling",
    """
    Trains a model to say what comes next (GPT), or what comes next and what came before (ELMo). A run that was stopped
    goes on where it was when the same command is given again; after SIGTERM it saves and ends with status 75.

    output_dir gets checkpoints (model.ckpt-N), training.jsonl, files for TensorBoard, eval_results.txt with the
    perplexity per token and per byte, and at the end export/.

    Example: tf-bert run_language_modeling --config_file=gpt_config.json --input_file='train*.tfrecord'
        --eval_input_file=heldout.tfrecord --output_dir=runs/1 --do_train --do_eval --num_train_steps=10000
    """,
)
FLAGS.enum("model", "gpt", ["gpt", "elmo"], "What the configuration describes.")
FLAGS.string("config_file", None, "The sizes of the model, as JSON.", required=True)
FLAGS.string("input_file", None, "TFRecords: names or globs, separated by commas.", required=True)
FLAGS.string("eval_input_file", None, "Records to evaluate on, if they are not those of --input_file.")
FLAGS.string("output_dir", None, "Where checkpoints and results go; made if need be.", required=True)
FLAGS.string("init_checkpoint", None, "A checkpoint to begin with: weights only, steps and moments begin at 0.")
FLAGS.boolean("do_train", False, "Whether to train.")
FLAGS.boolean("do_eval", False, "Whether to evaluate, after training if that is asked for too.")
FLAGS.add_options(LanguageModelingOptions)
add_distribution_flags(FLAGS)


def run(flags) -> int:
    """Trains, evaluates and exports."""
    if not flags.do_train and not flags.do_eval:
        raise UsageError("give --do_train, --do_eval or both: there is nothing else to do")
    if flags.model == "elmo" and flags.mask_documents:
        raise UsageError("--mask_documents is about attention, which an ELMo has none of")
    if flags.model == "elmo" and flags.init_checkpoint:
        raise UsageError("--init_checkpoint takes a GPT; an ELMo is resumed from its own --output_dir")
    strategy = strategy_from_flags(flags)
    if flags.do_eval or flags.eval_every_steps:
        check_eval_batch_size(flags, strategy)
    make = language_modeling.MODELS[flags.model]
    config = language_modeling.read_config(flags.config_file, make)
    blocks = language_modeling_input.find_blocks(flags.input_file)
    eval_blocks = language_modeling_input.find_blocks(flags.eval_input_file) if flags.eval_input_file else blocks
    options = options_from(flags, LanguageModelingOptions)
    task = language_modeling.LanguageModeling(config, blocks, options, eval_blocks, make)
    if flags.do_train:
        model = task.train(flags.output_dir, init_checkpoint=flags.init_checkpoint, strategy=strategy)
    else:
        model = task.load(flags.output_dir, flags.init_checkpoint, strategy)
    figures = language_modeling.evaluate(model, eval_blocks, options) if flags.do_eval else {}
    if not workers.is_chief(strategy):
        return 0
    if figures:
        write_and_show(flags.output_dir, figures, int(model.optimizer.iterations))
    if flags.do_train:
        folder = os.path.join(flags.output_dir, EXPORT)
        print(f"the model is in {language_modeling.export(model, folder, blocks)}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
