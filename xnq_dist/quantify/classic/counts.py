"""CC, PCC, ACC, PACC, NACC and NPACC: counts of votes or posteriors, plain or adjusted.

The adjusted counts minimise ``||M p - q||`` over the simplex, where q are the plain
counts of a community and M's columns are the counts expected for one class alone.

ACC cannot distinguish two classes with equal predictions. The pair of a node's
prediction and the majority prediction of its neighbours is more informative: NACC's
counts q are of C^2 pairs, M has a row for each pair and a column for each class.

References
----------
G. Forman, "Quantifying counts and costs via classification", DMKD 17(2), 2008.
A. Bella et al., "Quantification via probability estimators", ICDM 2010.
C. Damke, E. Huellermeier, "Adjusted count quantification learning on graphs", NeurIPS
2025 (arXiv 2503.09395), section 3.2; with posteriors (PACC) instead of votes a pair is
the product of a node's posterior and the mean posterior of its neighbours. A node
without neighbours counts as its own neighbour, as in the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from xnq_dist.core.arrays import Floats, Floats32, Ints, offsets_of
from xnq_dist.core.errors import InputError, StageError
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.members import usable_members
from xnq_dist.quantify.classic.simplex import mixture_kernel
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = [
    "AdjustedCounts",
    "Counts",
    "NeighbourCounts",
    "make",
    "neighbour_sums",
    "predicted",
    "with_votes",
]


@dataclass(frozen=True)
class Counts(Quantifier):
    """The quantifiers ``cc`` and ``pcc``."""

    name: str
    trusts_posteriors = True

    @property
    def hard(self) -> bool:
        """Whether votes are counted instead of posteriors."""
        return self.name in ("cc", "acc", "nacc")

    def predictions(self, posteriors: Floats32, neighbours: Floats | None) -> Floats:
        """What is counted of every node, float64, shape (n, K); K = C."""
        return predicted(posteriors, self.hard)

    def estimate(self, batch: Communities, nodes: NodeTable) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        usable = usable_members(batch, nodes)
        some = usable.nodes
        counted = self.predictions(some.posteriors, some.neighbours)
        means = _means(usable.sets.offsets, usable.sets.members, counted)
        means[usable.unlabelled == 0] = np.nan
        converged = np.ones(len(batch), np.bool_)
        if self.trusts_posteriors:
            return Estimates(means, converged)
        reference = nodes.reference
        matrix = reference.learnt(self, lambda: self.rates(reference))
        prevalence = np.full((len(batch), matrix.shape[1]), np.nan)
        mixture_kernel(matrix, means, prevalence, converged)
        return Estimates(prevalence, converged)

    def rates(self, reference: Reference) -> Floats:
        """The matrix M, shape (K, C): mean predictions of each class's labelled nodes.

        A class without labelled nodes is assumed to be predicted correctly.
        """
        posteriors, labels = reference.posteriors, reference.labels
        if not len(labels):
            raise InputError(
                f"quantifier = {self.name} needs labelled nodes that the readout was "
                "not fitted to, and there are none: give some nodes the role "
                "calibration, or set quantifier = sld"
            )
        n_classes = posteriors.shape[1]
        usable = np.flatnonzero(posteriors.max(axis=1, initial=0.0) > 0)
        order = usable[np.argsort(labels[usable], kind="stable")]
        sizes = np.bincount(labels[usable], minlength=n_classes)
        counted = self.predictions(posteriors, reference.neighbours)
        means = _means(offsets_of(sizes), order, counted)
        for code in np.flatnonzero(sizes == 0):
            # With neighbours, K is C x C: they are predicted as this class, too.
            pairs = counted.shape[1] > n_classes
            means[code] = 0.0
            means[code, code * n_classes + code if pairs else code] = 1.0
        return np.ascontiguousarray(means.T)


class AdjustedCounts(Counts):
    """The quantifiers ``acc`` and ``pacc``."""

    trusts_posteriors = False
    adjusts_posteriors = True


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
    """Construct one of the six quantifiers."""
    kinds = {"cc": Counts, "pcc": Counts, "acc": AdjustedCounts, "pacc": AdjustedCounts}
    return kinds.get(name, NeighbourCounts)(name)


def with_votes(posteriors: NDArray[np.floating]) -> Floats32:
    """Posteriors, and votes for the largest, the first of equals; zeros have no vote.

    Examples
    --------
    >>> with_votes(np.array([[0.25, 0.75], [0.5, 0.5], [0.0, 0.0]]))
    array([[0.25, 0.75, 0.  , 1.  ],
           [0.5 , 0.5 , 1.  , 0.  ],
           [0.  , 0.  , 0.  , 0.  ]], dtype=float32)
    """
    votes = predicted(posteriors, True).astype(np.float32)
    return np.concatenate([posteriors.astype(np.float32), votes], axis=1)


def predicted(values: NDArray[np.floating], hard: bool) -> Floats:
    """Values, or votes for the largest of each row; rows of zeros stay zeros."""
    if not hard:
        return values.astype(np.float64)
    votes = np.zeros(values.shape)
    rows = np.flatnonzero(values.max(axis=1, initial=0.0) > 0)
    votes[rows, values[rows].argmax(axis=1)] = 1.0
    return votes


def neighbour_sums(
    adjacency: csr_array[Any], posteriors: NDArray[np.floating]
) -> Floats:
    """Sums over in-neighbours in one process, (N, 2 C); row v has those of node v."""
    return adjacency @ with_votes(posteriors).astype(np.float64)


def _means(offsets: Ints, members: Ints, counted: Floats) -> Floats:
    """Mean of the members' predictions by community, (S, K); uniform without any."""
    shape = len(offsets) - 1, len(counted)
    chosen = csr_array((np.ones(len(members)), members, offsets), shape)
    total = np.asarray(chosen @ counted)
    mass = total.sum(axis=1, keepdims=True)
    uniform = np.full_like(total, 1.0 / total.shape[1])
    return np.asarray(np.divide(total, mass, out=uniform, where=mass > 0))
