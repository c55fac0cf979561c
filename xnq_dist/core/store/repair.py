"""Finds damage in a run directory, deletes it, and does only the lost work again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from xnq_dist.core.errors import DamagedError, InfrastructureError, RunDirectoryError
from xnq_dist.core.redaction import within
from xnq_dist.core.store.published import POINTER
from xnq_dist.core.store.run_directory import RunDirectory
from xnq_dist.core.store.stage_folder import Stage

__all__ = [
    "PLAN",
    "RUN",
    "delete_damage",
    "deleting_damage",
    "repaired",
    "require_run",
    "verify",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

RUN = "_run.json"
"""File with the inputs that a run directory was made from."""
PLAN = "plan.json"
"""The plan of the last run."""
ROUNDS = 4
"""Maximum number of attempts of a run that finds damage."""


def require_run(run: RunDirectory) -> None:
    """Check that a folder is a run directory.

    Raises
    ------
    RunDirectoryError
        When it is not.
    """
    if not (run.exists(RUN) or run.exists(POINTER) or run.stages()):
        raise RunDirectoryError(
            f"{run.uri} is not a run directory: name the folder of --out"
        )


def verify(location: str | Path) -> list[DamagedError]:
    """Find damage in a run directory; nothing is changed.

    Stages, checkpoints, published versions, the pointer to the current one, its files
    at their usual paths, the plan and the record of the run are read completely.

    Raises
    ------
    RunDirectoryError
        When the location is not a run directory.
    """
    run = RunDirectory(location)
    require_run(run)
    faults = [fault for stage in run.stages() for fault in stage.damages()]
    if current := run.current():
        faults += Stage(run.location).damaged(current.manifest.files)
    elif named := run.current_id():
        what = f"names {named}, which is not complete"
        faults.append(DamagedError(run.uri, POINTER, what))
    return [*faults, *_damaged_records(run)]


def _damaged_records(run: RunDirectory) -> Iterator[DamagedError]:
    for name in (POINTER, RUN, PLAN):
        try:
            run.read_record(name)
        except DamagedError as error:
            yield error


def delete_damage(run: RunDirectory, thorough: bool = False) -> int:
    """Delete what is damaged in a run directory; return the number of damages.

    A stage or version is deleted with all its files, once it was read twice.

    Parameters
    ----------
    thorough
        Read every byte; else check manifests, sizes of files, and the currently
        published results.
    """
    current = run.current_id()
    deleted = []
    for fault in _damaged_records(run):
        run.delete(fault.file)
        deleted.append((fault.path, fault.what))
    for stage in run.stages():
        every = thorough or stage.name == current
        if stage.damages(every) and (faults := stage.damages(every)):
            stage.delete_folder()
            deleted.append((stage.uri, f"{faults[0].file} {faults[0].what}"))
    for what, why in deleted:
        log.warning("%s is deleted because it is damaged: %s", what, why)
    return len(deleted)


@contextmanager
def deleting_damage(run: RunDirectory) -> Iterator[None]:
    """Delete damage in the run directory when a block raises it; then raise it.

    Everything else is checked too, because damage is often not limited to one file. A
    file that this process reads without an error is left in place.
    """
    try:
        yield
    except DamagedError as error:
        if not within(error.folder, run.uri):
            raise  # a file of another run
        if not delete_damage(run, thorough=True):
            log.warning(
                "%s: %s; a second reading found no damage: check that all workers see "
                "the same run directory",
                error.path,
                error.what,
            )
        raise


def repaired(work: Callable[[], T]) -> T:
    """The result of some work, which is called again if it finds damage.

    Parameters
    ----------
    work
        Does the stages of a run in order; each deletes the damage it finds
        (`deleting_damage`) and keeps complete stages.

    Raises
    ------
    InfrastructureError
        When every attempt finds damage.
    """
    for _ in range(ROUNDS):
        try:
            return work()
        except DamagedError as error:
            last = error
            log.warning("%s %s: doing incomplete stages again", error.path, error.what)
    raise InfrastructureError(
        f"{last.path} was damaged after {ROUNDS} attempts to make it: "
        "check the disk and the memory of this machine, and that all workers see the "
        "same folder, then run again"
    ) from last
