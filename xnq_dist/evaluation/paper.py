"""The paper's tables with our results, next to the published ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from xnq_dist.core.method_records import METHODS
from xnq_dist.evaluation import paper_figures as published
from xnq_dist.evaluation.names import base, ordered_methods, shown, span, tally
from xnq_dist.evaluation.paper_figures import PublishedFigures
from xnq_dist.evaluation.rendered_table import (
    EMPTY,
    Cell,
    Mark,
    RenderedTable,
    RowGroup,
)
from xnq_dist.evaluation.summary import (
    ALLOWED,
    GRAPH_LEVEL,
    FoldChoice,
    FoldMean,
    Summary,
    costs,
    quantifiers_of,
    spread,
)

__all__ = ["paper_tables"]

DIGITS = {"ae": 4, "rae": 3}
"""Number of decimals of our results."""
METRIC_TEXT = {"ae": "absolute error (AE)", "rae": "relative absolute error (RAE)"}
FOLDS_NOTE = (
    "Mean ± sample standard deviation (ddof = 1) over folds; best in bold, second best "
    "underlined."
)
PAPER_NOTE = (
    "In brackets: the paper's values, mean ± standard deviation over five folds; the "
    "paper does not state its ddof."
)
BASELINE_NOTE = (
    "Best baseline: the best of all evaluated methods except ours, including LR and "
    "the trained networks of the ablation."
)
GRAPH_NOTE = (
    "LBQ estimates the complete graph, not samples of nodes, and is not ranked."
)
Figures = Mapping[tuple[str, str], FoldMean | None]
"""By method (or quantifier) and data set."""


def paper_tables(results: pa.Table, summary: Summary) -> Iterator[RenderedTable]:
    """Yield every table that the results allow, except the Bayesian comparison.

    Parameters
    ----------
    results
        Table of schema ``results``; several data sets may be concatenated.
    summary
        Summary of these results.
    """
    ablation = quantifiers_of(results, summary.reference)
    for kind in ("binary", "multi-class"):
        if not summary.of_kind(kind):
            continue
        for metric in ("ae", "rae"):
            yield _errors(summary, kind, metric)
        if (table := _ablation(summary, ablation, kind)) is not None:
            yield table
    if any(len(summary.shares(name)) > 1 for name in summary.datasets):
        yield _shares(summary)
    yield _cost(results, summary)


def _errors(summary: Summary, kind: str, metric: str) -> RenderedTable:
    """Errors of methods by data set, with the change against the best baseline."""
    datasets = summary.of_kind(kind)
    printed = published.ERRORS[metric]
    evaluated = [m for m in summary.methods if any(summary.of(d, m) for d in datasets)]
    known = [m for m in printed if {*printed[m]} & {*datasets}]
    # Rows of the paper are shown even if the method was not evaluated here.
    measured = {base(m) for m in evaluated}
    rows = ordered_methods([*evaluated, *(m for m in known if m not in measured)])
    methods = [m for m in rows if base(m) not in published.EMBEDDERS]
    ours = [m for m in methods if base(m) in METHODS.records()]
    graph_level = [m for m in methods if base(m) in GRAPH_LEVEL]
    baselines = [m for m in methods if m not in (*ours, *graph_level)]
    figures = {
        (m, d): summary.figure(d, m, metric)
        for m in (*baselines, *graph_level, *ours)
        for d in datasets
    }
    ranked = {key: f for key, f in figures.items() if key[0] not in graph_level}
    marks = _marks(ranked, metric)

    def row(method: str) -> tuple[Cell, ...]:
        chosen = [c for d in datasets for c in summary.of(d, method)]
        name = shown(method) + (" (graph level)" if method in graph_level else "")
        bracketed = printed.get(base(method), {})
        return (
            Cell(name),
            *_cells(method, datasets, figures, bracketed, marks, metric),
            *_choice_cells(chosen),
        )

    groups = [
        RowGroup(tuple(row(m) for m in part)) for part in (baselines, graph_level, ours)
    ]
    # LR and trained networks are listed in the ablation, but are baselines too.
    embedders = [m for m in summary.methods if base(m) in published.EMBEDDERS]
    reference = summary.reference
    compared = [m for m in ours if any(figures[m, d] for d in datasets)]
    comparisons = [(m, [*baselines, *embedders], "best baseline") for m in compared]
    comparisons += [(m, [reference], shown(reference)) for m in compared]
    groups.append(
        RowGroup(
            tuple(
                _change(summary, m, others, called, datasets, metric)
                for m, others, called in comparisons
                if others != [m]
            )
        )
    )
    return RenderedTable(
        f"{metric}-{kind}",
        f"Test {METRIC_TEXT[metric]} on {kind} data sets",
        ("Method", *map(shown, datasets), "Quantifier (folds)", "Compared"),
        tuple(group for group in groups if group.rows),
        (
            FOLDS_NOTE,
            PAPER_NOTE,
            *_caveats(summary, datasets),
            "Compared: number of configurations (draws, calibrations and quantifiers) "
            "from which validation chose in each fold.",
            *((BASELINE_NOTE,) if embedders else ()),
            *((GRAPH_NOTE,) if graph_level else ()),
        ),
        "l" + "r" * len(datasets) + "lr",
    )


def _cells(
    name: str,
    datasets: Sequence[str],
    figures: Figures,
    printed: Mapping[str, PublishedFigures],
    marks: Mapping[tuple[str, str], Mark],
    metric: str,
) -> list[Cell]:
    """Cells of our result, the published one and the rank, by data set."""
    return [
        Cell(
            spread(figures[name, d], DIGITS[metric]),
            f"{printed[d].mean:.3f} ± {printed[d].sd:.3f}" if d in printed else "",
            marks.get((name, d), ""),
        )
        for d in datasets
    ]


def _change(
    summary: Summary,
    method: str,
    others: Sequence[str],
    called: str,
    datasets: Sequence[str],
    metric: str,
) -> tuple[Cell, ...]:
    """Row of a method's error relative to the lowest error of others, in per cent."""
    cells = []
    for dataset in datasets:
        figures = [summary.figure(dataset, m, metric) for m in others]
        lowest = min((f.mean for f in figures if f is not None), default=0.0)
        figure = summary.figure(dataset, method, metric)
        if figure is None or lowest == 0:
            cells.append(Cell())
            continue
        change = f"{100 * (figure.mean / lowest - 1):+.1f} %"
        cells.append(Cell(change.replace("-", "−")))
    name = f"Change, {shown(method)} against {called}"
    return (Cell(name), *cells, Cell(""), Cell(""))


