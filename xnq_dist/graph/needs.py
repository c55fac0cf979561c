"""Memory and disk of the stage ``graph``.

The formulas for temporary files follow what `sort`, `csr`, `features` and `prepare`
write to the scratch folder.
"""

from __future__ import annotations

from xnq_dist.core.need import GraphSize, Need, RunSize
from xnq_dist.core.settings import Settings
from xnq_dist.graph.partition import METIS_EDGE, metis_memory
from xnq_dist.graph.sort import KEY

__all__ = [
    "client_bytes",
    "copies",
    "graph_scratch",
    "halo_rows",
    "needs",
    "random_halo",
    "sort_scratch",
    "task_bytes",
]

CLIENT = 400 * 2**20
"""Bytes of the client process after it has loaded its libraries."""
SORT_PAIR = 40
"""Bytes of a pair during the sort, up to `input.memory` in total."""
INDEX = 4
"""Bytes of a neighbour, a weight, a feature or a row number."""
HALO = 8
"""Bytes of a halo row's global id, and of a row pointer."""
VALUE = 8
"""Bytes of a decoded value."""


def needs(size: RunSize, settings: Settings) -> Need:
    """Needs of reading, sorting and partitioning, in one process."""
    memory = settings.input.memory_bytes
    sorting = min(memory, size.edges * SORT_PAIR)
    node_disk = size.node_bytes
    if node_disk is None:
        node_disk = size.nodes * (size.features * 4 + 12)
    # A score with gaps has two columns.
    scores = size.nodes * INDEX * 2 * len(settings.columns.scores)
    disk = node_disk + size.nodes * 12 + scores + size.edges * 4
    step = max(sorting, _partitioning(size, settings))
    return Need(
        # Sorting and partitioning run one after the other; scores stay meanwhile.
        client=client_bytes(size, step + scores),
        disk=disk,
        kept=disk,
        scratch=graph_scratch(size, halo_rows(size)),
    )


def client_bytes(size: RunSize, peak: float) -> int:
    """Bytes of the client's memory, where its largest step takes `peak` bytes."""
    return int(CLIENT + size.nodes * 100 + peak)


def task_bytes(nodes: int, edges: int, threads: int) -> int:
    """Bytes of a worker that reads edges, without the buffers of the sort.

    Ids with their look-up and the book of the partitions, once; for each task what
    `partition_files` needs. `edges`: of a partition.
    """
    return CLIENT + 100 * nodes + threads * (5 * nodes + 16 * edges)


def copies(size: GraphSize, settings: Settings) -> int:
    """Bytes of the decoded tables, which stay to the end, with integers as ids."""
    rows = size.edges if settings.input.directed else size.edges // 2
    values = rows * (2 + size.weighted) + size.nodes * (2 + size.features)
    return VALUE * (values + 2 * (size.memberships or 0))


def _partitioning(size: RunSize, settings: Settings) -> int:
    """Memory in bytes of the partitioner that is set, or that ``auto`` chooses."""
    if size.partitions == 1:
        return 0
    memory, name = settings.input.memory_bytes, settings.partitioner
    if name in ("auto", "metis"):
        symmetric = not settings.input.directed
        metis = metis_memory(size.nodes, size.edges, symmetric)
        if name == "metis" or metis <= memory:
            return metis
    if name in ("auto", "stream"):
        return min(memory, size.edges * METIS_EDGE)
    return 0


def halo_rows(size: RunSize) -> int:
    """Halo rows of all partitions; before partitioning, those of a random one."""
    if size.partition_counts is not None:
        return int(size.partition_counts.halo_sizes.sum())
    return random_halo(size.nodes, size.edges, size.partitions)


def random_halo(nodes: int, edges: int, partitions: int) -> int:
    """Expected halo rows of a random partition, from the mean degree.

    ``(P - 1) N (1 - (1 - 1/P)^degree)``; concave in the degree, so the mean degree
    gives an upper bound for any degrees (Jensen), and better partitioners stay below.
    """
    degree = edges / max(nodes, 1)
    return int((partitions - 1) * nodes * (1 - (1 - 1 / partitions) ** degree))


def sort_scratch(pairs: int, weighted: bool = False) -> int:
    """Bytes of sorted runs on disk, with reverses."""
    return pairs * KEY * (2 if weighted else 1)


def graph_scratch(size: GraphSize, halo: int) -> int:
    """Peak bytes of temporary files while a graph is read and partitioned.

    Runs stay until the adjacency is written from them. Later the adjacency with its row
    pointers, the features and the partitions' halos exist at the same time, until all
    partitions are written.

    Edges are directed, with added reverses; `halo`: rows of all partitions.
    """
    adjacency = size.edges * INDEX * (2 if size.weighted else 1)
    features = size.nodes * INDEX * (size.features + 1)
    later = adjacency + features + HALO * halo
    sorting = sort_scratch(size.edges, size.weighted) + adjacency
    return max(sorting, later) + HALO * (size.nodes + 1)
