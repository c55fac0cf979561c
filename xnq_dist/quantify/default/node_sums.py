"""Sums over the unlabelled members of communities, from which `auto` estimates.

One pass over the members adds up posteriors f and weights ``w = f (1 - f)``, the latter
also by group of each of the graph's partitions. Members are added in order, so the sums
of a community have the same bits in every batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32
from xnq_dist.quantify.interface import Communities, NodeTable

__all__ = ["NodeSums", "class_codes", "node_sums"]


@dataclass(frozen=True, eq=False)
class NodeSums:
    """Sums over the unlabelled members of S communities."""

    count: Ints
    """Unlabelled members, shape (S,)."""
    mean: Floats
    """Mean posterior, shape (S, C); NaN without an unlabelled member."""
    weight: Floats
    """Sum of w, the variance of independent nodes, shape (S, K)."""
    spread: Floats
    """Sum over groups of (sum of w)^2 times the group's variance, shape (S, K)."""
    calibrated: Floats
    """Sum over groups of sum of w times variance times the group's share of the
    labelled nodes' weight, shape (S, K)."""


def class_codes(n_classes: int) -> tuple[int, ...]:
    """Codes of the K classes taken against the rest: the second of two, else all."""
    return (1,) if n_classes == 2 else tuple(range(n_classes))


def node_sums(
    batch: Communities,
    nodes: NodeTable,
    prior: Floats,
    groups: Ints32,
    variances: Floats,
    labelled: Floats,
    least: float,
    tilts: Floats,
) -> NodeSums:
    """Add up the unlabelled members of every community.

    Groups, shape (L, N) for L partitions, have no code in common; `variances`
    and `labelled` (each group's share of the labelled nodes' weight) are (G, K). The
    prior replaces a row of zeros; posteriors are multiplied by `tilts`, (C,), and
    normalised, and in w they are clipped to `least` from 0 and 1.
    """
    prior = prior * tilts
    n_classes = nodes.posteriors.shape[1]
    size, width = len(batch), len(class_codes(n_classes))
    count = np.zeros(size, np.int64)
    mean, totals = np.zeros((size, n_classes)), np.zeros((3, size, width))
    _add_members(
        batch.offsets,
        batch.members,
        nodes.unlabelled,
        nodes.posteriors,
        prior / prior.sum(),
        tilts,
        groups,
        variances,
        variances * labelled,
        least,
        *(count, mean, totals),
    )
    mean[count == 0] = np.nan
    mean /= np.maximum(count, 1)[:, None]
    if n_classes == 2:
        mean[:, 0] = 1 - mean[:, 1]
    return NodeSums(count, mean, *totals)


@njit(cache=True, nogil=True, error_model="numpy")
def _add_members(
    offsets: Ints,
    members: Ints,
    unlabelled: Bools,
    posteriors: Floats32,
    prior: Floats,
    tilts: Floats,
    groups: Ints32,
    variances: Floats,
    products: Floats,
    least: float,
    count: Ints,
    mean: Floats,
    totals: Floats,
) -> None:
    """Fill in the fields of `NodeSums`; members are added one after the other."""
    n_classes, width = posteriors.shape[1], variances.shape[1]
    size, levels = offsets.shape[0] - 1, groups.shape[0]
    weight, spread, calibrated = totals
    sums = np.zeros_like(variances)
    found = np.empty(len(variances), np.int32)
    seen = np.zeros(len(variances), np.bool_)
    for s in range(size):
        number, groups_found = 0, 0
        for v in members[offsets[s] : offsets[s + 1]]:
            if not unlabelled[v]:
                continue
            number += 1
            total = 0.0
            for y in range(n_classes):
                total += tilts[y] * posteriors[v, y]
            for level in range(levels):
                g = groups[level, v]
                if not seen[g]:
                    seen[g] = True
                    found[groups_found] = g
                    groups_found += 1
            for k in range(width):
                # Of two classes, the second is added up: `class_codes`.
                y = n_classes - width + k
                f = tilts[y] * posteriors[v, y] / total if total > 0.0 else prior[y]
                mean[s, y] += f
                inside = min(max(f, least), 1.0 - least)
                w = inside * (1.0 - inside)
                for level in range(levels):
                    sums[groups[level, v], k] += w
        count[s] = number
        for g in found[:groups_found]:
            for k in range(width):
                w = sums[g, k]
                weight[s, k] += w
                spread[s, k] += w * w * variances[g, k]
                calibrated[s, k] += w * products[g, k]
                sums[g, k] = 0.0
            seen[g] = False
        for k in range(width):
            # The groups of each partition add up to all members.
            weight[s, k] /= levels
