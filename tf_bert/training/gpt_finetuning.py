"""Fine-tuning of GPT: what ``run_gpt`` does besides what every fine-tuning does."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_bert.checkpoints import openai
from tf_bert.data.finetuning.label_list import note_labels
from tf_bert.files import atomic_writer, make_folder
from tf_bert.models import pretrained
from tf_bert.models.gpt import GPT
from tf_bert.training.distribution import distribute


def write_companions(
    output_dir: str | os.PathLike,
    model: GPT,
    vocab_file: str | None,
    kind: str,
    labels: Sequence[str] = (),
    **settings: Any,
) -> None:
    """Puts configuration, vocabulary and labels into the folder of a run, so that it is a whole model.

    Args:
        output_dir: where the checkpoints are, or will be.
        model: a `GPT`, or a `tf_bert.models.gpt_tasks.GPTClassifier`.
        vocab_file: of the model's tokenizer.
        kind: see `tf_bert.data.finetuning.label_list.note_labels`, as for the rest.
        labels: in the order of their ids.
        **settings: what else prediction has to know.

    Raises:
        ValueError: another vocabulary is there already.
    """
    make_folder(output_dir)
    openai.copy_vocabulary(vocab_file, output_dir, "openai")
    noted = model.config.extra | {"architectures": [pretrained.architecture_name(model)]} | model.to_note()
    with atomic_writer(os.path.join(output_dir, openai.CONFIG), "w") as file:
        file.write(dataclasses.replace(model.config, extra=noted).to_json_string())
    note_labels(output_dir, kind, labels, **settings)


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
