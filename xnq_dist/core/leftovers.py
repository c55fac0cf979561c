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
from contextlib import suppress
from pathlib import Path

import psutil

from xnq_dist.core.store import Folder

__all__ = ["in_run", "owned_name", "sweep_run", "sweep_scratch"]

log = logging.getLogger(__name__)

PREFIX = "xnq-dist-"
_OWNED = re.compile(rf"{PREFIX}(?P<machine>[0-9a-f]{{8}})-(?P<pid>\d+)-")
_TEMPORARY = re.compile(r"\.[0-9a-f]{8,32}\.tmp$|\.\d+\.tmp$")
"""Endings of files that are being written in a run directory."""


def owned_name(kind: str = "") -> str:
    """A new name for a temporary folder of this process.

    Examples
    --------
    >>> owned_name("edges").startswith("xnq-dist-")
    True
    """
    parts = [f"{PREFIX}{_machine()}", str(os.getpid()), kind]
    return "-".join([*filter(None, parts), uuid.uuid4().hex[:8]])


def sweep_scratch(where: str | Path | None = None) -> None:
    """Remove temporary folders of processes of this machine that have ended.

    Those of other users cannot be removed.

    Parameters
    ----------
    where
        Folder to search; None: the system's folder for temporary files.
    """
    for path in Path(where or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        found = _OWNED.match(path.name)
        # The number may be that of another process by now: removed after that one.
        if (
            found is not None
            and found["machine"] == _machine()
            and not psutil.pid_exists(int(found["pid"]))
        ):
            shutil.rmtree(path, ignore_errors=True)


def in_run(folder: Folder) -> list[str]:
    """What is being written in a run directory, or was by a killed run.

    Temporary folders that all workers see, and temporary files.
    """
    folders = [name for name in folder.names() if _OWNED.match(name)]
    return folders + [
        name
        for name in folder.files()
        if _TEMPORARY.search(name) and not _OWNED.match(name)
    ]


def sweep_run(folder: Folder) -> None:
    """Remove what a killed run was writing in a run directory, whose lock is held.

    A heartbeat of the lock that is removed meanwhile is written again.
    """
    for name in in_run(folder):
        with suppress(FileNotFoundError):  # this run's status, complete by now
            if folder.is_folder(name):
                folder.child(name).delete_folder()
            else:
                folder.delete(name)
        log.info("removed %s of a killed run", folder.uri_of(name))


def _machine() -> str:
    """Eight characters for this host and, as numbers of processes are its, PID space.

    Containers may have the same host name.
    """
    space = os.readlink("/proc/self/ns/pid")
    text = f"{socket.gethostname()} {space}".encode()
    return hashlib.blake2b(text, digest_size=4).hexdigest()
