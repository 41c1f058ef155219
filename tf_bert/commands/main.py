"""The console command ``tf-bert NAME ...``."""

import difflib
import importlib
import sys
from collections.abc import Sequence

# name -> one line for the overview; the module is tf_bert.commands.NAME
COMMANDS = {
    "attention": "shows where a model looks: a page, a picture, arrays",
    "checkpoints": "lists, describes and fetches published models",
    "convert": "converts a checkpoint: Google's, Hugging Face's, Keras's",
    "create_language_modeling_data": "makes TFRecords of blocks of tokens from text",
    "create_pretraining_data": "makes TFRecords of masked sentence pairs from text",
    "create_translation_data": "makes a vocabulary and TFRecords from parallel text",
    "export": "writes a model for serving: strings in, labels, answers, vectors or text out",
    "extract_features": "writes BERT's vectors for the pieces of texts, or for whole texts",
    "fill_mask": "prints the likeliest words for each [MASK] of a text",
    "generate": "goes on with texts, or talks, with a GPT",
    "predict": "predicts each line of standard input with a fine-tuned model",
    "prepare_corpus": "turns text into one sentence a line, some documents held out",
    "pretrain_demo": "from text to a trained and evaluated small BERT in one go",
    "resize_vocab": "adds words to the vocabulary of a checkpoint, or takes some out",
    "run_classifier": "fine-tunes BERT to classify texts and pairs, evaluates and predicts",
    "run_classifier_with_tfhub": "run_classifier from the SavedModel of TensorFlow Hub in a folder",
    "run_gpt": "fine-tunes a GPT to classify, compare, choose or answer",
    "run_language_modeling": "pre-trains a GPT, or an ELMo, on blocks of tokens",
    "run_ner": "fine-tunes BERT to tag words (named entities), evaluates and tags files",
    "run_pretraining": "pre-trains BERT on TFRecords: masked LM and next sentence",
    "run_squad": "fine-tunes BERT to answer questions about documents, and answers",
    "score_translation": "BLEU, chrF and exact matches of translations, by length too",
    "senses": "how alike a word is in two contexts, layer by layer",
    "serve": "answers requests by HTTP: classes, tags, answers, vectors, completions",
    "train_bpe": "builds the byte-pair vocabulary of a GPT from text",
    "train_translation": "trains Seq2Seq or the Transformer on parallel text",
    "train_vocab": "builds a vocabulary (vocab.txt) from text",
    "translate": "translates a file or standard input",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``tf-bert NAME ...``; returns the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if not argv or argv[0] in ("--help", "-h", "help"):
        print(overview(), end="")
        return 0 if argv else 2
    if argv[0] == "--version":
        from tf_bert import __version__

        print(f"tf_bert {__version__}")
        return 0
    name = argv[0].replace("-", "_")
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else "tf-bert --help lists them"
        print(f"tf-bert: error: unknown command {argv[0]!r}; {hint}", file=sys.stderr)
        return 2
    return importlib.import_module(f"tf_bert.commands.{name}").main(argv[1:])


def overview() -> str:
    """The list of commands."""
    width = max(map(len, COMMANDS), default=0)
    lines = ["usage: tf-bert COMMAND --flag=value ...   (tf-bert COMMAND --help explains each)", ""]
    lines += [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
