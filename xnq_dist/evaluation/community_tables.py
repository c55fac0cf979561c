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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.stats import gmean, ttest_rel
from scipy.stats import t as student

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
SMALL = "5-20"
"""Size class that is left out of the tables of errors."""
METRICS = ("ae", "coverage", "width")
CELL = ("dataset", "design", "communities", "label_share")
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


def _one_of(table: pa.Table, name: str, values: Sequence[str]) -> Any:
    """Whether a row has one of the values in a column."""
    return pc.is_in(table[name], pa.array(values))


def real(table: pa.Table) -> pa.Table:
    """Rows of communities, without samples drawn by class."""
    return table.filter(pc.invert(_one_of(table, "communities", SAMPLES)))


def _large(table: pa.Table) -> pa.Table:
    """Rows of communities that are large enough for the tables of errors."""
    return table.filter(pc.not_equal(table["sizes"], SMALL))


def _distinct(table: pa.Table, name: str) -> list[Any]:
    return list(table[name].unique().to_pylist())


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
    summed = [(name, "sum") for name in parts if name not in by]
    groups = pa.table(parts).group_by(list(by), use_threads=False).aggregate(summed)
    rows = []
    for row in groups.to_pylist():
        figures = {name: row[name] for name in by} | {"sets": row["sets_sum"]}
        for name in METRICS:
            number = row[f"{name} sets_sum"]
            figures[name] = row[f"{name}_sum"] / number if number else None
        rows.append(figures)
    return rows


def _with_best_rival(table: pa.Table) -> pa.Table:
    """The table, and the rows of the best rival under its name."""
    rivals = table.filter(_one_of(table, "estimator", RIVALS))
    best: dict[tuple[Any, ...], Figures] = {}
    cell = ("dataset", "design", "label_share")
    for row in means(_large(rivals), (*cell, "estimator")):
        kept = best.setdefault(tuple(row[name] for name in cell), row)
        if row["ae"] < kept["ae"]:
            kept.update(row)
    parts = [table]
    for row in best.values():
        rows = of(rivals, **{name: row[name] for name in (*cell, "estimator")})
        at = rows.schema.get_field_index("estimator")
        names = pa.array([RIVAL] * rows.num_rows)
        parts.append(rows.set_column(at, rows.schema.field(at), names))
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
    either = _one_of(table, "estimator", [estimator, baseline])
    compared = _large(real(table.filter(either)))
    by_draw: dict[tuple[Any, ...], dict[str, Figures]] = defaultdict(dict)
    for row in means(compared, (*CELL, "draw", "estimator")):
        by_draw[tuple(row[n] for n in (*CELL, "draw"))][row["estimator"]] = row
    draws: dict[tuple[Any, ...], list[tuple[float, ...]]] = defaultdict(list)
    for (*cell, _), pair in by_draw.items():
        if len(pair) == 2:
            one, other = pair[estimator], pair[baseline]
            draws[tuple(cell)].append((one["ae"], other["ae"], one["sets"]))
    named, pvalues = [], []
    for (dataset, _, kind, share), figures in draws.items():
        error, reference, sets = np.array(figures).T
        if sets.mean() >= MIN_SETS and reference.any():
            ratio = float(error.mean() / reference.mean())
            named.append((f"{dataset}, {kind}, {100 * share:g} %", ratio))
            pvalues.append(_above(error, bound * reference))
    adjusted = holm(np.array(pvalues)).tolist()
    return [RatioCell(*cell, p) for cell, p in zip(named, adjusted, strict=True)]


def _above(error: NDArray[np.float64], bound: NDArray[np.float64]) -> float:
    """p-value of the test that errors are above; NaN with too few draws."""
    if len(error) < MIN_DRAWS:
        return np.nan
    if np.ptp(error - bound) == 0:
        return float(error[0] <= bound[0])
    return float(ttest_rel(error, bound, alternative="greater").pvalue)


def holm(pvalues: NDArray[np.float64]) -> NDArray[np.float64]:
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
    for design in _distinct(table, "design"):
        some = of(table, design=design)
        for estimator in _distinct(some, "estimator"):
            cells = ratio_cells(some, estimator, baseline, bound)
            if cells and estimator not in (baseline, FLOOR):
                ratios = np.array([cell.ratio for cell in cells])
                worst = cells[int(ratios.argmax())]
                pvalues = np.array([cell.pvalue for cell in cells])
                significant = np.count_nonzero(pvalues < LEVEL)
                rows[f"{design} labels", estimator] = [
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
        (
            "A cell is a graph, kind of communities and share of labels, with at least "
            f"{MIN_SETS} communities of 20 or more unlabelled members. Ratio: ratio of "
            "mean absolute errors, with its geometric mean over cells. Significantly: "
            "one-sided paired t test over draws of the labels, level .05 after Holm's "
            f"adjustment over the cells of a row; needs {MIN_DRAWS} draws (-: fewer).",
        ),
    )


class Covered(NamedTuple):
    """Coverage of intervals, with confidence bounds clustered by draw."""

    value: float
    lower: float
    upper: float
    """Bounds are NaN with fewer than two draws."""
    width: float


