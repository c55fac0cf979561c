"""Selection of the reservoir's scales on held-out labels, by a small search.

Four recurrent scales, then two more input scales at the best of them, each with a
reservoir of at most 128 units, are scored by the out-of-fold log-loss of a logistic
readout. The smallest recurrent scale within one standard error of the best is chosen,
because above 1 the map amplifies noise.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints32
from xnq_dist.core.differences import shown
from xnq_dist.core.errors import InputError
from xnq_dist.core.inputs import select_inputs, selects_scales, set_scales
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import (
    Attempt,
    FileRecord,
    Manifest,
    RunDirectory,
    Stage,
    fingerprint,
)
from xnq_dist.core.waiting import result
from xnq_dist.graph.labels import ROLES
from xnq_dist.readout.folds import assign_folds, check_counts
from xnq_dist.readout.logistic import decision, fit_jobs, row_losses
from xnq_dist.readout.objective import Rows
from xnq_dist.readout.regularisation import climb, cross_fit
from xnq_dist.reservoir.embed import reservoir_spec
from xnq_dist.reservoir.length import with_length
from xnq_dist.reservoir.supersteps import run_reservoir

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Score", "choose_recurrent", "out_of_fold_log_loss", "select_scales"]

Recurrent = float | tuple[float, ...]
"""A recurrent scale, or those of several parallel reservoirs."""

log = logging.getLogger(__name__)

RECURRENT_SCALES = (1.0, 3.0, 8.0, 20.0)
INPUT_SCALES = (0.3, 0.1, 1.0)
"""Recurrent scales are compared at the first one."""
UNITS = 128
"""Maximum units of a reservoir in the search."""
COSTS = (0.1, 1.0, 10.0)
"""Inverse L2 strengths tried for each candidate."""


@dataclass(frozen=True)
class Score:
    """One candidate of the search."""

    recurrent_scale: Recurrent
    input_scale: float
    log_loss: float
    """Out-of-fold, mean over the labelled nodes used."""
    standard_error: float


@dataclass(frozen=True)
class _WriteLabelled:
    """Writes the states of a partition's labelled rows, with index and label."""

    labels: Stage
    manifest: Manifest
    """Of the stage ``labels``."""
    attempt: Attempt
    candidate: int

    def __call__(self, number: int, states: Floats32) -> FileRecord:
        record = self.manifest.named("labels-")[number]
        nodes = self.labels.read_table(record, "node_labels")
        labels = nodes["label"].fill_null(-1).to_numpy()
        used = labels >= 0
        if self.manifest.facts["has_roles"]:
            train = pa.scalar(ROLES[0])
            used &= pc.fill_null(pc.equal(nodes["role"], train), False).to_numpy()
        return self.attempt.write_arrays(
            f"rows-{self.candidate:03d}-{number:05d}",
            index=nodes["index"].to_numpy()[used],
            label=labels[used],
            states=states[used],
        )


