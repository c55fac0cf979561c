"""The paper's tables with our results, next to the published ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from xnq_dist.core.method_records import METHODS
from xnq_dist.evaluation import paper_figures as published
from xnq_dist.evaluation.bayes import NSAMPLES, comparison_table
from xnq_dist.evaluation.names import base, ordered_methods, shown, span, tally
from xnq_dist.evaluation.paper_figures import PublishedFigures
from xnq_dist.evaluation.rendered_table import (
    EMPTY,
    Cell,
    Mark,
    RenderedTable,
    RowGroup,
    table_files,
    to_text,
)
from xnq_dist.evaluation.summary import (
    GRAPH_LEVEL,
    REFERENCE,
    FoldMean,
    Summary,
    costs,
    quantifiers_of,
    summarise,
)

__all__ = ["paper_outputs", "paper_tables"]

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
COMPARED_NOTE = (
    "Compared: number of configurations (draws, calibrations and quantifiers) from "
    "which validation chose in each fold."
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


def paper_outputs(
    results: pa.Table, estimates: pa.Table, nsamples: int = NSAMPLES
) -> tuple[dict[str, bytes], str]:
    """Contents of ``tables/*.md`` by name, and text for a terminal.

    The same tables give the same bytes.

    Parameters
    ----------
    results, estimates
        Tables with schemas of these names; several data sets may be concatenated.
    nsamples
        Number of draws of each Bayesian comparison.

    Raises
    ------
    StageError
        When validation cannot choose a quantifier from the results (`summary.choose`).
    """
    summary = summarise(results, estimates)
    tables = [*paper_tables(results, summary)]
    text = "\n".join(to_text(one) for one in tables)
    files = table_files([*tables, comparison_table(results, summary, nsamples)])
    return files, text


def paper_tables(results: pa.Table, summary: Summary) -> Iterator[RenderedTable]:
    """Yield every table that the results allow, except the Bayesian comparison.

    Parameters
    ----------
    results
        Table of schema ``results``; several data sets may be concatenated.
    summary
        Summary of these results.
    """
    ablation = quantifiers_of(results, REFERENCE)
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
    evaluated = _evaluated(summary, datasets)
    # Rows of the paper are shown even if the method was not evaluated here.
    known = [m for m in printed if {*printed[m]} & {*datasets}]
    rows = ordered_methods([*evaluated, *_missing(known, evaluated)])
    methods = [m for m in rows if m not in published.EMBEDDERS]
    ours = [m for m in methods if m in METHODS.records()]
    graph_level = [m for m in methods if m in GRAPH_LEVEL]
    baselines = [m for m in methods if m not in (*ours, *graph_level)]
    figures = {(m, d): summary.figure(d, m, metric) for m in methods for d in datasets}
    ranked = {key: f for key, f in figures.items() if key[0] not in graph_level}
    marks = _marks(ranked, metric)

    def row(method: str) -> tuple[Cell, ...]:
        chosen = [c for d in datasets for c in summary.of(d, method)]
        name = shown(method) + (" (graph level)" if method in graph_level else "")
        return (
            Cell(name),
            *_cells(method, datasets, figures, printed, marks, metric),
            Cell(tally(c.quantifier for c in chosen) if chosen else EMPTY),
            Cell(span(c.compared for c in chosen) if chosen else EMPTY),
        )

    # LR and trained networks are listed in the ablation, but are baselines too.
    embedders = [m for m in evaluated if m in published.EMBEDDERS]
    reference = REFERENCE
    compared = [m for m in ours if any(figures[m, d] for d in datasets)]
    against = {"best baseline": [*baselines, *embedders], shown(reference): [reference]}
    changes = []
    for called, others in against.items():
        for method in compared:
            if others != [method]:
                cells = _change(summary, method, others, datasets, metric)
                name = f"Change, {shown(method)} against {called}"
                changes.append((Cell(name), *cells, Cell(""), Cell("")))
    groups = [
        RowGroup(tuple(row(m) for m in part)) for part in (baselines, graph_level, ours)
    ]
    return RenderedTable(
        f"{metric}-{kind}",
        f"Test {METRIC_TEXT[metric]} on {kind} data sets",
        ("Method", *map(shown, datasets), "Quantifier (folds)", "Compared"),
        tuple(g for g in (*groups, RowGroup(tuple(changes))) if g.rows),
        (
            FOLDS_NOTE,
            PAPER_NOTE,
            *_folds(summary, datasets),
            COMPARED_NOTE,
            *((BASELINE_NOTE,) if embedders else ()),
            *((GRAPH_NOTE,) if graph_level else ()),
        ),
        "l" + "r" * len(datasets) + "lr",
    )


def _evaluated(summary: Summary, datasets: Sequence[str]) -> list[str]:
    """Methods with results on one of the data sets."""
    return [m for m in summary.methods if any(summary.of(d, m) for d in datasets)]


def _missing(known: Iterable[str], evaluated: Sequence[str]) -> list[str]:
    """Methods of the paper of which no variant was evaluated."""
    measured = {base(method) for method in evaluated}
    return [method for method in known if method not in measured]


def _cells(
    name: str,
    datasets: Sequence[str],
    figures: Figures,
    printed: Mapping[str, Mapping[str, PublishedFigures]],
    marks: Mapping[tuple[str, str], Mark],
    metric: str,
) -> list[Cell]:
    """Cells of our result, the published one and the rank, by data set."""
    of_paper = printed.get(base(name), {})
    return [
        Cell(
            _spread(figures[name, d], metric),
            f"{of_paper[d].mean:.3f} ± {of_paper[d].sd:.3f}" if d in of_paper else "",
            marks.get((name, d), ""),
        )
        for d in datasets
    ]


def _spread(figure: FoldMean | None, metric: str) -> str:
    """``mean ± sd`` as text; the mean only for one fold, ``-`` for none."""
    if figure is None:
        return EMPTY
    mean = f"{figure.mean:.{DIGITS[metric]}f}"
    return mean if figure.sd is None else f"{mean} ± {figure.sd:.{DIGITS[metric]}f}"


def _change(
    summary: Summary,
    method: str,
    others: Sequence[str],
    datasets: Sequence[str],
    metric: str,
) -> Iterator[Cell]:
    """A method's error relative to the lowest error of others, in per cent."""
    for dataset in datasets:
        figures = [summary.figure(dataset, m, metric) for m in others]
        lowest = min((f.mean for f in figures if f is not None), default=0.0)
        figure = summary.figure(dataset, method, metric)
        if figure is None or lowest == 0:
            yield Cell()
        else:
            change = f"{100 * (figure.mean / lowest - 1):+.1f} %"
            yield Cell(change.replace("-", "−"))


def _ablation(
    summary: Summary, ablation: Mapping[str, Summary], kind: str
) -> RenderedTable | None:
    """AE of other embedders, and of other quantifiers on XNQ's embeddings."""
    datasets = summary.of_kind(kind)
    xnq = REFERENCE
    evaluated = _evaluated(summary, datasets)
    embedders = [m for m in evaluated if m in published.EMBEDDERS]
    quantifiers = [q for q in ablation if _evaluated(ablation[q], datasets)]
    quantifiers = [q for q in quantifiers if q != "sld"]
    if not embedders and not quantifiers:
        return None
    if kind == "binary":
        # Rows of the paper are shown even if they were not evaluated here.
        missing = _missing(published.EMBEDDERS, embedders)
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
    parts = {"Node embedder": embedders, "Quantifier": quantifiers, "Reference": [xnq]}
    groups = []
    for title, names in parts.items():
        rows = []
        for name in names:
            chosen = [c.quantifier for d in datasets for c in summary.of(d, name)]
            used = name if name in quantifiers else tally(chosen) if chosen else EMPTY
            cells = _cells(name, datasets, figures, printed, marks, "ae")
            rows.append((Cell(shown(name)), *cells, Cell(used)))
        groups += [RowGroup(tuple(rows), title)] if rows else []
    return RenderedTable(
        f"ablation-{kind}",
        f"Ablation of XNQ's components, test {METRIC_TEXT['ae']} on {kind} data sets",
        ("Component", *map(shown, datasets), "Quantifier (folds)"),
        tuple(groups),
        (FOLDS_NOTE, PAPER_NOTE, *_folds(summary, datasets)),
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


def _folds(summary: Summary, datasets: Sequence[str]) -> Iterator[str]:
    """Yield notes on unusual label shares, and on the folds of each method."""
    where: dict[tuple[int, ...], list[str]] = {}
    for d in datasets:
        share = (summary.shares(d) or (1.0,))[-1]
        if share < 1:
            yield f"{shown(d)}: {100 * share:.3g} % of the labels."
        for m in summary.methods:
            if folds := tuple(c.fold for c in summary.of(d, m)):
                where.setdefault(folds, []).append(f"{shown(m)} on {shown(d)}")
    usual, *others = sorted(where, key=lambda folds: -len(where[folds])) or [()]
    if usual:
        yield f"Folds: {', '.join(map(str, usual))}."
    for folds in others:
        yield f"Only folds {', '.join(map(str, folds))}: {', '.join(where[folds])}."


def _shares(summary: Summary) -> RenderedTable:
    """AE by the share of labels kept."""
    datasets = [d for d in summary.datasets if len(summary.shares(d)) > 1]
    groups = []
    for method in summary.methods:
        shares = sorted({s for d in datasets for s in summary.shares(d, method)})
        rows = []
        for share in reversed(shares):
            figures = [summary.figure(d, method, "ae", share) for d in datasets]
            cells = (Cell(_spread(figure, "ae")) for figure in figures)
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
            Cell(shown(m)),
            *(
                Cell(f"{seconds[d, m]:,.2f}" if (d, m) in seconds else EMPTY)
                for d in summary.datasets
            ),
        )
        for m in summary.methods
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
