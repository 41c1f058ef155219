"""Converts texts of files to sequences of ids for fine-tuning GPT: pairs, choices, prompts."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tf_bert.data.finetuning import gpt_sequences
from tf_bert.data.finetuning.classification import InputExample, label_id
from tf_bert.data.finetuning.gpt_sequences import SpecialTokens, classification_inputs, prompt_answer_inputs
from tf_bert.data.finetuning.user_files import UserFilesProcessor
from tf_bert.progress import track
from tf_bert.tokenization.byte_pair import BytePairTokenizer


class AnswerFilesProcessor(UserFilesProcessor):
    """Reads prompts (the column ``text``) and their answers (the column ``label``), which the file to predict lacks.

    Args:
        format: what the columns are called.

    Example:
        >>> import os, tempfile
        >>> from tf_bert.data.finetuning.user_files import FileFormat
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with open(os.path.join(folder, "train.csv"), "w") as file:
        ...         _ = file.write('prompt,answer\\n"Two and two?",Four.\\n')
        ...     processor = AnswerFilesProcessor(FileFormat(text="prompt", label="answer"))
        ...     example, = processor.get_train_examples(folder)
        >>> example.text_a, example.text_b
        ('Two and two?', 'Four.')
    """

    def __init__(self, format):
        super().__init__(format)
        self.kind, self.metrics = "answers", ()

    def get_train_examples(self, data_dir: str | None) -> list[InputExample]:
        """The rows of the training file."""
        return self._examples(data_dir, "train")

    def _example(self, guid: str, where: str, values: dict[str, Any], split: str) -> InputExample:
        prompt = self._text(where, values, self.format.text)
        if not prompt.strip():
            raise ValueError(f"{where}: the prompt is empty")
        answer = None if split == "test" else self._text(where, values, self.format.label)
        return InputExample(guid, prompt, answer, source=where)


def sequences_of(
    task: str, example: InputExample, tokenizer: BytePairTokenizer, special: SpecialTokens, max_length: int
) -> list[int] | list[list[int]]:
    """The sequence of an example, or its several ones, as `tf_bert.data.finetuning.gpt_sequences` makes them.

    Args:
        task: of `tf_bert.models.gpt_tasks.GPTClassifier`.
        example: for multiple choice a `tf_bert.data.finetuning.multiple_choice.ChoiceExample`.
        tokenizer: of the pre-trained model.
        special: its new tokens.
        max_length: of a sequence.

    Raises:
        ValueError: a choice is too long; says where it stands.
    """
    first = tokenizer.tokenize_to_ids(example.text_a)
    if task == "multiple_choice":
        begun = f"{example.text_b} " if example.text_b else ""  # as what all choices begin with
        answers = [tokenizer.tokenize_to_ids(begun + choice) for choice in example.choices]
        try:
            return gpt_sequences.choices(special, first, answers, max_length)
        except ValueError as error:
            raise ValueError(f"{example.source}: {error}") from None
    if example.text_b is None:
        return gpt_sequences.one_text(special, first, max_length)
    make = gpt_sequences.both_orders if task == "similarity" else gpt_sequences.text_pair
    return make(special, first, tokenizer.tokenize_to_ids(example.text_b), max_length)


def convert_examples_to_inputs(
    task: str,
    examples: Sequence[InputExample],
    labels: Sequence[str],
    tokenizer: BytePairTokenizer,
    special: SpecialTokens,
    max_length: int,
    kind: str = "single",
) -> dict[str, np.ndarray]:
    """The columns of all examples.

    Args:
        task, tokenizer, special, max_length: see `sequences_of`.
        examples: at least one.
        labels: in the order of their ids; none for numbers and choices.
        kind: ``"single"`` label, ``"regression"`` or ``"choice"``.

    Returns:
        ``input_ids`` and ``input_mask``, int32 [N, T] or [N, C, T], and ``label_ids`` [N].

    Raises:
        ValueError: an unknown label, a choice that is too long, or fewer choices than before; says where it stands.
    """
    rows = [sequences_of(task, each, tokenizer, special, max_length) for each in track(examples, "tokenizing")]
    if task == "multiple_choice":
        wanted = len(rows[0])
        for example, row in zip(examples, rows, strict=True):
            if len(row) != wanted:
                raise ValueError(f"{example.source}: found {len(row)} choices, and the first row has {wanted}")
        ids = [example.label or 0 for example in examples]
    else:
        ids = [label_id(example, number, labels, kind) for number, example in enumerate(examples)]
    dtype = np.float32 if kind == "regression" else np.int32
    return classification_inputs(rows, max_length) | {"label_ids": np.array(ids, dtype)}


def prompt_ids(example: InputExample, tokenizer: BytePairTokenizer, separator: str) -> list[int]:
    """The ids of a prompt with the separator after it.

    Raises:
        ValueError: there are none; says where the prompt stands.
    """
    ids = tokenizer.tokenize_to_ids(example.text_a + separator)
    if not ids:
        raise ValueError(f"{example.source}: the prompt {example.text_a!r} has no token")
    return ids


def convert_answers_to_inputs(
    examples: Iterable[InputExample],
    tokenizer: BytePairTokenizer,
    max_length: int,
    end_id: int | None,
    separator: str = "\n",
) -> dict[str, np.ndarray]:
    """Prompts with their answers, see `tf_bert.data.finetuning.gpt_sequences.prompt_answer_inputs`.

    Args:
        examples: from `AnswerFilesProcessor`.
        tokenizer: of the model.
        max_length: T.
        end_id: what ends an answer; None for nothing.
        separator: what stands between prompt and answer, as a part of the prompt.

    Raises:
        ValueError: a prompt without a token, or an answer that is too long; says where it stands.
    """
    examples = list(examples)
    pairs = [
        (prompt_ids(each, tokenizer, separator), tokenizer.tokenize_to_ids(each.text_b))
        for each in track(examples, "tokenizing")
    ]
    return prompt_answer_inputs(pairs, max_length, end_id, [example.source for example in examples])
