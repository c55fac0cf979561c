"""Summary of the results: choices by method and fold, mean errors, cost.

A method's quantifier is chosen by validation, as are its draw and calibration. This
module makes the choice from validation rows only and looks up the test rows afterwards.
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
from xnq_dist.core.quantifiers import records
from xnq_dist.evaluation import paper_figures as published
from xnq_dist.evaluation.names import (
    DATASET_ORDER,
    base,
    ordered,
    ordered_methods,
)

__all__ = [
    "GRAPH_LEVEL",
    "REFERENCE",
    "FoldChoice",
    "FoldMean",
    "Summary",
    "choose",
    "costs",
    "quantifiers_of",
    "summarise",
]

SOFT = ("sld", "cc", "acc", "pcc", "pacc", "hdy", "dys")
CRISP = ("cc", "acc")
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "xnq": ("sld",),
    "xnq+": ("sld",),
    **dict.fromkeys(("wvrn", *published.EMBEDDERS), SOFT),
    **dict.fromkeys(("cdq", "enq"), CRISP),
}
"""Quantifiers that a method and its variants may choose in the paper; other methods may
choose any."""

Figures = dict[tuple[str, str], float]
"""Errors by split and metric."""

REFERENCE = "xnq"
"""The method that others are compared with."""
GRAPH_LEVEL = ("lbq",)
"""Methods that give one estimate per graph and are not ranked."""


@dataclass(frozen=True)
class FoldChoice:
    """Result of the choice by validation for one method in one fold."""

    dataset: str
    method: str
    label_share: float
    fold: int
    quantifier: str
    compared: int
    """Number of configurations (draw, calibration, quantifier) with a validation AE."""
    errors: Mapping[str, float]
    """Test error by metric."""


@dataclass(frozen=True)
class FoldMean:
    """A mean over folds."""

    mean: float
    sd: float | None
    """Sample standard deviation (ddof = 1); None for a single fold."""


@dataclass(frozen=True, eq=False)
class Summary:
    """All choices, in order of data set, method, label share and fold."""

    choices: tuple[FoldChoice, ...]
    kinds: Mapping[str, str]
    """``binary`` or ``multi-class`` by data set."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """Data sets with results: those of the paper first, in its order."""
        return tuple(self.kinds)

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """Data sets of this kind."""
        return tuple(name for name, value in self.kinds.items() if value == kind)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Methods with results, in the order of the paper's tables."""
        return ordered_methods(c.method for c in self.choices)

    @cached_property
    def _groups(self) -> dict[tuple[str, str, float], tuple[FoldChoice, ...]]:
        groups: dict[tuple[str, str, float], list[FoldChoice]] = defaultdict(list)
        for choice in self.choices:
            groups[choice.dataset, choice.method, choice.label_share].append(choice)
        return {key: tuple(value) for key, value in groups.items()}

    def shares(self, dataset: str, method: str | None = None) -> tuple[float, ...]:
        """Label shares that were evaluated, ascending."""
        shares = {
            share
            for data, name, share in self._groups
            if data == dataset and method in (None, name)
        }
        return tuple(sorted(shares))

    def of(
        self, dataset: str, method: str, share: float | None = None
    ) -> tuple[FoldChoice, ...]:
        """Choices by fold; by default for the data set's largest label share."""
        if share is None:
            shares = self.shares(dataset)
            share = shares[-1] if shares else 1.0
        return self._groups.get((dataset, method, share), ())

    def figure(
        self, dataset: str, method: str, metric: str, share: float | None = None
    ) -> FoldMean | None:
        """Mean test error over folds; None if there are no results."""
        choices = self.of(dataset, method, share)
        values = np.array([c.errors[metric] for c in choices if metric in c.errors])
        if not len(values):
            return None
        sd = float(values.std(ddof=1)) if len(values) > 1 else None
        return FoldMean(float(values.mean()), sd)

    def means(
        self, method: str, metric: str, datasets: Sequence[str]
    ) -> dict[str, float]:
        """Mean test error by data set, for data sets with results."""
        figures = ((name, self.figure(name, method, metric)) for name in datasets)
        return {name: figure.mean for name, figure in figures if figure is not None}


