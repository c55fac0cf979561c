"""The readout of xnq+: logits and label features, a second stage, all cross-fitted.

The labelled rows meet in one task, as for the plain readout: n x d' float64 for each
fold that runs at the time, within `readout.memory`; beyond it they are fitted group by
group (`spilled`), and only their scores and label features meet. Everything else stays
in files of the stage, one a partition.

What a labelled node's own label can reach: neither its first-stage logits nor its
label features are made from it, and the second-stage model that scores it was fitted
to other rows. Those other rows were described with all folds but their own, its fold
among them, as in any stacking.
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
from xnq_dist.graph.layout import node_index
from xnq_dist.progress import Progress, silent
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.readout.diagnostics import quality
from xnq_dist.readout.fit import FoldFit, FoldPlan, grid_of
from xnq_dist.readout.folds import assign_folds, check_counts
from xnq_dist.readout.label_features import VisibleLabels
from xnq_dist.readout.logistic import COARSE_GRID
from xnq_dist.readout.neighbours import FirstStage
from xnq_dist.readout.plus_features import (
    boosting_wanted,
    read_features,
    spread_features,
)
from xnq_dist.readout.plus_model import SavedPlus, partition_logits
from xnq_dist.readout.rows import KnownLabels, Labelled, Part, assemble, gather_used
from xnq_dist.readout.second_stage import fit_second_stage, second_stage_rows
from xnq_dist.readout.spilled import spill
from xnq_dist.readout.tasks import (
    cross_fit,
    folds_at_once,
    watch,
)
from xnq_dist.sections import ReadoutSettings
from xnq_dist.store import Attempt, FileRecord, Manifest, Stage
from xnq_dist.waiting import Heartbeats, gather, result, watched

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["PlusFit", "PlusScores", "fit_plus", "plus_scores"]

log = logging.getLogger(__name__)


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
) -> PlusFit:
    """Fit the readout of xnq+ to the labels shown; it leaves its files in `attempt`.

    Parameters
    ----------
    graph, manifest
        The stage ``graph``; its own labels and roles are not looked at.
    embeddings, embedded
        A stage of embeddings of this graph; of its manifest the files ``part-*`` and
        the fact ``dim`` are used.
    labels
        Class codes by canonical index, -1 for labels not to be seen, shape (N,).
    classes
        Names of the C classes.
    settings
        `readout`, `plus` and `seed` are used.
    attempt
        Where files go.

    Raises
    ------
    InputError
        When a class has fewer than two labels.
    DoesNotFitError
        When ``readout.memory`` does not hold one group of labelled rows.
    """
    shown = np.flatnonzero(labels >= 0)
    counts = np.bincount(labels[shown], minlength=len(classes))
    check_counts(counts, 2, classes)
    prior = counts / len(shown)
    folds = np.full(len(labels), -1, np.int32)
    folds[shown] = assign_folds(labels[shown], settings.readout.folds, settings.seed)
    where = Stage(attempt.folder, "readout")
    visible = VisibleLabels(
        where,
        tuple(
            attempt.write_arrays(
                f"labels-{number:05d}", labels=labels[rows], folds=folds[rows]
            )
            for number, rows in enumerate(node_index(graph, manifest))
        ),
        int(folds.max()) + 1,
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
    dim = int(embedded.facts["dim"])
    at_once = folds_at_once(client, parts, dim, settings)
    rows: Any
    plan: Any
    fits: Any
    if at_once:
        pieces = client.map(gather_used, parts, pure=False)
        watch(client, pieces, "labelled rows", progress)
        rows = client.submit(assemble, pieces, pure=False)
        del pieces
        plan = client.submit(
            _plan, rows, settings.readout, settings.seed, settings.backend, pure=False
        )
        fits, place, losses = cross_fit(
            client, rows, plan, len(classes), _grid(settings.readout), at_once, progress
        )
    else:
        if settings.backend == "gpu":
            log.warning("labelled rows beyond readout.memory are fitted on CPUs")
        nothing = np.empty((len(shown), 0), np.float32)
        rows = Labelled(shown, labels[shown], None, nothing)
        plan = _plan(rows, settings.readout, settings.seed, settings.backend)
        spilled = spill(
            client, parts, rows, plan.folds, len(classes), attempt, progress
        )
        fits, place, losses = spilled.cross_fit(plan, progress)
        spilled.delete()
        # By data, not by task: the scheduler is no place for a number a row.
        rows, plan, fits = watched(
            lambda: client.scatter([rows, plan, fits], hash=False),
            Heartbeats(client).look,
        )
    models = result(client, client.submit(_write_models, fits, attempt, pure=False))
    features = spread_features(
        client,
        graph,
        manifest,
        visible,
        parts,
        models,
        prior,
        settings,
        attempt,
        progress,
    )
    seen = [
        client.submit(_own_features, part, where, record, visible, number, pure=False)
        for number, (part, record) in enumerate(zip(parts, features, strict=True))
    ]
    finished = client.submit(
        _finish,
        rows,
        seen,
        plan,
        fits,
        place,
        losses,
        list(classes),
        dim,
        settings,
        attempt,
        pure=False,
    )
    files, facts = result(client, finished)
    attempt.folder.delete(models.name)  # the readout holds them, too
    return PlusFit(parts, files[0], features, (files[1], *visible.records), facts)


def _grid(settings: ReadoutSettings) -> tuple[float, ...]:
    # What the second stage learns hardly depends on the first one's strength.
    return COARSE_GRID if settings.C == "select" else grid_of(settings)


def _first_stage(fits: Sequence[FoldFit]) -> FirstStage:
    return FirstStage(
        np.stack([fold.model.coef for fold in fits]),
        np.stack([fold.model.intercept for fold in fits]),
    )


def _write_models(fits: Sequence[FoldFit], attempt: Attempt) -> FileRecord:
    first = _first_stage(fits)
    return attempt.write_arrays("models", coef=first.coef, intercept=first.intercept)


_Own = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32] | None]


def _own_features(
    part: Part, where: Stage, record: FileRecord, visible: VisibleLabels, number: int
) -> _Own:
    """Canonical index, label and node features of a partition's labelled rows.

    Label features as its own fold sees each row, shape (n, F).
    """
    index = part.read_nodes()["index"].to_numpy()
    labels, folds = visible.load(number)
    known = np.flatnonzero(labels >= 0)
    features, described = read_features(where, record)
    own = None if described is None else described[known]
    return index[known], features[known, folds[known]], own


def _plan(
    rows: Labelled, settings: ReadoutSettings, seed: int, backend: str
) -> FoldPlan:
    folds = assign_folds(rows.labels, settings.folds, seed)
    return FoldPlan(folds, int(folds.max()) + 1, _grid(settings), backend)


def _finish(
    rows: Labelled,
    seen: Sequence[_Own],
    plan: FoldPlan,
    fits: Sequence[FoldFit],
    place: int,
    losses: Sequence[float],
    classes: list[Any],
    dim: int,
    settings: Settings,
    attempt: Attempt,
) -> tuple[list[FileRecord], dict[str, Any]]:
    """Second stage and calibration; the readout's files and figures."""
    first = np.empty((len(rows.labels), len(classes)))
    for fold in fits:
        first[fold.held] = fold.logits
    order = np.argsort(np.concatenate([index for index, *_ in seen]))
    features = np.concatenate([values for _, values, _ in seen])[order]
    pieces = [values for *_, values in seen if values is not None]
    described = np.concatenate(pieces)[order] if pieces else None
    boosting = boosting_wanted(settings, len(classes))
    z = second_stage_rows(first, features)
    second = fit_second_stage(
        z, rows.labels, plan.folds, len(classes), boosting, described
    )
    kind = settings.readout.calibration
    calibration = fit_calibration(kind, second.out_of_fold, rows.labels)
    prior = np.bincount(rows.labels, minlength=len(classes)) / len(rows.labels)
    saved = SavedPlus(
        first=_first_stage(fits),
        second=second,
        calibration=calibration,
        prior=prior,
        index=rows.index,
        folds=plan.folds,
    )
    fitted = len(rows.labels)
    models = [fold.model for fold in fits] + list(second.linear)
    facts = {
        "classes": classes,
        "prior": prior.tolist(),
        "dim": dim,
        "method": "xnq+",
        "C": plan.grid[place],
        "calibration": kind,
        "folds": plan.count,
        "n_labelled": fitted,
        "n_fitted": fitted,
        "n_judged": fitted,
        "strengths": [
            {"C": tried, "log_loss": loss / fitted}
            for tried, loss in zip(plan.grid, losses, strict=False)
        ],
        "converged": all(model.converged for model in models),
        "label_features": int(features.shape[1]),
        "node_features": 0 if described is None else int(described.shape[1]),
        "first_stage_log_loss": losses[place] / fitted,
        "second_stage": second.kind,
        "second_stage_C": second.C,
        "second_stage_log_losses": second.losses,
        **quality(second.out_of_fold, rows.labels, calibration),
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
    saved = SavedPlus.from_arrays(where.read_arrays(fitted.readout))
    return PlusScores(saved.index, saved.second.out_of_fold, logits, fitted.facts)
