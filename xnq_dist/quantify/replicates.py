"""Quantifiers after another draw of the labelled nodes: one table a replicate.

What a quantifier takes from labelled nodes (rates, histograms, densities, calibration
and prior) is made anew from replicates of them, which all communities share. Rows are
drawn within their class: the quantifiers use nothing but the distributions within
classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.config import Settings
from xnq_dist.quantify.adjusted import Counts, rates
from xnq_dist.quantify.density import KdeyMl, log_densities
from xnq_dist.quantify.exact import TILE
from xnq_dist.quantify.histograms import Histograms, count_kernel
from xnq_dist.quantify.interface import QUANTIFIERS, Communities, Reference
from xnq_dist.quantify.members import reference_rows
from xnq_dist.quantify.recalibrated import SldBcts
from xnq_dist.quantify.recalibrations import (
    OPEN,
    Recalibrations,
    draw_recalibrations,
)
from xnq_dist.quantify.resampling import draw_rows
from xnq_dist.quantify.simplex import likelihood_kernel, simplex_kernel
from xnq_dist.quantify.sld import guarded_prior
from xnq_dist.readout.calibration import FLOOR, Calibration, fit_calibration

__all__ = ["Replicates", "likeliest", "make_replicates"]

Floats = NDArray[np.float64]

MOST = 50
"""Replicates of the labelled nodes; resamples of members are spread over them."""
MOST_DENSITIES = 20
"""The same where each takes all pairs of a node and a labelled one."""
REFERENCE = 1 << 40
"""Keys of the streams that draw labelled nodes: beyond any community's number."""
TOLERANCE = 1e-6
"""Certificate of a resample's likelihood; members' noise is far above it."""
MOST_STEPS = 50


CELLS_A_WIDTH = 30
"""Steps of two classes' densities in one standard deviation of the kernel."""
LEAST_DENSITY = 1e-300


class Replicates(Protocol):
    """A quantifier after other draws of the labelled nodes."""

    @property
    def count(self) -> int:
        """Replicates."""

    @property
    def prior(self) -> Floats | None:
        """What posteriors are divided by where proportions shift; None: they do not."""

    def base(self, posteriors: Floats) -> Floats:
        """Posteriors that the members' classes are drawn by, shape (n, C)."""

    def table(self, replicate: int, posteriors: Floats) -> NDArray[Any]:
        """What is made of each node that occurs, shape (n, K)."""

    def solve(self, replicate: int, drawn: Communities, table: NDArray[Any]) -> Floats:
        """Prevalence of communities whose members are rows of the table, (S, C).

        A community without members has any row of finite numbers.
        """


def make_replicates(
    name: str,
    settings: Settings,
    reference: Reference,
    classes: tuple[str, ...],
) -> Replicates | None:
    """Replicates of a quantifier by its name; None for one that answers otherwise.

    Raises
    ------
    InputError
        When the quantifier needs labelled nodes and there are none.
    """
    count = min(settings.intervals.resamples, MOST)
    quantifier = QUANTIFIERS[name](settings)
    n_classes, seed = len(classes), settings.seed
    rows = None
    if reference.posteriors is not None and reference.labels is not None:
        held = np.asarray(reference.posteriors, np.float64)
        some = held.sum(axis=1) > 0
        rows = held[some], reference.labels[some]
    if name in ("sld", "sld_exact", "cc", "pcc"):
        shifts = name.startswith("sld")
        own, codes = rows or (None, None)
        drawn = draw_recalibrations(own, codes, n_classes, count, seed, shifts)
        if shifts:
            return _Sld(drawn, guarded_prior(reference.prior), None)
        return _Means(name == "cc", None, drawn, None)
    if isinstance(quantifier, Counts):
        hard = name == "acc"
        if rows is None:
            return None
        matrices = np.empty((count, n_classes, n_classes))
        for g in range(count):
            own, codes = _drawn(*rows, g, seed)
            matrices[g] = rates(own, codes, hard)
        return _Means(hard, matrices, None, guarded_prior(reference.prior))
    if isinstance(quantifier, SldBcts):
        held, labels = reference_rows(name, reference, classes)
        calibration = fit_calibration("bcts", np.log(np.maximum(held, FLOOR)), labels)
        again = _calibrated(calibration, held)
        drawn = draw_recalibrations(again, labels, n_classes, count, seed, True)
        prior = np.bincount(labels, minlength=n_classes) / len(labels)
        return _Sld(drawn, guarded_prior(prior), calibration)
    if isinstance(quantifier, Histograms):
        held, labels = reference_rows(name, reference, classes)
        shares = [
            quantifier.class_shares(*_drawn(held, labels, g, seed))
            for g in range(count)
        ]
        return _Cells(quantifier, shares, guarded_prior(reference.prior))
    if isinstance(quantifier, KdeyMl):
        held, labels = reference_rows(name, reference, classes)
        prior = guarded_prior(reference.prior)
        if n_classes == 2:
            width = quantifier.bandwidth
            return _LineDensities.of(count, held, labels, width, seed, prior)
        return _Densities(
            min(count, MOST_DENSITIES),
            held,
            labels,
            quantifier.bandwidth,
            seed,
            prior,
        )
    return None


