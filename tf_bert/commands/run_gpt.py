"""``tf-bert run_gpt``: fine-tunes GPT to classify, to compare, to choose, or to answer, as the paper of GPT-1 does."""

import dataclasses
import functools
import json
import os
from collections.abc import Sequence

from tf_bert.commands.distribution_flags import check_eval_batch_size, strategy_from_flags
from tf_bert.commands.eval_results import write_and_show
from tf_bert.commands.finetuning_flags import add_training_flags, needs_fixed_length, training_options
from tf_bert.commands.flags import STOPPED, Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow
from tf_bert.commands.run_classifier import (
    add_file_flags,
    evaluation_figures,
    file_format,
    labels_of_task,
    write_test_results,
)
from tf_bert.data.finetuning.label_list import noted_labels

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
FLAGS.string("output_dir", None, "Where checkpoints and results go; made if need be.", required=True)
FLAGS.string(
    "init_checkpoint",
    None,
    "A GPT with its vocabulary: the export/ of run_language_modeling, OpenAI's GPT-1 or GPT-2, a folder of Hugging "
    "Face's, or what run_gpt left. Only a run that goes on, or is evaluated, needs none.",
)
FLAGS.integer("max_seq_length", 128, "Tokens of a sequence, the special ones among them.", minimum=5)
FLAGS.boolean("do_train", False, "Whether to train.")
FLAGS.boolean("do_eval", False, "Whether to evaluate on the dev file.")
FLAGS.boolean("do_predict", False, "Whether to predict the test file.")
FLAGS.integer("eval_batch_size", 8, "Examples in an evaluation batch.", minimum=1)
add_file_flags(FLAGS)
FLAGS.enum("kind", "single", ["single", "regression"], "Whether the label is one of several, or a number.")
FLAGS.float("lm_weight", 0.5, "Lambda: the weight of the language-model loss beside that of the labels.", minimum=0.0)
FLAGS.float("classifier_dropout", 0.1, "Dropout of what the labels are scored from.", minimum=0.0, maximum=1.0)
FLAGS.string("answer_column", "answer", "Answers: the column of the answer; that of the prompt is --text_column.")
FLAGS.string("separator", "\\n", "Answers: what stands between prompt and answer; \\n is the end of a line.")
FLAGS.integer("max_answer_length", 64, "Answers: most tokens of a predicted one.", minimum=1)
add_training_flags(FLAGS, learning_rate=6.25e-5, warmup_proportion=0.002)  # Radford et al. 2018, section 4.1


def run(flags) -> int:
    """Trains, evaluates and predicts."""
    if not (flags.do_train or flags.do_eval or flags.do_predict):
        raise UsageError("give --do_train, --do_eval, --do_predict or several: there is nothing else to do")
    processor = _processor(flags)
    train = processor.get_train_examples(flags.data_dir) if flags.do_train else None
    dev = processor.get_dev_examples(flags.data_dir) if flags.do_eval else None
    test = processor.get_test_examples(flags.data_dir) if flags.do_predict else None
    answers = flags.task == "answers"
    labels = [] if answers else labels_of_task(flags, processor)

    load_tensorflow()
    from tf_bert.training import finetuning, gpt_finetuning, language_modeling, runs
    from tf_bert.training.workers import is_chief

    strategy = strategy_from_flags(flags)
    if answers and flags.do_eval:
        check_eval_batch_size(flags, strategy)
    chief = is_chief(strategy)
    config, checkpoint = _config(flags)
    tokenizer = checkpoint.tokenizer()
    make_model = functools.partial(_make_model, flags, config, processor.kind, labels)
    columns_of = functools.partial(_columns, flags, config, processor.kind, labels, tokenizer)

    if flags.do_train:
        options = training_options(flags, len(train))
        columns = columns_of(train, "train")
        settings = {"max_seq_length": flags.max_seq_length, "task": flags.task}
        made = []

        def make():
            made.append(make_model())
            return made[-1]

        def note():
            companions = (checkpoint.vocab_file, processor.kind, labels)
            gpt_finetuning.write_companions(flags.output_dir, made[0], *companions, **settings)

        begin = {"init_checkpoint": flags.init_checkpoint, "note": note, "make_optimizer": language_modeling.adam}
        try:
            model = finetuning.finetune(make, columns, flags.output_dir, options, strategy=strategy, **begin)
        except runs.Stopped as stopped:
            print(f"tf-bert run_gpt: {stopped}")
            return STOPPED
        step = options.num_train_steps
    else:
        model = finetuning.compiled(make_model, runs.RunOptions(seed=flags.seed), strategy)
        step = runs.load_for_evaluation(model, flags.output_dir, flags.init_checkpoint)

    if flags.do_eval:
        columns = columns_of(dev, "eval")
        if answers:
            figures = gpt_finetuning.evaluate_answers(model, columns, flags.eval_batch_size)
        else:
            logits = _logits(flags, model, columns, flags.eval_batch_size)
            figures = evaluation_figures(logits, columns["label_ids"], flags.eval_batch_size, processor)
        if chief:
            write_and_show(flags.output_dir, figures, step)
    if flags.do_predict and chief:
        if answers:
            path = os.path.join(flags.output_dir, "test_results.jsonl")
            _write_answers(path, flags, model, tokenizer, test)
        else:
            path = os.path.join(flags.output_dir, "test_results.tsv")
            logits = _logits(flags, model, columns_of(test, "predict"), flags.predict_batch_size)
            write_test_results(path, logits, processor.kind)
        print(f"{len(test):,} predictions: {path}")
    return 0


