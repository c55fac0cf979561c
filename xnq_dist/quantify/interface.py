"""Interface of the quantifiers: their inputs, their estimates, the final prevalence.

A quantifier estimates the classes of the *unlabelled* members of communities. Known
labels are counted, never estimated: `combine` adds both up, the same way for every
quantifier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32

__all__ = [
    "CellTilt",
    "Communities",
    "Estimates",
    "GroupSums",
    "NeighbourStatistics",
    "NodeTable",
    "Prevalence",
    "Quantifier",
    "Reference",
    "WeightedSizes",
    "combine",
    "combine_counts",
]

Labelled = Literal["count", "exclude"]
T = TypeVar("T")

EMPTY = "no member is in the graph: nothing to estimate"
ALL_LABELLED = "every member is labelled: counted exactly"
WEIGHTLESS = "every member has the node weight 0: nothing to estimate"
NO_WEIGHT_LEFT = "every unlabelled member has the node weight 0"
NONE_UNLABELLED = "every member is labelled: no unlabelled member to estimate"


@dataclass(frozen=True, eq=False)
class NeighbourStatistics:
    """Sums over a node's in-neighbours, computed in one halo exchange."""

    posterior_sum: Floats
    """Weighted sum of the in-neighbours' posteriors, shape (N, C)."""
    votes: Floats
    """Weighted count of in-neighbours by their largest posterior, shape (N, C)."""

    def of(self, rows: NDArray[np.integer]) -> NeighbourStatistics:
        """Return the statistics of the nodes in `rows`."""
        return NeighbourStatistics(self.posterior_sum[rows], self.votes[rows])


@dataclass(frozen=True, eq=False)
class CellTilt:
    """Factors on the posteriors, the same for all nodes of a cell."""

    cell: Ints32
    """Cell of every node, -1: its posterior is unchanged, shape (N,)."""
    factors: Floats
    """Factor on each class in each cell, shape (cells, C)."""


BLOCK = 1 << 20
"""Nodes summed at a time."""


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Posteriors, labels and weights of all nodes, in canonical order."""

    posteriors: Floats32
    """Calibrated posteriors, shape (N, C)."""
    labels: Ints32
    """Class code, -1 when unlabelled, shape (N,)."""
    out_of_fold: Bools
    """The node is labelled and its posterior was computed without its label, (N,)."""
    classes: tuple[str, ...]
    """Names of the C classes, in the order of the codes."""
    neighbours: NeighbourStatistics | None = None
    """Set only for a quantifier with `needs_neighbours`."""
    weights: Floats | None = None
    """Node weights, shape (N,); None: every node counts once."""
    tilt: CellTilt | None = None
    """Factors on the posteriors; None: posteriors are unchanged."""

    def of(self, rows: NDArray[np.integer]) -> NodeTable:
        """Return the table of the nodes in `rows`, without a tilt."""
        neighbours, weights = self.neighbours, self.weights
        return NodeTable(
            self.posteriors[rows],
            self.labels[rows],
            self.out_of_fold[rows],
            self.classes,
            None if neighbours is None else neighbours.of(rows),
            None if weights is None else weights[rows],
        )

    @cached_property
    def unlabelled(self) -> Bools:
        """Nodes without a label, shape (N,); cached, one byte a node."""
        return self.labels < 0

    @cached_property
    def mean_posterior(self) -> Floats:
        """Mean posterior of all unlabelled nodes, shape (C,); NaN if there are none."""
        total = np.zeros(self.posteriors.shape[1])
        for begin in range(0, len(self.labels), BLOCK):
            block = slice(begin, begin + BLOCK)
            rows = self.posteriors[block][self.unlabelled[block]].astype(np.float64)
            total += rows.sum(axis=0)
        mass = total.sum()
        return total / mass if mass > 0 else np.full(len(total), np.nan)


@dataclass(frozen=True, eq=False)
class Communities:
    """Sets of nodes, stored one after the other; they may overlap."""

    offsets: Ints
    """Community s has ``members[offsets[s] : offsets[s + 1]]``, shape (S + 1,)."""
    members: Ints
    """Canonical indexes, shape (M,). Those of a user's community are ascending and
    unique; a sample drawn with replacement holds a node once per draw, and quantifiers
    count it once per draw."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, eq=False)
