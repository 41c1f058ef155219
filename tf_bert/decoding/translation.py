"""Translates sources with one model or several: `generate` for ids, `translate` for text."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from tf_bert.backend import compiled
from tf_bert.decoding.beam import BeamSearch
from tf_bert.decoding.constraints import Constraints
from tf_bert.decoding.loop import DecodingLoop, Setup
from tf_bert.decoding.output_text import output_text, without_end
from tf_bert.decoding.sampling import Greedy, uniform_numbers
from tf_bert.tokenization.full import detokenize

BLANK = "\u2581"  # at the beginning of SentencePiece's pieces
BUCKETS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def bucket_length(length: int, limit: int | None = None) -> int:
    """A length that is at least as great, and one of few, so that few graphs are compiled.

    Example:
        >>> bucket_length(20), bucket_length(20, limit=22), bucket_length(2000)
        (24, 22, 2048)
    """
    bucket = next((bucket for bucket in BUCKETS if bucket >= length), -(-length // 512) * 512)
    return bucket if limit is None else min(bucket, limit)


def generate(
    models: Sequence[Any],
    source_ids,
    source_mask=None,
    search: Any = None,
    *,
    max_length: int | Sequence[int] | None = None,
    constraints: Constraints | None = None,
    prefix_ids=None,
    seeds: int | Sequence[int] = 0,
    jit_compile: bool = False,
) -> dict[str, np.ndarray]:
    """Writes a target for each source, with one compiled graph for all steps.

    Args:
        models: `Seq2Seq` or `Transformer` models of one vocabulary. The probabilities of several are averaged.
        source_ids: [B, S] integers filled up with ``pad_id``, or a list of lists of different lengths. A source of
            padding alone is allowed; what is written then follows from the target side alone.
        source_mask: [B, S], 1 for real positions; by default where ids are not ``pad_id``.
        search: `Greedy` (the default), `Sampling` or `BeamSearch`.
        max_length: most tokens, the end symbol among them, for all sources or each; by default twice the words of the
            source and 10, or ``min_length`` of the constraints if that is more.
        constraints: what may be generated. Padding and the start symbol never are.
        prefix_ids: what targets must begin with: [B, P] filled up with ``pad_id``, or a list of lists. It is part of
            the output, its length and its log-probability.
        seeds: for sampling: one for each source, or a single one from which source i gets ``seeds + i``.
        jit_compile: whether to compile with XLA, which pays for itself when many sources of like lengths follow.

    Returns:
        See `TranslationModel.generate`.

    Raises:
        ValueError: ids out of range, a source longer than the model allows, no room for the prefix or for
            ``min_length``, models of different vocabularies, or a coverage penalty for a model without attention.
    """
    search, constraints = search or Greedy(), constraints or Constraints()
    config = models[0].config
    constraints.check(config.vocab_size)
    check_models(models, bool(getattr(search, "coverage_penalty", 0)) and "coverage_penalty")
    ids, mask = prepare_source(models, source_ids, source_mask)
    limits = length_limits(models, max_length, mask, constraints.min_length)
    prefix = None if prefix_ids is None else pad_rows(prefix_ids, config.pad_id)
    check_prefix(prefix, limits, config)
    length = bucket_length(int(limits.max(initial=1)), models[0].max_target_length)
    constraints = dataclasses.replace(
        constraints, banned_ids=tuple({*constraints.banned_ids, config.pad_id, config.start_id} - {config.end_id})
    )
    uniform = None
    if not search.revises and hasattr(search, "temperature"):
        uniform = uniform_numbers(one_for_each("seeds", seeds, len(ids)), search.width, length)
    run = decoding_graph(tuple(models), search, constraints, length, jit_compile)
    arrays = (ids, mask, limits, prefix, uniform)
    results = run(*(None if array is None else ops.convert_to_tensor(array) for array in arrays))
    return trimmed({name: ops.convert_to_numpy(values) for name, values in results.items()})


def decoding_graph(models, search, constraints, length: int, jit_compile: bool):
    """The compiled function for these options, kept with the first model."""
    graphs = vars(models[0]).setdefault("_decoding_graphs", {})  # past Keras, which would take it for a part to save
    key = (tuple(map(id, models)), search, constraints, length, jit_compile)
    if key not in graphs:

        def run(source_ids, source_mask, limits, prefix, uniform):
            config = models[0].config
            parts = [model.start_decoding(source_ids, source_mask, search.width, length) for model in models]
            step, state = parts[0] if len(parts) == 1 else average(parts)
            setup = Setup(
                config.vocab_size,
                config.end_id,
                config.pad_id,
                length,
                limits,
                constraints,
                prefix=prefix,
                source_mask=source_mask,
                uniform=uniform,
                dtype="float64" if models[0].compute_dtype == "float64" else "float32",
            )
            start_ids = ops.full((ops.shape(source_ids)[0],), config.start_id, "int32")
            return DecodingLoop(step, search, setup).run(start_ids, state)

        graphs[key] = compiled(run, jit_compile)
    return graphs[key]


def average(parts):
    """Several step functions as one that averages their probabilities; the state has a part for each."""
    steps, states = zip(*parts, strict=True)

    def step(tokens, index, states):
        results = [step(tokens, index, state) for step, state in zip(steps, states, strict=True)]
        log_probs = ops.stack([ops.log_softmax(logits) for logits, _, _ in results])
        attention = sum(weights for _, _, weights in results) / len(results)
        return ops.logsumexp(log_probs, axis=0), tuple(state for _, state, _ in results), attention

    return step, states


def prepare_source(models, source_ids, source_mask) -> tuple[np.ndarray, np.ndarray]:
    """Checked ids and mask, filled up to a length that graphs are compiled for."""
    config = models[0].config
    ids = pad_rows(source_ids, config.pad_id)
    vocab_size = config.source_vocab_size or config.vocab_size
    if ids.size and not 0 <= ids.min() <= ids.max() < vocab_size:
        wrong = ids[(ids < 0) | (ids >= vocab_size)][0]
        raise ValueError(f"source_ids holds {wrong}, but there are {vocab_size} source words (0 to {vocab_size - 1})")
    mask = ids != config.pad_id if source_mask is None else np.asarray(source_mask, bool)
    if mask.shape != ids.shape:
        raise ValueError(f"source_mask has shape {mask.shape}, source_ids {ids.shape}")
    used = int(mask.any(axis=0).nonzero()[0].max(initial=-1)) + 1
    for model in models:
        model.check_source(used)
    limits = [model.max_source_length for model in models if model.max_source_length is not None]
    width = bucket_length(max(used, 1), min(limits, default=None))
    ids, mask = ids[:, :used], mask[:, :used]
    fill = ((0, 0), (0, width - used))
    return np.pad(ids, fill, constant_values=config.pad_id), np.pad(mask, fill)


def pad_rows(rows, pad_id: int) -> np.ndarray:
    """Rows of different lengths as one array of int32."""
    if not isinstance(rows, list | tuple):
        rows = ops.convert_to_numpy(rows)
    width = max((len(row) for row in rows), default=0)
    return np.array([[*row, *[pad_id] * (width - len(row))] for row in rows], "int32").reshape(len(rows), width)


def check_models(models, needs_attention: str | bool = False) -> None:
    """Raises ValueError for models that cannot write together, or lack the attention that an option needs."""
    sizes = [(model.config.source_vocab_size or model.config.vocab_size, model.config.vocab_size) for model in models]
    for size in sizes[1:]:
        if size != sizes[0]:
            raise ValueError(
                f"models that write together need equal vocabularies: one has {sizes[0]} source and target words, "
                f"another {size}"
            )
    if needs_attention and not all(model.has_attention for model in models):
        raise ValueError(f"{needs_attention} goes by where the decoder looks, and a model here has no attention")


def one_for_each(name: str, values, count: int) -> list[int]:
    """Seeds as given for each of ``count`` texts, or counted up from a single one."""
    if np.ndim(values) == 0:
        return [int(values) + i for i in range(count)]
    if len(values) != count:
        raise ValueError(f"there are {len(values)} {name} for {count} sources")
    return [int(value) for value in values]


def length_limits(models, max_length, mask, min_length: int = 0) -> np.ndarray:
    """The most tokens [B] of each target."""
    most = min((model.max_target_length for model in models if model.max_target_length is not None), default=None)
    if most is not None and min_length > most:
        raise ValueError(f"min_length is {min_length}, but the model has {most} positions")
    if max_length is None:
        limits = np.maximum(2 * mask.sum(axis=1) + 10, min_length)
        return np.minimum(limits, most or limits).astype("int32")
    limits = np.broadcast_to(np.asarray(max_length, "int32"), (len(mask),))
    if limits.min(initial=1) < 1:
        raise ValueError(f"max_length must be at least 1, got {limits.min()}")
    if limits.min(initial=min_length) < min_length:
        raise ValueError(f"max_length is {limits.min()}, but min_length {min_length}")
    if most is not None and limits.max(initial=0) > most:
        raise ValueError(f"max_length is {limits.max()}, but the model has {most} positions")
    return limits


def check_prefix(prefix, limits, config) -> None:
    """Raises ValueError for a prefix that is longer than the target may be, or not of target words."""
    if prefix is None:
        return
    if len(prefix) != len(limits):
        raise ValueError(f"there are {len(prefix)} prefixes for {len(limits)} sources")
    lengths = (prefix != config.pad_id).sum(axis=1)
    for i in np.flatnonzero(lengths > limits)[:1]:
        raise ValueError(f"prefix {i} has {lengths[i]} tokens, but max_length is {limits[i]}")
    if prefix.size and not 0 <= prefix.min() <= prefix.max() < config.vocab_size:
        raise ValueError(f"prefix_ids holds ids outside the {config.vocab_size} target words")
    for i in np.flatnonzero((prefix != config.pad_id).cumprod(axis=1).sum(axis=1) < lengths)[:1]:
        raise ValueError(f"prefix {i} has padding ({config.pad_id}) before a token: {prefix[i].tolist()}")


def trimmed(results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Without the columns that no hypothesis reaches."""
    longest = max(int(results["lengths"].max(initial=0)), 1)
    return {name: x[..., :longest] if x.ndim == 3 else x for name, x in results.items()}


