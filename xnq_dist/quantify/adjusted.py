"""CC, PCC, ACC and PACC: counts of votes or posteriors, as they are or adjusted.

The adjusted counts minimise ``||M p - q||`` over the simplex, where q are the plain
counts of a community and M's columns are what they would be for one class alone.

References
----------
G. Forman, "Quantifying counts and costs via classification", DMKD 17(2), 2008.
A. Bella et al., "Quantification via probability estimators", ICDM 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.errors import InputError
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    Labelled,
    NodeTable,
    Reference,
)

__all__ = ["Counts", "mean_kernel", "rates", "simplex_kernel"]

TOLERANCE = 1e-12
"""Largest violation of the optimality conditions of the adjusted counts."""

RIDGE = 1e-10
"""Weight of ||p||^2: of several answers that fit alike, the one nearest to uniform."""


@dataclass(frozen=True)
class Counts:
    """The quantifiers ``cc``, ``pcc``, ``acc`` and ``pacc``."""

    name: Literal["cc", "pcc", "acc", "pacc"]
    needs_neighbours: bool = False

    def estimate(
        self,
        batch: Communities,
        nodes: NodeTable,
        reference: Reference,
        labelled: Labelled,
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community.

        Raises
        ------
        InputError
            When ``acc`` or ``pacc`` has no labelled node to learn M from.
        """
        hard = self.name in ("cc", "acc")
        n_communities, n_classes = len(batch), nodes.posteriors.shape[1]
        means = np.empty((n_communities, n_classes))
        mean_kernel(
            batch.offsets,
            batch.members,
            nodes.unlabelled,
            nodes.posteriors,
            hard,
            means,
        )
        converged = np.ones(n_communities, np.bool_)
        if self.name in ("acc", "pacc"):
            matrix = reference.vote_rates if hard else reference.posterior_rates
            if matrix is None:
                raise InputError(
                    f"quantifier = {self.name} needs labelled nodes whose label had no "
                    "part in the readout, and there are none: give some nodes the role "
                    "calibration, or set quantifier = sld"
                )
            simplex_kernel(np.ascontiguousarray(matrix, np.float64), means, converged)
        return Estimates(means, np.zeros(n_communities, np.int32), converged)


