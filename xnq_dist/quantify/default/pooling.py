"""Two-part pooling: a community's own labels move the posteriors of its members.

Community c shifts the logits of its members' posteriors f by a random intercept b_c,

    p_i = softmax(log f_i + b_c),    b_c ~ sum_k w_k N(m_ck, t_k^2 / 2 I),

so that the log-odds of two classes shift by N(m, t_k^2): one free intercept for every
class but the last, whatever the order of the classes. Half of the parts have m = 0. The
others have the shift of a sample drawn by class, which its unlabelled members show
(`drawn.class_shifts`, SLD). The weights w of the parts are learnt from all communities
that have labelled members (`fit_weights`), as in adaptive shrinkage: where communities
do not differ by class beyond their posteriors, all weight is on m = 0 and the smallest
t, and the estimate is the mean posterior.

References
----------
M. Stephens, "False discovery rates: a new deal", Biostatistics 18, 2017 (adaptive
shrinkage).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.quantify.default.drawn import class_shifts
from xnq_dist.quantify.interface import Communities, NodeTable, Reference
from xnq_dist.selection.scored_rows import normalised

__all__ = ["SPREADS", "Pooled", "fit_weights", "label_evidence", "pooled_members"]

SPREADS = np.array([0.02, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 4.0])
"""Standard deviations t_k of the parts around 0, and of those around SLD's shift."""
PSEUDO = 10.0
"""Communities that are added to the smallest t around 0; the authors' program ashr puts
a weight of 10 there by default. On nine tasks 5 costs real kinds of communities more
with few labels (up to 1.17 times the error without pooling; 10: 1.14, 20: 1.07), and 20
helps those drawn by class less (with 1.2 % labelled .67 times the error without
pooling; 5: .60, 10: .63)."""
NOISE = 0.01
"""Part of a labelled member's posterior that is spread over the classes: a single label
that its posterior excludes says more about this node than about its community. Of 0,
.01, .02 and .05, it was best on nine tasks, whichever family of tasks was left out."""
ROUNDS, TOLERANCE = 500, 1e-5
"""Maximum number of EM steps, and the change of the weights that stops them."""
NEWTON_STEPS, SMALL_STEP = 50, 1e-9
NEGLIGIBLE = 1e-9
"""Weight below which a part of a community's mixture is left out."""


@dataclass(frozen=True, eq=False)
class Pooled:
    """Sums over the unlabelled members of S communities, as the mixture has them."""

    mean: Floats
    """Mean of p, shape (S, C); NaN without an unlabelled member."""
    variance: Floats
    """Variance of the sum: of the members' classes given p, of the intercepts given the
    labels, and between the parts, shape (S, C)."""
    known: Ints
    """Labelled members that the intercepts rest on, shape (S,)."""


@dataclass(frozen=True, eq=False)
class _Known:
    """Labelled members of S communities whose posterior is without their label."""

    offsets: Ints
    """Community s has the rows ``offsets[s] : offsets[s + 1]``, shape (S + 1,)."""
    rows: Floats
    """Posteriors, shape (m, C)."""
    labels: Ints32
    """Shape (m,)."""
    each: Floats
    """Weights of the labels, shape (m,)."""

    @classmethod
    def of(cls, batch: Communities, nodes: NodeTable, reference: Reference) -> _Known:
        used = nodes.out_of_fold & (nodes.labels >= 0)
        inside = used[batch.members]
        before = np.concatenate([[0], np.cumsum(inside)])
        members = batch.members[inside]
        rows = normalised(nodes.posteriors[members], reference.prior)
        rows = (1 - NOISE) * rows + NOISE / rows.shape[1]
        each = np.ones(len(members))
        if reference.weights is not None and reference.rows is not None:
            w = reference.weights
            # Unequal weights: as many labels as they are worth.
            of_rows = w * (w.sum() / (w**2).sum())
            each = of_rows[np.searchsorted(reference.rows, members)]
        offsets = before[batch.offsets].astype(np.int64)
        return cls(offsets, rows, nodes.labels[members], each)


