"""``tf-bert create_language_modeling_data``: writes TFRecords of blocks of tokens from text."""

import os
import time
from collections.abc import Sequence

from tf_bert.commands.flags import Flags, UsageError

FLAGS = Flags(
    "create_language_modeling_data",
    """
    Cuts text into blocks of equal length for run_language_modeling: documents one after the other, <|endoftext|>
    between them. tf-bert train_bpe makes a vocabulary.

    Example: tf-bert create_language_modeling_data --input_file='books/*.txt' --output_file=train.tfrecord
        --vocab_dir=vocab --block_size=256
    """,
)
FLAGS.string("input_file", None, "UTF-8 text (may be gzipped): names or globs, separated by commas.", required=True)
FLAGS.string(
    "output_file",
    None,
    "TFRecord files to write, separated by commas; block k goes to file k modulo their number.",
    required=True,
)
FLAGS.string("vocab_dir", None, "The folder of encoder.json and vocab.bpe.", required=True)
FLAGS.enum("tokenizer", "gpt2", ["gpt2", "gpt1"], "Whose tokenizer the vocabulary is for.")
FLAGS.integer("block_size", 256, "Tokens that a block predicts, at most the context of the model.", minimum=1)
FLAGS.enum("documents", "file", ["file", "blank_line", "line"], "What ends a document.")
FLAGS.boolean("pack", True, "Whether a block goes on with the next document; --nopack begins each in its own block.")


def run(flags) -> None:
    """Writes the records and says how many."""
    from tf_bert.data.language_modeling.blocks import write_language_modeling_records
    from tf_bert.data.text.lines import expand_input_files, refuse_outputs_among
    from tf_bert.tokenization.byte_pair import GPT1Tokenizer, GPT2Tokenizer
    from tf_bert.tokenization.vocabulary import vocab_sha256

    start = time.monotonic()
    outputs = [path.strip() for path in flags.output_file.split(",") if path.strip()]
    if not outputs or len(set(outputs)) < len(outputs):
        raise UsageError(f"--output_file names no file, or one twice: {flags.output_file!r}")
    files = expand_input_files(flags.input_file)
    refuse_outputs_among(files, outputs)
    tokenizer = (GPT2Tokenizer if flags.tokenizer == "gpt2" else GPT1Tokenizer)(flags.vocab_dir)
    sidecar = {
        "tokenizer": flags.tokenizer,
        "vocab_file": os.path.abspath(tokenizer.vocab_file),
        "vocab_sha256": vocab_sha256(tokenizer.vocab_file),
        "vocab_size": tokenizer.vocab_size,
        "end_id": tokenizer.end_of_text_id,
    }
    counts = write_language_modeling_records(
        files, tokenizer, outputs, flags.block_size, boundary=flags.documents, packed=flags.pack, sidecar=sidecar
    )
    for name, count in counts.items():
        print(f"{name:<10} {count:>14,}")
    print(f"{counts['bytes'] / counts['tokens']:.2f} bytes a token; written to {', '.join(outputs)} ", end="")
    print(f"in {time.monotonic() - start:.0f} s")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
