"""Tables of an evaluation on communities.

A cell is a graph, a kind of communities, a design and a share of labels. Draws of the
labels are the independent repetitions, since communities of one draw share its labels
and its model.

References
----------
S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal
of Statistics 6, 1979.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import gmean, ttest_rel
from scipy.stats import t as student

from xnq_dist.core.arrays import Floats
from xnq_dist.evaluation.real import FLOOR
from xnq_dist.evaluation.regions import SAMPLES
from xnq_dist.evaluation.rendered_table import EMPTY, RenderedTable
from xnq_dist.evaluation.rivals import RIVALS

__all__ = ["RatioCell", "community_tables", "coverage", "holm", "means", "ratio_cells"]

MIN_SETS = 20
"""Minimum number of communities in a cell."""
MIN_DRAWS = 10
"""Minimum number of draws for a test."""
TOLERANCE = 1.05
"""Maximum ratio of an estimator's error to that of PCC."""
LEVEL = 0.05
"""Significance level of a test, over all its cells."""
BOUNDS = 0.99
"""Confidence level of the bounds of a coverage."""
METRICS = ("ae", "coverage", "width")
REAL = ~pc.field("communities").isin(SAMPLES)
"""Communities, without samples drawn by class."""
LARGE = pc.field("sizes") != "5-20"
"""Communities that are large enough for the tables of errors."""
WHOLE = pc.field("communities") == "whole"
"""The complete graph."""
LABELS, SIZES = "design of labels", "unlabelled members"
"""Columns that tables group by: names of designs, size classes of communities."""
RIVAL = "best rival"
"""The rival with the lowest error on a graph, by design and share of labels."""
COMPARED = ("auto", RIVAL, FLOOR, "pcc", "sld", "prior")
"""Estimators of the table of designs."""
BOUNDS_NOTE = (
    "In brackets: 99 % confidence bounds, clustered by graph and draw of the labels; "
    "one draw gives no bounds."
)

Figures = dict[str, Any]


def figure(value: float | None, digits: int = 3) -> str:
    """A number as text, without the zero before the decimal point."""
    if value is None:
        return EMPTY
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def of(table: pa.Table, **values: object) -> pa.Table:
    """Rows that have these values in the named columns."""
    for name, value in values.items():
        table = table.filter(pc.equal(table[name], value))
    return table


def _parts(table: pa.Table, name: str) -> dict[Any, pa.Table]:
    """Rows by their value in a column, in order of appearance."""
    values = table[name].unique().to_pylist()
    return {value: of(table, **{name: value}) for value in values}


def means(table: pa.Table, by: Sequence[str]) -> list[Figures]:
    """Figures averaged over communities, grouped by columns, in order of appearance.

    Each group has the columns of `by`, the metrics (None if no community has one), and
    ``sets``. Without columns, there is one group.
    """
    sets = table["sets"]
    parts = {name: table[name] for name in by} | {"sets": sets}
    for name in METRICS:
        parts[name] = pc.multiply(table[name], sets)
        parts[f"{name} sets"] = pc.if_else(pc.is_valid(table[name]), sets, 0)
    summed = [(name, "sum") for name in parts if name not in by]
    groups = pa.table(parts).group_by(by, use_threads=False).aggregate(summed)
    found = {name: groups[name] for name in by} | {"sets": groups["sets_sum"]}
    for name in METRICS:
        found[name] = pc.divide(groups[f"{name}_sum"], groups[f"{name} sets_sum"])
    rows: list[Figures] = pa.table(found).to_pylist()
    return rows


def _with_best_rival(table: pa.Table) -> pa.Table:
    """The table, and the rows of the best rival under its name."""
    rivals = table.filter(pc.field("estimator").isin(RIVALS))
    best: dict[tuple[Any, ...], Figures] = {}
    cell = ("dataset", "design", "label_share")
    for row in means(rivals.filter(LARGE), (*cell, "estimator")):
        kept = best.setdefault(tuple(row[name] for name in cell), row)
        if row["ae"] < kept["ae"]:
            kept.update(row)
    parts = [table]
    for row in best.values():
        rows = of(rivals, **{name: row[name] for name in (*cell, "estimator")})
        at = rows.column_names.index("estimator")
        parts.append(rows.set_column(at, "estimator", [[RIVAL] * len(rows)]))
    return pa.concat_tables(parts)


class RatioCell(NamedTuple):
    """An estimator's error in one cell, compared with a baseline's."""

    name: str
    """Graph, kind of communities and share of labels."""
    ratio: float
    """Ratio of the mean errors."""
    pvalue: float
    """One-sided paired t test of errors above the bound, after Holm's adjustment over
    the cells tested together; NaN: too few draws."""


