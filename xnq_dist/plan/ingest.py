"""Whether the workers read and sort the edges, or the main process."""

from __future__ import annotations

from dataclasses import replace

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.config import Settings
from xnq_dist.graph.needs import task_bytes
from xnq_dist.plan.figures import Figures
from xnq_dist.plan.unit_costs import Costs

__all__ = ["ingest_on_workers"]

MAIN = 0.15
"""Share of the work that the main process keeps (Lanczos' vectors, files put together):
.10 to .15 were measured."""
SHARED = 2.0
"""Threads of workers that do the rest in the time of the main process alone. They need
1.04 to 1.3 times its processor time, but it overlaps its steps on threads."""
GAIN = 60.0
"""Minimum seconds that the workers must save."""


def ingest_on_workers(figures: Figures, settings: Settings, costs: Costs) -> Figures:
    """The figures with the edges read by the workers, if that is planned to pay.

    Workers without GPUs that have enough memory read them. For workers that run in
    parallel with the main process only.
    """
    record = CLUSTERS.record_of(settings.cluster.kind)
    threads = figures.workers * figures.threads
    saved = figures.edges * costs.edge * (1 - MAIN - SHARED / threads)
    edges = figures.edges // figures.partitions
    needed = task_bytes(figures.nodes, edges, figures.threads)
    if (
        figures.workers < 2
        or saved < GAIN
        or record.gpu
        or figures.ingest_limit
        or needed > figures.worker_limit
    ):
        return figures
    stages = {**figures.stages, "ingest": figures.stages["ingest"] - saved}
    return replace(
        figures,
        ingest_workers=figures.workers,
        stages=stages,
        seconds=figures.seconds - saved,
    )
