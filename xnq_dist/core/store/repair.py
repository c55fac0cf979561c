"""Finds damage, sets it aside, and does only the lost work again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from xnq_dist.core.errors import DamagedError, InfrastructureError
from xnq_dist.core.redaction import within
from xnq_dist.core.store.published import POINTER, VERSIONS, Published
from xnq_dist.core.store.quarantine import set_aside
from xnq_dist.core.store.run_directory import STATES, RunDirectory

__all__ = ["PLAN", "clear", "repaired", "set_aside_damage", "setting_aside"]

log = logging.getLogger(__name__)

T = TypeVar("T")

PLAN = "plan.json"
"""The plan of the last run."""
ROUNDS = 4
"""Maximum number of attempts of a run that finds damage."""


def set_aside_damage(run: RunDirectory, thorough: bool = False) -> int:
    """Set aside what is damaged in a run directory; return the number of damages.

    Parameters
    ----------
    thorough
        Read every byte; else check manifests, sizes of files, and the currently
        published results.
    """
    published = Published(run)
    current = published.pointer().get("run_id")
    found: list[tuple[str, str]] = []
    for stage in (*run.stages(), *published.stages()):
        every = thorough or stage.name == f"{VERSIONS}/{current}"
        for fault in stage.damages(every)[:1]:
            found.append((stage.name, f"{fault.file} {fault.what}"))
    for record in (POINTER, PLAN):
        try:
            run.folder.read_record(record)
        except DamagedError as error:
            found.append((record, error.what))
    for name, why in found:
        set_aside(run, name, why)
    return len(found)


def clear(run: RunDirectory) -> None:
    """Remove state files of a killed run, which nothing reads."""
    run.folder.child(STATES).delete_folder()


@contextmanager
def setting_aside(run: RunDirectory) -> Iterator[None]:
    """Set aside damage in the run directory when a block raises it; then raise it.

    Everything else is checked too, because damage is often not limited to one file. A
    file that this process reads without an error is left in place.
    """
    try:
        yield
    except DamagedError as error:
        if not within(error.folder, run.uri):
            raise  # a file of another run
        if not set_aside_damage(run, thorough=True):
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
        Does the stages of a run in order; each sets aside the damage it finds
        (`setting_aside`) and keeps complete stages.

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
            log.warning(
                "%s %s: doing incomplete stages again",
                error.path,
                error.what,
            )
    raise InfrastructureError(
        f"{last.path} was damaged after {ROUNDS} attempts to make it: "
        "check the disk and the memory of this machine, and that all workers see the "
        "same folder, then run again"
    ) from last
