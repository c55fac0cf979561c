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

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, offsets_of
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.members import labelled_rows
from xnq_dist.quantify.classic.simplex import mixture_kernel
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = ["Counts", "make", "mean_kernel"]

ALONE = np.empty((0, 0))
"""Sums over neighbours for `mean_kernel`, where neighbours are not counted."""


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

    def sums(self, neighbours: Floats | None) -> Floats:
        """Predictions summed over the neighbours of every node, if they count too."""
        return ALONE

    def estimate(
        self, batch: Communities, nodes: NodeTable, reference: Reference
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        sums = self.sums(nodes.neighbours)
        means = self.means(batch, nodes.unlabelled, nodes.posteriors, sums)
        converged = np.ones(len(batch), np.bool_)
        if self.trusts_posteriors:
            return Estimates(means, converged)
        matrix = reference.learnt(self, lambda: self.rates(reference))
        prevalence = np.full((len(batch), matrix.shape[1]), np.nan)
        mixture_kernel(matrix, means, prevalence, converged)
        return Estimates(prevalence, converged)

    def means(
        self, batch: Communities, chosen: Bools, posteriors: Floats32, sums: Floats
    ) -> Floats:
        """Mean prediction of the chosen members, shape (S, K), see `mean_kernel`."""
        n_classes = posteriors.shape[1]
        means = np.empty((len(batch), n_classes * max(1, sums.shape[1])))
        sets = batch.offsets, batch.members, chosen
        mean_kernel(*sets, posteriors, sums, self.hard, means)
        return means

    def rates(self, reference: Reference) -> Floats:
        """The matrix M, shape (K, C): mean predictions of each class's labelled nodes.

        A class without labelled nodes is assumed to be predicted correctly.
        """
        posteriors, labels = labelled_rows(self.name, reference)
        n_classes = posteriors.shape[1]
        sizes = np.bincount(labels, minlength=n_classes)
        offsets = offsets_of(sizes)
        by_class = Communities(offsets, np.argsort(labels, kind="stable"))
        every = np.ones(len(labels), np.bool_)
        sums = self.sums(reference.neighbours)
        means = self.means(by_class, every, posteriors, sums)
        usable = posteriors.max(axis=1, initial=0.0) > 0
        seen = np.bincount(labels[usable], minlength=n_classes)
        for code in np.flatnonzero(seen == 0):
            # With neighbours, K is C x C: they are predicted as this class, too.
            correct = code if sums is ALONE else code * n_classes + code
            means[code] = 0.0
            means[code, correct] = 1.0
        return np.ascontiguousarray(means.T)


def make(name: str, settings: Settings) -> Quantifier:
    """Construct one of the four quantifiers."""
    return Counts(name)


@njit(cache=True, nogil=True, error_model="numpy")
def mean_kernel(
    offsets: Ints,
    members: Ints,
    chosen: Bools,
    posteriors: Floats32,
    sums: Floats,
    hard: bool,
    means: Floats,
) -> None:
    """Mean prediction of the chosen members, into `means`; NaN without one.

    Predictions are votes (`hard`, the first of equals) or posteriors, shape (S, C).
    With `sums`, (N, C), over neighbours' predictions, they are pairs of a node's
    prediction and its neighbours': members predicted as i with neighbours predicted as
    j are at ``i C + j``, shape (S, C^2). Rows of zeros in `posteriors` are skipped; one
    in `sums` is replaced by the node's own.
    """
    n_classes = posteriors.shape[1]
    width = max(1, sums.shape[1])
    total = np.empty(n_classes * width)
    around = np.ones(width)
    for s in range(offsets.shape[0] - 1):
        total[:] = 0.0
        seen = 0
        for position in range(offsets[s], offsets[s + 1]):
            node = members[position]
            if not chosen[node]:
                continue
            seen += 1
            if width > 1:
                mass = 0.0
                for y in range(width):
                    around[y] = sums[node, y]
                    mass += around[y]
                if not mass > 0.0:
                    for y in range(width):
                        around[y] = posteriors[node, y]
                        mass += around[y]
                for y in range(width):
                    around[y] /= mass if mass > 0.0 else 1.0
            if not hard:
                for i in range(n_classes):
                    for j in range(width):
                        total[i * width + j] += posteriors[node, i] * around[j]
                continue
            own, near = 0, 0
            for y in range(1, n_classes):
                if posteriors[node, y] > posteriors[node, own]:
                    own = y
            for y in range(1, width):
                if around[y] > around[near]:
                    near = y
            if posteriors[node, own] > 0.0:
                total[own * width + near] += 1.0
        mass = total.sum()
        for k in range(total.shape[0]):
            if seen == 0:
                means[s, k] = np.nan
            elif mass > 0.0:
                means[s, k] = total[k] / mass
            else:
                means[s, k] = 1.0 / total.shape[0]
