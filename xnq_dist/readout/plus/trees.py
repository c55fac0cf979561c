"""Gradient-boosted trees as plain arrays: growth from binned columns, evaluation.

Trees grow as scikit-learn's `HistGradientBoostingClassifier` grows them: the leaf whose
split lowers the loss most is split next, and each split looks at columns drawn anew.
scikit-learn sums the histograms of all columns, and spends most of the time of a small
tree in Python; here only drawn columns are summed. Sums are in the order of the rows,
so the bits do not depend on threads.

A tree is the list of its splits in the order in which it grew: split t divides one
leaf, and the rows beyond its threshold go to the new leaf t + 1. A kernel evaluates
them in this order, each for many rows at a time, without branches.

References
----------
Ke et al., "LightGBM: a highly efficient gradient boosting decision tree", 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import expit, softmax

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.random_bits import GAMMA, mix
from xnq_dist.core.simd import add_to_row

__all__ = [
    "BINS",
    "LEAST",
    "RATE",
    "RIDGE",
    "BoostedTrees",
    "Shape",
    "TreeFit",
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
LANES = 64
"""Rows that a split is applied to at a time."""
BLOCK = 1 << 12
"""Rows whose scores after each round are in memory at a time."""
_HALF = np.uint64(32)


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """An additive model of trees, with one score per class (one for two classes)."""

    baseline: Floats
    """Scores before the first tree, shape (S,); S = 1 for two classes, else C."""
    leaves: Ints
    """Place of the first leaf of each tree, and their number, shape (T + 1,); tree t
    adds to score t modulo S."""
    value: Floats
    """Score of a leaf, learning rate included."""
    divided: Ints32
    """Leaf of its tree that a leaf was split from; of no meaning for a first leaf."""
    feature: Ints32
    """Feature of this split."""
    threshold: Floats
    """Rows with a feature above this are in the new leaf."""

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return arrays for a file; their names start with the prefix."""
        return {f"{prefix}{name}": getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], prefix: str) -> BoostedTrees:
        """Construct from the result of `to_arrays`."""
        return cls(**{name: arrays[f"{prefix}{name}"] for name in _FIELDS})

    @property
    def turns(self) -> int:
        """Number of boosting rounds."""
        return (len(self.leaves) - 1) // len(self.baseline)

    def truncated(self, turns: int) -> BoostedTrees:
        """Return the model after its first `turns` rounds."""
        return self.rounds(0, turns)

    def rounds(self, first: int, last: int) -> BoostedTrees:
        """Return the model of the rounds from `first` to before `last`."""
        outputs = len(self.baseline)
        of_trees = slice(first * outputs, last * outputs + 1)
        leaves = self.leaves[of_trees]
        used = slice(leaves[0], leaves[-1])
        return BoostedTrees(
            self.baseline,
            leaves - leaves[0],
            self.value[used],
            self.divided[used],
            self.feature[used],
            self.threshold[used],
        )


_FIELDS = ("baseline", "leaves", "value", "divided", "feature", "threshold")


@dataclass(frozen=True, eq=False)
class TreeFit:
    """Fitted trees, and how they do on held-out rows."""

    trees: BoostedTrees
    losses: Floats
    """Summed log-loss of the held-out rows after each round, shape (T + 1,)."""


@dataclass(frozen=True)
class Shape:
    """Limits of the trees."""

    leaves: int
    """Maximum number of leaves."""
    share: float
    """Share of the features that is drawn for each split."""

    def drawn(self, columns: int) -> int:
        """Number of columns that are drawn for each split."""
        return math.ceil(self.share * columns)


def fit_trees(
    z: Floats,
    labels: Ints32,
    n_classes: int,
    shape: Shape,
    held: tuple[Floats, Ints32] | None = None,
    weights: Floats | None = None,
) -> TreeFit:
    """Fit trees with fixed random draws, on one thread.

    With held-out features and labels, the trees end with the first multiple of `STEP`
    rounds at which their loss has not fallen for `STEP` rounds.
    """
    rows, codes = z, labels
    if weights is None:
        weights = np.ones(len(labels))
    absent = np.setdiff1d(np.arange(n_classes, dtype=labels.dtype), labels)
    if len(absent):
        # One median row of each absent class, so that no class has probability 0.
        middle = np.median(z, axis=0) if len(z) else np.zeros(z.shape[1])
        rows = np.concatenate([z, np.tile(middle, (len(absent), 1))])
        codes = np.concatenate([labels, absent])
        weights = np.concatenate([weights, np.ones(len(absent))])
    growth = _Growth(rows, codes, weights, n_classes, shape)
    new, truth = held or (z[:0], labels[:0])
    scores = np.tile(growth.baseline, (len(new), 1))
    losses = [_loss(scores, truth)]
    most = ROUNDS if n_classes < MANY else ROUNDS_OF_MANY
    if held is not None and not len(truth):
        most = STEP
    for before in range(0, most, STEP):
        trees = growth.to(min(before + STEP, most))
        losses += _staged(
            trees.rounds(before, trees.turns), new, truth, scores
        ).tolist()
        if held is not None and np.argmin(losses) <= before:
            break
    return TreeFit(trees, np.array(losses))


