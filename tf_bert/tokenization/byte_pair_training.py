"""Builds byte-pair vocabularies from text: ``encoder.json`` and ``vocab.bpe``, for `GPT2Tokenizer` and `GPT1Tokenizer`.

Beginning with single bytes or characters, the most frequent pair of neighbours is merged, until there are enough pieces
(Sennrich et al. 2016, section 3.2). Of equally frequent pairs the one whose pieces are older comes first, so that the
same words and counts give the same files.
"""

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from tf_bert.progress import Progress
from tf_bert.tokenization.basic import BasicTokenizer
from tf_bert.tokenization.byte_pair import GPT2_WORDS, text_bytes
from tf_bert.tokenization.byte_pair_vocabulary import (
    END_OF_TEXT,
    END_OF_WORD,
    UNKNOWN,
    Merge,
    bytes_to_unicode,
    save_byte_pairs,
)
from tf_bert.tokenization.vocabulary_training import Pairs

MAX_WORDS = 1_000_000
MAX_WORD_CHARACTERS = 1000  # a longer word is data in disguise, and would teach nothing but itself


@dataclasses.dataclass(frozen=True)
class BytePairs:
    """A vocabulary: pieces in the order of their ids, and merges in the order in which they apply."""

    pieces: Sequence[str]
    merges: Sequence[Merge]

    def save(self, folder: str | os.PathLike) -> tuple[str, str]:
        """Writes ``encoder.json`` and ``vocab.bpe`` into a folder, and returns their paths."""
        return save_byte_pairs(folder, self.pieces, self.merges)


def train_byte_pairs(
    texts: Iterable[str], vocab_size: int, *, min_frequency: int = 2, max_words: int = MAX_WORDS
) -> BytePairs:
    """Builds the vocabulary of a byte-level tokenizer; it has a piece for every byte, so that no text is unknown.

    Ids are as in GPT-2: the 256 bytes, then the merges in their order, then ``<|endoftext|>``.

    Args:
        texts: of any length; only the counts of their words are kept.
        vocab_size: number of pieces, at least 257; fewer come out where no pair occurs ``min_frequency`` times. 257
            gives a vocabulary of single bytes.
        min_frequency: what pairs must occur at least.
        max_words: different words held while counting; the rarer half is dropped beyond.

    Raises:
        ValueError: vocab_size is below 257.

    Example:
        >>> vocabulary = train_byte_pairs(["low lower lowest"], 259)
        >>> vocabulary.merges, vocabulary.pieces[-3:]
        ([('l', 'o'), ('lo', 'w')], ['lo', 'low', '<|endoftext|>'])
    """
    symbols = bytes_to_unicode()
    if vocab_size <= len(symbols):
        raise ValueError(f"vocab_size {vocab_size} is too small: 256 bytes and {END_OF_TEXT} take 257")
    counts = _count(map(GPT2_WORDS.findall, texts), max_words)
    words = {text_bytes(word).decode("latin-1").translate(symbols): count for word, count in counts.items()}
    room = vocab_size - len(symbols) - 1
    merges, pieces = _find_merges(words, list, room, min_frequency)
    return BytePairs([*symbols.values(), *pieces, END_OF_TEXT], merges)


def train_lower_cased_pairs(
    texts: Iterable[str], vocab_size: int, *, min_frequency: int = 2, max_words: int = MAX_WORDS
) -> BytePairs:
    """Builds the vocabulary of GPT-1's tokenizer: lower-cased words, whose last piece ends in ``</w>``.

    Ids: ``<unk>`` is 0, then the characters of the texts within a word and at its end, then the merges in their order.

    Args: as `train_byte_pairs`.

    Raises:
        ValueError: the characters alone do not fit.

    Example:
        >>> vocabulary = train_lower_cased_pairs(["Low slow"], 11)
        >>> vocabulary.pieces[-2:], vocabulary.merges
        (['lo', 'low</w>'], [('l', 'o'), ('lo', 'w</w>')])
    """
    words = _count(map(BasicTokenizer(do_lower_case=True).tokenize, texts), max_words)
    characters = sorted({char for word in words for char in word})
    first = [UNKNOWN, *characters, *(char + END_OF_WORD for char in characters)]
    if len(first) > vocab_size:
        raise ValueError(
            f"vocab_size {vocab_size} is too small: {len(characters)} characters in two forms and {UNKNOWN} take "
            f"{len(first)}"
        )
    merges, pieces = _find_merges(
        words, lambda word: [*word[:-1], word[-1] + END_OF_WORD], vocab_size - len(first), min_frequency
    )
    return BytePairs(first + pieces, merges)


def _count(words_of_texts: Iterable[Iterable[str]], max_words: int) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for words in words_of_texts:
        counts.update(words)
        if len(counts) > max_words:
            counts = Counter(dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: max_words // 2]))
    if not counts:
        raise ValueError("the text has no words to build a vocabulary from")
    return {word: count for word, count in counts.items() if len(word) <= MAX_WORD_CHARACTERS}


def _find_merges(
    words: Mapping[str, int], split: Callable[[str], Sequence[str]], room: int, min_frequency: int
) -> tuple[list[Merge], list[str]]:
    """Finds up to ``room`` new pieces, and the merges that make them."""
    merges, pieces = [], []
    with Progress("finding merges", total=room, unit="pieces") as progress:
        if room:
            for left, right, piece, is_new in Pairs(words, split).merges(min_frequency):
                merges.append((left, right))
                if is_new:
                    pieces.append(piece)
                    progress.update()
                if len(pieces) == room:
                    break
    return merges, pieces
