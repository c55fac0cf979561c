"""The readout's objective over fixed blocks of rows, on a CPU or a GPU, by L-BFGS.

The same optimum as `logistic.fit`: C times the summed log-loss plus half the squared
weights, the intercept free. Gradients are sums over blocks of rows, added up in the
order of the blocks; on the device only one block is float64 at a time. L-BFGS starts
from the rows' covariance, as in `row_blocks`: some twenty gradients do, not a thousand.

References
----------
D. C. Liu, J. Nocedal, "On the limited memory BFGS method for large scale optimization",
Mathematical Programming 45, 1989.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.backend import Backend
from xnq_dist.readout.lbfgs import minimise
from xnq_dist.readout.logistic import SLACK, TOLERANCE, LinearModel
from xnq_dist.readout.row_blocks import WIDEST, Moments, curvature

__all__ = ["ROWS", "Objective", "fit_blocks"]

ROWS = 16_384
"""Rows of a block."""
STEPS = 20_000
"""Most evaluations of the objective."""


class Objective:
    """Mean loss and its gradient, with rows where the backend works on them.

    Parameters
    ----------
    x
        Embeddings, shape (n, d'); copied to the device in float32.
    y
        Class codes, shape (n,).
    n_classes
        Number of classes; two: one weight vector, more: one a class.
    C
        Inverse L2 strength.
    """

    def __init__(
        self,
        backend: Backend,
        x: NDArray[Any],
        y: NDArray[np.int32],
        n_classes: int,
        C: float,
    ) -> None:
        self._backend = backend
        self.outputs = 1 if n_classes == 2 else n_classes
        self._rows = len(y)
        self.ridge = 1.0 / (C * len(y))
        self._x = backend.to_device(np.asarray(x, np.float32))
        self._y = backend.to_device(np.asarray(y, np.int64))
        self.moments = self._moments()
        # Centred features leave the optimum where it is, and take fewer steps.
        self.middle: NDArray[np.float64] = self.moments.total / max(1, self._rows)

    @property
    def parameters(self) -> int:
        """Weights and intercepts."""
        return int(self.outputs * (self._x.shape[1] + 1))

    def _blocks(self) -> Iterator[tuple[Any, Any]]:
        for first in range(0, self._rows, ROWS):
            block = self._x[first : first + ROWS].astype(np.float64)
            yield block, self._y[first : first + ROWS]

    def _moments(self) -> Moments:
        width = self._x.shape[1]
        wide = width > WIDEST
        xp, to_host = self._backend.xp, self._backend.to_host
        total = xp.zeros(width, np.float64)
        products = xp.zeros((width,) if wide else (width, width), np.float64)
        for block, _ in self._blocks():
            total += block.sum(axis=0)
            products += (block * block).sum(axis=0) if wide else block.T @ block
        return Moments(self._rows, to_host(total), to_host(products))

    def __call__(
        self, parameters: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64]]:
        """Mean loss and gradient at weights and intercepts of centred features.

        Parameters
        ----------
        parameters
            Shape (outputs * (d' + 1),): of each output the weights, then the intercept.
        """
        xp, backend = self._backend.xp, self._backend
        width, outputs = self._x.shape[1], self.outputs
        weights = parameters.reshape(outputs, width + 1)[:, :-1]
        shift = parameters.reshape(outputs, width + 1)[:, -1] - weights @ self.middle
        there, intercept = backend.to_device(weights.T), backend.to_device(shift)
        total: Any = None
        for block, labels in self._blocks():
            logits = block @ there + intercept
            if outputs == 1:
                # log(1 + exp(-z)) of the margin z, without overflow.
                signs = 2.0 * labels[:, None] - 1.0
                margin = signs * logits
                half = xp.exp(-xp.abs(margin))
                losses = xp.maximum(-margin, 0.0) + xp.log1p(half)
                wrong = xp.where(margin > 0, half, 1.0) / (1.0 + half)
                excess = -signs * wrong
            else:
                logits = logits - logits.max(axis=1, keepdims=True)
                shares = xp.exp(logits)
                mass = shares.sum(axis=1, keepdims=True)
                hot = labels[:, None] == xp.arange(outputs)[None, :]
                losses = xp.log(mass)[:, 0] - (logits * hot).sum(axis=1)
                excess = shares / mass - hot
            slopes = (excess.T @ block).ravel()
            sums = [slopes, excess.sum(axis=0), losses.sum().reshape(1)]
            # Added up there: every copy to the host waits for the device.
            part = xp.concatenate(sums)
            total = part if total is None else total + part
        found = backend.to_host(total)
        pushes, loss = found[-outputs - 1 : -1], float(found[-1]) / self._rows
        slopes = found[: -outputs - 1].reshape(outputs, width)
        slopes = slopes - pushes[:, None] * self.middle
        gradient = np.empty((outputs, width + 1))
        gradient[:, :-1] = slopes / self._rows + self.ridge * weights
        gradient[:, -1] = pushes / self._rows
        return loss + 0.5 * self.ridge * float((weights**2).sum()), gradient.ravel()


def fit_blocks(
    backend: Backend,
    x: NDArray[Any],
    y: NDArray[np.int32],
    n_classes: int,
    C: float,
    start: LinearModel | None = None,
    tolerance: float = TOLERANCE,
) -> LinearModel:
    """Minimise C * sum of log-losses + |coef|^2 / 2 over blocks of rows.

    Parameters
    ----------
    backend
        Where rows live.
    x, y, n_classes, C, start
        As for `logistic.fit`; each class has a row.
    tolerance
        Largest entry of the mean objective's gradient at which it stops.

    Returns
    -------
    LinearModel
        With `converged` False when L-BFGS stopped above ten times the tolerance.
    """
    objective = Objective(backend, x, y, n_classes, C)
    outputs, middle = objective.outputs, objective.middle
    begin = np.zeros((outputs, len(middle) + 1))
    if start is not None:
        coef, intercept = start.coef, start.intercept + start.coef @ middle
        if n_classes == 2:
            coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        begin[:, :-1], begin[:, -1] = coef, intercept
    scale = curvature(objective.moments, middle, outputs, objective.ridge)
    search = minimise(begin.ravel(), scale, tolerance, STEPS)
    point = next(search)
    while True:
        try:
            point = search.send(objective(point))
        except StopIteration as ended:
            found = ended.value
            break
    rows = found.point.reshape(outputs, -1)
    coef, intercept = rows[:, :-1].copy(), rows[:, -1]
    if n_classes == 2:
        coef = np.concatenate([np.zeros_like(coef), coef])
        intercept = np.concatenate([np.zeros(1), intercept])
    intercept = intercept - coef @ middle
    return LinearModel(coef, intercept, C, bool(found.slope <= SLACK * tolerance))
