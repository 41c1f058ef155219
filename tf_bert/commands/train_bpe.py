"""``tf-bert train_bpe``: builds the byte-pair vocabulary of a GPT from text."""

import time
from collections.abc import Sequence

from tf_bert.commands.flags import Flags

FLAGS = Flags(
    "train_bpe",
    """
    Builds the vocabulary of a new GPT (encoder.json and vocab.bpe) from text in any language. The same text gives the
    same files.

    Example: tf-bert train_bpe --input_file='books/*.txt' --output_dir=vocab --vocab_size=8000
    """,
)
FLAGS.string("input_file", None, "UTF-8 text (may be gzipped): names or globs, separated by commas.", required=True)
FLAGS.string("output_dir", None, "Output folder of both files; created if missing.", required=True)
FLAGS.integer("vocab_size", 8000, "Number of pieces; 257 with --kind=gpt2 gives single bytes.", minimum=1)
FLAGS.enum(
    "kind",
    "gpt2",
    ["gpt2", "gpt1"],
    "gpt2: pieces of bytes, from which every text comes back to the byte; gpt1: pieces of lower-cased words.",
)
FLAGS.integer("min_frequency", 2, "Minimum number of occurrences of a pair that becomes a piece.", minimum=1)
FLAGS.integer("max_words", 1_000_000, "Different words held while counting; the rarer half is dropped.", minimum=1000)


def run(flags) -> None:
    """Counts words, finds merges, writes both files."""
    from tf_bert.data.language_modeling.blocks import read_documents
    from tf_bert.data.text.lines import expand_input_files, total_size
    from tf_bert.progress import Progress
    from tf_bert.tokenization.byte_pair_training import train_byte_pairs, train_lower_cased_pairs

    start = time.monotonic()
    files = expand_input_files(flags.input_file)
    train = train_byte_pairs if flags.kind == "gpt2" else train_lower_cased_pairs
    with Progress("counting words", total=total_size(files), unit="B") as progress:
        texts = (text for text, _ in read_documents(files, progress=progress))
        found = train(texts, flags.vocab_size, min_frequency=flags.min_frequency, max_words=flags.max_words)
    paths = found.save(flags.output_dir)
    print(f"{' and '.join(paths)}: {len(found.pieces):,} pieces, {len(found.merges):,} merges, ", end="")
    print(f"from {len(files)} file{'s' * (len(files) != 1)} in {time.monotonic() - start:.1f} s")
    if len(found.pieces) < flags.vocab_size:
        print(f"note: the text has no more pairs that occur {flags.min_frequency} times")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
