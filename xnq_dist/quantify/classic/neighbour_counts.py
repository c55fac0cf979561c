"""NACC: adjusted counts of the predictions for a node and for its neighbours.

ACC cannot distinguish two classes with equal predictions. The pair of a node's
prediction and the majority prediction of its neighbours is more informative: the counts
q are of C^2 pairs, M has a row for each pair and a column for each class, and p
minimises ``||M p - q||`` over the simplex as in ACC.

References
----------
C. Damke, E. Huellermeier, "Adjusted count quantification learning on graphs", NeurIPS
2025 (arXiv 2503.09395), section 3.2; with posteriors (PACC) instead of votes a pair is
the product of a node's posterior and the mean posterior of its neighbours. A node
without neighbours counts as its own neighbour, as in the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Floats32
from xnq_dist.core.errors import StageError
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.counts import AdjustedCounts, predicted, with_votes
from xnq_dist.quantify.interface import Quantifier

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["NeighbourCounts", "make", "neighbour_sums"]


@dataclass(frozen=True)
class NeighbourCounts(AdjustedCounts):
    """The quantifiers ``nacc`` (votes) and ``npacc`` (posteriors).

    Neighbours are the sources of a node's edges, weighted as the edges are; a loop in
    the graph makes a node its own neighbour.
    """

    def predictions(self, posteriors: Floats32, neighbours: Floats | None) -> Floats:
        """Pairs of a node's prediction i and its neighbours' j, shape (n, C^2).

        A pair is at ``i C + j``. Nodes without neighbours have their own posterior.
        """
        if neighbours is None:
            raise StageError(
                f"quantifier = {self.name} did not get the sums over neighbours: this "
                "is an internal error, please report it"
            )
        width = posteriors.shape[1]
        near = neighbours[:, width:] if self.hard else neighbours[:, :width]
        near = np.where(near.sum(axis=1, keepdims=True) > 0, near, posteriors)
        mass = near.sum(axis=1, keepdims=True)
        near = predicted(near / np.where(mass > 0, mass, 1.0), self.hard)
        pairs = predicted(posteriors, self.hard)[:, :, None] * near[:, None]
        return pairs.reshape(len(pairs), width * width)


def make(name: str, settings: Settings) -> Quantifier:
    """Construct one of the two quantifiers."""
    return NeighbourCounts(name)


def neighbour_sums(
    adjacency: csr_array[Any], posteriors: NDArray[np.floating]
) -> Floats:
    """Sums over in-neighbours in one process, (N, 2 C); row v has those of node v."""
    return adjacency @ with_votes(posteriors).astype(np.float64)
