"""How much temporary disk the stage ``graph`` takes: a pure function of counts.

What lies in the scratch folder, step by step, is what `sort`, `csr`, `features` and
`prepare` put there; the formulas here mirror them.
"""

from __future__ import annotations

from xnq_dist.graph.sort import pairs_held

__all__ = ["graph_scratch", "sort_scratch"]

KEY = 8
"""Bytes of a pair, and of its weight, in a sorted run."""
INDEX = 4
"""Bytes of a neighbour, of a weight, of a feature and of a row's number."""
HALO = 8
"""Bytes of a halo row's global id."""


def sort_scratch(pairs: int, memory: int, weighted: bool = False) -> int:
    """Bytes of sorted runs; 0 where the memory holds all pairs.

    Parameters
    ----------
    pairs
        Taken in, reverses included.
    memory
        Bytes for the sort, `input.memory`.
    weighted
        Whether each comes with a weight.
    """
    if pairs < pairs_held(memory, weighted):
        return 0
    return pairs * KEY * (2 if weighted else 1)


def graph_scratch(
    nodes: int, edges: int, features: int, halo: int, memory: int, weighted: bool
) -> int:
    """Most bytes of temporary files at a time while a graph is ingested and cut.

    Runs stay until the adjacency is written from them. Later the adjacency, its edges
    sorted by partition, the features and the partitions' halos lie side by side, until
    partition after partition is written.

    Parameters
    ----------
    nodes, edges, features
        Counts; edges directed, as sorted.
    halo
        Halo rows of all partitions.
    memory
        `input.memory`.
    weighted
        Whether edges have weights.
    """
    adjacency = edges * INDEX * (2 if weighted else 1)
    described = nodes * INDEX * (features + 1)
    later = 2 * adjacency + described + HALO * halo
    return max(sort_scratch(edges, memory, weighted) + adjacency, later)
