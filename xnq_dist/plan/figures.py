"""The plan of a run: its figures, and the settings that follow from them.

The expected time follows from six costs and is good to a factor of two. The costs, and
two weights of the work of a superstep, are those of two cores of an AMD EPYC, fitted to
runs of 1,500 to 10 million nodes in one process (``docs/results.md``). Progress within
a stage shows the run's own pace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.need import RunSize, human
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import PLAN, Folder
from xnq_dist.groups.detection import groups_by_all_edges
from xnq_dist.readout.needs import candidates_of, fitted_rows
from xnq_dist.readout.select import UNITS
from xnq_dist.reservoir.context import expected_diameter
from xnq_dist.reservoir.needs import blocks_of, supersteps_of

__all__ = ["Plan", "expected_seconds", "with_cluster"]

FIXED = 4.5
"""Imports, kernels, the report."""
EDGE = 3e-7
"""One directed edge read, sorted and partitioned."""
GROUPED = 2e-6
"""One directed edge in one detection of communities by Leiden."""
VALUE = 7e-10
"""One value added into a sum over neighbours, on one thread."""
BYTE = 9e-9
"""One byte of the run directory written and read again, on one thread."""
ROW = 1.8e-7
"""One value of a labelled row, for one class, in all fits."""

ACCESS = 64
"""Values of a neighbour's state that are added in the time of finding the first."""
UPDATED = 10
"""Values that are added in the time of updating or receiving one value of a state."""
UNDIRECTED = 0.7
"""Directed edges over two for each row of an undirected table, which may list an edge
once or in both directions: the middle, by ratio."""
MEASURED_EDGES = 100_000_000
"""Directed edges of the largest graph that the costs were fitted to."""

EXTRAPOLATED = 10
"""Times are marked as extrapolated for graphs with more than this many times the edges
that were measured."""


@dataclass(frozen=True)
class Plan:
    """Expected memory, disk, traffic and time of a run, made at its start."""

    nodes: int
    edges: int
    partitions: int
    workers: int
    halo_rows: int
    """Rows received by all partitions in a superstep; a bound until partitioned."""
    halo_is_bound: bool
    bytes_per_superstep: int
    """Bytes exchanged between workers in one superstep; a bound until partitioned, and
    where a worker has several partitions."""
    exchanged_bytes: int
    """Bytes exchanged in all supersteps; the first one starts from zeros and exchanges
    nothing."""
    turns: int
    """Runs of reservoirs one after the other, because together they need more memory
    than there is; 1: all together."""
    worker_memory: int
    """Peak bytes of one worker."""
    worker_limit: int
    """Bytes that one worker may use."""
    threads: int
    """Threads of each worker."""
    client_memory: int
    """Peak bytes of the process that reads, partitions and detects communities."""
    run_disk: int
    """Peak bytes of the run directory, checkpoints included."""
    scratch_disk: int
    """Peak bytes of temporary files; a bound until the graph is partitioned."""
    seconds: float | None
    """Expected time, good to a factor of two; None: GPUs, which were not measured."""
    device_memory: int = 0
    """Peak bytes of one worker's GPU; 0: the work runs on CPUs."""
    device_limit: int = 0
    """Bytes of a GPU's memory that one worker may use."""
    client_limit: int | None = None
    """Free bytes of memory when the plan was made; None: not known."""
    kind: str = ""
    """Kind of cluster, `cluster.kind`; ``auto``: this process; empty: not known."""
    choice: str = ""
    """Why `cluster.kind` = ``auto`` means this kind; empty: it was set."""
    ingest_workers: int = 0
    """Workers that read and sort the edges; 0: the main process does."""
    memberships: int | None = None
    """Rows of the memberships; None: assumed one per node."""
    detects: bool = False
    """Whether Leiden detects communities."""
    needs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Bytes that each stage needs, with the fields of `core.need.Need`."""

    def of(self, *stages: str) -> Plan:
        """The figures with the memory of a worker and its GPU for some stages only."""
        peak = {
            of: max(self.needs[stage][of] for stage in stages)
            for of in ("worker", "device")
        }
        return replace(self, worker_memory=peak["worker"], device_memory=peak["device"])

    def lines(self) -> list[tuple[str, str]]:
        """Name and value of each figure that applies, as text."""
        bound = "at most " if self.halo_is_bound else ""
        several = self.partitions > self.workers
        at_most = "at most " if several else bound
        alone = ", which is this process" if self.kind == "auto" else ""
        per_node = self.halo_rows / max(1, self.nodes)
        texts = {
            "nodes": f"{self.nodes:,}",
            "directed edges": f"{bound}{self.edges:,}",
            "partitions on workers": f"{self.partitions} on {self.workers}{alone}",
            "chosen": self.choice,
            "halo rows": f"{bound}{self.halo_rows:,} ({per_node:.2f} a node)",
            "exchanged a superstep": (
                f"{at_most}{human(self.bytes_per_superstep)}, in total "
                f"{human(self.exchanged_bytes)}"
            ),
            "reservoirs": self.turns > 1
            and f"{self.turns}, one after the other: together they do not fit",
            "memory of a worker": (
                f"{human(self.worker_memory)} of {human(self.worker_limit)}"
            ),
            "memory of a GPU": self.device_limit
            and f"{human(self.device_memory)} of {human(self.device_limit)}",
            "memory of the main process": human(self.client_memory),
            "edges read by": self.ingest_workers and f"{self.ingest_workers} workers",
            "disk, run directory": human(self.run_disk),
            "disk, temporary": bound + human(self.scratch_disk),
            "time": self._time(),
        }
        return [(name, str(text)) for name, text in texts.items() if text]

    def _time(self) -> str:
        if self.seconds is None:
            return "not known: GPUs were not measured"
        sure = "within a factor of two"
        if self.edges > EXTRAPOLATED * MEASURED_EDGES:
            sure = "extrapolated, never measured"
        return f"{self.seconds:,.0f} s, {sure}"

    def resolved(self, settings: Settings) -> Settings:
        """The settings with the plan's partitions, cluster kind and local workers."""
        settings = self.placed(settings)
        if not CLUSTERS[settings.cluster.kind].running:
            settings = with_cluster(
                settings,
                workers=self.workers,
                threads=self.threads,
                memory_limit=self.worker_limit,
            )
        return settings.model_copy(update={"partitions": self.partitions})

    def placed(self, settings: Settings) -> Settings:
        """The settings with the kind of cluster that was chosen where they leave it."""
        kind = self.kind
        if settings.cluster.kind != "auto" or not kind:
            return settings
        if kind == "auto":
            return with_cluster(settings, workers=1)
        return with_cluster(settings, kind=kind)

    @classmethod
    def read(cls, folder: Folder) -> Plan | None:
        """The plan in a run directory; None if there is none of this version.

        Raises
        ------
        DamagedError
            When the file is damaged.
        """
        record = folder.read_record(PLAN) or {}
        try:
            return cls(**record["planned"])
        except (KeyError, TypeError):
            return None

    def write(self, folder: Folder) -> None:
        """Write the plan to a run directory."""
        folder.write_record(PLAN, {"planned": asdict(self)})


