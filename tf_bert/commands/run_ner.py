"""``tf-bert run_ner``: fine-tunes BERT to tag words, as for named entities, evaluates it, and tags files."""

import os
from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.eval_results import write_and_show
from tf_bert.commands.finetuning_flags import (
    add_bert_flags,
    add_finetuning_flags,
    given_files,
    split_names,
    strategy_and_bert,
)
from tf_bert.commands.flags import Flags, UsageError, options_from
from tf_bert.progress import Progress, say, track
from tf_bert.training.options import BertFineTuningOptions

with deferred():
    from tf_bert.data.finetuning import label_list, tagging, tagging_files, tagging_scores
    from tf_bert.data.text import tables
    from tf_bert.models import bert_tasks
    from tf_bert.trainer import prediction
    from tf_bert.training import finetuning, workers

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
add_bert_flags(FLAGS)
add_finetuning_flags(FLAGS, BertFineTuningOptions)
FLAGS.string("text_column", None, "The words: number of the column, from 1 (default 1); of .jsonl its name (words).")
FLAGS.string("label_column", None, "The tags: number of the column (default -1, the last); of .jsonl its name (tags).")
FLAGS.string("labels", None, "The tags, separated by commas; by default those of the training file.")
for _split in ("train", "dev", "test"):
    FLAGS.string(f"{_split}_file", None, f"The file, where it is not {_split}.conll, {_split}.txt or {_split}.jsonl.")


def run(flags) -> int:
    """Trains, evaluates and tags."""
    if not (flags.do_train or flags.do_eval or flags.do_predict):
        raise UsageError("give --do_train, --do_eval, --do_predict or several: there is nothing else to do")
    files = tagging_files.TagFiles(flags.data_dir, given_files(flags), flags.text_column, flags.label_column)
    train = files.read("train") if flags.do_train else None
    dev = files.read("dev") if flags.do_eval else None
    test = files.read("test") if flags.do_predict else None
    labels = split_names(flags.labels) or (tagging.labels_of(train) if train else [])
    labels = label_list.labels_of_run("tags", labels, flags.output_dir, flags.init_checkpoint, flags.do_train)
    if flags.do_eval:
        tagging_scores.need_seqeval_for(labels)
    strategy, config, tokenizer = strategy_and_bert(flags)
    chief = workers.is_chief(strategy)

    def make_model():
        return bert_tasks.BertTokenClassifier(config, num_labels=len(labels), attention=flags.attention)

    def note(model):
        settings = {"max_seq_length": flags.max_seq_length}
        finetuning.write_companions(flags.output_dir, model, tokenizer, "tags", labels, **settings)

    features = _features(flags, train, labels, tokenizer, "train") if flags.do_train else None
    columns = prediction.stack(features, (*prediction.SEQUENCES, "label_ids")) if flags.do_train else None
    task = finetuning.FineTuning(make_model, columns, options_from(flags, BertFineTuningOptions), note=note)
    if flags.do_train:
        model = task.train(flags.output_dir, init_checkpoint=flags.init_checkpoint, strategy=strategy)
    else:
        model = task.load(flags.output_dir, flags.init_checkpoint, strategy)
    if flags.do_eval:
        tags, loss = _tag(flags, model, dev, labels, tokenizer, "eval", flags.eval_batch_size)
        if chief:
            figures = tagging_scores.tagging_figures([sentence.tags for sentence in dev], tags)
            figures = {f"eval_{name}": value for name, value in figures.items()} | {"eval_loss": loss}
            write_and_show(flags.output_dir, figures, int(model.optimizer.iterations))
    if flags.do_predict:
        tags, _ = _tag(flags, model, test, labels, tokenizer, "predict", flags.predict_batch_size)
        if chief:
            source = files.path("test")
            path = os.path.join(flags.output_dir, "test_predictions" + tables.ending_of(source))
            tagging.write_tagged(path, source, tags, files.columns(source))
            print(f"{sum(map(len, tags)):,} words in {len(tags):,} sentences: {path}")
    return 0


def _features(flags, sentences, labels, tokenizer, name: str) -> list:
    """The windows of all sentences."""
    shown = track(sentences, "tokenizing", unit="sentences")
    settings = labels, flags.max_seq_length, tokenizer, flags.doc_stride
    features = tagging.convert_sentences_to_features(shown, *settings)
    words = sum(len(sentence.words) for sentence in sentences)
    say(f"{name}: {len(sentences):,} sentences, {words:,} words, {len(features):,} windows")
    return features


def _tag(flags, model, sentences, labels, tokenizer, name: str, batch_size: int) -> tuple[list[list[str]], float]:
    """The predicted tags of all sentences, and the mean loss of a word."""
    features = _features(flags, sentences, labels, tokenizer, name)
    words, fixed = [len(sentence.words) for sentence in sentences], prediction.needs_fixed_length(model)
    with Progress("tagging", len(features), "windows") as progress:
        found, loss = prediction.predict_tags(model, features, words, batch_size, fixed, progress.update)
    return [[labels[number] for number in of_sentence] for of_sentence in found], loss


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