def summarise(results: pa.Table, estimates: pa.Table | None = None) -> Summary:
    """Summarise a ``results`` table of one or several data sets.

    The table ``estimates`` gives the number of classes of data sets that are not in the
    paper; without it they count as binary.

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
            (multi.add if row["class_count"] > 2 else multi.discard)(row["dataset"])
    datasets = ordered((c.dataset for c in choices), DATASET_ORDER)
    kinds = {name: "multi-class" if name in multi else "binary" for name in datasets}
    return Summary(choices, kinds)


CELL = ["dataset", "method", "label_share", "fold"]


def choose(results: pa.Table) -> tuple[FoldChoice, ...]:
    """Choose the quantifier by validation, per method, fold and label share.

    The quantifier with the lowest validation AE is chosen from those that the paper
    allows the method (`ALLOWED`), or from all if none of these was evaluated. Ties go
    to the first in the order of `ALLOWED`. Within a quantifier, rows marked
    ``selected`` have the draw and calibration that validation chose.

    Raises
    ------
    StageError
        When a selected row occurs twice, or there are several quantifiers but no
        validation AE to choose by.
    """
    validation = results.filter(
        (pc.field("split") == "validation") & (pc.field("metric") == "ae")
    )
    counted = validation.group_by([*CELL, "quantifier"]).aggregate([("value", "count")])
    counts: dict[tuple[Any, ...], dict[str, int]] = defaultdict(dict)
    for row in counted.to_pylist():
        counts[tuple(row[k] for k in CELL)][row["quantifier"]] = row["value_count"]
    grouped: dict[tuple[Any, ...], dict[str, Figures]] = {}
    for row in results.filter(results["selected"]).to_pylist():
        quantifiers = grouped.setdefault(tuple(row[name] for name in CELL), {})
        figures = quantifiers.setdefault(row["quantifier"], {})
        figure = (row["split"], row["metric"])
        if figure in figures:
            raise StageError(
                f"results: {row['split']} {row['metric']} of {row['method']} with "
                f"{row['quantifier']} on {row['dataset']!r}, fold {row['fold']}, "
                "occurs twice: concatenate results of different data sets only"
            )
        figures[figure] = row["value"]
    chosen = [_pick(key, cells, counts[key]) for key, cells in grouped.items()]
    methods = ordered_methods(c.method for c in chosen)
    datasets = ordered((c.dataset for c in chosen), DATASET_ORDER)
    places = {name: k for k, name in enumerate((*datasets, *methods))}
    chosen.sort(
        key=lambda c: (places[c.dataset], places[c.method], c.label_share, c.fold)
    )
    return tuple(chosen)


def _pick(
    key: tuple[Any, ...], cells: Mapping[str, Figures], counts: Mapping[str, int]
) -> FoldChoice:
    dataset, method, share, fold = key
    allowed = [q for q in ALLOWED.get(base(method), ()) if q in cells]
    candidates = allowed or list(ordered(cells, tuple(records())))
    scored = [
        (cells[name]["validation", "ae"], place, name)
        for place, name in enumerate(candidates)
        if ("validation", "ae") in cells[name]
    ]
    if not scored and len(candidates) > 1:
        raise StageError(
            f"results: {method} on {dataset!r}, fold {fold}, has the quantifiers "
            f"{', '.join(candidates)} but no validation AE to choose by: evaluate it "
            "on folds with validation nodes"
        )
    best = min(scored)[2] if scored else candidates[0]
    compared = max(1, sum(counts.get(name, 0) for name in candidates))
    test = {
        metric: value
        for (split, metric), value in sorted(cells[best].items())
        if split == "test"
    }
    return FoldChoice(dataset, method, share, fold, best, compared, test)


def quantifiers_of(results: pa.Table, method: str) -> dict[str, Summary]:
    """Summaries of one method with each of its quantifiers, for the ablation."""
    rows = results.filter(pc.equal(results["method"], method))
    names = ordered(rows["quantifier"].unique().to_pylist(), tuple(records()))
    return {
        name: summarise(rows.filter(pc.equal(rows["quantifier"], name)))
        for name in names
    }


def costs(results: pa.Table) -> dict[tuple[str, str], float]:
    """Mean seconds of a configuration in a fold, by data set and method.

    Time is that of the scores (embedding and readout), which quantifiers and
    calibrations share.
    """
    timed = results.filter(pc.is_valid(results["seconds"]))
    units = timed.group_by(["dataset", "method", "label_share", "draw", "fold"])
    each = units.aggregate([("seconds", "max")])
    means = each.group_by(["dataset", "method"]).aggregate([("seconds_max", "mean")])
    return {
        (row["dataset"], row["method"]): row["seconds_max_mean"]
        for row in means.to_pylist()
    }
