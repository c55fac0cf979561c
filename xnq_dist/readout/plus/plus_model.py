"""A fitted xnq+ readout, and its scores of a partition's nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Floats32, Ints
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.readout.calibration import Calibration
from xnq_dist.readout.logistic import log_shares
from xnq_dist.readout.plus.first_stage import FirstStage, node_folds
from xnq_dist.readout.plus.label_features import read_features
from xnq_dist.readout.plus.second_stage import (
    SecondStage,
    second_rows,
    used_by_trees,
)
from xnq_dist.readout.rows import OWN, Part, write_scored
from xnq_dist.readout.saved import nested

__all__ = ["SavedPlus", "partition_logits", "write_plus_posteriors"]


@dataclass(frozen=True, eq=False)
class SavedPlus:
    """A fitted xnq+ readout, as needed to score rows."""

    first: FirstStage
    """First stages of the K variants that hide one fold."""
    second: SecondStage
    calibration: Calibration
    index: Ints
    """Canonical index of the labelled nodes, ascending, shape (n,)."""
    seed: int
    """Seed of the folds."""

    @classmethod
    def read(cls, readout: Stage, record: FileRecord) -> SavedPlus:
        """Read from a file of its arrays (`saved.flat`)."""
        found = nested(readout.read_arrays(record))
        return cls(
            FirstStage(**found["first"]),
            SecondStage(**found["second"]),
            Calibration(**found["calibration"]),
            found["index"],
            int(found["seed"]),
        )

    def logits(
        self, x: NDArray[Any], features: Floats32, index: Ints
    ) -> tuple[Floats, Floats]:
        """Return log-probabilities of rows before calibration, shape (m, C) each.

        The first are by the models without the row's fold; its label features are
        without that fold, too. The second are the means over the models of all folds,
        each with the label features without its fold, of unlabelled rows, and the first
        of labelled ones, whose own label other folds' models were fitted to.
        """
        scores = self.first.scores(x)
        count = scores.shape[1]
        folds = node_folds(index, count, self.seed)
        # np.isin would sort all labelled nodes for each block of rows.
        at, after = (np.searchsorted(self.index, index, s) for s in ("left", "right"))
        known = np.where(at == after, -1, folds)
        # Unlabelled rows first, then those of each fold: one copy for all folds.
        order = np.argsort(known, kind="stable")
        ends = np.searchsorted(known[order], np.arange(count + 1)).tolist()
        embedded = x[np.ix_(order, used_by_trees(self.second.blocks))]
        scores, features = scores[order], features[order]

        def logs(fold: int, first: int, last: int) -> Floats:
            of_rows = scores[first:last, fold]
            z = second_rows(of_rows, features[first:last, fold])
            return self.second.scores(of_rows, z, embedded[first:last], fold)

        each = np.stack([logs(fold, 0, ends[0]) for fold in range(count)])
        labelled = [logs(fold, *ends[fold : fold + 2]) for fold in range(count)]
        by_own = each[folds[order[: ends[0]]], np.arange(ends[0])]
        own, mean = np.empty((2, len(x), scores.shape[3]))
        own[order] = np.concatenate([by_own, *labelled])
        mean[order] = np.concatenate([log_shares(each.sum(axis=0) / count), *labelled])
        return own, mean


def write_plus_posteriors(
    part: Part,
    number: int,
    readout: Stage,
    record: FileRecord,
    attempt: Attempt,
    classes: list[Any],
    features: FileRecord,
) -> list[FileRecord]:
    """Write the posteriors of one partition's nodes, in its row order.

    A second file has those by the models of each node's own fold, for what compares
    labelled with unlabelled nodes.
    """
    saved = SavedPlus.read(readout, record)
    values = read_features(readout, features, "each")
    by_own = np.empty((len(values), len(classes)), np.float32)

    def score(rows: slice, index: Ints, x: NDArray[Any]) -> Floats32:
        own, logits = saved.logits(x, values[rows], index)
        by_own[rows] = saved.calibration.apply(own)
        return saved.calibration.apply(logits)

    written = write_scored(part, number, attempt, classes, score)
    return [written, attempt.write_arrays(f"{OWN}{number:05d}", posterior=by_own)]


def partition_logits(
    part: Part, readout: Stage, record: FileRecord, features: FileRecord
) -> tuple[Ints, Floats32, Floats32]:
    """Canonical index and uncalibrated log-probabilities of a partition's nodes.

    The first are by the models of the node's own fold; see `SavedPlus.logits`.
    """
    saved = SavedPlus.read(readout, record)
    values = read_features(readout, features, "each")
    _, index = part.read_nodes()
    classes = saved.second.priors.shape[1]
    own, logits = np.empty((2, len(index), classes), np.float32)
    scored = part.over_states(lambda r, x: saved.logits(x, values[r], index[r]))
    for rows, of_rows in scored:
        own[rows], logits[rows] = of_rows
    return index, own, logits
