"""HDy, DyS and DMy: the mixture of the classes' histograms nearest to a community's.

Histograms are of posteriors; those of the classes are from labelled nodes that the
readout was not fitted to. All nodes are binned once, communities are counted in blocks,
and no sum mixes two communities.

References
----------
V. Gonzalez-Castro, R. Alaiz-Rodriguez, E. Alegre, "Class distribution estimation based
on the Hellinger distance", Information Sciences 218, 2013 (HDy).
A. Maletzke et al., "DyS: a framework for mixture models in quantification", AAAI 2019.
A. Firat, "Unified framework for quantification", arXiv:1606.00868 (DMy).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.members import (
    check_two_classes,
    reference_rows,
    usable_members,
)
from xnq_dist.quantify.classic.simplex import topsoe_kernel
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)

__all__ = [
    "Histograms",
    "bin_places",
    "count_kernel",
    "hellinger_kernel",
    "make",
    "ternary_kernel",
]


HDY_BINS = tuple(range(10, 111, 10))
"""HDy's numbers of bins; its estimate is the median over them."""

HDY_GRID = np.arange(101) / 100
"""Prevalences that HDy tries."""

TERNARY_TOLERANCE = 1e-5
"""Width of the bracket that ends DyS's search."""

BLOCK = 1024
"""Communities whose histograms are held at a time."""


