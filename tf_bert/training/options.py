"""The options of training, each stated once: the training commands make their flags from these classes."""

import dataclasses
from typing import Self

from tf_bert.options import option, options_class


@options_class
class DeviceOptions:
    """Where a model is trained, and in which precision; see `tf_bert.training.distribution`."""

    distribution_strategy: str = option(
        "off",
        "Where to train: off (no strategy), one device, all GPUs of this machine, several machines (named by the "
        "environment variable TF_CONFIG; output_dir has to be one folder that all of them see), or a TPU. "
        "parameter_server is refused: it does not work with fit.",
        choices=("off", "one_device", "mirrored", "multi_worker_mirrored", "tpu", "parameter_server"),
    )
    num_gpus: int | None = option(
        None,
        "Number of GPUs of a machine to use, 0 for none. By default all, and one with off and one_device.",
        minimum=0,
    )
    precision: str = option(
        "float32",
        "Precision of the computation. Variables stay float32; float16 scales the loss, and adapts the scale.",
        choices=("float32", "bfloat16", "float16"),
    )
    use_tpu: bool = option(False, "Whether to train on a TPU; the same as --distribution_strategy=tpu.")
    tpu_name: str | None = option(
        None,
        "The TPU's name, its grpc:// address, or local: this machine's own. Data are read in this process, which a TPU "
        "elsewhere is not expected to reach.",
    )
    tpu_zone: str | None = option(None, "The zone of the TPU, where it is not that of this machine.")
    gcp_project: str | None = option(None, "The Google Cloud project of the TPU, where it is not that of this machine.")
    num_tpu_cores: int | None = option(
        None, "Number of cores that the TPU is expected to have; by default any number.", minimum=1
    )


@options_class
class RunOptions:
    """How to train, whatever the model and the data."""

    learning_rate: float = option(5e-5, "Peak of the learning rate.", minimum=0.0)
    num_train_steps: int = option(
        100_000, "Total number of updates; a resumed run performs the remaining ones.", minimum=1
    )
    num_warmup_steps: int = option(10_000, "Number of updates in which the learning rate rises linearly.", minimum=0)
    save_checkpoints_steps: int = option(1000, "Number of updates between two checkpoints.", minimum=1)
    keep_checkpoint_max: int = option(5, "Number of checkpoints to keep, the newest ones.", minimum=1)
    eval_every_steps: int = option(
        0, "Number of updates between two evaluations while training; 0 for none.", minimum=0
    )
    log_steps: int = option(100, "Number of updates between two lines of the log.", minimum=1)
    iterations_per_loop: int | None = option(
        None,
        "Steps per execution: number of updates in one call of the compiled function, cut to the smallest interval of "
        "checkpoints, lines of the log and evaluations. By default 1000 on a TPU, and 1 elsewhere, so that progress "
        "shows.",
        minimum=1,
    )
    seed: int = option(12345, "Seed of new weights, dropout and the order of the training data.")
    xla: bool = option(False, "Whether to compile forward and backward pass with XLA.")
    gradient_accumulation_steps: int = option(
        1,
        "Number of micro-batches that a batch is cut into. The update is that of the whole batch; memory grows with "
        "the micro-batch only; steps count updates.",
        minimum=1,
    )
    recompute: bool = option(
        False,
        "Whether to compute the activations of each layer again in the backward pass instead of keeping them, for a "
        "fraction of the memory: a third more matrix products, 1.2 times the CPU time of a step.",
    )
    profile: int = option(
        0,
        "Number of steps to trace with TensorFlow's profiler, for TensorBoard, from the sixth on; 0 for none. With "
        "iterations_per_loop, number of calls of that many steps.",
        minimum=0,
    )


@options_class
class BatchOptions:
    """The size of training batches, where it is counted in examples."""

    train_batch_size: int = option(
        32, "Number of examples in a training batch, over all replicas and micro-batches.", minimum=1
    )


@options_class
class EvaluationOptions:
    """How much to evaluate at a time, and in all."""

    eval_batch_size: int = option(8, "Number of examples in an evaluation batch.", minimum=1)
    max_eval_steps: int = option(100, "Number of batches of an evaluation; 0 for every example once.", minimum=0)


@options_class
class AttentionOptions:
    """How BERT computes attention."""

    attention: str = option(
        "plain",
        "How attention is computed. chunked gives the same values without the matrix of all scores: for 512 tokens and "
        "more it needs a fraction of the memory.",
        choices=("plain", "chunked"),
    )


@options_class
class TrainingOptions(AttentionOptions, RunOptions, EvaluationOptions, BatchOptions):
    """How to pre-train BERT; defaults are those of the original's ``run_pretraining``.

    Where ``max_eval_steps`` asks for more records than there are, evaluation starts over with the first one.
    """

    shuffle_buffer: int = option(10_000, "Number of records in memory to draw the next one from.", minimum=1)
    deterministic: bool = option(True, "Whether equal seeds give equal orders, whatever the speed of the disk.")
    shard_files: bool = option(
        False,
        "Whether each of several workers reads only its share of the files (of the records, where there are fewer "
        "files), instead of all. The order of the records then depends on the number of workers.",
    )


