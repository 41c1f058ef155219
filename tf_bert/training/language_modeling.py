"""Pre-training of language models: what ``run_language_modeling`` does, as functions."""

import math
import os
from collections.abc import Callable

import tensorflow as tf

from tf_bert.checkpoints import gpt_config, keras_files, openai
from tf_bert.configs import Config, GPTConfig
from tf_bert.data.language_modeling import input as language_modeling_input
from tf_bert.data.language_modeling.input import BlockFiles, block_errors
from tf_bert.data.tfrecord.input_pipeline import check_vocab_size
from tf_bert.data.tfrecord.sidecar import noted_vocabulary
from tf_bert.files import make_folder
from tf_bert.models.elmo import Elmo
from tf_bert.models.gpt import GPT
from tf_bert.progress import say
from tf_bert.trainer.optimization import AdamWeightDecay
from tf_bert.trainer.schedules import WarmupDecay
from tf_bert.trainer.trainer import Trainer
from tf_bert.training.distribution import distribute
from tf_bert.training.options import LanguageModelingOptions, RunOptions
from tf_bert.training.recipe import Task

NOT_DECAYED = ("LayerNorm|bias",)
MODELS = {"gpt": GPT, "elmo": Elmo}


class LanguageModeling(Task):
    """What comes next, on the blocks of ``create_language_modeling_data``.

    Args:
        config: sizes and rates.
        blocks: from `tf_bert.data.language_modeling.input.find_blocks`.
        options: how to train and to evaluate.
        eval_blocks: what ``eval_every_steps`` evaluates on; ``blocks`` by default.
        make: makes the model from ``config``.
    """

    def __init__(
        self,
        config: Config,
        blocks: BlockFiles | None = None,
        options: LanguageModelingOptions = LanguageModelingOptions(),
        eval_blocks: BlockFiles | None = None,
        make: Callable[[Config], Trainer] = GPT,
    ):
        super().__init__(options)
        self.config, self.blocks, self.eval_blocks, self.make = config, blocks, eval_blocks or blocks, make

    def make_model(self) -> Trainer:
        """The model of the configuration."""
        return self.make(self.config)

    def make_optimizer(self) -> AdamWeightDecay:
        """Adam, see `adam`."""
        options = self.options
        return adam(options, options.schedule, options.weight_decay, options.beta_2, options.clip_norm)

    def check(self) -> None:
        """Raises ValueError where the blocks do not fit the configuration."""
        for some in (self.blocks, self.eval_blocks):
            check_fit(self.config, some)

    def data_settings(self, model: Trainer) -> dict:
        """The files, and how they are drawn from."""
        return {
            "seed": self.options.seed,
            "shuffle_buffer": self.options.shuffle_buffer,
            "files": [os.path.basename(path) for path in self.blocks.files],
            "records": self.blocks.counts(),
        }

    def describe_batch(self, model: Trainer) -> str:
        """Blocks and their length."""
        return f"{self.batch_size} x {self.blocks.block_size} tokens"

    def make_batches(self, model, state, size: int, worker: tuple[int, int] = (0, 1)) -> tf.data.Dataset:
        """Batches of blocks."""
        return language_modeling_input.train_dataset(
            self.blocks,
            size,
            seed=self.options.seed,
            shuffle_buffer=self.options.shuffle_buffer,
            skip_records=state.records,
            vocab_size=self.config.vocab_size,
            end_id=_end_id(self.blocks),
            mask_documents=self.options.mask_documents,
        )

    def errors(self):
        """Names the damaged file."""
        return block_errors(self.blocks, self.config.vocab_size)

    def evaluator(self, model, output_dir, state):
        """The figures of `evaluate`."""
        return lambda: evaluate(model, self.eval_blocks, self.options)


def train_language_model(
    config: GPTConfig,
    blocks: BlockFiles,
    output_dir: str | os.PathLike,
    options: LanguageModelingOptions = LanguageModelingOptions(),
    *,
    eval_blocks: BlockFiles | None = None,
    make: Callable[[Config], Trainer] = GPT,
    **run,
) -> Trainer:
    """Trains a language model, or resumes a run that was stopped.

    Args:
        config: see `LanguageModeling`, as for the others.
        blocks: what to train on.
        output_dir: where the run is.
        options: how to train and to evaluate.
        eval_blocks: what to evaluate on while training.
        make: makes the model.
        **run: ``init_checkpoint``, ``strategy``, ``optimizer``; see `tf_bert.training.recipe.Task.train`, also for what
            is returned and raised.
    """
    return LanguageModeling(config, blocks, options, eval_blocks, make).train(output_dir, **run)


def adam(
    options: RunOptions,
    decay: str = "linear",
    weight_decay: float = 0.01,
    beta_2: float = 0.999,
    clip_norm: float = 1.0,
) -> AdamWeightDecay:
    """Adam as GPT is trained by; the defaults are those of GPT-1's fine-tuning (Radford et al. 2018, section 4.1)."""
    return AdamWeightDecay(
        WarmupDecay(options.learning_rate, options.num_train_steps, options.num_warmup_steps, decay),
        weight_decay,
        beta_2=beta_2,
        epsilon=1e-8,
        exclude_from_weight_decay=NOT_DECAYED,
        bias_correction=True,
        global_clipnorm=clip_norm or None,
    )


