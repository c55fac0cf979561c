"""Communities that differ from the rest beyond chance.

The null hypothesis is that a community's members are a sample drawn at a share r of a
class, the mean of the other communities without outliers. Two independent sources test
it. The labelled members' classes are counts, ``Y ~
Binomial(m, r)``. The unlabelled members' posteriors, corrected for the shift of the
labelled members' (`evidence`), estimate a share ``q`` with the variance ``r (1 - r) / n
+ e^2``. The derivative of their log-likelihood by r, the locally most powerful
statistic,

    A = (Y - m r) / (r (1 - r)) + (q - r) / (r (1 - r) / n + e^2),

is compared with its null distribution: the binomial exactly, the posteriors' part by
its first three moments. Without informative posteriors this is the binomial test; all
others add to its power.

References
----------
C. R. Rao, "Large sample tests of statistical hypotheses concerning several parameters",
Proceedings of the Cambridge Philosophical Society 44, 1948 (the score test).
Y. Benjamini, Y. Hochberg, "Controlling the false discovery rate", Journal of the Royal
Statistical Society B 57(1), 1995.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import gammaln, xlog1py, xlogy
from scipy.stats import false_discovery_control

from xnq_dist.core.arrays import Bools, Floats, Ints
from xnq_dist.quantify.checks.tails import upper_tail
from xnq_dist.steps.results import Results
from xnq_dist.steps.view import PrevalenceView, by_effect, ranks

__all__ = [
    "Anomalies",
    "Observations",
    "find_anomalies",
    "make",
    "pvalues_of_class",
    "qvalues",
    "reference_of",
    "robust_reference",
]


FAR = 3.0
"""Communities more than this many typical distances from the mean are left out of the
reference; distances are in standard deviations of chance."""
ROUNDS = 20
"""Maximum number of times that the reference is updated."""
NEGLIGIBLE = 9.0
"""Standard deviations (plus half their square in counts) beyond which a binomial has a
probability below 1e-15."""
BLOCK = 1 << 20
"""Binomial terms computed at a time."""
EDGE = 1e-9
"""Distance of a reference from 0 and 1 in the tests."""


@dataclass(frozen=True, eq=False)
class Observations:
    """Evidence of labels and of posteriors on S communities, C classes."""

    labelled: Ints
    """Number of labelled members, shape (S,)."""
    known: Ints
    """Number of labelled members of each class, shape (S, C)."""
    unlabelled: Ints
    """Number of members without a label, shape (S,)."""
    scores: Floats
    """Share of each class by the posteriors alone; NaN: no information, (S, C)."""
    error: Floats
    """Its standard error without the binomial sampling error, shape (S, C)."""
    skew: Floats
    """Third central moment of the same error, shape (S, C)."""


@dataclass(frozen=True, eq=False)
class Anomalies:
    """Difference of each community from its reference, with p- and q-values."""

    reference: Floats
    """Share that the community is compared with, shape (S, C)."""
    effect: Floats
    """Prevalence minus reference; NaN without a prevalence, shape (S, C)."""
    pvalue: Floats
    """Two-sided, shape (S, C); NaN where nothing is compared."""
    qvalue: Floats
    """Smallest false discovery rate at which the community is flagged, shape (S, C)."""


def make(results: Results) -> dict[str, pa.Table]:
    """The table ``anomalies``, if any community has an interval.

    A community without an interval is not compared: it has nulls and comes last.
    """
    view, settings = results.view, results.settings.anomalies
    if not view.has_intervals:
        return {}
    seen = _observations(view, results.tables["evidence"])
    found = find_anomalies(_compared(view), view.n_nodes, seen)
    columns = {
        "reference": found.reference,
        "lower": view.lower - found.reference,
        "upper": view.upper - found.reference,
        "pvalue": found.pvalue,
        "qvalue": found.qvalue,
        "anomalous": np.ma.array(
            found.qvalue <= settings.rate, mask=np.isnan(found.qvalue)
        ),
        "rank_prevalence": ranks(view.prevalence, view.n_nodes),
    }
    return {"anomalies": by_effect(view, found.effect, columns)}


def _compared(view: PrevalenceView) -> Floats:
    """Prevalences that are compared, shape (K, C); NaN without an interval."""
    return np.where(np.isnan(view.lower), np.nan, view.prevalence)


def _observations(view: PrevalenceView, evidence: pa.Table) -> Observations:
    """Statistics of each community's labels and posteriors, shape (K, C) each."""
    width = len(view.classes)
    order = pc.index_in(view.labels, evidence["class"].combine_chunks()[:width])
    known, scores, error, skew = (
        evidence[name].to_numpy().reshape(-1, max(width, 1))[:, order.to_numpy()]
        for name in ("known", "scores", "error", "skew")
    )
    unlabelled = view.n_nodes - view.n_labelled
    return Observations(view.n_labelled, known, unlabelled, scores, error, skew)


