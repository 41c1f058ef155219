"""Exports a checkpoint of any format: a SavedModel of what the model does, or a LiteRT or ONNX file."""

import os
from collections.abc import Sequence

from tf_bert.checkpoints.formats import Checkpoint
from tf_bert.configs import GPTConfig
from tf_bert.data.finetuning.label_list import given_or_noted_labels, noted_labels
from tf_bert.decoding.beam import BeamSearch
from tf_bert.decoding.constraints import Constraints
from tf_bert.export import generation_saved_model, gpt_saved_model, litert_and_onnx, saved_model
from tf_bert.models.bert_encoder import BertEncoder
from tf_bert.models.pretrained import load_model, open_checkpoint

FORMATS = ("saved_model", "litert", "onnx")
ENDINGS = {".tflite": "litert", ".onnx": "onnx"}
TASKS = (
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
    "BertForMultipleChoice",
)
MAX_SEQ_LENGTH = 128  # of LiteRT and ONNX files, where neither the user nor training says another


def export_checkpoint(
    path_or_name: str | os.PathLike,
    output: str | os.PathLike,
    format: str | None = None,
    *,
    labels: Sequence[str] = (),
    max_seq_length: int | None = None,
    max_answer_length: int = 30,
    pooling: str | None = None,
    layers: Sequence[int] = (-1,),
    max_length: int = 64,
    beam_size: int = 1,
    stop_texts: Sequence[str] = (),
) -> str:
    """Writes a model for serving.

    Args:
        path_or_name: see `tf_bert.models.pretrained.open_checkpoint`.
        output: a folder that does not exist yet, or a file.
        format: one of `FORMATS`; by default what the ending of ``output`` says.
        labels: in the order of their ids; by default those that training noted.
        max_seq_length: pieces of an example, or tokens of a prompt, that are read; by default as in training.
        max_answer_length: questions: pieces of an answer at most.
        pooling: how the vectors of pieces become one, see `BertEncoder`; by default the model's task is served.
        layers: with ``pooling``, the layers whose mean is pooled.
        max_length, beam_size, stop_texts: a GPT that continues texts: new tokens at most, hypotheses, and what ends
            the output.

    Returns:
        What was written and how to use it, as a sentence.

    Raises:
        ValueError: ``output`` exists, or the model cannot be served in this way; says why.
    """
    output = os.fspath(output)
    format = format_of(output, format)
    checkpoint, noted = open_checkpoint(path_or_name), noted_labels(path_or_name) or {}
    is_gpt, is_classifier = isinstance(checkpoint.config, GPTConfig), checkpoint.architecture == "GPTClassifier"
    if stop_texts and (not is_gpt or is_classifier):
        raise ValueError(f"--stop ends generated text, and {checkpoint.path} is a {checkpoint.architecture}")
    if is_gpt and format != "saved_model":
        raise ValueError(f"{checkpoint.path} is a GPT, of which a SavedModel can be written, and no {format}")
    if is_gpt and not is_classifier:
        constraints, search = Constraints(stop_texts=stop_texts), BeamSearch(beam_size) if beam_size > 1 else None
        options = {"max_length": max_length, "prompt_length": max_seq_length, "constraints": constraints}
        generation_saved_model.export(load_model(checkpoint), checkpoint.tokenizer(), output, search=search, **options)
        loaded = f"import tensorflow as tf; tf.saved_model.load({output!r})"
        return f"GPT with its tokenizer, for {max_length} new tokens. {loaded}(tf.constant([...]))['texts']"
    model = load_model(checkpoint) if is_gpt else served_model(checkpoint, pooling, layers)
    length = max_seq_length or noted.get("max_seq_length")
    if format != "saved_model":
        return _export_numeric(model, output, format, length)
    labels = given_or_noted_labels(labels, noted)
    if is_gpt:
        gpt_saved_model.export_gpt_classifier(model, checkpoint.tokenizer(), output, labels, length)
    else:
        saved_model.export_saved_model(model, output, labels, length, max_answer_length)
    return _usage(model, output)


def format_of(output: str, format: str | None = None) -> str:
    """Returns the format of an output, by default by its ending.

    Raises:
        ValueError: the output exists.
    """
    format = format or ENDINGS.get(os.path.splitext(output)[1], "saved_model")
    if os.path.isdir(output) or format == "saved_model" and os.path.exists(output):
        raise ValueError(f"{output} is there already; choose another place")
    return format


def served_model(checkpoint: Checkpoint, pooling: str | None = None, layers: Sequence[int] = (-1,)):
    """Loads a BERT as the model of its task, or with ``pooling`` as one that gives vectors of texts.

    Raises:
        ValueError: it was not fine-tuned.
    """
    if pooling:
        return load_model(checkpoint, BertEncoder, pooling=pooling, layers=layers)
    if isinstance(getattr(checkpoint.reader, "model", None), BertEncoder):
        return checkpoint.reader.model
    if checkpoint.architecture not in TASKS:
        raise ValueError(
            f"{checkpoint.path} is a {checkpoint.architecture}: there is no fine-tuned head to serve; --pooling=mean "
            "serves vectors of texts"
        )
    return load_model(checkpoint)


def _export_numeric(model, output: str, format: str, length: int | None) -> str:
    length = min(length or MAX_SEQ_LENGTH, model.config.max_position_embeddings)
    if format == "litert":
        difference, batch = litert_and_onnx.export_litert(model, output, length), "1"
    else:
        difference, batch = litert_and_onnx.export_onnx(model, output, length), "any number"
    outputs, name = ", ".join(model.text_outputs), type(model).__name__
    return f"{outputs} for {batch} x {length} ids; at most {difference:.1g} from {name}'s own"


def _usage(model, output: str) -> str:
    """Returns a line of Python that calls a SavedModel."""
    kind, name = getattr(model, "task", None), type(model).__name__
    names = {
        "BertQuestionAnswering": ["questions", "documents"],
        "similarity": ["texts", "text_pairs"],
        "multiple_choice": ["texts", "choices"],
        "BertMultipleChoice": ["texts", "choices"],
    }
    taken = ", ".join(f"{text}=tf.constant([...])" for text in names.get(kind or name, ["texts"]))
    imports = "import tensorflow as tf" + ("" if kind else ", tensorflow_text")  # a GPT's tokenizer needs no other
    call = f"tf.saved_model.load({output!r}).signatures['serving_default']({taken})"
    return f"{name} with its tokenizer. {imports}; {call}"
