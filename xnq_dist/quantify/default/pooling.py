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
from typing import NamedTuple

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32
from xnq_dist.core.kernel import copy_row, kernel
from xnq_dist.quantify.default.drawn import class_shifts
from xnq_dist.quantify.interface import Communities, NodeTable
from xnq_dist.selection.scored_rows import normalised

__all__ = [
    "PSEUDO",
    "SPREADS",
    "Pooled",
    "fit_weights",
    "label_evidence",
    "pooled_members",
]

SPREADS = np.array([0.02, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 4.0])
"""Standard deviations t_k of the parts around 0, and of those around SLD's shift."""
PSEUDO = np.pad(
    [[10.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.5, 0.5]],
    ((0, 0), (0, 2 * len(SPREADS) - 4)),
)
"""Communities that are added to each part, for estimates and for intervals, (2, 2 T).

The estimates' are on the smallest t around 0: the authors' program ashr puts a weight
of 10 there by default. On nine tasks 5 costs real kinds of communities more with few
labels (up to 1.17 times the error without pooling; 10: 1.14, 20: 1.07), and 20 helps
those drawn by class less (with 1.2 % labelled .67 times the error without pooling; 5:
.60, 10: .63).

Intervals assume less: few labels that agree with the posteriors are weak evidence that
communities do not differ. Of twelve choices with zeros to ten on the smallest t and
zeros to one on .1 to 1 (eight tasks, three draws), this one has the least shortfall of
coverage among those whose mean width is at most 1.1 times that with the estimates'
weights, whichever family of tasks is left out: majors and dorms are covered .936 (.893
with the estimates' weights), followers .945 (.931), attributes .959 (.946).
"""
NOISE = 0.01
"""Part of a labelled member's posterior that is spread over the classes: a single label
that its posterior excludes says more about this node than about its community. Of 0,
.01, .02 and .05, it was best on nine tasks, whichever family of tasks was left out."""
ROUNDS, TOLERANCE = 500, 1e-5
"""Maximum number of EM steps, and the change of the weights that stops them."""
NEWTON_STEPS, HALVINGS, SMALL_STEP = 50, 21, 1e-9
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


class _Known(NamedTuple):
    """Labelled members whose posterior is without their label."""

    rows: Floats
    """Posteriors, shape (m, C)."""
    labels: Ints32
    """Shape (m,)."""
    each: Floats
    """Weights of the labels, shape (m,)."""


def _known_members(batch: Communities, nodes: NodeTable) -> tuple[Ints, _Known]:
    """Members with a label, of all communities: offsets, shape (S + 1,), and rows."""
    sets = batch.only(nodes.out_of_fold & (nodes.labels >= 0))
    members = sets.members
    rows = normalised(nodes.posteriors[members], nodes.prior)
    rows = (1 - NOISE) * rows + NOISE / rows.shape[1]
    each = np.ones(len(members))
    w = nodes.reference.weights
    if w is not None:
        # Unequal weights: as many labels of a community as they are worth.
        each, of = w[np.searchsorted(nodes.reference.rows, members)], sets.community
        worth = np.bincount(of, each) / np.maximum(np.bincount(of, each**2), 1e-300)
        each *= worth[of]
    return sets.offsets, _Known(rows, nodes.labels[members], each)


def label_evidence(batch: Communities, nodes: NodeTable) -> Floats:
    """Log marginal likelihood of each part (Laplace), shape (S', 2 T).

    One row for each community with labelled members, in order; the likelihood is that
    of their classes. Parts around 0 are first. It is -inf for the parts around SLD's
    shift where posteriors have no skill. No row depends on the other communities.
    """
    offsets, known = _known_members(batch, nodes)
    middles = _middles(batch, nodes)
    found = np.full((len(batch), 2 * len(SPREADS)), -np.inf)
    _evidence(offsets, known, middles, found)
    return found[np.diff(offsets) > 0]


def _middles(batch: Communities, nodes: NodeTable) -> Floats:
    """Means m of the parts, shape (S, 1 or 2, C)."""
    none = np.zeros((len(batch), 1, nodes.posteriors.shape[1]))
    shifts = class_shifts(batch, nodes)
    return none if shifts is None else np.hstack([none, shifts[:, None]])


