"""``tf-bert generate``: continues texts, or chats, with a GPT."""

import sys
from collections.abc import Callable, Iterator, Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow
from tf_bert.commands.stop_flag import add_stop_flag, stops_of

with deferred():
    from tf_bert import configs
    from tf_bert.decoding import beam, chat, constraints, language_model, output_text, sampling
    from tf_bert.models import gpt, pretrained
    from tf_bert.serving import lines

FLAGS = Flags(
    "generate",
    """
    Continues a text, each line of standard input, or (--chat) all that was said before each line.

    What follows a text appears token by token. By default each token is the likeliest; --temperature, --top_k and
    --top_p draw instead, and --beam_size searches for the likeliest sequence.

    Each line of standard input gets one line (--num_samples=N: N lines), in which ends of lines and backslashes are
    written as \\n and \\\\. An empty line, or one without any token, gets an empty line. All lines are checked before
    the first is continued.

    Example: tf-bert generate --checkpoint=run/export --max_length=50 --temperature=0.8 --top_k=40 "Once upon a time"
    """,
)
FLAGS.string("checkpoint", None, "Folder or file of a GPT, in any format.", required=True)
FLAGS.string("text", None, "The text; without one, each line of standard input is a text.")
FLAGS.boolean("ids", False, "Whether texts are ids of tokens with blanks between; so is what is printed.")
FLAGS.boolean("chat", False, "Whether each line goes on with all lines and answers before it; an answer is a line.")
FLAGS.integer("max_length", 64, "Most new tokens.", minimum=1)
FLAGS.integer("min_length", 0, "Fewest new tokens.", minimum=0)
FLAGS.float("temperature", None, "Samples with the logits divided by this; 0 takes the likeliest token.", minimum=0.0)
FLAGS.integer("top_k", None, "Number of likeliest tokens to sample from; 0 for all.", minimum=0)
FLAGS.float("top_p", None, "Samples from the likeliest tokens of this total probability.", minimum=0.0, maximum=1.0)
FLAGS.integer("num_samples", 1, "Number of samples for each text.", minimum=1)
FLAGS.integer("seed", 0, "Sampling seed; text i uses seed + i.", minimum=0)
FLAGS.integer("beam_size", 1, "Hypotheses kept; 1 for no beam search.", minimum=1)
FLAGS.float("length_penalty", 0.0, "Alpha of beam search: above 0 favours longer outputs.")
FLAGS.float("repetition_penalty", 1.0, "Above 1: makes tokens that already occurred less likely.")
FLAGS.float("presence_penalty", 0.0, "Subtracted from the logits of tokens that already occurred.")
add_stop_flag(FLAGS, " With --ids, ids.")
FLAGS.boolean("sliding_window", False, "Whether to forget the beginning where the context is full, or to stop.")
FLAGS.boolean("xla", False, "Whether to compile with XLA: slow at first, then faster; all is shown at the end.")
FLAGS.positional("text")


def run(flags) -> None:
    """Prints what follows each text."""
    if flags.chat and (flags.ids or flags.text is not None):
        raise UsageError("--chat reads text from standard input: it takes neither a text nor --ids")
    drawn = any(value is not None for value in (flags.temperature, flags.top_k, flags.top_p))
    if drawn and flags.beam_size > 1:
        raise UsageError("--beam_size searches, --temperature, --top_k and --top_p draw: take one of them")
    if flags.num_samples > 1 and not drawn:
        raise UsageError("--num_samples needs draws: give --temperature, --top_k or --top_p")
    stops = stops_of(flags.stop)
    load_tensorflow()
    checkpoint = pretrained.open_checkpoint(flags.checkpoint)
    if not isinstance(checkpoint.config, configs.GPTConfig):
        raise ValueError(f"{flags.checkpoint} holds no GPT: it cannot generate")
    if checkpoint.architecture == "GPTClassifier":
        raise ValueError(f"{flags.checkpoint} is a GPT that was fine-tuned to classify: tf-bert predict reads it")
    tokenizer = output_text.Numbers() if flags.ids else checkpoint.tokenizer()
    if flags.chat and flags.stop is None:
        stops = chat.line_end_stops(tokenizer)
    options = {
        "search": _search(flags, drawn),
        "max_length": flags.max_length,
        "constraints": _constraints(flags, tokenizer, stops),
        "sliding_window": flags.sliding_window,
    }
    model = pretrained.load_model(checkpoint, gpt.GPT)
    if flags.chat:
        for piece in chat.chat(model, tokenizer, (line for _, line in _lines()), seed=flags.seed, **options):
            _write(piece)
        return
    if flags.text is not None:
        _continue(flags, model, tokenizer, tokenizer.tokenize_to_ids(flags.text), 0, options)
        return
    check = language_model.prompt_check(model.config, tokenizer, flags.max_length, flags.sliding_window)
    checked = lines.typed if sys.stdin.isatty() else lines.all_checked
    number = None
    for number, (_, line) in enumerate(checked(_lines(), check)):
        prompt = tokenizer.tokenize_to_ids(line)
        if prompt:
            _continue(flags, model, tokenizer, prompt, number, options, lines.one_line)
        else:
            _write("\n" * flags.num_samples)
    if number is None:
        raise ValueError("there is no text: give one in quotes, or some on standard input, one a line")


def _lines() -> Iterator[tuple[str, str]]:
    """The lines of standard input; bytes that are not UTF-8 stay what they are."""
    return lines.numbered_lines(sys.stdin.buffer, "surrogateescape")


def _search(flags, drawn: bool):
    if flags.beam_size > 1:
        return beam.BeamSearch(flags.beam_size, flags.length_penalty)
    if not drawn:
        return sampling.Greedy()
    temperature = 1.0 if flags.temperature is None else flags.temperature
    top_p = 1.0 if flags.top_p is None else flags.top_p
    return sampling.Sampling(temperature, flags.top_k or 0, top_p, flags.num_samples)


def _constraints(flags, tokenizer, stops: Sequence[str]):
    options = {
        "min_length": flags.min_length,
        "repetition_penalty": flags.repetition_penalty,
        "presence_penalty": flags.presence_penalty,
    }
    if flags.ids:
        return constraints.Constraints(**options, stop_sequences=[tokenizer.tokenize_to_ids(stop) for stop in stops])
    return constraints.Constraints(**options, stop_texts=stops).with_tokenizer(tokenizer)


def _continue(flags, model, tokenizer, prompt: list[int], number: int, options: dict, shown: Callable = str) -> None:
    """Prints what follows a prompt: as it comes where there is one output, else a line for each."""
    options = options | {"seeds": flags.seed + number}
    if options["search"].width == 1 and not flags.xla:
        for piece in language_model.stream_text(model, prompt, tokenizer, **options):
            _write(shown(piece))
        _write("\n")
        return
    results = model.generate([prompt], jit_compile=flags.xla, **options)
    for tokens, length in zip(results["tokens"][0], results["lengths"][0], strict=True):
        text = output_text.output_text(tokens[:length], tokenizer, model.config.end_id, options["constraints"])
        _write(shown(text) + "\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
