"""``tf-bert run_ner``: fine-tunes BERT to tag words, as for named entities, evaluates it, and tags files."""

import functools
import os
from collections.abc import Sequence

from tf_bert.commands.distribution_flags import strategy_from_flags
from tf_bert.commands.eval_results import write_and_show
from tf_bert.commands.finetuning_flags import (
    add_finetuning_flags,
    needs_fixed_length,
    read_config_and_tokenizer,
    training_options,
)
from tf_bert.commands.flags import STOPPED, Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow
from tf_bert.data.finetuning.label_list import LABELS_FILE, check_labels, noted_labels

ENDINGS = (".conll", ".txt", ".jsonl")

FLAGS = Flags(
    "run_ner",
    """
    Fine-tunes BERT to tag words (named entities, parts of speech), evaluates it and tags files. A file has a word and
    its tag a line and an empty line between sentences (CoNLL) or, where it ends in .jsonl, an object a line:
    {"words": ["Ada", "sings"], "tags": ["B-person", "O"]}. output_dir gets checkpoints, eval_results.txt with the F1 of
    entities for each type, and test_predictions in the format of the test file.

    Example: tf-bert run_ner --data_dir=wnut --vocab_file=vocab.txt --bert_config_file=bert_config.json
        --init_checkpoint=bert_model.ckpt --output_dir=runs/ner --do_train --do_eval --do_predict
        --max_seq_length=128 --learning_rate=5e-5 --num_train_epochs=3
    """,
)
FLAGS.string("data_dir", None, "Folder of the data files; without it, --train_file and others name them.")
FLAGS.integer("max_seq_length", 128, "Pieces of a window, [CLS] and [SEP] among them.", minimum=3)
FLAGS.integer("doc_stride", None, "Pieces from the start of a window to that of the next; half a window.", minimum=1)
FLAGS.boolean("do_train", False, "Whether to train.")
FLAGS.boolean("do_eval", False, "Whether to evaluate on the dev file.")
FLAGS.boolean("do_predict", False, "Whether to tag the test file; it may have tags, which are not looked at.")
FLAGS.integer("eval_batch_size", 8, "Windows in an evaluation batch.", minimum=1)
add_finetuning_flags(FLAGS)
FLAGS.string("text_column", None, "The words: number of the column, from 1 (default 1); of .jsonl its name (words).")
FLAGS.string("label_column", None, "The tags: number of the column (default -1, the last); of .jsonl its name (tags).")
FLAGS.string("labels", None, "The tags, separated by commas; by default those of the training file.")
for _split in ("train", "dev", "test"):
    FLAGS.string(f"{_split}_file", None, f"The file, where it is not {_split}{f', {_split}'.join(ENDINGS)}.")


def run(flags) -> int:
    """Trains, evaluates and tags."""
    if not (flags.do_train or flags.do_eval or flags.do_predict):
        raise UsageError("give --do_train, --do_eval, --do_predict or several: there is nothing else to do")
    config, tokenizer = read_config_and_tokenizer(flags)
    train = _read(flags, "train") if flags.do_train else None
    dev = _read(flags, "dev") if flags.do_eval else None
    test = _read(flags, "test") if flags.do_predict else None
    labels = _labels(flags, train)
    if flags.do_eval:
        from tf_bert.data.finetuning.tagging_scores import need_seqeval_for

        need_seqeval_for(labels)

    load_tensorflow()
    from tf_bert.models.bert_tasks import BertTokenClassifier
    from tf_bert.training import finetuning, runs
    from tf_bert.training.workers import is_chief

    strategy = strategy_from_flags(flags)
    chief = is_chief(strategy)

    def make_model():
        return BertTokenClassifier(config, num_labels=len(labels), attention=flags.attention)

    if flags.do_train:
        features = _features(flags, train, labels, tokenizer, "train")
        options = training_options(flags, len(features))
        note = functools.partial(
            finetuning.write_companions,
            flags.output_dir,
            config,
            tokenizer,
            "BertForTokenClassification",
            "tags",
            labels,
            max_seq_length=flags.max_seq_length,
        )
        begin = {"init_checkpoint": flags.init_checkpoint, "note": note}
        try:
            model = finetuning.finetune(
                make_model, _columns(features), flags.output_dir, options, strategy=strategy, **begin
            )
        except runs.Stopped as stopped:
            print(f"tf-bert run_ner: {stopped}")
            return STOPPED
        step = options.num_train_steps
    else:
        model = finetuning.compiled(make_model, runs.RunOptions(seed=flags.seed), strategy)
        step = runs.load_for_evaluation(model, flags.output_dir, flags.init_checkpoint)

    if flags.do_eval:
        tags, loss = _tag(flags, model, _features(flags, dev, labels, tokenizer, "eval"), dev, labels)
        if chief:
            _write_figures(flags, dev, tags, loss, step)
    if flags.do_predict:
        tags, _ = _tag(flags, model, _features(flags, test, labels, tokenizer, "predict"), test, labels)
        if chief:
            _write_tags(flags, tags)
    return 0


