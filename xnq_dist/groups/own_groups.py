"""Groups of the graph's nodes, independent of partitions on disk and of workers.

One grouping is by degree. Others are by links: Leiden where one process can hold all
edges, else label propagation on the workers, in rounds. In a round half of the nodes
choose, all from the same labels, the group of most of their in-neighbours; then they
join in a seeded order while the group is below its maximum size. Every step depends
only on the graph and the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core import allocator
from xnq_dist.core.arrays import Ints, Ints32
from xnq_dist.core.blocks import for_each_block
from xnq_dist.core.cluster import threads_each
from xnq_dist.core.random_bits import GAMMA, mix
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.core.waiting import gather
from xnq_dist.graph import layout
from xnq_dist.groups.leiden import leiden, number_by_size
from xnq_dist.groups.modularity import join_communities

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["FINE", "Groups", "degree_groups", "node_groups"]

RESOLUTION = 3.0
"""Resolution of Leiden for the coarse groups."""
FINE = 10.0
"""Resolution for the fine groups, where one process can hold all edges."""
DEGREES = 20
"""Maximum number of groups by degree."""
ROUNDS = 8
"""Rounds of label propagation, each for half of the nodes."""
GROUPS = 200
"""A group has at most 1 / `GROUPS` of the nodes, or `MAX_SIZE` if that is more."""
MAX_SIZE = 100
BLOCK = 1 << 14
"""Nodes that a thread processes at a time."""
FEW = 32
"""Maximum number of neighbours that are sorted by insertion."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of the graph's nodes by several criteria, shape (N,) each."""

    links: tuple[Ints32, ...]
    """By links, numbered by decreasing size; coarse groups, and with Leiden also fine
    ones."""
    degree: Ints32
    """By the number of in-neighbours."""

    @property
    def stacked(self) -> Ints32:
        """All groupings, the coarse one first, shape (L, N)."""
        return np.stack([*self.links, self.degree])


def degree_groups(degree: NDArray[np.integer]) -> Ints32:
    """At most `DEGREES` groups of about equal size, nodes of a degree together.

    Examples
    --------
    >>> degree_groups(np.array([5, 1, 1, 9])).tolist()
    [1, 0, 0, 2]
    """
    ends = np.unique(np.quantile(degree, np.arange(1, DEGREES) / DEGREES))
    bins = np.searchsorted(ends, degree, side="left")
    return np.unique(bins, return_inverse=True)[1].astype(np.int32)


def node_groups(
    stage: Stage, graph: Manifest, settings: Settings, attempt: Attempt, client: Client
) -> Groups:
    """Compute the groups of the graph's nodes, with tasks on the workers.

    The client holds all edges for Leiden, else about 28 bytes per node. The files of
    the rounds are in `attempt` until they are read.
    """
    n_nodes, n_edges = int(graph.facts["n_nodes"]), int(graph.facts["n_edges"])
    if not n_edges:
        one_group = np.zeros(n_nodes, np.int32)
        return Groups((one_group,), one_group)
    degree = np.empty(n_nodes, np.int32)
    _by_partition(degrees, stage, graph, attempt, client, degree)
    by_degree = degree_groups(degree)
    if n_edges <= settings.auto.reference_edges:
        allocator.release()  # what METIS left
        adjacency = layout.read_adjacency(stage, graph)
        by_links = tuple(
            leiden(adjacency, resolution, settings.seed).astype(np.int32)
            for resolution in (RESOLUTION, FINE)
        )
        return Groups(by_links, by_degree)
    by_link = _propagated(stage, graph, settings.seed, attempt, client)
    return Groups((by_link,), by_degree)


