"""Tiles of a community's posteriors: gathering, and the expected counts of EM.

A tile has a fixed size, so that memory does not grow with the community and sums are
always added in the same order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints

__all__ = ["TILE", "add_expected", "gather"]

TILE = 4096
"""Members gathered at a time; with two classes a tile fits a core's private cache."""


@njit(cache=True, nogil=True, error_model="numpy")
def gather(
    members: Ints,
    first: int,
    last: int,
    unlabelled: Bools,
    posteriors: Floats32,
    block: Floats,
) -> tuple[int, int, int]:
    """Fill a tile with unlabelled members' posteriors.

    Two classes are kept as odds, in row 0 of the tile (see `_add_expected_of_two`).
    Rows of zeros are left out: they have no information, and odds of 0 / 0.
    Returns the rows filled, the unlabelled members seen, and the next position.
    """
    n_classes, size = block.shape
    filled = 0
    seen = 0
    position = first
    while position < last and filled < size:
        node = members[position]
        position += 1
        if not unlabelled[node]:
            continue
        seen += 1
        total = 0.0
        for y in range(n_classes):
            value = np.float64(posteriors[node, y])
            block[y, filled] = value
            total += value
        if total > 0.0:
            if n_classes == 2:
                second = block[1, filled]
                block[0, filled] = block[0, filled] / second if second > 0.0 else np.inf
            filled += 1
    return filled, seen, position


@njit(cache=True, nogil=True, error_model="numpy")
def _add_expected_of_two(
    block: Floats, filled: int, weights: Floats, inverse: Floats, total: Floats
) -> None:
    """`add_expected` for two classes, from their odds: half the work.

    Infinite odds (the second class is impossible) add 0 to the second class's count.
    """
    first, second = weights[0], weights[1]
    for k in range(filled):
        mixture = first * block[0, k] + second
        inverse[k] = 1.0 / mixture if mixture > 0.0 else 0.0
    unrolled = filled - filled % 8
    a = b = c = d = e = f = g = h = 0.0
    for k in range(0, unrolled, 8):
        a += inverse[k]
        b += inverse[k + 1]
        c += inverse[k + 2]
        d += inverse[k + 3]
        e += inverse[k + 4]
        f += inverse[k + 5]
        g += inverse[k + 6]
        h += inverse[k + 7]
    for k in range(unrolled, filled):
        a += inverse[k]
    expected = second * (((a + b) + (c + d)) + ((e + f) + (g + h)))
    total[0] += max(filled - expected, 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def add_expected(
    block: Floats, filled: int, weights: Floats, inverse: Floats, total: Floats
) -> None:
    """Add the expected count in a tile of every class but the last.

    The last class has the remaining rows. Eight running sums, always added in the same
    order, let the compiler vectorise the loops without reordering.
    """
    if weights.shape[0] == 2:
        _add_expected_of_two(block, filled, weights, inverse, total)
        return
    last = block.shape[0] - 1
    weight = weights[0]
    for k in range(filled):
        inverse[k] = weight * block[0, k]
    for y in range(1, last):
        weight = weights[y]
        for k in range(filled):
            inverse[k] += weight * block[y, k]
    weight = weights[last]
    for k in range(filled):
        mixture = inverse[k] + weight * block[last, k]
        inverse[k] = 1.0 / mixture if mixture > 0.0 else 0.0
    unrolled = filled - filled % 8
    for y in range(last):
        a = b = c = d = e = f = g = h = 0.0
        for k in range(0, unrolled, 8):
            a += block[y, k] * inverse[k]
            b += block[y, k + 1] * inverse[k + 1]
            c += block[y, k + 2] * inverse[k + 2]
            d += block[y, k + 3] * inverse[k + 3]
            e += block[y, k + 4] * inverse[k + 4]
            f += block[y, k + 5] * inverse[k + 5]
            g += block[y, k + 6] * inverse[k + 6]
            h += block[y, k + 7] * inverse[k + 7]
        for k in range(unrolled, filled):
            a += block[y, k] * inverse[k]
        total[y] += weights[y] * (((a + b) + (c + d)) + ((e + f) + (g + h)))
