"""Fine-tuning of GPT: what ``run_gpt`` does besides what every fine-tuning does."""

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tf_bert.checkpoints import openai
from tf_bert.checkpoints.formats import Checkpoint
from tf_bert.configs import GPTConfig
from tf_bert.data.finetuning import gpt_examples
from tf_bert.data.finetuning.classification import InputExample
from tf_bert.data.finetuning.gpt_sequences import SpecialTokens
from tf_bert.decoding.output_text import without_end
from tf_bert.files import atomic_writer
from tf_bert.models.gpt import GPT
from tf_bert.models.gpt_tasks import SPECIAL_TOKENS, GPTClassifier
from tf_bert.models.pretrained import open_checkpoint
from tf_bert.progress import Progress, say
from tf_bert.trainer.prediction import lengths_of
from tf_bert.training.distribution import distribute
from tf_bert.training.finetuning import FineTuning
from tf_bert.training.language_modeling import adam
from tf_bert.training.options import GPTFineTuningOptions

ANSWERS = "answers"


class GPTFineTuning(FineTuning):
    """As `tf_bert.training.finetuning.FineTuning`, with the optimizer of GPT-1's fine-tuning."""

    def make_optimizer(self):
        """Adam, see `tf_bert.training.language_modeling.adam`."""
        return adam(self.options)


@dataclasses.dataclass(frozen=True)
class GPTTask:
    """What a GPT is fine-tuned for.

    Args:
        name: ``classification``, ``entailment``, ``similarity``, ``multiple_choice`` or ``answers``.
        kind: of the labels, see `tf_bert.data.finetuning.label_list.note_labels`.
        labels: in the order of their ids; none for numbers, choices and answers.
        max_seq_length: tokens of a sequence.
        separator: of ``answers``: what is between prompt and answer.
    """

    name: str
    kind: str = "single"
    labels: Sequence[str] = ()
    max_seq_length: int = 128
    separator: str = "\n"

    @property
    def model_task(self) -> str:
        """The task of `GPTClassifier`: entailment is the classification of a pair."""
        return "classification" if self.name == "entailment" else self.name

    def open(self, output_dir: str, init_checkpoint: str | None, training: bool) -> Checkpoint:
        """Opens what says the sizes of the model and has its vocabulary; ``config`` is that of the model to make.

        Args:
            output_dir: the folder of the run.
            init_checkpoint: a GPT; what is in ``output_dir`` by default.
            training: whether the model is to be trained.

        Raises:
            ValueError: it is no GPT, has another task or a shorter context, or needs training first.
        """
        own = os.path.exists(os.path.join(output_dir, openai.CONFIG))
        place = init_checkpoint if init_checkpoint and (training or not own) else output_dir
        checkpoint = open_checkpoint(place)
        config = checkpoint.config
        if not isinstance(config, GPTConfig):
            raise ValueError(f"{place} holds no GPT; run_classifier fine-tunes BERT")
        if self.max_seq_length > config.max_position_embeddings:
            raise ValueError(
                f"max_seq_length is {self.max_seq_length}, and {place} has a context of "
                f"{config.max_position_embeddings} positions: the model reads no more"
            )
        tuned = checkpoint.architecture == GPTClassifier.__name__
        if self.name == ANSWERS and tuned:
            raise ValueError(f"{place} was fine-tuned to classify; give the pre-trained GPT")
        if self.name == ANSWERS or tuned:
            return checkpoint
        if not training:
            raise ValueError(f"{place} was not fine-tuned: what it says would be random; --do_train trains it")
        config = dataclasses.replace(config, vocab_size=config.vocab_size + SPECIAL_TOKENS)
        return dataclasses.replace(checkpoint, config=config)

    def make_model(self, config: GPTConfig, options: GPTFineTuningOptions) -> GPT | GPTClassifier:
        """Makes the model of the task."""
        if self.name == ANSWERS:
            return GPT(config)
        return GPTClassifier(
            config,
            num_labels=len(self.labels) or 1,
            task=self.model_task,
            lm_weight=options.lm_weight,
            classifier_dropout=options.classifier_dropout,
        )

    def columns(
        self, config: GPTConfig, tokenizer, name: str, examples: Sequence[InputExample]
    ) -> dict[str, np.ndarray]:
        """Makes the inputs of the model for all examples of a part called ``name``; says how long they get."""
        if self.name == ANSWERS:
            settings = self.max_seq_length, config.end_id, self.separator
            columns = gpt_examples.convert_answers_to_inputs(examples, tokenizer, *settings)
        else:
            special = SpecialTokens.of(config.vocab_size - SPECIAL_TOKENS)
            settings = self.labels, tokenizer, special, self.max_seq_length, self.kind
            columns = gpt_examples.convert_examples_to_inputs(self.model_task, examples, *settings)
        lengths = lengths_of(columns["input_mask"])
        full = int((lengths == self.max_seq_length).sum())
        say(
            f"{name}: {len(examples):,} examples, up to {lengths.max()} tokens"
            f"{f', {full:,} of them cut, or just fitting, at {self.max_seq_length}' if full else ''}"
        )
        return columns


