"""The objective of logistic regressions, as sums over blocks of rows.

Rows come in groups of `GROUP_ROWS` in canonical order, and a group is worked on in
blocks whose size depends on the number of columns alone. Sums are added in the order of
the rows, and those of one problem do not depend on the others of the same pass. So bits
are the same for any number of workers and threads, and for rows in memory and in files.
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
"""Rows of a group: what a task holds of rows in files."""
BLOCK_VALUES = 1 << 17
"""Values of a block in float64: as many as the second cache of a core holds."""
DEVICE_VALUES = 1 << 23
"""The same on a GPU, which needs large blocks to be busy."""
ROUNDING = 1e-13
"""Share of a column's mean square that a variance may be off by."""
WIDEST = 2048
"""Maximum number of columns whose covariance is computed; beyond, variances are."""

CPU = cpu()
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Group:
    """Rows that are worked on together, on the host or on a device."""

    x: Any
    """Embeddings, any float type, shape (m, d)."""
    labels: Any
    """Class codes, int32, shape (m,)."""
    folds: Any
    """Folds, int32, shape (m,); rows of a negative fold are in no fit."""
    weights: Any = None
    """Of the rows' log-losses, float64, shape (m,); None: 1 each."""
    backend: Backend = CPU
    """What computes sums; its arrays hold the rows."""

    def blocks(self) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Rows in float64, labels, folds and weights of each block."""
        on_device = self.backend.on_device
        values = DEVICE_VALUES if on_device else BLOCK_VALUES
        size = 1 << max(0, (values // max(1, self.x.shape[1])).bit_length() - 1)
        for first in range(0, len(self.labels), size):
            part = slice(first, first + size)
            folds = self.folds[part]
            weights = (folds >= 0).astype(np.float64)
            if self.weights is not None:
                weights = weights * self.weights[part]
            yield self.x[part].astype(np.float64), self.labels[part], folds, weights


@dataclass(frozen=True, eq=False)
class Moments:
    """Of the rows that any problem uses, weighted."""

    counts: Floats
    """Summed weights of each fold, shape (K,)."""
    totals: Floats
    """Sum of the rows of each fold, shape (K, d)."""
    products: Floats
    """Sum of their outer products, shape (d, d); of squares, (d,), if wide."""

    def without(self, hidden: Sequence[int]) -> tuple[float, Floats]:
        """Summed weights and mean of the rows of the other folds."""
        seen = ~np.isin(np.arange(len(self.counts)), hidden)
        count = float(self.counts[seen].sum())
        return count, self.totals[seen].sum(axis=0) / max(count, 1e-300)

    def covariance(self) -> Floats:
        """Of all rows, shape (d, d); variances, (d,), if wide.

        Not below zero: what rounding may take from the squares is added.
        """
        count, mean = self.without(())
        found = self.products / max(count, 1e-300)
        if found.ndim == 1:
            return np.asarray(np.maximum(found - mean**2, ROUNDING * found))
        rounded = ROUNDING * found.diagonal()
        found -= np.outer(mean, mean)
        found[np.diag_indices(len(found))] += rounded
        return found


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
    """Labelled rows, in memory or in files, and how they are to be fitted."""

    @property
    def n_classes(self) -> int:
        """Number of classes."""

    @property
    def moments(self) -> Moments:
        """Of all rows in fits."""

    @property
    def penalty(self) -> Floats | float:
        """Factor of each column's penalty: 1, or its variance for scaled columns."""

    @property
    def smooth(self) -> bool:
        """Whether half a label of each class is added at the mean of the rows."""

    def placed(self) -> Rows:
        """The same rows where sums are computed."""

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
    backend: Backend = CPU
    threads: int = 1
    """Groups worked on at a time."""

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
        """Rows with their moments, which all fits share."""
        count = int(folds.max(initial=0)) + 1
        none = Moments(np.zeros(0), np.zeros((0, 0)), np.zeros(0))
        rows = cls(x, labels, folds, n_classes, none, weights, 1.0, smooth)
        rows = replace(rows, backend=backend or CPU, threads=threads)
        found = rows.placed().over(group_moments, count)
        return replace(rows, moments=add_moments(None, found))

    def moments_at(self, problem: Problem) -> Moments:
        """Moments of rows weighted by the curvature of their losses."""
        return add_moments(None, self.over(group_moments, 1, problem))

    def placed(self) -> MemoryRows:
        """The same rows on the device, embeddings in float32, if there is one."""
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
        # A copy to the host waits for the device: it has all rows in one group.
        size = max(1, len(self.labels)) if self.backend.on_device else GROUP_ROWS

        def each(first: int) -> Result:
            part = slice(first, first + size)
            weights = None if self.weights is None else self.weights[part]
            own = self.x[part], self.labels[part], self.folds[part], weights
            return work(Group(*own, self.backend), *arguments)

        starts = range(0, max(1, len(self.labels)), size)
        if self.threads == 1 or len(starts) == 1:
            return map(each, starts)
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(each, starts))


