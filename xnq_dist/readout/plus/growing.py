"""The growth of one boosted tree from binned columns, and the bins.

Trees grow as scikit-learn's `HistGradientBoostingClassifier` grows them: the leaf whose
split lowers the loss most is split next, and each split looks at columns drawn anew.
scikit-learn sums the histograms of all columns, and spends most of the time of a small
tree in Python; here only drawn columns are summed. Sums are in the order of the rows,
so the bits do not depend on threads.

References
----------
Ke et al., "LightGBM: a highly efficient gradient boosting decision tree", 2017.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.random_bits import GAMMA, mix
from xnq_dist.core.simd import add_to_row

__all__ = ["BINS", "LEAST", "RATE", "RIDGE", "binned", "grow"]

BINS = 255
"""Maximum number of bins of a column, about equally many rows in each."""
LEAST = 40
"""Minimum number of rows of a leaf."""
RIDGE, CURVED = 1.0, 1e-3
"""L2 penalty on the values of leaves; minimum summed curvature of a leaf."""
TOGETHER = 3
"""Columns whose histograms are summed in one pass over the rows: as many as fit in a
core's level-1 cache."""
RATE = 0.1
"""Learning rate."""
_ALL, _ONE, _HALF = np.uint64(2**64 - 1), np.uint64(1), np.uint64(32)


def binned(z: Floats) -> tuple[NDArray[np.uint8], Floats, Ints]:
    """Sort each column into bins.

    Returns
    -------
    The bin of each value, shape (D, n); the highest value of each bin but the last,
    then infinity, shape (D, `BINS`); and the number of bins of each column.
    """
    rows, width = z.shape
    codes = np.empty((width, rows), np.uint8)
    highest = np.full((width, BINS), np.inf)
    counts = np.empty(width, np.int64)
    for at in range(width):
        column = np.ascontiguousarray(z[:, at])
        ends = _ends(np.sort(column))
        codes[at] = np.searchsorted(ends, column)
        highest[at, : len(ends)] = ends
        counts[at] = len(ends) + 1
    return codes, highest, counts


def _ends(values: Floats) -> Floats:
    """Ends of the bins of ascending values: quantiles, or middles of a few values."""
    distinct = values[np.append(True, values[1:] != values[:-1])]
    if len(distinct) <= BINS:
        return np.asarray((distinct[1:] + distinct[:-1]) / 2)
    places, over = np.divmod(np.arange(1, BINS) * len(values), BINS)
    return np.unique((values[places - (over == 0)] + values[places]) / 2)


@njit(cache=True, nogil=True, error_model="numpy")
def _draw(columns: Ints, count: int, state: NDArray[np.uint64]) -> None:
    """Move `count` columns, drawn at random, to the front (splitmix64)."""
    for place in range(count):
        state[0] += GAMMA
        bits = mix(state[0]) >> _HALF
        other = place + np.int64(bits * np.uint64(len(columns) - place) >> _HALF)
        columns[place], columns[other] = columns[other], columns[place]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_up(
    codes: NDArray[np.uint8],
    columns: Ints,
    rows: NDArray[np.uint32],
    slopes: Floats,
    curves: Floats,
    histograms: Floats,
) -> None:
    """Sum slopes, curvatures and rows by bin, for `TOGETHER` columns."""
    histograms[:] = 0.0
    first, second, third = codes[columns[0]], codes[columns[1]], codes[columns[2]]
    one, two, three = histograms[0], histograms[1], histograms[2]
    for place in range(len(rows)):
        row, slope, curve = rows[place], slopes[place], curves[place]
        add_to_row(one, first[row], slope, curve)
        add_to_row(two, second[row], slope, curve)
        add_to_row(three, third[row], slope, curve)


@njit(cache=True, nogil=True, error_model="numpy")
def _split(
    histogram: Floats, bins: int, total: int, sums: Floats, best: Floats
) -> bool:
    """Find the best split of a leaf by one column; whether it beats `best`.

    `histogram` is of the leaf's rows, `total` their number. `best` has the summed loss
    that the split takes off and, of the rows at most in the bin at index 1, the slope
    and curvature; its first value starts as the leaf's own.
    """
    found, slope, curve, count = False, 0.0, 0.0, 0.0
    for code in range(bins - 1):
        slope += histogram[code, 0]
        curve += histogram[code, 1]
        count += histogram[code, 2]
        if count > total - LEAST:
            break
        if count >= LEAST:
            other, left = sums[0] - slope, curve + RIDGE
            right = sums[1] - curve + RIDGE
            gain = (slope * slope * right + other * other * left) / (left * right)
            if gain > best[0] and min(left, right) >= CURVED + RIDGE:
                found = True
                best[0], best[1], best[2], best[3] = gain, code, slope, curve
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def _divide(
    column: NDArray[np.uint8],
    limit: int,
    rows: NDArray[np.uint32],
    slopes: Floats,
    curves: Floats,
    aside: tuple[NDArray[np.uint32], Floats, Floats],
) -> int:
    """Move a leaf's rows beyond a bin behind the others; the number of the others.

    `aside` are work arrays as long as `rows`, `slopes` and `curves`.
    """
    left = right = 0
    for at in range(len(rows)):
        row, slope, curve = rows[at], slopes[at], curves[at]
        # Both are written, since half of the branches would be mispredicted.
        rows[left], slopes[left], curves[left] = row, slope, curve
        aside[0][right], aside[1][right], aside[2][right] = row, slope, curve
        beyond = int(column[row] > limit)
        left, right = left + 1 - beyond, right + beyond
    for at in range(right):
        rows[left + at], slopes[left + at] = aside[0][at], aside[1][at]
        curves[left + at] = aside[2][at]
    return left


