"""A SavedModel that takes raw strings: tokenizer, encoder, head, and what a user wants to see of the result.

It runs wherever TensorFlow and tensorflow-text do, without tf_bert::

    import tensorflow as tf, tensorflow_text
    served = tf.saved_model.load("served").signatures["serving_default"]
    served(texts=tf.constant(["a film"]))["label"]
"""

import os
from collections.abc import Sequence

import tensorflow as tf

from tf_bert.files import atomic_folder
from tf_bert.models.bert_encoder import BertEncoder
from tf_bert.models.bert_tasks import BertClassifier, BertQuestionAnswering, BertTask, BertTokenClassifier
from tf_bert.models.multiple_choice import BertMultipleChoice
from tf_bert.models.spans import best_spans
from tf_bert.tokenization.basic import CHINESE_RANGES
from tf_bert.tokenization.in_graph import InGraphTokenizer

TEXTS = tf.TensorSpec([None], tf.string, "texts")
CHOICES = tf.TensorSpec([None, None], tf.string, "choices")
SERVED = (BertClassifier, BertTokenClassifier, BertQuestionAnswering, BertMultipleChoice, BertEncoder)
Outputs = dict[str, tf.Tensor]


def export_saved_model(
    model: BertTask,
    path: str | os.PathLike,
    labels: Sequence[str] = (),
    max_seq_length: int | None = None,
    max_answer_length: int = 30,
) -> str:
    """Writes a task's model with its tokenizer inside.

    What the signatures take and give, for B texts (UTF-8; strings [B]):

    ========================  ==================================  ====================================================
    model                     takes                               gives
    ========================  ==================================  ====================================================
    `BertClassifier`          ``texts``; in the signature         ``label``, ``label_id`` [B], ``probabilities``
                              ``pairs`` also ``text_pairs``       [B, labels]; ``holds`` [B, labels] in place of the
                                                                  first two for several labels; ``value`` [B] for a
                                                                  number
    `BertTokenClassifier`     ``texts``                           for each piece: ``starts``, ``ends`` [B, S] (in
                                                                  characters; -1 for special tokens and padding),
                                                                  ``label``, ``probability``, and ``first``: whether a
                                                                  word begins, whose label is that of its first piece
    `BertQuestionAnswering`   ``questions``, ``documents``        ``answer``, ``start``, ``end`` (characters of the
                                                                  document), ``score``, ``no_answer`` (its score less
                                                                  the answer's)
    `BertMultipleChoice`      ``texts``, ``choices`` [B, C]       ``choice`` [B], ``probabilities`` [B, C]
    `BertEncoder`             ``texts``                           ``vectors`` [B, H]
    ========================  ==================================  ====================================================

    All also give ``truncated`` [B]: whether the end of the text was not read, because it is longer than
    ``max_seq_length``.

    Args:
        model: of one of these classes, with a preprocessor.
        path: the folder to write; it must not be there.
        labels: the names of the labels in the order of their ids; by default their numbers.
        max_seq_length: pieces of an example that are read, by default as many as the preprocessor says.
        max_answer_length: in pieces.

    Returns:
        The path.

    Raises:
        ValueError: the folder is there already; the model is of another class or has no preprocessor; there are more
            or fewer labels than the model has.
    """
    tokenizer = _tokenizer(model, max_seq_length)
    return save_functions(path, model, _signatures(model, tokenizer, label_names(model, labels), max_answer_length))


def save_functions(path: str | os.PathLike, model, signatures: dict) -> str:
    """Writes a SavedModel of functions that call a model.

    Args:
        path: the folder to write; it must not be there.
        model: its variables are saved.
        signatures: name -> function and what it takes, as a list of `tf.TensorSpec`.

    Returns:
        The path.

    Raises:
        ValueError: the folder is there already.
    """
    path = os.fspath(path)
    if os.path.exists(path):
        raise ValueError(f"{path} is there already; choose another folder for the SavedModel")
    served = tf.Module(name="served")
    served.weights = [variable.value for variable in model.variables]  # the Keras model itself stays outside
    served.functions = {
        name: tf.function(function, autograph=False).get_concrete_function(*specs)
        for name, (function, specs) in signatures.items()
    }
    with atomic_folder(path) as folder:
        tf.saved_model.save(served, folder, signatures=served.functions)
    return path


