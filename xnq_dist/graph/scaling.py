"""Robust scaling of feature columns: a location and a spread for each column.

Columns are measured while rows are streamed: minimum, maximum and whether there are
other values exactly, quantiles from a sample of nodes chosen by a hash of the canonical
index. Neither depends on the order of rows, on files or on partitions.

A standardised column does not depend on the column's unit, offset and sign:

- two values become 0 for the common one and 1 for the rare one;
- other columns become ``asinh((x - median) / spread)``, clipped to `LIMIT`, oriented so
  that their mean is positive. The logarithm bounds the effect of an outlier and keeps
  its rank. The result is rounded to `GRID`, which removes rounding errors of a change
  of unit; a reservoir that is not contractive would amplify them;
- a constant column becomes 0.

If the mean squared row norm exceeds `MAX_ENERGY`, all columns are multiplied by one
gain: many columns together would saturate the units.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Words
from xnq_dist.core.random_bits import mix

__all__ = ["Scaling", "largest_hash", "learn_scaling", "node_hashes", "sample_rows"]

Matrix = Floats32 | Floats

SAMPLE_BYTES = 1 << 25
"""Bytes of the sample, as float64."""
SAMPLE_ROWS = (256, 1 << 16)
"""Minimum and maximum rows of the sample, if there are as many nodes."""
CORE = 0.6744897501960817
"""Median of the absolute value of a standard normal variable."""
TAIL = 5.151658607097802
"""Distance of a normal variable's quantiles .005 and .995, in standard deviations."""
TAIL_SHARE = 1 / 8
"""A column's spread is at least this share of its tails' spread: noise around the
common value of a sparse column must not count as signal."""
LIMIT = 5.0
"""Largest standardised value; 74 spreads from the median."""
GRID = 2.0**-16
MAX_ENERGY = 4.0
"""Maximum mean squared row norm. With inputs in +-0.3, features then move a unit by
0.35 (standard deviation), where tanh is almost linear. Measured: a larger value is no
better with few columns, a smaller one is no better with a hundred or more."""
KEPT_RMS = 3.0
"""Maximum root mean square of a list's column that is kept unchanged: a single column
above it would have more than twice `MAX_ENERGY`."""
KEPT_SIZE = 32.0
"""Maximum absolute value in a list's column that is kept unchanged."""
KEPT_RANGE = 1 / 16
"""Minimum range of a list's column that is kept unchanged, except constants: below it,
inputs in +-0.3 move a unit by less than a fifth of its bias."""
KINDS = ("kept", "two values", "robust", "constant")
KEPT, TWO_VALUES, ROBUST, CONSTANT = range(4)


def node_hashes(index: Ints) -> Words:
    """A hash of each canonical index; the hash of 0 is the smallest."""
    words: Any = index.astype(np.uint64)
    return np.asarray(mix.py_func(words), np.uint64)


