"""Intervals of the classic quantifiers: members and labelled nodes drawn anew.

What is estimated is the share that could be counted among a community's unlabelled
members, not that of a population they came from. A resample r draws members with
replacement, and with them classes y by the members' posteriors at the estimate; the
quantifier's answer to the resample, less the share of the classes drawn, varies like
its error. So posteriors of 0 and 1 leave no error, and the members' own noise is not
counted twice. Given the members the classes' share is a mean of posteriors m_r plus
Bernoulli noise, whose variance is known: only ``q_r - m_r`` is simulated.

Labelled nodes are drawn anew once for all communities (`replicates`), each draw with
as many resamples of members. The ends are those of the Beta distribution of the
estimate and the variance: quantiles of the resamples themselves know nothing beyond a
corner of the simplex that the estimate lies in.

References
----------
B. Efron, R. Tibshirani, "An Introduction to the Bootstrap", Chapman and Hall, 1993.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import betaincinv

from xnq_dist.config import Settings
from xnq_dist.quantify.interface import Communities, Estimates, NodeTable, Reference
from xnq_dist.quantify.members import usable_members
from xnq_dist.quantify.replicates import (
    Replicates,
    likeliest,
    make_replicates,
    what_is_said,
)
from xnq_dist.quantify.resampling import draw_kernel, odds_kernel

__all__ = ["Bootstrap"]

Floats = NDArray[np.float64]

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

    replicates: Replicates
    resamples: int
    """Of each community's members, over all replicates."""
    level: float
    seed: int
    labels: int
    """Labelled nodes that the posteriors are calibrated by."""

    @classmethod
    def of(
        cls,
        name: str,
        settings: Settings,
        reference: Reference,
        classes: tuple[str, ...],
    ) -> Bootstrap | None:
        """For a quantifier by its name; None when there are to be no resamples.

        None too for one that has intervals of its own.

        Raises
        ------
        InputError
            When the quantifier needs labelled nodes and there are none.
        """
        wanted = settings.intervals
        if not wanted.resamples:
            return None
        replicates = make_replicates(name, settings, reference, classes)
        if replicates is None:
            return None
        labels = DEFAULT_LABELS if reference.labels is None else len(reference.labels)
        return cls(replicates, wanted.resamples, wanted.level, settings.seed, labels)

    def with_ends(
        self,
        batch: Communities,
        nodes: NodeTable,
        reference: Reference,
        found: Estimates,
        first: int = 0,
    ) -> Estimates:
        """Estimates with their intervals.

        Parameters
        ----------
        batch, nodes, reference
            As the quantifier took them.
        found
            Its answer.
        first
            Number of the batch's first community among all: with the seed the key of
            the draws.

        Notes
        -----
        Memory: some 40 C bytes for each of `BLOCK` memberships, or of the largest
        community's when it has more.
        """
        usable = usable_members(batch, nodes)
        prevalence = found.prevalence
        lower, upper = np.full((2, *prevalence.shape), np.nan)
        free = np.concatenate([[0], np.cumsum(nodes.unlabelled[batch.members])])
        sizes = np.diff(free[batch.offsets])
        offsets = usable.offsets
        begin = 0
        while begin < len(batch):
            end = int(np.searchsorted(offsets, offsets[begin] + BLOCK, side="right"))
            end = min(max(end - 1, begin + 1), len(batch))
            members = usable.members[offsets[begin] : offsets[end]]
            own, places = np.unique(members, return_inverse=True)
            picked = usable.rows[own]
            rows = self._vouched_for(nodes.posteriors[picked].astype(np.float64))
            said = what_is_said(self.replicates, nodes, picked, rows)
            block = Communities(offsets[begin : end + 1] - offsets[begin], places)
            chosen = slice(begin, end)
            centre, variance = self._error(
                block, rows, said, prevalence[chosen], reference.prior, first + begin
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

    def _vouched_for(self, rows: Floats) -> Floats:
        """Posteriors no surer than the labelled nodes are many."""
        rows = np.maximum(rows / rows.sum(axis=1, keepdims=True), 1 / (self.labels + 2))
        return np.asarray(rows / rows.sum(axis=1, keepdims=True))

    def _error(
        self,
        block: Communities,
        rows: Floats,
        said: Floats,
        prevalence: Floats,
        prior: Floats,
        first: int,
    ) -> tuple[Floats, Floats]:
        """Centre and variance of the share that can be counted, shape (S, C) each."""
        made = self.replicates
        base = made.base(rows)
        sizes = np.diff(block.offsets)[:, None].astype(np.float64)
        answer = np.where(np.isnan(prevalence), prior, prevalence)
        held = (sizes * answer + PSEUDO * prior) / (sizes + PSEUDO)
        by = made.prior
        ones = np.ones_like(answer)
        shifted = np.empty((len(block.members), rows.shape[1]))
        at_answer, at_held, noise = np.zeros((3, *answer.shape))
        shift_kernel(
            block.offsets,
            block.members,
            base,
            ones if by is None else answer / by,
            ones if by is None else held / by,
            shifted,
            at_answer,
            at_held,
            noise,
        )
        total, squares = self._sums(block, said, shifted, answer, first)
        spread = (squares - total * total / self.resamples) / max(self.resamples - 1, 1)
        centre = sizes * np.clip(answer + at_held - at_answer, 0.0, 1.0)
        centre = (centre + PSEUDO * at_held) / (sizes + PSEUDO)
        variance = np.maximum(spread, 0.0) + noise
        if by is not None:
            # No estimator that is right on average varies less than this.
            most = np.maximum(held * (1 - held), LEAST_VARIANCE)
            unknown = np.minimum(noise * sizes / most, MOST_UNKNOWN)
            variance = np.maximum(variance, noise / (1 - unknown))
        return centre, variance

    def _sums(
        self,
        block: Communities,
        said: Floats,
        shifted: Floats,
        answer: Floats,
        first: int,
    ) -> tuple[Floats, Floats]:
        """Sums over resamples of answer less expected share, and of its square."""
        made = self.replicates
        total, squares = np.zeros((2, *answer.shape))
        two = np.zeros((len(block), 2))
        drawn, means = np.empty_like(block.members), np.empty_like(answer)
        bounds = np.arange(made.count + 1) * self.resamples // made.count
        for g in range(made.count):
            table = made.table(g, said)
            if answer.shape[1] == 2 and likeliest(made):
                odds_kernel(
                    block.offsets,
                    block.members,
                    (table[:, 1] - table[:, 0]) / (table[:, 1] + table[:, 0]),
                    shifted,
                    answer[:, 1].copy(),
                    self.seed,
                    first,
                    bounds[g],
                    bounds[g + 1],
                    two,
                )
                continue
            for resample in range(bounds[g], bounds[g + 1]):
                draw_kernel(
                    block.offsets,
                    block.members,
                    shifted,
                    self.seed,
                    first,
                    resample,
                    drawn,
                    means,
                )
                off = made.solve(g, Communities(block.offsets, drawn), table) - means
                total += off
                squares += off * off
        if answer.shape[1] == 2 and likeliest(made):
            total[:] = two[:, :1] * [-1.0, 1.0]
            squares[:] = two[:, 1:]
        return total, squares

    def _ends(
        self, centre: Floats, variance: Floats, sizes: NDArray[np.int64]
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


@njit(cache=True, nogil=True, error_model="numpy")
def shift_kernel(
    offsets: NDArray[np.int64],
    members: NDArray[np.int64],
    posteriors: Floats,
    at_answer: Floats,
    at_held: Floats,
    shifted: Floats,
    mean_answer: Floats,
    mean_held: Floats,
    noise: Floats,
) -> None:
    """Members' posteriors once a community's proportions have shifted.

    Parameters
    ----------
    offsets, members
        `Communities`; int64 (S + 1,) and (M,).
    posteriors
        float64 (n, C).
    at_answer, at_held
        float64 (S, C): factors of the classes.
    shifted
        float64 (M, C), filled in: posteriors of memberships, by `at_held`.
    mean_answer, mean_held
        float64 (S, C), filled in: means of posteriors by either.
    noise
        float64 (S, C), filled in: variance of the share of each class when the
        members' classes are drawn by `shifted`.
    """
    n_classes = posteriors.shape[1]
    for s in range(offsets.shape[0] - 1):
        size = offsets[s + 1] - offsets[s]
        for position in range(offsets[s], offsets[s + 1]):
            node = members[position]
            answer, held = 0.0, 0.0
            for y in range(n_classes):
                answer += posteriors[node, y] * at_answer[s, y]
                held += posteriors[node, y] * at_held[s, y]
            for y in range(n_classes):
                own = posteriors[node, y]
                if answer > 0.0:
                    mean_answer[s, y] += own * at_answer[s, y] / answer / size
                value = own * at_held[s, y] / held
                shifted[position, y] = value
                mean_held[s, y] += value / size
                noise[s, y] += value * (1.0 - value) / size / size
