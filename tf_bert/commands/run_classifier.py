"""``tf-bert run_classifier``: fine-tunes BERT to classify texts and pairs, evaluates it, and predicts with it."""

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
    add_finetuning_flags(flags)
    flags.boolean("skip_bad_rows", False, "Leave rows of GLUE's files out that lack columns, and list them.")
    add_file_flags(flags)
    flags.enum(
        "kind",
        "single",
        ["single", "multi", "regression", "choice"],
        "csv, jsonl: one label, several, a number, or which of several choices belongs to the text.",
    )
    flags.string("label_separator", ";", "csv: what stands between the labels of a row with several.")


def add_file_flags(flags: Flags) -> None:
    """Adds the flags that say where files of one's own are, and what their columns are called."""
    flags.string("data_dir", None, "Folder of the data files; without it, --train_file and others name them.")
    flags.string("text_column", "text", "csv, jsonl: the column of the text; its number where there is no header.")
    flags.string("text_pair_column", None, "csv, jsonl: the column of a second text.")
    flags.string("label_column", "label", "csv, jsonl: the column of the label.")
    flags.string(
        "choice_columns",
        None,
        "Multiple choice: the columns of the choices, separated by commas; of jsonl it may be one that holds a list.",
    )
    flags.string("labels", None, "csv, jsonl: the labels, separated by commas; by default those of the training file.")
    flags.boolean("header", True, "csv: whether the first row names the columns.")
    flags.string("delimiter", None, "csv: what stands between columns; a tab for .tsv, else a comma.")
    for split in ("train", "dev", "test"):
        flags.string(f"{split}_file", None, f"csv, jsonl: the file, where it is not {split}.csv, .tsv or .jsonl.")


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
    config, tokenizer = read_config_and_tokenizer(flags)
    processor = _processor(flags)
    try:
        train = processor.get_train_examples(flags.data_dir) if flags.do_train else None
        dev = processor.get_dev_examples(flags.data_dir) if flags.do_eval else None
        test = processor.get_test_examples(flags.data_dir) if flags.do_predict else None
    except NotImplementedError as error:
        raise ValueError(str(error)) from None
    labels = labels_of_task(flags, processor)

    load_tensorflow()
    from tf_bert.models.bert_tasks import BertClassifier
    from tf_bert.models.multiple_choice import BertMultipleChoice
    from tf_bert.training import finetuning, runs
    from tf_bert.training.workers import is_chief

    strategy = strategy_from_flags(flags)
    chief = is_chief(strategy)

    def make_model():
        if processor.kind == "choice":
            return BertMultipleChoice(config, attention=flags.attention)
        options = {"kind": processor.kind, "attention": flags.attention}
        return BertClassifier(config, num_labels=len(labels) or 1, **options)

    def features(examples, name):
        return _features(flags, examples, labels, tokenizer, name, processor.kind, chief)

    if flags.do_train:
        options = training_options(flags, len(train))
        note = functools.partial(
            finetuning.write_companions,
            flags.output_dir,
            config,
            tokenizer,
            "BertForMultipleChoice" if processor.kind == "choice" else "BertForSequenceClassification",
            processor.kind,
            labels,
            max_seq_length=flags.max_seq_length,
        )
        columns, begin = features(train, "train"), {"init_checkpoint": flags.init_checkpoint, "note": note}
        try:
            model = finetuning.finetune(make_model, columns, flags.output_dir, options, strategy=strategy, **begin)
        except runs.Stopped as stopped:
            print(f"tf-bert run_classifier: {stopped}")
            return STOPPED
        step = options.num_train_steps
    else:
        model = finetuning.compiled(make_model, runs.RunOptions(seed=flags.seed), strategy)
        step = runs.load_for_evaluation(model, flags.output_dir, flags.init_checkpoint)

    if flags.do_eval:
        columns = features(dev, "eval")
        logits = _logits(flags, model, columns, flags.eval_batch_size)
        figures = evaluation_figures(logits, columns["label_ids"], flags.eval_batch_size, processor)
        if chief:
            write_and_show(flags.output_dir, figures, step)
    if flags.do_predict:
        logits = _logits(flags, model, features(test, "predict"), flags.predict_batch_size)
        if chief:
            path = os.path.join(flags.output_dir, "test_results.tsv")
            write_test_results(path, logits, processor.kind)
            print(f"{len(logits):,} predictions: {path}")
    return 0


def _processor(flags):
    from tf_bert.data.finetuning.glue import find_processor
    from tf_bert.data.finetuning.multiple_choice import ChoiceFilesProcessor
    from tf_bert.data.finetuning.user_files import ENDINGS, UserFilesProcessor

    name = flags.task_name.lower()
    if name not in ENDINGS:
        if flags.data_dir is None:
            raise UsageError(f"--task_name={flags.task_name} needs --data_dir")
        return find_processor(flags.task_name, flags.skip_bad_rows)
    format = file_format(flags, name, flags.kind, flags.label_separator)
    if flags.kind != "choice":
        return UserFilesProcessor(format)
    if not flags.choice_columns or flags.labels:
        raise UsageError("--kind=choice needs --choice_columns, and takes no --labels: the choices are the labels")
    return ChoiceFilesProcessor(format, [column.strip() for column in flags.choice_columns.split(",")])


