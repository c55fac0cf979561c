"""The objective of logistic regressions, as sums over blocks of rows.

Rows are in groups of `GROUP_ROWS` in canonical order, and a group is processed in
blocks whose size depends only on the number of columns. Sums are added in the order of
the rows, and those of one problem do not depend on the other problems of the pass. So
results have the same bits for any number of workers and threads, and for rows in memory
and in files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints32
from xnq_dist.core.backend import Backend, cpu
from xnq_dist.core.blocks import one_blas_thread
from xnq_dist.readout.lbfgs import TOLERANCE
from xnq_dist.readout.row_sums import row_sums

__all__ = [
    "BLOCK_VALUES",
    "DEVICE_VALUES",
    "GROUP_ROWS",
    "WIDEST",
    "Group",
    "MemoryRows",
    "Moments",
    "Problem",
    "Rows",
    "add_moments",
    "group_moments",
    "group_sums",
]

GROUP_ROWS = 1 << 13
"""Rows of a group; a task holds one group of rows in files at a time."""
BLOCK_VALUES = 1 << 17
"""Float64 values of a block: as many as the level-2 cache of a core holds."""
DEVICE_VALUES = 1 << 23
"""Values of a block on a GPU, which is efficient only with large blocks."""
ROUNDING = 1e-13
"""Rounding error of a variance, relative to the column's mean square."""
WIDEST = 2048
"""Maximum number of columns for a covariance; with more, variances are used."""

CPU = cpu()
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Group:
    """Rows that are processed together, on the host or on a device."""

    x: Any
    """Embeddings, any float type, shape (m, d)."""
    labels: Any
    """Class codes, int32, shape (m,)."""
    folds: Any
    """Folds, int32, shape (m,); rows of a negative fold are in no fit."""
    weights: Any = None
    """Weights of the rows' log-losses, float64, shape (m,); None: 1 each."""
    backend: Backend = CPU
    """Computes the sums; its arrays hold the rows."""

    def blocks(self) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Yield rows in float64, labels, folds and weights of each block."""
        on_device = self.backend.on_device
        values = DEVICE_VALUES if on_device else BLOCK_VALUES
        size = 1 << max(0, (values // max(1, self.x.shape[1])).bit_length() - 1)
        weights = self.used()
        for first in range(0, len(self.labels), size):
            part = slice(first, first + size)
            rows = self.x[part].astype(np.float64)
            yield rows, self.labels[part], self.folds[part], weights[part]

    def used(self) -> Any:
        """Weights of the rows, 0 without a fold, float64, shape (m,)."""
        weights = (self.folds >= 0).astype(np.float64)
        return weights if self.weights is None else weights * self.weights


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted moments of the rows with a fold."""

    counts: Floats
    """Summed weights of each fold, shape (K,)."""
    totals: Floats
    """Sum of the rows of each fold, shape (K, d)."""
    products: Floats
    """Sum of their outer products, shape (d, d); of squares, (d,), if wide."""

    def without(self, hidden: Sequence[int]) -> tuple[float, Floats]:
        """Summed weights and mean of the rows outside the folds `hidden`."""
        used = ~np.isin(np.arange(len(self.counts)), hidden)
        count = float(self.counts[used].sum())
        return count, self.totals[used].sum(axis=0) / max(count, 1e-300)

    def covariance(self) -> Floats:
        """Covariance of all rows, shape (d, d); variances, (d,), if wide.

        A bound of the rounding error is added, so that variances are not negative.
        """
        count, mean = self.without(())
        values = self.products / max(count, 1e-300)
        if values.ndim == 1:
            return np.asarray(np.maximum(values - mean**2, ROUNDING * values))
        rounded = ROUNDING * values.diagonal()
        values -= np.outer(mean, mean)
        values[np.diag_indices(len(values))] += rounded
        return values


@dataclass(frozen=True, eq=False)
class Problem:
    """One regression at one point."""

    hidden: tuple[int, ...]
    """Folds whose rows are left out."""
    coef: Floats
    """Shape (k, d): k = 1 for two classes, C for more."""
    intercept: Floats
    """Shape (k,)."""


