"""Folds of the labelled nodes: stratified, the same whatever holds the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xnq_dist.core.arrays import Ints, Ints32
from xnq_dist.core.errors import InputError
from xnq_dist.core.random_bits import Purpose, stream

__all__ = ["assign_folds", "check_counts"]


def check_counts(
    counts: Ints, least: int, names: Sequence[Any] | None = None, what: str = "labelled"
) -> None:
    """Refuse labels that leave a class with fewer than `least` nodes.

    The message names the first class at fault and what the counted nodes are.
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


def assign_folds(labels: Ints32, folds: int, seed: int) -> Ints32:
    """Fold of each labelled node, every class spread evenly over the folds.

    Members of a class are shuffled by a stream of their own and dealt in turn; one
    class goes on where the one before it stopped, so that the folds are of one size too
    (up to one node). There are no more than the
    rarest class has members, and at least 2; a class with a single node
    is an `InputError`.
    """
    codes, counts = np.unique(labels, return_counts=True)
    lone = codes[counts < 2]
    if len(lone):
        everywhere = np.full(int(codes[-1]) + 1, 2)
        everywhere[lone] = 1
        check_counts(everywhere, 2)
    made = max(2, min(folds, int(counts.min())))
    result = np.empty(len(labels), np.int32)
    dealt = 0
    for code, count in zip(codes, counts, strict=True):
        order = stream(seed, Purpose.LABELLED_FOLDS, int(code)).permutation(count)
        members = np.flatnonzero(labels == code)[order]
        result[members] = (dealt + np.arange(count)) % made
        dealt += int(count)
    return result
