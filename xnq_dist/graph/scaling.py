"""Feature columns in any unit: one robust location and spread a column.

Columns are measured while rows stream past: smallest and largest value and whether
there are others exactly, quantiles on a sample of nodes that a hash of the canonical
index chooses. Neither depends on the order of rows, on files or on partitions.

A standardised column is the same whatever its unit, offset and sign:

- two values become 0 for the common one and 1 for the rare one;
- other columns become ``asinh((x - median) / spread)``, within `LIMIT`, oriented so
  that their mean is positive. The logarithm bounds what an outlier adds and keeps its
  rank. The result is rounded to `GRID`: the rounding errors of an affine change vanish,
  which a reservoir that is not contractive would amplify;
- a constant column becomes 0.

All of them are multiplied by one gain where their mean squared row norm exceeds
`MOST_ENERGY`: many columns at once would saturate every unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from xnq_dist.graph.arrays import Bools, Floats, Floats32, Ints, Words
from xnq_dist.graph.ids import mix

__all__ = ["Scaling", "learn_scaling"]

Matrix = Floats32 | Floats

SAMPLE_BYTES = 1 << 25
"""Of the sample, as float64."""
SAMPLE_ROWS = (256, 1 << 16)
"""Fewest and most rows of the sample, where there are so many nodes."""
CORE = 0.6744897501960817
"""Median of the absolute value of a standard normal variable."""
TAIL = 5.151658607097802
"""Distance of a normal variable's quantiles .005 and .995, in standard deviations."""
TAIL_SHARE = 1 / 8
"""Of the tails' spread that a column's spread is at least: the noise around the common
value of a sparse column is not taken for its signal."""
LIMIT = 5.0
"""Largest standardised value; 74 spreads from the median."""
GRID = 2.0**-16
MOST_ENERGY = 4.0
"""Mean squared row norm: with inputs in +-0.3, features move a unit by 0.35 (standard
deviation), where tanh is almost linear. Measured: with few columns more is no better,
with a hundred or more columns less is no better."""
KEPT_RMS = 3.0
"""Largest root mean square of a list's column that is kept as it is: a single column
beyond it would have more than twice `MOST_ENERGY`."""
KEPT_SIZE = 32.0
"""Largest absolute value in a list's column that is kept as it is."""
KEPT_RANGE = 1 / 16
"""Smallest range of a list's column that is kept as it is, constants aside: below it,
inputs in +-0.3 move a unit by less than a fifth of its bias."""
KINDS = ("kept", "two values", "robust", "constant")
KEPT, TWO_VALUES, ROBUST, CONSTANT = range(4)


@njit(cache=True, nogil=True)
def node_hashes(index: Ints) -> Words:
    """A hash of each canonical index; that of 0 is the smallest."""
    hashes = np.empty(index.shape[0], np.uint64)
    for i in range(index.shape[0]):
        hashes[i] = mix(np.uint64(index[i]))
    return hashes


@dataclass(frozen=True)
class Measures:
    """What is known of the columns of all rows; shape (F,) each but the sample."""

    rows: int
    low: Floats
    high: Floats
    at_low: Ints
    """Rows with the smallest value."""
    at_high: Ints
    """Rows with the largest value, 0 where that is the smallest, too."""
    sample: Floats
    """Rows of some nodes, ordered by the nodes' hashes, shape (n, F)."""

    @property
    def kinds(self) -> NDArray[np.int8]:
        """`CONSTANT`, `TWO_VALUES` or `ROBUST` for each column."""
        few = self.at_low + self.at_high == self.rows
        one = few & (self.low == self.high)
        return np.select([one, few], [CONSTANT, TWO_VALUES], ROBUST).astype(np.int8)


