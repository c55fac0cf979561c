"""Intervals of any quantifier: members and labelled nodes drawn anew.

What is estimated is the share that could be counted among a community's unlabelled
members, not that of a population they came from. A resample r draws members with
replacement, and with them classes y by the members' posteriors at the estimate; the
quantifier's answer to the resample, less the share of the classes drawn, varies like
its error. So posteriors of 0 and 1 leave no error, and the members' own noise is not
counted twice. Given the members the classes' share is a mean of posteriors m_r plus
Bernoulli noise, whose variance is known: only ``q_r - m_r`` is simulated.

A few replicates of the labelled nodes serve all communities (`replicates`); each
answers as many resamples of the members, all of a block in one call of the
quantifier's `estimate`. The ends are those of the Beta distribution of the estimate and
the variance: quantiles of the resamples themselves know nothing beyond a corner of the
simplex that the estimate lies in, and would need many more resamples.

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
from xnq_dist.core.config import Settings
from xnq_dist.quantify.classic.members import usable_members
from xnq_dist.quantify.classic.sld import guarded_prior
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)
from xnq_dist.quantify.intervals.replicates import Replicate, make_replicates, vouched
from xnq_dist.quantify.intervals.resamples import draw_kernel

__all__ = ["Bootstrap"]


PSEUDO = 2.0
"""Members at the prior that the posteriors' shift is held back by: an estimate in a
corner does not make a community of one sure."""
BLOCK = 1 << 18
"""Memberships worked on at a time, but for a community that has more."""
DEFAULT_LABELS = 1000
"""How many labels posteriors are trusted for where there is none to check them by."""
LEAST_VARIANCE = 1e-12
MOST_UNKNOWN = 0.98
"""Largest part of the members' classes that their posteriors leave unknown."""
MOST_OF_BERNOULLI = 0.9
"""Largest variance of the ends' distribution, in units of q (1 - q)."""


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Intervals of one quantifier."""

    quantifier: Quantifier
    replicates: Sequence[Replicate]
    resamples: int
    """Of each community's members, over all replicates."""
    level: float
    seed: int
    labels: int
    """Labelled nodes that the posteriors are calibrated by."""

    @classmethod
    def of(
        cls, quantifier: Quantifier, settings: Settings, reference: Reference
    ) -> Bootstrap | None:
        """For a quantifier; None when there are to be no resamples.

        None too for one that has intervals of its own.
        """
        asked = settings.intervals
        if not asked.resamples or quantifier.gives_intervals:
            return None
        labels = DEFAULT_LABELS if reference.labels is None else len(reference.labels)
        moved = not quantifier.adjusts_posteriors
        made = make_replicates(
            reference, labels, asked.resamples, settings.seed, calibrated=moved
        )
        return cls(
            quantifier, made, asked.resamples, asked.level, settings.seed, labels
        )

    def with_ends(
        self,
        batch: Communities,
        nodes: NodeTable,
        reference: Reference,
        found: Estimates,
        first: int = 0,
    ) -> Estimates:
        """Estimates with their intervals; `first` numbers the batch's first community.

        That number and the seed are the key of the draws. Memory: some 40 C bytes for
        each of `BLOCK` memberships and 8 for each that a replicate draws, or of the
        largest community's when it has more.
        """
        usable = usable_members(batch, nodes)
        prevalence, offsets = found.prevalence, usable.offsets
        lower, upper = np.full((2, *prevalence.shape), np.nan)
        free = np.concatenate([[0], np.cumsum(nodes.unlabelled[batch.members])])
        sizes = np.diff(free[batch.offsets])
        begin = 0
        while begin < len(batch):
            end = int(np.searchsorted(offsets, offsets[begin] + BLOCK, side="right"))
            end = min(max(end - 1, begin + 1), len(batch))
            members = usable.members[offsets[begin] : offsets[end]]
            own, places = np.unique(members, return_inverse=True)
            block = Communities(offsets[begin : end + 1] - offsets[begin], places)
            some = nodes.of(usable.rows[own])
            some = replace(some, posteriors=vouched(some.posteriors, self.labels))
            chosen = slice(begin, end)
            centre, variance = self._error(
                block, some, prevalence[chosen], reference.prior, first + begin
            )
            lower[chosen], upper[chosen] = self._ends(centre, variance, sizes[chosen])
            # Posteriors that say nothing: any count is possible.
            nothing = (np.diff(block.offsets) == 0) & (sizes[chosen] > 0)
            lower[chosen][nothing], upper[chosen][nothing] = 0.0, 1.0
            begin = end
        return replace(
            found,
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
        """Centre and variance of the share that can be counted, shape (S, C) each."""
        shifts = not self.quantifier.trusts_posteriors
        sizes = np.diff(block.offsets)[:, None].astype(np.float64)
        answer = np.where(np.isnan(prevalence), prior, prevalence)
        held = (sizes * answer + PSEUDO * prior) / (sizes + PSEUDO)
        rows = nodes.posteriors[block.members].astype(np.float64)
        community = np.repeat(np.arange(len(block)), np.diff(block.offsets))
        by = guarded_prior(prior)
        moved = _shifted(rows, (answer / by)[community]) if shifts else rows
        shifted = _shifted(rows, (held / by)[community]) if shifts else rows
        at_answer, at_held = (
            _sums(each, community, len(block)) / np.maximum(sizes, 1.0)
            for each in (moved, shifted)
        )
        noise = _sums(shifted * (1.0 - shifted), community, len(block))
        noise /= np.maximum(sizes, 1.0) ** 2
        spread = self._spread(block, nodes, shifted, first)
        centre = sizes * np.clip(answer + at_held - at_answer, 0.0, 1.0)
        centre = (centre + PSEUDO * at_held) / (sizes + PSEUDO)
        variance = spread + noise
        if shifts:
            # No estimator that is right on average varies less than this.
            most = np.maximum(held * (1 - held), LEAST_VARIANCE)
            unknown = np.minimum(noise * sizes / most, MOST_UNKNOWN)
            variance = np.maximum(variance, noise / (1 - unknown))
        return centre, variance

    def _spread(
        self, block: Communities, nodes: NodeTable, shifted: Floats, first: int
    ) -> Floats:
        """Variance over resamples of the answer less the expected share, (S, C)."""
        count, n_classes = len(block), shifted.shape[1]
        total, squares = np.zeros((2, count, n_classes))
        if not len(block.members):
            return total
        replicates = len(self.replicates)
        bounds = np.arange(replicates + 1) * self.resamples // replicates
        logs = np.ascontiguousarray(np.log(nodes.posteriors).T)
        for made, begin, end in zip(
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
            answers = self.quantifier.estimate(
                Communities(offsets, drawn.ravel()),
                nodes
                if made.offset is None
                else replace(nodes, posteriors=made.posteriors(logs)),
                made.reference,
            )
            for off in answers.prevalence.reshape(means.shape) - means:
                total += off
                squares += off * off
        squares -= total * total / self.resamples
        # Without members there is no answer.
        spread = np.nan_to_num(squares / max(self.resamples - 1, 1))
        return np.asarray(np.maximum(spread, 0.0))

    def _ends(
        self, centre: Floats, variance: Floats, sizes: Ints
    ) -> tuple[Floats, Floats]:
        """Ends on counts of the unlabelled members; NaN without one."""
        tail = (1 - self.level) / 2
        most = centre * (1 - centre)
        open_ = most > 0
        known = np.divide(
            most,
            np.clip(variance, LEAST_VARIANCE, MOST_OF_BERNOULLI * most),
            out=np.ones_like(most),
            where=open_,
        )
        known = np.maximum(known - 1, 1e-3)
        a = np.where(open_, centre * known, 1.0)
        b = np.where(open_, (1 - centre) * known, 1.0)
        count = np.where(sizes > 0, sizes, np.nan)[:, None]
        low = np.where(open_, betaincinv(a, b, tail), centre)
        high = np.where(open_, betaincinv(a, b, 1 - tail), centre)
        return np.rint(low * count) / count, np.rint(high * count) / count


def _shifted(rows: Floats, factors: Floats) -> Floats:
    """Posteriors of memberships once their community's proportions have shifted."""
    found = rows * factors
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def _sums(rows: Floats, community: Ints, count: int) -> Floats:
    """Sums of memberships' rows by community, shape (S, C)."""
    columns = [np.bincount(community, each, count) for each in rows.T]
    return np.stack(columns, axis=1, dtype=np.float64)  # of no member: integers
