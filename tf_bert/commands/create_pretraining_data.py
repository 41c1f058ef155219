"""``tf-bert create_pretraining_data``: writes TFRecords of masked sentence pairs from text."""

import dataclasses
import glob
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from typing import Any

from tf_bert.commands.flags import Flags, UsageError

FLAGS = Flags(
    "create_pretraining_data",
    """
    Makes the data of pre-training: TFRecords of sentence pairs with masked tokens, to the bit those of the original
    for equal text, vocabulary, flags and seed.

    The text holds one sentence a line and a blank line between documents; tf-bert prepare_corpus makes such text.

    Example: tf-bert create_pretraining_data --input_file='corpus/*.txt' --output_file=data/train.tfrecord
        --vocab_file=vocab.txt --max_seq_length=128 --max_predictions_per_seq=20 --dupe_factor=5
    """,
)
FLAGS.string("input_file", None, "UTF-8 text (may be gzipped): names or globs, separated by commas.", required=True)
FLAGS.string(
    "output_file",
    None,
    "TFRecord files to write, separated by commas; record k goes to file k modulo their number. With --sharded, the "
    "prefix of the files PREFIX-00000-of-0000N.",
    required=True,
)
FLAGS.string("vocab_file", None, "The vocabulary the model is trained with, one piece a line.", required=True)
FLAGS.boolean("do_lower_case", True, "Whether to lower-case; True for uncased and False for cased vocabularies.")
FLAGS.boolean("do_whole_word_mask", False, "Whether to mask all pieces of a word together.")
FLAGS.integer("max_seq_length", 128, "Tokens in a record, [CLS] and [SEP] included.", minimum=5)
FLAGS.integer(
    "max_predictions_per_seq",
    20,
    "The most masked tokens of a record, about max_seq_length * masked_lm_prob.",
    minimum=0,
)
FLAGS.integer("random_seed", 12345, "Seed of everything random.")
FLAGS.integer("dupe_factor", 10, "Passes over the text, each with other pairs and masks.", minimum=1)
FLAGS.float(
    "masked_lm_prob",
    0.15,
    "Share of the tokens that are masked; in each record, one at least.",
    minimum=0.0,
    maximum=1.0,
)
FLAGS.float("short_seq_prob", 0.1, "Share of the documents cut into shorter records.", minimum=0.0, maximum=1.0)

# What the original does not have.
FLAGS.boolean("strip_accents", None, "Whether to drop accents. By default this follows do_lower_case.")
FLAGS.boolean("tokenize_chinese_chars", True, "Whether each Chinese character is a word, as in the original.")
FLAGS.integer("num_workers", 1, "Processes that tokenize and serialize; the result is the same.", minimum=1)
FLAGS.boolean(
    "next_sentence",
    True,
    "Whether to make sentence pairs; --nonext_sentence makes [CLS] text [SEP] for masked LM alone.",
)
FLAGS.enum(
    "masking",
    "static",
    ["static", "dynamic"],
    "static masks now. dynamic writes unmasked records, which run_pretraining masks afresh in each epoch; a "
    "--dupe_factor of 1 is then enough.",
)
FLAGS.integer(
    "packed_length",
    None,
    "Puts several examples into each record of this many tokens, so that hardly any is padding; each keeps positions, "
    "attention and targets of its own, and run_pretraining computes the same losses.",
    minimum=5,
)
FLAGS.integer(
    "max_ngram",
    1,
    "The longest run of words masked together; runs of n words are drawn in proportion to 1/n. 1 is the original.",
    minimum=1,
)
FLAGS.boolean(
    "replace_with_special_tokens",
    True,
    "Whether the random replacements come from the whole vocabulary, [CLS] and [unused7] too, as in the original.",
)
FLAGS.string("word_marker", None, "What stands between words in the text (such as a blank), for --do_whole_word_mask.")
FLAGS.string(
    "word_splitter",
    None,
    "A Python function that gives the words of a line, as module:function (such as jieba:lcut), for "
    "--do_whole_word_mask in text without ## pieces.",
)
FLAGS.boolean(
    "documents_end_with_files",
    False,
    "Whether the end of a file ends a document. In the original a document goes on in the next file unless a blank "
    "line stands between.",
)
FLAGS.boolean(
    "allow_single_document",
    False,
    "Makes pairs even from a single document, as the original does; the labels of its random next sentences are wrong.",
)
FLAGS.boolean(
    "sharded",
    False,
    "For large text: memory stays bounded, --num_workers share all of the work, and a run that was interrupted goes on "
    "with the missing files. The records are as random but not those of the original.",
)
FLAGS.integer("num_shards", None, "Number of files to write with --sharded.", minimum=1)
FLAGS.string(
    "work_folder",
    None,
    "Where --sharded keeps its intermediate files, on a local disk (with --runner, where every worker reaches it); "
    "PREFIX.work by default.",
)
FLAGS.enum(
    "runner",
    None,
    ["DirectRunner", "FlinkRunner", "SparkRunner", "DataflowRunner"],
    "Makes the files of --sharded, to the bit, with Apache Beam (pip install 'tf_bert[beam]') on many machines, all of "
    "which reach --work_folder; DirectRunner is --num_workers processes of this one. Flags of Beam's own, such as "
    "--project or --flink_master, may stand beside it.",
)
FLAGS.pass_on("runner_flags", when="runner")
FLAGS.integer("log_examples", 0, "How many of the first records to show; the original shows 20.", minimum=0)


