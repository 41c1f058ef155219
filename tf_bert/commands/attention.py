"""``tf-bert attention``: shows a model's attention as a page, a picture and arrays."""

import functools
from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow

with deferred():
    from tf_bert.models import gpt, pretrained, translator
    from tf_bert.visualization import attention, page, plots

FLAGS = Flags(
    "attention",
    """
    Shows where a model looks: BERT at one text or a pair, a GPT at what came before, a translation model from the words
    it writes to those it reads. The page has a choice of layer and head, and needs no network; open it in any browser.

    Without --text_pair a translation model writes its own translation.

    Example: tf-bert attention --checkpoint=run/export "3rd of May 1998" --output_file=attention.html
        --png_file=alignment.png
    """,
)
FLAGS.string("checkpoint", None, "Folder of a translation model, a BERT or a GPT, or a published name.", required=True)
FLAGS.string("text", None, "The text that is read.")
FLAGS.string("text_pair", None, "BERT: the second text. Translation: what was written.")
FLAGS.string("output_file", None, "The page (.html).")
FLAGS.string("png_file", None, "A picture of one matrix (.png, .svg).")
FLAGS.string("arrays_file", None, "All weights and tokens (.npz): NAME/layer_0 [1, heads, T, S] ..., as bertviz takes.")
FLAGS.string("positions_file", None, "A picture of the positional encodings; needs no text.")
FLAGS.enum("kind", None, ["encoder", "decoder", "cross"], "Of the picture: which attention; by default the first.")
FLAGS.integer("layer", None, "Of the picture: which layer, from 0; by default the last, in cross the last but one.")
FLAGS.integer("head", None, "Of the picture: which head, from 0; by default the mean of all.", minimum=0)
FLAGS.positional("text")


def run(flags) -> None:
    """Loads the model, looks, and writes what was asked for."""
    wanted = [name for name in ("output_file", "png_file", "arrays_file", "positions_file") if getattr(flags, name)]
    if not wanted:
        raise UsageError("say what to write: --output_file, --png_file, --arrays_file or --positions_file")
    if flags.text is None and wanted != ["positions_file"]:
        raise UsageError("there is no text to look at: give one in quotes")

    load_tensorflow()
    if translator.is_translator(flags.checkpoint):
        loaded = translator.load_translator(flags.checkpoint)
        model, look = loaded.model, functools.partial(attention.translation_attention, loaded)
    else:
        model, tokenizer = pretrained.load_encoder(flags.checkpoint)
        if isinstance(model, gpt.GPT) and flags.text_pair is not None:
            raise UsageError("--text_pair is for BERT and translation models; a GPT reads one text")
        look = attention.gpt_attention if isinstance(model, gpt.GPT) else attention.bert_attention
        look = functools.partial(look, model, tokenizer)
    if flags.positions_file:
        title = f"positional encodings of {type(model).__name__}"
        plots.plot_positions(flags.positions_file, attention.position_table(model), title)
    if flags.text is not None and wanted != ["positions_file"]:
        maps = look(flags.text, *([] if flags.text_pair is None else [flags.text_pair]))
        if flags.output_file:
            page.write_attention_page(flags.output_file, maps, f"{type(model).__name__}: {flags.text}")
        if flags.arrays_file:
            attention.save_arrays(flags.arrays_file, maps)
        if flags.png_file:
            plots.plot_attention(flags.png_file, maps, flags.kind, flags.layer, flags.head)
    for name in wanted:
        print(f"{getattr(flags, name)}: written")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
