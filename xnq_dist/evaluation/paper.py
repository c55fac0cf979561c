"""The paper's tables filled with our figures, the published ones beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from xnq_dist.evaluation import paper_figures as published
from xnq_dist.evaluation.accounts import (
    DIGITS,
    cost_table,
    differences_table,
    percent,
    printed_text,
    selection_table,
    shares_table,
    signed,
)
from xnq_dist.evaluation.names import base, ordered_methods, shown, span, tally
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
    quantifiers_of,
    spread,
)

__all__ = ["KINDS", "paper_tables"]

KINDS = ("binary", "multi-class")
METRIC_TEXT = {
    "ae": "absolute error (AE)",
    "rae": "relative absolute error (RAE)",
}
FOLDS_NOTE = (
    "Mean ± sample standard deviation (ddof = 1) over folds; best in bold, second best "
    "underlined."
)
PAPER_NOTE = (
    "In brackets: the paper's figures, mean ± standard deviation over five folds; it "
    "does not say with which ddof."
)
BASELINE_NOTE = (
    "Best baseline: of every method measured but ours, LR and trained networks of the "
    "ablation included; the published figure is against the paper's own choice."
)
GRAPH_NOTE = (
    "LBQ answers for the graph as a whole, not for nodes, and takes no part in the "
    "ranking."
)


def paper_tables(
    results: pa.Table, configurations: pa.Table, summary: Summary
) -> Iterator[RenderedTable]:
    """Every table that the results allow, the comparison by baycomp aside.

    Parameters
    ----------
    results, configurations
        Schemas of these names; several data sets may be concatenated.
    summary
        Of these results.
    """
    ablation = quantifiers_of(results, summary.reference)
    for kind in KINDS:
        if not summary.of_kind(kind):
            continue
        for metric in ("ae", "rae"):
            yield _errors(summary, kind, metric)
        if (table := _ablation(summary, ablation, kind)) is not None:
            yield table
    yield selection_table(summary)
    if any(len(summary.shares(name)) > 1 for name in summary.datasets):
        yield shares_table(summary)
    yield cost_table(results, configurations, summary)
    yield differences_table(summary, ablation)


def _errors(summary: Summary, kind: str, metric: str) -> RenderedTable:
    """Methods against data sets, with the improvement over the best baseline."""
    datasets = summary.of_kind(kind)
    printed = published.ERRORS[metric]
    there = [m for m in summary.methods if any(summary.of(d, m) for d in datasets)]
    known = [m for m in printed if {*printed[m]} & {*datasets}]
    # The paper's own rows stay even where they were not measured here.
    measured = {base(m) for m in there}
    rows = ordered_methods([*there, *(m for m in known if m not in measured)])
    methods = [m for m in rows if base(m) not in published.EMBEDDERS]
    ours = [m for m in methods if base(m) in ("xnq", "xnq+")]
    whole = [m for m in methods if base(m) in GRAPH_LEVEL]
    baselines = [m for m in methods if m not in (*ours, *whole)]
    figures = {
        (m, d): summary.figure(d, m, metric)
        for m in (*baselines, *whole, *ours)
        for d in datasets
    }
    marks = _marks(
        {key: f for key, f in figures.items() if key[0] not in whole}, metric
    )

    def row(method: str) -> tuple[Cell, ...]:
        cells = (
            Cell(
                spread(figures[method, d], DIGITS[metric]),
                printed_text(printed.get(base(method), {}).get(d)),
                marks.get((method, d), ""),
            )
            for d in datasets
        )
        chosen = [c for d in datasets for c in summary.of(d, method)]
        name = shown(method) + (" (graph level)" if method in whole else "")
        return (Cell(name), *cells, *_choice_cells(chosen))

    groups = [
        RowGroup(tuple(row(m) for m in part)) for part in (baselines, whole, ours)
    ]
    # LR and trained networks are listed in the ablation, but are baselines too.
    embedders = [m for m in summary.methods if base(m) in published.EMBEDDERS]
    every = [*baselines, *embedders]
    changes = [
        _change(summary, m, every, "best baseline", datasets, metric)
        for m in ours
        if any(figures[m, d] for d in datasets)
    ]
    reference = summary.reference
    changes += [
        _change(summary, m, [reference], shown(reference), datasets, metric)
        for m in ours
        if m != reference and any(figures[m, d] for d in datasets)
    ]
    groups.append(RowGroup(tuple(changes)))
    return RenderedTable(
        f"{metric}-{kind}",
        f"Test {METRIC_TEXT[metric]} on {kind} data sets",
        ("Method", *map(shown, datasets), "Quantifier (folds)", "Compared"),
        tuple(group for group in groups if group.rows),
        (
            FOLDS_NOTE,
            PAPER_NOTE,
            *_caveats(summary, datasets),
            "Compared: configurations (draws, calibrations and quantifiers) among "
            "which validation chose in each fold.",
            *((BASELINE_NOTE,) if embedders else ()),
            *((GRAPH_NOTE,) if whole else ()),
        ),
        "l" + "r" * len(datasets) + "lr",
    )


def _change(
    summary: Summary,
    method: str,
    others: Sequence[str],
    called: str,
    datasets: Sequence[str],
    metric: str,
) -> tuple[Cell, ...]:
    """Per cent by which a method changes the lowest error of others."""
    cells = []
    for dataset in datasets:
        found = [summary.figure(dataset, m, metric) for m in others]
        lowest = min((f.mean for f in found if f is not None), default=0.0)
        own = summary.figure(dataset, method, metric)
        change = (
            EMPTY
            if own is None or lowest == 0
            else signed(100 * (own.mean / lowest - 1), 1) + " %"
        )
        printed = published.IMPROVEMENT[metric].get(dataset)
        against_baselines = base(method) == "xnq" and summary.reference not in others
        beside = signed(printed, 1) + " %" if printed and against_baselines else ""
        cells.append(Cell(change, beside))
    name = f"Change, {shown(method)} against {called}"
    return (Cell(name), *cells, Cell(""), Cell(""))


def _ablation(
    summary: Summary, ablation: Mapping[str, Summary], kind: str
) -> RenderedTable | None:
    """Other embedders, and other quantifiers on XNQ's embeddings; AE."""
    datasets = summary.of_kind(kind)
    xnq = summary.reference
    embedders = [
        m
        for m in summary.methods
        if base(m) in published.EMBEDDERS and any(summary.of(d, m) for d in datasets)
    ]
    quantifiers = [
        q
        for q, its in ablation.items()
        if q != "sld" and any(its.of(d, xnq) for d in datasets)
    ]
    if not embedders and not quantifiers:
        return None
    if kind == "binary":
        # Rows of the paper stay, so that what was not measured can be seen.
        missing = {*published.EMBEDDERS} - {base(m) for m in embedders}
        embedders = list(ordered_methods([*embedders, *missing]))
        paper = [q for q in published.QUANTIFIERS if q != "sld"]
        quantifiers = [*paper, *(q for q in quantifiers if q not in paper)]
    figures: dict[tuple[str, str], FoldMean | None] = {}
    for d in datasets:
        figures.update({(m, d): summary.figure(d, m, "ae") for m in embedders})
        for q in quantifiers:
            its = ablation.get(q)
            figures[q, d] = its.figure(d, xnq, "ae") if its is not None else None
        figures[xnq, d] = summary.figure(d, xnq, "ae")
    marks = _marks(figures, "ae")
    printed = {**published.QUANTIFIERS, **published.ERRORS["ae"]}

    def group(title: str, names: Iterable[str], of: Callable[[str], str]) -> RowGroup:
        rows = tuple(
            (
                Cell(shown(name)),
                *(
                    Cell(
                        spread(figures[name, d], DIGITS["ae"]),
                        printed_text(printed.get(base(name), {}).get(d)),
                        marks.get((name, d), ""),
                    )
                    for d in datasets
                ),
                Cell(of(name)),
            )
            for name in names
        )
        return RowGroup(rows, title)

    def chosen(method: str) -> str:
        found = [c.quantifier for d in datasets for c in summary.of(d, method)]
        return tally(found) if found else EMPTY

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


