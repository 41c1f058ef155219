"""``tf-bert checkpoints list|show|fetch``: lists, describes and downloads published models."""

import dataclasses
import os

from tf_bert.checkpoints import catalogue
from tf_bert.commands.flags import Flags
from tf_bert.commands.quiet import load_tensorflow

FLAGS = Flags(
    "checkpoints",
    """
    Lists the BERT models that Google published, shows what one of them (or a checkpoint on this disk) is, and fetches
    one. A broken download is resumed by the same command; what arrives is checked before it is used.

    Example:
        tf-bert checkpoints list
        tf-bert checkpoints show uncased_L-2_H-128_A-2
        tf-bert checkpoints fetch bert-tiny --to=models
        tf-bert checkpoints show models/uncased_L-2_H-128_A-2
    """,
)
FLAGS.enum("action", None, ["list", "show", "fetch"], "What to do.", required=True)
FLAGS.string("name", None, "A model of the list, or for show the path of a checkpoint in any format.")
FLAGS.positional("action", "name")
FLAGS.string(
    "to",
    None,
    "The folder to fetch into. By default $TF_BERT_CHECKPOINTS, else checkpoints/ of a clone, else "
    "~/.cache/tf_bert/checkpoints.",
)


def run(flags) -> None:
    """Runs the command."""
    if flags.action == "list":
        show_list(flags.to or catalogue.default_directory())
    elif flags.name is None:
        raise ValueError(f"{flags.action} needs a name: tf-bert checkpoints {flags.action} NAME")
    elif flags.action == "fetch":
        print(catalogue.fetch(flags.name, flags.to))
    elif os.path.exists(flags.name) or os.path.exists(flags.name + ".index"):
        show_checkpoint(flags.name)
    else:
        show_entry(catalogue.find(flags.name))


def show_list(directory: str) -> None:
    """Prints a line for each model of the catalogue."""
    print(f"{'name':<32} {'parameters':>11}  {'vocabulary':>10}  {'casing':<7}  {'here':<4}  what")
    for entry in catalogue.catalogue():
        here = "yes" if os.path.exists(os.path.join(directory, entry.name)) else "no"
        casing = "uncased" if entry.do_lower_case else "cased"
        size = f"{entry.parameters / 1e6:.1f} M"
        print(f"{entry.name:<32} {size:>11}  {entry.config['vocab_size']:>10}  {casing:<7}  {here:<4}  {entry.title}")


def show_entry(entry: catalogue.Entry) -> None:
    """Prints all that the catalogue says about a model."""
    for name, value in dataclasses.asdict(entry).items():
        if isinstance(value, dict):
            print(f"{name}:")
            for key, inner in value.items():
                print(f"  {key}: {inner}")
        else:
            print(f"{name}: {', '.join(value) if isinstance(value, list) else value}")


def show_checkpoint(path: str) -> None:
    """Prints what a checkpoint on the disk holds."""
    load_tensorflow()
    from tf_bert.checkpoints import loading
    from tf_bert.checkpoints.agreement import missing_variables
    from tf_bert.models import pretrained

    checkpoint = pretrained.open_checkpoint(path, allow_nan=True)
    weights, slots = loading.sizes(checkpoint.reader)
    print(f"format: {checkpoint.format}")
    print(f"architecture: {checkpoint.architecture} ({pretrained.ARCHITECTURES[checkpoint.architecture].__name__})")
    print(f"weights: {weights:,} bytes")
    print(f"optimizer: {slots:,} bytes")
    print(f"vocabulary: {checkpoint.vocab_file or 'none beside it'}")
    print(f"tokenizer: {checkpoint.settings.to_dict() if checkpoint.settings else 'casing not noted'}")
    print(f"config: {checkpoint.config.to_json_string()}", end="")
    for name in missing_variables(checkpoint.config, checkpoint.reader.shapes):
        print(f"{name} MISSING")
    for name, shape in checkpoint.reader.shapes.items():
        wrong = loading.not_finite(checkpoint.reader.read(name))
        print(f"{name} {list(shape)}{f' NOT FINITE: {wrong:,} values are NaN or infinite' if wrong else ''}")


def main(argv=None) -> int:
    """Entry point; returns the exit status."""
    return FLAGS.run(run, argv)