def check_fit(config: Config, blocks: BlockFiles) -> None:
    """Checks that blocks fit a model.

    Raises:
        ValueError: the blocks are longer than the context, the vocabulary is larger than the table, or documents end
            with another token.
    """
    context = getattr(config, "max_position_embeddings", blocks.block_size)
    if blocks.block_size > context:
        raise ValueError(
            f"{blocks.files[0]} has blocks of {blocks.block_size} tokens, and the context of the model "
            f"(max_position_embeddings) is {context}: a longer table or a smaller --block_size is needed"
        )
    for path, sidecar in zip(blocks.files, blocks.sidecars, strict=True):
        check_vocab_size(path, sidecar, config.vocab_size)
        end_id = getattr(config, "end_id", None)
        if None not in (end_id, sidecar.get("end_id")) and sidecar["end_id"] != end_id:
            raise ValueError(
                f"{path} has the token {sidecar['end_id']} between documents ({path}.json), and end_id in the "
                f"configuration is {end_id}: generation would never end; set end_id to {sidecar['end_id']}"
            )


def _end_id(blocks: BlockFiles) -> int | None:
    return next((sidecar["end_id"] for sidecar in blocks.sidecars if "end_id" in sidecar), None)


def evaluate(
    model: Trainer, blocks: BlockFiles, options: LanguageModelingOptions = LanguageModelingOptions()
) -> dict[str, float]:
    """Measures a model on every block once, or on the first ones.

    Args:
        model: compiled.
        blocks: what to evaluate on.
        options: ``eval_batch_size``, ``max_eval_steps`` and ``mask_documents``.

    Returns:
        ``loss``, the cross-entropy of a token in nats; ``perplexity``, its exponential; ``bits_per_byte`` and
        ``perplexity_per_byte``, which do not depend on the vocabulary; and what else the model measures.

    Raises:
        ValueError: the blocks do not fit the model, or are damaged.
    """
    check_fit(model.config, blocks)
    steps = -(-sum(blocks.counts()) // options.eval_batch_size)
    if options.max_eval_steps:
        steps = min(steps, options.max_eval_steps)

    def make_batches(size: int) -> tf.data.Dataset:
        return language_modeling_input.eval_dataset(
            blocks,
            size,
            vocab_size=model.config.vocab_size,
            end_id=_end_id(blocks),
            mask_documents=options.mask_documents,
        )

    with block_errors(blocks, model.config.vocab_size):
        tokens = bytes_of_text = 0.0
        for batch in make_batches(options.eval_batch_size).take(steps):
            tokens += float(tf.reduce_sum(batch["label_weights"]))
            bytes_of_text += float(tf.reduce_sum(batch["num_bytes"]))
        batches = distribute(model.distribute_strategy, make_batches, options.eval_batch_size)
        figures = model.evaluate(batches, steps=steps, verbose=0, return_dict=True)
    figures = {name: float(value) for name, value in figures.items()}
    if "forward_loss" in figures:  # a model of both directions: each has a perplexity
        loss = (figures["forward_loss"] + figures["backward_loss"]) / 2
    else:
        loss = figures["loss"]
    per_byte = loss * tokens / max(bytes_of_text, 1.0)
    return figures | {
        "perplexity": _exp(loss),
        "bits_per_byte": per_byte / math.log(2),
        "perplexity_per_byte": _exp(per_byte),
    }


def read_config(json_file: str | os.PathLike, make: type[Trainer] = GPT) -> Config:
    """Reads the sizes of a new model. Keys that the model does not know are named in a warning.

    Args:
        json_file: holds the configuration.
        make: the model.

    Raises:
        ValueError: a key is Hugging Face's or OpenAI's name of a setting, whose default would be trained instead.
    """
    config = make.config_class.from_json_file(json_file)
    others = {key: gpt_config.OTHER_NAMES[key] for key in config.extra if key in gpt_config.OTHER_NAMES}
    if others:
        raise ValueError(
            f"{os.fspath(json_file)}: these keys are names of GPT-2's other configurations: "
            f"{', '.join(f'{key} (here {ours})' for key, ours in others.items())}. Give the settings by their names "
            "here; where they are absent, the defaults would be trained"
        )
    if config.extra:
        name = make.__name__
        say(f"WARNING: {os.fspath(json_file)}: {', '.join(config.extra)} are no settings of {name}, and not used")
    return config


def export(model: Trainer, folder: str | os.PathLike, blocks: BlockFiles) -> str:
    """Writes the model with the vocabulary of its blocks, where that is found.

    Returns:
        The folder in Hugging Face's layout, or that of an ELMo; the ``.keras`` file of a GPT that has no such layout.
    """
    folder = os.fspath(folder)
    model.vocab_file = noted_vocabulary(blocks.sidecars)
    if model.vocab_file is None:
        say(f"WARNING: the vocabulary of the records is not known: {folder} will lack it")
    make_folder(folder)
    is_gpt = isinstance(model, GPT)
    problem = gpt_config.not_in_hugging_face(model.config) if is_gpt else None
    if is_gpt and problem is None:
        return model.save_checkpoint(folder)
    openai.copy_vocabulary(model.vocab_file, folder, "openai")
    path = os.path.join(folder, f"{model.name}.keras")
    keras_files.write_keras_file(model, path)
    if not is_gpt:
        return folder
    say(f"{problem}: the model is written as a .keras file")
    return path


def _exp(loss: float) -> float:
    return math.exp(min(loss, 700.0))
