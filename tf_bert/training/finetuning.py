"""Training of a task's model on data that fits in memory: what ``run_classifier``, ``run_squad`` and others share."""

import dataclasses
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_bert.checkpoints import formats
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.configs import BertConfig
from tf_bert.data.finetuning.label_list import note_labels
from tf_bert.files import atomic_writer, make_folder
from tf_bert.models.bert_tasks import PROBLEM_TYPES
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.trainer.optimization import create_optimizer
from tf_bert.trainer.prediction import SEQUENCES, lengths_of
from tf_bert.trainer.trainer import Trainer
from tf_bert.training.resume import clean_up
from tf_bert.training.runs import RunOptions, begin, compile_for, say_start, set_seed, train
from tf_bert.training.workers import is_chief

# Sorted together are at most so many batches, and at most a quarter of a pass: where all examples are sorted, each pass
# has the same batches, and what goes with length goes with the batch.
BATCHES_SORTED_TOGETHER = 50
POOLS_IN_A_PASS = 4


@dataclasses.dataclass(frozen=True)
class FineTuningOptions(RunOptions):
    """How to fine-tune.

    Args:
        group_by_length: see `shuffled_batches`, as for those that are not here; others see
            `tf_bert.training.runs.RunOptions`.
        fixed_length: leave all padding.
        clip_unmerged_slices: see `tf_bert.trainer.optimization.create_optimizer`.
    """

    group_by_length: bool = False
    fixed_length: bool = False
    clip_unmerged_slices: bool = False


def shuffled_batches(
    columns: Mapping[str, np.ndarray],
    batch_size: int,
    seed: int = 12345,
    skip: int = 0,
    group_by_length: bool = False,
    fixed_length: bool = False,
    per_piece: Collection[str] = (),
    global_batch_size: int | None = None,
) -> tf.data.Dataset:
    """Endless batches of all examples in a new order in each pass; batches run on from one pass into the next.

    Args:
        columns: all examples; [N, S] what is a sequence (``input_ids``, ``input_mask``, ``segment_ids``, ``per_piece``)
            or, with several texts an example, [N, C, S]; any shape what is not.
        batch_size: examples in a batch.
        seed: of the order.
        skip: where to begin: this many examples were had already.
        group_by_length: whether a batch gets examples of about one length: in each pass, pools of up to 50 batches,
            and up to a quarter of the examples, are drawn anew, sorted and cut into batches, which come in random
            order. It costs less padding; which examples come together is then less random.
        fixed_length: leave all padding, instead of cutting each batch to its longest example: XLA and TPUs compile anew
            for every length.
        per_piece: what else has a value for each piece and is cut with it: the labels of a tagger.
        global_batch_size: of all workers, where each takes some of these batches; what ``group_by_length`` puts
            together does not depend on their number then. By default ``batch_size``.

    Returns:
        Dicts of [B, ...] tensors.
    """
    mask = columns["input_mask"]
    lengths, full = lengths_of(mask), mask.shape[-1]
    sequences = {*SEQUENCES, *per_piece}

    def batches() -> Iterator[dict[str, np.ndarray]]:
        waiting = np.zeros(0, int)
        for rows in _passes(lengths, global_batch_size or batch_size, seed, skip, group_by_length):
            waiting = np.concatenate([waiting, rows])
            for first in range(0, len(waiting) - batch_size + 1, batch_size):
                taken = waiting[first : first + batch_size]
                width = full if fixed_length else lengths[taken].max()
                yield {name: v[taken, ..., :width] if name in sequences else v[taken] for name, v in columns.items()}
            waiting = waiting[len(waiting) // batch_size * batch_size :]

    def shape(name: str, values: np.ndarray) -> list[int | None]:
        cut = name in sequences and not fixed_length
        return [batch_size, *values.shape[1:-1], None] if cut else [batch_size, *values.shape[1:]]

    signature = {name: tf.TensorSpec(shape(name, values), values.dtype) for name, values in columns.items()}
    return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)


def _passes(lengths: np.ndarray, batch_size: int, seed: int, skip: int, group_by_length: bool) -> Iterator[np.ndarray]:
    """The numbers of all examples in the order of each pass, for ever, without the first ``skip``."""
    number, skip = divmod(skip, len(lengths))
    while True:
        random = np.random.default_rng((seed, number))
        rows = random.permutation(len(lengths))
        if group_by_length:
            begun = -number * len(lengths) % batch_size  # these go into a batch that the pass before has begun
            rest, pool = rows[begun:], len(lengths) // (batch_size * POOLS_IN_A_PASS)
            together = min(max(pool, 1), BATCHES_SORTED_TOGETHER) * batch_size
            groups = []
            for first in range(0, len(rest), together):
                chunk = rest[first : first + together]
                chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
                whole = len(chunk) // batch_size * batch_size
                groups += [*random.permutation(chunk[:whole].reshape(-1, batch_size)), chunk[whole:]]
            rows = np.concatenate([rows[:begun], *groups])
        yield rows[skip:]
        number, skip = number + 1, 0


