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
from scipy.special import rel_entr

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.products import product
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.members import (
    reference_rows,
    usable_members,
)
from xnq_dist.quantify.classic.simplex import topsoe_kernel
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
)

__all__ = ["Histograms", "bin_places", "make", "nearest_hellinger", "nearest_topsoe"]


BINS = 8
"""Bins of a histogram of DyS and DMy, as in the paper's DyS."""

HDY_BINS = tuple(range(10, 111, 10))
"""HDy's numbers of bins; its estimate is the median over them."""

HDY_GRID = np.arange(101) / 100
"""Prevalences that HDy tries."""

TERNARY_STEPS = 29
"""Steps of DyS's search, until its bracket is narrower than 1e-5."""

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

    def estimate(self, batch: Communities, nodes: NodeTable) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        held, labels = reference_rows(self.name, nodes)
        shares = nodes.reference.learnt(self, lambda: self.class_shares(held, labels))
        usable = usable_members(batch, nodes)
        places = self.places(usable.nodes.posteriors.astype(np.float64))
        estimates = usable.new_estimates()
        for begin in range(0, len(batch), BLOCK):
            offsets = usable.sets.offsets[begin : begin + BLOCK + 1]
            samples = _samples(offsets, usable.sets.members, places, shares.shape[1])
            rows = slice(begin, begin + len(samples))
            if self.name == "dmy":
                # Each channel has an equal part of the mass: the mean over channels.
                shared = shares / places.shape[1]
                of_block = estimates.prevalence[rows], estimates.converged[rows]
                topsoe_kernel(samples, shared, *of_block)
                continue
            nearest = nearest_hellinger if self.name == "hdy" else nearest_topsoe
            seen = np.diff(offsets) > 0
            second = nearest(samples[seen], shares)
            estimates.prevalence[rows][seen] = np.stack([1 - second, second], axis=1)
        return estimates

    def places(self, posteriors: Floats) -> Ints32:
        """Return the histogram cells of every node, shape (n, channels)."""
        if self.name == "hdy":
            return bin_places([posteriors[:, 1]] * len(HDY_BINS), HDY_BINS)
        if self.name == "dys":
            return bin_places([posteriors[:, 1]], [BINS])
        channels = posteriors.T if posteriors.shape[1] > 2 else posteriors.T[:1]
        return bin_places(list(channels), [BINS] * len(channels))

    def class_shares(self, posteriors: Floats, labels: Ints32) -> Floats:
        """Return the classes' histograms, (C, cells), each channel summing to 1."""
        places, n_classes = self.places(posteriors), posteriors.shape[1]
        width = sum(HDY_BINS) if self.name == "hdy" else BINS * places.shape[1]
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


def _samples(offsets: Ints, members: Ints, places: Ints32, width: int) -> Floats:
    """Histograms of communities, each summing to 1 or 0, shape (S, cells)."""
    size = len(offsets) - 1
    first = np.repeat(np.arange(size) * width, np.diff(offsets))
    cells = first[:, None] + places[members[offsets[0] : offsets[-1]]]
    counts = np.bincount(cells.ravel(), minlength=size * width).reshape(size, width)
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0))


def nearest_hellinger(samples: Floats, shares: Floats) -> Floats:
    """HDy: the median over histograms of the nearest mixture on a grid, shape (S,).

    The Hellinger distance is smallest where ``sum sqrt(mixture * sample)``, the
    Bhattacharyya coefficient, is largest; of equal ones the lowest prevalence counts.
    Histograms with `HDY_BINS` bins are stored one after the other.
    """
    mixtures = np.outer(shares[0], 1 - HDY_GRID) + np.outer(shares[1], HDY_GRID)
    roots, mixtures = np.sqrt(samples), np.sqrt(mixtures)
    nearest = []
    last = 0
    for size in HDY_BINS:
        first, last = last, last + size
        coefficient = product(roots[:, first:last], mixtures[first:last])
        nearest.append(HDY_GRID[coefficient.argmax(axis=1)])
    return np.asarray(np.median(nearest, axis=0))


def nearest_topsoe(samples: Floats, shares: Floats) -> Floats:
    """DyS: ternary search for the nearest mixture of two histograms, shape (S,)."""
    left, right = np.zeros(len(samples)), np.ones(len(samples))

    def distance(share: Floats) -> Floats:
        """Topsoe distance."""
        mixed = np.outer(1 - share, shares[0]) + np.outer(share, shares[1])
        middle = (mixed + samples) / 2
        terms = rel_entr(mixed, middle) + rel_entr(samples, middle)
        return np.asarray(terms.sum(axis=1))

    for _ in range(TERNARY_STEPS):
        third = (right - left) / 3.0
        lower, upper = left + third, right - third
        rises = distance(lower) <= distance(upper)
        left, right = np.where(rises, left, lower), np.where(rises, upper, right)
    return (left + right) / 2
