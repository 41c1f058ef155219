"""Lines translated by one model or several: too long ones are cut off or refused, several translations are printed."""

from collections.abc import Callable, Sequence
from typing import Any

from tf_bert.data.translation.scores import detokenized
from tf_bert.decoding.beam import BeamSearch
from tf_bert.decoding.translation import translate, translate_batches
from tf_bert.models.translator import Translator
from tf_bert.progress import say


def fitting_lines(
    translators: Sequence[Translator], lines: Sequence[str], where: str = "the input", truncate: bool = False
) -> list[str]:
    """Returns the lines, each short enough for the position tables of all models.

    Args:
        translators: the models that are to translate.
        lines: the sources.
        where: the file, for messages.
        truncate: whether a line that is too long is cut off; a warning states how many were.

    Raises:
        ValueError: a line is too long and is not to be cut off; names it.
    """
    limits = [translator.model.max_source_length for translator in translators]
    limit = min((limit for limit in limits if limit is not None), default=None)
    if limit is None:
        return list(lines)
    tokenizer, fitting, cut = translators[0].source_tokenizer, [], 0
    for number, line in enumerate(lines, 1):
        pieces = len(tokenizer.tokenize_to_ids(line))
        if pieces >= limit:
            if not truncate:
                raise ValueError(
                    f"{where}: line {number} has {pieces} pieces and an end symbol, and the model has {limit} "
                    "positions; split it, or give --too_long=truncate"
                )
            line = cut_off(line, tokenizer, limit - 1)
            cut += 1
        fitting.append(line)
    if cut:
        say(f"WARNING: {cut} line{'s were' if cut > 1 else ' was'} cut off to at most {limit - 1} pieces")
    return fitting


def cut_off(line: str, tokenizer: Any, most: int) -> str:
    """Returns the beginning of a line, of at most ``most`` pieces.

    A cut may change the last pieces and make them more; then it is cut again.
    """
    _, offsets = tokenizer.tokenize_with_offsets(line)
    for _, end in reversed(offsets[:most]):
        if len(tokenizer.tokenize_to_ids(line[:end])) <= most:
            return line[:end]
    return ""


def translated_lines(
    translators: Sequence[Translator],
    lines: Sequence[str],
    search: BeamSearch,
    first: int = 0,
    batch_size: int = 32,
    copy_unknown: bool = False,
    **options: Any,
) -> list[str]:
    """Translates lines; the probabilities of several models are averaged.

    Args:
        translators: models of equal vocabularies, see `tf_bert.models.translator.load_translators`.
        lines: the sources.
        search: with an ``n_best`` above 1, as many lines for each source: ``number ||| translation ||| score``.
        first: the number of the first line, for these.
        batch_size: lines that are translated together.
        copy_unknown: see `tf_bert.decoding.translation.translate`; not with several translations.
        **options: of `tf_bert.decoding.translation.generate`.
    """
    models = [translator.model for translator in translators]
    source, target = translators[0].source_tokenizer, translators[0].target_tokenizer
    shown = readable(target)
    if search.n_best == 1:
        options |= {"search": search, "batch_size": batch_size, "copy_unknown": copy_unknown}
        return list(map(shown, translate(models, lines, source, target, **options)))
    printed = [[f"{first + i} ||| ||| 0.0000"] for i in range(len(lines))]
    for indices, output, _ in translate_batches(models, lines, source, search, batch_size, **options):
        for row, i in enumerate(indices):
            printed[i] = []
            found = (output[name][row] for name in ("tokens", "lengths", "scores"))
            for tokens, length, score in zip(*found, strict=True):
                if length:
                    ids = [int(token) for token in tokens[:length] if token != models[0].config.end_id]
                    printed[i].append(f"{first + i} ||| {shown(target.decode(ids))} ||| {score:.4f}")
    return [line for group in printed for line in group]


def readable(tokenizer: Any) -> Callable[[str], str]:
    """Returns a function that makes a tokenizer's output a line as it would be written."""
    if hasattr(tokenizer, "wordpiece_tokenizer"):
        return detokenized  # WordPiece loses where the blanks were
    return lambda text: text.replace("\n", " ")  # a SentencePiece model with pieces of bytes can write one
