"""The kinds of Dask clusters: one module each, found by its record.

A kind is one module with ``RECORDS`` (`core.records`) and two functions:
``size(settings, free)``, the `core.cluster.LocalSize` that is planned with, and
``start(settings, size, preload)``, a Dask cluster object (``scheduler_address``,
``security``, ``close``), which `core.cluster.open_cluster` closes. A kind whose
clusters are ``running`` already has ``connection_to(settings)`` instead of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xnq_dist.core import records

__all__ = ["CLUSTERS", "ClusterKind"]


@dataclass(frozen=True, kw_only=True)
class ClusterKind(records.PartRecord):
    """One kind of cluster."""

    running: bool = False
    """Whether the cluster runs already, at `cluster.address`."""
    ahead: bool = False
    """Whether workers may start while this process still reads the tables."""
    gpu: bool = False
    """Whether each worker has a GPU of its own."""


CLUSTERS = records.Registry(
    "cluster kind", ClusterKind, {__name__: Path(__file__).parent}
)
