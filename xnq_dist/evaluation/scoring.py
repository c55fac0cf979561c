"""From a method's scores to errors: calibrate, quantify samples, measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.config import Settings
from xnq_dist.core.errors import InputError, StageError
from xnq_dist.core.quantifiers import record_of, records
from xnq_dist.evaluation.measures import absolute_error, relative_absolute_error
from xnq_dist.evaluation.methods.method_interface import Scores, Task
from xnq_dist.evaluation.protocol import Samples
from xnq_dist.quantify.interface import (
    NodeTable,
    Reference,
)
from xnq_dist.quantify.registry import make_quantifier
from xnq_dist.readout.calibration import fit_calibration

__all__ = [
    "Posteriors",
    "calibrated",
    "errors",
    "estimates",
    "quantifiers_for",
]

MOVES_PRIOR = ("bcts", "platt", "platt_logit")


@dataclass(frozen=True, eq=False)
class Posteriors:
    """Calibrated posteriors of the rows that samples are drawn from."""

    nodes: NodeTable
    reference: Reference


def quantifiers_for(
    wanted: Sequence[str] | None, n_classes: int, crisp: bool
) -> tuple[str, ...]:
    """The quantifiers that are defined for a task and a kind of scores.

    Parameters
    ----------
    wanted
        Names that were requested; None: all that are defined.
    crisp
        Whether there are votes only.

    Raises
    ------
    InputError
        When a requested one is not defined for so many classes.
    """
    if wanted is None:
        chosen = [
            one
            for one in records().values()
            if not one.graph and not one.neighbours and one.defined_for(n_classes)
        ]
    else:
        chosen = [record_of(name) for name in wanted]
        for one in chosen:
            name = one.name
            if one.graph:
                raise InputError(
                    f"quantifier {name!r} is for communities of a graph, and these are "
                    "samples without edges, for which it is 'sld': name that"
                )
            if one.neighbours:
                raise InputError(
                    f"quantifier {name!r} looks at neighbours, and these are samples "
                    "without edges: evaluate it with --communities"
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
    """Posteriors of some target rows after a calibration fitted on the held rows.

    Parameters
    ----------
    task, split
        The labels that may be seen.
    scores
        Of that split.
    calibration
        One of `readout.calibration.KINDS`; ``none`` for crisp scores.
    rows
        Canonical indexes among ``scores.target``, ascending.

    Raises
    ------
    StageError
        When a score is not finite, or a row has none.
    """
    for what, logits in (
        ("held-out", scores.held_logits),
        ("target", scores.target_logits),
    ):
        if np.isnan(logits).any():
            raise StageError(
                f"{int(np.isnan(logits).any(axis=1).sum())} {what} nodes have scores "
                "that are not numbers: the method did not converge on this task"
            )
    at = np.searchsorted(scores.target, rows)
    at = np.minimum(at, max(0, len(scores.target) - 1))
    if not len(scores.target) or not np.array_equal(scores.target[at], rows):
        raise StageError("some sampled nodes have no scores: a fault of the method")
    truth = task.labels[scores.held]
    fitted = fit_calibration(calibration, scores.held_logits, truth)
    n_classes = len(task.classes)
    votes = np.eye(n_classes, dtype=np.float32)
    held, found = (
        votes[logits.argmax(axis=1)] if scores.crisp else fitted.apply(logits)
        for logits in (scores.held_logits, scores.target_logits[at])
    )
    standing = truth
    train = task.rows(split, "train")
    # Cross-fitted scores are of models fitted to all the held rows.
    if calibration not in MOVES_PRIOR and not np.isin(train, scores.held).all():
        standing = task.labels[train]
    prior = np.bincount(standing, minlength=n_classes) / max(1, len(standing))
    nodes = NodeTable(
        posteriors=found,
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
    found = make_quantifier(quantifier, settings).estimate(
        samples.sets, posteriors.nodes, posteriors.reference
    )
    if not np.isfinite(found.prevalence).all():
        raise StageError(
            f"quantifier {quantifier!r} gave prevalences that are not numbers"
        )
    return found.prevalence


def errors(samples: Samples, found: NDArray[np.float64]) -> dict[str, float]:
    """Mean AE and RAE over the samples."""
    true = samples.prevalence
    return {
        "ae": float(absolute_error(true, found).mean()),
        "rae": float(relative_absolute_error(true, found, samples.sizes).mean()),
    }
