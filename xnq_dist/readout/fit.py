"""The logistic readout of `xnq`: cross-fitted or by roles, calibrated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32
from xnq_dist.core.sections import ReadoutSettings
from xnq_dist.core.store import Attempt, FileRecord, Stage
from xnq_dist.core.waiting import result
from xnq_dist.readout.calibration import (
    MOVES_PRIOR,
    Calibration,
    fit_calibration,
    quality,
)
from xnq_dist.readout.folds import CALIBRATION, check_counts, plan_folds
from xnq_dist.readout.logistic import (
    GRID,
    FitJob,
    LinearModel,
    decision,
    fit_jobs,
    warn_of_unconverged,
)
from xnq_dist.readout.objective import Rows
from xnq_dist.readout.regularisation import climb, cross_fit
from xnq_dist.readout.rows import Part, write_scored
from xnq_dist.readout.saved import flat, nested
from xnq_dist.readout.stage import Fitted, ReadoutWork, to_fit

__all__ = ["fit_logistic", "fit_rows", "held_out_logits", "write_posteriors"]


def fit_logistic(work: ReadoutWork) -> Fitted:
    """Fit and calibrate a logistic regression of the embeddings."""
    settings, classes = work.settings, list(work.classes)
    index = to_fit(work.labels, int(work.source.embedded.facts["dim"]), settings)
    labels = work.labels[index]
    roles = None if work.roles is None else work.roles[index]
    plan = plan_folds(labels, roles, classes, settings.readout.folds, settings.seed)
    known = work.gather(index), index, labels, roles, plan, classes
    task = work.submit(fit_rows, *known, settings.readout, work.threads)
    saved, facts = result(work.client, task)
    facts["n_labelled"] = int(np.count_nonzero(work.labels >= 0))
    return [work.attempt.write_arrays("readout", **flat(saved))], facts


def fit_rows(
    x: NDArray[Any],
    index: Ints,
    labels: Ints32,
    roles: NDArray[np.int8] | None,
    folds: Ints32,
    classes: list[Any],
    settings: ReadoutSettings,
    threads: int = 1,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Choose C in the folds, fit all rows, calibrate; one task.

    Returns what posteriors are computed from, by name, and facts.

    A class without calibration nodes is an `InputError`.
    """
    n_classes = len(classes)
    rows = Rows(x, labels, folds, n_classes)
    models, logits = held_out_logits(rows, settings, threads)
    warn_of_unconverged(models)
    calibrating = np.ones(len(labels), bool)
    if roles is not None:
        calibrating = roles == CALIBRATION
        if settings.calibration != "none":
            counts = np.bincount(labels[calibrating], minlength=n_classes)
            check_counts(counts, 1, classes, "calibration")
        elif not calibrating.any():
            calibrating = folds >= 0
    held, truth = logits[calibrating], labels[calibrating]
    calibration = fit_calibration(settings.calibration, held, truth)
    # Biases adapt posteriors to the proportions of the labels they are fitted to;
    # without biases posteriors keep the proportions that the readout was fitted to.
    prior_labels = truth if settings.calibration in MOVES_PRIOR else labels[folds >= 0]
    prior = np.bincount(prior_labels, minlength=n_classes) / len(prior_labels)
    share = np.bincount(truth, minlength=n_classes) / len(truth)
    # Without roles, models of the other folds score the nodes.
    apart = np.full(len(labels), roles is None)
    saved = {
        "coef": models[-1].coef,
        "intercept": models[-1].intercept,
        "calibration": calibration,
        "trained": index[~apart & (folds >= 0)],
        "held": index[apart],
        "posteriors": calibration.apply(logits[apart]),
    }
    facts = {
        "classes": classes,
        "prior": prior.tolist(),
        "C": models[-1].strength,
        "n_fitted": int(np.count_nonzero(folds >= 0)),
        **quality(calibration.apply(held), truth, -np.log(share[truth])),
    }
    return saved, facts


def held_out_logits(
    rows: Rows, settings: ReadoutSettings, threads: int = 1
) -> tuple[list[LinearModel], Floats]:
    """Fit the rows without each fold, and all of them.

    Returns the models, that of all rows last, and logits of the rows by the model
    without their fold, or of all rows if they have no fold.
    """
    grid = GRID if settings.C == "select" else (settings.C,)
    each = [rows] * len(rows.moments.counts)
    models, logits = cross_fit(each, grid, climb, threads)
    (final,) = fit_jobs([FitJob(rows, (), models[0].strength, models[0])])
    others = rows.folds < 0
    logits[others] = decision(final, rows.x[others])
    return [*models, final], logits


def write_posteriors(
    part: Part,
    number: int,
    readout: Stage,
    record: FileRecord,
    attempt: Attempt,
    classes: list[Any],
) -> list[FileRecord]:
    """Write the posteriors of one partition's nodes, in its row order.

    Those of `held` nodes are by the models without their fold.
    """
    saved = nested(readout.read_arrays(record))
    model = LinearModel(saved["coef"], saved["intercept"])
    calibration = Calibration(**saved["calibration"])

    def score(rows: slice, index: Ints, x: NDArray[Any]) -> Floats32:
        values = calibration.apply(decision(model, x))
        held = np.isin(index, saved["held"])
        at = np.searchsorted(saved["held"], index[held])
        values[held] = saved["posteriors"][at]
        return values

    trained = saved["trained"]
    return [write_scored(part, number, attempt, classes, score, trained)]
