"""A fitted xnq+ readout: what is kept of it, and the scores of a partition's nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.readout.calibration import Calibration
from xnq_dist.readout.neighbours import FirstStage
from xnq_dist.readout.plus_features import read_features
from xnq_dist.readout.rows import Part, write_scored
from xnq_dist.readout.second_stage import SecondStage, second_stage_rows
from xnq_dist.store import Attempt, FileRecord, Stage

__all__ = ["SavedPlus", "partition_logits", "write_plus_posteriors"]


@dataclass(frozen=True, eq=False)
class SavedPlus:
    """What is kept of an xnq+ readout, and how it scores rows."""

    first: FirstStage
    second: SecondStage
    calibration: Calibration
    prior: NDArray[np.float64]
    """Class proportions of the labels, shape (C,)."""
    index: NDArray[np.int64]
    """Canonical index of the labelled nodes, ascending, shape (n,)."""
    folds: NDArray[np.int32]
    """Their folds, shape (n,)."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays for an npz file; `from_arrays` reads them."""
        return {
            "coef": self.first.coef,
            "intercept": self.first.intercept,
            "prior": self.prior,
            "index": self.index,
            "folds": self.folds,
            **self.second.to_arrays(),
            **self.calibration.to_arrays(),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> SavedPlus:
        """The readout whose `to_arrays` these are."""
        names = ("prior", "index", "folds")
        return cls(
            first=FirstStage(arrays["coef"], arrays["intercept"]),
            second=SecondStage.from_arrays(arrays),
            calibration=Calibration.from_arrays(arrays),
            **{name: arrays[name] for name in names},
        )

    def logits(
        self,
        x: NDArray[Any],
        features: NDArray[np.float32],
        described: NDArray[np.float32] | None,
        index: NDArray[np.int64],
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Log-probabilities of rows before calibration, and whether out of fold.

        A labelled row has what its own fold's models said of it; any other the mean
        over all folds' models, each with the label features that its fold sees.

        Parameters
        ----------
        x
            Embeddings, shape (m, d').
        features
            Label features, shape (m, K, F).
        described
            Node features and their means, shape (m, D); None where there are none.
        index
            Canonical indexes, shape (m,).
        """
        first = self.first.logits(x)
        count = first.shape[1]
        total = np.zeros((len(x), first.shape[2]))
        for fold in range(count):
            z = second_stage_rows(first[:, fold], features[:, fold])
            total += self.second.scores(z, fold, described)
        found = total / count
        at = np.minimum(np.searchsorted(self.index, index), len(self.index) - 1)
        held = self.index[at] == index
        found[held] = self.second.out_of_fold[at[held]]
        return found, held


def write_plus_posteriors(
    part: Part,
    number: int,
    readout: Stage,
    record: FileRecord,
    attempt: Attempt,
    classes: list[Any],
    features: FileRecord,
) -> FileRecord:
    """Posteriors of one partition's nodes, in its row order."""
    saved = SavedPlus.from_arrays(readout.read_arrays(record))
    seen, described = read_features(readout, features)

    def score(rows: slice, index: NDArray[np.int64], x: NDArray[Any]) -> Any:
        own = None if described is None else described[rows]
        logits, held = saved.logits(x, seen[rows], own, index)
        return saved.calibration.apply(logits), held

    return write_scored(part, number, attempt, classes, score)


def partition_logits(
    part: Part, readout: Stage, record: FileRecord, features: FileRecord
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Canonical index and uncalibrated log-probabilities of a partition's nodes."""
    saved = SavedPlus.from_arrays(readout.read_arrays(record))
    seen, described = read_features(readout, features)
    nodes = part.read_nodes()
    index = nodes["index"].to_numpy()
    found = np.empty((len(index), saved.first.coef.shape[1]), np.float32)
    for first, x in part.states(nodes["node_id"]):
        rows = slice(first, first + len(x))
        own = None if described is None else described[rows]
        found[rows] = saved.logits(x, seen[rows], own, index[rows])[0]
    return index, found