def with_cluster(settings: Settings, **changed: Any) -> Settings:
    """The settings with other values of the section ``cluster``."""
    cluster = settings.cluster.model_copy(update=changed)
    return settings.model_copy(update={"cluster": cluster})


def expected_seconds(size: RunSize, settings: Settings, run_disk: int) -> float:
    """Expected time of a complete run on CPUs.

    Parameters
    ----------
    size
        Counts of the graph; bounds of edges and diameter are replaced by likely ones.
    run_disk
        Bytes of the run directory.
    """
    size = _likely(size, settings.input.directed)
    busy = min(size.partitions, size.workers.count)
    threads = busy * size.workers.threads
    # Runs of Leiden: coarse groups, fine ones of small graphs, and communities.
    groupings = 1 + groups_by_all_edges(size.edges) + size.detects
    rows = fitted_rows(size) * sum(blocks_of(size, settings)) * size.classes
    return (
        FIXED
        + EDGE * size.edges
        + GROUPED * size.edges * groupings
        + VALUE * _values(size, settings, busy, threads)
        + BYTE * run_disk / (busy * size.lanes)
        + ROW * rows / threads
    )


def _likely(size: RunSize, directed: bool) -> RunSize:
    """The counts with the edges and the diameter that are likely."""
    edges, diameter = size.edges, size.diameter
    if size.partition_counts is None and not directed:
        edges = round(edges * UNDIRECTED)
    if diameter is None:
        diameter = expected_diameter(size.nodes, edges)
    return replace(size, edges=edges, diameter=diameter)


def _values(size: RunSize, settings: Settings, busy: int, threads: int) -> float:
    """Values that a thread adds into sums over neighbours, in the time of all rounds.

    Parameters
    ----------
    busy, threads
        Workers that have a partition, and their threads.
    """
    steps, dim = supersteps_of(size, settings), settings.reservoir.dim
    rounds = (
        (steps.turns * steps.length, steps.units),
        (candidates_of(settings) * steps.length, min(dim, UNITS)),
    )
    edges, rows = size.edges / threads, size.nodes / threads + steps.moves.moved / busy
    return sum(
        count * (edges * (width + ACCESS) + rows * width * UPDATED)
        for count, width in rounds
    )
