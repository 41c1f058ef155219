"""``tf-bert predict``: what a fine-tuned model says about each line of standard input."""

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow

FLAGS = Flags(
    "predict",
    """
    Predicts for each line of standard input with a model that was fine-tuned: a folder that run_classifier, run_ner,
    run_squad or run_gpt left, or a checkpoint in any format. One line out for each line in, in order; memory does not
    grow. A line is, for a classifier, a text or TEXT ||| TEXT; for a tagger, words separated by blanks; for question
    answering, QUESTION ||| TEXT; for multiple choice, TEXT ||| CHOICE ||| CHOICE ...

    Example: tf-bert predict runs/reviews < reviews.txt > labels.jsonl
    """,
)
FLAGS.string("checkpoint", None, "Folder or file of a fine-tuned model, in any format.", required=True)
FLAGS.positional("checkpoint")
FLAGS.enum("format", "jsonl", ["jsonl", "tsv"], "What is printed: an object a line, or columns separated by tabs.")
FLAGS.integer("batch_size", 32, "Lines in a batch.", minimum=1)
FLAGS.integer("max_seq_length", None, "Pieces that are read; by default as in training, else what the model reads.")
FLAGS.string("labels", None, "The labels, separated by commas, in the order of training; by default as noted there.")
FLAGS.string("bert_config_file", None, "The sizes of the model, where they do not lie beside it.")
FLAGS.string("vocab_file", None, "The vocabulary, where it does not lie beside the model.")
FLAGS.boolean("do_lower_case", None, "Whether to lower-case the text, where nothing beside the model says so.")
FLAGS.boolean("version_2_with_negative", None, "Questions: whether there may be no answer; by default as in training.")
FLAGS.float("null_score_diff_threshold", 0.0, "Questions: no answer where its score exceeds the best one's by more.")
FLAGS.integer("doc_stride", 128, "Questions: pieces from the start of a window to that of the next.", minimum=1)
FLAGS.integer("max_query_length", 64, "Questions: pieces of a question that are read.", minimum=1)
FLAGS.integer("max_answer_length", 30, "Questions: pieces of an answer at most.", minimum=0)

BATCHES_AT_ONCE = 64  # their lines are sorted by length
KINDS = {
    "single": "BertForSequenceClassification",
    "multi": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "tags": "BertForTokenClassification",
    "squad": "BertForQuestionAnswering",
    "choice": "BertForMultipleChoice",
}
MOST_PIECES = 512


def run(flags) -> None:
    """Loads the model, reads and prints."""
    load_tensorflow()
    from tf_bert.progress import Progress
    from tf_bert.serving.predictors import predict_lines

    predictor = _predictor(flags)
    at_once = 1 if sys.stdin.isatty() else BATCHES_AT_ONCE * flags.batch_size
    results = predict_lines(predictor, numbered_lines(sys.stdin.buffer), at_once)
    if sys.stdout.isatty():
        for result in results:
            print(_line(flags, predictor, result), flush=True)
        return
    with Progress("predicting", None, "lines") as progress:
        for result in results:
            print(_line(flags, predictor, result))
            progress.update()
    sys.stdout.flush()


def numbered_lines(stream: BinaryIO) -> Iterator[tuple[str, str]]:
    """Yields where each line stands, and the line.

    Raises:
        ValueError: a line is not UTF-8; names it.
    """
    for number, line in enumerate(stream, 1):
        where = f"standard input: line {number}"
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: not valid UTF-8 (byte 0x{line[error.start]:02x}, {error.reason})") from None
        yield where, text.replace("\r", "").removesuffix("\n")


def _line(flags, predictor, result: dict) -> str:
    if flags.format == "jsonl":
        return json.dumps(result, ensure_ascii=False)
    return "\t".join(predictor.columns(result))


def _predictor(flags):
    from tf_bert.configs import BertConfig, GPTConfig
    from tf_bert.data.finetuning.label_list import noted_labels
    from tf_bert.data.finetuning.squad_predictions import AnswerOptions
    from tf_bert.models.pretrained import open_checkpoint
    from tf_bert.serving import predictors

    config = BertConfig.from_json_file(flags.bert_config_file) if flags.bert_config_file else None
    checkpoint = open_checkpoint(flags.checkpoint, config)
    noted = noted_labels(flags.checkpoint) or {"kind": None, "labels": []}
    if isinstance(checkpoint.config, GPTConfig):
        return _gpt_predictor(flags, checkpoint, noted)
    architecture = KINDS.get(noted["kind"], checkpoint.architecture)
    if architecture not in KINDS.values():
        raise ValueError(
            f"{flags.checkpoint} is a {architecture}: it was not fine-tuned and has nothing to predict here; "
            "tf-bert fill_mask fills masks, tf-bert extract_features gives vectors"
        )
    tokenizer = _tokenizer(flags, checkpoint)
    model = _model(flags, checkpoint, architecture)
    length = _length(flags, checkpoint, noted)
    arguments = (model, tokenizer, _labels(flags, checkpoint, model, noted), length, flags.batch_size)
    if architecture != "BertForQuestionAnswering":
        kinds = {
            "BertForSequenceClassification": predictors.ClassifierPredictor,
            "BertForTokenClassification": predictors.TaggerPredictor,
            "BertForMultipleChoice": predictors.ChoicePredictor,
        }
        return kinds[architecture](*arguments)
    version_2 = flags.version_2_with_negative
    options = AnswerOptions(
        max_answer_length=flags.max_answer_length,
        do_lower_case=tokenizer.basic_tokenizer.do_lower_case,
        version_2_with_negative=noted.get("version_2_with_negative", False) if version_2 is None else version_2,
        null_score_diff_threshold=flags.null_score_diff_threshold,
        no_answer_text="",
        text_as_in_document=True,
    )
    lengths = {"doc_stride": flags.doc_stride, "max_query_length": flags.max_query_length}
    return predictors.AnswerPredictor(*arguments, options=options, **lengths)