def ratio_cells(
    table: pa.Table, estimator: str, baseline: str, bound: float = TOLERANCE
) -> list[RatioCell]:
    """Compare an estimator with a baseline in each cell of `MIN_SETS` or more sets.

    Mean absolute errors are compared draw by draw; Holm's adjustment is over all cells
    of the table.
    """
    key = ("dataset", "communities", "label_share", "draw")
    compared = table.filter(REAL & LARGE)
    references = {
        tuple(row[name] for name in key): row["ae"]
        for row in means(of(compared, estimator=baseline), key)
    }
    draws: dict[tuple[Any, ...], list[tuple[float, ...]]] = defaultdict(list)
    for row in means(of(compared, estimator=estimator), key):
        cell = tuple(row[name] for name in key)
        if cell in references:
            draws[cell[:-1]].append((row["ae"], references[cell], row["sets"]))
    named, pvalues = [], []
    for (dataset, kind, share), figures in draws.items():
        error, reference, sets = np.array(figures).T
        if sets.mean() >= MIN_SETS and reference.any():
            ratio = float(error.mean() / reference.mean())
            named.append((f"{dataset}, {kind}, {100 * share:g} %", ratio))
            pvalues.append(_above(error, bound * reference))
    adjusted = holm(np.array(pvalues)).tolist()
    return [RatioCell(*cell, p) for cell, p in zip(named, adjusted, strict=True)]


def _above(error: Floats, bound: Floats) -> float:
    """p-value of the test that errors are above; NaN with too few draws."""
    if len(error) < MIN_DRAWS:
        return np.nan
    if np.ptp(error - bound) == 0:
        return float(error[0] <= bound[0])
    return float(ttest_rel(error, bound, alternative="greater").pvalue)


def holm(pvalues: Floats) -> Floats:
    """p-values adjusted for multiple tests by Holm's method; NaN stays out.

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.02])).tolist()
    [0.03, 0.04, 0.04]
    """
    order = np.argsort(pvalues, kind="stable")[: np.count_nonzero(pvalues >= 0)]
    factors = np.arange(len(order), 0, -1)
    adjusted = np.full(len(pvalues), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(pvalues[order] * factors), 1)
    return adjusted


def _ratios(table: pa.Table, baseline: str, bound: float) -> RenderedTable:
    """Number of cells in which each estimator is above a baseline, by design."""
    rows = {}
    for design, some in _parts(table, LABELS).items():
        for estimator in some["estimator"].unique().to_pylist():
            cells = ratio_cells(some, estimator, baseline, bound)
            if cells and estimator not in (baseline, FLOOR):
                ratios = np.array([cell.ratio for cell in cells])
                worst = cells[int(ratios.argmax())]
                pvalues = np.array([cell.pvalue for cell in cells])
                significant = np.count_nonzero(pvalues < LEVEL)
                rows[design, estimator] = [
                    str(len(cells)),
                    figure(float(gmean(ratios)), 2),
                    str(np.count_nonzero(ratios > bound)),
                    str(significant) if (pvalues >= 0).any() else EMPTY,
                    f"{figure(worst.ratio, 2)} ({worst.name})",
                ]
    name = baseline.replace(RIVAL, "rival")
    return RenderedTable(
        f"communities-{name}-above",
        f"Cells above {bound:.2f} times the error of {baseline}",
        ("estimator", "cells", "mean ratio", "above", "significantly", "worst"),
        rows,
        "A cell is a graph, kind of communities and share of labels, with at least "
        f"{MIN_SETS} communities of 20 or more unlabelled members. Ratio: ratio of "
        "mean absolute errors, with its geometric mean over cells. Significantly: "
        "one-sided paired t test over draws of the labels, level .05 after Holm's "
        f"adjustment over the cells of a row; needs {MIN_DRAWS} draws (-: fewer).",
    )


class Covered(NamedTuple):
    """Coverage of intervals, with confidence bounds clustered by draw."""

    value: float
    lower: float
    upper: float
    """Bounds are NaN with fewer than two draws."""


def coverage(table: pa.Table) -> Covered | None:
    """Coverage of the intervals of an estimator; None if it has none.

    The variance is that of a ratio over clusters, or the binomial variance if that is
    larger. The binomial one adds two covered and two missed sets, so that it is not 0
    when all are covered.
    """
    clusters = means(table.filter(pc.is_valid(table["coverage"])), ("dataset", "draw"))
    if not clusters:
        return None
    sets, share = np.array([(row["sets"], row["coverage"]) for row in clusters]).T
    covered = share * sets
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
    return Covered(value, *np.clip([value - half, value + half], 0, 1))


