"""``tf-bert generate``: goes on with texts, or talks, with a GPT."""

import sys
from collections.abc import Iterator, Sequence

from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow

FLAGS = Flags(
    "generate",
    """
    Goes on with a text, with each line of standard input, or (--chat) with all that was said before each line.

    What follows a single text appears token by token. By default each token is the likeliest; --temperature, --top_k
    and --top_p draw instead, and --beam_size searches for the likeliest sequence.

    Example: tf-bert generate --checkpoint=run/export --max_length=50 --temperature=0.8 --top_k=40 "Once upon a time"
    """,
)
FLAGS.string("checkpoint", None, "Folder or file of a GPT, in any format.", required=True)
FLAGS.string("text", None, "The text; without one, each line of standard input is a text.")
FLAGS.boolean("ids", False, "Whether texts are ids of tokens with blanks between; so is what is printed.")
FLAGS.boolean("chat", False, "Whether each line goes on with all lines and answers before it; an answer is a line.")
FLAGS.integer("max_length", 64, "Most new tokens.", minimum=1)
FLAGS.integer("min_length", 0, "Fewest new tokens.", minimum=0)
FLAGS.float("temperature", None, "Draws tokens; logits are divided by it. 0 takes the likeliest.", minimum=0.0)
FLAGS.integer("top_k", None, "Draws among so many of the likeliest tokens.", minimum=0)
FLAGS.float("top_p", None, "Draws among the likeliest tokens of this probability together.", minimum=0.0, maximum=1.0)
FLAGS.integer("num_samples", 1, "So many draws for each text.", minimum=1)
FLAGS.integer("seed", 0, "Of the draws; another text has another.", minimum=0)
FLAGS.integer("beam_size", 1, "Hypotheses kept; 1 for no beam search.", minimum=1)
FLAGS.float("length_penalty", 0.0, "Alpha of beam search: above 0 favours longer outputs.")
FLAGS.float("repetition_penalty", 1.0, "Above 1 makes tokens less likely that are there already.")
FLAGS.float("presence_penalty", 0.0, "Taken off the logits of tokens that are there already.")
FLAGS.string("stop", None, "Text that ends the output, or several with | between; \\n is the end of a line.")
FLAGS.boolean("sliding_window", False, "Whether to forget the beginning where the context is full, or to stop.")
FLAGS.boolean("xla", False, "Whether to compile with XLA: slow at first, then faster; all is shown at the end.")
FLAGS.positional("text")


