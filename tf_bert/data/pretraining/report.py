"""What is said about pre-training data: warnings before and while it is made, and a summary when it is done."""

import math
import warnings
from collections.abc import Mapping

from tf_bert.data.pretraining.corpus import CorpusCounts
from tf_bert.data.pretraining.instances import InstanceCounts
from tf_bert.data.pretraining.pairing import InstanceOptions
from tf_bert.tokenization.vocabulary import casing_problem, check_special_tokens

_MUCH_CUT_OFF = 0.25


def check_vocabulary(vocab: Mapping[str, int], vocab_file: str, do_lower_case: bool) -> None:
    """Looks at a vocabulary before any text is read.

    Decision: records are padded with id 0, as the original's, and so [PAD] has to be id 0.

    Raises:
        ValueError: for missing special tokens, or [PAD] elsewhere than at id 0.

    Warns:
        UserWarning: when its casing does not fit ``do_lower_case``.
    """
    check_special_tokens(vocab, vocab_file)
    if vocab["[PAD]"] != 0:
        raise ValueError(
            f"{vocab_file}: [PAD] is id {vocab['[PAD]']} (line {vocab['[PAD]'] + 1}), but records are padded with 0; "
            "make [PAD] the first line"
        )
    if problem := casing_problem(vocab, do_lower_case):
        warnings.warn(f"{vocab_file}: {problem}", stacklevel=2)


def warn_about_options(options: InstanceOptions) -> None:
    """Warns when ``max_predictions_per_seq`` is far from what ``masked_lm_prob`` asks for."""
    if options.masking == "dynamic":
        return
    if not options.max_predictions_per_seq:
        warnings.warn("max_predictions_per_seq is 0: no token is masked, as in the original", stacklevel=2)
        return
    wanted = options.max_seq_length * options.masked_lm_prob
    if abs(options.max_predictions_per_seq - wanted) > max(2, 0.3 * wanted):
        effect = (
            f"only {options.max_predictions_per_seq / options.max_seq_length:.1%} of a full sequence would be masked"
            if options.max_predictions_per_seq < wanted
            else "the rest is padding"
        )
        warnings.warn(
            f"max_predictions_per_seq is {options.max_predictions_per_seq}, but max_seq_length * masked_lm_prob = "
            f"{options.max_seq_length} * {options.masked_lm_prob} = {wanted:.1f}: {effect}; "
            f"--max_predictions_per_seq={max(1, math.ceil(round(wanted, 9)))} fits",
            stacklevel=2,
        )


def warn_about_corpus(counts: CorpusCounts, options: InstanceOptions) -> None:
    """Warns of text that makes useless data: one sentence a document, no words to mask whole, or mostly [UNK]."""
    single = counts.single_sentence_documents
    if options.next_sentence and single > 0.9 * counts.documents:
        warnings.warn(
            f"{single:,} of {counts.documents:,} documents have a single sentence, so that nearly every next sentence "
            "is a random one (label 1): is there a blank line after each sentence? Put blank lines between documents "
            "only (tf-bert prepare_corpus does), or pass --nonext_sentence",
            stacklevel=2,
        )
    if options.do_whole_word_mask and not counts.has_continuations:
        warnings.warn(
            "do_whole_word_mask has no effect: no token of this text continues a word (only ## pieces do). For Chinese "
            "and other text without them, give the words with --word_marker or --word_splitter",
            stacklevel=2,
        )
    if counts.unknown > 0.1 * counts.tokens:
        warnings.warn(
            f"{counts.unknown / counts.tokens:.0%} of the tokens are [UNK]: the vocabulary does not fit the text "
            "(language, casing, or markup in it)",
            stacklevel=2,
        )


def warn_about_instances(
    corpus: CorpusCounts, instances: InstanceCounts, options: InstanceOptions, dupe_factor: int
) -> None:
    """Warns where much of the text is in no record, as its sentences are longer than one."""
    share = instances.cut_off / (dupe_factor * corpus.tokens)
    if instances.long_sentences and share > _MUCH_CUT_OFF:
        warnings.warn(
            f"{share:.2%} of the tokens are in no record of a pass: {instances.long_sentences // dupe_factor:,} "
            f"sentences are longer than max_seq_length {options.max_seq_length}, and their rest is cut off; put one "
            "sentence on a line (tf-bert prepare_corpus does), or raise max_seq_length",
            stacklevel=2,
        )


def summary(
    corpus: CorpusCounts, instances: InstanceCounts, options: InstanceOptions, dupe_factor: int, n_rows: int = 0
) -> str:
    """The summary that the command prints, a line for each fact; ``n_rows`` is the number of packed records."""
    n, length = instances.instances, options.max_seq_length
    packed = options.packed_length is not None
    n_places = n_rows * options.packed_length if packed else n * length
    record = "example" if packed else "record"
    rows = [
        ("documents", f"{corpus.documents:,}", ""),
        ("sentences", f"{corpus.sentences:,}", f"{corpus.sentences / corpus.documents:.1f} a document"),
        ("tokens", f"{corpus.tokens:,}", f"{corpus.tokens / corpus.sentences:.1f} a sentence"),
        ("[UNK]", f"{corpus.unknown / corpus.tokens:.2%}", "of the tokens"),
        (f"{record}s", f"{n:,}", f"of up to {length} tokens" if packed else f"of length {length}"),
        *([("records", f"{n_rows:,}", f"of length {options.packed_length}")] if packed else []),
        ("padding", f"{1 - instances.tokens / n_places:.1%}", "of their positions"),
    ]
    unused = instances.cut_off / dupe_factor
    rows.append(("never used", f"{unused:,.0f}", f"of the tokens in a pass ({unused / corpus.tokens:.2%}), cut off"))
    rows.append(("too long", f"{instances.long_sentences // dupe_factor:,}", f"of the sentences, for one {record}"))
    if options.next_sentence:
        rows.append(("random next", f"{instances.random_next / n:.1%}", f"of the {record}s (next_sentence_labels 1)"))
    if options.masking == "static":
        rows.append(
            (
                "masked",
                f"{instances.predictions / instances.tokens:.1%}",
                f"of their tokens, {instances.predictions / n:.1f} a{'n' * packed} {record}",
            )
        )
    return "".join(f"{name:<12} {value:>14}  {note}".rstrip() + "\n" for name, value, note in rows)
