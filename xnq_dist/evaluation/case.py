"""Posteriors from a part of the labels, with the true classes to evaluate them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Ints32
from xnq_dist.quantify.default.estimator_fit import Held
from xnq_dist.quantify.interface import NodeTable, Reference

__all__ = ["Case"]


@dataclass(frozen=True, eq=False)
class Case:
    """Input of the estimators, and the true classes."""

    truth: Ints32
    """Class codes, -1 if unknown, shape (N,)."""
    nodes: NodeTable
    """Posteriors, and only the labels that the estimators may use."""
    compared: NodeTable
    """The same with posteriors by the models of each node's own fold."""
    held: Held | None
    """Scores of labelled nodes by models fitted without any label of their group."""

    @classmethod
    def of(
        cls,
        truth: Ints32,
        labels: Ints32,
        posteriors: NDArray[np.floating],
        own: NDArray[np.floating],
        classes: tuple[str, ...],
        held: Held | None = None,
    ) -> Case:
        """Make a case from the shown labels and posteriors, labelled ones out of fold.

        `labels` are -1 where not shown, shape (N,); `own` are the posteriors by the
        models of each node's own fold.
        """
        labelled = labels >= 0
        rows = posteriors.astype(np.float32)
        known = labels[labelled]
        prior = np.bincount(known, minlength=len(classes)) / labelled.sum()
        reference = Reference(rows[labelled], known, np.flatnonzero(labelled))
        nodes = NodeTable(rows, labels, labelled, classes, prior, reference)
        compared = replace(nodes, posteriors=own.astype(np.float32))
        return cls(truth, nodes, compared, held)
