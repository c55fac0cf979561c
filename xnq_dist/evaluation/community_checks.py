"""Tables that hold an estimator to what it must not do, cell by cell.

Its error must not be significantly above that of the mean posterior (PCC) or of the
training prior, its intervals must cover in every class of size, and a constant counts
by how it does on the family of graphs that it was not chosen on.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.evaluation.cells import (
    LEAST_DRAWS,
    LEAST_SETS,
    SMALL,
    TOLERANCE,
    Covered,
    Figures,
    RatioCell,
    coverage,
    means,
    ratio_cells,
    real,
)
from xnq_dist.evaluation.community_words import covered_text, figure, name_of, title_of
from xnq_dist.evaluation.estimators import CANDIDATES
from xnq_dist.evaluation.left_out import judged_rows, leave_one_family_out
from xnq_dist.evaluation.names import shown
from xnq_dist.evaluation.rendered_table import Cell, RenderedTable, RowGroup

__all__ = ["check_tables"]

LEAST_COVERED, MOST_COVERED = 0.93, 0.98
"""Coverage that 95 % intervals must have; the most from 20 unlabelled members on."""
WORST = 20
"""Cells of `auto` in the table of the worst."""


def check_tables(table: pa.Table) -> list[RenderedTable]:
    """All of them that there are rows for."""
    made = [
        _above(table, "pcc", TOLERANCE, "communities-pcc-above"),
        _above(table, "prior", 1.0, "communities-prior-above"),
        _worst(table),
        *_left_out(table),
        _coverage(table),
        _coverage_by_family(table),
        _flagged(table),
    ]
    return [one for one in made if one is not None]


def _designs(table: pa.Table) -> list[str]:
    found: list[str] = table["design"].unique().to_pylist()
    return found


def _of(table: pa.Table, column: str, value: str) -> pa.Table:
    return table.filter(pc.equal(table[column], value))


def _place(cell: RatioCell) -> str:
    share = f"{100 * cell.label_share:g} %"
    return f"{shown(cell.dataset)}, {cell.communities}, {share}"


def _above(
    table: pa.Table, baseline: str, bound: float, name: str
) -> RenderedTable | None:
    """How many cells of every estimator are above a baseline, design by design."""
    estimators = table["estimator"].unique().to_pylist()
    if baseline not in estimators:
        return None
    views = [(title_of(name), _of(table, "design", name)) for name in _designs(table)]
    half = _of(table, "design", "half")
    without = half.filter(pc.invert(half["labelled"]))
    views.append((f"{title_of('half')}: communities without labels", without))
    groups = []
    for title, some in views:
        lines = []
        for estimator in estimators:
            if estimator == baseline:
                continue
            cells = ratio_cells(some, estimator, baseline, bound)
            if cells:
                lines.append((Cell(name_of(estimator)), *_counted(cells, bound)))
        if lines:
            groups.append(RowGroup(tuple(lines), title))
    if not groups:
        return None
    times = f"{bound:g} times " if bound != 1 else ""
    what = f"{times}{'PCC' if baseline == 'pcc' else 'the training prior'}"
    return RenderedTable(
        name,
        f"Cells above {what}",
        (
            "estimator",
            "cells",
            "mean ratio",
            "above",
            "significantly",
            "worst ratio",
            "worst cell",
        ),
        tuple(groups),
        (
            "A cell: one graph, kind of communities and share of labels, with at least "
            f"{LEAST_SETS} communities of 20 unlabelled members on. Ratio: of mean "
            "absolute errors; their mean is geometric. Significantly: one-sided paired "
            "t test over draws of the labels, level .05 after Holm's adjustment over "
            f"the cells of a row; a cell needs {LEAST_DRAWS} draws (-: fewer).",
        ),
        "lrrrrrl",
    )


def _counted(cells: list[RatioCell], bound: float) -> tuple[Cell, ...]:
    ratios = np.array([cell.ratio for cell in cells])
    worst = max(cells, key=lambda cell: cell.ratio)
    tested = any(cell.pvalue is not None for cell in cells)
    above = sum(cell.above for cell in cells)
    positive = ratios[ratios > 0]
    mean = float(np.exp(np.log(positive).mean())) if len(positive) else 0.0
    return (
        Cell(str(len(cells))),
        Cell(figure(mean, 2)),
        Cell(str(int((ratios > bound).sum()))),
        Cell(str(above)) if tested else Cell(),
        Cell(figure(worst.ratio, 2)),
        Cell(_place(worst)),
    )


def _worst(table: pa.Table) -> RenderedTable | None:
    """The cells of `auto` with the largest ratios to PCC, named."""
    cells = [
        cell
        for design in _designs(table)
        for cell in ratio_cells(_of(table, "design", design), "auto", "pcc")
    ]
    if not cells:
        return None
    ranked = sorted(cells, key=lambda cell: -cell.ratio)[:WORST]
    lines = tuple(
        (
            Cell(_place(cell)),
            Cell(title_of(cell.design)),
            Cell(f"{cell.sets:.0f}"),
            Cell(str(cell.draws)),
            Cell(figure(cell.ratio, 2)),
            Cell() if cell.adjusted is None else Cell(f"{cell.adjusted:.2g}"),
        )
        for cell in ranked
    )
    return RenderedTable(
        "communities-worst",
        f"The {len(lines)} cells where auto's error is largest in units of PCC's",
        ("cell", "labels", "communities", "draws", "ratio", "adjusted p"),
        (RowGroup(lines),),
        ("Adjusted p: of a ratio above 1.05, by Holm over the cells of a design.",),
        "llrrrr",
    )


def _left_out(table: pa.Table) -> list[RenderedTable]:
    """Constants of the trivial estimators, chosen without the family judged."""
    groups = []
    for name, candidates in CANDIDATES.items():
        judged = leave_one_family_out(table, candidates)
        if not judged:
            continue
        rows = judged_rows(table, judged, name)
        both = pa.concat_tables([rows, _of(table, "estimator", "pcc")])
        lines = []
        for one in judged:
            cells = ratio_cells(
                _of(both, "graph_family", one.graph_family), name, "pcc"
            )
            ratios = [cell.ratio for cell in cells]
            worst = Cell(figure(max(ratios), 2)) if ratios else Cell()
            lines.append(
                (
                    Cell(shown(one.graph_family)),
                    Cell(", ".join(map(shown, one.chosen_on))),
                    Cell(name_of(one.chosen)),
                    Cell(figure(one.error)),
                    Cell(figure(one.least)),
                    worst,
                )
            )
        groups.append(RowGroup(tuple(lines), name_of(name)))
    if not groups:
        return []
    return [
        RenderedTable(
            "communities-left-out",
            "Constants chosen with the judged family of graphs left out",
            (
                "judged family",
                "chosen on",
                "chosen",
                "AE",
                "AE of the best in hindsight",
                "worst ratio to PCC",
            ),
            tuple(groups),
            (
                "Graphs of one family (all Twitch networks; both tasks on Cora) are "
                "left out together. Chosen: least mean absolute error over the other "
                "families, each counted once; errors are means over cells.",
            ),
            "lllrrr",
        )
    ]


def _verdict(found: Covered | None, most: float) -> tuple[Cell, Cell]:
    """Coverage and width; a coverage whose bounds miss what is asked is marked."""
    if found is None:
        return Cell(), Cell()
    text = covered_text(found)
    if found.upper < LEAST_COVERED:
        text += " low"
    elif found.lower > most:
        text += " high"
    return Cell(text), Cell(figure(found.width))


_MISSES = (
    "In brackets: 99 % bounds, clustered by draw of the labels (of every graph); none "
    f"with one draw. Low: the upper bound is below {figure(LEAST_COVERED, 2)}. High: "
    f"the lower bound is above {figure(MOST_COVERED, 2)} (from 20 unlabelled members "
    "on)."
)


def _coverage(table: pa.Table) -> RenderedTable | None:
    """Coverage and width of `auto` by size, labels inside and label share."""
    auto = real(_of(table, "estimator", "auto"))
    by = ("design", "sizes", "labelled", "label_share", "dataset", "draw")
    rows = [row for row in means(auto, by) if row["coverage"] is not None]
    if not rows:
        return None
    shares = list(dict.fromkeys(row["label_share"] for row in rows))
    places = {
        (r["design"], r["sizes"], r["labelled"]): int(r["sizes"].partition("-")[0])
        for r in rows
    }
    groups = []
    for design in _designs(table):
        lines = []
        own = [place for place in places if place[0] == design]
        for place in sorted(own, key=lambda at: (not at[2], places[at])):
            _, size, inside = place
            cells: list[Cell] = []
            for share in shares:
                wanted = (*place, share)
                some = [r for r in rows if tuple(r[n] for n in by[:4]) == wanted]
                most = 1.0 if size == SMALL else MOST_COVERED
                cells += _verdict(coverage(some), most)
            label = f"{size} unlabelled members, "
            lines.append(
                (Cell(label + ("labels inside" if inside else "no labels")), *cells)
            )
        groups.append(RowGroup(tuple(lines), title_of(design)))
    header = ["size and labels"]
    for share in shares:
        header += [f"{100 * share:g} % labels: coverage", "width"]
    return RenderedTable(
        "communities-coverage",
        "Intervals of auto: coverage and mean width",
        tuple(header),
        tuple(groups),
        (_MISSES,),
    )


def _coverage_by_family(table: pa.Table) -> RenderedTable | None:
    """Coverage and width of `auto` on each family of graphs, random labels."""
    auto = real(_of(_of(table, "estimator", "auto"), "design", "random"))
    by = ("graph_family", "communities", "label_share", "dataset", "draw")
    rows = [row for row in means(auto, by) if row["coverage"] is not None]
    if not rows:
        return None
    shares = list(dict.fromkeys(row["label_share"] for row in rows))
    groups = []
    for family in dict.fromkeys(row["graph_family"] for row in rows):
        lines = []
        own = [row for row in rows if row["graph_family"] == family]
        for kind in dict.fromkeys(row["communities"] for row in own):
            cells: list[Cell] = []
            for share in shares:
                wanted = (kind, share)
                some = [
                    r for r in own if (r["communities"], r["label_share"]) == wanted
                ]
                cells += _verdict(coverage(some), 1.0)
            lines.append((Cell(kind), *cells))
        groups.append(RowGroup(tuple(lines), shown(family)))
    header = ["communities"]
    for share in shares:
        header += [f"{100 * share:g} % labels: coverage", "width"]
    return RenderedTable(
        "communities-families-coverage",
        "Intervals of auto by family of graphs and kind of communities, random labels",
        tuple(header),
        tuple(groups),
        (_MISSES,),
    )


def _flagged(table: pa.Table) -> RenderedTable | None:
    """Errors of the communities that `auto` flags, and of the others."""
    auto = real(_of(table, "estimator", "auto"))
    by = ("design", "label_share", "communities")
    groups = []
    for design in _designs(auto):
        some = _of(auto, "design", design)
        lines = []
        for kind, kept in ((None, by[:2]), *((name, by) for name in _kinds(some))):
            own = some if kind is None else _of(some, "communities", kind)
            for row in means(own, kept):
                if row["flagged"] is not None:
                    share = f"{100 * row['label_share']:g} %"
                    label = f"{kind or 'all communities'}, {share} labels"
                    lines.append((Cell(label), *_flagged_cells(row)))
        if lines:
            groups.append(RowGroup(tuple(lines), title_of(design)))
    if not groups:
        return None
    return RenderedTable(
        "communities-flagged",
        "Communities that auto flags, and others: absolute error",
        ("communities", "flagged", "AE of flagged", "AE of others", "ratio"),
        tuple(groups),
        (
            "Flagged: the expected absolute error is above fit.error. Sets from 5 "
            "unlabelled members on.",
        ),
    )


def _kinds(table: pa.Table) -> list[str]:
    found: list[str] = table["communities"].unique().to_pylist()
    return found


def _flagged_cells(row: Figures) -> tuple[Cell, ...]:
    """Share flagged, errors of both parts, their ratio."""
    flagged, others = row["flagged"], row["sets"] - row["flagged"]
    share = Cell(f"{100 * flagged / row['sets']:.0f} %")
    inside = row["flagged_ae"]
    if not flagged or not others:
        alone = Cell(figure(row["ae"]))
        errors = (alone, Cell()) if flagged else (Cell(), alone)
        return share, *errors, Cell()
    outside = (row["ae"] * row["sets"] - inside * flagged) / others
    ratio = Cell(figure(inside / outside, 2)) if outside > 0 else Cell()
    return share, Cell(figure(inside)), Cell(figure(outside)), ratio
