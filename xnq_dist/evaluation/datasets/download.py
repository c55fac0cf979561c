"""Raw files from the web or a folder, each checked before it is believed."""

from __future__ import annotations

import hashlib
import http.client
import logging
import shutil
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from xnq_dist.core.errors import InfrastructureError, InputError, SettingsError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.evaluation.datasets.known_graphs import RemoteFile

__all__ = ["RawFile", "check_url", "download", "take", "unpack"]

log = logging.getLogger(__name__)

_CHUNK = 1 << 20
_MOST = 4 << 30
"""No file of the paper has a tenth of this: what is longer is something else."""


@dataclass(frozen=True)
class RawFile:
    """A file that is here, and how it was checked."""

    name: str
    origin: str
    """Where it came from: a URL, or ``a local file``."""
    sha256: str
    bytes: int
    pinned: bool
    """Whether a recorded hash was there to compare with."""


def check_url(url: str) -> None:
    """Refuse what is not a web address.

    Raises
    ------
    SettingsError
        For any other scheme.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SettingsError(f"{url!r} is not an address that begins with https://")


def download(
    file: RemoteFile,
    folder: Path,
    mirror: str | None = None,
    timeout: float = 60.0,
    progress: Progress = silent,
) -> RawFile:
    """Fetch one file into an existing folder, hashing what passes.

    Parameters
    ----------
    file
        What and from where, with the hash and size that are known.
    mirror
        Address under which files of the same names lie; None: the public home.
    timeout
        Seconds without a byte after which it is given up.

    Raises
    ------
    InfrastructureError
        Without a network, when the home is out of order, or stops half-way.
    InputError
        When the home does not have the file, or it is not the one that is recorded.
    """
    url = f"{mirror.rstrip('/')}/{file.name}" if mirror else file.url
    check_url(url)
    log.info("fetching %s", url)
    agent = {"User-Agent": "xnq-dist"}
    request = urllib.request.Request(url, headers=agent)  # noqa: S310 - checked above
    target = folder / file.name
    try:
        with urllib.request.urlopen(  # noqa: S310 - checked above
            request, timeout=timeout
        ) as answer:
            announced = answer.headers.get("Content-Length")
            total = int(announced) if announced else file.size or 0
            digest, count = _copy(answer, target, file, total, progress)
    except urllib.error.HTTPError as error:
        error.close()
        # Busy or broken over there, or nothing that another try would find.
        again = error.code >= 500 or error.code in (408, 429)
        kind = InfrastructureError if again else InputError
        raise kind(
            f"{url} answers {error.code} {error.reason}: {_way_out(file)}"
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
        reason = getattr(error, "reason", None) or error
        raise InfrastructureError(
            f"{url} cannot be reached ({reason}): {_way_out(file)}"
        ) from error
    if announced and count != total:
        raise InfrastructureError(
            f"{url} stopped after {count:,} of {total:,} bytes: fetch it again"
        )
    _compare(file, url, digest, count)
    return RawFile(file.name, url, digest, count, file.sha256 is not None)


def _way_out(file: RemoteFile) -> str:
    return (
        f"put {file.name} into a folder and name it with --from, name a mirror with "
        "--mirror, or let XNQ_DATA_DIR name a folder that holds the graph"
    )


def _copy(
    source: http.client.HTTPResponse,
    target: Path,
    file: RemoteFile,
    total: int,
    progress: Progress,
) -> tuple[str, int]:
    most = file.size or _MOST
    digest, count = hashlib.sha256(), 0
    with target.open("wb") as sink:
        while chunk := source.read(_CHUNK):
            count += len(chunk)
            if count > most:
                raise InputError(
                    f"{file.name} is longer than the {most:,} bytes it may have: what "
                    "came is another file"
                )
            digest.update(chunk)
            sink.write(chunk)
            progress(file.name, count, total)
    return digest.hexdigest(), count


def take(file: RemoteFile, source: Path, folder: Path) -> RawFile:
    """A file that is already on this machine, checked like a fetched one.

    Parameters
    ----------
    file
        What it should be.
    source
        The file, or one unpacked from the archive of that name.
    folder
        Where a link to it (or a copy) is put.

    Raises
    ------
    InputError
        When the file is not the one that is recorded.
    """
    digest, count = hashlib.sha256(), 0
    try:
        with source.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                count += len(chunk)
        target = folder / source.name
        try:
            target.symlink_to(source.resolve())
        except OSError:  # a filesystem without links
            shutil.copyfile(source, target)
    except OSError as error:
        raise InputError(
            f"{source} cannot be read: {error.strerror or error}"
        ) from error
    found = digest.hexdigest()
    whole = source.name == file.name
    if whole:
        _compare(file, str(source), found, count)
    pinned = whole and file.sha256 is not None
    return RawFile(source.name, "a local file", found, count, pinned)


def _compare(file: RemoteFile, where: str, digest: str, count: int) -> None:
    if file.size is not None and count != file.size:
        raise InputError(
            f"{where} has {count:,} bytes and not the {file.size:,} that are recorded: "
            "it is another file, or not whole"
        )
    if file.sha256 is not None and digest != file.sha256:
        raise InputError(
            f"{where} has the sha256 {digest} and not the recorded {file.sha256}: it "
            "is another file, or was changed"
        )


def unpack(archive: Path, members: tuple[str, ...], folder: Path) -> None:
    """The named members of a zip archive, each under its last name.

    Raises
    ------
    InputError
        When the archive is damaged or lacks one.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            there = opened.namelist()
            for member in members:
                found = [n for n in there if n == member or n.endswith(f"/{member}")]
                if not found:
                    raise InputError(f"{archive.name} has no member {member}")
                target = folder / member.rsplit("/", 1)[-1]
                with opened.open(found[0]) as source, target.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError) as error:
        raise InputError(
            f"{archive.name} is not a whole zip archive ({error}): fetch it again"
        ) from error
