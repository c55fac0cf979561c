"""Memory, disk space and work of the stages ``select``, ``readout``, ``posteriors``."""

from __future__ import annotations

from xnq_dist.core.config import Settings
from xnq_dist.core.method_records import method_of
from xnq_dist.core.need import Need, RunSize, Work, added, scaled
from xnq_dist.core.sizes import parse_bytes
from xnq_dist.readout.objective import DEVICE_VALUES, WIDEST
from xnq_dist.readout.plus.feature_files import fits_at_once
from xnq_dist.readout.plus.label_features import HOPS, feature_count
from xnq_dist.readout.plus.learning import MAX_ROWS
from xnq_dist.readout.plus.second_stage import KINDS, tree_columns
from xnq_dist.readout.plus.trees import rounds_of
from xnq_dist.readout.plus.variants import Variants
from xnq_dist.readout.select import INPUT_SCALES, RECURRENT_SCALES, UNITS
from xnq_dist.reservoir.needs import (
    NeighbourSums,
    blocks_of,
    busiest,
    embedding_item,
    reservoir_work,
    sums_work,
    supersteps_of,
)
from xnq_dist.reservoir.volume import WORKER

__all__ = ["candidates_of", "label_sums", "needs", "turns_of"]

CLIMBED, SEARCHED = 8, 3
"""Typical number of values of C tried: by `climb`, which goes to between 1 and 10 and
two steps beyond the best; by xnq+, which starts from the middle of its grid."""
SEARCH_FITS = 3
"""Values of C tried for each candidate of the search of scales."""
PASSES = 12
"""Passes over the rows per fit."""
SECOND_FITS = 4
"""Values of C that the second stage of xnq+ tries."""


def needs(size: RunSize, settings: Settings) -> Need:
    """Estimate what the search of scales, the fits and the posteriors need."""
    plus, dim = method_of(settings.method).second_stage, settings.reservoir.dim
    fitted = min(size.known, MAX_ROWS) if plus else size.known
    columns = sum(blocks_of(size, settings))
    rows = min(fitted * columns * 24, parse_bytes(settings.readout.memory) * 3)
    memory, rounds_disk, features_disk = _described(size, settings, fitted)
    largest = supersteps_of(size, settings).moves.largest
    # Features are written twice: with nodes and with complete groups as folds.
    described = size.nodes * (rounds_disk + 2 * features_disk)
    # Three partitions into groups take 12 bytes per node; held-out posteriors are few.
    kept = size.nodes * (size.classes * 4 + 24 + features_disk)
    # Labelled rows beyond the memory are written twice, by partition and by group.
    beyond = not plus and size.known * dim * 8 > settings.readout.memory_bytes
    spilled = 2 * size.known * dim * embedding_item(settings) if beyond else 0
    return Need(
        worker=int(WORKER + max(rows, size.per_worker * largest * memory)),
        device=_on_device(size, settings),
        disk=max(described, kept, spilled),
        kept=kept,
        work={
            "supersteps": _search_work(size, settings),
            "readout": added(_first_work(size, settings), _plus_work(size, settings)),
            "write": {"disk": (described + 2 * spilled) / size.slots},
        },
    )


def _described(size: RunSize, settings: Settings, fitted: int) -> tuple[int, int, int]:
    """Bytes per node of xnq+'s label features: in memory, and two figures on disk.

    On disk for the sums of the rounds, which are deleted, and for the features; models
    are fitted to `fitted` nodes.
    """
    if not method_of(settings.method).second_stage:
        return 0, 0, 0
    folds, count = settings.readout.folds, feature_count(size.classes)
    # Features of the nodes that models are fitted to are computed again for each fold.
    features = count + min(1.0, fitted / max(1, size.nodes)) * folds * count
    width = label_sums(size, settings)[0].width
    # A round holds the values before and after it, and the sums.
    memory = HOPS * width + max(width, features)
    return 4 * int(memory), 4 * HOPS * width, 4 * int(features)


