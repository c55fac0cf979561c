"""Designs of labels: which nodes have a label when communities are estimated.

Labels are rarely a random sample of the nodes. Each design is a function that chooses
the labelled nodes; draws with the same seed are nested over label shares. A design that
may label only some nodes keeps the share of all labels if possible. It labels at most
`MAX_LABELLED` of the nodes that it may label (more if the share is larger), so that
some of them remain to be estimated. Every class gets at least two labels, if necessary
from other nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order

if TYPE_CHECKING:
    from scipy.sparse import csr_array
from xnq_dist.core.random_bits import Purpose, stream

__all__ = ["DESIGNS", "GROUP_RESOLUTION", "Drawn", "LabelPool", "Shown", "draw_labels"]

GROUP_RESOLUTION = 3.0
"""Resolution of the graph's Leiden communities, half of which ``half`` labels."""
MAX_LABELLED = 0.6
"""Maximum share of labelled nodes among those that a design may label."""
POSITIVE_ODDS = 5.0
"""Odds of a label in ``positives`` for a node of the last class, relative to others."""
PART = 3
"""``high_degree`` and ``region`` may label one in `PART` nodes."""

Mask = NDArray[np.bool_]
Drawn = Literal["unknown", "random", "by_class", "by_place"]


@dataclass(frozen=True, eq=False)
class LabelPool:
    """The nodes and graph that designs draw from."""

    truth: NDArray[np.int32]
    """Class codes, -1 if unknown, shape (N,)."""
    n_classes: int
    group: NDArray[np.int64]
    """Leiden community of every node, shape (N,)."""
    adjacency: csr_array[Any]
    """Row v holds the in-neighbours of node v, shape (N, N)."""

    @property
    def known(self) -> Mask:
        """Nodes whose class is known, shape (N,)."""
        return np.asarray(self.truth >= 0)

    def count(self, share: float, allowed: int) -> int:
        """Number of labels of a design that may label `allowed` nodes."""
        requested = share * np.count_nonzero(self.known)
        return round(min(requested, max(share, MAX_LABELLED) * allowed))


@dataclass(frozen=True, eq=False)
class Shown:
    """Labels of one draw."""

    labels: NDArray[np.int32]
    """Class codes, -1 if not shown, shape (N,)."""
    drawn: Drawn = "unknown"
    """The value of `labels.drawn` that describes the design."""


def draw_labels(name: str, pool: LabelPool, share: float, seed: int) -> Shown:
    """Draw the labels of a design in `DESIGNS`.

    `share` is relative to all nodes with a known class; a design may allow fewer.
    """
    random = stream(seed, Purpose.DESIGNS, list(DESIGNS).index(name))
    chosen = DESIGNS[name].draw(pool, share, random)
    _two_of_each_class(pool, chosen, random)
    labels = np.where(chosen, pool.truth, -1).astype(np.int32)
    return Shown(labels, DESIGNS[name].drawn)


def _first(pool: LabelPool, rows: NDArray[np.int64], count: int) -> Mask:
    chosen = np.zeros(len(pool.truth), np.bool_)
    chosen[rows[:count]] = True
    return chosen


def _two_of_each_class(
    pool: LabelPool, chosen: Mask, random: np.random.Generator
) -> None:
    """Add nodes to `chosen`, so that each class has at least two."""
    for code in range(pool.n_classes):
        missing = 2 - np.count_nonzero(chosen & (pool.truth == code))
        if missing > 0:
            spare = np.flatnonzero(~chosen & (pool.truth == code))
            chosen[random.permutation(spare)[:missing]] = True


def _among(
    pool: LabelPool, allowed: Mask, share: float, random: np.random.Generator
) -> Mask:
    """A random sample of the nodes that may be labelled."""
    rows = random.permutation(np.flatnonzero(pool.known & allowed))
    return _first(pool, rows, pool.count(share, len(rows)))