def translate(
    models: Sequence[Any],
    texts: Sequence[str],
    source_tokenizer,
    target_tokenizer=None,
    *,
    search: Any = None,
    batch_size: int = 32,
    copy_unknown: bool = False,
    **options,
) -> list[str]:
    """Translates texts; those of like lengths go together, the order of the results is that of the texts.

    Sources are given to the model with the end symbol behind them, as in training.

    Args:
        models: as for `generate`.
        texts: any number of them. One without any token becomes an empty text.
        source_tokenizer: with ``tokenize_to_ids``; with ``tokenize_with_offsets`` for ``copy_unknown``.
        target_tokenizer: with ``decode``, and ``convert_ids_to_tokens`` for ``copy_unknown``; by default the source's.
        search: a beam of 4 with length penalty 0.6 by default.
        batch_size: texts that are translated together.
        copy_unknown: whether to write, for an unknown piece, the piece of the source that it looked at most (Luong et
            al. 2015, section 4): a word where the vocabulary is one of words, else a part of one.
        **options: of `generate`; those that are given for each source are given for each text.

    Returns:
        As many texts, of the best hypothesis each.

    Raises:
        ValueError: as `generate`; ``copy_unknown`` for a model without attention.
    """
    check_models(models, copy_unknown and "copy_unknown")
    tokenizer, results = target_tokenizer or source_tokenizer, [""] * len(texts)
    constraints = (options.pop("constraints", None) or Constraints()).with_tokenizer(tokenizer)
    if copy_unknown and constraints.stops is not None:
        raise ValueError("copy_unknown writes words that stop_texts cannot see: take one of them")
    for indices, output, tokens in translate_batches(
        models,
        texts,
        source_tokenizer,
        search or BeamSearch(4, length_penalty=0.6),
        batch_size,
        constraints=constraints,
        **options,
    ):
        for row, i in enumerate(indices):
            ids = without_end(output["tokens"][row, 0, : output["lengths"][row, 0]], models[0].config.end_id)
            if copy_unknown:
                words = source_words(texts[i], source_tokenizer, tokenizer)[: len(tokens[row])]
                copied = copy_words(ids, output["alignments"][row, 0], words, models[0].config.unknown_id, tokenizer)
                written = getattr(tokenizer, "detokenize", detokenize)(copied)
                results[i] = written.replace(BLANK, " ").strip()  # SentencePiece leaves that of an unknown piece
            else:
                results[i] = output_text(ids, tokenizer, models[0].config.end_id, constraints)
    return results


