"""KDEy-ML: the mixture of the classes' kernel densities with the highest likelihood.

Class densities are evaluated as logarithms, once per node that is a member, and only
their ratios are used: a node far from all labelled nodes cannot underflow to 0.

References
----------
A. Moreo, P. Gonzalez, J. J. del Coz, "Kernel density estimation for multiclass
quantification", Machine Learning 114, 2025 (arXiv:2401.00490).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline

from xnq_dist.core.arrays import Floats, Ints32, slices
from xnq_dist.core.products import multiply, pack
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
)

__all__ = ["KdeyMl", "log_densities", "make"]


BANDWIDTH = 0.1
"""Standard deviation of the Gaussian kernel, in units of a posterior."""
PAIRS = 1 << 16
"""Pairs of a node and a labelled node computed at a time; they fit a core's cache."""
CELLS = 2000
"""Cells of the grid from which the densities of two classes are interpolated, to about
1e-8."""


@dataclass(frozen=True)
class KdeyMl(Quantifier):
    """The quantifier ``kdey_ml``: Gaussian kernels on posteriors, likelihood.

    Notes
    -----
    Cost of the densities, for n member nodes and m labelled nodes: n m kernels for more
    than two classes; 2,000 m for two classes, whatever n is, because their posteriors
    are one-dimensional.
    """

    name: str = "kdey_ml"

    def estimate(self, batch: Communities, nodes: NodeTable) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        held, labels = reference_rows(self.name, nodes)
        usable = usable_members(batch, nodes)
        densities = nodes.reference.learnt(self, lambda: log_densities(held, labels))
        logs = densities(usable.nodes.posteriors.astype(np.float64))
        ratios = np.exp(logs - logs.max(axis=1, keepdims=True))
        estimates = usable.new_estimates()
        likelihood_kernel(
            usable.sets.offsets,
            usable.sets.members,
            ratios,
            estimates.prevalence,
            estimates.converged,
        )
        return estimates


def make(name: str, settings: Settings) -> Quantifier:
    """Construct the quantifier from its settings."""
    return KdeyMl()


def log_densities(posteriors: Floats, labels: Ints32) -> Callable[[Floats], Floats]:
    """Learn the classes' densities from labelled nodes.

    Returns a function of posteriors (n, C) to log-densities of every class, (n, C), up
    to a constant for each row.
    """
    n_classes = posteriors.shape[1]
    if n_classes == 2:
        posteriors = _both(posteriors[:, 1] / posteriors.sum(axis=1))
    classes = [posteriors[labels == code] for code in range(n_classes)]

    def exact(at: Floats) -> Floats:
        return np.stack([_log_kernel_mean(at, each) for each in classes], axis=1)

    if n_classes > 2:
        return exact
    grid = np.linspace(0.0, 1.0, CELLS + 1)
    spline = CubicSpline(grid, exact(_both(grid)))
    return lambda at: spline(at[:, 1] / at.sum(axis=1))


def _both(second: Floats) -> Floats:
    """Rows of two posteriors that sum to 1."""
    return np.stack([1 - second, second], axis=1)


def _log_kernel_mean(at: Floats, labelled: Floats) -> Floats:
    """Logarithm of the mean kernel of the points x, ``exp(x.y - |y|^2 / 2)`` over y.

    `at` has the points x, shape (n, C), `labelled` the points y, (m, C); the factor
    ``exp(-|x|^2 / 2)`` is equal for all classes and left out.
    """
    # x.y - |y|^2 / 2 as one product.
    x = np.column_stack([at / BANDWIDTH, np.ones(len(at))])
    y = labelled / BANDWIDTH
    panels = pack(np.column_stack([y, (y * y).sum(axis=1) / -2]).T)
    logs = np.empty(len(at))
    rows = max(1, PAIRS // len(labelled))
    for part in slices(len(at), rows):
        nearness = np.empty((len(logs[part]), len(y)))
        multiply(x[part], panels, nearness)
        nearest = nearness.max(axis=1)
        nearness -= nearest[:, None]
        logs[part] = np.log(np.exp(nearness, out=nearness).mean(axis=1)) + nearest
    return logs
