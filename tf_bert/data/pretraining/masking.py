"""Masked-LM predictions as the original draws them: which tokens are hidden, and what stands in their place.

Tokens may be strings or ids; a `TokenKinds` says which of them are special. Everything random comes from one
``random.Random``, in the original's order, so that equal seeds give equal masks.
"""

import functools
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TokenKinds:
    """What has to be known about tokens to pair and mask them, be they strings or ids.

    Args:
        cls: the token at the start of a sequence.
        sep: the token at the end of a segment.
        mask: the token that hides another.
        continues_word: says of a token whether it belongs to the same word as the token before it.
    """

    cls: Any = "[CLS]"
    sep: Any = "[SEP]"
    mask: Any = "[MASK]"
    continues_word: Callable[[Any], bool] = lambda token: token.startswith("##")


STRINGS = TokenKinds()


def shuffle(items: list, rng: random.Random) -> None:
    """``rng.shuffle(items)``, draw for draw, at two and a half times its speed.

    `random.Random.shuffle` swaps item i with an item j <= i, for i from the last to the second; j is the first draw
    of as many bits as i + 1 has that is not beyond i. CPython 3.11 to 3.13 do the same, with two calls a draw more.
    Shuffling the positions of every sequence is most of the work of making data.

    Example:
        >>> ours, theirs = list(range(300)), list(range(300))
        >>> shuffle(ours, random.Random(7))
        >>> random.Random(7).shuffle(theirs)
        >>> ours == theirs
        True
    """
    getrandbits = rng.getrandbits
    i = len(items) - 1
    while i > 0:
        bits = (i + 1).bit_length()
        least = (1 << (bits - 1)) - 1  # the last i for which i + 1 has this many bits
        for i in range(i, least - 1, -1):  # noqa: B020
            j = getrandbits(bits)
            while j > i:
                j = getrandbits(bits)
            items[i], items[j] = items[j], items[i]
        i = least - 1


def create_masked_lm_predictions(
    tokens: Sequence,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    vocab_words: Sequence,
    rng: random.Random,
    do_whole_word_mask: bool = False,
    *,
    max_ngram: int = 1,
    kinds: TokenKinds = STRINGS,
) -> tuple[list, list[int], list]:
    """Chooses the tokens to predict and hides them.

    Of the chosen tokens 80 % become [MASK], 10 % a random entry of ``vocab_words`` and 10 % stay; which, is drawn for
    each token apart, also inside a word. The label is always the token that stood there, and all three count in the
    loss: a chosen token that stays is not a fault.

    The number of predictions is ``min(max_predictions_per_seq, max(1, round(len(tokens) * masked_lm_prob)))``, halves
    rounded to even. A word that does not fit in what is left of it is passed over, so that whole-word masking may end
    with fewer, and with none where every word is too long.

    Args:
        tokens: [CLS] A [SEP] B [SEP], strings or ids.
        masked_lm_prob: share of the tokens to predict.
        max_predictions_per_seq: the most tokens to predict.
        vocab_words: what random replacements are drawn from. The original takes the whole vocabulary, special tokens
            too; `without_special_tokens` leaves those out.
        rng: source of all draws.
        do_whole_word_mask: whether the pieces of a word are chosen together. A word is a piece with the ``##`` pieces
            that follow it, as in the original; that makes no difference in text without ``##``, such as Chinese,
            unless ``kinds`` knows of other word boundaries. Also as in the original, a ``##`` piece that truncation
            left at the start of segment B belongs to the last word of segment A.
        max_ngram: the longest run of neighbouring words that is chosen as one. 1 is the original; with more, the
            length n of each run is drawn with probability proportional to 1 / n, and a run ends before [SEP].
        kinds: what the special tokens are.

    Returns:
        The tokens as the model sees them, the chosen positions in ascending order, and their labels.

    Source: Devlin et al. 2018, section 3.1, and ``create_masked_lm_predictions`` of google-research/bert; runs of
    words: Lan et al. 2019 (ALBERT), section 4.1.

    Example:
        >>> tokens = "[CLS] the quick brown fox [SEP] jumps [SEP]".split()
        >>> create_masked_lm_predictions(tokens, 0.3, 5, ["a", "b"], random.Random(1))
        (['[CLS]', 'the', 'quick', '[MASK]', '[MASK]', '[SEP]', 'jumps', '[SEP]'], [3, 4], ['brown', 'fox'])
    """
    words = maskable_words(tokens, do_whole_word_mask, kinds)
    if max_ngram > 1:
        words = _random_runs(words, max_ngram, rng)
    else:
        shuffle(words, rng)
    num_to_predict = min(max_predictions_per_seq, max(1, int(round(len(tokens) * masked_lm_prob))))

    output_tokens = list(tokens)
    positions: list[int] = []
    draw = rng.random
    room = num_to_predict
    for word in words:
        if not room:
            break
        if len(word) > room:
            continue
        room -= len(word)
        for index in word:
            if draw() < 0.8:
                output_tokens[index] = kinds.mask
            elif draw() >= 0.5:
                output_tokens[index] = vocab_words[rng.randint(0, len(vocab_words) - 1)]
            positions.append(index)
    positions.sort()
    return output_tokens, positions, [tokens[index] for index in positions]


