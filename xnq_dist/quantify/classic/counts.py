"""CC, PCC, ACC and PACC: counts of votes or posteriors, plain or adjusted.

The adjusted counts minimise ``||M p - q||`` over the simplex, where q are the plain
counts of a community and M's columns are the counts expected for one class alone.

References
----------
G. Forman, "Quantifying counts and costs via classification", DMKD 17(2), 2008.
A. Bella et al., "Quantification via probability estimators", ICDM 2010.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.members import check_posteriors, labelled_rows
from xnq_dist.quantify.classic.simplex import mixture_kernel
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = ["Counts", "adjusted", "make", "mean_kernel", "rates"]


@dataclass(frozen=True)
class Counts(Quantifier):
    """The quantifiers ``cc``, ``pcc``, ``acc`` and ``pacc``."""

    name: str

    @property
    def trusts_posteriors(self) -> bool:
        """Whether counts are not adjusted."""
        return self.name in ("cc", "pcc")

    @property
    def adjusts_posteriors(self) -> bool:
        """Whether counts are adjusted."""
        return not self.trusts_posteriors

    @property
    def hard(self) -> bool:
        """Whether votes are counted instead of posteriors."""
        return self.name in ("cc", "acc")

    def estimate(
        self, batch: Communities, nodes: NodeTable, reference: Reference
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        check_posteriors(self.name, batch, nodes)
        means = self.means(batch, nodes)
        if self.adjusts_posteriors:
            matrix = reference.learnt(self, lambda: self.rates(reference))
            return adjusted(matrix[None], means)
        converged = np.ones(len(batch), np.bool_)
        return Estimates(means, np.zeros(len(batch), np.int32), converged)

    def rates(self, reference: Reference) -> Floats:
        """The matrix M: a row for each column of `means`, a column for each class."""
        return rates(*labelled_rows(self.name, reference), self.hard)

    def means(self, batch: Communities, nodes: NodeTable) -> Floats:
        """Mean vote or posterior of every community, shape (S, C)."""
        means = np.empty((len(batch), nodes.posteriors.shape[1]))
        table = nodes.unlabelled, nodes.posteriors
        mean_kernel(batch.offsets, batch.members, *table, self.hard, means)
        return means


def adjusted(matrices: Floats, counts: Floats) -> Estimates:
    """Estimate the prevalence whose expected counts are nearest to the observed ones.

    Arguments are those of `mixture_kernel`.
    """
    size = len(counts)
    prevalence = np.full((size, matrices.shape[2]), np.nan)
    converged = np.ones(size, np.bool_)
    mixture_kernel(matrices, counts, prevalence, converged)
    return Estimates(prevalence, np.zeros(size, np.int32), converged)


def make(name: str, settings: Settings) -> Quantifier:
    """Construct one of the four quantifiers."""
    return Counts(name)


def rates(
    posteriors: NDArray[np.floating], labels: NDArray[np.integer], hard: bool
) -> Floats:
    """The matrix M of ACC (`hard`: votes, the first of equals) or of PACC, (C, C).

    Column j is the mean over the labelled nodes of class j, without rows of zeros; a
    class without any node has the column of the identity.

    Examples
    --------
    >>> rates(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0, 0]), hard=True)
    array([[0.5, 0. ],
           [0.5, 1. ]])
    """
    n_classes = posteriors.shape[1]
    predicted = np.asarray(posteriors, dtype=np.float64)
    if hard:
        nonzero = predicted.max(axis=1, initial=0.0) > 0
        votes = np.eye(n_classes)[predicted.argmax(axis=1)]
        predicted = np.where(nonzero[:, None], votes, 0.0)
    matrix = np.eye(n_classes)
    for j in range(n_classes):
        chosen = predicted[labels == j]
        if chosen.size and chosen.sum() > 0:
            matrix[:, j] = chosen.sum(axis=0) / chosen.sum()
    return matrix


@njit(cache=True, nogil=True, error_model="numpy")
def mean_kernel(
    offsets: Ints,
    members: Ints,
    unlabelled: Bools,
    posteriors: Floats32,
    hard: bool,
    means: Floats,
) -> None:
    """Mean vote (`hard`) or posterior of unlabelled members, into `means` (S, C).

    Sums are in float64; rows of zeros are skipped; of equal posteriors the first gets
    the vote. Rows of `means` sum to 1 and are NaN without an unlabelled member.
    """
    n_classes = posteriors.shape[1]
    total = np.empty(n_classes)
    for s in range(offsets.shape[0] - 1):
        total[:] = 0.0
        seen = 0
        for position in range(offsets[s], offsets[s + 1]):
            node = members[position]
            if not unlabelled[node]:
                continue
            seen += 1
            if hard:
                best = 0
                for y in range(1, n_classes):
                    if posteriors[node, y] > posteriors[node, best]:
                        best = y
                if posteriors[node, best] > 0.0:
                    total[best] += 1.0
            else:
                for y in range(n_classes):
                    total[y] += posteriors[node, y]
        mass = 0.0
        for y in range(n_classes):
            mass += total[y]
        for y in range(n_classes):
            if seen == 0:
                means[s, y] = np.nan
            elif mass > 0.0:
                means[s, y] = total[y] / mass
            else:
                means[s, y] = 1.0 / n_classes
