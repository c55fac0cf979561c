"""Counts of a partitioned graph for the plan; volume and memory of halo exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from xnq_dist.core import cluster
from xnq_dist.core.need import GraphSize, PartitionCounts, RunSize
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest
from xnq_dist.graph.layout import halo_sizes
from xnq_dist.graph.needs import random_halo
from xnq_dist.reservoir.context import place

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "GROUP",
    "WORKER",
    "Volume",
    "max_volume",
    "memory_need",
    "size_of",
    "size_on",
    "volume",
]

WORKER = 500 * 2**20
"""Bytes of a worker process with its libraries and compiled kernels loaded (527 MiB in
all on Cora)."""
GROUP = 32 << 20
"""Bytes of states written to or read from a table at a time."""
SLACK = 1.1
"""Assumed largest partition over the mean, before partitioning."""


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


@dataclass(frozen=True)
class Volume:
    """Rows of states that supersteps on several workers hold and exchange."""

    moved: int
    """Rows exchanged between all workers in one superstep."""
    held: int
    """Maximum rows of sent and received blocks that one worker holds at a time."""
    picked: int
    """Maximum halo rows of a partition, in local order."""
    owned: int
    """Maximum nodes of one worker."""
    largest: int
    """Maximum nodes of one partition."""
    edges: int
    """Maximum edges of one worker."""


def volume(counts: PartitionCounts, workers: int) -> Volume:
    """The volume of a known partitioning, with its placement on workers.

    A row is sent once to each worker that needs it. Several partitions of a worker may
    need the same rows: then `moved` is an upper bound.
    """
    at = np.array(place(counts.edges, range(workers)))
    # In float64, which is exact up to 2^53, because products of integers are slow.
    here = np.asarray(at[:, None] == np.arange(workers), np.float64)
    sizes = np.asarray(counts.halo_sizes, np.float64)
    received = np.minimum(sizes @ here, np.reshape(counts.boundary, (-1, 1)))
    received *= 1 - here
    arriving, sent = received.sum(axis=0), received.sum(axis=1) @ here
    return Volume(
        int(arriving.sum()),
        # A message to each other worker may be under way, at most all that is sent, and
        # senders may be one superstep ahead of the reader.
        int((sent + 2 * arriving).max()),
        int(sizes.sum(axis=0).max()),
        int((counts.owned @ here).max()),
        max(counts.owned),
        int((counts.edges @ here).max()),
    )


def max_volume(
    nodes: int,
    edges: int,
    partitions: int,
    workers: int,
) -> Volume:
    """Upper bound before partitioning: the volume of a random partitioning.

    Better partitionings stay below it. All degrees are assumed equal to their mean,
    which gives an upper bound because both counts are concave in the degree (Jensen).
    """
    per_worker = -(-partitions // workers)
    busy = min(workers, partitions)
    largest = int(nodes / partitions * SLACK)
    max_edges = int(edges / partitions * SLACK)
    picked = random_halo(nodes, edges, partitions) // partitions
    # Workers act as partitions: a row is sent once to each.
    moved = random_halo(nodes, edges, busy)
    held = int(3 * moved / busy)
    owned, on_worker = per_worker * largest, per_worker * max_edges
    return Volume(moved, held, picked, owned, largest, on_worker)


def memory_need(moves: Volume, dim: int, item: int, at_once: int) -> int:
    """Bytes of a worker's supersteps, without the input drive.

    `item`: bytes of a value as stored and exchanged. `at_once`: partitions whose halo
    rows are in local order at a time.
    """
    # States before and after; halo rows as blocks and in local order.
    rows = 2 * moves.owned + moves.held + at_once * moves.picked
    topology = moves.edges * 8 + moves.owned * 16 + moves.picked * 16
    return rows * dim * item + topology
