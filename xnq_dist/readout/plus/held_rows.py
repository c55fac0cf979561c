"""Posteriors of labelled nodes by models that saw no label of their whole group.

They show how good posteriors are where no node is labelled: ordinary folds hide a
node's own label, but not its neighbours'. Groups are those of the graph itself, C is
that of the readout, and trees are left out: these posteriors only measure errors.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32
from xnq_dist.core.random_bits import Purpose, mixed_bits, stream_key
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.core.waiting import result
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.readout.plus.cross import CrossFit
from xnq_dist.readout.plus.second_stage import SecondRows, conclude
from xnq_dist.readout.plus.work import PlusWork

__all__ = ["PRIOR_ROWS", "group_folds", "held_by_group", "sample_rows"]

MOST_ROWS = 50_000
"""Maximum number of labelled rows: more hardly improve an estimate of variance."""
PRIOR_ROWS = 2.0
"""Strength of the priors of the calibration, in rows."""


def sample_rows(index: Ints, most: int, seed: int) -> Ints:
    """At most so many nodes, chosen by their canonical index alone, ascending."""
    key = stream_key(seed, Purpose.FITTED_ROWS)
    order = np.argsort(mixed_bits(index, key), kind="stable")
    return np.sort(index[order[:most]])


def group_folds(groups: Ints32, known: Bools, count: int) -> Ints32:
    """Fold of each group: groups with most labels first, each to the emptiest fold.

    No class is looked at.


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
    work: PlusWork, fitted: Ints, groups: Ints32, strengths: Sequence[float]
) -> FileRecord | None:
    """A file with the canonical `index` of labelled nodes and their `posterior`.

    Labels, groups and weights are by canonical index, -1 for hidden labels; `fitted`
    are the nodes that the readout is fitted to, `strengths` C of each block. None where
    fewer groups than folds have labels.
    """
    count = work.settings.readout.folds
    if len(np.unique(groups[fitted])) < count:
        return None
    folds = group_folds(groups, work.labels >= 0, count)
    own = replace(work, attempt=replace(work.attempt, id=f"{work.attempt.id}-groups"))
    rows = sample_rows(fitted, MOST_ROWS, work.settings.seed)
    crossed = CrossFit.of(own, rows, lambda index: folds[groups[index]], strengths)
    judged = work.client.submit(
        _judge,
        crossed.rows,
        rows,
        crossed.priors[:count],
        work.settings.readout.calibration,
        work.attempt,
        pure=False,
    )
    record: FileRecord = result(work.client, judged)
    crossed.delete(own.attempt)
    return record


def _judge(
    rows: SecondRows, index: Ints, priors: Floats, calibration: str, attempt: Attempt
) -> FileRecord:
    _, held, _ = conclude(rows, priors.shape[1], {}, priors)
    known = held, rows.labels
    fitted = fit_calibration(calibration, *known, PRIOR_ROWS, rows.weights)
    posterior = fitted.apply(held)
    return attempt.write_arrays("held", index=index, posterior=posterior)
