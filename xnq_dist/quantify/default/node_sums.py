"""Sums over the unlabelled members of communities, from which `auto` estimates.

One pass over the members adds up posteriors f and weights ``w = f (1 - f)``, the latter
also by group of each of the graph's partitions. Members are added in order, so the sums
of a community have the same bits in every batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32, Ints, Ints32
from xnq_dist.core.kernel import kernel
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.default.scenarios import Tilt
from xnq_dist.quantify.interface import Communities, NodeTable

__all__ = ["NodeSums", "node_sums"]


@dataclass(frozen=True, eq=False)
class NodeSums:
    """Sums over the members of S communities."""

    mean: Floats
    """Mean posterior, shape (S, C); NaN without a member."""
    weight: Floats
    """Sum of w, the variance of independent nodes, shape (S, K)."""
    variance: Floats
    """Variance of the sum of posteriors, with the shifts that nodes share, (S, K)."""


def node_sums(
    free: Communities, nodes: NodeTable, learnt: Learnt, tilt: Tilt
) -> NodeSums:
    """Add up `free`, the unlabelled members of every community, in a scenario.

    The prior replaces a row of zeros; posteriors are tilted, and in w they are clipped.
    """
    prior, n_classes = nodes.prior * tilt.factors, len(nodes.classes)
    mean = np.zeros((len(free), n_classes))
    totals = np.zeros((3, len(free), len(learnt.shared)))
    _add_members(
        free.offsets,
        free.members,
        nodes.posteriors,
        prior / prior.sum(),
        tilt.factors,
        learnt.groups,
        learnt.variances,
        learnt.variances * learnt.labelled,
        learnt.least,
        *(mean, totals),
    )
    mean[free.sizes == 0] = np.nan
    mean /= np.maximum(free.sizes, 1)[:, None]
    if n_classes == 2:
        mean[:, 0] = 1 - mean[:, 1]
    weight, spread, calibrated = totals
    shifts = spread - 2 * weight * calibrated
    shifts += weight**2 * (learnt.variances * learnt.labelled**2).sum(axis=0)
    shared = tilt.shift if tilt.known else learnt.shared + tilt.shift
    # Rounding may make this sum of squares negative.
    shifts = np.maximum(shifts, 0.0) + weight**2 * shared
    return NodeSums(mean, weight, weight + shifts)


@kernel
def _add_members(
    offsets: Ints,
    members: Ints,
    posteriors: Floats32,
    prior: Floats,
    tilts: Floats,
    groups: Ints32,
    variances: Floats,
    products: Floats,
    least: float,
    mean: Floats,
    totals: Floats,
) -> None:
    """Add members one after the other; fill in the last two arguments.

    `totals` become, for each community and class, the sum of w, and the sums over
    groups of (sum of w)^2 times `variances` and of the sum of w times `products`.
    """
    n_classes, width = posteriors.shape[1], variances.shape[1]
    size, levels = offsets.shape[0] - 1, groups.shape[0]
    weight, spread, calibrated = totals
    sums = np.zeros_like(variances)
    found = np.empty(len(variances), np.int32)
    seen = np.zeros(len(variances), np.bool_)
    for s in range(size):
        groups_found = 0
        for v in members[offsets[s] : offsets[s + 1]]:
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
                # Of two classes, the second is added up.
                y = n_classes - width + k
                f = tilts[y] * posteriors[v, y] / total if total > 0.0 else prior[y]
                mean[s, y] += f
                inside = min(max(f, least), 1.0 - least)
                w = inside * (1.0 - inside)
                for level in range(levels):
                    sums[groups[level, v], k] += w
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
