"""The flags of all training commands that say where a model is trained."""

from tf_bert.commands.deferred import deferred
from tf_bert.commands.flags import Flags, UsageError, end_on_sigterm, is_empty
from tf_bert.commands.quiet import load_tensorflow
from tf_bert.memory import keep_freed_memory
from tf_bert.training.options import DeviceOptions

with deferred():
    from tf_bert.training import distribution


def add_distribution_flags(flags: Flags) -> None:
    """Adds the flags to a command's own."""
    flags.add_options(DeviceOptions)
    flags.refuse(
        "master",
        "it was the address of a TensorFlow 1 session; use --tpu_name=grpc://ADDRESS for a TPU",
        is_empty,
    )


def strategy_from_flags(values):
    """Loads TensorFlow, sets precision and memory, and makes the strategy. Call it before anything else of TensorFlow.

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

    load_tensorflow()
    keep_freed_memory()
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
    distribution.check_batch_size(strategy, values.eval_batch_size, "--eval_batch_size")
