"""Communities whose prevalence differs from an earlier run's beyond chance.

References
----------
G. Y. Zou, A. Donner, "Construction of confidence limits about effect measures: a
general approach", Statistics in Medicine 27(10), 2008 (limits of a difference from the
limits of its parts).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import erfc, ndtri

from xnq_dist.core.arrays import Floats
from xnq_dist.quantify.checks.anomalies import qvalues

__all__ = ["Changes", "find_changes"]


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


def find_changes(
    now: tuple[Floats, Floats, Floats],
    then: tuple[Floats, Floats, Floats],
    level: float,
    level_then: float | None = None,
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

    Notes
    -----
    The null hypothesis is that the share among the community's actual members has not
    changed: members that joined or left are a change like any other, and between fully
    labelled communities every difference is a change. The variance of the difference is
    the sum of both estimates' variances, each from the half of its interval on the side
    of the other estimate, as if it were normal. Errors that both runs share, of the
    same graph, labels and readout, cancel in the difference: treating them as
    independent makes intervals too wide and p-values too large, never the reverse.
    Of two classes the second is compared and the first mirrors it.
    """
    z, z_then = (
        float(ndtri((1 + probability) / 2))
        for probability in (level, level_then or level)
    )
    effect = now[0] - then[0]
    # Standard errors of the effect, below and above it.
    down = np.hypot((now[0] - now[1]) / z, (then[2] - then[0]) / z_then)
    up = np.hypot((now[2] - now[0]) / z, (then[0] - then[1]) / z_then)
    # Where both are known exactly, any difference is a change.
    error = np.maximum(np.where(effect > 0, down, up), 1e-12)
    known = ~np.isnan(down + up)
    pvalue = np.where(known, erfc(np.abs(effect) / error / np.sqrt(2)), np.nan)
    return Changes(effect, effect - z * down, effect + z * up, pvalue, qvalues(pvalue))
