"""Gradient-boosted trees: fitted by scikit-learn, stored and evaluated as plain arrays.

Estimator objects would have to be pickled. Instead, the trees are exported as arrays
from scikit-learn's private node tables (`_predictors`; tested with 1.7 to 1.9), and
evaluated by a kernel in this module: every test of a tree is applied to many rows at a
time, without branches, and removes the leaves that a row cannot reach.

References
----------
C. Lucchese et al., "QuickScorer: a fast algorithm to rank documents with additive
ensembles of regression trees", SIGIR 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from xnq_dist.core.arrays import Floats, Ints, Ints32

__all__ = [
    "BoostedTrees",
    "Shape",
    "add_trees",
    "boosted_logits",
    "fit_trees",
    "rounds_of",
    "staged",
]

ROUNDS, ROUNDS_OF_MANY = 250, 100
"""Maximum number of boosting rounds; the second with `MANY` or more classes."""
MANY = 5
STEP = 50
"""Rounds between checks on held-out rows; a fit stops after as many without gain."""


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """An additive model of trees, with one score per class (one for two classes).

    The leaves of a tree are numbered from left to right. A row is in the first leaf
    that no test removes.
    """

    baseline: Floats
    """Scores before the first tree, shape (S,); S = 1 for two classes, else C."""
    tests: Ints
    """Place of the first test of each tree, and their number, shape (T + 1,); tree t
    adds to score t modulo S."""
    feature: Ints32
    """Feature of a test."""
    threshold: Floats
    """A row passes when its feature is at most this."""
    kept: NDArray[np.uint64]
    """One bit per leaf, the lowest for the first: 0 where a failed test removes it."""
    leaves: Ints
    """Place of the first leaf of each tree, and their number, shape (T + 1,)."""
    value: Floats
    """Score of a leaf, learning rate included."""

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return arrays for an npz file; their names start with the prefix."""
        return {f"{prefix}{name}": getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], prefix: str) -> BoostedTrees:
        """Construct from the result of `to_arrays`."""
        return cls(**{name: arrays[f"{prefix}{name}"] for name in _FIELDS})

    @property
    def turns(self) -> int:
        """Number of boosting rounds."""
        return (len(self.tests) - 1) // len(self.baseline)

    def truncated(self, turns: int) -> BoostedTrees:
        """Return the model after its first `turns` rounds."""
        tests = self.tests[: turns * len(self.baseline) + 1]
        leaves = self.leaves[: len(tests)]
        if len(tests) == len(self.tests):
            return self
        return BoostedTrees(
            self.baseline,
            tests,
            self.feature[: tests[-1]],
            self.threshold[: tests[-1]],
            self.kept[: tests[-1]],
            leaves,
            self.value[: leaves[-1]],
        )


_FIELDS = ("baseline", "tests", "feature", "threshold", "kept", "leaves", "value")
LANES = 64
"""Rows that a test is applied to at a time."""
BLOCK = 1 << 12
"""Rows whose scores after each round are in memory at a time."""
_ALL = np.uint64(2**64 - 1)
_ONE, _HIGHEST = np.uint64(1), np.uint64(58)
# A multiplication moves 6 bits to the top that differ for each power of two.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_POWERS = _ONE << np.arange(64, dtype=np.uint64)
_PLACE = np.empty(64, np.int64)
_PLACE[(_POWERS * _DE_BRUIJN) >> _HIGHEST] = np.arange(64)


@dataclass(frozen=True)
class Shape:
    """Limits of the trees."""

    leaves: int
    """Maximum number of leaves, at most 64."""
    share: float
    """Share of the features that is drawn for each split."""


def rounds_of(n_classes: int) -> int:
    """Maximum number of boosting rounds."""
    return ROUNDS if n_classes < MANY else ROUNDS_OF_MANY


