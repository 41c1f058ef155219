"""A fine-tuned GPT for serving: a SavedModel that takes texts and returns their label, number or choice."""

import os
from collections.abc import Sequence

import tensorflow as tf

from tf_bert.export.saved_model import CHOICES, TEXTS, class_outputs, label_names, save_functions, some_choice
from tf_bert.models.gpt_tasks import GPTClassifier
from tf_bert.tokenization.byte_pair import BytePairTokenizer
from tf_bert.tokenization.in_graph_gpt1 import in_graph_layer

PAIRS = tf.TensorSpec([None], tf.string, "text_pairs")
Outputs = dict[str, tf.Tensor]


def export_gpt_classifier(
    model: GPTClassifier,
    tokenizer: BytePairTokenizer,
    path: str | os.PathLike,
    labels: Sequence[str] = (),
    max_seq_length: int | None = None,
) -> str:
    """Writes a classifier with its tokenizer inside.

    ``serving_default`` takes ``texts`` [B]; for similarity also ``text_pairs`` [B], for multiple choice also
    ``choices`` [B, C]. Of classification there is a second signature, ``pairs``, for entailment. All give
    ``probabilities``, and ``label`` and ``label_id``, or ``choice`` [B]; or ``value`` [B]; and ``truncated`` [B]:
    whether some of the text was not read.

    Args:
        model: a fine-tuned model.
        tokenizer: of the model it was made from.
        path: the folder to write; it must not be there.
        labels: the names of the labels in the order of their ids; by default their numbers.
        max_seq_length: tokens of a sequence, by default the whole context.

    Returns:
        The path.

    Raises:
        ValueError: the folder is there already; another number of labels; a sequence longer than the context; a
            vocabulary that is not the model's.
    """
    context = model.config.max_position_embeddings
    length = max_seq_length or context
    if not 5 <= length <= context:
        raise ValueError(f"max_seq_length is {length}; it has to be from 5 to the context, {context}")
    if tokenizer.vocab_size > model.start_id:
        raise ValueError(f"{tokenizer.vocab_file} has {tokenizer.vocab_size} entries, and the model {model.start_id}")
    labels = label_names(model, labels) if model.kind == "single" else []
    sequences = Sequences(model, tokenizer, length)

    def answer(ids: tf.RaggedTensor, truncated: tf.Tensor, several: tf.Tensor | None = None) -> Outputs:
        width = tf.maximum(tf.reduce_max(ids.row_lengths()), 1)  # also of no text at all
        rows = ids.to_tensor(shape=tf.stack([tf.constant(-1, tf.int64), width]))  # [R, T]
        inputs = {"input_ids": rows, "input_mask": tf.sequence_mask(ids.row_lengths(), tf.shape(rows)[1], tf.int32)}
        if several is not None:  # rows of one example side by side
            shape = tf.stack([-1, several, tf.shape(rows)[1]])
            inputs = {name: tf.reshape(value, shape) for name, value in inputs.items()}  # [B, C, T]
            truncated = tf.reduce_any(tf.reshape(truncated, [-1, several]), axis=1)
        logits = model(inputs, training=False)["logits"]
        if model.kind == "choice":
            found = {"probabilities": tf.nn.softmax(logits), "choice": tf.argmax(logits, axis=-1)}
        else:
            found = class_outputs(logits, model.kind, labels)
        return found | {"truncated": truncated}

    def classify(texts: tf.Tensor) -> Outputs:
        return answer(*sequences.of_texts(texts))

    def classify_pairs(texts: tf.Tensor, text_pairs: tf.Tensor) -> Outputs:
        return answer(*sequences.of_pairs(texts, text_pairs))

    def compare(texts: tf.Tensor, text_pairs: tf.Tensor) -> Outputs:
        both = [sequences.of_pairs(*pair) for pair in ((texts, text_pairs), (text_pairs, texts))]
        ids = tf.stack([ids for ids, _ in both], axis=1).merge_dims(0, 1)  # [2 * B, (T)]
        return answer(ids, tf.reshape(tf.stack([cut for _, cut in both], axis=1), [-1]), tf.constant(2))

    def choose(texts: tf.Tensor, choices: tf.Tensor) -> Outputs:
        with tf.control_dependencies([some_choice(choices)]):
            return answer(*sequences.of_choices(texts, choices), tf.shape(choices)[1])

    signatures = {
        "classification": {"serving_default": (classify, [TEXTS]), "pairs": (classify_pairs, [TEXTS, PAIRS])},
        "similarity": {"serving_default": (compare, [TEXTS, PAIRS])},
        "multiple_choice": {"serving_default": (choose, [TEXTS, CHOICES])},
    }
    return save_functions(path, model, signatures[model.task])


class Sequences:
    """What `tf_bert.data.finetuning.gpt_sequences` makes of texts, inside a graph.

    Each method gives ids, ragged [R, (T)], and whether some of a row was left out, [R].

    Args:
        model: says the ids of its own tokens.
        tokenizer: of the model it was made from.
        max_length: T at most.
    """

    def __init__(self, model: GPTClassifier, tokenizer: BytePairTokenizer, max_length: int):
        self.tokenizer, self.max_length = in_graph_layer(tokenizer), max_length
        self.start, self.delimiter, self.extract = model.start_id, model.delimiter_id, model.extract_id

    def of_texts(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Start, text, extract."""
        ids, room = self.tokenizer.tokenize(texts), self.max_length - 2
        return self._joined(self.start, ids[:, :room], self.extract), ids.row_lengths() > room

    def of_pairs(self, texts: tf.Tensor, text_pairs: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Start, text, delimiter, text, extract; the longer text loses its end until both fit."""
        first, second = self.tokenizer.tokenize(texts), self.tokenizer.tokenize(text_pairs)
        a, b, room = first.row_lengths(), second.row_lengths(), self.max_length - 3
        shorter = tf.minimum(tf.minimum(a, b), room // 2)
        cut = a + b > room
        first = _beginning(first, tf.where(cut, tf.where(a >= b, room - shorter, shorter), a))
        second = _beginning(second, tf.where(cut, tf.where(a >= b, shorter, room - shorter), b))
        return self._joined(self.start, first, self.delimiter, second, self.extract), cut

    def of_choices(self, texts: tf.Tensor, choices: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Start, text, delimiter, choice, extract for each choice; the text loses its end until both fit."""
        count = tf.shape(choices)[1]
        first = self.tokenizer.tokenize(tf.repeat(texts, count))
        second = self.tokenizer.tokenize(tf.reshape(choices, [-1]))
        room = self.max_length - 3 - second.row_lengths()
        fits = tf.debugging.Assert(tf.reduce_all(room >= 0), [f"a choice alone is longer than {self.max_length - 3}"])
        with tf.control_dependencies([fits]):
            beginning = _beginning(first, tf.minimum(room, first.row_lengths()))
        return self._joined(self.start, beginning, self.delimiter, second, self.extract), first.row_lengths() > room

    def _joined(self, *parts: int | tf.RaggedTensor) -> tf.RaggedTensor:
        rows = next(part.nrows() for part in parts if isinstance(part, tf.RaggedTensor))
        return tf.concat([tf.fill([rows, 1], part) if isinstance(part, int) else part for part in parts], axis=1)


def _beginning(ids: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The first so many of each row; it has as many."""
    place = tf.ragged.range(ids.row_lengths()).values
    values = tf.boolean_mask(ids.values, place < tf.repeat(lengths, ids.row_lengths()))
    return tf.RaggedTensor.from_row_lengths(values, lengths)