def likeliest(replicates: Replicates) -> bool:
    """Whether the answer is the most likely mixture of the table's densities."""
    return isinstance(replicates, (_Sld, _Densities, _LineDensities))


def _drawn(
    posteriors: Floats, labels: NDArray[np.int32], replicate: int, seed: int
) -> tuple[Floats, NDArray[np.int32]]:
    """Labelled rows drawn anew within each class.

    A class of m rows gives m / `OPEN`: labels of neighbours are not independent. One
    row in m + 1 may be any: what a class was not seen to look like it may look like
    still.
    """
    sizes = np.bincount(labels)
    chosen = []
    for code in np.flatnonzero(sizes).tolist():
        own, size = np.flatnonzero(labels == code), int(sizes[code])
        count = max(round(size / OPEN), 1)
        key = REFERENCE + code * 2
        places = draw_rows(seed, key, replicate, size + 1, count)
        others = draw_rows(seed, key + 1, replicate, len(labels), count)
        rows = np.append(own, -1)[places]
        chosen.append(np.where(rows < 0, others, rows))
    codes = np.repeat(np.flatnonzero(sizes), [len(rows) for rows in chosen])
    return posteriors[np.concatenate(chosen)], codes.astype(np.int32)


def _calibrated(calibration: Calibration, posteriors: Floats) -> Floats:
    logs = np.log(np.maximum(posteriors, FLOOR))
    return calibration.apply(logs).astype(np.float64)


@dataclass(frozen=True, eq=False)
class _Means:
    """CC, PCC, ACC and PACC."""

    hard: bool
    matrices: Floats | None
    """M of each replicate, shape (G, C, C); None: counts are not adjusted."""
    recalibrations: Recalibrations | None
    """Where they are not."""
    prior: Floats | None

    @property
    def count(self) -> int:
        if self.recalibrations is not None:
            return len(self.recalibrations.slopes)
        return 0 if self.matrices is None else len(self.matrices)

    def base(self, posteriors: Floats) -> Floats:
        return posteriors

    def table(self, replicate: int, posteriors: Floats) -> Floats:
        said = posteriors
        if self.recalibrations is not None:
            said = self.recalibrations.apply(replicate, posteriors)
        if self.hard:
            said = np.eye(said.shape[1])[said.argmax(axis=1)]
        return said

    def solve(self, replicate: int, drawn: Communities, table: NDArray[Any]) -> Floats:
        means = np.zeros((len(drawn), table.shape[1]))
        _mean_kernel(drawn.offsets, drawn.members, table, means)
        if self.matrices is not None:
            converged = np.ones(len(means), np.bool_)
            simplex_kernel(self.matrices[replicate], means, converged)
        return means