def fit_weights(evidence: Floats) -> Floats:
    """Weights w of the parts by EM, from the rows of `label_evidence`, (2, 2 T).

    The first are for estimates, the second for intervals (`PSEUDO`). Rows are added in
    their order.

    Examples
    --------
    >>> fit_weights(np.zeros((0, 16)))[:, :4].round(2).tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.5, 0.0, 0.25, 0.25]]
    """
    likelihood = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    weights = np.full(PSEUDO.shape, 1 / evidence.shape[1])
    every = len(evidence) + PSEUDO.sum(axis=1)
    _em(likelihood, PSEUDO, every, weights)
    return weights


def pooled_members(
    batch: Communities,
    nodes: NodeTable,
    weights: Floats,
    tilts: Floats | float = 1.0,
) -> Pooled:
    """Estimate the unlabelled members of every community by the mixture.

    `weights` are from `fit_weights`; posteriors of unlabelled members are multiplied by
    `tilts`, (C,), and normalised. No row depends on the other communities.

    Notes
    -----
    With the mode b_k of part k, the curvature H_k of its log-likelihood and prior, the
    weights v_k and u_k of the parts given the labels, from both rows of `weights`, and
    the sums ``m_k = sum p`` and ``G_k = sum (diag(p) - p p')`` over the unlabelled
    members at b_k,

        mean = sum_k v_k m_k,
        variance = sum_k u_k [diag(G_k + G_k H_k^-1 G_k) + (m_k - mean)^2].
    """
    offsets, known = _known_members(batch, nodes)
    n_classes = nodes.posteriors.shape[1]
    mean, variance = np.zeros((2, len(batch), n_classes))
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    middles = mean[:, None].copy()
    if weights[:, len(SPREADS) :].any():
        middles = _middles(batch, nodes)
    free = batch.only(nodes.unlabelled)
    _predict(
        *(offsets, known, middles, logs),
        *(free.offsets, free.members, nodes.posteriors, nodes.prior),
        *(np.full(n_classes, tilts), mean, variance),
    )
    mean[free.sizes == 0] = np.nan
    mean /= np.maximum(free.sizes, 1)[:, None]
    return Pooled(mean, variance, np.diff(offsets))


@kernel
def _em(likelihood: Floats, added: Floats, every: Floats, weights: Floats) -> None:
    """EM for both rows of weights of a mixture, in place; `every` has their totals.

    Rows of the likelihood are added in their order, and read once for both.
    """
    size, parts = likelihood.shape
    share, totals = np.empty(parts), np.empty(weights.shape)
    for _ in range(ROUNDS):
        for way in range(len(weights)):
            copy_row(added[way], totals[way])
        for s in range(size):
            for way in range(len(weights)):
                row = 0.0
                for k in range(parts):
                    share[k] = likelihood[s, k] * weights[way, k]
                    row += share[k]
                scale = 1.0 / row
                for k in range(parts):
                    totals[way, k] += share[k] * scale
        change = 0.0
        for way in range(len(weights)):
            for k in range(parts):
                new = totals[way, k] / every[way]
                change = max(change, abs(new - weights[way, k]))
                weights[way, k] = new
        if change < TOLERANCE:
            return


@kernel
def _shift(row: Floats, factors: Floats, p: Floats) -> float:
    """Posteriors times factors, normalised into `p`; return their sum before."""
    total = 0.0
    for y in range(len(p)):
        p[y] = row[y] * factors[y]
        total += p[y]
    for y in range(len(p)):
        p[y] /= total
    return total


@kernel
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


@kernel
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


@kernel
def _newton(
    known: _Known,
    ridge: float,
    middle: Floats,
    b: Floats,
    step: Floats,
    factor: Floats,
    work: Floats,
) -> float:
    """Log-likelihood of the labels at the intercepts b, plus their log prior.

    `step` becomes the Newton step from b, `factor` the Cholesky factor of the curvature
    there.
    """
    n_classes, factors, p = len(b), work[0], work[1]
    value = 0.0
    for y in range(n_classes):
        factors[y], away = np.exp(b[y]), b[y] - middle[y]
        value -= 0.5 * ridge * away**2
        step[y] = -ridge * away
        for z in range(y + 1):
            factor[y, z] = ridge if y == z else 0.0
    for i in range(len(known.labels)):
        label, each = known.labels[i], known.each[i]
        _shift(known.rows[i], factors, p)
        value += each * np.log(p[label])
        step[label] += each
        for y in range(n_classes):
            step[y] -= each * p[y]
            factor[y, y] += each * p[y]
            for z in range(y + 1):
                factor[y, z] -= each * p[y] * p[z]
    _factorise(factor)
    _solve(factor, step)
    return value


