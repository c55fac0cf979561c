"""The folder ``quarantine/`` of damaged files, each with the reason."""

from __future__ import annotations

import datetime
import logging
from dataclasses import asdict, dataclass

from xnq_dist.core.store.run_directory import RunDirectory

__all__ = ["QUARANTINE", "SetAside", "entries", "set_aside", "trim"]

log = logging.getLogger(__name__)

QUARANTINE = "quarantine"
REASON = "reason.json"
TIME = "%Y%m%dT%H%M%S%fZ"


@dataclass(frozen=True)
class SetAside:
    """A damaged file or folder that was moved to the quarantine."""

    name: str
    """Its former path in the run directory."""
    time: str
    """Time of the move, ISO 8601 in UTC."""
    reason: str


def entries(run: RunDirectory) -> list[tuple[str, SetAside]]:
    """Folder and description of each entry of the quarantine, oldest first."""
    folder = run.folder.child(QUARANTINE)
    found = []
    for name in folder.names():
        what, _, stamp = name.rpartition("-")
        try:
            time = datetime.datetime.strptime(stamp, TIME)
        except ValueError:  # a foreign folder
            continue
        when = time.replace(tzinfo=datetime.UTC).isoformat()
        values = folder.child(name).read_json(REASON)
        known = values if isinstance(values, dict) else {}
        why = str(known.get("reason") or "not recorded")
        found.append((name, SetAside(str(known.get("name") or what), when, why)))
    return sorted(found, key=lambda pair: pair[1].time)


def set_aside(run: RunDirectory, name: str, why: str) -> None:
    """Move a file or folder of the run directory to the quarantine."""
    if not run.folder.exists(name):
        return
    now = datetime.datetime.now(datetime.UTC)
    entry = f"{QUARANTINE}/{name.replace('/', '-')}-{now.strftime(TIME)}"
    if run.folder.is_folder(name):
        run.folder.child(QUARANTINE).create()
        run.folder.move(name, entry)
    else:
        run.folder.child(entry).create()
        run.folder.move(name, f"{entry}/{name.rsplit('/', 1)[-1]}")
    made = SetAside(name, now.isoformat(), why)
    run.folder.child(entry).write_record(REASON, asdict(made))
    log.warning("%s is set aside in %s: %s", run.folder.uri_of(name), entry, why)


def trim(run: RunDirectory, days: float) -> None:
    """Remove entries older than `days` from the quarantine; the newest stays."""
    bound = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)
    for name, entry in entries(run)[:-1]:
        if datetime.datetime.fromisoformat(entry.time) < bound:
            run.folder.child(f"{QUARANTINE}/{name}").delete_folder()
