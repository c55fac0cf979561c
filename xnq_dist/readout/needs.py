"""Memory, disk space and work of the stages ``select``, ``readout``, ``posteriors``."""

from __future__ import annotations

from xnq_dist.core.config import Settings
from xnq_dist.core.method_records import method_of
from xnq_dist.core.need import Need, RunSize, Work, added, scaled
from xnq_dist.readout.logistic import COLUMNS_A_ROUND, ROUNDS
from xnq_dist.readout.objective import DEVICE_VALUES, WIDEST
from xnq_dist.readout.plus import held_rows
from xnq_dist.readout.plus.feature_files import fits_at_once
from xnq_dist.readout.plus.label_features import HOPS, feature_count
from xnq_dist.readout.plus.learning import MAX_ROWS, MIN_FOR_TREES
from xnq_dist.readout.plus.second_stage import KINDS, tree_columns
from xnq_dist.readout.plus.trees import rounds_of
from xnq_dist.readout.plus.variants import Variants
from xnq_dist.readout.rows import BATCH
from xnq_dist.readout.select import INPUT_SCALES, RECURRENT_SCALES, UNITS
from xnq_dist.reservoir.needs import (
    NeighbourSums,
    blocks_of,
    busiest,
    embedding_item,
    moves_of,
    reservoir_work,
    sums_work,
    supersteps_of,
)
from xnq_dist.reservoir.volume import WORKER

__all__ = ["candidates_of", "label_sums", "needs", "turns_of"]

CLIMBED, SEARCHED = 8, 4
"""Typical number of values of C tried: by `climb`, which goes to between 1 and 10 and
two steps beyond the best; by xnq+, which starts from the middle of its grid."""
SEARCH_FITS = 3
"""Values of C tried for each candidate of the search of scales."""
AFTER = 5
"""Evaluations of a fit at the tightest tolerance after it was rescaled last."""
SECOND_FITS = 3
"""Values of C that the second stage of xnq+ tries."""
PANEL = 16
"""Logits that a product computes together: fewer take as long."""
BATCHES = 5
"""Copies of a batch of embeddings while the file is read and decoded: what a worker has
more after reading than before (measured: 170 MiB with batches of 28 MiB)."""
CONCLUDED = 100
"""Evaluations of the pool and the calibration."""


def needs(size: RunSize, settings: Settings) -> Need:
    """Estimate what the search of scales, the fits and the posteriors need."""
    plus, dim = method_of(settings.method).second_stage, settings.reservoir.dim
    fitted = min(size.known, MAX_ROWS)
    rounds_disk, features_disk = _described(size, settings, fitted)
    # Features are written twice: with nodes and with complete groups as folds.
    described = size.nodes * (rounds_disk + 2 * features_disk)
    # Three partitions into groups take 12 bytes per node; held-out posteriors are few.
    kept = size.nodes * (size.classes * 4 + 24 + features_disk)
    # Labelled rows beyond the memory are written twice, by partition and by group.
    beyond = not plus and size.known * dim * 8 > settings.readout.memory_bytes
    spilled = 2 * size.known * dim * embedding_item(settings) if beyond else 0
    return Need(
        worker=WORKER + (_plus_memory if plus else _memory)(size, settings),
        device=_on_device(size, settings),
        disk=max(described, kept, spilled),
        kept=kept,
        work={
            "supersteps": _search_work(size, settings),
            "readout": added(_first_work(size, settings), _plus_work(size, settings)),
            "write": {"disk": (described + 2 * spilled) / size.slots},
        },
    )


def _memory(size: RunSize, settings: Settings) -> int:
    """Bytes of the labelled rows, and of what fits to them hold."""
    return min(
        size.known * settings.reservoir.dim * 24, settings.readout.memory_bytes * 3
    )


