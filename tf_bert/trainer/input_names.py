"""Names of a model's inputs: the original's, two aliases of each that others use, and no other key."""

import difflib
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# The original's arguments and Hugging Face's keys -> ours. A model takes those whose right-hand side it has.
ALIASES = {
    "token_type_ids": "segment_ids",
    "attention_mask": "input_mask",
    "labels": "label_ids",
    "pair_token_type_ids": "pair_segment_ids",
    "pair_attention_mask": "pair_input_mask",
}
# What the records of other tasks hold for their losses. No output depends on it, so a model may be given records of
# another task; a key that is not listed here might have been meant to change the outputs.
OF_OTHER_TASKS = frozenset(
    (
        *("masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "next_sentence_labels"),
        *("start_positions", "end_positions", "unique_ids", "is_impossible"),
    )
)
LABELS = frozenset(
    ("label_ids", "label_weights", "is_real_example")
)  # likewise, for a model that learns nothing itself
# Names elsewhere -> ours that may be meant, where the nearest spelling would be another one. For messages only.
ELSEWHERE = {
    "token_ids": ("input_ids", "source_ids"),
    "input_ids": ("source_ids",),
    "input_mask": ("source_mask",),
    "padding_mask": ("input_mask", "source_mask"),
    "attention_mask": ("source_mask",),
    "mask": ("input_mask", "source_mask"),
    "encoder_token_ids": ("source_ids",),
    "encoder_padding_mask": ("source_mask",),
    "decoder_token_ids": ("target_ids",),
    "decoder_input_ids": ("target_ids",),
    "decoder_padding_mask": ("target_mask",),
    "decoder_attention_mask": ("target_mask",),
    "labels": ("masked_lm_ids", "target_ids", "start_positions"),
    "label_ids": ("masked_lm_ids", "target_ids", "start_positions"),
    "mask_positions": ("masked_lm_positions",),
    "mask_ids": ("masked_lm_ids",),
    "mask_weights": ("masked_lm_weights",),
}
ALWAYS = ("sample_weight",)  # what `fit` puts among the inputs
NEEDED = ("input_ids", "source_ids", "target_ids")  # by whatever model knows them


def named_inputs(
    inputs: Mapping[str, Any] | Any, known: Collection[str], model: str, learns: bool = True
) -> dict[str, Any]:
    """Returns the inputs under our names.

    It looks at keys, and at values only where one input is given under both of its names: it adds nothing to a graph.

    Args:
        inputs: as a user gave them.
        known: the names of the inputs that the model reads, in its calls and in its losses.
        model: its name in messages.
        learns: whether it has losses of its own.

    Returns:
        The inputs that the model reads. What belongs to the loss of another task is left out with a warning.

    Raises:
        ValueError: these are no inputs by name, ids are missing, the model has no such input, or one input is given
            twice with different values.

    Example:
        >>> named_inputs({"input_ids": [[2]], "token_type_ids": [[0]]}, ("input_ids", "segment_ids"), "Bert")
        {'input_ids': [[2]], 'segment_ids': [[0]]}
        >>> named_inputs({"input_ids": [[2]], "input_masks": [[1]]}, ("input_ids", "input_mask"), "Bert")
        Traceback (most recent call last):
        ...
        ValueError: Bert has no input 'input_masks'; did you mean 'input_mask'? It takes input_ids, input_mask (or
        attention_mask)
    """
    found, unread = {}, []
    needed = [name for name in NEEDED if name in known]
    if not isinstance(inputs, Mapping):
        kind = type(inputs).__name__
        raise ValueError(f"{model} takes a dict that holds {' and '.join(needed)}; found an object of type {kind}")
    for key, value in inputs.items():
        name = key if key in known or key in ALWAYS else ALIASES.get(key, key)
        if name not in known and name not in ALWAYS:
            if name not in OF_OTHER_TASKS and (learns or name not in LABELS):
                raise ValueError(f"{model} has no input {key!r}{_meant(key, known)} It takes {_listed(known)}")
            unread.append(key)
        elif name in found and not _same(found[name], value):
            both = " and ".join(repr(other) for other in inputs if other == name or ALIASES.get(other) == name)
            raise ValueError(f"{model} is given {both}, which are names of one input: leave one of them out")
        else:
            found[name] = value
    if not found.keys() >= set(needed):
        keys = ", ".join(map(str, inputs)) or "no input"
        raise ValueError(f"{model} takes a dict that holds {' and '.join(needed)}; found {keys}")
    if unread:
        warnings.warn(f"{model} does not read {', '.join(unread)}, which belong to another task", stacklevel=3)
    return found


def _meant(key: str, known: Collection[str]) -> str:
    """What the user probably meant, as the end of a message."""
    there = [*known, *ALWAYS, *(alias for alias, name in ALIASES.items() if name in known)]
    meant = {other: [name for name in names if name in there] for other, names in ELSEWHERE.items()}
    meant = {other: names[0] for other, names in meant.items() if names} | {name: name for name in there}
    nearest = difflib.get_close_matches(str(key).lower(), meant, 1, 0.5)
    return f"; did you mean {meant[nearest[0]]!r}?" if nearest else "."


def _listed(known: Collection[str]) -> str:
    """All names, with their aliases."""
    aliases = {name: alias for alias, name in ALIASES.items()}
    return ", ".join(f"{name} (or {aliases[name]})" if name in aliases else name for name in known)


def _same(first: Any, second: Any) -> bool:
    """Whether two values are known to be equal; in a graph nothing is known of them."""
    if first is second:
        return True
    if any(isinstance(x, keras.KerasTensor) or tf.is_symbolic_tensor(x) for x in (first, second)):
        return False
    return np.array_equal(np.asarray(first), np.asarray(second))
