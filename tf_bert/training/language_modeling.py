"""Pre-training of language models: what ``run_language_modeling`` does, as functions."""

import dataclasses
import math
import os
from collections.abc import Callable

import tensorflow as tf

from tf_bert.configs import Config, GPTConfig
from tf_bert.data.language_modeling import input as language_modeling_input
from tf_bert.data.language_modeling.input import BlockFiles, block_errors
from tf_bert.data.tfrecord.input_pipeline import check_vocab_size
from tf_bert.files import make_folder
from tf_bert.models.gpt import GPT
from tf_bert.trainer.optimization import AdamWeightDecay
from tf_bert.trainer.schedules import WarmupDecay
from tf_bert.trainer.trainer import Trainer
from tf_bert.training.distribution import distribute
from tf_bert.training.resume import RunState, clean_up
from tf_bert.training.runs import RunOptions, begin, compile_for, say_start, set_seed, train
from tf_bert.training.workers import is_chief

NOT_DECAYED = ("LayerNorm|bias",)


@dataclasses.dataclass(frozen=True)
class LanguageModelingOptions(RunOptions):
    """How to pre-train; the defaults are those of GPT-1 and GPT-3 where the papers say.

    Args:
        num_train_steps: see `tf_bert.training.runs.RunOptions`, as for those that are not here.
        learning_rate: the peak (Radford et al. 2018, section 4.1).
        num_warmup_steps: updates of the linear warm-up.
        decay: how the rate falls afterwards, see `tf_bert.trainer.schedules.WarmupDecay`.
        weight_decay: of kernels and tables, not of norms and biases.
        beta_2: of Adam: 0.999 (GPT-1) or 0.95 (GPT-3).
        clip_norm: the largest norm of the gradient; 0 for any.
        shuffle_buffer: blocks to draw the next one from.
        mask_documents: whether attention stays inside a document.
        eval_batch_size: blocks in a batch of an evaluation.
        max_eval_steps: batches of an evaluation, the first ones; 0 for every block once.
    """

    num_train_steps: int = 100_000
    learning_rate: float = 2.5e-4
    num_warmup_steps: int = 2000
    decay: str = "cosine"
    weight_decay: float = 0.01
    beta_2: float = 0.999
    clip_norm: float = 1.0
    shuffle_buffer: int = language_modeling_input.SHUFFLE_BUFFER
    mask_documents: bool = False
    eval_batch_size: int = 8
    max_eval_steps: int = 0


def build_model(
    config: Config,
    options: LanguageModelingOptions,
    strategy: tf.distribute.Strategy | None = None,
    make: Callable[[Config], Trainer] = GPT,
) -> Trainer:
    """Makes the model with Adam, ready for ``fit`` and ``evaluate``."""
    with (strategy or tf.distribute.get_strategy()).scope():
        model = make(config)
        optimizer = adam(options, options.decay, options.weight_decay, options.beta_2, options.clip_norm)
        compile_for(model, options, optimizer)
    return model


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


def train_language_model(
    config: GPTConfig,
    blocks: BlockFiles,
    output_dir: str | os.PathLike,
    options: LanguageModelingOptions = LanguageModelingOptions(),
    *,
    init_checkpoint: str | os.PathLike | None = None,
    eval_blocks: BlockFiles | None = None,
    strategy: tf.distribute.Strategy | None = None,
    make: Callable[[Config], Trainer] = GPT,
) -> Trainer:
    """Trains a language model, or goes on with a run that was stopped: as `tf_bert.training.pretraining.pretrain`.

    Args:
        config: sizes and rates.
        blocks: from `tf_bert.data.language_modeling.input.find_blocks`.
        output_dir: gets ``model.ckpt-N``, ``training.jsonl`` and TensorBoard's files; made if need be.
        options: how to train.
        init_checkpoint: weights of a new run.
        eval_blocks: what ``options.evaluate_every`` evaluates on.
        strategy: where to train; the default strategy is one device.
        make: makes the model from ``config``.

    Returns:
        The trained model.

    Raises:
        ValueError: blocks, configuration and checkpoint do not fit; the run is beyond ``num_train_steps`` already.
        NonFiniteLossError: the loss is not finite; names the step and the last good checkpoint.
        Stopped: SIGTERM came, and the run is saved.
    """
    output_dir = os.fspath(output_dir)
    for some in (blocks, eval_blocks):
        if some is not None:
            check_fit(config, some)
    set_seed(options.seed)
    strategy = strategy or tf.distribute.get_strategy()
    model = build_model(config, options, strategy, make)
    if is_chief(strategy):
        make_folder(output_dir)
        clean_up(output_dir, options.keep_checkpoints)
    data = {
        "seed": options.seed,
        "shuffle_buffer": options.shuffle_buffer,
        "files": [os.path.basename(path) for path in blocks.files],
        "records": blocks.counts(),
    }
    state = begin(model, output_dir, options, data, init_checkpoint)
    say_start(model, options, state, f"{options.train_batch_size} x {blocks.block_size} tokens")
    held_out = eval_blocks or blocks

    def run_evaluation() -> dict[str, float]:
        return evaluate(model, held_out, options)

    def make_batches(size: int) -> tf.data.Dataset:
        return language_modeling_input.train_dataset(
            blocks,
            size,
            seed=options.seed,
            shuffle_buffer=options.shuffle_buffer,
            skip_records=state.records,
            vocab_size=config.vocab_size,
            end_id=_end_id(blocks),
            mask_documents=options.mask_documents,
        )

    with block_errors(blocks, config.vocab_size):
        while state.step < options.num_train_steps:
            evaluation = run_evaluation if options.evaluate_every else None
            state: RunState = train(model, make_batches, output_dir, options, state, evaluation)
    return model


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


def _exp(loss: float) -> float:
    return math.exp(min(loss, 700.0))
