"""Samples of known prevalence: APP for two classes, UPP for more.

Members are drawn within each class with replacement, as QuaPy does since 0.1.9, so a
sample may hold a node more than once, and any prevalence can be had from any fold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import InputError
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.evaluation.methods.method_interface import ROLES
from xnq_dist.quantify.interface import Communities

__all__ = ["APP_GRID", "Samples", "draw_samples", "kraemer"]

APP_GRID = 21
"""Prevalences 0, .05, ..., 1 of the positive class."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Sample sets whose prevalences are known."""

    sets: Communities
    """Members are places among the rows that were drawn from; they may repeat."""
    prevalence: NDArray[np.float64]
    """As drawn, shape (S, C)."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Members of each sample, shape (S,)."""
        return np.diff(self.sets.offsets)


def kraemer(
    count: int, n_classes: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """Points drawn uniformly from the simplex, by gaps between sorted uniforms.

    The answer has shape (count, n_classes); its rows sum to 1.

    References
    ----------
    N. A. Smith, R. W. Tromble, "Sampling uniformly from the unit simplex", 2004.
    """
    cuts = np.sort(random.random((count, n_classes - 1)), axis=1)
    edges = np.concatenate([np.zeros((count, 1)), cuts, np.ones((count, 1))], axis=1)
    return np.diff(edges, axis=1)


def draw_samples(
    labels: NDArray[np.int32],
    n_classes: int,
    role: str,
    fold: int,
    seed: int,
    size: int = 500,
    repeats: int = 100,
    classes: tuple[str, ...] | None = None,
) -> Samples:
    """The samples of one fold; the same for every method and quantifier.

    Two classes: the artificial prevalence protocol, `repeats` samples for each of 21
    prevalences of class 1 (`APP_GRID`). More: `repeats` samples whose prevalences are
    uniform on the simplex (Kraemer).

    Parameters
    ----------
    labels
        Class codes of the rows to draw from, shape (n,).
    n_classes
        Number of classes, C.
    role, fold, seed
        Keys of the random stream.
    size
        Members of a sample.
    repeats
        Samples a prevalence (two classes), or in all (more).
    classes
        The classes' names by code, for messages.

    Raises
    ------
    InputError
        When a class has no row to draw.
    """
    pools = [np.flatnonzero(labels == code) for code in range(n_classes)]
    for code, pool in enumerate(pools):
        if not len(pool):
            name = code if classes is None else classes[code]
            raise InputError(
                f"fold {fold}: class {name!r} has no {role} node to draw samples "
                "from: use folds that hold every class in every role"
            )
    random = stream(seed, Purpose.SAMPLES, ROLES.index(role), fold)
    if n_classes == 2:
        positive = np.repeat(np.linspace(0.0, 1.0, APP_GRID), repeats)
        wanted = np.stack([1 - positive, positive], axis=1)
    else:
        wanted = kraemer(repeats, n_classes, random)
    counts = _whole_counts(wanted, size)
    members = np.empty((len(counts), size), np.int64)
    for sample, row in enumerate(counts):
        at = 0
        for pool, count in zip(pools, row.tolist(), strict=True):
            chosen = random.integers(0, len(pool), count)
            members[sample, at : at + count] = pool[chosen]
            at += count
    offsets = np.arange(len(counts) + 1, dtype=np.int64) * size
    return Samples(Communities(offsets, members.ravel()), counts / size)


def _whole_counts(wanted: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Members of each class: rounded down, the largest remainders rounded up."""
    exact = wanted * size
    counts = np.floor(exact + 1e-9).astype(np.int64)
    short = size - counts.sum(axis=1)
    order = np.argsort(-(exact - counts), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    counts += rank < short[:, None]
    return counts
