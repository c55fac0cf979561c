"""Finding damage, setting it aside, and doing again what was lost, no more."""

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

__all__ = ["PLAN", "clear", "mend", "repaired", "setting_aside"]

log = logging.getLogger(__name__)

T = TypeVar("T")

PLAN = "plan.json"
"""The plan of the last run."""
ROUNDS = 4
"""Times that a run begins before it gives up for damage."""


def mend(run: RunDirectory, thorough: bool = False) -> int:
    """Set aside what is damaged in a run directory; how much there was.

    Parameters
    ----------
    thorough
        Read every byte; else manifests, the sizes of files, and the results that are
        published now.
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
    """Remove what a killed run has left of its states: nothing reads it."""
    run.folder.child(STATES).delete_folder()


@contextmanager
def setting_aside(run: RunDirectory) -> Iterator[None]:
    """Set aside what a block finds damaged in the run directory; raise its error.

    Damage seldom comes alone: everything else is checked then, too. A file that is
    what was written where this process looks is left alone.
    """
    try:
        yield
    except DamagedError as error:
        if not within(error.folder, run.uri):
            raise  # another run's
        if not mend(run, thorough=True):
            log.warning(
                "%s: %s; read again it is what was written: do all workers see "
                "the same run directory?",
                error.path,
                error.what,
            )
        raise


def repaired(work: Callable[[], T]) -> T:
    """The result of some work, which begins again when it meets damage.

    Parameters
    ----------
    work
        Stages of a run in order; each sets aside what it finds damaged
        (`setting_aside`) and does not do again what is whole.

    Raises
    ------
    InfrastructureError
        When there is damage again and again.
    """
    for _ in range(ROUNDS):
        try:
            return work()
        except DamagedError as error:
            last = error
            log.warning(
                "%s %s: doing again what is not whole",
                error.path,
                error.what,
            )
    raise InfrastructureError(
        f"{last.path} was damaged after {ROUNDS} attempts to make it: "
        "check the disk and the memory of this machine, and that all workers see the "
        "same folder, then run again"
    ) from last
