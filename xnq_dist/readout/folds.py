"""Folds of the labelled nodes: stratified, the same whatever holds the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import InputError

__all__ = ["assign_folds", "check_counts", "fold_count"]

FOLD_PURPOSE = 401
"""Key of the random stream that deals the folds."""


def check_counts(
    counts: NDArray[np.int64],
    least: int,
    names: Sequence[Any] | None = None,
    what: str = "labelled",
) -> None:
    """Refuse labels that leave a class without enough nodes.

    Parameters
    ----------
    counts
        Nodes of each class, shape (C,).
    least
        Fewest nodes that a class needs.
    names
        The classes' names by code; None: the codes.
    what
        What the counted nodes are, for the message.

    Raises
    ------
    InputError
        Naming the first class at fault, its nodes and how many it needs.
    """
    short = np.flatnonzero(counts < least)
    if not len(short):
        return
    code = int(short[0])
    name = code if names is None else names[code]
    has = "one" if counts[code] == 1 else "no"
    need = f"at least {'two' if least == 2 else 'one'} {what} node"
    raise InputError(
        f"class {name!r} has {has} {what} node: give every class {need}"
        f"{'s' if least == 2 else ''}, or take its labels out"
    )


def fold_count(counts: NDArray[np.int64], folds: int) -> int:
    """Folds that can be made: no more than the rarest class has members, at least 2.

    Parameters
    ----------
    counts
        Labelled nodes of each class, each at least 2, shape (C,).
    folds
        Folds wished for.
    """
    return max(2, min(folds, int(counts.min())))


def assign_folds(labels: NDArray[np.int32], folds: int, seed: int) -> NDArray[np.int32]:
    """Fold of each labelled node, every class spread evenly over the folds.

    Members of a class are shuffled by a stream of their own and dealt in turn; one
    class goes on where the one before it stopped, so that the folds are of one size
    too (up to one node).

    Parameters
    ----------
    labels
        Class codes in canonical order, shape (n,).
    folds
        Folds wished for; `fold_count` says how many there are.
    seed
        Seed of the run.

    Returns
    -------
    NDArray
        Fold numbers, int32, shape (n,).

    Raises
    ------
    InputError
        When a class that occurs has a single node.
    """
    codes, counts = np.unique(labels, return_counts=True)
    lone = codes[counts < 2]
    if len(lone):
        everywhere = np.full(int(codes[-1]) + 1, 2)
        everywhere[lone] = 1
        check_counts(everywhere, 2)
    made = fold_count(counts, folds)
    result = np.empty(len(labels), np.int32)
    dealt = 0
    for code, count in zip(codes, counts, strict=True):
        key = np.random.SeedSequence(seed, spawn_key=(FOLD_PURPOSE, int(code)))
        order = np.random.Generator(np.random.Philox(key)).permutation(count)
        members = np.flatnonzero(labels == code)[order]
        result[members] = (dealt + np.arange(count)) % made
        dealt += int(count)
    return result
