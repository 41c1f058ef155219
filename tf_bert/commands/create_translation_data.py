"""``tf-bert create_translation_data``: writes a sub-word vocabulary and TFRecords from parallel text."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from tf_bert.commands.flags import Flags, UsageError
from tf_bert.data.translation.toy_pairs import TASKS
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
    from tf_bert.data.translation.pairs import Cleaning, is_held_out, write_pairs
    from tf_bert.files import atomic_writer, make_folder
    from tf_bert.tokenization.subwords import load_subwords

    start = time.monotonic()
    pairs = _pairs(flags)
    make_folder(flags.output_dir)
    source_vocab, target_vocab = _vocabularies(flags, pairs)
    source = load_subwords(source_vocab, flags.do_lower_case)
    target = source if source_vocab == target_vocab else load_subwords(target_vocab, flags.do_lower_case)
    cleaning = Cleaning(flags.max_length, flags.max_ratio)
    fraction, output = flags.heldout_fraction, lambda name: os.path.join(flags.output_dir, name)

    shards = [output(f"train-{i:05d}-of-{flags.num_shards:05d}.tfrecord") for i in range(flags.num_shards)]
    chosen = (pair for pair in pairs("writing train") if not is_held_out(pair[0], fraction))
    _summarise("train", write_pairs(chosen, shards, source, target, cleaning))
    if fraction:
        with (
            atomic_writer(output("heldout.source.txt"), "w") as source_text,
            atomic_writer(output("heldout.target.txt"), "w") as target_text,
        ):

            def keep(*texts):
                for file, text in zip((source_text, target_text), texts, strict=True):
                    file.write(text + "\n")

            chosen = (pair for pair in pairs("writing heldout") if is_held_out(pair[0], fraction))
            _summarise("heldout", write_pairs(chosen, [output("heldout.tfrecord")], source, target, cleaning, keep))
    sizes = f"{source.vocab_size:,} pieces" + (f" and {target.vocab_size:,}" if target is not source else "")
    print(f"{flags.output_dir}: vocabulary of {sizes}, in {time.monotonic() - start:.1f} s")
    print(f"next: tf-bert train_translation --model=transformer --data_dir={flags.output_dir} --output_dir=run")


def _pairs(flags) -> Callable[[str], Iterator[tuple[str, str]]]:
    """Checks what is to be read, and returns a function that reads it anew, with progress."""
    from tf_bert.data.text.lines import expand_input_files, total_size
    from tf_bert.data.translation.pairs import read_pairs
    from tf_bert.data.translation.toy_pairs import make_pairs
    from tf_bert.progress import Progress

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
    sources = expand_input_files(flags.source_file or flags.input_file)
    targets = expand_input_files(flags.target_file) if flags.target_file else None

    def read(doing: str) -> Iterator[tuple[str, str]]:
        with Progress(doing, total=total_size([*sources, *(targets or ())]), unit="B") as progress:
            yield from read_pairs(sources, targets, columns, progress)

    return read


def _vocabularies(flags, pairs) -> tuple[str, str]:
    """The files of source and target vocabulary, learned from all pairs that are not held out if need be."""
    from tf_bert.data.translation.pairs import is_held_out
    from tf_bert.tokenization.subwords import train_subwords

    if flags.vocab_file:
        if flags.source_vocab_file or flags.target_vocab_file:
            raise UsageError("--vocab_file is for both sides; leave it out, or the other two")
        copied = _copy(flags.vocab_file, flags.output_dir, "vocab")
        return copied, copied
    if bool(flags.source_vocab_file) != bool(flags.target_vocab_file):
        raise UsageError("--source_vocab_file and --target_vocab_file go together")
    if flags.source_vocab_file:
        given = {"source": flags.source_vocab_file, "target": flags.target_vocab_file}
        return tuple(_copy(path, flags.output_dir, side) for side, path in given.items())
    if flags.share_vocabulary and flags.target_subwords not in (None, flags.subwords):
        raise UsageError("a shared vocabulary is of one kind: give --noshare_vocabulary with --target_subwords")

    def lines(*sides: int) -> Callable[[], Iterable[str]]:
        return lambda: (
            pair[side]
            for pair in pairs("learning the vocabulary")
            if not is_held_out(pair[0], flags.heldout_fraction)
            for side in sides
        )

    def learn(name: str, subwords: str, *sides: int) -> str:
        stem = os.path.join(flags.output_dir, name)
        return train_subwords(lines(*sides), stem, subwords, flags.vocab_size, flags.do_lower_case)

    if flags.share_vocabulary:
        path = learn("vocab", flags.subwords, 0, 1)
        return path, path
    return learn("source", flags.subwords, 0), learn("target", flags.target_subwords or flags.subwords, 1)


def _copy(path: str, folder: str, name: str) -> str:
    """Puts a vocabulary beside the records, where training looks for it, under the name of one that is learned."""
    from tf_bert.files import atomic_writer, open_binary

    copy = os.path.join(folder, name + (".model" if path.endswith(".model") else ".txt"))
    with open_binary(path) as file:
        content = file.read()
    with atomic_writer(copy) as file:
        file.write(content)
    return copy


def _summarise(name: str, counts) -> None:
    skipped = "".join(f", {number:,} skipped ({reason})" for reason, number in sorted(counts.skipped.items()))
    pieces = counts.source_pieces + counts.target_pieces
    print(
        f"{name:8} {counts.kept:,} pairs{skipped or ', none skipped'}; {counts.source_pieces / counts.kept:.1f} and "
        f"{counts.target_pieces / counts.kept:.1f} pieces a side, {counts.unknown / max(pieces, 1):.2%} of them unknown"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
