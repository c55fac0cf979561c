"""A fitted xnq+ readout, and its scores of a partition's nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.readout.calibration import Calibration
from xnq_dist.readout.plus.first_stage import FirstStage
from xnq_dist.readout.plus.label_features import read_each
from xnq_dist.readout.plus.second_stage import (
    SecondStage,
    second_rows,
    used_by_trees,
)
from xnq_dist.readout.plus.variants import node_folds
from xnq_dist.readout.rows import OWN, Part, write_scored

__all__ = ["SavedPlus", "partition_logits", "write_plus_posteriors"]


@dataclass(frozen=True, eq=False)
class SavedPlus:
    """A fitted xnq+ readout, as needed to score rows."""

    first: FirstStage
    """First stages of the K variants that hide one fold."""
    second: SecondStage
    calibration: Calibration
    prior: Floats
    """Class proportions of the labels, shape (C,)."""
    index: Ints
    """Canonical index of the labelled nodes, ascending, shape (n,)."""
    seed: int
    """Seed of the folds."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return arrays for a file; `from_arrays` reads them."""
        return {
            "prior": self.prior,
            "index": self.index,
            "seed": np.array(self.seed),
            **self.first.to_arrays(),
            **self.second.to_arrays(),
            **self.calibration.to_arrays(),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> SavedPlus:
        """Construct from the result of `to_arrays`."""
        return cls(
            first=FirstStage.from_arrays(arrays),
            second=SecondStage.from_arrays(arrays),
            calibration=Calibration.from_arrays(arrays),
            prior=arrays["prior"],
            index=arrays["index"],
            seed=int(arrays["seed"]),
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
        unlabelled = ~self.labelled(index)
        columns = used_by_trees(self.second.blocks)
        own = np.empty((len(x), scores.shape[3]))
        mean = np.zeros_like(own)
        for fold in range(count):
            in_fold = folds == fold
            rows = np.flatnonzero(in_fold | unlabelled)
            first = scores[rows, fold]
            z = second_rows(first, features[rows, fold])
            embedded = x[rows[:, None], columns]
            logs = self.second.scores(first, z, embedded, fold)
            own[in_fold] = logs[in_fold[rows]]
            mean[rows] += logs
        mean = log_softmax(mean / count, axis=1)
        return own, np.where(unlabelled[:, None], mean, own)

    def labelled(self, index: Ints) -> Bools:
        """Return whether nodes are labelled."""
        at = np.minimum(np.searchsorted(self.index, index), len(self.index) - 1)
        return np.asarray(self.index[at] == index, bool)


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
    saved = SavedPlus.from_arrays(readout.read_arrays(record))
    values = read_each(readout, features)
    by_own = np.empty((len(values), len(classes)), np.float32)

    def score(rows: slice, index: Ints, x: NDArray[Any]) -> Any:
        own, logits = saved.logits(x, values[rows], index)
        by_own[rows] = saved.calibration.apply(own)
        return saved.calibration.apply(logits), saved.labelled(index)

    written = write_scored(part, number, attempt, classes, score, saved.index)
    return [written, attempt.write_arrays(f"{OWN}{number:05d}", posterior=by_own)]


def partition_logits(
    part: Part, readout: Stage, record: FileRecord, features: FileRecord
) -> tuple[Ints, Floats32, Floats32]:
    """Canonical index and uncalibrated log-probabilities of a partition's nodes.

    The first are by the models of the node's own fold; see `SavedPlus.logits`.
    """
    saved = SavedPlus.from_arrays(readout.read_arrays(record))
    values = read_each(readout, features)
    nodes = part.read_nodes()
    index = nodes["index"].to_numpy()
    own, logits = np.empty((2, len(index), len(saved.prior)), np.float32)
    ids = nodes["node_id"]
    scored = part.over_states(ids, lambda r, x: saved.logits(x, values[r], index[r]))
    for rows, of_rows in scored:
        own[rows], logits[rows] = of_rows
    return index, own, logits
