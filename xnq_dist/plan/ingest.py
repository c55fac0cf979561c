"""Whether the workers read, sort and partition the edges, or the main process."""

from __future__ import annotations

from dataclasses import replace

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.config import Settings
from xnq_dist.graph.needs import REFINING, refined_groups, task_bytes
from xnq_dist.graph.stream_tasks import ROUND
from xnq_dist.graph.thread_pool import BATCHES, MAX_THREADS
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
PROPAGATION = 0.17
"""Share of the time of partitioning, with one group, that label propagation takes: .17
(64 partitions) and .23 (8) were measured."""
ROUNDS, ROUND_SECONDS = 3 * 300, 0.05
"""Rounds of tasks of label propagation, and the time of each with a dozen tasks."""


def ingest_on_workers(figures: Figures, settings: Settings, costs: Costs) -> Figures:
    """The figures with the edges read by the workers, if that is planned to pay.

    Workers without GPUs that have enough memory read them. For workers that run in
    parallel with the main process only.
    """
    record = CLUSTERS.record_of(settings.cluster.kind)
    groups = refined_groups(figures.nodes, figures.partitions, settings)
    saved = _saved(figures, groups, costs)
    edges = figures.edges // figures.partitions
    tables = min(figures.threads, -(-groups // max(figures.workers, 1)))
    memory = min(settings.input.memory_bytes, figures.nodes * figures.partitions)
    needed = task_bytes(
        figures.nodes, edges, figures.threads, tables if groups > 1 else 0, memory
    )
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


def _saved(figures: Figures, groups: int, costs: Costs) -> float:
    """Seconds that the workers save."""
    threads = figures.workers * figures.threads
    saved = figures.edges * costs.edge * (1 - MAIN - SHARED / threads)
    if figures.partitions == 1:
        return saved
    cut = figures.edges * costs.cut
    if figures.edges >= ROUND * BATCHES:
        saved += max(cut * PROPAGATION - ROUNDS * ROUND_SECONDS, 0)
    if groups > 1:
        busy = min(threads, groups * min(figures.threads, MAX_THREADS))
        saved += cut * REFINING * groups * max(1 - SHARED / busy, 0)
    return saved
