"""``tf-bert train_vocab``: builds a ``vocab.txt`` from text."""

import sys
import time
from collections.abc import Sequence

from tf_bert.commands.flags import Flags

FLAGS = Flags(
    "train_vocab",
    """
    Builds the vocabulary of a new model (vocab.txt) from text in any language.

    Special tokens come first ([PAD] is 0), then the characters of the text, so that no word of it becomes [UNK], then
    the most useful pieces of words. The same text gives the same file; memory is bounded.

    Example: tf-bert train_vocab --input_file='corpus/*.txt' --output_file=vocab.txt --vocab_size=8000
    """,
)
FLAGS.string("input_file", None, "Text (may be gzipped): names or globs, separated by commas.", required=True)
FLAGS.string("encoding", "utf-8", "Encoding of the text, such as gb18030.")
FLAGS.string("output_file", None, "Where to write the vocabulary, one piece a line.", required=True)
FLAGS.integer(
    "vocab_size",
    30000,
    "Number of lines; fewer where the text has no more pieces. 0 chooses a small one from the text: its characters, "
    "rare ones left out where there are many, and some 1,300 pieces.",
    minimum=0,
)
FLAGS.integer("min_frequency", 2, "Minimum number of occurrences of a piece of several characters.", minimum=1)
FLAGS.float(
    "character_coverage",
    1.0,
    "Share of the text's characters that the kept ones make up. 1.0 keeps every character; 0.9995 leaves out the rare "
    "ones of Chinese or of text from the web, and the words that hold them become [UNK].",
    minimum=0.5,
    maximum=1.0,
)
FLAGS.integer(
    "num_unused",
    99,
    "Number of entries [unused0], [unused1] ... that may become words of a special field later. With 99, [UNK] [CLS] "
    "[SEP] [MASK] have the published ids 100 to 103.",
    minimum=0,
)
FLAGS.boolean("do_lower_case", True, "Whether to lower-case; must be the same wherever the vocabulary is used.")
FLAGS.boolean(
    "strip_accents",
    None,
    "Whether to drop accents. By default this follows do_lower_case, as in the original; --nostrip_accents keeps the "
    "vowel signs of Hindi, the voicing marks of Japanese and Korean syllables whole in a lower-casing model.",
)
FLAGS.integer(
    "max_words", 1_000_000, "Different words held while counting; the rarer half is dropped beyond.", minimum=1000
)


def run(flags) -> None:
    """Counts words, finds pieces, writes the file, prints a summary."""
    from tf_bert.data.text.lines import expand_input_files, read_lines, refuse_outputs_among, total_size
    from tf_bert.files import atomic_writer
    from tf_bert.progress import Progress
    from tf_bert.tokenization.basic import BasicTokenizer
    from tf_bert.tokenization.vocabulary_training import WordCounts, build_vocabulary, choose_size

    start = time.monotonic()
    tokenizer = BasicTokenizer(flags.do_lower_case, strip_accents=flags.strip_accents)
    files = expand_input_files(flags.input_file)
    refuse_outputs_among(files, [flags.output_file])
    with atomic_writer(flags.output_file, "w") as output:  # opened first: better to fail before the work than after
        with Progress("counting words", total=total_size(files), unit="B") as progress:
            counts = WordCounts(tokenizer, flags.max_words).count(
                line for file in files for line in read_lines(file, progress, flags.encoding)
            )
        if not counts.words:
            raise ValueError(f"{flags.input_file}: there are no words in {len(files)} input files")
        size, coverage = flags.vocab_size, flags.character_coverage
        if not size:
            size, coverage = choose_size(counts, tokenizer, flags.num_unused)
        pieces = build_vocabulary(
            counts,
            size,
            tokenizer=tokenizer,
            min_frequency=flags.min_frequency,
            character_coverage=coverage,
            num_unused=flags.num_unused,
        )
        output.writelines(piece + "\n" for piece in pieces)
    if not flags.vocab_size:
        kept = sum(len(piece) == 1 for piece in pieces)
        print(f"characters kept    {kept:>12,}   of {len(counts.characters):,}, {coverage:.2%} of the text")
    _summarise(flags, files, counts, pieces, time.monotonic() - start)


def _summarise(flags, files: Sequence[str], counts, pieces: list[str], seconds: float) -> None:
    from tf_bert.tokenization.wordpiece import WordpieceTokenizer

    wordpiece = WordpieceTokenizer(pieces)
    num_pieces = num_unknown = num_words = 0
    for word, count in counts.words.items():
        split = wordpiece.split_word(word)
        num_words += count
        num_pieces += count * len(split)
        num_unknown += count * (split == ["[UNK]"])
    print(f"words read         {counts.num_words:>12,}   in {len(files)} file{'s' * (len(files) != 1)}")
    print(f"different words    {len(counts.words):>12,}   {counts.num_dropped:,} rare ones dropped for want of room")
    print(f"characters         {len(counts.characters):>12,}   different ones")
    print(f"pieces per word    {num_pieces / num_words:>12.3f}")
    print(f"[UNK] per word     {num_unknown / num_words:>12.4%}")
    casing = "lower-cased" if flags.do_lower_case else "cased"
    print(f"{flags.output_file}: {len(pieces):,} lines, {casing}, in {seconds:.1f} s")
    if len(pieces) < flags.vocab_size:
        print(
            f"note: the text has no more pieces that occur {flags.min_frequency} times; "
            f"vocab_size in bert_config.json must be at least {len(pieces)}",
            file=sys.stderr,
        )
    single = sum(len(piece.removeprefix("##")) == 1 for piece in pieces)
    if single > len(pieces) / 2 and num_pieces > 1.5 * num_words:  # in Chinese single characters are words
        print(
            f"note: {single:,} of {len(pieces):,} pieces are single characters; a larger --vocab_size or a lower "
            "--character_coverage (such as 0.9995) leaves room for longer ones",
            file=sys.stderr,
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
