"""The readout of xnq+: nested folds, a first stage a block, a second stage, a pool.

The labelled rows meet in one task, at most `MOST_ROWS` of them and no more than
`readout.memory` holds; label features count all labels, and everything else stays in
files of the stage, one a partition. `variants` says what is hidden from whom.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.config import Settings
from xnq_dist.draws import mixed_bits
from xnq_dist.errors import DoesNotFitError
from xnq_dist.graph.layout import node_index
from xnq_dist.progress import Progress, silent
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.readout.diagnostics import quality
from xnq_dist.readout.first_stage import (
    GRID,
    BlockFit,
    FirstStage,
    columns_of,
    fit_hidden,
    search,
)
from xnq_dist.readout.folds import check_counts
from xnq_dist.readout.label_features import VisibleLabels
from xnq_dist.readout.plus_features import read_fitted, spread_features
from xnq_dist.readout.plus_model import SavedPlus, partition_logits
from xnq_dist.readout.rows import KnownLabels, Labelled, Part, assemble, gather_used
from xnq_dist.readout.second_stage import (
    KINDS,
    SecondRows,
    TreeFit,
    conclude,
    fit_kind,
    second_rows,
)
from xnq_dist.readout.tasks import in_window, watch
from xnq_dist.readout.variants import Variants, class_priors, node_folds
from xnq_dist.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.waiting import gather, result

if TYPE_CHECKING:
    from distributed import Client, Future

    _Future = Future[Any]

__all__ = [
    "MOST_ROWS",
    "PRIOR_ROWS",
    "PlusFit",
    "PlusScores",
    "fit_plus",
    "plus_scores",
]

log = logging.getLogger(__name__)

MOST_ROWS = 200_000
"""Labelled rows that models are fitted to: more say hardly more of so few columns."""
FEWEST_ROWS = 1_000
"""Of more labelled rows than that, so many must fit in ``readout.memory``."""
SAMPLE_PURPOSE = 403
"""Key of the random stream that chooses them."""
FEWEST_FOR_TREES = 100
"""Labelled rows from which on trees join the pool: leaves hold 40."""
BLOCK = 1 << 14
"""Rows scored at a time."""
PRIOR_ROWS = 2.0
"""Rows' worth of the priors of the calibration."""


@dataclass(frozen=True)
class PlusFit:
    """A fitted xnq+ readout in files."""

    parts: tuple[Part, ...]
    readout: FileRecord
    """`SavedPlus` as arrays."""
    features: tuple[FileRecord, ...]
    """Label features, one file a partition."""
    others: tuple[FileRecord, ...]
    facts: dict[str, Any]
    """Figures for manifests and reports, JSON values."""

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """All files of the stage."""
        return (self.readout, *self.features, *self.others)


@dataclass(frozen=True, eq=False)
class PlusScores:
    """Uncalibrated scores of xnq+ for every node."""

    held: NDArray[np.int64]
    """Canonical index of the labelled nodes, ascending, shape (m,)."""
    held_logits: NDArray[np.float64]
    """Their out-of-fold log-probabilities, shape (m, C)."""
    logits: NDArray[np.float32]
    """Log-probabilities of every node by canonical index, shape (N, C); those of
    labelled nodes out of fold."""
    facts: dict[str, Any]
    """Figures, JSON values."""


