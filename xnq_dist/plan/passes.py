"""How often a run goes over its rows and edges, as its settings say."""

from __future__ import annotations

from typing import Any

from xnq_dist.core.config import Settings
from xnq_dist.plan.seconds import NeighbourSums
from xnq_dist.plan.size import GraphSize, Workers
from xnq_dist.readout.plus.label_features import HOPS, feature_count
from xnq_dist.readout.plus.second_stage import KINDS, tree_columns
from xnq_dist.readout.plus.variants import Variants
from xnq_dist.readout.select import INPUT_SCALES, RECURRENT_SCALES
from xnq_dist.reservoir.descriptors import DOUBLE_ROUNDS, SPARE, widths

__all__ = ["FINE", "blocks_of", "candidates_of", "fits_of", "sums_of"]

FINE, SEARCHED = 8, 3
"""Values of C that are usually tried: by the climb up to between 1 and 10, and two
beyond the best; by xnq+ from the middle of its grid on."""


def candidates_of(settings: Settings) -> int:
    """Scales that the search of plain xnq tries; 0: both are given."""
    wanted = settings.reservoir
    searched = wanted.recurrent_scale == "select", wanted.input_scale == "select"
    if settings.method == "xnq+" or not any(searched):
        return 0
    recurrent = len(RECURRENT_SCALES) if searched[0] else 1
    return recurrent + (len(INPUT_SCALES) - 1 if searched[1] else 0)


def blocks_of(size: GraphSize, settings: Settings) -> tuple[int, ...]:
    """Columns of each block of the embedding."""
    dim = settings.reservoir.dim
    if settings.method != "xnq+":
        return (dim,)
    beside = widths(size.nodes, size.features, not settings.input.directed)
    return tuple(width for width in (dim, beside.features, beside.spectrum) if width)


def fits_of(size: GraphSize, settings: Settings, workers: Workers) -> dict[str, Any]:
    """Of the first readout: ``folds``, ``fits`` and ``turns``."""
    wanted, plus = settings.readout, settings.method == "xnq+"
    blocks = blocks_of(size, settings)
    fits = (SEARCHED if plus else FINE) if wanted.C == "select" else 1
    if plus:
        # Of every block; and, once C is chosen, with each pair of folds hidden, and
        # all of that with whole groups as folds.
        fits = len(blocks) * (
            fits + 2 * len(Variants(wanted.folds)) // wanted.folds - 1
        )
    at_once = min(wanted.folds, workers.count * workers.threads)
    return {
        "folds": wanted.folds,
        "fits": fits,
        "turns": -(-wanted.folds // at_once),
    }


def sums_of(size: GraphSize, settings: Settings) -> dict[str, Any]:
    """Of xnq+: sums over neighbours, and what the second stage sees of a row.

    ``beside``: sums for the embedding's other blocks; ``sums``: of the readout.

    ``second`` label features in one variant, and the columns that each kind of trees
    sees, ``seen``.
    """
    if settings.method != "xnq+":
        return {"beside": (), "sums": (), "second": 0, "seen": ()}
    blocks, folds = blocks_of(size, settings), settings.readout.folds
    second = feature_count(size.classes)
    sums = [
        NeighbourSums(HOPS, folds * size.classes + 1),
        NeighbourSums(HOPS, len(Variants(folds)) * size.classes),
    ]
    beside = [NeighbourSums(HOPS, blocks[1] // (HOPS + 1) + 1)]
    if len(blocks) > 2:
        beside.append(NeighbourSums(2 * DOUBLE_ROUNDS + 1, blocks[2] + SPARE + 2))
    seen = []
    if settings.plus.boosting == "auto":
        own = len(blocks) * (size.classes - 1) + second
        seen = [own + len(tree_columns(blocks, kind)) for kind in KINDS]
    return {
        "beside": tuple(beside),
        "sums": (*sums, *sums),  # with nodes and with whole groups as folds
        "second": second,
        "seen": tuple(seen),
    }