def run(flags) -> None:
    """Checks what can be checked early, makes the records, prints a summary."""
    from tf_bert.data.pretraining.corpus import LineEncoder
    from tf_bert.data.pretraining.pairing import InstanceOptions
    from tf_bert.data.pretraining.report import check_vocabulary, summary, warn_about_options
    from tf_bert.data.text.lines import expand_input_files
    from tf_bert.data.tfrecord.sidecar import read_sidecar
    from tf_bert.tokenization import FullTokenizer

    start = time.monotonic()
    options = InstanceOptions(**{field.name: flags[field.name].value for field in dataclasses.fields(InstanceOptions)})
    outputs = _outputs(flags)
    splitter = _word_splitter(flags)
    tokenizer = FullTokenizer(
        flags.vocab_file, flags.do_lower_case, flags.strip_accents, tokenize_chinese_chars=flags.tokenize_chinese_chars
    )
    check_vocabulary(tokenizer.vocab, flags.vocab_file, flags.do_lower_case)
    warn_about_options(options)
    files = expand_input_files(flags.input_file)
    if overwritten := {os.path.realpath(path) for path in files} & {os.path.realpath(path) for path in outputs}:
        raise UsageError(f"{overwritten.pop()} is both an --input_file and an --output_file")
    make = _make_sharded if flags.sharded else _make_exact
    counts = make(flags, options, LineEncoder(tokenizer, splitter), files, outputs)
    shown = ", ".join(outputs) if len(outputs) < 4 else f"{outputs[0]} to {outputs[-1]}"
    if counts is None:
        print(f"nothing to do: {shown} are complete, made from the same text with the same flags")
        return
    n_rows = sum(read_sidecar(path).get("records", 0) for path in outputs) if options.packed_length else 0
    print(summary(*counts, options, flags.dupe_factor, n_rows), end="")
    print(f"written to {shown} in {time.monotonic() - start:.0f} s")


def _make_exact(flags, options, encoder, files: Sequence[str], outputs: Sequence[str]):
    from tf_bert.data.pretraining.corpus import read_corpus
    from tf_bert.data.pretraining.create import instances_of_corpus, write_instance_to_example_files
    from tf_bert.data.pretraining.report import warn_about_corpus
    from tf_bert.data.tfrecord.sidecar import write_sidecar

    tokenizer = encoder.tokenizer
    corpus = read_corpus(
        files, encoder, documents_end_with_files=flags.documents_end_with_files, num_workers=flags.num_workers
    )
    warn_about_corpus(corpus.counts, options)
    instances = instances_of_corpus(
        corpus,
        tokenizer.vocab,
        options,
        flags.dupe_factor,
        random.Random(flags.random_seed),
        replace_with_special_tokens=flags.replace_with_special_tokens,
        allow_single_document=flags.allow_single_document,
        temporary_folder=_local_folder(outputs[0]),
    )
    for instance in instances[: flags.log_examples]:
        print(instance, end="")
    numbers = write_instance_to_example_files(
        instances,
        tokenizer,
        options.max_seq_length,
        options.max_predictions_per_seq,
        outputs,
        masking=options.masking,
        num_workers=flags.num_workers,
        packed_length=options.packed_length,
        masked_lm_prob=options.masked_lm_prob,
    )
    for path, number in zip(outputs, numbers, strict=True):
        write_sidecar(path, _sidecar(flags, options, tokenizer) | {"records": number})
    return corpus.counts, instances.counts