def _gpt_predictor(flags, checkpoint, noted: dict):
    from tf_bert.serving.predictors import GPTChoicePredictor, GPTClassifierPredictor

    if checkpoint.architecture != "GPTClassifier":
        raise ValueError(
            f"{flags.checkpoint} is a GPT that was not fine-tuned to classify: tf-bert run_gpt does that, and tf-bert "
            "generate goes on with a text"
        )
    model = _model(flags, checkpoint, checkpoint.architecture)
    kind = GPTChoicePredictor if model.kind == "choice" else GPTClassifierPredictor
    labels = [] if model.kind == "choice" else _labels(flags, checkpoint, model, noted)
    return kind(model, checkpoint.tokenizer(), labels, _length(flags, checkpoint, noted), flags.batch_size)


def _length(flags, checkpoint, noted: dict) -> int:
    """How many pieces are read."""
    length = flags.max_seq_length or noted.get("max_seq_length") or MOST_PIECES
    most = checkpoint.config.max_position_embeddings
    if flags.max_seq_length and length > most:
        raise UsageError(f"--max_seq_length={length}: the model reads {most} pieces")
    return min(length, most)


def _tokenizer(flags, checkpoint):
    from tf_bert.checkpoints.vocabulary import check_vocabulary_size
    from tf_bert.tokenization.full import FullTokenizer

    inside = getattr(getattr(checkpoint.reader, "model", None), "preprocessor_config", lambda: None)()
    if checkpoint.vocab_file is None and flags.vocab_file is None and inside is not None:
        return _tokenizer_inside(inside["config"])
    if flags.vocab_file is None and flags.do_lower_case is None:
        return checkpoint.tokenizer()
    vocab_file = flags.vocab_file or checkpoint.vocab_file
    if vocab_file is None:
        raise UsageError(f"missing --vocab_file: there is no vocabulary beside {flags.checkpoint}")
    settings = checkpoint.settings.to_dict() if checkpoint.settings else {}
    if flags.do_lower_case is not None:
        if settings.get("do_lower_case", flags.do_lower_case) != flags.do_lower_case:
            raise ValueError(f"{flags.checkpoint} notes do_lower_case {not flags.do_lower_case}: leave the flag out")
        settings["do_lower_case"] = flags.do_lower_case
    if "do_lower_case" not in settings:
        raise UsageError(f"missing --do_lower_case or --nodo_lower_case: nothing beside {flags.checkpoint} says so")
    tokenizer = FullTokenizer(vocab_file, **settings)
    rows = checkpoint.config.vocab_size
    check_vocabulary_size(tokenizer.vocab_size, rows, rows, vocab_file)
    return tokenizer


def _tokenizer_inside(config: dict):
    """The tokenizer that a model brings along in its one file."""
    from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
    from tf_bert.tokenization.full import FullTokenizer
    from tf_bert.tokenization.vocabulary import save_vocab

    with tempfile.TemporaryDirectory() as folder:
        vocab_file = os.path.join(folder, "vocab.txt")
        save_vocab(config["vocabulary"], vocab_file)
        return FullTokenizer(vocab_file, **TokenizerSettings.from_dict(config).to_dict())


def _model(flags, checkpoint, architecture: str):
    """The model; all of it has to come from the checkpoint."""
    from tf_bert.models.pretrained import ARCHITECTURES, load_model

    cls = ARCHITECTURES[architecture]
    loaded = getattr(checkpoint.reader, "model", None)
    if type(loaded) is cls and checkpoint.format == "keras":
        return loaded
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = load_model(flags.checkpoint, cls, checkpoint.config)
    if model.load_report.missing:
        raise ValueError(
            f"{flags.checkpoint} has no value for {', '.join(model.load_report.missing)}: predictions would be random; "
            "fine-tune it first"
        )
    return model


def _labels(flags, checkpoint, model, noted: dict) -> list[str]:
    """The labels of the model's outputs; numbers where nothing says what they are called."""
    outputs = getattr(model, "num_labels", None)
    if outputs is None or getattr(model, "kind", None) == "regression":
        return []
    from tf_bert.data.finetuning.label_list import check_labels

    theirs = checkpoint.config.extra.get("id2label") or {}  # Hugging Face's
    labels = [label.strip() for label in flags.labels.split(",")] if flags.labels else list(noted["labels"])
    if noted["labels"]:
        check_labels(noted, noted["kind"], labels)
    labels = labels or [theirs[key] for key in sorted(theirs, key=int)] or [str(number) for number in range(outputs)]
    if len(labels) != outputs:
        raise ValueError(f"{flags.checkpoint} has {outputs} labels, and {len(labels)} are named: {', '.join(labels)}")
    return labels


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
