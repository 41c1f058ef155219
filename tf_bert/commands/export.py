"""``tf-bert export``: writes a model for serving: raw strings in, labels, spans or vectors out; or its numeric part."""

import os
from collections.abc import Sequence

from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow
from tf_bert.commands.stop_flag import add_stop_flag, stops_of

FORMATS = {".tflite": "litert", ".onnx": "onnx"}

FLAGS = Flags(
    "export",
    """
    Writes a fine-tuned model, or a GPT, for serving. A SavedModel takes raw strings and gives labels, answers with
    their place in the document, vectors, or what follows a text; its tokenizer is inside, and it runs without tf_bert
    (import tensorflow_text before it is loaded; a GPT needs none). A file for LiteRT (.tflite) or ONNX (.onnx) is the
    numeric part of a BERT alone, from ids to scores, and is only written if it gives the model's numbers.

    Example: tf-bert export runs/reviews served
    """,
)
FLAGS.string(
    "checkpoint", None, "Folder of a run or a model in any format, or a published model's name.", required=True
)
FLAGS.string("output", None, "A folder that is not there yet, or a file that ends in .tflite or .onnx.", required=True)
FLAGS.enum("format", None, ["saved_model", "litert", "onnx"], "By default what the ending of output says.")
FLAGS.string("labels", None, "The labels, separated by commas, in the order of training; by default those noted there.")
FLAGS.integer("max_seq_length", None, "Pieces of an example that are read; by default as in training.", minimum=3)
FLAGS.integer("max_answer_length", 30, "Pieces of an answer at most.", minimum=1)
FLAGS.enum("pooling", None, ["cls", "mean", "max"], "Give vectors of texts: how those of the pieces become one.")
FLAGS.string("layers", "-1", "With pooling, the layers whose mean is pooled: 0 is the first, -1 the last.")
FLAGS.integer("max_length", 64, "A GPT that goes on with texts: most new tokens.", minimum=1)
FLAGS.integer("beam_size", 1, "A GPT that goes on with texts: hypotheses kept; 1 for no beam search.", minimum=1)
add_stop_flag(FLAGS, " Of a GPT that goes on with texts.")
FLAGS.positional("checkpoint", "output")

TASKS = ("BertForSequenceClassification", "BertForTokenClassification", "BertForQuestionAnswering")


def run(flags) -> None:
    """Loads, writes and says how to use it."""
    chosen = flags.format or FORMATS.get(os.path.splitext(flags.output)[1], "saved_model")
    if os.path.isdir(flags.output) or chosen == "saved_model" and os.path.exists(flags.output):
        raise ValueError(f"{flags.output} is there already; choose another place")
    stops = stops_of(flags.stop)
    load_tensorflow()
    from tf_bert.configs import GPTConfig
    from tf_bert.data.finetuning.label_list import noted_labels
    from tf_bert.models.pretrained import open_checkpoint

    noted = noted_labels(flags.checkpoint) or {}
    checkpoint = open_checkpoint(flags.checkpoint)
    if stops and (not isinstance(checkpoint.config, GPTConfig) or checkpoint.architecture == "GPTClassifier"):
        raise UsageError(f"--stop ends generated text, and {flags.checkpoint} is a {checkpoint.architecture}")
    if isinstance(checkpoint.config, GPTConfig):
        if chosen != "saved_model":
            raise ValueError(f"{flags.checkpoint} is a GPT, of which a SavedModel can be written, and no {chosen}")
        print(f"{flags.output}: {_export_gpt(flags, checkpoint, noted, stops)}")
        return
    model = _model(flags, checkpoint)
    length = flags.max_seq_length or noted.get("max_seq_length")
    if chosen == "saved_model":
        from tf_bert.export.saved_model import export_saved_model

        labels = _labels(flags, noted)
        export_saved_model(model, flags.output, labels, length, flags.max_answer_length)
        kind = type(model).__name__
        taken = ["questions", "documents"] if kind == "BertQuestionAnswering" else ["texts"]
        print(
            f"{flags.output}: {kind} with its tokenizer. import tensorflow as tf, tensorflow_text; "
            f"tf.saved_model.load({flags.output!r}).signatures['serving_default']"
            f"({', '.join(f'{name}=tf.constant([...])' for name in taken)})"
        )
        return
    from tf_bert.export import litert_and_onnx

    length = min(length or 128, model.config.max_position_embeddings)
    if chosen == "litert":
        difference = litert_and_onnx.export_litert(model, flags.output, length)
        size = f"1 x {length} ids"
    else:
        difference = litert_and_onnx.export_onnx(model, flags.output, length)
        size = f"any number x {length} ids"
    outputs = ", ".join(model.text_outputs)
    print(f"{flags.output}: {outputs} for {size}; at most {difference:.1g} from {type(model).__name__}'s own")


def _export_gpt(flags, checkpoint, noted: dict, stops: Sequence[str]) -> str:
    """Writes the SavedModel of a GPT; returns what it takes and gives."""
    from tf_bert.models.pretrained import load_model

    model = load_model(flags.checkpoint)
    load = f"import tensorflow as tf; tf.saved_model.load({flags.output!r})"
    if checkpoint.architecture == "GPTClassifier":
        from tf_bert.export.gpt_saved_model import export_gpt_classifier

        length = flags.max_seq_length or noted.get("max_seq_length")
        export_gpt_classifier(model, checkpoint.tokenizer(), flags.output, _labels(flags, noted), length)
        taken = {"similarity": ", text_pairs=...", "multiple_choice": ", choices=..."}.get(model.task, "")
        call = f"signatures['serving_default'](texts=tf.constant([...]){taken})"
        return f"GPTClassifier with its tokenizer. {load}.{call}"
    from tf_bert.decoding.beam import BeamSearch
    from tf_bert.decoding.constraints import Constraints
    from tf_bert.export.generation_saved_model import export

    search = BeamSearch(flags.beam_size) if flags.beam_size > 1 else None
    options = {"search": search, "max_length": flags.max_length, "prompt_length": flags.max_seq_length}
    options["constraints"] = Constraints(stop_texts=stops)
    export(model, checkpoint.tokenizer(), flags.output, **options)
    return f"GPT with its tokenizer, for {flags.max_length} new tokens. {load}(tf.constant([...]))['texts']"


def _model(flags, checkpoint):
    """The model, of the class that its checkpoint was trained as, or one of vectors."""
    from tf_bert.models.bert_encoder import BertEncoder
    from tf_bert.models.pretrained import load_model

    if flags.pooling:
        try:
            layers = [int(layer) for layer in flags.layers.split(",")]
        except ValueError:
            raise UsageError(f"--layers={flags.layers}: expected numbers separated by commas, such as -1,-2") from None
        return load_model(flags.checkpoint, BertEncoder, pooling=flags.pooling, layers=layers)
    if isinstance(getattr(checkpoint.reader, "model", None), BertEncoder):
        return checkpoint.reader.model
    if checkpoint.architecture not in TASKS:
        raise ValueError(
            f"{flags.checkpoint} is a {checkpoint.architecture}: there is no fine-tuned head to serve; --pooling=mean "
            "serves vectors of texts"
        )
    return load_model(flags.checkpoint)


def _labels(flags, noted: dict) -> list[str]:
    """The labels that were given, or those that were noted; they must not contradict each other."""
    from tf_bert.data.finetuning.label_list import check_labels

    if not flags.labels:
        return noted.get("labels", [])
    labels = [label.strip() for label in flags.labels.split(",")]
    if noted:
        check_labels(noted, noted["kind"], labels)
    return labels


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
