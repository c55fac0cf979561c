"""What the labels leave open of a calibration, as draws of its parameters.

A refit to every resample of the labelled rows would take resamples times rows; its
first order takes one pass. With s_i the score of a row and H the information, a
resample with weights w_i moves the fit by ``H^-1 sum_i (w_i - 1) s_i``: a sum over
rows, so normal, with the covariance ``sum_i u_i u_i'``, ``u_i = H^-1 s_i``, of which
the expectation over the row's class is taken. The prior that SLD divides by is counted
from the same rows, and its logarithm is drawn jointly: more labels of a class move it
and the calibration's offset alike, and their difference hardly.

References
----------
P. Huber, "The behavior of maximum likelihood estimates under nonstandard conditions",
Proceedings of the Berkeley Symposium, 1967 (such covariances).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Recalibrations", "draw_recalibrations"]

Floats = NDArray[np.float64]

PURPOSE = 640
"""Key of the random stream."""
OPEN = 2.0
"""Factor on the covariance: labels of neighbours are not independent, and the readout
was learnt from the same labels."""
FEW = 20.0
"""Labels of the rarest class by which the covariance doubles once more."""
INTERCEPT_PRIOR, SLOPE_PRIOR = 4.0, 0.25
"""Variances of an offset and of the slope before any label is seen."""
MOST = 2.0
"""Largest logarithm of a slope that is drawn."""
LEAST = 1e-12

CELLS = 1 << 22
"""Numbers worked on at a time."""


@dataclass(frozen=True, eq=False)
class Recalibrations:
    """Maps ``softmax(slope log p + offset)`` around the identity, G of them."""

    slopes: Floats
    """Shape (G,)."""
    offsets: Floats
    """Shape (G, C), the first column 0."""

    def apply(self, replicate: int, posteriors: Floats) -> Floats:
        """Posteriors (or, up to a factor a row, likelihood ratios), shape (n, C)."""
        logs = self.slopes[replicate] * np.log(np.maximum(posteriors, LEAST))
        logs += self.offsets[replicate]
        logs -= logs.max(axis=1, keepdims=True)
        found = np.exp(logs)
        return np.asarray(found / found.sum(axis=1, keepdims=True))


def draw_recalibrations(
    posteriors: Floats | None,
    labels: NDArray[np.integer] | None,
    n_classes: int,
    count: int,
    seed: int,
    with_prior: bool,
) -> Recalibrations:
    """Draws of the calibration, with or without the prior that it is divided by.

    Parameters
    ----------
    posteriors, labels
        Of labelled nodes that had no part in the readout, shapes (m, C) and (m,);
        None: there are none, and the calibration is taken as it is.
    count
        Draws, G. They come in pairs of opposite sign, and where there are enough of
        them their covariance is the one wanted, not one that chance made.
    with_prior
        Offsets less the logarithm of the drawn prior (relative to the given one).
    """
    if posteriors is None or labels is None or not len(labels):
        return Recalibrations(np.ones(count), np.zeros((count, n_classes)))
    covariance = _covariance(posteriors, labels, with_prior)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn = (_normal(count, n_classes, seed)[:, None, :] * root).sum(axis=2)
    offsets = np.zeros((count, n_classes))
    offsets[:, 1:] = drawn[:, 1:]
    return Recalibrations(np.exp(np.clip(drawn[:, 0], -MOST, MOST)), offsets)


def _covariance(
    posteriors: Floats, labels: NDArray[np.integer], with_prior: bool
) -> Floats:
    """Of the slope and of the C - 1 offsets, shape (C, C)."""
    rows, n_classes = posteriors.shape
    # Block by block: what follows has C^3 numbers a row.
    step = max(1, CELLS // n_classes**3)
    blocks = [slice(at, at + step) for at in range(0, rows, step)]
    information = np.diag([1 / SLOPE_PRIOR, *([1 / INTERCEPT_PRIOR] * (n_classes - 1))])
    for block in blocks:
        shares, design = _design(posteriors[block])
        information += _products(shares, design, design)
    inverse = np.linalg.inv(information)
    counts = np.maximum(np.bincount(labels, minlength=n_classes), 0.5)
    total = np.zeros((n_classes, n_classes))
    for block in blocks:
        shares, design = _design(posteriors[block])
        moves = (design[:, :, None, :] * inverse).sum(axis=3)
        if with_prior:
            for k in range(1, n_classes):
                moves[:, k, k] -= 1 / counts[k]
                moves[:, 0, k] += 1 / counts[0]
        total += _products(shares, moves, moves)
    few = 1 + FEW / max(float(counts.min()), 1.0)
    return np.asarray(total * OPEN * few)


def _design(posteriors: Floats) -> tuple[Floats, Floats]:
    """Shares, shape (m, C), and what each parameter adds to each class's logit.

    The latter less its mean over classes, shape (m, C, p).
    """
    rows, n_classes = posteriors.shape
    shares = posteriors / posteriors.sum(axis=1, keepdims=True)
    design = np.zeros((rows, n_classes, n_classes))
    design[:, :, 0] = np.log(np.maximum(shares, LEAST))
    for k in range(1, n_classes):
        design[:, k, k] = 1.0
    design -= (shares[:, :, None] * design).sum(axis=1, keepdims=True)
    return shares, design


def _products(shares: Floats, left: Floats, right: Floats) -> Floats:
    """``sum_i sum_y shares_iy left_iy right_iy'``; no BLAS, whose bits may vary."""
    size = left.shape[2]
    found = np.empty((size, size))
    for a in range(size):
        for b in range(size):
            found[a, b] = float((shares * left[:, :, a] * right[:, :, b]).sum())
    return found


def _normal(count: int, size: int, seed: int) -> Floats:
    """Normal draws in pairs of opposite sign, shape (count, size)."""
    key = np.random.SeedSequence(seed, spawn_key=(PURPOSE,))
    random = np.random.Generator(np.random.Philox(key))
    half = random.standard_normal((-(-count // 2), size))
    if len(half) > 2 * size:
        covariance = np.array(
            [
                [float((half[:, a] * half[:, b]).mean()) for b in range(size)]
                for a in range(size)
            ]
        )
        root = np.linalg.cholesky(covariance)
        half = np.asarray(np.linalg.solve(root, half.T).T, np.float64)
    return np.concatenate([half, -half])[:count]
