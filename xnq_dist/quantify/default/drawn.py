"""SLD with intervals, for communities that are samples drawn by class.

Used with ``memberships.drawn = by_class``: only the user can know that membership
depends on nothing but the class. In such a sample SLD is unbiased, while the mean
posterior is biased towards the training prior.

SLD needs the class shares that the posteriors are calibrated to. Here these are the
mean posterior of the graph's unlabelled nodes: on nine tasks with three shares of
labels each, the error was at most that with the shares among the labels in 25 of 27
cases (twitch-engb 6 %: .14 instead of .27). Where the posteriors are not shown to be
better than class shares alone, SLD's estimate is noise, and `PSEUDO` pseudo-nodes at
those shares are added to every sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from xnq_dist.core.arrays import Floats, Floats32
from xnq_dist.quantify.classic.sld import Sld, guarded_prior
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)
from xnq_dist.quantify.quality import beta_ends
from xnq_dist.readout.calibration import skill

__all__ = ["DrawnByClass", "class_shifts"]


INFLATION = 2.0
"""Factor on the covariance of the calibration: neighbouring labels are not independent,
and the readout was fitted to them."""
FEW = 20.0
"""Labels of the rarer side with which that covariance is doubled."""
PSEUDO = 10.0
"""Pseudo-nodes at the graph's class shares, added where posteriors show no skill: with
them no task's samples were worse than a constant estimate, whatever family of tasks was
left out."""
TOLERANCE = 1e-5
"""Mean absolute change of the prevalence that stops EM with pseudo-nodes."""
INTERCEPT_PRIOR, SLOPE_PRIOR = 4.0, 0.25
"""Variances of the calibration's intercept and slope before any label is seen."""


@dataclass(frozen=True)
class DrawnByClass(Quantifier):
    """The quantifier ``auto`` where communities are samples drawn by class."""

    level: float = 0.95
    """Confidence level of the intervals."""
    name: str = "sld"
    gives_intervals = True

    def estimate(self, batch: Communities, nodes: NodeTable) -> Estimates:
        """SLD's prevalence among the unlabelled members, with intervals."""
        prior = nodes.mean_posterior
        if not np.isfinite(prior).all():
            prior = nodes.prior
        sld = Sld() if _skilled(nodes.reference) else Sld(TOLERANCE, pseudo=PSEUDO)
        free = batch.only(nodes.unlabelled)
        estimates = sld.from_prior(free, nodes, prior)
        ends = np.empty((2, *estimates.prevalence.shape))
        for code in nodes.class_codes:
            share = estimates.prevalence[:, code]
            ends[:, :, code] = self._ends(free, nodes, prior, share, code)
        if nodes.class_codes == [1]:
            ends[:, :, 0] = 1 - ends[::-1, :, 1]
        return replace(
            estimates,
            lower=np.minimum(ends[0], estimates.prevalence),
            upper=np.maximum(ends[1], estimates.prevalence),
        )

    def _ends(
        self,
        free: Communities,
        nodes: NodeTable,
        prior: Floats,
        share: Floats,
        code: int,
    ) -> Floats:
        """Ends of the interval of a class's share, shape (2, S).

        `free` are the unlabelled members.

        Notes
        -----
        With q the share, p the members' posteriors under it and
        ``kappa = mean(p (1 - p)) / (q (1 - q))``, the information on q is
        ``n (1 - kappa) / (q (1 - q))`` and the actual share has the variance
        ``q (1 - q) kappa / ((1 - kappa) n)`` around its estimate: 0 for posteriors of 0
        and 1, unbounded for posteriors without information. The variance c of a logit
        through the calibration adds ``c (mean(p (1 - p)) / (1 - kappa))^2``. The ends
        are those of the Beta distribution of this mean and variance, rounded to counts;
        two pseudo-nodes at the prior keep the estimate for a single node uncertain.
        """
        community = free.community

        def sums(values: Floats) -> Floats:
            totals = np.bincount(community, values, minlength=len(free))
            return totals.astype(np.float64)

        known = len(nodes.reference.labels) or 1000
        logits = _logits(nodes.posteriors[free.members], code, np.log(known + 1.0))
        expected = np.clip(prior[code], 1e-4, 1 - 1e-4)
        size = np.maximum(free.sizes, 1.0)
        q = (size * np.nan_to_num(share, nan=expected) + 2 * expected) / (size + 2)
        z = logits + (_log_odds(q) - _log_odds(expected))[community]
        spread = sums(expit(z) * expit(-z)) / size
        kappa = np.clip(spread / (q * (1 - q)), 0.0, 0.999)
        middle = sums(logits) / size
        covariance = _calibration_covariance(nodes.reference, code)
        calibration = (
            covariance[0, 0]
            + 2 * covariance[0, 1] * middle
            + covariance[1, 1] * middle * middle
        )
        variance = q * (1 - q) * kappa / ((1 - kappa) * size)
        variance += calibration * (spread / (1 - kappa)) ** 2
        ends = beta_ends(q, variance, self.level)
        return np.stack([np.floor(ends[0] * size), np.ceil(ends[1] * size)]) / size


