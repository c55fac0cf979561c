"""Kernels of `auto`: a community's intercept integrated over a grid, class by class.

A community enters as histograms of its members' logits: unlabelled, labelled with the
class, labelled otherwise. With ``F(u)`` the mean of ``sigmoid(slope x + u)`` over the
unlabelled ones and ``L(u)`` the log-likelihood of the labelled ones, the evidence of a
hypothesis is ``log of the integral of N(u; m, s^2) exp(L(u)) du``, and its posterior of
u makes a distribution of F. The grid is the same for all communities; one with so many
labels that the grid is too coarse for its likelihood gets a grid of its own.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "BINS",
    "GRID",
    "answer_kernel",
    "evidence_kernel",
    "sigmoid_tables",
]

BINS = np.linspace(-9.0, 9.0, 121)
"""Centres of the logits' histogram; a logit is shared between the two next to it."""
BIN_STEP = 0.15
GRID = np.linspace(-9.6, 9.6, 65)
"""Values of the intercept u; for a normal density of deviation .2 a sum over them is
right to .001."""
GRID_STEP = 0.3
NARROW = 0.5
"""Standard deviation of a likelihood below which it gets a grid of its own."""
REACH = 12.0
"""Standard deviations that such a grid reaches to either side."""
MOST_VARIANCE = 9.0
"""Cap on the variance of the logit that the calibration itself leaves open."""
SHIFT_STEPS = 60
SHIFT_TOLERANCE = 1e-5
INVERSE_ODDS = np.exp(-BINS)
MOST_SHIFT = 8.0
NEGLIGIBLE = 1e-4
"""Share of the largest weight below which a point of the posterior is left out."""
MEDIAN_STEPS = 20
LEAST = 1e-290
"""Weights below it are 0: their logarithms are taken from here."""
NORMAL_STEP = 1 / 128
NORMAL = 0.5 * np.vectorize(math.erfc)(-np.arange(-768, 769) * NORMAL_STEP / 2**0.5)
"""Normal distribution function from -6 to 6."""


