"""``tf-bert fill_mask``: prints the likeliest words for each [MASK] of a text."""

import sys
from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.flags import Flags
from tf_bert.commands.quiet import load_tensorflow

with deferred():
    from tf_bert.models import bert, bert_masked_lm, fill_mask, pretrained
    from tf_bert.serving import lines

FLAGS = Flags(
    "fill_mask",
    """
    Prints the likeliest words for each [MASK] of one or more texts, with their probabilities. An empty line stays one;
    all lines are checked before the first is filled.

    Special tokens in a text ([MASK], [SEP]) count as such. The checkpoint is a folder with vocab.txt and
    bert_config.json, such as what run_pretraining leaves or a published model.

    Example: tf-bert fill_mask --checkpoint=runs/pretrain/export "The function returns a [MASK] object."
    """,
)
FLAGS.string("checkpoint", None, "Folder of a model, in any format, or a published model's name.", required=True)
FLAGS.string("text", None, "The text; without one, each line of standard input is a text.")
FLAGS.integer("top_k", 5, "How many words for each [MASK].", minimum=1)
FLAGS.positional("text")


def run(flags) -> None:
    """Prints a table for each mask of each text."""
    if flags.text is not None:
        given = [("the text", flags.text)]
    else:
        given = [(where, line.strip()) for where, line in lines.numbered_lines(sys.stdin.buffer)]
    if not any(text for _, text in given):
        raise ValueError("there is no text: give one in quotes, or some on standard input, one a line")
    print_fillings(flags.checkpoint, given, flags.top_k)


def print_fillings(path: str, given: Sequence[tuple[str, str]], top_k: int) -> None:
    """Loads a checkpoint and prints the likeliest words for each [MASK] of some texts; an empty text stays a line.

    Args:
        path: of the checkpoint.
        given: where each text comes from, for messages, and the text.
        top_k: words for each [MASK].
    """
    load_tensorflow()
    checkpoint = pretrained.open_checkpoint(path)
    if "cls/predictions/output_bias" not in checkpoint.reader.shapes:
        raise ValueError(f"{path} has no masked-LM head (cls/predictions): it cannot fill masks")
    tokenizer = checkpoint.tokenizer(special_tokens_in_text=True)
    pairs = "cls/seq_relationship/output_weights" in checkpoint.reader.shapes
    model = pretrained.load_model(checkpoint, bert.BertForPreTraining if pairs else bert_masked_lm.BertForMaskedLM)
    places, texts = zip(*(line for line in given if line[1]), strict=True)
    found = iter(fill_mask.fill_mask(model, tokenizer, texts, top_k, places))
    for _, text in given:
        masks = next(found) if text else []
        print(text)
        for number, fillings in enumerate(masks, 1):
            if len(masks) > 1:
                print(f"  [MASK] number {number}")
            for token, probability in fillings:
                print(f"  {probability:7.2%}  {token}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
