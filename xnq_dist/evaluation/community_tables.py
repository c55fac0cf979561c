"""Tables of an evaluation on communities.

Some tables check requirements: in no cell may the error of an estimator be
significantly above that of the mean posterior (PCC) or of the training prior, and the
intervals must have the right coverage in every size class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import gmean

from xnq_dist.evaluation.cells import (
    MIN_DRAWS,
    MIN_SETS,
    SMALL,
    TOLERANCE,
    Covered,
    Figures,
    RatioCell,
    coverage,
    means,
    ratio_cells,
    real,
    sized,
)
from xnq_dist.evaluation.designs import DESIGNS
from xnq_dist.evaluation.estimators import TRIVIAL
from xnq_dist.evaluation.names import shown
from xnq_dist.evaluation.real import FLOOR
from xnq_dist.evaluation.regions import SAMPLES
from xnq_dist.evaluation.rendered_table import (
    Cell,
    RenderedTable,
    RowGroup,
    table_files,
    to_text,
)
from xnq_dist.evaluation.rivals import RIVALS

__all__ = ["community_outputs", "community_tables"]

RIVAL = "rival"
"""The rival with the lowest error on a graph, by design and share of labels."""
COMPARED = ("auto", RIVAL, FLOOR, "pcc", "sld", "prior")
"""Estimators of the table of designs."""
MIN_COVERAGE, MAX_COVERAGE = 0.93, 0.98
"""Required coverage of 95 % intervals; the maximum is for 20 unlabelled members on."""
ESTIMATORS = {
    "auto": "auto",
    RIVAL: "best rival",
    FLOOR: "binomial floor",
    "features": "rival: features",
    "boosting": "rival: features, neighbours",
    "boosting_intercept": "rival: and an intercept per community",
    "prior": "training prior",
    "lab": "labelled members",
}
BOUNDS_NOTE = (
    "In brackets: 99 % confidence bounds, clustered by graph and draw of the labels; "
    "one draw gives no bounds."
)


def _name(estimator: str) -> str:
    return ESTIMATORS.get(estimator) or shown(estimator)


def figure(value: float, digits: int = 3) -> str:
    """A number as text, without the zero before the decimal point."""
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def _cell(value: float | None, digits: int = 3) -> Cell:
    return Cell() if value is None else Cell(figure(value, digits))


def _of(table: pa.Table, **values: object) -> pa.Table:
    """Rows that have these values in the named columns."""
    for name, value in values.items():
        table = table.filter(pc.equal(table[name], value))
    return table


def _with_best_rival(table: pa.Table) -> pa.Table:
    """The table, and the rows of the best rival under its name."""
    rivals = table.filter(pc.is_in(table["estimator"], pa.array(RIVALS)))
    cell = ("dataset", "design", "label_share")
    best: dict[tuple[Any, ...], Figures] = {}
    for row in means(sized(rivals), (*cell, "estimator")):
        kept = best.setdefault(tuple(row[name] for name in cell), row)
        if row["ae"] < kept["ae"]:
            kept.update(row)
    parts = [table]
    for row in best.values():
        rows = _of(rivals, **{name: row[name] for name in (*cell, "estimator")})
        at = rows.schema.get_field_index("estimator")
        names = pa.array([RIVAL] * rows.num_rows)
        parts.append(rows.set_column(at, rows.schema.field(at), names))
    return pa.concat_tables(parts)


def _by_design(table: pa.Table) -> list[tuple[str, pa.Table]]:
    """Title and rows of every design."""
    designs = table["design"].unique().to_pylist()
    return [(DESIGNS[name].title, _of(table, design=name)) for name in designs]


def _covered(covered: Covered | None, maximum: float | None = None) -> list[Cell]:
    """Cells of coverage and width.

    With `maximum`, a coverage significantly outside `MIN_COVERAGE` to `maximum` is
    marked low or high.
    """
    if covered is None:
        return [Cell(), Cell()]
    text = figure(covered.value)
    if not math.isnan(covered.lower):
        text += f" [{figure(covered.lower)}, {figure(covered.upper)}]"
    if maximum is not None:
        if covered.upper < MIN_COVERAGE:
            text += " low"
        elif covered.lower > maximum:
            text += " high"
    return [Cell(text), Cell(figure(covered.width))]


def _marked(
    columns: list[list[float | None]], estimators: Sequence[str]
) -> list[list[Cell]]:
    """Cells by column; the lowest error in each column is marked as best."""
    made = []
    for column in columns:
        named = list(zip(estimators, column, strict=True))
        errors = [v for name, v in named if v is not None and name != FLOOR]
        best = min(errors, default=None)
        cells = []
        for name, value in named:
            marked = value is not None and value == best and name != FLOOR
            cell = Cell() if value is None else Cell(figure(value))
            cells.append(replace(cell, mark="best") if marked else cell)
        made.append(cells)
    return made


def _errors(table: pa.Table, name: str, title: str, note: str) -> RenderedTable | None:
    """Absolute errors of estimators (rows) by data set and label share (columns)."""
    rows = means(table, ("dataset", "label_share", "estimator"))
    if not rows:
        return None
    errors = {(r["dataset"], r["label_share"], r["estimator"]): r["ae"] for r in rows}
    columns = list(dict.fromkeys((d, share) for d, share, _ in errors))
    first = ("auto", RIVAL, FLOOR)
    names = dict.fromkeys(estimator for *_, estimator in errors)
    estimators = sorted(names, key=lambda name: (*first, name).index(name))
    values: list[list[float | None]] = [
        [errors.get((*column, estimator)) for estimator in estimators]
        for column in columns
    ]
    overall: list[float | None] = []
    for k in range(len(estimators)):
        known = [v for column in values if (v := column[k]) is not None]
        overall.append(float(np.mean(known)) if len(known) == len(columns) else None)
    cells = _marked([overall, *values], estimators)
    # What `auto` is held against, then quantifiers, then other baselines.
    groups: list[list[tuple[Cell, ...]]] = [[], [], []]
    for k, estimator in enumerate(estimators):
        place = 1 + (estimator in (*TRIVIAL, *RIVALS)) if estimator not in first else 0
        groups[place].append((Cell(_name(estimator)), *(col[k] for col in cells)))
    header = (f"{shown(d)}, {100 * share:g} %" for d, share in columns)
    return RenderedTable(
        name,
        title,
        ("estimator", "mean", *header),
        tuple(RowGroup(tuple(lines)) for lines in groups if lines),
        (note,),
    )


def _above(
    table: pa.Table, baseline: str, bound: float, what: str
) -> RenderedTable | None:
    """Number of cells in which each estimator is above a baseline, by design."""
    estimators = table["estimator"].unique().to_pylist()
    if baseline not in estimators:
        return None
    without = _of(table, design="half", labelled=False)
    title = f"{DESIGNS['half'].title}: communities without labels"
    groups = []
    for design, rows in [*_by_design(table), (title, without)]:
        lines = []
        for estimator in estimators:
            if estimator in (baseline, FLOOR):
                continue
            cells = ratio_cells(rows, estimator, baseline, bound)
            if cells:
                lines.append((Cell(_name(estimator)), *_counted(cells, bound)))
        if lines:
            groups.append(RowGroup(tuple(lines), design))
    return RenderedTable(
        f"communities-{baseline}-above",
        f"Cells above {what}",
        (
            *("estimator", "cells", "mean ratio", "above"),
            *("significantly", "worst ratio", "worst cell"),
        ),
        tuple(groups),
        (
            "A cell is a graph, kind of communities and share of labels, with at least "
            f"{MIN_SETS} communities of 20 or more unlabelled members. Ratio: ratio of "
            "mean absolute errors, with its geometric mean over cells. Significantly: "
            "one-sided paired t test over draws of the labels, level .05 after Holm's "
            f"adjustment over the cells of a row; needs {MIN_DRAWS} draws (-: fewer).",
        ),
        "lrrrrrl",
    )


def _counted(cells: list[RatioCell], bound: float) -> tuple[Cell, ...]:
    ratios = np.array([cell.ratio for cell in cells])
    worst = max(cells, key=lambda cell: cell.ratio)
    tested = any(cell.pvalue is not None for cell in cells)
    return (
        Cell(str(len(cells))),
        _cell(float(gmean(ratios)), 2),
        Cell(str(int((ratios > bound).sum()))),
        Cell(str(sum(cell.above for cell in cells))) if tested else Cell(),
        _cell(worst.ratio, 2),
        Cell(worst.name),
    )


Place = tuple[Any, ...]


def _by_share(
    name: str,
    title: str,
    heading: str,
    groups: Sequence[tuple[str, pa.Table]],
    by: tuple[str, ...],
    cells: Callable[[Place, pa.Table], list[Cell]],
    columns: tuple[str, ...],
    note: str,
    label: Callable[[Place], str] = lambda at: _name(str(at[0])),
    order: Callable[[Place], Any] = lambda _: 0,
) -> RenderedTable:
    """A row for each value of `by`, and `columns` of `cells` for each label share.

    Rows are in the order of `order`, then of appearance.
    """
    shares = list(
        dict.fromkeys(s for _, rows in groups for s in rows["label_share"].to_pylist())
    )
    made = []
    for group, rows in groups:
        lines = []
        found = dict.fromkeys(zip(*(rows[n].to_pylist() for n in by), strict=True))
        for place in sorted(found, key=order):
            of_place = _of(rows, **dict(zip(by, place, strict=True)))
            line = [Cell(label(place))]
            for share in shares:
                line += cells(place, _of(of_place, label_share=share))
            lines.append(tuple(line))
        made += [RowGroup(tuple(lines), group)] if lines else []
    header = [f"{100 * share:g} % labels{what}" for share in shares for what in columns]
    return RenderedTable(name, title, (heading, *header), tuple(made), (note,))


def _designs(table: pa.Table) -> RenderedTable:
    """Errors and coverage by design, on communities and for the complete graph."""

    def cells(_: Place, rows: pa.Table) -> list[Cell]:
        whole, made = pc.equal(rows["communities"], "whole"), []
        for part in (rows.filter(pc.invert(whole)), rows.filter(whole)):
            error = [row["ae"] for row in means(part, ("estimator",))]
            made += [_cell(error[0] if error else None), _covered(_coverage(part))[0]]
        return made

    table = sized(real(table))
    compared = pa.concat_tables([_of(table, estimator=name) for name in COMPARED])
    return _by_share(
        "communities-designs",
        "Designs of labels: error and coverage on communities and complete graphs",
        "estimator",
        _by_design(compared),
        ("estimator",),
        cells,
        (": AE", ": coverage", ", complete graph: AE", ", complete graph: coverage"),
        "A design that may label only some nodes can have fewer labels than the share "
        "(column labels of community_results.parquet).",
    )


def _coverage(table: pa.Table) -> Covered | None:
    return coverage(means(table, ("dataset", "draw")))


def _intervals(place: Place, rows: pa.Table) -> list[Cell]:
    """Coverage and mean width, checked against the required coverage."""
    return _covered(_coverage(rows), MAX_COVERAGE if place[0] != SMALL else 1.0)


def _interval_tables(table: pa.Table) -> list[RenderedTable]:
    """Coverage of `auto` by size and labels and by family, and of every quantifier."""
    table = table.filter(pc.is_valid(table["coverage"]))
    auto, large = real(_of(table, estimator="auto")), sized(table)
    random = _of(auto, design="random")
    samples = pc.is_in(large["communities"], pa.array(list(SAMPLES)))
    bounds_note = (
        f"{BOUNDS_NOTE} Low: the upper bound is below {figure(MIN_COVERAGE, 2)}. "
        f"High: the lower bound is above {figure(MAX_COVERAGE, 2)} (from 20 unlabelled "
        "members on)."
    )
    columns = ": coverage", ": width"
    return [
        _by_share(
            "communities-coverage",
            "Intervals of auto: coverage and mean width",
            "size and labels",
            _by_design(auto),
            ("sizes", "labelled"),
            _intervals,
            columns,
            bounds_note,
            lambda at: (
                f"{at[0]} unlabelled members, {'' if at[1] else 'no '}labels inside"
            ),
            lambda at: (not at[1], int(at[0].partition("-")[0])),
        ),
        _by_share(
            "communities-families-coverage",
            "Intervals of auto by family of graphs and kind of communities, random "
            "labels",
            "communities",
            [
                (shown(name), _of(random, graph_family=name))
                for name in random["graph_family"].unique().to_pylist()
            ],
            ("communities",),
            lambda _, rows: _covered(_coverage(rows), 1.0),
            columns,
            bounds_note,
            lambda at: str(at[0]),
        ),
        _by_share(
            "communities-quantifiers-coverage",
            "Intervals of every estimator: coverage and mean width",
            "estimator",
            [
                ("communities", _of(real(large), design="random")),
                (
                    "communities without labels",
                    _of(real(large), design="half", labelled=False),
                ),
                ("samples drawn by class", large.filter(samples)),
            ],
            ("estimator",),
            lambda _, rows: _covered(_coverage(rows)),
            columns,
            f"{BOUNDS_NOTE} Intervals have their nominal coverage if the estimator's "
            "assumption holds; on communities, the assumptions of all but auto, cc and "
            "pcc mostly do not hold.",
        ),
    ]


def community_tables(table: pa.Table) -> list[RenderedTable]:
    """All tables that have rows."""
    draws = pc.count_distinct(table["draw"]).as_py()
    note = (
        f"Mean over communities with at least 20 unlabelled members and over {draws} "
        "draw(s) of the labels; the truth is that of the unlabelled members."
    )
    table = _with_best_rival(table)
    large = sized(table)
    views = [
        ("", "on real communities, random labels", _of(real(large), design="random")),
        (
            "half-",
            "on communities without a label, while others have them",
            _of(real(large), design="half", labelled=False),
        ),
        ("app-", "on samples drawn by class", _of(large, communities="app")),
        (
            "by-class-",
            "on sets drawn by class, which is not declared",
            _of(large, communities="by-class"),
        ),
    ]
    made = [
        _errors(rows, f"communities-{part}ae", f"AE {where}", note)
        for part, where, rows in views
    ]
    made += [
        _designs(table),
        _above(table, "pcc", TOLERANCE, f"{TOLERANCE:g} times PCC"),
        _above(table, "prior", 1.0, "the training prior"),
        _above(table, RIVAL, 1.0, "the best rival"),
        *_interval_tables(table),
    ]
    return [one for one in made if one is not None and one.groups]


def community_outputs(table: pa.Table) -> tuple[dict[str, bytes], str]:
    """Contents of ``tables/communities-*`` by file name, and text for a terminal."""
    tables = community_tables(table)
    return table_files(tables), "\n".join(map(to_text, tables))
