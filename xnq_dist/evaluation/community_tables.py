"""Tables and the page of an evaluation on communities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.evaluation.cells import Figures, coverage, means, real, sized
from xnq_dist.evaluation.community_checks import check_tables
from xnq_dist.evaluation.community_words import covered_text, figure, name_of, title_of
from xnq_dist.evaluation.estimators import TRIVIAL
from xnq_dist.evaluation.names import shown
from xnq_dist.evaluation.regions import SAMPLES
from xnq_dist.evaluation.render import page
from xnq_dist.evaluation.rendered_table import (
    Cell,
    RenderedTable,
    RowGroup,
    to_html,
    to_latex,
)
from xnq_dist.evaluation.rendered_table import to_markdown as markdown

__all__ = ["community_outputs", "community_tables", "community_text"]

LEAD = (
    "Error, bias and coverage on communities of the graph itself, whose features and "
    "links shift along with their classes, and on samples drawn by class."
)
METRICS = (("ae", "AE"), ("rae", "RAE"), ("bias", "Bias of the last class"))
COMPARED = ("auto", "pcc", "sld", "prior")
"""Estimators of the table of designs."""


def _cells(values: Sequence[float | None], digits: int = 3) -> list[Cell]:
    return [
        Cell() if value is None else Cell(figure(value, digits)) for value in values
    ]


def _marked(columns: list[list[float | None]]) -> list[list[Cell]]:
    """Cells by column, the one nearest to 0 of each column marked."""
    made = []
    for column in columns:
        cells = _cells(column)
        known = [abs(value) for value in column if value is not None]
        made.append(
            [
                Cell(cell.text, mark="best")
                if value is not None and abs(value) == min(known)
                else cell
                for cell, value in zip(cells, column, strict=True)
            ]
        )
    return made


def _of(table: pa.Table, **wanted: object) -> pa.Table:
    """Rows with these values."""
    for name, value in wanted.items():
        table = table.filter(pc.equal(table[name], value))
    return table


def _kind(estimator: str) -> int:
    """0 for `auto`, 1 for another quantifier, 2 for a trivial estimator."""
    if estimator == "auto":
        return 0
    return 2 if estimator in TRIVIAL else 1


def _errors(
    table: pa.Table, name: str, title: str, metric: str, notes: tuple[str, ...]
) -> RenderedTable | None:
    """Estimators by data set and label share."""
    rows = means(table, ("dataset", "label_share", "estimator"))
    if not rows:
        return None
    found = {(r["dataset"], r["label_share"], r["estimator"]): r[metric] for r in rows}
    columns = list(dict.fromkeys((d, share) for d, share, _ in found))
    estimators = list(dict.fromkeys(estimator for *_, estimator in found))
    values: list[list[float | None]] = [
        [found.get((*column, estimator)) for estimator in estimators]
        for column in columns
    ]
    everywhere: list[float | None] = []
    for k in range(len(estimators)):
        known = [v for column in values if (v := column[k]) is not None]
        whole = len(known) == len(columns)
        everywhere.append(float(np.mean(known)) if whole else None)
    cells = _marked([everywhere, *values])
    lines = [
        (Cell(name_of(estimator)), *(column[k] for column in cells))
        for k, estimator in enumerate(estimators)
    ]
    kinds = [_kind(estimator) for estimator in estimators]
    groups = tuple(
        RowGroup(
            tuple(line for line, own in zip(lines, kinds, strict=True) if own == kind)
        )
        for kind in sorted(set(kinds))
    )
    header = (
        "estimator",
        "mean",
        *(f"{shown(d)}, {100 * share:g} %" for d, share in columns),
    )
    return RenderedTable(name, title, header, groups, notes)


def _designs(table: pa.Table) -> RenderedTable | None:
    """Errors and coverage by design: on communities, and of the whole graph."""
    table = sized(real(table))
    by = ("design", "estimator", "label_share", "dataset", "draw")
    whole = pc.equal(table["communities"], "whole")
    masks = {"communities": pc.invert(whole), "whole graph": whole}
    masks = {name: some for name, some in masks.items() if pc.any(some).as_py()}
    parts = [means(table.filter(some), by) for some in masks.values()]
    rows = [row for part in parts for row in part]
    designs = list(dict.fromkeys(r["design"] for r in rows))
    shares = list(dict.fromkeys(r["label_share"] for r in rows))
    groups = []
    for design in designs:
        lines = []
        for estimator in COMPARED:
            cells = [Cell(name_of(estimator))]
            for share in shares:
                wanted = (design, estimator, share)
                for part in parts:
                    own = [r for r in part if tuple(r[n] for n in by[:3]) == wanted]
                    cells += _error_and_coverage(own)
            if any(cell != Cell() for cell in cells[1:]):
                lines.append(tuple(cells))
        groups.append(RowGroup(tuple(lines), title_of(design)))
    header = ["estimator"]
    for share in shares:
        for kind in masks:
            header += [f"{100 * share:g} % labels, {kind}: AE", "coverage"]
    return RenderedTable(
        "communities-designs",
        "Designs of labels: error and coverage on communities and of the whole graph",
        tuple(header),
        tuple(groups),
        (
            "Labels of a design that may label few nodes are fewer than the share says "
            "(column labels of community_results.parquet).",
        ),
    )


def _error_and_coverage(rows: Sequence[Figures]) -> list[Cell]:
    if not rows:
        return [Cell(), Cell()]
    sets = np.array([row["sets"] for row in rows])
    error = float(np.array([row["ae"] for row in rows]) @ sets / sets.sum())
    found = coverage(rows)
    return [Cell(figure(error)), Cell(covered_text(found)) if found else Cell()]


def _coverage_of_all(table: pa.Table) -> RenderedTable | None:
    """Coverage and width of every quantifier by label share, all sizes together."""
    table = sized(table.filter(pc.is_valid(table["coverage"])))
    if not set(table["estimator"].unique().to_pylist()) - {"auto"}:
        return None
    shares = table["label_share"].unique().to_pylist()
    groups = []
    for title, some in _views(table):
        rows = means(some, ("estimator", "label_share", "dataset", "draw"))
        lines = []
        for estimator in dict.fromkeys(row["estimator"] for row in rows):
            cells = [Cell(name_of(estimator))]
            for share in shares:
                wanted = (estimator, share)
                found = coverage(
                    [r for r in rows if (r["estimator"], r["label_share"]) == wanted]
                )
                cells += (
                    [Cell(covered_text(found)), Cell(figure(found.width))]
                    if found
                    else [Cell(), Cell()]
                )
            lines.append(tuple(cells))
        if lines:
            groups.append(RowGroup(tuple(lines), title))
    header = ["quantifier"]
    for share in shares:
        header += [f"{100 * share:g} % labels: coverage", "width"]
    return RenderedTable(
        "communities-quantifiers-coverage",
        "Intervals of every quantifier: coverage and mean width",
        tuple(header),
        tuple(groups),
        (
            "In brackets: 99 % bounds, clustered by draw of the labels. An interval "
            "covers at its level where the quantifier's assumption holds; on "
            "communities that of all but auto, cc and pcc mostly does not.",
        ),
    )


def _views(table: pa.Table) -> list[tuple[str, pa.Table]]:
    """Random labels on communities, communities without labels, samples by class."""
    samples = pc.is_in(table["communities"], pa.array(list(SAMPLES)))
    views = [
        ("communities", _of(real(table), design="random")),
        ("communities without labels", _of(real(table), design="half", labelled=False)),
        ("samples drawn by class", table.filter(samples)),
    ]
    return [(title, some) for title, some in views if some.num_rows]


def community_tables(table: pa.Table) -> list[RenderedTable]:
    """The tables that there are rows for."""
    draws = pc.count_distinct(table["draw"]).as_py()
    notes = (
        f"Mean over sets of at least 20 unlabelled members and {draws} draw(s) of the "
        "labels; the truth is that of the unlabelled members.",
    )
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
        _errors(some, f"communities-{part}{metric}", f"{word} {where}", metric, notes)
        for metric, word in METRICS
        for part, where, some in views
    ]
    made += [_designs(table), *check_tables(table), _coverage_of_all(table)]
    return [one for one in made if one is not None and one.groups]


def community_outputs(table: pa.Table) -> dict[str, bytes]:
    """Files by name: ``tables/communities-*`` and ``communities.html``."""
    tables = community_tables(table)
    made: dict[str, bytes] = {}
    for one in tables:
        made[f"tables/{one.name}.md"] = markdown(one).encode()
        made[f"tables/{one.name}.tex"] = to_latex(one).encode()
        made[f"tables/{one.name}.html"] = to_html(one).encode()
    datasets = table["dataset"].unique().to_pylist()
    sections = [
        (anchor, heading, [one for one in tables if one.name.endswith(ending)])
        for anchor, heading, ending in (
            ("compared", "Compared with PCC", ("-above", "-worst", "-left-out")),
            ("designs", "Designs of labels", "-designs"),
            ("ae", "Absolute error", "-ae"),
            ("intervals", "Intervals", "coverage"),
            ("flagged", "Flagged communities", "-flagged"),
            ("rae", "Relative error", "-rae"),
            ("bias", "Bias", "-bias"),
        )
    ]
    headline = [
        ("data sets", str(len(datasets))),
        *(
            (what, str(pc.count_distinct(table[column]).as_py()))
            for what, column in (
                ("families of graphs", "graph_family"),
                ("kinds of sets", "communities"),
                ("designs of labels", "design"),
                ("estimators", "estimator"),
            )
        ),
    ]
    title = f"Communities of {', '.join(shown(name) for name in datasets)}"
    made["communities.html"] = page(title, LEAD, headline, sections, {}).encode()
    return made


def community_text(table: pa.Table) -> str:
    """The tables of absolute errors, comparisons and intervals, for a terminal."""
    endings = ("-ae", "-above", "-left-out", "-designs", "-coverage", "-flagged")
    wanted = [t for t in community_tables(table) if t.name.endswith(endings)]
    return "\n".join(_plain(t) for t in wanted)


def _plain(table: RenderedTable) -> str:
    rows = [table.header]
    for group in table.groups:
        if group.title:
            rows.append((group.title, *[""] * (len(table.header) - 1)))
        rows += [tuple(cell.text for cell in row) for row in group.rows]
    widths = [max(len(row[k]) for row in rows) for k in range(len(table.header))]
    lines = [
        "  ".join(
            text.ljust(width) if k == 0 else text.rjust(width)
            for k, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([table.title, *lines, ""])
