"""Checks of this machine and of a run directory, each fault with its fix."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xnq_dist._version import __version__
from xnq_dist.core.backend import gpu_facts, missing
from xnq_dist.core.cluster import connect, open_cluster, workers
from xnq_dist.core.clusters import local
from xnq_dist.core.config import recorded_settings
from xnq_dist.core.errors import XnqError
from xnq_dist.core.failures import OPEN, stage_errors
from xnq_dist.core.limits import free_memory, processors
from xnq_dist.core.need import human
from xnq_dist.core.redaction import redacted
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.sections import ClusterSettings
from xnq_dist.core.store import RUN, Folder, RunDirectory, verify
from xnq_dist.due import due_stages
from xnq_dist.graph.sources import Sources
from xnq_dist.monitor.status import standing

__all__ = ["Check", "disk", "examine", "examine_directory", "files"]

NAMED = 5
"""Maximum number of damaged files that are named."""


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str
    state: str
    """``ok``, ``note`` (a run works all the same) or ``fault``."""
    text: str


def examine(out: str = ".", address: str | None = None) -> list[Check]:
    """Check what a run needs of this machine, and `out` if it is a run directory.

    Parameters
    ----------
    out
        Folder that runs will be written to.
    address
        Address of a Dask scheduler to check as well.
    """
    checks = [_machine(), _gpu(), disk(out), _dask(kind="local", workers=1, threads=1)]
    if address is not None:
        checks.append(_dask(kind="address", address=address, timeout=10))
    if Folder.of(out).exists(RUN):
        checks += examine_directory(out)
    return checks


def examine_directory(directory: str) -> Iterator[Check]:
    """Check a run directory that exists; nothing is changed."""
    found = standing(directory)
    state, text = found["state"], found["next"]
    if state == "failed":
        text = f"{found['message']}; next: {text}"
    level = {"failed": "fault", "finished": "ok"}.get(state, "note")
    yield Check("last run", level, f"{state}: {text}")
    if state != "running":
        yield files(directory)
        yield _due(RunDirectory(directory))


def files(directory: str) -> Check:
    """Compare every byte of a run directory with its checksums.

    Raises
    ------
    RunDirectoryError
        When the folder is not a run directory.
    """
    shown = str(redacted(directory))
    with stage_errors(shown, OPEN):
        damaged = [f"{fault.path} {fault.what}" for fault in verify(directory)]
    if not damaged:
        return Check("files", "ok", f"{shown}: all files are intact")
    more = f" and {len(damaged) - NAMED} more" if len(damaged) > NAMED else ""
    text = (
        f"{'; '.join(damaged[:NAMED])}{more}: run again, which deletes what is damaged "
        "and makes it again; check the disk if this happens repeatedly"
    )
    return Check("files", "fault", text)


def _due(run: RunDirectory) -> Check:
    """Check what the next run makes, from the settings and tables of the last one."""
    try:
        record = RunRecord.read(run)
        settings, tables = recorded_settings(record.settings), record.sources
        made = due_stages(run, Sources(**tables), settings) if tables else ()
    except XnqError as error:
        return Check("due", "fault", str(error))
    if not made:
        return Check("due", "ok", "nothing changed")
    return Check("due", "note", f"the next run makes {', '.join(made)}")


def _machine() -> Check:
    size = local.size(ClusterSettings())
    text = (
        f"Python {platform.python_version()}, xnq-dist {__version__}, {processors()} "
        f"processors, {human(free_memory())} free memory: {size.count} workers of "
        f"{size.threads} threads, {human(size.memory)} each"
    )
    return Check("machine", "ok", text)


def _gpu() -> Check:
    facts = gpu_facts()
    if not facts.devices:
        return Check("gpu", "note", f"none ({facts.reason}); CPUs are used")
    without = ", ".join(missing("dask_cuda", "rmm"))
    text = f"{facts.devices} of {human(facts.memory)} each"
    return Check("gpu", "ok", f"{text}; not installed: {without or 'nothing'}")


def disk(out: str) -> Check:
    """Check that a folder, or the one it would be made in, can be written."""
    folder = probe = Folder.of(out)
    if folder.is_local:
        existing = Path(folder.path())
        while not existing.exists():
            existing = existing.parent
        probe = Folder.of(existing)
    try:
        name = f"_doctor-{os.getpid()}"
        probe.write_bytes(name, b"")
        probe.delete(name)
    except XnqError as error:
        text = f"{error}: make the folder writable, or choose another --out"
        return Check("disk", "fault", text)
    text = f"{folder.uri} can be written"
    if folder.is_local:
        text += f", {human(shutil.disk_usage(probe.path()).free)} free"
    return Check("disk", "ok", text)


def _dask(**settings: object) -> Check:
    chosen = ClusterSettings.model_validate(settings)
    name = f"dask {chosen.address or 'local'}"
    began = time.perf_counter()
    try:
        with open_cluster(chosen) as connection, connect(connection) as client:
            count = len(workers(client))
    except XnqError as error:
        return Check(name, "fault", str(error))
    seconds = time.perf_counter() - began
    return Check(name, "ok", f"{count} workers responded within {seconds:.1f} s")