@dataclass(frozen=True)
class Histograms(Quantifier):
    """The quantifiers ``hdy``, ``dys`` and ``dmy``.

    ``hdy``: Hellinger distance of histograms of the second class's posterior with 10,
    20, ..., 110 bins; the median over the bins of the best of 101 prevalences.
    ``dys``: one histogram of it, Topsoe distance, ternary search to 1e-5.
    ``dmy``: one histogram of every class's posterior (of the first's with two classes),
    the mean Topsoe distance minimised over the simplex; for any number of classes.
    """

    name: str
    bins: int = 8
    """Bins of a histogram, as in the paper's DyS; HDy uses `HDY_BINS` instead."""

    def estimate(
        self, batch: Communities, nodes: NodeTable, reference: Reference
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        n_classes = nodes.posteriors.shape[1]
        if self.name != "dmy":
            check_two_classes(self.name, n_classes)
        held, labels = reference_rows(self.name, reference, nodes.classes)
        shares = reference.learnt(self, lambda: self.class_shares(held, labels))
        usable = usable_members(batch, nodes)
        places = self.places(nodes.posteriors[usable.rows].astype(np.float64))
        estimates = usable.new_estimates(reference.prior)
        count = len(batch)
        counts = np.empty((min(BLOCK, count), shares.shape[1]))
        for begin in range(0, count, BLOCK):
            offsets = usable.offsets[begin : begin + BLOCK + 1]
            rows = slice(begin, begin + len(offsets) - 1)
            block = counts[: len(offsets) - 1]
            count_kernel(offsets, usable.members, places, block)
            results = (
                estimates.prevalence[rows],
                estimates.converged[rows],
            )
            if self.name == "hdy":
                mixtures = np.outer(shares[0], 1 - HDY_GRID)
                mixtures += np.outer(shares[1], HDY_GRID)
                bins = np.array(HDY_BINS)
                hellinger_kernel(block, np.sqrt(mixtures), bins, HDY_GRID, results[0])
            elif self.name == "dys":
                ternary_kernel(block, shares, TERNARY_TOLERANCE, results[0])
            else:
                # Each channel has an equal part of the mass: the mean over channels.
                block /= np.maximum(block.sum(axis=1, keepdims=True), 1.0)
                shared = shares / places.shape[1]
                topsoe_kernel(block, shared, *results)
        return estimates

    def places(self, posteriors: Floats) -> Ints32:
        """Return the histogram cells of every node, shape (n, channels)."""
        if self.name == "hdy":
            return bin_places([posteriors[:, 1]] * len(HDY_BINS), HDY_BINS)
        if self.name == "dys":
            return bin_places([posteriors[:, 1]], [self.bins])
        channels = posteriors.T if posteriors.shape[1] > 2 else posteriors.T[:1]
        return bin_places(list(channels), [self.bins] * len(channels))

    def class_shares(self, posteriors: Floats, labels: Ints32) -> Floats:
        """Return the classes' histograms, (C, cells), each channel summing to 1."""
        places, n_classes = self.places(posteriors), posteriors.shape[1]
        width = sum(HDY_BINS) if self.name == "hdy" else self.bins * places.shape[1]
        shares = np.empty((n_classes, width))
        for code in range(n_classes):
            chosen = places[labels == code]
            shares[code] = np.bincount(chosen.ravel(), minlength=width) / len(chosen)
        return shares


def make(name: str, settings: Settings) -> Quantifier:
    """Construct one of the three quantifiers."""
    return Histograms(name)


def bin_places(values: Sequence[Floats], bins: Sequence[int]) -> Ints32:
    """Cells of values in histograms over [0, 1], numbered consecutively.

    Bins are closed below, the last one also above, as in `numpy.histogram`; values
    below 0 or above 1 by rounding count in the first or last bin. Shape (n,
    histograms).

    Examples
    --------
    >>> bin_places([np.array([0.0, 0.5, 1.0])] * 2, [2, 4])
    array([[0, 2],
           [1, 4],
           [1, 5]], dtype=int32)
    """
    places = np.empty((len(values[0]), len(values)), np.int32)
    before = 0
    for channel, (column, size) in enumerate(zip(values, bins, strict=True)):
        edges = np.linspace(0.0, 1.0, size + 1)
        bin_numbers = np.searchsorted(edges, column, side="right") - 1
        places[:, channel] = before + np.clip(bin_numbers, 0, size - 1)
        before += size
    return places


@njit(cache=True, nogil=True, error_model="numpy")
def count_kernel(offsets: Ints, members: Ints, places: Ints32, counts: Floats) -> None:
    """Fill in the communities' histograms, `counts` (S, cells), from `bin_places`."""
    channels = places.shape[1]
    counts[:, :] = 0.0
    for s in range(offsets.shape[0] - 1):
        row = counts[s]
        for position in range(offsets[s], offsets[s + 1]):
            node = members[position]
            for channel in range(channels):
                row[places[node, channel]] += 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def hellinger_kernel(
    counts: Floats, roots: Floats, bins: Ints, grid: Floats, prevalence: Floats
) -> None:
    """HDy: the median over histograms of the nearest mixture on a grid.

    The Hellinger distance is smallest where ``sum sqrt(mixture * sample)``, the
    Bhattacharyya coefficient, is largest; of equal ones the lowest prevalence counts.
    Histograms with `bins` bins are stored one after the other. `roots` (cells, G) are
    square roots of mixtures of the classes' histograms, which sum to 1 each, at the
    prevalences `grid`. Communities without members are skipped.
    """
    coefficient = np.empty(grid.shape[0])
    nearest = np.empty(bins.shape[0])
    for s in range(counts.shape[0]):
        begin = 0
        seen = False
        for h in range(bins.shape[0]):
            coefficient[:] = 0.0
            for b in range(begin, begin + bins[h]):
                if counts[s, b] > 0.0:
                    seen = True
                    root = np.sqrt(counts[s, b])
                    for g in range(grid.shape[0]):
                        coefficient[g] += root * roots[b, g]
            begin += bins[h]
            nearest[h] = grid[np.argmax(coefficient)]
        if seen:
            middle = np.median(nearest)
            prevalence[s, 0] = 1.0 - middle
            prevalence[s, 1] = middle


@njit(cache=True, nogil=True, error_model="numpy")
def _distance(sample: Floats, shares: Floats, share: float, scale: float) -> float:
    """Topsoe distance between counts times `scale` and a mixture of two histograms."""
    total = 0.0
    for b in range(sample.shape[0]):
        mixed = (1.0 - share) * shares[0, b] + share * shares[1, b]
        seen = sample[b] * scale
        both = mixed + seen
        if mixed > 0.0:
            total += mixed * np.log(2.0 * mixed / both)
        if seen > 0.0:
            total += seen * np.log(2.0 * seen / both)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def ternary_kernel(
    counts: Floats, shares: Floats, tolerance: float, prevalence: Floats
) -> None:
    """DyS: ternary search for the nearest mixture of two histograms (Topsoe).

    The search stops once its bracket is narrower than the tolerance; the middle goes
    into `prevalence`. Rows of zeros are skipped.
    """
    for s in range(counts.shape[0]):
        size = counts[s].sum()
        if not size > 0.0:
            continue
        left, right = 0.0, 1.0
        while right - left >= tolerance:
            third = (right - left) / 3.0
            lower, upper = left + third, right - third
            at_lower = _distance(counts[s], shares, lower, 1.0 / size)
            if at_lower > _distance(counts[s], shares, upper, 1.0 / size):
                left = lower
            else:
                right = upper
        prevalence[s, 1] = (left + right) / 2.0
        prevalence[s, 0] = 1.0 - prevalence[s, 1]
