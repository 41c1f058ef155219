"""Converts checkpoints between formats, and to another vocabulary, variable by variable."""

import dataclasses
import os
import tempfile
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from tf_bert.checkpoints.formats import VOCABULARY, Checkpoint
from tf_bert.checkpoints.vocabulary import ResizedReader, grow, prune
from tf_bert.configs import GPTConfig
from tf_bert.models.pretrained import open_checkpoint, usual_format, write
from tf_bert.tokenization.vocabulary import read_vocab_lines, save_vocab

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def convert(
    source: str | os.PathLike,
    target: str | os.PathLike,
    format: str | None = None,
    dtype: str | None = None,
    optimizer: bool = False,
    allow_nan: bool = False,
) -> Checkpoint:
    """Converts a checkpoint; the variables keep their bits unless another dtype is asked for.

    Args:
        source: see `tf_bert.models.pretrained.open_checkpoint`.
        target: see `tf_bert.models.pretrained.write`.
        format: one of `tf_bert.checkpoints.formats.FORMATS`; by default what the ending of ``target`` says, or else
            the other one of ``google`` (``openai`` for a GPT) and ``huggingface``.
        dtype: ``float32``, ``float16`` or ``bfloat16``.
        optimizer: whether the moments of a training checkpoint go along.
        allow_nan: whether weights that are NaN or infinite are converted too.

    Returns:
        The checkpoint that was read.
    """
    checkpoint = open_checkpoint(source, allow_nan=allow_nan)
    if os.path.realpath(target) in (os.path.realpath(checkpoint.path), os.path.realpath(source)):
        raise ValueError(f"{target} is the checkpoint itself; choose another place")
    folder = "openai" if isinstance(checkpoint.config, GPTConfig) else "google"
    other = "huggingface" if checkpoint.format == folder else folder
    write(checkpoint, target, format or usual_format(target, other), dtype and DTYPES[dtype], optimizer)
    return checkpoint


def resize(
    checkpoint: Checkpoint,
    target: str | os.PathLike,
    add: Sequence[str] = (),
    keep: Sequence[str] | None = None,
    use_unused: bool = True,
    seed: int = 0,
) -> str:
    """Writes a checkpoint with another vocabulary, in its own format.

    Args:
        checkpoint: has a vocabulary beside it.
        target: see `tf_bert.models.pretrained.write`.
        add: new pieces, see `tf_bert.checkpoints.vocabulary.grow`.
        keep: the only old pieces to keep, see `tf_bert.checkpoints.vocabulary.prune`; all by default.
        use_unused: whether new pieces take the places of ``[unusedN]`` first.
        seed: of the vectors of new pieces.

    Returns:
        A sentence that says what changed.
    """
    if checkpoint.vocab_file is None:
        raise FileNotFoundError(f"{checkpoint.path} has no {VOCABULARY} beside it")
    old = read_vocab_lines(checkpoint.vocab_file)
    kept = old if keep is None else prune(old, keep)
    pieces = grow(kept, add, use_unused)
    shorter = ResizedReader(checkpoint.reader, old, kept)
    reader = ResizedReader(shorter, kept, pieces, checkpoint.config.initializer_range, seed)
    config = dataclasses.replace(checkpoint.config, vocab_size=len(pieces))
    with tempfile.TemporaryDirectory() as folder:
        vocab_file = os.path.join(folder, VOCABULARY)
        save_vocab(pieces, vocab_file)
        resized = dataclasses.replace(checkpoint, config=config, reader=reader, vocab_file=vocab_file)
        write(resized, target, checkpoint.format)
    renamed = len(set(pieces) - set(old)) - reader.fresh
    return (
        f"{len(old)} pieces before, {len(old) - len(kept)} taken out, {renamed} put in the place of unused ones, "
        f"{reader.fresh} added with new vectors, {len(pieces)} now"
    )
