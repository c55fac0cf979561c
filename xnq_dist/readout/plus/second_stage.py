"""The second stage of xnq+: models of first-stage scores and label features, pooled.

Fold k's models are fitted to the labelled rows of the other folds, with inputs from
which the row's own fold and fold k are hidden. They score every row of fold k with fold
k hidden. Trees use columns of the embedding, too. Boosting rounds and the weights of
the pool are chosen by the log-loss of these scores.

The pool is a convex combination of log-probabilities. The constant prior is one of its
models, so estimates of poor models shrink to it. Where there are scores of another
model (`columns.scores`), a logistic regression of these alone is one, too.

References
----------
C. Genest, J. V. Zidek, "Combining probability distributions", Statistical Science 1,
1986 (logarithmic pools).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32
from xnq_dist.core.threads import one_blas_thread
from xnq_dist.readout.calibration import skill
from xnq_dist.readout.logistic import (
    LinearModel,
    decision,
    log_shares,
    row_losses,
    stacked,
)
from xnq_dist.readout.objective import STACKED, Rows
from xnq_dist.readout.plus.first_stage import columns_of
from xnq_dist.readout.plus.trees import (
    Bins,
    BoostedTrees,
    Shape,
    binned,
    boosted_logits,
    fit_trees,
)
from xnq_dist.readout.regularisation import cross_fit, search_from_middle
from xnq_dist.reservoir.descriptors import HOPS, RAW

__all__ = [
    "KINDS",
    "SecondRows",
    "SecondStage",
    "conclude",
    "fit_kind",
    "pool_weights",
    "pooled",
    "second_rows",
    "used_by_trees",
]


GRID = tuple(10.0**step for step in range(-3, 2))
"""Values of C of the logistic regression, on standardised columns."""
LEADING = 32
"""Leading columns of the spectrum and of components of features that trees use."""
KINDS = {
    "trees": Shape(leaves=8, share=0.25),
    "trees with spectrum": Shape(leaves=16, share=0.1),
}
"""Kinds of boosted trees."""
FEW = 500
"""Labelled rows below which the first stage's blocks are added to the pool."""
PULL = 10.0
"""Strength of the penalty on unequal weights of the pool, in rows."""


@dataclass(frozen=True, eq=False)
class SecondRows:
    """Labelled rows as inputs of the second stage."""

    labels: Ints32
    """Class codes, shape (n,)."""
    folds: Ints32
    """Shape (n,)."""
    z: Floats32
    """`second_rows` with each fold and the row's own hidden, shape (n, K, D)."""
    x: NDArray[Any]
    """The columns `used_by_trees` of the embedding, shape (n, columns)."""
    blocks: Sequence[int]
    """Columns of each block."""
    scores: Floats
    """Log-probabilities by the blocks of the first stage, the row's own fold hidden,
    shape (n, B, C)."""
    weights: Floats
    """Weights of the labels, shape (n,)."""
    provided: int = 0
    """Number of the last columns of `z` that are scores of another model."""

    @cached_property
    def bins(self) -> Bins:
        """Bins of `x`, the same for all folds and kinds of trees."""
        return binned(self.x)

    @cached_property
    def own(self) -> dict[int, Bins]:
        """Bins of `z` with a fold hidden, once they are made: all kinds use them."""
        return {}

    @property
    def count(self) -> int:
        """Number of folds that models are fitted without."""
        return int(self.z.shape[1])

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.scores.shape[2])


def used_by_trees(blocks: Sequence[int], kind: str = "trees with spectrum") -> Ints:
    """Columns of the embedding that trees of a kind use, the spectrum's last.

    By default those of all kinds.
    """
    columns = columns_of(blocks)
    width = blocks[1] // (HOPS + 1)
    # The last column of each hop is the log degree.
    leading = [*range(width - 1 if width - 1 <= RAW else LEADING), width - 1]
    used = [
        columns[1].start + hop * width + at for hop in range(HOPS + 1) for at in leading
    ]
    if kind == "trees with spectrum" and len(blocks) > 2:
        first = columns[2].start
        used += range(first, first + min(LEADING, blocks[2]))
    return np.array(used, np.int64)