class ColumnStatistics:
    """Measures `width` columns of `nodes` rows as they come in, in any order."""

    def __init__(self, nodes: int, width: int) -> None:
        fewest, most = SAMPLE_ROWS
        rows = max(fewest, min(most, SAMPLE_BYTES // (8 * width)))
        share = min(1.0, rows / nodes)
        self._largest = np.uint64(min(int(share * 2**64), 2**64 - 1))
        self._rows = 0
        self._low = np.full(width, np.inf)
        self._high = np.full(width, -np.inf)
        self._counts = np.zeros((2, width), np.int64)
        self._few = np.ones(width, bool)
        self._hashes: list[Words] = []
        self._sample: list[Matrix] = []

    def add(self, index: Ints, matrix: Matrix) -> None:
        """Take in rows: their canonical indices, (n,), and finite features, (n, F)."""
        hashes = node_hashes(index)
        chosen = hashes <= self._largest
        self._hashes.append(hashes[chosen])
        self._sample.append(matrix[chosen])
        self._rows += len(matrix)
        low, high = matrix.min(axis=0), matrix.max(axis=0)
        few = self._few
        if few.any():
            part = matrix if few.all() else matrix[:, few]
            counts = np.stack(
                [np.count_nonzero(part == ends[few], axis=0) for ends in (low, high)]
            )
            counts[1, (low == high)[few]] = 0
            self._count(low[few].astype(float), high[few].astype(float), counts)
        self._low = np.minimum(self._low, low)
        self._high = np.maximum(self._high, high)

    def _count(self, low: Floats, high: Floats, counts: NDArray[np.intp]) -> None:
        """Count anew how often the smallest and the largest value occur."""
        few = self._few.copy()
        values = np.stack([self._low[few], self._high[few], low, high])
        times = np.concatenate([self._counts[:, few], counts])
        ends = np.minimum(values[0], low), np.maximum(values[1], high)
        found = [np.where(values == end, times, 0).sum(axis=0) for end in ends]
        found[1][ends[0] == ends[1]] = 0
        self._counts[:, few] = found
        self._few[few] = found[0] + found[1] == self._rows

    def measures(self) -> Measures:
        """What was found in all rows."""
        order = np.argsort(np.concatenate(self._hashes), kind="stable")
        sample = np.concatenate(self._sample)[order].astype(np.float64, copy=False)
        # Where there are more values than two, their counts are of no use.
        at_low, at_high = np.where(self._few, self._counts, 0)
        return Measures(self._rows, self._low, self._high, at_low, at_high, sample)


@dataclass(frozen=True)
class Scaling:
    """How raw feature columns become the reservoir's inputs; shape (F,) each."""

    kinds: NDArray[np.int8]
    """`KEPT`, `TWO_VALUES`, `ROBUST` or `CONSTANT`."""
    center: Floats
    spread: Floats
    """Negative where a column is turned round."""
    gain: Floats
    """What standardised values are multiplied by."""

    def apply(self, matrix: Matrix) -> Floats32:
        """The inputs, shape (n, F), of raw features."""
        if not np.any(self.kinds):
            return matrix.astype(np.float32, copy=False)
        scaled = matrix.astype(np.float32)
        for kind in (TWO_VALUES, ROBUST, CONSTANT):
            at = np.flatnonzero(self.kinds == kind)
            if len(at):
                z = (matrix[:, at] - self.center[at]) / self.spread[at]
                z = squashed(z) if kind == ROBUST else z
                scaled[:, at] = self.gain[at] * z
        return scaled

    def facts(self) -> dict[str, Any]:
        """How many columns became what, JSON values."""
        counts = np.bincount(self.kinds, minlength=len(KINDS)).tolist()
        return dict(zip(KINDS, counts, strict=True))

    def table(self, names: Sequence[str]) -> pa.Table:
        """Schema ``feature_scaling``: one row per column, with these names."""
        return pa.table(
            {
                "feature": pa.array(names, pa.string()),
                "kind": pa.array([KINDS[kind] for kind in self.kinds], pa.string()),
                "center": self.center,
                "spread": self.spread,
                "gain": self.gain,
            }
        )


def squashed(z: Floats) -> Floats:
    """``asinh`` within `LIMIT`, on the grid."""
    found: Floats = np.round(np.clip(np.arcsinh(z), -LIMIT, LIMIT) / GRID) * GRID
    return found


def learn_scaling(
    batches: Iterable[tuple[Ints, Matrix]], nodes: int, keeps: bool
) -> Scaling:
    """Measure all rows and choose how columns are scaled.

    `batches`: canonical indices and features of all nodes; `keeps` as for
    `choose_scaling`.
    """
    statistics: ColumnStatistics | None = None
    for index, matrix in batches:
        statistics = statistics or ColumnStatistics(nodes, matrix.shape[1])
        statistics.add(index, matrix)
    if statistics is None:
        raise ValueError("there are no rows to learn from")
    return choose_scaling(statistics.measures(), keeps)


def choose_scaling(found: Measures, keeps: bool) -> Scaling:
    """The scaling of columns that were measured.

    With `keeps` columns in an ordinary range are kept, as for a list column, whose
    parts (of a decomposition, of an embedding) differ in scale on purpose: columns of
    two values that are 0 and 1, and others with values within `KEPT_SIZE`, a root mean
    square of at most `KEPT_RMS` and a range of `KEPT_RANGE` or more. Columns that are
    not kept get the median spread of those kept that have more than two values.
    """
    kinds = found.kinds
    if keeps:
        kinds = np.where(_ordinary(found), KEPT, kinds).astype(np.int8)
    width = len(kinds)
    center, spread = found.low.copy(), np.ones(width)
    energy = np.zeros(width)
    for at in np.flatnonzero(kinds == TWO_VALUES).tolist():
        rare, ends = _rare_end(found, at), (found.low[at], found.high[at])
        center[at], spread[at] = ends[1 - rare], ends[rare] - ends[1 - rare]
        energy[at] = (found.at_low, found.at_high)[rare][at] / found.rows
    for at in np.flatnonzero(kinds == ROBUST).tolist():
        center[at], size = _location(found, at)
        z = squashed((found.sample[:, at] - center[at]) / size)
        spread[at] = _orientation(z) * size
        energy[at] = np.mean(z**2)
    gain = np.where(kinds == ROBUST, _reference(found, kinds), 1.0)
    total = float(np.sum(gain**2 * energy))
    if total > MOST_ENERGY:
        gain = gain * _rounded(float(np.sqrt(MOST_ENERGY / total)))
    kept = kinds == KEPT
    center[kept], spread[kept], gain[kept] = 0.0, 1.0, 1.0
    return Scaling(kinds, center, spread, gain)


def _ordinary(found: Measures) -> Bools:
    size = np.maximum(np.abs(found.low), np.abs(found.high))
    rms = np.sqrt(np.mean(found.sample**2, axis=0))
    extent = found.high - found.low
    wide = (extent >= KEPT_RANGE) | (extent == 0)
    flags = (found.low == 0) & (found.high == 1)
    small = (size <= KEPT_SIZE) & (rms <= KEPT_RMS)
    ordinary: Bools = small & wide & (flags | (found.kinds != TWO_VALUES))
    return ordinary


def _rare_end(found: Measures, at: int) -> int:
    """Which of two values becomes 1: 0 for the smaller, 1 for the larger."""
    low, high = found.at_low[at], found.at_high[at]
    if low != high:
        return int(high < low)
    # As often: the value of the first node of the sample becomes 0.
    return int(found.sample[0, at] == found.low[at])


def _location(found: Measures, at: int) -> tuple[float, float]:
    """Median and spread of a column with more than two values."""
    values = found.sample[:, at]
    median = float(np.median(values))
    beyond = np.abs(values - median)
    beyond = beyond[beyond > 0]
    if not len(beyond):
        # Too rare for the sample to show another value.
        return median, float(max(found.high[at] - median, median - found.low[at]))
    core = float(np.median(beyond)) / CORE
    ends = np.quantile(values, (0.005, 0.995))
    return median, max(core, TAIL_SHARE * float(ends[1] - ends[0]) / TAIL)


def _orientation(z: Floats) -> float:
    """-1 or 1, so that the same column comes out whatever sign its unit has."""
    lean = float(np.mean(z))
    if abs(lean) <= GRID:
        # As good as symmetric: by the first node that is not at the median.
        away = z[z != 0]
        lean = float(away[0]) if len(away) else 1.0
    return 1.0 if lean > 0 else -1.0


def _reference(found: Measures, kinds: NDArray[np.int8]) -> float:
    """The spread that standardised columns get: that of the ones next to them."""
    if not np.any(kinds == ROBUST):
        return 1.0
    kept = np.flatnonzero((kinds == KEPT) & (found.kinds == ROBUST)).tolist()
    if not kept:
        return 1.0
    return _rounded(float(np.median([_location(found, at)[1] for at in kept])))


def _rounded(value: float) -> float:
    """To ten bits: sums that differ in their last bits give the same."""
    mantissa, exponent = np.frexp(value)
    return float(np.ldexp(np.round(mantissa * 1024) / 1024, exponent))
