"""Selection of the reservoir's scales on held-out labels, by a small search.

Four recurrent scales, then two more input scales at the best of them, each with a
reservoir of at most 128 units, are scored by the out-of-fold log-loss of a logistic
readout. The smallest recurrent scale within one standard error of the best is chosen,
because above 1 the map amplifies noise.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats32, Ints, Ints32
from xnq_dist.core.cluster import workers
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.records import RECURRENT_SCALES
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES, selects_scales, shown
from xnq_dist.core.store import (
    Attempt,
    FileRecord,
    RunDirectory,
    Stage,
)
from xnq_dist.core.waiting import result
from xnq_dist.graph.labels import ROLES
from xnq_dist.graph.layout import load_labels, node_index
from xnq_dist.readout.folds import plan_folds
from xnq_dist.readout.logistic import row_losses
from xnq_dist.readout.objective import Rows
from xnq_dist.readout.regularisation import climb, cross_fit
from xnq_dist.readout.rows import located
from xnq_dist.readout.stage import to_fit
from xnq_dist.reservoir.context import join
from xnq_dist.reservoir.embed import reservoir_spec
from xnq_dist.reservoir.message_passing import Checkpoints, run_reservoir

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "Score",
    "candidates",
    "choose_recurrent",
    "out_of_fold_log_loss",
    "select_scales",
]

Recurrent = float | tuple[float, ...]
"""A recurrent scale, or those of several parallel reservoirs."""

log = logging.getLogger(__name__)

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


def _write_rows(
    attempt: Attempt, rows: Sequence[Ints], number: int, states: Floats32
) -> FileRecord:
    """Write the states of a partition's labelled rows, of those of each partition."""
    return attempt.write_arrays(f"rows-{number:05d}", states=states[rows[number]])


def out_of_fold_log_loss(
    x: NDArray[Any], labels: Ints32, folds: Ints32, n_classes: int, threads: int = 1
) -> tuple[float, float]:
    """Lowest mean out-of-fold log-loss of `COSTS`, and its standard error."""
    rows = Rows(x, labels, folds, n_classes)
    each = [rows] * len(rows.moments.counts)
    _, logits = cross_fit(each, COSTS, climb, threads)
    losses = row_losses(logits, labels)
    return float(losses.mean()), float(losses.std(ddof=1) / np.sqrt(len(losses)))


def _score(
    stage: Stage, files: list[FileRecord], places: list[Ints], *known: Any
) -> tuple[float, float]:
    """`out_of_fold_log_loss` of rows in files; runs on a worker."""
    states = [stage.read_arrays(record)["states"] for record in files]
    return out_of_fold_log_loss(join(states, places), *known)


def choose_recurrent(scores: list[Score]) -> Score:
    """The smallest recurrent scale within one standard error of the best."""
    best = min(scores, key=lambda score: score.log_loss)
    bound = best.log_loss + best.standard_error
    good = [score for score in scores if score.log_loss <= bound]
    # With several parallel reservoirs there is only one candidate.
    return min(good, key=lambda score: np.max(score.recurrent_scale))


def select_scales(
    run: RunDirectory, settings: Settings, client: Client, progress: Progress = silent
) -> None:
    """Run the stage ``select`` if its scales are used and it is not complete.

    Raises
    ------
    StageError
        When the stage ``graph`` or ``labels`` is missing.
    """
    if not selects_scales(settings):
        run.stage("select").delete_folder()  # of earlier settings, if any
        return
    manifest, known = run.complete("graph"), run.complete("labels")
    inputs = STAGES["select"].made_from(run.manifests(), {}, settings)
    if run.reuse("select", inputs) is not None:
        return
    units = min(settings.reservoir.dim, UNITS)
    attempt = run.stage("select").begin()
    found, classes = load_labels(known), known.facts["classes"]
    labels = found.codes
    if known.facts["has_roles"]:
        labels[found.roles != ROLES.index("train")] = -1
    index = to_fit(labels, units, settings)
    fitted = labels[index]
    train = np.zeros(len(index), np.int8) if known.facts["has_roles"] else None
    folds = plan_folds(fitted, train, classes, settings.readout.folds, settings.seed)
    rows, places = located(node_index(manifest), index)
    threads = min(workers(client).values(), default=1)
    recurrent, inputs_tried = candidates(settings)
    total = len(recurrent) + len(inputs_tried) - 1
    write = partial(_write_rows, attempt, rows)
    scores: list[Score] = []

    def try_scales(recurrent_scale: Recurrent, input_scale: float) -> Score:
        progress("scales tried", len(scores), total)
        scales = recurrent_scale, input_scale
        spec = reservoir_spec(settings, manifest.facts, *scales, units)
        never = Checkpoints(attempt, {}, spec.supersteps)
        files = run_reservoir(client, manifest, spec, write, never)
        held = fitted, folds, len(classes), threads
        scored = client.submit(_score, attempt, files, places, *held, pure=False)
        scores.append(Score(*scales, *result(client, scored)))
        for record in files:
            attempt.delete(record.name)
        loss = scores[-1].log_loss
        log.info("scales %s, %g: log-loss %.4f", shown(scales[0]), scales[1], loss)
        return scores[-1]

    for scale in recurrent:
        try_scales(scale, inputs_tried[0])
    chosen = choose_recurrent(scores)
    for scale in inputs_tried[1:]:
        tried = try_scales(chosen.recurrent_scale, scale)
        chosen = min(chosen, tried, key=lambda score: score.log_loss)
    progress("scales tried", total, total)
    facts = {name: getattr(chosen, name) for name in ("recurrent_scale", "input_scale")}
    facts["tried"] = [vars(score) for score in scores]
    attempt.commit([], inputs, facts)


def candidates(settings: Settings) -> tuple[Sequence[Recurrent], Sequence[float]]:
    """Recurrent and input scales that the search tries."""
    reservoir = settings.reservoir
    recurrent, inputs = reservoir.recurrent_scale, reservoir.input_scale
    return (
        RECURRENT_SCALES if recurrent == "select" else (recurrent,),
        INPUT_SCALES if inputs == "select" else (inputs,),
    )
