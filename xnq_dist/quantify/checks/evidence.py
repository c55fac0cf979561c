"""Evidence of labels and of posteriors on every community, kept apart.

The labelled members measure the error of the posteriors in a community; the unlabelled
members' posteriors, corrected for it, measure the share of a class. The anomaly tests
use this evidence.

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

from xnq_dist.core.arrays import Bools, Floats, Ints
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.default.node_sums import NodeSums, class_codes, node_sums
from xnq_dist.quantify.interface import Communities, NodeTable, Reference
from xnq_dist.selection.scored_rows import normalised

__all__ = ["Evidence", "EvidenceMoments", "gather_evidence"]


ROWS = 1 << 20


FAR = 2.0
"""Standard deviations from their mean at which posteriors are clipped: three moments
then describe sums of a few members well, for rare classes too."""

MIN_STEP = 1e-6
"""Scores of a class must exceed those of the rest by this much to be informative."""


@dataclass(frozen=True, eq=False)
class EvidenceMoments:
    """Moments of scores, the graph's posteriors f clipped far from their mean.

    Posteriors are taken as calibrated: the mean score of a class is ``sum f s / sum
    f``. There are K classes (`class_codes`).
    """

    low: Floats
    """Lower bound of scores, shape (K,)."""
    high: Floats
    """Upper bound of scores, shape (K,)."""
    rest: Floats
    """Mean score of nodes outside the class, shape (K,)."""
    step: Floats
    """Mean score of nodes of the class minus `rest`, shape (K,)."""
    noise: Floats
    """Variance of scores within the class and within the rest, pooled, shape (K,)."""
    skew: Floats
    """Third central moment without that of the classes' means, shape (K,)."""
    weight: Floats
    """Mean derivative of scores by a shift of the logits, shape (K,)."""
    curve: Floats
    """Mean second derivative of scores, over `weight`, shape (K,)."""
    growth: Floats
    """Covariance of scores and of their derivative, over `weight`, shape (K,)."""

    @classmethod
    def of(cls, nodes: NodeTable, prior: Floats) -> EvidenceMoments:
        """Compute the moments from the unlabelled nodes, or from all if none is."""
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
    """Evidence on S communities, K classes each against the rest."""

    scores: Floats
    """Share of the class by the unlabelled members' posteriors alone, assuming that
    scores given the class are those of the graph; may lie outside [0, 1]; NaN where the
    posteriors are not informative, shape (S, K)."""
    error: Floats
    """Its standard error without the binomial sampling error, shape (S, K)."""
    skew: Floats
    """Third central moment of the same error, shape (S, K)."""


def gather_evidence(
    batch: Communities,
    nodes: NodeTable,
    reference: Reference,
    learnt: Learnt | None,
    moments: EvidenceMoments,
) -> Evidence:
    """Compute the evidence on every community, independently of the other communities.

    Without `learnt`, members share no shift of the logits.

    Notes
    -----
    A shift of the members' logits, independent of their classes, moves posteriors of
    labelled and unlabelled members equally. With m members, a mean score a outside the
    class, a + d inside and the variance s2 within both, the labelled members' sum of
    scores minus its mean for their classes, ``D = F_l - m_l a - d Y``, has the variance
    ``m_l s2 + B(l, l)`` and the covariance ``B(u, l)`` with the unlabelled members' sum
    ``F_u``. B is the covariance of shifts in `auto`, but with the graph's mean weight:
    the members' weights depend on the tested share. F_u is regressed on D:

        b = B(u, l) / (m_l s2 + B(l, l)),  q = (F_u - b D - m_u a) / (m_u d),
        error^2 = (m_u s2 + B(u, u) - b B(u, l)) / (m_u d)^2

    with a small correction for the curvature of the logistic function.
    """
    if learnt is None:
        learnt = Learnt.nothing(nodes)
    held = nodes.out_of_fold & (nodes.labels >= 0)
    groups = learnt.groups, learnt.variances, learnt.labelled, learnt.least

    def sums_over(some: Bools) -> NodeSums:
        chosen = replace(nodes, labels=np.where(some, -1, 0).astype(np.int32))
        return node_sums(batch, chosen, reference.prior, *groups)

    free, known, both = map(
        sums_over, (nodes.unlabelled, held, nodes.unlabelled | held)
    )
    codes = list(class_codes(nodes.posteriors.shape[1]))
    community = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))

    def scores(members: Ints) -> Floats:
        f = normalised(nodes.posteriors[members], reference.prior)[:, codes]
        return np.clip(f, moments.low, moments.high)

    def totals(some: Bools, of: Callable[[Ints], NDArray[Any]]) -> Floats:
        """Sums over communities of the values of the chosen members, (S, K)."""
        inside = some[batch.members]
        values = of(batch.members[inside])
        columns = [np.bincount(community[inside], v, len(batch)) for v in values.T]
        return np.stack(columns, axis=1).astype(np.float64)

    labels = totals(held, lambda members: nodes.labels[members, None] == codes)
    of_known, of_free = totals(held, scores), totals(nodes.unlabelled, scores)
    alone, between, together = map(learnt.between, (free, known, both))
    number, labelled = (
        each.count[:, None].astype(np.float64) for each in (free, known)
    )
    scales = [
        np.divide(n * moments.weight, w, out=np.zeros_like(w), where=w > 0)
        for n, w in ((number, free.weight), (labelled, known.weight))
    ]
    # B(u, l), as B is bilinear.
    common = (together - alone - between) / 2 * scales[0] * scales[1]
    unexplained = labelled * moments.noise + between * scales[1] ** 2
    slope = np.divide(
        common, unexplained, out=np.zeros_like(common), where=unexplained > 0
    )
    off = of_known - labelled * moments.rest - moments.step * labels
    off = of_free - number * moments.rest - slope * off
    shift = np.maximum(alone * scales[0] ** 2 - slope * common, 0.0)
    # A shift u moves scores by w (u + c u^2 / 2) and increases their noise; the result
    # is skewed where the class is rare.
    bent = moments.curve * shift / np.maximum(number * moments.weight, 1e-9)
    variance = number * moments.noise + shift + bent**2 / 2
    skew = number * moments.skew + 3 * bent * shift + bent**3
    skew += 6 * moments.growth * shift
    steps = number * moments.step
    steps = np.where((number > 0) & (moments.step > MIN_STEP), steps, np.nan)
    return Evidence(
        scores=off / steps,
        error=np.sqrt(variance) / steps,
        skew=skew / steps**3,
    )
