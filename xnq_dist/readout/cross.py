"""Cross-fitting of xnq+: first stages of every variant, label features, rows.

The labelled rows are gathered in one task; label features count all labels, and
everything else stays in files, one a partition. `variants` lists the folds that each
model hides. Folds consist of single nodes for the readout itself, and of whole groups
to measure what a group without labels adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.config import Settings
from xnq_dist.graph.layout import node_index
from xnq_dist.progress import Progress
from xnq_dist.readout.first_stage import (
    GRID,
    FirstStage,
    block_rows,
    columns_of,
)
from xnq_dist.readout.label_features import VisibleLabels
from xnq_dist.readout.logistic import Job, LinearModel
from xnq_dist.readout.objective import MemoryRows
from xnq_dist.readout.plus_features import read_fitted, spread_features
from xnq_dist.readout.rows import KnownLabels, Labelled, Part, assemble, gather_used
from xnq_dist.readout.search import cross_fit, search_from_middle
from xnq_dist.readout.second_stage import KINDS, SecondRows, fit_kind, second_rows
from xnq_dist.readout.tasks import TaskFits, in_window, watch
from xnq_dist.readout.variants import Variants, class_priors
from xnq_dist.store import Attempt, FileRecord, Manifest, Stage

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

__all__ = ["CrossFit", "Embedded", "FoldOf", "own_scores"]

BLOCK = 1 << 14
"""Rows scored at a time."""

FoldOf = Callable[[NDArray[np.int64]], NDArray[np.int32]]
"""Fold of each node by its canonical index."""


@dataclass(frozen=True, eq=False)
class Embedded:
    """A graph and its embedding."""

    graph: Stage
    manifest: Manifest
    embeddings: Stage
    embedded: Manifest

    @property
    def blocks(self) -> tuple[int, ...]:
        """Columns of each block."""
        return tuple(self.embedded.facts["blocks"])


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Labelled rows as the second stage sees them, and what made them."""

    where: Stage
    parts: tuple[Part, ...]
    visible: VisibleLabels
    priors: NDArray[np.float64]
    """Class shares that each variant knows, shape (V, C)."""
    models: FileRecord
    """`FirstStage` of all variants."""
    features: tuple[FileRecord, ...]
    """Label features, one file a partition."""
    strengths: tuple[float, ...]
    """C of each block."""
    rows: _Future
    """`SecondRows`."""
    work: _Work

    @classmethod
    def of(
        cls,
        client: Client,
        source: Embedded,
        labels: NDArray[np.int32],
        n_classes: int,
        fitted: NDArray[np.int64],
        fold_of: FoldOf,
        settings: Settings,
        attempt: Attempt,
        progress: Progress,
        strengths: Sequence[float] | None = None,
        weights: NDArray[np.float64] | None = None,
    ) -> CrossFit:
        """Fit the first stages, and describe the rows.

        Parameters
        ----------
        labels
            Class codes by canonical index, -1 for hidden labels, shape (N,).
        fitted
            Labelled nodes that models are fitted to, ascending.
        strengths
            C of each block; None: chosen by out-of-fold loss, or as `readout.C` says.
        weights
            Weights of the labels by canonical index, shape (N,); None: all equal.
        """
        where = Stage(attempt.folder, "readout")
        blocks, count = source.blocks, settings.readout.folds
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
        watch(client, pieces, "labelled rows", progress)
        rows = client.submit(assemble, pieces, pure=False)
        del pieces
        work = _Work(
            client,
            rows,
            client.submit(np.asarray, fold_of(fitted), pure=False),
            blocks,
            n_classes,
            settings,
            len(fitted),
            progress,
        )
        found, chosen = work.first_stage(strengths)
        models = attempt.write_arrays(
            "models", **FirstStage.of(blocks, found).to_arrays()
        )
        priors = class_priors(
            labels[shown],
            fold_of(shown),
            n_classes,
            visible.variants,
            None if weights is None else weights[shown],
        )
        features = spread_features(
            client,
            source.graph,
            source.manifest,
            visible,
            parts,
            models,
            priors,
            settings,
            attempt,
            progress,
        )
        seen = [
            client.submit(_fitted_features, part, where, record, pure=False)
            for part, record in zip(parts, features, strict=True)
        ]
        both = client.submit(
            _second_rows, rows, work.folds, seen, where, models, count, pure=False
        )
        return cls(
            where, parts, visible, priors, models, features, tuple(chosen), both, work
        )

    def delete(self, attempt: Attempt) -> None:
        """Remove every file of it."""
        for record in (*self.visible.records, *self.features, self.models):
            attempt.folder.delete(record.name)


