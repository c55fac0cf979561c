"""The second stage of xnq+: one model a fold of first-stage logits and label features.

Cross-fitted with the folds of the first stage. Fold k's model is fitted to the rows of
the other folds and scores rows as fold k's first-stage model and fold k's label
features see them; so a labelled row is scored without its own label, and an unlabelled
row, by the mean over all folds, from features made in just the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from xnq_dist.readout.fit import FoldPlan, climb, fit_fold
from xnq_dist.readout.logistic import GRID, LinearModel, decision, row_losses
from xnq_dist.readout.trees import BoostedTrees, boosted_logits, fit_trees

__all__ = ["SecondStage", "fit_second_stage", "second_stage_rows"]

Kind = Literal["logistic", "boosted", "mean", "boosted+features", "mean+features"]


@dataclass(frozen=True, eq=False)
class SecondStage:
    """Models of every fold, and what chose them."""

    kind: Kind
    """``mean``: of the log-probabilities of the other two; ``+features``: of trees
    that see node features, too."""
    linear: tuple[LinearModel, ...]
    """One a fold; empty when trees alone won."""
    trees: tuple[BoostedTrees, ...]
    """One a fold; empty when the logistic regression alone won."""
    out_of_fold: NDArray[np.float64]
    """Log-probabilities of the rows that it was fitted to, each by the model of its
    own fold, shape (n, C)."""
    losses: dict[str, float]
    """Mean out-of-fold log-loss of each kind tried."""
    C: float
    """Inverse L2 strength of the logistic regression."""

    @property
    def sees_features(self) -> bool:
        """Whether `scores` needs node features."""
        return self.kind.endswith("+features")

    def scores(
        self, z: NDArray[Any], fold: int, described: NDArray[Any] | None = None
    ) -> NDArray[np.float64]:
        """Log-probabilities of rows by one fold's models, shape (n, C).

        Parameters
        ----------
        z
            `second_stage_rows` as this fold sees them, shape (n, F).
        described
            Node features as in the fit, where `sees_features`.
        """
        found = []
        if self.linear:
            found.append(log_softmax(decision(self.linear[fold], z), axis=1))
        if self.trees:
            seen = z
            if self.sees_features:
                seen = np.concatenate([z, described], axis=1)
            found.append(log_softmax(boosted_logits(self.trees[fold], seen), axis=1))
        return np.asarray(sum(found) / len(found), np.float64)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays for an npz file; `from_arrays` reads them."""
        arrays: dict[str, NDArray[Any]] = {
            "second_kind": np.array(self.kind),
            "second_C": np.array(self.C),
            "second_out_of_fold": self.out_of_fold,
            "second_losses": np.array(list(self.losses.values())),
            "second_tried": np.array(list(self.losses)),
        }
        if self.linear:
            arrays["second_coef"] = np.stack([m.coef for m in self.linear])
            arrays["second_intercept"] = np.stack([m.intercept for m in self.linear])
            arrays["second_converged"] = np.array([m.converged for m in self.linear])
        for fold, trees in enumerate(self.trees):
            arrays |= trees.to_arrays(f"trees_{fold:03d}_")
        return arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> SecondStage:
        """The second stage whose `to_arrays` these are."""
        C = float(arrays["second_C"])
        linear: tuple[LinearModel, ...] = ()
        if "second_coef" in arrays:
            linear = tuple(
                LinearModel(coef, intercept, C, bool(converged))
                for coef, intercept, converged in zip(
                    arrays["second_coef"],
                    arrays["second_intercept"],
                    arrays["second_converged"],
                    strict=True,
                )
            )
        prefixes = sorted(
            name.removesuffix("roots") for name in arrays if name.endswith("_roots")
        )
        kind: Any = str(arrays["second_kind"])
        return cls(
            kind=kind,
            linear=linear,
            trees=tuple(BoostedTrees.from_arrays(arrays, p) for p in prefixes),
            out_of_fold=arrays["second_out_of_fold"],
            losses=dict(
                zip(
                    arrays["second_tried"].tolist(),
                    arrays["second_losses"].tolist(),
                    strict=True,
                )
            ),
            C=C,
        )


def second_stage_rows(
    logits: NDArray[np.float64], features: NDArray[Any]
) -> NDArray[np.float64]:
    """What the second stage sees of rows: log-odds to the first class, label features.

    Parameters
    ----------
    logits
        Of the first stage, shape (n, C).
    features
        Label features, shape (n, F).

    Returns
    -------
    NDArray
        float64, shape (n, C - 1 + F).
    """
    odds = logits[:, 1:] - logits[:, :1]
    return np.concatenate([odds, features.astype(np.float64)], axis=1)


