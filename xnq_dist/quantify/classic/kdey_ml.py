"""KDEy-ML: the mixture of the classes' kernel densities that makes members most likely.

Class densities are evaluated once a node that occurs, as logarithms, and only their
ratios are used: a node far from every labelled one neither vanishes nor takes over.

References
----------
A. Moreo, P. Gonzalez, J. J. del Coz, "Kernel density estimation for multiclass
quantification", Machine Learning 114, 2025 (arXiv:2401.00490).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats, Ints32
from xnq_dist.core.config import Settings
from xnq_dist.core.quantifiers import Record
from xnq_dist.quantify.classic.members import (
    check_posteriors,
    reference_rows,
    usable_members,
)
from xnq_dist.quantify.classic.sld_exact import most_likely
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = ["RECORDS", "KdeyMl", "log_densities", "make"]

RECORDS = (
    Record(
        name="kdey_ml",
        title="KDEy-ML",
        text=(
            "Kernel densities of the posteriors of each class's labelled nodes:"
            " the mixture of them that makes the community's posteriors most "
            "likely."
        ),
        rank=18,
        labelled=True,
        settings=("kdey",),
    ),
)

Grid = tuple[Floats, Floats]

PAIRS = 1 << 16
"""Pairs of a node and a labelled one worked on at a time: they fit a core's cache."""

FEWEST_CELLS, MOST_CELLS = 256, 1 << 16
"""Cells of the grid that two classes' densities are interpolated on."""

CELLS_A_BEND = 20
"""Cells within the shortest bend that a log-density can have."""


@dataclass(frozen=True)
class KdeyMl(Quantifier):
    """The quantifier ``kdey_ml``: Gaussian kernels on posteriors, likelihood.

    Notes
    -----
    Cost of the densities, for n nodes that occur and m labelled ones: n m C kernels
    for more than two classes; about ``40 / bandwidth**2`` m for two, whose posteriors
    lie on a line, whatever n is.
    """

    bandwidth: float = 0.1
    """Standard deviation of the Gaussian kernel, in units of a posterior."""
    name: str = "kdey_ml"

    def estimate(
        self, batch: Communities, nodes: NodeTable, reference: Reference
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        check_posteriors(self.name, batch, nodes)
        held, labels = reference_rows(self.name, reference, nodes.classes)
        usable = usable_members(batch, nodes)
        at = nodes.posteriors[usable.rows].astype(np.float64)
        grid = None
        if len(nodes.classes) == 2:
            own = held, labels, self.bandwidth
            grid = reference.learnt(self, lambda: _on_a_grid(*own))
        logs = log_densities(at, held, labels, self.bandwidth, grid)
        ratios = np.exp(logs - logs.max(axis=1, keepdims=True))
        return most_likely(usable, ratios, reference.prior)


def make(name: str, settings: Settings) -> Quantifier:
    """The quantifier that the settings describe."""
    return KdeyMl(settings.kdey.bandwidth)


def log_densities(
    at: Floats,
    posteriors: Floats,
    labels: Ints32,
    bandwidth: float,
    grid: Grid | None = None,
) -> Floats:
    """Log-density of every class at some posteriors, less a constant for all, (n, C).

    With two classes it is interpolated (cubic Hermite, from values and slopes) on a
    `grid`, made if None, to about 1e-8 at bandwidths from .02 on.
    """
    n_classes = posteriors.shape[1]
    found = np.empty((len(at), n_classes))
    if n_classes > 2:
        for code in range(n_classes):
            own = posteriors[labels == code].T / bandwidth
            found[:, code], _ = _log_kernel_mean(at.T / bandwidth, own)
        return found
    value, step = _on_a_grid(posteriors, labels, bandwidth) if grid is None else grid
    cells = value.shape[1] - 1
    place = _second_share(at) * cells
    cell = np.clip(place.astype(np.int64), 0, cells - 1)
    u = place - cell
    for code in range(2):
        found[:, code] = (
            value[code, cell] * (1 + 2 * u) * (1 - u) ** 2
            + step[code, cell] * u * (1 - u) ** 2
            + value[code, cell + 1] * (3 - 2 * u) * u**2
            - step[code, cell + 1] * (1 - u) * u**2
        )
    return found


def _on_a_grid(posteriors: Floats, labels: Ints32, bandwidth: float) -> Grid:
    """Two classes' log-densities along the line, and their rise over a cell.

    Shapes (2, cells + 1) each.
    """
    # Both posteriors move together: on the line the kernel is narrower by sqrt(2).
    narrow = bandwidth / np.sqrt(2.0)
    bends = np.ceil(CELLS_A_BEND / narrow**2)
    cells = int(np.clip(bends, FEWEST_CELLS, MOST_CELLS))
    at = np.linspace(0.0, 1.0, cells + 1)[None] / narrow
    own = [_second_share(posteriors[labels == code])[None] / narrow for code in (0, 1)]
    value, slope = np.stack([_log_kernel_mean(at, each) for each in own], axis=1)
    return value, slope / (narrow * cells)


def _second_share(posteriors: Floats) -> Floats:
    """The second of two posteriors that sum to 1."""
    return np.asarray(posteriors[:, 1] / posteriors.sum(axis=1))


def _log_kernel_mean(at: Floats, own: Floats) -> tuple[Floats, Floats]:
    """Logarithm of ``mean exp(-|x - y|^2 / 2)`` over y, and its slope along axis 0.

    Places x and y have shapes (D, n) and (D, m), both results (n,).
    """
    n, m = at.shape[1], own.shape[1]
    value, slope = np.empty(n), np.empty(n)
    rows = max(1, PAIRS // m)
    apart, buffer = np.empty((rows, m)), np.empty((rows, m))
    for begin in range(0, n, rows):
        chosen = slice(begin, begin + rows)
        size = len(value[chosen])
        nearness, apart = buffer[:size], apart[:size]
        nearness[:] = 0.0
        for axis in range(len(at) - 1, -1, -1):
            np.subtract(own[axis], at[axis, chosen, None], out=apart)
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