@kernel
def _climb(
    known: _Known, spread: float, middle: Floats, b: Floats, factor: Floats
) -> float:
    """Find the mode of the intercepts from `b`, in place; return the log marginal.

    `factor` becomes the Cholesky factor of the curvature at the mode.
    """
    ridge, work = 2.0 / (spread * spread), np.empty((5, len(b)))
    step, following, new = work[2], work[3], work[4]
    value = _newton(known, ridge, middle, b, step, factor, work)
    for _ in range(NEWTON_STEPS):
        if np.abs(step).max() < SMALL_STEP:
            break
        for _ in range(HALVINGS):
            np.add(b, step, new)
            moved = _newton(known, ridge, middle, new, following, factor, work)
            # Close to the mode, rounding may hide the gain.
            if moved >= value - 1e-10 * (1.0 + abs(value)):
                break
            step /= 2.0
        copy_row(new, b)
        value, step, following = moved, following, step
    logs = 2.0 * np.log(np.diag(factor)) - np.log(ridge)
    return float(value - 0.5 * logs.sum())


@kernel
def _modes(
    offsets: Ints, known: _Known, s: int, middles: Floats, found: Floats
) -> tuple[Floats, Floats]:
    """Each part's mode and factor of the curvature there, log marginals in `found`.

    They are of community s; the shapes are (2 T, C), (2 T, C, C) and (2 T,).
    """
    own = slice(offsets[s], offsets[s + 1])
    members = _Known(known.rows[own], known.labels[own], known.each[own])
    parts, n_classes = middles.shape[1] * len(SPREADS), middles.shape[2]
    modes = np.empty((parts, n_classes))
    factors = np.empty((parts, n_classes, n_classes))
    for k in range(parts):
        middle, at = middles[s, k // len(SPREADS)], k % len(SPREADS)
        # From the smallest spread on, each mode is close to the one before.
        copy_row(middle if at == 0 else modes[k - 1], modes[k])
        found[k] = _climb(members, SPREADS[at], middle, modes[k], factors[k])
    return modes, factors


@kernel
def _evidence(offsets: Ints, known: _Known, middles: Floats, found: Floats) -> None:
    """Fill in the rows of `label_evidence`."""
    for s in range(len(offsets) - 1):
        if offsets[s] < offsets[s + 1]:
            _modes(offsets, known, s, middles, found[s])


@kernel
def _predict(
    offsets: Ints,
    known: _Known,
    middles: Floats,
    logs: Floats,
    of_members: Ints,
    members: Ints,
    posteriors: Floats32,
    prior: Floats,
    tilts: Floats,
    mean: Floats,
    variance: Floats,
) -> None:
    """Fill in the sums of `pooled_members`; `mean` becomes the sum of p."""
    for s in range(len(offsets) - 1):
        found = np.full(logs.shape[1], -np.inf)
        modes, factors = _modes(offsets, known, s, middles, found)
        shares = np.empty(logs.shape)
        for way in range(2):
            share = np.exp(found + logs[way] - (found + logs[way]).max())
            copy_row(share / share.sum(), shares[way])
        sums = np.zeros(modes.shape)
        inside = members[of_members[s] : of_members[s + 1]]
        parts = np.flatnonzero(shares[0] + shares[1] >= NEGLIGIBLE)
        for k in parts:
            moved = np.exp(modes[k]) * tilts
            products = _member_sums(inside, posteriors, prior, moved, sums[k])
            for y in range(len(products)):
                mean[s, y] += shares[0, k] * sums[k, y]
                step = products[y].copy()
                _solve(factors[k], step)
                part = products[y, y]
                for z in range(len(step)):
                    part += products[y, z] * step[z]
                variance[s, y] += shares[1, k] * part
        for k in parts:
            for y in range(len(tilts)):
                variance[s, y] += shares[1, k] * (sums[k, y] - mean[s, y]) ** 2


@kernel
def _member_sums(
    members: Ints, posteriors: Floats32, prior: Floats, factors: Floats, sums: Floats
) -> Floats:
    """Sums of ``diag(p) - p p'`` over members of a community.

    Those of p are added to `sums`.
    """
    n_classes = len(factors)
    p = np.empty(n_classes)
    products = np.zeros((n_classes, n_classes))
    for v in members:
        if not _shift(posteriors[v], factors, p) > 0.0:
            _shift(prior, factors, p)
        for y in range(n_classes):
            sums[y] += p[y]
            for z in range(n_classes):
                products[y, z] -= p[y] * p[z]
    for y in range(n_classes):
        products[y, y] += sums[y]
    return products