def _propagated(
    stage: Stage, graph: Manifest, seed: int, attempt: Attempt, client: Client
) -> Ints32:
    n_nodes = int(graph.facts["n_nodes"])
    label = np.arange(n_nodes, dtype=np.int32)
    weight, each = np.ones(n_nodes, np.int64), np.ones(n_nodes, np.int64)
    limit = max(MAX_SIZE, n_nodes // GROUPS)
    threads = threads_each(client, int(graph.facts["partitions"]))
    for turn in range(ROUNDS):
        record = attempt.write_arrays(f"labels-{turn}", label=label)
        choice = label.copy()
        more = {"labels": record, "seed": seed, "turn": turn, "threads": threads}
        _by_partition(choose_groups, stage, graph, attempt, client, choice, **more)
        attempt.folder.delete(record.name)
        join_communities(0, choice, each, label, weight, limit)
    return number_by_size(label).astype(np.int32)


def _by_partition(
    task: Callable[..., FileRecord],
    stage: Stage,
    graph: Manifest,
    attempt: Attempt,
    client: Client,
    values: Ints32,
    **more: Any,
) -> None:
    """Fill in one value per node, computed by one task per partition."""
    index, files = layout.node_index(stage, graph), Stage(attempt.folder, "groups")
    made = client.map(
        partial(task, stage=stage, graph=graph, attempt=attempt, **more),
        range(len(index)),
        pure=False,
    )
    for rows, record in zip(index, gather(client, made), strict=True):
        values[rows] = files.read_arrays(record)["values"]
        attempt.folder.delete(record.name)


def degrees(number: int, stage: Stage, graph: Manifest, attempt: Attempt) -> FileRecord:
    """Count the in-neighbours of one partition's nodes; run on a worker."""
    part = layout.load_partition(stage, graph, number)
    degree = np.diff(part.indptr).astype(np.int32)
    return attempt.write_arrays(f"degree-{number:05d}", values=degree)


def choose_groups(
    number: int,
    stage: Stage,
    graph: Manifest,
    attempt: Attempt,
    labels: FileRecord,
    seed: int,
    turn: int,
    threads: int,
) -> FileRecord:
    """Choose groups for the nodes of one partition in one round; run on a worker.

    `labels` has the group of every node before the round. `seed` and `turn` determine
    which half of the nodes chooses, and which of two groups with equal votes wins.
    """
    part = layout.load_partition(stage, graph, number)
    index = layout.node_index(stage, graph)
    columns = np.concatenate([index[number], np.concatenate(index)[part.halo]])
    label = Stage(attempt.folder, "groups").read_arrays(labels)["label"]
    edges = part.indptr.astype(np.int64), part.indices, columns, label
    choice = np.empty(part.n_owned, np.int32)

    def work(first: int, last: int) -> None:
        _choose(*edges, seed, turn, first, choice[first:last])

    for_each_block(len(choice), threads, work, BLOCK)
    return attempt.write_arrays(f"choice-{turn}-{number:05d}", values=choice)


@njit(cache=True, nogil=True)
def _mixed(value: int, seed: int) -> np.uint64:
    return mix((np.uint64(value) + np.uint64(1)) * GAMMA + np.uint64(seed))


@njit(cache=True, nogil=True)
def _sort_few(values: Ints32) -> None:
    """Sort by insertion, which is faster for few values."""
    for at in range(1, len(values)):
        value, to = values[at], at
        while to and values[to - 1] > value:
            values[to] = values[to - 1]
            to -= 1
        values[to] = value


@njit(cache=True, nogil=True)
def _choose(
    indptr: Ints,
    indices: Ints32,
    columns: Ints,
    label: Ints32,
    seed: int,
    turn: int,
    first: int,
    choice: Ints32,
) -> None:
    """Group that rows from `first` on choose: by votes, current group, then hash."""
    for chosen in range(len(choice)):
        row = first + chosen
        v = columns[row]
        choice[chosen] = label[v]
        if (_mixed(v, seed + turn // 2) & np.uint64(1)) != np.uint64(turn % 2):
            continue
        candidates = np.empty(indptr[row + 1] - indptr[row], np.int32)
        size = 0
        for i in range(indptr[row], indptr[row + 1]):
            if indices[i] != row:
                candidates[size] = label[columns[indices[i]]]
                size += 1
        votes = candidates[:size]
        if size > FEW:
            votes = np.sort(votes)
        else:
            _sort_few(votes)
        best, max_votes = label[v], 0
        at = 0
        while at < size:
            end = at
            while end < size and votes[end] == votes[at]:
                end += 1
            better: bool | np.bool_ = end - at > max_votes
            if end - at == max_votes and best != label[v]:
                better = votes[at] == label[v] or (
                    _mixed(votes[at], seed) > _mixed(best, seed)
                )
            if better:
                best, max_votes = votes[at], end - at
            at = end
        choice[chosen] = best