def file_format(flags, name: str, kind: str, label_separator: str = ";"):
    """The `FileFormat` that the flags of `add_file_flags` describe; labels may be those of the model at hand."""
    from tf_bert.data.finetuning.glue import SPLITS
    from tf_bert.data.finetuning.user_files import FileFormat

    files = {split: flags[f"{split}_file"].value for split in SPLITS if flags[f"{split}_file"].value}
    noted = noted_labels(flags.output_dir, flags.init_checkpoint)
    given = [label.strip() for label in flags.labels.split(",")] if flags.labels else None
    return FileFormat(
        format=name,
        text=flags.text_column,
        text_pair=flags.text_pair_column,
        label=flags.label_column,
        kind=kind,
        header=flags.header,
        delimiter=flags.delimiter and flags.delimiter.replace("\\t", "\t"),
        label_separator=label_separator,
        labels=given or (noted["labels"] if noted and not flags.do_train else ()),
        files=files,
    )


def labels_of_task(flags, processor) -> list[str]:
    """The labels, which must be those that the model was trained with."""
    labels = processor.get_labels()
    check_labels(
        noted_labels(flags.output_dir, None if flags.do_train else flags.init_checkpoint), processor.kind, labels
    )
    if not labels and processor.kind not in ("regression", "choice"):
        raise ValueError(
            f"the labels are not known: {LABELS_FILE} is neither in {flags.output_dir} nor beside init_checkpoint; "
            "give --labels in the order of training"
        )
    return labels


def _features(flags, examples, labels, tokenizer, name: str, kind: str, write: bool):
    """The columns of all examples; also written to ``NAME.tf_record`` as the original does."""
    import numpy as np

    from tf_bert.data.finetuning.classification import convert_examples_to_features, write_features
    from tf_bert.progress import say
    from tf_bert.trainer.prediction import stack

    if not examples:
        raise ValueError(f"there are no examples for {name}")
    if kind == "choice":
        from tf_bert.data.finetuning.multiple_choice import convert_choices_to_features

        columns = convert_choices_to_features(examples, flags.max_seq_length, tokenizer)
        say(f"{name}: {len(examples):,} examples with up to {columns['input_ids'].shape[1]} choices")
        return columns
    features = convert_examples_to_features(examples, labels, flags.max_seq_length, tokenizer, kind)
    if write:
        write_features(features, os.path.join(flags.output_dir, f"{name}.tf_record"))
    first = tokenizer.decode(features[0].input_ids[: sum(features[0].input_mask)], skip_special_tokens=False)
    say(f"{name}: {len(features):,} examples, the first: {first}")
    dtype = np.float32 if kind == "regression" else np.int32
    return stack(features) | {"label_ids": np.array([feature.label_id for feature in features], dtype)}


def _logits(flags, model, columns, batch_size: int):
    """The scores of all examples in order, [N, labels]."""
    import numpy as np

    from tf_bert.progress import Progress
    from tf_bert.trainer.prediction import SEQUENCES, predict_by_length

    inputs = {name: columns[name] for name in SEQUENCES}
    choices = inputs["input_ids"].shape[1:-1]
    logits = np.zeros((len(inputs["input_ids"]), *(choices or (model.num_labels,))), np.float32)
    with Progress("predicting", len(logits), "examples") as progress:
        for rows, outputs in predict_by_length(model, inputs, batch_size, ["logits"], needs_fixed_length(flags)):
            logits[rows] = outputs["logits"]
            progress.update(len(rows))
    return logits


def evaluation_figures(logits, labels, batch_size: int, processor) -> dict[str, float]:
    """The original's ``eval_accuracy``, ``eval_loss`` and ``loss`` (the mean over batches), and the task's own figures.

    Args:
        logits: [N, labels].
        labels: [N], or [N, labels] where an example may have several.
        batch_size: of the batches over which ``loss`` is a mean.
        processor: the task.
    """
    import numpy as np

    from tf_bert.data.finetuning.glue_scores import METRICS

    rows = np.arange(len(logits))
    if processor.kind in ("single", "choice"):
        shifted = logits - logits.max(axis=1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[rows, labels]
        predictions = logits.argmax(axis=1)
        figures = {"eval_accuracy": np.mean(predictions == labels, dtype=np.float64)}
    elif processor.kind == "multi":
        losses = (np.logaddexp(0, logits) - logits * labels).mean(axis=1)
        predictions = (logits > 0).astype(int)
        figures = {"eval_accuracy": np.mean(np.all(predictions == labels, axis=1))}
    else:
        losses, predictions, figures = (logits[:, 0] - labels) ** 2, logits[:, 0], {}
    batches = [losses[first : first + batch_size].mean() for first in range(0, len(losses), batch_size)]
    figures |= {"eval_loss": np.mean(losses), "loss": np.mean(batches)}
    figures |= {f"eval_{name}": METRICS[name](labels, predictions) for name in processor.metrics}
    return {name: np.float32(value) for name, value in figures.items()}


def write_test_results(path: str, logits, kind: str) -> None:
    """Writes a line for each example: the probabilities of the labels, or the number, separated by tabs."""
    import numpy as np

    from tf_bert.files import atomic_writer

    if kind in ("single", "choice"):
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        values = exponentials / exponentials.sum(axis=1, keepdims=True)
    else:
        values = 1.0 / (1.0 + np.exp(-logits)) if kind == "multi" else logits
    with atomic_writer(path, "w") as file:
        for row in values:
            file.write("\t".join(str(value) for value in row) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
