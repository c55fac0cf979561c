"""Data of the funnel plot: prevalence against community size, with control limits.

References
----------
D. J. Spiegelhalter, "Funnel plots for comparing institutional performance", Statistics
in Medicine 24(8), 2005.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.special import ndtri

from xnq_dist.core.arrays import Floats
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.checks.anomalies import Anomalies
from xnq_dist.report.view import PrevalenceView

__all__ = ["control_limits", "reference_of", "typical_error"]


LIMITS = (0.95, 0.998)
"""Probabilities of the inner and the outer control limits, as Spiegelhalter's."""
STEPS_A_DECADE = 6
"""Maximum number of size ranges per decade for the typical error."""
MIN_COMMUNITIES = 12
"""Minimum number of communities in a size range."""


def reference_of(
    view: PrevalenceView,
    anomalies: Anomalies | None,
    settings: Settings,
    place: int = -1,
) -> float:
    """Prevalence that the class in one column of a view is compared with, or NaN."""
    p, sizes = view.prevalence[:, place], view.n_nodes.astype(np.float64)
    known = ~np.isnan(p) & (sizes > 0)
    if anomalies is not None:
        return float(anomalies.centre[place])
    if settings.anomalies.reference != "rest":
        last = place in (-1, len(view.classes) - 1)
        return float(settings.anomalies.reference) if last else np.nan
    if not known.any():
        return np.nan
    return float((sizes[known] * p[known]).sum() / sizes[known].sum())


def typical_error(sizes: Floats, error: Floats, at: Floats) -> Floats:
    """Median standard error of communities as a function of size.

    Parameters
    ----------
    sizes, error
        Sizes and standard errors of the communities, NaN if unknown, shape (K,).
    at
        Sizes to evaluate the function at, shape (n,).

    Returns
    -------
    NDArray
        Shape (n,), interpolated in log size between medians of size ranges; 0 when no
        error is known.
    """
    known = ~np.isnan(error) & (sizes > 0)
    if not known.any():
        return np.zeros(len(at))
    order = np.argsort(sizes[known], kind="stable")
    place, errors = np.log10(sizes[known][order]), error[known][order]
    steps = np.arange(np.ceil(place[0] * STEPS_A_DECADE), place[-1] * STEPS_A_DECADE)
    starts = [0]
    for end in np.searchsorted(place, (steps + 1) / STEPS_A_DECADE).tolist():
        if min(end - starts[-1], len(place) - end) >= MIN_COMMUNITIES:
            starts.append(end)
    ranges = [slice(a, b) for a, b in pairwise([*starts, len(place)])]
    middles = [float(np.median(place[one])) for one in ranges]
    medians = [float(np.median(errors[one])) for one in ranges]
    return np.interp(np.log10(at), middles, medians)


def control_limits(
    view: PrevalenceView, place: int, r: float, level: float, at: Floats
) -> list[Floats]:
    """Half-widths of the inner and outer control limits at some sizes.

    The limits contain 95 and 99.8 % of communities of a size n whose members are a
    random sample with prevalence r, the reference, and whose estimates have the typical
    standard error e(n) of that size: ``r +- z sqrt(r (1 - r) / n + e(n)^2)``. `level`
    is the confidence level of the intervals.
    """
    if np.isnan(r):
        return []
    half = (view.upper[:, place] - view.lower[:, place]) / 2
    se = half / float(ndtri((1 + level) / 2))
    error = typical_error(view.n_nodes.astype(np.float64), se, at)
    spread = np.sqrt(r * (1 - r) / at + error**2)
    return [float(ndtri((1 + one) / 2)) * spread for one in LIMITS]
