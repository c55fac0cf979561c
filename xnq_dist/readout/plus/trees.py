"""Gradient-boosted trees as plain arrays: growth from binned columns, evaluation.

Trees grow as scikit-learn's `HistGradientBoostingClassifier` grows them: the leaf whose
split lowers the loss most is split next, and each split looks at columns drawn anew.
scikit-learn sums the histograms of all columns, and spends most of the time of a small
tree in Python; here only drawn columns are summed. Sums are in the order of the rows,
so the bits do not depend on threads.

A tree is the list of its splits in the order in which it grew: split t divides one
leaf, and the rows beyond its threshold go to the new leaf t. A kernel evaluates them in
this order, each for many rows at a time, without branches.

References
----------
Ke et al., "LightGBM: a highly efficient gradient boosting decision tree", 2017.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.core.kernel import add_to_row, kernel
from xnq_dist.core.random_bits import GAMMA, mix
from xnq_dist.readout.logistic import row_losses

__all__ = [
    "BINS",
    "LEAST",
    "RATE",
    "RIDGE",
    "Bins",
    "BoostedTrees",
    "Shape",
    "add_trees",
    "binned",
    "boosted_logits",
    "fit_trees",
    "grow",
]

ROUNDS, ROUNDS_OF_MANY = 125, 50
"""Maximum number of boosting rounds; the second with `MANY` or more classes."""
MANY = 5
STEP = 25
"""Rounds between checks on held-out rows; a fit stops after as many without gain."""
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
LANES = 256
"""Rows that a split is applied to at a time."""
_HALF = np.uint64(32)


class BoostedTrees(NamedTuple):
    """An additive model of trees, with one score per class (one for two classes).

    With an additional first axis: one model for each fold.
    """

    baseline: Floats
    """Scores before the first tree, shape (S,); S = 1 for two classes, else C."""
    value: Floats
    """Score of each leaf, learning rate included, shape (T, S, L) for T rounds."""
    divided: Ints32
    """Leaf that each leaf was split from, shape (T, S, L); without meaning for the
    first leaf."""
    feature: Ints32
    """Feature of this split."""
    threshold: Floats32
    """Rows with a feature above this are in the new leaf; infinity for leaves that a
    tree does not have."""

    def truncated(self, turns: int) -> BoostedTrees:
        """Return the model after its first `turns` rounds."""
        by_round: Any = (each[:turns] for each in self[1:])
        return BoostedTrees(self.baseline, *by_round)


class Bins(NamedTuple):
    """Columns of which each value is in one of at most `BINS` bins."""

    codes: NDArray[np.uint8]
    """The bin of each value, shape (D, n)."""
    highest: Floats32
    """The highest value of each bin but the last, then infinity, shape (D, `BINS`)."""


class Shape(NamedTuple):
    """Limits of the trees."""

    leaves: int
    """Maximum number of leaves."""
    share: float
    """Share of the features that is drawn for each split."""


def fit_trees(
    bins: Bins,
    labels: Ints32,
    weights: Floats,
    n_classes: int,
    shape: Shape,
    held: Bools,
) -> tuple[BoostedTrees, Floats]:
    """Fit trees with fixed random draws, on one thread.

    Trees are fitted to the rows that are not `held`. They end with the first multiple
    of `STEP` rounds at which the loss of held rows has not fallen for `STEP` rounds.

    Returns
    -------
    The trees, and the summed log-loss of held rows after each round, shape (T + 1,).
    """
    codes, highest = bins
    used = np.flatnonzero(~held).astype(np.uint32)
    shares = np.bincount(labels[used], weights[used], n_classes)
    # An absent class counts as one row, so that its probability is not 0.
    logs = np.log(np.where(shares > 0, shares, 1.0) / weights[used].sum())
    hot, baseline = labels == np.arange(n_classes)[:, None], logs - logs.mean()
    if n_classes == 2:
        hot, baseline = hot[1:], logs[1:] - logs[:1]
    drawn, draws = math.ceil(shape.share * len(codes)), np.zeros(1, np.uint64)
    scores = np.tile(baseline[:, None], len(labels))
    most = ROUNDS if n_classes < MANY else ROUNDS_OF_MANY
    size = most, len(scores), shape.leaves
    value, cut = np.zeros(size), np.full(size, BINS - 1, np.uint8)
    divided, feature = np.zeros((2, *size), np.int32)
    places = np.flatnonzero(held)
    losses = [_loss(scores, labels, places)]
    for turn in range(most):
        shares = expit(scores) if len(scores) == 1 else softmax(scores, axis=0)
        slopes = (shares - hot) * weights
        curves = shares * (1.0 - shares) * weights
        trees = value[turn], divided[turn], feature[turn], cut[turn]
        for each in zip(slopes, curves, scores, *trees, strict=True):
            grow(codes, used, drawn, draws, *each)
        losses.append(_loss(scores, labels, places))
        if len(losses) % STEP == 1 and np.argmin(losses) < len(losses) - STEP:
            break
    model = BoostedTrees(baseline, value, divided, feature, highest[feature, cut])
    return model.truncated(len(losses) - 1), np.array(losses)


def _loss(scores: Floats, labels: Ints32, rows: Ints) -> float:
    return float(row_losses(_logits(scores[:, rows].T), labels[rows]).sum())


def _logits(scores: Floats) -> Floats:
    """Logits of rows, shape (n, C), from their scores, (n, S)."""
    if scores.shape[1] > 1:
        return scores
    return np.concatenate([np.zeros_like(scores), scores], axis=1)


def boosted_logits(model: BoostedTrees, z: NDArray[Any]) -> Floats:
    """Logits of rows, shape (n, C); with two classes the first is 0."""
    scores = np.tile(model.baseline[:, None], len(z))
    add_trees(np.ascontiguousarray(z, dtype=np.float32), *model[1:], scores)
    return _logits(scores.T)


@kernel
def add_trees(
    z: Floats32,
    value: Floats,
    divided: Ints32,
    feature: Ints32,
    threshold: Floats32,
    scores: Floats,
) -> None:
    """Add every tree's leaf to `scores`, shape (S, rows), trees in order."""
    rows, width = z.shape
    columns, reached = np.zeros((width, LANES), np.float32), np.empty(LANES, np.uint8)
    for first in range(0, rows, LANES):
        last = min(first + LANES, rows)
        for at in range(width):
            for row in range(first, last):
                columns[at, row - first] = z[row, at]
        for turn in range(value.shape[0]):
            for each in range(value.shape[1]):
                tree = divided[turn, each], feature[turn, each], threshold[turn, each]
                _reach(columns, *tree, reached)
                _add_leaves(value[turn, each], reached, scores[each][first:last])


