"""Convex problems over the simplex, solved exactly for every community of a batch.

All are solved by the same small quadratic programme: least squares (ACC, PACC) is one;
the likelihood of a mixture and the Topsoe distance are Newton steps of it, damped by
halving. The last two end with a certificate: for a convex f with gradient g, no point
of the simplex is better than p by more than ``g . p - min(g)``.

References
----------
Y. Kim et al., "A fast algorithm for maximum likelihood estimation of mixture
proportions using sequential quadratic programming", JCGS 29(2), 2020.
M. Jaggi, "Revisiting Frank-Wolfe", ICML 2013 (the certificate).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Bools, Floats, Ints, Ints32

__all__ = ["likelihood_kernel", "mixture_kernel", "topsoe_kernel"]

TOLERANCE = 1e-12
"""Largest violation of a quadratic programme's optimality conditions."""

RIDGE = 1e-10
"""Weight of ||p||^2 in least squares: of several answers that fit alike, the one
nearest to uniform."""

CURVATURE = 1e-12
"""Ridge of a Newton step's curvature, in units of its trace."""

LEAST_CURVATURE = 1e-9
"""The same where there is no curvature at all: the step then goes to a corner."""

SHORTEST = 1e-12
"""Shortest Newton step tried."""

NOISE = 1e-14
"""Rise of a cost that rounding alone can make: not a step that does not pay."""

SMALLEST = 1e-290
"""Below it a product may have lost digits."""

LOG_2 = float(np.log(2.0))


@njit(cache=True, nogil=True, error_model="numpy")
def _solve(system: Floats, right: Floats, size: int) -> None:
    """Gaussian elimination with partial pivoting in place; the answer in `right`."""
    for k in range(size):
        pivot = k
        for i in range(k + 1, size):
            if abs(system[i, k]) > abs(system[pivot, k]):
                pivot = i
        if pivot != k:
            for j in range(k, size):
                system[k, j], system[pivot, j] = system[pivot, j], system[k, j]
            right[k], right[pivot] = right[pivot], right[k]
        for i in range(k + 1, size):
            factor = system[i, k] / system[k, k]
            if factor != 0.0:
                for j in range(k, size):
                    system[i, j] -= factor * system[k, j]
                right[i] -= factor * right[k]
    for k in range(size - 1, -1, -1):
        value = right[k]
        for j in range(k + 1, size):
            value -= system[k, j] * right[j]
        right[k] = value / system[k, k]


