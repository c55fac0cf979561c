"""Standard errors, and a test of each community's fit to its labels.

The p-value tests whether the labelled members' classes could come from their
posteriors.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from xnq_dist.core.arrays import Floats
from xnq_dist.quantify.checks.evidence import Evidence
from xnq_dist.quantify.checks.tails import upper_tail

__all__ = ["fit_pvalues", "standard_errors"]


def standard_errors(
    sd: Floats | None, lower: Floats, upper: Floats, level: float
) -> Floats:
    """Return `sd`, with the values implied by the intervals where it is None or NaN."""
    implied = (upper - lower) / (2 * float(ndtri((1 + level) / 2)))
    return implied if sd is None else np.where(np.isnan(sd), implied, sd)


def fit_pvalues(evidence: Evidence) -> Floats:
    """P-value of the agreement of labels with posteriors, for every community, (S,).

    Uniform, or larger, where classes are drawn from the posteriors, shifted as in other
    groups of this graph; NaN without a labelled member whose posterior was computed
    without its label. Two-sided, with the continuity correction of a count; with more
    than two classes the smallest p-value times their number (Bonferroni).
    """
    off = np.maximum(np.abs(evidence.residual) - 0.5, 0.0)
    third = np.sign(evidence.residual) * evidence.third
    one = np.minimum(2 * upper_tail(off, evidence.variance, third), 1.0)
    pvalue = np.minimum(one.min(axis=1, initial=1.0) * one.shape[1], 1.0)
    return np.where(evidence.checked > 0, pvalue, np.nan)