def rates(
    posteriors: NDArray[np.floating], labels: NDArray[np.integer], hard: bool
) -> NDArray[np.float64]:
    """The matrix M of ACC (`hard`) or PACC.

    Parameters
    ----------
    posteriors
        Of labelled nodes that had no part in the readout, shape (n, C).
    labels
        Their class codes, shape (n,).
    hard
        Votes (the first of the largest posteriors) instead of posteriors.

    Returns
    -------
    Shape (C, C): column j is the mean over the nodes of class j; a class without any
    has the column of the identity.

    Examples
    --------
    >>> rates(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0, 0]), hard=True)
    array([[0.5, 0. ],
           [0.5, 1. ]])
    """
    n_classes = posteriors.shape[1]
    said = np.asarray(posteriors, dtype=np.float64)
    if hard:
        said = np.eye(n_classes)[said.argmax(axis=1)]
    matrix = np.eye(n_classes)
    for j in range(n_classes):
        chosen = said[labels == j]
        if chosen.size and chosen.sum() > 0:
            matrix[:, j] = chosen.sum(axis=0) / chosen.sum()
    return matrix


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def mean_kernel(
    offsets: NDArray[np.int64],
    members: NDArray[np.int64],
    unlabelled: NDArray[np.bool_],
    posteriors: NDArray[np.float32],
    hard: bool,
    means: NDArray[np.float64],
) -> None:
    """Mean vote or posterior of the unlabelled members of every community.

    Parameters
    ----------
    offsets, members
        `Communities`; int64 (S + 1,) and (M,).
    unlabelled
        bool (N,); other members are passed over.
    posteriors
        float32 (N, C); sums are in float64. A row of zeros is passed over.
    hard
        Whether votes are counted; the first of the largest posteriors has it.
    means
        float64 (S, C), filled in: rows sum to 1, NaN without an unlabelled member.
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


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _solve(system: NDArray[np.float64], right: NDArray[np.float64], size: int) -> None:
    """Gaussian elimination with partial pivoting in place; the answer in `right`."""
    for k in range(size):
        pivot = k
        for i in range(k + 1, size):
            if abs(system[i, k]) > abs(system[pivot, k]):
                pivot = i
        if pivot != k:
            for j in range(k, size):
                system[k, j], system[pivot, j] = system[pivot, j], system[k, j]
            right[k], right[pivot] = right[pivot], right[k]
        for i in range(k + 1, size):
            factor = system[i, k] / system[k, k]
            if factor != 0.0:
                for j in range(k, size):
                    system[i, j] -= factor * system[k, j]
                right[i] -= factor * right[k]
    for k in range(size - 1, -1, -1):
        value = right[k]
        for j in range(k + 1, size):
            value -= system[k, j] * right[j]
        right[k] = value / system[k, k]


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def simplex_kernel(
    matrix: NDArray[np.float64],
    means: NDArray[np.float64],
    converged: NDArray[np.bool_],
) -> None:
    """Replace every row q by the p on the simplex that minimises ||M p - q||.

    A primal active-set method on the normal equations: it starts at the uniform p,
    moves to the optimum over the classes that are free, fixes a class that would
    become negative, and frees one whose multiplier says that it pays. The objective
    falls strictly, so no set of free classes comes twice.

    Parameters
    ----------
    matrix
        float64 (C, C), columns summing to 1.
    means
        float64 (S, C), replaced; rows with NaN stay.
    converged
        bool (S,), set to whether the optimality conditions hold within `TOLERANCE`.
    """
    n_classes = matrix.shape[0]
    gram = np.empty((n_classes, n_classes))
    for i in range(n_classes):
        for j in range(n_classes):
            value = RIDGE if i == j else 0.0
            for k in range(n_classes):
                value += matrix[k, i] * matrix[k, j]
            gram[i, j] = value
    system = np.empty((n_classes + 1, n_classes + 1))
    right = np.empty(n_classes + 1)
    free = np.empty(n_classes, np.int64)
    is_free = np.empty(n_classes, np.bool_)
    linear = np.empty(n_classes)
    p = np.empty(n_classes)
    for s in range(means.shape[0]):
        if np.isnan(means[s, 0]):
            continue
        for i in range(n_classes):
            linear[i] = 0.0
            for k in range(n_classes):
                linear[i] += matrix[k, i] * means[s, k]
        p[:] = 1.0 / n_classes
        is_free[:] = True
        done = False
        for _ in range(50 + 10 * n_classes):
            size = 0
            for i in range(n_classes):
                if is_free[i]:
                    free[size] = i
                    size += 1
            for a in range(size):
                for b in range(size):
                    system[a, b] = gram[free[a], free[b]]
                system[a, size] = 1.0
                system[size, a] = 1.0
                right[a] = linear[free[a]]
            system[size, size] = 0.0
            right[size] = 1.0
            _solve(system, right, size + 1)
            # How far towards that optimum before a class reaches 0, and which one.
            length = 1.0
            blocking = -1
            for a in range(size):
                i = free[a]
                if right[a] < 0.0 and p[i] < length * (p[i] - right[a]):
                    length = p[i] / (p[i] - right[a])
                    blocking = i
            for a in range(size):
                p[free[a]] += length * (right[a] - p[free[a]])
            if blocking >= 0:
                p[blocking] = 0.0
                is_free[blocking] = False
                continue
            # At the optimum of the free classes: does freeing another one pay?
            multiplier = right[size]
            worst = -TOLERANCE
            freed = -1
            for i in range(n_classes):
                if not is_free[i]:
                    slope = multiplier - linear[i]
                    for j in range(n_classes):
                        slope += gram[i, j] * p[j]
                    if slope < worst:
                        worst = slope
                        freed = i
            if freed < 0:
                done = True
                break
            is_free[freed] = True
        mass = 0.0
        for i in range(n_classes):
            p[i] = max(p[i], 0.0)
            mass += p[i]
        for i in range(n_classes):
            means[s, i] = p[i] / mass
        converged[s] = done
