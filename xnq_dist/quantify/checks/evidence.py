"""What labels and posteriors, each for itself, show of every community.

The labelled members show how far posteriors are off in a community; the unlabelled
members' posteriors, corrected for it, show how common a class is there. The fit check
and the search for anomalies both start from here.

References
----------
A. N. Angelopoulos et al., "Prediction-powered inference", Science 382, 2023 (a mean of
predictions corrected by the labelled ones' error).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.quantify.default.estimator_fit import Learnt, normalised
from xnq_dist.quantify.default.node_sums import NodeSums, class_codes, node_sums
from xnq_dist.quantify.interface import Communities, GroupSums, NodeTable, Reference

__all__ = ["Evidence", "EvidenceMoments", "gather_evidence"]


ROWS = 1 << 20


FAR = 2.0
"""Standard deviations from their mean at which posteriors are cut off: sums of a few
members are then as good as described by three moments, for rare classes too."""

LEAST_STEP = 1e-6
"""Scores of a class must be so much higher than those of the rest to show anything."""


@dataclass(frozen=True, eq=False)
class EvidenceMoments:
    """Of scores, the graph's posteriors f cut off far from their mean; K classes.

    Posteriors count as calibrated: the mean score of a class is ``sum f s / sum f``.
    """

    low: Floats
    """Scores are at least this, shape (K,)."""
    high: Floats
    """And at most this."""
    rest: Floats
    """Mean score of nodes that are not of the class, shape (K,)."""
    step: Floats
    """By how much higher it is on nodes of the class, shape (K,)."""
    noise: Floats
    """Variance within the class and within the rest, mean, shape (K,)."""
    skew: Floats
    """Third central moment, but for that of the classes' means, shape (K,)."""
    weight: Floats
    """By how much a shift of the logits moves scores, mean, shape (K,)."""
    curve: Floats
    """By how much more where they are shifted already, as a part of it, shape (K,)."""
    growth: Floats
    """Covariance of scores and of how a shift moves them, over its mean, (K,)."""

    def score(self, f: Floats, code: int) -> Floats:
        """Scores of a class's posteriors."""
        k = code if len(self.low) > 1 else 0
        return np.clip(f, self.low[k], self.high[k])

    @classmethod
    def of(cls, nodes: NodeTable, prior: Floats) -> EvidenceMoments:
        """From the unlabelled nodes, or from all where none is unlabelled."""
        some = nodes.unlabelled if nodes.unlabelled.any() else nodes.labels >= 0
        codes = list(class_codes(nodes.posteriors.shape[1]))
        count = max(int(np.count_nonzero(some)), 1)

        def means(of: Callable[[Floats], list[Floats]]) -> list[Floats]:
            total = np.zeros((1, len(codes)))
            for first in range(0, len(nodes.labels), ROWS):
                part = slice(first, first + ROWS)
                rows = nodes.posteriors[part][some[part]]
                terms = of(normalised(rows, prior)[:, codes])
                total = total + np.stack([term.sum(axis=0) for term in terms])
            return list(total / count)

        share, square = means(lambda f: [f, f * f])
        reach = FAR * np.sqrt(np.maximum(square - share**2, 0.0))
        low, high = np.maximum(share - reach, 0.0), np.minimum(share + reach, 1.0)

        def terms(f: Floats) -> list[Floats]:
            s, w = np.clip(f, low, high), f * (1 - f) * ((f > low) & (f < high))
            return [s, s * s, s**3, f * s, w, w * (1 - 2 * f), w * s]

        mean, second, third, product, weight, curve, moved = means(terms)
        tiny = np.finfo(np.float64).tiny
        chance = share * (1 - share)
        step = (product - share * mean) / np.maximum(chance, tiny)
        skew = third - 3 * mean * second + 2 * mean**3
        skew -= step**3 * chance * (1 - 2 * share)
        noise = np.maximum(second - mean**2 - step**2 * chance, 0.0)
        inside = np.maximum(weight, tiny)
        curve, growth = curve / inside, moved / inside - mean
        rest = mean - step * share
        return cls(low, high, rest, step, noise, skew, weight, curve, growth)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Of S communities, K classes each against the rest."""

    residual: Floats
    """Labels less posteriors, summed over labelled members whose posterior was made
    without their label, shape (S, K)."""
    variance: Floats
    """Of the residual, shape (S, K)."""
    third: Floats
    """Its third central moment, shape (S, K)."""
    checked: Ints
    """Such members, shape (S,)."""
    scores: Floats
    """Share of the class by the unlabelled members' posteriors alone, as if drawn at
    the graph's share but for their class; may lie outside [0, 1]; NaN where they show
    nothing, shape (S, K)."""
    error: Floats
    """Its standard error but for the chance that draws the members' classes, (S, K)."""
    skew: Floats
    """Third central moment of the same, shape (S, K)."""