def fit_trees(
    z: Floats,
    labels: Ints32,
    n_classes: int,
    shape: Shape,
    held: tuple[Floats, Ints32] | None = None,
    weights: Floats | None = None,
) -> BoostedTrees:
    """Fit trees by scikit-learn's histogram method, with a fixed seed and one thread.

    With held-out features and labels, the trees end with the first multiple of `STEP`
    rounds at which their loss has not fallen for `STEP` rounds.

    References
    ----------
    Ke et al., "LightGBM: a highly efficient gradient boosting decision tree", 2017.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    empty = held is not None and not len(held[1])
    estimator = HistGradientBoostingClassifier(
        learning_rate=0.05,
        max_iter=STEP if empty else rounds_of(n_classes),
        max_leaf_nodes=shape.leaves,
        max_features=shape.share,
        min_samples_leaf=40,
        l2_regularization=1.0,
        early_stopping=held is not None and not empty,
        # It stops between multiples of `STEP`, too: not before those kept below.
        n_iter_no_change=2 * STEP - 1,
        tol=0.0,
        random_state=0,
    )
    rows, codes = z, labels
    absent = np.setdiff1d(np.arange(n_classes, dtype=labels.dtype), labels)
    if len(absent):
        # One median row of each absent class, so that no class has probability 0.
        middle = np.median(z, axis=0) if len(z) else np.zeros(z.shape[1])
        rows = np.concatenate([z, np.tile(middle, (len(absent), 1))])
        codes = np.concatenate([labels, absent])
        if weights is not None:
            weights = np.concatenate([weights, np.ones(len(absent))])
    # The limit is for this thread only; other tasks of the process keep theirs.
    with threadpool_limits(limits=1, user_api="openmp"):
        if held is None or empty:
            return _exported(estimator.fit(rows, codes, weights))
        estimator.fit(rows, codes, weights, X_val=held[0], y_val=held[1])
    trees = _exported(estimator)
    losses = staged(trees, *held)
    for turns in range(STEP, trees.turns, STEP):
        if np.argmin(losses[: turns + 1]) <= turns - STEP:
            return trees.truncated(turns)
    return trees


def _exported(estimator: Any) -> BoostedTrees:
    """Export the trees of a fitted scikit-learn estimator, in boosting order."""
    names = ["is_leaf", "left", "right", "feature_idx", "num_threshold", "value"]
    tests: list[tuple[int, float, int]] = []
    values: list[float] = []
    first_tests, first_leaves = [0], [0]

    def walk(nodes: list[Any], number: int) -> None:
        leaf, left, right, feature, threshold, value = nodes[number]
        if leaf:
            values.append(value)
            return
        place, before = len(tests), len(values) - first_leaves[-1]
        tests.append((feature, threshold, 0))
        walk(nodes, left)
        below = (1 << (len(values) - first_leaves[-1])) - (1 << before)
        tests[place] = feature, threshold, int(_ALL) ^ below
        walk(nodes, right)

    for turn in estimator._predictors:
        for tree in turn:
            walk(tree.nodes[names].tolist(), 0)
            first_tests.append(len(tests))
            first_leaves.append(len(values))
    feature, threshold, kept = zip(*tests, strict=True) if tests else ((), (), ())
    return BoostedTrees(
        baseline=np.array(estimator._baseline_prediction, np.float64).ravel(),
        tests=np.array(first_tests, np.int64),
        feature=np.array(feature, np.int32),
        threshold=np.array(threshold, np.float64),
        kept=np.array(kept, np.uint64),
        leaves=np.array(first_leaves, np.int64),
        value=np.array(values, np.float64),
    )


@njit(cache=True, nogil=True)
def add_trees(
    z: Floats,
    tests: Ints,
    feature: Ints32,
    threshold: Floats,
    kept: NDArray[np.uint64],
    leaves: Ints,
    value: Floats,
    scores: Floats,
) -> None:
    """Add every tree's leaf to `scores`, shape (rows, S), trees in order."""
    rows, width = z.shape
    columns, left = np.zeros((width, LANES)), np.empty(LANES, np.uint64)
    for first in range(0, rows, LANES):
        count = min(LANES, rows - first)
        for at in range(width):
            for lane in range(count):
                columns[at, lane] = z[first + lane, at]
        for tree in range(tests.shape[0] - 1):
            left[:] = _ALL
            for test in range(tests[tree], tests[tree + 1]):
                column, most, rest = columns[feature[test]], threshold[test], kept[test]
                for lane in range(LANES):
                    left[lane] &= _ALL if column[lane] <= most else rest
            leaf, at = leaves[tree], tree % scores.shape[1]
            for lane in range(count):
                lowest = left[lane] & (~left[lane] + _ONE)
                place = _PLACE[(lowest * _DE_BRUIJN) >> _HIGHEST]
                scores[first + lane, at] += value[leaf + place]


def _add(model: BoostedTrees, z: NDArray[Any], scores: Floats) -> None:
    rows = np.ascontiguousarray(z, dtype=np.float64)
    ends, tests = model.tests, (model.feature, model.threshold, model.kept)
    add_trees(rows, ends, *tests, model.leaves, model.value, scores)


def boosted_logits(model: BoostedTrees, z: NDArray[Any]) -> Floats:
    """Logits of rows, shape (n, C); with two classes the first is 0."""
    scores = np.tile(model.baseline, (len(z), 1))
    _add(model, z, scores)
    if scores.shape[1] > 1:
        return scores
    return np.concatenate([np.zeros_like(scores), scores], axis=1)


def staged(model: BoostedTrees, z: NDArray[Any], labels: Ints32) -> Floats:
    """Summed log-loss of rows after each round, the baseline first, shape (T + 1,)."""
    losses = np.zeros(model.turns + 1)
    for first in range(0, len(z), BLOCK):
        rows, codes = z[first : first + BLOCK], labels[first : first + BLOCK]
        # Trees add to a column of their own.
        added = np.zeros((len(rows), len(model.tests) - 1))
        _add(model, rows, added)
        scores = np.tile(model.baseline, (len(rows), 1))
        losses[0] += _loss(scores, codes)
        for turn in range(model.turns):
            scores += added[:, turn * len(model.baseline) :][:, : scores.shape[1]]
            losses[turn + 1] += _loss(scores, codes)
    return losses


def _loss(scores: Floats, labels: Ints32) -> float:
    if scores.shape[1] == 1:
        signs = np.where(labels == 1, 1.0, -1.0)
        return float(np.logaddexp(0.0, -signs * scores[:, 0]).sum())
    top = np.logaddexp.reduce(scores, axis=1)
    return float((top - scores[np.arange(len(labels)), labels]).sum())
