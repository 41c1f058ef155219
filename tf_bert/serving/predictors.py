"""Predicts lines of text with fine-tuned models: one class for each kind of task."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tf_bert.data.finetuning.classification import InputExample, convert_single_example
from tf_bert.data.finetuning.gpt_examples import sequences_of
from tf_bert.data.finetuning.gpt_sequences import SpecialTokens, classification_inputs
from tf_bert.data.finetuning.multiple_choice import ChoiceExample, convert_choices_to_features
from tf_bert.data.finetuning.squad import SquadExample, convert_examples_to_features, split_words
from tf_bert.data.finetuning.squad_predictions import AnswerOptions, predict_answers
from tf_bert.data.finetuning.tagging import TaggedSentence, convert_sentences_to_features
from tf_bert.tokenization.basic import split_at_blanks
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.trainer.prediction import SEQUENCES, predict_in_order, predict_tags, stack
from tf_bert.training.squad_results import raw_results

SEPARATOR = " ||| "


class LinePredictor:
    """Reads lines and predicts; a subclass says how.

    Args:
        model: a task's model.
        tokenizer: with its vocabulary.
        labels: in the order of their ids; none where the task has none.
        max_seq_length: S.
        batch_size: examples in a batch.

    Attributes:
        form: what a line has to look like, for messages.
    """

    form = "a text"

    def __init__(self, model, tokenizer: FullTokenizer, labels: Sequence[str], max_seq_length: int, batch_size: int):
        self.model, self.tokenizer, self.labels = model, tokenizer, list(labels)
        self.max_seq_length, self.batch_size = max_seq_length, batch_size

    def read(self, line: str, where: str) -> Any:
        """The example of a line.

        Raises:
            ValueError: the line is none; says where it stands.
        """
        return line

    def predict(self, examples: list) -> Iterator[dict[str, Any]]:
        """Yields a result for each example."""
        raise NotImplementedError

    def columns(self, result: dict[str, Any]) -> list[str]:
        """A result as the columns of a table."""
        raise NotImplementedError

    def _refuse(self, where: str, line: str) -> ValueError:
        return ValueError(f"{where}: found {line[:40]!r}, expected {self.form}")

    def _logits(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the scores of all examples, in order, as float64."""
        return predict_in_order(self.model, inputs, self.batch_size, ["logits"])["logits"].astype(np.float64)


class ClassifierPredictor(LinePredictor):
    """A text, or two with `` ||| `` between them (the last one counts): its label and all probabilities."""

    form = f"a text, or TEXT{SEPARATOR}TEXT"

    def read(self, line: str, where: str) -> InputExample:
        """The text or the pair."""
        text_a, _, text_b = line.rpartition(SEPARATOR)
        return InputExample(where, text_a, text_b) if text_a else InputExample(where, line)

    def predict(self, examples: list) -> Iterator[dict[str, Any]]:
        """Yields ``label``, ``labels`` or ``value``."""
        yield from map(self.result, self._logits(self.inputs(examples)))

    def result(self, logits: np.ndarray) -> dict[str, Any]:
        """Returns what the scores of an example, float64 [labels], mean."""
        if self.model.kind == "regression":
            return {"value": float(logits[0])}
        probabilities = _softmax(logits) if self.model.kind == "single" else 1 / (1 + np.exp(-logits))
        named = dict(zip(self.labels, probabilities.tolist(), strict=True))
        if self.model.kind == "single":
            best = self.labels[int(logits.argmax())]
            return {"label": best, "probability": named[best], "probabilities": named}
        # Those of a probability above 0.5, which is a score above 0 exactly.
        holding = [name for name, score in zip(self.labels, logits, strict=True) if score > 0]
        return {"labels": holding, "probabilities": named}

    def inputs(self, examples: list) -> dict[str, np.ndarray]:
        """What the model takes."""
        rows = (convert_single_example(0, example, [""], self.max_seq_length, self.tokenizer) for example in examples)
        return stack(rows)

    def columns(self, result: dict[str, Any]) -> list[str]:
        """The label (labels, separated by ``;``) and the probabilities in the order of the labels, or the number."""
        if "value" in result:
            return [str(result["value"])]
        first = result["label"] if "label" in result else ";".join(result["labels"])
        return [first, *map(str, result["probabilities"].values())]


class TaggerPredictor(LinePredictor):
    """Words, as the tokenizer splits them at blanks and around each Chinese character: a tag for each."""

    form = "words separated by blanks, or Chinese text"

    def read(self, line: str, where: str) -> TaggedSentence:
        """Splits a text into its words."""
        chinese = self.tokenizer.basic_tokenizer.tokenize_chinese_chars
        return TaggedSentence(split_at_blanks(line, chinese), source=where)

    def predict(self, examples: list) -> Iterator[dict[str, Any]]:
        """Yields ``words`` and ``tags``."""
        features = convert_sentences_to_features(examples, self.labels, self.max_seq_length, self.tokenizer)
        found, _ = predict_tags(self.model, features, [len(example.words) for example in examples], self.batch_size)
        for example, tags in zip(examples, found, strict=True):
            yield {"words": example.words, "tags": [self.labels[number] for number in tags]}

    def columns(self, result: dict[str, Any]) -> list[str]:
        """The tags, separated by blanks."""
        return [" ".join(result["tags"])]


