"""Communities detected by graspologic's Leiden.

All edges must fit in one process; `detection` contracts larger graphs first.

References
----------
V. A. Traag, L. Waltman, N. J. van Eck, "From Louvain to Leiden: guaranteeing
well-connected communities", Scientific Reports 9, 5233, 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["leiden", "number_by_size", "optimise"]

STARTS, FIRST_PASSES, PASSES = 4, 2, 10
"""Starts, passes over the graph from each, and from the one of highest modularity: a
single start was up to 2 % below another, and 10 passes from 3 starts were no better."""
ROUNDING = 1e-6
"""Share of a node's strength that may be missing among its edges, as they are rounded
to single precision."""


def leiden(
    adjacency: sp.csr_array,
    resolution: float = 1.0,
    seed: int = 0,
    quick: bool = False,
) -> Ints:
    """Community of every node, by modularity of the undirected graph.

    The result depends only on the seed and the version of graspologic-native.

    Parameters
    ----------
    adjacency
        Weighted, shape (N, N), by canonical index.
    resolution
        Values above 1 give more and smaller communities.
    seed
        Seed of the random moves.
    quick
        Stop after the first passes from one start, at about 1 % lower modularity.

    Returns
    -------
    Community numbers, shape (N,), by decreasing size, then by the smallest member. A
    node without edges is a community of its own.
    """
    from scipy import sparse

    # Both directions of edges, with the mean of their weights.
    both = sparse.csr_array(((adjacency + adjacency.T) / 2).astype(np.float64))
    loops = both.diagonal()
    both.setdiag(0)
    # Edges of weight 0 have no effect, and modularity divides by the sum of weights.
    both.eliminate_zeros()
    both.sort_indices()
    # A loop counts twice.
    strength = both.sum(axis=1) + 2 * loops
    return optimise(both, strength, resolution, seed, quick)


def optimise(
    edges: sp.csr_array,
    strength: Floats,
    resolution: float,
    seed: int,
    quick: bool = False,
) -> Ints:
    """Communities by graspologic's Leiden, numbered by size.

    Parameters
    ----------
    edges
        Symmetric, without loops, weights above 0, sorted rows.
    strength
        Sum of the weights of a node's edges, loops counted twice, shape (N,).
    """
    from graspologic_native import leiden_csr

    n_nodes = len(strength)
    graph = _with_loops(edges, strength)
    if not graph.nnz:
        return np.arange(n_nodes, dtype=np.int64)
    pointers, columns = graph.indptr.astype(np.int64), graph.indices.astype(np.int32)
    arrays = pointers, columns, graph.data.astype(np.float64), graph.shape[0]

    def run(seed: int, passes: int) -> Any:
        """Modularity, and the community of each node by its number."""
        return leiden_csr(*arrays, resolution=resolution, iterations=passes, seed=seed)

    seeds = np.random.SeedSequence(seed).generate_state(STARTS, np.uint64).tolist()
    if quick:
        _quality, found = run(seeds[0], FIRST_PASSES)
    else:
        # One after the other: each start holds a copy of the graph.
        best = max(seeds, key=lambda each: run(each, FIRST_PASSES)[0])
        # The same seed takes the same passes again: the library continues none.
        _quality, found = run(best, PASSES)
    return number_by_size(np.fromiter(map(found.get, range(n_nodes)), np.int64))


def _with_loops(edges: sp.csr_array, strength: Floats) -> sp.csr_array:
    """The graph with an additional neighbour of each node with loops, in their place.

    The library ignores loops. An additional node with no other edge joins its
    neighbour's community, where it counts as a loop does.
    """
    from scipy import sparse

    loops = (strength - edges.sum(axis=1)) / 2
    looped = np.flatnonzero(loops > ROUNDING * strength)
    if not len(looped):
        return edges
    count = len(looped)
    places = looped, np.arange(count)
    added = sparse.csr_array((loops[looped], places), shape=(len(strength), count))
    below: Any = sparse.hstack([added.T, sparse.csr_array((count, count))])
    return sparse.csr_array(sparse.vstack([sparse.hstack([edges, added]), below]))


def number_by_size(labels: NDArray[np.integer]) -> Ints:
    """Number communities by decreasing size, then by their smallest member.

    Examples
    --------
    >>> number_by_size(np.array([7, 3, 3, 9, 3, 9])).tolist()
    [2, 0, 0, 1, 0, 1]
    """
    _, smallest, codes, sizes = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.lexsort((smallest, -sizes))] = np.arange(len(sizes))
    return rank[codes]