class Reference:
    """Labelled nodes and class proportions that quantifiers learn from."""

    prior: Floats
    """Class proportions that the posteriors are calibrated to, shape (C,)."""
    posteriors: Floats32 | None = None
    """Posteriors of the labelled nodes for which they were computed without the node's
    label, shape (m, C); None: there are no such nodes."""
    labels: Ints32 | None = None
    """Their class codes, shape (m,)."""
    rows: Ints | None = None
    """Canonical indexes of these labelled nodes, ascending, shape (m,)."""
    neighbours: NeighbourStatistics | None = None
    """Of these nodes; set only for a quantifier with `needs_neighbours`."""
    weights: Floats | None = None
    """Inclusion weights of these nodes, shape (m,); None: all equal."""
    _learnt: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def learnt(self, by: Any, learn: Callable[[], T]) -> T:
        """Return the result of `learn`, computed once for all batches.

        `by` is the key of the result: the quantifier with its settings, hashable.
        """
        if by not in self._learnt:
            self._learnt[by] = learn()
        return cast(T, self._learnt[by])


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Sums of f (1 - f) over the unlabelled members of S communities, by group."""

    offsets: Ints
    """Community s has the rows ``offsets[s] : offsets[s + 1]``, shape (S + 1,)."""
    groups: Ints32
    """Groups of the graph's partitions (`groups.own_groups`), shape (R,)."""
    weights: Floats32
    """One class against the rest, shape (R, K): K is 1 for two classes, else C. With
    node weights u these are sums of u f (1 - f)."""
    squares: Floats32 | None = None
    """Sums of u^2 f (1 - f), shape (R, K); None without node weights."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """A quantifier's estimates for the unlabelled members of S communities."""

    prevalence: Floats
    """Rows on the simplex, shape (S, C); NaN where no member is unlabelled."""
    iterations: Ints32
    """EM iterations, 0 for closed forms, shape (S,)."""
    converged: Bools
    """Whether the stopping rule was met, shape (S,)."""
    lower: Floats | None = None
    """Lower ends of the intervals of the classes' actual shares among the unlabelled
    members, shape (S, C); None: the quantifier has no intervals."""
    upper: Floats | None = None
    """Upper ends."""
    sd: Floats | None = None
    """Standard errors, shape (S, C); None: those that the intervals imply."""
    groups: GroupSums | None = None
    """For covariances between communities; None: the quantifier has none."""
    scenarios: tuple[Estimates, Estimates] | None = None
    """The estimates if labels are a random sample and if they were chosen by class,
    where these estimates are a mixture of both."""


