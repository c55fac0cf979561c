"""Posteriors of labelled nodes by models fitted without the labels of their group.

They measure the error of posteriors where no node is labelled: ordinary folds hide a
node's own label, but not those of its neighbours. Groups are those of the graph, C is
that of the readout, and trees are left out because the posteriors only measure errors.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np

from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.readout.plus.cross import Folding
from xnq_dist.readout.plus.second_stage import SecondRows, conclude
from xnq_dist.readout.regularisation import ChosenC
from xnq_dist.readout.work import ReadoutWork, sample_rows

__all__ = ["PRIOR_ROWS", "group_folding", "group_folds", "write_held"]

MAX_ROWS = 50_000
"""Maximum number of labelled rows: more barely improve an estimate of variance."""
PRIOR_ROWS = 2.0
"""Strength of the priors of the calibration, in rows."""


def group_folds(groups: Ints32, known: Bools, count: int) -> Ints32:
    """Assign groups to folds: those with most labels first, each to the emptiest fold.

    The assignment does not depend on classes.

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


def group_folding(work: ReadoutWork, fitted: Ints, groups: Ints32) -> list[Folding]:
    """Folds of complete groups, for models of some of the nodes `fitted`.

    Groups are by canonical index. Empty where fewer groups than folds have labels.
    """
    count = work.settings.readout.folds
    if len(np.unique(groups[fitted])) < count:
        return []
    folds = group_folds(groups, work.labels >= 0, count)
    rows = sample_rows(fitted, MAX_ROWS, work.settings.seed)
    attempt = replace(work.attempt, id=f"{work.attempt.id}-groups")
    return [Folding(lambda index: folds[groups[index]], rows, attempt)]


def write_held(
    rows: SecondRows,
    index: Ints,
    linear: ChosenC,
    priors: Floats,
    calibration: str,
    attempt: Attempt,
) -> FileRecord:
    """Write the canonical `index` of labelled nodes and their `posterior`; one task."""
    _, held, _ = conclude(rows, priors.shape[1], linear, {}, priors)
    fitted = fit_calibration(calibration, held, rows.labels, PRIOR_ROWS, rows.weights)
    posterior = fitted.apply(held)
    return attempt.write_arrays("held", index=index, posterior=posterior)