class AnswerPredictor(LinePredictor):
    """A question and a text with `` ||| `` between them (the first one counts): the answer, as it stands in the text.

    Args:
        *arguments: those of `LinePredictor`.
        options: how answers are chosen.
        doc_stride: see `tf_bert.data.finetuning.squad.convert_examples_to_features`, as for the next.
        max_query_length: pieces of a question that are kept.
    """

    form = f"QUESTION{SEPARATOR}TEXT"

    def __init__(self, *arguments, options: AnswerOptions, doc_stride: int, max_query_length: int):
        super().__init__(*arguments)
        self.options, self.lengths = options, (self.max_seq_length, doc_stride, max_query_length)

    def read(self, line: str, where: str) -> SquadExample:
        """The question and the text."""
        question, separator, text = line.partition(SEPARATOR)
        if not (separator and question.strip()):
            raise self._refuse(where, line)
        words, offsets, _ = split_words(text)
        return SquadExample(where, question, words, context=text, word_offsets=offsets)

    def predict(self, examples: list) -> Iterator[dict[str, Any]]:
        """Yields ``answer``, empty for none, and ``probability``: its share among the best ones."""
        features: list = []
        convert_examples_to_features(examples, self.tokenizer, *self.lengths, False, features.append)
        results = raw_results(self.model, features, self.batch_size)
        found = predict_answers(examples, features, results, self.options)
        for example in examples:
            answer = found.predictions[example.qas_id]
            shares = [each["probability"] for each in found.nbest[example.qas_id] if each["text"] == answer]
            yield {"answer": answer, "probability": float(shares[0]) if shares else 0.0}

    def columns(self, result: dict[str, Any]) -> list[str]:
        """The answer, its blanks made single, and its probability."""
        return [" ".join(result["answer"].split()), str(result["probability"])]


class ChoicePredictor(LinePredictor):
    """A text and its choices, `` ||| `` before each: the number of the likeliest, from 0."""

    form = f"TEXT{SEPARATOR}CHOICE{SEPARATOR}CHOICE ..."

    def read(self, line: str, where: str) -> ChoiceExample:
        """The text and its choices."""
        text, *choices = line.split(SEPARATOR)
        if len(choices) < 2:
            raise self._refuse(where, line)
        return ChoiceExample(where, text, choices=choices)

    def predict(self, examples: list) -> Iterator[dict[str, Any]]:
        """Yields ``choice``, its ``text`` and the ``probabilities``."""
        for example, logits in zip(examples, self.scores(examples), strict=True):
            probabilities = _softmax(logits[: len(example.choices)])
            best = int(probabilities.argmax())
            yield {"choice": best, "text": example.choices[best], "probabilities": probabilities.tolist()}

    def scores(self, examples: list) -> Sequence[np.ndarray]:
        """The scores of the choices of each example, or of more."""
        inputs = convert_choices_to_features(examples, self.max_seq_length, self.tokenizer)
        return self._logits({name: inputs[name] for name in SEQUENCES})

    def columns(self, result: dict[str, Any]) -> list[str]:
        """The number, and the probabilities of all."""
        return [str(result["choice"]), *map(str, result["probabilities"])]


class GPTClassifierPredictor(ClassifierPredictor):
    """The same by a `tf_bert.models.gpt_tasks.GPTClassifier`, also of pairs without an order."""

    def read(self, line: str, where: str) -> InputExample:
        """The text or the pair."""
        example = super().read(line, where)
        if self.model.task == "similarity" and example.text_b is None:
            raise ValueError(f"{where}: found {line[:40]!r}, expected TEXT{SEPARATOR}TEXT")
        return example

    def inputs(self, examples: list) -> dict[str, np.ndarray]:
        """What the model takes."""
        return gpt_inputs(self, examples)


class GPTChoicePredictor(ChoicePredictor):
    """The same by a `tf_bert.models.gpt_tasks.GPTClassifier`."""

    def scores(self, examples: list) -> Sequence[np.ndarray]:
        """The scores of the choices of each example; those with as many are scored together."""
        scores = [np.zeros(0)] * len(examples)
        counts = [len(example.choices) for example in examples]
        for count in set(counts):
            rows = [row for row, found in enumerate(counts) if found == count]
            for row, logits in zip(rows, self._logits(gpt_inputs(self, [examples[r] for r in rows])), strict=True):
                scores[row] = logits
        return scores


def gpt_inputs(predictor: LinePredictor, examples: list) -> dict[str, np.ndarray]:
    """What a `tf_bert.models.gpt_tasks.GPTClassifier` takes."""
    model = predictor.model
    special = SpecialTokens(model.start_id, model.delimiter_id, model.extract_id)
    how = (predictor.tokenizer, special, predictor.max_seq_length)
    rows = [sequences_of(model.task, example, *how) for example in examples]
    return classification_inputs(rows, predictor.max_seq_length)


def predict_lines(predictor: LinePredictor, lines: Iterator[tuple[str, str]], at_once: int) -> Iterator[dict[str, Any]]:
    """Yields a result for each line, in order; memory does not grow with their number.

    Args:
        predictor: says how.
        lines: where each line stands, and the line.
        at_once: how many are in memory; they are sorted by length.

    Raises:
        ValueError: a line is not what the task reads.
    """
    while chunk := list(itertools.islice(lines, at_once)):
        yield from predictor.predict([predictor.read(line, where) for where, line in chunk])


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()
