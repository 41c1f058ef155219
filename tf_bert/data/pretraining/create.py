"""Pre-training data from text: pairs of segments for next-sentence prediction, and masks.

For equal text, vocabulary, flags and seed the records are those of google-research/bert's
``create_pretraining_data.py``, in the same order in the same files. The functions keep its names and the order of its
arguments; what it read from global flags are arguments too. The algorithm runs over ids instead of strings, corpus and
instances are compact, and instances wait for the last shuffle in a temporary file, so that memory grows with the
corpus but not with ``dupe_factor``.

Source: Devlin et al. 2018, appendix A.2.
"""

import contextlib
import dataclasses
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tf_bert.data.pretraining.corpus import Corpus, LineEncoder, WordSplitter, id_kinds, read_corpus
from tf_bert.data.pretraining.instance_records import ExampleEncoder
from tf_bert.data.pretraining.instances import (
    InstanceStore,
    MaskedLmInstance,
    TrainingInstance,
    from_bytes,
    to_bytes,
    typecode_for,
)
from tf_bert.data.pretraining.masking import create_masked_lm_predictions, without_special_tokens
from tf_bert.data.pretraining.packing import RowSize, rows_of
from tf_bert.data.pretraining.pairing import InstanceOptions, instances_of_document, truncate_seq_pair
from tf_bert.data.pretraining.report import warn_about_instances
from tf_bert.data.tfrecord.files import RecordWriter, frame
from tf_bert.data.tfrecord.process_pool import Workers
from tf_bert.data.tfrecord.sidecar import remove_sidecar
from tf_bert.progress import Progress
from tf_bert.tokenization.vocabulary import check_special_tokens, vocab_size

__all__ = [
    "InstanceOptions",
    "InstanceStore",
    "MaskedLmInstance",
    "TrainingInstance",
    "create_instance_from_document",
    "create_instances_from_document",
    "create_masked_lm_predictions",
    "create_training_instances",
    "truncate_seq_pair",
    "write_instance_to_example_files",
]

_BATCH = 500


def create_instances_from_document(
    all_documents: Sequence[Sequence[Sequence[str]]],
    document_index: int,
    max_seq_length: int,
    short_seq_prob: float,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    vocab_words: Sequence[str],
    rng: random.Random,
    do_whole_word_mask: bool = False,
) -> list[TrainingInstance]:
    """Makes the instances of one pass over a document, as the original does.

    How, see `tf_bert.data.pretraining.pairing.instances_of_document`.

    Args:
        all_documents: documents of sentences of tokens.
        document_index: which document.
        max_seq_length, short_seq_prob, masked_lm_prob, max_predictions_per_seq, do_whole_word_mask: see
            `InstanceOptions`.
        vocab_words: what random replacements of tokens are drawn from.
        rng: source of all draws.

    Source: ``create_instances_from_document`` of google-research/bert.

    Example:
        >>> documents = [[["a", "b"], ["c", "d"]], [["x", "y", "z"]]]
        >>> instances = create_instances_from_document(documents, 0, 9, 0.0, 0.15, 1, ["a", "x"], random.Random(2))
        >>> [(len(instance.tokens), instance.is_random_next) for instance in instances]
        [(8, True), (8, True)]
    """
    options = InstanceOptions(
        max_seq_length, max_predictions_per_seq, masked_lm_prob, short_seq_prob, do_whole_word_mask
    )
    return list(instances_of_document(all_documents, document_index, options, vocab_words, rng))


create_instance_from_document = create_instances_from_document


