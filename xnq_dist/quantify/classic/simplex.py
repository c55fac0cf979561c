"""Convex problems over the simplex, solved exactly for every community of a batch.

All solve the same small quadratic programme: least squares (ACC, PACC) once, the
likelihood of a mixture and the Topsoe distance in each Newton step, damped by halving.
The last two stop with a certificate: for a convex f with gradient g, no point of the
simplex is lower than f(p) by more than ``g . p - min(g)``.

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
"""Weight of ||p||^2 in least squares: of several solutions that fit equally well, the
one nearest to uniform is chosen."""

CURVATURE = 1e-12
"""Ridge of a Newton step's curvature, in units of its trace."""

MIN_CURVATURE = 1e-9
"""The same where there is no curvature at all: the step then goes to a corner."""

MIN_STEP = 1e-12
"""Length of the shortest Newton step."""

NOISE = 1e-14
"""Increase of the objective that is attributed to rounding."""

MIN_PRODUCT = 1e-290
"""Smallest product that is certain to have all its digits."""

LOG_2 = float(np.log(2.0))


@njit(cache=True, nogil=True, error_model="numpy")
def _solve(system: Floats, right: Floats, size: int) -> None:
    """Gaussian elimination with partial pivoting, in place; `right` is the solution."""
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
    """Minimise ``p' gram p / 2 - linear' p`` over the simplex, starting from p.

    A primal active-set method: it moves to the optimum over the free classes (at first
    those above 0), fixes a class that would become negative, and frees one whose
    multiplier is negative. The objective falls strictly, so no set of free classes
    occurs twice. Returns whether the optimality conditions hold.
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
        # Step length up to the optimum, or until a class reaches 0, and that class.
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
        # At the optimum of the free classes, free the class with the worst multiplier.
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
    """Minimise ||M p - q|| over the simplex for every row q of `counts`.

    There is one M for all rows, shape (1, K, C), or one for each, (S, K, C). Fills in
    `prevalence` with p and `converged` with whether the optimality conditions hold
    within `TOLERANCE`; rows with NaN are skipped.
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
    """Write p to `row`, projected onto the simplex to remove rounding errors."""
    mass = 0.0
    for i in range(p.shape[0]):
        p[i] = max(p[i], 0.0)
        mass += p[i]
    for i in range(p.shape[0]):
        row[i] = p[i] / mass


@njit(cache=True, nogil=True, error_model="numpy")
def _gap(gradient: Floats, p: Floats) -> float:
    """Upper bound on how much lower the objective can be than at p, on the simplex."""
    at_p = 0.0
    minimum = np.inf
    for i in range(p.shape[0]):
        at_p += gradient[i] * p[i]
        minimum = min(minimum, gradient[i])
    return at_p - minimum


@njit(cache=True, nogil=True, error_model="numpy")
def _newton_target(
    hessian: Floats, gradient: Floats, p: Floats, target: Floats
) -> float:
    """Minimise the model at p over the simplex, into `target`; return the slope to it.

    The slope is below 0. Fills in the lower triangle of `hessian` and adds its ridge.
    """
    n_classes = p.shape[0]
    trace = 0.0
    for i in range(n_classes):
        trace += hessian[i, i]
    linear = np.empty(n_classes)
    for i in range(n_classes):
        hessian[i, i] += CURVATURE * trace if trace > 0.0 else MIN_CURVATURE
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
    """Copy members' ratios to the first columns of a tile."""
    for k in range(filled):
        node = members[first + k]
        for y in range(block.shape[0]):
            block[y, k] = ratios[node, y]


@njit(cache=True, nogil=True, error_model="numpy")
def _mixture(block: Floats, filled: int, q: Floats, mixture: Floats) -> None:
    """Compute ``sum_y q(y) ratio(y)`` for every member in a tile."""
    weight = q[0]
    for k in range(filled):
        mixture[k] = weight * block[0, k]
    for y in range(1, block.shape[0]):
        weight = q[y]
        for k in range(filled):
            mixture[k] += weight * block[y, k]


