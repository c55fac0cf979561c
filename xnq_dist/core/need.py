"""What a run is planned from, and what a stage states that it needs.

Each stage's room has a function ``needs(size, settings)``; `xnq_dist.plan` adds up what
they return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Cut", "GraphSize", "Need", "RunSize", "Work", "Workers", "added", "scaled"]

Work = Mapping[str, float]
"""Units of work by the name of their cost, as in `plan.unit_costs.Costs`."""


@dataclass(frozen=True)
class Cut:
    """What the stage ``graph`` tells of its partitions; all shapes (P,), or (P, P)."""

    owned: Sequence[int]
    edges: Sequence[int]
    boundary: Sequence[int]
    """Rows that any other partition wants of each."""
    halo_sizes: Sequence[Sequence[int]]
    """Halo rows of each (owner, reader)."""
    needed: Sequence[Sequence[int]] | None = None
    """Rows of each owner that each worker needs of it, shape (P, workers), where
    somebody has looked; see `context.needed_rows`."""


@dataclass(frozen=True)
class GraphSize:
    """Counts of a graph."""

    nodes: int
    edges: int
    """Directed; an upper bound while reversed edges are not yet counted."""
    features: int
    classes: int = 2
    labelled: int | None = None
    halo: Sequence[int] | None = None
    """Halo rows of each partition, once the graph is partitioned."""
    node_bytes: int | None = None
    """Bytes that the node table takes on a disk, compressed; None: as if features did
    not compress."""
    cut: Cut | None = None
    """The partitions' counts, once there are partitions."""
    diameter: int | None = None
    """Effective diameter, once it is known and asked for; else as many supersteps as
    ``auto`` may take."""
    weighted: bool = False
    """Whether edges have weights."""
    memberships: int | None = None
    """Rows of the memberships; None: one a node."""
    id_text: float = 0.0
    """Mean bytes of a node's id that is a string; 0: ids are integers."""


@dataclass(frozen=True)
class Workers:
    """Who will do the work."""

    count: int
    threads: int
    memory: int
    """Bytes one worker may use."""
    device: int = 0
    """Bytes of a GPU's memory that one worker may use; 0: CPUs do the work."""
    ingest: int = 0
    """Bytes of a GPU's memory that the reading of edges may use; 0: a CPU reads."""


@dataclass(frozen=True)
class RunSize(GraphSize):
    """Counts of a graph, and who works on it."""

    partitions: int = 1
    workers: Workers = field(default=Workers(1, 1, 2**40))
    detects: bool = False
    """Whether Leiden detects the communities, with all edges in one process."""

    @classmethod
    def of(
        cls, graph: GraphSize, partitions: int, workers: Workers, detects: bool = False
    ) -> RunSize:
        """The counts of a graph, for so many partitions on these workers."""
        placed = {"partitions": partitions, "workers": workers, "detects": detects}
        return cls(**{**vars(graph), **placed})

    @property
    def per_worker(self) -> int:
        """Most partitions of a worker."""
        return -(-self.partitions // self.workers.count)

    @property
    def lanes(self) -> int:
        """Tasks that run in parallel in a worker, one a partition."""
        return min(self.per_worker, self.workers.threads)

    @property
    def busy(self) -> int:
        """Workers that have a partition."""
        return min(self.partitions, self.workers.count)

    @property
    def slots(self) -> int:
        """Tasks that run in parallel in all workers."""
        return self.lanes * self.busy

    @property
    def known(self) -> int:
        """Labelled nodes; all, while they are not counted."""
        return self.nodes if self.labelled is None else self.labelled

    @property
    def members(self) -> int:
        """Memberships; one a node, while they are not counted."""
        return self.nodes if self.memberships is None else self.memberships


@dataclass(frozen=True)
class Need:
    """What a stage takes; bytes are those of its peak."""

    worker: int = 0
    """Of one worker's memory."""
    client: int = 0
    """Of the memory of the process that reads, partitions and detects."""
    device: int = 0
    """Of one worker's GPU."""
    disk: int = 0
    """Of the run directory, what earlier stages keep left out."""
    kept: int = 0
    """Of the run directory, once the stage is complete."""
    scratch: int = 0
    """Of temporary files."""
    work: Mapping[str, Work] = field(default_factory=dict)
    """Work by the line of the plan that its seconds belong to."""

    def to_dict(self) -> dict[str, Any]:
        """The bytes, JSON-able."""
        return {name: n for name, n in asdict(self).items() if name != "work"}


def added(*works: Work) -> dict[str, float]:
    """Work of several parts together."""
    total: dict[str, float] = {}
    for work in works:
        for cost, units in work.items():
            total[cost] = total.get(cost, 0.0) + units
    return total


def scaled(work: Work, factor: float) -> dict[str, float]:
    """Work done so many times, or a share of it."""
    return {cost: units * factor for cost, units in work.items()}
