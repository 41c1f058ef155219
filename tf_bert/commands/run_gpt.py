"""``tf-bert run_gpt``: fine-tunes GPT to classify, to compare, to choose, or to answer, as the paper of GPT-1 does."""

import dataclasses
import functools
import os
from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.distribution_flags import check_eval_batch_size, strategy_from_flags
from tf_bert.commands.eval_results import write_and_show
from tf_bert.commands.finetuning_flags import add_file_flags, add_finetuning_flags, file_format, split_names
from tf_bert.commands.flags import Flags, UsageError, options_from
from tf_bert.training.options import GPTFineTuningOptions

with deferred():
    from tf_bert.checkpoints import openai
    from tf_bert.data.finetuning import classifier, gpt_examples, label_list, multiple_choice, user_files
    from tf_bert.training import finetuning, gpt_finetuning, workers

TASKS = ("classification", "entailment", "similarity", "multiple_choice", "answers")

FLAGS = Flags(
    "run_gpt",
    """
    Fine-tunes a GPT on files of your own (CSV, TSV or JSON lines), evaluates it and predicts with it. The tasks are
    those of GPT-1's paper, with language modelling as an auxiliary loss: classification of a text; entailment, the
    label of a pair; similarity, the same for pairs without an order; multiple_choice. And answers: what follows a
    prompt, with the loss on the answer alone. output_dir gets checkpoints, eval_results.txt, and test_results.tsv
    (answers: test_results.jsonl); it is a whole model, which tf-bert predict, export or (answers) generate reads.

    Example: tf-bert run_gpt --task=classification --init_checkpoint=gpt/export --output_dir=runs/reviews --do_train
        --do_eval --train_file=examples/data/reviews_train.csv --dev_file=examples/data/reviews_dev.csv
        --max_seq_length=48 --train_batch_size=8 --num_train_epochs=5 --learning_rate=5e-4
    """,
)
FLAGS.enum("task", None, TASKS, "What is learned.", required=True)
FLAGS.enum("format", "csv", ["csv", "jsonl"], "Of the files; csv also reads .tsv.")
FLAGS.integer("max_seq_length", 128, "Tokens of a sequence, the special ones among them.", minimum=5)
FLAGS.boolean("do_train", False, "Whether to train.")
FLAGS.boolean("do_eval", False, "Whether to evaluate on the dev file.")
FLAGS.boolean("do_predict", False, "Whether to predict the test file.")
FLAGS.integer("eval_batch_size", 8, "Examples in an evaluation batch.", minimum=1)
add_finetuning_flags(
    FLAGS,
    GPTFineTuningOptions,
    "A GPT with its vocabulary: the export/ of run_language_modeling, OpenAI's GPT-1 or GPT-2, a folder of Hugging "
    "Face's, or what run_gpt left. Only a run that is resumed, or evaluated, needs none.",
)
add_file_flags(FLAGS)
FLAGS.enum("kind", "single", ["single", "regression"], "Whether the label is one of several, or a number.")
FLAGS.string("answer_column", "answer", "Answers: the column of the answer; that of the prompt is --text_column.")
FLAGS.string("separator", "\\n", "Answers: what is between prompt and answer; \\n is the end of a line.")
FLAGS.integer("max_answer_length", 64, "Answers: tokens of a predicted one at most.", minimum=1)