def reference_of(view: PrevalenceView, place: int = -1) -> float:
    """Share that the class in one column of a view is compared with, or NaN.

    It is the mean of all communities, without outliers where there are intervals.
    """
    two, place = len(view.classes) == 2, place % max(len(view.classes), 1)
    mirrored = view.has_intervals and two and place == 0
    if mirrored:
        return 1 - reference_of(view, 1)
    if view.has_intervals:
        return _mean(*_weighted(_compared(view)[:, place], view.n_nodes))[2]
    values, weights = _weighted(view.prevalence[:, place], view.n_nodes)
    return float((weights * values).sum() / weights.sum()) if weights.any() else np.nan


def find_anomalies(prevalence: Floats, n_nodes: Ints, data: Observations) -> Anomalies:
    """Test every community against the mean of the others (`robust_reference`).

    Parameters
    ----------
    prevalence
        Estimates, NaN where there is none, shape (S, C); used for the effects and for
        the mean of the others.
    n_nodes
        Members, shape (S,).
    data
        Labels and posteriors, used for the tests.

    Notes
    -----
    P-values are twice the smaller tail. The mean of the others is itself an estimate:
    A is divided by ``sqrt(1 + I v)``, where I is the variance of A and v the variance
    of the reference plus its squared difference from the share among the same
    communities' labels. Of two classes the second is compared and the first mirrors
    it; q-values are over all classes compared (Benjamini and Hochberg).
    """
    size, n_classes = prevalence.shape
    known = ~np.isnan(prevalence) & (n_nodes > 0)[:, None]
    compared, pvalue = np.full((2, size, n_classes), np.nan)
    first = 1 if n_classes == 2 else 0
    for k in range(first, n_classes):
        compared[:, k], spread = _others(prevalence[:, k], n_nodes, data, k)
        at = np.flatnonzero(known[:, k] & ~np.isnan(compared[:, k]))
        pvalue[at, k] = pvalues_of_class(data, at, k, compared[at, k], spread[at])
    if n_classes == 2:
        compared[:, 0], pvalue[:, 0] = 1 - compared[:, 1], pvalue[:, 1]
    return Anomalies(compared, prevalence - compared, pvalue, qvalues(pvalue))


def robust_reference(values: Floats, weights: Floats) -> tuple[Bools, float]:
    """Select the communities without outliers; return them and their typical distance.

    Weights are numbers of members; communities of weight 0 are left out. The distance
    from the mean is in standard deviations of chance, at least 1. With r the mean of
    the selected communities, ``z = (x - r) sqrt(n / (r (1 - r)))``: those beyond `FAR`
    times the median of abs(z), scaled to a standard deviation and at least 1, are left
    out, until the selection stays the same.
    """
    kept = weights > 0
    scale = 1.0
    for _ in range(ROUNDS):
        total = float(weights[kept].sum())
        r = float((weights[kept] * values[kept]).sum() / total) if total else 0.0
        chance = np.sqrt(max(r * (1 - r), EDGE) / np.maximum(weights, 1))
        z = np.abs(values - r) / chance
        typical = np.median(z[weights > 0]) if (weights > 0).any() else 0.0
        scale = max(1.0, 1.4826 * float(typical))
        before, kept = kept, (weights > 0) & (z <= FAR * scale)
        if not kept.any() or np.array_equal(kept, before):
            kept = before
            break
    return kept, scale


def _weighted(prevalence: Floats, n_nodes: Ints) -> tuple[Floats, Floats]:
    """Values and their numbers of members, both 0 where nothing is compared."""
    known = ~np.isnan(prevalence) & (n_nodes > 0)
    return np.where(known, prevalence, 0.0), np.where(known, n_nodes, 0).astype(float)


def _mean(values: Floats, weights: Floats) -> tuple[Floats, float, float]:
    """Weights without outliers, the typical distance, and the mean of all."""
    kept, scale = robust_reference(values, weights)
    used = np.where(kept, weights, 0.0)
    return used, scale, float(used @ values / max(used.sum(), 1.0))


