"""The paper's protocol: test folds, and samples of known prevalence.

Samples are drawn by APP for two classes, by UPP for more. Members are drawn within each
class with replacement, as in QuaPy since 0.1.9. A sample may contain a node more than
once, so that every prevalence is possible in every fold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.errors import InputError
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.quantify.interface import Communities

__all__ = [
    "REPEATS",
    "ROLES",
    "SAMPLE_SIZE",
    "Samples",
    "draw_samples",
    "kraemer",
    "make_folds",
]

APP_GRID = 21
"""Prevalences 0, .05, ..., 1 of the positive class."""
SAMPLE_SIZE = 500
"""Members of a sample, as in the paper."""
REPEATS = 100
"""Samples per prevalence (two classes) or in total (more), as in the paper."""

PAPER_SEED = 42
"""Seed that reproduces the paper's folds from the labels of its graphs."""
ROLES = ("train", "calibration", "validation", "test")
"""Roles of nodes in a fold; the code of a role is its index, -1 is no role."""
FOLDS = 5
"""Number of test folds, as in the paper."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of nodes whose prevalences are known."""

    sets: Communities
    """Members are indices into the rows that were drawn from, with repetitions."""
    prevalence: Floats
    """True prevalences, shape (S, C)."""


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


def kraemer(count: int, n_classes: int, random: np.random.Generator) -> Floats:
    """Draw points uniformly from the simplex: gaps between sorted uniform numbers.

    The result has shape (count, n_classes); its rows sum to 1.

    References
    ----------
    N. A. Smith, R. W. Tromble, "Sampling uniformly from the unit simplex", 2004.
    """
    cuts = np.sort(random.random((count, n_classes - 1)), axis=1)
    return np.diff(cuts, axis=1, prepend=0, append=1)


def make_folds(labels: Ints32) -> NDArray[np.int8]:
    """Draw the role of every node in every fold.

    The labelled nodes are divided into disjoint test folds of equal size, stratified by
    class. Of the other nodes of a fold, 25 % are for validation, 12.5 % for calibration
    and the rest for training, also stratified. With five folds these are 50, 10, 20 and
    20 % of the labelled nodes for training, calibration, validation and test. The
    random numbers are scikit-learn's, with which the published folds were made.

    Parameters
    ----------
    labels
        Class code of every node, -1 if unlabelled, shape (N,); two classes or more,
        as the stage ``labels`` makes sure.

    Returns
    -------
    NDArray
        Shape (folds, N): train 0, calibration 1, validation 2, test 3, -1 none.

    Raises
    ------
    InputError
        When a class has fewer members than there are folds, or there are too few
        labelled nodes for every class to be in every role.
    """
    from sklearn.model_selection import StratifiedKFold, train_test_split

    rows = np.flatnonzero(labels >= 0)
    known = np.asarray(labels)[rows]
    counts = np.bincount(known)
    if counts.min() < FOLDS:
        raise InputError(
            f"class {counts.argmin()} has {counts.min()} labelled nodes, fewer than "
            f"the {FOLDS} folds: label more nodes of this class, or remove its labels"
        )
    total = len(known)
    validation, calibration = total // 5, total // 10
    if calibration < len(counts):
        raise InputError(
            f"{total} labelled nodes are too few for folds of {len(counts)} classes: "
            f"only {calibration} would be for calibration; label more nodes"
        )
    roles = np.full((FOLDS, len(labels)), -1, np.int8)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=PAPER_SEED)
    for fold, (development, test) in enumerate(folds.split(rows, known)):
        rest, held = train_test_split(
            development,
            test_size=validation,
            random_state=PAPER_SEED,
            stratify=known[development],
        )
        train, fitted = train_test_split(
            rest, test_size=calibration, random_state=PAPER_SEED, stratify=known[rest]
        )
        for code, chosen in enumerate((train, fitted, held, test)):
            roles[fold, rows[chosen]] = code
    return roles


def _integer_counts(prevalence: Floats, size: int) -> Ints:
    """Members of each class, rounded by the largest-remainder method, shape (S, C)."""
    exact = prevalence * size
    counts = np.floor(exact + 1e-9).astype(np.int64)
    missing = size - counts.sum(axis=1)
    order = np.argsort(-(exact - counts), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    counts += rank < missing[:, None]
    return counts
