"""The command ``xnq-dist status``: where a run stands; it never takes the lock."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import typer

from xnq_dist.app.output import Directory, Json, print_json
from xnq_dist.core.redaction import redacted

__all__ = ["standing", "status"]


def standing(directory: str) -> dict[str, Any]:
    """Where a run directory stands; nothing is changed.

    Returns
    -------
    dict
        ``state`` (``running``, ``finished``, ``failed``, ``stopped``: its process ended
        without a message, ``empty``), ``next``, ``place`` (stage, step and time left),
        the lock's ``host``, ``pid`` and ``heartbeat_age`` in seconds, ``published``
        (time of the current results), ``report``, and the fields of `RunStatus`. What
        is not known is left out.

    Raises
    ------
    RunDirectoryError
        When it is not a run directory.
    """
    from xnq_dist.app.run_progress import seconds_left_text
    from xnq_dist.app.run_status import NEXT, RunStatus
    from xnq_dist.core.errors import InfrastructureError
    from xnq_dist.core.lock import holder
    from xnq_dist.core.store import Published, RunDirectory, require_run

    run = RunDirectory(directory)
    held, noted = holder(run.folder), RunStatus.read(run)
    alive = held is not None and held.alive
    if not alive:
        require_run(run)
    elif noted is not None and noted.ended is not None:
        noted = None  # of the run before
    again = NEXT[InfrastructureError.exit_code]
    version = Published(run).current()
    known: dict[str, Any] = {"run": run.uri}
    if noted is None:
        state, todo = ("empty", again) if version is None else ("finished", NEXT[0])
    else:
        known |= asdict(noted) | {"retries": noted.retries}
        if noted.ended is None:
            left = seconds_left_text(noted.seconds_left if alive else None)
            known["place"] = noted.place(left)
            state, todo = "stopped", again
        else:
            state = "finished" if noted.state == "done" else "failed"
            todo = NEXT[noted.exit_code or 0]
    if alive:
        state, todo = "running", "wait"
        known.setdefault("place", "beginning")
    known |= {"state": state, "next": todo}
    if held is not None:
        # A clock that differs must not show a run as dead, or from the future.
        age = min(abs(time.time() - held.heartbeat), abs(held.age))
        known |= {"host": held.host, "pid": held.pid}
        known["heartbeat_age"] = round(age, 1)
    if version is not None:
        known["published"] = version.manifest.created
        known["report"] = run.folder.uri_of("report.html")
    return known


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def status(directory: Directory, as_json: Json = False) -> None:
    """Show where a run stands: stage, superstep, time left, owner, what is next.

    It works while a run writes the directory, and never takes its lock.
    """
    from xnq_dist.core.failures import OPEN, stage_errors

    with stage_errors(str(redacted(directory)), OPEN):
        found = standing(directory)
    typer.echo(f"{found['run']}: {found['state']}")
    texts = {
        "stage": found.get("place"),
        "process": "pid" in found
        and f"{found['pid']} on {found['host']}, "
        f"last heartbeat {found['heartbeat_age']:.0f} s ago",
        "workers": found.get("workers")
        and f"{found['workers']}, {len(found['lost_workers'])} lost, "
        f"{found['retries']} retries",
        "failed": found.get("message"),
        "next": found["next"],
        "started": _time(found.get("started")),
        "ended": _time(found.get("ended")),
        "results": "published" in found and f"{found['published']}  {found['report']}",
    }
    for name, text in texts.items():
        if text:
            typer.echo(f"  {name:<10}{text}")
    print_json(found, as_json)
