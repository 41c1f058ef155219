"""Where a model is trained: one device, several GPUs, several machines, or a TPU."""

import json
import os
import re
from collections.abc import Callable

import keras
import tensorflow as tf

from tf_bert.progress import say

STRATEGIES = ("off", "one_device", "mirrored", "multi_worker_mirrored", "tpu")
PRECISIONS = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
    "float64": "float64",
}

_made: dict[tuple, tf.distribute.Strategy] = {}


def get_strategy(
    name: str = "off",
    *,
    num_gpus: int | None = None,
    tpu_name: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
    num_tpu_cores: int | None = None,
) -> tf.distribute.Strategy:
    """The strategy under whose ``scope()`` a model is to be made; the same object when it is asked for again.

    Args:
        name: ``off``: no strategy; ``one_device``: one GPU, or the CPU; ``mirrored``: all GPUs of this machine or,
            where there are none, all logical CPU devices (`set_logical_cpus`); ``multi_worker_mirrored``: the
            processes that the environment variable TF_CONFIG names; ``tpu``: a TPU.
        num_gpus: use the first so many GPUs of this machine, 0 for none; all by default. ``off`` and ``one_device``
            use no more than one.
        tpu_name: the TPU's name, its ``grpc://`` address, or ``local`` for the one that this machine is attached to; by
            default the one that the environment names. Our training reads its data in this process, which a TPU
            elsewhere is not expected to reach.
        tpu_zone: the zone of the TPU, where it is not this machine's.
        gcp_project: the project of the TPU, where it is not this machine's.
        num_tpu_cores: how many cores the TPU is expected to have; by default any number.

    Nothing here was ever run on a TPU. What is tested is that the train step compiles under XLA, with static shapes and
    without operations of the host. XLA drops the check that the loss is finite: where it is not, a run on a TPU stops
    at the next checkpoint, which is not written, and not before the step.

    Raises:
        ValueError: there is no such strategy, it does not work with ``fit``, or this machine lacks what it needs.

    Example:
        >>> get_strategy("off").num_replicas_in_sync
        1
    """
    if name in ("parameter_server", "ps"):
        raise ValueError(
            "the parameter_server strategy does not work with fit in Keras 3, which has no code for its coordinator; "
            "use multi_worker_mirrored"
        )
    if name not in STRATEGIES:
        raise ValueError(f"distribution strategy is {name!r}; known are {', '.join(STRATEGIES)}")
    if num_gpus is not None and (name == "tpu" or (num_gpus > 1 and name in ("off", "one_device"))):
        raise ValueError(
            f"num_gpus is {num_gpus}, and distribution strategy {name} uses {'no GPU' if name == 'tpu' else 'one'}: "
            "leave num_gpus out, or choose mirrored or multi_worker_mirrored for several GPUs"
        )
    if name == "off":
        _show_gpus(num_gpus)
        return tf.distribute.get_strategy()
    key = (name, num_gpus, tpu_name, tpu_zone, gcp_project, num_tpu_cores)
    if key in _made:
        return _made[key]
    groups = [made for made, *_ in _made if made != "one_device"]
    if groups and name != "one_device":
        raise ValueError(
            f"this process has a strategy already ({groups[0]}); TensorFlow cannot hold two groups of replicas in one "
            "process: begin another process"
        )
    if name == "tpu":
        strategy = _tpu(tpu_name, tpu_zone, gcp_project, num_tpu_cores)
    elif name == "multi_worker_mirrored":
        strategy = _multi_worker(num_gpus)
    elif name == "one_device":
        strategy = tf.distribute.OneDeviceStrategy(_devices(num_gpus)[0])
    else:
        strategy = tf.distribute.MirroredStrategy(_devices(num_gpus))
    _made[key] = strategy
    return strategy


def strategy_name(strategy: tf.distribute.Strategy) -> str:
    """What a strategy is called in `get_strategy`.

    Example:
        >>> strategy_name(get_strategy("one_device"))
        'one_device'
    """
    types = {
        "one_device": tf.distribute.OneDeviceStrategy,
        "mirrored": tf.distribute.MirroredStrategy,
        "multi_worker_mirrored": tf.distribute.MultiWorkerMirroredStrategy,
        "tpu": tf.distribute.TPUStrategy,
    }
    return next((name for name, kind in types.items() if isinstance(strategy, kind)), "off")