def create_training_instances(
    input_files: Sequence[str],
    tokenizer,
    max_seq_length: int,
    dupe_factor: int,
    short_seq_prob: float,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    rng: random.Random,
    do_whole_word_mask: bool = False,
    *,
    max_ngram: int = 1,
    next_sentence: bool = True,
    masking: str = "static",
    replace_with_special_tokens: bool = True,
    documents_end_with_files: bool = False,
    split_words: WordSplitter | None = None,
    num_workers: int = 1,
    allow_single_document: bool = False,
    temporary_folder: str | None = None,
) -> InstanceStore:
    """Makes the instances of a corpus: ``dupe_factor`` passes over all documents, shuffled.

    Args:
        input_files: text files, one sentence a line and blank lines between documents.
        tokenizer: a `FullTokenizer`.
        dupe_factor: number of passes, each with other pairs and masks.
        max_seq_length, short_seq_prob, masked_lm_prob, max_predictions_per_seq, do_whole_word_mask, max_ngram,
            next_sentence, masking: see `InstanceOptions`.
        rng: source of all draws, such as ``random.Random(12345)``.
        replace_with_special_tokens: True as the original: random replacements come from the whole vocabulary. False
            leaves [CLS], [unused7] and the like out.
        documents_end_with_files: False as the original: a document goes on in the next file unless a blank line
            stands between.
        split_words: gives the words of a line, see `LineEncoder`.
        num_workers: processes that tokenize; the result is the same.
        allow_single_document: makes pairs from one document too, as the original does, with wrong labels.
        temporary_folder: where the instances lie; None takes the system's place for temporary files.

    Returns:
        A sequence of `TrainingInstance`, in a temporary file that vanishes with it.

    Raises:
        ValueError: for a vocabulary without the special tokens, text without a sentence, and when next-sentence data
            is asked for with fewer than two documents: a "random" segment would then come from the very same document.

    Source: ``create_training_instances`` of google-research/bert.
    """
    options = InstanceOptions(
        max_seq_length,
        max_predictions_per_seq,
        masked_lm_prob,
        short_seq_prob,
        do_whole_word_mask,
        max_ngram,
        next_sentence,
        masking,
    )
    if dupe_factor < 1:
        raise ValueError(f"dupe_factor is {dupe_factor}, expected 1 or more")
    check_special_tokens(tokenizer.vocab)
    corpus = read_corpus(
        input_files,
        LineEncoder(tokenizer, split_words),
        documents_end_with_files=documents_end_with_files,
        num_workers=num_workers,
    )
    return instances_of_corpus(
        corpus,
        tokenizer.vocab,
        options,
        dupe_factor,
        rng,
        replace_with_special_tokens,
        allow_single_document,
        temporary_folder,
    )


def instances_of_corpus(
    corpus: Corpus,
    vocab: Mapping[str, int],
    options: InstanceOptions,
    dupe_factor: int,
    rng: random.Random,
    replace_with_special_tokens: bool = True,
    allow_single_document: bool = False,
    temporary_folder: str | None = None,
) -> InstanceStore:
    """Makes the instances of a tokenized corpus, whose documents it shuffles in place.

    Arguments and errors: see `create_training_instances`.
    """
    if dupe_factor < 1:
        raise ValueError(f"dupe_factor is {dupe_factor}, expected 1 or more")
    check_documents(len(corpus), options.next_sentence and not allow_single_document)
    kinds = id_kinds(vocab)
    vocab_words = replacement_ids(vocab, replace_with_special_tokens)
    corpus.shuffle(rng)
    instances = InstanceStore(vocab, temporary_folder)
    with Progress("making instances", dupe_factor * len(corpus), "documents") as progress:
        for _ in range(dupe_factor):
            for document_index in range(len(corpus)):
                for instance in instances_of_document(
                    corpus, document_index, options, vocab_words, rng, kinds, counts=instances.counts
                ):
                    instances.append(instance)
                progress.update()
    instances.shuffle(rng)
    warn_about_instances(corpus.counts, instances.counts, options, dupe_factor)
    return instances


def check_documents(n_documents: int, needs_another: bool) -> None:
    """Stops where a corpus is too small.

    Decision: with a single document the original takes the "random" segment from that same document, sometimes the
    true continuation. Such labels are wrong, so this is an error here.

    Raises:
        ValueError: for no document, or a single one where another is needed.
    """
    if n_documents == 0:
        raise ValueError("the input holds no sentence: every line is blank or has no token")
    if n_documents == 1 and needs_another:
        raise ValueError(
            "the input is one document, but the random next sentences must come from another: put blank lines between "
            "documents, or pass --nonext_sentence to make data for masked LM alone"
        )


def replacement_ids(vocab: Mapping[str, int], with_special_tokens: bool = True) -> list[int]:
    """What random replacements are drawn from: the original's whole vocabulary, or only what stands for text."""
    return [vocab[word] for word in (vocab if with_special_tokens else without_special_tokens(vocab))]