def _others(
    prevalence: Floats, n_nodes: Ints, data: Observations, k: int
) -> tuple[Floats, Floats]:
    """Mean of the others for each community, and its variance."""
    values, weights = _weighted(prevalence, n_nodes)
    used, scale, centre = _mean(values, weights)
    rest = used.sum() - used
    alone = rest < 0.5
    rest = np.maximum(rest, 1.0)
    others = np.clip((used @ values - used * values) / rest, 0.0, 1.0)
    variance = scale**2 * centre * (1 - centre) / rest
    kept = used > 0
    labels = int(data.labelled[kept].sum())
    if labels:
        variance += (data.known[kept, k].sum() / labels - centre) ** 2
    return np.where(alone, np.nan, others), variance


def pvalues_of_class(
    data: Observations, some: Ints, k: int, reference: Floats, spread: Floats
) -> Floats:
    """P-values of class k in the communities `some`, each against its reference.

    `reference` and `spread`, its variance, have the shape of `some`.
    """
    r = np.clip(reference, EDGE, 1 - EDGE)
    trials, chance = data.labelled[some].astype(np.float64), r * (1 - r)
    q, error = data.scores[some, k], data.error[some, k]
    number = np.where(np.isnan(q), 0.0, data.unlabelled[some])
    # The posteriors' part of A, in units of one label: its variance is its information.
    share = np.maximum(number, 1.0)
    shown = np.where(number > 0, 1 / (chance / share + np.nan_to_num(error) ** 2), 0.0)
    scores = np.where(number > 0, (q - r) * shown, 0.0)
    skew = chance * (1 - 2 * r) / share**2 + np.nan_to_num(data.skew[some, k])
    third = shown**3 * skew
    statistic = (data.known[some, k] - trials * r) / chance + scores
    total = trials / chance + shown
    statistic /= np.sqrt(1 + total * spread)
    pvalues = np.full(len(some), np.nan)
    tested = np.flatnonzero(total > 0)
    lengths = _windows(trials, r)[1][tested]
    for part in _blocks(lengths):
        at = tested[part]
        args = trials[at], r[at], statistic[at], shown[at], third[at]
        pvalues[at] = np.minimum(2 * _smaller_tail(*args), 1.0)
    return pvalues


def _windows(trials: Floats, r: Floats) -> tuple[Ints, Ints]:
    """First count of each binomial that is not negligible, and their number."""
    reach = NEGLIGIBLE * np.sqrt(trials * r * (1 - r)) + NEGLIGIBLE**2 / 2
    first = np.maximum(np.floor(trials * r - reach), 0).astype(np.int64)
    last = np.minimum(np.ceil(trials * r + reach), trials).astype(np.int64)
    return first, last - first + 1


def _blocks(lengths: Ints) -> list[Ints]:
    block = np.cumsum(lengths) // BLOCK
    return np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(block)) + 1)


def _smaller_tail(
    trials: Floats, r: Floats, statistic: Floats, shown: Floats, third: Floats
) -> Floats:
    """Minimum of P(A >= a) and P(A <= a), summed over the binomial's counts."""
    first, lengths = _windows(trials, r)
    one = np.repeat(np.arange(len(trials)), lengths)
    start = np.cumsum(lengths) - lengths
    k = first[one] + np.arange(len(one)) - start[one]
    m, p = trials[one], r[one]
    weight = gammaln(m + 1) - gammaln(k + 1) - gammaln(m - k + 1)
    weight = np.exp(weight + xlogy(k, p) + xlog1py(m - k, -p))
    off = statistic[one] - (k - m * p) / (p * (1 - p))
    # Equal counts must stay equal despite rounding.
    slack = 1e-9 * np.maximum(np.abs(statistic[one]), 1.0)
    slack = np.where(shown[one] == 0, slack, 0.0)
    upper = upper_tail(off - slack, shown[one], third[one])
    lower = upper_tail(-off - slack, shown[one], -third[one])
    sums = [np.bincount(one, weight * tail, len(trials)) for tail in (upper, lower)]
    return np.minimum(*sums).astype(np.float64)


def qvalues(pvalues: Floats) -> Floats:
    """Benjamini and Hochberg's q-values over all communities and classes compared.

    P-values are NaN where nothing is compared. With two classes the second one counts
    and the first, its mirror, gets the same q-values.
    """
    two = pvalues.shape[1] == 2
    compared = pvalues[:, 1:] if two else pvalues
    adjusted = np.full_like(compared, np.nan)
    known = ~np.isnan(compared)
    adjusted[known] = false_discovery_control(compared[known])
    return np.repeat(adjusted, 2, axis=1) if two else adjusted
