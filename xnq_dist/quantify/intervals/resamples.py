"""Draws of members with replacement, from random streams keyed by community.

Draw j of resample r of community s depends only on the seed and on (s, r, j), not on
batches, workers or threads.

References
----------
G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA
2014 (the mixing function).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.random_bits import GAMMA, mix

__all__ = ["draw_kernel", "draw_rows"]

HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)


@njit(cache=True, nogil=True, error_model="numpy")
def _stream(seed: int, community: int, resample: int) -> np.uint64:
    key = mix(np.uint64(seed) + GAMMA)
    key = mix((key ^ np.uint64(community)) + GAMMA)
    state: np.uint64 = mix((key ^ np.uint64(resample)) + GAMMA)
    return state


@njit(cache=True, nogil=True, error_model="numpy")
def _draw(stream: np.uint64, size: int, places: Ints) -> None:
    """Fill `places` with numbers below `size`, two from each 64-bit word."""
    bound = np.uint64(size)
    count = places.shape[0]
    word = stream
    for k in range(0, count - 1, 2):
        word += GAMMA
        value = mix(word)
        places[k] = np.int64(((value & LOW) * bound) >> HALF)
        places[k + 1] = np.int64(((value >> HALF) * bound) >> HALF)
    if count % 2:
        value = mix(word + GAMMA)
        places[count - 1] = np.int64(((value & LOW) * bound) >> HALF)


@njit(cache=True, nogil=True, error_model="numpy")
def _fill(seed: int, group: int, resample: int, size: int, places: Ints) -> None:
    _draw(_stream(seed, group, resample), size, places)


def draw_rows(seed: int, group: int, resample: int, size: int, count: int) -> Ints:
    """Draw `count` row numbers below `size` with replacement, shape (count,)."""
    places = np.empty(count, np.int64)
    _fill(seed, group, resample, size, places)
    return places


@njit(cache=True, nogil=True, error_model="numpy")
def draw_kernel(
    offsets: Ints,
    members: Ints,
    shifted: Floats,
    seed: int,
    first: int,
    resample: int,
    drawn: Ints,
    means: Floats,
) -> None:
    """Draw one resample of every community, and average its rows of `shifted`.

    Community s has the number ``first + s`` in the key of its stream. `shifted` (M, C)
    has a row per membership; `drawn` (M,) is filled with the drawn members, `means`
    with the means of their rows, 0 without members.
    """
    for s in range(offsets.shape[0] - 1):
        begin, size = offsets[s], offsets[s + 1] - offsets[s]
        means[s, :] = 0.0
        if size == 0:
            continue
        places = drawn[begin : begin + size]
        _draw(_stream(seed, first + s, resample), size, places)
        for k in range(size):
            at = begin + places[k]
            for y in range(means.shape[1]):
                means[s, y] += shifted[at, y]
            places[k] = members[at]
        for y in range(means.shape[1]):
            means[s, y] /= size
