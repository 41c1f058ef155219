"""The flags of the commands that fine-tune: those that all have of the original, and ours."""

import os

from tf_bert.commands.distribution_flags import (
    add_attention_flag,
    add_distribution_flags,
    run_options,
    strategy_from_flags,
)
from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow


def add_finetuning_flags(flags: Flags) -> None:
    """Adds the flags to a command's own."""
    beside = "by default what lies beside init_checkpoint or, without one, in output_dir."
    flags.string("bert_config_file", None, f"The sizes of the model (bert_config.json); {beside}")
    flags.string("vocab_file", None, f"The vocabulary of the checkpoint; {beside}")
    flags.string("output_dir", None, "Where checkpoints and results go; made if need be.", required=True)
    flags.string("init_checkpoint", None, "A checkpoint in any format, to begin with or to predict with.")
    flags.boolean(
        "do_lower_case",
        True,
        "Whether to lower-case the text, as the checkpoint was trained; its own note comes first.",
    )
    add_training_flags(flags)
    add_attention_flag(flags)
    flags.boolean(
        "clip_unmerged_slices",
        False,
        "Whether gradients are clipped by the norm that the original used, in which each occurrence of an id in the "
        "batch counts by itself.",
    )


def add_training_flags(flags: Flags, learning_rate: float = 5e-5, warmup_proportion: float = 0.1) -> None:
    """Adds the flags that say how to train, whatever the model."""
    flags.integer("train_batch_size", 32, "Examples in a training batch, over all replicas.", minimum=1)
    flags.integer("predict_batch_size", 8, "Examples in a batch of predictions.", minimum=1)
    flags.float("learning_rate", learning_rate, "The peak of the learning rate.", minimum=0.0)
    flags.float("num_train_epochs", 3.0, "Passes over the training data; may be a fraction.", minimum=0.0)
    share = "Share of the steps in which the rate rises."
    flags.float("warmup_proportion", warmup_proportion, share, minimum=0.0, maximum=1.0)
    flags.integer("save_checkpoints_steps", 1000, "Updates between two checkpoints.", minimum=1)
    add_distribution_flags(flags)
    flags.integer("seed", 12345, "Seed of the head's weights, dropout and the order of the examples.")
    flags.integer("log_steps", 100, "Updates between two lines of the log.", minimum=1)
    flags.integer("keep_checkpoint_max", 5, "How many checkpoints stay.", minimum=1)
    flags.boolean(
        "group_by_length", False, "Whether training batches get examples of about one length, which saves padding."
    )


def read_config_and_tokenizer(flags):
    """The configuration and the tokenizer that the flags name, checked against each other.

    What is not named is what lies beside the checkpoint. ``flags.do_lower_case`` is set to what was noted there.

    Raises:
        UsageError: nothing says the sizes or the vocabulary.
        ValueError: they do not fit, or the casing is not the checkpoint's.
    """
    from tf_bert.progress import say
    from tf_bert.tokenization.full import FullTokenizer
    from tf_bert.tokenization.vocabulary import casing_problem, validate_case_matches_checkpoint

    settings = _noted_settings(flags)
    validate_case_matches_checkpoint(flags.do_lower_case, flags.init_checkpoint)
    config, config_file, vocab_file = _config_and_vocabulary(flags)
    if flags.max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"max_seq_length is {flags.max_seq_length}, and {config_file} has max_position_embeddings "
            f"{config.max_position_embeddings}: the model reads no more"
        )
    tokenizer = FullTokenizer(vocab_file, **settings)
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"{vocab_file} has {tokenizer.vocab_size} lines, and {config_file} has vocab_size "
            f"{config.vocab_size}: ids would lie beyond the table"
        )
    if tokenizer.vocab_size < 0.9 * config.vocab_size:  # a table that was filled up for speed has a few rows more
        say(
            f"WARNING: {vocab_file} has {tokenizer.vocab_size:,} lines, and the table of the model "
            f"{config.vocab_size:,} rows: is it the vocabulary that the checkpoint was trained with?"
        )
    _check_vocabulary_beside(vocab_file, _folder(flags))
    if problem := casing_problem(tokenizer.vocab, flags.do_lower_case):
        say(f"WARNING: {vocab_file}: {problem}")
    return config, tokenizer


