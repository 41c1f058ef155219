"""Continues prompts with a GPT: `generate` and `stream` for ids, `generate_text` and `stream_text` for text."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from tf_bert.backend import compiled
from tf_bert.decoding.constraints import Constraints
from tf_bert.decoding.loop import DecodingLoop, Setup
from tf_bert.decoding.output_text import GrowingText, output_text
from tf_bert.decoding.sampling import Greedy, uniform_numbers
from tf_bert.decoding.translation import bucket_length, trimmed


def generate(
    model,
    prompts,
    search: Any = None,
    *,
    max_length: int | Sequence[int] = 64,
    constraints: Constraints | None = None,
    seeds: int | Sequence[int] = 0,
    sliding_window: bool = False,
    use_cache: bool = True,
    jit_compile: bool = False,
) -> dict[str, np.ndarray]:
    """Goes on with each prompt, with one compiled graph for all steps; a prompt gets in a batch what it gets alone.

    Args:
        model: a `GPT`.
        prompts: a list of lists of ids, of any lengths, or [B, P].
        search: `Greedy` (the default), `Sampling` or `BeamSearch`.
        max_length: most new tokens, the end token among them, for all prompts or each.
        constraints: what may be generated; the tokens of a prompt count as seen for its penalties.
        seeds: for sampling: one for each prompt, or a single one from which prompt i gets ``seeds + i``.
        sliding_window: what to do where prompt and new tokens are more than the context: by default that is an error;
            with it each token follows from the last ones that have room, whose positions move, so that nothing can be
            kept from step to step.
        use_cache: whether keys and values of earlier positions are kept; otherwise all are computed at each step.
        jit_compile: whether to compile with XLA, which pays for itself where many prompts of like lengths follow.

    Returns:
        A dict of numpy arrays: ``tokens`` [B, N, T], the new ones, best hypothesis first, behind the end the end token
        (0 for a model without one); ``lengths`` [B, N] with the end token counted; ``log_probs`` [B, N], what the model
        gives the new tokens; ``scores`` [B, N], what the search ranks by.

    Raises:
        ValueError: an empty prompt, an id out of range, or prompt and new tokens do not fit the context.
    """
    prepared = _Prepared(model, prompts, search, max_length, constraints, seeds, sliding_window, use_cache)
    graphs = vars(model).setdefault("_decoding_graphs", {})  # past Keras, which would take it for a part to save
    key = (*prepared.key, jit_compile)
    if key not in graphs:
        graphs[key] = compiled(lambda *arrays: run(model, prepared.key, *arrays), jit_compile)
    results = graphs[key](*prepared.tensors())
    return trimmed({name: ops.convert_to_numpy(values) for name, values in results.items()})


def stream(
    model,
    prompts,
    search: Any = None,
    *,
    max_length: int | Sequence[int] = 64,
    constraints: Constraints | None = None,
    seeds: int | Sequence[int] = 0,
    sliding_window: bool = False,
    use_cache: bool = True,
) -> Iterator[np.ndarray]:
    """The new tokens as they come: those that `generate` returns, step by step.

    Args:
        model, prompts, max_length, constraints, seeds, sliding_window, use_cache: see `generate`.
        search: `Greedy` (the default) or `Sampling`.

    Yields:
        [B, W], the next token of each hypothesis; of one that has ended the end token (0 for a model without one).

    Raises:
        ValueError: as `generate`, at once; or a search that revises what it chose.
    """
    prepared = _Prepared(model, prompts, search, max_length, constraints, seeds, sliding_window, use_cache)
    if prepared.search.revises:
        name = type(prepared.search).__name__
        raise ValueError(f"{name} may drop a hypothesis later: its tokens cannot be streamed")
    return _stream(model, prepared)


def _stream(model, prepared) -> Iterator[np.ndarray]:
    graphs = vars(model).setdefault("_decoding_graphs", {})
    search, constraints, length, sliding, use_cache = prepared.key

    def start(ids, mask):
        return model.start_decoding(ids, mask, search.width, length, sliding, use_cache)[1]

    def advance(ids, mask, limits, uniform, variables):
        step = model.decoding_step(ids, mask, search.width, length, sliding, use_cache)
        loop = DecodingLoop(step, search, _setup(model, prepared.key, ids, mask, limits, uniform))
        variables = loop.advance(*variables)
        return variables, loop.unfinished(*variables)

    key = (*prepared.key, "stream")
    if key not in graphs:
        graphs[key] = compiled(start), compiled(advance)
    start, advance = graphs[key]
    ids, mask, limits, uniform = prepared.tensors()
    setup = _setup(model, prepared.key, ids, mask, limits, uniform)
    variables = DecodingLoop(None, search, setup).start(ids[:, -1], start(ids, mask))
    going_on = bool(prepared.limits.max(initial=0) > 0)
    while going_on:
        variables, going_on = advance(ids, mask, limits, uniform, variables)
        yield ops.convert_to_numpy(ops.reshape(variables[1], (-1, search.width)))


def run(model, key, ids, mask, limits, uniform) -> dict[str, Any]:
    """All steps, for checked arguments as tensors; part of a graph.

    Args:
        model: a `GPT`.
        key: search, constraints, room for new tokens, whether the window slides, whether there is a cache.
        ids: [B, P], filled up on the left.
        mask: [B, P], true for real positions.
        limits: [B], most new tokens.
        uniform: see `Setup`.
    """
    search, _, length, sliding, use_cache = key
    step, state = model.start_decoding(ids, mask, search.width, length, sliding, use_cache)
    setup = _setup(model, key, ids, mask, limits, uniform)
    return DecodingLoop(step, search, setup).run(ids[:, -1], state)


def _setup(model, key, ids, mask, limits, uniform) -> Setup:
    constraints, length, config = key[1], key[2], model.config
    seen = None
    if constraints.need_seen:
        words = ops.one_hot(ids, config.vocab_size, dtype="bool")  # [B, P, V]
        seen = ops.any(ops.logical_and(words, ops.cast(mask, "bool")[:, :, None]), axis=1)
    no_end = -1  # no token is this one
    return Setup(
        config.vocab_size,
        no_end if config.end_id is None else config.end_id,
        config.end_id or 0,
        length,
        limits,
        constraints,
        seen=seen,
        uniform=uniform,
        dtype="float64" if model.compute_dtype == "float64" else "float32",
    )


class _Prepared:
    """Checked arguments: arrays for a graph, and what the graph is made for (``key``)."""

    def __init__(self, model, prompts, search, max_length, constraints, seeds, sliding_window, use_cache):
        config = model.config
        rows = [[int(token) for token in row] for row in prompts]
        self.search, constraints = search or Greedy(), constraints or Constraints()
        constraints.check(config.vocab_size)
        self.limits = limits_of(max_length, len(rows))
        check_prompts(rows, self.limits, config, sliding_window)
        context = config.max_position_embeddings
        longest = max(map(len, rows), default=1)
        sliding = sliding_window and longest + self.limits.max(initial=0) > context
        rows = [row[-context:] for row in rows]
        longest = min(longest, context)
        # All but the last token of the prompts come in few lengths, so that few graphs are compiled.
        width = 1 + (bucket_length(longest - 1, context - 1) if longest > 1 else 0)
        self.ids = np.array([[0] * (width - len(row)) + row for row in rows], "int32").reshape(len(rows), width)
        self.mask = np.array([[0] * (width - len(row)) + [1] * len(row) for row in rows], bool).reshape(self.ids.shape)
        length = bucket_length(int(self.limits.max(initial=1)), None if sliding_window else context)
        self.uniform = None
        if hasattr(self.search, "temperature"):
            seeds = [seeds + i for i in range(len(rows))] if isinstance(seeds, int) else list(seeds)
            if len(seeds) != len(rows):
                raise ValueError(f"there are {len(seeds)} seeds for {len(rows)} prompts")
            self.uniform = uniform_numbers(seeds, self.search.width, length)
        self.key = (self.search, constraints, length, sliding, use_cache)

    def tensors(self) -> list[Any]:
        """Prompts, their mask, the most new tokens of each, and random numbers or None."""
        arrays = (self.ids, self.mask, self.limits, self.uniform)
        return [None if array is None else ops.convert_to_tensor(array) for array in arrays]


def limits_of(max_length: int | Sequence[int], count: int) -> np.ndarray:
    """The most new tokens of each of ``count`` prompts."""
    try:
        return np.broadcast_to(np.asarray(max_length, "int32"), count)
    except ValueError:
        raise ValueError(f"max_length has {len(max_length)} values for {count} prompts") from None


def check_prompts(rows: Sequence[Sequence[int]], limits: Sequence[int], config, sliding_window: bool) -> None:
    """Raises ValueError for prompts that the model cannot go on with."""
    size, context = config.vocab_size, config.max_position_embeddings
    for number, (row, limit) in enumerate(zip(rows, limits, strict=True)):
        name = f"prompt {number}" if len(rows) > 1 else "the prompt"
        if not row:
            raise ValueError(f"{name} is empty: there must be a token to go on from, such as the end token of a text")
        if not 0 <= min(row) <= max(row) < size:
            wrong = next(token for token in row if not 0 <= token < size)
            raise ValueError(f"{name} holds {wrong}, but there are {size} tokens (0 to {size - 1})")
        if limit < 0:
            raise ValueError(f"max_length must be at least 0, got {limit}")
        if len(row) + limit > context and not sliding_window:
            raise ValueError(
                f"{name} has {len(row)} tokens and {limit} new ones are asked for, but the context has {context} "
                "positions: ask for fewer, shorten the prompt, or let the window slide (--sliding_window)"
            )


def prompt_check(config, tokenizer, max_length: int, sliding_window: bool = False) -> Callable[[str, str], None]:
    """Returns a function of a line and its place that raises ValueError for a line that cannot be continued.

    A line without tokens passes: nothing follows it.
    """

    def check(line: str, where: str) -> None:
        try:
            prompt = tokenizer.tokenize_to_ids(line)
            if prompt:
                check_prompts([prompt], [max_length], config, sliding_window)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    return check


def generate_text(model, prompts: Sequence[str], tokenizer, search: Any = None, **options) -> list[str]:
    """Goes on with texts.

    Args:
        model: a `GPT`.
        prompts: any number of texts.
        tokenizer: with ``tokenize_to_ids`` and ``decode``.
        search: see `generate`.
        **options: of `generate`.

    Returns:
        As many texts: what follows each, in its best hypothesis, without the end token. An empty text, or another one
        without any token, is followed by an empty text.

    Raises:
        ValueError: as `generate`.
    """
    options["constraints"] = (options.get("constraints") or Constraints()).with_tokenizer(tokenizer)
    rows = [tokenizer.tokenize_to_ids(text) for text in prompts]
    if not all(rows):
        limits = limits_of(options.get("max_length", 64), len(rows))
        options["max_length"] = np.where([bool(row) for row in rows], limits, 0)
        rows = [row or [0] for row in rows]  # any token, followed by none
    results = generate(model, rows, search, **options)
    best = zip(results["tokens"][:, 0], results["lengths"][:, 0], strict=True)
    how = (tokenizer, model.config.end_id, options["constraints"])
    return [output_text(tokens[:length], *how) for tokens, length in best]


def stream_text(model, prompt: str | Sequence[int], tokenizer, search: Any = None, **options) -> Iterator[str]:
    """What follows one text, piece by piece as it comes; the pieces together are what `generate_text` gives.

    Args:
        model, tokenizer, search: see `generate_text`.
        prompt: the text, or its ids.
        **options: of `stream`.

    Yields:
        Text, never half a character.
    """
    constraints = (options.pop("constraints", None) or Constraints()).with_tokenizer(tokenizer)
    text = GrowingText(tokenizer, model.config.end_id, constraints)
    ids = tokenizer.tokenize_to_ids(prompt) if isinstance(prompt, str | bytes) else prompt
    for tokens in stream(model, [ids], search, constraints=constraints, **options):
        if piece := text.add(int(tokens[0, 0])):
            yield piece
    if piece := text.rest():
        yield piece