class Numbers:
    """Ids written as numbers, in the place of a tokenizer."""

    def tokenize_to_ids(self, text: str) -> list[int]:
        """The numbers of a text."""
        words = text.split()
        wrong = [word for word in words if not word.isdecimal()]
        if wrong:
            raise ValueError(f"--ids takes ids, numbers with blanks between, and {wrong[0]!r} is none")
        return [int(word) for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        """The numbers as text, each with a blank before it."""
        return "".join(f" {number}" for number in ids)


def run(flags) -> None:
    """Prints what follows each text."""
    if flags.chat and (flags.ids or flags.text is not None):
        raise UsageError("--chat reads text from standard input: it takes neither a text nor --ids")
    drawn = any(value is not None for value in (flags.temperature, flags.top_k, flags.top_p))
    if drawn and flags.beam_size > 1:
        raise UsageError("--beam_size searches, --temperature, --top_k and --top_p draw: take one of them")
    if flags.num_samples > 1 and not drawn:
        raise UsageError("--num_samples needs draws: give --temperature, --top_k or --top_p")
    load_tensorflow()
    from tf_bert.configs import GPTConfig
    from tf_bert.models.gpt import GPT
    from tf_bert.models.pretrained import load_model, open_checkpoint

    checkpoint = open_checkpoint(flags.checkpoint)
    if not isinstance(checkpoint.config, GPTConfig):
        raise ValueError(f"{flags.checkpoint} holds no GPT: it cannot generate")
    if checkpoint.architecture == "GPTClassifier":
        raise ValueError(f"{flags.checkpoint} is a GPT that was fine-tuned to classify: tf-bert predict reads it")
    tokenizer = Numbers() if flags.ids else checkpoint.tokenizer()
    model = load_model(flags.checkpoint, GPT)
    search, options = _options(flags, tokenizer, drawn)
    if flags.chat:
        _chat(model, tokenizer, search, options)
        return
    texts = iter([flags.text]) if flags.text is not None else _lines()
    number = None
    for number, text in enumerate(texts):
        _go_on(model, tokenizer, text, search, {**options, "seeds": flags.seed + number}, flags.xla)
    if number is None:
        raise ValueError("there is no text: give one in quotes, or some on standard input, one a line")


def _lines() -> Iterator[str]:
    """The lines of standard input; bytes that are not UTF-8 stay what they are."""
    for line in sys.stdin.buffer:
        yield line.decode("utf-8", "surrogateescape").rstrip("\r\n")


def _options(flags, tokenizer, drawn: bool):
    """The search, and the options of `generate` and `stream`."""
    from tf_bert.decoding.beam import BeamSearch
    from tf_bert.decoding.constraints import Constraints
    from tf_bert.decoding.sampling import Greedy, Sampling

    search = Greedy()
    if flags.beam_size > 1:
        search = BeamSearch(flags.beam_size, flags.length_penalty)
    elif drawn:
        temperature = 1.0 if flags.temperature is None else flags.temperature
        top_p = 1.0 if flags.top_p is None else flags.top_p
        search = Sampling(temperature, flags.top_k or 0, top_p, flags.num_samples)
    stops = [] if flags.stop is None else flags.stop.replace("\\n", "\n").split("|")
    if flags.chat and flags.stop is None:
        stops = ["\n"]
    constraints = Constraints(
        min_length=flags.min_length,
        repetition_penalty=flags.repetition_penalty,
        presence_penalty=flags.presence_penalty,
        stop_sequences=tuple(tuple(tokenizer.tokenize_to_ids(stop)) for stop in stops),
    )
    options = {"max_length": flags.max_length, "constraints": constraints, "sliding_window": flags.sliding_window}
    return search, options


def _go_on(model, tokenizer, text: str, search, options, xla: bool) -> None:
    """Prints what follows a text: as it comes where there is one way to go on, else a line for each."""
    from tf_bert.decoding.language_model import stream_text, without_end

    if search.width == 1 and not xla:
        for piece in stream_text(model, text, tokenizer, search, **options):
            _write(piece)
        _write("\n")
        return
    results = model.generate([tokenizer.tokenize_to_ids(text)], search, jit_compile=xla, **options)
    for tokens, length in zip(results["tokens"][0], results["lengths"][0], strict=True):
        _write(tokenizer.decode(without_end(tokens[:length], model.config.end_id)) + "\n")


def _chat(model, tokenizer, search, options) -> None:
    """Answers each line, given all before it; what no longer fits the context is forgotten, the oldest first."""
    room = model.config.max_position_embeddings - options["max_length"]
    if room < 1:
        raise ValueError(
            f"--max_length={options['max_length']} leaves no room for what was said: the context has "
            f"{model.config.max_position_embeddings} positions"
        )
    said: list[int] = []
    for number, line in enumerate(_lines()):
        said = [*said, *tokenizer.tokenize_to_ids(line + "\n")][-room:]
        answer = list(_answer(model, tokenizer, said, search, {**options, "seeds": number}))
        said = [*said, *answer]


def _answer(model, tokenizer, said: list[int], search, options) -> Iterator[int]:
    """The tokens of an answer, printed as they come."""
    from tf_bert.decoding.language_model import without_end

    tokens, shown = [], ""
    for step in model.stream([said], search, **options):
        token = int(step[0, 0])
        yield token
        tokens.append(token)
        text = tokenizer.decode(without_end(tokens, model.config.end_id)).rstrip("\ufffd")
        if len(text) > len(shown):
            _write(text[len(shown) :])
            shown = text
    if not shown.endswith("\n"):
        _write("\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
