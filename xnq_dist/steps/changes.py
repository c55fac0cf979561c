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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import bdtr, erfc, stdtr, stdtrit

from xnq_dist.core.arrays import Floats
from xnq_dist.quantify.quality import z_value
from xnq_dist.steps.against_rest import qvalues

__all__ = ["find_changes"]

MIN_NOISE = 0.12
"""Smallest noise between two runs, as a share of the errors that they claim."""
TAILS = 5
"""Degrees of freedom of the noise's Student distribution."""
BULK, SURE = 0.75, 0.95
"""Quantile of the differences that measures the noise, and confidence of its limit."""


def find_changes(now: pa.Table, then: pa.Table, level: float) -> dict[str, Floats]:
    """Compare every community with itself in an earlier run.

    Parameters
    ----------
    now, then
        Columns of the table ``prevalence``: the same n communities and classes in the
        same order, null where there is no value.
    level
        Confidence level, inside (0, 1), of the intervals and of the effect's interval.

    Returns
    -------
    dict
        ``effect`` (prevalence now minus then), the ends ``lower`` and ``upper`` of its
        interval, ``pvalue`` (two-sided, of no change) and ``qvalue`` (smallest false
        discovery rate at which it is flagged), shape (n,) each; NaN: not compared.

    Notes
    -----
    The null hypothesis is that the share among the community's actual members has not
    changed: members that joined or left are a change like any other, and between fully
    labelled communities every difference is a change. Independent errors have the sum
    of both estimates' variances, each from the half of its interval on the side of the
    other estimate, as if it were normal, or from its standard error where that is
    larger, because ends that are rounded to counts can equal the estimate.

    The variance is ``(r^2 + (1 - r^2) f)`` times that. f is the share of the estimated
    members that only one run estimates, at least: the difference of members, or of
    labels, over the smaller number. r is the noise: an upper limit of the quantile
    `BULK` of all differences, in units of independent standard errors and of that
    quantile of Student's distribution, which then stands in for the normal one, at
    least `MIN_NOISE` and at most 1. Where independent normal errors give a smaller
    p-value or a narrower interval, these hold: they allow for more than noise.

    Q-values control the false discovery rate over all communities and classes
    (Benjamini and Hochberg); where nothing has changed, that is the probability of any
    flag in the comparison.
    """
    normal = z_value(level)
    effect = _numbers(now, "prevalence") - _numbers(then, "prevalence")
    (low, high), (low_then, high_then) = (_errors(each, normal) for each in (now, then))
    # Standard errors of the effect, below and above it.
    down, up = np.hypot(low, high_then), np.hypot(high, low_then)
    nearer = np.where(effect > 0, down, up)
    two = len(pc.unique(now["class"])) == 2
    limit = _noise(effect, nearer, 2 if two else 1)
    shares = limit**2 + (1 - limit**2) * _fresh(now, then)
    # Where both are known exactly, any difference is a change.
    error = np.maximum(nearer, 1e-12)
    known = ~np.isnan(down + up)
    pvalue = np.where(known, erfc(np.abs(effect) / error / np.sqrt(2)), np.nan)
    student = 2 * stdtr(TAILS, -np.abs(effect) / (np.sqrt(shares) * error))
    pvalue = np.minimum(pvalue, student)
    z = np.minimum(normal, float(stdtrit(TAILS, (1 + level) / 2)) * np.sqrt(shares))
    ends = {"lower": effect - z * down, "upper": effect + z * up}
    return {"effect": effect, **ends, "pvalue": pvalue, "qvalue": qvalues(pvalue)}


def _numbers(table: pa.Table, name: str) -> Floats:
    """Values of a column; null becomes NaN."""
    return np.asarray(table[name].cast(pa.float64()).to_numpy())


def _errors(table: pa.Table, z: float) -> tuple[Floats, Floats]:
    """Standard errors below and above the estimates, shape (n,) each."""
    columns = ("prevalence", "lower", "upper", "se")
    p, lower, upper, se = (_numbers(table, name) for name in columns)
    return np.fmax((p - lower) / z, se), np.fmax((upper - p) / z, se)


def _fresh(now: pa.Table, then: pa.Table) -> Floats:
    """Share of the estimated members that only one run estimates, at least, (n,)."""
    nodes, labels, estimated = (
        (_numbers(now, name), _numbers(then, name))
        for name in ("n_nodes", "n_labelled", "n_estimated")
    )
    moved = np.maximum(np.abs(nodes[0] - nodes[1]), np.abs(labels[0] - labels[1]))
    return np.minimum(moved / np.maximum(np.minimum(*estimated), 1), 1.0)


def _noise(effect: Floats, error: Floats, times: int) -> float:
    """An upper limit of the size of the differences, in units of independent errors.

    It is from the quantile `BULK`, and 1 with fewer differences than it needs (11).
    Each difference is there `times` over.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.abs(effect) / error
    sizes = np.sort(sizes[np.isfinite(sizes)])[::times]
    number = len(sizes)
    # Places that are above the quantile with the probability SURE.
    above = np.flatnonzero(bdtr(np.arange(number), number, BULK) >= SURE)
    if not len(above):
        return 1.0
    limit = float(sizes[above[0]] / stdtrit(TAILS, (1 + BULK) / 2))
    return min(max(limit, MIN_NOISE), 1.0)
