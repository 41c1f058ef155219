"""A conversation with a GPT: each answer continues everything said before."""

from collections.abc import Iterable, Iterator
from typing import Any

from tf_bert.decoding.constraints import Constraints
from tf_bert.decoding.language_model import stream
from tf_bert.decoding.output_text import GrowingText

LINE_END = "\n"


def line_end_stops(tokenizer: Any) -> tuple[str, ...]:
    """The stop text of answers that are lines: the end of a line, where the vocabulary can write it; else none."""
    try:
        Constraints(stop_texts=(LINE_END,)).with_tokenizer(tokenizer)
    except ValueError:
        return ()
    return (LINE_END,)


def chat(
    model,
    tokenizer,
    lines: Iterable[str],
    search: Any = None,
    *,
    seed: int = 0,
    max_length: int = 64,
    constraints: Constraints | None = None,
    **options,
) -> Iterator[str]:
    """Answers each line, given all lines and answers before it; the oldest of what does not fit is forgotten.

    Args:
        model: a `GPT`.
        tokenizer: with ``tokenize_to_ids`` and ``decode``.
        lines: what is said, without the ends of lines.
        search: `Greedy` (the default) or `Sampling`.
        seed: of the draws; line i has ``seed`` + i.
        max_length: most tokens of an answer.
        constraints: with stop texts that end an answer; `line_end_stops` makes it a line.
        **options: of `tf_bert.decoding.language_model.stream`.

    Yields:
        Text as it comes; after an answer always the end of a line.

    Raises:
        ValueError: ``max_length`` leaves no room for what was said.
    """
    context = model.config.max_position_embeddings
    room = context - max_length
    if room < 1:
        raise ValueError(
            f"--max_length={max_length} leaves no room for what was said: the context has {context} positions"
        )
    constraints = (constraints or Constraints()).with_tokenizer(tokenizer)
    said: list[int] = []
    for number, line in enumerate(lines):
        said = [*said, *tokenizer.tokenize_to_ids(line + LINE_END)][-room:]
        answer = GrowingText(tokenizer, model.config.end_id, constraints)
        if said:
            how = {"max_length": max_length, "constraints": constraints, "seeds": seed + number}
            for step in stream(model, [said], search, **how, **options):
                yield answer.add(int(step[0, 0]))
            yield answer.rest()
        if not answer.shown.endswith(LINE_END):
            yield LINE_END
        said = [*said, *answer.ids]