def _figures(table: pa.Table) -> list[str]:
    """Mean absolute error of an estimator, coverage with its bounds, mean width."""
    (mean,), covered = means(table, ()), coverage(table)
    share = EMPTY if covered is None else figure(covered.value)
    if covered is not None and covered.lower >= 0:
        share += f" [{figure(covered.lower)}, {figure(covered.upper)}]"
    return [figure(mean["ae"]), share, figure(mean["width"])]


def _by_share(
    name: str,
    title: str,
    table: pa.Table,
    by: tuple[str, str],
    columns: Sequence[str],
    cells: Callable[[pa.Table], list[str]],
    note: str,
) -> RenderedTable:
    """Groups and rows `by` two columns; `columns` of `cells` for each label share."""
    shares = table["label_share"].unique().to_pylist()
    group, row = by
    groups = _parts(table, group)
    if group == "dataset" and len(groups) > 1:
        groups = {"all data sets": table, **groups}
    rows = {}
    for name_of_group, some in groups.items():
        # Size classes such as 100-500 are in the order of their numbers.
        for value, one in sorted(
            _parts(some, row).items(),
            key=lambda part: int("0" + re.split(r"\D", part[0])[0]),
        ):
            each = (cells(of(one, label_share=share)) for share in shares)
            rows[name_of_group, value] = [text for texts in each for text in texts]
    header = [f"{100 * share:g} % labels: {c}" for share in shares for c in columns]
    return RenderedTable(name, title, (row, *header), rows, note)


def _designs(table: pa.Table) -> RenderedTable:
    """Errors and coverage by design, on communities and for the complete graph."""

    def cells(rows: pa.Table) -> list[str]:
        each = (_figures(rows.filter(part)) for part in (~WHOLE, WHOLE))
        return [text for texts in each for text in texts[:2]]

    # In the order of `COMPARED`.
    return _by_share(
        "communities-designs",
        "Designs of labels: error and coverage on communities and complete graphs",
        pa.concat_tables([of(table, estimator=name) for name in COMPARED]),
        (LABELS, "estimator"),
        ("AE", "coverage", "complete graph, AE", "complete graph, coverage"),
        cells,
        "A design that may label only some nodes can have fewer labels than the share "
        "(column labels of community_results.parquet).",
    )


def _intervals(
    name: str, title: str, auto: pa.Table, by: tuple[str, str]
) -> RenderedTable:
    """Coverage and width of the intervals of `auto`."""

    def cells(rows: pa.Table) -> list[str]:
        return _figures(rows)[1:]

    name, title = f"communities-{name}", f"Intervals of auto{title}"
    columns = "coverage", "width"
    return _by_share(name, title, auto, by, columns, cells, BOUNDS_NOTE)


def community_tables(table: pa.Table) -> list[RenderedTable]:
    """All tables that have rows."""
    draws = pc.count_distinct(table["draw"]).as_py()
    note = (
        f"Means over communities with at least 20 unlabelled members and over {draws} "
        "draw(s) of the labels; the truth is that of the unlabelled members. "
        f"{BOUNDS_NOTE} Intervals have their nominal coverage if the estimator's "
        "assumption holds; on communities, the assumptions of all but auto, cc and pcc "
        "mostly do not hold."
    )
    design = pc.binary_join_element_wise(table["design"], "labels", " ")
    inside = pc.if_else(table["labelled"], "labels inside", "no labels inside")
    sizes = pc.binary_join_element_wise(table["sizes"], inside, ", ")
    table = table.append_column(LABELS, design).append_column(SIZES, sizes)
    table = _with_best_rival(table)
    large, real = table.filter(LARGE), table.filter(REAL)
    large_real, auto = large.filter(REAL), of(real, estimator="auto")
    views = {
        "": ("real communities, random labels", of(large_real, design="random")),
        "half-": (
            "communities without a label, while others have them",
            of(large_real, design="half", labelled=False),
        ),
        "app-": ("samples drawn by class", of(large, communities="app")),
        "by-class-": (
            "sets drawn by class, which is not declared",
            of(large, communities="by-class"),
        ),
    }
    made = [
        _by_share(
            f"communities-{part}ae",
            f"Errors and intervals on {where}",
            rows,
            ("dataset", "estimator"),
            ("AE", "coverage", "width"),
            _figures,
            note,
        )
        for part, (where, rows) in views.items()
    ]
    made += [
        _designs(large_real),
        _ratios(table, "pcc", TOLERANCE),
        _ratios(table, "prior", 1.0),
        _ratios(table, RIVAL, 1.0),
        _intervals("coverage", ": coverage and mean width", auto, (LABELS, SIZES)),
        _intervals(
            "families-coverage",
            " by family of graphs and kind of communities, random labels",
            of(auto, design="random"),
            ("graph_family", "communities"),
        ),
    ]
    return [one for one in made if one.rows]