class Rows(Protocol):
    """Labelled rows, in memory or in files, and options of their fits."""

    @property
    def n_classes(self) -> int:
        """Number of classes."""

    @property
    def moments(self) -> Moments:
        """Moments of all rows with a fold."""

    @property
    def penalty(self) -> Floats | float:
        """Factor of each column's penalty: 1, or its variance for scaled columns."""

    @property
    def smooth(self) -> bool:
        """Whether half a label of each class is added at the mean of the rows."""

    @property
    def tolerance(self) -> float:
        """Expected relative decrease of the objective at which a fit stops."""

    def placed(self) -> Rows:
        """Return the rows in the place where sums are computed."""

    def over(self, work: Callable[..., Result], *arguments: Any) -> Iterable[Result]:
        """Results of ``work(group, *arguments)`` in the order of the groups."""

    def moments_at(self, problem: Problem) -> Moments:
        """Moments of rows weighted by the curvature of their losses."""


@dataclass(frozen=True, eq=False)
class MemoryRows:
    """Labelled rows in memory."""

    x: Any
    """Embeddings, any float type, shape (n, d)."""
    labels: Any
    """Class codes, int32, shape (n,)."""
    folds: Any
    """Folds from 0 on, int32, shape (n,); rows of a negative fold are in no fit."""
    n_classes: int
    moments: Moments
    weights: Any = None
    penalty: Floats | float = 1.0
    smooth: bool = False
    tolerance: float = TOLERANCE
    backend: Backend = CPU
    threads: int = 1
    """Number of groups processed at a time."""

    @classmethod
    def of(
        cls,
        x: NDArray[Any],
        labels: Ints32,
        folds: Ints32,
        n_classes: int,
        weights: Floats | None = None,
        smooth: bool = False,
        backend: Backend | None = None,
        threads: int = 1,
    ) -> MemoryRows:
        """Construct the rows with their moments, which all fits share."""
        count = int(folds.max(initial=0)) + 1
        none = Moments(np.zeros(0), np.zeros((0, 0)), np.zeros(0))
        rows = cls(x, labels, folds, n_classes, none, weights, 1.0, smooth)
        rows = replace(rows, backend=backend or CPU, threads=threads)
        moments = rows.placed().over(group_moments, count)
        return replace(rows, moments=add_moments(None, moments))

    def moments_at(self, problem: Problem) -> Moments:
        """Moments of rows weighted by the curvature of their losses."""
        return add_moments(None, self.over(group_moments, 1, problem))

    def placed(self) -> MemoryRows:
        """Return the rows on the device, if there is one, with float32 embeddings."""
        if not self.backend.on_device:
            return self
        place, weights = self.backend.to_device, self.weights
        return replace(
            self,
            x=place(np.asarray(self.x, np.float32)),
            labels=place(self.labels),
            folds=place(self.folds),
            weights=None if weights is None else place(weights),
        )

    def over(self, work: Callable[..., Result], *arguments: Any) -> Iterable[Result]:
        """Results of ``work(group, *arguments)`` in the order of the groups."""
        # One group on a device, because each result's copy to the host waits for it.
        size = max(1, len(self.labels)) if self.backend.on_device else GROUP_ROWS

        def each(first: int) -> Result:
            part = slice(first, first + size)
            weights = None if self.weights is None else self.weights[part]
            fields = self.x[part], self.labels[part], self.folds[part], weights
            return work(Group(*fields, self.backend), *arguments)

        starts = range(0, max(1, len(self.labels)), size)
        if self.threads == 1 or len(starts) == 1:
            return map(each, starts)
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(each, starts))


