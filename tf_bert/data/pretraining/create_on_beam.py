"""Pre-training data on Apache Beam: the steps of `create_sharded` on many machines, with the same records to the bit.

Beam decides what is done where and does again what failed; what passes between the steps lies in the work folder, which
every worker has to reach (a shared disk, or ``gs://...``). So nothing is ever held by one machine: pieces of text are
tokenized apart; blocks of documents are made into instances, with random documents read from where they lie, not
joined; each shard is gathered from all blocks. Every file is written under another name and renamed when it is
complete, and what it holds depends on nothing but its number. A worker that dies, or two that do the same thing,
therefore leave no record twice, and none out.

Apache Beam is an extra (``pip install tf_bert[beam]``); TensorFlow is only needed for remote paths.
"""

import argparse
import contextlib
import difflib
import functools
import importlib
import logging
import os
import re
from collections.abc import Sequence

from tf_bert.data.pretraining.corpus import CorpusCounts
from tf_bert.data.pretraining.corpus_parts import cut, write_index, write_piece
from tf_bert.data.pretraining.create import check_documents
from tf_bert.data.pretraining.create_sharded import ShardedRun
from tf_bert.data.pretraining.instances import InstanceCounts
from tf_bert.data.pretraining.report import warn_about_corpus, warn_about_instances
from tf_bert.files import atomic_writer, exists, open_binary, remove_file, remove_folder
from tf_bert.progress import say

RUNNERS = ("DirectRunner", "FlinkRunner", "SparkRunner", "DataflowRunner")
FAULT = "fault.txt"  # in the work folder
_NEEDS = {
    "DataflowRunner": ("google.cloud.dataflow", "google.cloud.storage", "apitools"),
}
_EXTRAS = {"DataflowRunner": "apache-beam[gcp]"}
_SHOWN_BY_BEAM = re.compile(r"(?:^|\n)(\w+(?:Error|Exception)): (.+?)(?: \[while running|\n|$)")


def make(
    run: ShardedRun, runner: str = "DirectRunner", runner_flags: Sequence[str] = (), num_workers: int = 1
) -> tuple[CorpusCounts, InstanceCounts] | None:
    """Makes the shards of a run that are missing.

    Args:
        run: what to make; its ``work_folder`` is one that every worker can reach.
        runner: one of `RUNNERS`.
        runner_flags: Beam's own flags, such as ``--project=...`` or ``--flink_master=...``.
        num_workers: processes of the DirectRunner, unless a flag says otherwise, and workers of Dataflow; the other
            runners have flags for it.

    Returns:
        Numbers for a summary, or None where every shard was there already.

    Raises:
        ImportError: Beam, or what the runner needs, is not installed; says what to install.
        ValueError: a flag that Beam does not know; text that is too little; see `ShardedRun.make`.
        ChildProcessError: the job failed for another reason.
    """
    beam = import_beam(runner)
    options = pipeline_options(runner, runner_flags, num_workers)
    missing = run.missing_shards()
    if not missing:
        return None
    run.take_work_folder()
    with contextlib.suppress(FileNotFoundError):
        remove_file(os.path.join(run.work_folder, FAULT))  # of a job whose end nobody saw
    steps = Steps(run, missing, len(cut(run.files)))
    say(f"{runner}: {steps.n_pieces} pieces of text, {len(missing)} of {len(run.outputs)} shards to make")
    try:
        pipeline = beam.Pipeline(_local_runner(options) if runner == "DirectRunner" else runner, options)
        done = pipeline | beam.Create(range(steps.n_pieces))
        for work, then in (("tokenize", "blocks"), ("make_block", "shards"), ("make_shard", None)):
            done |= f"{work}: spread" >> beam.Reshuffle()
            done |= work >> beam.FlatMap(functools.partial(steps.attempt, work))
            if then:  # begins when all of it is done
                done |= f"{work}: all" >> beam.combiners.Count.Globally()
                done |= then >> beam.FlatMap(functools.partial(steps.attempt, then))
        pipeline.run().wait_until_finish()
    except Exception as error:
        raise _own_error(error) from error
    if fault := steps.fault():  # about the text: there is nothing to go on with
        remove_folder(run.work_folder)
        raise ValueError(fault)
    if left := run.missing_shards():
        raise ChildProcessError(f"{runner} ended without an error, but {run.outputs[left[0]]} is not there")
    counts = steps.counts()
    remove_folder(run.work_folder)
    return counts


