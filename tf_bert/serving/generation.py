"""Completions of prompts by a served GPT, in the terms of OpenAI's interface."""

import asyncio
import contextlib
import dataclasses
import math
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from tf_bert.decoding.language_model import generate_text, stream_text
from tf_bert.decoding.sampling import Greedy, Sampling
from tf_bert.serving.batching import QueueFull

KNOWN = "model prompt max_tokens temperature top_p seed stop stream user".split()
MOST_WAITING = 64


@dataclasses.dataclass(frozen=True)
class CompletionRequest:
    """What is asked of a GPT.

    Args:
        prompts: the texts to continue.
        max_tokens: most new tokens of each.
        search: how tokens are chosen.
        seed: of sampling; text i uses seed + i.
        stop: texts before which a completion ends.
        stream: whether the completion is wanted piece by piece.
    """

    prompts: tuple[str, ...]
    max_tokens: int
    search: Any
    seed: int
    stop: tuple[str, ...]
    stream: bool


@dataclasses.dataclass(frozen=True)
class Completions:
    """Texts, each with why it ended (``stop`` or ``length``), and the tokens that were read and written."""

    choices: list[tuple[str, str]]
    prompt_tokens: int
    completion_tokens: int


class ServedGenerator:
    """A GPT behind the server; requests take turns.

    Args:
        name: in addresses.
        path: where it was loaded from.
        version: a number; larger ones replace smaller ones.
        model: a `tf_bert.models.gpt.GPT`.
        tokenizer: its tokenizer.
    """

    task = "generate"

    def __init__(self, name: str, path: str, version: int, model, tokenizer):
        self.name, self.path, self.version, self.loaded = name, path, version, time.time()
        self.model, self.tokenizer = model, tokenizer
        self._turn, self._waiting = asyncio.Lock(), 0

    def describe(self) -> dict[str, Any]:
        """What the model does, for its metadata."""
        return {"task": self.task, "context": self.model.config.max_position_embeddings}

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits for the requests before this one.

        Raises:
            QueueFull: too many wait.
        """
        if self._waiting >= MOST_WAITING:
            raise QueueFull(1.0)
        self._waiting += 1
        try:
            async with self._turn:
                yield
        finally:
            self._waiting -= 1

    def parse(self, body: Mapping[str, Any]) -> CompletionRequest:
        """Reads a request.

        Raises:
            ValueError: says what is wrong, and what was expected.
        """
        for key in body:
            if key not in KNOWN:
                raise ValueError(f"{key}: not a key of this request; known are {', '.join(KNOWN)}")
        prompts = _texts(body, "prompt", least=1)
        tokens = _number(body, "max_tokens", 16, 1, self.model.config.max_position_embeddings, whole=True)
        temperature, top_p = _number(body, "temperature", 1.0, 0, 2), _number(body, "top_p", 1.0, 0, 1)
        stream = body.get("stream") or False
        if not isinstance(stream, bool):
            raise ValueError("stream: expected true or false")
        if stream and len(prompts) > 1:
            raise ValueError(f"prompt: {len(prompts)} prompts cannot be streamed; send one")
        for place, prompt in enumerate(prompts):
            length = len(self.tokenizer.tokenize_to_ids(prompt))
            room = self.model.config.max_position_embeddings - length
            if length == 0:
                raise ValueError(f"prompt {place} is empty: there must be a token to continue")
            if tokens > room:
                raise ValueError(f"prompt {place} has {length} tokens, so max_tokens is {max(room, 0)} at most")
        sampled = temperature > 0 and top_p > 0
        search = Sampling(temperature=temperature, top_p=top_p) if sampled else Greedy()
        stops = _texts(body, "stop", least=0)
        if "" in stops:
            raise ValueError("stop: a text is empty")
        return CompletionRequest(prompts, int(tokens), search, _seed(body), stops, stream)

    def complete(self, asked: CompletionRequest) -> Completions:
        """Continues all prompts."""
        options = {"max_length": asked.max_tokens, "seeds": asked.seed}
        texts = generate_text(self.model, list(asked.prompts), self.tokenizer, asked.search, **options)
        choices, written = [], 0
        for text in texts:
            tokens = len(self.tokenizer.tokenize_to_ids(text))
            cut = "".join(until_stop([text], asked.stop))
            choices.append((cut, "stop" if len(cut) < len(text) or tokens < asked.max_tokens else "length"))
            written += tokens
        read = sum(len(self.tokenizer.tokenize_to_ids(prompt)) for prompt in asked.prompts)
        return Completions(choices, read, written)

    def stream(self, asked: CompletionRequest) -> Iterator[tuple[str, str | None]]:
        """Yields a completion piece by piece, the last piece with why it ended; together they are `complete`'s."""
        options = {"max_length": asked.max_tokens, "seeds": asked.seed}
        text, shown = "", ""

        def pieces() -> Iterator[str]:
            nonlocal text
            for piece in stream_text(self.model, asked.prompts[0], self.tokenizer, asked.search, **options):
                text += piece
                yield piece

        for piece in until_stop(pieces(), asked.stop):
            shown += piece
            yield piece, None
        tokens = len(self.tokenizer.tokenize_to_ids(text))
        yield "", "stop" if len(shown) < len(text) or tokens < asked.max_tokens else "length"

    def warm_up(self) -> None:
        """Continues a short text, so that the first request does not pay for compilation."""
        self.complete(CompletionRequest(("a",), 1, Greedy(), 0, (), False))

    def close(self) -> None:
        """Nothing waits here: requests that have begun are awaited by the server."""


def until_stop(pieces: Iterable[str], stops: tuple[str, ...]) -> Iterator[str]:
    """Yields text up to the first stop text, wherever the pieces are cut.

    Example:
        >>> "".join(until_stop(["It sta", "nds on th", "e hill"], ("ds on the", "x")))
        'It stan'
    """
    held, keep = "", max((len(stop) - 1 for stop in stops), default=0)
    for piece in pieces:
        held += piece
        if found := [place for place in (held.find(stop) for stop in stops) if place >= 0]:
            if min(found):
                yield held[: min(found)]
            return
        if len(held) > keep:
            yield held[: len(held) - keep]
            held = held[len(held) - keep :]
    if held:
        yield held


def _texts(body: Mapping[str, Any], key: str, least: int) -> tuple[str, ...]:
    value = body.get(key)
    texts = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(texts, list) or len(texts) < least or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{key}: expected a text or a list of texts")
    return tuple(texts)


def _number(body: Mapping[str, Any], key: str, default: float, low: float, high: float, whole: bool = False) -> float:
    value = body.get(key)
    if value is None:
        return min(default, high)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not low <= value <= high:
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{key} is {value!r}; expected {kind} from {low:g} to {high:g}")
    return value


def _seed(body: Mapping[str, Any]) -> int:
    return int(_number(body, "seed", 0, 0, math.inf, whole=True)) % 2**31
