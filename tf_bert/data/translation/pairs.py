"""Parallel text: reading pairs of lines, cleaning them, and records of them. Works without TensorFlow.

A record is a ``tf.train.Example`` with ``source_ids`` and ``target_ids``, integers without padding, each with the end
symbol last and no start symbol. Beside each TFRecord file stands a ``.json`` that says which vocabularies made it and
how many pairs have which length, so that batches can be planned without reading the records.
"""

import collections
import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import google_crc32c

from tf_bert.data.text.lines import read_lines
from tf_bert.data.tfrecord.files import RecordWriter, encode_example
from tf_bert.data.tfrecord.sidecar import write_sidecar
from tf_bert.progress import Progress
from tf_bert.tokenization.subwords import symbols_of
from tf_bert.tokenization.vocabulary import vocab_sha256

KIND = "translation"


@dataclasses.dataclass(frozen=True)
class Cleaning:
    """Which pairs are left out; those with an empty side always are.

    Args:
        max_length: most pieces of a side, the end symbol among them.
        max_ratio: most pieces of one side for a piece of the other (9 in Moses's ``clean-corpus-n``); 0 for any. A
            ratio within 1e-9 of it is allowed, since 2.3 * 50 is less than 115 in floating point.
    """

    max_length: int = 128
    max_ratio: float = 9.0

    def problem(self, source: Sequence[int], target: Sequence[int]) -> str | None:
        """Why a pair of ids (the end symbols left off) is left out, or None.

        Example:
            >>> Cleaning(max_length=4).problem([5] * 4, [6])
            'too long'
        """
        if not source or not target:
            return "empty"
        if max(len(source), len(target)) >= self.max_length:
            return "too long"
        longest, most = max(len(source), len(target)), self.max_ratio * min(len(source), len(target))
        if self.max_ratio and longest > most and not math.isclose(longest, most):
            return "lengths too different"
        return None


@dataclasses.dataclass
class PairCounts:
    """What became of the pairs.

    Attributes:
        kept: pairs written.
        skipped: reason -> pairs left out.
        source_pieces, target_pieces: pieces of the pairs written, without end symbols.
        unknown: how many of these are the unknown symbol.
        lengths: length of the longer side, the end symbol counted -> pairs.
    """

    kept: int = 0
    skipped: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    source_pieces: int = 0
    target_pieces: int = 0
    unknown: int = 0
    lengths: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def summary(self, name: str) -> str:
        """Returns a line about pairs written under a name."""
        skipped = "".join(f", {number:,} skipped ({reason})" for reason, number in sorted(self.skipped.items()))
        pieces = self.source_pieces + self.target_pieces
        return (
            f"{name:8} {self.kept:,} pairs{skipped or ', none skipped'}; {self.source_pieces / self.kept:.1f} and "
            f"{self.target_pieces / self.kept:.1f} pieces a side, {self.unknown / max(pieces, 1):.2%} of them unknown"
        )


def read_pairs(
    source_files: Sequence[str],
    target_files: Sequence[str] | None = None,
    columns: tuple[int, int] = (1, 2),
    progress: Progress | None = None,
) -> Iterator[tuple[str, str]]:
    """Yields pairs of texts, from files line by line in parallel or from columns between tabs.

    Args:
        source_files: UTF-8 text, may be gzipped.
        target_files: as many files of as many lines; None where ``source_files`` are tables.
        columns: of a table, those of source and target; the first is 1.
        progress: is told of the bytes read.

    Raises:
        ValueError: files of unequal number or length, or a line without these columns, or with another number of
            columns than the first; file and line are named.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        ...     _ = file.write("a house\\tein Haus\\n")
        ...     file.flush()
        ...     list(read_pairs([file.name], columns=(2, 1)))
        [('ein Haus', 'a house')]
    """
    if target_files is None:
        for path in source_files:
            expected = None
            for number, line in enumerate(read_lines(path, progress), 1):
                cells = line.split("\t")
                expected = expected or len(cells)
                if len(cells) < max(columns):
                    raise ValueError(
                        f"{path}: line {number} has {len(cells)} column{'s' * (len(cells) > 1)} between tabs, expected "
                        f"at least {max(columns)}; give --target_file where the two sides are two files"
                    )
                if len(cells) != expected:
                    raise ValueError(
                        f"{path}: line {number} has {len(cells)} columns between tabs, expected {expected} as in line 1"
                    )
                yield cells[columns[0] - 1].strip(), cells[columns[1] - 1].strip()
        return
    if len(source_files) != len(target_files):
        raise ValueError(f"there are {len(source_files)} source files and {len(target_files)} target files")
    for source_path, target_path in zip(source_files, target_files, strict=True):
        source, target = read_lines(source_path, progress), read_lines(target_path, progress)
        number = 0
        while True:
            pair = next(source, None), next(target, None)
            if pair == (None, None):
                break
            number += 1
            if None in pair:
                shorter, longer = (source_path, target_path) if pair[0] is None else (target_path, source_path)
                raise ValueError(
                    f"{source_path} and {target_path} have not as many lines: {shorter} ends after line {number - 1}, "
                    f"and {longer} has a line {number}; the pairs before it may not belong together either"
                )
            yield pair[0].strip(), pair[1].strip()


