"""Speed of dense products with reproducible bits, relative to BLAS on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from xnq_dist.core.blocks import ROWS, one_blas_thread
from xnq_dist.core.products import multiply, pack

__all__ = ["relative_time"]

WIDTH = 512
"""Rows and columns of the matrix."""
REPEAT, CALLS = 5, 5


def relative_time() -> float:
    """Time of our float32 product divided by that of BLAS, the best of several each."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, WIDTH), np.float32)
    matrix = rng.standard_normal((WIDTH, WIDTH), np.float32)
    panels, out = pack(matrix), np.empty((ROWS, WIDTH), np.float32)
    with one_blas_thread():
        ours = _seconds(lambda: multiply(x, panels, out))
        return ours / _seconds(lambda: np.matmul(x, matrix, out=out))


def _seconds(work: Callable[[], object]) -> float:
    """Seconds of some calls, the least of several measurements after a first call."""
    work()
    least = np.inf
    for _ in range(REPEAT):
        began = time.perf_counter()
        for _ in range(CALLS):
            work()
        least = min(least, time.perf_counter() - began)
    return float(least)
