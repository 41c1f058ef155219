"""The state of a training run on disk, and how a run goes on from it as if it had never stopped.

A checkpoint is ``model.ckpt-N`` in the original's own format (weights, ``adam_m``, ``adam_v``, ``global_step``), noted
in the folder's ``checkpoint`` file. What else the next step depends on lies beside it in ``model.ckpt-N.resume.json``:
how much of the data was had, the dropout seeds, the scale of a float16 loss, and the sums of the metrics that are being
averaged. Without that file (the original writes none) the run goes on at the same step all the same.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from tf_bert.checkpoints import google, names
from tf_bert.checkpoints.loading import some
from tf_bert.files import atomic_writer, locked, open_binary
from tf_bert.progress import say
from tf_bert.trainer.trainer import NonFiniteLossError, Trainer

RESUME_SUFFIX = ".resume.json"
_KEYS = {"step", "records", "data", "seeds", "optimizer", "metrics"}  # of a file that has no checksum yet
_CHECKPOINT = re.compile(r"model\.ckpt-(\d+)\.index$")
_LEFTOVER = re.compile(r"\.{1,2}(model\.ckpt-\d+|checkpoint|training\.jsonl|workers)\..*tmp")


@dataclasses.dataclass(frozen=True)
class RunState:
    """Where a run stands.

    Args:
        step: updates done (``global_step``).
        records: training records had so far; None where that is not known.
        data: what the order of the data depends on, to be compared when the run goes on.
        metrics: the sums of metrics that are being averaged, see `metric_sums`.
        prefix: the checkpoint that this was read from.
    """

    step: int
    records: int | None = None
    data: Mapping = dataclasses.field(default_factory=dict)
    metrics: Mapping[str, list] = dataclasses.field(default_factory=dict)
    prefix: str | None = None


def save_run(model: Trainer, output_dir: str | os.PathLike, state: RunState, keep: int = 5) -> str:
    """Writes ``model.ckpt-N`` and what else a resume needs; only the newest ``keep`` checkpoints stay.

    A run killed at any moment of this leaves the previous checkpoints whole: every file gets its name when it is
    complete, and the ``checkpoint`` file names the new one last.

    Args:
        model: a compiled model; its optimizer's step is N.
        output_dir: the folder of the run.
        state: where the run stands.
        keep: how many checkpoints stay.

    Returns:
        The checkpoint's prefix.

    Raises:
        NonFiniteLossError: a weight is NaN or infinite; nothing is written.
        OSError: the folder cannot be written; the previous checkpoints are intact.
    """
    for variable in model.trainable_variables:
        if not np.isfinite(keras.ops.convert_to_numpy(keras.ops.sum(keras.ops.abs(variable)))):
            raise NonFiniteLossError(f"{variable.path} is not finite at step {state.step}; this step is not saved")
    output_dir = os.fspath(output_dir)
    prefix = os.path.join(output_dir, f"model.ckpt-{state.step}")
    rest = {
        "step": state.step,
        "records": state.records,
        "data": dict(state.data),
        "seeds": [np.asarray(seed).tolist() for seed in model.seed_state()],
        "optimizer": {name: np.asarray(value).tolist() for name, value in _loss_scale(model.optimizer).items()},
        "metrics": dict(state.metrics),
    }
    with atomic_writer(prefix + RESUME_SUFFIX, "w") as file:
        json.dump({**rest, "checksum": _checksum(rest)}, file, indent=1)
    _note_older(output_dir, state.step, keep)
    google.save_checkpoint(model, prefix, model.optimizer, state.step, keep)
    _remove_orphans(output_dir, keep)
    return prefix


def restore_run(model: Trainer, output_dir: str | os.PathLike) -> RunState | None:
    """Gives a model and its optimizer the state of the newest whole checkpoint of a run.

    Args:
        model: a compiled model.
        output_dir: the folder of the run, ours or the original's.

    Returns:
        Where the run stands, or None where the folder holds no checkpoint and a new run begins.

    Raises:
        ValueError: the run is another model's; or there are checkpoints, and none can be used; each is named with what
            is wrong.
    """
    output_dir = os.fspath(output_dir)
    there = find_checkpoints(output_dir)
    if there:
        _check_same_model(model, there[0], output_dir)
    # One that is noted and not there is a loss that the user has to know of.
    candidates = google.noted_checkpoints(output_dir, lost_too=True)[::-1]
    candidates += [prefix for prefix in there if prefix not in candidates]
    problems = []
    for prefix in candidates:
        try:
            report = google.load_checkpoint(model, prefix, optimizer=model.optimizer)
            if report.missing:
                raise ValueError(f"{prefix} has no value for {some(report.missing)}")
            state = _read_rest(model, prefix)
        except (ValueError, OSError) as error:
            problems.append(str(error))
            say(f"WARNING: {prefix} cannot be used: {error}")
            continue
        if problems:
            say(f"WARNING: going back to the checkpoint before it, {prefix}")
        return state
    if problems:
        raise ValueError(
            f"no checkpoint in {output_dir} can be used, and training does not start over in silence; choose another "
            f"output directory, or remove them and the file named checkpoint: {'; '.join(problems)}"
        )
    return None


def _check_same_model(model: Trainer, prefix: str, output_dir: str) -> None:
    """Says in one line that a folder holds the run of another model, where it does."""
    try:
        stored = google.GoogleReader(prefix).shapes
    except (ValueError, OSError):
        return  # damaged: an older one may tell
    ours = {name: tuple(variable.shape) for name, variable in names.model_variables(model).items()}
    # Axes of size 1 may differ: the original's variables have some that ours have not.
    sizes = {name: [size for size in shape if size != 1] for name, shape in stored.items()}
    others = [name for name, shape in ours.items() if sizes.get(name) != [size for size in shape if size != 1]]
    if others:
        raise ValueError(
            f"{output_dir} holds the run of another model: {len(others)} of {len(ours)} variables are not in {prefix} "
            f"or have another shape, such as {others[0]} ({stored.get(others[0], 'missing')}, expected "
            f"{ours[others[0]]}); choose another output directory"
        )


def find_checkpoints(output_dir: str) -> list[str]:
    """The training checkpoints of a folder, newest first: those in its ``checkpoint`` file, else all that are there."""
    if not tf.io.gfile.isdir(output_dir):
        return []
    return google.noted_checkpoints(output_dir)[::-1] or _checkpoints_there(output_dir)[::-1]


def _checkpoints_there(output_dir: str) -> list[str]:
    """All training checkpoints of a folder, noted or not, oldest first."""
    steps = [int(match[1]) for match in map(_CHECKPOINT.match, tf.io.gfile.listdir(output_dir)) if match]
    return [os.path.join(output_dir, f"model.ckpt-{step}") for step in sorted(steps)]


def clean_up(output_dir: str | os.PathLike, keep: int | None = None) -> None:
    """Removes what a killed run left half-written.

    Args:
        output_dir: the folder of the run.
        keep: how many checkpoints stay; without it none is removed for its age.

    Raises:
        BlockingIOError: another process is training there.
    """
    output_dir = os.fspath(output_dir)
    with locked(output_dir):  # what another process is just writing is no leftover
        for name in tf.io.gfile.listdir(output_dir):
            if _LEFTOVER.match(name):
                path = os.path.join(output_dir, name)
                tf.io.gfile.rmtree(path) if tf.io.gfile.isdir(path) else tf.io.gfile.remove(path)
        _remove_orphans(output_dir, keep)


def metric_sums(model: Trainer) -> dict[str, list]:
    """The running sums of a model's metrics."""
    return {metric.name: [np.asarray(value).tolist() for value in metric.variables] for metric in model.metrics}