@njit(cache=True, nogil=True, error_model="numpy")
def _quadratic(gram: Floats, linear: Floats, p: Floats) -> bool:
    """Move p to where ``p' gram p / 2 - linear' p`` is least over the simplex.

    A primal active-set method: it moves to the optimum over the classes that are free
    (at first those above 0), fixes a class that would become negative, and frees one
    whose multiplier says that it pays. The objective falls strictly, so no set of free
    classes comes twice. Returns whether the optimality conditions hold.
    """
    n_classes = gram.shape[0]
    system = np.empty((n_classes + 1, n_classes + 1))
    right = np.empty(n_classes + 1)
    free = np.empty(n_classes, np.int64)
    is_free = np.empty(n_classes, np.bool_)
    for i in range(n_classes):
        is_free[i] = p[i] > 0.0
    for _ in range(50 + 10 * n_classes):
        size = 0
        for i in range(n_classes):
            if is_free[i]:
                free[size] = i
                size += 1
        for a in range(size):
            for b in range(size):
                system[a, b] = gram[free[a], free[b]]
            system[a, size] = 1.0
            system[size, a] = 1.0
            right[a] = linear[free[a]]
        system[size, size] = 0.0
        right[size] = 1.0
        _solve(system, right, size + 1)
        # How far towards that optimum before a class reaches 0, and which one.
        length = 1.0
        blocking = -1
        for a in range(size):
            i = free[a]
            if right[a] < 0.0 and p[i] < length * (p[i] - right[a]):
                length = p[i] / (p[i] - right[a])
                blocking = i
        for a in range(size):
            p[free[a]] += length * (right[a] - p[free[a]])
        if blocking >= 0:
            p[blocking] = 0.0
            is_free[blocking] = False
            continue
        # At the optimum of the free classes: does freeing another one pay?
        multiplier = right[size]
        worst = -TOLERANCE
        freed = -1
        for i in range(n_classes):
            if not is_free[i]:
                slope = multiplier - linear[i]
                for j in range(n_classes):
                    slope += gram[i, j] * p[j]
                if slope < worst:
                    worst = slope
                    freed = i
        if freed < 0:
            return True
        is_free[freed] = True
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def mixture_kernel(
    matrices: Floats, counts: Floats, prevalence: Floats, converged: Bools
) -> None:
    """The p on the simplex that minimises ||M p - q|| for every row q of `counts`.

    There is one M for all rows, shape (1, K, C), or one for each, (S, K, C). Rows with
    NaN are passed over; `converged` says whether the optimality conditions hold within
    `TOLERANCE`.
    """
    n_rows, n_classes = matrices.shape[1], matrices.shape[2]
    gram = np.empty((n_classes, n_classes))
    linear = np.empty(n_classes)
    p = np.empty(n_classes)
    for s in range(counts.shape[0]):
        if s == 0 or matrices.shape[0] > 1:
            matrix = matrices[min(s, matrices.shape[0] - 1)]
            for i in range(n_classes):
                for j in range(n_classes):
                    value = RIDGE if i == j else 0.0
                    for k in range(n_rows):
                        value += matrix[k, i] * matrix[k, j]
                    gram[i, j] = value
        if np.isnan(counts[s, 0]):
            continue
        for i in range(n_classes):
            linear[i] = 0.0
            for k in range(n_rows):
                linear[i] += matrix[k, i] * counts[s, k]
        p[:] = 1.0 / n_classes
        converged[s] = _quadratic(gram, linear, p)
        _write(p, prevalence[s])


@njit(cache=True, nogil=True, error_model="numpy")
def _write(p: Floats, row: Floats) -> None:
    """P on the simplex, without the rounding that may have left it."""
    mass = 0.0
    for i in range(p.shape[0]):
        p[i] = max(p[i], 0.0)
        mass += p[i]
    for i in range(p.shape[0]):
        row[i] = p[i] / mass


@njit(cache=True, nogil=True, error_model="numpy")
def _gap(gradient: Floats, p: Floats) -> float:
    """How much better than p any point of the simplex can be, at most."""
    at = 0.0
    least = np.inf
    for i in range(p.shape[0]):
        at += gradient[i] * p[i]
        least = min(least, gradient[i])
    return at - least


@njit(cache=True, nogil=True, error_model="numpy")
def _newton_target(
    hessian: Floats, gradient: Floats, p: Floats, target: Floats
) -> float:
    """Least point over the simplex of the model at p; returns its slope, below 0.

    The lower triangle of `hessian` is filled in and its ridge added.
    """
    n_classes = p.shape[0]
    trace = 0.0
    for i in range(n_classes):
        trace += hessian[i, i]
    linear = np.empty(n_classes)
    for i in range(n_classes):
        hessian[i, i] += CURVATURE * trace if trace > 0.0 else LEAST_CURVATURE
        for j in range(i):
            hessian[i, j] = hessian[j, i]
    for i in range(n_classes):
        value = -gradient[i]
        for j in range(n_classes):
            value += hessian[i, j] * p[j]
        linear[i] = value
    target[:] = p
    _quadratic(hessian, linear, target)
    slope = 0.0
    for i in range(n_classes):
        slope += gradient[i] * (target[i] - p[i])
    return slope


@njit(cache=True, nogil=True, error_model="numpy")
def _gather(
    members: Ints, first: int, filled: int, ratios: Floats, block: Floats
) -> None:
    """Members' ratios into the first columns of a tile."""
    for k in range(filled):
        node = members[first + k]
        for y in range(block.shape[0]):
            block[y, k] = ratios[node, y]


@njit(cache=True, nogil=True, error_model="numpy")
def _mixture(block: Floats, filled: int, q: Floats, mixture: Floats) -> None:
    """``sum_y q(y) ratio(y)`` of every member in a tile."""
    weight = q[0]
    for k in range(filled):
        mixture[k] = weight * block[0, k]
    for y in range(1, block.shape[0]):
        weight = q[y]
        for k in range(filled):
            mixture[k] += weight * block[y, k]