def group_moments(group: Group, folds: int, problem: Problem | None = None) -> Moments:
    """Moments of a group's rows with a fold.

    With a problem, all rows count as one fold and are weighted by the curvature of
    their losses (for more than two classes, its mean), else by their weights.
    """
    xp, width = group.backend.xp, group.x.shape[1]
    wide = width > WIDEST
    counts, totals = xp.zeros(folds), xp.zeros((folds, width))
    products = xp.zeros(width if wide else (width, width))
    with one_blas_thread():
        for rows, labels, fold, weights in group.blocks():
            if problem is not None:
                place = group.backend.to_device
                logits = rows @ place(problem.coef.T) + place(problem.intercept)
                weights = _used(problem, fold, weights) * _curvature(xp, logits)
                fold = xp.zeros_like(labels)
            for number in range(folds):
                of_fold = weights * (fold == number)
                counts[number] += of_fold.sum()
                totals[number] += of_fold @ rows
            # A matrix times its own transpose takes a BLAS half the work.
            rows *= xp.sqrt(weights)[:, None]
            products += (rows * rows).sum(axis=0) if wide else rows.T @ rows
    return Moments(*map(group.backend.to_host, (counts, totals, products)))


def _used(problem: Problem, folds: Any, weights: Any) -> Any:
    """Weights of rows, 0 in the folds that the problem leaves out."""
    for fold in problem.hidden:
        weights = weights * (folds != fold)
    return weights


def _curvature(xp: Any, logits: Any) -> Any:
    """Second derivative of losses by a logit, mean over the classes, shape (m,)."""
    if logits.shape[1] == 1:
        half = xp.exp(-xp.abs(logits[:, 0]))
        return half / (1.0 + half) ** 2
    shares = xp.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return (shares * (1.0 - shares)).mean(axis=1)


def add_moments(before: Moments | None, moments: Iterable[Moments]) -> Moments:
    """Add moments in order; an empty sum is a `ValueError`."""
    for more in moments:
        before = (
            more
            if before is None
            else Moments(
                before.counts + more.counts,
                before.totals + more.totals,
                before.products + more.products,
            )
        )
    if before is None:
        raise ValueError("there are no moments to add")
    return before


def group_sums(group: Group, problems: Sequence[Problem]) -> Floats:
    """A group's contribution to every problem's log-loss and gradient.

    Each row is for one problem: the loss, its derivatives by the coefficients and by
    the intercepts, shape (p, 1 + k d + k). All problems have the same shape.
    """
    xp, place = group.backend.xp, group.backend.to_device
    outputs, width = problems[0].coef.shape
    if not group.backend.on_device:
        known = group.used()
        weights = [_used(each, group.folds, known) for each in problems]
        coef = np.stack([each.coef for each in problems])
        intercept = np.stack([each.intercept for each in problems])
        return row_sums(group.x, group.labels, np.stack(weights), coef, intercept)
    points = [(place(each.coef), place(each.intercept)[:, None]) for each in problems]
    totals = xp.zeros((len(problems), 1 + outputs * (width + 1)))
    with one_blas_thread():
        for rows, labels, folds, weights in group.blocks():
            for sums, problem, (coef, intercept) in zip(
                totals, problems, points, strict=True
            ):
                used = _used(problem, folds, weights)
                losses, excess = _excess(xp, coef @ rows.T + intercept, labels)
                excess *= used
                sums[0] += losses @ used
                sums[1:-outputs] += (excess @ rows).ravel()
                sums[-outputs:] += excess.sum(axis=1)
    return group.backend.to_host(totals)


def _excess(xp: Any, logits: Any, labels: Any) -> tuple[Any, Any]:
    """Log-losses, shape (m,), and P(class) minus the label, shape (k, m).

    Logits have the shape (k, m), in which sums over few classes are fast.
    """
    if len(logits) == 1:
        signs = 2.0 * labels - 1.0
        margin = signs * logits[0]
        # log(1 + exp(-margin)) without overflow.
        half = xp.exp(-xp.abs(margin))
        losses = xp.maximum(-margin, 0.0) + xp.log1p(half)
        wrong = xp.where(margin > 0, half, 1.0) / (1.0 + half)
        return losses, (-signs * wrong)[None]
    logits = logits - logits.max(axis=0)
    own = labels, xp.arange(len(labels))
    shares = xp.exp(logits)
    mass = shares.sum(axis=0)
    shares /= mass
    shares[own] -= 1.0
    return xp.log(mass) - logits[own], shares
