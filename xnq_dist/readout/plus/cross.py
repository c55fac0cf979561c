"""Cross-fitting of xnq+: first stages of every variant, label features, rows.

One task joins the labelled rows; label features count all labels, and everything else
stays in files, one per partition. `first_stage.Variants` lists the folds that are
hidden from each model.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32, slices
from xnq_dist.core.store import FileRecord
from xnq_dist.core.waiting import gather
from xnq_dist.readout.logistic import stacked, warn_of_unconverged
from xnq_dist.readout.plus.first_stage import (
    GRID,
    FirstStage,
    Variants,
    class_priors,
    columns_of,
    fit_block,
    node_folds,
)
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
from xnq_dist.readout.rows import located
from xnq_dist.readout.saved import flat
from xnq_dist.readout.stage import ReadoutWork
from xnq_dist.reservoir.context import join

if TYPE_CHECKING:
    from distributed import Future

__all__ = ["cross_fit_stages"]

BLOCK = 1 << 14
"""Rows scored at a time."""


def cross_fit_stages(
    work: ReadoutWork, index: Ints, x: Future[Any]
) -> tuple[Around, list[FileRecord], list[float], Future[Any]]:
    """Fit the first stages, and compute the second stage's rows.

    `x` are the embeddings of the fitted nodes `index`.

    Returns
    -------
    The files behind label features; label features, one file per partition; C of each
    block; `SecondRows`.
    """
    variants, where = Variants(work.settings.readout.folds), work.attempt
    blocks, classes, C = work.source.blocks, len(work.classes), work.settings.readout.C
    grid = GRID if C == "select" else (C,)
    fold_of = partial(node_folds, folds=variants.folds, seed=work.settings.seed)

    def known(rows: Ints) -> tuple[Ints32, Ints32, Floats]:
        """Labels, folds and weights of nodes."""
        return work.labels[rows], fold_of(rows), work.weights[rows]

    fixed = classes, grid, variants, work.threads
    tasks = [
        work.submit(fit_block, x, columns, *known(index), *fixed)
        for columns in columns_of(blocks)
    ]
    models = gather(work.client, tasks)
    warn_of_unconverged([model for block in models for model in block])
    coef, shifts = zip(*map(stacked, models), strict=True)
    joined = np.concatenate(coef, axis=2), np.stack(shifts, axis=1)
    first = FirstStage(blocks, *joined)
    record = where.write_arrays("models", **flat(vars(first)))
    labels = [
        where.write_arrays(
            f"labels-{number:05d}",
            labels=work.labels[rows],
            folds=fold_of(rows),
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
    return around, features, strengths, rows


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
