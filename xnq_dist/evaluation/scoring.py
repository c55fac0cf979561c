"""Errors from the scores of a method: calibrate, quantify samples, measure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.errors import InputError, SettingsError, StageError
from xnq_dist.core.records import QUANTIFIERS
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.protocol import Samples
from xnq_dist.evaluation.task import Scores, Task
from xnq_dist.quantify.interface import NodeTable, Reference, make_quantifier
from xnq_dist.readout.calibration import MOVES_PRIOR, fit_calibration

__all__ = [
    "calibrated",
    "check_of_samples",
    "defined_quantifiers",
    "errors_of",
    "estimates",
    "quantifiers_for",
]


def errors_of(
    true: Floats, estimate: Floats, sizes: NDArray[np.number]
) -> dict[str, Floats]:
    """AE and RAE of the samples by name of the metric, shape (S,) each.

    ``ae`` is the mean over classes of ``|estimate - true|``, ``rae`` that of
    ``|estimate - true| / (true + eps)``. The smoothing factor is ``eps = 1 / (2 |S|)``
    (Forman 2008), so that the error is finite for a class that is not in the sample.

    Parameters
    ----------
    true, estimate
        Prevalences, shape (S, C).
    sizes
        Sizes of the samples, shape (S,).
    """
    error = np.abs(estimate - true)
    eps = 0.5 / np.asarray(sizes, np.float64)[:, None]
    return {"ae": error.mean(axis=1), "rae": (error / (true + eps)).mean(axis=1)}


def check_of_samples(requested: Sequence[str]) -> None:
    """Raise a `SettingsError` if a quantifier is not defined for samples."""
    for name in requested:
        if _of_graph(name):
            raise SettingsError(
                f"quantifier {name!r} needs communities of a graph, and these are "
                "samples without edges: use sld, or evaluate it with --communities"
            )


def defined_quantifiers(requested: Sequence[str] | None, n_classes: int) -> list[str]:
    """Names of the quantifiers that are defined for this number of classes.

    Raises
    ------
    InputError
        When a requested one is not; None: all that are.
    """
    for name in requested or ():
        if not QUANTIFIERS[name].defined_for(n_classes):
            raise InputError(
                f"quantifier {name!r} is defined for two classes, and the task has "
                f"{n_classes}: name a positive class (--positive), or use dmy"
            )
    names = QUANTIFIERS if requested is None else requested
    return [name for name in names if QUANTIFIERS[name].defined_for(n_classes)]


def quantifiers_for(
    requested: Sequence[str] | None, n_classes: int, crisp: bool
) -> tuple[str, ...]:
    """Those for samples of a task; `crisp`: whether scores are votes only."""
    return tuple(
        name
        for name in defined_quantifiers(requested, n_classes)
        if not _of_graph(name) and (QUANTIFIERS[name].votes or not crisp)
    )


def calibrated(
    task: Task, split: int, scores: Scores, calibration: str, rows: Ints
) -> NodeTable:
    """Posteriors of target rows after a calibration fitted to the held-out rows.

    Parameters
    ----------
    task, split
        The task, and the index of the split whose labels may be used.
    scores
        Scores of that split.
    calibration
        One of `readout.calibration.KINDS`.
    rows
        Canonical indexes, a subset of ``scores.target``, ascending.

    Raises
    ------
    StageError
        When a score is NaN.
    """
    at = np.searchsorted(scores.target, rows)
    held, target = scores.held_logits, scores.target_logits[at]
    bad = np.isnan(np.concatenate([held, target])).any(axis=1)
    if bad.any():
        raise StageError(
            f"{np.count_nonzero(bad)} nodes have scores that are not numbers: the "
            "method did not converge on this task; remove it from --methods"
        )
    truth = task.labels[scores.held]
    fitted = fit_calibration(calibration, held, truth)
    prior_labels = truth
    train = task.rows(split, "train")
    # Without a calibration that changes the prior, posteriors have the prior of the
    # training rows; cross-fitted scores use all held-out rows for training.
    if calibration not in MOVES_PRIOR and not np.isin(train, scores.held).all():
        prior_labels = task.labels[train]
    counts = np.bincount(prior_labels, minlength=task.n_classes)
    labels, labelled = np.full(len(rows), -1, np.int32), np.zeros(len(rows), np.bool_)
    prior, reference = counts / counts.sum(), Reference(fitted.apply(held), truth)
    posteriors = fitted.apply(target)
    return NodeTable(posteriors, labels, labelled, task.classes, prior, reference)


def estimates(
    nodes: NodeTable,
    samples: Samples,
    quantifier: str,
    settings: Settings,
) -> Floats:
    """Estimated prevalence of every sample, shape (S, C).

    Raises
    ------
    StageError
        When an estimate is not a number.
    """
    made = make_quantifier(quantifier, settings)
    prevalence = made.estimate(samples.sets, nodes).prevalence
    if not np.isfinite(prevalence).all():
        raise StageError(
            f"quantifier {quantifier!r} gave prevalences that are not numbers: remove "
            "it from --quantifiers"
        )
    return prevalence


def _of_graph(name: str) -> bool:
    return QUANTIFIERS[name].graph or QUANTIFIERS[name].neighbours
