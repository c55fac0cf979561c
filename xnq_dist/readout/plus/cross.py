"""Cross-fitting of xnq+: first stages of every variant, label features, rows.

One task joins the labelled rows; label features count all labels, and everything else
stays in files, one per partition. `variants` lists the folds that are hidden from each
model. Folds consist of single nodes for the readout itself, and of complete groups to
measure the error in groups without labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32, slices
from xnq_dist.core.random_bits import Purpose
from xnq_dist.core.store import Attempt, FileRecord
from xnq_dist.core.waiting import gather
from xnq_dist.readout.logistic import warn_of_unconverged
from xnq_dist.readout.plus.first_stage import FirstStage, columns_of, fit_block
from xnq_dist.readout.plus.label_features import (
    Around,
    feature_count,
    read_features,
    spread_features,
)
from xnq_dist.readout.plus.second_stage import (
    SecondRows,
    second_rows,
    used_by_trees,
)
from xnq_dist.readout.plus.variants import Variants, class_priors
from xnq_dist.readout.rows import located, sample_rows
from xnq_dist.readout.saved import flat
from xnq_dist.readout.work import ReadoutWork
from xnq_dist.reservoir.context import join

if TYPE_CHECKING:
    from distributed import Future

    _Future = Future[Any]

__all__ = ["HELD_ROWS", "CrossFit", "Folding", "group_folding", "group_folds"]

BLOCK = 1 << 14
"""Rows scored at a time."""

HELD_ROWS = 50_000
"""Maximum number of labelled rows with complete groups as folds: more barely improve an
estimate of variance."""


@dataclass(frozen=True, eq=False)
class Folding:
    """Folds of the nodes, and the nodes that models are fitted to."""

    fold_of: Callable[[Ints], Ints32]
    """Fold of each node by its canonical index."""
    fitted: Ints
    """Canonical indexes, ascending."""
    variants: Variants
    """With pairs of folds if a second stage is fitted."""
    attempt: Attempt
    """Where files are written."""


def group_folds(groups: Ints32, known: Bools, count: int) -> Ints32:
    """Assign groups to folds: those with most labels first, each to the emptiest fold.

    The assignment does not depend on classes.

    Examples
    --------
    >>> groups = np.repeat([0, 1, 2, 3], [4, 3, 2, 1])
    >>> group_folds(groups, np.ones(10, bool), 2).tolist()
    [0, 1, 1, 0]
    """
    number = np.bincount(groups[known], minlength=groups.max(initial=0) + 1)
    folds = (np.arange(len(number)) % count).astype(np.int32)
    labels = np.zeros(count)
    for group in np.argsort(-number, kind="stable")[: np.count_nonzero(number)]:
        folds[group] = np.argmin(labels)
        labels[folds[group]] += number[group]
    return folds


def group_folding(work: ReadoutWork, fitted: Ints) -> Folding | None:
    """Folds of complete groups, to score some of the nodes `fitted`.

    None where there are no groups, or fewer with labels than folds.
    """
    count, groups = work.settings.readout.folds, work.groups
    if groups is None or len(np.unique(groups[fitted])) < count:
        return None
    folds = group_folds(groups, work.labels >= 0, count)
    rows = sample_rows(fitted, HELD_ROWS, work.settings.seed, Purpose.FITTED_ROWS)
    attempt = replace(work.attempt, id=f"{work.attempt.id}-groups")
    variants = Variants(count, pairs=False)
    return Folding(lambda index: folds[groups[index]], rows, variants, attempt)


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Labelled rows as inputs of the second stage, and the files behind them."""

    around: Around
    features: list[FileRecord]
    """Label features, one file per partition."""
    strengths: list[float]
    """C of each block."""
    rows: _Future
    """`SecondRows`."""

    @classmethod
    def of(
        cls,
        work: ReadoutWork,
        folding: Folding,
        x: _Future,
        grids: Sequence[Sequence[float]],
    ) -> CrossFit:
        """Fit the first stages, and compute the second stage's rows.

        `x` are the embeddings of the fitted nodes; C of each block is chosen from its
        grid.
        """
        index, variants, where = folding.fitted, folding.variants, folding.attempt
        blocks, classes = work.source.blocks, len(work.classes)

        def known(rows: Ints) -> tuple[Ints32, Ints32, Floats]:
            """Labels, folds and weights of nodes."""
            return work.labels[rows], folding.fold_of(rows), work.weights[rows]

        tasks = [
            work.submit(
                *(fit_block, x, *known(index), classes, columns, grid),
                *(variants, work.threads),
            )
            for columns, grid in zip(columns_of(blocks), grids, strict=True)
        ]
        models = gather(work.client, tasks)
        if variants.pairs:
            warn_of_unconverged([model for block in models for model in block])
        first = FirstStage.of(blocks, models)
        record = where.write_arrays("models", **flat(vars(first)))
        labels = [
            where.write_arrays(
                f"labels-{number:05d}",
                labels=work.labels[rows],
                folds=folding.fold_of(rows),
                fitted=np.isin(rows, index),
            )
            for number, rows in enumerate(work.owned)
        ]
        shown = known(np.flatnonzero(work.labels >= 0))
        priors = class_priors(*shown, classes, variants)
        around = Around(work.parts, where, labels, record, priors, variants)
        features = spread_features(work, around)
        _, places = located(work.owned, index)
        rows = work.submit(_second_rows, x, *known(index), features, places, around)
        strengths = [block[0].strength for block in models]
        return cls(around, features, strengths, rows)


def _second_rows(
    x: NDArray[Any],
    labels: Ints32,
    folds: Ints32,
    weights: Floats,
    records: Sequence[FileRecord],
    at: Sequence[Ints],
    around: Around,
) -> SecondRows:
    """Compute the second stage's inputs for the fitted rows."""
    first, where = around.first_stage(), around.where
    fitted = [read_features(where, record, "fitted") for record in records]
    features = join(fitted, at)
    chosen = around.variants.of_rows(folds)
    (n, count), classes, blocks = chosen.shape, first.coef.shape[1], first.blocks
    width = len(blocks) * (classes - 1) + features.shape[2]
    z = np.empty((n, count, width), np.float32)
    out_of_fold = np.empty((n, len(blocks), classes))
    for block in slices(n, BLOCK):
        scores = first.scores(x[block])
        each = np.arange(len(scores))
        out_of_fold[block] = scores[each, folds[block]]
        z[block] = second_rows(scores[each[:, None], chosen[block]], features[block])
    embedded = x[:, used_by_trees(blocks)]
    provided = features.shape[2] - feature_count(classes)
    return SecondRows(
        labels, folds, z, embedded, blocks, out_of_fold, weights, provided
    )