def _processor(flags):
    """Reads the files of the task."""
    from tf_bert.data.finetuning.gpt_examples import AnswerFilesProcessor
    from tf_bert.data.finetuning.multiple_choice import ChoiceFilesProcessor
    from tf_bert.data.finetuning.user_files import UserFilesProcessor

    pairs, task = flags.task in ("entailment", "similarity"), flags.task
    if pairs and not flags.text_pair_column:
        raise UsageError(f"--task={task} needs --text_pair_column, the column of the second text")
    if task in ("classification", "answers") and flags.text_pair_column:
        raise UsageError(f"--task={task} reads one text, and no --text_pair_column; entailment and similarity read two")
    if (task == "multiple_choice") != bool(flags.choice_columns):
        raise UsageError("--task=multiple_choice needs --choice_columns, and no other task takes it")
    if task in ("multiple_choice", "answers") and (flags.labels or flags.kind != "single"):
        raise UsageError(f"--task={task} takes neither --labels nor --kind")
    noted = noted_labels(flags.output_dir, None if flags.do_train else flags.init_checkpoint)
    if noted and noted.get("task", task) != task:
        raise ValueError(
            f"the model in {noted['where']} was trained for {noted['task']}, not for {task}: choose another output_dir"
        )
    format = file_format(flags, flags.format, flags.kind if task != "answers" else "single")
    if task == "answers":
        return AnswerFilesProcessor(dataclasses.replace(format, label=flags.answer_column))
    if task == "multiple_choice":
        return ChoiceFilesProcessor(format, [column.strip() for column in flags.choice_columns.split(",")])
    return UserFilesProcessor(format)


def _config(flags):
    """The sizes of the model to make, and the checkpoint that says them, with its vocabulary."""
    from tf_bert.checkpoints import openai
    from tf_bert.configs import GPTConfig
    from tf_bert.models.gpt_tasks import SPECIAL_TOKENS, GPTClassifier
    from tf_bert.models.pretrained import open_checkpoint

    own = os.path.exists(os.path.join(flags.output_dir, openai.CONFIG))
    if not own and not flags.init_checkpoint:
        raise UsageError(f"missing --init_checkpoint: there is no model in {flags.output_dir} to go on with")
    place = flags.init_checkpoint if flags.init_checkpoint and (flags.do_train or not own) else flags.output_dir
    checkpoint = open_checkpoint(place)
    config = checkpoint.config
    if not isinstance(config, GPTConfig):
        raise ValueError(f"{place} holds no GPT; run_classifier fine-tunes BERT")
    if flags.max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"max_seq_length is {flags.max_seq_length}, and {place} has a context of "
            f"{config.max_position_embeddings} positions: the model reads no more"
        )
    tuned = checkpoint.architecture == GPTClassifier.__name__
    if flags.task == "answers":
        if tuned:
            raise ValueError(f"{place} was fine-tuned to classify; give the pre-trained GPT")
        return config, checkpoint
    if tuned:
        return config, checkpoint
    if not flags.do_train:
        raise ValueError(f"{place} was not fine-tuned: what it says would be random; --do_train trains it")
    return dataclasses.replace(config, vocab_size=config.vocab_size + SPECIAL_TOKENS), checkpoint


