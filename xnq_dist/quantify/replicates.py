"""Replicates of the labelled nodes, for bootstrap intervals.

References
----------
G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA
2014 (the draws).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32
from xnq_dist.core.kernel import kernel
from xnq_dist.core.random_bits import GAMMA, Purpose, mix, stream
from xnq_dist.quantify.interface import NodeTable, Reference
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.selection.scored_rows import bounded

__all__ = [
    "FEW",
    "THINNING",
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
