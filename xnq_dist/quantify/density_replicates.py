"""SLD and KDEy-ML after another draw of the labelled nodes: most likely mixtures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.quantify.density import log_densities
from xnq_dist.quantify.exact import TILE
from xnq_dist.quantify.interface import Communities
from xnq_dist.quantify.recalibrations import Recalibrations
from xnq_dist.quantify.relabelled import draw_again
from xnq_dist.quantify.simplex import likelihood_kernel
from xnq_dist.readout.calibration import FLOOR, Calibration

__all__ = ["Densities", "LikelihoodRatios", "LineDensities", "calibrated_again"]

Floats = NDArray[np.float64]

TOLERANCE = 1e-6
"""Certificate of a resample's likelihood; members' noise is far above it."""
MOST_STEPS = 50
CELLS_A_WIDTH = 30
"""Steps of two classes' densities in one standard deviation of the kernel."""
LEAST_DENSITY = 1e-300


def calibrated_again(calibration: Calibration, posteriors: Floats) -> Floats:
    """Posteriors after a calibration, shape (n, C)."""
    logs = np.log(np.maximum(posteriors, FLOOR))
    return calibration.apply(logs).astype(np.float64)


@dataclass(frozen=True, eq=False)
class LikelihoodRatios:
    """SLD, as it is or on posteriors calibrated anew: where its EM would end.

    EM stops short of that where classes overlap; its interval is then a little wide.
    """

    recalibrations: Recalibrations
    prior: Floats
    calibration: Calibration | None

    @property
    def count(self) -> int:
        """Replicates."""
        return len(self.recalibrations.slopes)

    def base(self, posteriors: Floats) -> Floats:
        """Posteriors that classes are drawn by."""
        if self.calibration is None:
            return posteriors
        return calibrated_again(self.calibration, posteriors)

    def table(self, replicate: int, posteriors: Floats) -> Floats:
        """What is made of each node, shape (n, K)."""
        # Offsets hold the change of the prior; the prior itself is divided by here.
        found = self.recalibrations.apply(replicate, self.base(posteriors))
        return np.asarray(found / self.prior)

    def solve(self, replicate: int, drawn: Communities, table: NDArray[Any]) -> Floats:
        """Prevalence of communities of rows of the table, shape (S, C)."""
        return _most_likely(drawn, table)


@dataclass(frozen=True, eq=False)
class Densities:
    """KDEy-ML for more than two classes: every pair of a node and a labelled one."""

    count: int
    posteriors: Floats
    labels: NDArray[np.int32]
    bandwidth: float
    seed: int
    prior: Floats

    def base(self, posteriors: Floats) -> Floats:
        """Posteriors that classes are drawn by."""
        return posteriors

    def table(self, replicate: int, posteriors: Floats) -> Floats:
        """What is made of each node, shape (n, K)."""
        held, labels = draw_again(self.posteriors, self.labels, replicate, self.seed)
        logs = log_densities(posteriors, held, labels, self.bandwidth)
        return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))

    def solve(self, replicate: int, drawn: Communities, table: NDArray[Any]) -> Floats:
        """Prevalence of communities of rows of the table, shape (S, C)."""
        return _most_likely(drawn, table)


@dataclass(frozen=True, eq=False)
class LineDensities:
    """KDEy-ML for two classes, whose posteriors lie on a line."""

    logs: Floats
    """Log-densities at even steps from 0 to 1 of the second's share, (G, 2, K)."""
    prior: Floats

    @classmethod
    def of(
        cls,
        count: int,
        posteriors: Floats,
        labels: NDArray[np.int32],
        bandwidth: float,
        seed: int,
        prior: Floats,
    ) -> LineDensities:
        """From labelled rows, each shared between the two steps next to it."""
        # Both posteriors move together: on the line the kernel is narrower by sqrt(2).
        narrow = bandwidth / np.sqrt(2.0)
        cells = int(np.ceil(CELLS_A_WIDTH / narrow))
        logs = np.empty((count, 2, cells + 1))
        apart = np.arange(cells + 1) / cells / narrow
        nearness = np.exp(-0.5 * apart * apart)
        kernel = np.concatenate([nearness[:0:-1], nearness])
        for g in range(count):
            held, codes = draw_again(posteriors, labels, g, seed)
            at, part = _place(held, cells)
            for code in range(2):
                own = codes == code
                weights = np.bincount(at[own], 1 - part[own], minlength=cells + 1)
                weights += np.bincount(at[own] + 1, part[own], minlength=cells + 1)
                found = np.convolve(kernel, weights, "valid")
                logs[g, code] = np.log(np.maximum(found / own.sum(), LEAST_DENSITY))
        return cls(logs, prior)

    @property
    def count(self) -> int:
        """Replicates."""
        return len(self.logs)

    def base(self, posteriors: Floats) -> Floats:
        """Posteriors that classes are drawn by."""
        return posteriors

    def table(self, replicate: int, posteriors: Floats) -> Floats:
        """What is made of each node, shape (n, K)."""
        own = self.logs[replicate]
        at, part = _place(posteriors, own.shape[1] - 1)
        found = own[:, at] * (1 - part) + own[:, at + 1] * part
        return np.asarray(np.exp(found - found.max(axis=0)).T)

    def solve(self, replicate: int, drawn: Communities, table: NDArray[Any]) -> Floats:
        """Prevalence of communities of rows of the table, shape (S, C)."""
        return _most_likely(drawn, table)


def _place(posteriors: Floats, cells: int) -> tuple[NDArray[np.int64], Floats]:
    """Step below the second's share, and how far it is to the next."""
    share = posteriors[:, 1] / posteriors.sum(axis=1) * cells
    at = np.clip(share.astype(np.int64), 0, cells - 1)
    return at, share - at


def _most_likely(drawn: Communities, ratios: NDArray[Any]) -> Floats:
    found = np.zeros((len(drawn), ratios.shape[1]))
    likelihood_kernel(
        drawn.offsets,
        drawn.members,
        ratios,
        TOLERANCE,
        MOST_STEPS,
        TILE,
        found,
        np.empty(len(drawn), np.int32),
        np.empty(len(drawn), np.bool_),
    )
    return found
