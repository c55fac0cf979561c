"""Processes of this machine."""

from __future__ import annotations

import logging
import os
from typing import Any

from xnq_dist.core import cluster
from xnq_dist.core.cluster import LocalSize
from xnq_dist.core.clusters import ClusterKind
from xnq_dist.core.settings_sections import ClusterSettings
from xnq_dist.core.sizes import parse_bytes

__all__ = ["RECORDS", "options", "size", "start"]

RECORDS = (
    ClusterKind(
        name="local", title="worker processes on this machine", rank=1, ahead=True
    ),
)

START = 120.0
"""Seconds that a worker may take to start, on top of `cluster.timeout`: it imports."""


def size(settings: ClusterSettings, free: int | None = None) -> LocalSize:
    """Workers, threads and memory of a local cluster.

    Up to four workers share the processors; nine tenths of the free memory are
    divided among them.

    Parameters
    ----------
    free
        Bytes of memory that are free; None: what is free now.
    """
    # The affinity mask, not the processors there are: batch systems set it.
    processors = len(os.sched_getaffinity(0))
    count = min(4, processors) if settings.workers == "auto" else settings.workers
    threads = (
        max(1, processors // count) if settings.threads == "auto" else settings.threads
    )
    if settings.memory_limit == "auto":
        # Whether that is enough is for the plan to say, in a sentence.
        memory = int((cluster.free_memory() if free is None else free) * 0.9) // count
    else:
        memory = parse_bytes(settings.memory_limit)
    return LocalSize(count, threads, memory)


def options(size: LocalSize) -> dict[str, Any]:
    """Options of a cluster on this machine.

    Any user of the machine can reach ports on loopback, and who can talk to a
    scheduler can run code. Credentials made here, and kept in memory, shut others out.
    """
    from distributed import Security

    return {
        "n_workers": size.workers,
        "threads_per_worker": size.threads,
        "memory_limit": size.memory,
        "host": "127.0.0.1",
        # No dashboard, and its port on loopback, any that is free.
        "scheduler_kwargs": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        "worker_dashboard_address": "127.0.0.1:0",
        # What is lost is noticed and named by `waiting`; tracebacks of workers that
        # are ended would only hide the sentence.
        "silence_logs": logging.CRITICAL,
        "security": Security.temporary(),
        "protocol": "tls",
    }


def start(settings: ClusterSettings, size: LocalSize, preload: str) -> Any:
    """A cluster of this machine's processors."""
    import dask
    from distributed import LocalCluster

    more: dict[str, Any] = {}
    if preload:
        users = dask.config.get("distributed.worker.preload") or []
        more["preload"] = [*users, preload]
    # Without a deadline, a worker that hangs while it starts is waited for without end.
    return LocalCluster(**options(size), death_timeout=settings.timeout + START, **more)
