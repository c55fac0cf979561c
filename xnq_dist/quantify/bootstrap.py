"""Bootstrap intervals for any quantifier: members and labelled nodes are resampled.

The target is the actual share of a class among a community's unlabelled members, not
the share in a population that they come from. A resample r draws members with
replacement, and classes y by the members' posteriors at the estimate; the quantifier's
estimate q_r minus the share of the drawn classes has the distribution of its error. So
posteriors of 0 and 1 leave no error, and the members' sampling noise is not counted
twice. Given the members, the share of the drawn classes is a mean of posteriors m_r
plus Bernoulli noise of known variance: only ``q_r - m_r`` is simulated.

A few replicates of the labelled nodes serve all communities; each is used for an equal
part of the resamples of the members, all of a block in one call of the quantifier's
`estimate`. The ends are those of the Beta distribution with the mean and variance of
the estimate: quantiles of the resamples fail for estimates in a corner of the simplex,
and would need many more resamples.

References
----------
B. Efron, R. Tibshirani, "An Introduction to the Bootstrap", Chapman and Hall, 1993.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from xnq_dist.core.arrays import Floats, Ints, offsets_of
from xnq_dist.core.kernel import kernel
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.checks.share_ends import MIN_VARIANCE, beta_ends
from xnq_dist.quantify.classic.members import usable_members
from xnq_dist.quantify.classic.sld import guarded_prior
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
)
from xnq_dist.quantify.replicates import (
    Replicate,
    draw_rows,
    make_replicates,
)
from xnq_dist.selection.scored_rows import bounded
from xnq_dist.selection.tilt import tilted

__all__ = ["Bootstrap"]


PSEUDO = 2.0
"""Pseudo-members at the prior that shrink the shift of the posteriors, so that a single
member with an estimate of 0 or 1 is not taken as certain."""
BLOCK = 1 << 18
"""Memberships resampled at a time, unless one community has more."""
DEFAULT_LABELS = 1000
"""Assumed number of labels behind the posteriors where the reference has none."""
MAX_UNKNOWN = 0.98
"""Maximum part of the members' class information that is missing in the posteriors."""


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Bootstrap of one quantifier."""

    quantifier: Quantifier
    replicates: Sequence[Replicate]
    resamples: int
    """Resamples of each community's members, over all replicates."""
    level: float
    seed: int

    @classmethod
    def of(
        cls, quantifier: Quantifier, settings: Settings, nodes: NodeTable
    ) -> Bootstrap | None:
        """Construct the bootstrap of a quantifier.

        Returns None if no resamples are requested or the quantifier has intervals.
        """
        resamples, level = settings.intervals.resamples, settings.intervals.level
        if not resamples or quantifier.gives_intervals:
            return None
        calibrated = not quantifier.adjusts_posteriors
        replicates = make_replicates(nodes, resamples, settings.seed, calibrated)
        return cls(quantifier, replicates, resamples, level, settings.seed)

    def with_ends(
        self,
        batch: Communities,
        nodes: NodeTable,
        estimates: Estimates,
        first: int = 0,
    ) -> Estimates:
        """Return the estimates with intervals.

        `first` is the number of the batch's first community; numbers and the seed are
        the key of the draws. Memory: about 40 C bytes per membership of a block and 8
        per membership that a replicate draws. A block has `BLOCK` memberships, but for
        its last community.
        """
        prevalence = estimates.prevalence
        # Posteriors are bounded by the number of labels that calibrate them.
        least = 1 / ((len(nodes.reference.labels) or DEFAULT_LABELS) + 2)
        lower, upper = np.full((2, *prevalence.shape), np.nan)
        for begin, sets in batch.parts(BLOCK):
            usable = usable_members(sets, nodes)
            block, part = usable.sets, usable.nodes
            rows = bounded(part.posteriors, nodes.prior, least)
            part = replace(part, posteriors=rows.astype(np.float32))
            chosen = slice(begin, begin + len(block))
            centre, variance = self._error(
                block, part, prevalence[chosen], first + begin
            )
            ends = beta_ends(centre, variance, self.level)
            # Without usable posteriors any count is possible.
            ends[:, block.sizes == 0] = [[[0.0]], [[1.0]]]
            sizes = usable.unlabelled
            count = np.where(sizes > 0, sizes, np.nan)[:, None]
            lower[chosen], upper[chosen] = np.rint(ends * count) / count
        return replace(
            estimates,
            lower=np.minimum(lower, prevalence),
            upper=np.maximum(upper, prevalence),
        )

    def _error(
        self, block: Communities, nodes: NodeTable, prevalence: Floats, first: int
    ) -> tuple[Floats, Floats]:
        """Mean and variance of the actual share, shape (S, C) each."""
        shifts, prior = not self.quantifier.trusts_posteriors, nodes.prior
        sizes = block.sizes[:, None].astype(np.float64)
        estimate = np.where(np.isnan(prevalence), prior, prevalence)
        shrunk = (sizes * estimate + PSEUDO * prior) / (sizes + PSEUDO)
        rows = nodes.posteriors[block.members].astype(np.float64)
        moved = shifted = rows
        if shifts:
            by, community = guarded_prior(prior), block.community
            moved = tilted(rows, (estimate / by)[community])
            shifted = tilted(rows, (shrunk / by)[community])
        at_estimate, at_shrunk, inside = (
            _means(each, block.offsets, np.arange(len(each)))
            for each in (moved, shifted, shifted * (1.0 - shifted))
        )
        noise = inside / np.maximum(sizes, 1.0)
        spread = self._spread(block, nodes, shifted, first)
        centre = sizes * np.clip(estimate + at_shrunk - at_estimate, 0.0, 1.0)
        centre = (centre + PSEUDO * at_shrunk) / (sizes + PSEUDO)
        variance = spread + noise
        if shifts:
            # The lower bound of the variance of an unbiased estimator.
            bernoulli = np.maximum(shrunk * (1 - shrunk), MIN_VARIANCE)
            unknown = np.minimum(noise * sizes / bernoulli, MAX_UNKNOWN)
            variance = np.maximum(variance, noise / (1 - unknown))
        return centre, variance

    def _spread(
        self, block: Communities, nodes: NodeTable, shifted: Floats, first: int
    ) -> Floats:
        """Variance over resamples of the estimate minus the expected share, (S, C)."""
        total, squares = np.zeros((2, len(block), shifted.shape[1]))
        count = len(self.replicates)
        bounds = np.arange(count + 1) * self.resamples // count
        logs = np.ascontiguousarray(np.log(nodes.posteriors).T)
        for number, replicate in enumerate(self.replicates):
            numbers = range(bounds[number], bounds[number + 1])
            drawn = np.empty((len(numbers), len(block.members)), np.int64)
            means = np.empty((len(numbers), *total.shape))
            for resample, places, mean in zip(numbers, drawn, means, strict=True):
                draw_members(block.offsets, self.seed, first, resample, places)
                mean[:] = _means(shifted, block.offsets, places)
                places[:] = block.members[places]
            sizes = np.tile(block.sizes, len(numbers))
            resampled = replace(
                nodes, prior=replicate.prior, reference=replicate.reference
            )
            if replicate.offset is not None:
                resampled = replace(resampled, posteriors=replicate.posteriors(logs))
            estimates = self.quantifier.estimate(
                Communities(offsets_of(sizes), drawn.ravel()), resampled
            )
            for error in estimates.prevalence.reshape(means.shape) - means:
                total += error
                squares += error * error
        squares -= total * total / self.resamples
        # NaN: a community without members.
        spread = np.nan_to_num(squares / max(self.resamples - 1, 1))
        return np.maximum(spread, 0.0)


@kernel
def draw_members(
    offsets: Ints, seed: int, first: int, resample: int, drawn: Ints
) -> None:
    """Fill `drawn` (M,) with places of memberships, a resample of every community.

    Community s has the number ``first + s`` in the key of its stream.
    """
    for s in range(len(offsets) - 1):
        begin, end = offsets[s], offsets[s + 1]
        rows = draw_rows(seed, first + s, resample, end - begin, end - begin)
        drawn[begin:end] = begin + rows


@kernel
def _means(rows: Floats, offsets: Ints, places: Ints) -> Floats:
    """Means of the rows at some places by community, (S, C); 0 without a place."""
    means = np.zeros((len(offsets) - 1, rows.shape[1]))
    for s in range(len(means)):
        for k in places[offsets[s] : offsets[s + 1]]:
            for y in range(rows.shape[1]):
                means[s, y] += rows[k, y]
        means[s] /= max(offsets[s + 1] - offsets[s], 1)
    return means
