"""How far off a community's estimate may be, and whether its labels agree with it.

Two different questions. The expected error follows from the standard error, which
includes every known source of error; `flagged` marks where it is large. The p-value
tests whether the labelled members' classes could come from their posteriors.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from xnq_dist.core.arrays import Floats
from xnq_dist.quantify.checks.evidence import Evidence
from xnq_dist.quantify.checks.tails import upper_tail

__all__ = ["expected_errors", "fit_pvalues", "standard_errors"]


def standard_errors(
    sd: Floats | None, lower: Floats, upper: Floats, level: float
) -> Floats:
    """Standard errors; without any, those that the intervals imply."""
    implied = (upper - lower) / (2 * float(ndtri((1 + level) / 2)))
    return implied if sd is None else np.where(np.isnan(sd), implied, sd)


def expected_errors(sd: Floats) -> Floats:
    """Expected absolute error, mean over classes: that of a normal error.

    Examples
    --------
    >>> expected_errors(np.array([[0.1, 0.1]])).round(3).tolist()
    [0.08]
    """
    return np.asarray(np.sqrt(2 / np.pi) * sd.mean(axis=1))


def fit_pvalues(evidence: Evidence) -> Floats:
    """P-value of the agreement of labels with posteriors, for every community, (S,).

    Uniform, or larger, where classes are drawn from the posteriors and from the shifts
    that communities of this graph usually have; NaN without a labelled member whose
    posterior has not seen its label. Two-sided, with the continuity correction of a
    count; over more than two classes the smallest times their number (Bonferroni).
    """
    off = np.maximum(np.abs(evidence.residual) - 0.5, 0.0)
    third = np.sign(evidence.residual) * evidence.third
    one = np.minimum(2 * upper_tail(off, evidence.variance, third), 1.0)
    pvalue = np.minimum(one.min(axis=1, initial=1.0) * one.shape[1], 1.0)
    return np.where(evidence.checked > 0, pvalue, np.nan)
