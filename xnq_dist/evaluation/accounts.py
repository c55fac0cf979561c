"""Tables on how the figures came about: choices, cost, few labels, differences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.evaluation import paper_figures as published
from xnq_dist.evaluation.names import base, shown, span
from xnq_dist.evaluation.paper_figures import PublishedFigures
from xnq_dist.evaluation.rendered_table import EMPTY, Cell, RenderedTable, RowGroup
from xnq_dist.evaluation.summary import FoldMean, Summary, costs, spread

__all__ = [
    "DIGITS",
    "cost_table",
    "differences_table",
    "percent",
    "printed_text",
    "selection_table",
    "shares_table",
    "signed",
]

DIGITS = {"ae": 4, "rae": 3}
"""Decimals of our figures."""
FAR = 2.0
"""Published standard deviations by which a figure may differ unremarked."""


def selection_table(summary: Summary) -> RenderedTable:
    """What validation chose in every fold."""
    groups = []
    for dataset in summary.datasets:
        rows = []
        for method in summary.methods:
            chosen = summary.of(dataset, method)
            if not chosen:
                continue
            rows.append(
                (
                    Cell(shown(method)),
                    Cell(span(c.compared for c in chosen)),
                    Cell(", ".join(chosen[0].quantifiers)),
                    Cell(", ".join(str(c.fold) for c in chosen)),
                    Cell(_by_fold([c.quantifier for c in chosen])),
                    Cell(_by_fold([c.calibration for c in chosen])),
                    Cell(_by_fold([str(c.draw) for c in chosen])),
                )
            )
        groups.append(RowGroup(tuple(rows), shown(dataset)))
    return RenderedTable(
        "selection",
        "What validation chose",
        (
            *("Method", "Compared", "Quantifiers compared", "Folds"),
            *("Quantifier", "Calibration", "Draw"),
        ),
        tuple(groups),
        (
            "Compared: configurations (draws, calibrations and quantifiers) in each "
            "fold. Chosen by the lowest validation AE alone; test nodes were opened "
            "for the draw and calibration chosen for each quantifier. Quantifier, "
            "calibration and draw: by fold, once where all folds chose the same.",
        ),
        "lrlllll",
    )


def _by_fold(chosen: Sequence[str]) -> str:
    return ", ".join(chosen) if len(set(chosen)) > 1 else chosen[0]


def shares_table(summary: Summary) -> RenderedTable:
    """AE against the share of labels kept."""
    datasets = [d for d in summary.datasets if len(summary.shares(d)) > 1]
    groups = []
    for method in summary.methods:
        shares = sorted({s for d in datasets for s in summary.shares(d, method)})
        rows = tuple(
            (
                Cell(percent(share)),
                *(
                    Cell(spread(summary.figure(d, method, "ae", share), DIGITS["ae"]))
                    for d in datasets
                ),
            )
            for share in reversed(shares)
        )
        if rows:
            groups.append(RowGroup(rows, shown(method)))
    return RenderedTable(
        "label-shares",
        "Test absolute error (AE) with fewer labels",
        ("Labels kept", *map(shown, datasets)),
        tuple(groups),
        (
            "Share of each fold's training and calibration labels. Mean ± sample "
            "standard deviation (ddof = 1) over folds.",
        ),
    )


def cost_table(
    results: pa.Table, configurations: pa.Table, summary: Summary
) -> RenderedTable:
    """Time of the most expensive configuration."""
    found = costs(results)
    parameters = _parameters(
        configurations, {(d, m, cost.draw) for (d, m), cost in found.items()}
    )
    groups = []
    for dataset in summary.datasets:
        rows = []
        reference = found.get((dataset, summary.reference))
        for method in summary.methods:
            cost = found.get((dataset, method))
            if cost is None:
                continue
            ratio = EMPTY
            if reference is not None and reference.seconds > 0:
                times = cost.seconds / reference.seconds
                ratio = f"{times:.3g}" if times < 100 else f"{times:,.0f}"
            memory = cost.peak_memory
            rows.append(
                (
                    Cell(shown(method)),
                    Cell(f"{cost.seconds:,.2f}"),
                    Cell(ratio),
                    Cell(EMPTY if memory is None else f"{memory / 2**30:,.2f}"),
                    Cell(str(cost.folds)),
                    Cell(parameters.get((dataset, method, cost.draw), EMPTY)),
                )
            )
        if rows:
            groups.append(RowGroup(tuple(rows), shown(dataset)))
    return RenderedTable(
        "cost",
        "Time and memory of each method's most expensive configuration",
        (
            *(
                "Method",
                "Seconds",
                f"Times {shown(summary.reference)}",
                "Peak memory, GiB",
            ),
            *("Folds", "Configuration"),
        ),
        tuple(groups),
        (
            "Seconds to make the scores (embedding and readout), mean over folds of "
            "the configuration where it is highest; peak memory of the worker, largest "
            "over folds. The paper measured on another machine: its times are not "
            "comparable.",
            *(() if groups else ("No times were measured.",)),
        ),
        "lrrrrl",
    )


def differences_table(
    summary: Summary, ablation: Mapping[str, Summary]
) -> RenderedTable:
    """Figures further than two published deviations from the paper's."""
    compared = 0
    rows = []
    for dataset in summary.datasets:
        pairs: list[tuple[str, str, FoldMean | None, PublishedFigures | None]] = []
        for metric in ("ae", "rae"):
            for method in summary.methods:
                printed = published.ERRORS[metric].get(base(method), {}).get(dataset)
                ours = summary.figure(dataset, method, metric)
                pairs.append((shown(method), metric, ours, printed))
        for name, its in ablation.items():
            if name != "sld":
                printed = published.QUANTIFIERS.get(name, {}).get(dataset)
                ours = its.figure(dataset, summary.reference, "ae")
                pairs.append(
                    (
                        f"{shown(summary.reference)} with {shown(name)}",
                        "ae",
                        ours,
                        printed,
                    )
                )
        for name, metric, ours, printed in pairs:
            if ours is None or printed is None:
                continue
            compared += 1
            far = (ours.mean - printed.mean) / printed.spread
            if abs(far) > FAR:
                rows.append(
                    (
                        Cell(shown(dataset)),
                        Cell(name),
                        Cell(shown(metric)),
                        Cell(spread(ours, DIGITS[metric])),
                        Cell(printed_text(printed)),
                        Cell(signed(far, 1)),
                    )
                )
    return RenderedTable(
        "differences",
        "Figures that differ by more than two published standard deviations",
        (
            *("Data set", "Method", "Metric", "Ours", "PublishedFigures"),
            "Difference in published sd",
        ),
        (RowGroup(tuple(rows)),) if rows else (),
        (
            f"{len(rows)} of {compared} figures that have a published counterpart; "
            "below zero ours is the smaller error. A deviation printed as .000 counts "
            "as .0005.",
        ),
        "lllrrr",
    )


def _parameters(
    configurations: pa.Table, wanted: set[tuple[str, str, int]]
) -> dict[tuple[str, str, int], str]:
    """Hyperparameters of the wanted draws as one line each."""
    if not wanted:
        return {}
    draws = pa.array(sorted({draw for _, _, draw in wanted}), pa.int32())
    few = configurations.filter(pc.is_in(configurations["draw"], draws))
    lines: dict[tuple[str, str, int], list[str]] = {}
    for row in few.to_pylist():
        key = (row["dataset"], row["method"], row["draw"])
        # A method without hyperparameters has one row that says so.
        if key in wanted and row["value"] != "null":
            value = json.loads(row["value"])
            said = f"{value:.4g}" if isinstance(value, float) else str(value)
            lines.setdefault(key, []).append(f"{row['parameter']} {said}")
    return {key: ", ".join(parts) for key, parts in lines.items()}


def printed_text(figure: PublishedFigures | None) -> str:
    """As the paper prints it; empty for none."""
    return f"{figure.mean:.3f} ± {figure.sd:.3f}" if figure is not None else ""


def signed(value: float, digits: int) -> str:
    """A number with its sign; the minus is a minus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def percent(share: float) -> str:
    """A share in per cent."""
    return f"{100 * share:.3g} %"
