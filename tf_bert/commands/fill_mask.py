"""``tf-bert fill_mask``: prints the likeliest words for each [MASK] of a text."""

import sys
from collections.abc import Sequence

from tf_bert.commands.flags import Flags
from tf_bert.commands.quiet import load_tensorflow

FLAGS = Flags(
    "fill_mask",
    """
    Prints the likeliest words for each [MASK] of one or more texts, with their probabilities.

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
    texts = [flags.text] if flags.text is not None else [line.strip() for line in sys.stdin if line.strip()]
    if not texts:
        raise ValueError("there is no text: give one in quotes, or some on standard input, one a line")
    print_fillings(flags.checkpoint, texts, flags.top_k)


def print_fillings(path: str, texts: Sequence[str], top_k: int) -> None:
    """Loads a checkpoint and prints the likeliest words for each [MASK] of some texts."""
    load_tensorflow()
    from tf_bert.models.bert import BertForPreTraining
    from tf_bert.models.bert_masked_lm import BertForMaskedLM
    from tf_bert.models.fill_mask import fill_mask
    from tf_bert.models.pretrained import load_model, open_checkpoint
    from tf_bert.tokenization.full import FullTokenizer

    checkpoint = open_checkpoint(path)
    if "cls/predictions/output_bias" not in checkpoint.reader.shapes:
        raise ValueError(f"{path} has no masked-LM head (cls/predictions): it cannot fill masks")
    tokenizer = checkpoint.tokenizer()
    tokenizer = FullTokenizer(tokenizer.vocab_file, **{**tokenizer.get_config(), "special_tokens_in_text": True})
    pairs = "cls/seq_relationship/output_weights" in checkpoint.reader.shapes
    model = load_model(path, BertForPreTraining if pairs else BertForMaskedLM)
    for text, masks in zip(texts, fill_mask(model, tokenizer, texts, top_k), strict=True):
        print(text)
        for number, fillings in enumerate(masks, 1):
            if len(masks) > 1:
                print(f"  [MASK] number {number}")
            for token, probability in fillings:
                print(f"  {probability:7.2%}  {token}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
