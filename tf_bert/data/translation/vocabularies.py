"""Vocabularies of parallel text: copied next to the records, or learned from the pairs that are not held out."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator

from tf_bert.data.translation.pairs import is_held_out
from tf_bert.files import copy_file
from tf_bert.tokenization.subwords import train_subwords


def copied(path: str, folder: str, name: str) -> str:
    """Puts a vocabulary next to the records, where training looks for it, under the name of one that is learned."""
    copy = os.path.join(folder, name + (".model" if path.endswith(".model") else ".txt"))
    copy_file(path, copy)
    return copy


@dataclasses.dataclass(frozen=True)
class Learner:
    """Learns vocabularies from parallel text.

    Args:
        pairs: yields all pairs (source, target) anew each time.
        folder: where vocabularies are written.
        vocab_size: pieces of each.
        do_lower_case: whether text is lower-cased.
        heldout_fraction: share of the pairs that are held out, and not learned from.
    """

    pairs: Callable[[], Iterable[tuple[str, str]]]
    folder: str
    vocab_size: int
    do_lower_case: bool
    heldout_fraction: float

    def __call__(self, name: str, subwords: str, *sides: int) -> str:
        """Learns a vocabulary of some sides (0: source, 1: target); returns its file."""

        def lines() -> Iterator[str]:
            for pair in self.pairs():
                if not is_held_out(pair[0], self.heldout_fraction):
                    yield from (pair[side] for side in sides)

        return train_subwords(lines, os.path.join(self.folder, name), subwords, self.vocab_size, self.do_lower_case)
