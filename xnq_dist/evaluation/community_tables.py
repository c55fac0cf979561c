"""Tables of an evaluation on communities.

A cell is a graph, a kind of communities, a design and a share of labels. Draws of the
labels are the independent repetitions, since communities of one draw share its labels
and its model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import t as student

from xnq_dist.evaluation.keep import EMPTY, RenderedTable
from xnq_dist.evaluation.real import FLOOR
from xnq_dist.evaluation.regions import SAMPLES
from xnq_dist.evaluation.rivals import RIVALS

__all__ = ["community_tables", "coverage", "means"]

MIN_SETS = 20
"""Minimum number of communities in a cell that is named."""
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
"""Estimators of the tables of designs."""

Figures = dict[str, Any]


def figure(value: float | None) -> str:
    """A number as text, without the zero before the decimal point."""
    return EMPTY if value is None else f"{value:.3f}".removeprefix("0")


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


def _best(table: pa.Table, cell: Sequence[str]) -> dict[tuple[Any, ...], Figures]:
    """Figures of the estimator with the lowest error, by the columns of a cell."""
    best: dict[tuple[Any, ...], Figures] = {}
    for row in means(table, (*cell, "estimator")):
        kept = best.setdefault(tuple(row[name] for name in cell), row)
        if row["ae"] < kept["ae"]:
            kept.update(row)
    return best


def _with_best_rival(table: pa.Table) -> pa.Table:
    """The table, and the rows of the best rival under its name."""
    rivals = table.filter(pc.field("estimator").isin(RIVALS))
    cell = ("dataset", "design", "label_share")
    parts = [table]
    for row in _best(rivals.filter(LARGE), cell).values():
        rows = of(rivals, **{name: row[name] for name in (*cell, "estimator")})
        at = rows.column_names.index("estimator")
        parts.append(rows.set_column(at, "estimator", [[RIVAL] * len(rows)]))
    return pa.concat_tables(parts)


def _above(table: pa.Table) -> RenderedTable:
    """Cells in which `auto` errs more than the best other estimator, with the ratio."""
    cell = ("dataset", LABELS, "communities", "label_share")
    best = _best(table.filter(pc.field("estimator") != FLOOR), cell)
    rows = {}
    for row in means(of(table, estimator="auto"), cell):
        dataset, design, kind, share = key = tuple(row[name] for name in cell)
        other = best[key]
        if row["sets"] >= MIN_SETS and 0 < other["ae"] < row["ae"]:
            errors = row["ae"], other["ae"], row["ae"] / other["ae"]
            name = f"{dataset}, {design}", f"{kind}, {100 * share:g} %"
            rows[name] = [other["estimator"], *map(figure, errors)]
    return RenderedTable(
        "communities-above",
        "Cells in which auto errs more than the best other estimator",
        ("communities, labels", "best other", "AE of auto", "AE of the other", "ratio"),
        rows,
        f"Cells with {MIN_SETS} or more communities of 20 or more unlabelled members.",
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
    name: str, title: str, table: pa.Table, by: tuple[str, str], note: str
) -> RenderedTable:
    """Groups and rows `by` two columns; error, coverage and width by label share."""
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
            each = (_figures(of(one, label_share=share)) for share in shares)
            rows[name_of_group, value] = [text for texts in each for text in texts]
    columns = "AE", "coverage", "width"
    header = [f"{100 * share:g} % labels: {c}" for share in shares for c in columns]
    return RenderedTable(f"communities-{name}", title, (row, *header), rows, note)


def community_tables(table: pa.Table) -> list[RenderedTable]:
    """All tables that have rows."""
    draws = pc.count_distinct(table["draw"]).as_py()
    note = (
        f"Means over communities and over {draws} draw(s) of the labels. The truth is "
        "that of the unlabelled members, at least 20 unless sizes are named. In "
        "brackets: 99 % confidence bounds, clustered by graph and draw of the labels; "
        "one draw gives no bounds. Intervals have their nominal coverage if the "
        "estimator's assumption holds; on communities, the assumptions of all but "
        "auto, cc and pcc mostly do not hold. A design that may label only some nodes "
        "can have fewer labels than the share (column labels of "
        "community_results.parquet)."
    )
    design = pc.binary_join_element_wise(table["design"], "labels", " ")
    inside = pc.if_else(table["labelled"], "labels inside", "no labels inside")
    sizes = pc.binary_join_element_wise(table["sizes"], inside, ", ")
    table = table.append_column(LABELS, design).append_column(SIZES, sizes)
    table = _with_best_rival(table)
    large, auto = table.filter(LARGE), of(table.filter(REAL), estimator="auto")
    real = large.filter(REAL)
    compared = pa.concat_tables([of(real, estimator=name) for name in COMPARED])
    estimators, designs = ("dataset", "estimator"), (LABELS, "estimator")
    views = (
        (
            "ae",
            "Errors and intervals on real communities, random labels",
            of(real, design="random"),
            estimators,
        ),
        (
            "half-ae",
            "Errors and intervals on communities without a label, while others have "
            "them",
            of(real, design="half", labelled=False),
            estimators,
        ),
        (
            "app-ae",
            "Errors and intervals on samples drawn by class",
            of(large, communities="app"),
            estimators,
        ),
        (
            "by-class-ae",
            "Errors and intervals on sets drawn by class, which is not declared",
            of(large, communities="by-class"),
            estimators,
        ),
        (
            "designs",
            "Designs of labels: errors and intervals on communities",
            compared.filter(~WHOLE),
            designs,
        ),
        (
            "designs-whole",
            "Designs of labels: errors and intervals on complete graphs",
            compared.filter(WHOLE),
            designs,
        ),
        ("coverage", "Intervals of auto by size of community", auto, (LABELS, SIZES)),
        (
            "families-coverage",
            "Intervals of auto by family of graphs and kind of communities, random "
            "labels",
            of(auto, design="random"),
            ("graph_family", "communities"),
        ),
    )
    made = [_by_share(*view, note) for view in views]
    return [one for one in (*made, _above(real)) if one.rows]
