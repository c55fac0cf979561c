"""Whether the workers read and sort the edges, or the main process."""

from __future__ import annotations

from dataclasses import replace

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.settings import Settings
from xnq_dist.graph.needs import task_bytes
from xnq_dist.plan.figures import Plan

__all__ = ["ingest_on_workers"]

MIN_EDGES = 300_000_000
"""Directed edges from which workers of many threads read in less time than the main
process: a minute less, by the times measured at 20 M edges."""


def ingest_on_workers(plan: Plan, settings: Settings) -> Plan:
    """The plan with the edges read by the workers, if there are many.

    Workers without GPUs that have enough memory read them. For workers that run in
    parallel with the main process only.
    """
    threads = plan.workers * plan.threads
    # Two threads of workers take the time of the main process.
    many = plan.edges * (1 - 2 / threads) >= MIN_EDGES
    gpu = CLUSTERS[settings.cluster.kind].gpu
    if plan.workers < 2 or not many or gpu:
        return plan
    edges = plan.edges // plan.partitions
    needed = task_bytes(plan.nodes, edges, plan.threads)
    if needed > plan.worker_limit:
        return plan
    return replace(plan, ingest_workers=plan.workers)
