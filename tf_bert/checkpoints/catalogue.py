"""Lists, finds and fetches Google's published BERT models."""

import difflib
import functools
import importlib.resources
import json
import os
from dataclasses import dataclass
from pathlib import Path

from tf_bert.checkpoints import download
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.files import atomic_writer, temporary_folder
from tf_bert.json_files import read_json_object

_SUMS = "SHA256SUMS.json"


@dataclass(frozen=True)
class Entry:
    """One published model.

    Attributes:
        name: the name of its archive, such as ``uncased_L-12_H-768_A-12``.
        aliases: other names by which it is known.
        title: what the publisher calls it.
        languages: what it was trained on.
        archive: address of the zip file.
        licence: of the weights.
        do_lower_case: whether its vocabulary is lower-cased.
        parameters: of the encoder with its pooler.
        parameters_with_heads: with both heads of pre-training, as in the archive.
        config: its ``bert_config.json``.
        sha256: file in the archive -> SHA-256, where known.
    """

    name: str
    aliases: list[str]
    title: str
    languages: str
    archive: str
    licence: str
    do_lower_case: bool
    parameters: int
    parameters_with_heads: int
    config: dict
    sha256: dict[str, str]


@functools.cache
def catalogue() -> tuple[Entry, ...]:
    """All models of the catalogue.

    Example:
        >>> len(catalogue()), catalogue()[0].name
        (33, 'uncased_L-12_H-768_A-12')
    """
    text = importlib.resources.files("tf_bert.checkpoints").joinpath("catalogue.json").read_text(encoding="utf-8")
    return tuple(Entry(**entry) for entry in json.loads(text))


def find(name: str) -> Entry:
    """Looks up a model by its name or an alias.

    Raises:
        KeyError: there is none of that name; the nearest are named.

    Example:
        >>> find("bert-tiny").name
        'uncased_L-2_H-128_A-2'
    """
    by_name = {known.lower(): entry for entry in catalogue() for known in (entry.name, *entry.aliases)}
    if name.lower() not in by_name:
        near = difflib.get_close_matches(name.lower(), by_name, 3, 0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else "`tf-bert checkpoints list` shows them"
        raise KeyError(f"no model {name!r} in the catalogue; {hint}")
    return by_name[name.lower()]


def default_directory() -> str:
    """Where fetched models land: ``$TF_BERT_CHECKPOINTS``, else ``checkpoints/`` of a clone, else the user's cache."""
    if os.environ.get("TF_BERT_CHECKPOINTS"):
        return os.environ["TF_BERT_CHECKPOINTS"]
    clone = Path(__file__).resolve().parents[2]
    if (clone / "setup.cfg").exists() and (clone / "checkpoints").is_dir():
        return str(clone / "checkpoints")
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tf_bert", "checkpoints")


def fetch(name: str, directory: str | os.PathLike | None = None, **options) -> str:
    """Downloads, checks and unpacks a published model; does nothing where it is there already.

    The archive's SHA-256 is noted in the folder's ``SHA256SUMS.json`` the first time and compared after that. The
    casing is written beside the model as ``tokenizer_config.json``.

    Args:
        name: a name or alias of the catalogue.
        directory: the folder to put the model's folder in; `default_directory` by default.
        **options: for `download.download`.

    Returns:
        The model's folder.

    Raises:
        KeyError: the catalogue has no such model.
        OSError: the download failed.
        ValueError: what arrived is not the published archive; it was removed, the next call starts anew.
    """
    entry = find(name)
    directory = os.fspath(directory or default_directory())
    target = os.path.join(directory, entry.name)
    if os.path.exists(os.path.join(target, "bert_config.json")):
        return target
    if os.path.exists(target):
        raise ValueError(f"{target} is there but holds no model (no bert_config.json); remove it and fetch again")
    archive = target + ".zip"
    found = (
        download.sha256_of(archive) if os.path.exists(archive) else download.download(entry.archive, archive, **options)
    )
    try:
        _check_or_note(directory, entry.archive, found)
        # The weights, at most with the two moments of a training checkpoint, and some room for graph and vocabulary.
        most_bytes = 12 * entry.parameters_with_heads + (64 << 20)
        with temporary_folder(directory, entry.name, shown=target) as folder:
            download.unpack(archive, os.path.join(folder, entry.name), most_bytes, entry.sha256)
            TokenizerSettings(do_lower_case=entry.do_lower_case).write(os.path.join(folder, entry.name))
            os.rename(os.path.join(folder, entry.name), target)
    finally:
        os.remove(archive)
    return target


def _check_or_note(directory: str, url: str, found: str) -> None:
    """Compares the SHA-256 of an archive with the one of its first download, or notes it as that."""
    file = os.path.join(directory, _SUMS)
    noted = read_json_object(file) if os.path.exists(file) else {}
    expected = noted.setdefault(url, found)
    if expected != found:
        raise ValueError(
            f"{url} has the SHA-256 {found}, but {expected} at its first download (noted in {file}): "
            "it is damaged or was replaced; delete that line if you trust the new one"
        )
    with atomic_writer(file, "w") as sums:
        json.dump(noted, sums, indent=2, sort_keys=True)
        sums.write("\n")
