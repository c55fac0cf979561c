"""Tables and the page of an evaluation on communities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from xnq_dist.evaluation.names import shown
from xnq_dist.evaluation.real import TRIVIAL
from xnq_dist.evaluation.render import page
from xnq_dist.evaluation.tables import Cell, Group, Table, to_html, to_latex
from xnq_dist.evaluation.tables import to_markdown as markdown

__all__ = ["community_outputs", "community_tables", "community_text"]

SAMPLES = ("app", "app+labels")
WHAT = {
    "prior": "training prior",
    "lab": "labelled members",
    "lab_pcc5": "labelled, 5 nodes of PCC",
    "lab_pcc20": "labelled, 20 nodes of PCC",
    "lab_pcc80": "labelled, 80 nodes of PCC",
    "map20": "SLD, 20 nodes of the prior",
    "map100": "SLD, 100 nodes of the prior",
}
LEAD = (
    "Error, bias and coverage on communities of the graph itself, whose features and "
    "links shift along with their classes, beside samples drawn by class."
)

Rows = list[dict[str, Any]]


def _mean(rows: Iterable[dict[str, Any]]) -> float | None:
    """Mean over sets, None without one."""
    found = [(row["value"], row["sets"]) for row in rows]
    if not found:
        return None
    values, sets = np.array(found).T
    return float(values @ sets / sets.sum())


def _cells(values: Sequence[float | None], digits: int = 3) -> list[Cell]:
    return [
        Cell() if value is None else Cell(_figure(value, digits)) for value in values
    ]


def _figure(value: float, digits: int = 3) -> str:
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


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


def _name(estimator: str) -> str:
    return WHAT.get(estimator, estimator if estimator == "auto" else shown(estimator))


def _of_family(family: str) -> Callable[[dict[str, Any]], bool]:
    return lambda row: bool(row["family"] == family)


def _kind(estimator: str) -> int:
    """0 for `auto`, 1 for another quantifier, 2 for a trivial estimator."""
    if estimator == "auto":
        return 0
    return 2 if estimator in TRIVIAL else 1


def _errors(
    rows: Rows,
    name: str,
    title: str,
    keep: Callable[[dict[str, Any]], bool],
    metric: str,
    notes: tuple[str, ...],
) -> Table | None:
    """Estimators by data set and label share."""
    some = [
        r for r in rows if keep(r) and r["metric"] == metric and r["sizes"] == "all"
    ]
    if not some:
        return None
    columns = list(dict.fromkeys((r["dataset"], r["label_share"]) for r in some))
    estimators = list(dict.fromkeys(r["estimator"] for r in some))
    values = [
        [
            _mean(
                r
                for r in some
                if (r["dataset"], r["label_share"]) == column
                and r["estimator"] == estimator
            )
            for estimator in estimators
        ]
        for column in columns
    ]
    everywhere: list[float | None] = []
    for k in range(len(estimators)):
        known = [v for column in values if (v := column[k]) is not None]
        whole = len(known) == len(columns)
        everywhere.append(float(np.mean(known)) if whole else None)
    cells = _marked([everywhere, *values])
    lines = [
        (Cell(_name(estimator)), *(column[k] for column in cells))
        for k, estimator in enumerate(estimators)
    ]
    kinds = [_kind(estimator) for estimator in estimators]
    groups = tuple(
        Group(
            tuple(line for line, own in zip(lines, kinds, strict=True) if own == kind)
        )
        for kind in sorted(set(kinds))
    )
    header = (
        "estimator",
        "mean",
        *(f"{shown(d)}, {100 * share:g} %" for d, share in columns),
    )
    return Table(name, title, header, groups, notes)


KINDS: tuple[tuple[str, Callable[[dict[str, Any]], bool]], ...] = (
    ("communities", lambda r: r["labels"] == "all" and r["family"] not in SAMPLES),
    ("communities without labels", lambda r: r["labels"] == "half"),
    ("samples drawn by class", lambda r: r["family"] in SAMPLES),
)


def _covered(own: Rows, shares: Sequence[float]) -> list[Cell]:
    """Coverage with its binomial error, and width, for each share of labels."""
    cells = []
    for share in shares:
        at = [r for r in own if r["label_share"] == share]
        held = _mean(r for r in at if r["metric"] == "coverage")
        wide = _mean(r for r in at if r["metric"] == "width")
        number = sum(r["sets"] for r in at if r["metric"] == "coverage")
        if held is None:
            cells += [Cell(), Cell()]
            continue
        error = np.sqrt(held * (1 - held) / number)
        text = f"{held:.3f} ± {error:.3f}".replace("0.", ".")
        cells += [Cell(text), *_cells([wide])]
    return cells


def _coverage_of_all(rows: Rows) -> Table | None:
    """Coverage and width of every quantifier by label share, all sizes together."""
    some = [
        r for r in rows if r["sizes"] == "all" and r["metric"] in ("coverage", "width")
    ]
    estimators = list(dict.fromkeys(r["estimator"] for r in some))
    if not set(estimators) - {"auto"}:
        return None
    shares = list(dict.fromkeys(r["label_share"] for r in some))
    groups = []
    for title, keep in KINDS:
        lines = []
        for estimator in estimators:
            own = [r for r in some if keep(r) and r["estimator"] == estimator]
            if own:
                lines.append((Cell(_name(estimator)), *_covered(own, shares)))
        if lines:
            groups.append(Group(tuple(lines), title))
    header = ["quantifier"]
    for share in shares:
        header += [f"{100 * share:g} % labels: coverage", "width"]
    return Table(
        "communities-quantifiers-coverage",
        "Intervals of every quantifier: share that holds the true proportion, and mean "
        "width",
        tuple(header),
        tuple(groups),
        (
            "± is the binomial error of the sets counted once each. An interval holds "
            "what chance does where the quantifier's assumption is right; on "
            "communities that of all but auto, cc and pcc mostly is not.",
        ),
    )


def _coverage(rows: Rows) -> Table | None:
    """Coverage and width of `auto` by size and label share."""
    some = [
        r
        for r in rows
        if r["estimator"] == "auto" and r["metric"] in ("coverage", "width")
    ]
    if not some:
        return None
    shares = list(dict.fromkeys(r["label_share"] for r in some))
    sizes = sorted(
        dict.fromkeys(r["sizes"] for r in some if r["sizes"] != "all"),
        key=lambda text: int(text.partition("-")[0]),
    )
    groups = []
    for title, keep in KINDS:
        lines = []
        for size in [*sizes, "all"]:
            own = [r for r in some if keep(r) and r["sizes"] == size]
            if not own:
                continue
            cells = _covered(own, shares)
            label = "all sizes" if size == "all" else f"{size} unlabelled members"
            lines.append((Cell(label), *cells))
        if lines:
            groups.append(Group(tuple(lines), title))
    header = ["size"]
    for share in shares:
        header += [f"{100 * share:g} % labels: coverage", "width"]
    return Table(
        "communities-coverage",
        "Intervals of auto: share that holds the true proportion, and mean width",
        tuple(header),
        tuple(groups),
        ("± is the binomial error of the sets counted once each.",),
    )


def community_tables(table: pa.Table) -> list[Table]:
    """The tables that there are rows for."""
    rows: Rows = table.to_pylist()
    draws = len({row["draw"] for row in rows})
    notes = (
        f"Mean over sets of at least 20 unlabelled members and {draws} draw(s) of the "
        "labels; the truth is that of the unlabelled members.",
    )

    def real(row: dict[str, Any]) -> bool:
        return row["labels"] == "all" and row["family"] not in SAMPLES

    def half(row: dict[str, Any]) -> bool:
        return bool(row["labels"] == "half")

    made: list[Table | None] = []
    for metric, word in (
        ("ae", "AE"),
        ("rae", "RAE"),
        ("bias", "Bias of the last class"),
    ):
        made += [
            _errors(
                rows,
                f"communities-{metric}",
                f"{word} on real communities",
                real,
                metric,
                notes,
            ),
            _errors(
                rows,
                f"communities-half-{metric}",
                f"{word} on communities without a label, while others have them",
                half,
                metric,
                notes,
            ),
        ]
        for family in SAMPLES:
            made.append(
                _errors(
                    rows,
                    f"communities-{family.replace('+', '-')}-{metric}",
                    f"{word} on samples drawn by class"
                    + (", labelled nodes among them" if "+" in family else ""),
                    _of_family(family),
                    metric,
                    notes,
                )
            )
    made += [_coverage(rows), _coverage_of_all(rows)]
    return [table for table in made if table is not None]


def community_outputs(table: pa.Table) -> dict[str, bytes]:
    """Files by name: ``tables/communities-*`` and ``communities.html``."""
    tables = community_tables(table)
    made: dict[str, bytes] = {}
    for one in tables:
        made[f"tables/{one.name}.md"] = markdown(one).encode()
        made[f"tables/{one.name}.tex"] = to_latex(one).encode()
        made[f"tables/{one.name}.html"] = to_html(one).encode()
    datasets = list(dict.fromkeys(table["dataset"].to_pylist()))
    families = list(dict.fromkeys(table["family"].to_pylist()))
    sections = [
        ("ae", "Absolute error", [t for t in tables if t.name.endswith("-ae")]),
        ("intervals", "Intervals", [t for t in tables if t.name.endswith("coverage")]),
        ("rae", "Relative error", [t for t in tables if t.name.endswith("-rae")]),
        ("bias", "Bias", [t for t in tables if t.name.endswith("-bias")]),
    ]
    # "-rae" ends with "-ae" too.
    sections[0][2][:] = [t for t in sections[0][2] if not t.name.endswith("-rae")]
    headline = [
        ("data sets", str(len(datasets))),
        ("kinds of sets", str(len(families))),
        ("estimators", str(len(set(table["estimator"].to_pylist())))),
    ]
    title = f"Communities of {', '.join(shown(name) for name in datasets)}"
    made["communities.html"] = page(title, LEAD, headline, sections, {}).encode()
    return made


def community_text(table: pa.Table) -> str:
    """The tables of absolute errors and intervals, for a terminal."""
    wanted = [
        t
        for t in community_tables(table)
        if (t.name.endswith("-ae") and not t.name.endswith("-rae"))
        or t.name.endswith("coverage")
    ]
    return "\n".join(_plain(t) for t in wanted)


def _plain(table: Table) -> str:
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
