"""The kinds of Dask clusters: a record here for each, and its module.

A kind's module has two functions:
``size(settings, free)`` returns the `core.need.Workers` for the plan;
``start(settings, size, stack)`` returns a Dask cluster object (``scheduler_address``,
``security``, ``close``), which `core.cluster.open_cluster` closes, then the stack. A
kind whose clusters already run (``running``) has ``connection_to(settings)`` instead:
``address``, in `core.cluster`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xnq_dist.core.records import PartRecord, Registry

__all__ = ["CLUSTERS", "ClusterKind"]


@dataclass(frozen=True, kw_only=True)
class ClusterKind(PartRecord):
    """One kind of cluster."""

    running: bool = False
    """Whether the cluster already runs, at `cluster.address`."""
    shares: bool = False
    """Whether workers share their memory with this process, which reads the tables."""
    queued: bool = False
    """Whether workers are jobs of a batch system, on several hosts, which starts them
    when it can: their number and memory must be set. The module also has
    ``check(settings)``, called before any table is read, and
    ``wait(cluster, settings, size)`` for the workers."""
    gpu: bool = False
    """Whether each worker has its own GPU."""


CLUSTERS = Registry(
    "cluster kind",
    (
        ClusterKind(
            name="auto",
            text="this process alone if it fits and is as fast, else worker processes",
            module="xnq_dist.core.clusters.local",
        ),
        ClusterKind(
            name="local",
            text="worker processes on this machine",
            shares=True,
            module="xnq_dist.core.clusters.local",
        ),
        ClusterKind(
            name="address",
            text="a running Dask scheduler",
            running=True,
            module="xnq_dist.core.cluster",
        ),
        ClusterKind(
            name="cuda",
            text="one worker for each GPU of this machine",
            gpu=True,
            module="xnq_dist.core.clusters.cuda",
        ),
        ClusterKind(
            name="slurm",
            text="jobs that are submitted to SLURM",
            queued=True,
            module="xnq_dist.core.clusters.slurm",
        ),
    ),
)