def finetune(
    make_model: Callable[[], Trainer],
    columns: Mapping[str, np.ndarray],
    output_dir: str | os.PathLike,
    options: FineTuningOptions,
    *,
    init_checkpoint: str | os.PathLike | None = None,
    strategy: tf.distribute.Strategy | None = None,
    note: Callable[[], None] | None = None,
    make_optimizer: Callable[[RunOptions], keras.optimizers.Optimizer] | None = None,
) -> Trainer:
    """Trains a model, or goes on with a run that was stopped; see `tf_bert.training.pretraining.pretrain`.

    Args:
        make_model: makes the model; called under the strategy.
        columns: the examples, see `shuffled_batches`.
        output_dir: gets ``model.ckpt-N``, ``training.jsonl`` and TensorBoard's files; made if need be.
        options: how to train.
        init_checkpoint: weights to begin with, where ``output_dir`` has no checkpoint.
        strategy: where to train; the default strategy is one device.
        note: writes what belongs beside the checkpoints (`write_companions`); called before the first step, by one
            process, once the weights are loaded.
        make_optimizer: see `compiled`.

    Raises:
        ValueError: the checkpoint does not fit, or the run is beyond ``num_train_steps`` already.
        NonFiniteLossError: the loss or a weight is not finite.
        Stopped: SIGTERM came, and the run is saved.
    """
    output_dir, strategy = os.fspath(output_dir), strategy or tf.distribute.get_strategy()
    model = compiled(make_model, options, strategy, make_optimizer)
    if is_chief(strategy):
        make_folder(output_dir)
        clean_up(output_dir, options.keep_checkpoints)
    data = {
        "seed": options.seed,
        "examples": len(columns["input_ids"]),
        "batch_size": options.train_batch_size,
        "group_by_length": options.group_by_length,
    }
    state = begin(model, output_dir, options, data, init_checkpoint)
    if note is not None and is_chief(strategy):
        note()
    say_start(model, options, state, f"{options.train_batch_size} x {columns['input_ids'].shape[-1]} tokens")
    while state.step < options.num_train_steps:

        def make_batches(size: int, had: int = state.records) -> tf.data.Dataset:
            return shuffled_batches(
                columns,
                size,
                seed=options.seed,
                skip=had,
                group_by_length=options.group_by_length,
                fixed_length=options.fixed_length,
                per_piece=getattr(model, "sequence_inputs", ()),
                global_batch_size=options.train_batch_size,
            )

        state = train(model, make_batches, output_dir, options, state)
    return model


def compiled(
    make_model: Callable[[], Trainer],
    options: RunOptions,
    strategy: tf.distribute.Strategy,
    make_optimizer: Callable[[RunOptions], keras.optimizers.Optimizer] | None = None,
) -> Trainer:
    """A model with its optimizer, which is BERT's by default, its fresh weights drawn by the seed."""
    set_seed(options.seed)
    with strategy.scope():
        model = make_model()
        compile_for(model, options, (make_optimizer or _berts_optimizer)(options))
    return model


def _berts_optimizer(options: RunOptions) -> keras.optimizers.Optimizer:
    return create_optimizer(
        options.learning_rate,
        options.num_train_steps,
        options.num_warmup_steps,
        clip_unmerged_slices=getattr(options, "clip_unmerged_slices", False),
    )


def write_companions(
    output_dir: str | os.PathLike,
    config: BertConfig,
    tokenizer: FullTokenizer,
    architecture: str,
    kind: str,
    labels: Sequence[str] = (),
    **settings: Any,
) -> None:
    """Puts configuration, vocabulary, casing and labels into the folder of a run, so that it is a whole model.

    Args:
        output_dir: where the checkpoints are, or will be.
        config: of the model.
        tokenizer: of the data.
        architecture: a key of `tf_bert.models.pretrained.ARCHITECTURES`.
        kind: see `tf_bert.data.finetuning.label_list.note_labels`, as for the rest.
        labels: in the order of their ids.
        **settings: what else prediction has to know.

    Raises:
        ValueError: another vocabulary is there already.
    """
    switches = TokenizerSettings.of(tokenizer)
    formats.copy_companions(output_dir, tokenizer.vocab_file, switches)
    noted = config.extra | {"architectures": [architecture]} | switches.to_dict()
    noted.pop("problem_type", None)  # of the checkpoint that it began with
    noted |= {"problem_type": PROBLEM_TYPES[kind]} if kind in PROBLEM_TYPES else {}
    with atomic_writer(os.path.join(output_dir, formats.GOOGLE_CONFIG), "w") as file:
        file.write(dataclasses.replace(config, extra=noted).to_json_string())
    note_labels(output_dir, kind, labels, **settings)
