"""Cross-fitting of xnq+: first stages of every variant, label features, rows.

One task gathers the labelled rows; label features count all labels, and everything else
stays in files, one per partition. `variants` lists the folds that are hidden from each
model. Folds consist of single nodes for the readout itself, and of complete groups to
measure the error in groups without labels; both share the passes over the embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.arrays import Floats32, Ints, Ints32
from xnq_dist.core.cluster import threads_each
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.graph.layout import node_index
from xnq_dist.readout.logistic import FitJob, LinearModel, warn_of_unconverged
from xnq_dist.readout.objective import MemoryRows
from xnq_dist.readout.plus.feature_files import spread_features
from xnq_dist.readout.plus.first_stage import GRID, FirstStage, block_rows, columns_of
from xnq_dist.readout.plus.label_features import VisibleLabels
from xnq_dist.readout.plus.neighbours import FirstFit
from xnq_dist.readout.plus.second_stage import (
    SecondRows,
    second_rows,
    used_by_trees,
)
from xnq_dist.readout.plus.variants import Variants, class_priors
from xnq_dist.readout.plus.work import PlusWork
from xnq_dist.readout.regularisation import Fitter, cross_fit, search_from_middle
from xnq_dist.readout.rows import KnownLabels, Labelled, Part, assemble, gather_used
from xnq_dist.readout.tasks import TaskFits, watch

if TYPE_CHECKING:
    from distributed import Future

    _Future = Future[Any]

__all__ = ["CrossFit", "FoldOf", "Folding", "cross_fits"]

BLOCK = 1 << 14
"""Rows scored at a time."""

FoldOf = Callable[[Ints], Ints32]
"""Fold of each node by its canonical index."""


@dataclass(frozen=True, eq=False)
class Folding:
    """Folds of the nodes, and the nodes that models are fitted to."""

    fold_of: FoldOf
    fitted: Ints
    """Canonical indexes, ascending."""
    attempt: Attempt
    """Where files are written."""


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Labelled rows as inputs of the second stage, and the files behind them."""

    first: FirstFit
    parts: tuple[Part, ...]
    features: tuple[FileRecord, ...]
    """Label features, one file per partition."""
    strengths: tuple[float, ...]
    """C of each block."""
    rows: _Future
    """`SecondRows`."""

    def delete(self) -> None:
        """Delete all its files."""
        first = self.first
        for record in (*first.visible.records, *self.features, first.models):
            first.attempt.folder.delete(record.name)


def cross_fits(work: PlusWork, foldings: Sequence[Folding]) -> list[CrossFit]:
    """Fit the first stages for each folding, and compute the second stage's rows.

    C of each block is set by `readout.C`, or chosen by out-of-fold loss in the folds of
    the first folding; models of the others are fitted to some of its nodes.
    """
    client, blocks, n_classes = work.client, work.source.blocks, work.n_classes
    visible = [_visible_labels(work, each) for each in foldings]
    parts = [_parts(work, each) for each in visible]
    pieces = client.map(gather_used, parts[0], pure=False)
    watch(client, pieces, "labelled rows", work.progress)
    rows = [client.submit(assemble, pieces, pure=False)]
    del pieces
    for each in foldings[1:]:
        rows.append(client.submit(_selected, rows[0], each.fitted, pure=False))
    folds = [
        client.submit(np.asarray, each.fold_of(each.fitted), pure=False)
        for each in foldings
    ]
    ready = [
        client.submit(_block_rows, *inputs, n_classes, columns, pure=False)
        for inputs in zip(rows, folds, strict=True)
        for columns in columns_of(blocks)
    ]
    fit_all = TaskFits(client, ready, "fits", work.progress)
    fits, strengths = _first_stages(work, len(foldings), fit_all)
    del ready, fit_all
    first_fits = [
        _written(work, folding, labels, fits[at * len(blocks) :][: len(blocks)])
        for at, (folding, labels) in enumerate(zip(foldings, visible, strict=True))
    ]
    features = spread_features(work, first_fits, parts[0])
    crossed = []
    for at, first in enumerate(first_fits):
        of_parts = [
            client.submit(_fitted_features, part, work.where, record, pure=False)
            for part, record in zip(parts[at], features[at], strict=True)
        ]
        inputs = rows[at], folds[at], of_parts, work.where, first.models
        count = work.settings.readout.folds
        second = client.submit(_second_rows, *inputs, count, pure=False)
        crossed.append(CrossFit(first, parts[at], features[at], strengths, second))
    return crossed


