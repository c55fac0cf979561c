"""Samples of known prevalence: APP for two classes, UPP for more.

Members are drawn within each class with replacement, as in QuaPy since 0.1.9. A sample
may contain a node more than once, so that every prevalence is possible in every fold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.evaluation.datasets.test_folds import ROLES
from xnq_dist.quantify.interface import Communities

__all__ = ["APP_GRID", "REPEATS", "SAMPLE_SIZE", "Samples", "draw_samples", "kraemer"]

APP_GRID = 21
"""Prevalences 0, .05, ..., 1 of the positive class."""
SAMPLE_SIZE = 500
"""Members of a sample, as in the paper."""
REPEATS = 100
"""Samples per prevalence (two classes) or in total (more), as in the paper."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of nodes whose prevalences are known."""

    sets: Communities
    """Members are indices into the rows that were drawn from, with repetitions."""
    prevalence: Floats
    """True prevalences, shape (S, C)."""


def kraemer(count: int, n_classes: int, random: np.random.Generator) -> Floats:
    """Draw points uniformly from the simplex: gaps between sorted uniform numbers.

    The result has shape (count, n_classes); its rows sum to 1.

    References
    ----------
    N. A. Smith, R. W. Tromble, "Sampling uniformly from the unit simplex", 2004.
    """
    cuts = np.sort(random.random((count, n_classes - 1)), axis=1)
    return np.diff(cuts, axis=1, prepend=0, append=1)


def draw_samples(
    labels: Ints32,
    n_classes: int,
    role: str,
    fold: int,
    seed: int,
    size: int,
    repeats: int,
) -> Samples:
    """Draw the samples of one fold, the same for every method and quantifier.

    For two classes this is the artificial prevalence protocol: `repeats` samples for
    each of 21 prevalences of class 1 (`APP_GRID`). For more classes, it draws `repeats`
    samples whose prevalences are uniform on the simplex (Kraemer).

    Parameters
    ----------
    labels
        Class codes of the rows to draw from, shape (n,); every class has one.
    n_classes
        Number of classes, C.
    role, fold, seed
        Keys of the random stream.
    size
        Number of members of a sample.
    repeats
        Number of samples per prevalence (two classes) or in total (more classes).
    """
    pools = [np.flatnonzero(labels == code) for code in range(n_classes)]
    random = stream(seed, Purpose.SAMPLES, ROLES.index(role), fold)
    if n_classes == 2:
        positive = np.repeat(np.linspace(0.0, 1.0, APP_GRID), repeats)
        prevalence = np.stack([1 - positive, positive], axis=1)
    else:
        prevalence = kraemer(repeats, n_classes, random)
    counts = _integer_counts(prevalence, size)
    members = [
        pool[random.integers(0, len(pool), count)]
        for row in counts.tolist()
        for pool, count in zip(pools, row, strict=True)
    ]
    offsets = np.arange(len(counts) + 1, dtype=np.int64) * size
    return Samples(Communities(offsets, np.concatenate(members)), counts / size)


def _integer_counts(prevalence: Floats, size: int) -> Ints:
    """Members of each class, rounded by the largest-remainder method, shape (S, C)."""
    exact = prevalence * size
    counts = np.floor(exact + 1e-9).astype(np.int64)
    missing = size - counts.sum(axis=1)
    order = np.argsort(-(exact - counts), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    counts += rank < missing[:, None]
    return counts