def class_shifts(batch: Communities, nodes: NodeTable) -> Floats | None:
    """Logs of SLD's estimates over the graph's class shares, shape (S, C).

    The shifts of the members' log-posteriors, up to a constant, if a community is a
    sample drawn by class; 0 without unlabelled members. None where the posteriors are
    not shown to be better than class shares alone.
    """
    if not (np.isfinite(nodes.mean_posterior).all() and _skilled(nodes.reference)):
        return None
    prior = guarded_prior(nodes.mean_posterior)
    sld = Sld(TOLERANCE, pseudo=PSEUDO)
    share = sld.from_prior(batch, nodes, prior).prevalence
    return np.nan_to_num(np.log(share / prior))


def _skilled(reference: Reference) -> bool:
    """Whether the log-loss of the posteriors is significantly below that of shares."""
    posteriors, labels = reference.posteriors, reference.labels
    if not len(labels):
        return False
    shares = np.bincount(labels, minlength=posteriors.shape[1]) / len(labels)
    of_label = posteriors[np.arange(len(labels)), labels].astype(np.float64)
    measured = skill(-np.log(np.maximum(of_label, 1e-12)), -np.log(shares[labels]))
    return measured is not None and measured["lower"] > 0


def _log_odds(share: Floats | float) -> Floats:
    inside = np.clip(share, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def _logits(posteriors: Floats32, code: int, bound: float) -> Floats:
    """Logits of a class against the rest; 0 for a row of zeros."""
    rows = posteriors.astype(np.float64)
    total = rows.sum(axis=1)
    share = rows[:, code] / np.maximum(total, 1e-300)
    return np.where(total > 0, np.clip(_log_odds(share), -bound, bound), 0.0)


def _calibration_covariance(reference: Reference, code: int) -> Floats:
    """Covariance of intercept and slope of the calibration of a class's logits.

    From a logistic regression of the labels on the logits, with weak priors, times
    `INFLATION`, and more where the rarer side has few labels.
    """
    if not len(reference.labels):
        return np.diag([INTERCEPT_PRIOR, SLOPE_PRIOR])
    logits = _log_odds(np.asarray(reference.posteriors[:, code], np.float64))
    weights = expit(logits) * expit(-logits)
    # No BLAS: its rounding may depend on the number of threads.
    cross = (weights * logits).sum()
    information = np.array(
        [
            [weights.sum() + 1 / INTERCEPT_PRIOR, cross],
            [cross, (weights * logits**2).sum() + 1 / SLOPE_PRIOR],
        ]
    )
    count = int(np.count_nonzero(reference.labels == code))
    rarer = max(1, min(count, len(reference.labels) - count))
    return np.linalg.inv(information) * INFLATION * (1 + FEW / rarer)
