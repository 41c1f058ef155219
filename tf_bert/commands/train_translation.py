"""``tf-bert train_translation``: trains Seq2Seq or the Transformer on the records of ``create_translation_data``."""

import dataclasses
import os
from collections.abc import Sequence

from tf_bert import configs
from tf_bert.commands.deferred import deferred
from tf_bert.commands.distribution_flags import add_distribution_flags, strategy_from_flags
from tf_bert.commands.flags import Flags, UsageError, options_from
from tf_bert.training.options import TranslationOptions

with deferred():
    from tf_bert.data.translation import input as translation_input
    from tf_bert.models import translator
    from tf_bert.tokenization import subwords
    from tf_bert.training import results, translation, workers

EXPORT = "export"
CONFIGS = {"seq2seq": configs.Seq2SeqConfig, "transformer": configs.TransformerConfig}

FLAGS = Flags(
    "train_translation",
    """
    Trains a model that reads a source and writes a target: --model=seq2seq, recurrent with or without attention, or
    --model=transformer. A run that was stopped goes on where it was when the same command is given again; after
    SIGTERM it saves and ends with status 75.

    output_dir gets checkpoints (model.ckpt-N), training.jsonl, files for TensorBoard, eval_results.txt, and at the end
    export/, which tf-bert translate loads.

    Example: tf-bert train_translation --model=transformer --data_dir=data --output_dir=run --num_train_steps=20000
        --hidden_size=256 --num_hidden_layers=3 --eval_every_steps=1000 --early_stopping=5 --average_checkpoints=5
    """,
)
FLAGS.enum("model", None, list(CONFIGS), "Which model.", required=True)
FLAGS.string("data_dir", None, "The folder of create_translation_data: train-*.tfrecord, heldout.tfrecord.")
FLAGS.string("input_file", None, "Instead: TFRecords to train on, names or globs, separated by commas.")
FLAGS.string("eval_input_file", None, "TFRecords to evaluate on.")
FLAGS.string("output_dir", None, "Where checkpoints and results go; made if need be.", required=True)
FLAGS.string("init_checkpoint", None, "A checkpoint to begin with: weights only, steps and moments begin anew.")

# Sizes. Where a flag is not given, the model's own default counts (`tf_bert.configs`).
FLAGS.integer("hidden_size", None, "Width of the model: base 512.", minimum=1)
FLAGS.integer("num_hidden_layers", None, "Layers of encoder and of decoder: Transformer 6, Seq2Seq 1.", minimum=1)
FLAGS.float("hidden_dropout_prob", None, "Dropout: Transformer 0.1, Seq2Seq 0.2.", minimum=0.0, maximum=1.0)
FLAGS.float("label_smoothing", None, "Label smoothing: Transformer 0.1, Seq2Seq 0.", minimum=0.0, maximum=1.0)
FLAGS.integer("num_attention_heads", None, "Transformer: heads, 8.", minimum=1)
FLAGS.integer("intermediate_size", None, "Transformer: width of the feed-forward layers, 2048.", minimum=1)
FLAGS.integer("max_position_embeddings", None, "Transformer: the longest sequence, 1024.", minimum=1)
FLAGS.boolean("pre_norm", None, "Transformer: whether to normalise what goes into a sublayer, not what comes out.")
FLAGS.enum("position_embedding", None, ["sinusoidal", "learned"], "Transformer: positions, sinusoidal.")
FLAGS.integer("embedding_size", None, "Seq2Seq: width of the word embeddings, 256.", minimum=1)
FLAGS.enum(
    "cell",
    None,
    ["lstm", "gru", "rnn", "peephole_lstm", "coupled_lstm", "peephole_coupled_lstm"],
    "Seq2Seq: the cell, lstm.",
)
FLAGS.enum(
    "decoder",
    None,
    ["plain", "context", "bahdanau", "luong"],
    "Seq2Seq: plain (Sutskever) and context (Cho) have no attention; bahdanau is the default.",
)
FLAGS.enum(
    "score",
    None,
    ["dot", "scaled_dot", "general", "cosine", "additive", "concat"],
    "Seq2Seq: how attention scores, additive.",
)
FLAGS.boolean("bidirectional", None, "Seq2Seq: whether the encoder reads from both ends, yes.")
FLAGS.boolean("reverse_source", None, "Seq2Seq: whether the source is read from its end, no.")
FLAGS.enum(
    "scheduled_sampling",
    None,
    ["none", "linear", "exponential", "inverse_sigmoid"],
    "How often the model reads its own words in training (Bengio et al. 2015), none.",
)
FLAGS.float("scheduled_sampling_k", None, "The k of the schedule; exponential needs one below 1.")
FLAGS.float("scheduled_sampling_slope", None, "What the linear schedule loses at each update.")
FLAGS.float("scheduled_sampling_minimum", None, "Lower bound of the linear schedule.")