def sample_rows(width: int) -> int:
    """Expected rows of the sample of `width` columns."""
    minimum, maximum = SAMPLE_ROWS
    return max(minimum, min(maximum, SAMPLE_BYTES // (8 * width)))


def largest_hash(nodes: int, rows: int) -> np.uint64:
    """The largest hash in a sample of some rows of all nodes."""
    return np.uint64(min(int(rows / nodes * 2**64), 2**64 - 1))


@dataclass(frozen=True)
class Measures:
    """Statistics of the columns over all rows; shape (F,) each, except the sample."""

    rows: int
    low: Floats
    high: Floats
    at_low: Ints
    """Rows with the smallest value."""
    at_high: Ints
    """Rows with the largest value."""
    sample: Floats
    """Rows of some nodes, ordered by the nodes' hashes, shape (n, F)."""

    @property
    def kinds(self) -> NDArray[np.int8]:
        """`CONSTANT`, `TWO_VALUES` or `ROBUST` for each column."""
        one = self.low == self.high
        few = self.at_low + self.at_high == self.rows
        return np.select([one, few], [CONSTANT, TWO_VALUES], ROBUST).astype(np.int8)


def measure(batches: Iterable[tuple[Ints, Matrix]], nodes: int) -> Measures:
    """Measure the columns of all rows, which come in any order.

    `batches`: canonical indices, (n,), and finite features, (n, F).
    """
    rows = 0
    low: Any = np.inf
    high: Any = -np.inf
    at_low: Any = 0
    at_high: Any = 0
    hashes: list[Words] = []
    sample: list[Matrix] = []
    for index, matrix in batches:
        rows += len(matrix)
        lowest = np.minimum(low, matrix.min(axis=0))
        highest = np.maximum(high, matrix.max(axis=0))
        # Rows with an earlier extreme value no longer count.
        at_low = np.where(lowest == low, at_low, 0) + (matrix == lowest).sum(axis=0)
        at_high = np.where(highest == high, at_high, 0)
        at_high += (matrix == highest).sum(axis=0)
        low, high = lowest, highest
        found = node_hashes(index)
        chosen = found <= largest_hash(nodes, sample_rows(matrix.shape[1]))
        hashes.append(found[chosen])
        sample.append(matrix[chosen])
    order = np.argsort(np.concatenate(hashes), kind="stable")
    ordered = np.concatenate(sample)[order].astype(np.float64)
    ends = low.astype(np.float64), high.astype(np.float64)
    return Measures(rows, *ends, at_low, at_high, ordered)


@dataclass(frozen=True)
class Scaling:
    """The map from raw feature columns to the reservoir's inputs; shape (F,) each."""

    kinds: NDArray[np.int8]
    """`KEPT`, `TWO_VALUES`, `ROBUST` or `CONSTANT`."""
    center: Floats
    spread: Floats
    """Negative if the column's sign is changed."""
    gain: Floats
    """Factor on the standardised values."""

    @classmethod
    def unchanged(cls, width: int) -> Scaling:
        """Columns as they are."""
        ones = np.ones(width)
        return cls(np.full(width, KEPT, np.int8), np.zeros(width), ones, ones)

    def apply(self, matrix: Matrix) -> Floats32:
        """Scale raw features, shape (n, F), to inputs of the same shape."""
        if not self.kinds.any():  # all are kept
            return matrix.astype(np.float32, copy=False)
        z = (matrix - self.center) / self.spread
        robust = self.kinds == ROBUST
        z[:, robust] = compressed(z[:, robust])
        return (self.gain * z).astype(np.float32)

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


def compressed(z: Floats) -> Floats:
    """``asinh(z)``, clipped to `LIMIT` and rounded to `GRID`."""
    clipped: Floats = np.round(np.clip(np.arcsinh(z), -LIMIT, LIMIT) / GRID) * GRID
    return clipped


def learn_scaling(
    batches: Iterable[tuple[Ints, Matrix]], nodes: int, keeps: bool
) -> Scaling:
    """Measure all rows and choose how columns are scaled.

    `batches`: canonical indices and features of all nodes.

    With `keeps`, columns in an ordinary range are kept. This is used for a list column,
    whose elements (of a decomposition or an embedding) differ in scale on purpose. Kept
    are columns of the two values 0 and 1, and others with values within `KEPT_SIZE`, a
    root mean square of at most `KEPT_RMS` and a range of at least `KEPT_RANGE`. The
    others are scaled to the median spread of the kept ones with more than two values.
    """
    measured = measure(batches, nodes)
    kinds = measured.kinds
    if keeps:
        kinds = np.where(_ordinary(measured), KEPT, kinds).astype(np.int8)
    low, high, two = measured.low, measured.high, kinds == TWO_VALUES
    # The rarer value becomes 1; of equal ones that which the sample's first node lacks.
    lows, highs = measured.at_low, measured.at_high
    up = (highs < lows) | ((highs == lows) & (measured.sample[0] == low))
    center = np.where(two & ~up, high, low)
    spread = np.where(two, np.where(up, high - low, low - high), 1.0)
    energy = np.where(two, np.minimum(lows, highs) / measured.rows, 0.0)
    for at in np.flatnonzero(kinds == ROBUST).tolist():
        center[at], size = _location(measured, at)
        z = compressed((measured.sample[:, at] - center[at]) / size)
        spread[at] = _orientation(z) * size
        energy[at] = np.mean(z**2)
    gain = np.where(kinds == ROBUST, _reference(measured, kinds), 1.0)
    total = float(np.sum(gain**2 * energy))
    if total > MAX_ENERGY:
        gain = gain * _rounded(float(np.sqrt(MAX_ENERGY / total)))
    kept = kinds == KEPT
    center[kept], spread[kept], gain[kept] = 0.0, 1.0, 1.0
    return Scaling(kinds, center, spread, gain)


def _ordinary(measured: Measures) -> Bools:
    size = np.maximum(np.abs(measured.low), np.abs(measured.high))
    rms = np.sqrt(np.mean(measured.sample**2, axis=0))
    extent = measured.high - measured.low
    wide = (extent >= KEPT_RANGE) | (extent == 0)
    flags = (measured.low == 0) & (measured.high == 1)
    small = (size <= KEPT_SIZE) & (rms <= KEPT_RMS)
    ordinary: Bools = small & wide & (flags | (measured.kinds != TWO_VALUES))
    return ordinary


def _location(measured: Measures, at: int) -> tuple[float, float]:
    """Median and spread of a column with more than two values."""
    values = measured.sample[:, at]
    median = float(np.median(values))
    beyond = np.abs(values - median)
    beyond = beyond[beyond > 0]
    if not len(beyond):
        # The other values are too rare to be in the sample.
        return median, float(max(measured.high[at] - median, median - measured.low[at]))
    core = float(np.median(beyond)) / CORE
    ends = np.quantile(values, (0.005, 0.995))
    return median, max(core, TAIL_SHARE * float(ends[1] - ends[0]) / TAIL)


def _orientation(z: Floats) -> float:
    """-1 or 1, so that the result does not depend on the sign of the column's unit."""
    mean = float(np.mean(z))
    if abs(mean) <= GRID:
        # Almost symmetric: use the first node that is not at the median.
        away = z[z != 0]
        mean = float(away[0]) if len(away) else 1.0
    return 1.0 if mean > 0 else -1.0


def _reference(measured: Measures, kinds: NDArray[np.int8]) -> float:
    """The spread of standardised columns: the median spread of the kept ones."""
    if not np.any(kinds == ROBUST):
        return 1.0
    kept = np.flatnonzero((kinds == KEPT) & (measured.kinds == ROBUST)).tolist()
    if not kept:
        return 1.0
    return _rounded(float(np.median([_location(measured, at)[1] for at in kept])))


def _rounded(value: float) -> float:
    """Round to ten bits, so that sums with different last bits give the same value."""
    mantissa, exponent = np.frexp(value)
    return float(np.ldexp(np.round(mantissa * 1024) / 1024, exponent))