class Steps:
    """What the workers do. An instance is sent to each; methods return their own argument, or what comes next.

    Args:
        run: what is made.
        missing: the shards to make.
        n_pieces: into how many pieces the text is cut.
    """

    def __init__(self, run: ShardedRun, missing: Sequence[int], n_pieces: int):
        self.run, self.missing, self.n_pieces = run, list(missing), n_pieces
        _ = run.run_id  # computed here once and for all: a worker may see other times of the input files

    def attempt(self, work: str, item: int) -> list[int]:
        """Calls a method. What is wrong with the text is noted: it would be as wrong if it were tried again."""
        path = os.path.join(self.run.work_folder, FAULT)
        if exists(path):
            return []
        try:
            results = getattr(self, work)(item)
        except ValueError as error:
            with atomic_writer(path, "w") as file:
                file.write(str(error))
            return []
        return [results] if isinstance(results, int) else list(results)

    def fault(self) -> str | None:
        """What was noted of the text."""
        try:
            with open_binary(os.path.join(self.run.work_folder, FAULT)) as file:
                return file.read().decode()
        except FileNotFoundError:
            return None

    def tokenize(self, piece: int) -> int:
        """Makes one piece of the corpus."""
        run = self.run
        write_piece(run.work_folder, piece, run.files, run.encoder, run.documents_end_with_files)
        return piece

    def blocks(self, _: int) -> range:
        """Numbers the documents, once all pieces are there; the numbers of the blocks."""
        counts = write_index(self.run.work_folder, self.n_pieces)
        check_documents(counts.documents, self.run.options.next_sentence)
        return range(self.run.corpus.n_blocks)

    def make_block(self, block: int) -> int:
        """Makes the instances of one block."""
        if not exists(self.run.block_path(block)):
            self.run.make_block(block)
        return block

    def shards(self, _: int) -> list[int]:
        """Counts, once all blocks are there; the numbers of the shards to write."""
        self.run.count_instances()
        return self.missing

    def make_shard(self, shard: int) -> int:
        """Writes one shard."""
        if not self.run.is_done(shard):
            self.run.make_shard(shard)
        return shard

    def counts(self) -> tuple[CorpusCounts, InstanceCounts]:
        """Numbers for a summary."""
        corpus_counts = self.run.corpus.counts
        warn_about_corpus(corpus_counts, self.run.options)
        instance_counts = self.run.count_instances()
        warn_about_instances(corpus_counts, instance_counts, self.run.options, self.run.dupe_factor)
        return corpus_counts, instance_counts


def import_beam(runner: str = "DirectRunner"):
    """Imports Apache Beam and what a runner needs.

    Raises:
        ImportError: one line that says what to install.
        ValueError: there is no such runner.
    """
    if runner not in RUNNERS:
        raise ValueError(f"runner is {runner!r}; known are {', '.join(RUNNERS)}")
    logging.disable(logging.WARNING)  # Beam warns of what it does without while it is imported
    try:
        beam = importlib.import_module("apache_beam")
    except ImportError as error:
        raise ImportError(
            f"--runner={runner} needs Apache Beam ({error}): pip install 'tf_bert[beam]', or in a clone "
            "pip install -e '.[beam]'"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    for module in _NEEDS.get(runner, ()):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ImportError(
                f"--runner={runner} needs {_EXTRAS[runner]} ({error}): pip install '{_EXTRAS[runner]}'"
            ) from None
    return beam


def pipeline_options(runner: str, flags: Sequence[str], num_workers: int = 1):
    """Beam's options from its own flags.

    Raises:
        ValueError: a flag that Beam does not know, with the nearest one that it does.
    """
    from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions

    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, conflict_handler="resolve")
    for options_class in (PipelineOptions, *PipelineOptions.__subclasses__()):
        options_class._add_argparse_args(parser)  # as Beam itself does, which passes over what it does not know
    _, unknown = parser.parse_known_args(list(flags))
    if unknown:
        name = unknown[0].split("=")[0]
        near = difflib.get_close_matches(name, parser._option_string_actions, 1)
        raise ValueError(
            f"neither tf_bert nor {runner} knows the flag {name}" + (f"; did you mean {near[0]}?" if near else "")
        )
    given = {flag.split("=")[0] for flag in flags}
    if runner == "DataflowRunner" and num_workers > 1:  # a flag of that name is Dataflow's too
        flags = [*flags, f"--num_workers={num_workers}"]
    if runner == "DirectRunner" and "--default_sdk_harness_log_level" not in given:
        flags = [*flags, "--default_sdk_harness_log_level=CRITICAL"]  # its workers print to this terminal
    options = PipelineOptions(list(flags))
    if runner == "DirectRunner" and num_workers > 1 and "--direct_num_workers" not in given:
        direct = options.view_as(DirectOptions)
        direct.direct_num_workers, direct.direct_running_mode = num_workers, "multi_processing"
    return options


def _local_runner(options):
    """What Beam's DirectRunner comes to after it has looked for another program on the network."""
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, FnApiRunner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle

    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # the error itself is shown, in one line
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return FnApiRunner(provision_info=ExtendedProvisionInfo(info))


def _own_error(error: Exception) -> Exception:
    """What a worker raised, in one line, from what Beam made of it: the last error in its report."""
    found = _SHOWN_BY_BEAM.findall(str(error)) or [(type(error).__name__, str(error))]
    name, message = found[-1]
    known = {kind.__name__: kind for kind in (ValueError, FileNotFoundError, PermissionError, OSError, KeyError)}
    message = message.split(" [while running")[0]
    return known[name](message) if name in known else ChildProcessError(f"the job failed: {name}: {message}")
