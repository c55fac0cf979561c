"""Gradient-boosted trees: fitted by scikit-learn, kept and evaluated as plain arrays.

Files are data: an estimator object would have to be pickled. Its trees are taken out
as arrays instead, from the node tables that scikit-learn keeps (`_predictors`; tested
with 1.7 to 1.9), and evaluated by a kernel of our own.
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
    "staged",
]

ROUNDS, ROUNDS_OF_MANY = 250, 100
"""Most boosting rounds, and from `MANY` classes on."""
MANY = 5
STEP = 50
"""Rounds between two checks on held-out rows; a fit ends after as many in vain."""


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """An additive model of trees, one score a class (two classes: one in all).

    Node i of the table has the children `left` and `right` (absolute places); a leaf
    has itself as both.
    """

    baseline: Floats
    """Scores before the first tree, shape (S,); S = 1 for two classes, else C."""
    roots: Ints
    """First node of each tree, shape (T,); tree t adds to score t modulo S."""
    feature: Ints32
    """Feature that a node asks for, shape (nodes,)."""
    threshold: Floats
    """A row goes left when its feature is at most this."""
    left: Ints32
    right: Ints32
    value: Floats
    """What a leaf adds, learning rate included."""

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Arrays for an npz file, their names begin with the prefix."""
        return {f"{prefix}{name}": getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], prefix: str) -> BoostedTrees:
        """The trees whose `to_arrays` these are."""
        return cls(**{name: arrays[f"{prefix}{name}"] for name in _FIELDS})

    @property
    def turns(self) -> int:
        """Boosting rounds."""
        return len(self.roots) // len(self.baseline)

    def cut(self, turns: int) -> BoostedTrees:
        """The model after its first rounds."""
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
    """How trees grow."""

    leaves: int
    share: float
    """Of the features, drawn anew at each split."""


def fit_trees(
    z: Floats,
    labels: Ints32,
    n_classes: int,
    shape: Shape,
    held: tuple[Floats, Ints32] | None = None,
    weights: Floats | None = None,
) -> BoostedTrees:
    """Boosted trees by scikit-learn's histogram method; its own seed, one thread.

    With held-out features and labels boosting ends once their loss has not fallen for
    `STEP` rounds.


    References
    ----------
    Ke et al., "LightGBM: a highly efficient gradient boosting decision tree", 2017.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    most = ROUNDS if n_classes < MANY else ROUNDS_OF_MANY
    estimator = HistGradientBoostingClassifier(
        learning_rate=0.05,
        max_iter=most,
        max_leaf_nodes=shape.leaves,
        max_features=shape.share,
        min_samples_leaf=40,
        l2_regularization=1.0,
        early_stopping=False,
        warm_start=held is not None,
        random_state=0,
    )
    rows, own = z, labels
    absent = np.setdiff1d(np.arange(n_classes, dtype=labels.dtype), labels)
    if len(absent):
        # One typical row of each: no class is impossible.
        middle = np.median(z, axis=0) if len(z) else np.zeros(z.shape[1])
        rows = np.concatenate([z, np.tile(middle, (len(absent), 1))])
        own = np.concatenate([labels, absent])
        if weights is not None:
            weights = np.concatenate([weights, np.ones(len(absent))])
    # The limit is the calling thread's own: other tasks of the process keep theirs.
    with threadpool_limits(limits=1, user_api="openmp"):
        for turns in range(STEP, most + 1, STEP) if held is not None else (most,):
            estimator.set_params(max_iter=turns)
            estimator.fit(rows, own, weights)
            made = _exported(estimator)
            if held is not None and np.argmin(staged(made, *held)) <= turns - STEP:
                break
    return made


def _exported(estimator: Any) -> BoostedTrees:
    """The trees of a fitted scikit-learn estimator, iteration by iteration."""
    tables = [tree.nodes for turn in estimator._predictors for tree in turn]
    roots = np.cumsum([0, *(len(table) for table in tables)])[:-1]
    nodes = np.concatenate(tables)
    shift = np.repeat(roots, [len(table) for table in tables])
    own = np.arange(len(nodes))
    leaf = nodes["is_leaf"].astype(bool)
    return BoostedTrees(
        baseline=np.array(estimator._baseline_prediction, np.float64).ravel(),
        roots=roots.astype(np.int64),
        feature=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32),
        threshold=np.where(leaf, np.inf, nodes["num_threshold"]).astype(np.float64),
        left=np.where(leaf, own, nodes["left"] + shift).astype(np.int32),
        right=np.where(leaf, own, nodes["right"] + shift).astype(np.int32),
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