def write_instance_to_example_files(
    instances: Sequence[TrainingInstance],
    tokenizer,
    max_seq_length: int,
    max_predictions_per_seq: int,
    output_files: Sequence[str],
    *,
    masking: str = "static",
    num_workers: int = 1,
    packed_length: int | None = None,
    masked_lm_prob: float = 0.15,
) -> list[int]:
    """Writes instances as TFRecords: instance k into file ``k % len(output_files)``.

    Each file appears under its name when all of them are complete; until then, and after an error, old ones stay.

    Args:
        instances: from `create_training_instances`, or any sequence of instances of tokens.
        tokenizer: has ``vocab`` and ``convert_tokens_to_ids``.
        max_seq_length, max_predictions_per_seq: the lengths of each record.
        output_files: paths of the TFRecord files.
        masking: ``"dynamic"`` writes the format without masks.
        num_workers: processes that serialize; the result is the same.
        packed_length: puts several instances into each record of this many tokens (see
            `tf_bert.data.pretraining.packing`); a record then goes to the next file, not an instance.
        masked_lm_prob: how many predictions an instance is going to have when it is packed without masks.

    Returns:
        The number of records in each file.

    Raises:
        ValueError: when there are fewer instances than files, or one does not fit in a record.
        OSError: when a file cannot be written; names it.
    """
    if len(instances) < len(output_files):
        raise ValueError(
            f"{len(instances)} records for {len(output_files)} output files: some would be empty; name fewer files"
        )
    vocab = tokenizer.vocab
    options = InstanceOptions(
        max_seq_length, max_predictions_per_seq, masked_lm_prob, masking=masking, packed_length=packed_length
    )
    encode = _FrameEncoder(
        ExampleEncoder(
            max_seq_length,
            max_predictions_per_seq,
            vocab_size(vocab),
            id_kinds(vocab) if masking == "dynamic" else None,
            RowSize.of(options),
        ),
        typecode_for(2 * vocab_size(vocab)),
    )
    if isinstance(instances, InstanceStore):
        packed = instances.packed()
    else:
        packed = (to_bytes(_with_ids(instance, tokenizer), encode.typecode) for instance in instances)
    if packed_length is not None:
        packed = rows_of(packed, encode.typecode, options)
    n_files = len(output_files)
    n_records = 0
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(RecordWriter(path)) for path in output_files]
        n_expected = len(instances) if packed_length is None else None
        progress = stack.enter_context(Progress("writing", n_expected, "records"))
        next_writer = itertools.cycle(writers)
        workers = stack.enter_context(Workers(encode, num_workers))
        for frames in workers.map(_batches(packed)):
            for framed in frames:
                next(next_writer).write_frames(framed)
            progress.update(len(frames))
            n_records += len(frames)
        if n_records < n_files:
            raise ValueError(f"{n_records} packed records for {n_files} output files: some would be empty; name fewer")
        for path in output_files:  # what it says of the old records would be wrong about the new ones
            remove_sidecar(path)
    return [len(range(place, n_records, n_files)) for place in range(n_files)]


class _FrameEncoder:
    """Turns packed instances into framed records, in whatever process."""

    def __init__(self, encoder: ExampleEncoder, typecode: str):
        self.encoder, self.typecode = encoder, typecode

    def __call__(self, packed: Iterable[bytes | list[bytes]]) -> list[bytes]:
        return [frame(self._encode(one)) for one in packed]

    def _encode(self, packed: bytes | list[bytes]) -> bytes:
        if self.encoder.row is None:
            return self.encoder.encode(from_bytes(packed, self.typecode))
        return self.encoder.encode_row([from_bytes(one, self.typecode) for one in packed])


def _batches(packed: Iterator) -> Iterator[list]:
    while batch := list(itertools.islice(packed, _BATCH)):
        yield batch


def _with_ids(instance: TrainingInstance, tokenizer) -> TrainingInstance:
    return dataclasses.replace(
        instance,
        tokens=tokenizer.convert_tokens_to_ids(instance.tokens),
        masked_lm_labels=tokenizer.convert_tokens_to_ids(instance.masked_lm_labels),
    )
