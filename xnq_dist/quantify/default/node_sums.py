"""Sums over the unlabelled members of communities, from which `auto` estimates.

One pass over the members adds up posteriors f and weights ``w = f (1 - f)``, the latter
also by group of each of the graph's partitions. Members are added in order, so the sums
of a community have the same bits in every batch. With node weights u, sums are of u f
and u w, variances of u^2 w; weights of 1 do not change a bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.quantify.interface import Communities, GroupSums, NodeTable

__all__ = ["NodeSums", "class_codes", "node_sums", "posterior_row"]

LOWEST = 1e-12
"""Lower bound of posteriors before they are tilted."""


@dataclass(frozen=True, eq=False)
class NodeSums:
    """Sums over the unlabelled members of S communities."""

    count: Ints
    """Unlabelled members, shape (S,)."""
    size: Floats
    """Sum of their node weights u, shape (S,)."""
    square: Floats
    """Sum of u^2, shape (S,)."""
    mean: Floats
    """Mean posterior, shape (S, C); NaN without an unlabelled member of weight."""
    weight: Floats
    """Sum of u w, shape (S, K)."""
    own: Floats
    """Sum of u^2 w, the variance of independent nodes, shape (S, K)."""
    spread: Floats
    """Sum over groups of (sum of w)^2 times the group's variance, shape (S, K)."""
    calibrated: Floats
    """Sum over groups of sum of w times variance times the group's share of the
    labelled nodes' weight, shape (S, K)."""
    groups: GroupSums
    """Sums of w by group."""

    @property
    def alike(self) -> Bools:
        """Whether the unlabelled members have equal weights, shape (S,)."""
        spread = self.count * self.square - self.size**2
        return np.asarray(spread <= 1e-9 * self.size**2)


def class_codes(n_classes: int) -> tuple[int, ...]:
    """Codes of the K classes taken against the rest: the second of two, else all."""
    return (1,) if n_classes == 2 else tuple(range(n_classes))


def node_sums(
    batch: Communities | None,
    nodes: NodeTable,
    prior: Floats,
    groups: Ints32,
    variances: Floats,
    labelled: Floats,
    least: float,
    tilts: Floats | None = None,
) -> NodeSums:
    """Add up the unlabelled members of every community; no batch: of all nodes.

    Groups, shape (N,) or (L, N) for L partitions, have no code in common; `variances`
    and `labelled` (each group's share of the labelled nodes' weight) are (G, K). The
    prior replaces a row of zeros; posteriors are multiplied by `tilts`, (C,), and
    normalised, and in w they are clipped to `least` from 0 and 1.
    """
    groups = np.atleast_2d(groups)
    if tilts is None:
        tilts = np.ones(nodes.posteriors.shape[1])
    prior = prior * tilts
    n_nodes, n_classes = nodes.posteriors.shape
    codes = class_codes(n_classes)
    if batch is None:
        offsets, members = np.array([0, n_nodes]), np.empty(0, np.int64)
    else:
        offsets, members = batch.offsets, batch.members
    max_rows = len(groups) * np.diff(offsets)
    capacity = int(np.minimum(max_rows, len(variances)).sum())
    weights = np.empty(0) if nodes.weights is None else nodes.weights
    cells, factors = np.empty(0, np.int32), np.empty((0, n_classes))
    if nodes.tilt is not None:
        cells, factors = nodes.tilt.cell, nodes.tilt.factors
    size, width = len(offsets) - 1, len(codes)
    count, total, square = np.zeros(size, np.int64), np.zeros(size), np.zeros(size)
    mean, sums = np.zeros((size, n_classes)), np.zeros((4, size, width))
    places = np.zeros(size + 1, np.int64)
    codes_of = np.empty(capacity, np.int32)
    values = np.empty((capacity, width), np.float32)
    squares = np.empty((capacity if len(weights) else 0, width), np.float32)
    # Allocated here: in the kernel, each allocation would be compiled.
    _add_members(
        offsets,
        members,
        batch is None,
        nodes.unlabelled,
        nodes.posteriors,
        weights,
        cells,
        factors,
        prior / prior.sum(),
        tilts,
        np.array(codes),
        groups,
        variances,
        variances * labelled,
        least,
        *(count, total, square, mean, sums, places, codes_of, values, squares),
        *(np.zeros(variances.shape), np.zeros(variances.shape)),
        np.zeros(len(variances), np.bool_),
        np.empty(n_classes),
    )
    mean[total == 0] = np.nan
    with np.errstate(invalid="ignore"):
        mean /= np.where(total > 0, total, 1.0)[:, None]
    if n_classes == 2:
        mean[:, 0] = 1 - mean[:, 1]
    rows = int(places[-1])
    optional = None if nodes.weights is None else squares[:rows].copy()
    found = codes_of[:rows].copy(), values[:rows].copy()
    group_sums = GroupSums(places, *found, optional)
    parts: list[Any] = [count, total, square, mean, *sums, group_sums]
    return NodeSums(*parts)


