"""Posteriors of labelled nodes by models that saw no label of their whole group.

They show how good posteriors are where no node is labelled: ordinary folds hide a
node's own label, but not its neighbours'. Groups are those of the graph itself, C is
that of the readout, and trees are left out: these posteriors only measure errors.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.config import Settings
from xnq_dist.core.progress import Progress
from xnq_dist.core.random_bits import mixed_bits
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.core.waiting import result
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.readout.plus.cross import CrossFit, Embedded
from xnq_dist.readout.plus.second_stage import SecondRows, conclude

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["PRIOR_ROWS", "group_folds", "held_by_group", "sample_rows"]

MOST_ROWS = 50_000
"""Maximum number of labelled rows: more hardly improve an estimate of variance."""
SAMPLE_PURPOSE = 403
"""Key of the random stream that chooses rows."""
PRIOR_ROWS = 2.0
"""Strength of the priors of the calibration, in rows."""


def sample_rows(index: NDArray[np.int64], most: int, seed: int) -> NDArray[np.int64]:
    """At most so many nodes, chosen by their canonical index alone, ascending."""
    key = np.random.SeedSequence(seed, spawn_key=(SAMPLE_PURPOSE,))
    order = np.argsort(mixed_bits(index, key), kind="stable")
    return np.sort(index[order[:most]])


def group_folds(
    groups: NDArray[np.int32], known: NDArray[np.bool_], count: int
) -> NDArray[np.int32]:
    """Fold of each group: groups with most labels first, each to the emptiest fold.

    Parameters
    ----------
    groups
        Group of every node, shape (N,).
    known
        Whether a node has a label; no class is looked at.

    Examples
    --------
    >>> groups = np.repeat([0, 1, 2, 3], [4, 3, 2, 1])
    >>> group_folds(groups, np.ones(10, bool), 2).tolist()
    [0, 1, 1, 0]
    """
    number = np.bincount(groups[known], minlength=int(groups.max(initial=0)) + 1)
    folds = (np.arange(len(number)) % count).astype(np.int32)
    emptiest = [(0, fold) for fold in range(count)]
    for group in np.argsort(-number, kind="stable")[: np.count_nonzero(number)]:
        labels, fold = emptiest[0]
        folds[group] = fold
        heapq.heapreplace(emptiest, (labels + int(number[group]), fold))
    return folds


def held_by_group(
    client: Client,
    source: Embedded,
    labels: NDArray[np.int32],
    n_classes: int,
    fitted: NDArray[np.int64],
    groups: NDArray[np.int32],
    strengths: Sequence[float],
    settings: Settings,
    attempt: Attempt,
    progress: Progress,
    weights: NDArray[np.float64] | None = None,
) -> FileRecord | None:
    """A file with the canonical `index` of labelled nodes and their `posterior`.

    Parameters
    ----------
    labels
        Class codes by canonical index, -1 for hidden labels, shape (N,).
    fitted
        Labelled nodes that the readout is fitted to, ascending.
    groups
        Group of every node, shape (N,).
    strengths
        C of each block of the embedding.
    weights
        Weights of the labels by canonical index, shape (N,); None: all equal.

    Returns
    -------
    FileRecord or None
        None where fewer groups than folds have labels.
    """
    count = settings.readout.folds
    known = labels >= 0
    if len(np.unique(groups[fitted])) < count:
        return None
    folds = group_folds(groups, known, count)
    own = replace(attempt, id=f"{attempt.id}-groups")
    rows = sample_rows(fitted, MOST_ROWS, settings.seed)
    crossed = CrossFit.of(
        client,
        source,
        labels,
        n_classes,
        rows,
        lambda index: folds[groups[index]],
        settings,
        own,
        progress,
        strengths,
        weights,
    )
    record: FileRecord = result(
        client,
        client.submit(
            _judge,
            crossed.rows,
            rows,
            crossed.priors[:count],
            settings.readout.calibration,
            attempt,
            pure=False,
        ),
    )
    crossed.delete(own)
    return record


def _judge(
    rows: SecondRows,
    index: NDArray[np.int64],
    priors: NDArray[np.float64],
    calibration: str,
    attempt: Attempt,
) -> FileRecord:
    _, held, _ = conclude(rows, priors.shape[1], {}, priors)
    known = held, rows.labels
    fitted = fit_calibration(calibration, *known, PRIOR_ROWS, rows.weights)
    posterior = fitted.apply(held)
    return attempt.write_arrays("held", index=index, posterior=posterior)