class _Growth:
    """Trees that grow, and what they need of the rows."""

    def __init__(
        self, z: Floats, labels: Ints32, weights: Floats, n_classes: int, shape: Shape
    ) -> None:
        logs = np.log(np.bincount(labels, weights, n_classes) / weights.sum())
        self._hot = labels == np.arange(n_classes)[:, None]
        self.baseline = logs - logs.mean()
        if n_classes == 2:
            self._hot, self.baseline = self._hot[1:], logs[1:] - logs[:1]
        self._weights, self._shape = weights, shape
        self._codes, self._highest, self._bins = binned(z)
        self._scores = np.tile(self.baseline[:, None], len(z))
        self._draws = np.zeros(1, np.uint64)
        self._trees: list[tuple[Floats, Ints32, Ints32, Floats]] = []

    def to(self, turns: int) -> BoostedTrees:
        """Return the model of the first `turns` rounds; no fewer than before."""
        outputs = len(self.baseline)
        while len(self._trees) < turns * outputs:
            scores = self._scores
            shares = expit(scores) if outputs == 1 else softmax(scores, axis=0)
            slopes = (shares - self._hot) * self._weights
            curves = shares * (1.0 - shares) * self._weights
            for each in zip(slopes, curves, scores, strict=True):
                self._grow(*each)
        leaves = np.cumsum([0, *(len(values) for values, *_ in self._trees)])
        columns = map(np.concatenate, zip(*self._trees, strict=True))
        return BoostedTrees(self.baseline, leaves, *columns)

    def _grow(self, slopes: Floats, curves: Floats, scores: Floats) -> None:
        drawn, most = self._shape.drawn(len(self._codes)), self._shape.leaves
        value, (divided, feature, cut) = np.empty(most), np.zeros((3, most), np.int32)
        columns = self._codes, self._bins, slopes, curves, drawn, self._draws
        count = grow(*columns, scores, value, divided, feature, cut)
        threshold = self._highest[feature[:count], cut[:count]]
        self._trees.append((value[:count], divided[:count], feature[:count], threshold))


@njit(cache=True, nogil=True)
def add_trees(
    z: Floats,
    leaves: Ints,
    value: Floats,
    divided: Ints32,
    feature: Ints32,
    threshold: Floats,
    scores: Floats,
) -> None:
    """Add every tree's leaf to `scores`, shape (rows, S), trees in order."""
    rows, width = z.shape
    columns, reached = np.zeros((width, LANES)), np.empty(LANES, np.int64)
    for first in range(0, rows, LANES):
        count = min(LANES, rows - first)
        for at in range(width):
            for lane in range(count):
                columns[at, lane] = z[first + lane, at]
        for tree in range(leaves.shape[0] - 1):
            start, at = leaves[tree], tree % scores.shape[1]
            reached[:] = start
            for leaf in range(start + 1, leaves[tree + 1]):
                column, most = columns[feature[leaf]], threshold[leaf]
                before = start + divided[leaf]
                for lane in range(LANES):
                    moves = (reached[lane] == before) & (column[lane] > most)
                    reached[lane] = leaf if moves else reached[lane]
            for lane in range(count):
                scores[first + lane, at] += value[reached[lane]]


def _add(model: BoostedTrees, z: NDArray[Any], scores: Floats) -> None:
    rows = np.ascontiguousarray(z, dtype=np.float64)
    leaves = model.leaves, model.value, model.divided
    add_trees(rows, *leaves, model.feature, model.threshold, scores)


def boosted_logits(model: BoostedTrees, z: NDArray[Any]) -> Floats:
    """Logits of rows, shape (n, C); with two classes the first is 0."""
    scores = np.tile(model.baseline, (len(z), 1))
    _add(model, z, scores)
    if scores.shape[1] > 1:
        return scores
    return np.concatenate([np.zeros_like(scores), scores], axis=1)


def _staged(
    model: BoostedTrees, z: NDArray[Any], labels: Ints32, scores: Floats
) -> Floats:
    """Summed log-loss of rows after each round, shape (T,); `scores` move on."""
    losses = np.zeros(model.turns)
    for first in range(0, len(z), BLOCK):
        block = slice(first, first + BLOCK)
        # Trees add to a column of their own.
        added = np.zeros((len(z[block]), len(model.leaves) - 1))
        _add(model, z[block], added)
        of_rows, outputs = scores[block], scores.shape[1]
        for turn in range(model.turns):
            of_rows += added[:, turn * outputs :][:, :outputs]
            losses[turn] += _loss(of_rows, labels[block])
    return losses


def _loss(scores: Floats, labels: Ints32) -> float:
    if scores.shape[1] == 1:
        signs = np.where(labels == 1, 1.0, -1.0)
        return float(np.logaddexp(0.0, -signs * scores[:, 0]).sum())
    top = np.logaddexp.reduce(scores, axis=1)
    return float((top - scores[np.arange(len(labels)), labels]).sum())


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
    value: Floats,
    divided: Ints32,
    feature: Ints32,
    cut: Ints32,
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
    value, divided, feature, cut
        Fields of `BoostedTrees`, and the bin of each threshold, shape (L,); written,
        but for the last three of the first leaf.
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
    # By leaf: rows, best column.
    spans = np.zeros((3, max_leaves), np.int64)
    start, stop, by = spans[0], spans[1], spans[2]
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
        low, high = start[leaf], stop[leaf]
        divided[count], feature[count] = leaf, by[leaf]
        cut[count] = np.int64(best[leaf, 1])
        of_leaf = rows[low:high], leaf_slopes[low:high], leaf_curves[low:high]
        middle = low + _divide(codes[by[leaf]], cut[count], *of_leaf, aside)
        start[count], stop[count], stop[leaf] = middle, high, middle
        for each in range(2):
            sums[count, each] = sums[leaf, each] - best[leaf, 2 + each]
            sums[leaf, each] = best[leaf, 2 + each]
        fresh, count = leaf, count + 1
    for each in range(count):
        value[each] = -RATE * sums[each, 0] / (sums[each, 1] + RIDGE)
        for row in rows[start[each] : stop[each]]:
            scores[row] += value[each]
    return count
