"""Communities detected by Leiden: igraph's on the CPU, or cuGraph's on one GPU.

All edges must fit in one process or on one device; `streamed` contracts larger graphs
first. Both engines maximise the same objective, but cuGraph
moves nodes in parallel: its communities differ from igraph's, and between runs with the
same seed.

References
----------
V. A. Traag, L. Waltman, N. J. van Eck, "From Louvain to Leiden: guaranteeing
well-connected communities", Scientific Reports 9, 5233, 2019.
"""

from __future__ import annotations

import random
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Floats32, Ints
from xnq_dist.core.backend import cugraph, data_frames

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["leiden", "leiden_on_gpu", "number_by_size", "optimise"]

ROUNDS = 10
"""Maximum number of passes; the algorithm ends when a pass changes nothing."""


def _undirected(adjacency: sp.csr_array) -> tuple[NDArray[Any], ...]:
    """Ends and weights of undirected edges: the mean of both directions, above 0."""
    from scipy import sparse

    both = sparse.coo_array(sparse.triu(((adjacency + adjacency.T) / 2).tocsr()))
    # Edges of weight 0 have no effect, and modularity divides by the sum of weights.
    used = both.data > 0
    return both.row[used], both.col[used], both.data[used].astype(np.float64)


def leiden(adjacency: sp.csr_array, resolution: float = 1.0, seed: int = 0) -> Ints:
    """Community of every node, by modularity of the undirected graph.

    The result depends only on the seed and the version of igraph.

    Parameters
    ----------
    adjacency
        Weighted, shape (N, N), by canonical index.
    resolution
        Values above 1 give more and smaller communities.
    seed
        Seed of the random moves.

    Returns
    -------
    Community numbers, shape (N,), by decreasing size, then by the smallest member. A
    node without edges is a community of its own.
    """
    source, target, weights = _undirected(adjacency)
    n_nodes = adjacency.shape[0]
    if not len(weights):
        return np.arange(n_nodes, dtype=np.int64)
    ends = np.column_stack([source, target])
    objective = {"resolution": resolution, "normalize_resolution": True}
    return optimise(n_nodes, ends, weights, seed, **objective)


def optimise(
    n_nodes: int,
    ends: NDArray[np.integer],
    weights: Floats | Floats32,
    seed: int,
    **objective: Any,
) -> Ints:
    """Communities by igraph's Leiden, numbered by size.

    Parameters
    ----------
    ends, weights
        Both ends of every edge, shape (E, 2), and its weight above 0.
    objective
        Arguments of `igraph.GraphBase.community_leiden`.
    """
    igraph = _igraph()
    whole = np.int64 if igraph.INTEGER_SIZE == 64 else np.int32
    edges: Any = ends.astype(whole)
    graph = igraph.GraphBase(n_nodes, memoryview(edges))
    membership = np.arange(n_nodes, dtype=np.int64)
    igraph.set_random_number_generator(random.Random(seed))
    try:
        for _ in range(ROUNDS):
            found, _quality = graph.community_leiden(
                edge_weights=weights,
                n_iterations=1,
                initial_membership=membership.tolist(),
                **objective,
            )
            renumbered = number_by_size(np.asarray(found, np.int64))
            if np.array_equal(renumbered, membership):
                break
            membership = renumbered
    finally:
        # Restore igraph's default, the random module: the old value cannot be read.
        igraph.set_random_number_generator(random)
    return number_by_size(membership)


def _igraph() -> Any:
    """The compiled module of igraph alone: the package imports matplotlib (0.8 s)."""
    name = "igraph._igraph"
    if name not in sys.modules:
        package = find_spec("igraph")
        folders = package.submodule_search_locations if package else None
        spec = PathFinder.find_spec(name, folders)
        if spec is None or spec.loader is None:
            raise ImportError("igraph is not installed: pip install igraph")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def leiden_on_gpu(
    adjacency: sp.csr_array, resolution: float = 1.0, seed: int = 0
) -> Ints:
    """`leiden` by cuGraph; all edges must fit on one device."""
    graphs, frames = cugraph(), data_frames()
    source, target, weights = _undirected(adjacency)
    n_nodes = adjacency.shape[0]
    communities = np.arange(n_nodes, 2 * n_nodes, dtype=np.int64)
    if len(weights):
        ends = {"source": source.astype(np.int32), "target": target.astype(np.int32)}
        graph = graphs.Graph(directed=False)
        graph.from_cudf_edgelist(
            frames.DataFrame({**ends, "weight": weights}),
            source="source",
            destination="target",
            weight="weight",
        )
        table, _ = graphs.leiden(graph, resolution=resolution, random_state=seed)
        # Nodes without edges are not in the table: each stays alone.
        communities[table["vertex"].to_numpy()] = table["partition"].to_numpy()
    return number_by_size(communities)


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
    numbers: Ints = rank[codes.reshape(-1)]
    return numbers
