"""Speed of dense products with reproducible bits, relative to BLAS on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from xnq_dist.core.blocks import ROWS, one_blas_thread
from xnq_dist.core.products import multiply, pack
from xnq_dist.evaluation.bench.harness import OURS, Bench

__all__ = ["products", "relative_time"]

WIDTH = 512
"""Columns of the matrix in `relative_time`: the default embedding dimension d'."""


def _call_seconds(work: Callable[[], object], repeat: int, calls: int) -> list[float]:
    """Mean seconds of one call in each of `repeat` measurements, after one warm-up."""
    work()
    seconds = []
    for _ in range(repeat):
        began = time.perf_counter()
        for _ in range(calls):
            work()
        seconds.append((time.perf_counter() - began) / calls)
    return seconds


def _forms(depth: int, columns: int) -> dict[str, Callable[[], object]]:
    """Functions that multiply one block of rows with a matrix, by implementation."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, depth), np.float32)
    matrix = rng.standard_normal((depth, columns), np.float32)
    panels, out = pack(matrix), np.empty((ROWS, columns), np.float32)
    wide, wide_matrix = x.astype(np.float64), matrix.astype(np.float64)
    turned = np.ascontiguousarray(matrix.T)
    return {
        OURS: lambda: multiply(x, panels, out),
        "BLAS": lambda: np.matmul(x, matrix, out=out),
        "BLAS, transposed": lambda: np.matmul(turned, x.T),
        "BLAS, float64": lambda: np.matmul(wide, wide_matrix),
    }


def relative_time(repeat: int = 5) -> float:
    """Time of our float32 product divided by that of BLAS, best of `repeat` each."""
    forms = _forms(WIDTH, WIDTH)
    with one_blas_thread():
        ours, blas = (
            min(_call_seconds(forms[name], repeat, 5)) for name in (OURS, "BLAS")
        )
    return ours / blas


def products(bench: Bench) -> None:
    """Time the product of one block in each implementation, for several shapes."""
    for depth, columns in ((16, 512), (128, 128), (512, 512), (1024, 1024), (512, 2)):
        case = f"{ROWS} x {depth} times {depth} x {columns}"
        calls = max(2, int(bench.choose(1e7, 1e9) / (ROWS * depth * columns)))
        with one_blas_thread():
            for what, work in _forms(depth, columns).items():
                times = _call_seconds(work, bench.repeat, calls)
                for number, seconds in enumerate(times):
                    bench.record(case, "time", what, seconds, "s", number)
        ratio = bench.median(case, "time", OURS) / bench.median(case, "time", "BLAS")
        goal = 1.1 if depth == columns else None
        bench.ratio(f"time over the BLAS's, {case}", ratio, "less", goal)