def set_logical_cpus(count: int) -> None:
    """Divides the CPU into ``count`` devices, to try replicas without GPUs. Before anything else runs.

    Raises:
        ValueError: TensorFlow has begun to work, and the devices are settled.
    """
    configuration = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    try:
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], configuration)
    except RuntimeError:
        raise ValueError("logical CPU devices have to be set before TensorFlow runs anything") from None


def set_precision(precision: str) -> None:
    """Sets the dtype policy of models that are made from now on.

    Args:
        precision: ``float32``; ``bfloat16`` or ``float16`` for computation in it with float32 variables (float16 with a
            scale of the loss that adapts); ``float64``.

    Raises:
        ValueError: for anything else.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}; known are {', '.join(PRECISIONS)}")
    keras.config.set_dtype_policy(PRECISIONS[precision])


def distribute(
    strategy: tf.distribute.Strategy,
    make_batches: Callable[..., tf.data.Dataset],
    batch_size: int,
    by_worker: bool = False,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Batches for ``fit``, ``evaluate`` and ``predict``, the same global ones however many workers there are.

    Each worker reads the whole stream and takes its part of every global batch, so its order must not depend on the
    worker (seed the shuffling). On one machine Keras itself cuts a batch into the replicas' parts. For a TPU the last
    batch is filled up (`pad_last_batch`) where not all batches have one shape already.

    Args:
        strategy: of `get_strategy`.
        make_batches: makes the data in batches of the size that it is called with, the last one shorter or dropped.
        batch_size: examples in a global batch; a multiple of the number of replicas.
        by_worker: for endless data that each worker reads its own share of, such as its own files: ``make_batches`` is
            called with (index, count) of the worker too, and gives that share alone. The batches then depend on the
            number of workers.

    Raises:
        ValueError: the batch cannot be divided among the workers; with ``by_worker`` the caller sees to that.
    """
    if by_worker and not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        make_all = make_batches
        make_batches = lambda size: make_all(size, (0, 1))  # noqa: E731
    if isinstance(strategy, tf.distribute.TPUStrategy):
        batches = make_batches(batch_size)
        static = all(part.shape.is_fully_defined() for part in tf.nest.flatten(batches.element_spec))
        return batches if static else pad_last_batch(batches, batch_size)
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return make_batches(batch_size)
    if not by_worker:
        check_batch_size(strategy, batch_size)
    replicas = strategy.num_replicas_in_sync

    def make_part(context: tf.distribute.InputContext) -> tf.data.Dataset:
        if by_worker:
            return make_batches(batch_size // replicas, (context.input_pipeline_id, context.num_input_pipelines))
        part = make_batches(batch_size // replicas).shard(context.num_input_pipelines, context.input_pipeline_id)
        if part.cardinality() == tf.data.INFINITE_CARDINALITY:
            return part
        # Parts may differ by one batch. Keras would count each worker's own; of unknown length, they end together.
        return part.filter(lambda *_: True)

    return strategy.distribute_datasets_from_function(make_part)


def check_batch_size(strategy: tf.distribute.Strategy, batch_size: int, name: str = "the batch size") -> None:
    """Raises ValueError where several workers cannot share batches of a size, which is called ``name``."""
    replicas = strategy.num_replicas_in_sync
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and batch_size % replicas:
        raise ValueError(
            f"{name}, {batch_size}, is no multiple of the number of replicas, {replicas}: several workers share each "
            "batch evenly; choose a multiple"
        )


def pad_last_batch(batches: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
    """Fills the last batch up with copies of its first example that have ``sample_weight`` 0.

    All shapes are static then, as a TPU and XLA want them, and no figure changes.

    Args:
        batches: dicts of [B, ...], where B is ``batch_size`` or, at the end, less.
        batch_size: B of every batch that comes out.

    Example:
        >>> batches = tf.data.Dataset.from_tensor_slices({"x": [1, 2, 3]}).batch(2)
        >>> [batch["sample_weight"].numpy().tolist() for batch in pad_last_batch(batches, 2)]
        [[1.0, 1.0], [1.0, 0.0]]
    """

    def pad(batch: dict) -> dict:
        size = tf.shape(tf.nest.flatten(batch)[0])[0]
        padding = batch_size - size

        def fill(value):
            value = tf.concat([value, tf.repeat(value[:1], padding, axis=0)], axis=0)
            return tf.ensure_shape(value, [batch_size, *value.shape[1:]])

        weight = batch.get("sample_weight", tf.ones([size]))
        weight = tf.concat([weight, tf.zeros([padding], weight.dtype)], axis=0)
        padded = {name: fill(value) for name, value in batch.items() if name != "sample_weight"}
        return {**padded, "sample_weight": tf.ensure_shape(weight, [batch_size])}

    return batches.map(pad, num_parallel_calls=tf.data.AUTOTUNE)


def _devices(num_gpus: int | None) -> list[str]:
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    if num_gpus is not None and num_gpus > len(gpus):
        raise ValueError(f"num_gpus is {num_gpus}, and TensorFlow finds {len(gpus)} GPUs on this machine")
    return gpus[:num_gpus] or [device.name for device in tf.config.list_logical_devices("CPU")]


def _show_gpus(num_gpus: int | None) -> None:
    """Hides all GPUs of this machine but the first ones from TensorFlow."""
    if num_gpus is None:
        return
    gpus = tf.config.list_physical_devices("GPU")
    if num_gpus > len(gpus):
        raise ValueError(f"num_gpus is {num_gpus}, and TensorFlow finds {len(gpus)} GPUs on this machine")
    if tf.config.get_visible_devices("GPU") == gpus[:num_gpus]:
        return
    try:
        tf.config.set_visible_devices(gpus[:num_gpus], "GPU")
    except RuntimeError:
        raise ValueError(f"num_gpus {num_gpus} has to be set before TensorFlow runs anything") from None


def _multi_worker(num_gpus: int | None) -> tf.distribute.Strategy:
    example = '{"cluster": {"worker": ["host1:12345", "host2:12345"]}, "task": {"type": "worker", "index": 0}}'
    try:
        config = json.loads(os.environ.get("TF_CONFIG", ""))
        cluster, kind, index = config["cluster"], config["task"]["type"], int(config["task"]["index"])
        workers = [*cluster.get("chief", []), *cluster["worker"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            "multi_worker_mirrored needs the environment variable TF_CONFIG in every worker's process, such as "
            f"{example}; it is {os.environ.get('TF_CONFIG', 'not set')}"
        ) from None
    if kind not in ("chief", "worker"):
        raise ValueError(f"the task type in TF_CONFIG is {kind!r}; those that train are 'chief' and 'worker'")
    for job, addresses in cluster.items():
        if not isinstance(addresses, list) or not all(re.fullmatch(r".+:\d+", str(one)) for one in addresses):
            raise ValueError(f"TF_CONFIG has {addresses!r} for {job}; expected a list of HOST:PORT, as in {example}")
    if not 0 <= index < len(cluster.get(kind, [])):
        raise ValueError(
            f"the task in TF_CONFIG is {kind} {index}, and the cluster there has {len(cluster.get(kind, []))} of that "
            "kind, counted from 0"
        )
    address = cluster[kind][index]
    if len(workers) > 1:
        say(f"{kind} {index} at {address} waits until all {len(workers)} workers have begun: {', '.join(workers)}")
    _show_gpus(num_gpus)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise ValueError(
            f"the strategy for {len(workers)} workers has to be made before TensorFlow runs anything: {error}"
        ) from None
    except tf.errors.UnknownError as error:
        raise ValueError(
            f"this worker cannot listen on {address}, its address in TF_CONFIG ({error.message}): the port may be "
            "taken, by an earlier run perhaps; end that, or name a free port in the TF_CONFIG of all workers"
        ) from None


def _tpu(name: str | None, zone: str | None, project: str | None, cores: int | None) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name or "", zone=zone, project=project)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:  # TensorFlow raises whatever the attempt happened to meet
        named, reason = (
            f" under the name {name!r}" if name else "",
            (str(error) or type(error).__name__).splitlines()[0],
        )
        raise ValueError(
            f"no TPU found{named} ({reason.rstrip('.')}). TPUs need a machine on Google Cloud and "
            "a TensorFlow with TPU support; elsewhere use another strategy"
        ) from None
    strategy = tf.distribute.TPUStrategy(resolver)
    if cores is not None and cores != strategy.num_replicas_in_sync:
        raise ValueError(f"num_tpu_cores is {cores}, and the TPU has {strategy.num_replicas_in_sync}")
    return strategy
