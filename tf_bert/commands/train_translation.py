"""``tf-bert train_translation``: trains Seq2Seq or the Transformer on the records of ``create_translation_data``."""

import os
from collections.abc import Sequence

from tf_bert.commands.distribution_flags import add_distribution_flags, run_options, strategy_from_flags
from tf_bert.commands.flags import STOPPED, Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow

EXPORT = "export"

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
FLAGS.enum("model", None, ["seq2seq", "transformer"], "Which model.", required=True)
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
FLAGS.float("scheduled_sampling_slope", None, "What a linear schedule loses at each update.")
FLAGS.float("scheduled_sampling_minimum", None, "The least of a linear schedule.")

FLAGS.integer("batch_tokens", 4096, "Tokens in a batch: padded positions of the longer side.", minimum=1)
FLAGS.float("learning_rate", 7e-4, "The peak of the learning rate.", minimum=0.0)
FLAGS.enum("schedule", "noam", ["noam", "linear", "cosine", "constant"], "How the rate falls after the warm-up.")
FLAGS.integer("num_train_steps", 100000, "Updates in all; a resumed run makes those that are left.", minimum=1)
FLAGS.integer("num_warmup_steps", 4000, "Updates of the linear warm-up.", minimum=0)
FLAGS.float("clip_norm", 1.0, "The largest norm of a gradient; 0 for any.", minimum=0.0)
FLAGS.integer("save_checkpoints_steps", 1000, "Updates between two checkpoints.", minimum=1)
FLAGS.integer("keep_checkpoint_max", 5, "How many checkpoints stay.", minimum=1)
FLAGS.integer("eval_every_steps", 0, "Updates between evaluations; 0 for one at the end.", minimum=0)
FLAGS.integer("early_stopping", 0, "Stop after so many evaluations without a better one; 0 for never.", minimum=0)
FLAGS.integer("average_checkpoints", 1, "Export the mean of so many of the newest checkpoints.", minimum=1)
FLAGS.integer("log_steps", 100, "Updates between two lines of the log.", minimum=1)
FLAGS.integer("seed", 12345, "Seed of weights, dropout and the order of the pairs.")
FLAGS.integer("shuffle_buffer", 20000, "Pairs in memory to draw the next one from.", minimum=1)
add_distribution_flags(FLAGS)

SHARED = (
    "hidden_size num_hidden_layers hidden_dropout_prob label_smoothing "
    "scheduled_sampling scheduled_sampling_k scheduled_sampling_slope scheduled_sampling_minimum"
).split()
TRANSFORMER = "num_attention_heads intermediate_size max_position_embeddings pre_norm position_embedding".split()
SEQ2SEQ = "embedding_size cell decoder bidirectional reverse_source score".split()


def run(flags) -> int:
    """Trains, evaluates, averages and exports."""
    sizes = _sizes(flags)
    if bool(flags.data_dir) == bool(flags.input_file):
        raise UsageError("give --data_dir or --input_file")

    load_tensorflow()
    from tf_bert.configs import Seq2SeqConfig, TransformerConfig
    from tf_bert.data.translation.input import find_translation_records
    from tf_bert.models.translator import average_checkpoints, check_vocabularies, save_translator
    from tf_bert.progress import say
    from tf_bert.tokenization.subwords import load_subwords, symbols_of
    from tf_bert.training import translation
    from tf_bert.training.resume import find_checkpoints
    from tf_bert.training.runs import Stopped, write_eval_results
    from tf_bert.training.workers import is_chief

    strategy = strategy_from_flags(flags)
    train_files, eval_files = _files(flags)
    records = find_translation_records(train_files)
    eval_records = find_translation_records(eval_files) if eval_files else None
    files, sidecar = records.vocab_files(), records.sidecar
    source = load_subwords(files[0], sidecar["source_do_lower_case"])
    target = source if files[0] == files[1] else load_subwords(files[1], sidecar["target_do_lower_case"])
    if target is not source:
        sizes["source_vocab_size"] = source.vocab_size
    config_class = TransformerConfig if flags.model == "transformer" else Seq2SeqConfig
    config = config_class(target.vocab_size, **symbols_of(target), **sizes)
    check_vocabularies(config, source, target)

    options = translation.TranslationOptions(
        **run_options(flags) | {"keep_checkpoints": max(flags.keep_checkpoint_max, flags.average_checkpoints)},
        num_train_steps=flags.num_train_steps,
        train_batch_size=flags.batch_tokens,
        num_warmup_steps=flags.num_warmup_steps,
        schedule=flags.schedule,
        clip_norm=flags.clip_norm,
        shuffle_buffer=flags.shuffle_buffer,
        evaluate_every=flags.eval_every_steps,
        eval_batch_size=flags.batch_tokens,
        early_stopping=flags.early_stopping,
    )
    try:
        model = translation.train_translation(
            config,
            records,
            flags.output_dir,
            options,
            eval_records=eval_records,
            init_checkpoint=flags.init_checkpoint,
            strategy=strategy,
        )
    except Stopped as stopped:
        print(f"tf-bert train_translation: {stopped}")
        return STOPPED
    step = int(model.optimizer.iterations.numpy())
    best = os.path.join(flags.output_dir, translation.BEST)
    if flags.average_checkpoints > 1:
        newest = find_checkpoints(flags.output_dir)[: flags.average_checkpoints]
        average_checkpoints(model, newest)
        say(f"the mean of {len(newest)} checkpoints: {', '.join(map(os.path.basename, newest))}")
    elif flags.early_stopping and os.path.exists(best + ".index"):
        average_checkpoints(model, [best])
        say(f"the weights of the best evaluation: {best}")
    figures = translation.evaluate(model, eval_records, flags.batch_tokens) if eval_records else {}
    if not is_chief(strategy):
        return 0
    if figures:
        write_eval_results(os.path.join(flags.output_dir, "eval_results.txt"), figures, step)
        print("held out: " + ", ".join(f"{name} {value:.4f}" for name, value in figures.items()))
    directory = save_translator(model, os.path.join(flags.output_dir, EXPORT), source, target)
    print(f"the model is in {directory}; try: tf-bert translate --checkpoint={directory} --input_file=FILE")
    return 0


def _sizes(flags) -> dict:
    """The settings of the model that were given; a flag of the other model is a mistake."""
    own, others = (TRANSFORMER, SEQ2SEQ) if flags.model == "transformer" else (SEQ2SEQ, TRANSFORMER)
    for name in others:
        if getattr(flags, name) is not None:
            raise UsageError(f"--{name} means nothing to --model={flags.model}")
    sizes = {name: getattr(flags, name) for name in (*SHARED, *own) if getattr(flags, name) is not None}
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
