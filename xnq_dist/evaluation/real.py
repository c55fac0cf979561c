"""Errors of estimators on communities of a real graph, by kind, size and labels.

The literature draws samples that differ in class proportions only. Here the sets are
communities of the graph, which also differ in features and links, and samples drawn by
class from the same posteriors. The truth is that of the unlabelled members and is used
for errors only. The rows of a case suffice for means, intervals and tests over draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from xnq_dist.evaluation.case import Case
from xnq_dist.evaluation.estimators import AnyEstimates, Estimators
from xnq_dist.evaluation.measures import absolute_error, relative_absolute_error
from xnq_dist.evaluation.regions import DECLARED, class_counts_in
from xnq_dist.quantify.interface import Communities, Estimates

__all__ = [
    "FLOOR",
    "MIN_UNLABELLED",
    "SIZES",
    "Row",
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


@dataclass(frozen=True)
class Row:
    """Mean results of one estimator on communities of one kind and size class."""

    communities: str
    estimator: str
    sizes: str
    """Minimum and maximum number of unlabelled members."""
    labelled: bool
    """Whether the communities have labelled members."""
    sets: int
    ae: float
    rae: float
    bias: float
    """Mean error of the last class, with its sign."""
    coverage: float | None = None
    """None: the estimator has no intervals."""
    width: float | None = None


def score_case(
    case: Case, kinds: Mapping[str, Communities], estimators: Estimators
) -> Iterator[Row]:
    """Apply every estimator to every kind of communities and yield mean results."""
    for kind, sets in kinds.items():
        counts, labelled = true_counts(case, sets)
        sizes = counts.sum(axis=1)
        scored = sizes >= MIN_UNLABELLED
        if not scored.any():
            continue
        true = counts[scored] / sizes[scored, None]
        of_sets = true, sizes[scored], labelled[scored], scored
        for name, result in estimators.estimates(sets, kind == DECLARED):
            yield from _rows(kind, name, result, *of_sets)
        floor = np.zeros_like(counts)
        floor[scored] = true + binomial_floor(counts[scored])
        yield from _rows(kind, FLOOR, floor, *of_sets)


def true_counts(
    case: Case, sets: Communities
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Unlabelled members by class, shape (S, C), and labelled members, shape (S,)."""
    n_classes = len(case.nodes.classes)
    free = np.where(case.nodes.labels < 0, case.truth, -1)
    counts = class_counts_in(sets, free, n_classes).astype(np.float64)
    return counts, class_counts_in(sets, case.nodes.labels, n_classes).sum(axis=1)


def binomial_floor(counts: NDArray[np.float64]) -> NDArray[np.float64]:
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


def _rows(
    kind: str,
    name: str,
    result: AnyEstimates,
    true: NDArray[np.float64],
    sizes: NDArray[np.float64],
    labelled: NDArray[np.int64],
    scored: NDArray[np.bool_],
) -> Iterator[Row]:
    estimate = result.prevalence if isinstance(result, Estimates) else result
    estimate = estimate[scored]
    bias = estimate[:, -1] - true[:, -1]
    values = {
        "ae": absolute_error(true, estimate),
        "rae": relative_absolute_error(true, estimate, sizes.astype(np.int64)),
        "bias": bias if name != FLOOR else np.zeros(len(true)),
    }
    ends = (result.lower, result.upper) if isinstance(result, Estimates) else ()
    if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
        lower, upper = ends[0][scored], ends[1][scored]
        covered = (true >= lower - 1e-9) & (true <= upper + 1e-9)
        values["coverage"] = covered.mean(axis=1)
        values["width"] = (upper - lower).mean(axis=1)
    for low, high in SIZES:
        for inside in (False, True):
            rows = (sizes >= low) & (sizes < high) & ((labelled > 0) == inside)
            if rows.any():
                size = f"{low}-{high}" if high < 2**62 else f"{low}-"
                number = int(np.count_nonzero(rows))
                means = {key: float(each[rows].mean()) for key, each in values.items()}
                yield Row(kind, name, size, inside, number, **means)
