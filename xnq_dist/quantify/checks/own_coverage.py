"""How often intervals hold the user's own labels, each group of the graph held out.

A group is taken for a community without labels: its posteriors are those of models
without any label of it, the spread between groups is learnt from the other groups, and
its labelled members' classes are the truth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xnq_dist.quantify.default.auto import interval_of_counts
from xnq_dist.quantify.default.estimator_fit import (
    PRIOR_VARIANCE,
    Held,
    Learnt,
    left_open,
    mean_variance,
    spread_likelihoods,
)
from xnq_dist.quantify.default.node_sums import class_codes

__all__ = ["own_coverage"]

FEWEST_LABELS = 5
"""Labels of a group whose share is compared with its interval."""
FEWEST_GROUPS = 10
"""Groups below which nothing is said."""


def own_coverage(held: Held, learnt: Learnt, level: float) -> dict[str, Any] | None:
    """Figures for people; None where too few groups have labels.

    ``groups`` judged; ``covered``, the part of their classes' shares that lie in the
    interval; ``error`` and ``width``, the mean absolute error and the mean width of the
    intervals.
    """
    every, least = learnt.groups[:, held.rows], learnt.least
    own = every[0]
    number = np.bincount(own)
    judged = np.flatnonzero(number >= FEWEST_LABELS)
    if len(judged) < FEWEST_GROUPS:
        return None
    size = number[judged].astype(np.float64)
    figures = []
    for k, code in enumerate(class_codes(held.posteriors.shape[1])):
        f = held.posteriors[:, code].astype(np.float64)
        inside = np.clip(f, least, 1 - least)
        each_w = inside * (1 - inside)
        w = np.bincount(own, each_w)[judged].astype(np.float64)
        mean = np.bincount(own, f)[judged] / size
        truth = np.bincount(own, held.labels == code)[judged] / size
        each = spread_likelihoods((truth - mean) * size, w)
        others = learnt.within[k] + mean_variance(each.sum(axis=0) - each)
        shared = 1 / (w.sum() + 1 / PRIOR_VARIANCE)
        variance = w + (others + shared) * w * w
        for codes in every[1:]:
            at, inverse = np.unique(np.stack([own, codes]), axis=1, return_inverse=True)
            part = np.bincount(inverse, each_w)
            # The group's own labels are held out of the other partitions' too.
            left = np.maximum(learnt.information[at[1], k] - part, 0.0)
            shifts = part * part * left_open(learnt.without[k], left)
            variance += np.bincount(at[0], shifts, len(number))[judged]
        sd = np.sqrt(variance) / size
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
