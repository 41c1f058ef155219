"""Pre-training data from text of any size: bounded memory, any number of processes, runs that can be interrupted.

The work goes through a folder on disk, in three steps, each of which leaves finished files behind:

1. the text is tokenized into a `TokenStore`, which also is the index of documents;
2. blocks of neighbouring documents are made into instances. The draws of each pass over each document are seeded by
   (seed, document, pass), so that they depend on nothing else; segment B of a random pair comes from any other document
   of the corpus. The instances of a block are shuffled and dealt out to all shards;
3. each shard gathers its instances from all blocks, shuffles and writes them.

So every shard is a sample of the whole corpus and of all passes, in random order. Memory holds a block of instances in
step 2 and 12 bytes for each instance of one shard in step 3.

The folder takes about a third of the room of the records, and is removed when they are complete.
"""

import dataclasses
import functools
import hashlib
import json
import os
import random
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tf_bert.data.pretraining.corpus import CorpusCounts, LineEncoder, id_kinds, line_batches, lines_are_named
from tf_bert.data.pretraining.corpus_parts import PIECES, PieceStore
from tf_bert.data.pretraining.create import check_documents, replacement_ids
from tf_bert.data.pretraining.instance_records import ExampleEncoder
from tf_bert.data.pretraining.instances import InstanceCounts, InstanceStore, from_bytes, to_bytes, typecode_for
from tf_bert.data.pretraining.masking import shuffle
from tf_bert.data.pretraining.packing import RowSize, rows_of
from tf_bert.data.pretraining.pairing import InstanceOptions, instances_of_document
from tf_bert.data.pretraining.report import warn_about_corpus, warn_about_instances
from tf_bert.data.pretraining.token_store import TokenStore, TokenStoreWriter
from tf_bert.data.tfrecord.files import RecordWriter
from tf_bert.data.tfrecord.process_pool import Workers
from tf_bert.data.tfrecord.sidecar import read_sidecar, remove_sidecar, write_sidecar
from tf_bert.files import atomic_writer, exists, file_size, is_remote, open_binary, remove_folder
from tf_bert.json_files import read_json_object
from tf_bert.progress import Progress, say
from tf_bert.tokenization.vocabulary import vocab_size

INSTANCES_DEALT_AT_ONCE = 20_000
_COUNTS = len(dataclasses.fields(InstanceCounts))


def another_document(document_index: int, n_documents: int, rng: random.Random) -> int:
    """Draws the document of a random segment B: any but the current one, all equally likely."""
    other = rng.randrange(n_documents - 1)
    return other + (other >= document_index)