def _on_device(size: RunSize, settings: Settings) -> int:
    """Bytes of GPU memory for the tasks that fit at the same time.

    Each holds the rows in float32, and a block and the covariance twice in float64.
    """
    if not size.workers.device:
        return 0
    dim = settings.reservoir.dim
    fits = min(size.workers.threads, settings.readout.folds)
    rows = min(4 * fits * size.known * dim, settings.readout.memory_bytes // 2)
    return rows + fits * 8 * (DEVICE_VALUES + 2 * dim * min(dim, WIDEST))


def candidates_of(settings: Settings) -> int:
    """Number of candidates that the stage ``select`` tries; 0: no search."""
    scales = settings.reservoir
    searched = scales.recurrent_scale == "select", scales.input_scale == "select"
    if not method_of(settings.method).searches or not any(searched):
        return 0
    recurrent = len(RECURRENT_SCALES) if searched[0] else 1
    return recurrent + (len(INPUT_SCALES) - 1 if searched[1] else 0)


def _search_work(size: RunSize, settings: Settings) -> dict[str, float]:
    """Work of the candidates, each with a smaller reservoir and scored in one task."""
    candidates, dim = candidates_of(settings), min(settings.reservoir.dim, UNITS)
    if not candidates:
        return {}
    rows = size.known * (settings.readout.folds - 1.0)
    judged = _moments(size, dim), scaled(_fit(size, rows, dim), SEARCH_FITS)
    return scaled(added(reservoir_work(size, settings, dim), *judged), candidates)


def _fit(size: RunSize, rows: float, dim: int) -> Work:
    """Work of one fit to `rows` rows, or of several fits to as many in total."""
    outputs = 1 if size.classes == 2 else size.classes
    return {"row": rows * dim * outputs * PASSES}


def _moments(size: RunSize, dim: int) -> Work:
    """Work of the covariance of the labelled rows, which all fits share."""
    return {"square": float(size.known) * dim * dim}


def turns_of(size: RunSize, settings: Settings) -> int:
    """Rounds of fits for the folds of one C, with all threads in parallel."""
    folds = settings.readout.folds
    return -(-folds // min(folds, size.workers.count * size.workers.threads))


def _fits(size: RunSize, settings: Settings) -> int:
    """Number of fits per fold of the (first-stage) readout."""
    readout, plus = settings.readout, method_of(settings.method).second_stage
    fits = (SEARCHED if plus else CLIMBED) if readout.C == "select" else 1
    if not plus:
        return fits
    # For every block; with the chosen C also for each pair of hidden folds, and all of
    # these again with complete groups as folds.
    hidden = 2 * len(Variants(readout.folds)) // readout.folds - 1
    return len(blocks_of(size, settings)) * (fits + hidden)


def _first_work(size: RunSize, settings: Settings) -> dict[str, float]:
    """Work to read rows twice, fit folds and write posteriors; xnq+ reads once more."""
    dim, folds = settings.reservoir.dim, settings.readout.folds
    plus = method_of(settings.method).second_stage
    nodes, _ = busiest(size, settings)
    values = float(nodes) * sum(blocks_of(size, settings)) / size.lanes
    reads = 3 if plus else 2
    rows = size.known * (folds - 1.0) / max(1, folds)
    fits = _fits(size, settings) * turns_of(size, settings)
    return added(
        {
            "read": reads * values * embedding_item(settings),
            "score": (reads - 1) * values,
            "posterior": nodes / size.lanes,
        },
        scaled(_fit(size, rows, dim), fits),
        _moments(size, dim),
        {} if plus else _fit(size, size.known, dim),
    )


def label_sums(size: RunSize, settings: Settings) -> tuple[NeighbourSums, ...]:
    """Sums of labels over neighbours by xnq+."""
    if not method_of(settings.method).second_stage:
        return ()
    folds = settings.readout.folds
    # With nodes and with complete groups as folds.
    width = (folds + len(Variants(folds))) * size.classes + 1
    on_disk = supersteps_of(size, settings).states == "disk"
    at_once = fits_at_once(width, settings.reservoir.dim, on_disk)
    return (NeighbourSums(HOPS, at_once * width),) * (2 // at_once)


def _plus_work(size: RunSize, settings: Settings) -> dict[str, float]:
    """Additional work of xnq+: sums over neighbours, features, the second stage."""
    if not method_of(settings.method).second_stage:
        return {}
    blocks, folds = blocks_of(size, settings), settings.readout.folds
    nodes, _ = busiest(size, settings)
    features = feature_count(size.classes)
    parts: list[Work] = [
        sums_work(size, settings, label_sums(size, settings)),
        {"feature": float(nodes) * features / size.lanes},
        scaled(_fit(size, size.known * (folds - 1.0), features), SECOND_FITS),
    ]
    if settings.plus.boosting == "auto":
        trees = rounds_of(size.classes) * (1 if size.classes == 2 else size.classes)
        rows = size.known * (folds - 1.0) / folds
        second_stage = len(blocks) * (size.classes - 1) + features
        for kind in KINDS:
            columns = second_stage + len(tree_columns(blocks, kind))
            fold = {"tree": float(trees), "bin": trees * rows * columns}
            parts.append(scaled(fold, folds / size.slots))
            parts.append({"leaf": float(nodes) * trees / size.lanes})
    return added(*parts)
