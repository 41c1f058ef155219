"""``tf-bert create_translation_data``: writes a sub-word vocabulary and TFRecords from parallel text."""

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence

from tf_bert import files, progress
from tf_bert.commands.flags import Flags, UsageError
from tf_bert.data.text import lines as text_lines
from tf_bert.data.translation import pairs as parallel
from tf_bert.data.translation import vocabularies
from tf_bert.data.translation.toy_pairs import TASKS, make_pairs
from tf_bert.tokenization import subwords
from tf_bert.tokenization.subwords import SUBWORDS

FLAGS = Flags(
    "create_translation_data",
    """
    Makes what train_translation trains on from parallel text: a vocabulary of sub-words, unless there is one already,
    and TFRecords. Pairs that are empty, too long or of too different lengths are left out and counted.

    output_dir gets vocab.model (or source.model and target.model), train-*.tfrecord, and where pairs are held out
    heldout.tfrecord, heldout.source.txt and heldout.target.txt.

    Example: tf-bert create_translation_data --source_file=train.en --target_file=train.de --output_dir=data
        --subwords=unigram --vocab_size=8000 --heldout_fraction=0.02
    """,
)
FLAGS.string("source_file", None, "UTF-8 text (may be gzipped), a sentence a line: names or globs, comma-separated.")
FLAGS.string("target_file", None, "As many files with the translations, line by line.")
FLAGS.string("input_file", None, "Instead of both: tables with a pair a line, between tabs.")
FLAGS.string("columns", "1,2", "Which columns of the tables are source and target.")
FLAGS.enum("task", None, TASKS, "Instead of files: pairs made by rule. reverse: digit strings; dates: to ISO 8601.")
FLAGS.integer("num_pairs", 20000, "Number of pairs of a task.", minimum=1)
FLAGS.string("output_dir", None, "Output folder; created if missing.", required=True)
FLAGS.enum("subwords", "unigram", SUBWORDS, "How text is cut: SentencePiece's kinds of models, or BERT's WordPiece.")
FLAGS.enum("target_subwords", None, SUBWORDS, "How the target is cut, if otherwise; not with a shared vocabulary.")
FLAGS.integer("vocab_size", 8000, "Pieces of a new vocabulary; fewer where the text has no more.", minimum=1)
FLAGS.boolean("share_vocabulary", True, "Whether source and target have one vocabulary.")
FLAGS.string("vocab_file", None, "A shared vocabulary that is there already: a .model of SentencePiece or a vocab.txt.")
FLAGS.string("source_vocab_file", None, "The same for the source alone.")
FLAGS.string("target_vocab_file", None, "The same for the target alone.")
FLAGS.boolean("do_lower_case", False, "Whether to fold case.")
FLAGS.integer(
    "max_length", 128, "Most pieces of a side, the end symbol among them; longer pairs are skipped.", minimum=2
)
FLAGS.float("max_ratio", 9.0, "Maximum ratio of the pieces of the two sides; 0 for any.", minimum=0.0)
FLAGS.float("heldout_fraction", 0.0, "Share of the pairs to hold out, by their source.", minimum=0.0, maximum=0.9)
FLAGS.integer("num_shards", 1, "Number of files for the training records.", minimum=1)
FLAGS.integer("seed", 12345, "Seed of a task.")