def fit_second_stage(
    z: NDArray[np.float64],
    labels: NDArray[np.int32],
    folds: NDArray[np.int32],
    n_classes: int,
    boosting: bool,
    described: NDArray[Any] | None = None,
) -> SecondStage:
    """Fit every kind, cross-fitted, and keep the one of least out-of-fold log-loss.

    Of logistic regression and trees that held-out rows cannot tell apart, within one
    standard error of the difference, it is the mean of both: two models err less alike
    than one. Trees with node features compete in the same way; what comes of either
    is then compared by its loss alone.

    Parameters
    ----------
    z
        `second_stage_rows` of the labelled rows, each as its own fold sees it,
        shape (n, F).
    labels
        Class codes, shape (n,).
    folds
        Fold of each row, shape (n,).
    n_classes
        Number of classes.
    boosting
        Whether boosted trees, and the mean of both, compete.
    described
        Node features that trees may see as well, shape (n, D); None: none.
    """
    linear, C, logistic = _fit_linear(z, labels, folds, n_classes)
    found: dict[Kind, NDArray[np.float64]] = {"logistic": logistic}
    trees: dict[Kind, tuple[BoostedTrees, ...]] = {"logistic": ()}
    rounds: list[tuple[Kind, Kind, NDArray[Any]]] = []
    if boosting:
        rounds.append(("boosted", "mean", z))
        if described is not None:
            wide = np.concatenate([z, described], axis=1)
            rounds.append(("boosted+features", "mean+features", wide))
    for alone, both, seen in rounds:
        models, boosted = _fit_trees(seen, labels, folds, n_classes)
        trees |= {alone: models, both: models}
        found |= {alone: boosted, both: (logistic + boosted) / 2}
    by_row = {kind: row_losses(scores, labels) for kind, scores in found.items()}
    losses = {kind: float(rows.mean()) for kind, rows in by_row.items()}
    chosen: list[Kind] = [_choose(by_row, a, both) for a, both, _ in rounds]
    kind = min(chosen, key=losses.__getitem__) if chosen else "logistic"
    return SecondStage(
        kind=kind,
        linear=() if kind.startswith("boosted") else linear,
        trees=trees[kind],
        out_of_fold=found[kind],
        losses={str(name): loss for name, loss in losses.items()},
        C=C,
    )


def _choose(by_row: dict[Kind, NDArray[np.float64]], boosted: Kind, both: Kind) -> Kind:
    """Logistic regression, trees or the mean of both, which must be beaten."""
    kinds: tuple[Kind, ...] = ("logistic", boosted, both)
    best = min(kinds, key=lambda kind: float(by_row[kind].mean()))
    if best == both:
        return best
    excess = by_row[both] - by_row[best]
    error = excess.std(ddof=1) / np.sqrt(len(excess))
    return best if excess.mean() > error else both


def _fit_linear(
    z: NDArray[np.float64],
    labels: NDArray[np.int32],
    folds: NDArray[np.int32],
    n_classes: int,
) -> tuple[tuple[LinearModel, ...], float, NDArray[np.float64]]:
    """Logistic regressions on standardised features, put back on the raw ones."""
    middle, spread = z.mean(axis=0), z.std(axis=0)
    spread[spread < 1e-9] = 1.0  # a constant feature: nothing to scale
    standard = (z - middle) / spread
    plan = FoldPlan(folds, int(folds.max()) + 1, GRID)
    tried: list[list[Any]] = []

    def fit_all(C: float) -> list[float]:
        before = tried[-1] if tried else [None] * plan.count
        tried.append(
            [
                fit_fold(standard, labels, plan, n_classes, C, fold, before[fold])
                for fold in range(plan.count)
            ]
        )
        return [fold.loss for fold in tried[-1]]

    best, _ = climb(plan.grid, fit_all)
    scores = np.empty((len(labels), n_classes))
    for fold in tried[best]:
        scores[fold.held] = log_softmax(fold.logits, axis=1)
    models = []
    for fold in tried[best]:
        coef = fold.model.coef / spread
        intercept = fold.model.intercept - coef @ middle
        models.append(
            LinearModel(coef, intercept, fold.model.strength, fold.model.converged)
        )
    return tuple(models), plan.grid[best], scores


def _fit_trees(
    z: NDArray[np.float64],
    labels: NDArray[np.int32],
    folds: NDArray[np.int32],
    n_classes: int,
) -> tuple[tuple[BoostedTrees, ...], NDArray[np.float64]]:
    models = []
    scores = np.empty((len(labels), n_classes))
    for fold in range(int(folds.max()) + 1):
        own = folds == fold
        models.append(fit_trees(z[~own], labels[~own], n_classes))
        scores[own] = log_softmax(boosted_logits(models[fold], z[own]), axis=1)
    return tuple(models), scores