@kernel
def _add_leaves(value: Floats, reached: NDArray[np.uint8], scores: Floats) -> None:
    """Add the score of each row's leaf."""
    for row in range(len(scores)):
        scores[row] += value[reached[row]]


@kernel
def _reach(
    columns: NDArray[Any],
    divided: Ints32,
    feature: Ints32,
    highest: NDArray[Any],
    reached: NDArray[Any],
) -> None:
    """Find the leaf of each row of one tree; columns have the shape (D, rows).

    `highest`: the value of each split above which rows are in the new leaf.
    """
    reached[:] = 0
    for leaf in range(1, len(divided)):
        column, limit, before = columns[feature[leaf]], highest[leaf], divided[leaf]
        for row in range(len(reached)):
            moves = (reached[row] == before) & (column[row] > limit)
            reached[row] = leaf if moves else reached[row]


def binned(z: NDArray[Any]) -> Bins:
    """Sort each column, (n, D), into bins of about equally many rows."""
    rows, width = z.shape
    codes = np.empty((width, rows), np.uint8)
    highest = np.full((width, BINS), np.inf, np.float32)
    for at in range(width):
        column = z[:, at].astype(np.float32)
        # Bins are runs of sorted values; a search for each value takes longer.
        order = np.argsort(column)
        values = column[order]
        ends = _ends(values)
        stops = np.searchsorted(values, ends, "right")
        sizes = np.diff(stops, prepend=0, append=rows)
        codes[at, order] = np.repeat(np.arange(len(sizes)), sizes)
        highest[at, : len(ends)] = ends
    return Bins(codes, highest)


def _ends(values: Floats32) -> Floats32:
    """Ends of the bins of ascending values: quantiles, or middles of a few values."""
    distinct = values[np.append(True, values[1:] != values[:-1])]
    if len(distinct) <= BINS:
        low, high = distinct[:-1], distinct[1:]
    else:
        places, over = np.divmod(np.arange(1, BINS) * len(values), BINS)
        low, high = values[places - (over == 0)], values[places]
    # Neighbouring float32 values have no middle: the lower one ends the bin.
    return np.unique(np.maximum(low, np.nextafter(low / 2 + high / 2, low)))


@kernel
def _draw(columns: Ints, count: int, state: NDArray[np.uint64]) -> None:
    """Move `count` columns, drawn at random, to the front (splitmix64)."""
    for place in range(count):
        state[0] += GAMMA
        bits = mix(state[0]) >> _HALF
        other = place + np.int64(bits * np.uint64(len(columns) - place) >> _HALF)
        columns[place], columns[other] = columns[other], columns[place]


@kernel
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
    for row in rows:
        slope, curve = slopes[row], curves[row]
        add_to_row(one, first[row], slope, curve)
        add_to_row(two, second[row], slope, curve)
        add_to_row(three, third[row], slope, curve)