def _plus_memory(size: RunSize, settings: Settings) -> int:
    """Bytes of a worker of xnq+ in the phase of the readout that takes most."""
    blocks, moves = blocks_of(size, settings), moves_of(size, settings)
    folds, threads = settings.readout.folds, size.workers.threads
    row = sum(blocks) * embedding_item(settings)
    nodes, groups = _fitted(size)
    nodes = min(nodes, settings.readout.memory_bytes // (8 * sum(blocks)))
    rows, features = nodes * row, feature_count(size.classes)
    held = rows + (groups * row if groups < nodes else 0)
    # Values before and after a round; halo rows as blocks and in local order.
    around = moves.held + size.lanes * moves.picked + 2 * moves.owned
    around = around * label_sums(size, settings)[0].width + moves.owned * features
    width = len(blocks) * (size.classes - 1) + features
    trees = [len(tree_columns(blocks, kind)) for kind in KINDS]
    second = nodes * (8 * folds * width + 4 * max(trees))
    phases = (
        # Rows of all partitions, joined; later rows that are sent to other workers.
        held + rows,
        held + 4 * around + 8 * moves.edges,
        held + second + 2 * 4 * nodes * folds * features,
        # Inputs of trees in float64, twice while they are put together.
        second + 2 * 8 * threads * nodes * (width + max(trees)),
    )
    return (BATCHES + threads) * min(moves.largest, BATCH) * row + max(phases)


def _described(size: RunSize, settings: Settings, fitted: int) -> tuple[int, int]:
    """Bytes on disk per node of xnq+'s label features.

    For the sums of the rounds, which are deleted, and for the features; models are
    fitted to `fitted` nodes.
    """
    if not method_of(settings.method).second_stage:
        return 0, 0
    folds, count = settings.readout.folds, feature_count(size.classes)
    # Features of the nodes that models are fitted to are computed again for each fold.
    features = count + min(1.0, fitted / max(1, size.nodes)) * folds * count
    return 4 * HOPS * label_sums(size, settings)[0].width, 4 * int(features)


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
    fits = SEARCH_FITS * settings.readout.folds
    judged = _moments(size.known, dim), scaled(_fit(size, size.known, dim, AFTER), fits)
    return scaled(added(reservoir_work(size, settings, dim), *judged), candidates)


def _fit(size: RunSize, rows: float, dim: int, after: int = 0) -> Work:
    """Work of one fit: every evaluation passes over all rows, hidden ones too."""
    # Typical numbers of fits to generated graphs of two and seven classes.
    two = size.classes == 2
    outputs, rescaled = (1, 1.0) if two else (size.classes, 1.5)
    points = rescaled * (ROUNDS + dim // COLUMNS_A_ROUND) + after
    square = dim * dim if dim <= WIDEST else dim
    # Between two passes the coordinates are changed to those of the rows and back.
    passes = {
        "point": points * size.workers.threads,  # threads take turns with Python code
        "row" if two else "class_row": points * outputs * rows * dim,
        "loss" if two else "class_loss": points * outputs * rows,
        "square": points * outputs * 2 * square,
    }
    cube = {"cube": float(dim) ** 3 if dim <= WIDEST else 0.0}
    return added(passes, scaled(added(_moments(rows, dim), cube), rescaled))


def _moments(rows: float, dim: int) -> Work:
    """Work of the covariance of labelled rows."""
    return {"square": float(rows) * dim * (dim if dim <= WIDEST else 1)}


def turns_of(size: RunSize, jobs: int) -> int:
    """Rounds of `jobs` fits, with all threads of the workers in parallel."""
    return -(-jobs // min(jobs, size.workers.count * size.workers.threads))


def _fits(size: RunSize, settings: Settings) -> Work:
    """Work of all fits of the (first-stage) readout."""
    readout, dim = settings.readout, settings.reservoir.dim
    plus, select = method_of(settings.method).second_stage, readout.C == "select"
    folds = readout.folds
    if not plus:
        fits = turns_of(size, folds) * (CLIMBED if select else 1)
        one = _fit(size, size.known, dim, AFTER)
        return added(scaled(one, fits), one, _moments(size.known, dim))
    # For every block; with the chosen C also for each pair of hidden folds, and again
    # with complete groups as folds.
    blocks, pairs = blocks_of(size, settings), len(Variants(folds)) - folds
    shared = turns_of(size, len(blocks) * folds) / (len(blocks) * folds)
    nodes, groups = _fitted(size)
    parts: list[Work] = []
    for width in blocks:
        fits = folds * (SEARCHED if select else 1) + pairs
        for rows, count in (nodes, fits), (groups, folds + pairs):
            parts.append(scaled(_fit(size, rows, width), shared * count))
            parts.append(_moments(rows, width))
    return added(*parts)


def _fitted(size: RunSize) -> tuple[int, int]:
    """Rows that xnq+ is fitted to with nodes, and with complete groups as folds."""
    return min(size.known, MAX_ROWS), min(size.known, held_rows.MAX_ROWS)


def _first_work(size: RunSize, settings: Settings) -> dict[str, float]:
    """Work to read rows, fit folds and write posteriors.

    xnq+ reads them again for the posteriors of each batch of neighbour sums.
    """
    plus, folds = method_of(settings.method).second_stage, settings.readout.folds
    nodes, _ = busiest(size, settings)
    values = float(nodes) * sum(blocks_of(size, settings)) / size.lanes
    reads = 2 + len(label_sums(size, settings))
    return added(
        {
            "read": reads * values * embedding_item(settings),
            "posterior": nodes / size.lanes,
        },
        _scores(size, settings, nodes / size.lanes, folds if plus else 1),
        _fits(size, settings),
    )


def _scores(size: RunSize, settings: Settings, rows: float, models: int) -> Work:
    """Work of scoring rows by first-stage models of every block."""
    blocks, logits = blocks_of(size, settings), models * size.classes
    together = -(-logits // PANEL) * PANEL
    share = rows * logits * len(blocks)
    return {"score": rows * sum(blocks) * together, "share": share}


def label_sums(size: RunSize, settings: Settings) -> tuple[NeighbourSums, ...]:
    """Sums of labels over neighbours by xnq+."""
    if not method_of(settings.method).second_stage:
        return ()
    folds = settings.readout.folds
    # With nodes and with complete groups as folds.
    width = folds * size.classes + len(Variants(folds)) * (size.classes - 1) + 2
    on_disk = supersteps_of(size, settings).states == "disk"
    at_once = fits_at_once(width, settings.reservoir.dim, on_disk)
    return (NeighbourSums(HOPS, at_once * width),) * (2 // at_once)


def _plus_work(size: RunSize, settings: Settings) -> dict[str, float]:
    """Additional work of xnq+: sums over neighbours, features, the second stage."""
    if not method_of(settings.method).second_stage:
        return {}
    blocks, folds = blocks_of(size, settings), settings.readout.folds
    nodes = busiest(size, settings)[0] / size.lanes
    features, variants = feature_count(size.classes), len(Variants(folds))
    width = len(blocks) * (size.classes - 1) + features
    parts: list[Work] = [sums_work(size, settings, label_sums(size, settings))]
    parts.append({"feature": nodes * features})
    # With nodes and with complete groups as folds, whose fits are done side by side.
    turns = turns_of(size, 2 * folds) / 2
    for rows in _fitted(size):
        second = added(_fit(size, rows, width), _moments(rows, width))
        parts += [
            {"feature": folds * rows / size.slots * features},
            _scores(size, settings, nodes + rows, variants),
            scaled(second, turns * SECOND_FITS),
            {"share": float(CONCLUDED * rows * size.classes)},
        ]
    if settings.plus.boosting == "auto" and size.known >= MIN_FOR_TREES:
        # Held-out losses seldom stop them early.
        trees = float(rounds_of(size.classes))
        trees *= 1 if size.classes == 2 else size.classes
        fitted = _fitted(size)[0] * (folds - 1.0) / folds
        jobs = len(KINDS) * folds
        for kind, shape in KINDS.items():
            columns = float(width + len(tree_columns(blocks, kind)))
            looks, values = shape.looks(columns)
            fold = {
                "tree": trees,
                "column": trees * looks,
                "bin": fitted * trees * values,
                "bins": columns,
                "place": fitted * columns,
            }
            parts.append(scaled(fold, folds * turns_of(size, jobs) / jobs))
            parts.append({"leaf": nodes * trees})
    return added(*parts)
