"""Cross-fitting of xnq+: first stages of every variant, label features, rows.

One task gathers the labelled rows; label features count all labels, and everything else
stays in files, one per partition. `variants` lists the folds that are hidden from each
model. Folds consist of single nodes for the readout itself, and of complete groups to
measure the error in groups without labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.graph.layout import node_index
from xnq_dist.readout.logistic import FitJob, LinearModel, warn_of_unconverged
from xnq_dist.readout.objective import MemoryRows
from xnq_dist.readout.plus.feature_files import spread_features
from xnq_dist.readout.plus.first_stage import GRID, FirstStage, block_rows, columns_of
from xnq_dist.readout.plus.label_features import VisibleLabels
from xnq_dist.readout.plus.second_stage import SecondRows, second_rows
from xnq_dist.readout.plus.variants import Variants, class_priors
from xnq_dist.readout.plus.work import PlusWork
from xnq_dist.readout.regularisation import Fitter, cross_fit, search_from_middle
from xnq_dist.readout.rows import KnownLabels, Labelled, Part, assemble, gather_used
from xnq_dist.readout.tasks import TaskFits, watch

if TYPE_CHECKING:
    from distributed import Future

    _Future = Future[Any]

__all__ = ["CrossFit", "FoldOf"]

BLOCK = 1 << 14
"""Rows scored at a time."""

FoldOf = Callable[[Ints], Ints32]
"""Fold of each node by its canonical index."""


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Labelled rows as inputs of the second stage, and the files behind them."""

    where: Stage
    parts: tuple[Part, ...]
    visible: VisibleLabels
    priors: Floats
    """Class shares of the labels visible to each variant, shape (V, C)."""
    models: FileRecord
    """`FirstStage` of all variants."""
    features: tuple[FileRecord, ...]
    """Label features, one file per partition."""
    strengths: tuple[float, ...]
    """C of each block."""
    rows: _Future
    """`SecondRows`."""

    @classmethod
    def of(
        cls,
        work: PlusWork,
        fitted: Ints,
        fold_of: FoldOf,
        strengths: Sequence[float] | None = None,
    ) -> CrossFit:
        """Fit the first stages, and compute the second stage's rows.

        Models are fitted to the nodes `fitted` (canonical indexes). `strengths` are C
        of each block; None: chosen by out-of-fold loss, or set by `readout.C`.
        """
        client, source, attempt = work.client, work.source, work.attempt
        labels, weights, n_classes = work.labels, work.weights, work.n_classes
        where, blocks, count = work.where, source.blocks, work.settings.readout.folds
        shown = np.flatnonzero(labels >= 0)
        visible = VisibleLabels(
            where,
            tuple(
                attempt.write_arrays(
                    f"labels-{number:05d}",
                    labels=labels[rows],
                    folds=fold_of(rows),
                    fitted=np.isin(rows, fitted),
                    **({} if weights is None else {"weights": weights[rows]}),
                )
                for number, rows in enumerate(node_index(source.graph, source.manifest))
            ),
            count,
            n_classes,
        )
        parts = tuple(
            Part(source.graph, node, source.embeddings, row, False, known=known)
            for node, row, known in zip(
                source.manifest.named("nodes-"),
                source.embedded.named("part-"),
                (KnownLabels(where, record) for record in visible.records),
                strict=True,
            )
        )
        pieces = client.map(gather_used, parts, pure=False)
        watch(client, pieces, "labelled rows", work.progress)
        rows = client.submit(assemble, pieces, pure=False)
        del pieces
        folds = client.submit(np.asarray, fold_of(fitted), pure=False)
        ready = [
            client.submit(_block_rows, rows, folds, n_classes, columns, pure=False)
            for columns in columns_of(blocks)
        ]
        fit_all = TaskFits(client, ready, "fits", work.progress)
        set_C = work.settings.readout.C
        grid = GRID if set_C == "select" else (set_C,)
        grids = [(C,) for C in strengths] if strengths else [grid] * len(blocks)
        searched = strengths is None
        fits, strengths = _first_stage(grids, count, fit_all)
        if searched:
            warn_of_unconverged(list(chain(*fits)))
        models = attempt.write_arrays(
            "models", **FirstStage.of(blocks, fits).to_arrays()
        )
        priors = class_priors(
            labels[shown],
            fold_of(shown),
            n_classes,
            visible.variants,
            None if weights is None else weights[shown],
        )
        features = spread_features(work, visible, parts, models, priors)
        fitted_features = [
            client.submit(_fitted_features, part, where, record, pure=False)
            for part, record in zip(parts, features, strict=True)
        ]
        inputs = rows, folds, fitted_features, where, models, count
        second = client.submit(_second_rows, *inputs, pure=False)
        return cls(where, parts, visible, priors, models, features, strengths, second)

    def delete(self, attempt: Attempt) -> None:
        """Delete all its files."""
        for record in (*self.visible.records, *self.features, self.models):
            attempt.folder.delete(record.name)


def _first_stage(
    grids: Sequence[Sequence[float]], folds: int, fit_all: Fitter
) -> tuple[list[list[LinearModel]], tuple[float, ...]]:
    """Fit the models of each block in every variant; return them and each block's C."""
    chosen = cross_fit(grids, folds, search_from_middle, fit_all)
    best = tuple(grid[one.place] for grid, one in zip(grids, chosen, strict=True))
    # No start from a model of one hidden fold: it was fitted to the other fold.
    pairs = Variants(folds).hidden[folds:]
    of_pairs = fit_all(
        [FitJob(pair, C, None, at) for at, C in enumerate(best) for pair in pairs]
    )
    models = [
        [fit.model for fit in (*one.fits, *of_pairs[at * len(pairs) :][: len(pairs)])]
        for at, one in enumerate(chosen)
    ]
    return models, best


def _block_rows(
    rows: Labelled, folds: Ints32, n_classes: int, columns: slice
) -> MemoryRows:
    return block_rows(rows.x, rows.labels, folds, n_classes, columns, rows.weights)


def _fitted_features(
    part: Part, where: Stage, record: FileRecord
) -> tuple[Ints, Floats32]:
    """Read canonical index and label features of a partition's fitted rows."""
    nodes = part.read_nodes()
    return nodes["index"].to_numpy()[part.used(nodes)], where.read_arrays(record)[
        "fitted"
    ]


def _second_rows(
    rows: Labelled,
    folds: Ints32,
    fitted_features: Sequence[tuple[Ints, Floats32]],
    where: Stage,
    models: FileRecord,
    count: int,
) -> SecondRows:
    """Compute the second stage's inputs for the fitted rows."""
    first = FirstStage.from_arrays(where.read_arrays(models))
    order = np.argsort(np.concatenate([index for index, _ in fitted_features]))
    features = np.concatenate([values for _, values in fitted_features])[order]
    places = Variants(count).places()[folds]
    inputs, out_of_fold = [], []
    for begin in range(0, len(rows.x), BLOCK):
        block = slice(begin, begin + BLOCK)
        scores = first.scores(rows.x[block])
        at = np.arange(len(scores))
        out_of_fold.append(scores[at, folds[block]])
        inputs.append(
            np.stack(
                [
                    second_rows(scores[at, places[block, fold]], features[block, fold])
                    for fold in range(count)
                ],
                axis=1,
            )
        )
    rest = rows.x, first.blocks, np.concatenate(out_of_fold), rows.weights
    return SecondRows(rows.labels, folds, np.concatenate(inputs), *rest)
