"""Benchmark of the logistic readout on many rows, compared with scikit-learn's solvers.

All minimise the same objective, log-loss plus the L2 penalty of C = 1, with different
accuracy: the excess of each loss over the smallest loss is recorded too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def readout(bench: Bench) -> None:
    """Time and loss of fits to rows that resemble reservoir states."""
    rows, width = bench.choose((20_000, 64), (1_000_000, 256))
    case = f"{rows:,} rows x {width}, two classes, C = {C:g}"
    x, y = _states(rows, width)
    models: dict[str, LinearModel] = {}
    threads = processors()
    repeat = 1 if bench.size == "full" else bench.repeat

    def ours() -> None:
        models[OURS] = _fit(x, y, threads)

    def one_thread() -> None:
        _fit(x, y, 1)

    seconds = bench.time(case, OURS, ours, warm=bench.size == "small")
    bench.time(case, f"{OURS}, one thread", one_thread, repeat=repeat, warm=False)
    peers = {
        "scikit-learn LogisticRegression, lbfgs": _lbfgs,
        "scikit-learn SGDClassifier": _sgd,
    }
    times = {}
    for name, fit in peers.items():

        def work(name: str = name, fit: Any = fit) -> None:
            models[name] = fit(x, y)

        times[name] = bench.time(case, name, work, repeat=repeat, warm=False)
    objectives = {name: _objective(model, x, y) for name, model in models.items()}
    best = min(objectives.values())
    for name, value in objectives.items():
        bench.record(case, "relative excess of the loss", name, value / best - 1, "")
    lbfgs, sgd = times.values()
    bench.ratio("LogisticRegression's time over ours", lbfgs / seconds, "more")
    bench.ratio("SGDClassifier's time over ours", sgd / seconds, "more")
    # Smaller values are rounding errors, which differ from run to run.
    excess = max(objectives[OURS] / best - 1, 1e-9)
    bench.ratio("relative excess of our loss", excess, "less", 1e-6)


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


def _lbfgs(x: NDArray[np.float32], y: NDArray[np.int32]) -> LinearModel:
    from sklearn.linear_model import LogisticRegression

    # The default tolerance of 1e-4 stops far from the optimum at this size.
    model = LogisticRegression(C=C, tol=1e-6, max_iter=1000).fit(x, y)
    return _as_ours(model)


def _sgd(x: NDArray[np.float32], y: NDArray[np.int32]) -> LinearModel:
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(loss="log_loss", alpha=1 / (C * len(y)), random_state=0)
    return _as_ours(model.fit(x, y))


def _as_ours(model: Any) -> LinearModel:
    coef = np.asarray(model.coef_, np.float64)
    intercept = np.asarray(model.intercept_, np.float64)
    return LinearModel(
        np.concatenate([0 * coef, coef]), np.concatenate([[0.0], intercept]), C, True
    )


def _objective(
    model: LinearModel, x: NDArray[np.float32], y: NDArray[np.int32]
) -> float:
    loss = 0.0
    for first in range(0, len(x), GROUP_ROWS):
        rows = x[first : first + GROUP_ROWS].astype(np.float64)
        loss += float(row_losses(decision(model, rows), y[first:][: len(rows)]).sum())
    return loss / len(y) + float((model.coef**2).sum()) / (2 * C * len(y))
