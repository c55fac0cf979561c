"""Folds of the labelled nodes: stratified, independent of where the rows are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Ints, Ints32
from xnq_dist.core.errors import InputError
from xnq_dist.core.random_bits import Purpose, stream

__all__ = ["CALIBRATION", "assign_folds", "check_counts", "plan_folds"]

TRAIN, CALIBRATION = 0, 1
"""Codes of the roles, in the order of `graph.labels.ROLES`; -1 is none."""


def check_counts(
    counts: Ints, minimum: int, classes: Sequence[Any], what: str = "labelled"
) -> None:
    """Raise an `InputError` if a class has fewer than `minimum` nodes.

    The message has the first such class, and `what` as the kind of the counted nodes.
    """
    short = np.flatnonzero(counts < minimum)
    if not len(short):
        return
    code = short[0]
    has = "one" if counts[code] == 1 else "no"
    need = f"at least {'two' if minimum == 2 else 'one'} {what} node"
    raise InputError(
        f"class {classes[code]!r} has {has} {what} node: give every class {need}"
        f"{'s' if minimum == 2 else ''}, or remove its labels"
    )


def assign_folds(labels: Ints32, folds: int, seed: int) -> Ints32:
    """Assign labelled nodes to folds, every class evenly.

    Nodes of a class are shuffled by a random stream of their own and assigned in turn;
    one class continues where the last one stopped, so that folds have equal sizes, too
    (up to one node). There are at most as many folds as nodes of the rarest class, and
    at least 2.
    """
    codes, counts = np.unique(labels, return_counts=True)
    number = max(2, min(folds, counts.min()))
    result = np.empty(len(labels), np.int32)
    assigned = 0
    for code, count in zip(codes, counts, strict=True):
        order = stream(seed, Purpose.LABELLED_FOLDS, int(code)).permutation(count)
        members = np.flatnonzero(labels == code)[order]
        result[members] = (assigned + np.arange(count)) % number
        assigned += count
    return result


def plan_folds(
    labels: Ints32,
    roles: NDArray[np.int8] | None,
    classes: Sequence[Any],
    folds: int,
    seed: int,
) -> Ints32:
    """Fold of each row, -1 for rows that the readout is not fitted to, shape (n,).

    Roles are 0 train, 1 calibration, -1 none; None: cross-fit over all rows. A class
    with fewer than two rows is an `InputError`.
    """
    used = np.ones(len(labels), bool) if roles is None else roles == TRAIN
    what = "labelled" if roles is None else "training"
    counts = np.bincount(labels[used], minlength=len(classes))
    check_counts(counts, 2, classes, what)
    found = np.full(len(labels), -1, np.int32)
    found[used] = assign_folds(labels[used], folds, seed)
    return found
