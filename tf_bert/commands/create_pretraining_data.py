"""``tf-bert create_pretraining_data``: writes TFRecords of masked sentence pairs from text."""

import os
import sys
import time
from collections.abc import Sequence

from tf_bert.commands.create_pretraining_flags import FLAGS
from tf_bert.commands.deferred import deferred
from tf_bert.commands.flags import UsageError, options_from

with deferred():
    from tf_bert.data.pretraining import corpus, create_sharded, make, pairing, report
    from tf_bert.data.text import lines
    from tf_bert.data.tfrecord import sidecar
    from tf_bert.tokenization import full

# Noted next to each file, as are the options of the instances.
NOTED = (
    "dupe_factor",
    "random_seed",
    "replace_with_special_tokens",
    "word_marker",
    "word_splitter",
    "do_lower_case",
    "strip_accents",
    "tokenize_chinese_chars",
)


def run(flags) -> None:
    """Checks what can be checked early, makes the records, prints a summary."""
    start = time.monotonic()
    options = options_from(flags, pairing.InstanceOptions)
    outputs = _outputs(flags)
    splitter = _word_splitter(flags)
    tokenizer = full.FullTokenizer(
        flags.vocab_file, flags.do_lower_case, flags.strip_accents, tokenize_chinese_chars=flags.tokenize_chinese_chars
    )
    report.check_vocabulary(tokenizer.vocab, flags.vocab_file, flags.do_lower_case)
    report.warn_about_options(options)
    files = lines.expand_input_files(flags.input_file)
    if overwritten := {os.path.realpath(path) for path in files} & {os.path.realpath(path) for path in outputs}:
        raise UsageError(f"{overwritten.pop()} is both an --input_file and an --output_file")
    counts = _make(flags, files, corpus.LineEncoder(tokenizer, splitter), options, outputs)
    shown = ", ".join(outputs) if len(outputs) < 4 else f"{outputs[0]} to {outputs[-1]}"
    if counts is None:
        print(f"nothing to do: {shown} are complete, made from the same text with the same flags")
        return
    n_rows = sum(sidecar.read_sidecar(path).get("records", 0) for path in outputs) if options.packed_length else 0
    print(report.summary(*counts, options, flags.dupe_factor, n_rows), end="")
    print(f"written to {shown} in {time.monotonic() - start:.0f} s")


def _make(flags, files: Sequence[str], encoder, options, outputs: Sequence[str]):
    """Makes the records; returns the counts of corpus and instances."""
    noted = make.sidecar_of(encoder.tokenizer, options, **{name: flags[name].value for name in NOTED})
    settings = {
        name: flags[name].value
        for name in ("dupe_factor", "random_seed", "replace_with_special_tokens", "documents_end_with_files")
    }
    if flags.sharded:
        prefix = flags.output_file.strip()
        folder = flags.work_folder or prefix + ".work"
        shards = create_sharded.ShardedRun(files, encoder, options, outputs, folder, sidecar=noted, **settings)
        return make.make_sharded(shards, prefix, flags.num_workers, flags.runner, flags.runner_flags)
    return make.make_in_memory(
        files,
        encoder,
        options,
        outputs,
        noted,
        allow_single_document=flags.allow_single_document,
        num_workers=flags.num_workers,
        log_examples=flags.log_examples,
        **settings,
    )


def _outputs(flags) -> list[str]:
    """Returns the files to write, after checks that their folders can be written to."""
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
        if make.local_folder(paths[0]) is None and not flags.work_folder and not flags.runner:
            raise UsageError(f"--sharded needs a local --work_folder=FOLDER to write to {paths[0]}")
        paths = [f"{paths[0]}-{shard:05}-of-{flags.num_shards:05}" for shard in range(flags.num_shards)]
    make.check_outputs(paths)
    return paths


def _word_splitter(flags):
    if flags.word_marker is None and flags.word_splitter is None:
        return None
    if flags.word_marker is not None and flags.word_splitter is not None:
        raise UsageError("--word_marker and --word_splitter exclude each other")
    if not flags.do_whole_word_mask and flags.masking == "static":
        raise UsageError("--word_marker and --word_splitter matter only to --do_whole_word_mask or --masking=dynamic")
    if flags.word_marker == "":
        raise UsageError("--word_marker is empty")
    return corpus.MarkedWords(flags.word_marker) if flags.word_marker else corpus.ImportedWords(flags.word_splitter)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)


if __name__ == "__main__":
    sys.exit(main())
