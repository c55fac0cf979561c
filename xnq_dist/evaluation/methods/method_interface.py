"""What a method sees of a labelled graph, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ROLES", "Configuration", "Scores", "Split", "Task", "Whole"]

ROLES = ("train", "calibration", "validation", "test")
"""Roles of nodes in a fold; their place is their code, -1 is none."""

Configuration = dict[str, Any]
"""Values of a method's hyperparameters, as JSON knows them."""


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
    """True class code of every node, -1 where nobody knows it, shape (N,)."""
    splits: tuple[Split, ...]
    roles: NDArray[np.int8]
    """Code of `ROLES` of every node in every split, -1 none, shape (splits, N)."""

    def rows(self, split: int, *roles: str) -> NDArray[np.int64]:
        """Canonical indexes of the nodes that have one of these roles, ascending."""
        codes = [ROLES.index(role) for role in roles]
        return np.flatnonzero(np.isin(self.roles[split], codes))

    def known(self, split: int, *roles: str) -> NDArray[np.int32]:
        """Labels of the nodes with one of these roles, -1 for all others, (N,)."""
        shown = np.full(len(self.labels), -1, np.int32)
        rows = self.rows(split, *roles)
        shown[rows] = self.labels[rows]
        return shown


@dataclass(frozen=True, eq=False)
class Scores:
    """A method's answer for one configuration in one split."""

    held: NDArray[np.int64]
    """Labelled nodes whose own label had no part in their scores: calibration and
    misclassification rates are fitted to them. Canonical indexes, ascending, (m,)."""
    held_logits: NDArray[np.float64]
    """Uncalibrated logits (log-probabilities up to a constant a row), shape (m, C)."""
    target: NDArray[np.int64]
    """The nodes with the roles validation and test, ascending, shape (t,)."""
    target_logits: NDArray[np.float64]
    """Shape (t, C)."""
    crisp: bool = False
    """Votes only, as one-hot logits: nothing to calibrate, CC and ACC alone."""
    seconds: float = 0.0
    """Wall time of what this split cost."""


@dataclass(frozen=True, eq=False)
class Whole:
    """A graph-level answer for one split: one prevalence, no sample of its own."""

    split: int
    """Place in ``Task.splits``."""
    true: NDArray[np.float64]
    """Prevalence among the nodes without a training label, shape (C,)."""
    estimate: NDArray[np.float64]
    """Shape (C,)."""
    size: int
    """Nodes behind `true`."""
    seconds: float = 0.0
    """Wall time of what this split cost."""
