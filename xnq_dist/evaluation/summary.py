"""What the tidy results say: the choice of each method and fold, means, cost.

A method may choose its quantifier by validation, as its draw and calibration. The
choice is made here, from validation rows alone; test rows are looked up afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.errors import StageError
from xnq_dist.core.pictures import plain
from xnq_dist.core.quantifiers import records
from xnq_dist.evaluation import paper_figures as published
from xnq_dist.evaluation.names import (
    DATASET_ORDER,
    base,
    ordered,
    ordered_methods,
    span,
    tally,
)

__all__ = [
    "ALLOWED",
    "Cost",
    "FoldChoice",
    "FoldMean",
    "Summary",
    "choose",
    "costs",
    "quantifiers_of",
    "spread",
    "summarise",
    "text",
]

SOFT = ("sld", "cc", "acc", "pcc", "pacc", "hdy", "dys")
CRISP = ("cc", "acc")
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "xnq": ("sld",),
    "xnq+": ("sld",),
    **dict.fromkeys(("wvrn", *published.EMBEDDERS), SOFT),
    **dict.fromkeys(("cdq", "enq"), CRISP),
}
"""Quantifiers that a method and its variants choose from in the paper; others choose
from all."""

GRAPH_LEVEL = ("lbq",)
"""Methods that use the whole graph at once and take no part in best or second."""


@dataclass(frozen=True)
class FoldChoice:
    """What validation chose for one method in one fold."""

    dataset: str
    method: str
    label_share: float
    fold: int
    quantifier: str
    calibration: str
    draw: int
    compared: int
    """Configurations (draws x calibrations x quantifiers) with a validation AE."""
    quantifiers: tuple[str, ...]
    """Quantifiers among them."""
    validation: float | None
    """Validation AE; None where there was nothing to choose from."""
    errors: Mapping[str, float]
    """Test error by metric."""


@dataclass(frozen=True)
class FoldMean:
    """A mean over folds."""

    mean: float
    sd: float | None
    """Sample standard deviation (ddof = 1); None for a single fold."""
    folds: tuple[int, ...]


@dataclass(frozen=True)
class Cost:
    """The most expensive configuration of a method: highest mean over folds."""

    seconds: float
    draw: int
    folds: int
    peak_memory: int | None
    """Bytes, the largest over folds; None where it was not measured."""


@dataclass(frozen=True, eq=False)
class Summary:
    """All choices, in order of data set, method, label share and fold."""

    choices: tuple[FoldChoice, ...]
    kinds: Mapping[str, str]
    """``binary`` or ``multi-class`` by data set."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """Data sets with results, the paper's first and in its order."""
        return tuple(self.kinds)

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """Data sets of this kind."""
        return tuple(name for name, its in self.kinds.items() if its == kind)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Methods with results, in the order of the paper's tables."""
        return ordered_methods(c.method for c in self.choices)

    @cached_property
    def reference(self) -> str:
        """What is compared with all others: XNQ, or its first variant."""
        found = [m for m in self.methods if base(m) == "xnq"]
        return found[0] if found else "xnq"

    @cached_property
    def _groups(self) -> dict[tuple[str, str, float], tuple[FoldChoice, ...]]:
        found: dict[tuple[str, str, float], list[FoldChoice]] = defaultdict(list)
        for choice in self.choices:
            found[choice.dataset, choice.method, choice.label_share].append(choice)
        return {key: tuple(value) for key, value in found.items()}

    def shares(self, dataset: str, method: str | None = None) -> tuple[float, ...]:
        """Label shares that were evaluated, ascending."""
        return tuple(
            sorted(
                {
                    share
                    for data, name, share in self._groups
                    if data == dataset and method in (None, name)
                }
            )
        )

    def of(
        self, dataset: str, method: str, share: float | None = None
    ) -> tuple[FoldChoice, ...]:
        """Choices by fold; without a share those of the data set's largest."""
        if share is None:
            shares = self.shares(dataset)
            share = shares[-1] if shares else 1.0
        return self._groups.get((dataset, method, share), ())

    def figure(
        self, dataset: str, method: str, metric: str, share: float | None = None
    ) -> FoldMean | None:
        """Mean test error over folds; None where nothing was measured."""
        found = self.of(dataset, method, share)
        measured = [c for c in found if metric in c.errors]
        if not measured:
            return None
        values = np.array([c.errors[metric] for c in measured])
        sd = float(values.std(ddof=1)) if len(values) > 1 else None
        return FoldMean(float(values.mean()), sd, tuple(c.fold for c in measured))

    def means(
        self, method: str, metric: str, datasets: Sequence[str]
    ) -> dict[str, float]:
        """Mean test error by data set, for those measured."""
        found = ((name, self.figure(name, method, metric)) for name in datasets)
        return {name: figure.mean for name, figure in found if figure is not None}