def translate_batches(
    models, texts, tokenizer, search, batch_size, **options
) -> Iterator[tuple[list[int], dict, list]]:
    """Numbers of texts, what `generate` gives for them, and their ids; the longest come first."""
    end = models[0].config.end_id
    ids = [list(tokenizer.tokenize_to_ids(text)) for text in texts]
    # What belongs to a text goes with it into its batch; the second value is for rows that fill one up.
    own = {"seeds": (one_for_each("seeds", options.pop("seeds", 0), len(texts)), 0)}
    shortest = max((options.get("constraints") or Constraints()).min_length, 1)
    for name, filler in (("max_length", shortest), ("prefix_ids", [])):
        if not (options.get(name) is None or np.isscalar(options[name])):
            own[name] = list(options.pop(name)), filler
            if len(own[name][0]) != len(texts):
                raise ValueError(f"there are {len(own[name][0])} values of {name} for {len(texts)} texts")
    order = sorted((i for i in range(len(texts)) if ids[i]), key=lambda i: -len(ids[i]))
    for first in range(0, len(order), batch_size):
        indices = order[first : first + batch_size]
        rows = [[*ids[i], end] for i in indices]
        # The last batch is filled up, so that no graph is compiled for its size.
        filled = rows + [[end]] * (batch_size - len(rows)) if len(order) > batch_size else rows
        spare = len(filled) - len(rows)
        each = {name: [*(values[i] for i in indices), *[filler] * spare] for name, (values, filler) in own.items()}
        output = generate(models, filled, search=search, **options, **each)
        yield indices, output, rows


