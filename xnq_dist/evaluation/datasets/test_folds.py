"""Test folds and roles of labelled nodes, drawn as in the paper."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Ints32
from xnq_dist.core.errors import InputError

__all__ = ["PAPER_SEED", "ROLES", "make_folds"]

PAPER_SEED = 42
"""Seed that reproduces the paper's folds from the labels of its graphs."""

ROLES = ("train", "calibration", "validation", "test")
"""Roles of nodes in a fold; the code of a role is its index, -1 is no role."""
FOLDS = 5


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