def _marks(
    figures: Mapping[tuple[str, str], FoldMean | None], metric: str
) -> dict[tuple[str, str], Mark]:
    """Best and second best of each column, at the printed precision."""
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
    """Sentences on folds, label shares and quantifiers that are not as usual."""
    by_folds: dict[tuple[int, ...], list[str]] = {}
    outside: set[str] = set()
    for d in datasets:
        share = (summary.shares(d) or (1.0,))[-1]
        if share < 1:
            yield f"{shown(d)}: {percent(share)} of the labels."
        for m in summary.methods:
            chosen = summary.of(d, m)
            if chosen:
                folds = tuple(c.fold for c in chosen)
                by_folds.setdefault(folds, []).append(f"{shown(m)} on {shown(d)}")
            allowed = ALLOWED.get(base(m))
            if allowed and any(c.quantifier not in allowed for c in chosen):
                outside.add(shown(m))
    most = max(by_folds, key=lambda folds: len(by_folds[folds]), default=())
    if most:
        yield f"Folds: {', '.join(map(str, most))}."
    for folds, where in by_folds.items():
        if folds != most:
            yield f"Only folds {', '.join(map(str, folds))}: {', '.join(where)}."
    if outside:
        yield (
            f"{', '.join(sorted(outside))}: none of the paper's quantifiers for it was "
            "evaluated; the best of the others stands in."
        )
