"""Communities detected by cuGraph's Leiden on one GPU.

The objective is that of `leiden.leiden`; the communities are other ones, since the
moves run side by side, and one seed need not give the same communities twice.

References
----------
V. A. Traag, L. Waltman, N. J. van Eck, "From Louvain to Leiden: guaranteeing
well-connected communities", Scientific Reports 9, 5233, 2019.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xnq_dist.core.backend import cugraph, data_frames
from xnq_dist.groups.leiden import number_by_size

__all__ = ["leiden_on_gpu", "modularity"]


def leiden_on_gpu(
    adjacency: sp.csr_array, resolution: float = 1.0, seed: int = 0
) -> NDArray[np.int64]:
    """Community of every node; all edges must fit one device.

    Parameters
    ----------
    adjacency, resolution, seed
        As for `leiden.leiden`.

    Returns
    -------
    Shape (N,): numbered as by `leiden.leiden`.

    Raises
    ------
    SettingsError
        When cuGraph, cuDF or a device is missing.
    """
    graphs, frames = cugraph(), data_frames()
    n_nodes = adjacency.shape[0]
    both = sp.coo_array(sp.triu(((adjacency + adjacency.T) / 2).tocsr()))
    there = both.data > 0
    communities = np.arange(n_nodes, 2 * n_nodes, dtype=np.int64)
    if there.any():
        table = frames.DataFrame(
            {
                "source": both.row[there].astype(np.int32),
                "target": both.col[there].astype(np.int32),
                "weight": both.data[there].astype(np.float64),
            }
        )
        graph = graphs.Graph(directed=False)
        graph.from_cudf_edgelist(
            table, source="source", destination="target", weight="weight"
        )
        found, _ = graphs.leiden(graph, resolution=resolution, random_state=seed)
        # Nodes without edges are not in the answer: each is alone.
        rows = found["vertex"].to_numpy()
        communities[rows] = found["partition"].to_numpy()
    return number_by_size(communities)


def modularity(
    adjacency: sp.csr_array, communities: NDArray[np.int64], resolution: float = 1.0
) -> float:
    """Newman's modularity of a division, weights both ways counted.

    Examples
    --------
    >>> both = sp.csr_array(np.kron(np.eye(2), np.ones((2, 2)) - np.eye(2)))
    >>> modularity(both, np.array([0, 0, 1, 1]))
    0.5
    """
    both = (adjacency + adjacency.T).tocoo()
    total = float(both.data.sum())
    if not total:
        return 0.0
    inside = float(both.data[communities[both.row] == communities[both.col]].sum())
    strength = np.bincount(communities[both.row], both.data)
    return inside / total - resolution * float((strength**2).sum()) / total**2