def evaluate_answers(model: GPT, columns: Mapping[str, np.ndarray], batch_size: int) -> dict[str, float]:
    """Measures a compiled model on answers, see `tf_bert.data.finetuning.gpt_examples.convert_answers_to_inputs`.

    Returns:
        ``eval_loss``, the cross-entropy of a token of an answer in nats; ``eval_perplexity``, its exponential;
        ``eval_accuracy``, the share of tokens that are the likeliest, given the right ones before them.
    """

    def make_batches(size: int) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(dict(columns)).batch(size)

    batches = distribute(model.distribute_strategy, make_batches, batch_size)
    steps = -(-len(columns["input_ids"]) // batch_size)
    figures = model.evaluate(batches, steps=steps, verbose=0, return_dict=True)
    loss = float(figures["loss"])
    return {
        "eval_loss": np.float32(loss),
        "eval_perplexity": np.float32(math.exp(min(loss, 700.0))),
        "eval_accuracy": np.float32(figures["accuracy"]),
    }


def room_for_prompt(config: GPTConfig, max_answer_length: int) -> int:
    """The most tokens of a prompt whose answer may have ``max_answer_length``.

    Raises:
        ValueError: it is none.
    """
    room = config.max_position_embeddings - max_answer_length
    if room < 1:
        raise ValueError(
            f"max_answer_length {max_answer_length} leaves no room for a prompt: the context has "
            f"{config.max_position_embeddings} positions"
        )
    return room


def write_answers(
    path: str | os.PathLike,
    model: GPT,
    tokenizer,
    examples: Sequence[InputExample],
    batch_size: int,
    max_answer_length: int = 64,
    separator: str = "\n",
) -> None:
    """Writes what follows each prompt, the likeliest token by token, as JSON lines.

    Args:
        path: the file.
        model: writes the answers.
        tokenizer: of the model.
        examples: the prompts; of one that is too long the end is read.
        batch_size: prompts in a batch.
        max_answer_length: tokens of an answer at most.
        separator: what is between prompt and answer.
    """
    room = room_for_prompt(model.config, max_answer_length)
    with atomic_writer(path, "w") as file, Progress("answering", len(examples), "prompts") as progress:
        for first in range(0, len(examples), batch_size):
            some = examples[first : first + batch_size]
            prompts = [gpt_examples.prompt_ids(example, tokenizer, separator)[-room:] for example in some]
            found = model.generate(prompts, max_length=max_answer_length)
            for example, tokens, length in zip(some, found["tokens"][:, 0], found["lengths"][:, 0], strict=True):
                answer = tokenizer.decode(without_end(tokens[:length], model.config.end_id))
                line = {"prompt": example.text_a, "answer": answer}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            progress.update(len(some))
