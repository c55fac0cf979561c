"""The paper's published results, for comparison with ours.

``paper_figures.csv`` has test errors: means and standard deviations over five folds, as
printed; the paper does not state whether its standard deviation divides by n or n - 1.
``paper_comparison.csv`` has the probabilities of its Bayesian table.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "BINARY",
    "COMPARISON",
    "EMBEDDERS",
    "ERRORS",
    "MULTICLASS",
    "QUANTIFIERS",
    "PublishedFigures",
]

BINARY = ("cora-2", "genius", "questions", "tolokers", "twitch-de")
MULTICLASS = ("cora-multi", "amazon-ratings", "flickr")
EMBEDDERS = ("lr", "gcn", "gat", "gin")
"""Methods that replace the reservoir in the paper's ablation."""
OTHERS = ("cc", "acc", "pcc", "pacc", "hdy", "dys")
"""Quantifiers that replace SLD in the paper's ablation."""


@dataclass(frozen=True)
class PublishedFigures:
    """One published value."""

    mean: float
    sd: float


Row = Mapping[str, PublishedFigures]
Probabilities = tuple[float, float, float]


def _rows(file: str) -> list[dict[str, str]]:
    with Path(__file__).with_name(file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _errors() -> Mapping[str, Mapping[str, Row]]:
    found: dict[str, dict[str, dict[str, PublishedFigures]]] = {"ae": {}, "rae": {}}
    for row in _rows("paper_figures.csv"):
        value = PublishedFigures(float(row["mean"]), float(row["sd"]))
        found[row["metric"]].setdefault(row["row"], {})[row["dataset"]] = value
    return found


def _comparison() -> Mapping[tuple[str, str], Mapping[str, Probabilities]]:
    found: dict[tuple[str, str], dict[str, Probabilities]] = defaultdict(dict)
    for row in _rows("paper_comparison.csv"):
        worse, equal, better = (float(row[n]) for n in ("worse", "equal", "better"))
        found[row["kind"], row["metric"]][row["row"]] = worse, equal, better
    return dict(found)


_ALL = _errors()
QUANTIFIERS: Mapping[str, Row] = {
    **{name: _ALL["ae"][name] for name in OTHERS},
    "sld": _ALL["ae"]["xnq"],
}
"""Test AE of XNQ's embeddings with other quantifiers; `sld` is XNQ itself, whose row
also has the multi-class data sets."""

ERRORS: Mapping[str, Mapping[str, Row]] = {
    metric: {name: row for name, row in rows.items() if name not in OTHERS}
    for metric, rows in _ALL.items()
}
"""Test error by metric, method and data set."""

COMPARISON = _comparison()
"""Probabilities that XNQ is worse, equal or better, from the paper's Bayesian table."""