def summarise(results: pa.Table, estimates: pa.Table | None = None) -> Summary:
    """Choices and means of a ``results`` table.

    Parameters
    ----------
    results
        Schema ``results``; several data sets may be concatenated.
    estimates
        Schema ``estimates``: tells how many classes a data set has that the paper
        does not know. One that is not there counts as binary.

    Raises
    ------
    StageError
        See `choose`.
    """
    choices = choose(results)
    multi: set[str] = set(published.MULTICLASS)
    if estimates is not None and estimates.num_rows:
        pairs = estimates.group_by(["dataset", "class"]).aggregate([])
        counts = pairs.group_by("dataset").aggregate([("class", "count")])
        for row in counts.to_pylist():
            if row["class_count"] > 2:
                multi.add(row["dataset"])
            else:
                multi.discard(row["dataset"])
    datasets = ordered((c.dataset for c in choices), DATASET_ORDER)
    kinds = {name: "multi-class" if name in multi else "binary" for name in datasets}
    return Summary(choices, kinds)


def choose(results: pa.Table) -> tuple[FoldChoice, ...]:
    """The quantifier that validation chooses, per method, fold and label share.

    Among the quantifiers that the paper allows the method (`ALLOWED`; all that are
    there where it allows none of them) the lowest validation AE wins; on a tie the
    first in the order of `ALLOWED`.

    Parameters
    ----------
    results
        Schema ``results``. Within a quantifier, rows marked ``selected`` are the draw
        and calibration that validation chose.

    Raises
    ------
    StageError
        When a selected figure is there twice, or there are several quantifiers but
        no validation AE to choose by.
    """
    counts = _compared(results)
    grouped: dict[tuple[Any, ...], dict[str, dict[tuple[str, str], Any]]] = {}
    picked = results.filter(results["selected"]).select(
        [
            *("dataset", "method", "label_share", "fold", "quantifier"),
            *("split", "metric", "value", "calibration", "draw"),
        ]
    )
    for row in picked.to_pylist():
        key = (row["dataset"], row["method"], row["label_share"], row["fold"])
        cells = grouped.setdefault(key, {}).setdefault(row["quantifier"], {})
        figure = (row["split"], row["metric"])
        if figure in cells:
            raise StageError(
                f"results: {row['split']} {row['metric']} of {row['method']} with "
                f"{row['quantifier']} on {row['dataset']!r}, fold {row['fold']}, is "
                "there twice: concatenate results of different data sets only"
            )
        cells[figure] = row
    chosen = [_pick(key, cells, counts) for key, cells in grouped.items()]
    methods = ordered_methods(c.method for c in chosen)
    datasets = ordered((c.dataset for c in chosen), DATASET_ORDER)
    chosen.sort(
        key=lambda c: (
            datasets.index(c.dataset),
            methods.index(c.method),
            c.label_share,
            c.fold,
        )
    )
    return tuple(chosen)


def _pick(
    key: tuple[Any, ...],
    cells: Mapping[str, Mapping[tuple[str, str], Any]],
    counts: Mapping[tuple[Any, ...], int],
) -> FoldChoice:
    dataset, method, share, fold = key
    allowed = [q for q in ALLOWED.get(base(method), ()) if q in cells]
    candidates = allowed or ordered(cells, tuple(records()))
    scored = [
        (cells[name]["validation", "ae"]["value"], place, name)
        for place, name in enumerate(candidates)
        if ("validation", "ae") in cells[name]
    ]
    if not scored and len(candidates) > 1:
        raise StageError(
            f"results: {method} on {dataset!r}, fold {fold}, has the quantifiers "
            f"{', '.join(candidates)} but no validation AE to choose by: evaluate it "
            "with validation nodes"
        )
    best = min(scored)[2] if scored else candidates[0]
    rows = cells[best]
    first = next(iter(rows.values()))
    return FoldChoice(
        dataset=dataset,
        method=method,
        label_share=share,
        fold=fold,
        quantifier=best,
        calibration=first["calibration"],
        draw=first["draw"],
        compared=max(1, sum(counts.get((*key, name), 0) for name in candidates)),
        quantifiers=tuple(candidates),
        validation=min(scored)[0] if scored else None,
        errors={
            metric: row["value"]
            for (split, metric), row in sorted(rows.items())
            if split == "test"
        },
    )