@dataclass(frozen=True, eq=False)
class _Sld:
    """SLD, as it is or on posteriors calibrated anew: where its EM would end.

    EM stops short of that where classes overlap; its interval is then a little wide.
    """

    recalibrations: Recalibrations
    prior: Floats
    calibration: Calibration | None

    @property
    def count(self) -> int:
        return len(self.recalibrations.slopes)

    def base(self, posteriors: Floats) -> Floats:
        if self.calibration is None:
            return posteriors
        return _calibrated(self.calibration, posteriors)

    def table(self, replicate: int, posteriors: Floats) -> Floats:
        # Offsets hold the change of the prior; the prior itself is divided by here.
        found = self.recalibrations.apply(replicate, self.base(posteriors))
        return np.asarray(found / self.prior)

    def solve(self, replicate: int, drawn: Communities, table: NDArray[Any]) -> Floats:
        return _most_likely(drawn, table)


@dataclass(frozen=True, eq=False)
class _Densities:
    """KDEy-ML for more than two classes: every pair of a node and a labelled one."""

    count: int
    posteriors: Floats
    labels: NDArray[np.int32]
    bandwidth: float
    seed: int
    prior: Floats

    def base(self, posteriors: Floats) -> Floats:
        return posteriors

    def table(self, replicate: int, posteriors: Floats) -> Floats:
        held, labels = _drawn(self.posteriors, self.labels, replicate, self.seed)
        logs = log_densities(posteriors, held, labels, self.bandwidth)
        return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))

    def solve(self, replicate: int, drawn: Communities, table: NDArray[Any]) -> Floats:
        return _most_likely(drawn, table)


@dataclass(frozen=True, eq=False)
class _LineDensities:
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
    ) -> _LineDensities:
        """From labelled rows, each shared between the two steps next to it."""
        # Both posteriors move together: on the line the kernel is narrower by sqrt(2).
        narrow = bandwidth / np.sqrt(2.0)
        cells = int(np.ceil(CELLS_A_WIDTH / narrow))
        logs = np.empty((count, 2, cells + 1))
        apart = np.arange(cells + 1) / cells / narrow
        nearness = np.exp(-0.5 * apart * apart)
        kernel = np.concatenate([nearness[:0:-1], nearness])
        for g in range(count):
            held, codes = _drawn(posteriors, labels, g, seed)
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
        return len(self.logs)

    def base(self, posteriors: Floats) -> Floats:
        return posteriors

    def table(self, replicate: int, posteriors: Floats) -> Floats:
        own = self.logs[replicate]
        at, part = _place(posteriors, own.shape[1] - 1)
        found = own[:, at] * (1 - part) + own[:, at + 1] * part
        return np.asarray(np.exp(found - found.max(axis=0)).T)

    def solve(self, replicate: int, drawn: Communities, table: NDArray[Any]) -> Floats:
        return _most_likely(drawn, table)


def _place(posteriors: Floats, cells: int) -> tuple[NDArray[np.int64], Floats]:
    """Step below the second's share, and how far it is to the next."""
    share = posteriors[:, 1] / posteriors.sum(axis=1) * cells
    at = np.clip(share.astype(np.int64), 0, cells - 1)
    return at, share - at


@dataclass(frozen=True, eq=False)
class _Cells:
    """HDy, DyS and DMy."""

    histograms: Histograms
    shares: Sequence[Floats]
    prior: Floats

    @property
    def count(self) -> int:
        return len(self.shares)

    @property
    def search(self) -> Histograms:
        """DyS's own search takes sixty distances, DMy's five: the least is the same."""
        if self.histograms.name == "dys":
            return replace(self.histograms, name="dmy")
        return self.histograms

    def base(self, posteriors: Floats) -> Floats:
        return posteriors

    def table(self, replicate: int, posteriors: Floats) -> NDArray[np.int32]:
        return self.histograms.places(posteriors)

    def solve(self, replicate: int, drawn: Communities, table: NDArray[Any]) -> Floats:
        shares = self.shares[replicate]
        counts = np.empty((len(drawn), shares.shape[1]))
        count_kernel(drawn.offsets, drawn.members, table, counts)
        found = np.zeros((len(drawn), len(shares)))
        self.search.nearest(
            counts,
            shares,
            table.shape[1],
            found,
            np.empty(len(found), np.int32),
            np.empty(len(found), np.bool_),
            TOLERANCE,
        )
        return found


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


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
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
