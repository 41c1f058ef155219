"""What a run, or an evaluation, begins with: weights, configuration, tokenizer."""

import os

from tf_bert.checkpoints import formats, huggingface, loading, names, openai
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.checkpoints.vocabulary import may_lack_lines
from tf_bert.configs import BertConfig, Config
from tf_bert.models import pretrained
from tf_bert.progress import say
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.vocabulary import casing_problem, read_vocab_lines, validate_case_matches_checkpoint
from tf_bert.trainer.trainer import Trainer
from tf_bert.training.resume import restore_run
from tf_bert.training.workers import check_one_run


def open_initial(init_checkpoint: str | os.PathLike, config: Config) -> formats.Checkpoint:
    """Opens weights to begin with, in any format, also where no configuration is beside them.

    Raises:
        ValueError: the configuration beside them is of another model; see also
            `tf_bert.models.pretrained.open_checkpoint`.
    """
    try:
        checkpoint = pretrained.open_checkpoint(init_checkpoint)
    except FileNotFoundError:  # maybe only the configuration
        return pretrained.open_checkpoint(init_checkpoint, config)
    for name in ("hidden_act", "num_attention_heads"):  # what the shapes of the variables do not tell
        found, expected = getattr(checkpoint.config, name), getattr(config, name)
        if found != expected:
            raise ValueError(
                f"{os.fspath(init_checkpoint)} was trained with {name} {found!r}, as the configuration beside it says, "
                f"and the model has {expected!r}: its outputs would be others. Give the checkpoint's own "
                "bert_config_file"
            )
    return checkpoint


def load_initial_weights(model: Trainer, init_checkpoint: str | os.PathLike) -> loading.LoadReport:
    """Loads the weights of a new run; the head of another task, with other labels, starts fresh."""
    reader, variables = open_initial(init_checkpoint, model.config).reader, names.model_variables(model)
    table, new_rows = variables.get(names.GPT_WORDS), getattr(model, "new_rows", 0)
    if new_rows and reader.shapes.get(names.GPT_WORDS, (None,))[0] == table.shape[0] - new_rows:
        reader = openai.ReaderWithNewRows(reader, table)
    for name, variable in variables.items():
        if name in names.TASK_HEAD_VARIABLES and reader.shapes.get(name, variable.shape) != tuple(variable.shape):
            found = reader.shapes.pop(name)
            say(f"{name} is {found} in {init_checkpoint} and {tuple(variable.shape)} here: it starts fresh")
    return loading.load_weights(model, reader)


def load_for_evaluation(
    model: Trainer, output_dir: str | os.PathLike, init_checkpoint: str | os.PathLike | None = None
) -> int:
    """Gives a model the weights of the newest checkpoint of a run, else those of ``init_checkpoint``.

    Returns:
        The step of the checkpoint, 0 for ``init_checkpoint``.

    Raises:
        ValueError: there is neither, or a head is missing; several workers found different checkpoints.
    """
    state = restore_run(model, output_dir)
    check_one_run(model.distribute_strategy, os.fspath(output_dir), state)
    if state is not None:
        say(f"evaluating {state.prefix}, step {state.step:,}")
        return state.step
    if not init_checkpoint:
        raise ValueError(f"nothing to evaluate: no checkpoint in {os.fspath(output_dir)} and no init_checkpoint")
    report = loading.load_weights(model, open_initial(init_checkpoint, model.config).reader)
    if report.missing:
        raise ValueError(
            f"{init_checkpoint} has no value for {', '.join(report.missing)}: what the model says would be "
            "random; train first, or give the checkpoint of a model that was trained for this"
        )
    say(f"evaluating {init_checkpoint} (no checkpoint in {os.fspath(output_dir)}): {report}")
    return 0


