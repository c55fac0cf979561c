"""Raw files from the web or a folder, checked by size and hash."""

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
_MAX_BYTES = 4 << 30
"""Maximum size of a file without a recorded size; all known files are much smaller."""


@dataclass(frozen=True)
class RawFile:
    """A file on this machine, and how it was checked."""

    name: str
    origin: str
    """Source of the file: a URL, or ``a local file``."""
    sha256: str
    bytes: int
    pinned: bool
    """Whether it was compared with a recorded hash."""


def check_url(url: str) -> None:
    """Check that a text is a web address.

    Raises
    ------
    SettingsError
        When it is not an http or https address.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SettingsError(f"{url!r} is not a web address: begin it with https://")


def download(
    file: RemoteFile,
    folder: Path,
    timeout: float = 60.0,
    progress: Progress = silent,
) -> RawFile:
    """Download one file to an existing folder and compute its hash.

    Parameters
    ----------
    file
        Name and address, with the hash and size if they are known.
    timeout
        Seconds without data after which the download is aborted.

    Raises
    ------
    InfrastructureError
        Without a network, when the server fails, or when the download is interrupted.
    InputError
        When the server does not have the file, or its size or hash is not as recorded.
    """
    url = file.url
    check_url(url)
    log.info("downloading %s", url)
    agent = {"User-Agent": "xnq-dist"}
    request = urllib.request.Request(url, headers=agent)  # noqa: S310 - checked above
    target = folder / file.name
    try:
        with urllib.request.urlopen(  # noqa: S310 - checked above
            request, timeout=timeout
        ) as response:
            announced = response.headers.get("Content-Length")
            total = int(announced) if announced else file.size or 0
            digest, count = _copy(response, target, file, total, progress)
    except urllib.error.HTTPError as error:
        error.close()
        # With these codes, another try can succeed.
        temporary = error.code >= 500 or error.code in (408, 429)
        kind = InfrastructureError if temporary else InputError
        raise kind(
            f"{url} returned {error.code} {error.reason}: {_advice(file)}"
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
        reason = getattr(error, "reason", None) or error
        raise InfrastructureError(
            f"{url} cannot be reached ({reason}): {_advice(file)}"
        ) from error
    if announced and count != total:
        raise InfrastructureError(
            f"{url} stopped after {count:,} of {total:,} bytes: download it again"
        )
    _compare(file, url, digest, count)
    return RawFile(file.name, url, digest, count, file.sha256 is not None)


def _advice(file: RemoteFile) -> str:
    return (
        f"put {file.name} into the folder raw of XNQ_DATA_DIR, or set XNQ_DATA_DIR to "
        "a folder that contains the graph"
    )


def _copy(
    source: http.client.HTTPResponse,
    target: Path,
    file: RemoteFile,
    total: int,
    progress: Progress,
) -> tuple[str, int]:
    max_bytes = file.size or _MAX_BYTES
    digest, count = hashlib.sha256(), 0
    with target.open("wb") as sink:
        while chunk := source.read(_CHUNK):
            count += len(chunk)
            if count > max_bytes:
                raise InputError(
                    f"{file.name} is larger than {max_bytes:,} bytes, so it is another "
                    "file: download it by hand into the folder raw of XNQ_DATA_DIR"
                )
            digest.update(chunk)
            sink.write(chunk)
            progress(file.name, count, total)
    return digest.hexdigest(), count


def take(file: RemoteFile, source: Path, folder: Path) -> RawFile:
    """Use a file that is already on this machine, checked like a downloaded one.

    Parameters
    ----------
    file
        The file that is expected.
    source
        Path of the file, or of a file unpacked from it if it is an archive.
    folder
        Folder in which a link to it (or a copy) is made.

    Raises
    ------
    InputError
        When the file cannot be read, or its size or hash is not as recorded.
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
    sha256 = digest.hexdigest()
    unpacked = source.name != file.name
    if not unpacked:
        _compare(file, str(source), sha256, count)
    pinned = not unpacked and file.sha256 is not None
    return RawFile(source.name, "a local file", sha256, count, pinned)


def _compare(file: RemoteFile, where: str, digest: str, count: int) -> None:
    if file.size is not None and count != file.size:
        raise InputError(
            f"{where} has {count:,} bytes instead of {file.size:,}: it is another file "
            "or incomplete; download it again"
        )
    if file.sha256 is not None and digest != file.sha256:
        raise InputError(
            f"{where} has the sha256 {digest} instead of the recorded {file.sha256}: "
            "it is another file or was changed; download it again"
        )


def unpack(archive: Path, members: tuple[str, ...], folder: Path) -> None:
    """Unpack the named members of a zip archive, without their folders.

    Raises
    ------
    InputError
        When the archive is damaged or a member is missing.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            names = opened.namelist()
            for member in members:
                matches = [n for n in names if n == member or n.endswith(f"/{member}")]
                if not matches:
                    raise InputError(
                        f"{archive.name} has no member {member}: download it again"
                    )
                target = folder / member.rsplit("/", 1)[-1]
                with opened.open(matches[0]) as source, target.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError) as error:
        raise InputError(
            f"{archive.name} is not a complete zip archive ({error}): download it again"
        ) from error
