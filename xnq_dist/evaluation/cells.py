"""Statistics over draws of labels, from the results of an evaluation on communities.

A cell is a graph, a kind of communities, a design and a share of labels. Draws of the
labels are the independent repetitions, since communities of one draw share its labels
and its model.

References
----------
S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal
of Statistics 6, 1979.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.stats import t as student
from scipy.stats import ttest_rel

from xnq_dist.evaluation.names import shown
from xnq_dist.evaluation.regions import SAMPLES

__all__ = [
    "MIN_DRAWS",
    "MIN_SETS",
    "TOLERANCE",
    "Covered",
    "Figures",
    "RatioCell",
    "coverage",
    "holm",
    "means",
    "ratio_cells",
    "real",
    "sized",
]

MIN_SETS = 20
"""Minimum number of communities in a cell."""
MIN_DRAWS = 10
"""Minimum number of draws for a test."""
TOLERANCE = 1.05
"""Maximum ratio of an estimator's error to the baseline's."""
LEVEL = 0.05
"""Significance level of a test, over all its cells."""
BOUNDS = 0.99
"""Confidence level of the bounds of a coverage."""
SMALL = "5-20"
"""Size class that is left out of the tables of errors."""
METRICS = ("ae", "coverage", "width")
CELL = ("dataset", "design", "communities", "label_share")

Figures = dict[str, Any]


@dataclass(frozen=True)
class RatioCell:
    """An estimator's error in one cell, compared with a baseline's."""

    name: str
    """Graph, kind of communities and share of labels."""
    ratio: float
    """Ratio of the mean errors."""
    pvalue: float | None
    """One-sided paired t test of errors above the bound, after Holm's adjustment over
    the cells tested together; None: too few draws."""

    @property
    def above(self) -> bool:
        """Whether the error is significantly above the bound."""
        return self.pvalue is not None and self.pvalue < LEVEL


@dataclass(frozen=True)
class Covered:
    """Coverage of intervals, with confidence bounds clustered by draw."""

    value: float
    lower: float
    upper: float
    """Bounds are NaN with fewer than two draws."""
    width: float


def real(table: pa.Table) -> pa.Table:
    """Rows of communities, without samples drawn by class."""
    samples = pc.is_in(table["communities"], pa.array(list(SAMPLES)))
    return table.filter(pc.invert(samples))


def sized(table: pa.Table) -> pa.Table:
    """Rows of communities that are large enough for the tables of errors."""
    return table.filter(pc.not_equal(table["sizes"], SMALL))


def means(table: pa.Table, by: Sequence[str]) -> list[Figures]:
    """Figures averaged over communities, grouped by columns, in order of appearance.

    Each group has the columns of `by`, the metrics (None if no community has one), and
    ``sets``.
    """
    sets = table["sets"]
    parts = {name: table[name] for name in by} | {"sets": sets}
    for name in METRICS:
        parts[name] = pc.multiply(table[name], pc.cast(sets, pa.float64()))
        parts[f"{name} sets"] = pc.if_else(pc.is_valid(table[name]), sets, 0)
    summed = [name for name in parts if name not in by]
    sums = (
        pa.table(parts)
        .group_by(list(by), use_threads=False)
        .aggregate([(name, "sum") for name in summed])
    )
    rows = []
    for row in sums.to_pylist():
        figures = {name: row[name] for name in by}
        for name in METRICS:
            number = row[f"{name} sets_sum"]
            figures[name] = row[f"{name}_sum"] / number if number else None
        rows.append(figures | {"sets": row["sets_sum"]})
    return rows


def holm(pvalues: NDArray[np.float64]) -> NDArray[np.float64]:
    """p-values adjusted for multiple tests by Holm's method.

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.02])).tolist()
    [0.03, 0.04, 0.04]
    """
    order = np.argsort(pvalues, kind="stable")
    factors = np.arange(len(pvalues), 0, -1)
    adjusted = np.empty(len(pvalues))
    adjusted[order] = np.minimum(np.maximum.accumulate(pvalues[order] * factors), 1)
    return adjusted


def ratio_cells(
    table: pa.Table, estimator: str, baseline: str, bound: float = TOLERANCE
) -> list[RatioCell]:
    """Compare an estimator with a baseline in each cell of `MIN_SETS` or more sets.

    Mean absolute errors are compared draw by draw; Holm's adjustment is over all cells
    of the table.
    """
    names = estimator, baseline
    compared = table.filter(pc.is_in(table["estimator"], pa.array(names)))
    by_draw: dict[tuple[Any, ...], dict[str, Figures]] = defaultdict(dict)
    for row in means(sized(real(compared)), (*CELL, "draw", "estimator")):
        by_draw[tuple(row[n] for n in (*CELL, "draw"))][row["estimator"]] = row
    draws: dict[tuple[Any, ...], list[tuple[float, ...]]] = defaultdict(list)
    for (*cell, _), pair in by_draw.items():
        if len(pair) == 2:
            one, other = (pair[name] for name in names)
            draws[tuple(cell)].append((one["ae"], other["ae"], one["sets"]))
    cells = []
    for (dataset, _, kind, share), figures in draws.items():
        error, reference, sets = np.array(figures).T
        if sets.mean() >= MIN_SETS and reference.any():
            name = f"{shown(dataset)}, {kind}, {100 * share:g} %"
            ratio = float(error.mean() / reference.mean())
            cells.append(RatioCell(name, ratio, _above(error, bound * reference)))
    adjusted = iter(holm(np.array([c.pvalue for c in cells if c.pvalue is not None])))
    return [
        cell if cell.pvalue is None else replace(cell, pvalue=float(next(adjusted)))
        for cell in cells
    ]


def _above(error: NDArray[np.float64], bound: NDArray[np.float64]) -> float | None:
    """p-value of the test that errors are above; None with too few draws."""
    if len(error) < MIN_DRAWS:
        return None
    if np.ptp(error - bound) == 0:
        return float(error[0] <= bound[0])
    return float(ttest_rel(error, bound, alternative="greater").pvalue)


def coverage(rows: Sequence[Figures]) -> Covered | None:
    """Coverage from rows of `means` by data set and draw; None without intervals.

    The variance is that of a ratio over clusters, or the binomial variance if that is
    larger. The binomial one adds two covered and two missed sets, so that it is not 0
    when all are covered.
    """
    clusters: dict[tuple[str, int], NDArray[np.float64]] = defaultdict(
        lambda: np.zeros(3)
    )
    for row in rows:
        if row["coverage"] is not None:
            sums = np.array([1.0, row["coverage"], row["width"]])
            clusters[row["dataset"], row["draw"]] += row["sets"] * sums
    if not clusters:
        return None
    sets, covered, widths = np.array(list(clusters.values())).T
    total, count = sets.sum(), len(sets)
    value = covered.sum() / total
    half = np.nan
    if count > 1:
        residual = covered - value * sets
        clustered = (residual @ residual) / total**2 * count / (count - 1)
        shrunk = (covered.sum() + 2) / (total + 4)
        binomial = shrunk * (1 - shrunk) / (total + 4)
        quantile = student.ppf((1 + BOUNDS) / 2, count - 1)
        half = quantile * np.sqrt(max(clustered, binomial))
    return Covered(
        float(value),
        float(np.maximum(value - half, 0)),
        float(np.minimum(value + half, 1)),
        float(widths.sum() / total),
    )
