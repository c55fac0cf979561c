"""Errors from the scores of a method: calibrate, quantify samples, measure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.errors import InputError, StageError
from xnq_dist.core.records import QUANTIFIERS
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.protocol import Samples
from xnq_dist.evaluation.task import Scores, Task
from xnq_dist.quantify.interface import NodeTable, Reference, make_quantifier
from xnq_dist.readout.calibration import MOVES_PRIOR, fit_calibration

__all__ = ["calibrated", "errors_of", "estimates", "quantifiers_for"]


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


def quantifiers_for(
    requested: Sequence[str] | None, n_classes: int, crisp: bool
) -> tuple[str, ...]:
    """Names of the quantifiers that are defined for a task and a kind of scores.

    Parameters
    ----------
    requested
        Names that were requested; None: all that are defined.
    crisp
        Whether scores are votes only.

    Raises
    ------
    InputError
        When a requested quantifier is not defined for samples without edges or for the
        number of classes.
    """
    chosen = []
    for name in QUANTIFIERS if requested is None else requested:
        one = QUANTIFIERS[name]
        of_graph, defined = one.graph or one.neighbours, one.defined_for(n_classes)
        if requested is not None and of_graph:
            raise InputError(
                f"quantifier {name!r} needs communities of a graph, and these are "
                "samples without edges: use sld, or evaluate it with --communities"
            )
        if requested is not None and not defined:
            raise InputError(
                f"quantifier {name!r} is defined for two classes, and the task has "
                f"{n_classes}: name a positive class (--positive), or use dmy"
            )
        if defined and not of_graph and (one.votes or not crisp):
            chosen.append(name)
    return tuple(chosen)


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
