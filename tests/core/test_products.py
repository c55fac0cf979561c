"""Dense products: one chain of fused multiply-adds per element, at any position."""

from __future__ import annotations

import ctypes
import ctypes.util

import numpy as np
import pytest

from xnq_dist.core.products import (
    multiply,
    pack,
    product,
)

RNG = np.random.default_rng(6)
TYPES = [np.float32, np.float64]


def fused(kind):
    """The C library's fused multiply-add, one element at a time."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    double = kind is np.float64
    function = library.fma if double else library.fmaf
    function.restype = ctypes.c_double if double else ctypes.c_float
    function.argtypes = [function.restype] * 3
    return function


def slow_product(x, matrix):
    fma = fused(x.dtype.type)
    out = np.zeros((len(x), matrix.shape[1]), x.dtype)
    for row in range(len(x)):
        for column in range(matrix.shape[1]):
            total = 0.0
            for k in range(x.shape[1]):
                total = fma(float(x[row, k]), float(matrix[k, column]), total)
            out[row, column] = total
    return out


def drawn(*shape, kind=np.float32):
    return RNG.standard_normal(shape).astype(kind)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (9, 5, 2), (17, 40, 33), (8, 300, 70), (300, 4, 3), (4, 0, 3)],
)
def test_a_product_equals_the_plain_loop_of_fused_multiply_adds(kind, shape):
    n, k, m = shape
    x, matrix = drawn(n, k, kind=kind), drawn(k, m, kind=kind)
    expected = slow_product(x, matrix)
    for threads in (1, 2):
        np.testing.assert_array_equal(product(x, matrix, threads), expected)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shape", [(1, 5, 3), (17, 300, 33), (8, 4, 70)])
def test_a_transpose_has_the_product_of_its_copy(kind, shape):
    n, k, m = shape
    x, panels = drawn(k, n, kind=kind), pack(drawn(k, m, kind=kind))
    out, of_copy = np.empty((2, n, m), kind)
    multiply(x.T, panels, out)
    multiply(x.T.copy(), panels, of_copy)
    np.testing.assert_array_equal(out, of_copy)


def test_rows_may_lie_apart_and_be_of_another_type():
    x, matrix = drawn(30, 64), drawn(64, 12)
    expected = product(x[::3].copy(), matrix)
    np.testing.assert_array_equal(product(x[::3], matrix), expected)
    out = np.zeros((10, 24), np.float32)
    multiply(np.ascontiguousarray(x[::3]), pack(matrix), out[:, 6:18])
    np.testing.assert_array_equal(out[:, 6:18], expected)
    assert not out[:, :6].any()
    assert not out[:, 18:].any()
    half = x.astype(np.float16)
    wide = product(half.astype(np.float64), matrix.astype(np.float64))
    np.testing.assert_array_equal(product(half, matrix.astype(np.float64)), wide)


def test_empty_products_have_their_shape():
    assert product(drawn(0, 5), drawn(5, 3)).shape == (0, 3)
    assert product(drawn(4, 5), drawn(5, 0)).shape == (4, 0)