def label_evidence(
    batch: Communities, nodes: NodeTable, reference: Reference
) -> Floats:
    """Log marginal likelihood of each part (Laplace), shape (S, 2 T).

    Parts around 0 are first. The likelihood is that of the labelled members' classes; a
    community without any has zeros. It is -inf for the parts around SLD's shift where
    posteriors have no skill. No row depends on the other communities.
    """
    known = _Known.of(batch, nodes, reference)
    middles = _middles(batch, nodes, reference)
    found = np.zeros((len(batch), 2 * len(SPREADS)))
    if len(middles) == 1:
        found[np.diff(known.offsets) > 0, len(SPREADS) :] = -np.inf
    of_known = known.offsets, known.rows, known.labels, known.each
    _evidence(*of_known, SPREADS, middles, found)
    return found


def _middles(batch: Communities, nodes: NodeTable, reference: Reference) -> Floats:
    """Means m of the parts, shape (1 or 2, S, C)."""
    none = np.zeros((len(batch), nodes.posteriors.shape[1]))
    shifts = class_shifts(batch, nodes, reference)
    return none[None] if shifts is None else np.stack([none, shifts])


def fit_weights(evidence: Floats) -> Floats:
    """Weights w of the parts by EM, from the rows of communities with labels, (2 T,).

    Rows of zeros are left out. Rows are added in their order.

    Examples
    --------
    >>> fit_weights(np.zeros((0, 16))).nonzero()
    (array([0]),)
    """
    rows = evidence[(evidence != 0).any(axis=1)]
    likelihood = np.exp(rows - rows.max(axis=1, keepdims=True))
    weights = np.full(evidence.shape[1], 1 / evidence.shape[1])
    if not len(rows):
        weights[:] = 0
        weights[0] = 1
        return weights
    _em(likelihood, weights, PSEUDO, ROUNDS, TOLERANCE)
    return weights


def pooled_members(
    batch: Communities,
    nodes: NodeTable,
    reference: Reference,
    weights: Floats,
    tilts: Floats | None = None,
) -> Pooled:
    """Estimate the unlabelled members of every community by the mixture.

    `weights` are from `fit_weights`; posteriors of unlabelled members are multiplied by
    `tilts`, (C,), and normalised. No row depends on the other communities.

    Notes
    -----
    With the mode b_k of part k, the curvature H_k of its log-likelihood and prior, the
    weights v_k of the parts given the labels, and the sums ``m_k = sum p`` and
    ``G_k = sum (diag(p) - p p')`` over the unlabelled members at b_k,

        mean = sum_k v_k m_k,
        variance = sum_k v_k [diag(G_k + G_k H_k^-1 G_k) + (m_k - mean)^2].
    """
    known = _Known.of(batch, nodes, reference)
    n_classes = nodes.posteriors.shape[1]
    tilts = np.ones(n_classes) if tilts is None else tilts
    mean, variance = np.zeros((2, len(batch), n_classes))
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    middles = np.zeros((1, *mean.shape))
    if weights[len(SPREADS) :].any():
        middles = _middles(batch, nodes, reference)
    _predict(
        *(known.offsets, known.rows, known.labels, known.each, SPREADS, middles, logs),
        *(batch.offsets, batch.members, nodes.unlabelled, nodes.posteriors),
        *(reference.prior, tilts, mean, variance),
    )
    number = np.bincount(
        np.repeat(np.arange(len(batch)), np.diff(batch.offsets)),
        nodes.unlabelled[batch.members],
        len(batch),
    )
    mean[number == 0] = np.nan
    mean /= np.maximum(number, 1)[:, None]
    return Pooled(mean, variance, np.diff(known.offsets))


@njit(cache=True, nogil=True, error_model="numpy")
def _em(
    likelihood: Floats, weights: Floats, pseudo: float, rounds: int, tolerance: float
) -> None:
    """EM for the weights of a mixture, in place; rows are added in their order."""
    size, parts = likelihood.shape
    share, total = np.empty(parts), np.empty(parts)
    for _ in range(rounds):
        total[:] = 0.0
        total[0] = pseudo
        for s in range(size):
            row = 0.0
            for k in range(parts):
                share[k] = likelihood[s, k] * weights[k]
                row += share[k]
            for k in range(parts):
                total[k] += share[k] / row
        change = 0.0
        for k in range(parts):
            new = total[k] / (size + pseudo)
            change = max(change, abs(new - weights[k]))
            weights[k] = new
        if change < tolerance:
            return


