"""Removes temporary files of killed runs.

The name of a temporary folder includes its owner, so that the owner is known as soon as
the folder exists. Only folders are removed whose owner was a process of this machine
that has ended.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from xnq_dist.core.errors import SettingsError
from xnq_dist.core.failures import TEMPORARY
from xnq_dist.core.store import Folder

__all__ = ["own_bytes", "owned_name", "scratch_folder", "sweep_run", "sweep_scratch"]

log = logging.getLogger(__name__)

_OWNED = re.compile(rf"{TEMPORARY}(?P<machine>[0-9a-f]{{8}})-(?P<pid>\d+)-")
_UNFINISHED = re.compile(r"\.[0-9a-f]{8}\.tmp$")
"""Endings of files that are being written in a run directory."""


def owned_name() -> str:
    """A new name for a temporary folder of this process.

    Examples
    --------
    >>> owned_name().startswith("xnq-dist-")
    True
    """
    return _mine() + uuid.uuid4().hex[:8]


def _mine() -> str:
    """How names of temporary folders of this process begin."""
    return f"{TEMPORARY}{_machine()}-{os.getpid()}-"


def own_bytes(where: Path) -> int:
    """Bytes of the temporary files of this process in a folder."""
    total = 0
    with suppress(FileNotFoundError):  # a run on another thread ends meanwhile
        for mine in where.glob(f"{_mine()}*"):
            total += sum(f.stat().st_size for f in mine.rglob("*") if f.is_file())
    return total


def sweep_scratch(where: str | Path | None) -> None:
    """Remove temporary folders of processes of this machine that have ended.

    Those of other users cannot be removed.

    Parameters
    ----------
    where
        Folder to search; None: the system's folder for temporary files.
    """
    for path in Path(where or tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
        found = _OWNED.match(path.name)
        # The number may be that of another process by now: removed after that one.
        if (
            found is not None
            and found["machine"] == _machine()
            and not psutil.pid_exists(int(found["pid"]))
        ):
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def scratch_folder(where: str | None, setting: str = "scratch") -> Iterator[Path]:
    """A temporary folder, removed at the end; folders of killed runs are removed first.

    Raises
    ------
    SettingsError
        When `where`, which `setting` names, cannot be written.
    """
    sweep_scratch(where)
    folder = Path(where or tempfile.gettempdir(), owned_name())
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise SettingsError(
            f"{setting} = {where!r} cannot be written ({error.strerror}): set it to a "
            "folder with space for temporary files"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_run(folder: Folder) -> None:
    """Remove what a killed run was writing in a run directory, whose lock is held.

    Temporary folders that all workers see, and files next to the stages' folders: what
    is in those goes with them. A heartbeat of the lock that is removed meanwhile is
    written again.
    """
    for name in folder.names():
        if _OWNED.match(name) and not name.startswith(_mine()):
            folder.child(name).delete_folder()
        elif _UNFINISHED.search(name):
            folder.delete(name)
        else:
            continue
        log.info("removed %s of a killed run", folder.uri_of(name))


def _machine() -> str:
    """Eight characters for this host and, as numbers of processes are its, PID space.

    Containers may have the same host name.
    """
    space = os.readlink("/proc/self/ns/pid")
    text = f"{socket.gethostname()} {space}".encode()
    return hashlib.blake2b(text, digest_size=4).hexdigest()
