"""Errors of estimators on communities of a real graph, by kind, size and labels.

The literature draws samples that differ in class proportions only. Here the sets are
communities of the graph, which also differ in features and links, and samples drawn by
class from the same posteriors. The truth is that of the unlabelled members and is used
for errors only. The rows of a case suffice for means, intervals and tests over draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy.stats import binom

from xnq_dist.core.arrays import Bools, Floats, Ints
from xnq_dist.evaluation.case import Case
from xnq_dist.evaluation.estimators import Estimate
from xnq_dist.evaluation.measures import errors_of
from xnq_dist.evaluation.regions import DECLARED
from xnq_dist.quantify.interface import Communities, Estimates

__all__ = [
    "FLOOR",
    "MIN_UNLABELLED",
    "SIZES",
    "binomial_floor",
    "score_case",
    "true_counts",
]

FLOOR = "floor"
"""Name of the binomial floor among the estimators."""

MIN_UNLABELLED = 5
"""Minimum number of unlabelled members of a community that is scored."""
SIZES = ((5, 20), (20, 50), (50, 100), (100, 500), (500, 2**62))
"""Size classes, by number of unlabelled members."""


def score_case(
    case: Case, kinds: Mapping[str, Communities], estimate: Estimate
) -> Iterator[dict[str, Any]]:
    """Apply every estimator to every kind of communities and yield mean results.

    Rows have the columns of ``community_results`` from ``communities`` on: mean figures
    of one estimator on communities of one kind and size class.
    """
    for kind, sets in kinds.items():
        counts, labelled = true_counts(case, sets)
        size = counts.sum(axis=1)
        some = size >= MIN_UNLABELLED
        if not some.any():
            continue
        counts, size, inside = counts[some], size[some], labelled[some] > 0
        true = counts / size[:, None]
        found = {
            name: _figures(result, some, true, size)
            for name, result in estimate(sets, kind == DECLARED)
        }
        floor, no_bias = true + binomial_floor(counts), np.zeros(len(true))
        found[FLOOR] = errors_of(true, floor, size) | {"bias": no_bias}
        for name, figures in found.items():
            for low, high in SIZES:
                for has_labels in (False, True):
                    rows = (size >= low) & (size < high) & (inside == has_labels)
                    if rows.any():
                        yield {
                            "communities": kind,
                            "estimator": name,
                            "sizes": f"{low}-{high if high < 2**62 else ''}",
                            "labelled": has_labels,
                            "sets": int(np.count_nonzero(rows)),
                            **{k: float(v[rows].mean()) for k, v in figures.items()},
                        }


def _figures(
    result: Estimates,
    scored: Bools,
    true: Floats,
    size: Floats,
) -> dict[str, Floats]:
    """Errors of each scored community; coverage and width if there are intervals."""
    estimate = result.prevalence[scored]
    figures = errors_of(true, estimate, size)
    figures["bias"] = estimate[:, -1] - true[:, -1]
    if result.lower is not None and result.upper is not None:
        lower, upper = result.lower[scored], result.upper[scored]
        covered = (true >= lower - 1e-9) & (true <= upper + 1e-9)
        figures["coverage"] = covered.mean(axis=1)
        figures["width"] = (upper - lower).mean(axis=1)
    return figures


def true_counts(case: Case, sets: Communities) -> tuple[Floats, Ints]:
    """Unlabelled members by class, shape (S, C), and labelled members, shape (S,)."""
    n_classes = len(case.nodes.classes)
    free = np.where(case.nodes.labels < 0, case.truth, -1)
    counts = sets.class_counts(free, n_classes).astype(np.float64)
    return counts, sets.class_counts(case.nodes.labels, n_classes).sum(axis=1)


def binomial_floor(counts: Floats) -> Floats:
    """Expected error of someone who knows each community's probabilities of a class.

    This is the mean absolute deviation of a binomial share (de Moivre), by class.

    Parameters
    ----------
    counts
        Members by class, shape (S, C); their shares are the probabilities.

    Examples
    --------
    >>> binomial_floor(np.array([[1.0, 1.0], [0.0, 4.0]])).tolist()
    [[0.25, 0.25], [0.0, 0.0]]
    """
    size = counts.sum(axis=1, keepdims=True)
    share = counts / size
    above = binom.pmf(counts + 1, size, share)
    return np.asarray(2 * (counts + 1) * (1 - share) * above / size)
