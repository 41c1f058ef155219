"""``tf-bert translate``: translates a file or standard input with a model of ``train_translation``, or with several."""

import sys
from collections.abc import Callable, Sequence

from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow

STANDARD_INPUT = "/dev/stdin"
BATCHES_AT_ONCE = 16  # so many are sorted by length together, and shown as done

FLAGS = Flags(
    "translate",
    """
    Translates lines of text. An empty line stays one; characters that the vocabulary lacks become its unknown symbol.

    Several checkpoints, separated by commas, translate together: their probabilities are averaged. They need the same
    vocabularies, and may be models of different kinds and sizes.

    Example: tf-bert translate --checkpoint=run/export --input_file=test.en --output_file=test.de
        --reference_file=test.reference.de
    """,
)
FLAGS.string("checkpoint", None, "Folder of a model (export/ of train_translation), or several.", required=True)
FLAGS.string("text", None, "One text to translate, instead of a file.")
FLAGS.string("input_file", None, "UTF-8 text, a sentence a line (may be gzipped). By default standard input.")
FLAGS.string("output_file", None, "Where the translations go, line by line. By default standard output.")
FLAGS.string("reference_file", None, "The right translations: prints BLEU, chrF and the share exactly right.")
FLAGS.integer("beam_size", 4, "Hypotheses kept; 1 for greedy search.", minimum=1)
FLAGS.float("length_penalty", 0.6, "Alpha: above 0 favours longer translations (Wu et al. 2016).")
FLAGS.float("coverage_penalty", 0.0, "Beta: favours those that look at every word of the source.", minimum=0.0)
FLAGS.integer("n_best", 1, "So many translations of each line, as: number ||| translation ||| score.", minimum=1)
FLAGS.integer("max_length", None, "Most pieces of a translation; else twice those of the source and 10.", minimum=1)
FLAGS.integer("min_length", 0, "Fewest pieces of a translation, its end among them.", minimum=0)
FLAGS.integer("batch_size", 32, "Lines that are translated together.", minimum=1)
FLAGS.boolean("copy_unknown", False, "Whether to write, for an unknown word, the source word it looked at most.")
FLAGS.enum("too_long", "error", ["error", "truncate"], "What becomes of a line longer than the model has positions.")
FLAGS.boolean("xla", False, "Whether to compile with XLA, which pays when many lines follow.")
FLAGS.positional("text")


def run(flags) -> None:
    """Translates and, where there are references, scores."""
    from tf_bert.data.text.lines import read_lines, refuse_outputs_among

    if flags.text is not None and flags.input_file:
        raise UsageError("give a text or --input_file, not both")
    if flags.n_best > flags.beam_size:
        raise UsageError(f"--n_best={flags.n_best} needs a --beam_size of as many")
    if flags.n_best > 1 and (flags.copy_unknown or flags.reference_file):
        raise UsageError("--n_best prints scores beside the translations; --copy_unknown and --reference_file need one")
    if flags.output_file:
        read = [name for name in (flags.input_file, flags.reference_file) if name]
        refuse_outputs_among(read, [flags.output_file])
    references = list(read_lines(flags.reference_file)) if flags.reference_file else None
    written = flags.output_file or flags.reference_file
    if flags.text is None and not flags.input_file and not written and sys.stdin.isatty():
        lines = None  # typed: each is answered at once
    elif flags.text is not None:
        lines = [flags.text]
    else:
        lines = list(read_lines(flags.input_file or STANDARD_INPUT))
    if references is not None and len(references) != len(lines):
        raise ValueError(f"{flags.reference_file} has {len(references)} lines, and the text to translate {len(lines)}")

    load_tensorflow()
    import tensorflow as tf

    from tf_bert.files import atomic_writer
    from tf_bert.progress import say

    tf.get_logger().setLevel("ERROR")  # it warns of a graph for each length, which is what is wanted
    translators = _load(flags.checkpoint)
    if lines is None:
        for line in sys.stdin:
            try:
                fitting = _fitting(flags, translators, [line.rstrip("\n")])
            except ValueError as error:
                say(str(error))
                continue
            print(*_translate(flags, translators, fitting, 0), sep="\n", flush=True)
        return
    lines = _fitting(flags, translators, lines)
    translations = []
    if flags.output_file:
        with atomic_writer(flags.output_file, "w") as file:
            for part in _parts(flags, translators, lines):
                file.writelines(text + "\n" for text in part)
                translations += part
    else:
        for part in _parts(flags, translators, lines):
            print(*part, sep="\n", flush=True)
            translations += part
    if references is not None:
        print(scores_line(translations, references), file=sys.stderr)


