"""Communities detected by Leiden: igraph's on the CPU, or cuGraph's on one GPU.

All edges must fit in one process, or on one device; for a larger graph communities
must be given. Both engines maximise the same objective, but cuGraph's moves run in
parallel: its communities differ, also from one run to the next with the same seed.

References
----------
V. A. Traag, L. Waltman, N. J. van Eck, "From Louvain to Leiden: guaranteeing
well-connected communities", Scientific Reports 9, 5233, 2019.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.backend import cugraph, data_frames
from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.config import Settings
from xnq_dist.core.errors import SettingsError
from xnq_dist.graph.arrays import Ints

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["detect", "engine_of", "leiden", "number_by_size"]

log = logging.getLogger(__name__)

ROUNDS = 10
"""Maximum number of passes; the algorithm ends when a pass changes nothing."""


def engine_of(settings: Settings) -> Literal["igraph", "cugraph"]:
    """The engine: as set; with auto, cuGraph on a cluster of GPUs that has it.

    Raises
    ------
    SettingsError
        When `leiden.engine` is ``cugraph`` and the package or a device is missing.
    """
    wanted = settings.leiden.engine
    if wanted == "cugraph":
        cugraph()
        return wanted
    if wanted == "auto" and CLUSTERS.record_of(settings.cluster.kind).gpu:
        try:
            cugraph()
        except SettingsError as error:
            log.warning("communities are detected on the CPU: %s", error)
        else:
            return "cugraph"
    return "igraph"


def detect(adjacency: sp.csr_array, resolution: float, settings: Settings) -> Ints:
    """Community of every node as by `leiden`, by the engine of the settings."""
    on_gpu = engine_of(settings) == "cugraph"
    return (leiden_on_gpu if on_gpu else leiden)(adjacency, resolution, settings.seed)


def _undirected(adjacency: sp.csr_array) -> tuple[NDArray[Any], ...]:
    """Ends and weight of each pair: the mean of both directions, above 0."""
    from scipy import sparse

    both = sparse.coo_array(sparse.triu(((adjacency + adjacency.T) / 2).tocsr()))
    # Edges without weight join nobody, and modularity divides by their sum.
    there = both.data > 0
    return both.row[there], both.col[there], both.data[there].astype(np.float64)


def leiden(adjacency: sp.csr_array, resolution: float = 1.0, seed: int = 0) -> Ints:
    """Community of every node, by modularity of the undirected view.

    The answer depends on the seed and on the version of igraph alone.

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
    Shape (N,), numbered by falling size, ties by the smallest member. A node without
    edges is a community of its own.
    """
    import igraph

    source, target, weights = _undirected(adjacency)
    n_nodes = adjacency.shape[0]
    membership = np.arange(n_nodes, dtype=np.int64)
    if not len(weights):
        return membership
    graph = igraph.Graph(n_nodes, np.column_stack([source, target]))
    igraph.set_random_number_generator(random.Random(seed))
    try:
        for _ in range(ROUNDS):
            found = graph.community_leiden(
                objective_function="modularity",
                weights=weights,
                resolution=resolution,
                n_iterations=1,
                initial_membership=membership.tolist(),
            )
            renumbered = number_by_size(np.asarray(found.membership, np.int64))
            if np.array_equal(renumbered, membership):
                break
            membership = renumbered
    finally:
        # igraph starts with Python's module, and cannot say what is set.
        igraph.set_random_number_generator(random)
    return number_by_size(membership)


def leiden_on_gpu(
    adjacency: sp.csr_array, resolution: float = 1.0, seed: int = 0
) -> Ints:
    """As `leiden`, by cuGraph; all edges must fit one device."""
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
        found, _ = graphs.leiden(graph, resolution=resolution, random_state=seed)
        # Nodes without edges are not in the answer: each is alone.
        communities[found["vertex"].to_numpy()] = found["partition"].to_numpy()
    return number_by_size(communities)


def number_by_size(labels: NDArray[np.integer]) -> Ints:
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
    numbers: Ints = rank[codes.reshape(-1)]
    return numbers