@kernel
def _split(histogram: Floats, total: int, sums: Floats, best: Floats) -> bool:
    """Find the best split of a leaf by one column; whether it beats `best`.

    `histogram` is of the leaf's rows, `total` their number.
    `best` has the summed loss that the split takes off and, of the rows at most in the
    bin at index 1, the slope and curvature; its first value starts as the leaf's own.
    """
    found, slope, curve, count = False, 0.0, 0.0, 0.0
    for code in range(BINS - 1):
        slope += histogram[code, 0]
        curve += histogram[code, 1]
        count += histogram[code, 2]
        if count > total - LEAST:  # at the latest in the last bin with rows
            break
        if count >= LEAST:
            other, left = sums[0] - slope, curve + RIDGE
            right = sums[1] - curve + RIDGE
            gain = (slope * slope * right + other * other * left) / (left * right)
            if gain > best[0] and min(left, right) >= CURVED + RIDGE:
                found = True
                best[0], best[1], best[2], best[3] = gain, code, slope, curve
    return found


@kernel
def _divide(
    column: NDArray[np.uint8],
    limit: int,
    rows: NDArray[np.uint32],
    aside: NDArray[np.uint32],
) -> int:
    """Move a leaf's rows beyond a bin behind the others; the number of the others."""
    left = right = 0
    for row in rows:
        # Both are written, since half of the branches would be mispredicted.
        rows[left] = aside[right] = row
        beyond = int(column[row] > limit)
        left, right = left + 1 - beyond, right + beyond
    for row in range(right):  # assigning a slice takes seconds to compile
        rows[left + row] = aside[row]
    return left


@kernel
def grow(
    codes: NDArray[np.uint8],
    used: NDArray[np.uint32],
    drawn: int,
    state: NDArray[np.uint64],
    slopes: Floats,
    curves: Floats,
    scores: Floats,
    value: Floats,
    divided: Ints32,
    feature: Ints32,
    cut: NDArray[np.uint8],
) -> None:
    """Grow one tree of the rows `used`, and add its leaves to the `scores` of all rows.

    Parameters
    ----------
    codes
        Those of `Bins`.
    drawn
        Number of columns that each split looks at.
    state
        State of the random draws, shape (1,); it is moved on.
    slopes, curves
        First and second derivatives of the rows' losses by their scores, shape (n,).
    value, divided, feature, cut
        Fields of `BoostedTrees`, and the bin of each threshold, shape (L,); written,
        but for the last three of the first leaf and of leaves that do not grow.
    """
    max_leaves, count, fresh = len(value), 1, 0
    rows, aside, columns = used.copy(), used.copy(), np.arange(len(codes))
    histograms, some = np.empty((TOGETHER, BINS, 4)), np.empty(TOGETHER, np.int64)
    sums, best = np.zeros((max_leaves, 2)), np.zeros((max_leaves, 4))
    # By leaf: its rows, and its best column.
    start, stop, by = np.zeros((3, max_leaves), np.int64)
    stop[0] = len(rows)
    for row in rows:
        sums[0, 0] += slopes[row]
        sums[0, 1] += curves[row]
    while count < max_leaves:
        # The leaf that was split and the last one, or the first leaf alone.
        for leaf in range(fresh, count, max(1, count - 1 - fresh)):
            of_leaf = rows[start[leaf] : stop[leaf]]
            alone = sums[leaf, 0] ** 2 / (sums[leaf, 1] + RIDGE)
            best[leaf, 0] = alone
            if len(of_leaf) >= 2 * LEAST:
                _draw(columns, drawn, state)
                for first in range(0, drawn, TOGETHER):
                    for each in range(TOGETHER):
                        some[each] = columns[min(first + each, drawn - 1)]
                    _add_up(codes, some, of_leaf, slopes, curves, histograms)
                    for each in range(min(TOGETHER, drawn - first)):
                        data = histograms[each], len(of_leaf), sums[leaf]
                        if _split(*data, best[leaf]):
                            by[leaf] = some[each]
            best[leaf, 0] -= alone
        leaf = int(np.argmax(best[:count, 0]))
        if best[leaf, 0] <= 0:
            break
        divided[count], feature[count] = leaf, by[leaf]
        cut[count] = np.uint8(best[leaf, 1])
        of_leaf = rows[start[leaf] : stop[leaf]]
        middle = start[leaf] + _divide(codes[by[leaf]], cut[count], of_leaf, aside)
        start[count], stop[count], stop[leaf] = middle, stop[leaf], middle
        for at in range(2):
            sums[count, at] = sums[leaf, at] - best[leaf, 2 + at]
            sums[leaf, at] = best[leaf, 2 + at]
        fresh, count = leaf, count + 1
    reached = np.empty(len(scores), np.uint8)
    _reach(codes, divided, feature, cut, reached)
    for leaf in range(count):
        value[leaf] = -RATE * sums[leaf, 0] / (sums[leaf, 1] + RIDGE)
    _add_leaves(value, reached, scores)
