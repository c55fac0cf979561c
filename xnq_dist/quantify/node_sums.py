"""Sums over the unlabelled members of communities: all that `auto` needs of them.

One pass over the members adds up posteriors f and weights ``w = f (1 - f)``, the latter
by group of the graph's own partition as well. Members are added in their order, so the
sums of a community have the same bits in every batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.quantify.interface import Communities, GroupSums, NodeTable

__all__ = ["NodeSums", "class_codes", "node_sums"]


@dataclass(frozen=True, eq=False)
class NodeSums:
    """Sums over the unlabelled members of S communities."""

    count: NDArray[np.int64]
    """Unlabelled members, shape (S,)."""
    mean: NDArray[np.float64]
    """Mean posterior, shape (S, C); NaN without an unlabelled member."""
    weight: NDArray[np.float64]
    """Sum of w, shape (S, K)."""
    spread: NDArray[np.float64]
    """Sum over groups of (sum of w)^2 times the group's variance, shape (S, K)."""
    calibrated: NDArray[np.float64]
    """Sum over groups of sum of w times variance times the group's share of the
    labelled nodes' weight, shape (S, K)."""
    groups: GroupSums
    """Sums of w by group."""


def class_codes(n_classes: int) -> tuple[int, ...]:
    """Codes of the K classes that are taken against the rest: one of two is enough."""
    return (1,) if n_classes == 2 else tuple(range(n_classes))


def node_sums(
    batch: Communities | None,
    nodes: NodeTable,
    prior: NDArray[np.float64],
    groups: NDArray[np.int32],
    variances: NDArray[np.float64],
    labelled: NDArray[np.float64],
    least: float,
    factors: NDArray[np.float64] | None = None,
) -> NodeSums:
    """Add up the unlabelled members of every community.

    Parameters
    ----------
    batch
        The communities; None: one community of all nodes.
    nodes
        Posteriors and labels.
    prior
        Posterior of a node whose row is all zeros, shape (C,).
    groups
        Group of every node, shape (N,).
    variances
        Variance of each group's own logit shift, shape (G, K).
    labelled
        Each group's share of the labelled nodes' weight, shape (G, K).
    least
        Posteriors are taken at least so far from 0 and 1 in w.
    factors
        What posteriors are multiplied by, class by class, before they are normalised,
        shape (C,); None: by 1.
    """
    if factors is None:
        factors = np.ones(nodes.posteriors.shape[1])
    prior = prior * factors
    n_nodes, n_classes = nodes.posteriors.shape
    codes = class_codes(n_classes)
    if batch is None:
        offsets, members = np.array([0, n_nodes]), np.empty(0, np.int64)
    else:
        offsets, members = batch.offsets, batch.members
    size, width = len(offsets) - 1, len(codes)
    room = int(np.minimum(np.diff(offsets), len(variances)).sum())
    places = np.zeros(size + 1, np.int64)
    found = np.empty(room, np.int32), np.empty((room, width), np.float32)
    count = np.zeros(size, np.int64)
    mean, weight = np.zeros((size, n_classes)), np.zeros((size, width))
    spread, calibrated = np.zeros((size, width)), np.zeros((size, width))
    _add_members(
        offsets,
        members,
        batch is None,
        nodes.unlabelled,
        nodes.posteriors,
        prior / prior.sum(),
        factors,
        np.array(codes),
        groups,
        variances,
        variances * labelled,
        least,
        count,
        mean,
        weight,
        spread,
        calibrated,
        places,
        *found,
    )
    mean[count == 0] = np.nan
    with np.errstate(invalid="ignore"):
        mean /= np.maximum(count, 1)[:, None]
    if n_classes == 2:
        mean[:, 0] = 1 - mean[:, 1]
    used = int(places[-1])
    sums = GroupSums(places, found[0][:used].copy(), found[1][:used].copy())
    return NodeSums(count, mean, weight, spread, calibrated, sums)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _add_members(
    offsets: NDArray[np.int64],
    members: NDArray[np.int64],
    everyone: bool,
    unlabelled: NDArray[np.bool_],
    posteriors: NDArray[np.float32],
    prior: NDArray[np.float64],
    factors: NDArray[np.float64],
    codes: NDArray[np.int64],
    groups: NDArray[np.int32],
    variances: NDArray[np.float64],
    products: NDArray[np.float64],
    least: float,
    count: NDArray[np.int64],
    mean: NDArray[np.float64],
    weight: NDArray[np.float64],
    spread: NDArray[np.float64],
    calibrated: NDArray[np.float64],
    places: NDArray[np.int64],
    found_groups: NDArray[np.int32],
    found_weights: NDArray[np.float32],
) -> None:
    """Fill in the last eight arguments; members are added one after the other."""
    n_classes, width = posteriors.shape[1], codes.shape[0]
    sums = np.zeros(variances.shape)
    met = np.zeros(variances.shape[0], np.bool_)
    at = 0
    for s in range(offsets.shape[0] - 1):
        begin = at
        for i in range(offsets[s], offsets[s + 1]):
            v = i if everyone else members[i]
            if not unlabelled[v]:
                continue
            count[s] += 1
            total = 0.0
            for y in range(n_classes):
                total += factors[y] * posteriors[v, y]
            g = groups[v]
            if not met[g]:
                met[g] = True
                found_groups[at] = g
                at += 1
            for k in range(width):
                y = codes[k]
                f = prior[y]
                if total > 0.0:
                    f = factors[y] * posteriors[v, y] / total
                mean[s, y] += f
                inside = min(max(f, least), 1.0 - least)
                sums[g, k] += inside * (1.0 - inside)
        for j in range(begin, at):
            g = found_groups[j]
            for k in range(width):
                w = sums[g, k]
                weight[s, k] += w
                spread[s, k] += w * w * variances[g, k]
                calibrated[s, k] += w * products[g, k]
                found_weights[j, k] = w
                sums[g, k] = 0.0
            met[g] = False
        places[s + 1] = at
