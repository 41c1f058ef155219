"""``tf-bert run_classifier``: fine-tunes BERT to classify texts and pairs, evaluates it, and predicts with it."""

import functools
import os
from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.eval_results import write_and_show
from tf_bert.commands.finetuning_flags import (
    add_bert_flags,
    add_file_flags,
    add_finetuning_flags,
    file_format,
    split_names,
    strategy_and_bert,
)
from tf_bert.commands.flags import Flags, UsageError, options_from
from tf_bert.progress import say
from tf_bert.training.options import BertFineTuningOptions

with deferred():
    from tf_bert.data.finetuning import classification, classifier, glue, label_list, multiple_choice, user_files
    from tf_bert.models import bert_tasks
    from tf_bert.models import multiple_choice as multiple_choice_models
    from tf_bert.training import finetuning, workers


def add_classifier_flags(flags: Flags) -> None:
    """Adds all flags of the command."""
    flags.string(
        "task_name", None, "cola, mnli, ..., xnli, csv, jsonl, or module:Class of a DataProcessor.", required=True
    )
    flags.integer("max_seq_length", 128, "Pieces of an example, [CLS] and [SEP] among them.", minimum=5)
    flags.boolean("do_train", False, "Whether to train.")
    flags.boolean("do_eval", False, "Whether to evaluate on the dev set.")
    flags.boolean("do_predict", False, "Whether to predict the test set.")
    flags.integer("eval_batch_size", 8, "Examples in an evaluation batch.", minimum=1)
    add_bert_flags(flags)
    add_finetuning_flags(flags, BertFineTuningOptions)
    flags.boolean("skip_bad_rows", False, "Leave rows of GLUE's files out that lack columns, and list them.")
    add_file_flags(flags)
    flags.enum(
        "kind",
        "single",
        ["single", "multi", "regression", "choice"],
        "csv, jsonl: one label, several, a number, or which of several choices belongs to the text.",
    )
    flags.float(
        "dev_share", 0.0, "Share of the training file to evaluate on, and not to train on.", minimum=0.0, maximum=0.9
    )
    flags.string("label_separator", ";", "csv: what is between the labels of a row with several.")


FLAGS = Flags(
    "run_classifier",
    """
    Fine-tunes BERT on a task of GLUE, on XNLI, or on files of your own (--task_name=csv or jsonl), evaluates it and
    predicts. output_dir gets checkpoints, eval_results.txt, and test_results.tsv: for each test example the
    probabilities of the labels, in the order of label_list.json.

    Example: tf-bert run_classifier --task_name=csv --data_dir=reviews --vocab_file=vocab.txt
        --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --output_dir=runs/reviews
        --do_train --do_eval --max_seq_length=128 --learning_rate=2e-5 --num_train_epochs=3
    """,
)
add_classifier_flags(FLAGS)


def run(flags) -> int:
    """Trains, evaluates and predicts."""
    if not (flags.do_train or flags.do_eval or flags.do_predict):
        raise UsageError("give --do_train, --do_eval, --do_predict or several: there is nothing else to do")
    processor = _processor(flags)
    wanted = {"train": flags.do_train, "dev": flags.do_eval, "test": flags.do_predict}
    train, dev, test = glue.read_splits(processor, flags.data_dir, wanted, flags.dev_share, flags.seed)
    kind, places = processor.kind, (flags.output_dir, flags.init_checkpoint)
    strategy, config, tokenizer = strategy_and_bert(flags)
    labels = label_list.labels_of_run(kind, processor.get_labels(), *places, flags.do_train)
    chief = workers.is_chief(strategy)
    options = options_from(flags, BertFineTuningOptions)

    def make_model():
        if kind == "choice":
            return multiple_choice_models.BertMultipleChoice(config, attention=flags.attention)
        return bert_tasks.BertClassifier(config, num_labels=len(labels) or 1, kind=kind, attention=flags.attention)

    def note(model):
        settings = {"max_seq_length": flags.max_seq_length}
        finetuning.write_companions(flags.output_dir, model, tokenizer, kind, labels, **settings)

    columns_of = functools.partial(_columns, flags, kind, labels, tokenizer, chief)
    columns = columns_of("train", train) if flags.do_train else None
    task = finetuning.FineTuning(make_model, columns, options, note=note)
    if flags.do_train:
        model = task.train(flags.output_dir, init_checkpoint=flags.init_checkpoint, strategy=strategy)
    else:
        model = task.load(flags.output_dir, flags.init_checkpoint, strategy)
    if flags.do_eval:
        columns, size = columns_of("eval", dev), flags.eval_batch_size
        logits = classifier.predict_logits(model, columns, size)
        figures = classifier.evaluation_figures(logits, columns["label_ids"], size, kind, processor.metrics)
        if chief:
            write_and_show(flags.output_dir, figures, int(model.optimizer.iterations))
    if flags.do_predict:
        logits = classifier.predict_logits(model, columns_of("predict", test), flags.predict_batch_size)
        if chief:
            path = os.path.join(flags.output_dir, "test_results.tsv")
            classifier.write_test_results(path, logits, kind)
            print(f"{len(logits):,} predictions: {path}")
    return 0


def _processor(flags):
    """What reads the files of the task."""
    name = flags.task_name.lower()
    if name not in user_files.ENDINGS:
        if flags.data_dir is None:
            raise UsageError(f"--task_name={flags.task_name} needs --data_dir")
        return glue.find_processor(flags.task_name, flags.skip_bad_rows)
    format = file_format(flags, name, flags.kind, flags.label_separator)
    if flags.kind != "choice":
        return user_files.UserFilesProcessor(format)
    if not flags.choice_columns or flags.labels:
        raise UsageError("--kind=choice needs --choice_columns, and takes no --labels: the choices are the labels")
    return multiple_choice.ChoiceFilesProcessor(format, split_names(flags.choice_columns))


def _columns(flags, kind: str, labels: list[str], tokenizer, write: bool, name: str, examples: list) -> dict:
    """The inputs of all examples; also written to ``NAME.tf_record`` as the original does."""
    if not examples:
        raise ValueError(f"there are no examples for {name}")
    if kind == "choice":
        columns = multiple_choice.convert_choices_to_features(examples, flags.max_seq_length, tokenizer)
        say(f"{name}: {len(examples):,} examples with up to {columns['input_ids'].shape[1]} choices")
        return columns
    settings = labels, flags.max_seq_length, tokenizer, kind
    features = classification.convert_examples_to_features(examples, *settings)
    if write:
        classification.write_features(features, os.path.join(flags.output_dir, f"{name}.tf_record"))
    first = tokenizer.decode(features[0].input_ids[: sum(features[0].input_mask)], skip_special_tokens=False)
    say(f"{name}: {len(features):,} examples, the first: {first}")
    return classifier.columns_of(features, kind)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
