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
from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32, offsets_of
from xnq_dist.core.random_bits import Purpose, stream

__all__ = ["DESIGNS", "GROUP_RESOLUTION", "LabelPool", "draw_labels"]

GROUP_RESOLUTION = 3.0
"""Resolution of the graph's Leiden communities, half of which ``half`` labels."""
MAX_LABELLED = 0.6
"""Maximum share of labelled nodes among those that a design may label."""
POSITIVE_ODDS = 5.0
"""Odds of a label in ``positives`` for a node of the last class, relative to others."""
PART = 3
"""``high_degree`` and ``region`` may label one in `PART` nodes."""

Drawn = Literal["unknown", "random", "by_class", "by_place"]


@dataclass(frozen=True, eq=False)
class LabelPool:
    """The nodes and graph that designs draw from."""

    truth: Ints32
    """Class codes, -1 if unknown, shape (N,)."""
    n_classes: int
    group: Ints
    """Leiden community of every node, shape (N,)."""
    adjacency: csr_array[Any]
    """Row v holds the in-neighbours of node v, shape (N, N)."""

    @property
    def known(self) -> Bools:
        """Nodes whose class is known, shape (N,)."""
        return np.asarray(self.truth >= 0)


def draw_labels(name: str, pool: LabelPool, share: float, seed: int) -> Ints32:
    """Draw the labels of a design in `DESIGNS`: class codes, -1 if not shown, (N,).

    `share` is relative to all nodes with a known class; a design may allow fewer.
    """
    random = stream(seed, Purpose.DESIGNS, list(DESIGNS).index(name))
    design = DESIGNS[name]
    found = design.draw(pool, random)
    if design.drawn == "by_class":
        rows = _by_class(pool, found, share, random)
    else:
        rows = random.permutation(np.flatnonzero(pool.known & found))
        requested = share * np.count_nonzero(pool.known)
        count = round(min(requested, max(share, MAX_LABELLED) * len(rows)))
        rows = rows[:count]
    chosen = np.zeros(len(pool.truth), np.bool_)
    chosen[rows] = True
    # Each class has at least two labels.
    for code in range(pool.n_classes):
        missing = 2 - np.count_nonzero(chosen & (pool.truth == code))
        if missing > 0:
            spare = np.flatnonzero(~chosen & (pool.truth == code))
            chosen[random.permutation(spare)[:missing]] = True
    return np.where(chosen, pool.truth, -1).astype(np.int32)


def _by_class(
    pool: LabelPool,
    odds: Floats,
    share: float,
    random: np.random.Generator,
) -> Ints:
    """Random nodes of each class, with probabilities proportional to its `odds`."""
    sizes = np.bincount(pool.truth[pool.known], minlength=pool.n_classes)
    each = float(share * sizes.sum() / (odds @ sizes))
    each = min(each, float(max(share, MAX_LABELLED) / odds[sizes > 0].max()))
    chosen = []
    for code, rate in enumerate((each * odds).tolist()):
        rows = random.permutation(np.flatnonzero(pool.truth == code))
        chosen.append(rows[: round(rate * len(rows))])
    return np.concatenate(chosen)


def _random(pool: LabelPool, random: np.random.Generator) -> Bools:
    """All nodes."""
    return pool.known


def _half(pool: LabelPool, random: np.random.Generator) -> Bools:
    """Nodes of random communities that together have half of all nodes or more."""
    sizes = np.bincount(pool.group)
    order = random.permutation(len(sizes))
    before = offsets_of(sizes[order])[:-1]
    return np.isin(pool.group, order[before < len(pool.group) / 2])


def _balanced(pool: LabelPool, random: np.random.Generator) -> Floats:
    """Odds with which every class has the same number of labels."""
    sizes = np.bincount(pool.truth[pool.known], minlength=pool.n_classes)
    return 1 / np.maximum(sizes, 1)


def _positives(pool: LabelPool, random: np.random.Generator) -> Floats:
    """Odds of `POSITIVE_ODDS` for the last class, relative to the others."""
    odds = np.ones(pool.n_classes)
    odds[-1] = POSITIVE_ODDS
    return odds


def _high_degree(pool: LabelPool, random: np.random.Generator) -> Bools:
    """The third of the nodes with the largest in-degree."""
    n_nodes = len(pool.truth)
    degree = np.diff(pool.adjacency.indptr)
    order = np.lexsort((random.random(n_nodes), -degree))
    return np.isin(np.arange(n_nodes), order[: n_nodes // PART])


def _region(pool: LabelPool, random: np.random.Generator) -> Bools:
    """One region: the third of the nodes nearest to a random node."""
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
    return within


@dataclass(frozen=True)
class Design:
    """One way in which nodes are chosen for labelling."""

    draw: Callable[[LabelPool, np.random.Generator], NDArray[Any]]
    """The nodes that it may label, shape (N,), of which a random sample is; by class,
    odds of a label for each class, shape (C,)."""
    drawn: Drawn
    """The value of `labels.drawn` that describes it."""


DESIGNS = {
    "random": Design(_random, "random"),
    "half": Design(_half, "by_place"),
    "balanced": Design(_balanced, "by_class"),
    "positives": Design(_positives, "by_class"),
    "high_degree": Design(_high_degree, "by_place"),
    "region": Design(_region, "by_place"),
}
"""Designs by name. Add new ones at the end: positions are keys of the random stream."""
