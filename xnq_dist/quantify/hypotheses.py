"""What may have happened to a community's posteriors: hypotheses and their weights.

A posterior that is right on the whole graph can be wrong inside a community. Each
hypothesis says how, for one class against the rest: the logit l of a member becomes
``slope l + u`` where u is the community's own intercept, drawn around a shift that
SLD would find (times `strength`), with standard deviation `spread`.

The weights of the hypotheses are learnt from the labelled members of all communities
(a mixing distribution by EM, as in nonparametric empirical Bayes), with a prior that
stands for little more than nothing. So it is the labels, not the user, that decide
between "SLD is right" and "the mean posterior is right", and how far a community may
be from either.

References
----------
N. Laird, "Nonparametric maximum likelihood estimation of a mixing distribution",
JASA 73, 1978.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "HYPOTHESES",
    "OWN_RESOLUTION",
    "PSEUDO",
    "Hypothesis",
    "learn_by_class",
    "learn_weights",
    "lie_outside",
    "prior_weights",
]

LOGISTIC_NORMAL = 0.346
"""(16 sqrt(3) / (15 pi))^2: the slope ``sqrt(1 + .346 s^2)`` makes the mean of
``sigmoid(slope l + u)``, u ~ N(0, s^2), equal to ``sigmoid(l)`` but for .01."""

SHARPNESS = (1.0, 2.0, 4.0)
SPREADS = (0.2, 0.5, 1.0, 2.0)
SHIFTS = ((0.0, 0.0), (1.0, 0.5), (1.0, 1.0), (20.0, 1.0))
"""Pseudo-nodes at the prior that hold SLD back, and the share of its shift taken."""
PSEUDO = (1.0, 20.0)
"""The numbers of pseudo-nodes that occur, but for no shift at all."""
NO_SHIFT = 0.5
"""Prior weight of all hypotheses without a shift."""
STRENGTH = 0.5
"""Communities that the prior weights stand for."""
EM_STEPS = 200
OWN_RESOLUTION = 3.0
"""Of the graph's own Leiden communities, where they are learnt from."""


@dataclass(frozen=True)
class Hypothesis:
    """One way in which a community's logits may be off."""

    sharpness: float
    """Factor on the logits; 1: as calibrated."""
    pseudo: float
    """Pseudo-nodes at the prior in the SLD whose shift is taken; 0: no shift."""
    strength: float
    """Share of that shift that is taken."""
    spread: float
    """Standard deviation of the community's own intercept."""

    @property
    def widening(self) -> float:
        """Factor that undoes what averaging over the intercept flattens."""
        return float(np.sqrt(1 + LOGISTIC_NORMAL * self.spread**2))

    @property
    def slope(self) -> float:
        """Factor on the logits, given the intercept."""
        return self.sharpness * self.widening


HYPOTHESES: tuple[Hypothesis, ...] = tuple(
    Hypothesis(sharpness, pseudo, strength, spread)
    for sharpness, (pseudo, strength), spread in product(SHARPNESS, SHIFTS, SPREADS)
)
"""All of them; H in what follows."""


def prior_weights() -> NDArray[np.float64]:
    """Weights before any label is seen, shape (H,)."""
    still = np.array([hypothesis.strength == 0 for hypothesis in HYPOTHESES])
    moved = (1 - NO_SHIFT) / np.count_nonzero(~still)
    return np.asarray(np.where(still, NO_SHIFT / np.count_nonzero(still), moved))


def lie_outside(labels: NDArray[np.integer], multiplicity: NDArray[np.integer]) -> bool:
    """Whether most labels are in no community asked for.

    Then the graph's own communities are learnt from, too.

    Parameters
    ----------
    labels
        Class codes, -1 without a label, shape (N,).
    multiplicity
        Communities that each node is in, shape (N,).
    """
    known = labels >= 0
    inside = np.count_nonzero(known & (multiplicity > 0))
    return bool(2 * inside < np.count_nonzero(known))


def learn_by_class(
    evidence: Sequence[NDArray[np.float64]], shares: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """`learn_weights` of every class, from pieces of the communities.

    Parameters
    ----------
    evidence, shares
        Pieces of shape (n, K, H) and (n,), in the order of the communities.

    Returns
    -------
    NDArray
        Shape (K, H).
    """
    joined, weighed = np.concatenate(evidence), np.concatenate(shares)
    return np.stack(
        [learn_weights(joined[:, k], weighed) for k in range(joined.shape[1])]
    )


def learn_weights(
    evidence: NDArray[np.float64], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weights that make the labelled members of all communities most likely.

    Parameters
    ----------
    evidence
        Log-probability of each community's labelled members under each hypothesis,
        shape (S, H).
    shares
        How much each community counts, shape (S,): a label that is in many communities
        counts once in all.

    Returns
    -------
    NDArray
        Shape (H,), summing to 1; the prior weights where S is 0.
    """
    prior = prior_weights()
    if not len(evidence):
        return prior
    likelihood = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    weights = prior.copy()
    _em(likelihood, shares.astype(np.float64), prior, weights)
    return np.asarray(weights / weights.sum())


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _em(
    likelihood: NDArray[np.float64],
    shares: NDArray[np.float64],
    prior: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> None:
    """`EM_STEPS` of EM on the weights, in place; communities in their order."""
    number, width = likelihood.shape
    total = STRENGTH
    for s in range(number):
        total += shares[s]
    joint, summed = np.empty(width), np.empty(width)
    for _ in range(EM_STEPS):
        summed[:] = 0.0
        for s in range(number):
            whole = 0.0
            for h in range(width):
                joint[h] = likelihood[s, h] * weights[h]
                whole += joint[h]
            scale = shares[s] / whole
            for h in range(width):
                summed[h] += joint[h] * scale
        for h in range(width):
            weights[h] = (summed[h] + STRENGTH * prior[h]) / total
