"""How often intervals hold the user's own labels, each group of the graph held out.

A group is taken for a community without labels: its posteriors are those of models
without any label of it, the spread between groups is learnt from the other groups, and
its labelled members' classes are the truth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xnq_dist.quantify.auto import interval_of_counts
from xnq_dist.quantify.learning import (
    PRIOR_VARIANCE,
    Held,
    Learnt,
    mean_variance,
    spread_likelihoods,
)
from xnq_dist.quantify.node_sums import class_codes

__all__ = ["own_coverage"]

FEWEST_LABELS = 5
"""Labels of a group whose share is compared with its interval."""
FEWEST_GROUPS = 10
"""Groups below which nothing is said."""


def own_coverage(held: Held, learnt: Learnt, level: float) -> dict[str, Any] | None:
    """Figures for people; None where too few groups have labels.

    Parameters
    ----------
    learnt
        The graph's own groups, and the variance that groups with labels have.
    level
        Confidence level of the intervals.

    Returns
    -------
    dict or None
        ``groups`` judged; ``covered``, the part of their classes' shares that lie in
        the interval; ``error`` and ``width``, the mean absolute error and the mean
        width of the intervals.
    """
    own, least = learnt.groups[held.rows], learnt.least
    number = np.bincount(own)
    judged = np.flatnonzero(number >= FEWEST_LABELS)
    if len(judged) < FEWEST_GROUPS:
        return None
    size = number[judged].astype(np.float64)
    figures = []
    for k, code in enumerate(class_codes(held.posteriors.shape[1])):
        f = held.posteriors[:, code].astype(np.float64)
        inside = np.clip(f, least, 1 - least)
        w = np.bincount(own, inside * (1 - inside))[judged].astype(np.float64)
        mean = np.bincount(own, f)[judged] / size
        truth = np.bincount(own, held.labels == code)[judged] / size
        each = spread_likelihoods((truth - mean) * size, w)
        others = learnt.within[k] + mean_variance(each.sum(axis=0) - each)
        shared = 1 / (w.sum() + 1 / PRIOR_VARIANCE)
        sd = np.sqrt(w + (others + shared) * w * w) / size
        lower, upper = interval_of_counts(mean, sd, size, level)
        covered = (truth >= lower - 1e-9) & (truth <= upper + 1e-9)
        figures.append([covered, np.abs(truth - mean), upper - lower])
    covered, error, width = np.mean(figures, axis=(0, 2))
    return {
        "groups": len(judged),
        "covered": float(covered),
        "error": float(error),
        "width": float(width),
    }