def is_held_out(source: str, fraction: float) -> bool:
    """Whether a pair is held out: by its source text, so that equal sources fall on the same side in any order.

    Example:
        >>> sum(is_held_out(str(number), 0.1) for number in range(10000))
        1002
    """
    return google_crc32c.value(source.encode("utf-8")) < fraction * 2**32


def write_pairs(
    pairs: Iterable[tuple[str, str]],
    paths: Sequence[str],
    source_tokenizer,
    target_tokenizer,
    cleaning: Cleaning = Cleaning(),
    on_kept: Callable[[str, str], None] | None = None,
) -> PairCounts:
    """Writes records of the pairs that are clean, in turn to each of the files.

    Args:
        pairs: texts.
        paths: the shards.
        source_tokenizer: from `tf_bert.tokenization.subwords.load_subwords`.
        target_tokenizer: the same, or another one.
        cleaning: what is left out.
        on_kept: is called with the texts of each pair that is written.

    Raises:
        ValueError: no pair is left.
    """
    source_end, target_end = symbols_of(source_tokenizer)["end_id"], symbols_of(target_tokenizer)["end_id"]
    source_unknown, target_unknown = (symbols_of(t)["unknown_id"] for t in (source_tokenizer, target_tokenizer))
    counts = PairCounts()
    shards = [PairCounts() for _ in paths]
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(RecordWriter(path)) for path in paths]
        for source, target in pairs:
            ids = source_tokenizer.tokenize_to_ids(source), target_tokenizer.tokenize_to_ids(target)
            if problem := cleaning.problem(*ids):
                counts.skipped[problem] += 1
                continue
            shard = counts.kept % len(paths)
            record = {"source_ids": [*ids[0], source_end], "target_ids": [*ids[1], target_end]}
            writers[shard].write(encode_example(record))
            for count in (counts, shards[shard]):
                count.kept += 1
                count.source_pieces += len(ids[0])
                count.target_pieces += len(ids[1])
                count.unknown += ids[0].count(source_unknown) + ids[1].count(target_unknown)
                count.lengths[1 + max(map(len, ids))] += 1
            if on_kept:
                on_kept(source, target)
        if not counts.kept:
            reasons = ", ".join(f"{number} {reason}" for reason, number in counts.skipped.items())
            raise ValueError(f"no pair is left for {paths[0]}: {reasons or 'there are none'}")
    sidecar = _sidecar(source_tokenizer, target_tokenizer, cleaning)
    for path, count in zip(paths, shards, strict=True):
        write_sidecar(path, {**sidecar, **_counted(count)})
    return counts


def _sidecar(source_tokenizer, target_tokenizer, cleaning: Cleaning) -> dict:
    sidecar = {"kind": KIND, "max_length": cleaning.max_length, "max_ratio": cleaning.max_ratio}
    for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
        sidecar |= {
            f"{side}_vocab_file": os.path.basename(tokenizer.vocab_file),
            f"{side}_vocab_sha256": vocab_sha256(tokenizer.vocab_file),
            f"{side}_vocab_size": tokenizer.vocab_size,
        }
        basic = getattr(tokenizer, "basic_tokenizer", None)
        sidecar[f"{side}_do_lower_case"] = bool(basic and basic.do_lower_case)
    return sidecar


def _counted(count: PairCounts) -> Mapping[str, object]:
    return {
        "records": count.kept,
        "source_pieces": count.source_pieces,
        "target_pieces": count.target_pieces,
        "lengths": {str(length): count.lengths[length] for length in sorted(count.lengths)},
    }
