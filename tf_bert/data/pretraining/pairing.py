"""Pairs of segments from the sentences of documents, as the original draws them.

Tokens may be strings or ids. Everything random comes from one ``random.Random``, in the original's order.
"""

import random
from collections.abc import Callable, Iterator, Sequence

from tf_bert.data.pretraining.instances import InstanceCounts, TrainingInstance
from tf_bert.data.pretraining.masking import STRINGS, TokenKinds, create_masked_lm_predictions
from tf_bert.options import option, options_class

LONGEST = 1 << 15  # tokens of a record


@options_class
class InstanceOptions:
    """How instances are made. The defaults are the original's flags.

    The original takes any value: it predicts nothing where ``max_predictions_per_seq`` is 0, as here, and ends in an
    assertion where ``max_seq_length`` is below 5; a probability outside 0 to 1 means nothing there either.
    """

    max_seq_length: int = option(128, "Tokens in a record, [CLS] and [SEP] included.", minimum=5, maximum=LONGEST)
    max_predictions_per_seq: int = option(
        20, "The most masked tokens of a record, about max_seq_length * masked_lm_prob.", minimum=0
    )
    masked_lm_prob: float = option(
        0.15, "Share of the tokens that are masked; in each record, one at least.", minimum=0.0, maximum=1.0
    )
    short_seq_prob: float = option(
        0.1, "Share of the documents, in each pass, that are cut into shorter records.", minimum=0.0, maximum=1.0
    )
    do_whole_word_mask: bool = option(False, "Whether to mask all pieces of a word together.")
    max_ngram: int = option(
        1,
        "The longest run of words masked together; runs of n words are drawn in proportion to 1/n. 1 is the original.",
        minimum=1,
    )
    next_sentence: bool = option(
        True, "Whether to make sentence pairs; --nonext_sentence makes [CLS] text [SEP] for masked LM alone."
    )
    masking: str = option(
        "static",
        "static masks now. dynamic writes unmasked records, which run_pretraining masks afresh in each epoch; a "
        "--dupe_factor of 1 is then enough.",
        choices=("static", "dynamic"),
    )
    packed_length: int | None = option(
        None,
        "Puts several examples into each record of this many tokens, so that hardly any is padding; each keeps "
        "positions, attention and targets of its own, and run_pretraining computes the same losses.",
        minimum=5,
        maximum=LONGEST,
    )

    def __post_init__(self):
        if self.packed_length is not None and self.packed_length < self.max_seq_length:
            raise ValueError(
                f"packed_length is {self.packed_length}, expected max_seq_length ({self.max_seq_length}) to {LONGEST}"
            )
        if self.masking == "dynamic" and self.max_ngram > 1:
            raise ValueError(f"max_ngram is {self.max_ngram}, expected 1 with dynamic masking")


def another_document_as_original(document_index: int, n_documents: int, rng: random.Random) -> int:
    """Draws the document of a random segment B as the original does, at most ten times.

    So the current document is taken with probability ``n_documents ** -10``, which is kept for equal records: 1 in
    1,024 random pairs of a corpus of two documents. `tf_bert.data.pretraining.create_sharded` never does it.
    """
    for _ in range(10):
        other = rng.randint(0, n_documents - 1)
        if other != document_index:
            break
    return other


