"""``tf-bert extract_features``: writes BERT's vectors for the pieces of texts, or for whole texts."""

from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.flags import Flags, UsageError, is_empty
from tf_bert.commands.quiet import load_tensorflow

with deferred():
    from tf_bert import configs, progress
    from tf_bert.data.finetuning import extracted_features
    from tf_bert.data.text import lines
    from tf_bert.serving import features
    from tf_bert.tokenization import full, vocabulary


FLAGS = Flags(
    "extract_features",
    """
    Writes the encoder's vectors for each piece of each line of a text file; with --pooling, one vector a line.
    A line is a text, or two texts with " ||| " between them. Memory does not grow with the file.

    Example: tf-bert extract_features --input_file=lines.txt --output_file=lines.jsonl --vocab_file=vocab.txt
        --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --layers=-1,-2
    """,
)
FLAGS.string("input_file", None, "UTF-8 text, one example a line.", required=True)
FLAGS.string("output_file", None, "The file to write.", required=True)
FLAGS.string("vocab_file", None, "The vocabulary of the checkpoint.", required=True)
FLAGS.string("bert_config_file", None, "The sizes of the model (bert_config.json).", required=True)
FLAGS.string("init_checkpoint", None, "The weights: a TensorFlow 1 checkpoint, or any other format.", required=True)
FLAGS.string("layers", "-1,-2,-3,-4", "Which layers, separated by commas: 0 is the first, -1 the last.")
FLAGS.integer("max_seq_length", 128, "Pieces of a line that are read, [CLS] and [SEP] among them.", minimum=5)
FLAGS.boolean("do_lower_case", True, "Whether to lower-case the text, as the checkpoint was trained.")
FLAGS.integer("batch_size", 32, "Lines in a batch.", minimum=1)
FLAGS.boolean("use_one_hot_embeddings", False, "Whether to look words up by a product with a one-hot matrix.")
FLAGS.boolean("use_tpu", False, "Not supported here: features are extracted on this machine.")
FLAGS.refuse(
    "master",
    "it was the address of a TensorFlow 1 session; features are extracted on this machine",
    is_empty,
)
FLAGS.refuse("num_tpu_cores", "features are extracted on this machine", str.isdecimal)  # without --use_tpu: no change

# What the original does not have.
FLAGS.enum(
    "format",
    "jsonl",
    ["jsonl", "npz", "parquet"],
    "jsonl as the original; npz: NumPy arrays; parquet: a table (needs pyarrow). Both hold whole float32 numbers.",
)
FLAGS.enum(
    "pooling",
    "none",
    ["none", "cls", "mean", "max"],
    "One vector a line: that of [CLS], or mean or maximum over all pieces. Padding is never pooled.",
)


def run(flags) -> None:
    """Reads, encodes and writes."""
    if flags.use_tpu:
        raise UsageError("--use_tpu: features are extracted on this machine; leave the flag out")
    config = configs.BertConfig.from_json_file(flags.bert_config_file)
    chosen = layers_of(flags.layers, config.num_hidden_layers)
    if flags.max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"max_seq_length is {flags.max_seq_length}, and {flags.bert_config_file} has max_position_embeddings "
            f"{config.max_position_embeddings}"
        )
    vocabulary.validate_case_matches_checkpoint(flags.do_lower_case, flags.init_checkpoint)
    tokenizer = full.FullTokenizer(flags.vocab_file, flags.do_lower_case)
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"{flags.vocab_file} has {tokenizer.vocab_size} lines, and {flags.bert_config_file} has vocab_size "
            f"{config.vocab_size}: ids would lie beyond the table"
        )
    lines.refuse_outputs_among([flags.input_file], [flags.output_file])
    size = lines.total_size([flags.input_file])
    load_tensorflow()
    one_hot = flags.use_one_hot_embeddings
    model = features.load_layers(flags.init_checkpoint, config, chosen, use_one_hot_embeddings=one_hot)
    progress.say(f"weights from {flags.init_checkpoint}: {model.load_report}")
    pooled, make_writer = flags.pooling != "none", extracted_features.WRITERS[flags.format]
    written = 0
    with progress.Progress("extracting", size, "B") as bar, make_writer(flags.output_file, chosen, pooled) as writer:
        read = lines.read_lines(flags.input_file, bar)
        for tokens, values in features.piece_vectors(model, tokenizer, read, flags.max_seq_length, flags.batch_size):
            writer.write(written, tokens, extracted_features.pool(values, flags.pooling) if pooled else values)
            written += 1
    print(f"{written:,} lines, layers {', '.join(map(str, chosen))}: {flags.output_file}")


def layers_of(text: str, available: int) -> list[int]:
    """Returns the layers that a flag names, of as many as the model has."""
    try:
        layers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--layers={text}: expected whole numbers separated by commas, such as -1,-2") from None
    for layer in layers:
        if not -available <= layer < available:
            raise ValueError(f"--layers={text}: there is no layer {layer}: the model has {available}, 0 is the first")
    return layers


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
