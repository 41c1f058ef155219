"""Downloads files resumably, checks them, and extracts archives safely."""

import errno
import hashlib
import http.client
import os
import re
import shutil
import stat
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Mapping

from tf_bert.files import atomic_folder
from tf_bert.progress import Progress

_CHUNK = 1 << 18
MOST_FILES = 1000  # in an archive; published ones hold five


def download(url: str, path: str | os.PathLike, attempts: int = 5, timeout: float = 60.0, pause: float = 1.0) -> str:
    """Downloads a file; what a broken download left is gone on with.

    What has arrived lies in ``PATH.part`` until it is complete. Proxies are taken from the environment
    (``https_proxy``, ``no_proxy``).

    Args:
        url: the address.
        path: where the file is put.
        attempts: how often in a row a broken or stalled connection is taken up again without one more byte arriving.
        timeout: seconds without a byte after which a connection counts as stalled.
        pause: seconds before another attempt.

    Returns:
        The SHA-256 of the file, in hexadecimal.

    Raises:
        OSError: no network, an error of the server, or a download cut off; the message says what to do.
    """
    part = os.fspath(path) + ".part"
    os.makedirs(os.path.dirname(part) or ".", exist_ok=True)
    left = attempts
    while True:
        before = _size(part)
        try:
            total = _download_rest(url, part, timeout)
            if total is None or _size(part) == total:
                break
            reason = f"{_size(part):,} of {total:,} bytes arrived"
        except urllib.error.HTTPError as error:
            raise OSError(f"{url}: the server says {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        left = attempts if _size(part) > before else left - 1
        if left <= 0:
            host = urllib.parse.urlsplit(url).hostname
            kept = f"; the {_size(part):,} bytes so far are kept, the same command goes on from there"
            raise OSError(
                f"cannot download {url}: {reason}. Is {host} reachable, and is https_proxy set if a proxy is needed"
                f"{kept if _size(part) else ''}?"
            )
        time.sleep(pause)
    os.replace(part, path)
    return sha256_of(path)


def _download_rest(url: str, part: str, timeout: float) -> int | None:
    """Appends what is missing to the partial file; returns the size of the whole, None where the server names none."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            total = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
            if total and int(total[1]) == have:
                return have
            os.remove(part)  # another file than the one that was begun
            return have
        raise
    with response:
        length = response.headers.get("Content-Length")
        resumed = re.match(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if response.status != http.HTTPStatus.PARTIAL_CONTENT or not resumed or int(resumed[1]) != have:
            have = 0  # the server does not resume: from the start again
        total = have + int(length) if length is not None else None
        with (
            open(part, "ab" if have else "wb") as file,
            Progress(f"downloading {os.path.basename(part).removesuffix('.part')}", total, "B") as progress,
        ):
            progress.update(have)
            while chunk := response.read1(_CHUNK):
                file.write(chunk)
                progress.update(len(chunk))
    return total


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def sha256_of(path: str | os.PathLike) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sha256(path: str | os.PathLike, expected: str) -> None:
    """Compares a file with its known SHA-256.

    Raises:
        ValueError: they differ.
    """
    found = sha256_of(path)
    if found != expected:
        raise ValueError(
            f"{path} has the SHA-256 {found}, expected {expected}: it is damaged or not the published file"
        )


class Refused(ValueError):
    """An archive is whole, and could do harm."""


def unpack(
    archive: str | os.PathLike, directory: str | os.PathLike, most_bytes: int, sha256: Mapping[str, str]
) -> None:
    """Unpacks a zip archive into a new directory, all of it or nothing.

    A single folder around everything, as in most of Google's archives, is left out.

    Args:
        archive: the zip file.
        directory: is made; must not be there yet.
        most_bytes: the most that the archive may unpack to.
        sha256: the known checksums of files in it.

    Raises:
        ValueError: it is no zip archive, is damaged, holds an unsafe name, a link or an encrypted file, unpacks to more
            than ``most_bytes``, or a file has another checksum or is missing.
    """
    with atomic_folder(directory) as temporary:
        try:
            with zipfile.ZipFile(archive) as opened:
                _extract(opened, temporary, most_bytes)
        except Exception as error:  # zipfile's, zlib's and struct's: whichever the damage leads to
            full = isinstance(error, OSError) and error.errno != errno.EINVAL  # which zipfile gets by a wrong place
            if isinstance(error, Refused) or full:
                raise
            raise ValueError(f"{archive} is no whole zip archive: {error}; delete it and download it again") from None
        for name, expected in sha256.items():
            if not os.path.exists(os.path.join(temporary, name)):
                raise ValueError(f"{archive} lacks {name}, so it is not the published archive")
            check_sha256(os.path.join(temporary, name), expected)


def _extract(archive: zipfile.ZipFile, directory: str, most_bytes: int) -> None:
    members = [member for member in archive.infolist() if not member.is_dir()]
    if len(members) > MOST_FILES:
        raise Refused(f"{archive.filename} holds {len(members):,} files, expected at most {MOST_FILES}: refused")
    for member in members:
        _check_member(member, archive.filename)
    places = [member.filename for member in members]
    folders = {place[:end] for place in places for end in range(len(place)) if place[end] == "/"}
    if len(set(places)) < len(places) or folders & set(places):
        raise Refused(f"{archive.filename} holds two files of one name, or a file and a folder: refused")
    declared = sum(member.file_size for member in members)
    if declared > most_bytes:
        raise Refused(f"{archive.filename} unpacks to {declared:,} bytes, expected at most {most_bytes:,}: refused")
    folders = {member.filename.split("/")[0] for member in members}
    around = folders.pop() + "/" if len(folders) == 1 and all("/" in member.filename for member in members) else ""
    for member in members:
        target = os.path.join(directory, member.filename.removeprefix(around))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        # zipfile gives at most the declared size of a member, and fails at its end where the contents were longer.
        with archive.open(member) as source, open(target, "xb") as file:
            shutil.copyfileobj(source, file, _CHUNK)


def _check_member(member: zipfile.ZipInfo, archive: str) -> None:
    name = member.filename
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\\" in name or ":" in name or "" in parts:
        raise Refused(f"{archive} holds {name!r}, which could be written outside its folder: refused")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise Refused(f"{archive} holds {name!r}, which is no regular file (a link?): refused")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Refused(f"{archive} holds {name!r}, which is packed in an unusual way: refused")
    if member.flag_bits & 0x1:
        raise Refused(f"{archive} holds {name!r}, which is encrypted: refused")