@dataclass(frozen=True, eq=False)
class _Work:
    """The fits, as many at a time as memory allows."""

    client: Client
    rows: _Future
    """`Labelled`."""
    folds: _Future
    """Of the rows."""
    blocks: tuple[int, ...]
    n_classes: int
    settings: Settings
    fitted: int
    progress: Progress

    @property
    def _at_once(self) -> int:
        need = max(1, self.fitted * max(self.blocks) * 8)
        return max(1, int(self.settings.readout.memory_bytes // need))

    def first_stage(
        self, strengths: Sequence[float] | None
    ) -> tuple[list[list[LinearModel]], list[float]]:
        """Models of each block in every variant, and the C of each block."""
        count, chosen_C = self.settings.readout.folds, self.settings.readout.C
        grid = GRID if chosen_C == "select" else (chosen_C,)
        grids = [grid if strengths is None else (C,) for C in strengths or self.blocks]
        rows = [
            self.client.submit(
                _block_rows, self.rows, self.folds, self.n_classes, columns, pure=False
            )
            for columns in columns_of(self.blocks)
        ]
        fit_all = TaskFits(self.client, rows, "fits", self.progress)
        chosen = cross_fit(grids, count, search_from_middle, fit_all)
        best = [grid[one.place] for grid, one in zip(grids, chosen, strict=True)]
        # From scratch: a single fold's model has seen the labels of every other fold.
        pairs = Variants(count).hidden[count:]
        more = fit_all(
            [Job(pair, C, None, at) for at, C in enumerate(best) for pair in pairs]
        )
        models = [
            [fit.model for fit in (*one.fits, *more[at * len(pairs) :][: len(pairs)])]
            for at, one in enumerate(chosen)
        ]
        return models, best

    def trees(self, rows: _Future) -> dict[str, list[_Future]]:
        """Trees of every kind and fold."""
        count = self.settings.readout.folds
        jobs = [(kind, fold) for kind in KINDS for fold in range(count)]

        def submit(number: int) -> _Future:
            kind, fold = jobs[number]
            return self.client.submit(
                fit_kind, rows, self.n_classes, kind, fold, pure=False
            )

        found = in_window(
            self.client, submit, len(jobs), self._at_once, "trees", self.progress
        )
        return {
            kind: found[at * count : (at + 1) * count] for at, kind in enumerate(KINDS)
        }


def _block_rows(
    rows: Labelled, folds: NDArray[np.int32], n_classes: int, columns: slice
) -> MemoryRows:
    return block_rows(rows.x, rows.labels, folds, n_classes, columns, rows.weights)


def _fitted_features(
    part: Part, where: Stage, record: FileRecord
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Canonical index and label features of a partition's fitted rows."""
    nodes = part.read_nodes()
    return nodes["index"].to_numpy()[part.used(nodes)], read_fitted(where, record)


def _second_rows(
    rows: Labelled,
    folds: NDArray[np.int32],
    seen: Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]],
    where: Stage,
    models: FileRecord,
    count: int,
) -> SecondRows:
    """Fitted rows as the second stage sees them."""
    first = FirstStage.from_arrays(where.read_arrays(models))
    order = np.argsort(np.concatenate([index for index, _ in seen]))
    features = np.concatenate([values for _, values in seen])[order]
    places = Variants(count).places()[folds]
    found = []
    for begin in range(0, len(rows.x), BLOCK):
        block = slice(begin, begin + BLOCK)
        scores = first.scores(rows.x[block])
        at = np.arange(len(scores))
        found.append(
            np.stack(
                [
                    second_rows(scores[at, places[block, fold]], features[block, fold])
                    for fold in range(count)
                ],
                axis=1,
            )
        )
    z = np.concatenate(found)
    return SecondRows(rows.labels, folds, z, rows.x, first.blocks, rows.weights)


def own_scores(rows: SecondRows, first: FirstStage) -> NDArray[np.float64]:
    """Log-probabilities by the blocks of the first stage, a row's own fold hidden.

    Parameters
    ----------
    first
        The variants that hide a fold alone.

    Returns
    -------
    NDArray
        Shape (n, B, C).
    """
    found = np.empty((len(rows.labels), *first.intercept.shape[1:]))
    for begin in range(0, len(found), BLOCK):
        block = slice(begin, begin + BLOCK)
        scores = first.scores(rows.x[block])
        found[block] = scores[np.arange(len(scores)), rows.folds[block]]
    return found
