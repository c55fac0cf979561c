"""Checks of a run directory: what would hinder the next run, each with its fix."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

from xnq_dist.core.clusters import local
from xnq_dist.core.config import recorded_settings
from xnq_dist.core.differences import differences
from xnq_dist.core.errors import DamagedError, XnqError
from xnq_dist.core.failures import OPEN, stage_errors
from xnq_dist.core.inputs import (
    ELSEWHERE,
)
from xnq_dist.core.lock import LOCK, Holder, holder
from xnq_dist.core.redaction import redacted
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.settings import Settings
from xnq_dist.core.sizes import human
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import (
    MANIFEST,
    MANIFEST_VERSION,
    RunDirectory,
    require_run,
    verify,
)
from xnq_dist.due import due_stages
from xnq_dist.graph.tables import Sources
from xnq_dist.monitor.standing import standing
from xnq_dist.plan import Plan, check_fits

__all__ = ["Check", "examine_directory", "intact"]

LOW = 1 << 30
"""Bytes that should be free on the disk of a run directory."""
AGAIN = "run again, which"
NAMED = 5
"""Maximum number of findings of one kind that are named."""


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str
    state: str
    """``ok``, ``note`` (runs work all the same, or set it right) or ``fault``."""
    text: str


Finding = tuple[str, str] | None
"""State and text of a check; None: it is all right."""


def examine_directory(directory: str, settings: Settings | None = None) -> list[Check]:
    """Check a run directory; nothing is changed.

    Parameters
    ----------
    settings
        Settings of the next run; None: those of the last one.

    Raises
    ------
    RunDirectoryError
        When it is not a run directory.
    """
    run = RunDirectory(directory)
    held = holder(run.folder)
    works = held is not None and held.alive
    if not works:
        require_run(run)
    found: dict[str, tuple[Finding, str]] = {
        "last run": (_last_run(directory), "it came to its end"),
        "lock": (_lock(run, held), "nobody holds it"),
    }
    if works:
        found["files"] = ("note", "not checked while a run writes them"), ""
    else:
        found |= _at_rest(run, directory, settings)
    return [Check(name, *(bad or ("ok", fine))) for name, (bad, fine) in found.items()]


def _at_rest(
    run: RunDirectory, directory: str, settings: Settings | None
) -> dict[str, tuple[Finding, str]]:
    """Checks while no run works: name, what was found, what is said if it is fine."""
    record, unusable = _record(run)
    found = {
        "files": (_files(directory), "every byte agrees with its checksum"),
        "format": (_formats(run), "this version reads all stages"),
        "record": (unusable, "settings and tables of the last run"),
    }
    if record is not None:
        before = recorded_settings(record.settings)
        used = before if settings is None else settings
        found |= {
            "settings": (_settings(before, used), "those of the last run"),
            "due": (_due(run, record, used), "nothing changed"),
            "space": (_space(run), "enough for the last plan"),
            "memory limit": (_memory(used), "not above this machine's memory"),
        }
    return found


def intact(directory: str) -> Check:
    """Compare every byte of a run directory with its checksums.

    Raises
    ------
    RunDirectoryError
        When the folder is not a run directory.
    """
    shown = str(redacted(directory))
    with stage_errors(shown, OPEN):
        found = _files(directory)
    return Check("files", *(found or ("ok", f"{shown}: all files are intact")))


def _last_run(directory: str) -> Finding:
    found = standing(directory)
    if found["state"] == "failed":
        return "fault", f"failed: {found['message']}; next: {found['next']}"
    if found["state"] == "stopped":
        place = found["place"] or "its beginning"
        return "note", f"its process ended at {place}, with no message: {found['next']}"
    return None


def _lock(run: RunDirectory, held: Holder | None) -> Finding:
    if held is None:
        damaged = run.folder.exists(LOCK)
        return (
            ("note", f"{LOCK} cannot be read: {AGAIN} removes it") if damaged else None
        )
    who = f"process {held.pid} on {held.host}"
    age = f"last heartbeat {abs(time.time() - held.heartbeat):.0f} s ago"
    if held.alive:
        text = f"held by {who}, {age}: wait for it to end, or end that process"
    else:
        text = f"{who}, {age}, which held it, has ended: {AGAIN} takes the lock over"
    return "note", text


def _files(directory: str) -> Finding:
    damaged = [f"{fault.path} {fault.what}" for fault in verify(directory)]
    if not damaged:
        return None
    left = len(damaged) - NAMED
    more = f" and {left} more" if left > 0 else ""
    return "fault", (
        f"{'; '.join(damaged[:NAMED])}{more}: {AGAIN} deletes what is damaged and "
        "makes it again; check the disk if this happens repeatedly"
    )


def _formats(run: RunDirectory) -> Finding:
    for stage in run.stages():
        name, values = stage.name, None
        with suppress(DamagedError):  # `verify` reports it
            values = stage.folder.read_record(MANIFEST)
        if values is None:
            continue
        number = int((values.get("inputs") or {}).get("format") or 0)
        newer = int(values.get("version") or 0) > MANIFEST_VERSION
        if newer or (name in STAGES and number > STAGES[name].format):
            made = (values.get("versions") or {}).get("xnq-dist", "a newer version")
            return "fault", (
                f"stage {name} was made by xnq-dist {made} in a newer format, which "
                "this version would replace: install that version, or choose another "
                "--out"
            )
    return None


def _record(run: RunDirectory) -> tuple[RunRecord | None, Finding]:
    """The record of the last run, if its settings can be read, and the check of it."""
    try:
        record = RunRecord.read(run.folder)
        if record is None:
            return None, ("note", f"there is none: {AGAIN} writes it")
        recorded_settings(record.settings)
    except DamagedError:
        return None, ("note", f"damaged, see files: {AGAIN} writes it again")
    except XnqError as error:
        return None, ("fault", f"this version cannot use that of the last run: {error}")
    return record, None


def _settings(before: Settings, now: Settings) -> Finding:
    then, these = (
        one.model_dump(mode="json", exclude=ELSEWHERE) for one in (before, now)
    )
    changed = "; ".join(differences(then, these))
    if not changed:
        return None
    return "note", (
        f"changed since the last run: {changed}. The check due names what is made "
        "again; for the same results set them back"
    )


def _due(run: RunDirectory, record: RunRecord, settings: Settings) -> Finding:
    tables: Any = dict(record.sources)
    if not tables:
        return None
    try:
        stages = due_stages(run, Sources(**tables), settings)
    except XnqError as error:
        return "fault", str(error)
    made = ", ".join(stages)
    return (
        ("note", f"the next run makes {made}: start it when it suits you")
        if made
        else None
    )


def _space(run: RunDirectory) -> Finding:
    if not run.folder.is_local:
        return None
    where = run.folder.path()
    if (free := psutil.disk_usage(where).free) < LOW:
        return "fault", (
            f"{human(free)} are free on the disk of {where}: free space, lower "
            "retention.versions, or choose another --out"
        )
    try:
        if (plan := Plan.read(run.folder)) is not None:
            sizes = map(run.folder.size, run.folder.files())
            check_fits(plan.met or plan.planned, where, sum(filter(None, sizes)))
    except XnqError as error:
        return "fault", str(error)
    return None


def _memory(settings: Settings) -> Finding:
    cluster = settings.cluster
    if cluster.kind not in ("auto", "local") or cluster.memory_limit == "auto":
        return None
    size, there = local.size(cluster), int(psutil.virtual_memory().total)
    # Without a number, workers are started only where one process is not enough.
    count = 1 if (cluster.kind, cluster.workers) == ("auto", "auto") else size.count
    if count * size.memory <= there:
        return None
    return "fault", (
        f"{count} workers of cluster.memory_limit = {human(size.memory)} are "
        f"more than the {human(there)} of this machine: set it to auto, or set fewer "
        "cluster.workers"
    )
