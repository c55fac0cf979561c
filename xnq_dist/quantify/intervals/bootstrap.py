"""Bootstrap intervals for any quantifier: members and labelled nodes are resampled.

The target is the actual share of a class among a community's unlabelled members, not
the share in a population that they come from. A resample r draws members with
replacement, and classes y by the members' posteriors at the estimate; the quantifier's
estimate q_r minus the share of the drawn classes has the distribution of its error. So
posteriors of 0 and 1 leave no error, and the members' sampling noise is not counted
twice. Given the members, the share of the drawn classes is a mean of posteriors m_r
plus Bernoulli noise of known variance: only ``q_r - m_r`` is simulated.

A few replicates of the labelled nodes serve all communities (`replicates`); each is
used for an equal part of the resamples of the members, all of a block in one call of
the quantifier's `estimate`. The ends are those of the Beta distribution with the mean
and variance of the estimate: quantiles of the resamples fail for estimates in a corner
of the simplex, and would need many more resamples.

References
----------
B. Efron, R. Tibshirani, "An Introduction to the Bootstrap", Chapman and Hall, 1993.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betaincinv

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.members import usable_members
from xnq_dist.quantify.classic.sld import guarded_prior
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)
from xnq_dist.quantify.intervals.replicates import Replicate, bounded, make_replicates
from xnq_dist.quantify.intervals.resamples import draw_kernel

__all__ = ["Bootstrap"]


PSEUDO = 2.0
"""Pseudo-members at the prior that shrink the shift of the posteriors, so that a single
member with an estimate of 0 or 1 is not taken as certain."""
BLOCK = 1 << 18
"""Memberships resampled at a time, unless one community has more."""
DEFAULT_LABELS = 1000
"""Assumed number of labels behind the posteriors where the reference has none."""
MIN_VARIANCE = 1e-12
MAX_UNKNOWN = 0.98
"""Maximum part of the members' class information that is missing in the posteriors."""
MAX_OF_BERNOULLI = 0.9
"""Maximum variance of the ends' distribution, in units of q (1 - q)."""


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Bootstrap of one quantifier."""

    quantifier: Quantifier
    replicates: Sequence[Replicate]
    resamples: int
    """Resamples of each community's members, over all replicates."""
    level: float
    seed: int
    labels: int
    """Labelled nodes that the posteriors are calibrated by."""

    @classmethod
    def of(
        cls, quantifier: Quantifier, settings: Settings, reference: Reference
    ) -> Bootstrap | None:
        """Construct the bootstrap of a quantifier.

        Returns None if no resamples are requested or the quantifier has intervals.
        """
        resamples, level = settings.intervals.resamples, settings.intervals.level
        if not resamples or quantifier.gives_intervals:
            return None
        labels = DEFAULT_LABELS if reference.labels is None else len(reference.labels)
        recalibrated = not quantifier.adjusts_posteriors
        replicates = make_replicates(
            reference, labels, resamples, settings.seed, calibrated=recalibrated
        )
        return cls(quantifier, replicates, resamples, level, settings.seed, labels)

    def with_ends(
        self,
        batch: Communities,
        nodes: NodeTable,
        reference: Reference,
        estimates: Estimates,
        first: int = 0,
    ) -> Estimates:
        """Return the estimates with intervals.

        `first` is the number of the batch's first community; numbers and the seed are
        the key of the draws. Memory: about 40 C bytes per membership of a block and 8
        per membership that a replicate draws. A block has `BLOCK` memberships, or those
        of the largest community.
        """
        usable = usable_members(batch, nodes)
        prevalence, offsets = estimates.prevalence, usable.offsets
        lower, upper = np.full((2, *prevalence.shape), np.nan)
        free = np.concatenate([[0], np.cumsum(nodes.unlabelled[batch.members])])
        sizes = np.diff(free[batch.offsets])
        begin = 0
        while begin < len(batch):
            end = int(np.searchsorted(offsets, offsets[begin] + BLOCK, side="right"))
            end = min(max(end - 1, begin + 1), len(batch))
            members = usable.members[offsets[begin] : offsets[end]]
            rows, places = np.unique(members, return_inverse=True)
            block = Communities(offsets[begin : end + 1] - offsets[begin], places)
            part = nodes.of(usable.rows[rows])
            part = replace(part, posteriors=bounded(part.posteriors, self.labels))
            chosen = slice(begin, end)
            centre, variance = self._error(
                block, part, prevalence[chosen], reference.prior, first + begin
            )
            lower[chosen], upper[chosen] = self._ends(centre, variance, sizes[chosen])
            # Without usable posteriors any count is possible.
            unknown = (np.diff(block.offsets) == 0) & (sizes[chosen] > 0)
            lower[chosen][unknown], upper[chosen][unknown] = 0.0, 1.0
            begin = end
        return replace(
            estimates,
            lower=np.minimum(lower, prevalence),
            upper=np.maximum(upper, prevalence),
        )

    def _error(
        self,
        block: Communities,
        nodes: NodeTable,
        prevalence: Floats,
        prior: Floats,
        first: int,
    ) -> tuple[Floats, Floats]:
        """Mean and variance of the actual share, shape (S, C) each."""
        shifts = not self.quantifier.trusts_posteriors
        sizes = np.diff(block.offsets)[:, None].astype(np.float64)
        estimate = np.where(np.isnan(prevalence), prior, prevalence)
        shrunk = (sizes * estimate + PSEUDO * prior) / (sizes + PSEUDO)
        rows = nodes.posteriors[block.members].astype(np.float64)
        community = np.repeat(np.arange(len(block)), np.diff(block.offsets))
        by = guarded_prior(prior)
        moved = _shifted(rows, (estimate / by)[community]) if shifts else rows
        shifted = _shifted(rows, (shrunk / by)[community]) if shifts else rows
        at_estimate, at_shrunk = (
            _sums(each, community, len(block)) / np.maximum(sizes, 1.0)
            for each in (moved, shifted)
        )
        noise = _sums(shifted * (1.0 - shifted), community, len(block))
        noise /= np.maximum(sizes, 1.0) ** 2
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
        count, n_classes = len(block), shifted.shape[1]
        total, squares = np.zeros((2, count, n_classes))
        if not len(block.members):
            return total
        replicates = len(self.replicates)
        bounds = np.arange(replicates + 1) * self.resamples // replicates
        logs = np.ascontiguousarray(np.log(nodes.posteriors).T)
        for replicate, begin, end in zip(
            self.replicates, bounds[:-1], bounds[1:], strict=True
        ):
            drawn = np.empty((end - begin, len(block.members)), np.int64)
            means = np.empty((end - begin, count, n_classes))
            for r in range(end - begin):
                draw_kernel(
                    *(block.offsets, block.members, shifted, self.seed, first),
                    *(begin + r, drawn[r], means[r]),
                )
            before = np.arange(end - begin)[:, None] * len(block.members)
            offsets = np.append((block.offsets[:-1] + before).ravel(), drawn.size)
            resampled = nodes
            if replicate.offset is not None:
                resampled = replace(nodes, posteriors=replicate.posteriors(logs))
            estimates = self.quantifier.estimate(
                Communities(offsets, drawn.ravel()), resampled, replicate.reference
            )
            for error in estimates.prevalence.reshape(means.shape) - means:
                total += error
                squares += error * error
        squares -= total * total / self.resamples
        # NaN: a community without members.
        spread = np.nan_to_num(squares / max(self.resamples - 1, 1))
        return np.asarray(np.maximum(spread, 0.0))

    def _ends(
        self, centre: Floats, variance: Floats, sizes: Ints
    ) -> tuple[Floats, Floats]:
        """Ends, rounded to counts of the unlabelled members; NaN without one."""
        tail = (1 - self.level) / 2
        bernoulli = centre * (1 - centre)
        open_ = bernoulli > 0
        concentration = np.divide(
            bernoulli,
            np.clip(variance, MIN_VARIANCE, MAX_OF_BERNOULLI * bernoulli),
            out=np.ones_like(bernoulli),
            where=open_,
        )
        concentration = np.maximum(concentration - 1, 1e-3)
        a = np.where(open_, centre * concentration, 1.0)
        b = np.where(open_, (1 - centre) * concentration, 1.0)
        count = np.where(sizes > 0, sizes, np.nan)[:, None]
        low = np.where(open_, betaincinv(a, b, tail), centre)
        high = np.where(open_, betaincinv(a, b, 1 - tail), centre)
        return np.rint(low * count) / count, np.rint(high * count) / count


def _shifted(rows: Floats, factors: Floats) -> Floats:
    """Posteriors of memberships after the shift of their community's proportions."""
    product = rows * factors
    return np.asarray(product / product.sum(axis=1, keepdims=True))


def _sums(rows: Floats, community: Ints, count: int) -> Floats:
    """Sums of memberships' rows by community, shape (S, C)."""
    columns = [np.bincount(community, each, count) for each in rows.T]
    # bincount of an empty array returns integers.
    return np.stack(columns, axis=1, dtype=np.float64)
