"""Dense products beside the BLAS at hand, on one thread: the price of fixed bits."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from xnq_dist.core.blocks import ROWS, one_blas_thread
from xnq_dist.core.products import multiply, pack
from xnq_dist.evaluation.bench.harness import OURS, Bench

__all__ = ["price_of_products", "products"]

WIDTH = 512
"""Columns of the matrix that a price is given for: the default d'."""


def _best(work: Callable[[], object], repeat: int, calls: int) -> list[float]:
    """Seconds of one call, several times; the first, which warms up, is left out."""
    work()
    found = []
    for _ in range(repeat):
        began = time.perf_counter()
        for _ in range(calls):
            work()
        found.append((time.perf_counter() - began) / calls)
    return found


def _forms(depth: int, columns: int) -> dict[str, Callable[[], object]]:
    """One block of rows times a matrix, by what computes it."""
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


def price_of_products(repeat: int = 5) -> float:
    """Seconds of our product over those of the BLAS, in float32, best of a few."""
    forms = _forms(WIDTH, WIDTH)
    with one_blas_thread():
        ours, blas = (min(_best(forms[name], repeat, 5)) for name in (OURS, "BLAS"))
    return ours / blas


def products(bench: Bench) -> None:
    """Time of a block's product in each form that has fixed bits somewhere."""
    for depth, columns in ((16, 512), (128, 128), (512, 512), (1024, 1024), (512, 2)):
        case = f"{ROWS} x {depth} times {depth} x {columns}"
        calls = max(2, int(bench.choose(1e7, 1e9) / (ROWS * depth * columns)))
        with one_blas_thread():
            for what, work in _forms(depth, columns).items():
                for number, seconds in enumerate(_best(work, bench.repeat, calls)):
                    bench.record(case, "time", what, seconds, "s", number)
        ratio = bench.median(case, "time", OURS) / bench.median(case, "time", "BLAS")
        aim = 1.1 if depth == columns else None
        bench.ratio(f"time over the BLAS's, {case}", ratio, "less", aim)
