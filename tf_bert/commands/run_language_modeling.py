"""``tf-bert run_language_modeling``: pre-trains a GPT or an ELMo on blocks of tokens."""

import os
from collections.abc import Sequence

from tf_bert.commands.distribution_flags import (
    add_distribution_flags,
    check_eval_batch_size,
    run_options,
    strategy_from_flags,
)
from tf_bert.commands.eval_results import write_and_show
from tf_bert.commands.flags import STOPPED, Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow

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
FLAGS.string("init_checkpoint", None, "A checkpoint to begin with: weights only, steps and moments begin anew.")
FLAGS.boolean("do_train", False, "Whether to train.")
FLAGS.boolean("do_eval", False, "Whether to evaluate, after training if that is asked for too.")
FLAGS.integer("train_batch_size", 32, "Blocks in a training batch, over all replicas and micro-batches.", minimum=1)
FLAGS.integer("eval_batch_size", 8, "Blocks in an evaluation batch.", minimum=1)
FLAGS.integer("max_eval_steps", 0, "Batches of an evaluation, the first ones; 0 for every block once.", minimum=0)
FLAGS.float("learning_rate", 2.5e-4, "The peak of the learning rate.", minimum=0.0)
FLAGS.enum("schedule", "cosine", ["linear", "cosine", "constant"], "How the rate falls after the warm-up.")
FLAGS.integer("num_train_steps", 100000, "Updates in all; a resumed run makes those that are left.", minimum=1)
FLAGS.integer("num_warmup_steps", 2000, "Updates of the linear warm-up.", minimum=0)
FLAGS.float("weight_decay", 0.01, "Decay of kernels and tables.", minimum=0.0)
FLAGS.float("beta_2", 0.999, "Of Adam; GPT-3 had 0.95.", minimum=0.0, maximum=1.0)
FLAGS.float("clip_norm", 1.0, "The largest norm of a gradient; 0 for any.", minimum=0.0)
FLAGS.boolean("mask_documents", False, "Whether attention stays inside a document.")
FLAGS.integer("save_checkpoints_steps", 1000, "Updates between two checkpoints.", minimum=1)
FLAGS.integer("keep_checkpoint_max", 5, "How many checkpoints stay.", minimum=1)
FLAGS.integer("eval_every_steps", 0, "Updates between evaluations while training; 0 for none.", minimum=0)
FLAGS.integer("log_steps", 100, "Updates between two lines of the log.", minimum=1)
FLAGS.integer("seed", 12345, "Seed of weights, dropout and the order of the blocks.")
FLAGS.integer("shuffle_buffer", 10000, "Blocks in memory to draw the next one from.", minimum=1)
add_distribution_flags(FLAGS)


def run(flags) -> int:
    """Trains, evaluates and exports."""
    if not flags.do_train and not flags.do_eval:
        raise UsageError("give --do_train, --do_eval or both: there is nothing else to do")
    if flags.model == "elmo" and flags.mask_documents:
        raise UsageError("--mask_documents is about attention, which an ELMo has none of")
    if flags.model == "elmo" and flags.init_checkpoint:
        raise UsageError("--init_checkpoint takes a GPT; an ELMo goes on from its own --output_dir")

    load_tensorflow()
    from tf_bert.data.language_modeling.input import find_blocks
    from tf_bert.progress import say
    from tf_bert.training import language_modeling
    from tf_bert.training.runs import Stopped, load_for_evaluation
    from tf_bert.training.workers import is_chief

    strategy = strategy_from_flags(flags)
    if flags.do_eval or flags.eval_every_steps:
        check_eval_batch_size(flags, strategy)
    config_class, model_class = _classes(flags.model)
    config = config_class.from_json_file(flags.config_file)
    if config.extra:
        say(f"WARNING: {flags.config_file}: {', '.join(config.extra)} are no sizes of a {flags.model}, and not used")
    blocks = find_blocks(flags.input_file)
    eval_blocks = find_blocks(flags.eval_input_file) if flags.eval_input_file else blocks
    options = language_modeling.LanguageModelingOptions(
        **run_options(flags),
        num_train_steps=flags.num_train_steps,
        train_batch_size=flags.train_batch_size,
        num_warmup_steps=flags.num_warmup_steps,
        decay=flags.schedule,
        weight_decay=flags.weight_decay,
        beta_2=flags.beta_2,
        clip_norm=flags.clip_norm,
        mask_documents=flags.mask_documents,
        shuffle_buffer=flags.shuffle_buffer,
        evaluate_every=flags.eval_every_steps,
        eval_batch_size=flags.eval_batch_size,
        max_eval_steps=flags.max_eval_steps,
    )
    if flags.do_train:
        try:
            model = language_modeling.train_language_model(
                config,
                blocks,
                flags.output_dir,
                options,
                init_checkpoint=flags.init_checkpoint,
                eval_blocks=eval_blocks,
                strategy=strategy,
                make=model_class,
            )
        except Stopped as stopped:
            print(f"tf-bert run_language_modeling: {stopped}")
            return STOPPED
        step = options.num_train_steps
    else:
        model = language_modeling.build_model(config, options, strategy, model_class)
        step = load_for_evaluation(model, flags.output_dir, flags.init_checkpoint)

    figures = language_modeling.evaluate(model, eval_blocks, options) if flags.do_eval else {}
    if not is_chief(strategy):
        return 0
    if figures:
        write_and_show(flags.output_dir, figures, step)
    if flags.do_train:
        print(f"the model is in {_export(model, os.path.join(flags.output_dir, EXPORT), blocks)}")
    return 0


def _classes(name: str) -> tuple[type, type]:
    """The configuration and the model of a name."""
    if name == "elmo":
        from tf_bert.configs import ElmoConfig
        from tf_bert.models.elmo import Elmo

        return ElmoConfig, Elmo
    from tf_bert.configs import GPTConfig
    from tf_bert.models.gpt import GPT

    return GPTConfig, GPT


def _export(model, folder: str, blocks) -> str:
    """Writes the model with the vocabulary of its blocks, where that is found."""
    from tf_bert.checkpoints import gpt_config, keras_files, openai
    from tf_bert.files import make_folder
    from tf_bert.models.gpt import GPT
    from tf_bert.progress import say
    from tf_bert.tokenization.vocabulary import vocab_sha256

    noted = next((sidecar for sidecar in blocks.sidecars if "vocab_file" in sidecar), {})
    path = noted.get("vocab_file")
    if path and os.path.isfile(path) and vocab_sha256(path) == noted["vocab_sha256"]:
        model.vocab_file = path
    else:
        say(f"WARNING: the vocabulary of the records is not known: {folder} will lack it")
    make_folder(folder)
    is_gpt = isinstance(model, GPT)
    problem = gpt_config.not_in_hugging_face(model.config) if is_gpt else None
    if is_gpt and problem is None:
        return model.save_checkpoint(folder)
    openai.copy_vocabulary(getattr(model, "vocab_file", None), folder, "openai")
    path = keras_files.write_keras_file(model, os.path.join(folder, f"{model.name}.keras"))
    if not is_gpt:
        return folder
    say(f"{problem}: the model is written as a .keras file")
    return path


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
