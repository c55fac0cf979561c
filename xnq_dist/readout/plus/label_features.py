"""Label features of xnq+: labels and posteriors around a node, in every variant.

Labels are counted by fold, and a variant's counts are a sum over its visible folds: so
features of a variant cannot depend on a hidden label, neither through a self-loop nor
through a walk that returns. Posteriors are those of a variant's first-stage models,
replaced by labels where these are visible; that of the first class follows from the
others and is left out. Both are sums over the in-neighbours, computed together by halo
exchange.

Every node has F float32 features (`feature_count`) with each of the K folds hidden;
labelled rows that models are fitted to have them with their own fold hidden, too. The
scores of another model (`columns.scores`) follow, the same in every variant. They are
in files, one per partition, so no process holds all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, slices
from xnq_dist.core.kernel import kernel
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.core.waiting import gather
from xnq_dist.readout.plus.first_stage import FirstStage, Variants
from xnq_dist.readout.rows import FEATURES, Part
from xnq_dist.readout.stage import ReadoutWork
from xnq_dist.reservoir.propagation import propagate

__all__ = [
    "HOPS",
    "Around",
    "feature_count",
    "label_width",
    "read_features",
    "spread_features",
]

HOPS = 2
"""Steps from a node within which labels are counted, and posteriors averaged."""
SMOOTHING = 10.0
"""Pseudo-counts of the prior of class shares among labelled neighbours."""
BLOCK = 1 << 15
"""Rows whose features are computed at a time."""


@dataclass(frozen=True, eq=False)
class Around:
    """Rounds of sums over neighbours of labels and of first-stage posteriors."""

    parts: Sequence[Part]
    where: Attempt
    """Where its files are."""
    labels: Sequence[FileRecord]
    """Class codes of each partition's nodes, -1 for unlabelled or hidden, their folds,
    and whether models are fitted to them."""
    models: FileRecord
    """The arrays of `FirstStage`, in every variant."""
    priors: Floats
    """Class shares of the labels visible to each variant, shape (V, C)."""
    variants: Variants

    def split(self, values: Floats32) -> tuple[Floats32, Floats32, Floats32]:
        """Views of the label counts by fold, of posteriors by variant, and of degrees.

        Shapes (n, K, C), (n, V, C - 1) and (n, 1).
        """
        rows, (variants, classes) = len(values), self.priors.shape
        folds = self.variants.folds
        counts, posteriors, degree = np.split(values, [folds * classes, -1], axis=1)
        return (
            counts.reshape(rows, folds, classes),
            posteriors.reshape(rows, variants, classes - 1),
            degree,
        )

    def first_stage(self) -> FirstStage:
        """Read the models."""
        arrays: dict[str, Any] = self.where.read_arrays(self.models)
        return FirstStage(**arrays)

    def start(self, number: int) -> Floats32:
        """Return one partition's values, shape (n_owned, width).

        Label indicators by fold and class; a label where it is visible, else the mean
        posterior; ones, of which the first round makes degrees.
        """
        known = self.where.read_arrays(self.labels[number])
        labels, folds = known["labels"], known["folds"]
        first, classes = self.first_stage(), self.priors.shape[1]
        width = label_width(self.variants, classes)
        out = np.empty((len(labels), width), np.float32)
        counts, posteriors, degree = self.split(out)

        def score(rows: slice, x: NDArray[Any]) -> None:
            posteriors[rows] = np.exp(first.scores(x)[..., 1:]).mean(axis=2)

        for _ in self.parts[number].over_states(score):
            pass
        shown = np.flatnonzero(labels >= 0)
        label = np.eye(classes, dtype=np.float32)[labels[shown]]
        counts[:], degree[:] = 0.0, 1.0
        counts[shown, folds[shown]] = label
        seen = self.variants.visible()[:, folds[shown]].T[:, :, None]
        posteriors[shown] = np.where(seen, label[:, None, 1:], posteriors[shown])
        return out

    def step(
        self, number: int, turn: int, values: Floats32, sums: Floats32
    ) -> Floats32:
        """Return the values after one round, in place of the sums.

        Label counts one hop further away; means of the neighbours' posteriors,
        weighted, with one pseudo-neighbour at the prior; degrees.
        """
        _, posteriors, degree = self.split(sums)
        if turn > 1:
            degree[:] = values[:, -1:]
        posteriors += self.priors[:, 1:].astype(np.float32)
        posteriors /= degree[:, :, None] + 1
        return sums

    def features(
        self, rounds: Sequence[Floats32], chosen: Ints, scores: Floats32
    ) -> Floats32:
        """Label features of rows in their `chosen` variants, (n, k), and scores."""
        count = feature_count(self.priors.shape[1])
        shape = *chosen.shape, count + scores.shape[1]
        found = np.empty(shape, np.float32)
        found[:, :, count:] = scores[:, None]
        # In blocks, because float64 intermediates take several times the memory.
        for block in slices(len(chosen), BLOCK):
            parts = [self.split(each[block]) for each in rounds]
            for at, variant in enumerate(chosen[block].T):
                found[block, at, :count] = self._of_variant(parts, variant)
        return found

    def _of_variant(
        self, rounds: Sequence[tuple[Floats32, Floats32, Floats32]], chosen: Ints
    ) -> Floats:
        """Label features of rows, each in its chosen variant, (n, `feature_count`).

        For each hop: the share of each class but the first among the labels that walks
        of that length reach, smoothed to the prior with `SMOOTHING` pseudo-labels, and
        log(1 + labels reached), with counts divided by the share of visible folds; the
        neighbours' mean probabilities at each hop; log(1 + degree). `rounds` are the
        parts of the values after each (`split`).
        """
        visible, prior = self.variants.visible()[chosen], self.priors[chosen]
        visible_share = visible.mean(axis=1)[:, None]
        columns = []
        for by_fold, _, _ in rounds:
            # Visible folds are added; subtracting hidden ones from a total would leave
            # a rounding residue of the node's own label, a leak that trees can exploit.
            counts = np.zeros(prior.shape)
            _add_visible(by_fold, visible, counts)
            counts /= visible_share
            reached = counts.sum(axis=1, keepdims=True)
            share = (counts + SMOOTHING * prior) / (reached + SMOOTHING)
            columns += [share[:, 1:], np.log1p(reached)]
        each = np.arange(len(chosen))
        columns += [posteriors[each, chosen] for _, posteriors, _ in rounds]
        columns.append(np.log1p(rounds[0][2].astype(np.float64)))
        return np.concatenate(columns, axis=1)


@kernel
def _add_visible(by_fold: Floats32, visible: Bools, counts: Floats) -> None:
    """Add the visible folds of each row, shape (n, C)."""
    for row in range(len(counts)):
        for fold in np.flatnonzero(visible[row]):
            for c in range(counts.shape[1]):
                counts[row, c] += by_fold[row, fold, c]


def spread_features(work: ReadoutWork, around: Around) -> list[FileRecord]:
    """Compute and write label features of every partition from neighbours' sums."""
    rounds = propagate(
        work.client,
        work.source.manifest,
        around.start,
        around.step,
        range(1, HOPS + 1),
        around.where,
        "labels around",
        backend=work.settings.backend,
        progress=work.progress,
    )
    tasks = [
        work.submit(_write_features, around, number, records)
        for number, records in enumerate(zip(*rounds.values(), strict=True))
    ]
    work.watch("label features", tasks)
    for records in rounds.values():
        for record in records:
            around.where.delete(record.name)
    return gather(work.client, tasks)