@njit(cache=True, nogil=True, error_model="numpy")
def posterior_row(
    posteriors: Floats32, prior: Floats, factors: Floats, row: Floats
) -> float:
    """Fill in a node's posterior times the factors, normalised; return the norm."""
    n_classes = prior.shape[0]
    total, norm = 0.0, 0.0
    for y in range(n_classes):
        total += posteriors[y]
    for y in range(n_classes):
        f = posteriors[y] / total if total > 0.0 else prior[y]
        row[y] = max(f, LOWEST) * factors[y]
        norm += row[y]
    for y in range(n_classes):
        row[y] /= norm
    return norm


@njit(cache=True, nogil=True, error_model="numpy")
def _add_members(
    offsets: Ints,
    members: Ints,
    everyone: bool,
    unlabelled: Bools,
    posteriors: Floats32,
    weights: Floats,
    cells: Ints32,
    factors: Floats,
    prior: Floats,
    tilts: Floats,
    codes: Ints,
    groups: Ints32,
    variances: Floats,
    products: Floats,
    least: float,
    count: Ints,
    sizes: Floats,
    square: Floats,
    mean: Floats,
    totals: Floats,
    places: Ints,
    found_groups: Ints32,
    found_weights: Floats32,
    found_squares: Floats32,
    sums: Floats,
    squares: Floats,
    seen: Bools,
    row: Floats,
) -> None:
    """Compute the fields of `NodeSums`; members are added one after the other.

    Without weights every node counts once; without cells no posterior is tilted. The
    arrays from `count` to `found_squares` are the result; the last four are for work.
    """
    n_classes, width = posteriors.shape[1], codes.shape[0]
    weighted, tilted = weights.shape[0] > 0, cells.shape[0] > 0
    size, levels = offsets.shape[0] - 1, groups.shape[0]
    weight, own, spread, calibrated = totals[0], totals[1], totals[2], totals[3]
    at = 0
    for s in range(size):
        begin = at
        number, sum_of_weights, sum_of_squares = 0, 0.0, 0.0
        for i in range(offsets[s], offsets[s + 1]):
            v = i if everyone else members[i]
            if not unlabelled[v]:
                continue
            u = weights[v] if weighted else 1.0
            number += 1
            sum_of_weights += u
            sum_of_squares += u * u
            moved = tilted and cells[v] >= 0
            total = 0.0
            if moved:
                posterior_row(posteriors[v], prior, factors[cells[v]], row)
            else:
                for y in range(n_classes):
                    total += tilts[y] * posteriors[v, y]
            for level in range(levels):
                g = groups[level, v]
                if not seen[g]:
                    seen[g] = True
                    found_groups[at] = g
                    at += 1
            for k in range(width):
                y = codes[k]
                if moved:
                    f = row[y]
                elif total > 0.0:
                    f = tilts[y] * posteriors[v, y] / total
                else:
                    f = prior[y]
                mean[s, y] += u * f
                inside = min(max(f, least), 1.0 - least)
                w = inside * (1.0 - inside)
                for level in range(levels):
                    g = groups[level, v]
                    sums[g, k] += u * w
                    squares[g, k] += u * u * w
        count[s], sizes[s], square[s] = number, sum_of_weights, sum_of_squares
        for j in range(begin, at):
            g = found_groups[j]
            for k in range(width):
                w = sums[g, k]
                weight[s, k] += w
                own[s, k] += squares[g, k]
                spread[s, k] += w * w * variances[g, k]
                calibrated[s, k] += w * products[g, k]
                found_weights[j, k] = w
                if weighted:
                    found_squares[j, k] = squares[g, k]
                sums[g, k] = 0.0
                squares[g, k] = 0.0
            seen[g] = False
        for k in range(width):
            # The groups of each partition add up to all members.
            weight[s, k] /= levels
            own[s, k] /= levels
        places[s + 1] = at
