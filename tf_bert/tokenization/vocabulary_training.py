"""Builds a ``vocab.txt`` from text.

BERT's WordPiece vocabularies were made with a tool that Google has not published. What is public is how one is used:
the longest piece that matches, from left to right, with ``##`` before a piece that continues a word. Here the pieces
are found as in byte-pair encoding (Sennrich et al., 2016, "Neural Machine Translation of Rare Words with Subword
Units", section 3.2): beginning with single characters, the most frequent pair of neighbours becomes a new piece, until
there are enough.
"""

import heapq
import itertools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tf_bert.progress import Progress
from tf_bert.tokenization.basic import BasicTokenizer
from tf_bert.tokenization.wordpiece import PREFIX, WordpieceTokenizer

MAX_WORD_CHARACTERS = 200  # WordpieceTokenizer makes [UNK] of longer words
_FLUSH_CHARACTERS = 1 << 23
_MANY_CHARACTERS = 1000  # more than any alphabet has: rare ones are not worth a row each
_PAIR_BITS = 24
_PAIR_MASK = (1 << _PAIR_BITS) - 1


class WordCounts:
    """Counts the words and characters of a text of any size in bounded memory.

    When more than ``max_words`` different words are held, the rarer half is dropped (a dropped word that comes again
    starts from zero). Characters are counted exactly, those of dropped words too.

    Args:
        tokenizer: says what a word is.
        max_words: how many different words are held at most; a million take some 150 MB.

    Attributes:
        words: how often each word occurs.
        characters: how often each character occurs.
        num_words: number of words read, with repetitions.
        num_dropped: number of times that a word was dropped for want of room.

    Example:
        >>> counts = WordCounts(BasicTokenizer(do_lower_case=True)).count(["The cat saw", "the dog."])
        >>> sorted(counts.words.items())
        [('.', 1), ('cat', 1), ('dog', 1), ('saw', 1), ('the', 2)]
    """

    def __init__(self, tokenizer: BasicTokenizer, max_words: int = 1_000_000):
        self.words: dict[str, int] = defaultdict(int)
        self.characters: Counter[str] = Counter()
        self.num_words = self.num_dropped = 0
        self._tokenizer, self._max_words = tokenizer, max_words

    def count(self, lines: Iterable[str]) -> "WordCounts":
        """Counts the words of all lines; to be called once."""
        # What stands between two spaces is tokenized by itself: once in so many characters of text, not each time it
        # occurs. The room is measured in characters, since in Chinese that is a whole clause and hardly comes again.
        raw_words: Counter[str] = Counter()
        characters = 0
        for line in lines:
            raw_words.update(line.split(" "))
            characters += len(line)
            if characters >= _FLUSH_CHARACTERS:
                self._add(raw_words)
                raw_words.clear()
                characters = 0
        self._add(raw_words)
        self._count_characters(self.words.items())
        return self

    def _add(self, raw_words: Mapping[str, int]) -> None:
        for raw_word, count in raw_words.items():
            for word in self._tokenizer.tokenize(raw_word):
                self.words[word] += count
                self.num_words += count
        if len(self.words) > self._max_words:
            ranked = sorted(self.words.items(), key=lambda item: (-item[1], item[0]))
            dropped = ranked[self._max_words // 2 :]
            for word, _ in dropped:
                del self.words[word]
            self._count_characters(dropped)
            self.num_dropped += len(dropped)

    def _count_characters(self, items: Iterable[tuple[str, int]]) -> None:
        for word, count in items:
            for character in word:
                self.characters[character] += count


def build_vocabulary(
    counts: WordCounts,
    vocab_size: int,
    *,
    tokenizer: BasicTokenizer,
    min_frequency: int = 2,
    character_coverage: float = 1.0,
    num_unused: int = 99,
) -> list[str]:
    """Builds the lines of a vocabulary file.

    The order is that of the published files: ``[PAD]`` (id 0), the unused entries (for words to be added later),
    ``[UNK] [CLS] [SEP] [MASK]`` (100 to 103 with 99 unused entries, as published), the characters by code point, the
    characters that continue a word, and the pieces in the order in which they were found.

    Every word counted, up to the tokenizer's limit of 200 characters, is made of pieces of the vocabulary, unless
    ``character_coverage`` leaves one of its characters out. The same counts give the same vocabulary.

    Args:
        counts: the words of the text.
        vocab_size: number of lines; fewer come out where the text has no more pieces of ``min_frequency``.
        tokenizer: the one that counted.
        min_frequency: pieces of several characters occur at least so often.
        character_coverage: share of the text's characters that the most frequent characters must make up to be kept;
            1.0 keeps all. 0.9995 leaves out the rare ones of Chinese or of text from the web.
        num_unused: number of entries ``[unused0]``, ``[unused1]`` ...

    Raises:
        ValueError: the text has no words, or its characters alone do not fit.

    Example:
        >>> tokenizer = BasicTokenizer(do_lower_case=True)
        >>> counts = WordCounts(tokenizer).count(["to be or not to be"])
        >>> build_vocabulary(counts, 19, tokenizer=tokenizer, num_unused=0)[5:]
        ['b', 'e', 'n', 'o', 'r', 't', '##b', '##e', '##n', '##o', '##r', '##t', 'be', 'to']
    """
    if not counts.words:
        raise ValueError("the text has no words to build a vocabulary from")
    special = ["[PAD]", *(f"[unused{i}]" for i in range(num_unused)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet, continuing = _characters_of(counts, tokenizer, character_coverage)
    vocabulary = special + alphabet + continuing
    if len(vocabulary) > vocab_size:
        raise ValueError(
            f"vocab_size {vocab_size} is too small: {len(special)} special and unused entries and "
            f"{len(alphabet)} characters in {len(alphabet) + len(continuing)} forms take {len(vocabulary)}; "
            "raise vocab_size, or lower character_coverage or num_unused"
        )
    kept = set(alphabet)
    words = {
        word: count
        for word, count in counts.words.items()
        if len(word) <= MAX_WORD_CHARACTERS and (character_coverage == 1.0 or kept.issuperset(word))
    }
    room = vocab_size - len(vocabulary)
    pieces = merge_pairs(words, room + room // 5, min_frequency)
    return vocabulary + _most_used(pieces, room, vocabulary, words)


def choose_size(
    counts: WordCounts, tokenizer: BasicTokenizer, num_unused: int = 0, num_pieces: int = 1300, largest: int = 8000
) -> tuple[int, float]:
    """Chooses the size of a small vocabulary: the characters first, then pieces of several.

    Args:
        counts: the words of the text.
        tokenizer: the one that counted.
        num_unused: see `build_vocabulary`.
        num_pieces: room for pieces of several characters.
        largest: the largest size; rare characters are left out until the others fit.

    Returns:
        ``vocab_size`` and ``character_coverage`` for `build_vocabulary`. The coverage is 1.0 where there are few
        characters, as in alphabets.

    Raises:
        ValueError: even the most frequent characters do not fit.

    Example:
        >>> tokenizer = BasicTokenizer(do_lower_case=True)
        >>> choose_size(WordCounts(tokenizer).count(["to be or not to be"]), tokenizer)
        (1317, 1.0)
    """
    for coverage in (1.0, 0.9999, 0.9995, 0.999, 0.995, 0.99, 0.98):
        alphabet, continuing = _characters_of(counts, tokenizer, coverage)
        size = 5 + num_unused + len(alphabet) + len(continuing) + num_pieces
        if size <= largest and (coverage < 1.0 or len(alphabet) <= _MANY_CHARACTERS):
            return size, coverage
    raise ValueError(
        f"the text has {len(counts.characters):,} different characters, and a vocabulary of {largest:,} has no room "
        f"even for those that make up 98 % of it: give vocab_size and character_coverage"
    )


def _characters_of(counts: WordCounts, tokenizer: BasicTokenizer, coverage: float) -> tuple[list[str], list[str]]:
    """The characters to keep, and those of them that may continue a word, with ``##``."""
    alphabet = choose_alphabet(counts.characters, coverage)
    # Punctuation and Chinese characters are words of their own and never continue one.
    return alphabet, [PREFIX + char for char in alphabet if len(tokenizer.tokenize("a" + char)) == 1]


def _most_used(pieces: list[str], number: int, vocabulary: list[str], words: Mapping[str, int]) -> list[str]:
    """The pieces that the longest match uses most, in their order.

    Some pieces were only steps to longer ones, as ``##io`` to ``##ion``. Finding a fifth more than wanted and leaving
    those out makes the pieces of a word 1 to 3 % fewer in vocabularies of 2,000 to 8,000.
    """
    if len(pieces) <= number:
        return pieces
    wordpiece = WordpieceTokenizer(vocabulary + pieces)
    uses: Counter[str] = Counter()
    for word, count in words.items():
        for piece in wordpiece.split_word(word):
            uses[piece] += count
    kept = set(sorted(pieces, key=lambda piece: -uses[piece])[:number])
    return [piece for piece in pieces if piece in kept]


def choose_alphabet(characters: Mapping[str, int], coverage: float) -> list[str]:
    """The most frequent characters that together make up ``coverage`` of the text (within 1e-9), by code point.

    Example:
        >>> choose_alphabet({"b": 90, "a": 9, "z": 1}, 0.99)
        ['a', 'b']
    """
    if coverage == 1.0:
        return sorted(characters)
    wanted, covered, chosen = coverage * sum(characters.values()), 0, []
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if covered >= wanted or math.isclose(covered, wanted):
            break
        chosen.append(character)
        covered += count
    return sorted(chosen)


def merge_pairs(words: Mapping[str, int], num_pieces: int, min_frequency: int = 2) -> list[str]:
    """Finds pieces by joining the most frequent pair of neighbouring pieces, again and again.

    A heap gives the most frequent pair, and every pair knows in which words it stands, so that a merge touches only
    the words that it changes. A count in the heap may be too high, for merges take occurrences away; it is put right
    when it comes to the top.

    Args:
        words: words and how often each occurs.
        num_pieces: how many pieces to find at most.
        min_frequency: pairs that occur less often are not joined.

    Returns:
        The new pieces in the order in which they were found, those that continue a word with ``##`` before them.
        Of equally frequent pairs the one whose pieces are older comes first (characters by code point), so that the
        result depends on the counts alone.

    Example:
        >>> merge_pairs({"low": 5, "lower": 2, "newest": 6, "widest": 3}, 4)
        ['##es', '##est', '##ow', 'low']
    """
    found: list[str] = []
    pairs = Pairs(words, _characters, lambda left, right: left + right.removeprefix(PREFIX))
    with Progress("finding pieces", total=num_pieces, unit="pieces") as progress:
        if num_pieces > 0:
            for _, _, piece, is_new in pairs.merges(min_frequency):
                if is_new:  # "un" + "##it" and "uni" + "##t" are the same piece
                    found.append(piece)
                    progress.update()
                if len(found) >= num_pieces:
                    break
    return found


class Pairs:
    """Words as lists of piece numbers, and the pairs of neighbours in them. A pair is one int: left << bits | right.

    Args:
        words: words and how often each occurs.
        split: the first pieces of a word, its characters.
        join: the piece that two neighbours become.
    """

    def __init__(
        self,
        words: Mapping[str, int],
        split: Callable[[str], Sequence[str]],
        join: Callable[[str, str], str] = operator.add,
    ):
        ranked = sorted(words)
        self.join = join
        self.pieces = sorted({piece for word in ranked for piece in split(word)})
        self.numbers = {piece: number for number, piece in enumerate(self.pieces)}
        self.words = [[self.numbers[piece] for piece in split(word)] for word in ranked]
        self.frequencies = [words[word] for word in ranked]
        self.counts: defaultdict[int, int] = defaultdict(int)
        self.where: defaultdict[int, list[int]] = defaultdict(list)  # words, also such that no longer have the pair
        for place, (word, frequency) in enumerate(zip(self.words, self.frequencies, strict=True)):
            for left, right in itertools.pairwise(word):
                pair = left << _PAIR_BITS | right
                self.counts[pair] += frequency
                self.where[pair].append(place)

    def merges(self, min_frequency: int) -> Iterator[tuple[str, str, str, bool]]:
        """Joins the most frequent pair, again and again, until none occurs ``min_frequency`` times.

        Yields:
            The two pieces, what they became, and whether that is a new piece (it may have been made from others).
        """
        heap = [(-count, pair) for pair, count in self.counts.items() if count >= min_frequency]
        heapq.heapify(heap)
        while heap:
            negative, pair = heapq.heappop(heap)
            count = self.counts.get(pair, 0)
            if count != -negative:
                if min_frequency <= count < -negative:
                    heapq.heappush(heap, (-count, pair))
                continue
            known = len(self.pieces)
            for changed in self.merge(pair):
                if self.counts[changed] >= min_frequency:
                    heapq.heappush(heap, (-self.counts[changed], changed))
            left, right = self.pieces[pair >> _PAIR_BITS], self.pieces[pair & _PAIR_MASK]
            yield left, right, self.join(left, right), len(self.pieces) > known

    def merge(self, pair: int) -> set[int]:
        """Joins a pair in all words and returns the pairs that became more frequent."""
        left, right = pair >> _PAIR_BITS, pair & _PAIR_MASK
        piece = self.join(self.pieces[left], self.pieces[right])
        merged = self.numbers.setdefault(piece, len(self.pieces))
        if merged == len(self.pieces):
            self.pieces.append(piece)
        counts, where, grown = self.counts, self.where, set()
        for place in where.pop(pair):
            word, frequency = self.words[place], self.frequencies[place]
            for i in range(len(word) - 1):
                if word[i : i + 2] != [left, right]:
                    continue
                if i > 0:
                    before = word[i - 1] << _PAIR_BITS
                    counts[before | left] -= frequency
                    counts[before | merged] += frequency
                    where[before | merged].append(place)
                    grown.add(before | merged)
                if i + 2 < len(word):
                    after = word[i + 2]
                    counts[right << _PAIR_BITS | after] -= frequency
                    counts[merged << _PAIR_BITS | after] += frequency
                    where[merged << _PAIR_BITS | after].append(place)
                    grown.add(merged << _PAIR_BITS | after)
                word[i : i + 2] = [merged]
        del counts[pair]
        return grown


def _characters(word: str) -> list[str]:
    return [word[0], *(PREFIX + character for character in word[1:])]