def fit_plus(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    embeddings: Stage,
    embedded: Manifest,
    labels: NDArray[np.int32],
    classes: Sequence[Any],
    settings: Settings,
    attempt: Attempt,
    progress: Progress = silent,
    weights: NDArray[np.float64] | None = None,
) -> PlusFit:
    """Fit the readout of xnq+ to the labels shown; it leaves its files in `attempt`.

    Parameters
    ----------
    graph, manifest
        The stage ``graph``; its own labels and roles are not looked at.
    embeddings, embedded
        A stage of embeddings of this graph; of its manifest the files ``part-*`` and
        the fact ``blocks`` are used.
    labels
        Class codes by canonical index, -1 for labels not to be seen, shape (N,).
    classes
        Names of the C classes.
    settings
        `readout`, `plus` and `seed` are used.
    attempt
        Where files go.
    weights
        Inclusion weights of the labels by canonical index, shape (N,); None: all equal.
        They are scaled so that their sum is the effective number of labels.

    Raises
    ------
    InputError
        When a class has fewer than two labels.
    DoesNotFitError
        When ``readout.memory`` does not hold enough labelled rows.
    """
    shown = np.flatnonzero(labels >= 0)
    counts = np.bincount(labels[shown], minlength=len(classes))
    check_counts(counts, 2, classes)
    weighed = counts.astype(np.float64)
    if weights is not None:
        weights = scaled_weights(weights, shown)
        np.add.at(weighed, labels[shown], weights[shown] - 1.0)
    blocks = tuple(embedded.facts["blocks"])
    fitted = _fitted(shown, sum(blocks), settings)
    where = Stage(attempt.folder, "readout")
    count, seed = settings.readout.folds, settings.seed
    visible = VisibleLabels(
        where,
        tuple(
            attempt.write_arrays(
                f"labels-{number:05d}",
                labels=labels[rows],
                folds=node_folds(rows, count, seed),
                fitted=np.isin(rows, fitted),
                **({} if weights is None else {"weights": weights[rows]}),
            )
            for number, rows in enumerate(node_index(graph, manifest))
        ),
        count,
        len(classes),
    )
    parts = tuple(
        Part(graph, node, embeddings, row, False, KnownLabels(where, known))
        for node, row, known in zip(
            manifest.named("nodes-"),
            embedded.named("part-"),
            visible.records,
            strict=True,
        )
    )
    pieces = client.map(gather_used, parts, pure=False)
    watch(client, pieces, "labelled rows", progress)
    rows = client.submit(assemble, pieces, pure=False)
    del pieces
    work = _Work(client, rows, blocks, len(classes), settings, len(fitted), progress)
    fits, strengths = work.first_stage()
    models = result(client, client.submit(_write_models, blocks, fits, attempt))
    priors = class_priors(
        labels[shown],
        node_folds(shown, count, seed),
        len(classes),
        visible.variants,
        None if weights is None else weights[shown],
    )
    features = spread_features(
        client,
        graph,
        manifest,
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
    both = client.submit(_second_rows, rows, seen, where, models, count, seed)
    trees = work.trees(both)
    finished = client.submit(
        _finish,
        both,
        trees,
        shown,
        weighed / weighed.sum(),
        priors[:count],
        strengths,
        list(classes),
        where,
        models,
        settings,
        attempt,
        pure=False,
    )
    files, facts = result(client, finished)
    attempt.folder.delete(models.name)  # the readout holds what is used of them
    return PlusFit(parts, files[0], features, (files[1], *visible.records), facts)


def scaled_weights(
    weights: NDArray[np.float64], shown: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Weights whose sum over the labelled nodes is their effective number.

    That is ``(sum w)^2 / sum w^2``: so many labels of equal weight would say as much.
    """
    own = weights[shown]
    return np.asarray(weights * (own.sum() / (own**2).sum()))


def _fitted(
    shown: NDArray[np.int64], width: int, settings: Settings
) -> NDArray[np.int64]:
    """Labelled nodes that models are fitted to, ascending."""
    there = settings.readout.memory_bytes // (8 * width)
    if there < min(len(shown), FEWEST_ROWS):
        need = 8 * width * min(len(shown), FEWEST_ROWS)
        raise DoesNotFitError(
            f"the embeddings of {min(len(shown), FEWEST_ROWS):,} labelled nodes "
            f"({width} columns) need {need / 2**20:.3g} MiB but readout.memory is "
            f"{settings.readout.memory_bytes / 2**20:.3g} MiB: set readout.memory to "
            f"{-(-need // 2**20)}MiB or more, or lower reservoir.dim"
        )
    most = min(there, MOST_ROWS)
    if len(shown) <= most:
        return shown
    log.info("readout: models are fitted to %d of %d labelled nodes", most, len(shown))
    key = np.random.SeedSequence(settings.seed, spawn_key=(SAMPLE_PURPOSE,))
    order = np.argsort(mixed_bits(shown, key), kind="stable")
    return np.sort(shown[order[:most]])


@dataclass(frozen=True, eq=False)
class _Work:
    """The fits, side by side as far as memory allows."""

    client: Client
    rows: _Future
    blocks: tuple[int, ...]
    n_classes: int
    settings: Settings
    fitted: int
    progress: Progress

    @property
    def _at_once(self) -> int:
        need = max(1, self.fitted * max(self.blocks) * 8)
        return max(1, int(self.settings.readout.memory_bytes // need))

    @property
    def _grid(self) -> tuple[float, ...]:
        chosen = self.settings.readout.C
        return GRID if chosen == "select" else (chosen,)

    def first_stage(self) -> tuple[list[list[_Future]], list[float]]:
        """Fits of each block in every variant, and the C of each block."""
        count, grid = self.settings.readout.folds, self._grid
        hidden = Variants(count).hidden
        every = range(len(self.blocks))
        looking = {block: search(len(grid)) for block in every}
        asked = {block: next(looking[block]) for block in every}
        tried: list[dict[int, list[_Future]]] = [{} for _ in every]
        chosen: dict[int, int] = {}
        while asked:
            jobs = [
                (block, place, hidden[fold], self._before(tried[block], fold))
                for block, place in asked.items()
                for fold in range(count)
            ]
            found = self._fits(jobs)
            losses = gather(self.client, self.client.map(_loss, found, pure=False))
            for number, (block, place) in enumerate(list(asked.items())):
                mine = slice(number * count, (number + 1) * count)
                tried[block][place] = found[mine]
                try:
                    asked[block] = looking[block].send(sum(losses[mine]))
                except StopIteration as ended:
                    chosen[block] = ended.value
                    del asked[block]
        singles = [tried[block][chosen[block]] for block in every]
        # From scratch: a single fold's model has seen the labels of every other fold.
        jobs = [
            (block, chosen[block], folds, None)
            for block in every
            for folds in hidden[count:]
        ]
        more = self._fits(jobs)
        size = len(hidden) - count
        fits = [
            singles[block] + more[block * size : (block + 1) * size] for block in every
        ]
        return fits, [grid[chosen[block]] for block in every]

    @staticmethod
    def _before(tried: dict[int, list[_Future]], fold: int) -> _Future | None:
        return next(reversed(tried.values()))[fold] if tried else None

    def _fits(self, jobs: Sequence[tuple[int, int, Any, Any]]) -> list[_Future]:
        columns, grid = columns_of(self.blocks), self._grid

        def submit(number: int) -> _Future:
            block, place, hidden, before = jobs[number]
            return self.client.submit(
                _fit_hidden,
                self.rows,
                self.settings.readout.folds,
                self.settings.seed,
                self.n_classes,
                columns[block],
                grid[place],
                hidden,
                before,
                pure=False,
            )

        return in_window(
            self.client, submit, len(jobs), self._at_once, "fits", self.progress
        )

    def trees(self, rows: _Future) -> dict[str, list[_Future]]:
        """Trees of every kind and fold; none where rows are few."""
        never = self.settings.plus.boosting == "never"
        if never or self.fitted < FEWEST_FOR_TREES:
            return {}
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


def _fit_hidden(
    rows: Labelled,
    count: int,
    seed: int,
    n_classes: int,
    columns: slice,
    C: float,
    hidden: tuple[int, ...],
    before: BlockFit | None,
) -> BlockFit:
    folds = node_folds(rows.index, count, seed)
    known = rows.x, rows.labels, folds
    return fit_hidden(*known, n_classes, columns, C, hidden, before, rows.weights)


def _loss(fitted: BlockFit) -> float:
    return fitted.loss


def _write_models(
    blocks: Sequence[int], fits: Sequence[Sequence[BlockFit]], attempt: Attempt
) -> FileRecord:
    first = FirstStage.of(blocks, [[fit.model for fit in block] for block in fits])
    return attempt.write_arrays("models", **first.to_arrays())


def _fitted_features(
    part: Part, where: Stage, record: FileRecord
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Canonical index and label features of a partition's fitted rows."""
    nodes = part.read_nodes()
    return nodes["index"].to_numpy()[part.used(nodes)], read_fitted(where, record)


def _second_rows(
    rows: Labelled,
    seen: Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]],
    where: Stage,
    models: FileRecord,
    count: int,
    seed: int,
) -> SecondRows:
    """Fitted rows as the second stage sees them."""
    first = FirstStage.from_arrays(where.read_arrays(models))
    order = np.argsort(np.concatenate([index for index, _ in seen]))
    features = np.concatenate([values for _, values in seen])[order]
    folds = node_folds(rows.index, count, seed)
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


