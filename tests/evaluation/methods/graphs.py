"""Small random graphs with weights, self-loops, isolated nodes and ties."""

from __future__ import annotations

import networkx as nx
import numpy as np
from scipy.sparse import csr_array


def random_graph(
    nodes: int = 140, edges: int = 420, seed: int = 0
) -> tuple[nx.DiGraph, csr_array]:
    """A graph (edge u -> v: u votes for v) and its matrix of in-neighbours.

    The last ten nodes have no edges; some weights are 0; there are self-loops.
    """
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, nodes - 10, (edges, 2))
    pairs[:8, 1] = pairs[:8, 0]
    pairs = np.unique(pairs, axis=0)
    weights = rng.integers(0, 4, len(pairs)) / 2
    network = nx.DiGraph()
    network.add_nodes_from(range(nodes))
    network.add_weighted_edges_from(
        (int(u), int(v), float(w)) for (u, v), w in zip(pairs, weights, strict=True)
    )
    order = np.lexsort((pairs[:, 0], pairs[:, 1]))
    offsets = np.searchsorted(pairs[order, 1], np.arange(nodes + 1))
    values = weights[order].astype(np.float32), pairs[order, 0], offsets
    return network, csr_array(values, shape=(nodes, nodes))


def hide(nodes: int, classes: int, shown: float, seed: int = 1) -> np.ndarray:
    """Training labels of a part of the nodes, -1 elsewhere."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, nodes)
    return np.where(rng.random(nodes) < shown, truth, -1).astype(np.int32)


def tie_order(labels: np.ndarray, classes: int) -> list[int]:
    """Classes by falling number of training labels; of equals, the lower code first."""
    return sorted(range(classes), key=lambda c: (-(labels == c).sum(), c))


def plain_majority(codes: list[int], labels: np.ndarray, classes: int) -> int:
    """The most frequent code, -1 if there are no codes."""
    if not codes:
        return -1
    return max(tie_order(labels, classes), key=codes.count)
