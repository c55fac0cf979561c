"""Compares every byte of a run directory with its checksums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xnq_dist.core.errors import DamagedError, RunDirectoryError
from xnq_dist.core.store.published import POINTER, Published
from xnq_dist.core.store.repair import PLAN
from xnq_dist.core.store.run_directory import RunDirectory

__all__ = ["RUN", "Finding", "require_run", "verify"]

RUN = "_run.json"
"""File with the inputs that a run directory was made from."""


@dataclass(frozen=True)
class Finding:
    """One damaged file."""

    file: str
    """Path or URI."""
    what: str


def require_run(run: RunDirectory) -> None:
    """Check that a folder is a run directory.

    Raises
    ------
    RunDirectoryError
        When it is not.
    """
    if not (run.folder.exists(RUN) or run.folder.exists(POINTER) or run.stages()):
        raise RunDirectoryError(
            f"{run.uri} is not a run directory: name the folder of --out"
        )


def verify(location: str | Path) -> list[Finding]:
    """Find damage in a run directory; nothing is changed.

    Stages, checkpoints, published versions, the pointer to the current one, the files
    at their fixed paths, the plan and the record of the run are read completely.

    Raises
    ------
    RunDirectoryError
        When the location is not a run directory.
    """
    run = RunDirectory(location)
    require_run(run)
    stages = run.stages()
    faults = [fault for stage in stages for fault in stage.damages()]
    published = Published(run)
    faults += [fault for stage in published.stages() for fault in stage.damages()]
    faults += published.misplaced()
    for record in (RUN, PLAN):
        try:
            run.folder.read_record(record)
        except DamagedError as error:
            faults.append(error)
    return [Finding(fault.path, fault.what) for fault in faults]
