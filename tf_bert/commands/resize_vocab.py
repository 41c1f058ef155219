"""``tf-bert resize_vocab``: adds words to the vocabulary of a checkpoint, or removes some."""

from tf_bert.commands.flags import Flags
from tf_bert.commands.quiet import load_tensorflow

FLAGS = Flags(
    "resize_vocab",
    """
    Adds words to the vocabulary of a checkpoint, or takes out all but some; vocabulary, configuration and table change
    together, and every word that stays keeps its vector. New words take the places of [unusedN] first.

    Example:
        tf-bert resize_vocab uncased_L-2_H-128_A-2 tiny-medical --add=angioplasty,stent
        tf-bert resize_vocab uncased_L-2_H-128_A-2 tiny-small --keep_file=frequent.txt
    """,
)
FLAGS.string("input", None, "The checkpoint, in any format, with its vocab.txt beside it.", required=True)
FLAGS.string("output", None, "Where to write, in the same format.", required=True)
FLAGS.positional("input", "output")
FLAGS.string("add", None, "New pieces, separated by commas.")
FLAGS.string("add_file", None, "A file of new pieces, one a line.")
FLAGS.string("keep_file", None, "A file of the pieces to keep, one a line; special tokens always stay.")
FLAGS.boolean("use_unused", True, "Whether new pieces take the places of [unusedN] before the table grows.")
FLAGS.integer("seed", 0, "Seed of the vectors of new pieces.")


def run(flags) -> None:
    """Runs the command."""
    load_tensorflow()
    from tf_bert.models import convert, pretrained
    from tf_bert.tokenization.vocabulary import read_vocab_lines

    add = [word.strip() for word in (flags.add or "").split(",") if word.strip()]
    add += read_vocab_lines(flags.add_file) if flags.add_file else []
    keep = read_vocab_lines(flags.keep_file) if flags.keep_file else None
    if not add and keep is None:
        raise ValueError("nothing to do: give --add, --add_file or --keep_file")
    resized = convert.resize(
        pretrained.open_checkpoint(flags.input), flags.output, add, keep, flags.use_unused, flags.seed
    )
    print(f"wrote {flags.output}: {resized}")


def main(argv=None) -> int:
    """Entry point; returns the exit status."""
    return FLAGS.run(run, argv)