FLAGS.integer("average_checkpoints", 1, "Number of newest checkpoints whose mean is exported.", minimum=1)
FLAGS.add_options(TranslationOptions)
add_distribution_flags(FLAGS)


def run(flags) -> int:
    """Trains, evaluates, averages and exports."""
    sizes = _sizes(flags)
    if bool(flags.data_dir) == bool(flags.input_file):
        raise UsageError("give --data_dir or --input_file")
    strategy = strategy_from_flags(flags)
    train_files, eval_files = _files(flags)
    records = translation_input.find_translation_records(train_files)
    eval_records = translation_input.find_translation_records(eval_files) if eval_files else None
    source, target = records.tokenizers()
    if target is not source:
        sizes["source_vocab_size"] = source.vocab_size
    config = CONFIGS[flags.model](target.vocab_size, **subwords.symbols_of(target), **sizes)
    translator.check_vocabularies(config, source, target)
    keep = max(flags.keep_checkpoint_max, flags.average_checkpoints)
    options = options_from(flags, TranslationOptions, keep_checkpoint_max=keep)
    task = translation.Translation(config, records, options, eval_records)
    model = task.train(flags.output_dir, init_checkpoint=flags.init_checkpoint, strategy=strategy)
    step = int(model.optimizer.iterations)
    translation.load_best(model, flags.output_dir, flags.average_checkpoints, bool(flags.early_stopping))
    figures = translation.evaluate(model, eval_records, flags.batch_tokens) if eval_records else {}
    if not workers.is_chief(strategy):
        return 0
    if figures:
        results.write_eval_results(os.path.join(flags.output_dir, "eval_results.txt"), figures, step)
        print("held out: " + ", ".join(f"{name} {value:.4f}" for name, value in figures.items()))
    directory = translator.save_translator(model, os.path.join(flags.output_dir, EXPORT), source, target)
    print(f"the model is in {directory}; try: tf-bert translate --checkpoint={directory} --input_file=FILE")
    return 0


def _sizes(flags) -> dict:
    """The settings of the model that were given; a flag of the other model is a mistake."""
    known = {name: {field.name for field in dataclasses.fields(kind)} for name, kind in CONFIGS.items()}
    known["seq2seq"].add("score")
    given = {name for name in set.union(*known.values()) if name in flags and flags[name].value is not None}
    for name in sorted(given - known[flags.model]):
        raise UsageError(f"--{name} means nothing to --model={flags.model}")
    sizes = {name: flags[name].value for name in given}
    if score := sizes.pop("score", None):
        sizes["attention"] = {"score": score}
    return sizes


def _files(flags) -> tuple[str, str | None]:
    """The patterns of the records to train on and to evaluate on."""
    if flags.input_file:
        return flags.input_file, flags.eval_input_file
    held_out = os.path.join(flags.data_dir, "heldout.tfrecord")
    return os.path.join(flags.data_dir, "train-*.tfrecord"), (
        flags.eval_input_file or (held_out if os.path.exists(held_out) else None)
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
