"""``tf-bert run_classifier_with_tfhub``: as ``run_classifier``, from a SavedModel of TensorFlow Hub."""

import tempfile
from collections.abc import Sequence

from tf_bert.commands import run_classifier
from tf_bert.commands.deferred import deferred
from tf_bert.commands.distribution_flags import strategy_from_flags
from tf_bert.commands.flags import Flags, UsageError

with deferred():
    from tf_bert.models import hub

FLAGS = Flags(
    "run_classifier_with_tfhub",
    """
    Does what run_classifier does, beginning with the SavedModel of a BERT from TensorFlow Hub, unpacked into a folder:
    weights, vocabulary and casing are the module's. Checkpoints in output_dir are those of run_classifier.

    Example: tf-bert run_classifier_with_tfhub --bert_hub_module_handle=bert_uncased_L-12_H-768_A-12
        --task_name=cola --data_dir=glue/CoLA --output_dir=runs/cola --do_train --do_eval --max_seq_length=128
    """,
)
FLAGS.string("bert_hub_module_handle", None, "Folder of the SavedModel.", required=True)
FLAGS.integer(
    "num_attention_heads",
    None,
    "Heads of the module, where neither its graph nor a bert_config.json in its folder says it.",
    minimum=1,
)
FLAGS.boolean(
    "allow_running_module",
    False,
    "Whether to run the module, which is a program, and to compare what it computes with the model made of its "
    "variables. By default its files are read and nothing in it is run.",
)
run_classifier.add_classifier_flags(FLAGS)


def run(flags) -> int:
    """Turns the module into a checkpoint and begins with it."""
    for name in ("bert_config_file", "vocab_file", "init_checkpoint"):
        if flags[name].value:
            raise UsageError(f"--{name} is not accepted here: it comes from the module; see run_classifier")
    strategy_from_flags(flags)  # several workers' has to be made before a module is loaded
    with tempfile.TemporaryDirectory() as folder:
        flags.init_checkpoint = hub.convert_module(
            flags.bert_hub_module_handle,
            folder,
            flags.do_lower_case,
            flags.num_attention_heads,
            flags.allow_running_module,
        )
        return run_classifier.run(flags)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