@njit(cache=True, nogil=True, error_model="numpy")
def _minus_log(mixture: Floats, filled: int) -> float:
    """Sum of ``-log`` of the mixture, infinite where a member has likelihood 0.

    One logarithm is enough for eight members, unless their product may overflow.
    """
    total = 0.0
    for begin in range(0, filled, 8):
        end = min(begin + 8, filled)
        product = 1.0
        for k in range(begin, end):
            product *= mixture[k]
        if MIN_PRODUCT < product < 1.0 / MIN_PRODUCT:
            total -= np.log(product)
            continue
        for k in range(begin, end):
            if not mixture[k] > 0.0:
                return np.inf
            total -= np.log(mixture[k])
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _product(a: Floats, b: Floats, size: int) -> float:
    """Inner product in eight running sums, which vectorise without reordering."""
    s = t = u = v = w = x = y = z = 0.0
    unrolled = size - size % 8
    for k in range(0, unrolled, 8):
        s += a[k] * b[k]
        t += a[k + 1] * b[k + 1]
        u += a[k + 2] * b[k + 2]
        v += a[k + 3] * b[k + 3]
        w += a[k + 4] * b[k + 4]
        x += a[k + 5] * b[k + 5]
        y += a[k + 6] * b[k + 6]
        z += a[k + 7] * b[k + 7]
    for k in range(unrolled, size):
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
    """Maximise each community's mean of ``log sum_y q(y) ratio(y)`` over q.

    `ratios` (n, C) are every node's class densities, up to one factor per node; each
    row has an entry above 0. The search stops once no q has a mean log-likelihood
    higher by more than the tolerance. Communities without members keep their values;
    where several q are equally likely (classes with equal ratios) the result is any of
    them.
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
        one_tile = size <= tile
        if one_tile:
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
                if not one_tile:
                    _gather(members, begin, filled, ratios, block)
                # With one tile, the last step has already computed its mixture.
                if not one_tile or steps == 0:
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
            while length > MIN_STEP:
                for y in range(n_classes):
                    tried[y] = q[y] + length * (target[y] - q[y])
                total = 0.0
                for begin in range(first, last, tile):
                    filled = min(tile, last - begin)
                    if not one_tile:
                        _gather(members, begin, filled, ratios, block)
                    _mixture(block, filled, tried, mixture)
                    total += _minus_log(mixture, filled)
                if total / size <= cost + 0.1 * length * slope + NOISE:
                    break
                length *= 0.5
            if length <= MIN_STEP:
                break
            q[:] = tried
            cost = total / size
            steps += 1
        _write(q, prevalence[s])
        iterations[s] = steps
        converged[s] = done


@njit(cache=True, nogil=True, error_model="numpy")
def _topsoe(sample: Floats, shares: Floats, p: Floats, mixture: Floats) -> float:
    """Topsoe distance between a sample and ``p' shares``; fills in `mixture`."""
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
def _max_length(
    sample: Floats, shares: Floats, mixture: Floats, target: Floats
) -> float:
    """Longest step, up to 1, that keeps a tenth of the mixture in each sample cell.

    The distance has a logarithmic singularity where the mixture of such a cell becomes
    0: the quadratic model does not hold near it.
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
    """Minimise the Topsoe distance between each sample and ``p' shares`` over p.

    The distance is ``sum s log(2 s / (s + m)) + m log(2 m / (s + m))``, m = p' shares,
    which is convex in p. The search stops once no p has a distance lower by more than
    the tolerance. Samples and shares sum to 1; samples of zeros are skipped.
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
            length = _max_length(sample, shares, mixture, target)
            while length > MIN_STEP:
                for i in range(n_classes):
                    tried[i] = p[i] + length * (target[i] - p[i])
                value = _topsoe(sample, shares, tried, mixture)
                if value <= cost + 0.1 * length * slope + NOISE:
                    break
                length *= 0.5
            if length <= MIN_STEP:
                break
            p[:] = tried
            cost = value
            steps += 1
        _write(p, prevalence[s])
        iterations[s] = steps
        converged[s] = done
