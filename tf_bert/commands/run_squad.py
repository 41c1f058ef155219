"""``tf-bert run_squad``: fine-tunes BERT to answer questions about documents, and answers them."""

import dataclasses
import os
import random
from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.eval_results import write_and_show
from tf_bert.commands.finetuning_flags import add_bert_flags, add_finetuning_flags, strategy_and_bert
from tf_bert.commands.flags import Flags, UsageError, is_false, options_from
from tf_bert.data.finetuning.squad_predictions import AnswerOptions
from tf_bert.progress import Progress, say
from tf_bert.training.options import BertFineTuningOptions

with deferred():
    from tf_bert.data.finetuning import squad, squad_predictions, squad_scores
    from tf_bert.models import bert_tasks
    from tf_bert.trainer import prediction
    from tf_bert.training import finetuning, squad_results, workers

SHUFFLING_SEED = 12345  # the original's, of the order in which training questions are written

FLAGS = Flags(
    "run_squad",
    """
    Fine-tunes BERT on questions about documents in the format of SQuAD 1.1 or 2.0 and answers questions. output_dir
    gets checkpoints, predictions.json, nbest_predictions.json, with version 2 null_odds.json and, where predict_file
    has answers, the official exact match and F1 in eval_results.txt.

    Example: tf-bert run_squad --train_file=train-v1.1.json --predict_file=dev-v1.1.json --vocab_file=vocab.txt
        --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --output_dir=runs/squad
        --do_train --do_predict --train_batch_size=12 --learning_rate=3e-5 --num_train_epochs=2
    """,
)
FLAGS.string("train_file", None, "Questions with answers, JSON as SQuAD's train-v1.1.json.")
FLAGS.string("predict_file", None, "Questions to answer, JSON as SQuAD's dev-v1.1.json.")
FLAGS.boolean("do_train", False, "Whether to train.")
FLAGS.boolean("do_predict", False, "Whether to answer the questions of predict_file.")
FLAGS.integer("max_seq_length", 384, "Pieces of question and window, with [CLS] and two [SEP].", minimum=5)
FLAGS.integer("doc_stride", 128, "Pieces from the start of a window to that of the next.", minimum=1)
FLAGS.integer("max_query_length", 64, "Pieces of a question that are read.", minimum=1)
FLAGS.add_options(AnswerOptions, skip=("do_lower_case",))
add_bert_flags(FLAGS)
add_finetuning_flags(FLAGS, BertFineTuningOptions)
FLAGS.refuse(
    "verbose_logging", "it logged answers that could not be aligned; --text_as_in_document aligns all", is_false
)
FLAGS.boolean("first_answer", False, "Train on the first answer where a question has several, as in development sets.")


def run(flags) -> int:
    """Trains and answers."""
    if not (flags.do_train or flags.do_predict):
        raise UsageError("give --do_train, --do_predict or both: there is nothing else to do")
    for needed, file in (("do_train", "train_file"), ("do_predict", "predict_file")):
        if flags[needed].value and not flags[file].value:
            raise UsageError(f"--{needed} needs --{file}")
    if flags.group_by_length:
        raise UsageError("--group_by_length saves nothing here: the loss is over padding too, so batches keep theirs")
    if flags.max_seq_length <= flags.max_query_length + 3:
        raise ValueError(
            f"max_seq_length {flags.max_seq_length} must be greater than max_query_length {flags.max_query_length} + 3"
        )
    version_2, options = flags.version_2_with_negative, options_from(flags, BertFineTuningOptions)
    train = questions = columns = None
    if flags.do_train:
        train = squad.read_squad_examples(flags.train_file, True, version_2, flags.first_answer)
        random.Random(SHUFFLING_SEED).shuffle(train)
    if flags.do_predict:
        questions = squad.read_squad_examples(flags.predict_file, False, version_2)
    strategy, config, tokenizer = strategy_and_bert(flags)
    chief = workers.is_chief(strategy)
    if flags.do_train:
        options = options.with_steps(len(train))  # of questions, as the original counts
        columns = squad_results.columns_of(_features(flags, train, tokenizer, "train", chief), training=True)

    def make_model():
        model = bert_tasks.BertQuestionAnswering(config, add_pooler=True, attention=flags.attention)
        model.bert.pooler.trainable = False  # unused, but the original's checkpoints have it
        return model

    def note(model):
        settings = {"max_seq_length": flags.max_seq_length, "version_2_with_negative": version_2}
        finetuning.write_companions(flags.output_dir, model, tokenizer, "squad", **settings)

    # The softmax over the places of an answer is over padding too, as the original's: it must not be cut off.
    task = finetuning.FineTuning(make_model, columns, options, fixed_length=True, note=note)
    if flags.do_train:
        model = task.train(flags.output_dir, init_checkpoint=flags.init_checkpoint, strategy=strategy)
    else:
        model = task.load(flags.output_dir, flags.init_checkpoint, strategy)
    if flags.do_predict:
        features, fixed = _features(flags, questions, tokenizer, "eval", chief), prediction.needs_fixed_length(model)
        with Progress("answering", len(features), "windows") as progress:
            how = flags.predict_batch_size, fixed, progress.update
            results = squad_results.raw_results(model, features, *how)
        if chief:
            choice = options_from(flags, AnswerOptions, do_lower_case=tokenizer.basic_tokenizer.do_lower_case)
            _write(flags, questions, features, results, choice, int(model.optimizer.iterations))
    return 0


def _features(flags, examples, tokenizer, name: str, write: bool) -> list:
    """The windows of all questions; also written to ``NAME.tf_record`` as the original does."""
    training = name == "train"
    features = []
    lengths = flags.max_seq_length, flags.doc_stride, flags.max_query_length
    squad.convert_examples_to_features(examples, tokenizer, *lengths, training, features.append)
    if write:
        squad.write_features(features, os.path.join(flags.output_dir, f"{name}.tf_record"), training)
    say(f"{name}: {len(examples):,} questions, {len(features):,} windows")
    return features


def _write(flags, questions: list, features: list, results: list, choice: AnswerOptions, step: int) -> None:
    """Writes answers, and their scores where the right ones are known."""
    names = {"prediction_file": "predictions", "nbest_file": "nbest_predictions", "null_log_odds_file": "null_odds"}
    paths = {f"output_{key}": os.path.join(flags.output_dir, f"{name}.json") for key, name in names.items()}
    how = dataclasses.asdict(choice) | paths
    found = squad_predictions.write_predictions(questions, features, results, **how)
    print(f"{len(found.predictions):,} answers: {paths['output_prediction_file']}")
    answers = squad_scores.read_answers(flags.predict_file)
    if answers:
        odds = found.null_odds if choice.version_2_with_negative else None
        write_and_show(flags.output_dir, squad_scores.score_predictions(answers, found.predictions, odds), step)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