def run(flags) -> int:
    """Trains, evaluates and predicts."""
    if not (flags.do_train or flags.do_eval or flags.do_predict):
        raise UsageError("give --do_train, --do_eval, --do_predict or several: there is nothing else to do")
    processor = _processor(flags)
    train = processor.get_train_examples(flags.data_dir) if flags.do_train else None
    dev = processor.get_dev_examples(flags.data_dir) if flags.do_eval else None
    test = processor.get_test_examples(flags.data_dir) if flags.do_predict else None
    kind, answers, labels = processor.kind, flags.task == "answers", []
    if not answers:
        places = flags.output_dir, flags.init_checkpoint
        labels = label_list.labels_of_run(kind, processor.get_labels(), *places, flags.do_train)
    strategy = strategy_from_flags(flags)
    if answers and flags.do_eval:
        check_eval_batch_size(flags, strategy)
    chief = workers.is_chief(strategy)
    separator = flags.separator.replace("\\n", "\n")
    task = gpt_finetuning.GPTTask(flags.task, kind, labels, flags.max_seq_length, separator)
    checkpoint = _open(flags, task)
    config, tokenizer, options = checkpoint.config, checkpoint.tokenizer(), options_from(flags, GPTFineTuningOptions)
    if answers and flags.do_predict:
        gpt_finetuning.room_for_prompt(config, flags.max_answer_length)
    columns_of = functools.partial(task.columns, config, tokenizer)

    def note(model):
        settings = {"max_seq_length": flags.max_seq_length, "task": flags.task}
        finetuning.write_companions(flags.output_dir, model, tokenizer, kind, labels, **settings)

    make_model = functools.partial(task.make_model, config, options)
    columns = columns_of("train", train) if flags.do_train else None
    tuning = gpt_finetuning.GPTFineTuning(make_model, columns, options, note=note)
    if flags.do_train:
        model = tuning.train(flags.output_dir, init_checkpoint=flags.init_checkpoint, strategy=strategy)
    else:
        model = tuning.load(flags.output_dir, flags.init_checkpoint, strategy)
    if flags.do_eval:
        columns, size = columns_of("eval", dev), flags.eval_batch_size
        if answers:
            figures = gpt_finetuning.evaluate_answers(model, columns, size)
        else:
            logits = classifier.predict_logits(model, columns, size)
            figures = classifier.evaluation_figures(logits, columns["label_ids"], size, kind, processor.metrics)
        if chief:
            write_and_show(flags.output_dir, figures, int(model.optimizer.iterations))
    if flags.do_predict and chief:
        path, size = os.path.join(flags.output_dir, "test_results"), flags.predict_batch_size
        path += ".jsonl" if answers else ".tsv"
        if answers:
            how = size, flags.max_answer_length, separator
            gpt_finetuning.write_answers(path, model, tokenizer, test, *how)
        else:
            logits = classifier.predict_logits(model, columns_of("predict", test), size)
            classifier.write_test_results(path, logits, kind)
        print(f"{len(test):,} predictions: {path}")
    return 0


def _processor(flags):
    """Reads the files of the task."""
    pairs, task = flags.task in ("entailment", "similarity"), flags.task
    if pairs and not flags.text_pair_column:
        raise UsageError(f"--task={task} needs --text_pair_column, the column of the second text")
    if task in ("classification", "answers") and flags.text_pair_column:
        raise UsageError(f"--task={task} reads one text, and no --text_pair_column; entailment and similarity read two")
    if (task == "multiple_choice") != bool(flags.choice_columns):
        raise UsageError("--task=multiple_choice needs --choice_columns, and no other task takes it")
    if task in ("multiple_choice", "answers") and (flags.labels or flags.kind != "single"):
        raise UsageError(f"--task={task} takes neither --labels nor --kind")
    noted = label_list.noted_labels(flags.output_dir, None if flags.do_train else flags.init_checkpoint)
    if noted and noted.get("task", task) != task:
        raise ValueError(
            f"the model in {noted['where']} was trained for {noted['task']}, not for {task}: choose another output_dir"
        )
    format = file_format(flags, flags.format, flags.kind if task != "answers" else "single")
    if task == "answers":
        return gpt_examples.AnswerFilesProcessor(dataclasses.replace(format, label=flags.answer_column))
    if task == "multiple_choice":
        return multiple_choice.ChoiceFilesProcessor(format, split_names(flags.choice_columns))
    return user_files.UserFilesProcessor(format)


def _open(flags, task):
    """The checkpoint that says the sizes and has the vocabulary."""
    own = os.path.exists(os.path.join(flags.output_dir, openai.CONFIG))
    if not own and not flags.init_checkpoint:
        raise UsageError(f"missing --init_checkpoint: there is no model in {flags.output_dir} to resume")
    return task.open(flags.output_dir, flags.init_checkpoint, flags.do_train)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
