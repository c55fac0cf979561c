"""Memory and disk of the stages ``select``, ``readout``, ``posteriors``."""

from __future__ import annotations

from xnq_dist.core.inputs import selects_scales
from xnq_dist.core.method_records import METHODS
from xnq_dist.core.need import Need, RunSize
from xnq_dist.core.settings import Settings
from xnq_dist.core.settings.method import MAX_ROWS
from xnq_dist.readout.plus.cross import HELD_ROWS
from xnq_dist.readout.plus.label_features import HOPS, feature_count
from xnq_dist.readout.plus.second_stage import KINDS, tree_columns
from xnq_dist.readout.plus.variants import Variants
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
        # Every node has features for each fold; those of fitted nodes are computed
        # again, and written twice: with nodes and with complete groups as folds.
        features = 4 * count + int(
            4 * count * fitted_rows(size)[0] / max(1, size.nodes)
        )
        rounds = 4 * HOPS * _label_width(size, settings)
    # Three partitions into groups take 12 bytes per node; held-out posteriors are few.
    kept = size.nodes * (posteriors + 24 + features)
    return Need(
        worker=WORKER + (_plus_memory if plus else _memory)(size, settings),
        disk=max(size.nodes * (rounds + 2 * features), kept),
        kept=kept,
    )


def _memory(size: RunSize, settings: Settings) -> int:
    """Bytes of the labelled rows, and of what fits to them hold."""
    rows = min(size.known, MAX_ROWS) * settings.reservoir.dim
    return min(rows * 24, settings.readout.memory_bytes * 3)


def _plus_memory(size: RunSize, settings: Settings) -> int:
    """Bytes of a worker of xnq+ in the phase of the readout that takes most."""
    blocks, moves = blocks_of(size, settings), moves_of(size)
    folds, threads = settings.readout.folds, size.workers.threads
    row = sum(blocks) * EMBEDDING_ITEM
    nodes, groups = fitted_rows(size)
    nodes = min(nodes, settings.readout.memory_bytes // (8 * sum(blocks)))
    rows, features = nodes * row, _features(size, settings)
    held = rows + (groups * row if groups < nodes else 0)
    # Values before and after a round; halo rows as blocks and in local order.
    around = moves.held + size.lanes * moves.picked + 2 * moves.owned
    around = around * _label_width(size, settings) + moves.owned * features
    width = len(blocks) * (size.classes - 1) + features
    trees = [len(tree_columns(blocks, kind)) for kind in KINDS]
    second = 4 * nodes * (folds * width + max(trees))
    phases = (
        # Rows of all partitions, joined; later rows that are sent to other workers.
        held + rows,
        held + 4 * around + 8 * moves.edges,
        held + second + 2 * 4 * nodes * folds * features,
        # Bins of the inputs of trees, twice while they are put together; scores and
        # four arrays like them.
        held
        + second
        + nodes * max(trees)
        + nodes * threads * (2 * (width + max(trees)) + 40 * size.classes),
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


def fitted_rows(size: RunSize) -> tuple[int, int]:
    """Rows that xnq+ is fitted to with nodes, and with complete groups as folds."""
    return min(size.known, MAX_ROWS), min(size.known, HELD_ROWS)


def _label_width(size: RunSize, settings: Settings) -> int:
    """Columns of xnq+'s sums of labels over neighbours."""
    folds = settings.readout.folds
    return folds * size.classes + len(Variants(folds)) * (size.classes - 1) + 1