def _path(flags, split: str) -> str:
    """The file of a split."""
    if flags[f"{split}_file"].value:
        return flags[f"{split}_file"].value
    paths = [os.path.join(flags.data_dir or ".", split + ending) for ending in ENDINGS]
    found = [path for path in paths if os.path.exists(path)]
    if not found:
        raise FileNotFoundError(f"there is no file {' or '.join(paths)}; --{split}_file names another one")
    return found[0]


def _columns_of(flags, path: str):
    """Where a file has words and tags, by the flags."""
    from tf_bert.data.finetuning.tagging import CONLL_COLUMNS, JSONL_COLUMNS, TagColumns, is_jsonl

    usual = JSONL_COLUMNS if is_jsonl(path) else CONLL_COLUMNS
    given = TagColumns(flags.text_column or usual.words, flags.label_column or usual.tags)
    if is_jsonl(path):
        return given
    try:
        given = TagColumns(int(given.words), int(given.tags))
    except ValueError:
        raise UsageError(
            f"--text_column and --label_column are numbers for {path}: found {given.words} and {given.tags}"
        ) from None
    if 0 in (given.words, given.tags):
        raise UsageError("--text_column and --label_column count from 1, or from the end -1: there is no column 0")
    return given


def _read(flags, split: str):
    from tf_bert.data.finetuning.tagging import read_tagged

    path = _path(flags, split)
    return read_tagged(path, _columns_of(flags, path), tags=split != "test")


def _labels(flags, train) -> list[str]:
    """The tags in the order of their ids, which must be those that the model was trained with."""
    from tf_bert.data.finetuning.tagging import labels_of

    noted = noted_labels(flags.output_dir, None if flags.do_train else flags.init_checkpoint)
    if flags.labels:
        labels = [label.strip() for label in flags.labels.split(",")]
    elif flags.do_train:
        labels = labels_of(train)
    elif noted:
        labels = noted["labels"]
    else:
        raise ValueError(
            f"the tags are not known: {LABELS_FILE} is neither in {flags.output_dir} nor beside init_checkpoint; "
            "give --labels in the order of training"
        )
    check_labels(noted, "tags", labels)
    return labels


def _features(flags, sentences, labels, tokenizer, name: str) -> list:
    """The windows of all sentences."""
    from tf_bert.data.finetuning.tagging import convert_sentences_to_features
    from tf_bert.progress import say, track

    shown = track(sentences, "tokenizing", unit="sentences")
    features = convert_sentences_to_features(shown, labels, flags.max_seq_length, tokenizer, flags.doc_stride)
    words = sum(len(sentence.words) for sentence in sentences)
    say(f"{name}: {len(sentences):,} sentences, {words:,} words, {len(features):,} windows")
    return features


def _columns(features: list) -> dict:
    from tf_bert.trainer.prediction import SEQUENCES, stack

    return stack(features, (*SEQUENCES, "label_ids"))


def _tag(flags, model, features: list, sentences, labels: list[str]) -> tuple[list[list[str]], float]:
    """The predicted tags of all sentences, and the mean loss of a word."""
    from tf_bert.progress import Progress
    from tf_bert.trainer.prediction import predict_tags

    batch_size = flags.predict_batch_size if flags.do_predict and not flags.do_eval else flags.eval_batch_size
    with Progress("tagging", len(features), "windows") as progress:
        found, loss = predict_tags(
            model, features, [len(s.words) for s in sentences], batch_size, needs_fixed_length(flags), progress.update
        )
    return [[labels[number] for number in of_sentence] for of_sentence in found], loss


def _write_figures(flags, dev, tags, loss: float, step: int) -> None:
    from tf_bert.data.finetuning.tagging_scores import tagging_figures

    figures = tagging_figures([sentence.tags for sentence in dev], tags)
    figures = {f"eval_{name}": value for name, value in figures.items()} | {"eval_loss": loss}
    write_and_show(flags.output_dir, figures, step)


def _write_tags(flags, tags) -> None:
    from tf_bert.data.finetuning.tagging import write_tagged

    source = _path(flags, "test")
    path = os.path.join(flags.output_dir, "test_predictions" + os.path.splitext(source)[1])
    write_tagged(path, source, tags, _columns_of(flags, source))
    print(f"{sum(map(len, tags)):,} words in {len(tags):,} sentences: {path}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