def scores_line(translations: Sequence[str], references: Sequence[str]) -> str:
    """BLEU, chrF, the share exactly right and the word error rate in one line."""
    from tf_bert.data.translation import scores

    exact = scores.exact_share(translations, references)
    errors = scores.word_error_rate(translations, references)
    rest = f"exactly right {exact:.2%}, word error rate {errors:.2%}, {len(references):,} lines"
    try:
        scores = scores.corpus_scores(translations, references)
    except ImportError as error:
        return f"{rest} ({error})"
    return f"BLEU {scores['bleu']:.2f}, chrF {scores['chrf']:.2f}, {rest}"


def _load(paths: str) -> list:
    """The models, checked to have the same vocabularies."""
    from tf_bert.models.translator import load_translator
    from tf_bert.tokenization.vocabulary import vocab_sha256

    translators = [load_translator(path.strip()) for path in paths.split(",") if path.strip()]
    if not translators:
        raise UsageError("--checkpoint names no folder")
    for side in ("source_tokenizer", "target_tokenizer"):
        files = [getattr(translator, side).vocab_file for translator in translators]
        for path in files[1:]:
            if vocab_sha256(path) != vocab_sha256(files[0]):
                raise ValueError(f"{files[0]} and {path} differ: models that translate together need equal ones")
    return translators


def _fitting(flags, translators, lines: Sequence[str]) -> list[str]:
    """The lines, those that are too long for the position table cut off or refused; before any is translated."""
    from tf_bert.progress import say

    limits = [translator.model.max_source_length for translator in translators]
    limit = min((limit for limit in limits if limit is not None), default=None)
    if limit is None:
        return list(lines)
    tokenizer, fitting, cut = translators[0].source_tokenizer, [], 0
    for number, line in enumerate(lines, 1):
        pieces = len(tokenizer.tokenize_to_ids(line))
        if pieces >= limit:
            if flags.too_long == "error":
                raise ValueError(
                    f"{flags.input_file or 'the input'}: line {number} has {pieces} pieces and an end symbol, and "
                    f"the model has {limit} positions; split it, or give --too_long=truncate"
                )
            line = _cut(line, tokenizer, limit - 1)
            cut += 1
        fitting.append(line)
    if cut:
        say(f"WARNING: {cut} line{'s were' if cut > 1 else ' was'} cut off to at most {limit - 1} pieces")
    return fitting


def _cut(line: str, tokenizer, most: int) -> str:
    """The beginning of a line, of at most so many pieces. A cut may change the last ones: then it is cut again."""
    _, offsets = tokenizer.tokenize_with_offsets(line)
    for _, end in reversed(offsets[:most]):
        if len(tokenizer.tokenize_to_ids(line[:end])) <= most:
            return line[:end]
    return ""


def _parts(flags, translators, lines: Sequence[str]):
    """Yields the translations of some lines after the other."""
    from tf_bert.progress import Progress

    size = flags.batch_size * BATCHES_AT_ONCE
    with Progress("translating", total=len(lines), unit="lines") as progress:
        for first in range(0, len(lines), size):
            some = lines[first : first + size]
            yield _translate(flags, translators, some, first)
            progress.update(len(some))


def _translate(flags, translators, lines: Sequence[str], first: int) -> list[str]:
    """What is printed for some lines, the first of which has the number ``first``."""
    from tf_bert.decoding.beam import BeamSearch
    from tf_bert.decoding.constraints import Constraints
    from tf_bert.decoding.translation import translate, translate_batches

    models = [translator.model for translator in translators]
    source, target = translators[0].source_tokenizer, translators[0].target_tokenizer
    search = BeamSearch(flags.beam_size, flags.length_penalty, flags.coverage_penalty, flags.n_best)
    options = {
        "max_length": flags.max_length,
        "constraints": Constraints(min_length=flags.min_length),
        "jit_compile": flags.xla,
    }
    if flags.n_best == 1:
        options |= {"search": search, "batch_size": flags.batch_size, "copy_unknown": flags.copy_unknown}
        return list(map(_readable(target), translate(models, lines, source, target, **options)))
    printed = [[f"{first + i} ||| ||| 0.0000"] for i in range(len(lines))]
    for indices, output, _ in translate_batches(models, lines, source, search, flags.batch_size, **options):
        for row, i in enumerate(indices):
            printed[i] = []
            for tokens, length, score in zip(
                output["tokens"][row], output["lengths"][row], output["scores"][row], strict=True
            ):
                if length:
                    ids = [int(token) for token in tokens[:length] if token != models[0].config.end_id]
                    printed[i].append(f"{first + i} ||| {_readable(target)(target.decode(ids))} ||| {score:.4f}")
    return [line for group in printed for line in group]


def _readable(tokenizer) -> Callable[[str], str]:
    """What makes a tokenizer's words a line: WordPiece has lost where the blanks were."""
    from tf_bert.data.translation.scores import detokenized

    if hasattr(tokenizer, "wordpiece_tokenizer"):
        return detokenized
    return lambda text: text.replace("\n", " ")  # a SentencePiece model with pieces of bytes can write one


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
