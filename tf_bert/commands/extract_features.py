"""``tf-bert extract_features``: writes BERT's vectors for the pieces of texts, or for whole texts."""

import itertools
from collections.abc import Iterator, Sequence

from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow

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
FLAGS.refuse("master", "it was the address of a TensorFlow 1 session; features are extracted on this machine")
FLAGS.refuse("num_tpu_cores", "features are extracted on this machine")

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

BATCHES_AT_ONCE = 64  # their lines are sorted by length


def run(flags) -> None:
    """Reads, encodes and writes."""
    if flags.use_tpu:
        raise UsageError("--use_tpu: features are extracted on this machine; leave the flag out")
    from tf_bert.configs import BertConfig

    config = BertConfig.from_json_file(flags.bert_config_file)
    layers = _layers(flags.layers, config.num_hidden_layers)
    if flags.max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"max_seq_length is {flags.max_seq_length}, and {flags.bert_config_file} has max_position_embeddings "
            f"{config.max_position_embeddings}"
        )
    from tf_bert.data.finetuning.extracted_features import WRITERS, pool
    from tf_bert.data.text.lines import refuse_outputs_among, total_size
    from tf_bert.progress import Progress, say
    from tf_bert.tokenization.full import FullTokenizer
    from tf_bert.tokenization.vocabulary import validate_case_matches_checkpoint

    validate_case_matches_checkpoint(flags.do_lower_case, flags.init_checkpoint)
    tokenizer = FullTokenizer(flags.vocab_file, flags.do_lower_case)
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"{flags.vocab_file} has {tokenizer.vocab_size} lines, and {flags.bert_config_file} has vocab_size "
            f"{config.vocab_size}: ids would lie beyond the table"
        )
    refuse_outputs_among([flags.input_file], [flags.output_file])
    size = total_size([flags.input_file])
    load_tensorflow()
    model = _load(flags, config, layers)
    say(f"weights from {flags.init_checkpoint}: {model.load_report}")
    written = 0
    pooled = flags.pooling != "none"
    with (
        Progress("extracting", size, "B") as progress,
        WRITERS[flags.format](flags.output_file, layers, pooled) as writer,
    ):
        for tokens, values in _vectors(flags, tokenizer, model, progress):
            writer.write(written, tokens, pool(values, flags.pooling) if pooled else values)
            written += 1
    print(f"{written:,} lines, layers {', '.join(map(str, layers))}: {flags.output_file}")


def _layers(text: str, available: int) -> list[int]:
    try:
        layers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--layers={text}: expected whole numbers separated by commas, such as -1,-2") from None
    for layer in layers:
        if not -available <= layer < available:
            raise ValueError(f"--layers={text}: there is no layer {layer}: the model has {available}, 0 is the first")
    return layers


def _load(flags, config, layers: list[int]):
    """The encoder, which returns what is wanted of it as ``vectors`` [B, S, layers, H]."""
    from keras import ops

    from tf_bert.models.bert import Bert
    from tf_bert.models.pretrained import load_model

    class ChosenLayers(Bert):
        """An encoder that returns some of its layers in one tensor."""

        def call(self, inputs, **options):
            """Encodes a batch."""
            outputs = super().call(inputs, **options)["all_encoder_layers"]
            return {"vectors": ops.stack([outputs[layer] for layer in layers], axis=2)}

    options = {"use_one_hot_embeddings": flags.use_one_hot_embeddings, "add_pooler": False}
    return load_model(flags.init_checkpoint, ChosenLayers, config, **options)


def _vectors(flags, tokenizer, model, progress) -> Iterator[tuple[list[str], object]]:
    """Yields the pieces of each line and their vectors [T, layers, H], in order."""
    from tf_bert.data.finetuning.classification import convert_single_example
    from tf_bert.data.finetuning.extracted_features import read_example
    from tf_bert.data.text.lines import read_lines
    from tf_bert.trainer.prediction import predict_by_length, stack

    lines = enumerate(read_lines(flags.input_file, progress))
    while chunk := list(itertools.islice(lines, BATCHES_AT_ONCE * flags.batch_size)):
        inputs = stack(
            convert_single_example(number, read_example(number, line), [], flags.max_seq_length, tokenizer)
            for number, line in chunk
        )
        lengths = inputs["input_mask"].sum(axis=1)
        vectors = [None] * len(chunk)
        for rows, outputs in predict_by_length(model, inputs, flags.batch_size, ["vectors"]):
            for row, of_row in zip(rows, outputs["vectors"], strict=True):
                vectors[row] = of_row[: lengths[row]]
        for ids, length, of_line in zip(inputs["input_ids"], lengths, vectors, strict=True):
            yield tokenizer.convert_ids_to_tokens(ids[:length].tolist()), of_line


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