def _tokenizer(model: BertTask, max_seq_length: int | None) -> InGraphTokenizer:
    if not isinstance(model, SERVED):
        names = ", ".join(cls.__name__ for cls in SERVED)
        raise ValueError(f"a SavedModel serves one of {names}, not {type(model).__name__}")
    tokenizer = model.get_preprocessor()
    if not isinstance(tokenizer, InGraphTokenizer):
        raise ValueError(f"the preprocessor is a {type(tokenizer).__name__}; a SavedModel holds an InGraphTokenizer")
    limit = max_seq_length or tokenizer.max_seq_length or model.config.max_position_embeddings
    if limit > model.config.max_position_embeddings:
        raise ValueError(f"max_seq_length is {limit}, and the model reads {model.config.max_position_embeddings}")
    return InGraphTokenizer.from_config(tokenizer.get_config() | {"max_seq_length": limit})


def label_names(model, labels: Sequence[str]) -> list[str]:
    """The labels of a classifier, checked, or their numbers."""
    count = getattr(model, "num_labels", 0)
    if labels and len(labels) != count and getattr(model, "kind", "") != "regression":
        raise ValueError(f"there are {len(labels)} labels ({', '.join(labels)}), and the model has {count}")
    return list(labels) or [str(number) for number in range(count)]


def _signatures(model: BertTask, tokenizer: InGraphTokenizer, labels: list[str], max_answer_length: int) -> dict:
    """Signature name -> function of strings and what it takes."""

    def tokenize(texts: tf.Tensor, text_pairs: tf.Tensor | None = None) -> tuple[Outputs, tf.Tensor]:
        inputs = tokenizer.encode_with_offsets(texts, text_pairs, return_truncated=True)
        truncated = inputs.pop("truncated")
        longest = tf.reduce_max(tf.reduce_sum(inputs["input_mask"], axis=1))
        width = tf.maximum(longest, 1)  # also of no text at all
        return {name: value[:, :width] for name, value in inputs.items()}, truncated  # no more than need be

    def encode(texts: tf.Tensor, text_pairs: tf.Tensor | None = None) -> tuple[Outputs, Outputs]:
        inputs, truncated = tokenize(texts, text_pairs)
        numeric = {name: inputs[name] for name in model.sequence_inputs if name in inputs}
        return inputs, {**model(numeric, training=False), "truncated": truncated}

    def classify(texts: tf.Tensor, text_pairs: tf.Tensor | None = None) -> Outputs:
        _, outputs = encode(texts, text_pairs)
        return class_outputs(outputs["logits"], model.kind, labels) | {"truncated": outputs["truncated"]}

    def tag(texts: tf.Tensor) -> Outputs:
        inputs, outputs = encode(texts)
        probabilities = tf.nn.softmax(outputs["logits"])  # [B, S, labels]
        starts, ends = inputs["starts"], inputs["ends"]
        before = tf.concat([tf.fill(tf.shape(ends[:, :1]), -1), ends[:, :-1]], axis=1)
        names = tf.gather(tf.constant(labels), tf.argmax(probabilities, axis=-1))
        return {
            "starts": starts,
            "ends": ends,
            "label": tf.where(starts >= 0, names, ""),
            "probability": tf.reduce_max(probabilities, axis=-1),
            "first": (starts >= 0) & ((before < starts) | _beside_chinese(texts, starts, tokenizer)),
            "truncated": outputs["truncated"],
        }

    def answer(questions: tf.Tensor, documents: tf.Tensor) -> Outputs:
        documents = tf.strings.unicode_transcode(documents, "UTF-8", "UTF-8", errors="ignore")
        inputs, outputs = encode(questions, documents)
        starts, ends = outputs["start_logits"], outputs["end_logits"]
        allowed = (inputs["segment_ids"] == 1) & (inputs["starts"] >= 0)
        first, last, score = best_spans(starts, ends, allowed, max_answer_length)
        some = tf.cast(tf.reduce_any(allowed, axis=1), tf.int32)  # an empty document has no answer
        start = tf.gather(inputs["starts"], first, batch_dims=1) * some
        end = tf.gather(inputs["ends"], last, batch_dims=1) * some
        return {
            "answer": tf.strings.substr(documents, start, end - start, unit="UTF8_CHAR"),
            "start": start,
            "end": end,
            "score": score,
            "no_answer": starts[:, 0] + ends[:, 0] - score,
            "truncated": outputs["truncated"],
        }

    def choose(texts: tf.Tensor, choices: tf.Tensor) -> Outputs:
        count = tf.shape(choices)[1]
        with tf.control_dependencies([some_choice(choices)]):
            inputs, truncated = tokenize(tf.repeat(texts, count), tf.reshape(choices, [-1]))  # [B * C, S]
        shape = tf.stack([tf.size(texts), count, tf.shape(inputs["input_ids"])[1]])
        logits = model({name: tf.reshape(inputs[name], shape) for name in model.sequence_inputs}, training=False)[
            "logits"
        ]
        return {
            "choice": tf.argmax(logits, axis=-1),
            "probabilities": tf.nn.softmax(logits),
            "truncated": tf.reduce_any(tf.reshape(truncated, shape[:2]), axis=1),
        }

    def vectors(texts: tf.Tensor) -> Outputs:
        _, outputs = encode(texts)
        return {name: outputs[name] for name in ("vectors", "truncated")}

    if isinstance(model, BertClassifier):
        return {"serving_default": (classify, [TEXTS]), "pairs": (classify, [TEXTS, _named("text_pairs")])}
    if isinstance(model, BertTokenClassifier):
        return {"serving_default": (tag, [TEXTS])}
    if isinstance(model, BertQuestionAnswering):
        return {"serving_default": (answer, [_named("questions"), _named("documents")])}
    if isinstance(model, BertMultipleChoice):
        return {"serving_default": (choose, [TEXTS, CHOICES])}
    return {"serving_default": (vectors, [TEXTS])}


