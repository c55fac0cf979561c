"""KDEy-ML: the mixture of the classes' kernel densities with the highest likelihood.

Class densities are evaluated as logarithms, once per node that is a member, and only
their ratios are used: a node far from all labelled nodes cannot underflow to 0.

References
----------
A. Moreo, P. Gonzalez, J. J. del Coz, "Kernel density estimation for multiclass
quantification", Machine Learning 114, 2025 (arXiv:2401.00490).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats, Ints32
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.members import (
    reference_rows,
    usable_members,
)
from xnq_dist.quantify.classic.simplex import likelihood_kernel
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = ["KdeyMl", "log_densities", "make"]


Grid = tuple[Floats, Floats]

PAIRS = 1 << 16
"""Pairs of a node and a labelled node computed at a time; they fit a core's cache."""

MIN_CELLS, MAX_CELLS = 256, 1 << 16
"""Cells of the grid on which the densities of two classes are interpolated."""

CELLS_A_BEND = 20
"""Cells within the smallest radius of curvature that a log-density can have."""


@dataclass(frozen=True)
class KdeyMl(Quantifier):
    """The quantifier ``kdey_ml``: Gaussian kernels on posteriors, likelihood.

    Notes
    -----
    Cost of the densities, for n member nodes and m labelled nodes: n m C kernels for
    more than two classes; about ``40 / bandwidth**2`` m for two classes, whatever n is,
    because their posteriors are one-dimensional.
    """

    bandwidth: float = 0.1
    """Standard deviation of the Gaussian kernel, in units of a posterior."""
    name: str = "kdey_ml"

    def estimate(
        self, batch: Communities, nodes: NodeTable, reference: Reference
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        held, labels = reference_rows(self.name, reference, nodes.classes)
        usable = usable_members(batch, nodes)
        at = nodes.posteriors[usable.rows].astype(np.float64)
        grid = None
        if len(nodes.classes) == 2:
            args = held, labels, self.bandwidth
            grid = reference.learnt(self, lambda: _on_a_grid(*args))
        logs = log_densities(at, held, labels, self.bandwidth, grid)
        ratios = np.exp(logs - logs.max(axis=1, keepdims=True))
        estimates = usable.new_estimates(reference.prior)
        likelihood_kernel(
            usable.offsets,
            usable.members,
            ratios,
            estimates.prevalence,
            estimates.converged,
        )
        return estimates


def make(name: str, settings: Settings) -> Quantifier:
    """Construct the quantifier from its settings."""
    return KdeyMl()


def log_densities(
    at: Floats,
    posteriors: Floats,
    labels: Ints32,
    bandwidth: float,
    grid: Grid | None = None,
) -> Floats:
    """Log-density of every class at the posteriors `at`, up to a constant, (n, C).

    With two classes it is interpolated (cubic Hermite, from values and slopes) on
    `grid` (None: computed here), to about 1e-8 at bandwidths of .02 or more.
    """
    n_classes = posteriors.shape[1]
    logs = np.empty((len(at), n_classes))
    if n_classes > 2:
        for code in range(n_classes):
            of_class = posteriors[labels == code].T / bandwidth
            logs[:, code], _ = _log_kernel_mean(at.T / bandwidth, of_class)
        return logs
    value, step = _on_a_grid(posteriors, labels, bandwidth) if grid is None else grid
    cells = value.shape[1] - 1
    place = _second_share(at) * cells
    cell = np.clip(place.astype(np.int64), 0, cells - 1)
    u = place - cell
    for code in range(2):
        logs[:, code] = (
            value[code, cell] * (1 + 2 * u) * (1 - u) ** 2
            + step[code, cell] * u * (1 - u) ** 2
            + value[code, cell + 1] * (3 - 2 * u) * u**2
            - step[code, cell + 1] * (1 - u) * u**2
        )
    return logs


def _on_a_grid(posteriors: Floats, labels: Ints32, bandwidth: float) -> Grid:
    """Log-densities of two classes on [0, 1], and their increase over a cell.

    Both have the shape (2, cells + 1).
    """
    # Both posteriors change together: by the second alone, the kernel is narrower.
    narrow = bandwidth / np.sqrt(2.0)
    bends = np.ceil(CELLS_A_BEND / narrow**2)
    cells = int(np.clip(bends, MIN_CELLS, MAX_CELLS))
    at = np.linspace(0.0, 1.0, cells + 1)[None] / narrow
    places = [
        _second_share(posteriors[labels == code])[None] / narrow for code in (0, 1)
    ]
    value, slope = np.stack([_log_kernel_mean(at, each) for each in places], axis=1)
    return value, slope / (narrow * cells)


def _second_share(posteriors: Floats) -> Floats:
    """The second of two posteriors that sum to 1."""
    return np.asarray(posteriors[:, 1] / posteriors.sum(axis=1))


def _log_kernel_mean(at: Floats, labelled: Floats) -> tuple[Floats, Floats]:
    """Logarithm of ``mean exp(-|x - y|^2 / 2)`` over y, and its slope along axis 0.

    `at` has the points x, shape (D, n), `labelled` the points y, (D, m); both results
    have the shape (n,).
    """
    n, m = at.shape[1], labelled.shape[1]
    value, slope = np.empty(n), np.empty(n)
    rows = max(1, PAIRS // m)
    apart, buffer = np.empty((rows, m)), np.empty((rows, m))
    for begin in range(0, n, rows):
        chosen = slice(begin, begin + rows)
        size = len(value[chosen])
        nearness, apart = buffer[:size], apart[:size]
        nearness[:] = 0.0
        for axis in range(len(at) - 1, -1, -1):
            np.subtract(labelled[axis], at[axis, chosen, None], out=apart)
            nearness -= apart * apart
        nearness *= 0.5
        nearest = nearness.max(axis=1)
        nearness -= nearest[:, None]
        weight = np.exp(nearness, out=nearness)
        total = weight.sum(axis=1)
        value[chosen] = np.log(total / m) + nearest
        weight *= apart
        slope[chosen] = weight.sum(axis=1) / total
    return value, slope