def sigmoid_tables(
    slopes: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sigmoid and log-sigmoid of ``slope x + u`` on bins and grid.

    Returns
    -------
    tuple
        Two arrays of shape (slopes, bins, grid).
    """
    z = slopes[:, None, None] * BINS[None, :, None] + GRID
    log_sigmoid = -np.logaddexp(0.0, -z)
    return np.exp(log_sigmoid), log_sigmoid


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _fill(
    first: int,
    last: int,
    logits: NDArray[np.float64],
    codes: NDArray[np.int8],
    counts: NDArray[np.float64],
) -> float:
    """Histograms (unlabelled, of the class, of others); mean logit of all counted."""
    counts[:] = 0.0
    bins = counts.shape[1]
    total, number = 0.0, 0.0
    for at in range(first, last):
        if codes[at] < -1:
            continue
        place = (logits[at] - BINS[0]) / BIN_STEP
        place = min(max(place, 0.0), bins - 1.000001)
        low = int(place)
        row = codes[at] + 1 if codes[at] < 1 else 2
        # Rows: 0 unlabelled, 1 other class, 2 the class.
        counts[row, low] += 1.0 - (place - low)
        counts[row, low + 1] += place - low
        total += logits[at]
        number += 1.0
    return total / number if number > 0 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _shift(counts: NDArray[np.float64], prior: float, pseudo: float) -> float:
    """Log-odds by which SLD, held back by pseudo-nodes, moves the prior."""
    size = 0.0
    for b in range(counts.shape[0]):
        size += counts[b]
    odds, before = 1.0, prior
    for _ in range(SHIFT_STEPS):
        expected = 0.0
        for b in range(counts.shape[0]):
            expected += counts[b] / (odds + INVERSE_ODDS[b])
        share = (odds * expected + pseudo * prior) / (size + pseudo)
        share = min(max(share, 1e-9), 1.0 - 1e-9)
        odds = share / (1.0 - share) * (1.0 - prior) / prior
        if abs(share - before) < SHIFT_TOLERANCE:
            break
        before = share
    return min(max(math.log(odds), -MOST_SHIFT), MOST_SHIFT)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _curves(
    counts: NDArray[np.float64],
    slope: float,
    sigmoid: NDArray[np.float64],
    log_sigmoid: NDArray[np.float64],
    fraction: NDArray[np.float64],
    likelihood: NDArray[np.float64],
) -> tuple[float, float]:
    """``F`` and ``L`` of one slope on the grid; its first point and its step."""
    grid = fraction.shape[0]
    fraction[:] = 0.0
    likelihood[:] = 0.0
    size, labels, others, against = 0.0, 0.0, 0.0, 0.0
    for b in range(counts.shape[1]):
        free = counts[0, b]
        if free > 0.0:
            size += free
            for g in range(grid):
                fraction[g] += free * sigmoid[b, g]
        other, both = counts[1, b], counts[1, b] + counts[2, b]
        if both > 0.0:
            labels += both
            others += other
            against += other * slope * BINS[b]
            for g in range(grid):
                likelihood[g] += both * log_sigmoid[b, g]
    if others > 0.0:
        # log sigmoid(-z) = log sigmoid(z) - z
        for g in range(grid):
            likelihood[g] -= against + others * GRID[g]
    start, step = GRID[0], GRID_STEP
    if labels > 0.0:
        top = 0
        for g in range(grid):
            if likelihood[g] > likelihood[top]:
                top = g
        top = min(max(top, 1), grid - 2)
        bend = likelihood[top - 1] - 2 * likelihood[top] + likelihood[top + 1]
        deviation = GRID_STEP / math.sqrt(max(-bend, 1e-12))
        if deviation < NARROW:
            start = GRID[top] - REACH * deviation
            step = 2 * REACH * deviation / (grid - 1)
            fraction[:] = 0.0
            likelihood[:] = 0.0
            for b in range(counts.shape[1]):
                free, other, own = counts[0, b], counts[1, b], counts[2, b]
                if free + other + own > 0.0:
                    for g in range(grid):
                        z = slope * BINS[b] + start + g * step
                        if z > 0:
                            log_own = -math.log1p(math.exp(-z))
                        else:
                            log_own = z - math.log1p(math.exp(z))
                        fraction[g] += free * math.exp(log_own)
                        likelihood[g] += (other + own) * log_own - other * z
    if size > 0.0:
        for g in range(grid):
            fraction[g] /= size
    return start, step


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _density(
    start: float,
    step: float,
    middle: float,
    variance: float,
    density: NDArray[np.float64],
) -> None:
    """Normal density on a grid, times the grid's step.

    From the point nearest to the middle outwards, each from the one before: three
    exponentials instead of one a point.
    """
    grid = density.shape[0]
    nearest = round((middle - start) / step)
    nearest = min(max(nearest, 0), grid - 1)
    off = start + nearest * step - middle
    value = math.exp(-0.5 * off * off / variance)
    value *= step / math.sqrt(2 * math.pi * variance)
    decline = math.exp(-step * step / variance)
    density[nearest] = value
    ratio = math.exp(-(off * step + 0.5 * step * step) / variance)
    for g in range(nearest + 1, grid):
        density[g] = density[g - 1] * ratio
        ratio *= decline
    ratio = math.exp((off * step - 0.5 * step * step) / variance)
    for g in range(nearest - 1, -1, -1):
        density[g] = density[g + 1] * ratio
        ratio *= decline


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _relative(likelihood: NDArray[np.float64]) -> float:
    """Log-likelihoods into likelihoods relative to the largest; the log of that one."""
    top = likelihood[0]
    for g in range(likelihood.shape[0]):
        top = max(top, likelihood[g])
    for g in range(likelihood.shape[0]):
        likelihood[g] = math.exp(likelihood[g] - top)
    return float(top)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _left_open(covariance: NDArray[np.float64], mean_logit: float) -> float:
    """Variance of a community's logit that calibration leaves open."""
    found: float = (
        covariance[0, 0]
        + 2 * covariance[0, 1] * mean_logit
        + covariance[1, 1] * mean_logit * mean_logit
    )
    return min(max(found, 0.0), MOST_VARIANCE)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def evidence_kernel(
    offsets: NDArray[np.int64],
    logits: NDArray[np.float64],
    codes: NDArray[np.int8],
    chosen: NDArray[np.int64],
    prior: float,
    covariance: NDArray[np.float64],
    slopes: NDArray[np.float64],
    sigmoid: NDArray[np.float64],
    log_sigmoid: NDArray[np.float64],
    hypotheses: NDArray[np.float64],
    pseudo: NDArray[np.float64],
    evidence: NDArray[np.float64],
) -> None:
    """Log-evidence of every hypothesis for chosen communities, one class.

    Parameters
    ----------
    offsets
        Of the communities' members, shape (S + 1,).
    logits, codes
        By member, shape (M,): the class's logit, and 1 for a label of the class, 0 for
        another label, -1 for none, -2 for a member that is to be passed over.
    chosen
        Communities that are wanted, shape (n,).
    prior
        Of the class, inside (0, 1).
    covariance
        Of the calibration's intercept and slope, shape (2, 2).
    slopes, sigmoid, log_sigmoid
        The distinct slopes and `sigmoid_tables` of them.
    hypotheses
        By hypothesis: place of the slope, place in `pseudo` (-1: none), strength,
        widening, spread; shape (H, 5).
    pseudo
        Pseudo-nodes of the shifts.
    evidence
        Filled in, shape (n, H).
    """
    bins, grid = sigmoid.shape[1], sigmoid.shape[2]
    counts = np.empty((3, bins))
    fraction, likelihood, terms = np.empty(grid), np.empty(grid), np.empty(grid)
    shifts = np.empty(pseudo.shape[0])
    for n in range(chosen.shape[0]):
        s = chosen[n]
        mean = _fill(offsets[s], offsets[s + 1], logits, codes, counts)
        open_variance = _left_open(covariance, mean)
        for a in range(pseudo.shape[0]):
            shifts[a] = _shift(counts[0], prior, pseudo[a])
        for k in range(slopes.shape[0]):
            start, step = _curves(
                counts, slopes[k], sigmoid[k], log_sigmoid[k], fraction, likelihood
            )
            top = _relative(likelihood)
            for h in range(hypotheses.shape[0]):
                if int(hypotheses[h, 0]) != k:
                    continue
                widening, spread = hypotheses[h, 3], hypotheses[h, 4]
                middle = 0.0
                if hypotheses[h, 1] >= 0:
                    middle = hypotheses[h, 2] * widening * shifts[int(hypotheses[h, 1])]
                variance = spread * spread + open_variance * widening * widening
                _density(start, step, middle, variance, terms)
                total = 0.0
                for g in range(grid):
                    total += likelihood[g] * terms[g]
                evidence[n, h] = top + math.log(max(total, LEAST))


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _normal_below(x: float) -> float:
    place = (x + 6.0) / NORMAL_STEP
    if place <= 0.0:
        return 0.0
    if place >= NORMAL.shape[0] - 1:
        return 1.0
    low = int(place)
    return float(NORMAL[low] + (place - low) * (NORMAL[low + 1] - NORMAL[low]))


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _count_quantile(
    size: int,
    wanted: float,
    points: int,
    weight: NDArray[np.float64],
    value: NDArray[np.float64],
    noise: NDArray[np.float64],
) -> int:
    """Least count k of `size` nodes with P(count <= k) >= wanted."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        edge = (middle + 0.5) / size
        below = 0.0
        for i in range(points):
            below += weight[i] * _normal_below((edge - value[i]) / noise[i])
        if below >= wanted:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def answer_kernel(
    offsets: NDArray[np.int64],
    logits: NDArray[np.float64],
    codes: NDArray[np.int8],
    prior: float,
    covariance: NDArray[np.float64],
    slopes: NDArray[np.float64],
    sigmoid: NDArray[np.float64],
    log_sigmoid: NDArray[np.float64],
    hypotheses: NDArray[np.float64],
    pseudo: NDArray[np.float64],
    weights: NDArray[np.float64],
    tail: float,
    answers: NDArray[np.float64],
) -> None:
    """Median, interval and log-evidence of every community, one class.

    Parameters as for `evidence_kernel`, and:

    weights
        Of the hypotheses, shape (H,).
    tail
        Probability beyond either end of the interval.
    answers
        Filled in, shape (S, 4): the posterior median of the class's share among
        unlabelled members, the ends of the interval of that share as it can be counted
        (class noise included), and the log-evidence of all hypotheses together. NaN
        without an unlabelled member.
    """
    bins, grid = sigmoid.shape[1], sigmoid.shape[2]
    counts = np.empty((3, bins))
    likelihood, terms, mixed = np.empty(grid), np.empty(grid), np.empty(grid)
    fraction = np.empty(grid)
    shifts = np.empty(pseudo.shape[0])
    most = slopes.shape[0] * grid
    weight, value, noise = np.empty(most), np.empty(most), np.empty(most)
    before, after = np.empty(most), np.empty(most)
    for s in range(offsets.shape[0] - 1):
        size = 0
        for at in range(offsets[s], offsets[s + 1]):
            if codes[at] == -1:
                size += 1
        if size == 0:
            answers[s, :] = np.nan
            continue
        mean = _fill(offsets[s], offsets[s + 1], logits, codes, counts)
        open_variance = _left_open(covariance, mean)
        for a in range(pseudo.shape[0]):
            shifts[a] = _shift(counts[0], prior, pseudo[a])
        points, scale, total = 0, -np.inf, 0.0
        for k in range(slopes.shape[0]):
            start, step = _curves(
                counts, slopes[k], sigmoid[k], log_sigmoid[k], fraction, likelihood
            )
            top = _relative(likelihood)
            mixed[:] = 0.0
            for h in range(hypotheses.shape[0]):
                if int(hypotheses[h, 0]) != k:
                    continue
                widening, spread = hypotheses[h, 3], hypotheses[h, 4]
                middle = 0.0
                if hypotheses[h, 1] >= 0:
                    middle = hypotheses[h, 2] * widening * shifts[int(hypotheses[h, 1])]
                variance = spread * spread + open_variance * widening * widening
                _density(start, step, middle, variance, terms)
                for g in range(grid):
                    mixed[g] += weights[h] * terms[g]
            if top > scale:
                shrink = math.exp(scale - top)
                for i in range(points):
                    weight[i] *= shrink
                total *= shrink
                scale = top
            own = math.exp(top - scale)
            largest = 0.0
            for g in range(grid):
                mixed[g] = max(mixed[g] * likelihood[g] * own, LEAST * own)
                total += mixed[g]
                largest = max(largest, mixed[g])
            for g in range(grid):
                if mixed[g] <= NEGLIGIBLE * largest:
                    continue
                low, high = max(g - 1, 0), min(g + 1, grid - 1)
                weight[points] = mixed[g]
                value[points] = fraction[g]
                # A point stands for the values half-way to its neighbours.
                before[points] = 0.5 * (fraction[low] + fraction[g])
                after[points] = 0.5 * (fraction[g] + fraction[high])
                # Derivative of F: the mean of p (1 - p), of which 1 / n is the
                # variance of the share that can be counted.
                bend = (fraction[high] - fraction[low]) / ((high - low) * step)
                noise[points] = math.sqrt(max(bend, 0.0) / size + 1e-12)
                points += 1
        answers[s, 3] = scale + math.log(total)
        whole, largest = 0.0, 0.0
        for i in range(points):
            largest = max(largest, weight[i])
        kept = 0
        for i in range(points):
            if weight[i] > NEGLIGIBLE * largest:
                weight[kept], value[kept], noise[kept] = weight[i], value[i], noise[i]
                before[kept], after[kept] = before[i], after[i]
                whole += weight[i]
                kept += 1
        for i in range(kept):
            weight[i] /= whole
        answers[s, 0] = _median(kept, weight, before, after)
        low = _count_quantile(size, tail, kept, weight, value, noise)
        high = _count_quantile(size, 1.0 - tail, kept, weight, value, noise)
        answers[s, 1] = low / size
        answers[s, 2] = high / size


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _median(
    points: int,
    weight: NDArray[np.float64],
    before: NDArray[np.float64],
    after: NDArray[np.float64],
) -> float:
    """Median of weights that are spread evenly, each from `before` to `after`."""
    low, high = 0.0, 1.0
    for _ in range(MEDIAN_STEPS):
        middle = 0.5 * (low + high)
        below = 0.0
        for i in range(points):
            if middle >= after[i]:
                below += weight[i]
            elif middle > before[i]:
                below += weight[i] * (middle - before[i]) / (after[i] - before[i])
        if below >= 0.5:
            high = middle
        else:
            low = middle
    return float(0.5 * (low + high))