def _by_class(
    pool: LabelPool,
    odds: NDArray[np.float64],
    share: float,
    random: np.random.Generator,
) -> Mask:
    """Random nodes of each class, with probabilities proportional to its `odds`."""
    sizes = np.bincount(pool.truth[pool.known], minlength=pool.n_classes)
    each = float(share * sizes.sum() / (odds @ sizes))
    each = min(each, float(max(share, MAX_LABELLED) / odds[sizes > 0].max()))
    chosen = np.zeros(len(pool.truth), np.bool_)
    for code, rate in enumerate((each * odds).tolist()):
        rows = random.permutation(np.flatnonzero(pool.truth == code))
        chosen |= _first(pool, rows, round(rate * len(rows)))
    return chosen


def _random(pool: LabelPool, share: float, random: np.random.Generator) -> Mask:
    """A random sample of all nodes."""
    return _among(pool, pool.known, share, random)


def _half(pool: LabelPool, share: float, random: np.random.Generator) -> Mask:
    """Nodes of random communities that together have half of all nodes or more."""
    sizes = np.bincount(pool.group)
    order = random.permutation(len(sizes))
    before = np.concatenate([[0], np.cumsum(sizes[order])[:-1]])
    chosen = np.zeros(len(sizes), np.bool_)
    chosen[order[before < len(pool.group) / 2]] = True
    return _among(pool, np.asarray(chosen[pool.group]), share, random)


def _balanced(pool: LabelPool, share: float, random: np.random.Generator) -> Mask:
    """The same number of nodes of every class."""
    sizes = np.bincount(pool.truth[pool.known], minlength=pool.n_classes)
    return _by_class(pool, 1 / np.maximum(sizes, 1), share, random)


def _positives(pool: LabelPool, share: float, random: np.random.Generator) -> Mask:
    """Random nodes, those of the last class with `POSITIVE_ODDS` relative to others."""
    odds = np.ones(pool.n_classes)
    odds[-1] = POSITIVE_ODDS
    return _by_class(pool, odds, share, random)


def _high_degree(pool: LabelPool, share: float, random: np.random.Generator) -> Mask:
    """A sample of the third of the nodes with the largest in-degree."""
    n_nodes = len(pool.truth)
    degree = np.diff(pool.adjacency.indptr)
    order = np.lexsort((random.random(n_nodes), -degree))
    return _among(pool, _first(pool, order, n_nodes // PART), share, random)


def _region(pool: LabelPool, share: float, random: np.random.Generator) -> Mask:
    """A sample of one region: the third of the nodes nearest to a random node."""
    n_nodes = len(pool.truth)
    within = np.zeros(n_nodes, np.bool_)
    # If a component is smaller than the region, continue from another start.
    for start in random.permutation(n_nodes).tolist():
        missing = n_nodes // PART - np.count_nonzero(within)
        if missing <= 0:
            break
        if not within[start]:
            near = breadth_first_order(
                pool.adjacency, start, directed=False, return_predecessors=False
            )
            within[near[~within[near]][:missing]] = True
    return _among(pool, within, share, random)


@dataclass(frozen=True)
class Design:
    """One way in which nodes are chosen for labelling."""

    draw: Callable[[LabelPool, float, np.random.Generator], Mask]
    drawn: Drawn
    """The value of `labels.drawn` that describes it."""
    title: str


DESIGNS = {
    "random": Design(_random, "random", "random labels"),
    "half": Design(_half, "by_place", "labels in half of the communities"),
    "balanced": Design(_balanced, "by_class", "labels balanced by class"),
    "positives": Design(
        _positives,
        "by_class",
        "nodes of the last class five times as likely to be labelled",
    ),
    "high_degree": Design(
        _high_degree, "by_place", "only nodes of high degree labelled"
    ),
    "region": Design(_region, "by_place", "only one region labelled"),
}
"""Designs by name. Add new ones at the end: positions are keys of the random stream."""
