"""ENQ, ego networks for quantification: the majority label around a node.

It is from the paper that `cdq` names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.blocks import for_each_block
from xnq_dist.core.store import Attempt, Manifest, Stage
from xnq_dist.evaluation.methods.spread import summed
from xnq_dist.evaluation.methods.votes import (
    class_counts,
    draw_from_prior,
    majority,
    majority_order,
)
from xnq_dist.graph.layout import load_partition, read_adjacency

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["enq", "two_hop_votes"]

Array = NDArray[np.float32]

ROWS = 2048
"""Minimum number of nodes in a block, since each block allocates an array of nodes."""


def enq(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    attempt: Attempt,
    labels: NDArray[np.int32],
    n_classes: int,
    hops: int,
    seed: int,
) -> NDArray[np.int32]:
    """Predict the majority training label among the distinct nodes within 1 or 2 hops.

    Hops follow edges backwards, from a node to its in-neighbours, as the reservoir's
    sums do. Every other node counts once, for any number of paths and any weights
    (including 0); the node itself does not count. Ties go to the class with more
    training labels, then to the lower code. A node that reaches no label gets a class
    drawn from the training labels.

    One hop is a neighbourhood sum on the partitions. For two hops, this process must
    hold all edges, 12 bytes per edge, to find distinct neighbours.

    `labels` are as in `votes`. Returns class codes of all nodes, shape (K, N).
    """
    counts = class_counts(labels, n_classes)
    if hops == 1:
        order = majority_order(counts)
        step = EgoMajority(graph, manifest, tuple(map(tuple, order.tolist())))
        arguments = client, graph, manifest, attempt, labels, n_classes, step
        votes = summed(*arguments).T.astype(np.int32)
    else:
        adjacency = read_adjacency(graph, manifest)
        votes = two_hop_votes(adjacency.indptr, adjacency.indices, labels, n_classes)
    return draw_from_prior(votes, counts, seed)


@dataclass(frozen=True)
class EgoMajority:
    """Majority label of each row's distinct in-neighbours, without the node itself."""

    graph: Stage
    manifest: Manifest
    order: tuple[tuple[int, ...], ...]
    """Classes in the order of precedence in ties, for each variant."""

    def __call__(self, number: int, _turn: int, values: Array, sums: Array) -> Array:
        """Class codes, -1 without a labelled in-neighbour, shape (n_owned, K)."""
        order = np.array(self.order)
        partition = load_partition(self.graph, self.manifest, number)
        rows = np.repeat(np.arange(partition.n_owned), np.diff(partition.indptr))
        loops = rows[partition.indices == rows]
        counts = sums.copy()
        counts[loops] -= values[loops]
        blocks = counts.reshape(len(sums), *order.shape)
        votes = [majority(blocks[:, k], order[k]) for k in range(len(order))]
        return np.stack(votes, axis=1).astype(np.float32)


def two_hop_votes(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    labels: NDArray[np.int32],
    n_classes: int,
    threads: int = 1,
) -> NDArray[np.int32]:
    """Majority label among the distinct nodes at one or two hops, -1 if there is none.

    `indptr` and `indices` have the in-neighbours of the complete graph. Threads process
    blocks of nodes.
    """
    order = majority_order(class_counts(labels, n_classes))
    by_node = np.ascontiguousarray(labels.T)
    votes = np.empty_like(by_node)

    def work(first: int, last: int) -> None:
        mark = np.full(len(by_node), -1, np.int32)
        given = by_node, order, first, last, mark, votes[first:last]
        count_two_hops(indptr, indices, *given)

    for_each_block(len(by_node), threads, work, max(ROWS, len(by_node) // 64))
    return np.ascontiguousarray(votes.T)


@njit(cache=True, nogil=True)
def count_two_hops(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    labels: NDArray[np.int32],
    order: NDArray[np.int64],
    first: int,
    last: int,
    mark: NDArray[np.int32],
    votes: NDArray[np.int32],
) -> None:
    """Fill in majority labels within two hops of the nodes first:last.

    `labels` has shape (N, K), `order` (K, C) and `votes` (last - first, K); `mark` is a
    work array of shape (N,), filled with -1.
    """
    variants, classes = order.shape
    counts = np.zeros((variants, classes), np.int64)
    for node in range(first, last):
        counts[:] = 0
        mark[node] = node
        for i in range(indptr[node], indptr[node + 1]):
            near = indices[i]
            if mark[near] != node:
                mark[near] = node
                for k in range(variants):
                    if labels[near, k] >= 0:
                        counts[k, labels[near, k]] += 1
            for j in range(indptr[near], indptr[near + 1]):
                far = indices[j]
                if mark[far] != node:
                    mark[far] = node
                    for k in range(variants):
                        if labels[far, k] >= 0:
                            counts[k, labels[far, k]] += 1
        for k in range(variants):
            best, highest = -1, 0
            for i in range(classes):
                if counts[k, order[k, i]] > highest:
                    best, highest = order[k, i], counts[k, order[k, i]]
            votes[node - first, k] = best