def _ablation(
    summary: Summary, ablation: Mapping[str, Summary], kind: str
) -> RenderedTable | None:
    """AE of other embedders, and of other quantifiers on XNQ's embeddings."""
    datasets = summary.of_kind(kind)
    xnq = summary.reference
    embedders = [
        m
        for m in summary.methods
        if base(m) in published.EMBEDDERS and any(summary.of(d, m) for d in datasets)
    ]
    quantifiers = [
        q
        for q, part in ablation.items()
        if q != "sld" and any(part.of(d, xnq) for d in datasets)
    ]
    if not embedders and not quantifiers:
        return None
    if kind == "binary":
        # Rows of the paper are shown even if they were not evaluated here.
        missing = {*published.EMBEDDERS} - {base(m) for m in embedders}
        embedders = list(ordered_methods([*embedders, *missing]))
        paper = [q for q in published.QUANTIFIERS if q != "sld"]
        quantifiers = [*paper, *(q for q in quantifiers if q not in paper)]
    figures: dict[tuple[str, str], FoldMean | None] = {}
    for d in datasets:
        figures |= {(m, d): summary.figure(d, m, "ae") for m in (*embedders, xnq)}
        for q in quantifiers:
            part = ablation.get(q)
            figures[q, d] = part.figure(d, xnq, "ae") if part is not None else None
    marks = _marks(figures, "ae")
    printed = {**published.QUANTIFIERS, **published.ERRORS["ae"]}

    def group(title: str, names: Iterable[str], of: Callable[[str], str]) -> RowGroup:
        rows = []
        for name in names:
            bracketed = printed.get(base(name), {})
            cells = _cells(name, datasets, figures, bracketed, marks, "ae")
            rows.append((Cell(shown(name)), *cells, Cell(of(name))))
        return RowGroup(tuple(rows), title)

    def chosen(method: str) -> str:
        names = [c.quantifier for d in datasets for c in summary.of(d, method)]
        return tally(names) if names else EMPTY

    groups = (
        group("Node embedder", embedders, chosen),
        group("Quantifier", quantifiers, lambda q: q),
        group("Reference", [xnq], chosen),
    )
    return RenderedTable(
        f"ablation-{kind}",
        f"Ablation of XNQ's components, test {METRIC_TEXT['ae']} on {kind} data sets",
        ("Component", *map(shown, datasets), "Quantifier (folds)"),
        tuple(part for part in groups if part.rows),
        (FOLDS_NOTE, PAPER_NOTE, *_caveats(summary, datasets)),
        "l" + "r" * len(datasets) + "l",
    )


