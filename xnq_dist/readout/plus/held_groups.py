"""Posteriors of labelled nodes by models that no label of their group was fitted to.

They measure the error of posteriors in groups without labels. Their models are first
stages alone, with complete groups as folds: most neighbours of a node are in its group,
so hardly a label is left around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.core.waiting import result
from xnq_dist.readout.calibration import PRIOR_ROWS, fit_calibration
from xnq_dist.readout.logistic import log_shares
from xnq_dist.readout.plus.first_stage import block_rows, columns_of
from xnq_dist.readout.plus.second_stage import pool_weights, pooled
from xnq_dist.readout.regularisation import climb, cross_fit
from xnq_dist.readout.work import ReadoutWork

if TYPE_CHECKING:
    from distributed import Future

__all__ = ["group_folds", "held_groups"]


def held_groups(
    work: ReadoutWork, index: Ints, x: Future[Any], strengths: Sequence[float]
) -> list[FileRecord]:
    """Write the posteriors of the fitted nodes `index`, whose embeddings are `x`.

    `strengths` has C of each block. Nothing is written where there are no groups, or
    fewer with labels than folds.
    """
    count, groups = work.settings.readout.folds, work.groups
    if groups is None or len(np.unique(groups[index])) < count:
        return []
    folds = group_folds(groups[index], count)
    known = index, work.labels[index], folds, work.weights[index], len(work.classes)
    blocks, kind = work.source.blocks, work.settings.readout.calibration
    options = blocks, strengths, kind, work.threads, work.attempt
    return [result(work.client, work.submit(_write_held, x, *known, *options))]


def group_folds(groups: Ints32, count: int) -> Ints32:
    """Fold of each row by its group: the largest first, each to the emptiest fold.

    Examples
    --------
    >>> group_folds(np.repeat([0, 1, 2, 3], [4, 3, 2, 1]), 2).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1, 1, 0]
    """
    sizes = np.bincount(groups)
    folds, rows = np.zeros(len(sizes), np.int32), np.zeros(count)
    for group in np.argsort(-sizes, kind="stable"):
        folds[group] = np.argmin(rows)
        rows[folds[group]] += sizes[group]
    return folds[groups]


def _write_held(
    x: NDArray[Any],
    index: Ints,
    labels: Ints32,
    folds: Ints32,
    weights: Floats,
    n_classes: int,
    blocks: Sequence[int],
    strengths: Sequence[float],
    calibration: str,
    threads: int,
    attempt: Attempt,
) -> FileRecord:
    """Write the canonical `index` of labelled nodes and their `posterior`; one task.

    Their embeddings are `x`, their folds complete groups.
    """
    parts = np.empty((len(blocks), len(index), n_classes))
    for at, columns in enumerate(columns_of(blocks)):
        rows = block_rows(x[:, columns], labels, folds, weights, n_classes)
        each = [rows] * len(rows.moments.counts)
        _, logits = cross_fit(each, (strengths[at],), climb, threads)
        parts[at] = log_shares(logits)
    held = pooled(parts, pool_weights(parts, labels, weights))
    fitted = fit_calibration(calibration, held, labels, PRIOR_ROWS, weights)
    return attempt.write_arrays("held", index=index, posterior=fitted.apply(held))
