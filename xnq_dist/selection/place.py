"""Selection by place: terms for a node's place in the graph, and tests for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from scipy.special import expit, gammaincc, ndtri

from xnq_dist.core.arrays import Bools, Floats, Ints32, offsets_of
from xnq_dist.selection.model import Terms, plain_terms
from xnq_dist.selection.scored_rows import ScoredRows

__all__ = ["degree_bins", "place_terms", "uneven"]


DEGREE_BINS = 20
DECILES = 10
MAX_GROUPS = 400
"""Maximum number of groups of a factor with effects, the largest ones: M1 inverts a
matrix with a row for each effect."""
MIN_NODES = 20
"""Minimum number of nodes of a group whose labels are compared with the expectation."""
SLOPES = 1.0
"""Prior precision of the effect of a standardised column."""
FIRST, MINIMUM = 0.25, 1e-4
"""Initial value and lower bound of the variance of groups' effects."""
ROUNDS = 40
CLOSE = 0.01
"""Relative change of the variances at which their search stops."""
TINY = 1e-300
"""Smallest tail probability; it is that of a standard normal value of 37."""


def degree_bins(degree: Floats, count: int) -> Ints32:
    """Bins of about equal size, nodes of the same degree together, shape (n,)."""
    ends = np.quantile(degree, np.arange(1, count) / count)
    return np.searchsorted(np.unique(ends), degree, side="left").astype(np.int32)


def place_terms(rows: ScoredRows) -> Terms:
    """Terms of M1, with the variances of groups' effects estimated at b = 0."""
    level = plain_terms(rows.folds)
    degree = _standardised(np.log1p(rows.degree)[:, None])
    dense = np.concatenate([level.dense, degree, _standardised(rows.rates)], axis=1)
    factors = [_largest(groups) for groups in rows.groups]
    factors.append(degree_bins(rows.degree, DEGREE_BINS))
    precision = np.full(dense.shape[1], SLOPES)
    precision[: len(level.precision)] = level.precision
    # A factor with a single group is no different from the level.
    several = tuple(_indicators(codes) for codes in factors if codes.max(initial=0) > 0)
    terms = Terms(dense, precision, several, (FIRST,) * len(several))
    return _with_spreads(terms, rows.labelled.astype(np.float64))


def _indicators(codes: Ints32) -> csr_array[Any]:
    """A column of zeros and ones for each group; a row of zeros for the code -1."""
    known = codes >= 0
    ends = offsets_of(known)
    shape = len(codes), codes.max() + 1
    return csr_array((np.ones(ends[-1]), codes[known], ends), shape=shape)


def _standardised(columns: Floats) -> Floats:
    spread = columns.std(axis=0)
    standard = (columns - columns.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0)
    return np.asarray(standard, np.float64)


def _largest(groups: Ints32) -> Ints32:
    """Codes of the largest groups by decreasing size; -1 for the others."""
    _, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
    largest = np.argsort(-counts, kind="stable")[:MAX_GROUPS]
    place = np.full(len(counts), -1, np.int32)
    place[largest] = np.arange(len(largest))
    return place[codes]


def _with_spreads(terms: Terms, labelled: Floats) -> Terms:
    """Estimate the factors' variances by type II maximum likelihood (Laplace).

    References
    ----------
    D. J. C. MacKay, "Bayesian interpolation", Neural Computation 4, 1992 (the update
    by the number of well determined effects).
    """
    if not terms.factors:
        return terms
    effects = terms.constant(labelled.mean())
    none = np.empty((len(labelled), 0))
    for _ in range(ROUNDS):
        for _ in range(2):
            share = expit(terms.values(effects))
            weights = share * (1 - share)
            precisions = terms.precisions()
            information = terms.information(none, weights)
            information[np.diag_indices(len(information))] += precisions
            factor = cho_factor(information)
            slopes = terms.slopes(labelled - share) - precisions * effects
            step = cho_solve(factor, slopes)
            effects = effects + np.clip(step, -2.0, 2.0)
        inverse = np.diag(cho_solve(factor, np.eye(len(information))))
        _, *groups = terms.split(effects)
        _, *variances = terms.split(inverse)
        spreads = []
        for spread, own, variance in zip(terms.spreads, groups, variances, strict=True):
            determined = len(own) - variance.sum() / spread
            power = (own**2).sum()
            spreads.append(max(power / max(determined, 1e-6), MINIMUM))
        change = max(
            abs(new - old) / old
            for new, old in zip(spreads, terms.spreads, strict=True)
        )
        terms = replace(terms, spreads=tuple(spreads))
        if change < CLOSE:
            break
    return terms


def uneven(codes: Ints32, labelled: Bools, rates: Floats) -> tuple[float, float]:
    """Compare the numbers of labels in the groups of a partition with expectations.

    `rates` are probabilities of a label without an effect of place.

    Returns
    -------
    The test statistic as a standard normal value, and the squared coefficient of
    variation of the rate of labelling, beyond chance.

    Notes
    -----
    With observed O, expected E and variance V of a group of at least `MIN_NODES` nodes,
    the sum of ``(O - E)^2 / V`` is compared with the Gamma distribution of its mean and
    variance, and ``cv2 = sum((O - E)^2 - V) / sum(E^2)``.
    """
    some = np.bincount(codes) >= MIN_NODES
    if np.count_nonzero(some) < 2:
        return 0.0, 0.0
    spread = rates * (1 - rates)
    observed, expected, variance, fourth = (
        np.bincount(codes, values)[some]
        for values in (labelled, rates, spread, spread * (1 - 6 * spread))
    )
    excess = (observed - expected) ** 2
    statistic = (excess / variance).sum()
    mean = float(len(variance))
    noise = (2 + fourth / variance**2).sum()
    tail = gammaincc(mean**2 / noise, statistic / (noise / mean))
    cv2 = (excess - variance).sum() / (expected**2).sum()
    return float(-ndtri(max(tail, TINY))), cv2
