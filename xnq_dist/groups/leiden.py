"""Communities detected by Leiden, when the user names none.

This needs all edges in one process: igraph holds the whole graph. For a graph that is
too large for that, communities must be given.

References
----------
V. A. Traag, L. Waltman, N. J. van Eck, "From Louvain to Leiden: guaranteeing
well-connected communities", Scientific Reports 9, 5233, 2019.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["leiden", "number_by_size"]

ROUNDS = 10
"""Most passes of the algorithm; it ends earlier when a pass changes nothing."""


def leiden(
    adjacency: sp.csr_array, resolution: float = 1.0, seed: int = 0
) -> NDArray[np.int64]:
    """Community of every node; needs all edges in one process.

    Modularity of the undirected view: the weight between two nodes is the mean of
    both directions. The answer depends on the seed and on the version of igraph alone.

    Parameters
    ----------
    adjacency
        Weighted, shape (N, N), by canonical index.
    resolution
        Above 1 for more and smaller communities.
    seed
        Of the random moves.

    Returns
    -------
    Shape (N,): 0 for the largest community, and so on; of equals the one with the
    smallest member first. A node without edges is a community of its own.
    """
    import igraph

    both = sp.coo_array(sp.triu(((adjacency + adjacency.T) / 2).tocsr()))
    # Edges without weight join nobody, and modularity divides by their sum.
    there = both.data > 0
    pairs = np.column_stack([both.row[there], both.col[there]])
    n_nodes = adjacency.shape[0]
    if not pairs.shape[0]:
        return np.arange(n_nodes, dtype=np.int64)
    graph = igraph.Graph(n_nodes, pairs)
    membership = np.arange(n_nodes, dtype=np.int64)
    with _seeded(seed):
        for _ in range(ROUNDS):
            found = graph.community_leiden(
                objective_function="modularity",
                weights=both.data[there].astype(np.float64),
                resolution=resolution,
                n_iterations=1,
                initial_membership=membership.tolist(),
            )
            renumbered = number_by_size(np.asarray(found.membership, np.int64))
            if np.array_equal(renumbered, membership):
                break
            membership = renumbered
    return number_by_size(membership)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """A random stream of igraph's own, from the seed; Python's again afterwards."""
    import igraph

    igraph.set_random_number_generator(random.Random(seed))
    try:
        yield
    finally:
        # igraph starts with Python's module, and cannot say what is set.
        igraph.set_random_number_generator(random)


def number_by_size(labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """Communities numbered by falling size, then by their smallest member.

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
    numbers: NDArray[np.int64] = rank[codes.reshape(-1)]
    return numbers