def some_choice(choices: tf.Tensor) -> tf.Operation:
    """Raises where texts have no choices [B, C]."""
    shape = tf.shape(choices)
    return tf.debugging.Assert(shape[1] > 0, ["choices has the shape", shape, "and no choice to take"])


def _beside_chinese(texts: tf.Tensor, starts: tf.Tensor, tokenizer: InGraphTokenizer) -> tf.Tensor:
    """Whether a piece, or the one before it, is a Chinese character, which is a word by itself; [B, S]."""
    if not tokenizer.tokenize_chinese_chars:
        return tf.zeros_like(starts, tf.bool)
    codes = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore").to_tensor(default_value=0)  # [B, characters]
    codes = tf.pad(codes, [[0, 0], [0, 1]])  # an empty text has a character too
    codes = tf.gather(codes, tf.maximum(starts, 0), batch_dims=1)  # [B, S]
    chinese = tf.reduce_any([(codes >= low) & (codes <= high) for low, high in CHINESE_RANGES], axis=0) & (starts >= 0)
    return chinese | tf.pad(chinese[:, :-1], [[0, 0], [1, 0]])


def class_outputs(logits: tf.Tensor, kind: str, labels: Sequence[str]) -> Outputs:
    """What the scores [B, labels] of a classifier say.

    Example:
        >>> {name: value.numpy() for name, value in class_outputs(tf.constant([[0.0, 9.0]]), "single", "ab").items()}
        {'probabilities': array([[...]], dtype=float32), 'label_id': array([1]), 'label': array([b'b'], dtype=object)}
    """
    if kind == "regression":
        return {"value": logits[:, 0]}
    if kind == "multi":
        return {"probabilities": tf.sigmoid(logits), "holds": logits > 0}
    best = tf.argmax(logits, axis=-1)
    return {
        "probabilities": tf.nn.softmax(logits),
        "label_id": best,
        "label": tf.gather(tf.constant(list(labels)), best),
    }


def _named(name: str) -> tf.TensorSpec:
    return tf.TensorSpec([None], tf.string, name)
