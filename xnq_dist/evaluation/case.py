"""Posteriors from some of the labels, with the truth they are judged by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.evaluation.designs import Drawn, Shown
from xnq_dist.quantify.classic.neighbour_counts import neighbour_statistics
from xnq_dist.quantify.default.estimator_fit import Held
from xnq_dist.quantify.interface import NodeTable, Reference

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Case"]


@dataclass(frozen=True, eq=False)
class Case:
    """What estimators are given, and the truth."""

    truth: NDArray[np.int32]
    """Class codes, -1 where unknown, shape (N,)."""
    nodes: NodeTable
    """With the labels shown only."""
    reference: Reference
    held: Held | None = None
    """Labelled nodes, by models fitted without any label of their group."""
    drawn: Drawn = "unknown"
    """The declared `labels.drawn`."""

    @classmethod
    def of(
        cls,
        truth: NDArray[np.int32],
        shown: Shown,
        posteriors: NDArray[np.float64],
        classes: tuple[str, ...],
        held: Held | None = None,
    ) -> Case:
        """From the labels shown, and posteriors that have not seen them."""
        labels = shown.labels
        known = labels >= 0
        rows = posteriors.astype(np.float32)
        fitted = shown.fitted[shown.fitted >= 0]
        reference = Reference(
            # Posteriors are calibrated to the labels that the model was fitted to.
            np.bincount(fitted, minlength=len(classes)) / len(fitted),
            rows[known],
            labels[known],
            rows=np.flatnonzero(known),
        )
        nodes = NodeTable(rows, labels, known, classes)
        return cls(truth, nodes, reference, held, shown.drawn)

    def with_neighbours(self, adjacency: csr_array[Any]) -> Case:
        """With what is known of every node's neighbours.

        Parameters
        ----------
        adjacency
            In-neighbours, shape (N, N).
        """
        found = neighbour_statistics(adjacency, self.nodes)
        rows = np.flatnonzero(self.nodes.labels >= 0)
        return Case(
            self.truth,
            replace(self.nodes, neighbours=found),
            replace(self.reference, neighbours=found.of(rows)),
            self.held,
            self.drawn,
        )
