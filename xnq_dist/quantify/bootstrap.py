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
G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA
2014 (the draws).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32, offsets_of
from xnq_dist.core.kernel import kernel
from xnq_dist.core.random_bits import GAMMA, Purpose, mix, stream
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
from xnq_dist.quantify.quality import MIN_VARIANCE, beta_ends
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.selection.scored_rows import bounded
from xnq_dist.selection.tilt import tilted

__all__ = [
    "FEW",
    "THINNING",
    "Bootstrap",
    "Replicate",
    "draw_rows",
    "make_replicates",
    "resample_labels",
]

MAX_REPLICATES = 50
"""Maximum number of replicates; resamples of members are spread over them."""
MAX_ROWS = 40_000
"""Maximum number of labelled rows that are resampled: with more, their error is too
small to matter, and each replicate is fitted to as many."""
THINNING = 2.0
"""A replicate draws one in this many labels: labels of neighbours are not independent,
and the readout was fitted to the same labels."""
FEW = 20.0
"""Labels of the rarest class with which the calibration's variance is doubled."""
MAX_SLOPE = 2.0
"""Maximum logarithm of a slope."""
PRIOR_ROWS = 0.25
"""Strength of the prior of a replicate's calibration (the identity), in rows."""
REFERENCE = 1 << 40
"""First key of the streams that draw labelled nodes, above any community's number."""

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
                _draw_members(block.offsets, self.seed, first, resample, places)
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


@dataclass(frozen=True, eq=False)
class Replicate:
    """What other labelled nodes would change, from one resample of them.

    These are the rows that a quantifier learns from, the calibration of all posteriors
    (fitted to the resampled rows, relative to the fit to all rows), and the class
    proportions that it is calibrated to. More labels of a class change the proportions
    and the calibration's offset equally, so the effect on quantifiers that divide by
    the proportions is small.
    """

    prior: Floats
    reference: Reference
    slope: float = 1.0
    """Factor on the logarithms of posteriors."""
    offset: Floats | None = None
    """Added to the classes' logarithms, shape (C,); None: posteriors are unchanged."""

    def posteriors(self, logs: Floats32) -> Floats32:
        """Recalibrate posteriors, shape (n, C), from their logarithms, (C, n)."""
        values: Floats32 = logs * np.float32(self.slope)
        if self.offset is not None:
            values += self.offset.astype(np.float32)[:, None]
        values -= values.max(axis=0)
        np.exp(values, out=values)
        values /= values.sum(axis=0)
        return np.ascontiguousarray(values.T)


def make_replicates(
    nodes: NodeTable,
    resamples: int,
    seed: int,
    calibrated: bool = True,
) -> Sequence[Replicate]:
    """Draw at most `resamples` replicates; the reference itself without labelled nodes.

    Posteriors are recalibrated if `calibrated`.
    """
    reference = nodes.reference
    held, codes = reference.posteriors, reference.labels
    usable = np.flatnonzero(held.any(axis=1))
    if not len(usable):
        return [Replicate(nodes.prior, reference)]
    usable = usable[:: -(-len(usable) // MAX_ROWS)]
    inside = bounded(held[usable], nodes.prior, 1 / (len(codes) + 2))
    logs, codes = np.log(inside.astype(np.float32)), codes[usable]
    counts = np.bincount(codes, minlength=held.shape[1])
    random = stream(seed, Purpose.CLASS_PROPORTIONS)
    whole = fit_calibration("bcts", logs, codes, PRIOR_ROWS)
    few = np.sqrt(1 + FEW / max(counts[counts > 0].min(), 1))
    replicates = []
    for g in range(min(resamples, MAX_REPLICATES)):
        rows, drawn = resample_labels(codes, g, seed)
        more = random.standard_normal(len(counts)) * few
        more *= np.sqrt(THINNING / np.maximum(counts, 0.5))
        prior = nodes.prior * np.exp(more)
        one = Replicate(prior / prior.sum(), reference)
        if calibrated:
            again = fit_calibration("bcts", logs[rows], drawn, PRIOR_ROWS)
            steeper = again.slope[0] / whole.slope[0]
            change = np.exp(np.clip(few * np.log(steeper), -MAX_SLOPE, MAX_SLOPE))
            offset = few * (again.offset - whole.offset * steeper)
            one = replace(one, slope=float(change), offset=offset + more)
        neighbours = reference.neighbours
        resampled = Reference(
            one.posteriors(np.ascontiguousarray(logs[rows].T)),
            drawn,
            neighbours=None if neighbours is None else neighbours[usable[rows]],
        )
        replicates.append(replace(one, reference=resampled))
    return replicates


def resample_labels(labels: Ints32, replicate: int, seed: int) -> tuple[Ints, Ints32]:
    """Resample labelled rows within each class; return rows and their classes.

    Of a class with m rows, m / `THINNING` are drawn. One row in m + 1 is drawn from all
    classes, because nodes of a class may also look like those of another.
    """
    sizes = np.bincount(labels)
    chosen = []
    for code in np.flatnonzero(sizes).tolist():
        of_class, size = np.flatnonzero(labels == code), int(sizes[code])
        count = max(round(size / THINNING), 1)
        key = REFERENCE + code * 2
        places = draw_rows(seed, key, replicate, size + 1, count)
        others = draw_rows(seed, key + 1, replicate, len(labels), count)
        rows = np.append(of_class, -1)[places]
        chosen.append(np.where(rows < 0, others, rows))
    codes = np.repeat(np.flatnonzero(sizes), [len(rows) for rows in chosen])
    return np.concatenate(chosen), codes.astype(np.int32)


@kernel
def draw_rows(seed: int, group: int, resample: int, size: int, count: int) -> Ints:
    """Draw `count` row numbers below `size` with replacement, shape (count,).

    They depend on the arguments alone, not on batches, workers or threads. Each 64-bit
    word of the stream gives two.
    """
    word = np.uint64(0)
    for key in (seed, group, resample):
        word = mix((word ^ np.uint64(key)) + GAMMA)
    half, low, bound = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(size)
    rows = np.empty(count + count % 2, np.int64)
    for k in range(0, count, 2):
        word += GAMMA
        value = mix(word)
        rows[k] = np.int64(((value & low) * bound) >> half)
        rows[k + 1] = np.int64(((value >> half) * bound) >> half)
    return rows[:count]


@kernel
def _draw_members(
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
