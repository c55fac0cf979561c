"""Removes temporary files of killed runs.

The name of a temporary folder includes its owner, so that the owner is known as soon as
the folder exists. Only folders of this user are removed whose owner was a process of
this machine that has ended.
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
from contextlib import suppress
from pathlib import Path

import psutil

from xnq_dist.core.store import Folder

__all__ = ["in_run", "in_scratch", "owned_name", "sweep_run", "sweep_scratch"]

log = logging.getLogger(__name__)

PREFIX = "xnq-dist-"
_OWNED = re.compile(rf"{PREFIX}(?P<machine>[0-9a-f]{{8}})-(?P<pid>\d+)-")
_TEMPORARY = re.compile(r"\.[0-9a-f]{8,32}\.tmp$|\.\d+\.tmp$")
"""Endings of files that are being written in a run directory."""
LOCKS = 120.0
"""Seconds after which a lock's file that is being written belongs to a dead process."""


def owned_name(kind: str = "") -> str:
    """A new name for a temporary folder of this process.

    Examples
    --------
    >>> owned_name("edges").startswith("xnq-dist-")
    True
    """
    parts = [f"{PREFIX}{_machine()}", str(os.getpid()), kind]
    return "-".join([*filter(None, parts), uuid.uuid4().hex[:8]])


def in_scratch(where: str | Path | None = None) -> list[Path]:
    """Temporary folders of processes of this machine and user that have ended.

    Parameters
    ----------
    where
        Folder to search; None: the system's folder for temporary files.
    """
    here, ended = _machine(), []
    for path in Path(where or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        found = _OWNED.match(path.name)
        if found is None or found["machine"] != here or not _is_mine(path):
            continue
        # The number may be that of another process by now: removed after that one.
        if not psutil.pid_exists(int(found["pid"])):
            ended.append(path)
    return ended


def sweep_scratch(where: str | Path | None = None) -> None:
    """Remove the folders of `in_scratch`."""
    for path in in_scratch(where):
        _remove(path)


def in_run(folder: Folder) -> list[str]:
    """What is being written in a run directory, or was by a killed run.

    Temporary files, and temporary folders that all workers see.
    """
    folders = [name for name in folder.names() if _OWNED.match(name)]
    return folders + [
        name
        for name in folder.files()
        # The lock's heartbeat goes on meanwhile.
        if _TEMPORARY.search(name)
        and not _OWNED.match(name)
        and not (name.startswith("_lock.json.") and folder.age(name) < LOCKS)
    ]


def sweep_run(folder: Folder | str | Path) -> None:
    """Remove what a killed run was writing; the lock must be held.

    Parameters
    ----------
    folder
        A run directory.
    """
    opened = Folder.of(folder) if isinstance(folder, str | Path) else folder
    for name in in_run(opened):
        with suppress(FileNotFoundError):  # this run's status, complete by now
            if opened.is_folder(name):
                opened.child(name).delete_folder()
            else:
                opened.delete(name)
        log.info("removed %s of a killed run", opened.uri_of(name))


def _machine() -> str:
    """Eight characters for this host and, as numbers of processes are its, PID space.

    Containers may have the same host name.
    """
    space = os.readlink("/proc/self/ns/pid")
    text = f"{socket.gethostname()} {space}".encode()
    return hashlib.blake2b(text, digest_size=4).hexdigest()


def _is_mine(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return status.st_uid == os.getuid() and not path.is_symlink() and path.is_dir()


def _remove(path: Path) -> None:
    # Two runs may remove it at the same time.
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        log.warning("%s of a killed run cannot be removed: remove it yourself", path)
    else:
        log.info("removed %s of a killed run", path)
