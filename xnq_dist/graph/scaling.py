"""Robust scaling of feature columns: a location and a spread for each column.

Columns are measured on a sample of nodes (`encoding`), which does not depend on the
order of rows, on files or on partitions. Values that the sample lacks are bounded.

A standardised column does not depend on the column's unit, offset and sign:

- two values become 0 for the common one and 1 for the rare one (a third value that the
  sample lacks is at most 1 or at least -1);
- other columns become ``asinh((x - median) / spread)``, clipped to `LIMIT`, oriented so
  that their mean is positive. The logarithm bounds the effect of an outlier and keeps
  its rank. The result is rounded to `GRID`, which removes rounding errors of a change
  of unit; a reservoir that is not contractive would amplify them;
- a constant column becomes 0 (another value that the sample lacks becomes its
  difference from the constant, at most 1 or at least -1).

If the mean squared row norm exceeds `MAX_ENERGY`, all columns are multiplied by one
gain: many columns together would saturate the units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Floats32

__all__ = ["Scaling", "learn_scaling"]

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
KEPT, TWO_VALUES, ROBUST, CONSTANT = "kept", "two values", "robust", "constant"


@dataclass(frozen=True)
class Scaling:
    """The map from raw feature columns to the reservoir's inputs; shape (F,) each."""

    kinds: NDArray[np.str_]
    """`KEPT`, `TWO_VALUES`, `ROBUST` or `CONSTANT`."""
    center: Floats
    spread: Floats
    """Negative if the column's sign is changed."""
    gain: Floats
    """Factor on the standardised values."""
    limit: Floats
    """Largest absolute value before it; of a robust column before the logarithm."""

    @classmethod
    def unchanged(cls, width: int) -> Scaling:
        """Columns as they are."""
        kinds, ones = np.full(width, KEPT), np.ones(width)
        return cls(kinds, np.zeros(width), ones, ones, np.inf * ones)

    def apply(self, matrix: Floats) -> Floats32:
        """Scale raw features, shape (n, F), to inputs of the same shape."""
        z = np.clip((matrix - self.center) / self.spread, -self.limit, self.limit)
        robust = self.kinds == ROBUST
        z[:, robust] = compressed(z[:, robust])
        return (self.gain * z).astype(np.float32)

    def table(self, names: Sequence[str]) -> pa.Table:
        """Schema ``feature_scaling``: one row per column, with these names."""
        return pa.table(
            {
                "feature": names,
                "kind": self.kinds,
                "center": self.center,
                "spread": self.spread,
                "gain": self.gain,
            }
        )


def compressed(z: Floats) -> Floats:
    """``asinh(z)``, clipped to `LIMIT` and rounded to `GRID`."""
    clipped: Floats = np.round(np.clip(np.arcsinh(z), -LIMIT, LIMIT) / GRID) * GRID
    return clipped


def learn_scaling(sample: Floats, keeps: bool) -> Scaling:
    """Choose how columns are scaled from the features of some nodes, shape (n, F).

    With `keeps`, columns in an ordinary range are kept. This is used for a list column,
    whose elements (of a decomposition or an embedding) differ in scale on purpose. Kept
    are columns of the two values 0 and 1, and others with values within `KEPT_SIZE`, a
    root mean square of at most `KEPT_RMS` and a range of at least `KEPT_RANGE`. The
    others are scaled to the median spread of the kept ones with more than two values.
    """
    low, high = sample.min(axis=0), sample.max(axis=0)
    lows, highs = (sample == low).sum(axis=0), (sample == high).sum(axis=0)
    constant, more = low == high, lows + highs < len(sample)
    kept = np.zeros(len(low), np.bool_)
    if keeps:
        small = np.maximum(-low, high) <= KEPT_SIZE
        small &= np.sqrt(np.mean(sample**2, axis=0)) <= KEPT_RMS
        varied = more | ((low == 0) & (high == 1))
        kept = small & (constant | (varied & (high - low >= KEPT_RANGE)))
    robust = more & ~kept
    # The rarer value becomes 1; of equal ones that which the first node lacks.
    up = (highs < lows) | ((highs == lows) & (sample[0] == low))
    center = np.where(up, low, high)
    spread = np.where(constant, 1.0, np.where(up, high - low, low - high))
    energy = np.where(constant | kept, 0.0, np.minimum(lows, highs) / len(sample))
    for at in np.flatnonzero(robust).tolist():
        center[at], size = _location(sample[:, at])
        z = compressed((sample[:, at] - center[at]) / size)
        spread[at] = _orientation(z) * size
        energy[at] = np.mean(z**2)
    gain = np.ones(len(low))
    similar = np.flatnonzero(kept & more) if robust.any() else kept[:0]
    if len(similar):
        spreads = [_location(sample[:, at])[1] for at in similar.tolist()]
        gain[robust] = _rounded(float(np.median(spreads)))
    total = float(np.sum(gain**2 * energy))
    if total > MAX_ENERGY:
        gain *= _rounded(float(np.sqrt(MAX_ENERGY / total)))
    center[kept], spread[kept], gain[kept] = 0.0, 1.0, 1.0
    kinds = np.select([kept, constant, more], [KEPT, CONSTANT, ROBUST], TWO_VALUES)
    limit = np.select([kept, robust], [KEPT_SIZE, np.inf], 1.0)
    return Scaling(kinds, center, spread, gain, limit)


def _location(values: Floats) -> tuple[float, float]:
    """Median and spread of a column with more than two values."""
    median = float(np.median(values))
    beyond = np.abs(values - median)
    core = float(np.median(beyond[beyond > 0])) / CORE
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


def _rounded(value: float) -> float:
    """Round to ten bits, so that sums with different last bits give the same value."""
    mantissa, exponent = np.frexp(value)
    return float(np.ldexp(np.round(mantissa * 1024) / 1024, exponent))
