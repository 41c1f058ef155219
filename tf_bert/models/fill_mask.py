"""Finds the likeliest words for each [MASK] of a text."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from keras import ops

MASK = "[MASK]"


class Filling(NamedTuple):
    """A piece of the vocabulary for a [MASK], and its probability."""

    token: str
    probability: float


def fill_mask(
    model, tokenizer, texts: Sequence[str], top_k: int = 5, places: Sequence[str] | None = None
) -> list[list[list[Filling]]]:
    """Says which pieces are most likely at each [MASK] of some texts.

    Args:
        model: has ``config`` and gives ``masked_lm_logits`` at ``masked_lm_positions``, such as `BertForPreTraining`.
        tokenizer: a `FullTokenizer` with ``special_tokens_in_text``, so that [MASK] in a text is the mask.
        texts: each with at least one [MASK]; all masks of a text are filled at once, none knows of the others.
        top_k: how many pieces for each mask.
        places: where each text comes from, for messages; by default their numbers.

    Returns:
        For each text, for each of its masks in order: the ``top_k`` likeliest pieces, best first.

    Raises:
        ValueError: a text without a [MASK], or longer than the model's position table.
    """
    most = model.config.max_position_embeddings
    inputs = tokenizer.encode_batch(texts)  # [B, S]
    is_mask = inputs["input_ids"] == tokenizer.vocab[MASK]
    places = places or [f"text {number}" for number in range(len(texts))]
    for where, text, length, masks in zip(places, texts, inputs["input_mask"].sum(1), is_mask.sum(1), strict=True):
        if not masks:
            raise ValueError(
                f"{where}: there is no {MASK} in {text[:60]!r}: write {MASK} (in capitals) where a word is to be found"
            )
        if length > most:
            raise ValueError(f"{where} has {length} pieces, and the model reads {most}: {text[:60]!r}...")

    fillings = []
    for row, masks in enumerate(is_mask):
        positions = masks.nonzero()[0][None]  # [1, P]
        example = {name: value[row : row + 1] for name, value in inputs.items()} | {"masked_lm_positions": positions}
        logits = model(example, training=False)["masked_lm_logits"][0]  # [P, V]
        fillings.append(fillings_of(logits, tokenizer.inv_vocab, top_k))
    return fillings


def fillings_of(logits, pieces: Mapping[int, str], top_k: int) -> list[list[Filling]]:
    """The likeliest pieces by their scores [P, V], for each of P masks. A row of the table without a piece has none."""
    values, ids = ops.top_k(ops.softmax(ops.cast(logits, "float32")), min(top_k, logits.shape[-1]))  # [P, k]
    return [
        [Filling(pieces.get(int(i), f"[id {int(i)}]"), float(p)) for i, p in zip(best, ps, strict=True)]
        for best, ps in zip(ops.convert_to_numpy(ids), ops.convert_to_numpy(values), strict=True)
    ]
