"""``tf-bert prepare_corpus``: turns text files into one sentence a line."""

import contextlib
import sys
from collections.abc import Iterator, Sequence

from tf_bert.commands.flags import Flags, UsageError

FLAGS = Flags(
    "prepare_corpus",
    """
    Turns text into what create_pretraining_data reads: one sentence a line, an empty line after each document. Whole
    documents are held out for evaluation. Reads plain text, wrapped or not, JSON lines, WikiExtractor's output, gzip
    files and directories of these, in any language that marks the ends of sentences.

    Example: tf-bert prepare_corpus --input_file=books --output_file=train.txt --heldout_file=heldout.txt
    """,
)
FLAGS.string("input_file", None, "Files, globs or directories (read recursively), separated by commas.")
FLAGS.boolean(
    "builtin_corpus",
    False,
    "Read what Python's help() shows instead: English text that is on every machine.",
)
FLAGS.string("encoding", "utf-8", "Encoding of the input, such as gb18030, big5 or utf-16; what is written is UTF-8.")
FLAGS.string("output_file", None, "Where to write the sentences.", required=True)
FLAGS.string("heldout_file", None, "Where to write the held-out documents. Without it none are held out.")
FLAGS.float("heldout_fraction", 0.1, "Share of the documents to hold out, about.", minimum=0.0, maximum=1.0)
FLAGS.integer("seed", 29, "Another seed holds out other documents; which ones depends on it and their text alone.")
FLAGS.integer("min_sentences", 1, "Documents with fewer sentences are left out.", minimum=1)
FLAGS.enum("format", "auto", ["auto", "text", "jsonl"], "Of the input; auto tells JSON lines by their first line.")
FLAGS.string("text_field", "text", "The field of JSON lines that holds the text.")
FLAGS.enum(
    "document_break",
    "auto",
    ["auto", "blank_line", "two_blank_lines", "paragraph", "file"],
    "What ends a document besides the end of its file. auto: two empty lines where a file has such; one where blocks "
    "of several unwrapped lines stand between empty lines; else the end of the file or, of few files, a paragraph.",
)
FLAGS.enum(
    "line_breaks",
    "auto",
    ["auto", "join", "keep"],
    "join: the lines of a block are one paragraph; keep: each line is one; auto: lines that were wrapped are joined.",
)
FLAGS.integer(
    "max_sentence_width",
    0,
    "Columns (two a Chinese character) after which a sentence is cut, for text that marks no ends; 0: never.",
    minimum=0,
)
FLAGS.float(
    "sample_fraction", 1.0, "Share of the documents to take, about, chosen as those held out.", minimum=0.0, maximum=1.0
)


def run(flags) -> None:
    """Reads, splits, writes, prints a summary."""
    from tf_bert.data.text.builtin_corpus import builtin_corpus
    from tf_bert.data.text.documents import HeldOutSplit
    from tf_bert.files import atomic_writer

    if bool(flags.input_file) == flags.builtin_corpus:
        raise UsageError("give either --input_file or --builtin_corpus")
    if flags.heldout_file and flags.heldout_file == flags.output_file:
        raise UsageError("--heldout_file and --output_file must be two files")
    split = HeldOutSplit(
        flags.heldout_fraction if flags.heldout_file else 0.0, flags.seed, flags.min_sentences, flags.sample_fraction
    )
    layouts: dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        names = [flags.output_file] + ([flags.heldout_file] if flags.heldout_file else [])
        lines = builtin_corpus() if flags.builtin_corpus else _read(flags, names, layouts)
        outputs = [stack.enter_context(atomic_writer(name, "w")) for name in names]
        for held_out, line in split(lines):
            outputs[held_out].write(line + "\n")
        _check(flags, split)
    _summarise(flags, split, layouts)


def _read(flags, outputs: list[str], layouts: dict[str, int]) -> Iterator[str]:
    from tf_bert.data.text.documents import find_files, read_documents, usual_sentences_per_document
    from tf_bert.data.text.lines import refuse_outputs_among, total_size
    from tf_bert.progress import Progress

    files = find_files(flags.input_file)
    refuse_outputs_among(files, outputs)
    with Progress("splitting sentences", total=total_size(files), unit="B") as progress:
        for file in files:
            yield from read_documents(
                file,
                format=flags.format,
                text_field=flags.text_field,
                document_break=flags.document_break,
                line_breaks=flags.line_breaks,
                sentences_per_document=usual_sentences_per_document(files),
                longest_sentence=flags.max_sentence_width,
                encoding=flags.encoding,
                progress=progress,
                layouts=layouts,
            )


def _check(flags, split) -> None:
    """Stops before an output without documents appears under its name."""
    total = sum(split.documents)
    if not total:
        short = f"; {split.left_out} have fewer than {flags.min_sentences} sentences" if split.left_out else ""
        raise ValueError(f"there are no documents in {flags.input_file or 'the built-in corpus'}{short}")
    if flags.heldout_file and total == 1:
        raise ValueError("all is one document, of which nothing can be held out; --document_break says where one ends")
    if flags.heldout_file and 0 in split.documents:
        side = "held out" if split.documents[1] == 0 else "left to train on"
        raise ValueError(
            f"none of the {total} documents is {side}: change --heldout_fraction or --seed, or say with "
            "--document_break where documents end"
        )


def _summarise(flags, split, layouts: dict[str, int]) -> None:
    for layout, number in sorted(layouts.items()):
        print(f"{number:,} file{'s' * (number != 1)}: {layout}")
    for side, name in enumerate([flags.output_file, flags.heldout_file]):
        if name:
            documents, sentences, characters = split.documents[side], split.sentences[side], split.characters[side]
            print(
                f"{name}: {documents:,} documents, {sentences:,} sentences ({sentences / documents:.1f} a document, "
                f"{characters / sentences:.0f} characters each)"
            )
    if split.not_taken:
        print(f"{split.not_taken:,} documents not taken (--sample_fraction={flags.sample_fraction:g})")
    if split.left_out:
        print(f"{split.left_out:,} documents of fewer than {flags.min_sentences} sentences left out")
    documents, single = sum(split.documents), sum(split.single)
    if documents == 1:
        _note("all is one document, but pre-training needs several; --document_break says where documents end")
    elif single > documents / 2:
        _note(
            f"{single:,} of {documents:,} documents have one sentence: next-sentence labels would nearly all be "
            "'random'; --document_break says where documents end, --min_sentences=2 leaves such documents out"
        )


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