def set_metric_sums(model: Trainer, sums: Mapping[str, list]) -> None:
    """Gives the metrics the sums that `metric_sums` returned."""
    for metric in model.metrics:
        for variable, value in zip(metric.variables, sums.get(metric.name, ()), strict=False):
            variable.assign(value)


def _read_rest(model: Trainer, prefix: str) -> RunState:
    step = int(np.asarray(model.optimizer.iterations))
    try:
        with open_binary(prefix + RESUME_SUFFIX) as file:
            rest = json.load(file)
    except FileNotFoundError:
        return RunState(step, prefix=prefix)
    except ValueError as error:
        raise ValueError(f"{prefix}{RESUME_SUFFIX} is damaged: {error}") from None
    if not _is_whole(rest):
        raise ValueError(f"{prefix}{RESUME_SUFFIX} is damaged: what it holds is not what its checksum was made of")
    for seed, value in zip(model.seed_state(), rest["seeds"], strict=False):
        seed.assign(value)
    for name, variable in _loss_scale(model.optimizer).items():
        if name in rest["optimizer"]:
            variable.assign(rest["optimizer"][name])
    return RunState(step, rest["records"], rest["data"], rest["metrics"], prefix)


def _is_whole(rest) -> bool:
    """Whether the contents of a resume file are what was written."""
    if not isinstance(rest, dict):
        return False
    if "checksum" not in rest:  # an older file, or one where this very word is damaged: a key that is not known
        return set(rest) == _KEYS
    return rest["checksum"] == _checksum({key: value for key, value in rest.items() if key != "checksum"})


