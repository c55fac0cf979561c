"""Communities that differ from the rest, or from a given share, beyond chance.

References
----------
Y. Benjamini, Y. Hochberg, "Controlling the false discovery rate", Journal of the Royal
Statistical Society B 57(1), 1995.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc, ndtri

__all__ = ["Anomalies", "find_anomalies", "qvalues"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Anomalies:
    """How far each community is from what it is compared with."""

    reference: Floats
    """What it is compared with, shape (S, C)."""
    effect: Floats
    """Prevalence less reference; NaN without a prevalence, shape (S, C)."""
    pvalue: Floats
    """Two-sided, shape (S, C); NaN where nothing is compared."""
    qvalue: Floats
    """Least rate of false discoveries at which it is one, shape (S, C)."""


def find_anomalies(
    prevalence: Floats,
    lower: Floats,
    upper: Floats,
    n_nodes: NDArray[np.int64],
    level: float,
    reference: float | None = None,
) -> Anomalies:
    """Compare communities with all others together, or the last class with a share.

    Parameters
    ----------
    prevalence, lower, upper
        Estimates and their intervals, NaN where there is none, shape (S, C).
    n_nodes
        Members, shape (S,).
    level
        Probability of the intervals, inside (0, 1).
    reference
        Share of the last of two classes; None: the mean of all other communities,
        weighted by their members.

    Notes
    -----
    The null hypothesis is that the members are a sample drawn at the reference r. Its
    variance ``r (1 - r) / n`` adds to that of the estimate, which is taken from the
    half of the interval that looks to the reference, as if it were normal. Of two
    classes the second is compared and the first mirrors it; q-values are over all
    classes compared (Benjamini and Hochberg).
    """
    n_classes = prevalence.shape[1]
    known = ~np.isnan(prevalence + lower + upper) & (n_nodes > 0)[:, None]
    weights = np.where(known, n_nodes[:, None], 0).astype(np.float64)
    values = np.where(known, prevalence, 0.0)
    if reference is None:
        rest = weights.sum(axis=0) - weights
        total = (weights * values).sum(axis=0) - weights * values
        compared = np.divide(
            total, rest, out=np.full_like(values, np.nan), where=rest > 0
        )
    else:
        shares = np.full(n_classes, np.nan)
        shares[-1] = reference
        if n_classes == 2:
            shares[0] = 1 - reference
        compared = np.tile(shares, (len(prevalence), 1))
    effect = prevalence - compared
    half = np.where(effect > 0, prevalence - lower, upper - prevalence)
    error = half / ndtri((1 + level) / 2)
    chance = np.clip(compared * (1 - compared), 0, None)
    chance /= np.maximum(n_nodes, 1)[:, None]
    # A reference of 0 or 1 leaves no chance: what differs from it, differs.
    spread = np.maximum(np.sqrt(error**2 + chance), 1e-12)
    pvalue = np.where(known, erfc(np.abs(effect) / spread / np.sqrt(2)), np.nan)
    effect = np.where(known, effect, np.nan)
    return Anomalies(compared, effect, pvalue, qvalues(pvalue))


def qvalues(pvalues: Floats) -> Floats:
    """Benjamini and Hochberg's q-values over all communities and classes compared.

    Parameters
    ----------
    pvalues
        NaN where nothing is compared, shape (S, C). Of two classes the second counts
        and the first, its mirror, gets the same.
    """
    two = pvalues.shape[1] == 2
    own = pvalues[:, 1:] if two else pvalues
    found = np.full_like(own, np.nan)
    some = ~np.isnan(own)
    values = own[some]
    order = np.argsort(values, kind="stable")
    # p m / rank, and none above that of a larger p-value.
    scaled = values[order] * len(values) / np.arange(1, len(values) + 1)
    least = np.minimum.accumulate(scaled[::-1])[::-1]
    values[order] = np.minimum(least, 1.0)
    found[some] = values
    return np.repeat(found, 2, axis=1) if two else found
