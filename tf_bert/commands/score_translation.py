"""``tf-bert score_translation``: prints BLEU, chrF and exact matches of translations, and plots them by length."""

from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.flags import Flags, UsageError

with deferred():
    from tf_bert.data.text import lines
    from tf_bert.data.translation import scores
    from tf_bert.visualization import plots

FLAGS = Flags(
    "score_translation",
    """
    Prints BLEU and chrF (by sacrebleu), the share of lines that are exactly right, and the word error rate of one or
    several translations of a text. With the source also those of copying it, and the exact share by length of the
    source in characters, which --plot_file draws.

    Example: tf-bert score_translation --reference_file=test.de --source_file=test.en --hypothesis_file=a.de,b.de
        --labels='with attention,without' --plot_file=accuracy.png
    """,
)
FLAGS.string("hypothesis_file", None, "Translations, a line for each of the references; several files.", required=True)
FLAGS.string("reference_file", None, "The right translations.", required=True)
FLAGS.string("source_file", None, "What was translated.")
FLAGS.string("labels", None, "A name for each of the files, separated by commas.")
FLAGS.string("plot_file", None, "A picture (.png, .svg) of the share exactly right by length; needs --source_file.")
FLAGS.string("plot_title", "", "What stands above the picture.")


def run(flags) -> None:
    """Prints a line for each file, and draws."""
    files = lines.expand_input_files(flags.hypothesis_file)
    labels = flags.labels.split(",") if flags.labels else files
    if len(labels) != len(files):
        raise UsageError(f"there are {len(labels)} labels for {len(files)} files")
    if flags.plot_file and not flags.source_file:
        raise UsageError("--plot_file needs --source_file, to know the lengths")
    references = list(lines.read_lines(flags.reference_file))
    if not references:
        raise ValueError(f"{flags.reference_file} has no lines: there is nothing to score")
    sources = list(lines.read_lines(flags.source_file)) if flags.source_file else None
    systems = {label: list(lines.read_lines(path)) for label, path in zip(labels, files, strict=True)}
    for label, translations in systems.items():
        print(f"{label}: {scores.scores_line(translations, references)}")
    if sources is None:
        return
    print(f"copying the source: {scores.scores_line(sources, references)}")
    shares = {
        label: scores.exact_by_length(sources, translations, references) for label, translations in systems.items()
    }
    if flags.plot_file:
        plots.plot_lines(
            flags.plot_file, shares, "length of the source in characters", "exactly right, %", flags.plot_title
        )
        print(f"{flags.plot_file}: written")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
