"""Designs of labels: which nodes have a label when communities are estimated.

Labels are seldom a random sample of the nodes. Each design is one function that
chooses the labelled nodes; the draws of one seed are nested over label shares. A
design that may label only some nodes keeps the share of all labels where it can:
it labels at most `MOST` of the nodes it may label (more where the share itself is
larger), so that some of them stay to be estimated. Every class gets two labels or
more, from outside the design's nodes where it must.
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

__all__ = [
    "DESIGNS",
    "OWN_RESOLUTION",
    "Drawn",
    "LabelPool",
    "Shown",
    "draw_labels",
]

OWN_RESOLUTION = 3.0
"""Of the graph's own communities by Leiden, half of which ``half`` labels."""
MOST = 0.6
"""Of the nodes that a design may label."""
LIKELIER = 5.0
"""How much likelier ``positives`` labels a node of the last class."""
PART = 3
"""``high_degree`` and ``region`` may label one node in so many."""
FITTED = 0.1
"""Share of the labels that the model of ``fresh`` is fitted to."""

Mask = NDArray[np.bool_]
Drawn = Literal["unknown", "random", "by_class", "by_place"]


@dataclass(frozen=True, eq=False)
class LabelPool:
    """What designs draw from."""

    truth: NDArray[np.int32]
    """Class codes, -1 where unknown, shape (N,)."""
    n_classes: int
    own: NDArray[np.int64]
    """The graph's own community of every node, shape (N,)."""
    adjacency: csr_array[Any]
    """Row v holds the in-neighbours of node v, shape (N, N)."""

    @property
    def known(self) -> Mask:
        """Nodes whose class is known, shape (N,)."""
        return np.asarray(self.truth >= 0)

    def count(self, share: float, allowed: int) -> int:
        """Labels of a design that may label so many nodes."""
        wanted = share * np.count_nonzero(self.known)
        return round(min(wanted, max(share, MOST) * allowed))


@dataclass(frozen=True, eq=False)
class Shown:
    """Labels of one draw; class codes, -1 where not shown, shape (N,)."""

    labels: NDArray[np.int32]
    """Known when communities are estimated."""
    fitted: NDArray[np.int32]
    """Known when the model was fitted; all of `labels` but for ``fresh``."""
    drawn: Drawn = "unknown"
    """The `labels.drawn` that describes the design."""


def draw_labels(name: str, pool: LabelPool, share: float, seed: int) -> Shown:
    """Labels of a design (of `DESIGNS`).

    The share is of the nodes with a known class, where the design allows it.
    """
    # The labels of `fresh` are those of `random`.
    place = list(DESIGNS).index("random" if name == "fresh" else name)
    random = stream(seed, Purpose.DESIGNS, place)
    chosen = DESIGNS[name].draw(pool, share, random)
    _two_of_each_class(pool, chosen, pool.known, random)
    fitted = chosen
    if name == "fresh":
        rows = random.permutation(np.flatnonzero(chosen))
        fitted = _first(pool, rows, round(FITTED * len(rows)))
        _two_of_each_class(pool, fitted, chosen, random)
    shown, seen = (
        np.where(mask, pool.truth, -1).astype(np.int32) for mask in (chosen, fitted)
    )
    return Shown(shown, seen, DESIGNS[name].drawn)


def _first(pool: LabelPool, rows: NDArray[np.int64], count: int) -> Mask:
    chosen = np.zeros(len(pool.truth), np.bool_)
    chosen[rows[:count]] = True
    return chosen


def _two_of_each_class(
    pool: LabelPool, chosen: Mask, allowed: Mask, random: np.random.Generator
) -> None:
    """Add to `chosen` what a class lacks."""
    for code in range(pool.n_classes):
        lacking = 2 - np.count_nonzero(chosen & (pool.truth == code))
        if lacking > 0:
            spare = np.flatnonzero(allowed & ~chosen & (pool.truth == code))
            chosen[random.permutation(spare)[:lacking]] = True


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
    """Random nodes of each class, a node of class c as likely as `odds` says."""
    sizes = np.bincount(pool.truth[pool.known], minlength=pool.n_classes)
    each = float(share * sizes.sum() / (odds @ sizes))
    each = min(each, float(max(share, MOST) / odds[sizes > 0].max()))
    chosen = np.zeros(len(pool.truth), np.bool_)
    for code, rate in enumerate((each * odds).tolist()):
        rows = random.permutation(np.flatnonzero(pool.truth == code))
        chosen |= _first(pool, rows, round(rate * len(rows)))
    return chosen


def _random(pool: LabelPool, share: float, random: np.random.Generator) -> Mask:
    """Any node, as likely as any other."""
    return _among(pool, pool.known, share, random)


def _half(pool: LabelPool, share: float, random: np.random.Generator) -> Mask:
    """Nodes of whole communities that hold half of all nodes or a little more."""
    sizes = np.bincount(pool.own)
    order = random.permutation(len(sizes))
    before = np.concatenate([[0], np.cumsum(sizes[order])[:-1]])
    chosen = np.zeros(len(sizes), np.bool_)
    chosen[order[before < len(pool.own) / 2]] = True
    return _among(pool, np.asarray(chosen[pool.own]), share, random)


def _balanced(pool: LabelPool, share: float, random: np.random.Generator) -> Mask:
    """As many nodes of every class."""
    sizes = np.bincount(pool.truth[pool.known], minlength=pool.n_classes)
    return _by_class(pool, 1 / np.maximum(sizes, 1), share, random)


def _positives(pool: LabelPool, share: float, random: np.random.Generator) -> Mask:
    """Nodes of the last class are `LIKELIER` times as likely as others."""
    odds = np.ones(pool.n_classes)
    odds[-1] = LIKELIER
    return _by_class(pool, odds, share, random)


def _high_degree(pool: LabelPool, share: float, random: np.random.Generator) -> Mask:
    """Only the third of the nodes with the most in-neighbours."""
    n_nodes = len(pool.truth)
    degree = np.diff(pool.adjacency.indptr)
    order = np.lexsort((random.random(n_nodes), -degree))
    return _among(pool, _first(pool, order, n_nodes // PART), share, random)


def _region(pool: LabelPool, share: float, random: np.random.Generator) -> Mask:
    """Only one region: the third of the nodes nearest to a random one."""
    n_nodes = len(pool.truth)
    within = np.zeros(n_nodes, np.bool_)
    # A start in a component smaller than the region is followed by another start.
    for start in random.permutation(n_nodes).tolist():
        lacking = n_nodes // PART - np.count_nonzero(within)
        if lacking <= 0:
            break
        if not within[start]:
            near = breadth_first_order(
                pool.adjacency, start, directed=False, return_predecessors=False
            )
            within[near[~within[near]][:lacking]] = True
    return _among(pool, within, share, random)


@dataclass(frozen=True)
class Design:
    """One way in which labels come about."""

    draw: Callable[[LabelPool, float, np.random.Generator], Mask]
    drawn: Drawn
    """The `labels.drawn` that describes it."""
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
    # As random; `draw_labels` fits the model to a tenth of them.
    "fresh": Design(
        _random, "random", "model fitted to a tenth of the labels that are known"
    ),
}
"""Designs by name. New ones go to the end: the place is a key of the random stream."""