class ShardedRun:
    """The making of one set of sharded records.

    Args:
        files: text files.
        encoder: turns lines into ids.
        options: how instances are made.
        outputs: the files to write, one for each shard.
        work_folder: where the intermediate files go.
        dupe_factor: passes over the corpus.
        random_seed: of all draws.
        replace_with_special_tokens: see `create_training_instances`.
        documents_end_with_files: see `read_corpus`.
        sidecar: what goes into the file beside each shard, besides the options; a run is only continued when all of it
            is equal.

    Example:
        A corpus, made into four shards by two processes::

            run = ShardedRun(files, LineEncoder(tokenizer), InstanceOptions(), outputs, "data/work", sidecar={})
            corpus_counts, instance_counts = run.make(num_workers=2)
    """

    def __init__(
        self,
        files: Sequence[str],
        encoder: LineEncoder,
        options: InstanceOptions,
        outputs: Sequence[str],
        work_folder: str,
        *,
        dupe_factor: int = 10,
        random_seed: int = 12345,
        replace_with_special_tokens: bool = True,
        documents_end_with_files: bool = False,
        sidecar: Mapping[str, Any],
    ):
        self.files = list(files)
        self.encoder = encoder
        self.vocab = encoder.tokenizer.vocab
        self.options = options
        self.outputs = list(outputs)
        self.work_folder = work_folder
        self.dupe_factor = dupe_factor
        self.random_seed = random_seed
        self.documents_end_with_files = documents_end_with_files
        self.vocab_words = replacement_ids(self.vocab, replace_with_special_tokens)
        self.sidecar = dataclasses.asdict(options) | {"dupe_factor": dupe_factor, "random_seed": random_seed} | sidecar
        self._typecode = typecode_for(2 * vocab_size(self.vocab))

    def make(self, num_workers: int = 1) -> tuple[CorpusCounts, InstanceCounts] | None:
        """Makes the shards that are missing.

        Args:
            num_workers: number of processes; the records are the same whatever it is.

        Returns:
            Numbers for a summary, or None where every shard was there already.

        Raises:
            ValueError: for text of fewer documents than needed or fewer records than shards, and when the work folder
                belongs to a run with other settings.
            OSError: when something cannot be read or written.
        """
        missing = self.missing_shards()
        if not missing:
            return None
        self.take_work_folder()
        try:
            with Workers(self, num_workers) as workers:
                counts = self._make(missing, workers)
        except ValueError:  # about the text: there is nothing to go on with
            remove_folder(self.work_folder)
            raise
        remove_folder(self.work_folder)
        return counts

    def missing_shards(self) -> list[int]:
        """The shards that are not there yet, made by an equal run."""
        return [shard for shard in range(len(self.outputs)) if not self.is_done(shard)]

    def __call__(self, task: tuple[Callable, Any]) -> Any:
        """Does what a worker is told to: a method of this class and its argument."""
        method, argument = task
        return method(self, argument)

    def _make(self, missing: Sequence[int], workers: Workers) -> tuple[CorpusCounts, InstanceCounts]:
        corpus_counts = self._tokenize(workers)
        warn_about_corpus(corpus_counts, self.options)
        check_documents(corpus_counts.documents, self.options.next_sentence)

        n_blocks = self.corpus.n_blocks
        missing_blocks = [block for block in range(n_blocks) if not exists(self.block_path(block))]
        if len(missing_blocks) < n_blocks or len(missing) < len(self.outputs):
            say(
                f"going on with an interrupted run: {n_blocks - len(missing_blocks)} of {n_blocks} blocks and "
                f"{len(self.outputs) - len(missing)} of {len(self.outputs)} shards are done"
            )
        with Progress("making instances", len(missing_blocks), "blocks") as progress:
            for _ in workers.map((ShardedRun.make_block, block) for block in missing_blocks):
                progress.update()

        instance_counts = self.count_instances()
        warn_about_instances(corpus_counts, instance_counts, self.options, self.dupe_factor)
        with Progress("writing", len(missing), "shards") as progress:
            for _ in workers.map((ShardedRun.make_shard, shard) for shard in missing):
                progress.update()
        return corpus_counts, instance_counts

    def count_instances(self) -> InstanceCounts:
        """Counts the instances of all blocks.

        Raises:
            ValueError: there are fewer than shards.
        """
        blocks = range(self.corpus.n_blocks)
        counts = sum((counts for block in blocks for counts, _ in self._segments(block, 0)), InstanceCounts())
        if counts.instances < len(self.outputs):
            raise ValueError(
                f"{counts.instances} records for {len(self.outputs)} shards: some would be empty; "
                "use a smaller --num_shards"
            )
        return counts

    def __getstate__(self) -> dict[str, Any]:
        """What worker processes are sent: each opens the corpus itself."""
        return {name: value for name, value in self.__dict__.items() if name != "corpus"}

    @functools.cached_property
    def run_id(self) -> str:
        """A digest of all that the records depend on."""
        return hashlib.sha256(json.dumps(self._settings(), sort_keys=True).encode()).hexdigest()

    def _settings(self) -> dict[str, Any]:
        inputs = [
            [path, file_size(path), None if is_remote(path) else os.stat(path).st_mtime_ns] for path in self.files
        ]
        return self.sidecar | {
            "num_shards": len(self.outputs),
            "documents_end_with_files": self.documents_end_with_files,
            "input_files": inputs,
            "vocabulary": hashlib.sha256(json.dumps([self.vocab, self.vocab_words]).encode()).hexdigest(),
        }

    def is_done(self, shard: int) -> bool:
        """Whether a shard is there, made by an equal run."""
        output = self.outputs[shard]
        return read_sidecar(output).get("run") == self.run_id and (is_remote(output) or os.path.isfile(output))

    def take_work_folder(self) -> None:
        """Makes the folder, or finds out that it holds what an equal run has left."""
        path = os.path.join(self.work_folder, "settings.json")
        settings = json.loads(json.dumps(self._settings() | {"counts_of_a_segment": _COUNTS}))
        if exists(path):
            found = read_json_object(path)
            different = [key for key in settings if found.get(key) != settings[key]]
            if different:
                key = different[0]
                raise ValueError(
                    f"{self.work_folder} holds an unfinished run with other settings ({key}: {found.get(key)} there, "
                    f"{settings[key]} now): give the same flags to go on with it, or delete the folder"
                )
        elif os.path.isdir(self.work_folder) and os.listdir(self.work_folder):
            raise ValueError(f"{self.work_folder} holds other files; name another --work_folder")
        with atomic_writer(path, "w") as file:
            file.write(json.dumps(settings, indent=2) + "\n")

    def encode_lines(self, lines: Sequence[str]) -> tuple[array, array]:
        """Tokenizes lines, see `LineEncoder`."""
        return self.encoder(lines)

    def _tokenize(self, workers: Workers) -> CorpusCounts:
        done = os.path.join(self.work_folder, "corpus.json")
        if not exists(done):
            batches = line_batches(self.files, self.documents_end_with_files)
            with lines_are_named(self.files), TokenStoreWriter(self.work_folder, self.vocab) as writer:
                for ids, lengths in workers.map((ShardedRun.encode_lines, batch) for batch in batches):
                    writer.extend(ids, lengths)
            with atomic_writer(done, "w") as file:
                file.write(json.dumps(dataclasses.asdict(writer.counts)))
        return CorpusCounts(**read_json_object(done))

    @functools.cached_property
    def corpus(self) -> TokenStore | PieceStore:
        """The tokenized text, once it is there."""
        if exists(os.path.join(self.work_folder, PIECES)):
            return PieceStore(self.work_folder, self.vocab)
        return TokenStore(self.work_folder, self.vocab)

    def block_path(self, block: int) -> str:
        """Where the instances of a block go."""
        return os.path.join(self.work_folder, f"block-{block:07}")

    def make_block(self, block: int) -> None:
        """Makes the instances of a block of documents, all passes, into a file of segments.

        A segment is up to 20,000 instances, grouped by shard: counts, where the group of each shard begins, instances.
        """
        kinds = id_kinds(self.vocab)
        rng = random.Random()
        packed: list[bytes] = []
        counts, in_block = InstanceCounts(), InstanceCounts()
        n_segments = 0
        with atomic_writer(self.block_path(block)) as file:
            for number_of_pass in range(self.dupe_factor):
                for document in self.corpus.block(block):
                    rng.seed(f"{self.random_seed} document {document} pass {number_of_pass}")
                    for instance in instances_of_document(
                        self.corpus, document, self.options, self.vocab_words, rng, kinds, another_document, in_block
                    ):
                        packed.append(to_bytes(instance, self._typecode))
                        counts.add(instance)
                        if len(packed) == INSTANCES_DEALT_AT_ONCE:
                            file.write(self._dealt(packed, counts, f"block {block} segment {n_segments}"))
                            packed, counts, n_segments = [], InstanceCounts(), n_segments + 1
            counts += in_block
            file.write(self._dealt(packed, counts, f"block {block} segment {n_segments}"))

    def _dealt(self, packed: list[bytes], counts: InstanceCounts, name: str) -> bytes:
        rng = random.Random(f"{self.random_seed} {name}")
        shuffle(packed, rng)
        n_shards = len(self.outputs)
        first = rng.randrange(n_shards)
        groups = [b"".join(packed[(shard - first) % n_shards :: n_shards]) for shard in range(n_shards)]
        ends = array("Q", [0])
        for group in groups:
            ends.append(ends[-1] + len(group))
        return b"".join([array("Q", dataclasses.astuple(counts)).tobytes(), ends.tobytes(), *groups])

    def _segments(self, block: int, shard: int) -> Iterator[tuple[InstanceCounts, bytes]]:
        """Yields the counts of each segment of a block, and the instances that are for one shard."""
        header = array("Q").itemsize * (_COUNTS + len(self.outputs) + 1)
        with open_binary(self.block_path(block)) as file:
            while data := file.read(header):
                numbers = array("Q", data)
                ends = numbers[_COUNTS:]
                start = file.tell()
                file.seek(start + ends[shard])
                yield InstanceCounts(*numbers[:_COUNTS]), file.read(ends[shard + 1] - ends[shard])
                file.seek(start + ends[-1])

    def make_shard(self, shard: int) -> None:
        """Gathers, shuffles and writes the instances of a shard."""
        instances = InstanceStore(self.vocab, None if is_remote(self.work_folder) else self.work_folder)
        for block in range(self.corpus.n_blocks):
            for _, packed in self._segments(block, shard):
                instances.extend_packed(packed)
        if not len(instances):
            raise ValueError(f"shard {shard} of {len(self.outputs)} would be empty; use a smaller --num_shards")
        instances.shuffle(random.Random(f"{self.random_seed} shard {shard}"))
        options = self.options
        encoder = ExampleEncoder(
            options.max_seq_length,
            options.max_predictions_per_seq,
            vocab_size(self.vocab),
            id_kinds(self.vocab) if options.masking == "dynamic" else None,
            RowSize.of(options),
        )
        if options.packed_length is None:
            records = (encoder.encode(from_bytes(one, self._typecode)) for one in instances.packed())
        else:
            rows = rows_of(instances.packed(), self._typecode, options)
            records = (encoder.encode_row([from_bytes(one, self._typecode) for one in row]) for row in rows)
        output, n_records = self.outputs[shard], 0
        with RecordWriter(output) as writer:
            for record in records:
                writer.write(record)
                n_records += 1
            remove_sidecar(output)
        write_sidecar(output, self.sidecar | {"records": n_records, "run": self.run_id})
