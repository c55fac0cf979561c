"""CC, PCC, ACC, PACC, NACC and NPACC after another draw of the labelled nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.quantify.interface import Communities, Reference
from xnq_dist.quantify.neighbourhood import NeighbourCounts, joint_kernel, near
from xnq_dist.quantify.recalibrations import Recalibrations
from xnq_dist.quantify.relabelled import draw_again
from xnq_dist.quantify.simplex import mixture_kernel, simplex_kernel

__all__ = ["Means", "Pairs", "joint_matrices", "pairs_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Means:
    """CC, PCC, ACC and PACC."""

    hard: bool
    matrices: Floats | None
    """M of each replicate, shape (G, C, C); None: counts are not adjusted."""
    recalibrations: Recalibrations | None
    """Where they are not."""
    prior: Floats | None

    @property
    def count(self) -> int:
        """Replicates."""
        if self.recalibrations is not None:
            return len(self.recalibrations.slopes)
        return 0 if self.matrices is None else len(self.matrices)

    def base(self, posteriors: Floats) -> Floats:
        """Posteriors that classes are drawn by."""
        return posteriors

    def table(self, replicate: int, posteriors: Floats) -> Floats:
        """What is made of each node, shape (n, K)."""
        said = posteriors
        if self.recalibrations is not None:
            said = self.recalibrations.apply(replicate, posteriors)
        if self.hard:
            said = np.eye(said.shape[1])[said.argmax(axis=1)]
        return said

    def solve(self, replicate: int, drawn: Communities, table: NDArray[Any]) -> Floats:
        """Prevalence of communities of rows of the table, shape (S, C)."""
        means = np.zeros((len(drawn), table.shape[1]))
        _mean_kernel(drawn.offsets, drawn.members, table, means)
        if self.matrices is not None:
            converged = np.ones(len(means), np.bool_)
            simplex_kernel(self.matrices[replicate], means, converged)
        return means


@dataclass(frozen=True, eq=False)
class Pairs:
    """NACC and NPACC."""

    hard: bool
    matrices: Floats
    """M of each replicate, shape (G, C^2, C)."""
    prior: Floats

    @property
    def count(self) -> int:
        """Replicates."""
        return len(self.matrices)

    def base(self, posteriors: Floats) -> Floats:
        """Posteriors that classes are drawn by."""
        return posteriors

    def table(self, replicate: int, posteriors: Floats) -> Floats:
        """What is made of each node, shape (n, K)."""
        return posteriors

    def solve(self, replicate: int, drawn: Communities, table: NDArray[Any]) -> Floats:
        """Prevalence of communities of rows of the table, shape (S, C)."""
        means = np.zeros((len(drawn), table.shape[1]))
        _mean_kernel(drawn.offsets, drawn.members, table, means)
        found = np.zeros((len(drawn), self.matrices.shape[2]))
        converged = np.ones(len(means), np.bool_)
        mixture_kernel(self.matrices[replicate][None], means, found, converged)
        return found


def pairs_of(posteriors: NDArray[np.float32], around: Floats, hard: bool) -> Floats:
    """Each node's own row of what NACC averages, shape (n, C^2)."""
    rows, n_classes = posteriors.shape
    found = np.empty((rows, n_classes**2))
    alone = np.arange(rows + 1)
    everyone = np.ones(rows, np.bool_)
    joint_kernel(alone, alone[:-1], everyone, posteriors, around, hard, found)
    return found


def joint_matrices(
    quantifier: NeighbourCounts,
    reference: Reference,
    some: NDArray[np.bool_],
    n_classes: int,
    count: int,
    seed: int,
) -> Floats:
    """NACC's M of each replicate, shape (G, C^2, C), from the labelled rows `some`."""
    hard = quantifier.name == "nacc"
    around = near(quantifier.name, reference.neighbours, hard)[some]
    held = np.asarray(reference.posteriors, np.float32)[some]
    said = pairs_of(held, around, hard)
    labels = np.asarray(reference.labels)[some]
    matrices = np.zeros((count, n_classes**2, n_classes))
    for code in range(n_classes):
        matrices[:, code * n_classes + code, code] = 1.0
    for g in range(count):
        rows, codes = draw_again(said, labels, g, seed)
        for code in np.unique(codes).tolist():
            matrices[g, :, code] = rows[codes == code].mean(axis=0)
    return matrices


@njit(cache=True, nogil=True, error_model="numpy")
def _mean_kernel(
    offsets: NDArray[np.int64],
    members: NDArray[np.int64],
    table: Floats,
    means: Floats,
) -> None:
    """Means of members' rows; a community without members keeps its row."""
    for s in range(offsets.shape[0] - 1):
        size = offsets[s + 1] - offsets[s]
        if size == 0:
            continue
        means[s, :] = 0.0
        for position in range(offsets[s], offsets[s + 1]):
            node = members[position]
            for y in range(means.shape[1]):
                means[s, y] += table[node, y]
        for y in range(means.shape[1]):
            means[s, y] /= size
