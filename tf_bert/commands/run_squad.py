"""``tf-bert run_squad``: fine-tunes BERT to answer questions about documents, and answers them."""

import dataclasses
import functools
import os
import random
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
FLAGS.integer("n_best_size", 20, "Answers of a question in nbest_predictions.json.", minimum=1)
FLAGS.integer("max_answer_length", 30, "Pieces of an answer at most.", minimum=0)
FLAGS.boolean("version_2_with_negative", False, "Whether questions may have no answer, as in SQuAD 2.0.")
FLAGS.float("null_score_diff_threshold", 0.0, "No answer is given where its score exceeds the best one's by more.")
add_finetuning_flags(FLAGS)
FLAGS.refuse("verbose_logging", "it told of answers that it could not align; --text_as_in_document aligns all")
FLAGS.boolean("first_answer", False, "Train on the first answer where a question has several, as in development sets.")
FLAGS.boolean("text_as_in_document", False, "Cut answers out of the document by character, blanks as they stand there.")
FLAGS.string("no_answer_text", "empty", "Version 1: what a question gets for which no answer is possible.")


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
    config, tokenizer = read_config_and_tokenizer(flags)
    from tf_bert.data.finetuning.squad import read_squad_examples

    version_2 = flags.version_2_with_negative
    train = read_squad_examples(flags.train_file, True, version_2, flags.first_answer) if flags.do_train else None
    questions = read_squad_examples(flags.predict_file, False, version_2) if flags.do_predict else None

    load_tensorflow()
    from tf_bert.models.bert_tasks import BertQuestionAnswering
    from tf_bert.training import finetuning, runs
    from tf_bert.training.workers import is_chief

    strategy = strategy_from_flags(flags)
    chief = is_chief(strategy)

    def make_model():
        model = BertQuestionAnswering(config, add_pooler=True, attention=flags.attention)
        model.bert.pooler.trainable = False  # unused, but the original's checkpoints have it
        return model

    if flags.do_train:
        # The softmax over the places of an answer is over padding too, as the original's: it must not be cut off.
        options = dataclasses.replace(training_options(flags, len(train)), fixed_length=True)
        random.Random(SHUFFLING_SEED).shuffle(train)
        columns = _columns(_features(flags, train, tokenizer, "train", chief), training=True)
        note = functools.partial(
            finetuning.write_companions,
            flags.output_dir,
            config,
            tokenizer,
            "BertForQuestionAnswering",
            "squad",
            max_seq_length=flags.max_seq_length,
            version_2_with_negative=version_2,
        )
        begin = {"init_checkpoint": flags.init_checkpoint, "note": note}
        try:
            model = finetuning.finetune(make_model, columns, flags.output_dir, options, strategy=strategy, **begin)
        except runs.Stopped as stopped:
            print(f"tf-bert run_squad: {stopped}")
            return STOPPED
        step = options.num_train_steps
    else:
        model = finetuning.compiled(make_model, runs.RunOptions(seed=flags.seed), strategy)
        step = runs.load_for_evaluation(model, flags.output_dir, flags.init_checkpoint)
    if flags.do_predict:
        features = _features(flags, questions, tokenizer, "eval", chief)
        results = _results(flags, model, features)
        if chief:
            _write(flags, questions, features, results, step)
    return 0


def _features(flags, examples, tokenizer, name: str, write: bool) -> list:
    """The windows of all questions; also written to ``NAME.tf_record`` as the original does."""
    from tf_bert.data.finetuning.squad import FeatureWriter, convert_examples_to_features
    from tf_bert.progress import say

    training = name == "train"
    features = []
    lengths = flags.max_seq_length, flags.doc_stride, flags.max_query_length
    convert_examples_to_features(examples, tokenizer, *lengths, training, features.append)
    if write:
        writer = FeatureWriter(os.path.join(flags.output_dir, f"{name}.tf_record"), training)
        for feature in features:
            writer.process_feature(feature)
        writer.close()
    say(f"{name}: {len(examples):,} questions, {len(features):,} windows")
    return features


def _columns(features: list, training: bool = False) -> dict:
    import numpy as np

    from tf_bert.trainer.prediction import stack

    columns = stack(features)
    if training:
        for name in ("start_position", "end_position"):
            columns[f"{name}s"] = np.array([getattr(feature, name) for feature in features], np.int32)
    return columns


def _results(flags, model, features: list) -> list:
    """The scores of all windows. Those of padding are left out, so that they take no place among the best."""
    from tf_bert.data.finetuning.squad_predictions import RawResult
    from tf_bert.progress import Progress
    from tf_bert.trainer.prediction import predict_by_length

    results = []
    if not features:
        return results
    names = ["start_logits", "end_logits"]
    batches = predict_by_length(model, _columns(features), flags.predict_batch_size, names, needs_fixed_length(flags))
    with Progress("answering", len(features), "windows") as progress:
        for rows, outputs in batches:
            for row, start, end in zip(rows, outputs["start_logits"], outputs["end_logits"], strict=True):
                length = len(features[row].tokens)
                results.append(RawResult(features[row].unique_id, start[:length], end[:length]))
            progress.update(len(rows))
    return results


def _write(flags, questions: list, features: list, results: list, step: int) -> None:
    """Writes answers, and their scores where the right ones are known."""
    from tf_bert.data.finetuning.squad_predictions import write_predictions
    from tf_bert.data.finetuning.squad_scores import read_answers, score_predictions

    names = ("predictions.json", "nbest_predictions.json", "null_odds.json")
    paths = [os.path.join(flags.output_dir, name) for name in names]
    found = write_predictions(
        questions,
        features,
        results,
        flags.n_best_size,
        flags.max_answer_length,
        flags.do_lower_case,
        *paths,
        version_2_with_negative=flags.version_2_with_negative,
        null_score_diff_threshold=flags.null_score_diff_threshold,
        no_answer_text=flags.no_answer_text,
        text_as_in_document=flags.text_as_in_document,
    )
    print(f"{len(found.predictions):,} answers: {paths[0]}")
    answers = read_answers(flags.predict_file)
    if answers:
        odds = found.null_odds if flags.version_2_with_negative else None
        write_and_show(flags.output_dir, score_predictions(answers, found.predictions, odds), step)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