def run(flags) -> None:
    """Makes the vocabulary, then the records; prints what became of the pairs."""

    start = time.monotonic()
    pairs = _pairs(flags)
    files.make_folder(flags.output_dir)
    source_vocab, target_vocab = _vocabularies(flags, pairs)
    source = subwords.load_subwords(source_vocab, flags.do_lower_case)
    target = source if source_vocab == target_vocab else subwords.load_subwords(target_vocab, flags.do_lower_case)
    cleaning = parallel.Cleaning(flags.max_length, flags.max_ratio)
    fraction, output = flags.heldout_fraction, lambda name: os.path.join(flags.output_dir, name)

    shards = [output(f"train-{i:05d}-of-{flags.num_shards:05d}.tfrecord") for i in range(flags.num_shards)]
    chosen = (pair for pair in pairs("writing train") if not parallel.is_held_out(pair[0], fraction))
    counts = parallel.write_pairs(chosen, shards, source, target, cleaning)
    print(counts.summary("train"))
    if fraction:
        with (
            files.atomic_writer(output("heldout.source.txt"), "w") as source_text,
            files.atomic_writer(output("heldout.target.txt"), "w") as target_text,
        ):

            def keep(*texts):
                for file, text in zip((source_text, target_text), texts, strict=True):
                    file.write(text + "\n")

            chosen = (pair for pair in pairs("writing heldout") if parallel.is_held_out(pair[0], fraction))
            files_of = [output("heldout.tfrecord")]
            print(parallel.write_pairs(chosen, files_of, source, target, cleaning, keep).summary("heldout"))
    sizes = f"{source.vocab_size:,} pieces" + (f" and {target.vocab_size:,}" if target is not source else "")
    print(f"{flags.output_dir}: vocabulary of {sizes}, in {time.monotonic() - start:.1f} s")
    print(f"next: tf-bert train_translation --model=transformer --data_dir={flags.output_dir} --output_dir=run")


def _pairs(flags) -> Callable[[str], Iterator[tuple[str, str]]]:
    """Checks what is to be read, and returns a function that reads it anew, with progress."""

    given = [name for name in ("source_file", "input_file", "task") if getattr(flags, name)]
    if len(given) != 1:
        raise UsageError("give --source_file and --target_file, or --input_file, or --task")
    if bool(flags.source_file) != bool(flags.target_file):
        raise UsageError("--source_file and --target_file go together")
    if flags.task:
        return lambda doing: make_pairs(flags.task, flags.num_pairs, flags.seed)
    try:
        first, second = (int(column) for column in flags.columns.split(","))
        columns = first, second
        if min(columns) < 1:
            raise ValueError
    except ValueError:
        raise UsageError(f"--columns is two numbers from 1, such as 1,2, not {flags.columns!r}") from None
    sources = text_lines.expand_input_files(flags.source_file or flags.input_file)
    targets = text_lines.expand_input_files(flags.target_file) if flags.target_file else None

    def read(doing: str) -> Iterator[tuple[str, str]]:
        with progress.Progress(doing, total=text_lines.total_size([*sources, *(targets or ())]), unit="B") as bar:
            yield from parallel.read_pairs(sources, targets, columns, bar)

    return read


def _vocabularies(flags, pairs) -> tuple[str, str]:
    """The files of source and target vocabulary, learned from all pairs that are not held out if need be."""

    if flags.vocab_file:
        if flags.source_vocab_file or flags.target_vocab_file:
            raise UsageError("--vocab_file is for both sides; leave it out, or the other two")
        copied = vocabularies.copied(flags.vocab_file, flags.output_dir, "vocab")
        return copied, copied
    if bool(flags.source_vocab_file) != bool(flags.target_vocab_file):
        raise UsageError("--source_vocab_file and --target_vocab_file go together")
    if flags.source_vocab_file:
        given = {"source": flags.source_vocab_file, "target": flags.target_vocab_file}
        return tuple(vocabularies.copied(path, flags.output_dir, side) for side, path in given.items())
    if flags.share_vocabulary and flags.target_subwords not in (None, flags.subwords):
        raise UsageError("a shared vocabulary is of one kind: give --noshare_vocabulary with --target_subwords")

    learn = vocabularies.Learner(
        functools.partial(pairs, "learning the vocabulary"),
        flags.output_dir,
        flags.vocab_size,
        flags.do_lower_case,
        flags.heldout_fraction,
    )
    if flags.share_vocabulary:
        path = learn("vocab", flags.subwords, 0, 1)
        return path, path
    return learn("source", flags.subwords, 0), learn("target", flags.target_subwords or flags.subwords, 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
