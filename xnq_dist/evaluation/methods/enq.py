"""ENQ, ego networks for quantification: the majority label around a node.

References
----------
L. Milli, A. Monreale, G. Rossetti, D. Pedreschi, F. Giannotti, F. Sebastiani,
"Quantification in social networks", IEEE International Conference on Data Science and
Advanced Analytics (DSAA), 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.blocks import for_each_block
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.store import Attempt, Manifest, Stage
from xnq_dist.evaluation.methods.spread import NodeFiles, OneHot, node_files
from xnq_dist.evaluation.methods.votes import (
    check_labels,
    class_counts,
    draw_from_prior,
    majority,
    majority_order,
)
from xnq_dist.graph.layout import load_partition, read_adjacency
from xnq_dist.reservoir.propagation import load_values, propagate

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["enq", "two_hop_votes"]

Array = NDArray[np.float32]

ROWS = 2048
"""Fewest nodes of a block: each block marks nodes in an array of its own."""


def enq(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    attempt: Attempt,
    labels: NDArray[np.integer],
    n_classes: int,
    hops: int,
    seed: int,
    threads: int = 1,
) -> NDArray[np.int32]:
    """Majority training label among the distinct nodes within so many hops.

    Hops follow edges backwards, from a node to its in-neighbours, as the reservoir's
    sums do. Every other node counts once, whatever weights or paths lead to it (an
    edge of weight 0 is an edge); the node itself is left out. Ties go to the class
    with more training labels, then to the lower code. A node that reaches no label
    gets a class drawn from the training labels.

    One hop is a neighbourhood sum on the partitions. Two hops are exact distinct
    neighbourhoods: they need all edges in this process, 12 bytes an edge.

    Parameters
    ----------
    client, graph, manifest
        Where to compute, and the stage ``graph``.
    attempt
        Where files go meanwhile.
    labels
        Training labels, K variants side by side, -1 hidden, shape (K, N).
    n_classes
        C.
    hops
        1 or 2.
    seed
        Of the draws.
    threads
        Threads of this process for two hops.

    Returns
    -------
    Class codes of all nodes, shape (K, N).

    Raises
    ------
    InputError
        For labels that cannot be.
    SettingsError
        For another number of hops.
    """
    if hops not in (1, 2):
        raise SettingsError(f"ENQ with {hops} hops is not defined here: choose 1 or 2")
    labels = check_labels(labels, int(manifest.facts["n_nodes"]), n_classes)
    counts = class_counts(labels, n_classes)
    if hops == 1:
        votes = _one_hop(client, graph, manifest, attempt, labels, counts)
    else:
        adjacency = read_adjacency(graph, manifest)
        votes = two_hop_votes(
            adjacency.indptr, adjacency.indices, labels, n_classes, threads
        )
    return draw_from_prior(votes, counts, seed)


def _one_hop(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    attempt: Attempt,
    labels: NDArray[np.int32],
    counts: NDArray[np.int64],
) -> NDArray[np.int32]:
    order = majority_order(counts)
    with node_files(graph, manifest, attempt, "enq-labels", labels=labels) as files:
        start = OneHot(files, counts.shape[1])
        step = EgoMajority(graph, manifest, files, tuple(map(tuple, order.tolist())))
        kept = propagate(
            client, graph, manifest, start, step, 1, attempt, "enq", weighted=False
        )
    votes = load_values(Stage(attempt.folder, "enq"), kept[1], graph, manifest)
    for record in kept[1]:
        attempt.folder.delete(record.name)
    return votes.T.astype(np.int32)


@dataclass(frozen=True)
class EgoMajority:
    """Majority label of each row's distinct in-neighbours, itself left out."""

    graph: Stage
    manifest: Manifest
    files: NodeFiles
    order: tuple[tuple[int, ...], ...]
    """Classes in the order in which they win ties, for each variant."""

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
    """Majority label among the distinct nodes at one or two hops, shape (K, N).

    Parameters
    ----------
    indptr, indices
        In-neighbours of each node: the rows of the whole adjacency.
    labels
        Training labels, shape (K, N).
    n_classes
        C.
    threads
        Blocks of nodes worked on at a time.

    Returns
    -------
    Class codes, -1 where no label is reached.
    """
    order = majority_order(class_counts(labels, n_classes))
    by_node = np.ascontiguousarray(labels.T)
    votes = np.empty_like(by_node)

    def work(first: int, last: int) -> None:
        mark = np.full(len(by_node), -1, np.int32)
        count_two_hops(
            indptr, indices, by_node, order, first, last, mark, votes[first:last]
        )

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
    """Majority labels within two hops of the nodes first:last.

    Parameters
    ----------
    indptr, indices
        In-neighbours of each node.
    labels
        Shape (N, K).
    order
        Classes in the order in which they win ties, shape (K, C).
    mark
        Scratch, shape (N,), filled with -1.
    votes
        Shape (last - first, K), overwritten.
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
            best, most = -1, 0
            for i in range(classes):
                if counts[k, order[k, i]] > most:
                    best, most = order[k, i], counts[k, order[k, i]]
            votes[node - first, k] = best
