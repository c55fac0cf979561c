"""The readout's objective over fixed blocks of rows, on a CPU or a GPU, by L-BFGS.

The same optimum as `logistic.fit`: C times the summed log-loss plus half the squared
weights, the intercept free. Gradients are sums over blocks of rows, added up in the
order of the blocks; on the device only one block is float64 at a time.

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
from xnq_dist.readout.logistic import SLACK, TOLERANCE, LinearModel

__all__ = ["Objective", "fit_blocks"]

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
        self._outputs = 1 if n_classes == 2 else n_classes
        self._rows = len(y)
        self._ridge = 1.0 / (C * len(y))
        self._x = backend.to_device(np.asarray(x, np.float32))
        self._y = backend.to_device(np.asarray(y, np.int64))
        # Centred features leave the optimum where it is, and take fewer steps.
        total = np.zeros(x.shape[1])
        for block, _ in self._blocks(None):
            total += backend.to_host(block.sum(axis=0))
        self.middle: NDArray[np.float64] = total / max(1, self._rows)
        self._middle = backend.to_device(self.middle)

    @property
    def parameters(self) -> int:
        """Weights and intercepts."""
        return int(self._outputs * (self._x.shape[1] + 1))

    def _blocks(self, middle: Any) -> Iterator[tuple[Any, Any]]:
        for first in range(0, self._rows, ROWS):
            block = self._x[first : first + ROWS].astype(np.float64)
            if middle is not None:
                block = block - middle
            yield block, self._y[first : first + ROWS]

    def __call__(
        self, parameters: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64]]:
        """Mean loss and gradient at weights and intercepts of centred features.

        Parameters
        ----------
        parameters
            Shape (outputs * (d' + 1),): the weights, then the intercepts.
        """
        xp, backend = self._backend.xp, self._backend
        width = self._x.shape[1]
        split = self._outputs * width
        weights = parameters[:split].reshape(self._outputs, width)
        there = backend.to_device(weights)
        intercept = backend.to_device(parameters[split:])
        loss = 0.0
        slopes = np.zeros((self._outputs, width))
        pushes = np.zeros(self._outputs)
        for block, labels in self._blocks(self._middle):
            logits = block @ there.T + intercept
            if self._outputs == 1:
                # log(1 + exp(-z)) of the margin z, without overflow.
                signs = 2.0 * labels[:, None] - 1.0
                margin = signs * logits
                losses = xp.maximum(-margin, 0.0) + xp.log1p(xp.exp(-xp.abs(margin)))
                half = xp.exp(-xp.abs(margin))
                wrong = xp.where(margin > 0, half, 1.0) / (1.0 + half)
                excess = -signs * wrong
            else:
                logits = logits - logits.max(axis=1, keepdims=True)
                shares = xp.exp(logits)
                mass = shares.sum(axis=1, keepdims=True)
                hot = labels[:, None] == xp.arange(self._outputs)[None, :]
                losses = xp.log(mass)[:, 0] - (logits * hot).sum(axis=1)
                excess = shares / mass - hot
            loss += float(backend.to_host(losses.sum()))
            slopes += backend.to_host(excess.T @ block)
            pushes += backend.to_host(excess.sum(axis=0))
        loss = loss / self._rows + 0.5 * self._ridge * float((weights**2).sum())
        gradient = slopes / self._rows + self._ridge * weights
        return loss, np.concatenate([gradient.ravel(), pushes / self._rows])


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
    from scipy.optimize import minimize

    objective = Objective(backend, x, y, n_classes, C)
    outputs, width = (1 if n_classes == 2 else n_classes), x.shape[1]
    begin = np.zeros(objective.parameters)
    if start is not None:
        coef, intercept = start.coef, start.intercept + start.coef @ objective.middle
        if n_classes == 2:
            coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        begin = np.concatenate([coef.ravel(), intercept])
    # Its other rule, on the fall of the loss, would stop long before the gradient's.
    options: Any = {"gtol": tolerance, "ftol": 0.0, "maxiter": STEPS, "maxfun": STEPS}
    found: Any = minimize(
        objective, begin, jac=True, method="L-BFGS-B", options=options
    )
    coef = found.x[: outputs * width].reshape(outputs, width)
    intercept = found.x[outputs * width :]
    if n_classes == 2:
        coef = np.concatenate([np.zeros_like(coef), coef])
        intercept = np.concatenate([np.zeros(1), intercept])
    slope = float(np.abs(found.jac).max())
    intercept = intercept - coef @ objective.middle
    return LinearModel(coef, intercept, C, slope <= SLACK * tolerance)
