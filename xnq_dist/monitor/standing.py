"""Where a run directory stands, read from outside its run."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from xnq_dist.core.errors import InfrastructureError
from xnq_dist.core.lock import holder
from xnq_dist.core.store import RunDirectory, require_run
from xnq_dist.monitor.status import NEXT, RunStatus

__all__ = ["standing"]


def standing(directory: str) -> dict[str, Any]:
    """Where a run directory stands; nothing is changed.

    Returns
    -------
    dict
        ``state`` (``running``, ``finished``, ``failed``, ``stopped``: its process ended
        without a message, ``empty``), ``next``, ``place`` (stage and step),
        the lock's ``host``, ``pid`` and ``heartbeat_age`` in seconds, ``published``
        (time of the current results), ``report``, and the fields of `RunStatus`. What
        is not known is left out.

    Raises
    ------
    RunDirectoryError
        When it is not a run directory.
    """
    run = RunDirectory(directory)
    held, noted = holder(run), RunStatus.read(run)
    alive = held is not None and held.alive
    if not alive:
        require_run(run)
    elif noted is not None and noted.ended is not None:
        noted = None  # of the run before
    again = NEXT[InfrastructureError.exit_code]
    version = run.current()
    known: dict[str, Any] = {"run": run.uri}
    if noted is None:
        state, todo = ("empty", again) if version is None else ("finished", NEXT[0])
    else:
        known |= asdict(noted)
        if noted.ended is None:
            known["place"] = noted.place()
            state, todo = "stopped", again
        else:
            state = "finished" if noted.state == "done" else "failed"
            todo = NEXT[noted.exit_code or 0]
    if alive:
        state, todo = "running", "wait"
        known.setdefault("place", "beginning")
    known |= {"state": state, "next": todo}
    if held is not None:
        age = abs(time.time() - held.heartbeat)
        known |= {"host": held.host, "pid": held.pid}
        known["heartbeat_age"] = round(age, 1)
    if version is not None:
        known["published"] = version.manifest.created
        known["report"] = run.uri_of("report.html")
    return known
