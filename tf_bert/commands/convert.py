"""``tf-bert convert``: converts a checkpoint to another format."""

from tf_bert.commands.flags import Flags
from tf_bert.commands.quiet import load_tensorflow

FLAGS = Flags(
    "convert",
    """
    Converts a checkpoint; its format is recognised by looking. Every variable keeps its bits unless another precision
    is asked for. Vocabulary, casing and the other switches of the tokenizer go along.

    Example:
        tf-bert convert uncased_L-2_H-128_A-2 bert-tiny-hf
        tf-bert convert bert-tiny-hf bert-tiny.keras
        tf-bert convert models/124M gpt2-hf
        tf-bert convert out/model.ckpt-20000 small --format=google --half
    """,
)
FLAGS.string(
    "input",
    None,
    "A folder of Google's, OpenAI's or Hugging Face's, the prefix of a TensorFlow 1 checkpoint, a .keras or "
    ".weights.h5 file, or a published model (tf-bert checkpoints list).",
    required=True,
)
FLAGS.string("output", None, "A folder, or a file that ends in .keras or .weights.h5.", required=True)
FLAGS.positional("input", "output")
FLAGS.enum(
    "format",
    None,
    ["google", "openai", "huggingface", "keras", "weights"],
    "Of the output. By default what its ending says; for a folder huggingface if the input is Google's (for a GPT "
    "OpenAI's), else google (openai).",
)
FLAGS.boolean("half", False, "Whether to write the weights in float16.")
FLAGS.boolean("bfloat16", False, "Whether to write the weights in bfloat16.")
FLAGS.boolean("allow_nan", False, "Whether to convert weights that are NaN or infinite; by default they are refused.")
FLAGS.boolean("optimizer", False, "Whether Adam's moments and the step go along (formats google and keras to google).")


def run(flags) -> None:
    """Runs the command."""
    if flags.half and flags.bfloat16:
        raise ValueError("--half and --bfloat16 exclude each other")
    load_tensorflow()
    from tf_bert.checkpoints import loading
    from tf_bert.configs import GPTConfig
    from tf_bert.models import convert, pretrained

    dtype = "float16" if flags.half else "bfloat16" if flags.bfloat16 else None
    checkpoint = convert.convert(flags.input, flags.output, flags.format, dtype, flags.optimizer, flags.allow_nan)
    written = pretrained.open_checkpoint(flags.output, allow_nan=flags.allow_nan)
    weights, slots = loading.sizes(written.reader)
    moments = 2 * sum(loading.sizes(checkpoint.reader)[:1])
    print(f"read {checkpoint.path}: {checkpoint.format}, {checkpoint.architecture}")
    print(f"wrote {flags.output}: {written.format}, {len(written.reader.shapes)} variables")
    print(f"weights: {weights:,} bytes; with the optimizer's moments: {weights + (slots or moments):,} bytes")
    is_gpt = isinstance(written.config, GPTConfig)
    vocabulary = "encoder.json" if is_gpt else "vocab.txt"
    if written.vocab_file is None:
        print(f"there was no {vocabulary} beside the input, so there is none beside the output")
    elif written.settings is None and not is_gpt:
        print("nothing beside the input says whether text is lower-cased, so nothing beside the output does")


def main(argv=None) -> int:
    """Entry point; returns the exit status."""
    return FLAGS.run(run, argv)
