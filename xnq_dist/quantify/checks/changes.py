"""Communities whose prevalence differs from an earlier run's beyond chance.

Two runs of nearly the same tables share most of their errors: those of the same labels
and features cancel in the difference. What is left is what another seed or a changed
edge does to the posteriors, and the error about members and labels that only one of the
runs has. The first part is measured each time: three in four communities have hardly
changed, so the 75 % quantile of all differences, in units of the errors that the runs
claim, is its size. This noise has heavier tails than the normal distribution, because
few communities have many nodes of uncertain class: it is taken as Student's.

References
----------
G. Y. Zou, A. Donner, "Construction of confidence limits about effect measures: a
general approach", Statistics in Medicine 27(10), 2008 (limits of a difference from the
limits of its parts).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, erfc, ndtri, stdtr, stdtrit

from xnq_dist.core.arrays import Bools, Floats, Ints
from xnq_dist.quantify.checks.anomalies import qvalues

__all__ = ["Changes", "Counts", "find_changes", "reveals"]

MIN_NOISE = 0.12
"""Smallest noise between two runs, as a share of the errors that they claim."""
TAILS = 5
"""Degrees of freedom of the noise's Student distribution."""
BULK, SURE = 0.75, 0.95
"""Quantile of the differences that measures the noise, and confidence of its limit."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Members of the same S communities in one run, and their standard errors."""

    members: Ints
    labelled: Ints
    estimated: Ints
    """Members whose class is estimated."""
    se: Floats
    """Standard errors of the prevalence, NaN where there is none, shape (S, C)."""


@dataclass(frozen=True, eq=False)
class Changes:
    """Difference of each community from an earlier run."""

    effect: Floats
    """Prevalence now minus then; NaN without both, shape (S, C)."""
    lower: Floats
    """Ends of the effect's interval; NaN where nothing is compared, shape (S, C)."""
    upper: Floats
    pvalue: Floats
    """Two-sided, of no change, shape (S, C)."""
    qvalue: Floats
    """Smallest false discovery rate at which the change is flagged, shape (S, C)."""
    noise: Floats
    """Typical difference between two runs of the same members and labels, as a standard
    deviation, shape (S, C)."""


def find_changes(
    now: tuple[Floats, Floats, Floats],
    then: tuple[Floats, Floats, Floats],
    level: float,
    level_then: float | None = None,
    counts: tuple[Counts, Counts] | None = None,
) -> Changes:
    """Compare every community with itself in an earlier run.

    Parameters
    ----------
    now, then
        Prevalence, lower and upper ends of the same S communities in the same order,
        NaN where there is none, shape (S, C) each.
    level
        Confidence level, inside (0, 1), of the intervals and of the effect's interval.
    level_then
        Confidence level of the earlier run's intervals; None: the same.
    counts
        Members now and then, of runs that share their errors; None: the errors of the
        two runs are taken as independent.

    Notes
    -----
    The null hypothesis is that the share among the community's actual members has not
    changed: members that joined or left are a change like any other, and between fully
    labelled communities every difference is a change. Independent errors have the sum
    of both estimates' variances, each from the half of its interval on the side of the
    other estimate, as if it were normal, or from its standard error where that is
    larger, because ends that are rounded to counts can equal the estimate.

    With `counts` the variance is ``(r^2 + (1 - r^2) f)`` times that. f is the share of
    the estimated members that only one run estimates, at least: the difference of
    members, or of labels, over the smaller number. r is the noise: an upper limit of
    the quantile `BULK` of all differences, in units of independent standard errors and
    of that quantile of Student's distribution, which then stands in for the normal one,
    at least `MIN_NOISE` and at most 1. Where independent normal errors give a smaller
    p-value or a narrower interval, these hold: they allow for more than noise.

    Of two classes the second is compared and the first mirrors it. Q-values control the
    false discovery rate over all communities and classes; where nothing has changed,
    that is the probability of any flag in the comparison.
    """
    z, z_then = (
        float(ndtri((1 + probability) / 2))
        for probability in (level, level_then or level)
    )
    effect = now[0] - then[0]
    low, high = (now[0] - now[1]) / z, (now[2] - now[0]) / z
    low_then, high_then = (then[0] - then[1]) / z_then, (then[2] - then[0]) / z_then
    typical, z_of = 1.0, np.full((1, 1), z)
    if counts is not None:
        low, high = (np.fmax(half, counts[0].se) for half in (low, high))
        low_then, high_then = (
            np.fmax(half, counts[1].se) for half in (low_then, high_then)
        )
    # Standard errors of the effect, below and above it.
    down, up = np.hypot(low, high_then), np.hypot(high, low_then)
    if counts is not None:
        typical, limit = _noise(effect, np.where(effect > 0, down, up))
        shares = limit**2 + (1 - limit**2) * _fresh(*counts)[:, None]
    noise = typical * np.minimum(down, up)
    # Where both are known exactly, any difference is a change.
    error = np.maximum(np.where(effect > 0, down, up), 1e-12)
    known = ~np.isnan(down + up)
    pvalue = np.where(known, erfc(np.abs(effect) / error / np.sqrt(2)), np.nan)
    if counts is not None:
        student = 2 * stdtr(TAILS, -np.abs(effect) / (np.sqrt(shares) * error))
        pvalue = np.minimum(pvalue, student)
        wide = float(stdtrit(TAILS, (1 + level) / 2))
        z_of = np.minimum(z, wide * np.sqrt(shares))
    lower, upper = effect - z_of * down, effect + z_of * up
    return Changes(effect, lower, upper, pvalue, qvalues(pvalue), noise)


def _fresh(now: Counts, then: Counts) -> Floats:
    """Share of the estimated members that only one run estimates, at least, (S,)."""
    moved = np.maximum(
        np.abs(now.members - then.members), np.abs(now.labelled - then.labelled)
    )
    both = np.maximum(np.minimum(now.estimated, then.estimated), 1)
    return np.asarray(np.minimum(moved / both, 1.0))


def _noise(effect: Floats, error: Floats) -> tuple[float, float]:
    """Median size of the differences, and an upper limit of their size, at most 1.

    Both are standard deviations in units of independent errors. The limit is from the
    quantile `BULK`, and 1 with fewer differences than it needs (11).
    """
    first = 1 if effect.shape[1] == 2 else 0
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = (np.abs(effect) / error)[:, first:]
    sizes = np.sort(sizes[np.isfinite(sizes)])
    number = len(sizes)
    # Places that are above the quantile with the probability SURE.
    above = np.flatnonzero(bdtr(np.arange(number), number, BULK) >= SURE)
    limit = (
        float(sizes[above[0]] / stdtrit(TAILS, (1 + BULK) / 2)) if len(above) else 1.0
    )
    typical = float(np.median(sizes) / ndtri(0.75)) if number else 0.0
    return min(typical, 1.0), min(max(limit, MIN_NOISE), 1.0)


def reveals(noise: Floats, now: Ints, then: Ints, min_size: int) -> Bools:
    """Whether the shares of two runs together show those of a few members, shape (S,).

    They do if the numbers of members `now` and `then` differ by fewer than `min_size`,
    and the noise between the runs, times 1.96, is smaller than these members.
    """
    moved = np.abs(now - then)
    covered = 1.96 * noise * now >= moved
    return np.asarray((moved > 0) & (moved < min_size) & ~covered)
