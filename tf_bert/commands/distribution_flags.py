"""The flags of all training commands that say where and how a model is trained: the original's and ours."""

from tf_bert.commands.flags import Flags, UsageError, end_on_sigterm
from tf_bert.memory import keep_freed_memory


def add_distribution_flags(flags: Flags) -> None:
    """Adds the flags to a command's own."""
    flags.enum(
        "distribution_strategy",
        "off",
        ["off", "one_device", "mirrored", "multi_worker_mirrored", "tpu", "parameter_server"],
        "Where to train: off (no strategy), one device, all GPUs of this machine, several machines (named by the "
        "environment variable TF_CONFIG; output_dir has to be one folder that all of them see), or a TPU. "
        "parameter_server is refused: it does not work with fit.",
    )
    flags.integer(
        "num_gpus",
        None,
        "Use the first so many GPUs of a machine, 0 for none; all by default, and with off and one_device one.",
        minimum=0,
    )
    flags.enum(
        "precision",
        "float32",
        ["float32", "bfloat16", "float16"],
        "What to compute in. Variables stay float32; float16 scales the loss, and adapts the scale.",
    )
    flags.boolean("xla", False, "Whether to compile forward and backward pass with XLA.")
    flags.integer(
        "gradient_accumulation_steps",
        1,
        "Into how many micro-batches a batch is cut. The update is that of the whole batch; memory grows with the "
        "micro-batch only; steps count updates.",
        minimum=1,
    )
    flags.boolean(
        "recompute",
        False,
        "Whether to compute the activations of each layer again in the backward pass instead of keeping them, for a "
        "fraction of the memory: a third more matrix products, 1.2 times the CPU time of a step.",
    )
    flags.integer(
        "profile",
        0,
        "How many steps to trace with TensorFlow's profiler, for TensorBoard, from the sixth on; 0 for none. With "
        "--iterations_per_loop, how many calls of so many steps.",
        minimum=0,
    )
    flags.integer(
        "iterations_per_loop",
        1000,
        "Steps per execution: updates in one call of the compiled function. Where it is not given it is 1 outside "
        "TPUs, so that progress shows.",
        minimum=1,
    )
    flags.boolean("use_tpu", False, "Whether to train on a TPU; the same as --distribution_strategy=tpu.")
    flags.string(
        "tpu_name",
        None,
        "The TPU's name, its grpc:// address, or local: this machine's own. Data are read in this process, which a TPU "
        "elsewhere is not expected to reach.",
    )
    flags.string("tpu_zone", None, "The zone of the TPU, where it is not that of this machine.")
    flags.string("gcp_project", None, "The Google Cloud project of the TPU, where it is not that of this machine.")
    flags.integer(
        "num_tpu_cores", None, "How many cores the TPU is expected to have; by default any number.", minimum=1
    )
    flags.refuse("master", "it was the address of a TensorFlow 1 session; use --tpu_name=grpc://ADDRESS for a TPU")


def add_attention_flag(flags: Flags) -> None:
    """Adds the flag of BERT's commands that says how attention is computed."""
    flags.enum(
        "attention",
        "plain",
        ["plain", "chunked"],
        "How attention is computed. chunked gives the same values without the matrix of all scores: for 512 tokens and "
        "more it needs a fraction of the memory.",
    )


def strategy_from_flags(values):
    """Sets precision and memory, and makes the strategy of the flags. Call it before anything else of TensorFlow.

    Args:
        values: parsed flags.

    Returns:
        A `tf.distribute.Strategy`.

    Raises:
        UsageError: two flags contradict each other.
        ValueError: this machine lacks what is asked for.
    """
    name = values.distribution_strategy
    if values.use_tpu:
        if values["distribution_strategy"].present and name != "tpu":
            raise UsageError(f"--use_tpu=True contradicts --distribution_strategy={name}")
        name = "tpu"

    keep_freed_memory()
    from tf_bert.training import distribution

    tpu = {key: getattr(values, key) for key in ("tpu_name", "tpu_zone", "gcp_project", "num_tpu_cores")}
    strategy = distribution.get_strategy(name, num_gpus=values.num_gpus, **(tpu if name == "tpu" else {}))
    distribution.set_precision(values.precision)
    end_on_sigterm()  # now: the strategy of several workers has set a handler that swallows it
    return strategy


def check_eval_batch_size(values, strategy) -> None:
    """Checks before training that several workers can share the batches of an evaluation, which may come only after it.

    Raises:
        ValueError: they cannot.
    """
    from tf_bert.training.distribution import check_batch_size

    check_batch_size(strategy, values.eval_batch_size, "--eval_batch_size")


def run_options(values) -> dict:
    """What every training command's flags say of a run, as arguments of `tf_bert.training.runs.RunOptions`."""
    return {
        "learning_rate": values.learning_rate,
        "save_checkpoints_steps": values.save_checkpoints_steps,
        "keep_checkpoints": values.keep_checkpoint_max,
        "log_steps": values.log_steps,
        "iterations_per_loop": steps_per_execution(values),
        "gradient_accumulation_steps": values.gradient_accumulation_steps,
        "jit_compile": values.xla,
        "recompute": values.recompute,
        "profile_steps": values.profile,
        "seed": values.seed,
    }


def steps_per_execution(values) -> int:
    """The original's ``iterations_per_loop``, which outside TPUs is 1 unless it is given."""
    on_tpu = values.use_tpu or values.distribution_strategy == "tpu"
    return values.iterations_per_loop if on_tpu or values["iterations_per_loop"].present else 1