@options_class
class LanguageModelingOptions(RunOptions, EvaluationOptions, BatchOptions):
    """How to pre-train a language model; defaults are those of GPT-1 (Radford et al. 2018, section 4.1)."""

    learning_rate: float = option(2.5e-4)
    num_warmup_steps: int = option(2000)
    schedule: str = option("cosine", "How the rate falls after the warm-up.", choices=("linear", "cosine", "constant"))
    weight_decay: float = option(0.01, "Decay of kernels and tables, not of norms and biases.", minimum=0.0)
    beta_2: float = option(
        0.999, "Decay of Adam's second moment: 0.999 (GPT-1) or 0.95 (GPT-3).", minimum=0.0, maximum=1.0
    )
    clip_norm: float = option(1.0, "Largest norm of the gradient; 0 for any.", minimum=0.0)
    mask_documents: bool = option(False, "Whether attention stays inside a document.")
    shuffle_buffer: int = option(10_000, "Number of blocks in memory to draw the next one from.", minimum=1)
    max_eval_steps: int = option(0)


@options_class
class TranslationOptions(RunOptions):
    """How to train a translation model."""

    batch_tokens: int = option(
        4096,
        "Number of tokens in a batch of training or evaluation: padded positions of the longer side. On a TPU every "
        "pair is as wide as the longest one.",
        minimum=1,
    )
    learning_rate: float = option(7e-4)
    num_warmup_steps: int = option(4000)
    schedule: str = option(
        "noam",
        "How the rate falls after the warm-up: noam with the root of the step (Vaswani et al. 2017, section 5.3).",
        choices=("noam", "linear", "cosine", "constant"),
    )
    clip_norm: float = option(1.0, "Largest norm of the gradient; 0 for any.", minimum=0.0)
    shuffle_buffer: int = option(20_000, "Number of pairs in memory to draw the next one from.", minimum=1)
    early_stopping: int = option(
        0,
        "Number of evaluations without a lower cross-entropy after which training stops; 0 for never.",
        minimum=0,
    )


@options_class
class FineTuningOptions(RunOptions, BatchOptions):
    """How to fine-tune a model on data that fits in memory."""

    num_train_steps: int | None = option(
        None, "Total number of updates; by default those of num_train_epochs passes over the training data."
    )
    num_warmup_steps: int | None = option(
        None, "Number of updates in which the learning rate rises linearly; by default the share warmup_proportion."
    )
    num_train_epochs: float = option(3.0, "Number of passes over the training data; may be a fraction.", minimum=0.0)
    warmup_proportion: float = option(
        0.1, "Share of the updates in which the learning rate rises.", minimum=0.0, maximum=1.0
    )
    group_by_length: bool = option(
        False, "Whether training batches get examples of about one length, which saves padding."
    )

    def with_steps(self, examples: int) -> Self:
        """Returns the options with the number of steps for a number of examples, counted as the original does.

        Raises:
            ValueError: it is 0.

        Example:
            >>> FineTuningOptions(train_batch_size=8, num_train_epochs=1.5).with_steps(100).num_train_steps
            18
        """
        steps = self.num_train_steps
        if steps is None:
            steps = int(examples / self.train_batch_size * self.num_train_epochs)
        if steps < 1:
            raise ValueError(
                f"{examples} examples / train_batch_size {self.train_batch_size} x {self.num_train_epochs} epochs is "
                "less than one step: nothing would be trained"
            )
        warmup = self.num_warmup_steps
        if warmup is None:
            warmup = int(steps * self.warmup_proportion)
        return dataclasses.replace(self, num_train_steps=steps, num_warmup_steps=warmup)


@options_class
class BertFineTuningOptions(AttentionOptions, FineTuningOptions):
    """How to fine-tune BERT; defaults are the original's."""

    clip_unmerged_slices: bool = option(
        False,
        "Whether gradients are clipped by the norm that the original used, in which each occurrence of an id in the "
        "batch counts by itself.",
    )


@options_class
class GPTFineTuningOptions(FineTuningOptions):
    """How to fine-tune GPT; defaults are those of GPT-1 (Radford et al. 2018, section 4.1)."""

    learning_rate: float = option(6.25e-5)
    warmup_proportion: float = option(0.002)
    lm_weight: float = option(
        0.5, "Weight of the language-model loss relative to that of the labels (lambda).", minimum=0.0
    )
    classifier_dropout: float = option(0.1, "Dropout of what the labels are scored from.", minimum=0.0, maximum=1.0)