@njit(cache=True, nogil=True, error_model="numpy")
def _shift(row: Floats, factors: Floats, p: Floats) -> float:
    """Posteriors times factors, normalised into `p`; return their sum before."""
    total = 0.0
    for y in range(len(p)):
        p[y] = row[y] * factors[y]
        total += p[y]
    for y in range(len(p)):
        p[y] /= total
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _solve(factor: Floats, x: Floats) -> None:
    """Solve ``L L' x = x`` in place, L the lower triangle."""
    n = len(x)
    for i in range(n):
        for j in range(i):
            x[i] -= factor[i, j] * x[j]
        x[i] /= factor[i, i]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            x[i] -= factor[j, i] * x[j]
        x[i] /= factor[i, i]


@njit(cache=True, nogil=True, error_model="numpy")
def _factorise(curvature: Floats) -> None:
    """Cholesky factor of a symmetric matrix, into its lower triangle."""
    n = len(curvature)
    for j in range(n):
        for i in range(j, n):
            value = curvature[i, j]
            for k in range(j):
                value -= curvature[i, k] * curvature[j, k]
            if i == j:
                curvature[j, j] = np.sqrt(value)
            else:
                curvature[i, j] = value / curvature[j, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _log_density(
    rows: Floats,
    labels: Ints32,
    each: Floats,
    middle: Floats,
    b: Floats,
    ridge: float,
    work: Floats,
) -> float:
    """Log-likelihood of the labels at the intercepts b, plus their log prior."""
    factors, p = work[0], work[1]
    value = 0.0
    for y in range(len(b)):
        factors[y] = np.exp(b[y])
        value -= 0.5 * ridge * (b[y] - middle[y]) ** 2
    for i in range(len(labels)):
        _shift(rows[i], factors, p)
        value += each[i] * np.log(p[labels[i]])
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def _climb(
    rows: Floats,
    labels: Ints32,
    each: Floats,
    spread: float,
    middle: Floats,
    b: Floats,
    factor: Floats,
    work: Floats,
) -> float:
    """Find the mode of the intercepts from `b`, in place; return the log marginal.

    `factor` becomes the Cholesky factor of the curvature at the mode.
    """
    n_classes, ridge = len(b), 2.0 / (spread * spread)
    value = _log_density(rows, labels, each, middle, b, ridge, work)
    factors, p, step, new = work[0], work[1], work[2], work[3]
    for _ in range(NEWTON_STEPS):
        for y in range(n_classes):
            factors[y] = np.exp(b[y])
            step[y] = -ridge * (b[y] - middle[y])
            for z in range(n_classes):
                factor[y, z] = ridge if y == z else 0.0
        for i in range(len(labels)):
            _shift(rows[i], factors, p)
            step[labels[i]] += each[i]
            for y in range(n_classes):
                step[y] -= each[i] * p[y]
                factor[y, y] += each[i] * p[y]
                for z in range(y + 1):
                    factor[y, z] -= each[i] * p[y] * p[z]
        _factorise(factor)
        _solve(factor, step)
        largest = 0.0
        for y in range(n_classes):
            largest = max(largest, abs(step[y]))
        if largest < SMALL_STEP:
            break
        scale = 1.0
        while True:
            for y in range(n_classes):
                new[y] = b[y] + scale * step[y]
            moved = _log_density(rows, labels, each, middle, new, ridge, work)
            # Close to the mode, rounding may hide the gain.
            if moved >= value - 1e-10 * (1.0 + abs(value)) or scale < 1e-6:
                break
            scale /= 2.0
        value = moved
        for y in range(n_classes):
            b[y] = new[y]
    logs = 0.0
    for y in range(n_classes):
        logs += 2.0 * np.log(factor[y, y]) - np.log(ridge)
    return value - 0.5 * logs


@njit(cache=True, nogil=True, error_model="numpy")
def _evidence(
    offsets: Ints,
    rows: Floats,
    labels: Ints32,
    each: Floats,
    spreads: Floats,
    middles: Floats,
    found: Floats,
) -> None:
    """Fill in `label_evidence`."""
    n_classes, parts = rows.shape[1], len(spreads)
    b, work = np.zeros(n_classes), np.zeros((4, n_classes))
    factor = np.zeros((n_classes, n_classes))
    for s in range(len(offsets) - 1):
        own = slice(offsets[s], offsets[s + 1])
        if offsets[s] == offsets[s + 1]:
            continue
        for k in range(len(middles) * parts):
            middle, spread = middles[k // parts, s], spreads[k % parts]
            # From the smallest spread on, each mode is close to the one before.
            if k % parts == 0:
                b[:] = middle
            found[s, k] = _climb(
                rows[own], labels[own], each[own], spread, middle, b, factor, work
            )


@njit(cache=True, nogil=True, error_model="numpy")
def _predict(
    offsets: Ints,
    rows: Floats,
    labels: Ints32,
    each: Floats,
    spreads: Floats,
    middles: Floats,
    logs: Floats,
    of_members: Ints,
    members: Ints,
    unlabelled: Bools,
    posteriors: Floats32,
    prior: Floats,
    tilts: Floats,
    mean: Floats,
    variance: Floats,
) -> None:
    """Fill in the sums of `pooled_members`; `mean` becomes the sum of p."""
    n_classes, each_middle = rows.shape[1], len(spreads)
    parts = len(middles) * each_middle
    b, work = np.zeros(n_classes), np.zeros((4, n_classes))
    share, modes = np.zeros(parts), np.zeros((parts, n_classes))
    factor = np.zeros((parts, n_classes, n_classes))
    sums, own_sums = np.zeros((parts, n_classes)), np.zeros((n_classes, n_classes))
    for s in range(len(offsets) - 1):
        own = slice(offsets[s], offsets[s + 1])
        top = -np.inf
        for k in range(parts):
            middle, spread = middles[k // each_middle, s], spreads[k % each_middle]
            if k % each_middle == 0:
                b[:] = middle
            share[k] = logs[k] + _climb(
                rows[own], labels[own], each[own], spread, middle, b, factor[k], work
            )
            modes[k] = b
            top = max(top, share[k])
        total = 0.0
        for k in range(parts):
            share[k] = np.exp(share[k] - top)
            total += share[k]
        for k in range(parts):
            share[k] /= total
            if share[k] < NEGLIGIBLE:
                continue
            inside = members[of_members[s] : of_members[s + 1]]
            _member_sums(
                *(inside, unlabelled, posteriors, prior, tilts, modes[k]),
                *(sums[k], own_sums, work),
            )
            for y in range(n_classes):
                mean[s, y] += share[k] * sums[k, y]
                step = work[2]
                step[:] = own_sums[y]
                _solve(factor[k], step)
                part = own_sums[y, y]
                for z in range(n_classes):
                    part += own_sums[y, z] * step[z]
                variance[s, y] += share[k] * part
        for k in range(parts):
            if share[k] >= NEGLIGIBLE:
                for y in range(n_classes):
                    variance[s, y] += share[k] * (sums[k, y] - mean[s, y]) ** 2


@njit(cache=True, nogil=True, error_model="numpy")
def _member_sums(
    members: Ints,
    unlabelled: Bools,
    posteriors: Floats32,
    prior: Floats,
    tilts: Floats,
    b: Floats,
    sums: Floats,
    products: Floats,
    work: Floats,
) -> None:
    """Sums of p, and of ``diag(p) - p p'``, over a community's unlabelled members."""
    factors, p = work[0], work[1]
    n_classes = len(b)
    sums[:] = 0.0
    products[:] = 0.0
    for y in range(n_classes):
        factors[y] = np.exp(b[y]) * tilts[y]
    for v in members:
        if not unlabelled[v]:
            continue
        if not _shift(posteriors[v], factors, p) > 0.0:
            _shift(prior, factors, p)
        for y in range(n_classes):
            sums[y] += p[y]
            for z in range(n_classes):
                products[y, z] -= p[y] * p[z]
    for y in range(n_classes):
        products[y, y] += sums[y]