def second_rows(scores: Floats, features: Floats32) -> Floats32:
    """Inputs of the second stage: log-odds to the first class, and label features.

    `scores` are log-probabilities by the blocks of the first stage, (..., B, C),
    `features` (..., F); the result has the shape (..., B (C - 1) + F).
    """
    odds = scores[..., 1:] - scores[..., :1]
    # -1 instead of the product fails without rows.
    odds = odds.reshape(*features.shape[:-1], math.prod(odds.shape[-2:]))
    return np.concatenate([odds, features], axis=-1, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class SecondStage:
    """The models of every fold, and the weights of their pool."""

    coef: Floats
    """Coefficients of the logistic regressions, shape (K, C, D)."""
    intercept: Floats
    """Shape (K, C)."""
    priors: Floats
    """Class shares of the labels without each fold, shape (K, C)."""
    blocks: Sequence[int]
    weights: Floats
    """Weights of prior, logistic, kinds of trees, scores of another model, blocks of
    the first stage."""
    scores_coef: Floats
    """Coefficients of regressions of another model's scores, shape (K, C, S)."""
    scores_intercept: Floats
    """Shape (K, C)."""
    trees: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    """Fields of `BoostedTrees` by kind, with a first axis for the folds."""

    def components(
        self, scores: Floats, z: Floats32, x: NDArray[Any], fold: int
    ) -> list[Floats]:
        """Return log-probabilities of one fold's rows by each model.

        The pool has all of them, or those without the first stage's blocks.

        `scores` are by the blocks of the first stage with the fold hidden, (n, B, C);
        `z` is `second_rows` of these, and `x` the rows' columns `used_by_trees`.
        """
        linear = LinearModel(self.coef[fold], self.intercept[fold])
        logs = [
            np.tile(np.log(self.priors[fold]), (len(z), 1)),
            log_shares(decision(linear, z)),
        ]
        # A kind uses the first of these columns.
        inputs = np.concatenate([z, x], axis=1, dtype=np.float32)
        for trees in self.trees.values():
            of_fold = BoostedTrees(**{name: each[fold] for name, each in trees.items()})
            logs.append(log_shares(boosted_logits(of_fold, inputs)))
        if provided := self.scores_coef.shape[2]:
            alone = LinearModel(self.scores_coef[fold], self.scores_intercept[fold])
            columns = np.ascontiguousarray(z[:, -provided:])
            logs.append(log_shares(decision(alone, columns)))
        return [*logs, *np.moveaxis(scores, 1, 0)]

    def scores(self, scores: Floats, z: Floats32, x: NDArray[Any], fold: int) -> Floats:
        """Return log-probabilities of the pool; parameters are as for `components`."""
        logs = self.components(scores, z, x, fold)
        return pooled(logs[: len(self.weights)], self.weights)


def fit_kind(rows: SecondRows, kind: str, fold: int) -> tuple[BoostedTrees, Floats]:
    """Fit trees of one kind to the rows of the other folds; run as one task."""
    if fold not in rows.own:
        rows.own[fold] = binned(rows.z[:, fold])
    used = len(used_by_trees(rows.blocks, kind))
    pairs: Any = zip(rows.own[fold], rows.bins, strict=True)
    bins = Bins(*(np.concatenate([one, more[:used]]) for one, more in pairs))
    known = rows.labels, rows.weights, rows.classes
    return fit_trees(bins, *known, KINDS[kind], rows.folds == fold)


def fit_linear(
    rows: SecondRows,
    threads: int = 1,
    columns: slice = slice(None),
    grid: Sequence[float] = GRID,
) -> tuple[Sequence[LinearModel], Floats]:
    """Choose C, and fit logistic regressions of columns of `z` without each fold.

    Columns are penalised by their variances. Returns the regressions, and logits of
    the rows by the one without their fold.
    """
    ready = []
    for fold in range(rows.count):
        z, used = rows.z[:, fold, columns], rows.folds != fold
        spread = np.ones(z.shape[1])
        if used.any():
            spread = z[used].std(axis=0, dtype=np.float64)
        spread[spread < 1e-9] = 1.0  # constant columns
        fields = z, rows.labels, rows.folds, rows.classes, rows.weights
        penalised = Rows(*fields, smooth=True, penalty=spread**2, tolerance=STACKED)
        ready.append(penalised)
    return cross_fit(ready, grid, search_from_middle, threads)


def fit_regressions(
    rows: SecondRows, priors: Floats, threads: int
) -> tuple[SecondStage, dict[str, float] | None]:
    """Fit a second stage without trees, and without weights of its pool.

    Also returns what another model's scores gain, None without them.
    """
    linear, logits = fit_linear(rows, threads)
    alone, gain = (np.zeros((*priors.shape, 0)), np.zeros(priors.shape)), None
    if rows.provided:
        provided, others = slice(-rows.provided, None), slice(-rows.provided)
        alone = stacked(fit_linear(rows, threads, provided, [1.0])[0])
        _, without = fit_linear(rows, threads, others, [linear[0].strength])
        each = rows.weights / rows.weights.mean()
        losses = (row_losses(some, rows.labels) * each for some in (logits, without))
        gain = skill(*losses)
    known = *stacked(linear), priors, rows.blocks, np.zeros(0)
    return SecondStage(*known, *alone), gain


def pool_names(rows: SecondRows, stage: SecondStage) -> list[str]:
    """Names of the models of the pool, in the order of `SecondStage.components`."""
    names = ["prior", "logistic", *stage.trees]
    if rows.provided:
        names.append("scores")
    if len(rows.labels) < FEW:
        names += [f"block {at}" for at in range(len(rows.blocks))]
    return names


def conclude(
    rows: SecondRows,
    priors: Floats,
    fits: Mapping[str, Sequence[tuple[BoostedTrees, Floats]]],
    threads: int,
) -> tuple[SecondStage, Floats, dict[str, Any]]:
    """Fit regressions, choose boosting rounds and the weights of the pool's models.

    `priors` are the class shares without each fold, shape (K, C); `fits` are by kind,
    one for each fold. Returns the second stage, held-out log-probabilities of the rows,
    and facts.
    """
    stage, gain = fit_regressions(rows, priors, threads)
    stage = replace(
        stage, trees={kind: _truncated(each) for kind, each in fits.items()}
    )
    parts = held_out_parts(rows, stage)
    weights = pool_weights(parts, rows.labels, rows.weights)
    names = pool_names(rows, stage)
    facts: dict[str, Any] = {
        "pool": dict(zip(names, weights.tolist(), strict=True)),
        "second_stage_log_losses": {
            name: float(row_losses(part, rows.labels).mean())
            for name, part in zip(names, parts, strict=True)
        },
    }
    if gain:
        facts["scores"] = {"gain": gain}
    return replace(stage, weights=weights), pooled(parts, weights), facts


def held_out_parts(rows: SecondRows, stage: SecondStage) -> Floats:
    """Log-probabilities of rows by each model without their fold, shape (M, n, C)."""
    count = len(pool_names(rows, stage))
    parts = np.empty((count, len(rows.labels), rows.classes))
    for fold in range(rows.count):
        held = np.flatnonzero(rows.folds == fold)
        of_fold = rows.scores[held], rows.z[held, fold], rows.x[held]
        parts[:, held] = stage.components(*of_fold, fold)[:count]
    return parts


def _truncated(
    folds: Sequence[tuple[BoostedTrees, Floats]],
) -> dict[str, NDArray[Any]]:
    """Trees of every fold, with the rounds of the lowest loss of all held rows."""
    common = min(len(losses) for _, losses in folds)
    total = np.sum([losses[:common] for _, losses in folds], axis=0)
    turns = int(np.argmin(total[1:])) + 1
    each = [model.truncated(turns) for model, _ in folds]
    return BoostedTrees(*map(np.stack, zip(*each, strict=True)))._asdict()


def pooled(scores: Iterable[Floats], weights: Floats) -> Floats:
    """Return log-probabilities of the pool, shape (n, C)."""
    total: Any = 0.0
    for weight, values in zip(weights.tolist(), scores, strict=True):
        total = total + weight * values
    return log_shares(total)


def pool_weights(logs: Floats, labels: Ints32, each: Floats) -> Floats:
    """Find the weights with the lowest log-loss on held-out rows, shape (M,).

    `each` are the weights of the rows.
    `logs` are log-probabilities by each model, shape (M, n, C).
    """
    count, rows = len(logs), len(labels)
    taken = logs[:, np.arange(rows), labels]
    reached = (taken * each).sum(axis=1)

    def objective(point: Floats) -> tuple[float, Floats]:
        weights = softmax(point)
        total = np.tensordot(weights, logs, axes=1)
        top = np.logaddexp.reduce(total, axis=1)
        shares = np.exp(total - top[:, None])
        loss = (each * (top - weights @ taken)).sum()
        slope = np.einsum("nc,mnc->m", shares * each[:, None], logs) - reached
        # Penalty: Kullback-Leibler divergence of equal weights from these.
        loss -= PULL * np.log(weights).mean()
        slope -= PULL / (count * weights)
        return loss / rows, weights * (slope - weights @ slope) / rows

    with one_blas_thread():
        solution = minimize(objective, np.zeros(count), jac=True, method="L-BFGS-B")
    return softmax(solution.x)
