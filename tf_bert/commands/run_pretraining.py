"""``tf-bert run_pretraining``: pre-trains BERT on the records of ``create_pretraining_data``."""

import os
from collections.abc import Sequence

from tf_bert.commands.distribution_flags import (
    add_attention_flag,
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
FLAGS.string("output_dir", None, "Where checkpoints and results go; made if need be.", required=True)
FLAGS.string(
    "init_checkpoint", None, "A TensorFlow 1 BERT checkpoint to begin with: weights only, steps and moments begin anew."
)
FLAGS.integer("max_seq_length", 128, "Tokens in a record; as the records were made.", minimum=1)
FLAGS.integer("max_predictions_per_seq", 20, "Masked tokens in a record; as the records were made.", minimum=1)
FLAGS.boolean("do_train", False, "Whether to train.")
FLAGS.boolean("do_eval", False, "Whether to evaluate, after training if that is asked for too.")
FLAGS.integer("train_batch_size", 32, "Records in a training batch, over all replicas and micro-batches.", minimum=1)
FLAGS.integer("eval_batch_size", 8, "Records in an evaluation batch.", minimum=1)
FLAGS.float("learning_rate", 5e-5, "The peak of the learning rate.", minimum=0.0)
FLAGS.integer("num_train_steps", 100000, "Updates in all; a resumed run makes those that are left.", minimum=1)
FLAGS.integer("num_warmup_steps", 10000, "Updates of the linear warm-up.", minimum=0)
FLAGS.integer("save_checkpoints_steps", 1000, "Updates between two checkpoints.", minimum=1)
FLAGS.integer("max_eval_steps", 100, "Batches of an evaluation; 0 for every record once.", minimum=0)

add_distribution_flags(FLAGS)

# What the original does not have.
FLAGS.string("eval_input_file", None, "Records to evaluate on, if they are not those of --input_file.")
FLAGS.integer("eval_every_steps", 0, "Updates between evaluations while training; 0 for none.", minimum=0)
FLAGS.integer("seed", 12345, "Seed of weights, dropout and the order of the records.")
FLAGS.integer("log_steps", 100, "Updates between two lines of the log.", minimum=1)
FLAGS.integer("keep_checkpoint_max", 5, "How many checkpoints stay.", minimum=1)
FLAGS.integer("shuffle_buffer", 10000, "Records in memory to draw the next one from.", minimum=1)
FLAGS.boolean("deterministic", True, "Whether equal seeds give equal orders, whatever the speed of the disk.")
FLAGS.boolean(
    "shard_files",
    False,
    "Whether each of several workers reads only its share of the files, instead of all. The order of the records "
    "then depends on the number of workers.",
)
add_attention_flag(FLAGS)
FLAGS.string(
    "vocab_file", None, "The vocabulary of the records, for export/. By default the one they were made with, if found."
)
FLAGS.boolean("do_lower_case", None, "Whether the records are lower-cased. By default as noted beside them, else True.")


def run(flags) -> int:
    """Trains, evaluates and exports."""
    if not flags.do_train and not flags.do_eval:
        raise UsageError("give --do_train, --do_eval or both: there is nothing else to do")

    load_tensorflow()
    from tf_bert.configs import BertConfig
    from tf_bert.data.pretraining.input import find_records
    from tf_bert.training import pretraining
    from tf_bert.training.workers import is_chief

    strategy = strategy_from_flags(flags)
    if flags.do_eval or flags.eval_every_steps:
        check_eval_batch_size(flags, strategy)
    config = BertConfig.from_json_file(flags.bert_config_file)
    lengths = flags.max_seq_length, flags.max_predictions_per_seq
    records = find_records(flags.input_file, *lengths)
    eval_records = find_records(flags.eval_input_file, *lengths) if flags.eval_input_file else records
    options = pretraining.TrainingOptions(
        **run_options(flags),
        num_train_steps=flags.num_train_steps,
        train_batch_size=flags.train_batch_size,
        num_warmup_steps=flags.num_warmup_steps,
        shuffle_buffer=flags.shuffle_buffer,
        deterministic=flags.deterministic,
        shard_files=flags.shard_files,
        attention=flags.attention,
        evaluate_every=flags.eval_every_steps,
    )
    evaluation = pretraining.EvaluationOptions(flags.eval_batch_size, flags.max_eval_steps)
    tokenizer = _tokenizer(flags, config, records) if flags.do_train else None

    if flags.do_train:
        try:
            model = pretraining.pretrain(
                config,
                records,
                flags.output_dir,
                options,
                init_checkpoint=flags.init_checkpoint,
                eval_records=eval_records,
                evaluation=evaluation,
                strategy=strategy,
            )
        except pretraining.Stopped as stopped:
            print(f"tf-bert run_pretraining: {stopped}")
            return STOPPED
        step = options.num_train_steps
    else:
        model = pretraining.build_model(config, options, strategy)
        step = pretraining.load_for_evaluation(model, flags.output_dir, flags.init_checkpoint)

    if flags.do_eval:
        figures = pretraining.evaluate(model, eval_records, evaluation)
    if not is_chief(strategy):
        return 0
    if flags.do_eval:
        write_and_show(flags.output_dir, figures, step)
    if flags.do_train:
        directory = pretraining.export(model, os.path.join(flags.output_dir, EXPORT), tokenizer)
        print(f"the model is in {directory}; try: tf-bert fill_mask --checkpoint={directory} 'a text with a [MASK] .'")
    return 0


def _tokenizer(flags, config, records):
    """The tokenizer that the records were made with, or None where its vocabulary cannot be found."""
    from tf_bert.progress import say
    from tf_bert.tokenization.full import FullTokenizer
    from tf_bert.tokenization.vocabulary import casing_problem, vocab_sha256

    noted = next((sidecar for sidecar in records.sidecars if "vocab_sha256" in sidecar), {})
    path = flags.vocab_file or _find_vocabulary(flags, records, noted)
    if path is None:
        say(f"WARNING: the vocabulary of the records is not known: {EXPORT} will lack vocab.txt; give --vocab_file")
        return None
    if noted and vocab_sha256(path) != noted["vocab_sha256"]:
        raise ValueError(
            f"{path} is not the vocabulary that {records.files[0]} was made with: its SHA-256 is "
            f"{vocab_sha256(path)}, expected {noted['vocab_sha256']} ({noted.get('vocab_file', 'of an unknown place')})"
        )
    switches = {key: noted[key] for key in ("strip_accents", "tokenize_chinese_chars") if key in noted}
    lower = flags.do_lower_case
    if lower is None:
        lower = noted.get("do_lower_case", True)
    elif lower != noted.get("do_lower_case", lower):
        raise ValueError(f"do_lower_case is {lower}, and {records.files[0]} was made with {noted['do_lower_case']}")
    tokenizer = FullTokenizer(path, lower, **switches)
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"{path} has {tokenizer.vocab_size} lines, and vocab_size in {flags.bert_config_file} is "
            f"{config.vocab_size}: ids would lie beyond the table"
        )
    if problem := casing_problem(tokenizer.vocab, lower):
        say(f"WARNING: {path}: {problem}")
    return tokenizer


def _find_vocabulary(flags, records, noted) -> str | None:
    """Looks for the noted vocabulary: where it was, and as vocab.txt near the files of this run."""
    from tf_bert.tokenization.vocabulary import vocab_sha256

    near = [records.files[0], flags.bert_config_file, flags.init_checkpoint]
    places = [noted.get("vocab_file"), *(os.path.join(os.path.dirname(path), "vocab.txt") for path in near if path)]
    for path in places:
        if noted and path and os.path.isfile(path) and vocab_sha256(path) == noted["vocab_sha256"]:
            return path
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
