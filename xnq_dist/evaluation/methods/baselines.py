"""The network baselines in one process: wvRN, ENQ, CDQ and LBQ.

Adjacencies hold the in-neighbours of node v in row v, shape (N, N); weights count for
wvRN alone. Labels are as in `votes`.

References
----------
S. A. Macskassy, F. Provost, "A simple relational classifier", Workshop on
Multi-Relational Data Mining (MRDM), 2003 (wvRN).
L. Tang, H. Gao, H. Liu, "Network quantification despite biased labels", Workshop on
Mining and Learning with Graphs (MLG), 2010 (LBQ, wvRN).
L. Milli, A. Monreale, G. Rossetti, D. Pedreschi, F. Giannotti, F. Sebastiani,
"Quantification in social networks", IEEE International Conference on Data Science and
Advanced Analytics (DSAA), 2015 (CDQ, ENQ).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from xnq_dist.core.errors import InputError
from xnq_dist.evaluation.methods.votes import (
    class_counts,
    draw_from_prior,
    majority,
    majority_order,
)
from xnq_dist.evaluation.regions import class_counts_in, member_communities
from xnq_dist.quantify.interface import Communities

__all__ = ["cdq", "densities", "enq", "lbq", "link_prevalence", "wvrn"]

ROWS = 512
"""Number of nodes whose neighbourhoods are held at a time."""
HIDDEN, NEGATIVE, POSITIVE = range(3)

Matrix = csr_array[Any]
Labels = NDArray[np.int32]


def _one_hot(labels: Labels, n_classes: int) -> NDArray[np.float32]:
    """One-hot labels, zeros for -1, shape (..., C) for labels of shape (...)."""
    hot: NDArray[np.bool_] = labels[..., None] == np.arange(n_classes)
    return hot.astype(np.float32)


def _links(adjacency: Matrix) -> Matrix:
    """The adjacency with 1 for every distinct edge, whatever its weight."""
    ones = np.ones(adjacency.nnz, np.float32)
    return csr_array((ones, adjacency.indices, adjacency.indptr), adjacency.shape)


def wvrn(
    adjacency: Matrix,
    labels: Labels,
    n_classes: int,
    rounds: Sequence[int],
    vote: Literal["soft", "hard"] = "soft",
) -> dict[int, NDArray[np.float32]]:
    """Compute rounds of weighted votes of the in-neighbours (wvRN).

    ``P(y_v = c) = 1/Z sum over in-neighbours u of w_uv P(y_u = c)``, where Z normalises
    the distribution. Labelled nodes keep their label. Other nodes start with the class
    proportions of the labels and keep them if they have no in-neighbours of positive
    weight. A self-loop counts as any edge.

    With ``hard`` (the paper's equation), a neighbour votes only for its most probable
    class; ties go to the lowest code.

    Returns
    -------
    dict
        Probabilities after each of the rounds, shape (K, N, C).
    """
    counts = class_counts(labels, n_classes)
    prior = (counts / counts.sum(axis=1, keepdims=True)).astype(np.float32)
    known = labels[..., None] >= 0
    values = np.where(known, _one_hot(labels, n_classes), prior[:, None])
    kept = {}
    for turn in range(1, max(rounds) + 1):
        votes = values
        if vote == "hard":
            votes = _one_hot(values.argmax(axis=2).astype(np.int32), n_classes)
        sums = np.stack([adjacency @ variant for variant in votes])
        total = sums.sum(axis=2, keepdims=True)
        shares = sums / np.where(total > 0, total, 1)
        values = np.where(~known & (total > 0), shares, values)
        if turn in rounds:
            kept[turn] = values
    return kept


def enq(
    adjacency: Matrix, labels: Labels, n_classes: int, hops: int, seed: int
) -> NDArray[np.int32]:
    """Predict the majority training label within 1 or 2 hops (ENQ), shape (K, N).

    Hops follow edges backwards, from a node to its in-neighbours. Every other node
    counts once, for any number of paths; the node itself does not count. Ties go to the
    class with more training labels, then to the lower code. A node that reaches no
    label gets a class drawn from the training labels.
    """
    links, (variants, n_nodes) = _links(adjacency), labels.shape
    counts = class_counts(labels, n_classes)
    order = majority_order(counts)
    hot = np.hstack(list(_one_hot(labels, n_classes)))
    votes = np.empty(labels.shape, np.int32)
    for first in range(0, n_nodes, ROWS):
        near = links[first : first + ROWS]
        if hops == 2:
            near = (near + near @ links).tocsr()
        near.data = np.ones(near.nnz, np.float32)
        itself = near.diagonal(first)[:, None]
        sums = near @ hot - itself * hot[first : first + ROWS]
        cells = sums.reshape(len(sums), variants, n_classes)
        for k in range(variants):
            votes[k, first : first + ROWS] = majority(cells[:, k], order[k])
    return draw_from_prior(votes, counts, seed)


def cdq(
    communities: Communities,
    labels: Labels,
    n_classes: int,
    seed: int,
    density: NDArray[np.float64] | None = None,
) -> NDArray[np.int32]:
    """Predict the majority training label of each node's community (CDQ).

    Communities without a labelled member are ignored; a labelled node's label counts in
    its community. Ties within a community go to the class with more training labels,
    then to the lower code. Nodes in no community get a class drawn from the training
    labels.

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
    Class codes of all nodes, shape (K, N).
    """
    members, community = communities.members, member_communities(communities)
    counts = class_counts(labels, n_classes)
    order = majority_order(counts)
    votes = np.full(labels.shape, -1, np.int32)
    for variant, row in enumerate(labels):
        inside = class_counts_in(communities, row, n_classes)
        labelled = inside.sum(axis=1)
        score = inside.max(axis=1, initial=0) / np.maximum(labelled, 1)
        score = score if density is None else density
        # Rank communities; each node uses its community of the highest rank.
        trust = np.lexsort((-np.arange(len(score)), score, labelled > 0))
        place = np.empty(len(score), np.int64)
        place[trust] = np.arange(len(score))
        place[labelled == 0] = -1
        best = np.full(len(row), -1, np.int64)
        np.maximum.at(best, members, place[community])
        covered = best >= 0
        winners = majority(inside, order[variant])
        votes[variant, covered] = winners[trust[best[covered]]]
    return draw_from_prior(votes, counts, seed)


def densities(communities: Communities, adjacency: Matrix) -> NDArray[np.float64]:
    """Directed edges within each community divided by n (n - 1), shape (S,).

    Distinct edges u -> v with u != v and both ends inside are counted; an undirected
    edge counts twice. The density of one node is 0.
    """
    links = _links(adjacency)
    links.setdiag(0)
    links.eliminate_zeros()
    density = np.zeros(len(communities))
    for number, nodes in enumerate(
        np.split(communities.members, communities.offsets[1:-1])
    ):
        if len(nodes) > 1:
            inside = links[nodes][:, nodes].nnz
            density[number] = inside / (len(nodes) * (len(nodes) - 1))
    return density


def lbq(adjacency: Matrix, labels: Labels) -> NDArray[np.float64]:
    """Prevalence of class 1 among all unlabelled nodes of each variant (LBQ).

    LBQ estimates complete graphs of two classes only, not nodes or subsets. Distinct
    edges u -> k are links to k.

    Raises
    ------
    InputError
        As `link_prevalence`.
    """
    links, estimates = _links(adjacency), []
    for variant, row in enumerate(labels):
        # After adding 1, code 0 is an unlabelled node, which is counted too.
        totals = np.bincount(row + 1, minlength=3)
        counts = links @ _one_hot(row + 1, 3)
        estimates.append(link_prevalence(counts, totals, variant))
    return np.array(estimates)


def link_prevalence(
    links: NDArray[np.floating], totals: NDArray[np.integer], variant: int = 0
) -> float:
    """Prevalence of the positive class from the links to each node.

    For node k, ``P(link to k) = P(link to k | +) p + P(link to k | -) (1 - p)``. The
    left side is estimated from the unlabelled nodes, the conditionals from the labelled
    ones. Each node whose conditionals differ gives a p; the result is their median,
    clipped to [0, 1].

    Parameters
    ----------
    links
        Number of unlabelled, negative and positive nodes that link to each node, shape
        (N, 3).
    totals
        Number of unlabelled, negative and positive nodes, shape (3,).
    variant
        Number of the variant, for messages.

    Raises
    ------
    InputError
        When no equation can be solved.
    """
    for code, what in enumerate(("unlabelled", "negative", "positive")):
        if not totals[code]:
            raise InputError(
                f"LBQ in variant {variant} has no {what} node: it needs unlabelled, "
                "negative and positive nodes"
            )
    shares = np.asarray(links, np.float64) / totals
    # Cross-multiplied integers: the comparison of shares is exact.
    usable = (
        links[:, POSITIVE] * totals[NEGATIVE] != links[:, NEGATIVE] * totals[POSITIVE]
    )
    if not usable.any():
        raise InputError(
            f"LBQ in variant {variant} has no node for which the shares of links from "
            "the two classes differ: it needs edges out of labelled nodes"
        )
    differences = shares[usable, POSITIVE] - shares[usable, NEGATIVE]
    solved = (shares[usable, HIDDEN] - shares[usable, NEGATIVE]) / differences
    return float(np.clip(np.median(solved), 0.0, 1.0))
