"""Cross-fitting of xnq+: first stages of every variant, label features, rows.

One task joins the labelled rows; label features count all labels, and everything else
stays in files, one per partition. `variants` lists the folds that are hidden from each
model. Folds consist of single nodes for the readout itself, and of complete groups to
measure the error in groups without labels; both share the passes over the embeddings.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.graph.layout import node_index
from xnq_dist.readout.logistic import FitJob, LinearModel, warn_of_unconverged
from xnq_dist.readout.plus.first_stage import GRID, FirstStage, block_rows, columns_of
from xnq_dist.readout.plus.label_features import (
    FirstFit,
    feature_count,
    spread_features,
)
from xnq_dist.readout.plus.second_stage import (
    SecondRows,
    second_rows,
    used_by_trees,
)
from xnq_dist.readout.plus.variants import Variants, class_priors
from xnq_dist.readout.regularisation import Fitter, cross_fit, search_from_middle
from xnq_dist.readout.rows import Part, join
from xnq_dist.readout.tasks import TaskFits
from xnq_dist.readout.work import ReadoutWork, gather, located, sample_rows

if TYPE_CHECKING:
    from distributed import Future

    _Future = Future[Any]

__all__ = [
    "HELD_ROWS",
    "CrossFit",
    "Folding",
    "cross_fits",
    "group_folding",
    "group_folds",
]

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
    number = np.bincount(groups[known], minlength=int(groups.max(initial=0)) + 1)
    folds = (np.arange(len(number)) % count).astype(np.int32)
    emptiest = [(0, fold) for fold in range(count)]
    for group in np.argsort(-number, kind="stable")[: np.count_nonzero(number)]:
        labels, fold = emptiest[0]
        folds[group] = fold
        heapq.heapreplace(emptiest, (labels + int(number[group]), fold))
    return folds


def group_folding(work: ReadoutWork, fitted: Ints, groups: Ints32) -> list[Folding]:
    """Folds of complete groups, for models of some of the nodes `fitted`.

    Groups are by canonical index. Empty where fewer groups than folds have labels.
    """
    count = work.settings.readout.folds
    if len(np.unique(groups[fitted])) < count:
        return []
    folds = group_folds(groups, work.labels >= 0, count)
    rows = sample_rows(fitted, HELD_ROWS, work.settings.seed)
    attempt = replace(work.attempt, id=f"{work.attempt.id}-groups")
    return [Folding(lambda index: folds[groups[index]], rows, attempt)]


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Labelled rows as inputs of the second stage, and the files behind them."""

    first: FirstFit
    features: tuple[FileRecord, ...]
    """Label features, one file per partition."""
    strengths: tuple[float, ...]
    """C of each block."""
    rows: _Future
    """`SecondRows`."""

    def delete(self, features: bool = False) -> None:
        """Delete its labels and models, and its label features if requested."""
        first = self.first
        more = self.features if features else ()
        for record in (*first.labels, first.models, *more):
            first.attempt.folder.delete(record.name)


def cross_fits(
    work: ReadoutWork, parts: Sequence[Part], foldings: Sequence[Folding]
) -> list[CrossFit]:
    """Fit the first stages for each folding, and compute the second stage's rows.

    C of each block is set by `readout.C`, or chosen by out-of-fold loss in the folds of
    the first folding; models of the others are fitted to some of its nodes.
    """
    client, blocks, n_classes = work.client, work.source.blocks, len(work.classes)
    owned = node_index(work.source.graph, work.source.manifest)
    fitted = foldings[0].fitted
    x = [gather(work, parts, owned, fitted)]
    for each in foldings[1:]:
        rows = np.searchsorted(fitted, each.fitted)
        same = len(rows) == len(fitted)
        x.append(x[0] if same else client.submit(_rows, x[0], rows, pure=False))
    known = [_known(work, each) for each in foldings]
    ready = [
        client.submit(block_rows, values, *labels, n_classes, columns, pure=False)
        for values, labels in zip(x, known, strict=True)
        for columns in columns_of(blocks)
    ]
    fit_all = TaskFits(client, ready, "fits", work.progress)
    fits, strengths = _first_stages(work, len(foldings), fit_all)
    del ready, fit_all
    first_fits = [
        _written(work, owned, folding, fits[at * len(blocks) :][: len(blocks)])
        for at, folding in enumerate(foldings)
    ]
    features = spread_features(work, first_fits, parts)
    crossed = []
    for at, first in enumerate(first_fits):
        of_parts = [
            client.submit(_fitted_features, first.where, record, pure=False)
            for record in features[at]
        ]
        places = [place for _, place in located(owned, foldings[at].fitted)]
        inputs = x[at], *known[at], of_parts, places, first
        second = client.submit(_second_rows, *inputs, pure=False)
        crossed.append(CrossFit(first, features[at], strengths, second))
    return crossed


