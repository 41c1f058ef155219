"""Processes that train together: which of them writes, what each tells the others, whether they share a folder."""

import contextlib
import functools
import os
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf_bert.files import atomic_writer, exists, remove_file
from tf_bert.trainer.execution import LOST, worker_gone
from tf_bert.training.resume import RunState


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the files of a run: the only one or, of several, TF_CONFIG's chief, else worker 0."""
    resolver, jobs = strategy.cluster_resolver, _jobs(strategy)
    return not jobs or (resolver.task_type == ("chief" if "chief" in jobs else "worker") and resolver.task_id == 0)


def count_workers(strategy: tf.distribute.Strategy) -> int:
    """The number of processes that train together, a chief among them."""
    return sum(map(len, _jobs(strategy).values())) or 1


def _jobs(strategy: tf.distribute.Strategy) -> dict[str, list[str]]:
    """The addresses of the processes that train, by TF_CONFIG's kinds; empty where this one trains alone."""
    resolver, resolvers = strategy.cluster_resolver, tf.distribute.cluster_resolver
    if not isinstance(resolver, resolvers.ClusterResolver) or isinstance(resolver, resolvers.TPUClusterResolver):
        return {}
    return {job: tasks for job, tasks in resolver.cluster_spec().as_dict().items() if job in ("chief", "worker")}


def gather_from_workers(strategy: tf.distribute.Strategy, *numbers: int) -> np.ndarray:
    """The whole numbers that each process has, int64 [workers, numbers]. All of them have to call this, and they wait.

    Raises:
        ConnectionError: a worker is gone, or was held up for long.

    Example:
        >>> gather_from_workers(tf.distribute.get_strategy(), 3, 4).tolist()
        [[3, 4]]
    """
    several = count_workers(strategy)
    if several == 1:
        return np.array([numbers], np.int64)
    try:
        found = _gather_function(strategy)(tf.constant(numbers, tf.int64)).numpy()
    except LOST as error:
        raise worker_gone(error) from None
    return found[:: len(found) // several]  # the replicas of a worker say the same


@functools.cache
def _gather_function(strategy: tf.distribute.Strategy) -> Callable:
    """Made once: each trace would take collectives of its own."""

    def place(numbers):
        replica = tf.distribute.get_replica_context()
        own = tf.one_hot(replica.replica_id_in_sync_group, replica.num_replicas_in_sync, dtype=numbers.dtype)
        return replica.all_reduce(tf.distribute.ReduceOp.SUM, own[:, tf.newaxis] * numbers)  # [replicas, numbers]

    @tf.function(reduce_retracing=True)
    def gather(numbers):
        return strategy.experimental_local_results(strategy.run(place, args=(numbers,)))[0]

    return gather


def check_one_run(strategy: tf.distribute.Strategy, output_dir: str, state: RunState | None) -> None:
    """Raises ValueError in every worker where they found different checkpoints: they would train on unlike weights."""
    place = (-1, -1) if state is None else (state.step, -1 if state.records is None else state.records)
    found = gather_from_workers(strategy, *place).tolist()
    if any(other != found[0] for other in found):
        said = ["no checkpoint" if step < 0 else f"step {step:,}, record {had:,}" for step, had in found]
        raise ValueError(
            f"output_dir {output_dir} has to be one folder that all workers see, on a disk that they share, and they "
            f"found different runs: {'; '.join(f'worker {i} {one}' for i, one in enumerate(said))}. Give all workers "
            "the folder with the checkpoints, or all of them an empty one"
        )


def check_same_settings(strategy: tf.distribute.Strategy, settings: Mapping[str, Any]) -> None:
    """Raises ValueError in every worker where they were started with different settings.

    They would train together all the same, on batches and at rates that none of them was asked for.

    Args:
        strategy: where they train.
        settings: name -> value, what is printed alike is the same.
    """
    digests = [zlib.crc32(f"{name}={value!r}".encode()) for name, value in settings.items()]
    summaries = gather_from_workers(strategy, zlib.crc32(repr(digests).encode()), len(digests))  # [workers, 2]
    if (summaries == summaries[0]).all():
        return
    unlike = list(settings)
    if (summaries[:, 1] == summaries[0, 1]).all():
        found = gather_from_workers(strategy, *digests)
        unlike = [name for name, column in zip(settings, found.T, strict=True) if (column != column[0]).any()]
    here = ", ".join(f"{name} (here {settings[name]!r})" for name in unlike)
    raise ValueError(
        f"the workers were started with different settings: {here}. Give all of them the same command and files"
    )


def check_one_folder(strategy: tf.distribute.Strategy, output_dir: str) -> None:
    """Raises ValueError in every worker where one does not see what the chief writes, in a new run too."""
    if count_workers(strategy) == 1:
        return

    def mark(number: int) -> str:
        return os.path.join(output_dir, f".workers.{number}.tmp")  # `clean_up` removes it where the chief has died

    number = 1 + int.from_bytes(os.urandom(6)) if is_chief(strategy) else 0
    try:
        if number:
            with atomic_writer(mark(number), "w"):
                pass
    except OSError:
        number = 0  # nobody can look for it, and the first checkpoint will say why
    number = int(gather_from_workers(strategy, number).max())  # the chief's; none goes on before it has written
    seen = gather_from_workers(strategy, not number or _appears(mark(number)))[:, 0]
    if number and is_chief(strategy):
        with contextlib.suppress(OSError):
            remove_file(mark(number))
    if not seen.all():
        blind = ", ".join(str(worker) for worker, sees in enumerate(seen) if not sees)
        raise ValueError(
            f"output_dir {output_dir} has to be one folder that all workers see, on a disk that they share: what the "
            f"chief wrote there does not appear at worker {blind}. Give all workers the same folder"
        )


def _appears(path: str) -> bool:
    """Whether there is a file, which may take a network's file system some seconds to show."""
    for seconds in (0, 0.1, 0.5, 2, 5):
        time.sleep(seconds)
        with contextlib.suppress(OSError):
            if exists(path):
                return True
    return False
