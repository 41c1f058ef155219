"""``tf-bert translate``: translates a file or standard input with one model or several."""

import logging
import sys
from collections.abc import Iterator, Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow

with deferred():
    from tf_bert import files, progress
    from tf_bert.data.text import lines
    from tf_bert.data.translation import scores
    from tf_bert.decoding import beam, constraints
    from tf_bert.models import translator
    from tf_bert.serving import translations

STANDARD_INPUT = "/dev/stdin"
BATCHES_AT_ONCE = 16  # their lines are sorted by length, and counted as done together

FLAGS = Flags(
    "translate",
    """
    Translates lines of text. An empty line stays one; characters that the vocabulary lacks become its unknown symbol.

    Several checkpoints, separated by commas, translate together: their probabilities are averaged. They need the same
    vocabularies, and may be models of different kinds and sizes.

    Example: tf-bert translate --checkpoint=run/export --input_file=test.en --output_file=test.de
        --reference_file=test.reference.de
    """,
)
FLAGS.string("checkpoint", None, "Folder of a model (export/ of train_translation), or several.", required=True)
FLAGS.string("text", None, "One text to translate, instead of a file.")
FLAGS.string("input_file", None, "UTF-8 text, a sentence a line (may be gzipped). By default standard input.")
FLAGS.string("output_file", None, "Where the translations go, line by line. By default standard output.")
FLAGS.string("reference_file", None, "Reference translations; prints BLEU, chrF and the share of exact matches.")
FLAGS.integer("beam_size", 4, "Hypotheses kept; 1 for greedy search.", minimum=1)
FLAGS.float("length_penalty", 0.6, "Alpha: above 0 favours longer translations (Wu et al. 2016).")
FLAGS.float("coverage_penalty", 0.0, "Beta: favours those that look at every word of the source.", minimum=0.0)
FLAGS.integer("n_best", 1, "Translations of each line, printed as: number ||| translation ||| score.", minimum=1)
FLAGS.integer(
    "max_length",
    None,
    "Maximum number of pieces. Default: twice those of the source plus 10.",
    minimum=1,
)
FLAGS.integer("min_length", 0, "Minimum number of pieces of a translation, including the end symbol.", minimum=0)
FLAGS.integer("batch_size", 32, "Number of lines in a batch.", minimum=1)
FLAGS.boolean("copy_unknown", False, "Whether to write, for an unknown word, the source word it looked at most.")
FLAGS.enum(
    "too_long",
    "error",
    ["error", "truncate"],
    "What to do with a line longer than the position table.",
)
FLAGS.boolean("xla", False, "Whether to compile with XLA, which pays when many lines follow.")
FLAGS.positional("text")


def run(flags) -> None:
    """Translates and, where there are references, scores."""
    if flags.text is not None and flags.input_file:
        raise UsageError("give a text or --input_file, not both")
    if flags.n_best > flags.beam_size:
        raise UsageError(f"--n_best={flags.n_best} needs a --beam_size of as many")
    if flags.n_best > 1 and (flags.copy_unknown or flags.reference_file):
        raise UsageError("--n_best prints scores beside the translations; --copy_unknown and --reference_file need one")
    paths = [path.strip() for path in flags.checkpoint.split(",") if path.strip()]
    if not paths:
        raise UsageError("--checkpoint names no folder")
    if flags.output_file:
        read = [name for name in (flags.input_file, flags.reference_file) if name]
        lines.refuse_outputs_among(read, [flags.output_file])
    references = list(lines.read_lines(flags.reference_file)) if flags.reference_file else None
    sources = _sources(flags)
    if references is not None and len(references) != len(sources):
        raise ValueError(
            f"{flags.reference_file} has {len(references)} lines, and the text to translate {len(sources)}"
        )

    load_tensorflow()
    logging.getLogger("tensorflow").setLevel("ERROR")  # it warns of a graph for each length, which is what is wanted
    translators = translator.load_translators(paths)
    truncate = flags.too_long == "truncate"
    if sources is None:
        for line in sys.stdin:
            try:
                fitting = translations.fitting_lines(translators, [line.rstrip("\n")], truncate=truncate)
            except ValueError as error:
                progress.say(str(error))
                continue
            print(*_translated(flags, translators, fitting, 0), sep="\n", flush=True)
        return
    sources = translations.fitting_lines(translators, sources, flags.input_file or "the input", truncate)
    written = []
    with files.lines_writer(flags.output_file) as write:
        for part in _parts(flags, translators, sources):
            write(part)
            written += part
    if references is not None:
        print(scores.scores_line(written, references), file=sys.stderr)


def _sources(flags) -> list[str] | None:
    """Returns the lines to translate; None where they are typed and each is answered at once."""
    if flags.text is not None:
        return [flags.text]
    if not (flags.input_file or flags.output_file or flags.reference_file) and sys.stdin.isatty():
        return None
    return list(lines.read_lines(flags.input_file or STANDARD_INPUT))


def _parts(flags, translators, sources: Sequence[str]) -> Iterator[list[str]]:
    """Yields the translations of a few batches after the other."""
    size = flags.batch_size * BATCHES_AT_ONCE
    with progress.Progress("translating", total=len(sources), unit="lines") as bar:
        for first in range(0, len(sources), size):
            some = sources[first : first + size]
            yield _translated(flags, translators, some, first)
            bar.update(len(some))


def _translated(flags, translators, sources: Sequence[str], first: int) -> list[str]:
    search = beam.BeamSearch(flags.beam_size, flags.length_penalty, flags.coverage_penalty, flags.n_best)
    return translations.translated_lines(
        translators,
        sources,
        search,
        first,
        flags.batch_size,
        flags.copy_unknown,
        max_length=flags.max_length,
        constraints=constraints.Constraints(min_length=flags.min_length),
        jit_compile=flags.xla,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
