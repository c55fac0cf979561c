"""Counts of a partitioned graph and of the connected workers, for the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xnq_dist.core import cluster
from xnq_dist.core.need import GraphSize, PartitionCounts, RunSize
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest
from xnq_dist.graph.layout import halo_sizes

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["size_of", "size_on"]


def size_on(client: Client, settings: Settings, graph: Manifest) -> RunSize:
    """The counts of the stage ``graph`` on the connected workers."""
    workers = cluster.workers_of(client, settings)
    counts = size_of(graph)
    partitions = graph.facts["partitions"]
    return RunSize(**vars(counts), partitions=partitions, workers=workers)


def size_of(graph: Manifest, labels: Manifest | None = None) -> GraphSize:
    """The counts for a plan, once the graph is partitioned.

    Parameters
    ----------
    graph
        Manifest of the stage.
    labels
        Manifest of the stage ``labels``; None: labels and classes are assumed.
    """
    facts = graph.facts
    size = GraphSize(
        nodes=facts["n_nodes"],
        edges=facts["n_edges"],
        features=facts["n_features"],
        weighted=facts["weighted"],
        diameter=facts.get("effective_diameter"),
        partition_counts=PartitionCounts(
            facts["owned"],
            facts["edges"],
            facts["boundary"],
            halo_sizes(graph),
        ),
        node_bytes=sum(record.bytes for record in graph.named("nodes-")),
    )
    if labels is None:
        return size
    known = labels.facts
    return replace(size, classes=len(known["classes"]), labelled=known["n_labelled"])