def _make_model(flags, config, kind: str, labels: Sequence[str]):
    from tf_bert.models.gpt import GPT
    from tf_bert.models.gpt_tasks import GPTClassifier

    if flags.task == "answers":
        return GPT(config)
    return GPTClassifier(
        config,
        num_labels=len(labels) or 1,
        task=_model_task(flags.task),
        lm_weight=flags.lm_weight,
        classifier_dropout=flags.classifier_dropout,
    )


def _model_task(task: str) -> str:
    return "classification" if task == "entailment" else task


def _columns(flags, config, kind: str, labels, tokenizer, examples, name: str):
    """The columns of all examples; says how many there are and how long they get."""
    from tf_bert.data.finetuning import gpt_examples
    from tf_bert.data.finetuning.gpt_sequences import SpecialTokens
    from tf_bert.models.gpt_tasks import SPECIAL_TOKENS
    from tf_bert.progress import say
    from tf_bert.trainer.prediction import lengths_of

    if flags.task == "answers":
        separator = _separator(flags)
        columns = gpt_examples.convert_answers_to_inputs(
            examples, tokenizer, flags.max_seq_length, config.end_id, separator
        )
    else:
        special = SpecialTokens.of(config.vocab_size - SPECIAL_TOKENS)
        how = (labels, tokenizer, special, flags.max_seq_length, kind)
        columns = gpt_examples.convert_examples_to_inputs(_model_task(flags.task), examples, *how)
    lengths = lengths_of(columns["input_mask"])
    full = int((lengths == flags.max_seq_length).sum())
    say(
        f"{name}: {len(examples):,} examples, up to {lengths.max()} tokens"
        f"{f', {full:,} of them cut, or just fitting, at {flags.max_seq_length}' if full else ''}"
    )
    return columns


def _separator(flags) -> str:
    return flags.separator.replace("\\n", "\n")


def _logits(flags, model, columns, batch_size: int):
    """The scores of all examples in order, [N, labels]."""
    import numpy as np

    from tf_bert.progress import Progress
    from tf_bert.trainer.prediction import predict_by_length

    inputs = {name: columns[name] for name in ("input_ids", "input_mask")}
    scores = inputs["input_ids"].shape[1] if flags.task == "multiple_choice" else model.num_labels
    logits = np.zeros((len(inputs["input_ids"]), scores), np.float32)
    with Progress("predicting", len(logits), "examples") as progress:
        for rows, outputs in predict_by_length(model, inputs, batch_size, ["logits"], needs_fixed_length(flags)):
            logits[rows] = outputs["logits"]
            progress.update(len(rows))
    return logits


def _write_answers(path: str, flags, model, tokenizer, examples) -> None:
    """Writes what follows each prompt, the likeliest token by token, as JSON lines."""
    from tf_bert.data.finetuning.gpt_examples import prompt_ids
    from tf_bert.decoding.output_text import without_end
    from tf_bert.files import atomic_writer
    from tf_bert.progress import Progress

    room = model.config.max_position_embeddings - flags.max_answer_length
    if room < 1:
        raise ValueError(
            f"--max_answer_length={flags.max_answer_length} leaves no room for a prompt: the context has "
            f"{model.config.max_position_embeddings} positions"
        )
    end_id = model.config.end_id
    with atomic_writer(path, "w") as file, Progress("answering", len(examples), "prompts") as progress:
        for first in range(0, len(examples), flags.predict_batch_size):
            some = examples[first : first + flags.predict_batch_size]
            prompts = [prompt_ids(example, tokenizer, _separator(flags))[-room:] for example in some]
            found = model.generate(prompts, max_length=flags.max_answer_length)
            for example, tokens, length in zip(some, found["tokens"][:, 0], found["lengths"][:, 0], strict=True):
                answer = tokenizer.decode(without_end(tokens[:length], end_id))
                line = {"prompt": example.text_a, "answer": answer}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            progress.update(len(some))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
