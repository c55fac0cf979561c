"""Other draws of the labelled nodes, which all communities share.

A replicate draws labelled rows within each class and makes from them what other labels
would have changed: the rows that a quantifier learns from, the calibration of all
posteriors (fitted to the rows drawn, relative to its fit to all of them), and the class
proportions that it is calibrated to. More labels of a class move the proportions and
the calibration's offset alike, so quantifiers that divide by them hardly notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.quantify.interface import Reference
from xnq_dist.quantify.intervals.resamples import draw_rows
from xnq_dist.readout.calibration import fit_calibration

__all__ = ["Replicate", "draw_again", "make_replicates", "vouched"]


MOST = 50
"""Replicates of the labelled nodes; resamples of members are spread over them."""
MOST_ROWS = 40_000
"""Labelled rows that replicates are drawn from: more leave an error too small to show,
and each replicate is fitted to as many."""
OPEN = 2.0
"""Part of the labels that a replicate draws is one in so many: labels of neighbours are
not independent, and the readout was learnt from the same labels."""
FEW = 20.0
"""Labels of the rarest class by which the calibration's variance doubles once more."""
MOST_SLOPE = 2.0
"""Largest logarithm of a slope."""
HELD = 0.25
"""Rows' worth of the prior of a replicate's calibration, that it changes nothing."""
REFERENCE = 1 << 40
"""Keys of the streams that draw labelled nodes: beyond any community's number."""


@dataclass(frozen=True, eq=False)
class Replicate:
    """What another draw of the labelled nodes leads to."""

    reference: Reference
    slope: float = 1.0
    """Of the logarithms of posteriors."""
    offset: Floats | None = None
    """Of the classes, shape (C,); None: posteriors stay."""

    def posteriors(self, logs: Floats32) -> Floats32:
        """Posteriors (n, C) by this calibration, from their logarithms (C, n)."""
        found: Floats32 = logs * np.float32(self.slope)
        if self.offset is not None:
            found += self.offset.astype(np.float32)[:, None]
        found -= found.max(axis=0)
        np.exp(found, out=found)
        found /= found.sum(axis=0)
        return np.ascontiguousarray(found.T)


def vouched(posteriors: NDArray[np.floating], labels: int) -> Floats32:
    """Posteriors no surer than the labelled nodes are many."""
    rows = np.asarray(posteriors, np.float64)
    rows = np.maximum(rows / rows.sum(axis=1, keepdims=True), 1 / (labels + 2))
    return np.asarray(rows / rows.sum(axis=1, keepdims=True), np.float32)


def make_replicates(
    reference: Reference,
    labels: int,
    resamples: int,
    seed: int,
    calibrated: bool = True,
) -> Sequence[Replicate]:
    """Replicates of the labelled nodes, at most `resamples`; the reference without any.

    Posteriors are calibrated by so many `labels`, and anew where `calibrated`.
    """
    held, codes = reference.posteriors, reference.labels
    if held is None or codes is None:
        return [Replicate(reference)]
    usable = np.flatnonzero(np.isfinite(held).all(axis=1) & (held.sum(axis=1) > 0))
    if not len(usable):
        return [Replicate(reference)]
    usable = usable[:: -(-len(usable) // MOST_ROWS)]
    logs, codes = np.log(vouched(held[usable], labels)), codes[usable]
    counts = np.bincount(codes, minlength=held.shape[1])
    random = stream(seed, Purpose.CLASS_PROPORTIONS)
    whole = _fitted(logs, codes)
    few = np.sqrt(1 + FEW / max(int(counts[counts > 0].min()), 1))
    made = []
    for g in range(min(resamples, MOST)):
        rows, drawn = draw_again(codes, g, seed)
        more = random.standard_normal(len(counts)) * few
        more *= np.sqrt(OPEN / np.maximum(counts, 0.5))
        one = Replicate(reference)
        if calibrated:
            slope, offset = _relative(_fitted(logs[rows], drawn), whole, few)
            one = Replicate(reference, slope, offset + more)
        prior = reference.prior * np.exp(more)
        around = reference.neighbours
        own = Reference(
            prior / prior.sum(),
            one.posteriors(np.ascontiguousarray(logs[rows].T)),
            drawn,
            neighbours=None if around is None else around.of(usable[rows]),
        )
        made.append(replace(one, reference=own))
    return made


def _relative(
    again: tuple[float, Floats], whole: tuple[float, Floats], times: float
) -> tuple[float, Floats]:
    """How a calibration differs from that by all rows, so many times as far."""
    steeper = again[0] / whole[0]
    slope = np.exp(np.clip(times * np.log(steeper), -MOST_SLOPE, MOST_SLOPE))
    return float(slope), times * (again[1] - whole[1] * steeper)


def _fitted(logs: NDArray[Any], labels: Ints32) -> tuple[float, Floats]:
    """Slope and offsets of the calibration of some rows."""
    made = fit_calibration("bcts", logs, labels, HELD).parameters
    return 1 / float(made["temperature"][0]), made["bias"]


def draw_again(labels: Ints32, replicate: int, seed: int) -> tuple[Ints, Ints32]:
    """Labelled rows drawn anew within each class, and the classes they stand for.

    A class of m rows gives m / `OPEN`. One row in m + 1 may be any: what a class was
    not seen to look like it may look like still.
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
    return np.concatenate(chosen), codes.astype(np.int32)
