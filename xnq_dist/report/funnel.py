"""Data of the funnel plot: prevalence against community size, with control limits.

References
----------
D. J. Spiegelhalter, "Funnel plots for comparing institutional performance", Statistics
in Medicine 24(8), 2005.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from xnq_dist.core.config import Settings
from xnq_dist.quantify.checks.anomalies import Anomalies
from xnq_dist.report.view import PrevalenceView

__all__ = ["Funnel", "control_limits", "typical_error"]

Floats = NDArray[np.float64]

LIMITS = (0.95, 0.998)
"""Probabilities of the inner and the outer control limits, as Spiegelhalter's."""
STEPS_A_DECADE = 6
"""Maximum number of size ranges per decade for the typical error."""
MIN_COMMUNITIES = 12
"""Minimum number of communities in a size range."""


@dataclass(frozen=True, eq=False)
class Funnel:
    """Data of the plot for K communities."""

    sizes: Floats
    """Members, shape (K,)."""
    error: Floats
    """Standard error of the estimate; NaN without an interval, shape (K,)."""
    reference: float
    """Prevalence that communities are compared with."""

    @classmethod
    def of(
        cls,
        view: PrevalenceView,
        anomalies: Anomalies | None,
        settings: Settings,
        place: int = -1,
    ) -> Funnel:
        """Plot data of the class in one column of a view."""
        p = view.prevalence[:, place]
        sizes = view.n_nodes.astype(np.float64)
        half = (view.upper[:, place] - view.lower[:, place]) / 2
        known = ~np.isnan(p) & (sizes > 0)
        reference = np.nan
        if anomalies is not None:
            reference = float(anomalies.centre[place])
        elif settings.anomalies.reference != "rest":
            if place in (-1, len(view.classes) - 1):
                reference = float(settings.anomalies.reference)
        elif known.any():
            reference = float((sizes[known] * p[known]).sum() / sizes[known].sum())
        return cls(
            sizes=sizes,
            error=half / float(ndtri((1 + settings.intervals.level) / 2)),
            reference=reference,
        )


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


def control_limits(shown: Funnel, at: Floats) -> list[Floats]:
    """Half-widths of the inner and outer control limits at some sizes.

    The limits contain 95 and 99.8 % of communities of a size n whose members are a
    random sample with prevalence r, the reference, and whose estimates have the typical
    standard error e(n) of that size: ``r +- z sqrt(r (1 - r) / n + e(n)^2)``.
    """
    r = shown.reference
    if np.isnan(r):
        return []
    error = typical_error(shown.sizes, shown.error, at)
    spread = np.sqrt(r * (1 - r) / at + error**2)
    return [float(ndtri((1 + one) / 2)) * spread for one in LIMITS]
