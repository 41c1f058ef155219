"""What a text asks of a small model that is pre-trained on it within ten minutes: tokenizer, length, steps."""

import dataclasses
import itertools
import math
import unicodedata
from collections.abc import Iterable

import regex

from tf_bert.configs import BertConfig
from tf_bert.files import atomic_writer
from tf_bert.tokenization.full import FullTokenizer

SAMPLE_LINES = 20_000
MOST_CHARACTERS = 20_000_000  # of a text; of a larger one documents are sampled

# Two cores make so many steps of 64 records of 32 tokens with a vocabulary of 1,500 in five to ten minutes.
STEPS, BATCH_SIZE, SHORT_LENGTH, LONG_LENGTH, VOCAB_SIZE = 3600, 64, 32, 64, 1500
_LONG_SENTENCE = 30  # tokens of a sentence, on average, of which two do not fit into the short length
_MOST_DUPES = 10
_DECOMPOSED_SHARE = 0.005
_WITH_ACCENTS = regex.compile(r"[\p{Latin}\p{Greek}\p{Cyrillic}]")


# Small enough to learn something in ten minutes: short sequences, since each position has to learn by itself which of
# the others are its neighbours, and no dropout. The published initializer_range of 0.02 suits a width of 768: kernels
# of a narrow model need larger values, or attention stays even for thousands of steps.
MODEL = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.08,
    "type_vocab_size": 2,
}
SMALL = 200_000  # bytes of a text of which a tenth may be one document
SENTENCE_WIDTH = 100  # columns of a sentence: about what a record of 32 tokens holds


@dataclasses.dataclass(frozen=True)
class Plan:
    """How to make records of a text and train on them.

    Args:
        max_seq_length: tokens in a record.
        max_predictions_per_seq: masked tokens in a record.
        num_train_steps: updates.
        dupe_factor: passes over the text when records are made; as many as the updates consume, ten at most.
    """

    max_seq_length: int
    max_predictions_per_seq: int
    num_train_steps: int
    dupe_factor: int


def keeps_accents(lines: Iterable[str]) -> bool:
    """Whether marks have to stay when a text is lower-cased: in Hindi, Thai, Japanese or Korean they are no accents.

    Decomposition takes a character of these scripts apart; in Latin, Greek and Cyrillic it splits off an accent.

    Example:
        >>> keeps_accents(["été, naïve"]), keeps_accents(["がんばって"]), keeps_accents(["今天天气很好"])
        (False, True, False)
    """
    total = changed = 0
    for line in itertools.islice(lines, SAMPLE_LINES):
        for character in line:
            decomposed = unicodedata.normalize("NFD", character)
            total += 1
            if decomposed != character or unicodedata.category(character) == "Mn":
                changed += not _WITH_ACCENTS.match(decomposed[0])
    return changed > _DECOMPOSED_SHARE * total


# Of the built-in text.
BUILTIN = Plan(max_seq_length=32, max_predictions_per_seq=5, num_train_steps=STEPS, dupe_factor=10)


def plan(lines: Iterable[str], tokenizer: FullTokenizer) -> Plan:
    """Chooses length and steps so that training takes as long as it does on the built-in text.

    Args:
        lines: sentences, empty lines between documents.
        tokenizer: with its vocabulary.
    """
    hidden_size, num_layers = MODEL["hidden_size"], MODEL["num_hidden_layers"]
    lines = iter(lines)
    counts = [len(tokenizer.tokenize_to_ids(line)) for line in itertools.islice(filter(None, lines), SAMPLE_LINES)]
    mean = sum(counts) / max(len(counts), 1)
    rest = sum(1 for line in lines if line)
    length = LONG_LENGTH if mean > _LONG_SENTENCE else SHORT_LENGTH

    def multiplications(length: int, vocab_size: int) -> float:
        """Of the forward pass of one record."""
        encoder = length * num_layers * (12 * hidden_size**2 + 2 * length * hidden_size)
        return encoder + _predictions(length) * (hidden_size**2 + hidden_size * vocab_size)

    cost = multiplications(length, tokenizer.vocab_size) / multiplications(SHORT_LENGTH, VOCAB_SIZE)
    steps = min(STEPS, max(100, round(STEPS / cost / 100) * 100))
    records_of_a_pass = max(1.0, mean * (len(counts) + rest) / (length - 3))
    dupes = math.ceil(steps * BATCH_SIZE / records_of_a_pass)
    return Plan(length, _predictions(length), steps, min(max(dupes, 1), _MOST_DUPES))


def _predictions(length: int) -> int:
    return math.ceil(0.15 * length)


def shares(size: int) -> list[str]:
    """Flags of ``prepare_corpus`` for a text of so many bytes, which may be too large for ten minutes, or small."""
    if size < SMALL:
        return ["--heldout_fraction=0.25"]
    if size <= MOST_CHARACTERS:
        return []
    print(f"the corpus has {size / 1e6:,.0f} MB, more than ten minutes can use: documents of about 20 MB are taken")
    return [f"--sample_fraction={MOST_CHARACTERS / size:.3g}"]


def write_config(path: str, vocab_size: int, length: int) -> None:
    """Writes the configuration of the small model."""
    with atomic_writer(path, "w") as file:
        file.write(BertConfig(vocab_size, **MODEL, max_position_embeddings=length).to_json_string())
