"""The plan at the start of a stage: on the connected workers, for the counts so far."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from xnq_dist.core import cluster
from xnq_dist.core.settings import Settings
from xnq_dist.core.sizes import human
from xnq_dist.core.store import RunDirectory
from xnq_dist.plan.adding import add_up
from xnq_dist.plan.checks import check_fits
from xnq_dist.plan.figures import Plan
from xnq_dist.reservoir.sizes import size_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["settled"]

log = logging.getLogger(__name__)

ACCURACY = 1.05
"""Memory of a worker over the planned that is worth a line: a small run's differs in
the last digits."""


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
