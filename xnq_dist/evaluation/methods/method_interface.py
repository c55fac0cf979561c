"""Interface of the evaluated methods: tasks, configurations, scores and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.evaluation.datasets.test_folds import ROLES

__all__ = ["Configuration", "Figure", "Scores", "Split", "Task"]

Configuration = dict[str, Any]
"""Values of a method's hyperparameters, which must be JSON values."""


@dataclass(frozen=True)
class Split:
    """One fold with one share of its labels."""

    fold: int
    """Number of the fold, as in the table of splits."""
    label_share: float = 1.0
    """Share of the training and calibration labels that is kept."""


@dataclass(frozen=True, eq=False)
class Task:
    """A labelled graph, in the order of the canonical index."""

    dataset: str
    classes: tuple[str, ...]
    """Names of the C classes, in the order of the codes."""
    labels: NDArray[np.int32]
    """True class code of every node, -1 if unknown, shape (N,)."""
    splits: tuple[Split, ...]
    roles: NDArray[np.int8]
    """Code of every node's role in every split, -1 for none, shape (splits, N)."""

    def rows(self, split: int, *roles: str) -> NDArray[np.int64]:
        """Canonical indexes of the nodes that have one of these roles, ascending."""
        codes = [ROLES.index(role) for role in roles]
        return np.flatnonzero(np.isin(self.roles[split], codes))

    def known(self, split: int, *roles: str) -> NDArray[np.int32]:
        """Labels of the nodes with one of these roles, -1 for others, shape (N,)."""
        shown = np.full(len(self.labels), -1, np.int32)
        rows = self.rows(split, *roles)
        shown[rows] = self.labels[rows]
        return shown


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of a method for one configuration in one split."""

    held: NDArray[np.int64]
    """Canonical indexes of labelled nodes whose scores do not depend on their labels,
    ascending, shape (m,). Calibration and misclassification rates are fitted to
    these nodes."""
    held_logits: NDArray[np.float64]
    """Uncalibrated logits (log-probabilities plus a constant per row), shape (m, C)."""
    target: NDArray[np.int64]
    """The nodes with the roles validation and test, ascending, shape (t,)."""
    target_logits: NDArray[np.float64]
    """Uncalibrated logits of the targets, shape (t, C)."""
    crisp: bool = False
    """Whether logits are one-hot votes, without calibration, for CC and ACC only."""
    seconds: float = 0.0
    """Wall time for this split."""

    @classmethod
    def of(
        cls,
        task: Task,
        split: int,
        logits: NDArray[np.float64],
        seconds: float,
        crisp: bool = False,
    ) -> Scores:
        """Scores from logits of all nodes, shape (N, C)."""
        held = task.rows(split, "calibration")
        target = task.rows(split, "validation", "test")
        return cls(held, logits[held], target, logits[target], crisp, seconds)


@dataclass(frozen=True, eq=False)
class Figure:
    """Errors of one draw, calibration and quantifier on the samples of a role."""

    draw: int
    split: int
    """Index in ``Task.splits``."""
    quantifier: str
    calibration: str
    errors: dict[str, float]
    """Mean error over the samples by metric."""
    true: NDArray[np.float64]
    """True prevalences of the samples, shape (S, C); S is 0 for validation."""
    estimate: NDArray[np.float64]
    """Estimated prevalences, as `true`."""