def coverage(table: pa.Table) -> Covered | None:
    """Coverage of the intervals of an estimator; None if it has none.

    The variance is that of a ratio over clusters, or the binomial variance if that is
    larger. The binomial one adds two covered and two missed sets, so that it is not 0
    when all are covered.
    """
    clusters = means(table, ("dataset", "draw"))
    known = [row for row in clusters if row["coverage"] is not None]
    if not known:
        return None
    sets, covered, widths = (
        np.array([row[name] for row in known], float) for name in ("sets", *METRICS[1:])
    )
    covered *= sets
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
        float(widths @ sets / total),
    )


def _error(table: pa.Table) -> str:
    """Mean absolute error of an estimator."""
    rows = means(table, ("estimator",))
    return figure(rows[0]["ae"] if rows else None)


def _covered(table: pa.Table) -> list[str]:
    """Coverage with its bounds, and mean width."""
    covered = coverage(table)
    if covered is None:
        return [EMPTY, EMPTY]
    text = figure(covered.value)
    if covered.lower >= 0:
        text += f" [{figure(covered.lower)}, {figure(covered.upper)}]"
    return [text, figure(covered.width)]


def _by_share(
    name: str,
    title: str,
    groups: Mapping[str, pa.Table],
    by: str,
    columns: Sequence[str],
    cells: Callable[[pa.Table], list[str]],
    note: str,
) -> RenderedTable:
    """A row for each value of `by`, and `columns` of `cells` for each label share."""
    parts = list(groups.values())
    shares = _distinct(pa.concat_tables(parts), "label_share") if parts else []
    rows = {}
    for group, table in groups.items():
        # Size classes such as 100-500 are in the order of their numbers.
        for value in sorted(
            _distinct(table, by), key=lambda text: int("0" + re.split(r"\D", text)[0])
        ):
            row = of(table, **{by: value})
            each = (cells(of(row, label_share=share)) for share in shares)
            rows[group, value] = [text for texts in each for text in texts]
    header = [f"{100 * share:g} % labels: {c}" for share in shares for c in columns]
    return RenderedTable(name, title, (by, *header), rows, (note,))


def _of_each_design(table: pa.Table) -> dict[str, pa.Table]:
    designs = _distinct(table, "design")
    return {f"{name} labels": of(table, design=name) for name in designs}


def _designs(table: pa.Table) -> RenderedTable:
    """Errors and coverage by design, on communities and for the complete graph."""

    def cells(rows: pa.Table) -> list[str]:
        whole, made = pc.equal(rows["communities"], "whole"), []
        for part in (rows.filter(pc.invert(whole)), rows.filter(whole)):
            made += [_error(part), _covered(part)[0]]
        return made

    # In the order of `COMPARED`.
    parts = [of(_large(real(table)), estimator=name) for name in COMPARED]
    return _by_share(
        "communities-designs",
        "Designs of labels: error and coverage on communities and complete graphs",
        _of_each_design(pa.concat_tables(parts)),
        "estimator",
        ("AE", "coverage", "complete graph, AE", "complete graph, coverage"),
        cells,
        "A design that may label only some nodes can have fewer labels than the share "
        "(column labels of community_results.parquet).",
    )


def _interval_tables(table: pa.Table) -> list[RenderedTable]:
    """Coverage of `auto` by size and labels, and by family."""
    table = table.filter(pc.is_valid(table["coverage"]))
    inside = pc.if_else(table["labelled"], "labels inside", "no labels inside")
    named = pc.binary_join_element_wise(table["sizes"], inside, ", ")
    table = table.append_column("unlabelled members", named)
    auto = real(of(table, estimator="auto"))
    random = of(auto, design="random")
    families = {
        name: of(random, graph_family=name)
        for name in _distinct(random, "graph_family")
    }
    columns = "coverage", "width"
    return [
        _by_share(
            "communities-coverage",
            "Intervals of auto: coverage and mean width",
            _of_each_design(auto),
            "unlabelled members",
            columns,
            _covered,
            BOUNDS_NOTE,
        ),
        _by_share(
            "communities-families-coverage",
            "Intervals of auto by family of graphs and kind of communities, random "
            "labels",
            families,
            "communities",
            columns,
            _covered,
            BOUNDS_NOTE,
        ),
    ]


def _errors(file: str, where: str, table: pa.Table, note: str) -> RenderedTable:
    """Errors, coverage and width of every estimator on all data sets and on each."""

    def cells(rows: pa.Table) -> list[str]:
        return [_error(rows), *_covered(rows)]

    names = _distinct(table, "dataset")
    groups = {name: of(table, dataset=name) for name in names}
    if len(names) > 1:
        groups = {"all data sets": table, **groups}
    columns = ("AE", "coverage", "width")
    title = f"Errors and intervals on {where}"
    return _by_share(file, title, groups, "estimator", columns, cells, note)


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
    table = _with_best_rival(table)
    large = _large(table)
    views = {
        "": ("real communities, random labels", of(real(large), design="random")),
        "half-": (
            "communities without a label, while others have them",
            of(real(large), design="half", labelled=False),
        ),
        "app-": ("samples drawn by class", of(large, communities="app")),
        "by-class-": (
            "sets drawn by class, which is not declared",
            of(large, communities="by-class"),
        ),
    }
    made = [
        _errors(f"communities-{part}ae", where, rows, note)
        for part, (where, rows) in views.items()
    ]
    made += [
        _designs(table),
        _ratios(table, "pcc", TOLERANCE),
        _ratios(table, "prior", 1.0),
        _ratios(table, RIVAL, 1.0),
        *_interval_tables(table),
    ]
    return [one for one in made if one.rows]