def _checksum(rest: Mapping) -> str:
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _loss_scale(optimizer: keras.optimizers.Optimizer) -> dict[str, keras.Variable]:
    """The variables of dynamic loss scaling, which no checkpoint of the original has a name for."""
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return {}
    return {"dynamic_scale": optimizer.dynamic_scale, "step_counter": optimizer.step_counter}


def _note_older(output_dir: str, step: int, keep: int) -> None:
    """Notes checkpoints that are older than all that are noted, where the ``checkpoint`` file has lost them.

    They would be removed as leftovers otherwise, and with them what the run can go back to.
    """
    noted = google.noted_checkpoints(output_dir)
    first, room = min([step, *map(_step_of, noted)]), keep - 1 - len(noted)
    older = [prefix for prefix in _checkpoints_there(output_dir) if _step_of(prefix) < first]
    if noted:  # the original keeps some for ever without noting them, which are no business of ours
        older = [prefix for prefix in older if tf.io.gfile.exists(prefix + RESUME_SUFFIX)]
    if older and room > 0:
        google.note_checkpoints([*older[-room:], *noted])


def _remove_orphans(output_dir: str, keep: int | None) -> None:
    """Removes what a run killed between noting a checkpoint and removing the oldest one has left.

    These are resume files without a checkpoint, and our checkpoints (those with a resume file) that are older than
    ``keep`` noted ones; with fewer noted, it was the ``checkpoint`` file that was damaged, not the run killed.
    """
    noted = [_step_of(prefix) for prefix in google.noted_checkpoints(output_dir)]
    full = keep is not None and len(noted) >= keep
    lost = [os.path.basename(prefix) for prefix in google.noted_checkpoints(output_dir, lost_too=True)]
    names = set(tf.io.gfile.listdir(output_dir))
    for name in sorted(names):
        if name.endswith(RESUME_SUFFIX):
            prefix = name.removesuffix(RESUME_SUFFIX)
            dropped = full and _step_of(prefix) < min(noted)
            if dropped or (prefix + ".index" not in names and prefix not in lost):
                for ending in (".index", ".data-00000-of-00001", RESUME_SUFFIX):
                    if prefix + ending in names:
                        tf.io.gfile.remove(os.path.join(output_dir, prefix + ending))


def _step_of(prefix: str) -> int:
    return int(prefix.rpartition("-")[2])