def source_words(text: str, source_tokenizer, target_tokenizer) -> list[str]:
    """What each piece of a source stands for, written as a piece of the target's tokenizer."""
    _, offsets = source_tokenizer.tokenize_with_offsets(text)
    words = [text[start:end] for start, end in offsets]
    if not hasattr(target_tokenizer, "processor"):
        return words
    # SentencePiece writes a blank only where a piece begins with one.
    begins = [start == 0 or text[start - 1].isspace() for start, _ in offsets]
    return [BLANK + word if first else word for first, word in zip(begins, words, strict=True)]


def copy_words(ids, alignments, source_words: Sequence[str], unknown_id: int, tokenizer) -> list[str]:
    """Target tokens with unknown words replaced by the words of the source at ``alignments``.

    Example:
        >>> from types import SimpleNamespace
        >>> tokenizer = SimpleNamespace(convert_ids_to_tokens=lambda ids: ["a", "[UNK]", "b"])
        >>> copy_words([5, 1, 6], [0, 1, 2], ["Ein", "Zug"], 1, tokenizer)
        ['a', 'Zug', 'b']
    """
    tokens = list(tokenizer.convert_ids_to_tokens(ids))
    for position, token_id in enumerate(ids):
        if token_id == unknown_id and alignments[position] < len(source_words):
            tokens[position] = source_words[alignments[position]]
    return tokens
