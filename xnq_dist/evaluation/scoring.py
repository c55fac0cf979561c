"""Errors from the scores of a method: calibrate, quantify samples, measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import InputError, StageError
from xnq_dist.core.quantifiers import record_of, records
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.methods.method_interface import Scores, Task
from xnq_dist.evaluation.protocol import Samples
from xnq_dist.quantify.interface import NodeTable, Reference
from xnq_dist.quantify.registry import make_quantifier
from xnq_dist.readout.calibration import fit_calibration

__all__ = ["Posteriors", "calibrated", "estimates", "quantifiers_for"]

MOVES_PRIOR = ("bcts", "platt", "platt_logit")
"""Calibrations after which posteriors have the prior of the held-out rows."""


@dataclass(frozen=True, eq=False)
class Posteriors:
    """Calibrated posteriors of the rows that samples are drawn from."""

    nodes: NodeTable
    reference: Reference


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
    if requested is None:
        chosen = [
            one
            for one in records().values()
            if not one.graph and not one.neighbours and one.defined_for(n_classes)
        ]
    else:
        chosen = [record_of(name) for name in requested]
        for one in chosen:
            name = one.name
            if one.graph or one.neighbours:
                raise InputError(
                    f"quantifier {name!r} needs communities of a graph, and these are "
                    "samples without edges: use sld, or evaluate it with --communities"
                )
            if not one.defined_for(n_classes):
                raise InputError(
                    f"quantifier {name!r} is defined for two classes, and the task has "
                    f"{n_classes}: name a positive class (--positive), or use dmy"
                )
    return tuple(one.name for one in chosen if not crisp or one.votes)


def calibrated(
    task: Task, split: int, scores: Scores, calibration: str, rows: NDArray[np.int64]
) -> Posteriors:
    """Posteriors of target rows after a calibration fitted to the held-out rows.

    Parameters
    ----------
    task, split
        The task, and the index of the split whose labels may be used.
    scores
        Scores of that split.
    calibration
        One of `readout.calibration.KINDS`; ``none`` for crisp scores.
    rows
        Canonical indexes, a subset of ``scores.target``, ascending.

    Raises
    ------
    StageError
        When a score is NaN, or a row has no score.
    """
    for what, logits in (
        ("held-out", scores.held_logits),
        ("target", scores.target_logits),
    ):
        if np.isnan(logits).any():
            raise StageError(
                f"{int(np.isnan(logits).any(axis=1).sum())} {what} nodes have scores "
                "that are not numbers: the method did not converge on this task; "
                "remove it from --methods"
            )
    at = np.searchsorted(scores.target, rows)
    at = np.minimum(at, max(0, len(scores.target) - 1))
    if not len(scores.target) or not np.array_equal(scores.target[at], rows):
        raise StageError(
            "some sampled nodes have no scores: internal error, please report it"
        )
    truth = task.labels[scores.held]
    fitted = fit_calibration(calibration, scores.held_logits, truth)
    n_classes = len(task.classes)
    votes = np.eye(n_classes, dtype=np.float32)
    held, posteriors = (
        votes[logits.argmax(axis=1)] if scores.crisp else fitted.apply(logits)
        for logits in (scores.held_logits, scores.target_logits[at])
    )
    prior_labels = truth
    train = task.rows(split, "train")
    # Without a calibration that changes the prior, posteriors have the prior of the
    # training rows; cross-fitted scores use all held-out rows for training.
    if calibration not in MOVES_PRIOR and not np.isin(train, scores.held).all():
        prior_labels = task.labels[train]
    prior = np.bincount(prior_labels, minlength=n_classes) / max(1, len(prior_labels))
    nodes = NodeTable(
        posteriors=posteriors,
        labels=np.full(len(rows), -1, np.int32),
        out_of_fold=np.zeros(len(rows), np.bool_),
        classes=task.classes,
    )
    reference = Reference(prior, held, truth)
    return Posteriors(nodes, reference)


def estimates(
    posteriors: Posteriors, samples: Samples, quantifier: str, settings: Settings
) -> NDArray[np.float64]:
    """Estimated prevalence of every sample, shape (S, C).

    Raises
    ------
    StageError
        When an estimate is not a number.
    """
    result = make_quantifier(quantifier, settings).estimate(
        samples.sets, posteriors.nodes, posteriors.reference
    )
    if not np.isfinite(result.prevalence).all():
        raise StageError(
            f"quantifier {quantifier!r} gave prevalences that are not numbers: remove "
            "it from --quantifiers"
        )
    return result.prevalence
