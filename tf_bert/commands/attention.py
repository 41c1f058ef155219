"""``tf-bert attention``: shows what a model's attention looked at, as a page, a picture and arrays."""

import functools
from collections.abc import Sequence

from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow

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
    from tf_bert.models.gpt import GPT
    from tf_bert.models.translator import is_translator, load_translator
    from tf_bert.visualization import attention
    from tf_bert.visualization.page import write_attention_page
    from tf_bert.visualization.plots import plot_matrix, plot_positions

    if is_translator(flags.checkpoint):
        loaded = load_translator(flags.checkpoint)
        model, look = loaded.model, functools.partial(attention.translation_attention, loaded)
    else:
        model, tokenizer = _load(flags.checkpoint)
        if isinstance(model, GPT) and flags.text_pair is not None:
            raise UsageError("--text_pair is for BERT and translation models; a GPT reads one text")
        look = attention.gpt_attention if isinstance(model, GPT) else attention.bert_attention
        look = functools.partial(look, model, tokenizer)
    if flags.positions_file:
        title = f"positional encodings of {type(model).__name__}"
        plot_positions(flags.positions_file, attention.position_table(model), title)
    if flags.text is not None and wanted != ["positions_file"]:
        maps = look(flags.text, *([] if flags.text_pair is None else [flags.text_pair]))
        if flags.output_file:
            write_attention_page(flags.output_file, maps, f"{type(model).__name__}: {flags.text}")
        if flags.arrays_file:
            attention.save_arrays(flags.arrays_file, maps)
        if flags.png_file:
            chosen = _chosen(flags, maps)
            layer = flags.layer
            if layer is None and chosen.name == "cross":  # aligns words best (Garg et al. 2019, section 4.2)
                layer = max(len(chosen.layers) - 2, 0)
            titles = ("source", "target") if chosen.name == "cross" else ("looked at", "looks")
            matrix = chosen.matrix(layer, flags.head)
            plot_matrix(flags.png_file, matrix, chosen.columns, chosen.rows, "", *titles)
    for name in wanted:
        print(f"{getattr(flags, name)}: written")


def _chosen(flags, maps):
    for some in maps:
        if flags.kind in (None, some.name):
            return some
    raise ValueError(f"this model has no {flags.kind} attention, only {', '.join(some.name for some in maps)}")


def _load(path: str):
    """The model and its tokenizer: a GPT, or the encoder of a BERT."""
    from tf_bert.configs import GPTConfig
    from tf_bert.models.bert import Bert
    from tf_bert.models.gpt import GPT
    from tf_bert.models.pretrained import load_model, open_checkpoint

    checkpoint = open_checkpoint(path)
    return load_model(path, GPT if isinstance(checkpoint.config, GPTConfig) else Bert), checkpoint.tokenizer()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