def _visible_labels(work: PlusWork, folding: Folding) -> VisibleLabels:
    """Write the labels and folds of every partition's nodes."""
    source, labels, weights = work.source, work.labels, work.weights
    records = tuple(
        folding.attempt.write_arrays(
            f"labels-{number:05d}",
            labels=labels[rows],
            folds=folding.fold_of(rows),
            fitted=np.isin(rows, folding.fitted),
            **({} if weights is None else {"weights": weights[rows]}),
        )
        for number, rows in enumerate(node_index(source.graph, source.manifest))
    )
    count = work.settings.readout.folds
    return VisibleLabels(work.where, records, count, work.n_classes)


def _parts(work: PlusWork, visible: VisibleLabels) -> tuple[Part, ...]:
    source, count = work.source, len(visible.records)
    threads = threads_each(work.client, count)
    return tuple(
        Part(
            *(source.graph, node, source.embeddings, row, False),
            known=KnownLabels(work.where, record),
            threads=threads,
        )
        for node, row, record in zip(
            source.manifest.named("nodes-"),
            source.embedded.named("part-"),
            visible.records,
            strict=True,
        )
    )


def _first_stages(
    work: PlusWork, foldings: int, fit_all: Fitter
) -> tuple[list[list[LinearModel]], tuple[float, ...]]:
    """Fit the models of each folding and block in every variant; choose C by block."""
    blocks, readout = len(work.source.blocks), work.settings.readout
    grid = GRID if readout.C == "select" else (readout.C,)
    chosen = cross_fit([grid] * blocks, readout.folds, search_from_middle, fit_all)
    strengths = tuple(grid[one.place] for one in chosen)
    hidden = Variants(readout.folds).hidden
    # No start from a model of one hidden fold: it was fitted to the other fold.
    jobs = [
        FitJob(folds, strengths[at % blocks], None, at)
        for at in range(blocks * foldings)
        for folds in (hidden[readout.folds :] if at < blocks else hidden)
    ]
    made = iter(fit_all(jobs))
    before = [one.fits for one in chosen] + [()] * (blocks * (foldings - 1))
    models = [
        [fit.model for fit in (*some, *islice(made, len(hidden) - len(some)))]
        for some in before
    ]
    warn_of_unconverged(list(chain(*models[:blocks])))
    return models, strengths


def _written(
    work: PlusWork,
    folding: Folding,
    visible: VisibleLabels,
    models: Sequence[Sequence[LinearModel]],
) -> FirstFit:
    """Write the models of one folding."""
    shown, weights = np.flatnonzero(work.labels >= 0), work.weights
    arrays = FirstStage.of(work.source.blocks, models).to_arrays()
    priors = class_priors(
        work.labels[shown],
        folding.fold_of(shown),
        work.n_classes,
        visible.variants,
        None if weights is None else weights[shown],
    )
    record = folding.attempt.write_arrays("models", **arrays)
    return FirstFit(visible, record, priors, folding.attempt)


def _selected(rows: Labelled, index: Ints) -> Labelled:
    """Select labelled rows by canonical index, ascending."""
    if len(index) == len(rows.index):
        return rows
    at, weights = np.searchsorted(rows.index, index), rows.weights
    return Labelled(
        index,
        rows.labels[at],
        None,
        rows.x[at],
        None if weights is None else weights[at],
    )


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
    n, classes, blocks = len(rows.x), first.coef.shape[1], first.blocks
    z = np.empty((n, count, len(blocks) * (classes - 1) + features.shape[2]))
    out_of_fold = np.empty((n, len(blocks), classes))
    for begin in range(0, n, BLOCK):
        block = slice(begin, begin + BLOCK)
        scores = first.scores(rows.x[block])
        at = np.arange(len(scores))
        out_of_fold[block] = scores[at, folds[block]]
        for fold in range(count):
            of_fold = scores[at, places[block, fold]]
            z[block, fold] = second_rows(of_fold, features[block, fold])
    x = rows.x[:, used_by_trees(blocks)]
    return SecondRows(rows.labels, folds, z, x, blocks, out_of_fold, rows.weights)