def _known(work: ReadoutWork, folding: Folding) -> tuple[Ints32, Ints32, Floats | None]:
    """Labels, folds and weights of the nodes that models are fitted to."""
    index, weights = folding.fitted, work.weights
    of_rows = None if weights is None else weights[index]
    return work.labels[index], folding.fold_of(index), of_rows


def _first_stages(
    work: ReadoutWork, foldings: int, fit_all: Fitter
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
    work: ReadoutWork,
    owned: Sequence[Ints],
    folding: Folding,
    models: Sequence[Sequence[LinearModel]],
) -> FirstFit:
    """Write the labels of every partition's nodes, and the models of one folding."""
    labels = tuple(
        folding.attempt.write_arrays(
            f"labels-{number:05d}",
            labels=work.labels[rows],
            folds=folding.fold_of(rows),
            fitted=np.isin(rows, folding.fitted),
        )
        for number, rows in enumerate(owned)
    )
    arrays = FirstStage.of(work.source.blocks, models).to_arrays()
    shown, weights = np.flatnonzero(work.labels >= 0), work.weights
    variants = Variants(work.settings.readout.folds)
    priors = class_priors(
        work.labels[shown],
        folding.fold_of(shown),
        len(work.classes),
        variants,
        None if weights is None else weights[shown],
    )
    record = folding.attempt.write_arrays("models", **arrays)
    return FirstFit(folding.attempt, labels, record, priors, variants)


def _rows(x: NDArray[Any], at: Ints) -> NDArray[Any]:
    return x[at]


def _fitted_features(where: Stage, record: FileRecord) -> Floats32:
    """Read label features of a partition's fitted rows."""
    features: Floats32 = where.read_arrays(record)["fitted"]
    return features


def _second_rows(
    x: NDArray[Any],
    labels: Ints32,
    folds: Ints32,
    weights: Floats | None,
    fitted_features: Sequence[Floats32],
    at: Sequence[Ints],
    fit: FirstFit,
) -> SecondRows:
    """Compute the second stage's inputs for the fitted rows."""
    first = FirstStage.from_arrays(fit.where.read_arrays(fit.models))
    features, count = join(fitted_features, at), fit.variants.folds
    places = fit.variants.places()[folds]
    n, classes, blocks = len(x), first.coef.shape[1], first.blocks
    z = np.empty((n, count, len(blocks) * (classes - 1) + features.shape[2]))
    out_of_fold = np.empty((n, len(blocks), classes))
    for begin in range(0, n, BLOCK):
        block = slice(begin, begin + BLOCK)
        scores = first.scores(x[block])
        each = np.arange(len(scores))
        out_of_fold[block] = scores[each, folds[block]]
        for fold in range(count):
            of_fold = scores[each, places[block, fold]]
            z[block, fold] = second_rows(of_fold, features[block, fold])
    embedded = x[:, used_by_trees(blocks)]
    provided = features.shape[2] - feature_count(classes)
    of_rows = labels, folds, z, embedded, blocks, out_of_fold, weights
    return SecondRows(*of_rows, provided)