def group_moments(group: Group, folds: int, problem: Problem | None = None) -> Moments:
    """Moments of a group's rows in fits.

    With a problem, its rows are weighted by the curvature of their losses, in one fold;
    of more than two classes by its mean. Else by their own weights.
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
                weights = _seen(problem, fold, weights) * _curvature(xp, logits)
                fold = xp.zeros_like(labels)
            for number in range(folds):
                own = weights * (fold == number)
                counts[number] += own.sum()
                totals[number] += own @ rows
            weighted = rows * weights[:, None]
            products += (weighted * rows).sum(axis=0) if wide else weighted.T @ rows
    return Moments(*map(group.backend.to_host, (counts, totals, products)))


def _seen(problem: Problem, folds: Any, weights: Any) -> Any:
    """Weights of rows, 0 in the folds that the problem leaves out."""
    for fold in problem.hidden:
        weights = weights * (folds != fold)
    return weights


def _curvature(xp: Any, logits: Any) -> Any:
    """Second derivative of losses by a logit, mean of the classes, shape (m,)."""
    if logits.shape[1] == 1:
        half = xp.exp(-xp.abs(logits[:, 0]))
        return half / (1.0 + half) ** 2
    shares = xp.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return (shares * (1.0 - shares)).mean(axis=1)


def add_moments(before: Moments | None, found: Iterable[Moments]) -> Moments:
    """The sum, in order."""
    for more in found:
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
    """A group's part of every problem's log-loss and of its gradient.

    A row a problem: the loss, its derivatives by the coefficients, and those by the
    intercepts, shape (p, 1 + k d + k). All problems are of one shape.
    """
    xp, place = group.backend.xp, group.backend.to_device
    outputs, width = problems[0].coef.shape
    points = [(place(some.coef.T), place(some.intercept)) for some in problems]
    found = xp.zeros((len(problems), 1 + outputs * (width + 1)))
    with one_blas_thread():
        for rows, labels, folds, weights in group.blocks():
            for sums, problem, (coef, intercept) in zip(
                found, problems, points, strict=True
            ):
                seen = _seen(problem, folds, weights)
                losses, excess = _excess(xp, rows @ coef + intercept, labels)
                excess *= seen[:, None]
                sums[0] += losses @ seen
                sums[1:-outputs] += (excess.T @ rows).ravel()
                sums[-outputs:] += excess.sum(axis=0)
    return group.backend.to_host(found)


def _excess(xp: Any, logits: Any, labels: Any) -> tuple[Any, Any]:
    """Log-losses, shape (m,), and P(class) less the label, shape (m, k)."""
    if logits.shape[1] == 1:
        signs = 2.0 * labels - 1.0
        margin = signs * logits[:, 0]
        # log(1 + exp(-margin)) without overflow.
        half = xp.exp(-xp.abs(margin))
        losses = xp.maximum(-margin, 0.0) + xp.log1p(half)
        wrong = xp.where(margin > 0, half, 1.0) / (1.0 + half)
        return losses, (-signs * wrong)[:, None]
    logits = logits - logits.max(axis=1, keepdims=True)
    shares = xp.exp(logits)
    mass = shares.sum(axis=1, keepdims=True)
    hot = labels[:, None] == xp.arange(logits.shape[1])[None, :]
    losses = xp.log(mass)[:, 0] - (logits * hot).sum(axis=1)
    return losses, shares / mass - hot
