"""Benchmark of the logistic readout on many rows, compared with scikit-learn's L-BFGS.

Both minimise the same objective, log-loss plus the L2 penalty of C = 1, on as many
threads. The peer stops at the first iteration whose loss is as low as ours: it has the
rows in float64, because its float32 fits end at a higher loss.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from xnq_dist.core.errors import StageError
from xnq_dist.core.limits import processors
from xnq_dist.evaluation.bench.harness import OURS, Bench
from xnq_dist.readout.logistic import (
    FitJob,
    LinearModel,
    decision,
    fit_jobs,
    row_losses,
)
from xnq_dist.readout.objective import GROUP_ROWS, MemoryRows

__all__ = ["readout"]

C = 1.0
CLASSES = 2
ROUNDING = 1e-12
"""Relative difference of losses that is attributed to rounding."""
MOST = 4096
"""Maximum number of the peer's iterations."""


def readout(bench: Bench) -> None:
    """Time and loss of fits to rows that resemble reservoir states."""
    rows, width = bench.choose((20_000, 64), (1_000_000, 256))
    case = f"{rows:,} rows x {width}, two classes, C = {C:g}"
    x, y = _states(rows, width)
    ours = _objective(_fit(x, y, processors()), x, y)
    wide = x.astype(np.float64)
    iterations = _iterations(wide, y, ours * (1 + ROUNDING))
    peer = _objective(_lbfgs(wide, y, iterations), x, y)
    name = "scikit-learn LogisticRegression, lbfgs"
    note = f"float64, {iterations} iterations"
    best = min(ours, peer)
    for what, value in ((OURS, ours), (name, peer)):
        bench.record(case, "relative excess of the loss", what, value / best - 1, "")
    for threads in sorted({1, processors()}):

        def fit_ours(threads: int = threads) -> None:
            _fit(x, y, threads)

        def fit_peer(threads: int = threads) -> None:
            with threadpool_limits(threads):
                _lbfgs(wide, y, iterations)

        of = f"{case}, {threads} threads"
        seconds = bench.time(of, OURS, fit_ours, warm=bench.size == "small")
        other = bench.time(of, name, fit_peer, warm=False, note=note)
        ratio = f"LogisticRegression's time over ours, same loss, {threads} threads"
        bench.ratio(ratio, other / seconds, "more")


def _iterations(x: NDArray[np.float64], y: NDArray[np.int32], loss: float) -> int:
    """Smallest number of the peer's iterations whose loss is at most `loss`.

    Raises
    ------
    StageError
        When it does not reach it.
    """
    few, many = 0, 8
    while _objective(_lbfgs(x, y, many), x, y) > loss:
        few, many = many, 2 * many
        if many > MOST:
            raise StageError(f"scikit-learn's loss stays above {loss} for {few} rounds")
    while many - few > 1:
        middle = (few + many) // 2
        if _objective(_lbfgs(x, y, middle), x, y) > loss:
            few = middle
        else:
            many = middle
    return many


def _states(rows: int, width: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Collinear tanh features that depend on the class, made block by block."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, rows).astype(np.int32)
    hidden = width // 3
    mix = 0.4 * rng.standard_normal((hidden, width)).astype(np.float32)
    x = np.empty((rows, width), np.float32)
    for first in range(0, rows, GROUP_ROWS):
        block = x[first : first + GROUP_ROWS]
        drawn = rng.standard_normal((len(block), hidden), dtype=np.float32)
        drawn[:, 0] += 1.2 * y[first : first + len(block)]
        noise = rng.standard_normal(block.shape, dtype=np.float32)
        np.tanh(drawn @ mix + 0.3 * noise + 0.3, out=block)
    return x, y


def _fit(x: NDArray[np.float32], y: NDArray[np.int32], threads: int) -> LinearModel:
    rows = MemoryRows.of(x, y, np.zeros(len(x), np.int32), CLASSES, threads=threads)
    return fit_jobs(rows, [FitJob((), C)])[0].model


def _lbfgs(x: NDArray[Any], y: NDArray[np.int32], iterations: int) -> LinearModel:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _as_ours(LogisticRegression(C=C, tol=0, max_iter=iterations).fit(x, y))


def _as_ours(model: Any) -> LinearModel:
    coef = np.asarray(model.coef_, np.float64)
    intercept = np.asarray(model.intercept_, np.float64)
    return LinearModel(
        np.concatenate([0 * coef, coef]), np.concatenate([[0.0], intercept]), C, True
    )


def _objective(model: LinearModel, x: NDArray[Any], y: NDArray[np.int32]) -> float:
    loss = 0.0
    for first in range(0, len(x), GROUP_ROWS):
        rows = x[first : first + GROUP_ROWS].astype(np.float64)
        loss += float(row_losses(decision(model, rows), y[first:][: len(rows)]).sum())
    return loss / len(y) + float((model.coef**2).sum()) / (2 * C * len(y))