def _make_sharded(flags, options, encoder, files: Sequence[str], outputs: Sequence[str]):
    from tf_bert.data.pretraining.create_sharded import ShardedRun

    work_folder = flags.work_folder or flags.output_file.strip() + ".work"
    others = set(glob.glob(glob.escape(flags.output_file.strip()) + "-[0-9]*-of-[0-9]*")) - set(outputs)
    if others := sorted(path for path in others if not path.endswith(".json")):
        warnings.warn(
            f"{others[0]} and {len(others) - 1} other shards of another number lie beside the new ones: "
            f"delete them, or {flags.output_file}-* names both",
            stacklevel=2,
        )
    run = ShardedRun(
        files,
        encoder,
        options,
        outputs,
        work_folder,
        dupe_factor=flags.dupe_factor,
        random_seed=flags.random_seed,
        replace_with_special_tokens=flags.replace_with_special_tokens,
        documents_end_with_files=flags.documents_end_with_files,
        sidecar=_sidecar(flags, options, encoder.tokenizer),
    )
    if flags.runner is None:
        return run.make(flags.num_workers)
    from tf_bert.data.pretraining import create_on_beam

    return create_on_beam.make(run, flags.runner, flags.runner_flags, flags.num_workers)


def _sidecar(flags, options, tokenizer) -> dict[str, Any]:
    """What stands in the ``.json`` beside each file."""
    from tf_bert.data.pretraining.create import replacement_ids
    from tf_bert.tokenization.vocabulary import SPECIAL_TOKENS, vocab_sha256

    pool = replacement_ids(tokenizer.vocab, flags.replace_with_special_tokens)
    return dataclasses.asdict(options) | {
        "dupe_factor": flags.dupe_factor,
        "random_seed": flags.random_seed,
        "replace_with_special_tokens": flags.replace_with_special_tokens,
        "word_marker": flags.word_marker,
        "word_splitter": flags.word_splitter,
        "do_lower_case": flags.do_lower_case,
        "strip_accents": flags.strip_accents,
        "tokenize_chinese_chars": flags.tokenize_chinese_chars,
        "vocab_file": os.path.abspath(flags.vocab_file),
        "vocab_sha256": vocab_sha256(flags.vocab_file),
        "vocab_size": tokenizer.vocab_size,
        "special_ids": {token: tokenizer.vocab[token] for token in SPECIAL_TOKENS},
        "excluded_replacement_ids": sorted(set(tokenizer.vocab.values()) - set(pool)),
    }


def _outputs(flags) -> list[str]:
    """The files to write; finds out now whether their folders can be written to."""
    paths = [path.strip() for path in flags.output_file.split(",") if path.strip()]
    if not paths:
        raise UsageError("--output_file names no file")
    if len(set(paths)) < len(paths):
        raise UsageError(f"--output_file names a file twice: {flags.output_file}")
    if flags.sharded != (flags.num_shards is not None):
        raise UsageError("--sharded and --num_shards=N go together")
    for name in ("work_folder", "runner"):
        if not flags.sharded and flags[name].value:
            raise UsageError(f"--{name} goes with --sharded")
    if flags.sharded:
        if flags.allow_single_document or flags.log_examples:
            raise UsageError("--allow_single_document and --log_examples do not go with --sharded")
        if len(paths) > 1:
            raise UsageError("--sharded takes one --output_file, the prefix of its files")
        if _local_folder(paths[0]) is None and not flags.work_folder and not flags.runner:
            raise UsageError(f"--sharded needs a local --work_folder=FOLDER to write to {paths[0]}")
        paths = [f"{paths[0]}-{shard:05}-of-{flags.num_shards:05}" for shard in range(flags.num_shards)]
    for path in paths:
        if os.path.isdir(path):
            raise IsADirectoryError(f"cannot write {path}: it is a directory; name a file in it")
    for folder in {_local_folder(path) for path in paths} - {None}:
        try:
            os.makedirs(folder, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise OSError(f"cannot write to folder {folder}: {error.strerror}") from None
    return paths


def _local_folder(path: str) -> str | None:
    from tf_bert.files import is_remote

    if is_remote(path) or (os.path.exists(path) and not os.path.isfile(path)):  # /dev/stdout
        return None
    return os.path.dirname(os.path.realpath(path))


def _word_splitter(flags):
    from tf_bert.data.pretraining.corpus import ImportedWords, MarkedWords

    if flags.word_marker is None and flags.word_splitter is None:
        return None
    if flags.word_marker is not None and flags.word_splitter is not None:
        raise UsageError("--word_marker and --word_splitter exclude each other")
    if not flags.do_whole_word_mask and flags.masking == "static":
        raise UsageError("--word_marker and --word_splitter matter only to --do_whole_word_mask or --masking=dynamic")
    if flags.word_marker == "":
        raise UsageError("--word_marker is empty")
    return MarkedWords(flags.word_marker) if flags.word_marker else ImportedWords(flags.word_splitter)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)


if __name__ == "__main__":
    sys.exit(main())