@njit(cache=True, nogil=True, error_model="numpy")
def _minus_log(mixture: Floats, filled: int) -> float:
    """Sum of ``-log``, infinite where a member is impossible.

    One logarithm serves eight members, where their product is far from overflow.
    """
    total = 0.0
    for begin in range(0, filled, 8):
        end = min(begin + 8, filled)
        product = 1.0
        for k in range(begin, end):
            product *= mixture[k]
        if SMALLEST < product < 1.0 / SMALLEST:
            total -= np.log(product)
            continue
        for k in range(begin, end):
            if not mixture[k] > 0.0:
                return np.inf
            total -= np.log(mixture[k])
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _product(a: Floats, b: Floats, size: int) -> float:
    """Inner product in eight running sums: vectorised with no leave to reorder."""
    s = t = u = v = w = x = y = z = 0.0
    whole = size - size % 8
    for k in range(0, whole, 8):
        s += a[k] * b[k]
        t += a[k + 1] * b[k + 1]
        u += a[k + 2] * b[k + 2]
        v += a[k + 3] * b[k + 3]
        w += a[k + 4] * b[k + 4]
        x += a[k + 5] * b[k + 5]
        y += a[k + 6] * b[k + 6]
        z += a[k + 7] * b[k + 7]
    for k in range(whole, size):
        s += a[k] * b[k]
    return ((s + t) + (u + v)) + ((w + x) + (y + z))


@njit(cache=True, nogil=True, error_model="numpy")
def likelihood_kernel(
    offsets: Ints,
    members: Ints,
    ratios: Floats,
    tolerance: float,
    max_iterations: int,
    tile: int,
    prevalence: Floats,
    iterations: Ints32,
    converged: Bools,
) -> None:
    """The q that maximises a community's mean of ``log sum_y q(y) ratio(y)``.

    `ratios` (n, C) are every node's class densities, up to a factor a node; each row
    has an entry above 0. The search ends once no q has a mean log-likelihood higher by
    more than the tolerance. Communities without members are left as they are; where
    several q are equally likely (classes that no ratio tells apart) any of them is the
    answer.
    """
    n_classes = ratios.shape[1]
    block = np.empty((n_classes, tile))
    mixture = np.empty(tile)
    ones = np.ones(tile)
    gradient = np.empty(n_classes)
    hessian = np.empty((n_classes, n_classes))
    q = np.empty(n_classes)
    target = np.empty(n_classes)
    tried = np.empty(n_classes)
    scaled = np.empty((n_classes, tile))
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        size = last - first
        if size == 0:
            continue
        whole = size <= tile
        if whole:
            _gather(members, first, size, ratios, block)
        q[:] = 1.0 / n_classes
        cost = np.inf
        done = False
        steps = 0
        while True:
            gradient[:] = 0.0
            hessian[:] = 0.0
            total = 0.0
            for begin in range(first, last, tile):
                filled = min(tile, last - begin)
                if not whole:
                    _gather(members, begin, filled, ratios, block)
                # A step that was taken has left the mixture of its last tile.
                if not whole or steps == 0:
                    _mixture(block, filled, q, mixture)
                if steps == 0:
                    total += _minus_log(mixture, filled)
                for k in range(filled):
                    mixture[k] = 1.0 / mixture[k]
                for y in range(n_classes):
                    for k in range(filled):
                        scaled[y, k] = block[y, k] * mixture[k]
                    gradient[y] -= _product(scaled[y], ones, filled) / size
                    for x in range(y + 1):
                        hessian[x, y] += _product(scaled[x], scaled[y], filled) / size
            if steps == 0:
                cost = total / size
            done = _gap(gradient, q) <= tolerance
            if done or steps == max_iterations:
                break
            slope = _newton_target(hessian, gradient, q, target)
            length = 1.0
            while length > SHORTEST:
                for y in range(n_classes):
                    tried[y] = q[y] + length * (target[y] - q[y])
                total = 0.0
                for begin in range(first, last, tile):
                    filled = min(tile, last - begin)
                    if not whole:
                        _gather(members, begin, filled, ratios, block)
                    _mixture(block, filled, tried, mixture)
                    total += _minus_log(mixture, filled)
                if total / size <= cost + 0.1 * length * slope + NOISE:
                    break
                length *= 0.5
            if length <= SHORTEST:
                break
            q[:] = tried
            cost = total / size
            steps += 1
        _write(q, prevalence[s])
        iterations[s] = steps
        converged[s] = done


