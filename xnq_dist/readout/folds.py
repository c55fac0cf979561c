"""Folds of the labelled nodes: stratified, independent of where the rows are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Ints, Ints32
from xnq_dist.core.errors import InputError
from xnq_dist.core.random_bits import Purpose, stream
from xnq_dist.core.settings import ReadoutSettings
from xnq_dist.readout.logistic import GRID

__all__ = ["CALIBRATION", "FoldPlan", "assign_folds", "check_counts", "plan_folds"]

TRAIN, CALIBRATION = 0, 1
"""Codes of the roles, in the order of `graph.labels.ROLES`; -1 is none."""


def check_counts(
    counts: Ints,
    minimum: int,
    names: Sequence[Any] | None = None,
    what: str = "labelled",
) -> None:
    """Raise an `InputError` if a class has fewer than `minimum` nodes.

    The message has the first such class, and `what` as the kind of the counted nodes.
    """
    short = np.flatnonzero(counts < minimum)
    if not len(short):
        return
    code = int(short[0])
    name = code if names is None else names[code]
    has = "one" if counts[code] == 1 else "no"
    need = f"at least {'two' if minimum == 2 else 'one'} {what} node"
    raise InputError(
        f"class {name!r} has {has} {what} node: give every class {need}"
        f"{'s' if minimum == 2 else ''}, or remove its labels"
    )


def assign_folds(labels: Ints32, folds: int, seed: int) -> Ints32:
    """Assign labelled nodes to folds, every class evenly.

    Nodes of a class are shuffled by a random stream of their own and assigned in turn;
    one class continues where the last one stopped, so that folds have equal sizes, too
    (up to one node). There are at most as many folds as nodes of the rarest class, and
    at least 2; a class with a single node is an `InputError`.
    """
    codes, counts = np.unique(labels, return_counts=True)
    lone = codes[counts < 2]
    if len(lone):
        by_code = np.full(int(codes[-1]) + 1, 2)
        by_code[lone] = 1
        check_counts(by_code, 2)
    number = max(2, min(folds, int(counts.min())))
    result = np.empty(len(labels), np.int32)
    assigned = 0
    for code, count in zip(codes, counts, strict=True):
        order = stream(seed, Purpose.LABELLED_FOLDS, int(code)).permutation(count)
        members = np.flatnonzero(labels == code)[order]
        result[members] = (assigned + np.arange(count)) % number
        assigned += int(count)
    return result


@dataclass(frozen=True, eq=False)
class FoldPlan:
    """Folds of the rows, and the values of C to try."""

    folds: Ints32
    """Fold of each row, -1 for rows that the readout is not fitted to, shape (n,)."""
    count: int
    """Number of folds; 0: C is set and no folds are needed, all fitted rows are in
    fold 0."""
    grid: tuple[float, ...]
    """Ascending values of C."""


def plan_folds(
    labels: Ints32,
    roles: NDArray[np.int8] | None,
    n_classes: int,
    settings: ReadoutSettings,
    seed: int,
    names: Sequence[Any] | None = None,
) -> FoldPlan:
    """Plan the folds and the grid by the settings.

    Roles are 0 train, 1 calibration, -1 none; None: cross-fit over all rows. `names` of
    the classes are for messages. A class with too few rows is an `InputError`.
    """
    grid = GRID if settings.C == "select" else (settings.C,)
    used = np.ones(len(labels), bool) if roles is None else roles == TRAIN
    what = "labelled" if roles is None else "training"
    counts = np.bincount(labels[used], minlength=n_classes)
    needs_folds = settings.C == "select" or roles is None
    check_counts(counts, 2 if needs_folds else 1, names, what)
    folds = np.where(used, 0, -1).astype(np.int32)
    if not needs_folds:
        return FoldPlan(folds, 0, grid)
    folds[used] = assign_folds(labels[used], settings.folds, seed)
    return FoldPlan(folds, int(folds.max()) + 1, grid)
