"""`auto` in one process, from the whole adjacency: for evaluations and small graphs.

The stage does the same on workers, from partitions (`batches`); the two agree but for
the last digits of the links between classes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.quantify.auto import Auto, Learnt
from xnq_dist.quantify.cohesion import COUNTS, EdgeCounts, Mixing, internal_edges
from xnq_dist.quantify.hypotheses import learn_by_class, lie_outside
from xnq_dist.quantify.interface import Communities, NodeTable, Reference

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["communities_of", "learn_here"]


def communities_of(assignment: NDArray[np.int64]) -> Communities:
    """Communities 0, 1, ... of an assignment of every node, shape (N,).

    Examples
    --------
    >>> communities_of(np.array([1, 0, 1])).members.tolist()
    [1, 0, 2]
    """
    sizes = np.bincount(assignment)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Communities(offsets, np.argsort(assignment, kind="stable"))


def learn_here(
    auto: Auto,
    batch: Communities,
    nodes: NodeTable,
    reference: Reference,
    adjacency: csr_array[Any],
    own: Communities | None,
) -> Auto:
    """`auto` with what it learns from communities asked for, and from the graph's own.

    Parameters
    ----------
    auto
        With nothing learnt.
    batch
        Communities asked for.
    nodes, reference
        As quantifiers take them.
    adjacency
        Row v holds the in-neighbours of node v, shape (N, N), rows sorted.
    own
        The graph's own communities, used where fewer than half of the labels lie in
        communities asked for; None: never.
    """
    n_nodes = len(nodes.labels)
    multiplicity = np.bincount(batch.members, minlength=n_nodes)
    asked = [batch]
    if own is not None and lie_outside(nodes.labels, multiplicity):
        asked.append(own)
        multiplicity = multiplicity + 1
    found = [auto.summarise(one, nodes, reference, multiplicity, 1, 0) for one in asked]
    weights = learn_by_class(
        [one.evidence for one in found], [one.shares for one in found]
    )
    posteriors = nodes.posteriors.astype(np.float64)
    into = np.asarray(adjacency.sum(axis=1), np.float64)
    out_of = np.asarray(adjacency.sum(axis=0), np.float64)
    mixing = Mixing(
        posteriors.T @ (adjacency @ posteriors),
        into @ posteriors,
        out_of @ posteriors,
        float(into.sum()),
        posteriors.sum(axis=0),
    )
    inside = np.zeros((len(batch), COUNTS), np.int64)
    sources = adjacency.indices.astype(np.int64)
    internal_edges(
        adjacency.indptr.astype(np.int64),
        sources,
        np.arange(n_nodes),
        batch.offsets,
        batch.members,
        np.full(n_nodes, -1, np.int64),
        0,
        inside,
    )
    heads = np.repeat(np.arange(n_nodes), np.diff(adjacency.indptr))
    outgoing = np.bincount(sources[sources != heads], minlength=n_nodes)
    community = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))
    volumes = np.bincount(community, outgoing[batch.members], minlength=len(batch))
    counts = EdgeCounts(inside, volumes.astype(np.int64))
    return replace(auto, learnt=Learnt(weights, mixing, counts))
