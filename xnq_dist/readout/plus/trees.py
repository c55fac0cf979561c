"""Gradient-boosted trees: fitted by scikit-learn, stored and evaluated as plain arrays.

Estimator objects would have to be pickled. Instead, the trees are exported as arrays
from scikit-learn's private node tables (`_predictors`; tested with 1.7 to 1.9), and
evaluated by a kernel in this module.
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

    Node i of the table has the children `left` and `right` (places in the table); both
    children of a leaf are the leaf itself.
    """

    baseline: Floats
    """Scores before the first tree, shape (S,); S = 1 for two classes, else C."""
    roots: Ints
    """First node of each tree, shape (T,); tree t adds to score t modulo S."""
    feature: Ints32
    """Feature that a node splits on, shape (nodes,)."""
    threshold: Floats
    """A row goes left when its feature is at most this."""
    left: Ints32
    right: Ints32
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
        return len(self.roots) // len(self.baseline)

    def truncated(self, turns: int) -> BoostedTrees:
        """Return the model after its first `turns` rounds."""
        trees = turns * len(self.baseline)
        if trees == len(self.roots):
            return self
        nodes = int(self.roots[trees])
        tables = {name: getattr(self, name)[:nodes] for name in _TABLES}
        return BoostedTrees(self.baseline, self.roots[:trees], **tables)


_TABLES = ("feature", "threshold", "left", "right", "value")
_FIELDS = ("baseline", "roots", "feature", "threshold", "left", "right", "value")


@dataclass(frozen=True)
class Shape:
    """Limits of the trees."""

    leaves: int
    """Maximum number of leaves."""
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
    tables = [tree.nodes for turn in estimator._predictors for tree in turn]
    roots = np.cumsum([0, *(len(table) for table in tables)])[:-1]
    nodes = np.concatenate(tables)
    shift = np.repeat(roots, [len(table) for table in tables])
    places = np.arange(len(nodes))
    leaf = nodes["is_leaf"].astype(bool)
    return BoostedTrees(
        baseline=np.array(estimator._baseline_prediction, np.float64).ravel(),
        roots=roots.astype(np.int64),
        feature=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32),
        threshold=np.where(leaf, np.inf, nodes["num_threshold"]).astype(np.float64),
        left=np.where(leaf, places, nodes["left"] + shift).astype(np.int32),
        right=np.where(leaf, places, nodes["right"] + shift).astype(np.int32),
        value=nodes["value"].astype(np.float64),
    )


@njit(cache=True, nogil=True)
def add_trees(
    z: Floats,
    roots: Ints,
    feature: Ints32,
    threshold: Floats,
    left: Ints32,
    right: Ints32,
    value: Floats,
    scores: Floats,
) -> None:
    """Add every tree's leaf to `scores`, shape (rows, S), trees in order."""
    width = scores.shape[1]
    for row in range(z.shape[0]):
        for tree in range(roots.shape[0]):
            node = roots[tree]
            while left[node] != node:
                if z[row, feature[node]] <= threshold[node]:
                    node = left[node]
                else:
                    node = right[node]
            scores[row, tree % width] += value[node]


def _add(model: BoostedTrees, z: NDArray[Any], trees: slice, scores: Floats) -> None:
    rows = np.ascontiguousarray(z, dtype=np.float64)
    add_trees(
        rows,
        model.roots[trees],
        model.feature,
        model.threshold,
        model.left,
        model.right,
        model.value,
        scores,
    )


def boosted_logits(model: BoostedTrees, z: NDArray[Any]) -> Floats:
    """Logits of rows, shape (n, C); with two classes the first is 0."""
    scores = np.tile(model.baseline, (len(z), 1))
    _add(model, z, slice(None), scores)
    if scores.shape[1] > 1:
        return scores
    return np.concatenate([np.zeros_like(scores), scores], axis=1)


def staged(model: BoostedTrees, z: NDArray[Any], labels: Ints32) -> Floats:
    """Summed log-loss of rows after each round, the baseline first, shape (T + 1,)."""
    scores = np.tile(model.baseline, (len(z), 1))
    width = scores.shape[1]
    losses = [_loss(scores, labels)]
    for turn in range(model.turns):
        _add(model, z, slice(turn * width, (turn + 1) * width), scores)
        losses.append(_loss(scores, labels))
    return np.array(losses)


def _loss(scores: Floats, labels: Ints32) -> float:
    if scores.shape[1] == 1:
        signs = np.where(labels == 1, 1.0, -1.0)
        return float(np.logaddexp(0.0, -signs * scores[:, 0]).sum())
    top = np.logaddexp.reduce(scores, axis=1)
    return float((top - scores[np.arange(len(labels)), labels]).sum())