class Quantifier(ABC):
    """An estimator of class prevalence."""

    name: str
    """The name in the settings and in the column ``method``."""

    @property
    def needs_neighbours(self) -> bool:
        """Whether `NodeTable.neighbours` must be set."""
        return False

    @property
    def gives_intervals(self) -> bool:
        """Whether the estimates have intervals."""
        return False

    @property
    def trusts_posteriors(self) -> bool:
        """Whether posteriors are assumed to be calibrated in every community.

        Intervals then do not shift them to other class proportions.
        """
        return False

    @property
    def adjusts_posteriors(self) -> bool:
        """Whether estimates are adjusted by the posteriors of labelled nodes.

        Intervals then do not recalibrate the posteriors.
        """
        return False

    @abstractmethod
    def estimate(
        self, batch: Communities, nodes: NodeTable, reference: Reference
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community.

        The estimate of a community must not depend on the other communities of the
        batch, nor on their number: batches differ from run to run.

        Raises
        ------
        InputError
            When a posterior is not finite, or the reference lacks the labelled nodes
            that the quantifier learns from.
        """


@dataclass(frozen=True, eq=False)
class WeightedSizes:
    """Sizes of S communities in node weights instead of nodes."""

    known: Floats
    """Weight of the labelled members of each class, shape (S, C)."""
    estimated: Floats
    """Weight of the unlabelled members, shape (S,)."""
    effective: Floats
    """Kish's effective number of members, (sum u)^2 / sum u^2, shape (S,)."""

    @property
    def total(self) -> Floats:
        """Weight of all members, shape (S,)."""
        return np.asarray(self.known.sum(axis=1) + self.estimated)

    @classmethod
    def of(
        cls, weights: Floats, labels: Ints32, community: Ints, shape: tuple[int, int]
    ) -> WeightedSizes:
        """Sum the weights of memberships by label and community; `shape` is (S, C)."""
        size, n_classes = shape
        unlabelled = labels < 0

        def summed(at: Ints, values: Floats, cells: int) -> Floats:
            return np.bincount(at, values, cells).astype(np.float64)

        cells = community[~unlabelled] * n_classes + labels[~unlabelled]
        known = summed(cells, weights[~unlabelled], size * n_classes).reshape(shape)
        estimated = summed(community[unlabelled], weights[unlabelled], size)
        squares = summed(community, weights * weights, size)
        total = known.sum(axis=1) + estimated
        effective = total * total / np.where(squares > 0, squares, 1.0)
        return cls(known, estimated, effective)


@dataclass(frozen=True, eq=False)
class Prevalence:
    """Final estimates for S communities."""

    n_nodes: Ints
    """Members, shape (S,)."""
    n_labelled: Ints
    """Members with a known label, shape (S,)."""
    n_estimated: Ints
    """Members whose class is estimated, shape (S,)."""
    known: Ints
    """Labelled members of each class, shape (S, C)."""
    prevalence: Floats
    """Shape (S, C); NaN rows where there is nothing to estimate."""
    iterations: Ints32
    """Shape (S,)."""
    converged: Bools
    """Shape (S,)."""
    notes: tuple[str | None, ...]
    """A note on each community, or None, S entries."""
    lower: Floats
    """Lower ends of the intervals, shape (S, C); NaN where there is none."""
    upper: Floats
    """Upper ends."""
    sd: Floats
    """Standard errors, shape (S, C); NaN where the quantifier has none."""
    weighted: WeightedSizes | None = None
    """Sizes in node weights, where prevalence is a share of weight; else None."""


def combine(
    batch: Communities, nodes: NodeTable, estimates: Estimates, labelled: Labelled
) -> Prevalence:
    """Add the known labels, counted exactly, to the estimates of the other members.

    With ``count``, the prevalence of class c is ``(labels of c + n_estimated q_c) / n``
    over all n members; with ``exclude`` it is q, of the unlabelled members alone. The
    ends of an interval are computed the same way, so the interval of a community
    without unlabelled members has width 0. Where nodes have weights, weights replace
    numbers of nodes.
    """
    n_classes = nodes.posteriors.shape[1]
    sizes = np.diff(batch.offsets)
    community = np.repeat(np.arange(len(batch)), sizes)
    codes = nodes.labels[batch.members]
    weighted = None
    if nodes.weights is not None:
        weights = nodes.weights[batch.members]
        weighted = WeightedSizes.of(weights, codes, community, (len(batch), n_classes))
    known = codes >= 0
    cells = community[known] * n_classes + codes[known]
    flat = np.bincount(cells, minlength=len(batch) * n_classes)
    counts = flat.reshape(len(batch), n_classes)
    return combine_counts(sizes, counts, estimates, labelled, weighted)


def combine_counts(
    sizes: Ints,
    counts: Ints,
    estimates: Estimates,
    labelled: Labelled,
    weighted: WeightedSizes | None = None,
) -> Prevalence:
    """`combine` from numbers of members, (S,), and of labels by class, (S, C)."""
    n_labelled = counts.sum(axis=1)
    n_estimated = sizes - n_labelled
    total: NDArray[Any] = sizes
    unlabelled: NDArray[Any] = n_estimated
    of_class: NDArray[Any] = counts
    if weighted is not None:
        total, unlabelled, of_class = weighted.total, weighted.estimated, weighted.known
    usable = unlabelled > 0

    def of_all(estimated: Floats | None, known: NDArray[Any] = of_class) -> Floats:
        combined = np.full(counts.shape, np.nan)
        if estimated is None:
            return combined
        if labelled == "exclude":
            combined[usable] = estimated[usable]
            return combined
        expected = unlabelled[usable, None] * estimated[usable]
        combined[usable] = (known[usable] + expected) / total[usable, None]
        exact = ~usable & (total > 0)
        combined[exact] = known[exact] / total[exact, None]
        return combined

    notes = tuple(
        _note((size, n_unlabelled), (weight, weight_left), labelled)
        for size, n_unlabelled, weight, weight_left in zip(
            *(each.tolist() for each in (sizes, n_estimated, total, unlabelled)),
            strict=True,
        )
    )
    return Prevalence(
        n_nodes=sizes,
        n_labelled=n_labelled,
        n_estimated=n_estimated,
        known=counts,
        prevalence=of_all(estimates.prevalence),
        iterations=np.where(usable, estimates.iterations, 0).astype(np.int32),
        converged=np.where(usable, estimates.converged, True),
        notes=notes,
        lower=of_all(estimates.lower),
        upper=of_all(estimates.upper),
        sd=of_all(estimates.sd, np.zeros_like(of_class)),
        weighted=weighted,
    )


def _note(
    members: tuple[int, int], weights: tuple[float, float], labelled: Labelled
) -> str | None:
    """Note on a community from the number and weight of all and unlabelled members."""
    if not members[0]:
        return EMPTY
    if not weights[0]:
        return WEIGHTLESS
    if weights[1]:
        return None
    if members[1]:
        return NO_WEIGHT_LEFT
    return NONE_UNLABELLED if labelled == "exclude" else ALL_LABELLED
