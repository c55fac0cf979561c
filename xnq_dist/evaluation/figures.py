"""What the plots show, from the tables; `plots` draws it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.pictures import Picture
from xnq_dist.evaluation.names import base, shown, tally
from xnq_dist.evaluation.paper_plots import (
    Band,
    Point,
    draw_diagonals,
    draw_shares,
    draw_times,
)
from xnq_dist.evaluation.summary import GRAPH_LEVEL, Cost, Summary

__all__ = ["diagonal_bands", "pictures"]

Floats = NDArray[np.float64]

LEVELS = 41
"""True prevalences drawn as they are; more are put into bins of .05."""

_LOOKS: Mapping[str, tuple[str, str]] = {
    "wvrn": ("#c2571a", "s"),
    "cdq": ("#8a6d00", "D"),
    "enq": ("#b03060", "^"),
    "lbq": ("#6b7280", "X"),
    "lr": ("#4d7c0f", "v"),
    "gcn": ("#7b3fa0", "p"),
    "gat": ("#a05fc4", "h"),
    "gin": ("#4c2a85", "P"),
    "xnq": ("#0b6e99", "o"),
    "xnq+": ("#082f49", "*"),
}
_SPARE = (("#1f7a6d", "<"), ("#915c00", ">"), ("#9f1239", "d"), ("#3f3f46", "8"))


def pictures(
    summary: Summary, cost: Mapping[tuple[str, str], Cost], estimates: pa.Table
) -> dict[str, Picture]:
    """The plots that the data allow, by file name.

    Parameters
    ----------
    summary
        Choices and means.
    cost
        Of `summary.costs`.
    estimates
        Schema ``estimates``.
    """
    made: dict[str, Picture] = {}
    looks = _looks(summary.methods)
    for dataset in summary.of_kind("binary"):
        bands, positive = diagonal_bands(summary, estimates, dataset)
        if bands:
            name = _unused(f"diagonal-{dataset}", made)
            made[name] = draw_diagonals(name, dataset, positive, bands, looks)
    points = {
        dataset: found
        for dataset in summary.datasets
        if (found := _points(summary, cost, dataset))
    }
    if points:
        made["error-time"] = draw_times("error-time", points, looks)
    curves = {
        dataset: bands
        for dataset in summary.datasets
        if (bands := _curves(summary, dataset))
    }
    if curves:
        made["error-labels"] = draw_shares("error-labels", curves, looks)
    return made


def diagonal_bands(
    summary: Summary, estimates: pa.Table, dataset: str
) -> tuple[list[Band], str]:
    """Estimates of the positive class by its true prevalence, per method.

    In each fold the quantifier that validation chose; mean and sample standard
    deviation over all samples of that prevalence in all folds.

    Parameters
    ----------
    summary
        Choices.
    estimates
        Schema ``estimates``; the positive class is the last to appear.
    dataset
        With two classes.

    Returns
    -------
    list of Band, str
        Methods with estimates, and the positive class.
    """
    own = estimates.filter(pc.equal(estimates["dataset"], dataset))
    if not own.num_rows:
        return [], ""
    positive = own["class"].unique().to_pylist()[-1]
    own = own.filter(pc.equal(own["class"], positive))
    bands = []
    for method in _sampled(summary):
        chosen = summary.of(dataset, method)
        if not chosen:
            continue
        rows = own.filter(
            pc.and_(
                pc.equal(own["method"], method),
                pc.equal(own["label_share"], chosen[0].label_share),
            )
        )
        parts = [
            rows.filter(
                pc.and_(
                    pc.equal(rows["fold"], c.fold),
                    pc.equal(rows["quantifier"], c.quantifier),
                )
            )
            for c in chosen
        ]
        both = pa.concat_tables(parts)
        if both.num_rows:
            true, estimate = both["true"].to_numpy(), both["estimate"].to_numpy()
            figure = summary.figure(dataset, method, "ae")
            error = f", AE {figure.mean:.3f}" if figure else ""
            remark = tally(shown(c.quantifier) for c in chosen) + error
            bands.append(Band(method, *_by_level(true, estimate), remark))
    return bands, str(positive)


def _sampled(summary: Summary) -> list[str]:
    """Methods that answer for samples; one answer for a whole graph makes no curve."""
    return [m for m in summary.methods if base(m) not in GRAPH_LEVEL]


def _by_level(true: Floats, estimate: Floats) -> tuple[Floats, Floats, Floats]:
    """Levels, mean and standard deviation of the estimates at each, shape (n,)."""
    level = np.round(true, 4)
    if len(np.unique(level)) > LEVELS:
        level = np.round(np.round(true / 0.05) * 0.05, 4)
    levels, group = np.unique(level, return_inverse=True)
    count = np.bincount(group)
    mean = np.bincount(group, estimate) / count
    square = np.bincount(group, (estimate - mean[group]) ** 2)
    return levels, mean, np.sqrt(square / np.maximum(count - 1, 1))


def _points(
    summary: Summary, cost: Mapping[tuple[str, str], Cost], dataset: str
) -> list[Point]:
    found = []
    for method in _sampled(summary):
        figure = summary.figure(dataset, method, "ae")
        spent = cost.get((dataset, method))
        if figure is not None and spent is not None and spent.seconds > 0:
            found.append(Point(method, spent.seconds, figure))
    return found


def _curves(summary: Summary, dataset: str) -> list[Band]:
    found = []
    for method in _sampled(summary):
        pairs = [
            (share, figure)
            for share in summary.shares(dataset, method)
            if (figure := summary.figure(dataset, method, "ae", share)) is not None
        ]
        if len(pairs) > 1:
            found.append(
                Band(
                    method,
                    np.array([share for share, _ in pairs]),
                    np.array([figure.mean for _, figure in pairs]),
                    np.array([figure.sd or 0.0 for _, figure in pairs]),
                )
            )
    return found


def _looks(methods: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of every method, the same on every plot."""
    known = {m: _LOOKS[m] for m in methods if m in _LOOKS}
    for method in methods:
        # The first variant looks like its base where that is not there.
        if base(method) in _LOOKS and base(method) not in map(base, known):
            known[method] = _LOOKS[base(method)]
    others = [m for m in methods if m not in known]
    spare = {m: _SPARE[place % len(_SPARE)] for place, m in enumerate(others)}
    looks = {**known, **spare}
    return {m: looks[m] for m in methods}


def _unused(name: str, made: Mapping[str, Any]) -> str:
    """A file name like this one that is still free."""
    clean = re.sub(r"[^A-Za-z0-9.+-]+", "-", name).strip("-.")
    free, number = clean, 2
    while free in made:
        free, number = f"{clean}-{number}", number + 1
    return free
