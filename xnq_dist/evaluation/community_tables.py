"""Tables and the page of an evaluation on communities.

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
from xnq_dist.evaluation.render import page, table_files
from xnq_dist.evaluation.rendered_table import Cell, RenderedTable, RowGroup, to_text
from xnq_dist.evaluation.rivals import RIVALS

__all__ = ["community_outputs", "community_tables", "community_text"]

LEAD = (
    "Error, bias and coverage on communities of the graph, which differ in features, "
    "links and class proportions, and on samples drawn by class."
)
METRICS = (("ae", "AE"), ("rae", "RAE"), ("bias", "Bias of the last class"))
RIVAL = "rival"
"""The rival with the lowest error on a graph, by design and share of labels."""
COMPARED = ("auto", RIVAL, FLOOR, "pcc", "sld", "prior")
"""Estimators of the table of designs."""
MIN_COVERAGE, MAX_COVERAGE = 0.93, 0.98
"""Required coverage of 95 % intervals; the maximum is for 20 unlabelled members on."""
SECTIONS = (
    ("compared", "Compared with PCC", r".*-above$"),
    ("designs", "Designs of labels", r".*-designs$"),
    ("ae", "Absolute error", r".*-ae$"),
    ("intervals", "Intervals", r".*coverage$"),
    ("rae", "Relative error", r".*-rae$"),
    ("bias", "Bias", r".*-bias$"),
)
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
    """Cells by column; the estimate nearest to 0 in each column is marked as best."""
    made = []
    for column in columns:
        named = list(zip(estimators, column, strict=True))
        errors = [abs(v) for name, v in named if v is not None and name != FLOOR]
        best = min(errors, default=None)
        cells = []
        for name, value in named:
            marked = value is not None and abs(value) == best and name != FLOOR
            cell = Cell() if value is None else Cell(figure(value))
            cells.append(replace(cell, mark="best") if marked else cell)
        made.append(cells)
    return made


def _errors(
    table: pa.Table, name: str, title: str, metric: str, note: str
) -> RenderedTable | None:
    """Errors of estimators (rows) by data set and label share (columns)."""
    rows = means(table, ("dataset", "label_share", "estimator"))
    if not rows:
        return None
    errors = {(r["dataset"], r["label_share"], r["estimator"]): r[metric] for r in rows}
    columns = list(dict.fromkeys((d, share) for d, share, _ in errors))
    first = ("auto", RIVAL, FLOOR)
    names = dict.fromkeys(estimator for *_, estimator in errors)
    if metric == "bias":
        names.pop(FLOOR, None)
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


def _designs(table: pa.Table) -> RenderedTable:
    """Errors and coverage by design, on communities and for the complete graph."""
    table = sized(real(table))
    by = ("design", "estimator", "label_share", "dataset", "draw")
    whole = pc.equal(table["communities"], "whole")
    masks = {"communities": pc.invert(whole), "complete graph": whole}
    masks = {name: mask for name, mask in masks.items() if pc.any(mask).as_py()}
    parts = [means(table.filter(mask), by) for mask in masks.values()]
    rows = [row for part in parts for row in part]
    shares = list(dict.fromkeys(r["label_share"] for r in rows))
    groups = []
    for design in dict.fromkeys(r["design"] for r in rows):
        lines = []
        for estimator in COMPARED:
            cells = [Cell(_name(estimator))]
            for share in shares:
                key = (design, estimator, share)
                for part in parts:
                    same = [r for r in part if tuple(r[n] for n in by[:3]) == key]
                    cells += _error_and_coverage(same)
            if any(cell != Cell() for cell in cells[1:]):
                lines.append(tuple(cells))
        groups.append(RowGroup(tuple(lines), DESIGNS[design].title))
    header = ["estimator"]
    for share in shares:
        for kind in masks:
            header += [f"{100 * share:g} % labels, {kind}: AE", "coverage"]
    return RenderedTable(
        "communities-designs",
        "Designs of labels: error and coverage on communities and complete graphs",
        tuple(header),
        tuple(groups),
        (
            "A design that may label only some nodes can have fewer labels than the "
            "share (column labels of community_results.parquet).",
        ),
    )


def _error_and_coverage(rows: Sequence[Figures]) -> list[Cell]:
    if not rows:
        return [Cell(), Cell()]
    sets = np.array([row["sets"] for row in rows])
    error = float(np.array([row["ae"] for row in rows]) @ sets / sets.sum())
    return [Cell(figure(error)), _covered(coverage(rows))[0]]


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
    positive = ratios[ratios > 0]
    mean = float(np.exp(np.log(positive).mean())) if len(positive) else 0.0
    share = f"{100 * worst.label_share:g} %"
    return (
        Cell(str(len(cells))),
        _cell(mean, 2),
        Cell(str(int((ratios > bound).sum()))),
        Cell(str(sum(cell.above for cell in cells))) if tested else Cell(),
        _cell(worst.ratio, 2),
        Cell(f"{shown(worst.dataset)}, {worst.communities}, {share}"),
    )


Place = tuple[object, ...]


def _coverages(
    name: str,
    title: str,
    heading: str,
    groups: Sequence[tuple[str, pa.Table]],
    by: tuple[str, ...],
    label: Callable[[Place], str],
    note: str,
    maximum: Callable[[Place], float | None],
    order: Callable[[Place], object] | None = None,
) -> RenderedTable:
    """Coverage and mean width by label share, with a row for each value of `by`."""
    columns = (*by, "label_share", "dataset", "draw")
    parts = [
        (title, [r for r in means(group, columns) if r["coverage"] is not None])
        for title, group in groups
    ]
    shares = list(dict.fromkeys(r["label_share"] for _, rows in parts for r in rows))
    made = []
    for group, rows in parts:
        lines = []
        places: list[Place] = list(dict.fromkeys(tuple(r[n] for n in by) for r in rows))
        for place in sorted(places, key=order) if order else places:  # type: ignore[arg-type]
            cells = [Cell(label(place))]
            for share in shares:
                key = (*place, share)
                same = [r for r in rows if tuple(r[n] for n in columns[:-2]) == key]
                cells += _covered(coverage(same), maximum(place))
            lines.append(tuple(cells))
        if lines:
            made.append(RowGroup(tuple(lines), group))
    header = [heading]
    for share in shares:
        header += [f"{100 * share:g} % labels: coverage", "width"]
    return RenderedTable(name, title, tuple(header), tuple(made), (note,))


def _interval_tables(table: pa.Table) -> list[RenderedTable]:
    """Coverage of `auto` by size and labels and by family, and of every quantifier."""
    auto = real(_of(table, estimator="auto"))
    bounds_note = (
        f"{BOUNDS_NOTE} Low: the upper bound is below {figure(MIN_COVERAGE, 2)}. "
        f"High: the lower bound is above {figure(MAX_COVERAGE, 2)} (from 20 unlabelled "
        "members on)."
    )
    random = _of(auto, design="random")
    families = random["graph_family"].unique().to_pylist()
    made = [
        _coverages(
            "communities-coverage",
            "Intervals of auto: coverage and mean width",
            "size and labels",
            _by_design(auto),
            ("sizes", "labelled"),
            lambda at: (
                f"{at[0]} unlabelled members, "
                f"{'labels inside' if at[1] else 'no labels'}"
            ),
            bounds_note,
            lambda at: 1.0 if at[0] == SMALL else MAX_COVERAGE,
            lambda at: (not at[1], int(str(at[0]).partition("-")[0])),
        ),
        _coverages(
            "communities-families-coverage",
            "Intervals of auto by family of graphs and kind of communities, random "
            "labels",
            "communities",
            [(shown(name), _of(random, graph_family=name)) for name in families],
            ("communities",),
            lambda at: str(at[0]),
            bounds_note,
            lambda _: 1.0,
        ),
    ]
    table = sized(table.filter(pc.is_valid(table["coverage"])))
    if set(table["estimator"].unique().to_pylist()) - {"auto"}:
        samples = pc.is_in(table["communities"], pa.array(list(SAMPLES)))
        without = _of(real(table), design="half", labelled=False)
        made.append(
            _coverages(
                "communities-quantifiers-coverage",
                "Intervals of every quantifier: coverage and mean width",
                "quantifier",
                [
                    ("communities", _of(real(table), design="random")),
                    ("communities without labels", without),
                    ("samples drawn by class", table.filter(samples)),
                ],
                ("estimator",),
                lambda at: _name(str(at[0])),
                f"{BOUNDS_NOTE} Intervals have their nominal coverage if the "
                "quantifier's assumption holds; on communities, the assumptions of all "
                "but auto, cc and pcc mostly do not hold.",
                lambda _: None,
            )
        )
    return made


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
            "app-labels-",
            "on samples drawn by class, labelled nodes among them",
            _of(large, communities="app+labels"),
        ),
    ]
    made = [
        _errors(rows, f"communities-{part}{metric}", f"{word} {where}", metric, note)
        for metric, word in METRICS
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


def community_outputs(table: pa.Table) -> dict[str, bytes]:
    """Contents of ``tables/communities-*`` and ``communities.html``, by file name."""
    tables = community_tables(table)
    datasets = table["dataset"].unique().to_pylist()
    counted = {
        "data sets": "dataset",
        "families of graphs": "graph_family",
        "kinds of sets": "communities",
        "designs of labels": "design",
        "estimators": "estimator",
    }
    headline = [
        (what, str(pc.count_distinct(table[column]).as_py()))
        for what, column in counted.items()
    ]
    title = f"Communities of {', '.join(shown(name) for name in datasets)}"
    html = page(title, LEAD, headline, SECTIONS, tables, {})
    return table_files(tables) | {"communities.html": html}


def community_text(table: pa.Table) -> str:
    """The tables of absolute errors, comparisons and intervals, for a terminal."""
    endings = ("-ae", "-above", "-designs", "-coverage")
    tables = [t for t in community_tables(table) if t.name.endswith(endings)]
    return "\n".join(to_text(t) for t in tables)
