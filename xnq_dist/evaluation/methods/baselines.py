"""The network baselines in one process: wvRN, ENQ and CDQ.

Adjacencies hold the in-neighbours of node v in row v, shape (N, N); weights count for
wvRN alone. Labels are the training labels, int32 of shape (N,), -1 for other nodes.

References
----------
S. A. Macskassy, F. Provost, "A simple relational classifier", Workshop on
Multi-Relational Data Mining (MRDM), 2003 (wvRN).
L. Tang, H. Gao, H. Liu, "Network quantification despite biased labels", Workshop on
Mining and Learning with Graphs (MLG), 2010 (wvRN).
L. Milli, A. Monreale, G. Rossetti, D. Pedreschi, F. Giannotti, F. Sebastiani,
"Quantification in social networks", IEEE International Conference on Data Science and
Advanced Analytics (DSAA), 2015 (CDQ, ENQ).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32, slices
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.quantify.interface import Communities

__all__ = [
    "cdq",
    "densities",
    "draw_from_prior",
    "enq",
    "links",
    "majority",
    "wvrn",
]

ROWS = 512
"""Number of nodes whose neighbourhoods are held at a time."""

Matrix = csr_array[Any]


def _one_hot(labels: Ints32, n_classes: int) -> Floats32:
    """One-hot labels, zeros for -1, shape (N, C)."""
    hot: Bools = labels[:, None] == np.arange(n_classes)
    return hot.astype(np.float32)


def links(adjacency: Matrix) -> Matrix:
    """A copy of the adjacency with 1 for every edge, whatever its weight; no loops."""
    found = adjacency.copy()
    found.data = np.ones(found.nnz, np.float32)
    found.setdiag(0)
    found.eliminate_zeros()
    return found


def majority(votes: NDArray[np.number], labels: Ints32, n_classes: int) -> Ints:
    """Class with the most votes in each row, -1 if there are none, shape (n,).

    Ties go to the class with more training labels, then to the lower code. `votes` have
    shape (n, C).
    """
    order = np.argsort(-_counts(labels, n_classes), kind="stable")
    winner = order[np.argmax(votes[:, order], axis=1)]
    return np.where(votes.any(axis=1), winner, np.int64(-1))


def draw_from_prior(
    votes: NDArray[np.integer], labels: Ints32, n_classes: int, seed: int
) -> Ints32:
    """Replace missing votes (-1) by a class drawn from the labels, shape (N,).

    The random number of a node depends only on the seed and its index.
    """
    result = votes.astype(np.int32)
    ends = np.cumsum(_counts(labels, n_classes))
    none = np.flatnonzero(result < 0)
    uniform = stream(seed, Purpose.VOTES, 0).random(len(votes))[none]
    # Draw a labelled node, so that a class without labels is never drawn.
    drawn = np.minimum((uniform * ends[-1]).astype(np.int64), ends[-1] - 1)
    result[none] = np.searchsorted(ends, drawn, side="right")
    return result


def _counts(labels: Ints32, n_classes: int) -> Ints:
    """Number of labelled nodes of each class, shape (C,)."""
    return np.bincount(labels[labels >= 0], minlength=n_classes)


def wvrn(adjacency: Matrix, labels: Ints32, n_classes: int, rounds: int) -> Floats32:
    """Compute rounds of weighted votes of the in-neighbours (wvRN).

    ``P(y_v = c) = 1/Z sum over in-neighbours u of w_uv P(y_u = c)``, where Z normalises
    the distribution. Labelled nodes keep their label. Other nodes start with the class
    proportions of the labels and keep them if they have no in-neighbours of positive
    weight. A self-loop counts as any edge.

    Returns
    -------
    Probabilities after the last round, shape (N, C).
    """
    counts = _counts(labels, n_classes)
    prior = (counts / counts.sum()).astype(np.float32)
    known = labels[:, None] >= 0
    values = np.where(known, _one_hot(labels, n_classes), prior)
    for _ in range(rounds):
        sums = adjacency @ values
        total = sums.sum(axis=1, keepdims=True)
        shares = sums / np.where(total > 0, total, 1)
        values = np.where(~known & (total > 0), shares, values)
    return values


def enq(
    adjacency: Matrix, labels: Ints32, n_classes: int, hops: int, seed: int
) -> Ints32:
    """Predict the majority training label within 1 or 2 hops (ENQ), shape (N,).

    Hops follow edges backwards, from a node to its in-neighbours. Every other node
    counts once, for any number of paths; the node itself does not count. A node that
    reaches no label gets a class drawn from the training labels.
    """
    edges, hot = links(adjacency), _one_hot(labels, n_classes)
    votes = np.empty(labels.shape, np.int64)
    for some in slices(len(labels), ROWS):
        near = edges[some]
        if hops == 2:
            near = (near + near @ edges).tocsr()
        near.data = np.ones(near.nnz, np.float32)
        itself = near.diagonal(some.start)[:, None]
        votes[some] = majority(near @ hot - itself * hot[some], labels, n_classes)
    return draw_from_prior(votes, labels, n_classes, seed)


def cdq(
    communities: Communities,
    labels: Ints32,
    n_classes: int,
    seed: int,
    density: Floats | None = None,
) -> Ints32:
    """Predict the majority training label of each node's community (CDQ).

    Communities without a labelled member are ignored; a labelled node's label counts in
    its community. Nodes in no community get a class drawn from the training labels.

    Parameters
    ----------
    communities
        S communities, which may overlap.
    density
        Density of each, shape (S,): a node in several communities uses the densest.
        None: the one whose majority class has the highest share of the labelled
        members. Ties go to the first.

    Returns
    -------
    Class codes of all nodes, shape (N,).
    """
    inside = communities.class_counts(labels, n_classes)
    labelled = inside.sum(axis=1)
    score = density
    if score is None:
        score = inside.max(axis=1, initial=0) / np.maximum(labelled, 1)
    # Rank communities, those without labels lowest; each node uses its community of the
    # highest rank, or -1.
    trust = np.lexsort((-np.arange(len(score)), score, labelled > 0))
    place, best = np.argsort(trust), np.full(len(labels), -1)
    np.maximum.at(best, communities.members, place[communities.community])
    votes = np.append(majority(inside, labels, n_classes)[trust], -1)
    return draw_from_prior(votes[best], labels, n_classes, seed)


def densities(communities: Communities, adjacency: Matrix) -> Floats:
    """Directed edges within each community divided by n (n - 1), shape (S,).

    Distinct edges u -> v with u != v and both ends inside are counted; an undirected
    edge counts twice. The density of one node is 0.
    """
    edges = links(adjacency)
    density = np.zeros(len(communities))
    for number, nodes in enumerate(
        np.split(communities.members, communities.offsets[1:-1])
    ):
        if len(nodes) > 1:
            inside = edges[nodes][:, nodes].nnz
            density[number] = inside / (len(nodes) * (len(nodes) - 1))
    return density