def _finish(
    rows: SecondRows,
    trees: dict[str, Sequence[TreeFit]],
    index: NDArray[np.int64],
    prior: NDArray[np.float64],
    priors: NDArray[np.float64],
    strengths: Sequence[float],
    classes: list[Any],
    where: Stage,
    models: FileRecord,
    settings: Settings,
    attempt: Attempt,
) -> tuple[list[FileRecord], dict[str, Any]]:
    """Second stage, pool and calibration; the readout's files and figures."""
    count, fitted = settings.readout.folds, len(rows.labels)
    first = FirstStage.from_arrays(where.read_arrays(models)).single(count)
    own = np.empty((fitted, len(rows.blocks), len(classes)))
    for begin in range(0, fitted, BLOCK):
        block = slice(begin, begin + BLOCK)
        scores = first.scores(rows.x[block])
        own[block] = scores[np.arange(len(scores)), rows.folds[block]]
    second, held, chosen = conclude(rows, len(classes), trees, priors, own)
    kind = settings.readout.calibration
    known = held, rows.labels
    calibration = fit_calibration(kind, *known, PRIOR_ROWS, rows.weights)
    saved = SavedPlus(first, second, calibration, prior, index, settings.seed)
    constant = np.log(priors[rows.folds, rows.labels])
    facts = {
        "classes": classes,
        "prior": prior.tolist(),
        "blocks": list(rows.blocks),
        "method": "xnq+",
        "C": strengths[0],
        "strengths": list(strengths),
        "calibration": kind,
        "folds": count,
        "n_labelled": len(index),
        "n_fitted": fitted,
        "n_judged": fitted,
        "prior_log_loss": float(-np.average(constant, weights=rows.weights)),
        **chosen,
        **quality(held, rows.labels, calibration, rows.weights),
    }
    parameters = {
        name: values.tolist() for name, values in calibration.parameters.items()
    }
    text = json.dumps({**facts, "calibration_parameters": parameters}, indent=1)
    files = [
        attempt.write_arrays("readout", **saved.to_arrays()),
        attempt.write_bytes("summary", "json", text.encode()),
    ]
    return files, facts


def plus_scores(
    client: Client,
    graph: Stage,
    manifest: Manifest,
    embeddings: Stage,
    embedded: Manifest,
    labels: NDArray[np.int32],
    classes: Sequence[Any],
    settings: Settings,
    attempt: Attempt,
    progress: Progress = silent,
) -> PlusScores:
    """Scores of every node by xnq+, from the labels shown; no stage is touched.

    May be called again and again on one embedding with other labels. Parameters and
    errors as for `fit_plus`; files of `attempt` may be removed afterwards. The client
    holds N x C float32.
    """
    fitted = fit_plus(
        client,
        graph,
        manifest,
        embeddings,
        embedded,
        labels,
        classes,
        settings,
        attempt,
        progress,
    )
    where = Stage(attempt.folder, "readout")
    futures = [
        client.submit(partition_logits, part, where, fitted.readout, record, pure=False)
        for part, record in zip(fitted.parts, fitted.features, strict=True)
    ]
    logits = np.empty((len(labels), len(classes)), np.float32)
    for index, found in gather(client, futures):
        logits[index] = found
    held = np.flatnonzero(labels >= 0)
    return PlusScores(held, logits[held].astype(np.float64), logits, fitted.facts)