def config_and_tokenizer(
    init_checkpoint: str | None,
    output_dir: str,
    *,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    max_seq_length: int | None = None,
) -> tuple[BertConfig, FullTokenizer]:
    """Reads BERT's configuration and tokenizer, checked against each other.

    Args:
        init_checkpoint: a checkpoint in any format; by default the run in ``output_dir``.
        output_dir: the folder of the run.
        bert_config_file: the configuration; by default the one beside the checkpoint.
        vocab_file: the vocabulary; by default the one beside the checkpoint.
        do_lower_case: whether text is lower-cased; by default as noted beside the checkpoint, else True.
        max_seq_length: what the model is to read.

    Raises:
        FileNotFoundError: nothing says the sizes or the vocabulary.
        ValueError: they do not fit, or the casing is not the checkpoint's.
    """
    place = init_checkpoint or output_dir
    folder = place if os.path.isdir(place) else os.path.dirname(place) or "."
    settings = _tokenizer_settings(folder, do_lower_case)
    validate_case_matches_checkpoint(settings["do_lower_case"], init_checkpoint)
    config, config_file = _read_config(bert_config_file), bert_config_file
    if config is None or vocab_file is None:
        missing = [name for name, given in (("bert_config_file", config), ("vocab_file", vocab_file)) if given is None]
        try:
            checkpoint = pretrained.open_checkpoint(place, config)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} (looked for {' and '.join(missing)}, which no flag names)") from None
        if config is None:
            config, config_file = checkpoint.config, place
        vocab_file = vocab_file or checkpoint.vocab_file
        if vocab_file is None:
            raise FileNotFoundError(f"missing vocab_file: there is no vocabulary beside {place}")
    if (max_seq_length or 0) > config.max_position_embeddings:
        raise ValueError(
            f"max_seq_length is {max_seq_length}, and {config_file} has max_position_embeddings "
            f"{config.max_position_embeddings}: the model reads no more"
        )
    tokenizer = FullTokenizer(vocab_file, **settings)
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"{vocab_file} has {tokenizer.vocab_size} lines, and {config_file} has vocab_size "
            f"{config.vocab_size}: ids would lie beyond the table"
        )
    if may_lack_lines(tokenizer.vocab_size, config.vocab_size):
        say(
            f"WARNING: {vocab_file} has {tokenizer.vocab_size:,} lines, and the table of the model "
            f"{config.vocab_size:,} rows: is it the vocabulary that the checkpoint was trained with?"
        )
    _check_vocabulary_beside(vocab_file, folder)
    if problem := casing_problem(tokenizer.vocab, settings["do_lower_case"]):
        say(f"WARNING: {vocab_file}: {problem}")
    return config, tokenizer


def _tokenizer_settings(folder: str, do_lower_case: bool | None) -> dict[str, bool]:
    """How text is split: as it is noted beside the checkpoint, else as asked for."""
    noted = TokenizerSettings.read(folder)
    if noted is None:
        return {"do_lower_case": do_lower_case is not False}
    if do_lower_case is not None and do_lower_case != noted.do_lower_case:
        raise ValueError(
            f"{folder} notes do_lower_case {noted.do_lower_case}, and {do_lower_case} is asked for: leave it out"
        )
    return noted.to_dict()


def _read_config(path: str | None) -> BertConfig | None:
    if path and os.path.basename(path) == "config.json":  # Hugging Face's: "gelu" is another one there
        return huggingface.read_config(os.path.dirname(path) or ".")
    return BertConfig.from_json_file(path) if path else None


def _check_vocabulary_beside(vocab_file: str, folder: str) -> None:
    """Raises ValueError where another vocabulary is beside the checkpoint: all ids would mean other pieces."""
    beside = os.path.join(folder, formats.VOCABULARY)
    if not os.path.isfile(beside):
        return
    given, there = read_vocab_lines(vocab_file), read_vocab_lines(beside)
    for line, (one, other) in enumerate(zip(given, there, strict=False), 1):
        if one != other:
            raise ValueError(
                f"{vocab_file} is not the vocabulary of the checkpoint, which is {beside}: line {line} is {one!r}, and "
                f"there {other!r}. Leave --vocab_file out"
            )
