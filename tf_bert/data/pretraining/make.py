"""Makes the pre-training data of a command line: instances in memory or shards, records, and their ``.json`` files."""

import dataclasses
import glob
import os
import random
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tf_bert.data.pretraining.corpus import CorpusCounts, LineEncoder, read_corpus
from tf_bert.data.pretraining.create import instances_of_corpus, replacement_ids, write_instance_to_example_files
from tf_bert.data.pretraining.create_sharded import ShardedRun
from tf_bert.data.pretraining.pairing import InstanceOptions
from tf_bert.data.pretraining.report import warn_about_corpus
from tf_bert.data.tfrecord.sidecar import write_sidecar
from tf_bert.files import is_remote
from tf_bert.tokenization.vocabulary import SPECIAL_TOKENS, vocab_sha256


def make_in_memory(
    files: Sequence[str],
    encoder: LineEncoder,
    options: InstanceOptions,
    outputs: Sequence[str],
    sidecar: Mapping[str, Any],
    *,
    dupe_factor: int,
    random_seed: int,
    replace_with_special_tokens: bool = True,
    documents_end_with_files: bool = False,
    allow_single_document: bool = False,
    num_workers: int = 1,
    log_examples: int = 0,
) -> tuple[CorpusCounts, Any]:
    """Makes the records of the original, to the bit, with the corpus in memory.

    Args:
        files: text files.
        encoder: turns lines into ids.
        options: of the instances.
        outputs: TFRecord files to write, each with ``sidecar`` and its number of records next to it.
        sidecar: from `sidecar_of`.
        dupe_factor, random_seed, replace_with_special_tokens, documents_end_with_files, allow_single_document,
            num_workers: see `tf_bert.data.pretraining.create.create_training_instances`.
        log_examples: number of the first instances to print.

    Returns:
        The counts of the corpus and of the instances.
    """
    tokenizer = encoder.tokenizer
    corpus = read_corpus(files, encoder, documents_end_with_files=documents_end_with_files, num_workers=num_workers)
    warn_about_corpus(corpus.counts, options)
    instances = instances_of_corpus(
        corpus,
        tokenizer.vocab,
        options,
        dupe_factor,
        random.Random(random_seed),
        replace_with_special_tokens=replace_with_special_tokens,
        allow_single_document=allow_single_document,
        temporary_folder=local_folder(outputs[0]),
    )
    for instance in instances[:log_examples]:
        print(instance, end="")
    numbers = write_instance_to_example_files(
        instances,
        tokenizer,
        options.max_seq_length,
        options.max_predictions_per_seq,
        outputs,
        masking=options.masking,
        num_workers=num_workers,
        packed_length=options.packed_length,
        masked_lm_prob=options.masked_lm_prob,
    )
    for path, number in zip(outputs, numbers, strict=True):
        write_sidecar(path, {**sidecar, "records": number})
    return corpus.counts, instances.counts


def make_sharded(
    run: ShardedRun, prefix: str, num_workers: int = 1, runner: str | None = None, runner_flags: Sequence[str] = ()
) -> tuple[CorpusCounts, Any] | None:
    """Makes the shards of a run, on this machine or with Apache Beam; warns of shards of an earlier run.

    Args:
        run: what to make.
        prefix: of the names of the shards.
        num_workers: processes.
        runner: of Apache Beam; None for none.
        runner_flags: of the runner.

    Returns:
        The counts of the corpus and of the instances; None if all shards are complete already.
    """
    others = set(glob.glob(glob.escape(prefix) + "-[0-9]*-of-[0-9]*")) - set(run.outputs)
    if others := sorted(path for path in others if not path.endswith(".json")):
        warnings.warn(
            f"{others[0]} and {len(others) - 1} other shards of another number lie beside the new ones: "
            f"delete them, or {prefix}-* names both",
            stacklevel=2,
        )
    if runner is None:
        return run.make(num_workers)
    from tf_bert.data.pretraining import create_on_beam

    return create_on_beam.make(run, runner, runner_flags, num_workers)


def sidecar_of(tokenizer, options: InstanceOptions, **settings: Any) -> dict[str, Any]:
    """Returns what the ``.json`` next to each file states.

    Args:
        tokenizer: with its ``vocab_file``.
        options: of the instances.
        **settings: further ones, among them ``replace_with_special_tokens``.
    """
    pool = replacement_ids(tokenizer.vocab, settings["replace_with_special_tokens"])
    return {
        **dataclasses.asdict(options),
        **settings,
        "vocab_file": os.path.abspath(tokenizer.vocab_file),
        "vocab_sha256": vocab_sha256(tokenizer.vocab_file),
        "vocab_size": tokenizer.vocab_size,
        "special_ids": {token: tokenizer.vocab[token] for token in SPECIAL_TOKENS},
        "excluded_replacement_ids": sorted(set(tokenizer.vocab.values()) - set(pool)),
    }


def check_outputs(paths: Iterable[str]) -> None:
    """Makes the folders of files to write, and raises OSError for one that cannot be written to."""
    paths = list(paths)
    for path in paths:
        if os.path.isdir(path):
            raise IsADirectoryError(f"cannot write {path}: it is a directory; name a file in it")
    for folder in {local_folder(path) for path in paths} - {None}:
        try:
            os.makedirs(folder, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise OSError(f"cannot write to folder {folder}: {error.strerror}") from None


def local_folder(path: str) -> str | None:
    """Returns the folder of a file on this machine; None for a remote one or a device."""
    if is_remote(path) or (os.path.exists(path) and not os.path.isfile(path)):  # /dev/stdout
        return None
    return os.path.dirname(os.path.realpath(path))