def _marks(figures: Figures, metric: str) -> dict[tuple[str, str], Mark]:
    """Marks of the best and second best of each column, after rounding."""
    marks: dict[tuple[str, str], Mark] = {}
    for dataset in {d for _, d in figures}:
        means = {
            key: round(figure.mean, DIGITS[metric])
            for key, figure in figures.items()
            if key[1] == dataset and figure is not None
        }
        if len(means) < 2:
            continue
        best, *rest = sorted(set(means.values()))
        for key, mean in means.items():
            if mean == best:
                marks[key] = "best"
            elif mean == rest[0]:
                marks[key] = "second"
    return marks


def _choice_cells(chosen: Sequence[FoldChoice]) -> tuple[Cell, Cell]:
    if not chosen:
        return Cell(), Cell()
    return Cell(tally(c.quantifier for c in chosen)), Cell(
        span(c.compared for c in chosen)
    )


def _caveats(summary: Summary, datasets: Sequence[str]) -> Iterator[str]:
    """Yield notes on folds, unusual label shares and unusual quantifiers."""
    by_folds: dict[tuple[int, ...], list[str]] = {}
    outside: set[str] = set()
    for d in datasets:
        share = (summary.shares(d) or (1.0,))[-1]
        if share < 1:
            yield f"{shown(d)}: {100 * share:.3g} % of the labels."
        for m in summary.methods:
            chosen = summary.of(d, m)
            if chosen:
                folds = tuple(c.fold for c in chosen)
                by_folds.setdefault(folds, []).append(f"{shown(m)} on {shown(d)}")
            allowed = ALLOWED.get(base(m))
            if allowed and any(c.quantifier not in allowed for c in chosen):
                outside.add(shown(m))
    usual = max(by_folds, key=lambda folds: len(by_folds[folds]), default=())
    if usual:
        yield f"Folds: {', '.join(map(str, usual))}."
    for folds, where in by_folds.items():
        if folds != usual:
            yield f"Only folds {', '.join(map(str, folds))}: {', '.join(where)}."
    if outside:
        yield (
            f"{', '.join(sorted(outside))}: none of the paper's quantifiers for it was "
            "evaluated; the best of the others is used."
        )


def _shares(summary: Summary) -> RenderedTable:
    """AE by the share of labels kept."""
    datasets = [d for d in summary.datasets if len(summary.shares(d)) > 1]
    groups = []
    for method in summary.methods:
        shares = sorted({s for d in datasets for s in summary.shares(d, method)})
        rows = []
        for share in reversed(shares):
            figures = [summary.figure(d, method, "ae", share) for d in datasets]
            cells = (Cell(spread(figure, DIGITS["ae"])) for figure in figures)
            rows.append((Cell(f"{100 * share:.3g} %"), *cells))
        groups += [RowGroup(tuple(rows), shown(method))] if rows else []
    return RenderedTable(
        "label-shares",
        "Test absolute error (AE) with fewer labels",
        ("Labels kept", *map(shown, datasets)),
        tuple(groups),
        (
            "Share of the training and calibration labels of each fold. Mean ± sample "
            "standard deviation (ddof = 1) over folds.",
        ),
    )


def _cost(results: pa.Table, summary: Summary) -> RenderedTable:
    """Mean time of a configuration of each method."""
    seconds = costs(results)
    rows = [
        (
            Cell(shown(method)),
            *(
                Cell(f"{seconds[d, method]:,.2f}" if (d, method) in seconds else EMPTY)
                for d in summary.datasets
            ),
        )
        for method in summary.methods
    ]
    return RenderedTable(
        "cost",
        "Seconds of a configuration in a fold",
        ("Method", *map(shown, summary.datasets)),
        (RowGroup(tuple(rows)),),
        (
            "Seconds to compute the scores (embedding and readout), mean over "
            "configurations, folds and label shares. The paper's times are from "
            "another machine and not comparable.",
        ),
    )