def out_of_fold_log_loss(
    x: NDArray[Any],
    labels: Ints32,
    n_classes: int,
    folds: int,
    grid: Sequence[float] = COSTS,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Lowest mean out-of-fold log-loss over a grid of C, its standard error, and the C.

    The folds are the same for every `x` of the same labels in canonical order.
    """
    check_counts(np.bincount(labels, minlength=n_classes), 2)
    if not len(grid):
        raise InputError("the grid of C is empty: list at least one value")
    assigned = assign_folds(labels, folds, seed)
    count, ascending = int(assigned.max()) + 1, sorted(grid)
    rows = Rows.of(x, labels, assigned, n_classes)
    (chosen,) = cross_fit([ascending], count, climb, partial(fit_jobs, rows))
    losses = np.empty(len(labels))
    for fold, fit in enumerate(chosen.fits):
        held = assigned == fold
        losses[held] = row_losses(decision(fit.model, x[held]), labels[held])
    error = float(losses.std(ddof=1) / np.sqrt(len(losses)))
    return float(losses.mean()), error, ascending[chosen.place]


def _score(
    stage: Stage, files: list[FileRecord], classes: int, folds: int, seed: int
) -> tuple[float, float]:
    """Log-loss and its standard error; runs on a worker."""
    parts = [stage.read_arrays(record) for record in files]
    order = np.argsort(np.concatenate([part["index"] for part in parts]))
    states = np.concatenate([part["states"] for part in parts])[order]
    labels = np.concatenate([part["label"] for part in parts])[order]
    loss, error, _ = out_of_fold_log_loss(states, labels, classes, folds, COSTS, seed)
    return loss, error


def choose_recurrent(scores: list[Score]) -> Score:
    """The smallest recurrent scale within one standard error of the best."""
    best = min(scores, key=lambda score: score.log_loss)
    bound = best.log_loss + best.standard_error
    good = [score for score in scores if score.log_loss <= bound]
    # With several parallel reservoirs there is only one candidate.
    return min(good, key=lambda score: np.max(score.recurrent_scale))


def select_scales(
    run: RunDirectory, settings: Settings, client: Client, progress: Progress = silent
) -> tuple[Recurrent, float]:
    """Return recurrent and input scale: as set, or selected by the stage ``select``.

    Raises
    ------
    StageError
        When the stage ``graph`` or ``labels`` is missing.
    """
    if not selects_scales(settings):
        run.stage("select").folder.delete_folder()  # of earlier settings, if any
        return set_scales(settings)
    manifest = run.complete("graph", "run prepare first")
    known = run.complete("labels", "run prepare first")
    inputs = select_inputs(manifest, known, settings)
    selected = run.reuse("select", inputs)
    if selected is None:
        selected = _search(run, settings, client, manifest, known, inputs, progress)
    scale = selected.facts["recurrent_scale"]
    recurrent = tuple(scale) if isinstance(scale, list) else scale
    return recurrent, selected.facts["input_scale"]


def _search(
    run: RunDirectory,
    settings: Settings,
    client: Client,
    manifest: Manifest,
    known: Manifest,
    inputs: dict[str, Any],
    progress: Progress,
) -> Manifest:
    began = time.perf_counter()
    settings = with_length(settings, manifest.facts)
    if not known.facts["has_roles"]:
        counts = np.array(known.facts["class_counts"])
        check_counts(counts, 2, known.facts["classes"])
    reservoir = settings.reservoir
    graph, stage = run.stage("graph"), run.stage("select")
    attempt = stage.begin()
    recurrent: tuple[Recurrent, ...] = RECURRENT_SCALES
    inputs_tried: tuple[float, ...] = INPUT_SCALES
    if reservoir.recurrent_scale != "select":
        recurrent = (reservoir.recurrent_scale,)
    if reservoir.input_scale != "select":
        inputs_tried = (reservoir.input_scale,)
    total = len(recurrent) + len(inputs_tried) - 1
    scores: list[Score] = []

    def try_scales(recurrent_scale: Recurrent, input_scale: float) -> Score:
        progress("scales tried", len(scores), total)
        spec = reservoir_spec(
            settings,
            manifest.facts["rho"],
            recurrent_scale,
            input_scale,
            min(reservoir.dim, UNITS),
        )
        writer = _WriteLabelled(run.stage("labels"), known, attempt, len(scores))
        files = run_reservoir(
            client,
            graph,
            manifest,
            spec,
            writer,
            timeout=settings.cluster.timeout,
        )
        scored = client.submit(
            _score,
            stage,
            files,
            len(known.facts["classes"]),
            settings.readout.folds,
            settings.seed,
            pure=False,
        )
        loss, error = result(client, scored)
        for record in files:
            stage.folder.delete(record.name)
        scores.append(Score(recurrent_scale, input_scale, loss, error))
        scale = shown(recurrent_scale)
        log.info("scales %s, %g: log-loss %.4f", scale, input_scale, loss)
        return scores[-1]

    for scale in recurrent:
        try_scales(scale, inputs_tried[0])
    chosen = choose_recurrent(scores)
    for scale in inputs_tried[1:]:
        tried = try_scales(chosen.recurrent_scale, scale)
        if tried.log_loss < chosen.log_loss:
            chosen = tried
    progress("scales tried", total, total)
    return stage.commit(
        attempt,
        [],
        fingerprint(inputs),
        inputs,
        {
            "recurrent_scale": chosen.recurrent_scale,
            "input_scale": chosen.input_scale,
            "tried": [vars(score) for score in scores],
        },
        time.perf_counter() - began,
    )