@njit(cache=True, nogil=True, error_model="numpy")
def _topsoe(sample: Floats, shares: Floats, p: Floats, mixture: Floats) -> float:
    """Topsoe distance of a sample's shares from ``p' shares``, put into `mixture`."""
    total = 0.0
    for b in range(sample.shape[0]):
        value = 0.0
        for i in range(p.shape[0]):
            value += p[i] * shares[i, b]
        mixture[b] = value
        seen = sample[b]
        if seen > 0.0 and value > 0.0:
            middle = (seen + value) / 2.0
            total += value * np.log(value / middle) + seen * np.log(seen / middle)
        else:
            total += (seen + value) * LOG_2
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _longest(sample: Floats, shares: Floats, mixture: Floats, target: Floats) -> float:
    """Longest step, up to 1, that leaves each of the sample's cells a tenth.

    The distance is as steep as a logarithm where a cell of the sample runs out: beyond
    that the quadratic model says nothing.
    """
    length = 1.0
    for b in range(sample.shape[0]):
        if sample[b] > 0.0:
            ahead = 0.0
            for i in range(target.shape[0]):
                ahead += target[i] * shares[i, b]
            fall = mixture[b] - ahead
            if length * fall > 0.9 * mixture[b]:
                length = 0.9 * mixture[b] / fall
    return length


@njit(cache=True, nogil=True, error_model="numpy")
def topsoe_kernel(
    samples: Floats,
    shares: Floats,
    tolerance: float,
    max_iterations: int,
    prevalence: Floats,
    iterations: Ints32,
    converged: Bools,
) -> None:
    """The p whose mixture of the classes' shares is nearest to a sample's (Topsoe).

    The distance is ``sum s log(2 s / (s + m)) + m log(2 m / (s + m))``, m = p' shares,
    which is convex in p. The search ends once no p has a distance lower by more than
    the tolerance. Samples and shares sum to 1; samples of zeros are passed over.
    """
    n_classes, cells = shares.shape
    mixture = np.empty(cells)
    gradient = np.empty(n_classes)
    hessian = np.empty((n_classes, n_classes))
    p = np.empty(n_classes)
    target = np.empty(n_classes)
    tried = np.empty(n_classes)
    for s in range(samples.shape[0]):
        sample = samples[s]
        if not sample.sum() > 0.0:
            continue
        p[:] = 1.0 / n_classes
        cost = _topsoe(sample, shares, p, mixture)
        done = False
        steps = 0
        while True:
            gradient[:] = 0.0
            hessian[:] = 0.0
            for b in range(cells):
                slope = LOG_2
                curve = 0.0
                if sample[b] > 0.0 and mixture[b] > 0.0:
                    both = sample[b] + mixture[b]
                    slope = np.log(2.0 * mixture[b] / both)
                    curve = sample[b] / (mixture[b] * both)
                for i in range(n_classes):
                    gradient[i] += shares[i, b] * slope
                    for j in range(i, n_classes):
                        hessian[i, j] += curve * shares[i, b] * shares[j, b]
            done = _gap(gradient, p) <= tolerance
            if done or steps == max_iterations:
                break
            slope = _newton_target(hessian, gradient, p, target)
            length = _longest(sample, shares, mixture, target)
            while length > SHORTEST:
                for i in range(n_classes):
                    tried[i] = p[i] + length * (target[i] - p[i])
                value = _topsoe(sample, shares, tried, mixture)
                if value <= cost + 0.1 * length * slope + NOISE:
                    break
                length *= 0.5
            if length <= SHORTEST:
                break
            p[:] = tried
            cost = value
            steps += 1
        _write(p, prevalence[s])
        iterations[s] = steps
        converged[s] = done
