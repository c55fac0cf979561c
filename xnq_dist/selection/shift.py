"""Scores of labelled and unlabelled nodes compared, fold by fold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from xnq_dist.selection.scored_rows import ScoredRows

__all__ = ["shift_pvalue", "shift_statistic"]

Floats = NDArray[np.float64]


def shift_statistic(rows: ScoredRows) -> tuple[float, int]:
    """Squared distance of mean scores in units of chance, and degrees of freedom.

    Within a fold labelled and unlabelled nodes are scored alike, by models fitted
    without any label of the fold. So under random labels each fold's labelled nodes are
    a simple random sample of it, however good the scores are. Differences of the folds'
    means are added up with the weights ``n_l n_u / (n_l + n_u)``; their variance
    is that of random sampling from the fold.
    """
    n_classes = rows.n_classes
    total = np.zeros(n_classes - 1)
    variance = np.zeros((n_classes - 1, n_classes - 1))
    for fold in np.unique(rows.folds):
        own = rows.folds == fold
        scores, known = rows.posteriors[own, 1:], rows.labelled[own]
        n_known, n_free = int(known.sum()), int((~known).sum())
        if not n_known or not n_free:
            continue
        weight = n_known * n_free / (n_known + n_free)
        total += weight * (scores[~known].mean(axis=0) - scores[known].mean(axis=0))
        spread = np.atleast_2d(np.cov(scores, rowvar=False))
        variance += weight * spread
    values, vectors = np.linalg.eigh(variance)
    some = values > 1e-12 * max(values.max(initial=0.0), 1e-12)
    along = vectors.T[some] @ total
    return float((along**2 / values[some]).sum()), int(np.count_nonzero(some))


def shift_pvalue(rows: ScoredRows) -> float:
    """P-value of `shift_statistic` under random labels."""
    statistic, freedom = shift_statistic(rows)
    return float(chi2.sf(statistic, freedom)) if freedom else 1.0
