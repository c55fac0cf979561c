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
from numpy.typing import NDArray

from xnq_dist.config import Settings
from xnq_dist.quantify.adjusted import Counts, rates
from xnq_dist.quantify.count_replicates import (
    Means,
    Pairs,
    joint_matrices,
    pairs_of,
)
from xnq_dist.quantify.density import KdeyMl
from xnq_dist.quantify.density_replicates import (
    Densities,
    LikelihoodRatios,
    LineDensities,
    calibrated_again,
)
from xnq_dist.quantify.histograms import Histograms, count_kernel
from xnq_dist.quantify.interface import (
    QUANTIFIERS,
    Communities,
    NodeTable,
    Reference,
)
from xnq_dist.quantify.members import reference_rows
from xnq_dist.quantify.neighbourhood import NeighbourCounts, near
from xnq_dist.quantify.recalibrated import SldBcts
from xnq_dist.quantify.recalibrations import draw_recalibrations
from xnq_dist.quantify.relabelled import draw_again
from xnq_dist.quantify.sld import guarded_prior
from xnq_dist.readout.calibration import FLOOR, fit_calibration

__all__ = ["Replicates", "likeliest", "make_replicates", "what_is_said"]

Floats = NDArray[np.float64]

MOST = 50
"""Replicates of the labelled nodes; resamples of members are spread over them."""
MOST_DENSITIES = 20
"""The same where each takes all pairs of a node and a labelled one."""
TOLERANCE = 1e-6
"""Certificate of a resample's distance; members' noise is far above it."""


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
        """What is made of each node that occurs, shape (n, K).

        Parameters
        ----------
        posteriors
            What `what_is_said` of the nodes: with most quantifiers their posteriors.
        """

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
    rows, some = None, np.zeros(0, np.bool_)
    if reference.posteriors is not None and reference.labels is not None:
        held = np.asarray(reference.posteriors, np.float64)
        some = held.sum(axis=1) > 0
        rows = held[some], reference.labels[some]
    if name in ("sld", "sld_exact", "cc", "pcc"):
        shifts = name.startswith("sld")
        own, codes = rows or (None, None)
        drawn = draw_recalibrations(own, codes, n_classes, count, seed, shifts)
        if shifts:
            return LikelihoodRatios(drawn, guarded_prior(reference.prior), None)
        return Means(name == "cc", None, drawn, None)
    if isinstance(quantifier, Counts):
        hard = name == "acc"
        if rows is None:
            return None
        matrices = np.empty((count, n_classes, n_classes))
        for g in range(count):
            own, codes = draw_again(*rows, g, seed)
            matrices[g] = rates(own, codes, hard)
        return Means(hard, matrices, None, guarded_prior(reference.prior))
    if isinstance(quantifier, NeighbourCounts):
        if rows is None:
            return None
        matrices = joint_matrices(quantifier, reference, some, n_classes, count, seed)
        return Pairs(name == "nacc", matrices, guarded_prior(reference.prior))
    if isinstance(quantifier, SldBcts):
        held, labels = reference_rows(name, reference, classes)
        calibration = fit_calibration("bcts", np.log(np.maximum(held, FLOOR)), labels)
        again = calibrated_again(calibration, held)
        drawn = draw_recalibrations(again, labels, n_classes, count, seed, True)
        prior = np.bincount(labels, minlength=n_classes) / len(labels)
        return LikelihoodRatios(drawn, guarded_prior(prior), calibration)
    if isinstance(quantifier, Histograms):
        held, labels = reference_rows(name, reference, classes)
        shares = [
            quantifier.class_shares(*draw_again(held, labels, g, seed))
            for g in range(count)
        ]
        return _Cells(quantifier, shares, guarded_prior(reference.prior))
    if isinstance(quantifier, KdeyMl):
        held, labels = reference_rows(name, reference, classes)
        prior = guarded_prior(reference.prior)
        if n_classes == 2:
            width = quantifier.bandwidth
            return LineDensities.of(count, held, labels, width, seed, prior)
        return Densities(
            min(count, MOST_DENSITIES),
            held,
            labels,
            quantifier.bandwidth,
            seed,
            prior,
        )
    return None


def what_is_said(
    replicates: Replicates,
    nodes: NodeTable,
    picked: NDArray[np.int64],
    posteriors: Floats,
) -> Floats:
    """What a quantifier looks at in a node: its posterior, or pairs with neighbours.

    Parameters
    ----------
    picked
        Nodes wanted, shape (n,).
    posteriors
        Theirs, as they are to be trusted, shape (n, C).
    """
    if not isinstance(replicates, Pairs):
        return posteriors
    name = "nacc" if replicates.hard else "npacc"
    around = near(name, nodes.neighbours, replicates.hard)
    return pairs_of(nodes.posteriors[picked], around[picked], replicates.hard)


def likeliest(replicates: Replicates) -> bool:
    """Whether the answer is the most likely mixture of the table's densities."""
    return isinstance(replicates, (LikelihoodRatios, Densities, LineDensities))


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
