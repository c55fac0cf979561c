"""Memory and disk of the stages ``select``, ``readout``, ``posteriors``."""

from __future__ import annotations

from xnq_dist.core.need import Need, RunSize
from xnq_dist.core.records import METHODS
from xnq_dist.core.sections import MAX_ROWS
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import selects_scales
from xnq_dist.readout.plus.first_stage import Variants
from xnq_dist.readout.plus.label_features import HOPS, feature_count, label_width
from xnq_dist.readout.plus.second_stage import used_by_trees
from xnq_dist.readout.rows import BATCH
from xnq_dist.readout.select import candidates
from xnq_dist.reservoir.needs import (
    EMBEDDING_ITEM,
    blocks_of,
    moves_of,
)
from xnq_dist.reservoir.volume import WORKER

__all__ = ["candidates_of", "fitted_rows", "needs"]

BATCHES = 5
"""Copies of a batch of embeddings while the file is read and decoded: what a worker has
more after reading than before (measured: 170 MiB with batches of 28 MiB)."""


def needs(size: RunSize, settings: Settings) -> Need:
    """Estimate what the search of scales, the fits and the posteriors need."""
    plus = METHODS[settings.method].second_stage
    posteriors, rounds, features = (1 + plus) * size.classes * 4, 0, 0
    if plus:
        count = settings.readout.folds * _features(size, settings)
        # Every node has features for each fold, and fitted nodes have them once more.
        fitted = fitted_rows(size) / max(1, size.nodes)
        features = int(4 * count * (1 + fitted))
        rounds = 4 * HOPS * label_width(Variants(settings.readout.folds), size.classes)
    # Three partitions into groups take 12 bytes per node; held-out posteriors are few.
    kept = size.nodes * (posteriors + 24 + features)
    return Need(
        worker=WORKER + (_plus_memory if plus else _memory)(size, settings),
        disk=max(size.nodes * (rounds + features), kept),
        kept=kept,
    )


def _memory(size: RunSize, settings: Settings) -> int:
    """Bytes of the labelled rows, and of what fits to them hold.

    A fit has four matrices like the covariance of the columns.
    """
    dim = settings.reservoir.dim
    rows = fitted_rows(size) * dim
    return min(rows * 24, settings.readout.memory_bytes * 3) + 32 * dim**2


def _plus_memory(size: RunSize, settings: Settings) -> int:
    """Bytes of a worker of xnq+ in the phase of the readout that takes most."""
    blocks, moves = blocks_of(size, settings), moves_of(size)
    folds, threads = settings.readout.folds, size.workers.threads
    row = sum(blocks) * EMBEDDING_ITEM
    nodes = min(fitted_rows(size), settings.readout.max_rows(sum(blocks)))
    features, columns = _features(size, settings), len(used_by_trees(blocks))
    joined = nodes * row
    # Values before and after a round; halo rows as blocks and in local order.
    around = moves.held + size.lanes * moves.picked + 2 * moves.owned
    around = (
        around * label_width(Variants(folds), size.classes) + moves.owned * features
    )
    width = len(blocks) * (size.classes - 1) + features
    # Inputs of the second stage and of trees, and the label features that they are
    # made from; bins of all inputs; on each thread, bins twice while they are put
    # together, and scores and four arrays like them.
    fits = 5 * (folds * width + columns) + 8 * folds * features
    fits += threads * (2 * (width + columns) + 40 * size.classes)
    phases = (
        # Rows of all partitions; later rows that are sent to other workers.
        2 * joined,
        joined + 4 * around + 8 * moves.edges,
        joined + nodes * fits,
        4 * moves.largest * folds * features,
    )
    return (BATCHES + threads) * min(moves.largest, BATCH) * row + max(phases)


def _features(size: RunSize, settings: Settings) -> int:
    """Label features, with two columns for each score: it may have gaps."""
    return feature_count(size.classes) + 2 * len(settings.columns.scores)


def candidates_of(settings: Settings) -> int:
    """Number of candidates that the stage ``select`` tries; 0: no search."""
    if not selects_scales(settings):
        return 0
    return sum(map(len, candidates(settings))) - 1


def fitted_rows(size: RunSize) -> int:
    """Maximum number of labelled rows that models are fitted to."""
    return min(size.known, MAX_ROWS)
