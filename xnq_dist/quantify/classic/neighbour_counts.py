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
from xnq_dist.quantify.classic.counts import Counts
from xnq_dist.quantify.interface import Quantifier

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["NeighbourCounts", "make", "neighbour_sums", "with_votes"]


@dataclass(frozen=True)
class NeighbourCounts(Counts):
    """The quantifiers ``nacc`` (votes) and ``npacc`` (posteriors).

    Neighbours are the sources of a node's edges, weighted as the edges are; a loop in
    the graph makes a node its own neighbour.
    """

    @property
    def hard(self) -> bool:
        """Whether votes are counted instead of posteriors."""
        return self.name == "nacc"

    def sums(self, neighbours: Floats | None) -> Floats:
        """Votes or posteriors summed over the neighbours of every node, (N, C)."""
        if neighbours is None:
            raise StageError(
                f"quantifier = {self.name} did not get the sums over neighbours: this "
                "is an internal error, please report it"
            )
        width = neighbours.shape[1] // 2
        return neighbours[:, width:] if self.hard else neighbours[:, :width]


def make(name: str, settings: Settings) -> Quantifier:
    """Construct one of the two quantifiers."""
    return NeighbourCounts(name)


def with_votes(posteriors: NDArray[np.floating]) -> Floats32:
    """Posteriors, and votes for the largest, the first of equals; zeros have no vote.

    Examples
    --------
    >>> with_votes(np.array([[0.25, 0.75], [0.5, 0.5], [0.0, 0.0]]))
    array([[0.25, 0.75, 0.  , 1.  ],
           [0.5 , 0.5 , 1.  , 0.  ],
           [0.  , 0.  , 0.  , 0.  ]], dtype=float32)
    """
    votes = np.zeros(posteriors.shape, np.float32)
    rows = np.flatnonzero(posteriors.max(axis=1, initial=0.0) > 0)
    votes[rows, posteriors[rows].argmax(axis=1)] = 1.0
    return np.concatenate([posteriors.astype(np.float32), votes], axis=1)


def neighbour_sums(
    adjacency: csr_array[Any], posteriors: NDArray[np.floating]
) -> Floats:
    """Sums over in-neighbours in one process, (N, 2 C); row v has those of node v."""
    return np.asarray(adjacency @ with_votes(posteriors).astype(np.float64))