def _noted_settings(flags) -> dict:
    """How text is split: as it is noted beside the checkpoint, else as the flag says."""
    from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings

    folder = _folder(flags)
    noted = TokenizerSettings.read(folder)
    if noted is None:
        return {"do_lower_case": flags.do_lower_case}
    if flags["do_lower_case"].present and flags.do_lower_case != noted.do_lower_case:
        raise ValueError(
            f"{folder} notes do_lower_case {noted.do_lower_case}, and the flag says {flags.do_lower_case}: leave it out"
        )
    flags.do_lower_case = noted.do_lower_case
    return noted.to_dict()


def _folder(flags) -> str:
    """Where the checkpoint lies."""
    place = flags.init_checkpoint or flags.output_dir
    return place if os.path.isdir(place) else os.path.dirname(place) or "."


def _check_vocabulary_beside(vocab_file: str, folder: str) -> None:
    """Raises ValueError where another vocabulary lies beside the checkpoint: all ids would mean other pieces."""
    from tf_bert.tokenization.vocabulary import read_vocab_lines

    beside = os.path.join(folder, "vocab.txt")
    if not os.path.isfile(beside):
        return
    given, there = read_vocab_lines(vocab_file), read_vocab_lines(beside)
    for line, (one, other) in enumerate(zip(given, there, strict=False), 1):
        if one != other:
            raise ValueError(
                f"{vocab_file} is not the vocabulary of the checkpoint, which is {beside}: line {line} is {one!r}, and "
                f"there {other!r}. Leave --vocab_file out"
            )


def _config_and_vocabulary(flags):
    """The configuration, the name of where it is from, and the path of the vocabulary."""
    from tf_bert.configs import BertConfig

    config, config_file, vocab_file = None, flags.bert_config_file, flags.vocab_file
    if config_file and os.path.basename(config_file) == "config.json":  # Hugging Face's: "gelu" is another one there
        from tf_bert.checkpoints.huggingface import read_config

        config = read_config(os.path.dirname(config_file) or ".")
    elif config_file:
        config = BertConfig.from_json_file(config_file)
    if config is None or vocab_file is None:
        place = flags.init_checkpoint or flags.output_dir
        missing = [name for name in ("bert_config_file", "vocab_file") if not flags[name].value]
        if not (flags.init_checkpoint or os.path.isdir(place)):
            raise UsageError(
                f"missing --{' and --'.join(missing)}, and there is no checkpoint beside which they might lie"
            )
        load_tensorflow()
        from tf_bert.models.pretrained import open_checkpoint

        strategy_from_flags(flags)  # several workers' has to be made before a .keras file is loaded
        try:
            checkpoint = open_checkpoint(place, config)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} (looked for {' and '.join(missing)}, which no flag names)") from None
        if config is None:
            config, config_file = checkpoint.config, place
        vocab_file = vocab_file or checkpoint.vocab_file
        if vocab_file is None:
            raise UsageError(f"missing --vocab_file: there is no vocabulary beside {place}")
    return config, config_file, vocab_file


def training_options(flags, examples: int):
    """How to train on so many examples: the original's number of steps.

    Raises:
        ValueError: that is none.
    """
    from tf_bert.training.finetuning import FineTuningOptions

    steps = int(examples / flags.train_batch_size * flags.num_train_epochs)
    if steps < 1:
        raise ValueError(
            f"{examples} examples / train_batch_size {flags.train_batch_size} x {flags.num_train_epochs} epochs is "
            "less than one step: nothing would be trained"
        )
    return FineTuningOptions(
        **run_options(flags),
        num_train_steps=steps,
        train_batch_size=flags.train_batch_size,
        num_warmup_steps=int(steps * flags.warmup_proportion),
        group_by_length=flags.group_by_length,
        clip_unmerged_slices=getattr(flags, "clip_unmerged_slices", False),
        fixed_length=needs_fixed_length(flags),
    )


def needs_fixed_length(flags) -> bool:
    """Whether all batches must have one shape."""
    return flags.xla or flags.use_tpu or flags.distribution_strategy == "tpu"