@njit(cache=True, nogil=True, error_model="numpy")
def grow(
    codes: NDArray[np.uint8],
    bins: Ints,
    slopes: Floats,
    curves: Floats,
    drawn: int,
    state: NDArray[np.uint64],
    scores: Floats,
    feature: Ints32,
    cut: Ints,
    kept: NDArray[np.uint64],
    value: Floats,
) -> int:
    """Grow one tree, add its leaves to `scores`, and return their number.

    Parameters
    ----------
    codes, bins
        Results of `binned`.
    slopes, curves
        First and second derivatives of the rows' losses by their scores, shape (n,).
    drawn
        Number of columns that each split looks at.
    state
        State of the random draws, shape (1,); it is moved on.
    feature, cut, kept
        Column and bin of each test, and the leaves that stay where it fails, as in
        `BoostedTrees`, shape (L - 1,); written.
    value
        Values of the leaves, from left to right, shape (L,); written.
    """
    # Loops instead of expressions of arrays, whose compilation takes seconds.
    max_leaves, count, n = len(value), 1, len(slopes)
    rows, leaf_slopes, leaf_curves = np.empty(n, np.uint32), np.empty(n), np.empty(n)
    aside = np.empty(n, np.uint32), np.empty(n), np.empty(n)
    columns, some = np.empty(len(codes), np.int64), np.empty(TOGETHER, np.int64)
    for at in range(len(columns)):
        columns[at] = at
    histograms = np.empty((TOGETHER, BINS, 4))
    sums, best = np.zeros((max_leaves, 2)), np.zeros((max_leaves, 4))
    # By leaf in the order of the splits: rows, best column, place from the left; by
    # test: the leaves on its left side.
    spans = np.zeros((6, max_leaves), np.int64)
    start, stop, by, place = spans[0], spans[1], spans[2], spans[3]
    first, last = spans[4], spans[5]
    stop[0], fresh = n, 0
    for row in range(n):
        rows[row], leaf_slopes[row], leaf_curves[row] = row, slopes[row], curves[row]
        sums[0, 0] += slopes[row]
        sums[0, 1] += curves[row]
    while count < max_leaves:
        # The leaf that was split and the last one, or the first leaf alone.
        for leaf in range(fresh, count, max(1, count - 1 - fresh)):
            low, high = start[leaf], stop[leaf]
            alone = sums[leaf, 0] ** 2 / (sums[leaf, 1] + RIDGE)
            best[leaf, 0] = alone
            if high - low >= 2 * LEAST:
                _draw(columns, drawn, state)
                of_leaf = rows[low:high], leaf_slopes[low:high], leaf_curves[low:high]
                for at in range(0, drawn, TOGETHER):
                    for each in range(TOGETHER):
                        some[each] = columns[min(at + each, drawn - 1)]
                    _add_up(codes, some, *of_leaf, histograms)
                    for each in range(min(TOGETHER, drawn - at)):
                        arguments = bins[some[each]], high - low, sums[leaf], best[leaf]
                        if _split(histograms[each], *arguments):
                            by[leaf] = some[each]
            best[leaf, 0] -= alone
        leaf = 0
        for each in range(1, count):
            if best[each, 0] > best[leaf, 0]:
                leaf = each
        if best[leaf, 0] <= 0:
            break
        low, high, test = start[leaf], stop[leaf], count - 1
        feature[test], cut[test] = by[leaf], np.int64(best[leaf, 1])
        of_leaf = rows[low:high], leaf_slopes[low:high], leaf_curves[low:high]
        middle = low + _divide(codes[by[leaf]], cut[test], *of_leaf, aside)
        # Leaves further right move by one place, and so do the sides of tests.
        for each in range(count):
            place[each] += place[each] > place[leaf]
            first[each] += first[each] > place[leaf]
            last[each] += last[each] > place[leaf]
        first[test], last[test] = place[leaf], place[leaf] + 1
        start[count], stop[count], stop[leaf] = middle, high, middle
        place[count] = place[leaf] + 1
        for each in range(2):
            sums[count, each] = sums[leaf, each] - best[leaf, 2 + each]
            sums[leaf, each] = best[leaf, 2 + each]
        fresh, count = leaf, count + 1
    for each in range(count):
        value[place[each]] = -RATE * sums[each, 0] / (sums[each, 1] + RIDGE)
        for row in rows[start[each] : stop[each]]:
            scores[row] += value[place[each]]
    for test in range(count - 1):
        kept[test] = _ALL
        for at in range(first[test], last[test]):
            kept[test] ^= _ONE << np.uint64(at)
    return count