def instances_of_document(
    all_documents: Sequence[Sequence[Sequence]],
    document_index: int,
    options: InstanceOptions,
    vocab_words: Sequence,
    rng: random.Random,
    kinds: TokenKinds = STRINGS,
    another_document: Callable[[int, int, random.Random], int] = another_document_as_original,
    counts: InstanceCounts | None = None,
) -> Iterator[TrainingInstance]:
    """Yields the instances of one pass over a document.

    Sentences are gathered until they fill an instance. A random number of them, from the first on, is segment A. With
    probability 1/2, and always when there is only one sentence, segment B is random: it starts at a random sentence of
    another document, and what is left of the gathered sentences comes again. Otherwise B is what is left. Hence more
    than half of the labels are "random", and all of them in documents of a single sentence.

    Args:
        all_documents: documents of sentences of tokens, which may be strings or ids.
        document_index: which document.
        options: lengths and shares.
        vocab_words: what random replacements of tokens are drawn from.
        rng: source of all draws.
        kinds: what the special tokens are.
        another_document: draws the document of a random segment B, from (document_index, n_documents, rng).
        counts: is told of tokens that are cut off, and of long sentences.

    Source: ``create_instances_from_document`` of google-research/bert.
    """
    document = all_documents[document_index]
    n_special = 3 if options.next_sentence else 2  # [CLS] A [SEP] B [SEP], or [CLS] A [SEP]
    max_num_tokens = options.max_seq_length - n_special

    # Most instances are as long as possible, like what the model meets first; some are shorter, like fine-tuning.
    target_seq_length = max_num_tokens
    if rng.random() < options.short_seq_prob:
        target_seq_length = rng.randint(2, max_num_tokens)

    current_chunk: list[Sequence] = []
    current_length = 0
    i = 0
    while i < len(document):
        sentence = document[i]
        current_chunk.append(sentence)
        current_length += len(sentence)
        if i == len(document) - 1 or current_length >= target_seq_length:
            tokens_b: list = []
            is_random_next = False
            a_end = len(current_chunk)
            if not options.next_sentence:
                tokens_a = _joined(current_chunk)
            else:
                a_end = rng.randint(1, len(current_chunk) - 1) if len(current_chunk) >= 2 else 1
                tokens_a = _joined(current_chunk[:a_end])
                is_random_next = len(current_chunk) == 1 or rng.random() < 0.5
                if is_random_next:
                    other = all_documents[another_document(document_index, len(all_documents), rng)]
                    tokens_b = _random_segment(other, target_seq_length - len(tokens_a), rng)
                    i -= len(current_chunk) - a_end  # the rest of the chunk was not used: it is to come again
                else:
                    tokens_b = _joined(current_chunk[a_end:])
            gathered = len(tokens_a) + (0 if is_random_next else len(tokens_b))
            truncate_seq_pair(tokens_a, tokens_b, max_num_tokens, rng)
            cut_off = gathered - len(tokens_a) - (0 if is_random_next else len(tokens_b))
            if cut_off and counts is not None:
                counts.cut_off += cut_off
                used = current_chunk[:a_end] if is_random_next else current_chunk
                counts.long_sentences += sum(len(sentence) > max_num_tokens for sentence in used)
            yield _masked_instance(tokens_a, tokens_b, is_random_next, options, vocab_words, rng, kinds)
            current_chunk = []
            current_length = 0
        i += 1


def _joined(sentences: Sequence[Sequence]) -> list:
    return [token for sentence in sentences for token in sentence]


def _random_segment(document: Sequence[Sequence], target_length: int, rng: random.Random) -> list:
    """Whole sentences from a random one on, until there are enough tokens."""
    tokens: list = []
    for i in range(rng.randint(0, len(document) - 1), len(document)):
        tokens.extend(document[i])
        if len(tokens) >= target_length:
            break
    return tokens


def _masked_instance(
    tokens_a: list,
    tokens_b: list,
    is_random_next: bool,
    options: InstanceOptions,
    vocab_words: Sequence,
    rng: random.Random,
    kinds: TokenKinds,
) -> TrainingInstance:
    tokens = [kinds.cls, *tokens_a, kinds.sep]
    segment_ids = [0] * len(tokens)
    if options.next_sentence:
        tokens += [*tokens_b, kinds.sep]
        segment_ids += [1] * (len(tokens_b) + 1)
    if options.masking == "dynamic":
        return TrainingInstance(tokens, segment_ids, [], [], is_random_next)
    tokens, positions, labels = create_masked_lm_predictions(
        tokens,
        options.masked_lm_prob,
        options.max_predictions_per_seq,
        vocab_words,
        rng,
        options.do_whole_word_mask,
        max_ngram=options.max_ngram,
        kinds=kinds,
    )
    return TrainingInstance(tokens, segment_ids, positions, labels, is_random_next)


def truncate_seq_pair(tokens_a: list, tokens_b: list, max_num_tokens: int, rng: random.Random) -> None:
    """Cuts a pair down to ``max_num_tokens`` in place: a token at a time off the longer one, front or back by chance.

    Example:
        >>> a, b = list("abcdef"), list("xyz")
        >>> truncate_seq_pair(a, b, 6, random.Random(3))
        >>> a, b
        (['c', 'd', 'e'], ['x', 'y', 'z'])
    """
    length_a, length_b = len(tokens_a), len(tokens_b)
    front_a = front_b = 0
    while length_a + length_b > max_num_tokens:
        from_front = rng.random() < 0.5
        if length_a > length_b:
            length_a -= 1
            front_a += from_front
        else:
            length_b -= 1
            front_b += from_front
    tokens_a[:] = tokens_a[front_a : front_a + length_a]
    tokens_b[:] = tokens_b[front_b : front_b + length_b]
