"""Coverage of the intervals on the user's labels, each group of the graph held out.

A group stands for a community without labels: its posteriors are from models fitted
without its labels, the variance between groups is learnt from the other groups, and its
labelled members' classes are the truth.
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

MIN_LABELS = 5
"""Minimum labels of a group whose share is compared with its interval."""
MIN_GROUPS = 10
"""Minimum number of such groups for a result."""


def own_coverage(held: Held, learnt: Learnt, level: float) -> dict[str, Any] | None:
    """Measure the coverage over groups; None where too few groups have labels.

    Returns ``groups``, their number; ``covered``, the part of their classes' shares
    that lie in the interval; ``error`` and ``width``, the mean absolute error and the
    mean width of the intervals.
    """
    every, least = learnt.groups[:, held.rows], learnt.least
    coarse = every[0]
    number = np.bincount(coarse)
    tested = np.flatnonzero(number >= MIN_LABELS)
    if len(tested) < MIN_GROUPS:
        return None
    size = number[tested].astype(np.float64)
    figures = []
    for k, code in enumerate(class_codes(held.posteriors.shape[1])):
        f = held.posteriors[:, code].astype(np.float64)
        inside = np.clip(f, least, 1 - least)
        each_w = inside * (1 - inside)
        w = np.bincount(coarse, each_w)[tested].astype(np.float64)
        mean = np.bincount(coarse, f)[tested] / size
        truth = np.bincount(coarse, held.labels == code)[tested] / size
        each = spread_likelihoods((truth - mean) * size, w)
        others = learnt.within[k] + mean_variance(each.sum(axis=0) - each)
        shared = 1 / (w.sum() + 1 / PRIOR_VARIANCE)
        variance = w + (others + shared) * w * w
        for codes in every[1:]:
            at, inverse = np.unique(
                np.stack([coarse, codes]), axis=1, return_inverse=True
            )
            part = np.bincount(inverse, each_w)
            # The group's labels are held out of the other partitions' groups, too.
            left = np.maximum(learnt.information[at[1], k] - part, 0.0)
            shifts = part * part * left_open(learnt.without[k], left)
            variance += np.bincount(at[0], shifts, len(number))[tested]
        sd = np.sqrt(variance) / size
        lower, upper = interval_of_counts(mean, sd, size, level)
        covered = (truth >= lower - 1e-9) & (truth <= upper + 1e-9)
        figures.append([covered, np.abs(truth - mean), upper - lower])
    covered, error, width = np.mean(figures, axis=(0, 2))
    return {
        "groups": len(tested),
        "covered": float(covered),
        "error": float(error),
        "width": float(width),
    }
