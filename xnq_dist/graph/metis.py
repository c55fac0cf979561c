"""METIS: a graph of weighted nodes in one process, divided."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import DoesNotFitError

__all__ = ["metis", "metis_memory"]

METIS_SEED = 1
"""Fixed, so that a run's seed does not divide the graph anew."""


def metis_memory(n_nodes: int, n_edges: int, symmetric: bool) -> int:
    """Bytes that METIS needs at most, from measurements (64-bit METIS)."""
    return 60 * n_nodes + (140 if symmetric else 280) * n_edges


def metis(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    weights: NDArray[np.int64],
    partitions: int,
    counts: NDArray[np.int64] | None = None,
    by_volume: bool = False,
) -> NDArray[np.int32]:
    """Partition of every node, shape (N,); some may stay empty.

    Parameters
    ----------
    indptr, indices
        Each edge in both directions, no self-loops.
    weights
        Of the nodes: each partition gets about the same sum.
    partitions
        Number of partitions, two or more.
    counts
        Weights of the edges, shape as `indices`; None: one each.
    by_volume
        Minimise the total communication volume, our halo rows, instead of the edges
        that are cut. `counts` are not looked at then.

    Raises
    ------
    DoesNotFitError
        When the graph is beyond what METIS can number.
    """
    import pymetis

    if int(weights.sum()) >= 2**62 or len(weights) >= 2**31:
        raise DoesNotFitError("the graph is beyond METIS: set partitioner = stream")
    objective = pymetis.ObjType.VOL if by_volume else pymetis.ObjType.CUT
    answer = pymetis.part_graph(
        partitions,
        adjacency=pymetis.CSRAdjacency(
            indptr.astype(np.int64), indices.astype(np.int64)
        ),
        vweights=weights,
        eweights=counts,
        options=pymetis.Options(seed=METIS_SEED, objtype=int(objective)),
        recursive=False,
    )
    return np.asarray(answer[1]).astype(np.int32)