def _compared(results: pa.Table) -> dict[tuple[Any, ...], int]:
    """Rows of validation AE by data set, method, label share, fold and quantifier."""
    validation = results.filter(
        pc.and_(
            pc.equal(results["split"], "validation"), pc.equal(results["metric"], "ae")
        )
    )
    keys = ["dataset", "method", "label_share", "fold", "quantifier"]
    counted = validation.group_by(keys).aggregate([("value", "count")])
    return {
        tuple(row[key] for key in keys): row["value_count"]
        for row in counted.to_pylist()
    }


def quantifiers_of(results: pa.Table, method: str) -> dict[str, Summary]:
    """One method with each of its quantifiers, for the ablation."""
    own = results.filter(pc.equal(results["method"], method))
    names = ordered(own["quantifier"].unique().to_pylist(), tuple(records()))
    return {
        name: summarise(own.filter(pc.equal(own["quantifier"], name))) for name in names
    }


def costs(results: pa.Table) -> dict[tuple[str, str], Cost]:
    """The most expensive configuration by data set and method.

    Time is that of the scores (embedding and readout), a mean over folds; quantifiers
    and calibrations share it. Only the largest label share of a data set counts.
    """
    narrow = results.select(
        [
            *("dataset", "method", "draw", "fold"),
            *("label_share", "seconds", "peak_memory"),
        ]
    )
    largest = narrow.group_by("dataset").aggregate([("label_share", "max")])
    joined = narrow.join(largest, "dataset", join_type="inner")
    timed = joined.filter(
        pc.and_(
            pc.is_valid(joined["seconds"]),
            pc.equal(joined["label_share"], joined["label_share_max"]),
        )
    )
    folds = timed.group_by(["dataset", "method", "draw", "fold"]).aggregate(
        [("seconds", "max"), ("peak_memory", "max")]
    )
    draws = folds.group_by(["dataset", "method", "draw"]).aggregate(
        [("seconds_max", "mean"), ("seconds_max", "count"), ("peak_memory_max", "max")]
    )
    found: dict[tuple[str, str], Cost] = {}
    for row in sorted(
        draws.to_pylist(), key=lambda row: (-row["seconds_max_mean"], row["draw"])
    ):
        cost = Cost(
            row["seconds_max_mean"],
            row["draw"],
            row["seconds_max_count"],
            row["peak_memory_max_max"],
        )
        found.setdefault((row["dataset"], row["method"]), cost)
    return found


def text(results: pa.Table) -> str:
    """A few words for a terminal: one line per data set and method."""
    summary, cost = summarise(results), costs(results)
    lines = [
        (
            *("dataset", "method", "AE", "RAE", "quantifier"),
            *("seconds", "folds", "compared"),
        )
    ]
    for dataset in summary.datasets:
        for method in summary.methods:
            chosen = summary.of(dataset, method)
            if not chosen:
                continue
            spent = cost.get((dataset, method))
            lines.append(
                (
                    plain(dataset),
                    plain(method),
                    spread(summary.figure(dataset, method, "ae"), 4),
                    spread(summary.figure(dataset, method, "rae"), 3),
                    tally(c.quantifier for c in chosen),
                    f"{spent.seconds:.1f}" if spent else "-",
                    str(len(chosen)),
                    span(c.compared for c in chosen),
                )
            )
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if k in (5, 6, 7) else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def spread(figure: FoldMean | None, digits: int) -> str:
    """``mean ± sd``, the mean alone for one fold, ``-`` for none."""
    if figure is None:
        return "-"
    mean = f"{figure.mean:.{digits}f}"
    return mean if figure.sd is None else f"{mean} ± {figure.sd:.{digits}f}"
