"""How often a run goes over its rows and edges, as its settings say."""

from __future__ import annotations

from typing import Any

from xnq_dist.config import Settings
from xnq_dist.plan.seconds import NeighbourSums
from xnq_dist.plan.size import GraphSize, Workers
from xnq_dist.readout.label_features import HOPS, NEIGHBOUR_HOPS, feature_count
from xnq_dist.readout.logistic import NEWTON_BINARY, NEWTON_PARAMETERS
from xnq_dist.readout.select import INPUT_SCALES, RECURRENT_SCALES

__all__ = ["FINE", "candidates_of", "fits_of", "sums_of"]

FINE, COARSE = 8, 5
"""Values of C that the climb usually tries, of the fine and of the coarse grid: up to
between 1 and 10, and two beyond the best."""
VALUE = 8
"""Bytes of a value in a fit."""


def candidates_of(settings: Settings) -> int:
    """Scales that the search of plain xnq tries; 0: both are given."""
    wanted = settings.reservoir
    searched = wanted.recurrent_scale == "select", wanted.input_scale == "select"
    if settings.method == "xnq+" or not any(searched):
        return 0
    recurrent = len(RECURRENT_SCALES) if searched[0] else 1
    return recurrent + (len(INPUT_SCALES) - 1 if searched[1] else 0)


def fits_of(
    size: GraphSize, settings: Settings, labelled: int, workers: Workers
) -> dict[str, Any]:
    """Of the first readout: ``folds``, ``fits``, ``newton`` and ``turns``."""
    wanted, plus = settings.readout, settings.method == "xnq+"
    dim = settings.reservoir.dim
    fits = (COARSE if plus else FINE) if wanted.C == "select" else 1
    there = int(wanted.memory_bytes // max(1, labelled * dim * VALUE))
    at_once = min(wanted.folds, workers.count * workers.threads, max(1, there))
    few = dim <= NEWTON_BINARY
    if size.classes > 2:
        few = size.classes * dim <= NEWTON_PARAMETERS
    return {
        "folds": wanted.folds,
        "fits": fits,
        # A GPU fits by L-BFGS; so do rows that go through files.
        "newton": few and there > 0,
        "turns": -(-wanted.folds // at_once),
    }


def sums_of(size: GraphSize, settings: Settings) -> dict[str, Any]:
    """Of xnq+: ``sums`` over neighbours, and what the second stage sees of a row.

    ``second`` label features in one variant, and the columns that each kind of trees
    sees, ``seen``.
    """
    if settings.method != "xnq+":
        return {"sums": (), "second": 0, "seen": ()}
    wanted, wide = settings.plus, settings.readout.folds * size.classes
    means = len(set(wanted.rounds)) + NEIGHBOUR_HOPS
    second = feature_count(size.classes, means)
    sums = [
        NeighbourSums(HOPS, wide + 1),
        NeighbourSums(max(wanted.rounds), wide),
        NeighbourSums(NEIGHBOUR_HOPS, wide),
    ]
    seen = []
    if size.classes == 2 and wanted.boosting == "auto":
        seen.append(size.classes - 1 + second)
        if 0 < size.features <= wanted.node_features:
            sums.append(NeighbourSums(NEIGHBOUR_HOPS, size.features + 1))
            seen.append(seen[0] + (NEIGHBOUR_HOPS + 1) * size.features)
    return {"sums": tuple(sums), "second": second, "seen": tuple(seen)}