def gather_evidence(
    batch: Communities,
    nodes: NodeTable,
    reference: Reference,
    learnt: Learnt | None,
    moments: EvidenceMoments | None = None,
) -> Evidence:
    """Evidence of every community, which depends on nothing but itself and the graph.

    Without `learnt` there is no shift of the logits that members share; without
    `moments` a community's posteriors show nothing.

    Notes
    -----
    A shift of the members' logits that their classes do not share moves posteriors of
    labelled and unlabelled members alike. With m members, a mean score a outside the
    class, a + d inside and the variance s2 within both, the labelled ones' sum of
    scores less its mean for their classes, ``D = F_l - m_l a - d Y``, has the variance
    ``m_l s2 + B(l, l)`` and with the unlabelled ones' sum ``F_u`` the covariance
    ``B(u, l)``. B is the covariance of shifts in `auto`, but with the graph's mean
    weight for the members': theirs depend on what they are tested for. What D explains
    is taken from F_u:

        b = B(u, l) / (m_l s2 + B(l, l)),  q = (F_u - b D - m_u a) / (m_u d),
        error^2 = (m_u s2 + B(u, u) - b B(u, l)) / (m_u d)^2

    and a little more for the curve of the logistic function.
    """
    nodes = replace(nodes, weights=None)  # labels are evidence node by node
    if learnt is None:
        learnt = Learnt.nothing(nodes)
    held = nodes.out_of_fold & (nodes.labels >= 0)
    # Labelled and unlabelled members change places: the same sums of the labelled.
    turned = replace(nodes, labels=np.where(held, -1, 0).astype(np.int32))
    own = learnt.groups, learnt.variances, learnt.labelled, learnt.least
    free, known = (
        node_sums(batch, some, reference.prior, *own) for some in (nodes, turned)
    )
    size, n_classes = len(batch), nodes.posteriors.shape[1]
    codes = list(class_codes(n_classes))
    mine = _Members.of(batch, nodes, reference, held)
    labels = mine.sums(lambda f, code: mine.labels == code)
    between = learnt.between(known)
    found = Evidence(
        residual=labels - mine.sums(lambda f, code: f),
        variance=known.weight + between,
        third=mine.sums(lambda f, code: f * (1 - f) * (1 - 2 * f)),
        checked=known.count,
        scores=np.full((size, len(codes)), np.nan),
        error=np.full((size, len(codes)), np.nan),
        skew=np.full((size, len(codes)), np.nan),
    )
    if moments is None:
        return found
    of_known = mine.sums(moments.score)
    of_free = _Members.of(batch, nodes, reference, nodes.unlabelled).sums(moments.score)
    number, labelled = (
        some.count[:, None].astype(np.float64) for some in (free, known)
    )
    scales = [
        np.divide(n * moments.weight, w, out=np.zeros_like(w), where=w > 0)
        for n, w in ((number, free.weight), (labelled, known.weight))
    ]
    both = _between_two(free, known, learnt) * scales[0] * scales[1]
    unexplained = labelled * moments.noise + between * scales[1] ** 2
    slope = np.divide(both, unexplained, out=np.zeros_like(both), where=unexplained > 0)
    off = of_known - labelled * moments.rest - moments.step * labels
    off = of_free - number * moments.rest - slope * off
    shift = np.maximum(learnt.between(free) * scales[0] ** 2 - slope * both, 0.0)
    # A shift u moves scores by w (u + c u^2 / 2) and makes their noise larger: skewed
    # where the class is rare.
    bent = moments.curve * shift / np.maximum(number * moments.weight, 1e-9)
    variance = number * moments.noise + shift + bent**2 / 2
    skew = number * moments.skew + 3 * bent * shift + bent**3
    skew += 6 * moments.growth * shift
    steps = number * moments.step
    steps = np.where((number > 0) & (moments.step > LEAST_STEP), steps, np.nan)
    return replace(
        found, scores=off / steps, error=np.sqrt(variance) / steps, skew=skew / steps**3
    )


@dataclass(frozen=True, eq=False)
class _Members:
    """Chosen members of communities; posteriors one class at a time."""

    community: Ints
    """Shape (n,)."""
    labels: Ints32
    rows: Floats32
    """Posteriors, shape (n, C)."""
    prior: Floats
    size: int
    """Communities, S."""

    @classmethod
    def of(
        cls, batch: Communities, nodes: NodeTable, reference: Reference, chosen: Bools
    ) -> _Members:
        inside = chosen[batch.members]
        members = batch.members[inside]
        community = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))[inside]
        rows, prior = nodes.posteriors[members], reference.prior
        return cls(community, nodes.labels[members], rows, prior, len(batch))

    def sums(self, of: Callable[[Floats, int], NDArray[Any]]) -> Floats:
        """Sums by community of a class's posteriors, members in their order: (S, K)."""
        total = self.rows.sum(axis=1, dtype=np.float64)
        empty, columns = total <= 0, []
        total[empty] = 1.0
        for code in class_codes(self.rows.shape[1]):
            f = self.rows[:, code] / total
            f[empty] = self.prior[code] / self.prior.sum()
            columns.append(np.bincount(self.community, of(f, code), self.size))
        return np.stack(columns, axis=1).astype(np.float64)


def _between_two(free: NodeSums, known: NodeSums, learnt: Learnt) -> Floats:
    """Covariance B of a community's unlabelled and labelled members, shape (S, K)."""
    columns = []
    for k in range(len(learnt.shared)):
        one, two = (
            _by_group(some.groups, k, len(learnt.variances)) for some in (free, known)
        )
        same = np.asarray((one * two) @ learnt.variances[:, k])
        w, v = free.weight[:, k], known.weight[:, k]
        other = w * known.calibrated[:, k] + v * free.calibrated[:, k]
        shared = learnt.calibrated[k] + learnt.shared[k]
        columns.append(same - other + w * v * shared)
    return np.stack(columns, axis=1)


def _by_group(sums: GroupSums, k: int, n_groups: int) -> csr_array[Any]:
    weights = sums.weights[:, k].astype(np.float64)
    shape = (len(sums.offsets) - 1, n_groups)
    found: csr_array[Any] = csr_array((weights, sums.groups, sums.offsets), shape=shape)
    # Sums over groups in one order, whatever the other communities are.
    found.sort_indices()
    return found