def _write_features(
    around: Around, number: int, rounds: Sequence[FileRecord]
) -> FileRecord:
    """Write features of fitted rows, and of all rows."""
    values = [around.where.read_arrays(record)["values"] for record in rounds]
    known = around.where.read_arrays(around.labels[number])
    scores, rows = around.parts[number].read_scores(len(values[0])), known["fitted"]
    chosen = around.variants.of_rows(known["folds"][rows])
    fitted = around.features([each[rows] for each in values], chosen, scores[rows])
    every = np.tile(np.arange(around.variants.folds), (len(scores), 1))
    each = around.features(values, every, scores)
    name = f"{FEATURES}{number:05d}"
    return around.where.write_arrays(name, fitted=fitted, each=each)


def read_features(where: Stage, record: FileRecord, name: str) -> Floats32:
    """Read label features of a partition's rows, (n, K, F).

    `name`: ``fitted``, of the fitted rows; ``each``, of all with each fold hidden.
    """
    return next(where.row_blocks(record, name, max(1, record.rows)))


def label_width(variants: Variants, classes: int) -> int:
    """Columns of sums over neighbours: label counts, posteriors, and the degree."""
    return variants.folds * classes + len(variants) * (classes - 1) + 1


def feature_count(n_classes: int) -> int:
    """Number of features: shares, count, mean posteriors for each hop; the degree."""
    return HOPS * (2 * (n_classes - 1) + 1) + 1
