"""``tf-bert export``: writes a model for serving: raw strings in, labels, spans or vectors out; or its numeric part."""

from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow
from tf_bert.commands.stop_flag import add_stop_flag, stops_of

with deferred():
    from tf_bert.export import from_checkpoint

FLAGS = Flags(
    "export",
    """
    Writes a fine-tuned model, or a GPT, for serving. A SavedModel takes raw strings and gives labels, answers with
    their place in the document, vectors, or what follows a text; its tokenizer is inside, and it runs without tf_bert
    (import tensorflow_text before it is loaded; a GPT needs none). A file for LiteRT (.tflite) or ONNX (.onnx) is the
    numeric part of a BERT alone, from ids to scores, and is only written if it gives the model's numbers.

    Example: tf-bert export runs/reviews served
    """,
)
FLAGS.string(
    "checkpoint", None, "Folder of a run or a model in any format, or a published model's name.", required=True
)
FLAGS.string("output", None, "A folder that is not there yet, or a file that ends in .tflite or .onnx.", required=True)
FLAGS.enum("format", None, ["saved_model", "litert", "onnx"], "Format to write. Default: by the ending of output.")
FLAGS.string("labels", None, "The labels, separated by commas, in the order of training; by default those noted there.")
FLAGS.integer("max_seq_length", None, "Pieces of an example that are read; by default as in training.", minimum=3)
FLAGS.integer("max_answer_length", 30, "Maximum number of pieces of an answer.", minimum=1)
FLAGS.enum("pooling", None, ["cls", "mean", "max"], "Serves vectors of texts; how those of pieces are pooled.")
FLAGS.string("layers", "-1", "With pooling, the layers whose mean is pooled: 0 is the first, -1 the last.")
FLAGS.integer("max_length", 64, "A GPT that continues texts: maximum number of new tokens.", minimum=1)
FLAGS.integer("beam_size", 1, "A GPT that continues texts: hypotheses kept; 1 for no beam search.", minimum=1)
add_stop_flag(FLAGS, " Of a GPT that goes on with texts.")
FLAGS.positional("checkpoint", "output")


def run(flags) -> None:
    """Writes the model and says how to use it."""
    stops = stops_of(flags.stop)
    try:
        layers = [int(layer) for layer in flags.layers.split(",")]
    except ValueError:
        raise UsageError(f"--layers={flags.layers}: expected numbers separated by commas, such as -1,-2") from None
    load_tensorflow()
    usage = from_checkpoint.export_checkpoint(
        flags.checkpoint,
        flags.output,
        flags.format,
        labels=[label.strip() for label in flags.labels.split(",")] if flags.labels else [],
        max_seq_length=flags.max_seq_length,
        max_answer_length=flags.max_answer_length,
        pooling=flags.pooling,
        layers=layers,
        max_length=flags.max_length,
        beam_size=flags.beam_size,
        stop_texts=stops,
    )
    print(f"{flags.output}: {usage}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
