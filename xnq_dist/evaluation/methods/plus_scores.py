"""Scores of xnq+ for every node, fitted to any labels of an embedded graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats32, Ints
from xnq_dist.core.waiting import gather
from xnq_dist.readout.plus.learning import fit
from xnq_dist.readout.plus.plus_model import partition_logits
from xnq_dist.readout.work import ReadoutWork

__all__ = ["PlusScores", "plus_scores"]


@dataclass(frozen=True, eq=False)
class PlusScores:
    """Uncalibrated scores of xnq+ for every node."""

    logits: Floats32
    """Log-probabilities of every node by canonical index, shape (N, C); those of
    labelled nodes out of fold, of others the means over all folds' models."""
    own: Floats32
    """The same by the models of each node's own fold."""
    by_group: tuple[Ints, Floats32] | None
    """Index and posteriors of labelled nodes by models fitted without labels of their
    group, shape (h,) and (h, C)."""


def plus_scores(work: ReadoutWork) -> PlusScores:
    """Score every node by xnq+ fitted to the labels, without changing any stage.

    Can be called repeatedly on one embedding with different labels. Errors are those of
    `fit`; files of the attempt can be deleted afterwards. The client holds N x C
    float32.
    """
    (readout, *files), _ = fit(work)
    where, count = work.attempt, len(work.parts)
    tasks = [
        work.submit(partition_logits, part, where, readout, features)
        for part, features in zip(work.parts, files[:count], strict=True)
    ]
    own, logits = np.empty((2, len(work.labels), len(work.classes)), np.float32)
    for index, *of_part in gather(work.client, tasks):
        own[index], logits[index] = of_part
    by_group = None
    for held in files[count:]:
        arrays = where.read_arrays(held)
        by_group = arrays["index"], arrays["posterior"]
    return PlusScores(logits, own, by_group)
