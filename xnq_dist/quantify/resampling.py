"""Members drawn with replacement, from streams keyed by what they are drawn for.

Draw j of resample r of community s depends on the seed and on (s, r, j) alone: batches,
workers and threads change nothing.

References
----------
G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA
2014 (the mixing function).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["draw_kernel", "draw_rows", "odds_kernel"]

GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
HALF = np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)
SURE = 1.0 - 1e-12
"""Largest difference of two classes' shares in a member: none is quite impossible."""
STEP = 1e-2
"""Newton step, in units of twice a share, that is the last: what it leaves is of the
order of its square."""
MOST_STEPS = 60


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _mixed(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> np.uint64(30))) * FIRST
    value = (value ^ (value >> np.uint64(27))) * SECOND
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True, error_model="numpy")
def _stream(seed: int, community: int, resample: int) -> np.uint64:
    key = _mixed(np.uint64(seed) + GAMMA)
    key = _mixed((key ^ np.uint64(community)) + GAMMA)
    found: np.uint64 = _mixed((key ^ np.uint64(resample)) + GAMMA)
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def _draw(stream: np.uint64, size: int, places: NDArray[np.int64]) -> None:
    """Fill `places` with numbers below size; one 64-bit word makes two of them."""
    bound = np.uint64(size)
    count = places.shape[0]
    word = stream
    for k in range(0, count - 1, 2):
        word += GAMMA
        value = _mixed(word)
        places[k] = np.int64(((value & LOW) * bound) >> HALF)
        places[k + 1] = np.int64(((value >> HALF) * bound) >> HALF)
    if count % 2:
        value = _mixed(word + GAMMA)
        places[count - 1] = np.int64(((value & LOW) * bound) >> HALF)


@njit(cache=True, nogil=True, error_model="numpy")
def _fill(
    seed: int, group: int, resample: int, size: int, places: NDArray[np.int64]
) -> None:
    _draw(_stream(seed, group, resample), size, places)


def draw_rows(
    seed: int, group: int, resample: int, size: int, count: int
) -> NDArray[np.int64]:
    """Places of rows drawn with replacement, shape (count,).

    Parameters
    ----------
    seed, group, resample
        Key of the stream.
    size
        Rows to draw from, below 2^32.
    """
    places = np.empty(count, np.int64)
    _fill(seed, group, resample, size, places)
    return places


@njit(cache=True, nogil=True, error_model="numpy")
def draw_kernel(
    offsets: NDArray[np.int64],
    members: NDArray[np.int64],
    shifted: NDArray[np.float64],
    seed: int,
    first: int,
    resample: int,
    drawn: NDArray[np.int64],
    means: NDArray[np.float64],
) -> None:
    """One resample of every community, and the mean of what goes with the members.

    Parameters
    ----------
    offsets, members
        `Communities`; int64 (S + 1,) and (M,).
    shifted
        float64 (M, C): rows that belong to memberships.
    seed, first, resample
        Keys: community s has the number ``first + s``.
    drawn
        int64 (M,), filled in: members of the resamples, in place of `members`.
    means
        float64 (S, C), filled in: means of the rows drawn; 0 without members.
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


@njit(cache=True, nogil=True, error_model="numpy")
def _slopes(values: NDArray[np.float64], size: int, t: float) -> tuple[float, float]:
    """Sums of ``v / (1 + v t)`` and of its square.

    Four running sums each, always added up alike: vectorised, no leave to reorder.
    """
    a = b = c = d = e = f = g = h = 0.0
    whole = size - size % 4
    for k in range(0, whole, 4):
        p = values[k] / (1.0 + values[k] * t)
        q = values[k + 1] / (1.0 + values[k + 1] * t)
        r = values[k + 2] / (1.0 + values[k + 2] * t)
        s = values[k + 3] / (1.0 + values[k + 3] * t)
        a += p
        b += q
        c += r
        d += s
        e += p * p
        f += q * q
        g += r * r
        h += s * s
    for k in range(whole, size):
        p = values[k] / (1.0 + values[k] * t)
        a += p
        e += p * p
    return (a + b) + (c + d), (e + f) + (g + h)


@njit(cache=True, nogil=True, error_model="numpy")
def _most_likely(
    values: NDArray[np.float64], size: int, start: float, rise: float, bend: float
) -> float:
    """The t in [-1, 1] that maximises ``sum log(1 + v t)``, by Newton in a bracket.

    `rise` and `bend` are the slopes' sums at the start.
    """
    low, high = -1.0, 1.0
    t = start
    for _ in range(MOST_STEPS):
        if not bend > 0.0:
            break
        if rise > 0.0:
            low = t
        else:
            high = t
        ahead = min(max(t + rise / bend, -1.0), 1.0)
        if ahead < low or ahead > high:
            ahead = 0.5 * (low + high)
        done = abs(ahead - t) < STEP
        t = ahead
        if done:
            break
        rise, bend = _slopes(values, size, t)
    return t


@njit(cache=True, nogil=True, error_model="numpy")
def odds_kernel(
    offsets: NDArray[np.int64],
    members: NDArray[np.int64],
    leanings: NDArray[np.float64],
    shifted: NDArray[np.float64],
    start: NDArray[np.float64],
    seed: int,
    first: int,
    begin: int,
    end: int,
    sums: NDArray[np.float64],
) -> None:
    """Resamples of two classes' most likely mixture, each less its members' mean.

    With r the class densities of a member and ``v = (r_1 - r_0) / (r_1 + r_0)``, the
    likelihood of the share q of the second class is the product of ``1 + v (2 q - 1)``.

    Parameters
    ----------
    offsets, members
        `Communities`; int64 (S + 1,) and (M,).
    leanings
        float64 (n,): v of every node that occurs.
    shifted
        float64 (M, 2): posteriors of memberships, of which the second is averaged.
    start
        float64 (S,): share of the second class that the search begins at.
    seed, first
        Keys: community s has the number ``first + s``.
    begin, end
        Resamples wanted.
    sums
        float64 (S, 2), added to: sums over resamples of the difference and of its
        square, in the order of the resamples.
    """
    most = 0
    for s in range(offsets.shape[0] - 1):
        most = max(most, offsets[s + 1] - offsets[s])
    values, places = np.empty(most), np.empty(most, np.int64)
    # Side by side what a draw needs: leaning, posterior, slope at the start, square.
    packed = np.empty((most, 4))
    for s in range(offsets.shape[0] - 1):
        at, size = offsets[s], offsets[s + 1] - offsets[s]
        if size == 0:
            continue
        from_ = min(max(2.0 * start[s] - 1.0, -1.0), 1.0)
        for k in range(size):
            own = min(max(leanings[members[at + k]], -SURE), SURE)
            slope = own / (1.0 + own * from_)
            packed[k, 0] = own
            packed[k, 1] = shifted[at + k, 1]
            packed[k, 2] = slope
            packed[k, 3] = slope * slope
        for resample in range(begin, end):
            _draw(_stream(seed, first + s, resample), size, places[:size])
            expected, rise, bend = 0.0, 0.0, 0.0
            for k in range(size):
                place = places[k]
                values[k] = packed[place, 0]
                expected += packed[place, 1]
                rise += packed[place, 2]
                bend += packed[place, 3]
            t = _most_likely(values, size, from_, rise, bend)
            difference = 0.5 * (t + 1.0) - expected / size
            sums[s, 0] += difference
            sums[s, 1] += difference * difference
