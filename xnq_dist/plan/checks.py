"""Checks that a run fits: before it starts, and at the start of a stage.

Errors name the need, the limit and the setting to change.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from xnq_dist.core import cluster
from xnq_dist.core.errors import DoesNotFitError
from xnq_dist.core.leftovers import own_bytes
from xnq_dist.core.need import human
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.plan.figures import Plan
from xnq_dist.plan.of_tables import add_up
from xnq_dist.reservoir.volume import size_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["check_client_fits", "check_fits", "check_scratch_fits", "settled"]

log = logging.getLogger(__name__)

ACCURACY = 1.05
"""Memory of a worker over the planned that is worth a line: a small run's differs in
the last digits."""


def check_client_fits(plan: Plan) -> None:
    """Check that reading, partitioning and community detection fit in memory.

    Raises
    ------
    DoesNotFitError
        The message names need, limit and setting.
    """
    limit = plan.client_limit
    if limit is not None and plan.client_memory > limit:
        raise DoesNotFitError(
            "reading tables, partitioning and Leiden need "
            f"{human(plan.client_memory)} but {human(limit)} are free: set "
            "partitioner=stream or a smaller input.memory"
        )


def check_fits(plan: Plan, out: str | None = None) -> None:
    """Check that a run fits in the memory of workers and GPUs, and on the disk.

    Parameters
    ----------
    plan
        The plan.
    out
        Local run directory, whose disk must hold what it lacks; None: not checked.

    Raises
    ------
    DoesNotFitError
        The message names need, limit and setting.
    """
    if plan.worker_memory > plan.worker_limit:
        turns = ", reservoirs one after the other" if plan.turns > 1 else ""
        raise DoesNotFitError(
            f"a worker needs {human(plan.worker_memory)} but may use "
            f"{human(plan.worker_limit)} ({plan.nodes:,} nodes in {plan.partitions} "
            f"partitions on {plan.workers} workers{turns}): raise "
            "cluster.memory_limit, use more workers with partitions set to their "
            "number, or try a smaller reservoir.dim or readout.memory, or "
            "exchange.dtype=float16"
        )
    if plan.device_memory > plan.device_limit:
        raise DoesNotFitError(
            f"a worker needs {human(plan.device_memory)} of its GPU's memory but may "
            f"use {human(plan.device_limit)}: set a smaller reservoir.dim, raise "
            "cluster.device_memory, use more GPUs, or set backend=cpu"
        )
    if out is None:
        return
    folder = Path(out)
    used = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    while not folder.exists():
        folder = folder.parent
    change = "set a smaller reservoir.dim, or choose another --out"
    _check_disk(folder, "the run directory needs", plan.run_disk - used, change)


def check_scratch_fits(plan: Plan, scratch: str | None) -> None:
    """Check that temporary files fit on their disk.

    Parameters
    ----------
    plan
        The plan; before partitioning, its edges and halo rows are upper bounds.
    scratch
        The setting `scratch`; None: the system's temporary folder.

    Raises
    ------
    DoesNotFitError
        The message names need, free space and setting.
    """
    folder = Path(tempfile.gettempdir() if scratch is None else scratch)
    if folder.exists():  # otherwise `scratch_folder` reports it
        change = "set scratch to a folder with more space"
        need = plan.scratch_disk - own_bytes(folder)
        _check_disk(folder, "temporary files need up to", need, change)


def settled(
    run: RunDirectory, settings: Settings, client: Client, *parts: str
) -> Settings:
    """The settings on these workers, whose memory must be enough for what remains.

    Parameters
    ----------
    parts
        Parts of the plan that remain; none: all, and the disk must be enough too.

    Raises
    ------
    DoesNotFitError
        When it is not.
    StageError
        When the graph is not complete.
    """
    settings = cluster.settle(client, settings)
    graph = run.complete("graph")
    workers = cluster.workers_of(client, settings)
    labels, plan = run.stage("labels").manifest(), Plan.read(run)
    size = size_of(graph, labels)
    size = replace(size, memberships=plan.memberships if plan else None)
    detects = plan is not None and plan.detects
    met = add_up(size, settings, graph.facts["partitions"], workers, detects)
    if plan and met.worker_memory > ACCURACY * plan.worker_memory:
        log.warning(
            "a worker needs %s, more than the planned %s",
            human(met.worker_memory),
            human(plan.worker_memory),
        )
    if parts:
        check_fits(met.of(*parts))
    else:
        check_fits(met, run.path() if run.is_local else None)
    return settings


def _check_disk(folder: Path, what: str, need: int, change: str) -> None:
    free = shutil.disk_usage(folder).free
    if need > free:
        raise DoesNotFitError(
            f"{what} {human(need)} but {folder} has {human(free)} free: {change}"
        )