def maskable_words(tokens: Sequence, do_whole_word_mask: bool, kinds: TokenKinds = STRINGS) -> list[tuple[int, ...]]:
    """Lists the words that may be hidden, each as the positions of its tokens; never [CLS] and [SEP].

    Example:
        >>> maskable_words("[CLS] un ##able to [SEP] go [SEP]".split(), do_whole_word_mask=True)
        [(1, 2), (3,), (5,)]
    """
    single = _single_positions(len(tokens).bit_length())[: len(tokens)]
    for place in sorted(_places_of(kinds.cls, tokens) + _places_of(kinds.sep, tokens), reverse=True):
        del single[place]
    if not do_whole_word_mask:
        return single
    words: list[tuple[int, ...]] = []
    for (i,) in single:
        if words and kinds.continues_word(tokens[i]):
            words[-1] += (i,)
        else:
            words.append((i,))
    return words


def _places_of(token: Any, tokens: Sequence) -> list[int]:
    places = [-1]
    for _ in range(tokens.count(token)):
        places.append(tokens.index(token, places[-1] + 1))
    return places[1:]


@functools.cache
def _single_positions(bits: int) -> list[tuple[int]]:
    """[(0,), (1,), ...] up to 2 ** bits, made once: to make each tuple takes as long as to choose among them."""
    return [(i,) for i in range(1 << bits)]


def _random_runs(words: list[tuple[int, ...]], max_ngram: int, rng: random.Random) -> Iterable[tuple[int, ...]]:
    """Yields runs of neighbouring words, from random places, none of which is in two runs."""
    lengths = range(1, max_ngram + 1)
    weights = [1 / n for n in lengths]
    starts = list(range(len(words)))
    shuffle(starts, rng)
    taken = [False] * len(words)
    for start in starts:
        end = start
        wanted = start + rng.choices(lengths, weights)[0]
        # Words are neighbours when nothing ([SEP]) stands between them.
        while end < min(wanted, len(words)) and not taken[end]:
            if end > start and words[end][0] != words[end - 1][-1] + 1:
                break
            end += 1
        if end > start:
            taken[start:end] = [True] * (end - start)
            yield sum(words[start:end], ())


def without_special_tokens(vocab_words: Iterable[str]) -> list[str]:
    """The entries of a vocabulary that stand for text: without [PAD], [UNK], [CLS], [SEP], [MASK] and [unused...].

    Example:
        >>> without_special_tokens(["[PAD]", "[unused7]", "[MASK]", "[", "the", "##s"])
        ['[', 'the', '##s']
    """
    return [word for word in vocab_words if not _SPECIAL_TOKEN.fullmatch(word)]


_SPECIAL_TOKEN = re.compile(r"\[(PAD|UNK|CLS|SEP|MASK|unused\d+)\]")
