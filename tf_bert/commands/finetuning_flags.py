"""The flags of the commands that fine-tune: those that all have of the original, and ours."""

import os

from tf_bert.commands.deferred import deferred
from tf_bert.commands.distribution_flags import add_distribution_flags, strategy_from_flags
from tf_bert.commands.flags import Flags, UsageError
from tf_bert.training.options import FineTuningOptions

with deferred():
    from tf_bert.data.finetuning import user_files
    from tf_bert.training import initial

WITHOUT_FLAG = ("num_train_steps", "num_warmup_steps", "eval_every_steps")  # options that follow from the data


def add_finetuning_flags(
    flags: Flags,
    options: type[FineTuningOptions],
    init_checkpoint: str = "A checkpoint in any format, to begin with or to predict with.",
) -> None:
    """Adds the flags of a run to a command's own, made from its options; ``init_checkpoint``: the help of that flag."""
    flags.string("output_dir", None, "Where checkpoints and results go; made if need be.", required=True)
    flags.string("init_checkpoint", None, init_checkpoint)
    flags.integer("predict_batch_size", 8, "Examples in a batch of predictions.", minimum=1)
    flags.add_options(options, skip=WITHOUT_FLAG)
    add_distribution_flags(flags)


def add_bert_flags(flags: Flags) -> None:
    """Adds the flags that say which BERT is fine-tuned."""
    beside = "by default what is beside init_checkpoint or, without one, in output_dir."
    flags.string("bert_config_file", None, f"The sizes of the model (bert_config.json); {beside}")
    flags.string("vocab_file", None, f"The vocabulary of the checkpoint; {beside}")
    flags.boolean(
        "do_lower_case",
        True,
        "Whether to lower-case the text, as the checkpoint was trained; its own note comes first.",
    )


def strategy_and_bert(flags) -> tuple:
    """Makes the strategy, and reads the configuration and the tokenizer, which are named or beside the checkpoint.

    Raises:
        UsageError: nothing says the sizes or the vocabulary.
        ValueError: they do not fit, or the casing is not the checkpoint's.
    """
    missing = [f"--{name}" for name in ("bert_config_file", "vocab_file") if not flags[name].value]
    if missing and not flags.init_checkpoint and not os.path.isdir(flags.output_dir):
        raise UsageError(
            f"missing {' and '.join(missing)}, and there is no checkpoint beside which they might be. To begin with, "
            "give --init_checkpoint=bert-tiny (tf-bert checkpoints list shows all published ones) or, without a "
            "network, runs/pretrain/run/export, which make pretrain leaves"
        )
    strategy = strategy_from_flags(flags)  # several workers' has to be made before a .keras file is loaded
    config, tokenizer = initial.config_and_tokenizer(
        flags.init_checkpoint,
        flags.output_dir,
        bert_config_file=flags.bert_config_file,
        vocab_file=flags.vocab_file,
        do_lower_case=flags.do_lower_case if flags["do_lower_case"].present else None,
        max_seq_length=flags.max_seq_length,
    )
    return strategy, config, tokenizer


def add_file_flags(flags: Flags) -> None:
    """Adds the flags that say where files of one's own are, and what their columns are called."""
    flags.string("data_dir", None, "Folder of the data files; without it, --train_file and others name them.")
    flags.string("text_column", "text", "csv, jsonl: the column of the text; its number where there is no header.")
    flags.string("text_pair_column", None, "csv, jsonl: the column of a second text.")
    flags.string("label_column", "label", "csv, jsonl: the column of the label.")
    flags.string(
        "choice_columns",
        None,
        "Multiple choice: the columns of the choices, separated by commas; of jsonl it may be one that holds a list.",
    )
    flags.string("labels", None, "csv, jsonl: the labels, separated by commas; by default those of the training file.")
    flags.boolean("header", True, "csv: whether the first row names the columns.")
    flags.string("delimiter", None, "csv: what is between columns; a tab for .tsv, else a comma.")
    for split in ("train", "dev", "test"):
        flags.string(f"{split}_file", None, f"csv, jsonl: the file, where it is not {split}.csv, .tsv or .jsonl.")


def file_format(flags, name: str, kind: str, label_separator: str = ";"):
    """The `FileFormat` that the flags of `add_file_flags` describe."""
    return user_files.FileFormat(
        format=name,
        text=flags.text_column,
        text_pair=flags.text_pair_column,
        label=flags.label_column,
        kind=kind,
        header=flags.header,
        delimiter=flags.delimiter and flags.delimiter.replace("\\t", "\t"),
        label_separator=label_separator,
        labels=split_names(flags.labels),
        files=given_files(flags),
    )


def given_files(flags) -> dict[str, str]:
    """Split -> file, for those that flags name."""
    files = {split: flags[f"{split}_file"].value for split in ("train", "dev", "test")}
    return {split: file for split, file in files.items() if file}


def split_names(text: str | None) -> list[str]:
    """The names in a flag, which are separated by commas."""
    return [name.strip() for name in text.split(",")] if text else []
